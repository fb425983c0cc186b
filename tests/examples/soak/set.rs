//! The soak of a replica set.

use crate::chaos::{self, Incident, Incidents, Servers};
use crate::detour::{DRIVER_NAME, Detour};
use crate::events::{self, Balance};
use crate::load::{COLLECTION, DATABASE, Insert, Load, Spawn, Tally};
use crate::samples::{self, Sample};
use crate::{Plan, Subject};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use bson::{Bson, Document, doc};
use core::sync::atomic::Ordering;
use core::time::Duration;
use poolhouse_smol::ClientOptions;
use poolhouse_smol::poolhouse_client::{Client, Platform};
use poolhouse_smol::poolhouse_driver::{EventKinds, Subscribers};
use poolhouse_tests::figures;
use poolhouse_tests::mongod::{Mongod, MongodReplicaSet};
use poolhouse_tests::proxy::{Fault, Proxy};
use serde_json::json;
use std::sync::mpsc;
use std::time::Instant;
use std::{io, thread};

pub(crate) type Failure = Box<dyn core::error::Error>;

/// Time limit of each wait for a state.
const PATIENCE: Duration = Duration::from_secs(60);

/// Windows without faults are evaluated until many operations have succeeded in this number of
/// them. No operation may fail in any of them. A window in which the set elected a primary, or in
/// which the machine stalled, is not counted. At most `WINDOWS_MAX` windows are evaluated.
const WINDOWS_MAX: usize = 8;
const PEACEFUL_MIN: usize = 3;

/// The machine has stalled if a sleep of `STEP` took at least `STANDSTILL`.
const STEP: Duration = Duration::from_millis(100);
const STANDSTILL: Duration = Duration::from_secs(1);

/// Smallest number of successful operations in a window that is counted.
const SUCCESSES_MIN: u64 = 100;

/// Smallest number of samples in which all servers answer. The run is extended by up to `MORE` to
/// collect them, and until each kind of fault has occurred.
const LOOKS_MIN: usize = 8;
const MORE: Duration = Duration::from_secs(120);

/// A run of at least this duration must contain each kind of incident, and uses slower paces.
pub(crate) const LONG: Duration = Duration::from_secs(300);

