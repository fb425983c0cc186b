//! The generic pool on a clock and with connections of the test.

use super::wide::Wide;
use super::{Bench, Boxed, Part, poll};
use crate::driven::Drive as _;
use crate::pool::{Manager, Options, Pool, PoolError, Pooled};
use crate::runtime::BaseRuntime as _;
use crate::{Event, EventKinds, Notice, Subscribers};
use alloc::boxed::Box;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::future::{pending, poll_fn};
use core::pin::Pin;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::pool::{PoolId, PoolState, Reuse};
use std::sync::Mutex;

/// A server of the test: what it does with the next connections.
#[derive(Default)]
struct Peer {
    refuses: bool,
    /// The number of opened connections after which the peer refuses.
    refuses_after: Option<u32>,
    hangs: bool,
    /// Whether attempts that hang continue.
    releases: bool,
    /// The wakers of attempts to connect that hang.
    hanging: Vec<Waker>,
    panics: bool,
    check_panics: bool,
    /// Connections up to this number fail their checks.
    checks_fail_until: u32,
    checks: u32,
    opened: u32,
    closed: Vec<u32>,
}

#[derive(Clone, Default)]
struct Opener(Arc<Mutex<Peer>>);

struct Line {
    number: u32,
    broken: bool,
    peer: Arc<Mutex<Peer>>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.peer.lock().unwrap().closed.push(self.number);
    }
}

impl Manager for Opener {
    type Connection = Line;
    type Error = &'static str;

    async fn connect(&self) -> Result<Line, &'static str> {
        let mut hangs = self.0.lock().unwrap().hangs;
        poll_fn(|context| {
            let mut peer = self.0.lock().unwrap();
            hangs &= !peer.releases;
            if !hangs {
                return Poll::Ready(());
            }
            peer.hanging.push(context.waker().clone());
            Poll::Pending
        })
        .await;
        let mut peer = self.0.lock().unwrap();
        if peer.panics {
            drop(peer);
            panic!("as the test wants it");
        }
        if peer.refuses || peer.refuses_after.is_some_and(|opened| peer.opened >= opened) {
            return Err("refused");
        }
        peer.opened += 1;
        Ok(Line { number: peer.opened, broken: false, peer: Arc::clone(&self.0) })
    }

    async fn check(&self, line: &mut Line) -> Result<(), &'static str> {
        let mut peer = self.0.lock().unwrap();
        peer.checks += 1;
        if peer.check_panics {
            drop(peer);
            panic!("as the test wants it");
        }
        if line.number <= peer.checks_fail_until { Err("reset") } else { Ok(()) }
    }

    fn is_broken(&self, line: &Line) -> bool {
        line.broken
    }
}

type TestPool = Pool<Opener, Wide>;
type Shared = Arc<TestPool>;
type Got = Pooled<Opener, Wide, Shared>;

#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A pool with its tasks, which are polled when they are woken or when time passes.
struct House {
    bench: Bench,
    opener: Opener,
    pool: Shared,
    tasks: Vec<(Arc<Bell>, Option<Boxed<'static, ()>>)>,
}

const MS: Duration = Duration::from_millis(1);

impl House {
    fn open(options: Options) -> Self {
        let (bench, opener) = (Bench::new(), Opener::default());
        let config = options.validate().unwrap();
        let events = Subscribers::default();
        let runtime = Wide(bench.clone());
        let pool = Arc::new(Pool::new(opener.clone(), runtime, config, PoolId::new(7), String::from("test"), &events));
        let mut house = Self { bench, opener, pool, tasks: Vec::new() };
        for _ in 0..config.options().max_connecting {
            house.start(Box::pin(Pool::run_worker(Arc::clone(&house.pool))));
        }
        house.start(Box::pin(Pool::run_clock(Arc::clone(&house.pool))));
        house.run();
        house
    }

    fn start(&mut self, task: Boxed<'static, ()>) {
        let bell = Arc::new(Bell(AtomicUsize::new(1)));
        self.tasks.push((bell, Some(task)));
    }

    /// Polls every task that was woken, until none is.
    fn run(&mut self) {
        for _ in 0..1_000 {
            let mut is_idle = true;
            for (bell, task) in &mut self.tasks {
                if bell.0.swap(0, Ordering::Relaxed) == 0 {
                    continue;
                }
                is_idle = false;
                let waker = Waker::from(Arc::clone(bell));
                let poll =
                    |work: &mut Boxed<'static, ()>| work.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
                if task.as_mut().is_some_and(poll) {
                    *task = None;
                }
            }
            if is_idle {
                return;
            }
        }
        panic!("the tasks never come to rest");
    }

