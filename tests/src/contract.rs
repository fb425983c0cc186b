//! The contract: what every adapter must do, whatever it runs on.
//!
//! An adapter calls it from a test target of its own, which has no harness (`harness = false`). For one that implements
//! [`Platform`] it is one line:
//!
//! ```no_run
//! use poolhouse_smol::Smol;
//! use poolhouse_tests::contract::Contract;
//!
//! fn main() -> std::process::ExitCode {
//!     Contract::new("smol").with_threads_variable("SMOL_THREADS").run_hosted::<Smol>()
//! }
//! ```
//!
//! One that implements [`Runtime`] itself says by a [`Subject`] how its futures are run, and calls [`Contract::run`].
//!
//! What is looked at, each in a file of its own:
//!
//! - `timers`, `dialing`, `streams`: the runtime by itself, against sockets of this process that do as they are told ([`peer`]).
//! - `dropping`: every future of a client is dropped at each of its polls. Counts, connections and the next operation are right.
//! - `ending`: a client is closed under load, dropped with leases out, or loses its runner.
//! - `crowd`: many tasks on few connections, and who waits how long.
//! - `hosted`: what only a client with threads and a heap can do: panics, poisoned locks, tasks on the platform's executor.
//! - `hosted::mux`: sessions over multiplexed pools, against fake Cassandra nodes: requests that are dropped at each of their polls, ends under load, panics, ten
//!   thousand tasks on four connections, peers that are silent, full, in pieces or lie, and TLS both ways at once.
//! - `platform`: what a platform does beneath the client besides: datagrams, names of hosts, tasks.
//!
//! One check-out, as it travels: a case asks its subject for a client of a [`FakeServer`](crate::fake::FakeServer)
//! ([`Subject::client`]), whose background work goes on beside the case. `client.hub().check_out(..)` is polled by hand, so that it can be
//! dropped at any poll; then the case looks at the server's pool ([`counts`]), at the server's open connections, and does the next operation.

mod alarm;
mod crowd;
mod dialing;
mod dropping;
mod ending;
mod faults;
pub mod hosted;
pub mod peer;
mod platform;
mod rig;
mod streams;
mod timers;

pub use hosted::Hosted;
pub use peer::Hole;

use crate::figures;
use crate::oracle::Checks;
use crate::oracle::trace::{Recorder, Trace};
use crate::suite::Suite;
use core::future::Future;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use futures_lite::FutureExt;
use poolhouse_client::Platform;
use poolhouse_core::pool::PoolCounts;
use poolhouse_core::sim;
use poolhouse_driver::{Hub, Runtime, Subscribers};
use serde_json::json;
use std::process::{Command, ExitCode};
use std::sync::{Mutex, PoisonError};

/// How many seconds a case may take; far beyond what it needs, also on a machine that has much else to do.
const CASE_SECONDS_MAX: u32 = 300;

/// An adapter under test.
pub trait Subject: Sized + 'static {
    /// What the adapter supplies.
    type Runtime: Runtime;
    /// Its clients.
    type Client: Client<Runtime = Self::Runtime>;

    /// What it can do. Cases that need more are left out, and named.
    const LIMITS: Limits;

    /// Begins with nothing open, and runs a case to its end on an executor of the adapter's. Whatever works in the background goes on beside it
    /// whenever the case waits, on this thread or on others.
    fn with(case: impl AsyncFnOnce(&Self));

    /// A runtime to be used by itself.
    fn runtime(&self) -> &Self::Runtime;

    /// Makes it so that the runtime reaches a socket of this process by its own address. It is called for each that listens; at any other address
    /// nobody is there.
    fn open_way_to(&self, _peer: SocketAddr) {}

    /// An address at which nobody answers the runtime, not even that nobody is there, as long as the hole is held.
    fn black_hole(&self) -> impl Future<Output = Hole> {
        Hole::dig()
    }

    /// A client whose background work goes on until it is dropped.
    fn client(&self, shape: &Shape) -> Self::Client;
}

/// A client under test.
pub trait Client {
    /// What it runs on.
    type Runtime: Runtime;

    /// Its shell.
    fn hub(&self) -> &Hub<Self::Runtime>;

    /// Drops all its background work at once, as an executor does that ends.
    fn drop_runner(&self);
}

/// What a subject can do: [`Limits::NONE`], and what is less.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// How many connections a pool may have.
    pub connections: u32,
    /// How many tasks may wait for one.
    pub waiters: u32,
    /// Bytes of the longest message.
    pub message_bytes: usize,
    /// How many timers and sockets may be open by themselves.
    pub open: usize,
    /// Whether replies that come too late are waited for, so that their connection is kept.
    pub late_replies: bool,
}

