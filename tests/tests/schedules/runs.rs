//! Simulated runs of a client: two to four tasks perform a few random actions each, together with
//! all background tasks, while the peer fails and time advances.

use super::bench::{Bench, Client, ping};
use super::engine;
use super::model::{Boxed, explore_with, join, poll, task};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use core::future::poll_fn;
use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::Poll;
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::pool::{CheckOutError, PoolCounts, PoolOptions};
use poolhouse_driver::{BaseRuntime as _, Guard, OperationError, SelectionRequest, Subscribers};
use poolhouse_tests::choices::Choices;
use poolhouse_tests::machines::pool::Event;
use poolhouse_tests::oracle::Checks;
use poolhouse_tests::oracle::trace::Recorder;
use poolhouse_tests::rng::Rng;
use poolhouse_tests::seeds::drawn;
use shuttle::rand::{RngCore, thread_rng};
use shuttle::thread::yield_now;
use std::sync::Mutex;

/// Number of runs with each scheduler, without effort. Some thousand do everything.
const SCHEDULES: u64 = 160;
const MANY: u64 = 2_000;

const SECOND: Duration = Duration::from_secs(1);

/// Maximum number of pings to a recovered peer until one must succeed: longer than a connection in
/// establishment takes to fail, one second each.
const ATTEMPTS_MAX: usize = 16;

/// Maximum number of yields of the clock to tasks that are ready.
const TURNS_MAX: usize = 20_000;

/// An action of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Ping,
    /// With a limit of one second.
    PingInTime,
    /// On one connection.
    PingTwice,
    /// Holds a connection while others run.
    Keep,
    /// Drops a ping that is pending at this poll.
    GiveUp(u32),
    /// A ping that is polled by one executor, and then by another.
    Move,
    WarmUp,
    RequestCheck,
    /// Changes the size of the pool.
    Resize(u32),
    /// This number of reads fails.
    Cut(usize),
    Refuse,
    /// No request is answered until all tasks have ended.
    Mute,
    Accept,
    Close,
}

impl Action {
    fn drawn(rng: &mut Rng) -> Self {
        match rng.below(33) {
            0..8 => Self::Ping,
            8..11 => Self::PingInTime,
            11..13 => Self::PingTwice,
            13..15 => Self::Keep,
            15..20 => Self::GiveUp(1 + rng.below(4)),
            20..22 => Self::Move,
            22 => Self::WarmUp,
            23 => Self::RequestCheck,
            24 => Self::Resize(1 + rng.below(2)),
            25..28 => Self::Cut(1 + rng.index(2)),
            28 => Self::Refuse,
            29 => Self::Mute,
            30 | 31 => Self::Accept,
            _ => Self::Close,
        }
    }

    /// Whether events alone determine the result. If so, it does not matter that many waiters have
    /// equal deadlines.
    const fn is_plain(self) -> bool {
        !matches!(self, Self::PingInTime | Self::GiveUp(_) | Self::WarmUp | Self::Resize(_))
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::PingInTime => "ping in time",
            Self::PingTwice => "ping twice",
            Self::Keep => "keep",
            Self::GiveUp(_) => "give up",
            Self::Move => "move",
            Self::WarmUp => "warm up",
            Self::RequestCheck => "request check",
            Self::Resize(_) => "resize",
            Self::Cut(_) => "cut",
            Self::Refuse => "refuse",
            Self::Mute => "mute",
            Self::Accept => "accept",
            Self::Close => "close",
        }
    }
}

const ACTIONS: [&str; 14] = [
    "ping",
    "ping in time",
    "ping twice",
    "keep",
    "give up",
    "move",
    "warm up",
    "request check",
    "resize",
    "cut",
    "refuse",
    "mute",
    "accept",
    "close",
];

/// Results of operations.
const ENDINGS: [&str; 10] = [
    "answered",
    "cleared",
    "closed",
    "dropped",
    "exchange failed",
    "interrupted",
    "no server",
    "not established",
    "timeout",
    "timeout of the queue",
];