    /// Advances the clock in steps of a millisecond, and polls every task at each.
    fn pass(&mut self, time: Duration) {
        let end = self.now().saturating_add(time);
        while self.now() < end {
            let next = end.min(self.now().saturating_add(MS));
            self.bench.advance_to(next);
            for (bell, _) in &self.tasks {
                bell.0.fetch_add(1, Ordering::Relaxed);
            }
            self.run();
        }
    }

    fn now(&self) -> Instant {
        self.bench.now()
    }

    fn peer<T>(&self, with: impl FnOnce(&mut Peer) -> T) -> T {
        with(&mut self.opener.0.lock().unwrap())
    }

    fn begin(&self) -> Boxed<'static, Result<Got, PoolError<&'static str>>> {
        Box::pin(Pool::get_from(Arc::clone(&self.pool)))
    }

    /// Checks out a connection, which the tasks open if necessary.
    fn get(&mut self) -> Result<Got, PoolError<&'static str>> {
        let mut getting = self.begin();
        if let Poll::Ready(got) = poll(&mut getting) {
            return got;
        }
        self.run();
        match poll(&mut getting) {
            Poll::Ready(got) => got,
            Poll::Pending => panic!("it waits"),
        }
    }

    /// Pending, available and used connections, and waiters.
    fn counts(&self) -> [u32; 4] {
        let counts = self.pool.snapshot().counts;
        [counts.pending, counts.available, counts.in_use, counts.waiting]
    }
}

const PLAIN: Options = Options { max_lifetime: None, ..Options::DEFAULT };

#[test]
fn connection_is_opened_once_and_reused() {
    let mut house = House::open(PLAIN);
    let first = house.get().unwrap();
    assert_eq!(first.number, 1);
    drop(first);
    assert_eq!(house.counts(), [0, 1, 0, 0]);
    let again = house.get().unwrap();
    assert_eq!((again.number, house.peer(|peer| peer.checks)), (1, 1), "checked before reuse");
    let second = house.get().unwrap();
    assert_eq!((second.number, house.peer(|peer| peer.checks)), (2, 1), "a fresh connection is not checked");
}

#[test]
fn check_out_reads_no_clock_if_no_option_needs_it() {
    let mut house = House::open(Options { check_before_reuse: false, ..PLAIN });
    // The one after a check-out that waited reads the clock, because it will probably wait too.
    for _ in 0..2 {
        drop(house.get().unwrap());
    }
    let before = house.bench.looks.load(Ordering::Relaxed);
    drop(house.get().unwrap());
    assert_eq!(house.bench.looks.load(Ordering::Relaxed), before);
}

#[test]
fn waiters_are_served_in_the_order_of_their_arrival() {
    let mut house = House::open(Options { max_size: 1, ..PLAIN });
    let held = house.get().unwrap();
    let mut waiting: Vec<_> = (0..3).map(|_| house.begin()).collect();
    waiting.iter_mut().for_each(|one| assert!(poll(one).is_pending()));
    house.pass(5 * MS);
    let mut waited = Vec::new();
    house.pool.visit_waiters(|time| waited.push(time));
    assert_eq!(waited, [5 * MS; 3]);
    drop(held);
    for place in 0..3 {
        let polled: Vec<_> = waiting.iter_mut().skip(place + 1).map(|one| poll(one).is_pending()).collect();
        assert!(polled.iter().all(|is_pending| *is_pending), "only the oldest is served");
        let Poll::Ready(got) = poll(&mut waiting[place]) else { panic!("the oldest waiter is served") };
        drop(got.unwrap());
        waiting[place] = Box::pin(pending());
    }
}

#[test]
fn check_out_fails_at_its_limit_also_while_a_connection_is_opened_for_it() {
    for hangs in [false, true] {
        let options = Options { max_size: 1, wait_timeout: Some(20 * MS), connect_timeout: None, ..PLAIN };
        let mut house = House::open(options);
        let held = if hangs { None } else { Some(house.get().unwrap()) };
        house.peer(|peer| peer.hangs = hangs);
        let mut getting = house.begin();
        assert!(poll(&mut getting).is_pending());
        house.pass(19 * MS);
        assert!(poll(&mut getting).is_pending());
        house.pass(MS);
        let Poll::Ready(Err(PoolError::WaitTimeout { counts, last })) = poll(&mut getting) else {
            panic!("the limit has passed")
        };
        assert_eq!((counts.in_use, counts.pending, last), (u32::from(!hangs), u32::from(hangs), None));
        drop(held);
    }
}

