//! Panics of code outside the driver: each costs one attempt.

use super::workers::guard;
use super::*;
use alloc::task::Wake;
use poolhouse_core::monitor::MonitorEvent;

const REST: Duration = Duration::from_millis(500);

fn establish_failed() -> OperationError {
    let failed = CheckOutError::EstablishFailed { cause: Cause::Cancelled, overloaded: false };
    OperationError::check_out_of("a:27017", failed)
}

fn pass(bench: &Bench, time: Duration) {
    bench.advance_to(bench.now().saturating_add(time));
}

/// The operation that waits for the connection fails, and no other.
#[test]
fn worker_fails_one_connection_when_the_runtime_panics_and_continues_after_a_pause() {
    for part in [Part::Connect, Part::Buffers, Part::Read, Part::Sleep] {
        let (bench, core, server) = open_as(|config| config.connect_timeout = Some(Duration::from_secs(5)));
        // A timer is begun when the peer does not answer.
        bench.mute(part == Part::Sleep);
        let mut work = Box::pin(core.run_worker(&server));
        assert!(poll(&mut work).is_pending());
        bench.break_down(part, 1);
        let mut waiting = Box::pin(core.check_out_of(Arc::clone(&server), None, None));
        assert!(poll(&mut waiting).is_pending());
        assert!(poll(&mut work).is_pending(), "{part:?}: it goes on");
        let Poll::Ready(Err(error)) = poll(&mut waiting) else { panic!("{part:?}: it has failed") };
        assert_eq!(error, establish_failed(), "{part:?}");
        assert_eq!(counts(&server), PoolCounts::default());
        bench.mute(false);
        let mut waiting = Box::pin(core.check_out_of(Arc::clone(&server), None, None));
        assert!(poll(&mut waiting).is_pending());
        pass(&bench, REST - Duration::from_nanos(1));
        assert!(poll(&mut work).is_pending());
        assert!(poll(&mut waiting).is_pending(), "{part:?}: it rests");
        pass(&bench, Duration::from_nanos(1));
        assert!(poll(&mut work).is_pending());
        let Poll::Ready(Ok(guard)) = poll(&mut waiting) else { panic!("{part:?}: established") };
        drop(guard);
        assert!(!core.is_closed());
    }
}

/// Returns whether each heartbeat that has ended since the last call succeeded.
fn heartbeats(events: &mut Subscription) -> Vec<bool> {
    let mut ended = Vec::new();
    while let Some(notice) = events.try_next() {
        match notice {
            Notice::Event { event: Event::Heartbeat(MonitorEvent::HeartbeatSucceeded { .. }), .. } => ended.push(true),
            Notice::Event { event: Event::Heartbeat(MonitorEvent::HeartbeatFailed { cause, .. }), .. } => {
                assert_eq!(cause, Cause::Cancelled);
                ended.push(false);
            }
            Notice::Event { .. } | Notice::Lagged { .. } => {}
        }
    }
    ended
}

/// A check that panicked has failed, and the next check begins when an operation requests
/// one.
#[test]
#[doc(alias = "MON-53")]
fn check_fails_when_the_runtime_panics_and_the_next_check_runs() {
    for part in [Part::Connect, Part::Buffers, Part::Read] {
        let (bench, core, server) = open();
        let mut events = core.events().subscribe(EventKinds::ALL, 64, |event| matches!(event, EventRef::Heartbeat(_)));
        let (mut check, mut clock) = (Box::pin(core.run_check(&server)), Box::pin(core.run_clock()));
        bench.break_down(part, 1);
        let mut waiting = Box::pin(core.select_server(&SelectionRequest::WRITE, None));
        for _ in 0..4 {
            assert!(poll(&mut check).is_pending(), "{part:?}: it goes on");
        }
        assert_eq!(heartbeats(&mut events), [false], "{part:?}");
        core.state.with(|state| state.control.assert_invariants());
        for _ in 0..4 {
            assert!(poll(&mut waiting).is_pending(), "{part:?}: no server is known yet");
            assert!(poll(&mut clock).is_pending() && poll(&mut check).is_pending());
        }
        pass(&bench, REST);
        for _ in 0..4 {
            assert!(poll(&mut clock).is_pending() && poll(&mut check).is_pending());
        }
        assert_eq!(heartbeats(&mut events), [true], "{part:?}");
        assert!(matches!(poll(&mut waiting), Poll::Ready(Ok(_))), "{part:?}");
        drop(waiting);
    }
}

