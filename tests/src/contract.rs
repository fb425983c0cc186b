//! The contract: the requirements that every adapter must meet, on any runtime.
//!
//! An adapter runs the contract from its own test target, which has no test harness:
//! `harness = false`. An adapter that implements [`Platform`] needs one line:
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
//! [`Contract::run_platform`] runs the part that depends on the adapter: all adapters of platforms
//! share the code of clients.
//!
//! An adapter that implements [`Runtime`] directly provides a [`Subject`], which defines how its
//! futures are run, and calls [`Contract::run`].
//!
//! The groups of cases, one file for each:
//!
//! - `timers`, `dialing`, `streams`: the runtime without a client, connected to scripted sockets of
//!   this process ([`peer`]).
//! - `dropping`: every future of a client is dropped at each of its polls. Afterwards the counts,
//!   the connections and the next operation are checked.
//! - `ending`: a client is closed under load, is dropped while leases are checked out, or loses its
//!   runner.
//! - `crowd`: many tasks on few connections, and the fairness of waiting times.
//! - `hosted`: cases that require a client with threads and a heap: panics, poisoned locks, tasks
//!   on the platform's executor.
//! - `hosted::mux`: sessions over multiplexed pools, against fake Cassandra nodes. Requests are
//!   dropped at each of their polls, sessions end under load, and callbacks panic. Ten thousand
//!   tasks share four connections. Peers are silent, stop reading, send replies in pieces, or
//!   violate the protocol. TLS carries data in both directions at once.
//! - `platform`: the operations of a platform that clients need in addition to streams: datagrams,
//!   host name resolution, tasks.
//!
//! The steps of one case for check-out: the case requests a client of a
//! [`FakeServer`](crate::fake::FakeServer) from its subject ([`Subject::client`]). The background
//! work of the client runs concurrently with the case. The case polls `client.core().check_out(..)`
//! by hand, so the future can be dropped at any poll. The case then checks the counts of the
//! server's pool ([`counts`]) and the server's open connections, and runs the next operation.

mod alarm;
mod crowd;
mod dialing;
mod dropping;
mod ending;
mod faults;
pub mod hosted;
mod no_series;
pub mod peer;
mod platform;
mod rig;
mod streams;
mod timers;

pub use hosted::Hosted;
pub use peer::Hole;

use crate::oracle::Checks;
use crate::oracle::trace::{Recorder, Trace};
use crate::suite::Suite;
use core::future::Future;
use core::net::SocketAddr;
use core::num::NonZero;
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use futures_lite::FutureExt;
use no_series::NoSeries;
use poolhouse_client::Platform;
use poolhouse_core::pool::PoolCounts;
use poolhouse_driver::{ClientCore, Runtime, Subscribers};
use std::process::{Command, ExitCode};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The number of cases that run at the same time for each core: they wait for timers and sockets most
/// of the time.
const CASES_PER_CORE: usize = 3;

/// Time limit of a case in seconds; far more than a case needs, also on a machine under load.
const CASE_SECONDS_MAX: u32 = 300;

/// An adapter under test.
pub trait Subject: Sized + 'static {
    /// The runtime that the adapter provides.
    type Runtime: Runtime;
    /// The client type of the adapter.
    type Client: Client<Runtime = Self::Runtime>;

    /// The limits of the adapter. Cases that exceed them are skipped, and their names are printed.
    const LIMITS: Limits;

    /// Starts with nothing open, and runs a case to its end on an executor of the adapter.
    /// Background work proceeds whenever the case waits, on this thread or on others.
    fn with(case: impl AsyncFnOnce(&Self));

    /// The runtime, for cases without a client.
    fn runtime(&self) -> &Self::Runtime;

    /// Makes the address of a listening socket of this process reachable from the runtime. It is
    /// called for each listening socket; connections to any other address are refused.
    fn open_way_to(&self, _peer: SocketAddr) {}

    /// An address from which the runtime receives no answer, not even a refusal, while the returned
    /// hole exists.
    fn black_hole(&self) -> impl Future<Output = Hole> {
        Hole::dig()
    }

    /// A client whose background work continues until the client is dropped.
    fn client(&self, shape: &Shape) -> Self::Client;
}

/// A client under test.
pub trait Client {
    /// The runtime of the client.
    type Runtime: Runtime;

    /// The client core.
    fn core(&self) -> &ClientCore<Self::Runtime>;

    /// Drops all background work of the client at once, as an executor does when it ends.
    fn drop_runner(&self);
}

/// The limits of a subject. [`Limits::NONE`] is the base from which lower limits are derived.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Maximum number of connections of a pool.
    pub connections: u32,
    /// Maximum number of tasks that wait for a connection.
    pub waiters: u32,
    /// Maximum length of a message in bytes.
    pub message_bytes: usize,
    /// Maximum number of timers and sockets that are open without a client.
    pub open: usize,
    /// Whether the client waits for late replies, to keep their connections.
    pub late_replies: bool,
}