/// The random choices of a run.
#[derive(Debug)]
struct Plan {
    tasks: Vec<Vec<Action>>,
    pool: PoolOptions,
    drain_timeout: Duration,
    /// Replies wait until the first task, which has no other action, releases them.
    holds: bool,
    /// The server was checked before the run.
    known: bool,
    /// The poll at which the worker is dropped, if it is.
    deserts: Option<u32>,
    /// Events are judged one by one, because all actions are plain and no limit of a waiter passes.
    judged: bool,
    /// The client has a subscriber. Without one, most check-outs and check-ins do not read the
    /// clock, and the run is judged only by counts.
    observed: bool,
}

impl Plan {
    fn drawn(rng: &mut Rng) -> Self {
        let judged = rng.below(2) == 0;
        let action = |rng: &mut Rng| {
            core::iter::repeat_with(|| Action::drawn(rng)).find(|action| !judged || action.is_plain()).expect("endless")
        };
        let timeout = (!judged && rng.below(2) == 0).then_some(SECOND);
        let tasks = 2 + rng.index(3);
        Self {
            tasks: (0..tasks).map(|_| (0..=rng.index(3)).map(|_| action(rng)).collect()).collect(),
            pool: PoolOptions {
                max_pool_size: 1 + rng.below(2),
                min_pool_size: rng.below(2),
                max_connecting: 1 + rng.below(2),
                wait_queue_timeout: timeout,
                ..PoolOptions::DEFAULT
            },
            drain_timeout: if rng.below(2) == 0 { SECOND } else { Duration::ZERO },
            holds: rng.below(3) == 0,
            known: rng.below(2) == 0,
            deserts: (rng.below(16) == 0).then(|| 1 + rng.below(3)),
            judged,
            observed: rng.below(2) == 0,
        }
    }

    fn has(&self, wanted: impl Fn(&Action) -> bool) -> bool {
        self.tasks.iter().flatten().any(wanted)
    }
}

/// Figures of check-outs.
#[derive(Default)]
struct Tally {
    granted: usize,
    refused: usize,
    dropped: usize,
    /// Of actions and results.
    counts: BTreeMap<&'static str, usize>,
}

/// A client and its observers.
struct Run {
    plan: Plan,
    client: Client,
    /// The connections that tasks hold.
    owned: Mutex<BTreeSet<u64>>,
    tally: Mutex<Tally>,
    closed: AtomicBool,
}

/// A connection that exactly one task holds.
struct Owned<'l> {
    run: &'l Run,
    guard: Guard<'l, Bench>,
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        let was_owned = self.run.owned.lock().expect("whole").remove(&self.guard.connection_id());
        assert!(was_owned, "the connection was already returned");
    }
}

/// A check-out in progress. It counts as dropped unless another result is recorded.
struct Asking<'l>(Option<&'l Mutex<Tally>>);

impl Asking<'_> {
    fn reported(mut self, granted: bool) {
        let Some(tally) = self.0.take() else { return };
        let mut tally = tally.lock().expect("whole");
        if granted {
            tally.granted += 1;
        } else {
            tally.refused += 1;
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(tally) = self.0 {
            tally.lock().expect("whole").dropped += 1;
        }
    }
}