impl Limits {
    /// As many as the memory holds.
    pub const NONE: Self = Self {
        connections: u32::MAX,
        waiters: u32::MAX,
        message_bytes: usize::MAX,
        open: usize::MAX,
        late_replies: true,
    };
}

/// The options of a client under test, for one server. Its monitor polls, and checks only when it is asked to, so that counts are exact.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Shape {
    /// Where the server is.
    pub server: SocketAddr,
    /// `maxPoolSize`.
    pub max_pool_size: u32,
    /// `minPoolSize`.
    pub min_pool_size: u32,
    /// `waitQueueTimeoutMS`.
    pub wait_queue_timeout: Option<Duration>,
    /// `connectTimeoutMS`.
    pub connect_timeout: Option<Duration>,
    /// `serverSelectionTimeoutMS`.
    pub server_selection_timeout: Duration,
    /// How long late replies are waited for; zero is not at all.
    pub late_reply: Duration,
}

impl Shape {
    /// The defaults, for this server.
    pub const fn of(server: SocketAddr) -> Self {
        Self {
            server,
            max_pool_size: 4,
            min_pool_size: 0,
            wait_queue_timeout: None,
            connect_timeout: Some(Duration::from_secs(10)),
            server_selection_timeout: Duration::from_secs(30),
            late_reply: Duration::ZERO,
        }
    }
}

/// The counts of the pool of a client's one server.
///
/// # Panics
///
/// The client has no server.
pub fn counts<R: Runtime>(hub: &Hub<R>) -> PoolCounts {
    let mut found = None;
    hub.for_each_server(|server| found = Some(server.pool.counts));
    found.expect("the client has a server")
}

/// What panics say that are part of a case. They are not printed.
pub(crate) const ON_PURPOSE: &str = "as the contract wants it";

/// Has panics that are part of a case print nothing.
fn hush() {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
        if !text.is_some_and(|text| text.starts_with(ON_PURPOSE)) {
            others(panic);
        }
    }));
}

static DROP_POINTS: AtomicU64 = AtomicU64::new(0);

/// Notes that a future was dropped before it was done.
pub(crate) fn note_drop_point() {
    DROP_POINTS.fetch_add(1, Ordering::Relaxed);
}

/// How many traces were judged, and what was checked in them.
static JUDGED: Mutex<(u64, Option<Checks>)> = Mutex::new((0, None));

/// Judges what the pools of a client told.
///
/// # Panics
///
/// When an invariant is broken.
fn judge(trace: &Trace) {
    let mut checks = Checks::default();
    let result = trace.judge(&mut checks);
    let mut judged = JUDGED.lock().unwrap_or_else(PoisonError::into_inner);
    judged.0 += 1;
    judged.1.get_or_insert_default().merge(&checks);
    drop(judged);
    result.unwrap_or_else(|found| panic!("{found}\n{}", trace.json()));
}

/// Records the events of a client's pools during a case, and judges them when it is dropped.
///
/// Most clients of an application have no subscriber, and their check-outs and check-ins take a separate path. The contract is run once more on that path. In
/// that run a witness records nothing, and cases judge by counts, by the server's connections and by the next operation.
///
/// # Panics
///
/// When it is dropped and an invariant was broken.
#[derive(Debug)]
pub struct Witness(Option<Recorder>);

impl Witness {
    /// Subscribes, before the client is made.
    #[must_use]
    pub fn new(events: &Subscribers) -> Self {
        Self((!is_unobserved()).then(|| Recorder::new(events)))
    }
}

/// Whether this process runs the contract with clients that have no subscriber.
fn is_unobserved() -> bool {
    std::env::var_os(UNOBSERVED).is_some()
}

impl Drop for Witness {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        if let Some(recorder) = &mut self.0 {
            judge(&recorder.take().expect("no event is lost, and so all are judged"));
        }
    }
}

/// The contract with one adapter.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Contract {
    name: &'static str,
    threads_variable: Option<&'static str>,
}

/// Set in a process that runs the contract in one of several ways; the value is the name of that way.
const WAY: &str = "POOLHOUSE_CONTRACT_WAY";

/// Set in a process that runs the contract with clients that have no subscriber.
const UNOBSERVED: &str = "POOLHOUSE_CONTRACT_UNOBSERVED";

impl Contract {
    /// With the adapter of this name.
    pub const fn new(name: &'static str) -> Self {
        Self { name, threads_variable: None }
    }

    /// The contract is run with 1 thread and with 4. This environment variable sets the number of threads of the adapter's executor.
    pub const fn with_threads_variable(self, variable: &'static str) -> Self {
        Self { threads_variable: Some(variable), ..self }
    }