impl Limits {
    /// No limits except memory.
    pub const NONE: Self = Self {
        connections: u32::MAX,
        waiters: u32::MAX,
        message_bytes: usize::MAX,
        open: usize::MAX,
        late_replies: true,
    };
}

/// The options of a client under test, for one server. Its monitor polls and checks the server only
/// on request, so counts are exact.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Shape {
    /// The address of the server.
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
    /// How long the client waits for late replies; zero disables waiting.
    pub drain_timeout: Duration,
}

impl Shape {
    /// The default options for this server.
    pub const fn of(server: SocketAddr) -> Self {
        Self {
            server,
            max_pool_size: 4,
            min_pool_size: 0,
            wait_queue_timeout: None,
            connect_timeout: Some(Duration::from_secs(10)),
            server_selection_timeout: Duration::from_secs(30),
            drain_timeout: Duration::ZERO,
        }
    }
}

/// The counts of the pool of a client's one server.
pub fn counts<R: Runtime>(core: &ClientCore<R>) -> PoolCounts {
    let mut found = None;
    core.for_each_server(|server| found = Some(server.pool.counts));
    found.expect("the client has a server")
}

/// The message of panics that are part of a case. These panics are not printed.
pub(crate) const PLANNED_PANIC: &str = "a panic that is part of the case";

/// Installs a panic hook that prints nothing for panics that are part of a case.
fn silence_planned_panics() {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
        if !text.is_some_and(|text| text.starts_with(PLANNED_PANIC)) {
            others(panic);
        }
    }));
}

static DROP_POINTS: AtomicU64 = AtomicU64::new(0);

/// Counts a future that was dropped before it completed.
pub(crate) fn note_drop_point() {
    DROP_POINTS.fetch_add(1, Ordering::Relaxed);
}

/// The number of traces that were judged, and the sum of the checks of their invariants.
static JUDGED: Mutex<(u64, Option<Checks>)> = Mutex::new((0, None));

/// Checks the invariants of the recorded pool events of a client.
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
/// Most clients of an application have no subscriber, and their check-outs and check-ins take a
/// separate path. The contract is run once more on that path. In that run a witness records
/// nothing, and cases check only the counts, the server's connections and the next operation.
#[derive(Debug)]
pub struct Witness(Option<Recorder>);

impl Witness {
    /// Creates a witness and subscribes it. Must be called before the client is created.
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
            judge(&recorder.take().expect("no event was lost"));
        }
    }
}

/// The contract with one adapter.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Contract {
    name: &'static str,
    threads_variable: Option<&'static str>,
    block_on: Option<BlockOn>,
}

/// Runs a future to its end on the runtime of the current thread.
pub type BlockOn = fn(Pin<&mut dyn Future<Output = ()>>);

/// Set in a process that runs the contract with a runtime that has one thread.
static BLOCK_ON: OnceLock<BlockOn> = OnceLock::new();

/// Set in a process that runs one variant of the contract; the value is the name of the variant.
const WAY: &str = "POOLHOUSE_CONTRACT_WAY";

/// Set in a process that runs the contract with clients that have no subscriber.
const UNOBSERVED: &str = "POOLHOUSE_CONTRACT_UNOBSERVED";

impl Contract {
    /// The contract with the adapter of this name.
    pub const fn new(name: &'static str) -> Self {
        Self { name, threads_variable: None, block_on: None }
    }

    /// This environment variable sets the number of threads of the adapter's executor: 4, and also 1
    /// if `POOLHOUSE_EFFORT` is above 1.
    pub const fn with_threads_variable(self, variable: &'static str) -> Self {
        Self { threads_variable: Some(variable), ..self }
    }

    /// The runtime has one thread, and runs only while `block_on` does. Each case runs in a call of
    /// it. The cases that use the runtime from several threads are left out by name.
    pub const fn on_one_thread(self, block_on: BlockOn) -> Self {
        Self { block_on: Some(block_on), ..self }
    }

    /// Runs the cases of the runtime and those of clients, with an implementation of [`Platform`].
    #[must_use]
    pub fn run_hosted<P: Platform + Default>(self) -> ExitCode {
        self.in_processes(add_platform::<P>, Some(|suite| hosted::add::<P>(add_clients::<Hosted<P>>(suite))))
    }

    /// Runs the cases of the runtime, with an implementation of [`Platform`]: timers, dialing, streams
    /// and the other operations of the platform.
    ///
    /// All platforms share the code of clients, so one of them runs its cases.
    #[must_use]
    pub fn run_platform<P: Platform + Default>(self) -> ExitCode {
        self.in_processes(add_platform::<P>, None)
    }

    /// Runs the cases that need neither threads nor a heap.
    #[must_use]
    pub fn run<S: Subject>(self) -> ExitCode {
        self.in_processes(add_runtime::<S>, Some(add_clients::<S>))
    }

    /// Runs the contract in a separate process for each variant.
    ///
    /// - `runtime`: adds the cases of a runtime without a client.
    /// - `clients`: adds the cases of clients.
    fn in_processes(self, runtime: fn(Suite) -> Suite, clients: Option<fn(Suite) -> Suite>) -> ExitCode {
        match std::env::var(WAY) {
            Ok(way) => self.in_this_process(&way, runtime, clients),
            Err(_) => self.in_each_way(clients.is_some()),
        }
    }