impl Run {
    async fn check_out(&self, deadline: Option<Instant>) -> Result<Owned<'_>, OperationError> {
        let core = &self.client.core;
        let limit = core.check_out_limit(deadline);
        let server = core.select_server(&SelectionRequest::WRITE, limit).await?;
        let asking = Asking(Some(&self.tally));
        let granted = core.check_out_of(server, limit, deadline).await;
        asking.reported(granted.is_ok());
        let guard = granted?;
        let is_owned = !self.owned.lock().expect("whole").insert(guard.connection_id());
        assert!(!is_owned, "two tasks own one connection");
        Ok(Owned { run: self, guard })
    }

    async fn ping(&self, deadline: Option<Instant>, times: usize) -> Result<(), OperationError> {
        let mut owned = self.check_out(deadline).await?;
        for _ in 0..times {
            ping(&mut owned.guard).await?;
        }
        Ok(())
    }

    fn count(&self, what: &'static str) {
        *self.tally.lock().expect("whole").counts.entry(what).or_default() += 1;
    }

    /// Records the result of an operation. An error requires a cause in the plan.
    fn end(&self, ended: Result<(), OperationError>, is_limited: bool) {
        let Err(error) = ended else { return self.count("answered") };
        // A check may have exceeded its limit.
        let is_late = self.client.bench.now() >= Instant::ORIGIN.saturating_add(10 * SECOND);
        let is_harmed =
            is_late || self.plan.has(|action| matches!(action, Action::Cut(_) | Action::Refuse | Action::Mute));
        let is_closed = self.closed.load(Ordering::Relaxed) || self.plan.deserts.is_some();
        let has_queue_timeout = self.plan.pool.wait_queue_timeout.is_some();
        let (ending, may) = match &error {
            OperationError::Closed | OperationError::Abandoned => ("closed", is_closed),
            OperationError::Exchange(_) => ("exchange failed", is_harmed),
            OperationError::Interrupted(_) => ("interrupted", is_harmed),
            OperationError::ServerSelection(_) => ("no server", true),
            OperationError::Timeout => ("timeout", is_limited),
            OperationError::CheckOut(_) => match error.check_out() {
                Some(CheckOutError::PoolClosed) => ("closed", is_closed),
                Some(CheckOutError::PoolCleared { .. }) => ("cleared", is_harmed),
                Some(CheckOutError::EstablishFailed { .. }) => ("not established", is_harmed || is_closed),
                Some(CheckOutError::WaitQueueTimeout { .. }) => {
                    ("timeout of the queue", is_limited || has_queue_timeout)
                }
                // As many tasks may warm up a pool as it has slots for connections: the bench has two.
                Some(CheckOutError::Busy { .. }) => {
                    let warms_up = |task: &&Vec<Action>| task.iter().any(|action| matches!(action, Action::WarmUp));
                    ("no place to wait", self.plan.tasks.iter().filter(warms_up).count() > 2)
                }
                _ => ("", false),
            },
            OperationError::Authentication(_)
            | OperationError::Command { .. }
            | OperationError::Broken(_)
            | OperationError::Busy
            | OperationError::Forked
            | _ => ("", false),
        };
        assert!(may, "{error:?} in {:?}", self.plan);
        self.count(ending);
    }

    async fn act(self: Arc<Self>, place: usize) {
        for action in self.plan.tasks[place].clone() {
            self.count(action.name());
            let bench = &self.client.bench;
            let core = &self.client.core;
            let soon = || Some(bench.now().saturating_add(SECOND));
            // If a peer neither answers nor accepts connections, no check detects its failure, so
            // operations need a limit.
            let is_limited = self.plan.has(|action| *action == Action::Mute);
            let limit = is_limited.then(|| bench.now().saturating_add(60 * SECOND));
            match action {
                Action::Ping => self.end(self.ping(limit, 1).await, is_limited),
                Action::PingInTime => self.end(self.ping(soon(), 1).await, true),
                Action::PingTwice => self.end(self.ping(limit, 2).await, is_limited),
                Action::Keep => {
                    let kept = self.check_out(limit).await;
                    yield_now();
                    self.end(kept.map(drop), is_limited);
                }
                Action::GiveUp(polls) => match up_to(polls, self.ping(limit, 1)).await {
                    Some(ended) => self.end(ended, is_limited),
                    None => self.count("dropped"),
                },
                Action::Move => {
                    let run = Arc::clone(&self);
                    let mut moved: Boxed<_> = Box::pin(async move { run.ping(limit, 1).await });
                    let ended = match poll(&mut moved) {
                        Poll::Ready(ended) => ended,
                        Poll::Pending => moved.await,
                    };
                    self.end(ended, is_limited);
                }
                Action::WarmUp => {
                    let deadline = soon();
                    self.end(core.warm_up(&SelectionRequest::WRITE, Some(1), deadline).await, true);
                }
                Action::RequestCheck => core.request_check(),
                Action::Resize(max_pool_size) => {
                    let min_pool_size = self.plan.pool.min_pool_size.min(max_pool_size);
                    let options = PoolOptions { max_pool_size, min_pool_size, ..self.plan.pool };
                    core.reconfigure_pools(options.validate().expect("valid"));
                }
                Action::Cut(count) => bench.cut(count),
                Action::Refuse => bench.refuse(),
                Action::Mute => bench.mute(),
                Action::Accept => bench.accept(),
                Action::Close => {
                    self.closed.store(true, Ordering::Relaxed);
                    core.close();
                }
            }
        }
    }

    /// After the end of all faults, the client is fully usable.
    async fn wait_for_recovery(&self) {
        self.client.bench.recover();
        for attempt in 1.. {
            match self.ping(None, 1).await {
                Ok(()) => return,
                Err(error) => {
                    assert!(attempt < ATTEMPTS_MAX, "{error:?} after the faults have ended, in {:?}", self.plan)
                }
            }
        }
    }

    /// Compares the events with the observations of the tasks (P28).
    fn judge(&self, recorder: &mut Recorder) -> Checks {
        let mut checks = Checks::default();
        let trace = recorder.take().expect("no event is lost");
        if self.plan.judged {
            trace.judge(&mut checks).unwrap_or_else(|found| panic!("{found} in {:?}: {}", self.plan, trace.json()));
        }
        let count = |is: fn(&Event) -> bool| trace.0.iter().filter(|(_, _, event)| is(event)).count();
        let started = count(|event| matches!(event, Event::Started));
        let failed = count(|event| matches!(event, Event::Failed(..)));
        let checked_out = count(|event| matches!(event, Event::CheckedOut(..)));
        assert_eq!(started, failed + checked_out, "each check-out has one end");
        assert_eq!(checked_out, count(|event| matches!(event, Event::CheckedIn(_))));
        let created = count(|event| matches!(event, Event::Created(_)));
        assert_eq!(created, count(|event| matches!(event, Event::Closed(..))));
        let tally = self.tally.lock().expect("whole");
        assert_eq!(started, tally.granted + tally.refused + tally.dropped);
        assert!(failed >= tally.refused, "the events report {failed} failures, the tasks received {}", tally.refused);
        assert!(
            checked_out >= tally.granted,
            "the events report {checked_out} grants, the tasks received {}",
            tally.granted
        );
        checks
    }
}

