//! Deadlines, and the single instant at which the pool must be called.

use super::*;

const FULL: PoolOptions = PoolOptions { max_pool_size: 1, ..DEFAULT };

fn timeout() -> CheckOutError {
    CheckOutError::WaitQueueTimeout { usage: None }
}

#[test]
#[doc(alias("CMAP-06", "CMAP-25", "CMAP-70", "P18", "P19", "P21"))]
fn a_waiter_fails_exactly_at_its_deadline() {
    on_each_memory!(PoolOptions { wait_queue_timeout: Some(ms(50)), ..FULL }, |rig| {
        rig.ready();
        let _lease = rig.lease();
        rig.at(10);
        let waiter = rig.queue();
        assert_eq!(rig.pool.poll_timeout(), Some(at(60)));
        rig.now = Instant::from_nanos(at(60).as_nanos() - 1);
        rig.act(|pool, now, seen| pool.handle_timeout(now, seen));
        assert_eq!(rig.claim(waiter), Claim::Waiting, "never early");
        rig.events();
        rig.tick(60);
        let failed = PoolEvent::ConnectionCheckOutFailed {
            pool: PoolId::new(7),
            reason: CheckOutFailedReason::Timeout,
            error: timeout(),
            duration: ms(50),
        };
        assert_eq!(rig.events(), [failed], "never late");
        assert_eq!(rig.prompt(), [PoolAction::Wake(waiter)]);
        assert_eq!(rig.failed(waiter), timeout());
        assert_eq!(rig.pool.poll_timeout(), None);
    });
}

#[test]
#[doc(alias("CMAP-06", "P22"))]
fn without_a_timeout_a_waiter_waits_for_ever() {
    on_each_memory!(FULL, |rig| {
        rig.ready();
        let _lease = rig.lease();
        let waiter = rig.queue();
        assert_eq!(rig.pool.poll_timeout(), None);
        rig.now = Instant::MAX;
        rig.act(|pool, now, seen| pool.handle_timeout(now, seen));
        assert_eq!(rig.claim(waiter), Claim::Waiting);
    });
}

/// A deadline at the end of time counts as none
#[test]
fn a_deadline_at_the_end_of_time_has_no_timeout() {
    on_each_memory!(PoolOptions { wait_queue_timeout: Some(Duration::MAX), ..FULL }, |rig| {
        rig.ready();
        let _lease = rig.lease();
        let waiter = rig.queue_until(Some(Instant::MAX));
        assert_eq!(rig.pool.poll_timeout(), None);
        rig.cancel(waiter);
    });
}

#[test]
#[doc(alias = "CMAP-28")]
fn the_pools_timeout_does_not_apply_to_a_check_out_with_a_deadline_of_its_own() {
    on_each_memory!(PoolOptions { wait_queue_timeout: Some(ms(50)), ..FULL }, |rig| {
        rig.ready();
        let _lease = rig.lease();
        let later = rig.queue_until(Some(at(80)));
        assert_eq!(rig.pool.poll_timeout(), Some(at(80)));
        let sooner = rig.queue_until(Some(at(20)));
        let other = rig.queue();
        assert_eq!(rig.pool.poll_timeout(), Some(at(20)));
        rig.tick(20);
        assert_eq!(rig.failed(sooner), timeout());
        assert_eq!(rig.pool.poll_timeout(), Some(at(50)));
        rig.tick(50);
        assert_eq!(rig.failed(other), timeout());
        assert_eq!(rig.claim(later), Claim::Waiting);
        assert_eq!(rig.pool.poll_timeout(), Some(at(80)));
        rig.tick(80);
        assert_eq!(rig.failed(later), timeout());
    });
}