    /// Runs one variant.
    fn in_this_process(self, way: &str, runtime: fn(Suite) -> Suite, clients: Option<fn(Suite) -> Suite>) -> ExitCode {
        if let Some(block_on) = self.block_on {
            BLOCK_ON.set(block_on).expect("a process runs one contract");
        }
        let name = if way.is_empty() { self.name.to_owned() } else { format!("{}, {way}", self.name) };
        silence_planned_panics();
        if is_unobserved() {
            metrics::set_global_recorder(NoSeries).expect("the process has no other recorder");
        }
        let suite = Suite::new(format!("contract ({name})"));
        // The cases of a runtime use no client, so they are not run again.
        let suite = if is_unobserved() { suite } else { runtime(suite) };
        let Some(clients) = clients else { return suite.run() };
        let code = clients(suite).run();
        println!("contract ({name}): {} drop points tried", DROP_POINTS.load(Ordering::Relaxed));
        let (runs, checks) = JUDGED.lock().unwrap_or_else(PoisonError::into_inner).clone();
        println!("contract ({name}): {runs} traces judged");
        // A run of all cases fails when no drop point was reached or no invariant was checked.
        let is_whole = std::env::args_os().len() == 1;
        let (dropped, checks) = (DROP_POINTS.load(Ordering::Relaxed), checks.unwrap_or_default());
        let was_judged = runs > 0 && ["P8", "P27"].iter().all(|id| checks.of(id) > 0);
        let was_tried = dropped > 0 && (is_unobserved() || was_judged);
        if is_whole && !was_tried {
            println!("contract ({name}): no future was dropped, or no trace was judged: nothing was tested");
            return ExitCode::FAILURE;
        }
        code
    }

    /// Runs each variant in a process of its own: by default only that with four threads and a
    /// subscriber.
    fn in_each_way(self, has_clients: bool) -> ExitCode {
        let this = std::env::current_exe().expect("this program has a path");
        let mut failed = false;
        let is_thorough = crate::effort() > 1;
        let threads: &[&str] = match self.threads_variable {
            None => &[""],
            Some(_) if is_thorough => &["1", "4"],
            Some(_) => &["4"],
        };
        let observed = threads.iter().map(|threads| (*threads, false));
        let unobserved = threads.last().filter(|_| is_thorough && has_clients).map(|threads| (*threads, true));
        for (threads, unobserved) in observed.chain(unobserved) {
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
            if !std::env::args().any(|argument| argument.starts_with("--test-threads")) {
                command.args(["--test-threads", &(CASES_PER_CORE * cores()).to_string()]);
            }
            failed |= !command.status().expect("this program runs").success();
        }
        if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

/// The number of cores.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Adds the cases of a runtime without a client that every subject supports.
fn add_runtime<S: Subject>(suite: Suite) -> Suite {
    let suite = timers::add::<S>(suite);
    let suite = dialing::add::<S>(suite);
    streams::add::<S>(suite)
}

/// Adds the cases of a platform without a client.
fn add_platform<P: Platform + Default>(suite: Suite) -> Suite {
    let suite = add_runtime::<Hosted<P>>(suite);
    let suite = timers::add_hosted::<P>(suite);
    let suite = dialing::add_hosted::<P>(suite);
    let suite = streams::add_hosted::<P>(suite);
    platform::add::<P>(suite)
}

/// Adds the cases of clients that every subject supports.
fn add_clients<S: Subject>(suite: Suite) -> Suite {
    let suite = dropping::add::<S>(suite);
    let suite = ending::add::<S>(suite);
    let suite = crowd::add::<S>(suite);
    faults::add::<S>(suite)
}

/// Adds a case that uses the runtime from several threads, or leaves it out.
fn case_of_threads(suite: Suite, name: &str, body: impl FnOnce() + Send + 'static) -> Suite {
    if BLOCK_ON.get().is_some() { suite.left_out(name, "the runtime has one thread") } else { suite.case(name, body) }
}

/// Runs a future to its end, on the runtime's thread if it has only one.
fn block_on(future: impl Future<Output = ()>) {
    match BLOCK_ON.get() {
        Some(block_on) => block_on(pin!(future)),
        None => futures_lite::future::block_on(future),
    }
}

/// Runs one case within its time limit.
pub(crate) fn run_case<S: Subject>(case: impl AsyncFnOnce(&S)) {
    S::with(async |subject: &S| limited(case(subject)).await);
}

/// Awaits a future with a time limit.
async fn limited<T>(future: impl Future<Output = T>) -> T {
    let limit = async {
        // If the machine is suspended for minutes, the loop counts them as one second.
        for _ in 0..CASE_SECONDS_MAX {
            async_io::Timer::after(Duration::from_secs(1)).await;
        }
        panic!("the case exceeded its time limit");
    };
    future.or(limit).await
}