/// Polls a future whenever it is woken, and drops it if it is pending after `polls` polls.
async fn up_to<F: Future>(polls: u32, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => {
            left -= 1;
            if left == 0 { Poll::Ready(None) } else { Poll::Pending }
        }
    })
    .await
}

/// Figures of all runs.
#[derive(Default)]
struct Sum {
    counts: BTreeMap<&'static str, usize>,
    checks: Checks,
}

/// Between two advances of the time: waits until no other task is ready.
///
/// - `rushes`: sometimes does not wait, as if the tasks were slow.
fn pause(rushes: bool) {
    let is_rash = rushes && thread_rng().next_u32().is_multiple_of(8);
    yield_now();
    let mut turns = 0;
    while !is_rash && !engine::is_quiet() {
        turns += 1;
        assert!(turns < TURNS_MAX, "deadlock: no task makes progress, and no deadline is pending");
        yield_now();
    }
}

fn run(plan: Plan, sum: &Mutex<Sum>) -> &'static str {
    let bench = Bench::with_sleepers();
    let events = Subscribers::default();
    let mut recorder = plan.observed.then(|| Recorder::new(&events));
    let client = Client::watched(bench.clone(), events, |config| {
        config.pool = plan.pool.validate().expect("valid");
        config.drain_timeout = plan.drain_timeout;
        config.connect_timeout = Some(10 * SECOND);
    });
    let (client, check) = if plan.known {
        client.checked()
    } else {
        let check = client.check();
        (client, check)
    };
    if plan.holds {
        bench.hold();
    }
    let rushes = Arc::new(AtomicBool::new(true));
    let time = {
        let rushes = Arc::clone(&rushes);
        task(bench.clone().keep_time(move || pause(rushes.load(Ordering::Relaxed))))
    };
    let mut background = vec![task(check), task(client.clock()), task(client.pool_clock()), task(client.worker())];
    if let Some(polls) = plan.deserts {
        let worker = client.worker();
        background.push(task(async move { up_to(polls, worker).await.unwrap_or_default() }));
    } else if plan.pool.max_connecting > 1 {
        background.push(task(client.worker()));
    }
    let tasks = plan.tasks.len();
    let deserted = plan.deserts.is_some();
    let (owned, tally) = (Mutex::default(), Mutex::default());
    let run = Arc::new(Run { plan, client, owned, tally, closed: AtomicBool::new(false) });
    let acting: Vec<_> = (0..tasks).map(|place| task(Arc::clone(&run).act(place))).collect();
    bench.release();
    acting.into_iter().for_each(join);
    let closed = run.closed.load(Ordering::Relaxed);
    if !closed && !deserted {
        rushes.store(false, Ordering::Relaxed);
        let run = Arc::clone(&run);
        join(task(async move { run.wait_for_recovery().await }));
    }
    run.client.core.close();
    background.into_iter().for_each(join);
    bench.stop_time();
    join(time);
    assert_eq!(run.client.counts(), PoolCounts::default(), "{:?}", run.plan);
    assert_eq!(bench.stream_count(), 0, "sockets are left open in {:?}", run.plan);
    assert!(run.owned.lock().expect("whole").is_empty());
    let checks = recorder.as_mut().map(|recorder| run.judge(recorder)).unwrap_or_default();
    let mut sum = sum.lock().expect("whole");
    sum.checks.merge(&checks);
    for (what, count) in &run.tally.lock().expect("whole").counts {
        *sum.counts.entry(what).or_default() += count;
    }
    *sum.counts.entry(if run.plan.observed { "a subscriber" } else { "no subscriber" }).or_default() += 1;
    if deserted {
        "abandoned"
    } else if closed {
        "closed by a task"
    } else {
        "peace"
    }
}

