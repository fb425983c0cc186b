//! Deadlines, and the single instant at which the pool must be called.

use super::*;

const FULL: PoolOptions = PoolOptions { max_pool_size: 1, ..DEFAULT };

fn timeout() -> CheckOutError {
    CheckOutError::WaitQueueTimeout { usage: None }
}

/// CMAP-06, CMAP-25, CMAP-70, P18, P19, P21
#[test]
fn a_waiter_fails_exactly_at_its_deadline() {
    on_each_memory!(PoolOptions { wait_queue_timeout: Some(ms(50)), ..FULL }, |world| {
        world.ready();
        let _lease = world.lease();
        world.at(10);
        let waiter = world.queue();
        assert_eq!(world.pool.poll_timeout(), Some(at(60)));
        world.now = Instant::from_nanos(at(60).as_nanos() - 1);
        world.act(|pool, now, seen| pool.handle_timeout(now, seen));
        assert_eq!(world.claim(waiter), Claim::Waiting, "never early");
        world.events();
        world.tick(60);
        let failed = PoolEvent::ConnectionCheckOutFailed {
            pool: PoolId::new(7),
            reason: CheckOutFailedReason::Timeout,
            error: timeout(),
            duration: ms(50),
        };
        assert_eq!(world.events(), [failed], "never late");
        assert_eq!(world.prompt(), [PoolAction::Wake(waiter)]);
        assert_eq!(world.failed(waiter), timeout());
        assert_eq!(world.pool.poll_timeout(), None);
    });
}

/// CMAP-06, P22
#[test]
fn without_a_timeout_a_waiter_waits_for_ever() {
    on_each_memory!(FULL, |world| {
        world.ready();
        let _lease = world.lease();
        let waiter = world.queue();
        assert_eq!(world.pool.poll_timeout(), None);
        world.now = Instant::MAX;
        world.act(|pool, now, seen| pool.handle_timeout(now, seen));
        assert_eq!(world.claim(waiter), Claim::Waiting);
    });
}

/// A deadline at the end of time counts as none
#[test]
fn a_deadline_at_the_end_of_time_has_no_timeout() {
    on_each_memory!(PoolOptions { wait_queue_timeout: Some(Duration::MAX), ..FULL }, |world| {
        world.ready();
        let _lease = world.lease();
        let waiter = world.queue_until(Some(Instant::MAX));
        assert_eq!(world.pool.poll_timeout(), None);
        world.cancel(waiter);
    });
}

/// CMAP-28
#[test]
fn the_pools_timeout_does_not_apply_to_a_check_out_with_a_deadline_of_its_own() {
    on_each_memory!(PoolOptions { wait_queue_timeout: Some(ms(50)), ..FULL }, |world| {
        world.ready();
        let _lease = world.lease();
        let later = world.queue_until(Some(at(80)));
        assert_eq!(world.pool.poll_timeout(), Some(at(80)));
        let sooner = world.queue_until(Some(at(20)));
        let other = world.queue();
        assert_eq!(world.pool.poll_timeout(), Some(at(20)));
        world.tick(20);
        assert_eq!(world.failed(sooner), timeout());
        assert_eq!(world.pool.poll_timeout(), Some(at(50)));
        world.tick(50);
        assert_eq!(world.failed(other), timeout());
        assert_eq!(world.claim(later), Claim::Waiting);
        assert_eq!(world.pool.poll_timeout(), Some(at(80)));
        world.tick(80);
        assert_eq!(world.failed(later), timeout());
    });
}

/// CMAP-28: a caller's deadline at the end of time also counts as a deadline
#[test]
fn the_pools_timeout_does_not_apply_to_a_check_out_whose_deadline_is_the_end_of_time() {
    on_each_memory!(PoolOptions { wait_queue_timeout: Some(ms(50)), ..FULL }, |world| {
        world.ready();
        let _lease = world.lease();
        let waiter = world.queue_until(Some(Instant::MAX));
        assert_eq!(world.pool.poll_timeout(), None);
        world.tick(50);
        assert_eq!(world.claim(waiter), Claim::Waiting);
    });
}

/// CMAP-26, CMAP-27
#[test]
fn the_queue_timeout_bounds_waiting_for_max_connecting_and_not_the_establishment() {
    on_each_memory!(PoolOptions { wait_queue_timeout: Some(ms(50)), max_connecting: 1, ..DEFAULT }, |world| {
        world.ready();
        let bound = world.queue();
        let conn = world.begin();
        let unbound = world.queue();
        assert_eq!(world.pool.poll_timeout(), Some(at(50)));
        world.tick(50);
        assert_eq!(world.failed(unbound), timeout());
        assert_eq!(world.claim(bound), Claim::Waiting);
        assert_eq!(world.pool.poll_timeout(), None);
        world.tick(5_000);
        world.established(conn).expect("pending");
        let _ = world.granted(bound);
    });
}

