//! The soak of a client and three servers.

use crate::Plan;
use crate::chaos::{self, Incident, Incidents, Members, Servers};
use crate::detour::Detour;
use crate::events::{self, Balance};
use crate::load::{DEADLINE, Database, Insert, Load, Row, Tally};
use crate::samples::{self, Sample};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::net::SocketAddr;
use core::sync::atomic::Ordering;
use core::time::Duration;
use poolhouse_smol::Smol;
use poolhouse_smol::poolhouse_client::Platform;
use poolhouse_smol::poolhouse_driver::{EventKinds, Subscribers};
use poolhouse_tests::proxy::{Fault, Proxy};
use serde_json::json;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Instant;
use std::{fs, io, thread};

pub(crate) type Failure = Box<dyn core::error::Error + Send + Sync>;

/// Servers and their client.
pub(crate) trait Subject: Members + Sized {
    const NAME: &'static str;
    /// Connections of the client without those that `pooled` counts.
    const OTHER_CONNECTIONS: i64;
    /// The time after which no damaged connection is left.
    const QUIET: Duration;
    type Client: Database;

    /// Starts the servers, with an empty table.
    fn start() -> Result<Self, Failure>;
    fn addresses(&self) -> [SocketAddr; 3];
    fn client(&self, platform: Detour, events: Subscribers) -> Result<Self::Client, Failure>;
    /// The number of connections of its pools.
    fn pooled(client: &Self::Client) -> u32;
    /// Whether no operation uses a connection or waits for one.
    fn is_idle(client: &Self::Client) -> bool;
    fn close(client: &Self::Client) -> impl Future<Output = ()>;
    /// The number of the client's connections, as the servers count them.
    ///
    /// - `proxied`: the number of open sockets of the proxies, of both sides.
    fn served(&self, proxied: i64) -> Option<i64>;
    /// The number of the last election.
    fn term(&self) -> Option<i64>;
    /// All rows that are stored.
    fn rows(&self, primary: usize) -> Result<Vec<Row>, Failure>;
}

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

/// Each operation begins and ends in one window: after an election it may fail as late as its deadline.
const WINDOW: Duration = DEADLINE;

/// Smallest number of successful operations in a window that is counted.
const SUCCESSES_MIN: u64 = 100;

/// Smallest number of samples in which all servers answer. The run is extended by up to `MORE` to
/// collect them, and until each kind of fault has occurred.
const LOOKS_MIN: usize = 8;
const MORE: Duration = Duration::from_secs(120);

/// A run of at least this duration must contain each kind of incident, and uses slower paces.
pub(crate) const LONG: Duration = Duration::from_secs(300);

/// Runs the whole soak. Returns a list of the faults found.
pub(crate) fn soak<S: Subject>(plan: Plan) -> Result<Vec<String>, Failure> {
    let members = S::start()?;
    let addresses = members.addresses();
    let proxies = addresses.iter().zip(plan.seed..).map(|(address, seed)| Proxy::start(*address, seed));
    let proxies = proxies.collect::<io::Result<Vec<_>>>()?;
    let platform = Detour::new(addresses.into_iter().zip(proxies.iter().map(Proxy::address)).collect());
    // Starts the reactor, the executor and their threads before the baseline is sampled.
    smol::block_on(smol::spawn(Smol.sleep_until(Smol.now().saturating_add(Duration::from_millis(1)))));

    let base = samples::descriptors();
    let subscribers = Subscribers::default();
    let subscription = subscribers.subscribe(EventKinds::ALL, events::KEPT, |_| true);
    let client = members.client(platform.clone(), subscribers)?;
    let reader = thread::spawn(|| smol::block_on(events::read(subscription)));
    let load = Load::start(&client, plan.seed);
    let servers = Servers::new(members, proxies);
    let (samples, windows) = (Vec::new(), Vec::new());
    let mut soak =
        Soak { plan, servers, platform, client, samples, windows, begun: Instant::now(), endured: Duration::ZERO };

    let incidents = soak.endure()?;
    let mut wrong = soak.calm_down(&load)?;
    let tally = Arc::clone(&load.tally);
    let ledgers = smol::block_on(load.end());
    wrong.extend(soak.close(base)?);
    let balance = reader.join().map_err(|_| "the reader of events panicked")?;
    let (found, mut wrongly_found) = check_rows(&soak.servers, &ledgers)?;
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
    let folder = PathBuf::from(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into())).join("run");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(format!("soak-{}.svg", S::NAME)), samples::plot(&soak.samples))?;
    Ok(wrong)
}