#[test]
fn connecting_ends_at_its_limit() {
    let mut house = House::open(Options { connect_timeout: Some(10 * MS), ..PLAIN });
    house.peer(|peer| peer.hangs = true);
    let mut getting = house.begin();
    assert!(poll(&mut getting).is_pending());
    house.run();
    house.pass(10 * MS);
    assert!(matches!(poll(&mut getting), Poll::Ready(Err(PoolError::ConnectTimeout))));
}

#[test]
fn failure_to_connect_is_the_error_of_its_check_out_and_attempts_pause() {
    let mut house = House::open(Options { max_connecting: 1, wait_timeout: Some(30 * MS), ..PLAIN });
    house.peer(|peer| peer.refuses = true);
    assert_eq!(house.get().err(), Some(PoolError::Connect("refused")));
    // The pause is 50 ms: this check-out ends before the next attempt, and names the last error.
    let mut getting = house.begin();
    assert!(poll(&mut getting).is_pending());
    house.pass(30 * MS);
    let Poll::Ready(Err(error)) = poll(&mut getting) else { panic!("the limit has passed") };
    assert!(matches!(error, PoolError::WaitTimeout { last: Some("refused"), .. }), "{error}");
    house.peer(|peer| peer.refuses = false);
    let mut getting = house.begin();
    assert!(poll(&mut getting).is_pending());
    house.pass(20 * MS);
    let Poll::Ready(Ok(got)) = poll(&mut getting) else { panic!("the pause has passed") };
    assert_eq!(got.number, 1);
}

#[test]
fn pauses_double_up_to_their_limit() {
    let mut house = House::open(Options { max_connecting: 1, max_backoff: 150 * MS, wait_timeout: None, ..PLAIN });
    house.peer(|peer| peer.refuses = true);
    let mut pauses = Vec::new();
    for _ in 0..4 {
        let (begun, mut getting) = (house.now(), house.begin());
        assert!(poll(&mut getting).is_pending());
        house.run();
        while poll(&mut getting).is_pending() {
            house.pass(MS);
        }
        pauses.push(house.now().saturating_since(begun));
    }
    assert_eq!(pauses, [Duration::ZERO, 50 * MS, 100 * MS, 150 * MS], "the entropy of the test is zero");
}

/// A worker that pauses after failures continues as soon as another worker has opened a connection.
#[test]
fn pause_ends_when_another_connection_is_opened() {
    let mut house = House::open(Options { max_connecting: 2, wait_timeout: None, ..PLAIN });
    house.peer(|peer| peer.hangs = true);
    let mut first = house.begin();
    assert!(poll(&mut first).is_pending());
    house.run();
    house.peer(|peer| (peer.hangs, peer.refuses) = (false, true));
    assert_eq!(house.get().err(), Some(PoolError::Connect("refused")));
    let mut second = house.begin();
    assert!(poll(&mut second).is_pending());
    house.run();
    assert!(poll(&mut second).is_pending(), "the worker pauses");
    let hanging = house.peer(|peer| {
        (peer.refuses, peer.releases) = (false, true);
        core::mem::take(&mut peer.hanging)
    });
    hanging.into_iter().for_each(Waker::wake);
    house.run();
    let held = poll(&mut first);
    assert!(matches!(held, Poll::Ready(Ok(_))));
    assert!(matches!(poll(&mut second), Poll::Ready(Ok(_))), "no time has passed");
}

/// The pauses are as long as `max_backoff`, and the second one is shortened at random.
#[test]
fn pause_is_not_shortened_by_a_further_failure() {
    let options = Options { max_connecting: 2, max_backoff: 50 * MS, wait_timeout: None, ..PLAIN };
    let mut house = House::open(options);
    house.peer(|peer| peer.hangs = true);
    let mut first = house.begin();
    assert!(poll(&mut first).is_pending());
    house.run();
    house.peer(|peer| (peer.hangs, peer.refuses) = (false, true));
    let until = house.now().saturating_add(50 * MS);
    let mut second = house.begin();
    assert!(poll(&mut second).is_pending());
    house.run();
    house.pass(MS);
    house.bench.entropy.store(u32::MAX, Ordering::Relaxed);
    let hanging = house.peer(|peer| {
        peer.releases = true;
        core::mem::take(&mut peer.hanging)
    });
    hanging.into_iter().for_each(Waker::wake);
    let mut third = house.begin();
    assert!(poll(&mut third).is_pending());
    house.run();
    assert_eq!(house.bench.last_sleep.load(Ordering::Relaxed), until.as_nanos(), "both workers pause until then");
}

