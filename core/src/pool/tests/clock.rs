//! Check-outs and check-ins with a clock: when they read it.

use super::*;

/// The clock of a call that must not read it.
fn no_clock() -> Instant {
    panic!("the clock was read")
}

#[test]
fn clock_is_read_only_if_idle_connections_perish() {
    for (max_idle_time, reads) in [(None, 0), (Some(ms(10)), 1)] {
        let mut rig = Rig::<OnHeap>::new(PoolOptions { max_idle_time, ..DEFAULT });
        rig.ready();
        let lease = rig.lease();
        let mut count = 0;
        let mut clock = |now| {
            count += 1;
            now
        };
        let now = rig.now;
        let returned = rig.pool.check_in_with(|| clock(now), lease, Health::Healthy, &mut ());
        returned.expect("a lease of this pool");
        assert_eq!(rig.counts(), [0, 1, 0, 0]);
        let granted = rig.pool.check_out_with(|| clock(now), |_| None, &mut ());
        assert!(matches!(granted, Ok(CheckOut::Granted(_))));
        assert_eq!(count, 2 * reads);
    }
}

#[test]
fn clock_is_read_once_for_an_enabled_observer_and_for_a_waiter() {
    let mut rig = Rig::<OnHeap>::new(DEFAULT);
    rig.ready();
    let lease = rig.lease();
    let mut count = 0;
    let mut clock = || {
        count += 1;
        at(1)
    };
    rig.pool.check_in_with(&mut clock, lease, Health::Healthy, &mut rig.seen).expect("a lease of this pool");
    let granted = rig.pool.check_out_with(&mut clock, |_| None, &mut rig.seen);
    assert!(matches!(granted, Ok(CheckOut::Granted(_))));
    while let Ok(CheckOut::Granted(_)) = rig.pool.check_out_with(&mut clock, |_| None, &mut ()) {}
    assert_eq!(count, 3);
}

#[test]
fn refused_check_in_reads_no_clock_and_changes_nothing() {
    let mut rig = Rig::<OnHeap>::new(DEFAULT);
    rig.ready();
    let lease = rig.lease();
    let foreign = Lease { conn: lease.conn(), pool: PoolId::new(8) };
    let before = rig.pool.clone();
    assert!(rig.pool.check_in_with(no_clock, foreign, Health::Healthy, &mut ()).is_err());
    assert!(rig.pool == before, "the refused check-in has changed the pool");
}

/// A1: idle time that was not measured counts from the change of the options.
#[test]
fn idle_time_counts_from_the_change_of_the_options() {
    let mut rig = Rig::<OnHeap>::new(DEFAULT);
    rig.ready();
    let lease = rig.lease();
    rig.pool.check_in_with(no_clock, lease, Health::Healthy, &mut ()).expect("a lease of this pool");
    rig.now = at(50);
    let config = PoolOptions { max_idle_time: Some(ms(10)), ..DEFAULT }.validate().expect("valid");
    rig.act(|pool, now, seen| pool.reconfigure(now, config, seen));
    assert_eq!(rig.counts(), [0, 1, 0, 0]);
    let first_late = Instant::from_nanos(at(60).as_nanos() + 1);
    assert_eq!(rig.pool.poll_timeout(), Some(first_late));
}

/// A host that polls only after a change must be notified that a freed slot makes work due.
#[test]
fn freed_slot_that_a_waiter_needs_is_a_change() {
    let mut rig = Rig::<Fixed<1, 2>>::new(PoolOptions { max_pool_size: 2, ..DEFAULT });
    rig.ready();
    let lease = rig.lease();
    let waits = rig.act(|pool, now, seen| pool.check_out(now, None, seen));
    assert!(matches!(waits, Ok(CheckOut::Queued(_))));
    let broken = Health::Broken(Cause::Network);
    rig.act(|pool, now, seen| pool.check_in(now, lease, broken, seen)).expect("a lease of this pool");
    assert!(rig.pool.take_changed());
    assert_eq!(rig.pool.poll_timeout(), None);
    assert!(matches!(rig.pool.poll_prompt(), Some(PoolAction::Close(_))));
    assert!(rig.pool.take_changed());
    assert!(rig.pool.poll_timeout().is_some());
}

#[test]
fn check_in_changes_the_timeout_only_if_no_connection_is_available() {
    let mut rig = Rig::<OnHeap>::new(PoolOptions { max_idle_time: Some(ms(10)), ..DEFAULT });
    rig.ready();
    let leases = [rig.lease(), rig.lease()];
    rig.pool.take_changed();
    let changes = leases.map(|lease| {
        rig.act(|pool, now, seen| pool.check_in(now, lease, Health::Healthy, seen)).expect("a lease of this pool");
        rig.pool.take_changed()
    });
    assert_eq!(changes, [true, false]);
}

/// Without time limits and observers, a hand-over needs no time.
#[test]
fn hand_over_reads_the_clock_only_for_limits_and_observers() {
    for (deadline, wait_queue_timeout, is_observed, reads) in
        [(None, None, false, 0), (Some(at(50)), None, false, 1), (None, Some(ms(50)), false, 1), (None, None, true, 1)]
    {
        let mut rig = Rig::<OnHeap>::new(PoolOptions { max_pool_size: 1, wait_queue_timeout, ..DEFAULT });
        rig.ready();
        let lease = rig.lease();
        let Ok(CheckOut::Queued(waiter)) = rig.pool.check_out(at(1), deadline, &mut ()) else {
            panic!("the connection is in use")
        };
        let mut count = 0;
        let clock = || {
            count += 1;
            at(2)
        };
        let returned = if is_observed {
            rig.pool.check_in_with(clock, lease, Health::Healthy, &mut rig.seen)
        } else {
            rig.pool.check_in_with(clock, lease, Health::Healthy, &mut ())
        };
        returned.expect("a lease of this pool");
        assert_eq!(count, reads);
        assert!(matches!(rig.pool.claim(at(3), waiter), Claim::Granted(_)));
    }
}