/// CMAP-28: waitQueueTimeoutMS ends with the wait, but the caller's own deadline bounds the
/// establishment too
#[test]
fn the_callers_deadline_bounds_waiting_and_establishing_together() {
    on_each_memory!(PoolOptions { wait_queue_timeout: Some(ms(50)), ..DEFAULT }, |world| {
        world.ready();
        let waiter = world.queue_until(Some(at(200)));
        let conn = world.begin();
        assert_eq!(world.pool.poll_timeout(), Some(at(200)));
        world.tick(200);
        assert_eq!(world.failed(waiter), timeout());
        assert_eq!(world.counts(), [1, 0, 0, 0], "its connection finishes");
        world.established(conn).expect("pending");
        assert_eq!(world.counts(), [0, 1, 0, 0]);
    });
}

#[test]
fn a_queue_timeout_of_zero_lets_no_check_out_wait() {
    on_each_memory!(PoolOptions { wait_queue_timeout: Some(ms(0)), ..FULL }, |world| {
        world.ready();
        let waiter = world.queue();
        assert_eq!(world.failed(waiter), timeout());
        assert_eq!(world.pool.poll_timeout(), None);
    });
}

/// CMAP-26: waitQueueTimeoutMS no longer applies to a waiter that is bound later
#[test]
fn the_queue_timeout_does_not_apply_to_a_waiter_that_was_bound() {
    on_each_memory!(PoolOptions { wait_queue_timeout: Some(ms(50)), max_connecting: 1, ..DEFAULT }, |world| {
        world.ready();
        let first = world.queue();
        let second = world.queue();
        let third = world.queue_until(Some(at(70)));
        world.at(40);
        world.establish();
        let _ = world.granted(first);
        assert_eq!(world.pool.poll_timeout(), Some(at(70)), "nobody waits by the pool's timeout any more");
        world.tick(70);
        assert_eq!(world.claim(second), Claim::Waiting);
        assert_eq!(world.failed(third), timeout());
    });
}

/// P23
#[test]
fn a_timed_out_waiters_connection_serves_the_next_in_the_same_step() {
    on_each_memory!(PoolOptions { max_connecting: 1, ..DEFAULT }, |world| {
        world.ready();
        let first = world.queue_until(Some(at(10)));
        let second = world.queue();
        let conn = world.begin();
        world.tick(10);
        assert_eq!(world.failed(first), timeout());
        world.established(conn).expect("pending");
        assert_eq!(world.granted(second).conn(), conn);
    });
}

/// P19, P21: an expired deadline stays expired, whichever of two is checked first
#[test]
fn two_waiters_with_equal_deadlines_both_fail() {
    on_each_memory!(PoolOptions { max_connecting: 1, wait_queue_timeout: Some(ms(10)), ..DEFAULT }, |world| {
        world.ready();
        let bound = world.queue_until(Some(at(10)));
        let unbound = world.queue();
        let third = {
            world.at(1);
            world.queue()
        };
        let conn = world.begin();
        world.tick(10);
        assert_eq!(world.failed(bound), timeout());
        assert_eq!(world.failed(unbound), timeout(), "it is not saved by the connection that became free at the end");
        assert_eq!(world.claim(third), Claim::Waiting);
        world.established(conn).expect("pending");
        assert_eq!(world.granted(third).conn(), conn);
    });
}

/// P19
#[test]
fn a_late_call_fails_every_expired_waiter() {
    on_each_memory!(PoolOptions { max_connecting: 1, wait_queue_timeout: Some(ms(30)), ..DEFAULT }, |world| {
        world.ready();
        let waiters = [Some(at(20)), Some(at(5)), None, Some(at(25)), None].map(|own| world.queue_until(own));
        world.tick(1_000);
        for waiter in waiters {
            assert_eq!(world.failed(waiter), timeout());
        }
        assert_eq!(world.counts(), [1, 0, 0, 0]);
    });
}

/// P20
#[test]
fn the_next_wake_up_is_the_earliest_of_all_that_is_due() {
    on_each_memory!(
        PoolOptions { max_pool_size: 2, max_idle_time: Some(ms(100)), min_pool_size: 2, ..DEFAULT },
        |world| {
            world.ready();
            assert_eq!(world.pool.poll_timeout(), None, "an establishment is news, not time");
            world.establish();
            assert_eq!(world.pool.poll_timeout(), Some(at(100).saturating_add(Duration::from_nanos(1))), "idle");
            let conn = world.begin();
            world.establish_failed(conn, REFUSED).expect("pending");
            world.at(0);
            assert_eq!(world.pool.poll_timeout(), Some(at(100)), "the next attempt");
            let _lease = world.take();
            let waiter = world.queue_until(Some(at(30)));
            assert_eq!(world.pool.poll_timeout(), Some(at(30)), "a deadline");
            world.cancel(waiter);
            world.tick(29);
            let next = world.pool.poll_timeout();
            assert!(next.is_none_or(|at| at > world.now), "no spinning: {next:?}");
        }
    );
}