/// A caller's deadline at the end of time also counts as a deadline
#[test]
#[doc(alias = "CMAP-28")]
fn the_pools_timeout_does_not_apply_to_a_check_out_whose_deadline_is_the_end_of_time() {
    on_each_memory!(PoolOptions { wait_queue_timeout: Some(ms(50)), ..FULL }, |rig| {
        rig.ready();
        let _lease = rig.lease();
        let waiter = rig.queue_until(Some(Instant::MAX));
        assert_eq!(rig.pool.poll_timeout(), None);
        rig.tick(50);
        assert_eq!(rig.claim(waiter), Claim::Waiting);
    });
}

#[test]
#[doc(alias("CMAP-26", "CMAP-27"))]
fn the_queue_timeout_bounds_waiting_for_max_connecting_and_not_the_establishment() {
    on_each_memory!(PoolOptions { wait_queue_timeout: Some(ms(50)), max_connecting: 1, ..DEFAULT }, |rig| {
        rig.ready();
        let bound = rig.queue();
        let conn = rig.begin();
        let unbound = rig.queue();
        assert_eq!(rig.pool.poll_timeout(), Some(at(50)));
        rig.tick(50);
        assert_eq!(rig.failed(unbound), timeout());
        assert_eq!(rig.claim(bound), Claim::Waiting);
        assert_eq!(rig.pool.poll_timeout(), None);
        rig.tick(5_000);
        rig.established(conn).expect("pending");
        let _ = rig.granted(bound);
    });
}

/// WaitQueueTimeoutMS ends with the wait, but the caller's own deadline bounds the
/// establishment too
#[test]
#[doc(alias = "CMAP-28")]
fn the_callers_deadline_bounds_waiting_and_establishing_together() {
    on_each_memory!(PoolOptions { wait_queue_timeout: Some(ms(50)), ..DEFAULT }, |rig| {
        rig.ready();
        let waiter = rig.queue_until(Some(at(200)));
        let conn = rig.begin();
        assert_eq!(rig.pool.poll_timeout(), Some(at(200)));
        rig.tick(200);
        assert_eq!(rig.failed(waiter), timeout());
        assert_eq!(rig.counts(), [1, 0, 0, 0], "its connection finishes");
        rig.established(conn).expect("pending");
        assert_eq!(rig.counts(), [0, 1, 0, 0]);
    });
}

#[test]
fn limits_of_zero_are_no_limits() {
    let zero = Some(Duration::ZERO);
    on_each_memory!(PoolOptions { wait_queue_timeout: zero, max_idle_time: zero, ..FULL }, |rig| {
        rig.ready();
        let waiter = rig.queue();
        assert_eq!(rig.pool.poll_timeout(), None);
        rig.tick(100_000);
        rig.establish();
        let lease = rig.granted(waiter);
        rig.give_back(lease);
        assert_eq!(rig.pool.poll_timeout(), None);
        rig.tick(1_000_000);
        assert_eq!(rig.counts(), [0, 1, 0, 0]);
    });
}

/// WaitQueueTimeoutMS no longer applies to a waiter that is bound later
#[test]
#[doc(alias = "CMAP-26")]
fn the_queue_timeout_does_not_apply_to_a_waiter_that_was_bound() {
    on_each_memory!(PoolOptions { wait_queue_timeout: Some(ms(50)), max_connecting: 1, ..DEFAULT }, |rig| {
        rig.ready();
        let first = rig.queue();
        let second = rig.queue();
        let third = rig.queue_until(Some(at(70)));
        rig.at(40);
        rig.establish();
        let _ = rig.granted(first);
        assert_eq!(rig.pool.poll_timeout(), Some(at(70)), "nobody waits by the pool's timeout any more");
        rig.tick(70);
        assert_eq!(rig.claim(second), Claim::Waiting);
        assert_eq!(rig.failed(third), timeout());
    });
}

#[test]
#[doc(alias = "P23")]
fn a_timed_out_waiters_connection_serves_the_next_in_the_same_step() {
    on_each_memory!(PoolOptions { max_connecting: 1, ..DEFAULT }, |rig| {
        rig.ready();
        let first = rig.queue_until(Some(at(10)));
        let second = rig.queue();
        let conn = rig.begin();
        rig.tick(10);
        assert_eq!(rig.failed(first), timeout());
        rig.established(conn).expect("pending");
        assert_eq!(rig.granted(second).conn(), conn);
    });
}