/// Runs the whole soak on a platform. Returns a list of the faults found.
///
/// - `spawn`: runs a task of the load.
pub(crate) fn soak<P: Platform + Default>(plan: Plan, spawn: Spawn) -> Result<Vec<String>, Failure> {
    let set = MongodReplicaSet::start(3)?;
    let addresses: Vec<_> = (0..3).map(|member| set.member(member).address()).collect();
    let proxies = addresses.iter().zip(plan.seed..).map(|(address, seed)| Proxy::start(*address, seed));
    let proxies = proxies.collect::<io::Result<Vec<_>>>()?;
    let ways = addresses.iter().copied().zip(proxies.iter().map(Proxy::address)).collect();
    let options = options(&set.uri())?;
    let servers = Servers::new(set, proxies);
    let primary = chaos::settle(&servers)?;
    let index = doc! { "key": { "task": 1, "number": 1 }, "name": "number" };
    servers.set().member(primary).run_command_on(DATABASE, doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    // Starts the reactors, the executor and their threads before the baseline is sampled.
    smol::block_on(smol::spawn(async { smol::Timer::after(Duration::from_millis(1)).await }));
    let platform = Detour::new(P::default(), ways);
    smol::block_on(platform.sleep_until(platform.now().saturating_add(Duration::from_millis(1))));

    let base = samples::descriptors();
    let subscribers = Subscribers::default();
    let subscription = subscribers.subscribe(EventKinds::ALL, events::KEPT, |_| true);
    let client = Client::with_platform(platform.clone(), options, subscribers)?;
    let reader = thread::spawn(|| smol::block_on(events::read(subscription)));
    let load = Load::start(&client, plan.seed, spawn);
    let mut soak = Soak {
        plan,
        servers,
        platform,
        client,
        samples: Vec::new(),
        windows: Vec::new(),
        begun: Instant::now(),
        endured: Duration::ZERO,
    };

    let incidents = soak.endure()?;
    let mut wrong = soak.calm_down(&load)?;
    let tally = Arc::clone(&load.tally);
    let ledgers = smol::block_on(load.end());
    wrong.extend(soak.close(base)?);
    let balance = reader.join().map_err(|_| "the reader of events panicked")?;
    let (found, mut wrongly_found) = check_documents(&soak.servers, &ledgers)?;
    wrong.append(&mut wrongly_found);
    let (drifts, grew) = samples::judge(&soak.samples);
    wrong.extend(grew);
    wrong.extend(tally.wrong());
    if tally.started.load(Ordering::SeqCst) != tally.ended() {
        wrong.push(format!("{:?} operations began, {} ended", tally.started, tally.ended()));
    }
    let (balance, reported) = balance.verdict();
    wrong.extend(reported);
    let result = Done { incidents, ledgers: &ledgers, found, drifts, tally: &tally, balance: &balance };
    soak.report(&result, &mut wrong);
    Ok(wrong)
}

fn options(uri: &str) -> Result<ClientOptions, Failure> {
    let mut options = ClientOptions::parse(uri)?;
    options.monitor.heartbeat_frequency = Duration::from_millis(500);
    options.monitor.connect_timeout = Some(Duration::from_secs(2));
    // Much longer than any operation: operations end only by their own deadline.
    options.server_selection_timeout = Duration::from_secs(600);
    options.pool.max_pool_size = 10;
    options.pool.min_pool_size = 2;
    options.pool.max_idle_time = Some(Duration::from_secs(5));
    Ok(options)
}

struct Soak<P: Platform> {
    plan: Plan,
    servers: Servers,
    platform: Detour<P>,
    client: Client<Detour<P>>,
    samples: Vec<Sample>,
    windows: Vec<Window>,
    begun: Instant,
    /// Duration of the phase with faults.
    endured: Duration,
}

/// A time window without faults.
#[derive(Clone, Copy, Debug)]
struct Window {
    failures: u64,
    successes: u64,
    /// The set elected a primary, or the machine stalled. Operations that the client does not retry
    /// may fail then.
    is_excused: bool,
}

/// Figures for the report.
struct Done<'a> {
    incidents: Incidents,
    ledgers: &'a [Vec<Insert>],
    found: u64,
    drifts: serde_json::Value,
    tally: &'a Tally,
    balance: &'a Balance,
}

impl<P: Platform> Soak<P> {
    /// The phase with faults. Takes a sample every ten seconds, in short runs every second.
    fn endure(&mut self) -> Result<Incidents, Failure> {
        let (pace, period) = if self.plan.time < LONG { (2, 1) } else { (8, 10) };
        let (pace, period) = (Duration::from_secs(pace), Duration::from_secs(period));
        let (stop, stopped) = mpsc::channel();
        let (done, is_done) = mpsc::channel::<()>();
        let (plan, servers, begun) = (self.plan, &self.servers, self.begun);
        let (platform, client, samples) = (&self.platform, &self.client, &mut self.samples);
        let incidents = thread::scope(|scope| {
            let chaos = scope.spawn(move || {
                // Dropped also on an error, so that the loop below ends early.
                let _done = done;
                chaos::cause_incidents(servers, plan.seed, pace, &stopped)
            });
            let are_few = |samples: &[Sample]| samples.iter().filter(|it| it.served.is_some()).count() < LOOKS_MIN;
            let is_short = |samples: &[Sample]| are_few(samples) || faults(servers).values().any(|count| *count == 0);
            while begun.elapsed() < plan.time || (is_short(samples) && begun.elapsed() < plan.time + MORE) {
                if is_done.recv_timeout(period) != Err(mpsc::RecvTimeoutError::Timeout) {
                    break;
                }
                samples.push(look(servers, platform, client, begun.elapsed()));
            }
            let _ = stop.send(());
            chaos.join()
        });
        let incidents = incidents.map_err(|_| "chaos panicked")??;
        self.endured = self.begun.elapsed();
        Ok(incidents)
    }

