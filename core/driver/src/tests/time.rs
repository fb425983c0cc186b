//! When a check-out and a check-in read the clock, and the consequences if they do not.

use super::*;
use poolhouse_core::pool::PoolEvent;

const IDLE_MAX: Duration = Duration::from_secs(10);

/// A client core with one connection, which is established and available.
fn filled(options: PoolOptions) -> (Bench, Arc<ClientCore<Bench>>, Arc<Server<Bench>>) {
    let (bench, core, server) = open_as(|config| config.pool = options.validate().unwrap());
    {
        let mut worker = worker(&core, &server);
        let mut check_out = Box::pin(core.check_out_of(server.clone(), None, None));
        assert!(poll(&mut check_out).is_pending());
        assert!(poll(&mut worker).is_pending());
        let Poll::Ready(Ok(guard)) = poll(&mut check_out) else { panic!("there is a connection") };
        drop(guard);
    }
    // The one after a check-out that waited reads the clock, because it will probably wait too.
    drop(done(core.check_out_of(server.clone(), None, None)).expect("a connection"));
    assert_eq!(counts(&server).available, 1);
    bench.looks.store(0, Ordering::Relaxed);
    (bench, core, server)
}

/// Checks out and drops the guard. Returns the connection's id, and the number of clock reads of
/// each.
fn cycle(bench: &Bench, core: &ClientCore<Bench>, server: &Arc<Server<Bench>>) -> (u64, [usize; 2]) {
    let looks = || bench.looks.swap(0, Ordering::Relaxed);
    looks();
    let guard = done(core.check_out_of(server.clone(), None, None)).expect("a connection");
    let (id, first) = (guard.connection_id(), looks());
    drop(guard);
    (id, [first, looks()])
}

#[test]
fn check_out_and_check_in_read_no_clock_by_default() {
    let (bench, core, server) = filled(PoolOptions::DEFAULT);
    assert_eq!(cycle(&bench, &core, &server), (1, [0, 0]));
    // A deadline causes no clock read, because the check-out does not wait.
    let deadline = Some(Instant::from_nanos(1));
    drop(done(core.check_out_of(server.clone(), deadline, deadline)).expect("a connection"));
    assert_eq!(counts(&server).available, 1);
    assert_eq!(bench.looks.load(Ordering::Relaxed), 0);
}

#[test]
fn events_contain_the_time() {
    let (bench, core, server) = filled(PoolOptions::DEFAULT);
    let mut events = core.events().subscribe(EventKinds::ALL, 16, |_| true);
    bench.advance_to(Instant::from_nanos(77));
    assert_eq!(cycle(&bench, &core, &server), (1, [1, 1]));
    let mut heard = Vec::new();
    while let Some(Notice::Event { at, event: Event::Pool(event) }) = events.try_next() {
        heard.push((at.as_nanos(), event));
    }
    let [(77, started), (77, out), (77, back)] = heard.as_slice() else { panic!("{heard:?}") };
    assert!(matches!(started, PoolEvent::ConnectionCheckOutStarted { .. }));
    assert!(matches!(out, PoolEvent::ConnectionCheckedOut { .. }));
    assert!(matches!(back, PoolEvent::ConnectionCheckedIn { .. }));
}

#[test]
#[doc(alias = "CMAP-19")]
fn idle_time_of_connections_is_recorded() {
    let (bench, core, server) = filled(PoolOptions { max_idle_time: Some(IDLE_MAX), ..PoolOptions::DEFAULT });
    bench.advance_to(Instant::from_nanos(1).saturating_add(IDLE_MAX));
    assert_eq!(cycle(&bench, &core, &server), (1, [1, 1]));
    bench.advance_to(bench.now().saturating_add(IDLE_MAX));
    assert_eq!(cycle(&bench, &core, &server), (1, [1, 1]));
    bench.advance_to(bench.now().saturating_add(IDLE_MAX + Duration::from_nanos(1)));
    let mut check_out = Box::pin(core.check_out_of(server.clone(), None, None));
    assert!(poll(&mut check_out).is_pending(), "it was idle for too long");
    drop(check_out);
    assert_eq!(counts(&server).available, 0);
}

#[test]
#[doc(alias = "CMAP-19")]
fn idle_time_counts_from_the_change_of_the_option() {
    let (bench, core, server) = filled(PoolOptions::DEFAULT);
    bench.advance_to(Instant::from_nanos(1).saturating_add(IDLE_MAX * 9));
    assert_eq!(cycle(&bench, &core, &server), (1, [0, 0]));
    core.reconfigure_pools(PoolOptions { max_idle_time: Some(IDLE_MAX), ..PoolOptions::DEFAULT }.validate().unwrap());
    bench.advance_to(bench.now().saturating_add(IDLE_MAX));
    let (id, [_, looks]) = cycle(&bench, &core, &server);
    assert_eq!((id, looks), (1, 1), "the idle time counts from the change of the options");
    bench.advance_to(bench.now().saturating_add(IDLE_MAX + Duration::from_nanos(1)));
    let mut check_out = Box::pin(core.check_out_of(server.clone(), None, None));
    assert!(poll(&mut check_out).is_pending(), "it was idle for too long");
}

#[test]
fn waiter_is_served_by_the_check_in_of_a_connection_that_was_checked_out_without_the_clock() {
    let one =
        PoolOptions { max_pool_size: 1, wait_queue_timeout: Some(Duration::from_secs(1)), ..PoolOptions::DEFAULT };
    for late in [false, true] {
        let (bench, core, server) = filled(one);
        let guard = done(core.check_out_of(server.clone(), None, None)).expect("a connection");
        let mut waiting = Box::pin(core.check_out_of(server.clone(), None, None));
        assert!(poll(&mut waiting).is_pending());
        let wait = Duration::from_secs(1) - Duration::from_nanos(u64::from(!late));
        bench.advance_to(bench.now().saturating_add(wait));
        drop(guard);
        let Poll::Ready(outcome) = poll(&mut waiting) else { panic!("it is known") };
        assert_eq!(outcome.is_err(), late, "{outcome:?}");
        assert!(matches!(outcome, Ok(_) | Err(OperationError::CheckOut(_))), "{outcome:?}");
    }
}
