//! Soak of the firmware: the demo runs under QEMU, with one server behind a proxy and a network
//! cable that can be unplugged.
//!
//! The server is killed, stopped and restarted, and faults are injected into connections. The
//! figures that the firmware reports must stay within their limits.

use crate::Plan;
use crate::soak::{Failure, LONG, until};
use alloc::collections::{BTreeMap, BTreeSet};
use bson::{Bson, doc};
use core::time::Duration;
use poolhouse_tests::choices::Choices;
use poolhouse_tests::firmware::{Cable, Firmware, FirmwareError};
use poolhouse_tests::mongod::{Mongod, MongodOptions};
use poolhouse_tests::proxy::{Fault, Proxy, Weather};
use poolhouse_tests::rng::Rng;
use poolhouse_tests::tls::Folder;
use serde_json::json;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Instant;

const TASKS: u64 = 3;
/// Time between two documents of the same task.
const PERIOD_MS: u64 = 200;
const STATUS_S: u64 = 2;
/// Largest number of connections that the pool and the monitor of the demo have together.
const CONNECTIONS_MAX: i64 = 4;
/// Time in which the server must detect closed connections.
const SEEING: Duration = Duration::from_secs(10);
/// Time limit for the end of the run, after the last fault.
const PATIENCE: Duration = Duration::from_secs(120);

/// One status line of the firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Status {
    attempts: i64,
    acknowledged: i64,
    failures: i64,
    connections: i64,
    free_sockets: i64,
    stack: i64,
    wakeups: i64,
}

impl Status {
    fn read(line: &str) -> Option<Self> {
        let fields: BTreeMap<&str, i64> = line
            .strip_prefix("status: ")?
            .split(", ")
            .filter_map(|field| field.rsplit_once(' '))
            .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
            .collect();
        let get = |name| fields.get(name).copied();
        Some(Self {
            attempts: get("attempts")?,
            acknowledged: get("acknowledged")?,
            failures: get("failures")?,
            connections: get("connections")?,
            free_sockets: get("free sockets")?,
            stack: get("stack")?,
            wakeups: get("wake-ups")?,
        })
    }
}

/// Runs the whole soak. Returns a list of the faults found.
pub(crate) fn soak(plan: Plan) -> Result<Vec<String>, Failure> {
    let server = Mongod::start(MongodOptions::default())?;
    let proxy = Proxy::start(server.address(), plan.seed)?;
    // An upper bound for the documents sent by then.
    let documents = plan.time.as_secs() * 1000 / PERIOD_MS * 21 / 20 + 10;
    let limit = plan.time + PATIENCE;
    let arguments = [
        format!("seeds={}", proxy.address()),
        format!("tasks={TASKS}"),
        format!("documents={documents}"),
        format!("period={PERIOD_MS}"),
        format!("seconds={}", limit.as_secs()),
        format!("status={STATUS_S}"),
    ];
    let folder = Folder::new();
    let place = Some(folder.path().join("monitor"));
    let mut firmware = Firmware::start_for(limit + PATIENCE, "demo", &arguments, place)?;
    firmware.wait_for(PATIENCE, |line| line.starts_with("first reply"))?;
    let cable = firmware.cable().ok_or("no cable")?;

    let incident_counts = thread::scope(|scope| {
        let (stop, stopped) = mpsc::channel();
        let proxy = &proxy;
        let chaos = scope.spawn(move || cause_incidents(server, proxy, &cable, plan, &stopped));
        let begun = Instant::now();
        while begun.elapsed() < plan.time {
            firmware.wait_for(PATIENCE, |line| line.starts_with("status: "))?;
        }
        drop(stop);
        Ok::<_, FirmwareError>(chaos.join())
    })?;
    let IncidentCounts { server, incidents, served } = incident_counts.map_err(|_| "chaos panicked")??;
    let status = firmware.finish(limit)?;
    let mut wrong = Vec::new();
    if status != 0 {
        let output = firmware.output();
        wrong.push(format!("exit status {status}: {}", output[output.len().saturating_sub(30)..].join("\n")));
    }
    let seen: Vec<_> = firmware.output().iter().filter_map(|line| Status::read(line)).collect();
    wrong.extend(judge(&seen, &served));
    let wanted: BTreeSet<_> =
        (0..TASKS).flat_map(|task| (0..documents).map(move |number| (format!("device-{task}"), number))).collect();
    let found = found(&server)?;
    if found != wanted {
        wrong.push(format!("{} documents were sent, {} are stored", wanted.len(), found.len()));
    }
    let are_closed = || {
        let (others, sockets) = (server.other_connections(), proxy.sockets());
        let seen = format!("connections are left open: {others:?} at the server, {sockets} sockets at the proxy");
        (others.is_ok_and(|count| count == 0) && sockets == 0, seen)
    };
    wrong.extend(until(PATIENCE, are_closed).err());
    report(plan, &proxy, &Told { seen: &seen, served: &served, incidents, found: found.len() }, &mut wrong);
    Ok(wrong)
}