    /// Runs every case of the contract with what implements [`Platform`], as the command line asks.
    #[must_use]
    pub fn run_hosted<P: Platform + Default>(self) -> ExitCode {
        self.in_processes(
            |suite| add_hosted::<P>(add_runtime::<Hosted<P>>(suite)),
            |suite| hosted::add::<P>(add_clients::<Hosted<P>>(suite)),
        )
    }

    /// Runs those cases that need no threads and no heap.
    #[must_use]
    pub fn run<S: Subject>(self) -> ExitCode {
        self.in_processes(add_runtime::<S>, add_clients::<S>)
    }

    /// - `runtime`: adds the cases of a runtime without a client. - `clients`: adds the cases of clients.
    fn in_processes(self, runtime: impl FnOnce(Suite) -> Suite, clients: impl FnOnce(Suite) -> Suite) -> ExitCode {
        if let Ok(way) = std::env::var(WAY) {
            let name = if way.is_empty() { self.name.to_owned() } else { format!("{}, {way}", self.name) };
            hush();
            if is_unobserved() {
                sim::without_metrics();
            }
            let suite = Suite::new(format!("contract ({name})"));
            // The cases of a runtime use no client, so they are not run again.
            let code = clients(if is_unobserved() { suite } else { runtime(suite) }).run();
            println!("contract ({name}): {} drop points tried", DROP_POINTS.load(Ordering::Relaxed));
            let (lives, checks) = JUDGED.lock().unwrap_or_else(PoisonError::into_inner).clone();
            println!("contract ({name}): {lives} traces judged");
            // Whoever runs all of it is told when nothing was tried.
            let is_whole = std::env::args_os().len() == 1;
            let (dropped, checks) = (DROP_POINTS.load(Ordering::Relaxed), checks.unwrap_or_default());
            let was_judged = lives > 0 && ["P8", "P27"].iter().all(|id| checks.of(id) > 0);
            let was_tried = dropped > 0 && (is_unobserved() || was_judged);
            if is_whole && !was_tried {
                println!("contract ({name}): no future was dropped, or no trace was judged: nothing was tested");
                return ExitCode::FAILURE;
            }
            if is_unobserved() {
                return code;
            }
            let suite: String =
                name.chars().map(|letter| if letter.is_alphanumeric() { letter } else { '_' }).collect();
            let invariants = checks.json();
            figures::record(&format!("contract_{suite}"), &json!({ "lives": lives, "invariants": invariants }));
            return code;
        }
        let this = std::env::current_exe().expect("this program has a path");
        let mut failed = false;
        let threads: &[&str] = if self.threads_variable.is_some() { &["1", "4"] } else { &[""] };
        let observed = threads.iter().map(|threads| (*threads, false));
        for (threads, unobserved) in observed.chain(threads.last().map(|threads| (*threads, true))) {
            let mut command = Command::new(&this);
            let mut way = Vec::new();
            if let Some(variable) = self.threads_variable {
                command.env(variable, threads);
                way.push(format!("threads: {threads}"));
            }
            if unobserved {
                command.env(UNOBSERVED, "1");
                way.push("no subscriber".to_owned());
            }
            command.args(std::env::args_os().skip(1)).env(WAY, way.join(", "));
            failed |= !command.status().expect("this program runs").success();
        }
        if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

/// Adds the cases of a runtime without a client that every subject supports.
fn add_runtime<S: Subject>(suite: Suite) -> Suite {
    let suite = timers::add::<S>(suite);
    let suite = dialing::add::<S>(suite);
    streams::add::<S>(suite)
}

/// Adds the cases of clients that every subject supports.
fn add_clients<S: Subject>(suite: Suite) -> Suite {
    let suite = dropping::add::<S>(suite);
    let suite = ending::add::<S>(suite);
    let suite = crowd::add::<S>(suite);
    faults::add::<S>(suite)
}

/// Adds the cases of a runtime without a client that need threads, a heap, or host names.
fn add_hosted<P: Platform + Default>(suite: Suite) -> Suite {
    let suite = timers::add_hosted::<P>(suite);
    let suite = dialing::add_hosted::<P>(suite);
    let suite = streams::add_hosted::<P>(suite);
    platform::add::<P>(suite)
}

/// One case, within its time.
pub(crate) fn run_case<S: Subject>(case: impl AsyncFnOnce(&S)) {
    S::with(async |subject: &S| limited(case(subject)).await);
}

/// Awaits a future that must not take for ever.
async fn limited<T>(future: impl Future<Output = T>) -> T {
    let limit = async {
        // A machine that stands still for minutes takes one of them.
        for _ in 0..CASE_SECONDS_MAX {
            async_io::Timer::after(Duration::from_secs(1)).await;
        }
        panic!("the case hangs");
    };
    future.or(limit).await
}