/// Runs, all different.
fn runs(name: &str, depth: usize) {
    let sum = Arc::new(Mutex::new(Sum::default()));
    let counted = Arc::clone(&sum);
    let reported = engine::is_replay();
    let seeds = drawn(SCHEDULES);
    let are_many = seeds.end - seeds.start >= MANY;
    let outcomes = explore_with(
        name,
        |work| engine::check_many(&seeds, depth, work),
        move || {
            let plan = Plan::drawn(&mut Rng::new(thread_rng().next_u64()));
            if reported {
                println!("{plan:?}");
            }
            run(plan, &counted)
        },
    );
    let sum = sum.lock().expect("whole");
    if !reported && are_many {
        assert_eq!(outcomes, ["abandoned", "closed by a task", "peace"]);
        let missing: Vec<_> = ACTIONS
            .iter()
            .chain(&ENDINGS)
            .chain(&["a subscriber", "no subscriber"])
            .filter(|kind| !sum.counts.contains_key(**kind))
            .collect();
        assert!(missing.is_empty(), "never occurred: {missing:?}");
    }
}

#[test]
fn runs_of_few_preemptions() {
    runs("runs, few preemptions", 3);
}

#[test]
fn runs_of_many_preemptions() {
    runs("runs, many preemptions", 12);
}