/// The failure sets an earlier time for the next attempt than the one for which the worker pauses.
#[test]
fn pause_is_shortened_by_a_success_and_the_failure_after_it() {
    let mut house = House::open(Options { max_connecting: 2, wait_timeout: None, ..PLAIN });
    house.peer(|peer| peer.hangs = true);
    let mut first = house.begin();
    assert!(poll(&mut first).is_pending());
    house.run();
    house.peer(|peer| (peer.hangs, peer.refuses_after) = (false, Some(0)));
    for _ in 0..4 {
        let mut refused = house.begin();
        while poll(&mut refused).is_pending() {
            house.pass(MS);
        }
    }
    // The second worker pauses for 400 ms.
    let mut second = house.begin();
    assert!(poll(&mut second).is_pending());
    house.run();
    // The first worker opens one connection, and is then refused for the third check-out.
    let mut third = house.begin();
    assert!(poll(&mut third).is_pending());
    let hanging = house.peer(|peer| {
        (peer.refuses_after, peer.releases) = (Some(1), true);
        core::mem::take(&mut peer.hanging)
    });
    hanging.into_iter().for_each(Waker::wake);
    house.run();
    house.peer(|peer| peer.refuses_after = None);
    assert!(matches!(poll(&mut first), Poll::Ready(Ok(_))));
    let outcomes = [poll(&mut second), poll(&mut third)];
    let refused = outcomes.iter().filter(|outcome| matches!(outcome, Poll::Ready(Err(_)))).count();
    assert_eq!(refused, 1, "of one waiter");
    let until = house.now().saturating_add(50 * MS);
    assert_eq!(house.bench.last_sleep.load(Ordering::Relaxed), until.as_nanos(), "the second worker sleeps anew");
}

#[test]
fn connections_that_fail_their_check_are_closed_and_replaced() {
    let mut house = House::open(PLAIN);
    let held = [house.get().unwrap(), house.get().unwrap()];
    drop(held);
    house.peer(|peer| peer.checks_fail_until = 2);
    let got = house.get().unwrap();
    assert_eq!(got.number, 3);
    assert_eq!(house.peer(|peer| peer.closed.len()), 2);
}

#[test]
fn check_out_that_is_dropped_during_the_check_closes_its_connection() {
    let mut house = House::open(PLAIN);
    drop(house.get().unwrap());
    struct Stuck;
    impl Manager for Stuck {
        type Connection = ();
        type Error = ();
        async fn connect(&self) -> Result<(), ()> {
            Ok(())
        }
        async fn check(&self, _: &mut ()) -> Result<(), ()> {
            pending().await
        }
    }
    let runtime = Wide(house.bench.clone());
    let config = Options { min_size: 1, max_size: 1, ..PLAIN }.validate().unwrap();
    let pool = Arc::new(Pool::new(Stuck, runtime, config, PoolId::new(8), String::new(), &Subscribers::default()));
    house.start(Box::pin(Pool::run_worker(Arc::clone(&pool))));
    house.run();
    let mut fresh = Box::pin(Pool::get_from(Arc::clone(&pool))) as Boxed<'static, _>;
    let Poll::Ready(Ok(pooled)) = poll(&mut fresh) else { panic!("a fresh connection is not checked") };
    drop(pooled);
    let mut getting = Box::pin(Pool::get_from(Arc::clone(&pool))) as Boxed<'static, _>;
    assert!(poll(&mut getting).is_pending(), "the check does not end");
    assert_eq!(pool.snapshot().counts.in_use, 1);
    drop(getting);
    assert_eq!(pool.snapshot().counts.in_use, 0);
    assert_eq!(pool.snapshot().counts.available, 0, "the connection is in an unknown state");
}

#[test]
fn broken_connections_are_closed_when_they_are_returned() {
    let mut house = House::open(PLAIN);
    let mut first = house.get().unwrap();
    first.broken = true;
    drop(first);
    let mut second = house.get().unwrap();
    second.mark_broken();
    drop(second);
    assert_eq!(house.peer(|peer| peer.closed.clone()), [1, 2]);
    assert_eq!(house.counts(), [0, 0, 0, 0]);
}

#[test]
fn detached_connection_leaves_the_pool_open() {
    let mut house = House::open(Options { max_size: 1, ..PLAIN });
    let line = house.get().unwrap().detach();
    assert_eq!(house.counts(), [0, 0, 0, 0]);
    assert_eq!(house.get().unwrap().number, 2, "there is room for another one");
    assert_eq!(house.peer(|peer| peer.closed.len()), 0);
    drop(line);
}