#[test]
fn clock_tasks_continue_after_a_pause_when_their_timer_panics() {
    let (bench, core, server) = open();
    let tasks: [Boxed<'_, ()>; 2] = [Box::pin(core.run_clock()), Box::pin(core.run_pool_clock(&server))];
    let mut tasks = Vec::from(tasks);
    let held = guard(&core, &server);
    for task in &mut tasks {
        bench.break_down(Part::Sleep, 1);
        let deadline = bench.now().saturating_add(2 * REST);
        let mut waiting = Box::pin(core.check_out_of(Arc::clone(&server), Some(deadline), None));
        assert!(poll(&mut waiting).is_pending());
        assert!(poll(task).is_pending());
        pass(&bench, REST);
        assert!(poll(task).is_pending());
    }
    // The pool's clock task enforces the deadlines of waiters again.
    pass(&bench, REST);
    let deadline = bench.now().saturating_add(REST);
    let mut waiting = Box::pin(core.check_out_of(Arc::clone(&server), Some(deadline), None));
    assert!(poll(&mut waiting).is_pending() && poll(&mut tasks[1]).is_pending());
    pass(&bench, REST);
    assert!(poll(&mut tasks[1]).is_pending());
    let timeout = OperationError::check_out_of("a:27017", CheckOutError::WaitQueueTimeout { usage: None });
    let Poll::Ready(Err(error)) = poll(&mut waiting) else { panic!("its time is over") };
    assert_eq!(error, timeout);
    assert!(!core.is_closed());
    drop(held);
}

/// Without working timers the client cannot continue, so it is closed.
#[test]
fn task_whose_pause_panics_repeatedly_ends_and_closes_the_client() {
    let (bench, core, server) = open();
    let mut clock = Box::pin(core.run_pool_clock(&server));
    let mut waiting = Box::pin(core.check_out_of(Arc::clone(&server), Some(after(&bench, REST)), None));
    assert!(poll(&mut waiting).is_pending());
    bench.break_down(Part::Sleep, 8);
    assert!(poll(&mut clock).is_pending(), "at last it rests");
    assert!(poll(&mut waiting).is_pending());
    drop(clock);
    let (bench, core, server) = open();
    let mut clock = Box::pin(core.run_pool_clock(&server));
    let mut waiting = Box::pin(core.check_out_of(Arc::clone(&server), Some(after(&bench, REST)), None));
    assert!(poll(&mut waiting).is_pending());
    bench.break_down(Part::Sleep, 9);
    assert_eq!(poll(&mut clock), Poll::Ready(()), "without a panic of its own");
    let Poll::Ready(Err(error)) = poll(&mut waiting) else { panic!("it has failed") };
    assert_eq!(error, OperationError::Abandoned);
}

fn after(bench: &Bench, time: Duration) -> Instant {
    bench.now().saturating_add(time)
}

/// Where panics are not caught, the executor owns the task and drops it.
#[test]
fn uncaught_panic_of_a_task_closes_the_client() {
    let house = wide::House::open(PoolOptions::DEFAULT, None);
    house.bench.dial(Dial::Panics);
    let mut work = Box::pin(house.core.run_worker(&house.server));
    let mut waiting = house.check_out(None);
    assert!(poll(&mut waiting).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut work))).is_err());
    drop(work);
    assert!(house.core.is_closed());
    assert!(matches!(poll(&mut waiting), Poll::Ready(Err(_))));
}

struct Alarm;

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        panic!("as the test wants it");
    }
}

/// A result that a step returns to its caller is not lost when the waker of another task panics.
#[test]
fn waker_that_panics_costs_no_other_waiter_a_connection() {
    let (_, core, server) = open();
    let held = guard(&core, &server);
    let mut alarmed = Box::pin(core.check_out_of(Arc::clone(&server), None, None));
    let waker = Waker::from(Arc::new(Alarm));
    assert!(alarmed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let mut behind = Box::pin(core.check_out_of(Arc::clone(&server), None, None));
    assert!(poll(&mut behind).is_pending());
    // The first waiter is granted the connection, and its waker is called.
    drop(held);
    drop(alarmed);
    let Poll::Ready(Ok(guard)) = poll(&mut behind) else { panic!("it has the connection") };
    assert_eq!(counts(&server), PoolCounts { in_use: 1, ..PoolCounts::default() });
    drop(guard);
    assert_eq!(counts(&server), PoolCounts { available: 1, ..PoolCounts::default() });
}

/// No byte of the request was sent, so the connection stays usable.
#[test]
fn command_whose_body_panics_leaves_a_connection_that_is_kept() {
    let (_, core, server) = open();
    let mut held = guard(&core, &server);
    let mut command = Box::pin(held.run_command("db", |_| panic!("as the test wants it")));
    assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut command).is_ready())).is_err());
    drop(command);
    drop(held);
    assert_eq!(counts(&server), PoolCounts { available: 1, ..PoolCounts::default() });
    let mut again = guard(&core, &server);
    done(again.run_command("db", |body| body.int32("ping", 1).map(drop))).expect("its reply");
}