struct Soak<S: Subject> {
    plan: Plan,
    servers: Servers<S>,
    platform: Detour,
    client: S::Client,
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
    found: usize,
    drifts: serde_json::Value,
    tally: &'a Tally,
    balance: &'a Balance,
}

impl<S: Subject> Soak<S> {
    /// The phase with faults. Takes a sample every ten seconds, in short runs every second.
    fn endure(&mut self) -> Result<Incidents, Failure> {
        let (pace, period) = if self.plan.time < LONG { (2, 1) } else { (8, 10) };
        let (pace, period) = (Duration::from_secs(pace), Duration::from_secs(period));
        let (stop, stopped) = mpsc::channel();
        let (done, is_done) = mpsc::channel::<()>();
        let (plan, servers, begun) = (self.plan, &self.servers, self.begun);
        let mut samples = Vec::new();
        let incidents = thread::scope(|scope| {
            let chaos = scope.spawn(move || {
                // Dropped also on an error, so that the loop below ends early.
                let _done = done;
                chaos::cause_incidents(servers, plan.seed, pace, &stopped)
            });
            let are_few = |samples: &[Sample]| samples.iter().filter(|it| it.served.is_some()).count() < LOOKS_MIN;
            let is_short =
                |samples: &[Sample]| are_few(samples) || faults(&servers.proxies).values().any(|count| *count == 0);
            while begun.elapsed() < plan.time || (is_short(&samples) && begun.elapsed() < plan.time + MORE) {
                if is_done.recv_timeout(period) != Err(mpsc::RecvTimeoutError::Timeout) {
                    break;
                }
                samples.push(self.look());
            }
            let _ = stop.send(());
            chaos.join()
        });
        let incidents = incidents.map_err(|_| "chaos panicked")??;
        self.samples = samples;
        self.endured = self.begun.elapsed();
        Ok(incidents)
    }

    /// Checks that operations succeed again without faults, and that idle pools and servers count
    /// the same connections.
    fn calm_down(&mut self, load: &Load) -> Result<Vec<String>, Failure> {
        let mut wrong = Vec::new();
        // An open connection would keep its assigned fault, which might occur much later.
        self.servers.proxies.iter().for_each(Proxy::pardon);
        thread::sleep(S::QUIET);
        if !self.wait_for_recovery(load)? {
            wrong.push(format!("operations fail without faults, or too few succeed: {:?}", self.windows));
        }
        smol::block_on(load.rest())?;
        let seen = until(PATIENCE, || {
            let now = self.look();
            let agrees = S::is_idle(&self.client) && now.served == Some(now.pooled + S::OTHER_CONNECTIONS);
            (agrees, format!("pools count {} connections, servers {:?}", now.pooled, now.served))
        });
        wrong.extend(seen.err());
        Ok(wrong)
    }