#[test]
fn connections_are_closed_at_the_end_of_their_lifetime_and_replaced() {
    let mut house = House::open(Options { min_size: 2, max_lifetime: Some(100 * MS), ..PLAIN });
    house.pass(MS);
    assert_eq!(house.counts(), [0, 2, 0, 0]);
    let held = house.get().unwrap();
    house.pass(110 * MS);
    assert_eq!(house.peer(|peer| peer.closed.len()), 1, "the one in use stays open");
    let number = held.number;
    drop(held);
    house.run();
    assert!(house.peer(|peer| peer.closed.contains(&number)), "it is closed when it is returned");
    assert_eq!(house.counts(), [0, 0, 0, 0], "two were opened in this second");
    house.pass(900 * MS);
    assert_eq!(house.counts(), [0, 2, 0, 0]);
}

#[test]
fn idle_connections_are_closed() {
    let mut house = House::open(Options { idle_timeout: Some(50 * MS), ..PLAIN });
    drop(house.get().unwrap());
    house.pass(49 * MS);
    assert_eq!(house.counts(), [0, 1, 0, 0]);
    house.pass(2 * MS);
    assert_eq!(house.counts(), [0, 0, 0, 0]);
    assert_eq!(house.peer(|peer| peer.closed.clone()), [1]);
}

#[test]
fn oldest_connection_is_reused_first_if_the_options_say_so() {
    for (reuse, first) in [(Reuse::Newest, 2), (Reuse::Oldest, 1)] {
        let mut house = House::open(Options { reuse, ..PLAIN });
        let [one, two] = [house.get().unwrap(), house.get().unwrap()];
        drop(one);
        drop(two);
        assert_eq!(house.get().unwrap().number, first);
    }
}

#[test]
fn cleared_pool_closes_all_connections_and_keeps_its_waiters() {
    let mut house = House::open(Options { max_size: 2, ..PLAIN });
    let [one, two] = [house.get().unwrap(), house.get().unwrap()];
    drop(two);
    let third = house.get().unwrap();
    let mut waiting = house.begin();
    assert!(poll(&mut waiting).is_pending());
    house.pool.clear();
    drop(one);
    assert!(poll(&mut waiting).is_pending(), "it waits for a new connection");
    house.run();
    let Poll::Ready(Ok(got)) = poll(&mut waiting) else { panic!("a new connection was opened") };
    assert_eq!(got.number, 3);
    drop(third);
    assert_eq!(house.peer(|peer| peer.closed.clone()), [1, 2]);
}

#[test]
fn clear_does_not_extend_the_time_limit_of_a_check_out() {
    let mut house = House::open(Options { max_size: 1, wait_timeout: Some(20 * MS), ..PLAIN });
    let _held = house.get().unwrap();
    let mut waiting = house.begin();
    for _ in 0..4 {
        assert!(poll(&mut waiting).is_pending());
        house.pass(5 * MS);
        house.pool.clear();
    }
    assert!(matches!(poll(&mut waiting), Poll::Ready(Err(PoolError::WaitTimeout { .. }))));
}

#[test]
fn resized_pool_opens_more_or_closes_surplus_connections() {
    let mut house = House::open(Options { max_size: 1, ..PLAIN });
    let one = house.get().unwrap();
    house.pool.resize(2).unwrap();
    let two = house.get().unwrap();
    house.pool.resize(1).unwrap();
    drop(two);
    drop(one);
    assert_eq!(house.counts(), [0, 1, 0, 0]);
    assert_eq!(house.pool.resize(0).unwrap_err().to_string(), "max_size is 0, but must be at least 1");
}