/// An expired deadline stays expired, whichever of two is checked first
#[test]
#[doc(alias("P19", "P21"))]
fn two_waiters_with_equal_deadlines_both_fail() {
    on_each_memory!(PoolOptions { max_connecting: 1, wait_queue_timeout: Some(ms(10)), ..DEFAULT }, |rig| {
        rig.ready();
        let bound = rig.queue_until(Some(at(10)));
        let unbound = rig.queue();
        let third = {
            rig.at(1);
            rig.queue()
        };
        let conn = rig.begin();
        rig.tick(10);
        assert_eq!(rig.failed(bound), timeout());
        assert_eq!(rig.failed(unbound), timeout(), "it is not saved by the connection that became free at the end");
        assert_eq!(rig.claim(third), Claim::Waiting);
        rig.established(conn).expect("pending");
        assert_eq!(rig.granted(third).conn(), conn);
    });
}

#[test]
#[doc(alias = "P19")]
fn a_late_call_fails_every_expired_waiter() {
    on_each_memory!(PoolOptions { max_connecting: 1, wait_queue_timeout: Some(ms(30)), ..DEFAULT }, |rig| {
        rig.ready();
        let waiters = [Some(at(20)), Some(at(5)), None, Some(at(25)), None].map(|own| rig.queue_until(own));
        rig.tick(1_000);
        for waiter in waiters {
            assert_eq!(rig.failed(waiter), timeout());
        }
        assert_eq!(rig.counts(), [1, 0, 0, 0]);
    });
}

#[test]
#[doc(alias = "P20")]
fn the_next_wake_up_is_the_earliest_of_all_that_is_due() {
    on_each_memory!(
        PoolOptions { max_pool_size: 2, max_idle_time: Some(ms(100)), min_pool_size: 2, ..DEFAULT },
        |rig| {
            rig.ready();
            assert_eq!(rig.pool.poll_timeout(), None, "an establishment is news, not time");
            rig.establish();
            assert_eq!(rig.pool.poll_timeout(), Some(at(100).saturating_add(Duration::from_nanos(1))), "idle");
            let conn = rig.begin();
            rig.establish_failed(conn, REFUSED).expect("pending");
            rig.at(0);
            assert_eq!(rig.pool.poll_timeout(), Some(at(100)), "the next attempt");
            let _lease = rig.take();
            let waiter = rig.queue_until(Some(at(30)));
            assert_eq!(rig.pool.poll_timeout(), Some(at(30)), "a deadline");
            rig.cancel(waiter);
            rig.tick(29);
            let next = rig.pool.poll_timeout();
            assert!(next.is_none_or(|at| at > rig.now), "no spinning: {next:?}");
        }
    );
}

#[test]
#[doc(alias = "P20")]
fn the_timeout_follows_deadlines_in_any_order() {
    on_each_memory!(FULL, |rig| {
        rig.ready();
        let _lease = rig.lease();
        let waiters = [50, 20, 70, 10, 60, 30].map(|millis| rig.queue_until(Some(at(millis))));
        let mut due = Vec::new();
        while let Some(next) = rig.pool.poll_timeout() {
            due.push(next.saturating_since(Instant::ORIGIN).as_millis());
            if due.len() == 2 {
                rig.cancel(waiters[5]);
                continue;
            }
            rig.now = next;
            rig.act(|pool, now, seen| pool.handle_timeout(now, seen));
            assert!(rig.pool.poll_timeout().is_none_or(|at| at > rig.now));
        }
        assert_eq!(due, [10, 20, 20, 50, 60, 70]);
    });
}

