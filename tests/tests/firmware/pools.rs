//! The examples of the generic pool: four tasks over two connections to a small server of the test.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use poolhouse_tests::firmware::Firmware;
use poolhouse_tests::patience;

use crate::peer::Peer;
use crate::{LIMIT, Outcome};

/// The tasks of an example.
const TASKS: usize = 4;
/// The connections of its pool.
const CONNECTIONS: usize = 2;

/// The outcomes of an example's requests.
struct Totals {
    succeeded: usize,
    failed: usize,
}

/// Waits until an example has ended, and returns its totals, which include all requests.
fn totals(case: &str, firmware: &mut Firmware, requests: usize) -> Result<Totals, String> {
    let status = firmware.finish(LIMIT).map_err(|error| error.to_string())?;
    let output = firmware.output();
    let summary = output.iter().find(|line| line.starts_with("succeeded ")).cloned().unwrap_or_default();
    println!("firmware: {case}: {summary}");
    let number = |name: &str| summary.split(", ").find_map(|part| part.strip_prefix(name)?.parse().ok());
    match (status, number("succeeded "), number("failed ")) {
        (0, Some(succeeded), Some(failed)) if succeeded + failed == TASKS * requests => {
            Ok(Totals { succeeded, failed })
        }
        _ => Err(format!("exit status {status}:\n{}", output.join("\n"))),
    }
}

/// Whether a line has the outcome of a request that succeeded.
fn is_success(line: &str) -> bool {
    line.starts_with("task ") && !line.contains(" failed: ")
}

fn is_failure(line: &str) -> bool {
    line.starts_with("task ") && line.contains(" failed: ")
}

fn check(is_right: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if is_right { Ok(()) } else { Err(why()) }
}

/// Stops the server while an example sends requests, starts it again after a request has failed, and
/// waits for the next success.
fn restart(peer: &mut Peer, firmware: &mut Firmware) -> Outcome {
    for _ in 0..2 * TASKS {
        firmware.wait_for(LIMIT, is_success)?;
    }
    peer.stop()?;
    firmware.wait_for(LIMIT, is_failure)?;
    peer.resume()?;
    firmware.wait_for(LIMIT, is_success)?;
    Ok(())
}

/// All connections have ended, there were never more than those of the pool, and no request was
/// wrong.
fn check_connections(peer: &Peer) -> Outcome {
    patience::run(patience::eventually("the connections end", || peer.open() == 0));
    check(peer.most_open() <= CONNECTIONS, || format!("{} connections at the same time", peer.most_open()))?;
    check(peer.complaints().is_empty(), || peer.complaints().join("\n"))?;
    Ok(())
}

/// How a server of HTTP replies to one request.
enum Reply {
    /// With the number of the request.
    Number,
    /// The same as the last reply of the connection.
    Last { is_announced: bool },
    /// With these bytes; the client must then end the connection.
    Raw(Vec<u8>),
}

/// A server of HTTP. Its request handler receives the number of the request, beginning with 0.
fn http(reply: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Result<Peer, Box<dyn core::error::Error>> {
    let requests = AtomicUsize::new(0);
    Peer::start(move |stream| {
        let mut reader = BufReader::new(stream.try_clone()?);
        while read_head(&mut reader)? {
            let number = requests.fetch_add(1, Ordering::SeqCst);
            let body = number.to_string();
            let reply = reply(number);
            let option = if matches!(reply, Reply::Last { is_announced: true }) { "Connection: close\r\n" } else { "" };
            match reply {
                Reply::Raw(bytes) => {
                    stream.write_all(&bytes)?;
                    return expect_end(stream);
                }
                Reply::Number | Reply::Last { .. } => {
                    write!(stream, "HTTP/1.1 200 OK\r\n{option}content-length: {}\r\n\r\n{body}", body.len())?;
                }
            }
            if let Reply::Last { .. } = reply {
                return Ok(());
            }
        }
        Ok(())
    })
}

/// Reads the head of a request; false at the end of the connection.
fn read_head(reader: &mut impl BufRead) -> io::Result<bool> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(false);
        }
        if line == "\r\n" {
            break;
        }
        lines.push(line);
    }
    let is_valid = lines.first().is_some_and(|line| line == "GET / HTTP/1.1\r\n")
        && lines.iter().any(|line| line.starts_with("Host: "));
    if is_valid { Ok(true) } else { Err(io::Error::other(format!("not a valid request: {lines:?}"))) }
}

/// Waits for the end of a connection after a reply that the client must not accept.
fn expect_end(stream: &mut TcpStream) -> io::Result<()> {
    let mut bytes = [0; 64];
    let count = stream.read(&mut bytes)?;
    if count == 0 {
        return Ok(());
    }
    Err(io::Error::other(format!("a request after a wrong reply: {:?}", &bytes[..count])))
}