#[test]
fn closed_pool_fails_its_waiters_and_waits_for_connections_in_use() {
    let mut house = House::open(Options { max_size: 1, ..PLAIN });
    let held = house.get().unwrap();
    let mut waiting = house.begin();
    assert!(poll(&mut waiting).is_pending());
    let pool = Arc::clone(&house.pool);
    let mut drained = Box::pin(async move { pool.drained().await }) as Boxed<'static, ()>;
    let bell = Arc::<Bell>::default();
    let waker = Waker::from(Arc::clone(&bell));
    assert!(drained.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    house.pool.close();
    assert_eq!(poll(&mut waiting).map(Result::err), Poll::Ready(Some(PoolError::Closed)));
    house.run();
    assert!(house.tasks.iter().all(|(_, task)| task.is_none()), "the tasks have ended");
    assert!(drained.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(bell.0.load(Ordering::Relaxed), 0);
    drop(held);
    assert_eq!(bell.0.load(Ordering::Relaxed), 1, "the last connection was returned");
    assert!(poll(&mut drained).is_ready());
    assert_eq!(house.peer(|peer| peer.closed.clone()), [1]);
    assert_eq!(house.get().err(), Some(PoolError::Closed));
}

#[test]
fn dropped_task_closes_the_pool() {
    let mut house = House::open(PLAIN);
    house.peer(|peer| peer.hangs = true);
    let mut waiting = house.begin();
    assert!(poll(&mut waiting).is_pending());
    house.run();
    house.tasks.clear();
    assert_eq!(house.pool.snapshot().state, PoolState::Closed);
    assert!(matches!(poll(&mut waiting), Poll::Ready(Err(PoolError::Interrupted | PoolError::Abandoned))));
    assert_eq!(house.get().err(), Some(PoolError::Abandoned));
}

#[test]
fn check_out_that_is_dropped_returns_what_it_was_granted() {
    let mut house = House::open(Options { max_size: 1, ..PLAIN });
    let held = house.get().unwrap();
    let mut waiting = house.begin();
    assert!(poll(&mut waiting).is_pending());
    drop(held);
    drop(waiting);
    assert_eq!(house.counts(), [0, 1, 0, 0]);
}

#[test]
fn connection_is_taken_at_once_or_not_at_all() {
    let mut house = House::open(PLAIN);
    let none = Pool::try_get_from(Arc::clone(&house.pool));
    assert!(matches!(none, Err(PoolError::WaitTimeout { .. })));
    house.run();
    assert_eq!(house.peer(|peer| peer.opened), 0, "none is opened for it");
    drop(house.get().unwrap());
    assert_eq!(Pool::try_get_from(Arc::clone(&house.pool)).unwrap().number, 1);
}

#[test]
fn pool_is_inert_in_the_child_of_a_fork() {
    let mut house = House::open(PLAIN);
    let held = house.get().unwrap();
    house.bench.inherited.store(true, Ordering::Relaxed);
    assert_eq!(house.get().err(), Some(PoolError::Forked));
    house.pool.close();
    drop(held);
    assert_eq!(house.peer(|peer| peer.closed.len()), 0, "the socket belongs to the parent");
}

#[test]
fn events_are_those_of_the_specification() {
    let (bench, opener, events) = (Bench::new(), Opener::default(), Subscribers::default());
    let mut seen = events.subscribe(EventKinds::ALL, 64, |_| true);
    let config = PLAIN.validate().unwrap();
    let pool = Arc::new(Pool::new(opener, Wide(bench), config, PoolId::new(7), String::from("test"), &events));
    let mut worker = Box::pin(Pool::run_worker(Arc::clone(&pool))) as Boxed<'static, ()>;
    let mut getting = Box::pin(Pool::get_from(Arc::clone(&pool))) as Boxed<'static, _>;
    assert!(poll(&mut getting).is_pending());
    assert!(poll(&mut worker).is_pending());
    assert!(poll(&mut getting).is_ready());
    let mut names = Vec::new();
    while let Some(Notice::Event { event: Event::Pool(event), .. }) = seen.try_next() {
        names.push(event.name());
    }
    let expected = [
        "PoolCreated",
        "PoolReady",
        "ConnectionCheckOutStarted",
        "ConnectionCreated",
        "ConnectionReady",
        "ConnectionCheckedOut",
        "ConnectionCheckedIn",
    ];
    assert_eq!(names, expected);
    pool.close();
    let _ = poll(&mut worker);
}

#[test]
fn worker_that_panics_fails_one_check_out_and_starts_again() {
    // This runtime catches panics, and its memory has room for one connection.
    let (bench, opener) = (Bench::new(), Opener::default());
    let config = PLAIN.validate().unwrap();
    let events = Subscribers::default();
    let pool = Arc::new(Pool::new(opener.clone(), bench.clone(), config, PoolId::new(7), String::new(), &events));
    let mut worker = Box::pin(Pool::run_worker(Arc::clone(&pool))) as Boxed<'static, ()>;
    opener.0.lock().unwrap().panics = true;
    let mut getting = Box::pin(Pool::get_from(Arc::clone(&pool))) as Boxed<'static, _>;
    assert!(poll(&mut getting).is_pending());
    assert!(poll(&mut worker).is_pending());
    assert_eq!(poll(&mut getting).map(Result::err), Poll::Ready(Some(PoolError::Interrupted)));
    opener.0.lock().unwrap().panics = false;
    let mut getting: Pin<Box<dyn Future<Output = Result<Pooled<_, _, _>, _>>>> =
        Box::pin(Pool::get_from(Arc::clone(&pool)));
    assert!(poll(&mut getting).is_pending());
    bench.advance_to(bench.now().saturating_add(Duration::from_secs(1)));
    assert!(poll(&mut worker).is_pending());
    let Poll::Ready(Ok(got)) = poll(&mut getting) else { panic!("the worker has started again") };
    assert_eq!(got.number, 1);
}

#[test]
fn closed_pool_is_drained_when_a_check_out_that_was_granted_a_connection_is_dropped() {
    let mut house = House::open(Options { max_size: 1, ..PLAIN });
    let held = house.get().unwrap();
    let mut waiting = house.begin();
    assert!(poll(&mut waiting).is_pending());
    drop(held);
    let pool = Arc::clone(&house.pool);
    let mut drained = Box::pin(async move { pool.drained().await }) as Boxed<'static, ()>;
    let bell = Arc::<Bell>::default();
    let waker = Waker::from(Arc::clone(&bell));
    house.pool.close();
    assert!(drained.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "the waiter has the connection");
    drop(waiting);
    assert_eq!(house.counts(), [0, 0, 0, 0]);
    assert_eq!(bell.0.load(Ordering::Relaxed), 1, "the last connection was returned");
    assert!(poll(&mut drained).is_ready());
}

#[test]
fn check_out_keeps_its_error_when_another_connection_is_opened_before_it_is_polled() {
    let mut house = House::open(Options { max_connecting: 1, ..PLAIN });
    house.peer(|peer| peer.refuses = true);
    let [mut first, mut second] = [house.begin(), house.begin()];
    assert!(poll(&mut first).is_pending());
    assert!(poll(&mut second).is_pending());
    house.run();
    house.peer(|peer| peer.refuses = false);
    house.pass(50 * MS);
    assert!(matches!(poll(&mut second), Poll::Ready(Ok(_))));
    assert_eq!(poll(&mut first).map(Result::err), Poll::Ready(Some(PoolError::Connect("refused"))));
}

#[test]
fn check_out_keeps_its_error_when_another_attempt_ends_otherwise_before_it_is_polled() {
    let options = Options { max_connecting: 1, connect_timeout: Some(10 * MS), ..PLAIN };
    let mut house = House::open(options);
    house.peer(|peer| peer.refuses = true);
    let [mut first, mut second] = [house.begin(), house.begin()];
    assert!(poll(&mut first).is_pending());
    assert!(poll(&mut second).is_pending());
    house.run();
    house.peer(|peer| peer.hangs = true);
    house.pass(60 * MS);
    assert_eq!(poll(&mut first).map(Result::err), Poll::Ready(Some(PoolError::Connect("refused"))));
    assert_eq!(poll(&mut second).map(Result::err), Poll::Ready(Some(PoolError::ConnectTimeout)));
}

#[test]
fn connection_that_was_taken_at_once_is_checked_before_it_is_reused() {
    let mut house = House::open(Options { min_size: 1, ..PLAIN });
    house.pass(MS);
    drop(Pool::try_get_from(Arc::clone(&house.pool)).unwrap());
    drop(house.get().unwrap());
    assert_eq!(house.peer(|peer| peer.checks), 1);
}

#[test]
fn check_out_that_waits_fails_in_the_child_of_a_fork() {
    let mut house = House::open(Options { max_size: 1, ..PLAIN });
    let held = house.get().unwrap();
    let mut waiting = house.begin();
    assert!(poll(&mut waiting).is_pending());
    house.bench.inherited.store(true, Ordering::Relaxed);
    assert_eq!(poll(&mut waiting).map(Result::err), Poll::Ready(Some(PoolError::Forked)));
    drop(held);
}

#[test]
fn dropped_future_of_drained_leaves_no_waker() {
    let house = House::open(PLAIN);
    let bell = Arc::<Bell>::default();
    let waker = Waker::from(Arc::clone(&bell));
    let pool = Arc::clone(&house.pool);
    let begin = || {
        let pool = Arc::clone(&pool);
        Box::pin(async move { pool.drained().await }) as Boxed<'static, ()>
    };
    let [mut one, mut two] = [begin(), begin()];
    assert!(one.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(two.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(one);
    drop(waker);
    house.pool.close();
    assert!(bell.0.load(Ordering::Relaxed) > 0, "the other future of the task is woken");
    assert_eq!(Arc::strong_count(&bell), 1);

    let house = House::open(PLAIN);
    let pool = Arc::clone(&house.pool);
    let mut one = Box::pin(async move { pool.drained().await }) as Boxed<'static, ()>;
    assert!(one.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&bell)))).is_pending());
    drop(one);
    assert_eq!(Arc::strong_count(&bell), 1, "the pool is open");
}