/// Whether a reply is outstanding or not.
#[test]
fn guard_dropped_by_a_panic_closes_its_connection() {
    for outstanding in [false, true] {
        let (bench, core, server) = open_as(|config| config.drain_timeout = Duration::ZERO);
        let mut held = guard(&core, &server);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            if outstanding {
                bench.mute(true);
                let mut command = Box::pin(held.run_command("db", |body| body.int32("ping", 1).map(drop)));
                assert!(matches!(poll(&mut command), Poll::Pending));
            }
            let _held = held;
            panic!("as the test wants it");
        }));
        assert!(panicked.is_err());
        assert_eq!(counts(&server), PoolCounts::default());
    }
}

/// The other subscriptions miss no event.
#[test]
fn filter_that_panics_ends_only_its_subscription() {
    let (_, core, server) = open();
    let mut good = core.events().subscribe(EventKinds::ALL, 64, |_| true);
    let mut bad = core.events().subscribe(EventKinds::ALL, 64, |event| {
        let ready = matches!(event, EventRef::Pool(poolhouse_core::pool::PoolEvent::ConnectionReady { .. }));
        assert!(!ready, "as the test wants it");
        true
    });
    let bell = Arc::new(wide::Bell::default());
    let held = guard(&core, &server);
    drop(held);
    let mut seen = 0;
    while bad.try_next().is_some() {
        seen += 1;
    }
    assert!(seen > 0, "what was before it is there");
    assert!(matches!(bell.poll(&mut Box::pin(bad.next())), Poll::Ready(None)));
    let mut all = 0;
    while good.try_next().is_some() {
        all += 1;
    }
    assert!(all > seen + 1, "{all} of which {seen} were before");
}

/// A host's observer that panics against its contract. The panic is caught if the platform allows
/// it.
#[test]
fn panics_of_the_hosts_observer_are_contained() {
    use poolhouse_core::machine::Observer as _;

    #[derive(Clone)]
    struct Loud;

    impl Publish for Loud {
        fn kinds(&self) -> EventKinds {
            EventKinds::ALL
        }

        fn publish(&self, _: Instant, _: EventRef<'_>) {
            panic!("as the test wants it");
        }
    }

    let event = poolhouse_core::pool::PoolEvent::PoolReady { pool: poolhouse_core::pool::PoolId::new(1) };
    super::super::event::Tap::new(&Loud).on_event(Instant::ORIGIN, &event);
}

/// The subscription is woken, also if it waits when the filter panics.
#[test]
fn waiting_subscription_is_woken_when_its_filter_panics() {
    let (_, core, server) = open();
    let mut bad = core.events().subscribe(EventKinds::ALL, 64, |_| panic!("as the test wants it"));
    let bell = Arc::new(wide::Bell::default());
    let mut next = Box::pin(bad.next());
    assert!(bell.poll(&mut next).is_pending());
    drop(guard(&core, &server));
    assert_eq!(bell.rings(), 1);
    assert!(matches!(bell.poll(&mut next), Poll::Ready(None)));
}

/// The panic occurs before a future exists that could be polled.
#[test]
fn task_whose_creation_panics_is_created_again_after_a_pause() {
    let bench = Bench::new();
    let mut times = 0;
    let begin = || {
        times += 1;
        assert!(times > 1, "as the test wants it");
        async {}
    };
    let mut kept = Box::pin(crate::task_guard::restart(&bench, begin));
    assert!(poll(&mut kept).is_pending());
    pass(&bench, REST - Duration::from_nanos(1));
    assert!(poll(&mut kept).is_pending(), "it rests");
    pass(&bench, Duration::from_nanos(1));
    assert_eq!(poll(&mut kept), Poll::Ready(true));
    drop(kept);
    assert_eq!(times, 2);
}