/// Figures for the report.
struct Told<'a> {
    seen: &'a [Status],
    served: &'a [i64],
    incidents: u64,
    found: usize,
}

fn report(plan: Plan, proxy: &Proxy, reported: &Told<'_>, wrong: &mut Vec<String>) {
    let counts = proxy.counts();
    let faults: BTreeMap<_, _> = Fault::ALL.iter().map(|fault| fault.name()).zip(counts.faults).collect();
    if plan.time >= LONG {
        wrong.extend(faults.iter().filter(|(_, count)| **count == 0).map(|(name, _)| format!("no {name}")));
    }
    let last = reported.seen.last();
    let (first, most) = (reported.seen.first(), |of: fn(&Status) -> i64| reported.seen.iter().map(of).max());
    let figures = json!({
        "seconds": plan.time.as_secs(), "seed": plan.seed, "wrong": wrong.len(), "incidents": reported.incidents,
        "accepted": counts.accepted, "unreached": counts.unreached, "faults": faults,
        "attempts": last.map(|it| it.attempts), "acknowledged": last.map(|it| it.acknowledged),
        "failures": last.map(|it| it.failures), "found": reported.found, "samples": reported.seen.len(),
        "stack": { "first": first.map(|it| it.stack), "last": last.map(|it| it.stack) },
        "connections_max": most(|it| it.connections), "wakeups": last.map(|it| it.wakeups),
        "served": { "samples": reported.served.len(), "max": reported.served.iter().max() },
    });
    println!("{figures:#}");
    println!(
        "soak: board: {} s: {} documents sent and found, {} attempts by the last status; {} faults, {} incidents; {} connections at most",
        plan.time.as_secs(),
        reported.found,
        last.map_or(0, |it| it.attempts),
        counts.faults.iter().sum::<u64>(),
        reported.incidents,
        reported.served.iter().max().unwrap_or(&0),
    );
}

/// Returns the violations found in the firmware's status lines and in the server's counts.
fn judge(seen: &[Status], served: &[i64]) -> Vec<String> {
    let mut wrong = Vec::new();
    if seen.len() < 5 || served.is_empty() {
        wrong.push(format!("too few samples: {} status lines and {} counts", seen.len(), served.len()));
        return wrong;
    }
    for status in seen {
        let under_way = status.attempts - status.acknowledged - status.failures;
        if !(0..=TASKS.cast_signed()).contains(&under_way) || status.connections > 2 || status.free_sockets < 0 {
            wrong.push(format!("{under_way} attempts are in progress: {status:?}"));
        }
    }
    if let Some(most) = served.iter().max().filter(|most| **most > CONNECTIONS_MAX) {
        wrong.push(format!("the server counted {most} connections"));
    }
    // By then every situation has occurred at least once.
    let (half, last) = (seen[seen.len() / 2], seen[seen.len() - 1]);
    if last.stack > half.stack + 512 {
        wrong.push(format!("the stack grew from {} to {} bytes", half.stack, last.stack));
    }
    wrong.truncate(20);
    wrong
}

/// Number of incidents, and the server, which runs without faults again.
struct IncidentCounts {
    server: Mongod,
    incidents: u64,
    /// Connections of the firmware, as counted by the server.
    served: Vec<i64>,
}