    /// Checks that operations succeed again without faults, and that idle pools and servers count
    /// the same connections.
    fn calm_down(&mut self, load: &Load) -> Result<Vec<String>, Failure> {
        let mut wrong = Vec::new();
        // An open connection would keep its assigned fault, which might occur much later.
        self.servers.proxies.iter().for_each(Proxy::pardon);
        // Connections damaged by faults are used, or expire.
        let quiet = self.client.options().pool.max_idle_time.expect("maxIdleTimeMS is set") * 2;
        thread::sleep(quiet);
        if !self.wait_for_recovery(load, quiet / 2)? {
            wrong.push(format!("operations fail without faults, or too few succeed: {:?}", self.windows));
        }
        smol::block_on(load.rest())?;
        let seen = until(PATIENCE, || {
            let now = look(&self.servers, &self.platform, &self.client, self.begun.elapsed());
            // A monitor has two connections to each server.
            let agrees = self.is_idle() && now.served == Some(now.pooled + 6);
            (agrees, format!("pools count {} connections, servers {:?}", now.pooled, now.served))
        });
        wrong.extend(seen.err());
        Ok(wrong)
    }

    /// Returns whether no operation fails in windows of this length, and many succeed. Each operation begins
    /// and ends in one window: after an election it may fail as late as its deadline.
    fn wait_for_recovery(&mut self, load: &Load, length: Duration) -> Result<bool, Failure> {
        for _ in 0..WINDOWS_MAX {
            smol::block_on(load.rest())?;
            load.tally.forget_failures();
            let before = load.tally.succeeded.load(Ordering::SeqCst);
            let term = self.term();
            load.resume();
            let begun = Instant::now();
            let mut stood_still = false;
            while begun.elapsed() < length {
                let step = Instant::now();
                thread::sleep(STEP);
                stood_still |= step.elapsed() >= STANDSTILL;
            }
            smol::block_on(load.rest())?;
            let (failures, successes) = (load.tally.failures(), load.tally.succeeded.load(Ordering::SeqCst) - before);
            // A set that does not report its term does not excuse the window.
            let has_elected = term.is_some() && self.term() > term;
            self.windows.push(Window { failures, successes, is_excused: has_elected || stood_still });
            let judged = || self.windows.iter().filter(|window| !window.is_excused);
            if judged().any(|window| window.failures > 0) {
                return Ok(false);
            }
            if judged().filter(|window| window.successes >= SUCCESSES_MIN).count() >= PEACEFUL_MIN {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the number of the set's last election.
    fn term(&self) -> Option<i64> {
        let set = self.servers.set();
        (0..3)
            .filter_map(|it| set.member(it).run_command(doc! { "replSetGetStatus": 1 }).ok()?.get_i64("term").ok())
            .max()
    }

    fn is_idle(&self) -> bool {
        self.client.servers().iter().map(|server| server.pool.counts).all(|it| it.in_use + it.pending + it.waiting == 0)
    }

    /// Checks that a closed client has left no resources.
    fn close(&self, base: i64) -> Result<Vec<String>, Failure> {
        smol::block_on(self.client.close());
        let mut wrong = Vec::new();
        wrong.extend(
            until(PATIENCE, || {
                let now = look(&self.servers, &self.platform, &self.client, self.begun.elapsed());
                let sockets: usize = self.servers.proxies.iter().map(Proxy::sockets).sum();
                let is_gone = now.served == Some(0) && sockets == 0 && now.tasks == 0 && now.descriptors <= base;
                (is_gone, format!("after the close: {now:?}, {sockets} sockets of proxies; {base} descriptors before"))
            })
            .err(),
        );
        Ok(wrong)
    }

    fn report(&self, done: &Done<'_>, wrong: &mut Vec<String>) {
        let count = |wanted| done.ledgers.iter().flatten().filter(|it| **it == wanted).count();
        let load = |counter: &core::sync::atomic::AtomicU64| counter.load(Ordering::SeqCst);
        let faults = faults(&self.servers);
        wrong.extend(faults.iter().filter(|(_, count)| **count == 0).map(|(name, _)| format!("no {name}")));
        let incidents: BTreeMap<_, _> = Incident::NAMES.iter().zip(done.incidents).collect();
        let (tally, balance) = (done.tally, done.balance);
        if self.plan.time >= LONG {
            wrong.extend(incidents.iter().filter(|(_, count)| **count == 0).map(|(name, _)| format!("no {name}")));
        }
        let errors: BTreeMap<_, _> = tally.errors().into_iter().collect();
        let figures = json!({
            "seconds": self.endured.as_secs(), "seed": self.plan.seed, "wrong": wrong.len(),
            "operations": {
                "started": load(&tally.started), "succeeded": load(&tally.succeeded), "failed": load(&tally.failed),
                "dropped": load(&tally.dropped), "timed_out": load(&tally.timed_out),
            },
            "lateness_us": tally.lateness_us(),
            "inserts": {
                "acknowledged": count(Insert::Acknowledged), "unknown": count(Insert::Unknown),
                "never_sent": count(Insert::Never), "found": done.found,
            },
            "events": {
                "all": balance.events, "connections": balance.connections, "check_outs": balance.check_outs,
                "cleared": balance.cleared, "heartbeats": balance.heartbeats,
            },
            "faults": faults, "incidents": incidents, "errors": errors, "drift": done.drifts,
            "peace": {
                "windows": self.windows.len(), "failed": self.windows.iter().map(|window| window.failures).sum::<u64>(),
                "excused": self.windows.iter().filter(|window| window.is_excused).count(),
            },
        });
        println!("{figures:#}");
        println!(
            "soak: {} s: {} operations ended once, {} of them successfully; {} documents acknowledged and found; {} faults, {} incidents; {} windows without faults evaluated; latest timeout {} us late",
            self.endured.as_secs(),
            tally.ended(),
            load(&tally.succeeded),
            count(Insert::Acknowledged),
            faults
                .iter()
                .filter(|(name, _)| !["accepted", "unreached"].contains(name))
                .map(|(_, count)| count)
                .sum::<u64>(),
            done.incidents.iter().sum::<u64>(),
            self.windows.len(),
            load(&tally.latest_us),
        );
        figures::record(if self.plan.subject == Subject::Edge { "soak_edge" } else { "soak" }, &figures);
    }
}

/// Counts the connections of all proxies, by fault.
fn faults(servers: &Servers) -> BTreeMap<&'static str, u64> {
    let mut faults = BTreeMap::new();
    for counts in servers.proxies.iter().map(Proxy::counts) {
        *faults.entry("accepted").or_insert(0) += counts.accepted;
        *faults.entry("unreached").or_insert(0) += counts.unreached;
        for (fault, count) in Fault::ALL.iter().zip(counts.faults) {
            *faults.entry(fault.name()).or_insert(0) += count;
        }
    }
    faults
}

/// Waits until a condition holds; else returns its last description as the error.
pub(crate) fn until(limit: Duration, mut look: impl FnMut() -> (bool, String)) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let (is_so, seen) = look();
        if is_so {
            return Ok(());
        }
        if begun.elapsed() > limit {
            return Err(seen);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn look<P: Platform>(servers: &Servers, platform: &Detour<P>, client: &Client<Detour<P>>, at: Duration) -> Sample {
    let of_proxies: usize = servers.proxies.iter().map(Proxy::sockets).sum();
    let pooled: u32 = client.servers().iter().map(|server| server.pool.counts.total()).sum();
    let all = |count: fn(&Mongod) -> Option<i64>| {
        // A member that is being stopped or started would block all callers. Its state cannot
        // change while the set is locked.
        let set = servers.set_at_hand()?;
        let answer = servers.answers.iter().all(|answers| answers.load(Ordering::SeqCst));
        if answer { (0..3).map(|member| count(set.member(member))).sum() } else { None }
    };
    Sample {
        at,
        descriptors: samples::descriptors() - i64::try_from(of_proxies).unwrap_or(i64::MAX),
        resident_kib: samples::status("VmRSS"),
        threads: samples::status("Threads"),
        tasks: i64::try_from(platform.tasks()).unwrap_or(i64::MAX),
        pooled: i64::from(pooled),
        served: all(clients_of),
        served_in_all: all(|member| {
            let open = member.other_connections().ok()?;
            i64::try_from(open).ok()
        }),
    }
}

/// Returns the number of the client's connections to a member, selected by driver name.
fn clients_of(member: &Mongod) -> Option<i64> {
    let ours = doc! { "clientMetadata.driver.name": DRIVER_NAME };
    let count = doc! {
        "aggregate": 1, "cursor": {}, "$readPreference": { "mode": "secondaryPreferred" },
        "pipeline": [
            { "$currentOp": { "allUsers": true, "idleConnections": true } }, { "$match": ours }, { "$count": "n" },
        ],
    };
    let reply = member.run_command(count).ok()?;
    let first = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let first = first.ok().and_then(|batch| batch.first()).and_then(Bson::as_document);
    Some(first.and_then(|it| it.get_i32("n").ok()).map_or(0, i64::from))
}

/// Compares the stored documents with the outcomes that the tasks recorded. Returns the number of
/// documents and the violations.
fn check_documents(servers: &Servers, ledgers: &[Vec<Insert>]) -> Result<(u64, Vec<String>), Failure> {
    let primary = chaos::settle(servers)?;
    let mut copies: Vec<Vec<u8>> = ledgers.iter().map(|ledger| vec![0; ledger.len()]).collect();
    let mut wrong = Vec::new();
    let mut found = 0;
    let set = servers.set();
    let projection = doc! { "_id": 0, "task": 1, "number": 1 };
    let find = doc! { "find": COLLECTION, "projection": projection, "batchSize": 50_000 };
    let mut reply = set.member(primary).run_command_on(DATABASE, find)?;
    let mut batch_name = "firstBatch";
    loop {
        let cursor = reply.get_document("cursor")?;
        for document in cursor.get_array(batch_name)?.iter().filter_map(Bson::as_document) {
            found += 1;
            match copies_of(&mut copies, document) {
                Some(copies) => *copies = copies.saturating_add(1),
                None => wrong.push(format!("no task inserted {document}")),
            }
        }
        let id = cursor.get_i64("id")?;
        if id == 0 {
            break;
        }
        let more = doc! { "getMore": id, "collection": COLLECTION, "batchSize": 50_000 };
        reply = set.member(primary).run_command_on(DATABASE, more)?;
        batch_name = "nextBatch";
    }
    for (task, (ledger, copies)) in ledgers.iter().zip(&copies).enumerate() {
        for (number, (became, count)) in ledger.iter().zip(copies).enumerate() {
            let right = match became {
                Insert::Acknowledged => *count == 1,
                Insert::Never => *count == 0,
                Insert::Unknown => *count <= 1,
            };
            if !right {
                wrong.push(format!("document {task}/{number} is stored {count} times, but is {became:?}"));
            }
        }
    }
    wrong.truncate(20);
    Ok((found, wrong))
}

fn copies_of<'a>(copies: &'a mut [Vec<u8>], document: &Document) -> Option<&'a mut u8> {
    let task = usize::try_from(document.get_i64("task").ok()?).ok()?;
    let number = usize::try_from(document.get_i64("number").ok()?).ok()?;
    copies.get_mut(task)?.get_mut(number)
}