/// The numbers in the replies that an example has printed.
fn numbers(firmware: &Firmware) -> BTreeSet<usize> {
    let texts = firmware.output().iter().filter(|line| is_success(line));
    texts.filter_map(|line| body(line)?.parse().ok()).collect()
}

/// The body of a reply in a line such as `task 0, request 0: (200, [49, 50])`.
fn body(line: &str) -> Option<String> {
    let bytes = line.split_once(": (200, [")?.1.strip_suffix("])")?;
    let bytes: Vec<u8> = bytes.split(", ").map(|byte| byte.parse().ok()).collect::<Option<_>>()?;
    String::from_utf8(bytes).ok()
}

pub(crate) fn http_tasks_share_two_connections() -> Outcome {
    let peer = http(|_| Reply::Number)?;
    let mut firmware = Firmware::start("http", &peer.arguments(25, 0), None)?;
    let totals = totals("http tasks share two connections", &mut firmware, 25)?;
    check(totals.failed == 0, || firmware.output().join("\n"))?;
    // Each task received the replies to its own requests, and every reply was received once.
    let found = numbers(&firmware);
    check(found == (0..100).collect(), || format!("{found:?}"))?;
    check(peer.accepted() == CONNECTIONS, || format!("{} connections", peer.accepted()))?;
    check_connections(&peer)
}

pub(crate) fn http_connections_that_the_server_closes_are_replaced() -> Outcome {
    for is_announced in [true, false] {
        let peer = http(move |number| if number % 5 == 4 { Reply::Last { is_announced } } else { Reply::Number })?;
        let mut firmware = Firmware::start("http", &peer.arguments(25, 0), None)?;
        let case = format!("http connections are replaced, announced: {is_announced}");
        let totals = totals(&case, &mut firmware, 25)?;
        // A request on a connection that is just being closed without announcement fails.
        let served = numbers(&firmware).len();
        check(served == totals.succeeded, || format!("{served} different replies"))?;
        // Each connection that the server closes may fail one request, unless the close is announced.
        let closed = served / 5;
        let failed_max = if is_announced { 0 } else { closed };
        check(totals.failed <= failed_max, || firmware.output().join("\n"))?;
        // One connection for each that was closed, and those of the beginning.
        let accepted = peer.accepted();
        check((closed..=closed + CONNECTIONS + totals.failed).contains(&accepted), || format!("{accepted} accepted"))?;
        check_connections(&peer)?;
    }
    Ok(())
}

pub(crate) fn http_requests_succeed_again_after_a_restart() -> Outcome {
    let mut peer = http(|_| Reply::Number)?;
    let mut firmware = Firmware::start("http", &peer.arguments(100, 50), None)?;
    restart(&mut peer, &mut firmware)?;
    let totals = totals("http requests succeed again after a restart", &mut firmware, 100)?;
    check(totals.succeeded > 3 * TASKS, || firmware.output().join("\n"))?;
    check(numbers(&firmware).len() == totals.succeeded, || firmware.output().join("\n"))?;
    check_connections(&peer)
}

/// Replies that a client must refuse.
fn wrong_replies() -> Vec<Vec<u8>> {
    let many = "a".repeat(2_000);
    [
        "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na".to_owned(),
        "HTTP/1.1 200 OK\r\n\r\na".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\naa".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na".to_owned(),
        "HTTP/1.1 2000 OK\r\nContent-Length: 1\r\n\r\na".to_owned(),
        "HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding : chunked\r\n\r\n0".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 4294967295\r\n\r\na".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0".to_owned(),
        format!("HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n{many}"),
        format!("HTTP/1.1 200 OK\r\nX: {many}"),
        "\r\n\r\n".to_owned(),
        "\u{0}\u{ffff}\r\n\r\n".to_owned(),
    ]
    .map(String::into_bytes)
    .into()
}

pub(crate) fn wrong_http_replies_are_errors_and_end_their_connections() -> Outcome {
    let wrong = wrong_replies();
    let count = wrong.len();
    let peer = http(move |number| match wrong.get(number / 2) {
        Some(bytes) if number % 2 == 0 => Reply::Raw(bytes.clone()),
        Some(_) | None => Reply::Number,
    })?;
    let mut firmware = Firmware::start("http", &peer.arguments(10, 0), None)?;
    let totals = totals("wrong http replies are errors", &mut firmware, 10)?;
    check(totals.failed == count, || firmware.output().join("\n"))?;
    let refused = firmware.output().iter().filter(|line| line.contains("failed: Invalid(")).count();
    check(refused == count, || firmware.output().join("\n"))?;
    check_connections(&peer)
}

/// The value of a holding register.
fn register(unit: u8, number: u16) -> u16 {
    u16::from(unit) * 1_000 + number * 3
}