#[test]
fn check_that_panics_closes_its_connection_and_the_check_out_takes_another_one() {
    // This runtime catches panics, and its memory has room for one connection.
    let (bench, opener) = (Bench::new(), Opener::default());
    let config = PLAIN.validate().unwrap();
    let events = Subscribers::default();
    let pool = Arc::new(Pool::new(opener.clone(), bench, config, PoolId::new(7), String::new(), &events));
    let mut tasks = [
        Box::pin(Pool::run_worker(Arc::clone(&pool))) as Boxed<'static, ()>,
        Box::pin(Pool::run_clock(Arc::clone(&pool))) as Boxed<'static, ()>,
    ];
    let mut get = || {
        let mut getting: Boxed<'static, Result<Pooled<_, _, _>, _>> = Box::pin(Pool::get_from(Arc::clone(&pool)));
        for _ in 0..4 {
            if let Poll::Ready(got) = poll(&mut getting) {
                return got;
            }
            tasks.iter_mut().for_each(|task| assert!(poll(task).is_pending()));
        }
        panic!("it waits");
    };
    drop(get().unwrap());
    opener.0.lock().unwrap().check_panics = true;
    assert_eq!(get().unwrap().number, 2);
    assert_eq!(opener.0.lock().unwrap().closed, [1], "the second one is available");
}