/// Causes incidents until `stop` is signalled, then restores normal operation.
fn cause_incidents(
    mut server: Mongod,
    proxy: &Proxy,
    cable: &Cable,
    plan: Plan,
    stop: &Receiver<()>,
) -> Result<IncidentCounts, Failure> {
    let pace = if plan.time < LONG { Duration::from_secs(2) } else { Duration::from_secs(5) };
    let mut rng = Rng::stream(plan.seed, "board");
    let mut served = Vec::new();
    let mut incidents = 0;
    let begun = Instant::now();
    let goes_on = |time: Duration| stop.recv_timeout(time) == Err(mpsc::RecvTimeoutError::Timeout);
    let mut left: Vec<u32> = Vec::new();
    while goes_on(pace) {
        proxy.set_weather(match rng.below(3) {
            0 => Weather::calm(),
            1 => Weather::of(30, &Fault::ALL),
            _ => Weather::of(50, &[rng.one_of(&Fault::ALL)]),
        });
        served.push(clients(&server)?);
        if left.is_empty() {
            left = (0..6).collect();
        }
        let incident = left.swap_remove(rng.index(left.len()));
        println!(
            "{:7.1} s  incident {incident}; {} connections",
            begun.elapsed().as_secs_f64(),
            served[served.len() - 1]
        );
        incidents += 1;
        match incident {
            0 => server.kill9()?,
            1 => server.stop()?,
            2 => server.restart()?,
            3 => proxy.refuse()?,
            4 => cable.set(false)?,
            _ => proxy.strike(rng.one_of(&[Fault::Cut, Fault::Reset, Fault::HalfClose, Fault::Stall, Fault::Garbage])),
        }
        goes_on(pace);
        match incident {
            0 => server.restart()?,
            1 => server.cont()?,
            3 => proxy.resume()?,
            4 => {
                // The server did not receive the closes of the meantime, and would detect them only
                // by its TCP keep-alives, after minutes.
                proxy.strike(Fault::Reset);
                cable.set(true)?;
            }
            _ => {}
        }
    }
    proxy.set_weather(Weather::calm());
    served.push(clients(&server)?);
    Ok(IncidentCounts { server, incidents, served })
}

/// Returns the number of the firmware's connections. The server still counts a closed connection,
/// in addition to its successor, until it detects the close. If the count is too high, this is the
/// minimum of the counts over `SEEING`.
fn clients(server: &Mongod) -> Result<i64, Failure> {
    let begun = Instant::now();
    let mut least = clients_now(server)?;
    while least > CONNECTIONS_MAX && begun.elapsed() < SEEING {
        thread::sleep(Duration::from_millis(100));
        least = least.min(clients_now(server)?);
    }
    Ok(least)
}

/// Returns the number of the firmware's connections that the server counts now, selected by
/// application name.
fn clients_now(server: &Mongod) -> Result<i64, Failure> {
    let count = doc! {
        "aggregate": 1, "cursor": {},
        "pipeline": [
            { "$currentOp": { "allUsers": true, "idleConnections": true } }, { "$match": { "appName": "poolhouse-demo" } },
            { "$count": "n" },
        ],
    };
    let reply = server.run_command(count)?;
    let first = reply.get_document("cursor")?.get_array("firstBatch")?.first().and_then(Bson::as_document);
    Ok(first.and_then(|it| it.get_i32("n").ok()).map_or(0, i64::from))
}

/// Returns the documents stored on the server, by task and number.
fn found(server: &Mongod) -> Result<BTreeSet<(String, u64)>, Failure> {
    let mut found = BTreeSet::new();
    let find = doc! { "find": "telemetry", "projection": { "_id": 1 }, "batchSize": 100_000, "singleBatch": true };
    let reply = server.run_command_on("demo", find)?;
    for document in reply.get_document("cursor")?.get_array("firstBatch")?.iter().filter_map(Bson::as_document) {
        let id = document.get_document("_id")?;
        found.insert((id.get_str("device")?.to_owned(), u64::try_from(id.get_i64("number")?)?));
    }
    Ok(found)
}
