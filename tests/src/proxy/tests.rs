use super::{Fault, Proxy, Weather};
use core::time::Duration;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

/// Time limit of waits; much longer than any needs.
const PATIENCE: Duration = Duration::from_secs(20);
const MESSAGE: &[u8] = b"twenty bytes of text";

/// Starts a server that sends received bytes back, on each connection.
fn echo() -> (core::net::SocketAddr, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let accepting = listener.try_clone().unwrap();
    thread::spawn(move || {
        for mut stream in accepting.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut bytes) {
                    if stream.write_all(&bytes[..count]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, listener)
}

fn proxy(weather: Weather) -> (Proxy, TcpListener) {
    let (address, listener) = echo();
    let proxy = Proxy::start(address, 1).unwrap();
    proxy.set_weather(weather);
    (proxy, listener)
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Returns the bytes of the message that are received back until the end, and whether the end was
/// orderly.
fn exchange(stream: &mut TcpStream) -> (Vec<u8>, bool) {
    let mut back = Vec::new();
    if stream.write_all(MESSAGE).is_err() {
        return (back, false);
    }
    let mut bytes = [0; 64];
    while back.len() < MESSAGE.len() {
        match stream.read(&mut bytes) {
            Ok(0) => return (back, true),
            Ok(count) => back.extend_from_slice(&bytes[..count]),
            Err(error) => {
                assert_ne!(error.kind(), ErrorKind::WouldBlock, "the read timed out");
                return (back, false);
            }
        }
    }
    (back, true)
}

fn always(fault: Fault, after_bytes: u64) -> Weather {
    Weather { spoiled_percent: 100, faults: vec![fault], after_bytes: Some(after_bytes) }
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "condition not met in time: {what}");
        thread::yield_now();
    }
}

#[test]
fn without_faults_all_bytes_are_forwarded_and_sockets_are_counted() {
    let (proxy, _echo) = proxy(Weather::calm());
    let mut streams = [connect(&proxy), connect(&proxy)];
    for stream in &mut streams {
        assert_eq!(exchange(stream), (MESSAGE.to_vec(), true));
    }
    assert_eq!((proxy.counts().accepted, proxy.sockets(), proxy.counts().faults), (2, 4, [0; 8]));
    drop(streams);
    eventually("all are closed", || proxy.sockets() == 0);
}

#[test]
fn cut_occurs_after_exactly_that_number_of_bytes_in_either_direction() {
    for after in [0, 1, 7, 19] {
        for fault in [Fault::Cut, Fault::Reset, Fault::HalfClose] {
            let (proxy, _echo) = proxy(always(fault, after));
            for _ in 0..4 {
                let (back, orderly) = exchange(&mut connect(&proxy));
                let text = format!("{fault:?} after {after}: {back:?}");
                // If requests are counted, bytes that the server sent back may be lost with the
                // connection.
                assert!(back.len() as u64 <= after && MESSAGE.starts_with(&back), "{text}");
                assert!(orderly || fault != Fault::HalfClose, "{text}");
            }
            assert_eq!(proxy.counts().faults[fault.index()], 4);
        }
    }
}

#[test]
fn pardon_affects_open_connections_without_a_fault_so_far() {
    for fault in [Fault::Cut, Fault::Reset, Fault::HalfClose, Fault::Stall, Fault::Garbage] {
        let (proxy, _echo) = proxy(always(fault, MESSAGE.len() as u64 + 1));
        let mut stream = connect(&proxy);
        assert_eq!(exchange(&mut stream), (MESSAGE.to_vec(), true));
        proxy.pardon();
        for _ in 0..4 {
            assert_eq!(exchange(&mut stream), (MESSAGE.to_vec(), true), "{fault:?}");
        }
        assert_eq!(proxy.counts().faults, [0; 8]);
        // Applies to the next connection.
        let mut stream = connect(&proxy);
        assert_eq!(exchange(&mut stream), (MESSAGE.to_vec(), true));
        stream.write_all(MESSAGE).unwrap();
        eventually("it is spoiled", || proxy.counts().faults[fault.index()] == 1);
    }
}

#[test]
fn slow_connections_lose_nothing() {
    for fault in [Fault::Delay, Fault::Trickle] {
        let (proxy, _echo) = proxy(Weather::of(100, &[fault]));
        assert_eq!(exchange(&mut connect(&proxy)), (MESSAGE.to_vec(), true));
        assert_eq!(proxy.counts().faults[fault.index()], 1);
    }
}

#[test]
fn garbage_differs_from_the_bytes_of_the_server() {
    let (proxy, _echo) = proxy(always(Fault::Garbage, 3));
    let mut stream = connect(&proxy);
    stream.write_all(MESSAGE).unwrap();
    let mut back = [0; 4];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back[..3], MESSAGE[..3]);
    eventually("it is counted", || proxy.counts().faults[Fault::Garbage.index()] == 1);
}

#[test]
fn silence_and_stall_end_with_the_client() {
    for (fault, sockets) in [(Fault::Silence, 1), (Fault::Stall, 2)] {
        let (proxy, _echo) = proxy(always(fault, 5));
        let mut stream = connect(&proxy);
        stream.write_all(MESSAGE).unwrap();
        eventually("the fault is counted", || proxy.counts().faults[fault.index()] == 1);
        assert_eq!(proxy.sockets(), sockets, "no socket was closed");
        stream.shutdown(Shutdown::Write).unwrap();
        eventually("all are closed", || proxy.sockets() == 0);
    }
}

#[test]
fn strike_affects_only_open_connections() {
    let (proxy, _echo) = proxy(Weather::calm());
    let mut stream = connect(&proxy);
    assert!(exchange(&mut stream).1);
    proxy.strike(Fault::Trickle);
    assert!(exchange(&mut stream).1, "slow faults apply to new connections only");
    proxy.strike(Fault::Reset);
    assert_eq!(stream.read(&mut [0]).map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
    assert_eq!(exchange(&mut connect(&proxy)), (MESSAGE.to_vec(), true));
    assert_eq!(proxy.counts().faults[Fault::Reset.index()], 1);
}

#[test]
fn refused_client_can_connect_after_resume() {
    let (proxy, _echo) = proxy(Weather::calm());
    let mut old = connect(&proxy);
    assert!(exchange(&mut old).1);
    for _ in 0..3 {
        proxy.refuse().unwrap();
        let error = TcpStream::connect(proxy.address()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert!(exchange(&mut old).1, "open connections continue");
        proxy.resume().unwrap();
        assert!(exchange(&mut connect(&proxy)).1);
    }
}

#[test]
fn unreachable_server_results_in_a_reset() {
    let (_bound, gone) = crate::fake::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let proxy = Proxy::start(gone, 1).unwrap();
    let (back, orderly) = exchange(&mut connect(&proxy));
    assert!(back.is_empty() && !orderly);
    assert_eq!(proxy.counts().unreached, 1);
    assert!(Proxy::start("10.0.0.1:1".parse().unwrap(), 1).is_err(), "loopback only");
}