/// The clock is read before anything changes, so closing the pool can be attempted again.
#[test]
fn task_guard_attempts_three_times_to_close_its_pool_and_never_in_the_child_of_a_fork() {
    for (panics, forked, closed) in [(2, false, true), (3, false, false), (0, true, false)] {
        let bench = Bench::new();
        let config = PLAIN.validate().unwrap();
        let events = Subscribers::default();
        let pool = Pool::new(Opener::default(), bench.clone(), config, PoolId::new(7), String::new(), &events);
        bench.break_down(Part::Now, panics);
        bench.inherited.store(forked, Ordering::Relaxed);
        drop(Pool::run_worker(&pool));
        bench.break_down(Part::Now, 0);
        bench.inherited.store(false, Ordering::Relaxed);
        assert_eq!(pool.is_closed(), closed, "{panics} panics, forked: {forked}");
    }
}

#[test]
fn options_out_of_range_are_errors() {
    let text = |options: Options| options.validate().unwrap_err().to_string();
    assert_eq!(text(Options { max_size: 0, ..PLAIN }), "max_size is 0, but must be at least 1");
    assert_eq!(text(Options { min_size: 11, ..PLAIN }), "min_size is 11, but must be at most max_size");
    assert_eq!(text(Options { max_connecting: 0, ..PLAIN }), "max_connecting is 0, but must be at least 1");
    let zero = Some(Duration::ZERO);
    assert_eq!(text(Options { connect_timeout: zero, ..PLAIN }), "connect_timeout is 0, but must be more than 0");
    assert_eq!(text(Options { idle_timeout: zero, ..PLAIN }), "idle_timeout is 0, but must be more than 0");
    assert_eq!(text(Options { max_lifetime: zero, ..PLAIN }), "max_lifetime is 0, but must be more than 0");
}

/// The compiler checks it.
#[test]
fn check_out_can_move_to_another_thread() {
    let house = House::open(PLAIN);
    let getting: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(Pool::get_from(Arc::clone(&house.pool)));
    drop(getting);
}

/// The lock may be held by a thread that does not exist in the child.
#[test]
fn check_out_takes_no_lock_in_the_child_of_a_fork() {
    let mut house = House::open(Options { max_size: 1, ..PLAIN });
    let held = house.get().unwrap();
    let [mut polled, mut dropped, mut late] = [house.begin(), house.begin(), house.begin()];
    assert!(poll(&mut polled).is_pending() && poll(&mut dropped).is_pending());
    house.bench.inherited.store(true, Ordering::Relaxed);
    house.pool.with(|_| {
        for one in [&mut polled, &mut late] {
            assert_eq!(poll(one).map(Result::err), Poll::Ready(Some(PoolError::Forked)));
        }
        drop((polled, dropped, late, held));
    });
}