/// P20
#[test]
fn the_timeout_follows_deadlines_in_any_order() {
    on_each_memory!(FULL, |world| {
        world.ready();
        let _lease = world.lease();
        let waiters = [50, 20, 70, 10, 60, 30].map(|millis| world.queue_until(Some(at(millis))));
        let mut due = Vec::new();
        while let Some(next) = world.pool.poll_timeout() {
            due.push(next.saturating_since(Instant::ORIGIN).as_millis());
            if due.len() == 2 {
                world.cancel(waiters[5]);
                continue;
            }
            world.now = next;
            world.act(|pool, now, seen| pool.handle_timeout(now, seen));
            assert!(world.pool.poll_timeout().is_none_or(|at| at > world.now));
        }
        assert_eq!(due, [10, 20, 20, 50, 60, 70]);
    });
}

/// P21
#[test]
fn an_expired_deadline_fails_unless_a_connection_is_available() {
    on_each_memory!(FULL, |world| {
        world.ready();
        world.at(5);
        assert_eq!(world.check_out(Some(at(5))), Err(timeout()));
        assert_eq!(world.counts(), [0; 4], "nothing was created for it");
        world.fill::<1>();
        assert!(matches!(world.check_out(Some(at(4))), Ok(CheckOut::Granted(_))));
    });
}

/// P25
#[test]
fn a_clock_that_goes_back_keeps_the_latest_time() {
    on_each_memory!(PoolOptions { wait_queue_timeout: Some(ms(50)), ..FULL }, |world| {
        world.ready();
        world.at(100);
        let lease = world.lease();
        world.at(0);
        let waiter = world.queue();
        assert_eq!(world.pool.poll_timeout(), Some(at(150)), "no early timeout");
        world.tick(10);
        world.events();
        world.give_back(lease);
        let events = world.events();
        assert!(matches!(events[1], PoolEvent::ConnectionCheckedOut { duration: Duration::ZERO, .. }), "{events:?}");
        let _ = world.granted(waiter);
    });
}

/// P25
#[test]
fn the_end_of_time_saturates() {
    let forever = PoolOptions {
        max_idle_time: Some(Duration::MAX),
        wait_queue_timeout: Some(Duration::MAX),
        min_pool_size: 2,
        max_pool_size: 2,
        ..DEFAULT
    };
    on_each_memory!(forever, |world| {
        world.now = Instant::MAX;
        world.ready();
        let lease = world.lease();
        let waiter = world.queue();
        world.act(|pool, now, seen| pool.handle_timeout(now, seen));
        assert_eq!(world.claim(waiter), Claim::Waiting);
        let conn = world.begin();
        world.establish_failed(conn, REFUSED).expect("pending");
        world.give_back(lease);
        world.act(|pool, now, seen| pool.handle_timeout(now, seen));
        let _ = world.pool.poll_timeout();
    });
}

/// P24: the host limits the time of the establishment and reports its failure
#[test]
fn an_establishment_that_timed_out_frees_its_slot_and_fails_its_check_out() {
    on_each_memory!(PoolOptions { max_connecting: 1, ..DEFAULT }, |world| {
        world.ready();
        let waiter = world.queue();
        let conn = world.begin();
        let error = EstablishError { cause: Cause::NetworkTimeout, overloaded: true, clear: None };
        world.at(10_000);
        world.establish_failed(conn, error).expect("pending");
        assert_eq!(
            world.failed(waiter),
            CheckOutError::EstablishFailed { cause: Cause::NetworkTimeout, overloaded: true }
        );
        assert_eq!(world.counts(), [0; 4]);
    });
}

/// P50: an additional call with the current time changes nothing
#[test]
fn a_call_before_anything_is_due_changes_nothing() {
    on_each_memory!(PoolOptions { wait_queue_timeout: Some(ms(50)), max_idle_time: Some(ms(50)), ..FULL }, |world| {
        world.ready();
        let _lease = world.lease();
        let _waiter = world.queue();
        world.events();
        let before = (world.counts(), world.pool.poll_timeout());
        for time in 0..50 {
            world.tick(time);
        }
        assert_eq!((world.counts(), world.pool.poll_timeout()), before);
        assert_eq!((world.names(), world.actions()), (Vec::new(), Vec::new()));
    });
}

#[test]
fn instants_are_displayed_in_seconds_since_the_origin() {
    use alloc::format;
    assert_eq!(format!("{:?} {:?}", Instant::ORIGIN, at(12_345)), "0.000000000s 12.345000000s");
    assert_eq!(Instant::from_nanos(u64::MAX), Instant::MAX);
}