/// A server of Modbus-TCP. `change` changes the reply to a request, of which it receives the number,
/// beginning with 0; the client must then end the connection.
fn modbus(
    change: impl Fn(usize, &mut Vec<u8>) -> bool + Send + Sync + 'static,
) -> Result<Peer, Box<dyn core::error::Error>> {
    let requests = AtomicUsize::new(0);
    let change = Arc::new(change);
    Peer::start(move |stream| {
        let mut request = [0; 12];
        while stream.read_exact(&mut request).is_ok() {
            let [t0, t1, 0, 0, 0, 6, unit, 3, high, low, 0, count @ 1..=125] = request else {
                return Err(io::Error::other(format!("not a valid request: {request:?}")));
            };
            let first = u16::from_be_bytes([high, low]);
            let mut reply = vec![t0, t1, 0, 0, 0, 3 + 2 * count, unit, 3, 2 * count];
            for number in first..first + u16::from(count) {
                reply.extend(register(unit, number).to_be_bytes());
            }
            let is_wrong = change(requests.fetch_add(1, Ordering::SeqCst), &mut reply);
            stream.write_all(&reply)?;
            if is_wrong {
                return expect_end(stream);
            }
        }
        Ok(())
    })
}

/// The values that an example has printed are those of their registers.
fn check_values(firmware: &Firmware) -> Outcome {
    for line in firmware.output().iter().filter(|line| is_success(line)) {
        let (unit, request, values) = reading(line).ok_or_else(|| line.clone())?;
        let right: Vec<_> = (4 * request..4 * request + 4).map(|number| register(unit, number)).collect();
        check(values == right, || format!("{line}, not {right:?}"))?;
    }
    Ok(())
}

/// Unit, request and values in a line such as `task 2, request 7: [1, 2, 3, 4]`.
fn reading(line: &str) -> Option<(u8, u16, Vec<u16>)> {
    let (unit, rest) = line.strip_prefix("task ")?.split_once(", request ")?;
    let (request, values) = rest.split_once(": [")?;
    let values = values.strip_suffix("]")?.split(", ").map(|value| value.parse().ok()).collect::<Option<_>>()?;
    Some((unit.parse().ok()?, request.parse().ok()?, values))
}

pub(crate) fn modbus_tasks_share_two_connections() -> Outcome {
    let peer = modbus(|_, _| false)?;
    let mut firmware = Firmware::start("modbus", &peer.arguments(25, 0), None)?;
    let totals = totals("modbus tasks share two connections", &mut firmware, 25)?;
    check(totals.failed == 0, || firmware.output().join("\n"))?;
    check_values(&firmware)?;
    check(peer.accepted() == CONNECTIONS, || format!("{} connections", peer.accepted()))?;
    check_connections(&peer)
}

pub(crate) fn modbus_readings_succeed_again_after_a_restart() -> Outcome {
    let mut peer = modbus(|_, _| false)?;
    let mut firmware = Firmware::start("modbus", &peer.arguments(100, 50), None)?;
    restart(&mut peer, &mut firmware)?;
    let totals = totals("modbus readings succeed again after a restart", &mut firmware, 100)?;
    check(totals.succeeded > 3 * TASKS, || firmware.output().join("\n"))?;
    check_values(&firmware)?;
    check_connections(&peer)
}

pub(crate) fn wrong_modbus_replies_are_errors_and_end_their_connections() -> Outcome {
    // Each change violates one rule: transaction, protocol, length, unit, function, count of bytes.
    const CHANGED: [usize; 6] = [1, 2, 5, 6, 7, 8];
    let peer = modbus(|number, reply| {
        let Some(place) = CHANGED.get(number / 2).filter(|_| number % 2 == 0) else { return false };
        reply[*place] ^= 0x40;
        true
    })?;
    let mut firmware = Firmware::start("modbus", &peer.arguments(10, 0), None)?;
    let totals = totals("wrong modbus replies are errors", &mut firmware, 10)?;
    let refused = firmware.output().iter().filter(|line| line.contains("failed: Invalid(")).count();
    check((totals.failed, refused) == (CHANGED.len(), CHANGED.len()), || firmware.output().join("\n"))?;
    check_values(&firmware)?;
    check_connections(&peer)
}

pub(crate) fn modbus_exceptions_are_errors_and_keep_their_connections() -> Outcome {
    let peer = modbus(|number, reply| {
        if number % 3 == 0 {
            reply.truncate(9);
            (reply[5], reply[7], reply[8]) = (3, 0x83, 2);
        }
        false
    })?;
    let mut firmware = Firmware::start("modbus", &peer.arguments(15, 0), None)?;
    let totals = totals("modbus exceptions are errors", &mut firmware, 15)?;
    let refused = firmware.output().iter().filter(|line| line.ends_with("failed: Exception(2)")).count();
    check((totals.failed, refused) == (20, 20), || firmware.output().join("\n"))?;
    check_values(&firmware)?;
    check(peer.accepted() == CONNECTIONS, || format!("{} connections", peer.accepted()))?;
    check_connections(&peer)
}