#[test]
#[doc(alias = "P21")]
fn an_expired_deadline_fails_unless_a_connection_is_available() {
    on_each_memory!(FULL, |rig| {
        rig.ready();
        rig.at(5);
        assert_eq!(rig.check_out(Some(at(5))), Err(timeout()));
        assert_eq!(rig.counts(), [0; 4], "nothing was created for it");
        rig.fill::<1>();
        assert!(matches!(rig.check_out(Some(at(4))), Ok(CheckOut::Granted(_))));
    });
}

#[test]
#[doc(alias = "P25")]
fn a_clock_that_goes_back_keeps_the_latest_time() {
    on_each_memory!(PoolOptions { wait_queue_timeout: Some(ms(50)), ..FULL }, |rig| {
        rig.ready();
        rig.at(100);
        let lease = rig.lease();
        rig.at(0);
        let waiter = rig.queue();
        assert_eq!(rig.pool.poll_timeout(), Some(at(150)), "no early timeout");
        rig.tick(10);
        rig.events();
        rig.give_back(lease);
        let events = rig.events();
        assert!(matches!(events[1], PoolEvent::ConnectionCheckedOut { duration: Duration::ZERO, .. }), "{events:?}");
        let _ = rig.granted(waiter);
    });
}

#[test]
#[doc(alias = "P25")]
fn the_end_of_time_saturates() {
    let forever = PoolOptions {
        max_idle_time: Some(Duration::MAX),
        wait_queue_timeout: Some(Duration::MAX),
        min_pool_size: 2,
        max_pool_size: 2,
        ..DEFAULT
    };
    on_each_memory!(forever, |rig| {
        rig.now = Instant::MAX;
        rig.ready();
        let lease = rig.lease();
        let waiter = rig.queue();
        rig.act(|pool, now, seen| pool.handle_timeout(now, seen));
        assert_eq!(rig.claim(waiter), Claim::Waiting);
        let conn = rig.begin();
        rig.establish_failed(conn, REFUSED).expect("pending");
        rig.give_back(lease);
        rig.act(|pool, now, seen| pool.handle_timeout(now, seen));
        let _ = rig.pool.poll_timeout();
    });
}

/// The host limits the time of the establishment and reports its failure
#[test]
#[doc(alias = "P24")]
fn an_establishment_that_timed_out_frees_its_slot_and_fails_its_check_out() {
    on_each_memory!(PoolOptions { max_connecting: 1, ..DEFAULT }, |rig| {
        rig.ready();
        let waiter = rig.queue();
        let conn = rig.begin();
        let error = EstablishError { cause: Cause::NetworkTimeout, overloaded: true, clear: None };
        rig.at(10_000);
        rig.establish_failed(conn, error).expect("pending");
        assert_eq!(
            rig.failed(waiter),
            CheckOutError::EstablishFailed { cause: Cause::NetworkTimeout, overloaded: true }
        );
        assert_eq!(rig.counts(), [0; 4]);
    });
}

/// An additional call with the current time changes nothing
#[test]
#[doc(alias = "P50")]
fn a_call_before_anything_is_due_changes_nothing() {
    on_each_memory!(PoolOptions { wait_queue_timeout: Some(ms(50)), max_idle_time: Some(ms(50)), ..FULL }, |rig| {
        rig.ready();
        let _lease = rig.lease();
        let _waiter = rig.queue();
        rig.events();
        let before = (rig.counts(), rig.pool.poll_timeout());
        for time in 0..50 {
            rig.tick(time);
        }
        assert_eq!((rig.counts(), rig.pool.poll_timeout()), before);
        assert_eq!((rig.names(), rig.actions()), (Vec::new(), Vec::new()));
    });
}

#[test]
fn instants_are_displayed_in_seconds_since_the_origin() {
    use alloc::format;
    assert_eq!(format!("{:?} {:?}", Instant::ORIGIN, at(12_345)), "0.000000000s 12.345000000s");
    assert_eq!(Instant::from_nanos(u64::MAX), Instant::MAX);
}