    /// Returns whether no operation fails in windows of this length, and many succeed. Each operation begins
    /// and ends in one window: after an election it may fail as late as its deadline.
    fn wait_for_recovery(&mut self, load: &Load) -> Result<bool, Failure> {
        for _ in 0..WINDOWS_MAX {
            smol::block_on(load.rest())?;
            load.tally.forget_failures();
            let before = load.tally.succeeded.load(Ordering::SeqCst);
            let term = self.servers.members().term();
            load.resume();
            let begun = Instant::now();
            let mut stood_still = false;
            while begun.elapsed() < WINDOW {
                let step = Instant::now();
                thread::sleep(STEP);
                stood_still |= step.elapsed() >= STANDSTILL;
            }
            smol::block_on(load.rest())?;
            let (failures, successes) = (load.tally.failures(), load.tally.succeeded.load(Ordering::SeqCst) - before);
            // A set that does not report its term does not excuse the window.
            let has_elected = term.is_some() && self.servers.members().term() > term;
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

    /// Checks that a closed client has left no resources.
    fn close(&self, base: i64) -> Result<Vec<String>, Failure> {
        smol::block_on(S::close(&self.client));
        let mut wrong = Vec::new();
        wrong.extend(
            until(PATIENCE, || {
                let now = self.look();
                let is_gone = now.served == Some(0) && now.proxied == 0 && now.tasks == 0 && now.descriptors <= base;
                (is_gone, format!("after the close: {now:?}; {base} descriptors before"))
            })
            .err(),
        );
        Ok(wrong)
    }

    fn report(&self, done: &Done<'_>, wrong: &mut Vec<String>) {
        let count = |wanted| done.ledgers.iter().flatten().filter(|it| **it == wanted).count();
        let load = |counter: &core::sync::atomic::AtomicU64| counter.load(Ordering::SeqCst);
        let faults = faults(&self.servers.proxies);
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
                "heartbeats": balance.heartbeats,
            },
            "faults": faults, "incidents": incidents, "errors": errors, "drift": done.drifts,
            "peace": {
                "windows": self.windows.len(), "failed": self.windows.iter().map(|window| window.failures).sum::<u64>(),
                "excused": self.windows.iter().filter(|window| window.is_excused).count(),
            },
        });
        println!("{figures:#}");
        println!(
            "soak: {}: {} s: {} operations ended once, {} of them successfully; {} rows acknowledged and found; {} faults, {} incidents; {} windows without faults evaluated; latest timeout {} us late",
            S::NAME,
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
    }

    fn look(&self) -> Sample {
        let proxied: usize = self.servers.proxies.iter().map(Proxy::sockets).sum();
        let proxied = i64::try_from(proxied).unwrap_or(i64::MAX);
        Sample {
            at: self.begun.elapsed(),
            descriptors: samples::descriptors() - proxied,
            resident_kib: samples::status("VmRSS"),
            allocated_kib: samples::allocated_kib(),
            threads: samples::status("Threads"),
            tasks: i64::try_from(self.platform.tasks()).unwrap_or(i64::MAX),
            pooled: i64::from(S::pooled(&self.client)),
            served: self.servers.at_hand().and_then(|members| members.served(proxied)),
            proxied,
        }
    }
}

/// Counts the connections of all proxies, by fault.
fn faults(proxies: &[Proxy]) -> BTreeMap<&'static str, u64> {
    let mut faults = BTreeMap::new();
    for counts in proxies.iter().map(Proxy::counts) {
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

/// Compares the stored rows with the outcomes that the tasks recorded. Returns the number of rows and the
/// violations.
fn check_rows(servers: &Servers<impl Subject>, ledgers: &[Vec<Insert>]) -> Result<(usize, Vec<String>), Failure> {
    let members = servers.members();
    let rows = members.rows(members.settle()?)?;
    let mut copies: BTreeMap<Row, usize> = BTreeMap::new();
    for row in &rows {
        *copies.entry(*row).or_default() += 1;
    }
    let mut wrong = Vec::new();
    for (task, ledger) in (0..).zip(ledgers) {
        for (number, became) in (0..).zip(ledger) {
            let count = copies.remove(&(task, number)).unwrap_or(0);
            if !became.allows(count) {
                wrong.push(format!("row {task}/{number} is stored {count} times, but is {became:?}"));
            }
        }
    }
    wrong.extend(copies.keys().map(|row| format!("no task inserted {row:?}")));
    wrong.truncate(20);
    Ok((rows.len(), wrong))
}
