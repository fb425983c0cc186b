//! Establishment of connections.

use super::*;

#[test]
#[doc(alias("CMAP-35", "P3"))]
fn no_more_than_max_connecting_are_established_at_once_the_background_included() {
    on_each_memory!(PoolOptions { max_connecting: 2, min_pool_size: 5, ..DEFAULT }, |rig| {
        rig.ready();
        assert_eq!(rig.counts(), [1, 0, 0, 0], "one in the background");
        for _ in 0..4 {
            rig.queue();
        }
        assert_eq!(rig.counts(), [2, 0, 0, 4]);
        let mut most = 0;
        while let Some(conn) = rig.act(|pool, _, _| pool.poll_establish()) {
            most = most.max(rig.counts()[0]);
            rig.established(conn).expect("pending");
        }
        assert_eq!((most, rig.counts()), (2, [0, 1, 4, 0]));
    });
}

#[test]
#[doc(alias = "CMAP-34")]
fn the_total_stays_within_max_pool_size_through_every_kind_of_change() {
    on_each_memory!(PoolOptions { max_pool_size: 2, max_connecting: 4, min_pool_size: 2, ..DEFAULT }, |rig| {
        rig.ready();
        let waiters = [(); 5].map(|()| rig.queue());
        for waiter in waiters {
            if let Some(conn) = rig.act(|pool, _, _| pool.poll_establish()) {
                rig.established(conn).expect("pending");
            }
            let lease = rig.granted(waiter);
            assert!(rig.pool.counts().total() <= 2);
            rig.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
            assert!(rig.pool.counts().total() <= 2);
        }
    });
}

#[test]
#[doc(alias("CMAP-46", "CMAP-70"))]
fn a_failed_establishment_closes_its_connection_and_fails_its_check_out() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let waiter = rig.queue();
        let conn = rig.begin();
        rig.events();
        rig.at(30);
        let error = EstablishError { cause: Cause::Authentication, overloaded: false, clear: None };
        rig.establish_failed(conn, error).expect("pending");
        let events = rig.events();
        let pool = PoolId::new(7);
        let failed = CheckOutError::EstablishFailed { cause: Cause::Authentication, overloaded: false };
        let expected = [
            PoolEvent::ConnectionClosed { pool, conn, reason: ClosedReason::Error, cause: Some(Cause::Authentication) },
            PoolEvent::ConnectionCheckOutFailed {
                pool,
                reason: CheckOutFailedReason::ConnectionError,
                error: failed,
                duration: ms(30),
            },
        ];
        assert_eq!(events, expected);
        assert_eq!(rig.failed(waiter), failed);
        assert!(!failed.is_retryable());
        assert_eq!(rig.counts(), [0; 4]);
    });
}

#[test]
#[doc(alias("CMAP-46", "CMAP-95", "CMAP-96", "CMAP-97", "CMAP-98", "P46"))]
fn labels_of_an_overloaded_server_reach_the_caller_unchanged() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        for overloaded in [true, false] {
            let waiter = rig.queue();
            let conn = rig.begin();
            rig.establish_failed(conn, EstablishError { overloaded, ..REFUSED }).expect("pending");
            let error = rig.failed(waiter);
            assert_eq!(error, CheckOutError::EstablishFailed { cause: Cause::Network, overloaded });
            assert_eq!(error.is_retryable(), overloaded);
        }
    });
}

/// The verdict arrives with the failure, so the pool is cleared before the
/// connection is closed
#[test]
#[doc(alias("CMAP-53", "CMAP-86"))]
fn a_failure_that_clears_emits_cleared_closed_failed() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let [first, second, third] = [(); 3].map(|()| rig.queue());
        let conn = rig.begin();
        rig.events();
        let error = EstablishError { cause: Cause::Authentication, overloaded: false, clear: Some(ALL) };
        rig.establish_failed(conn, error).expect("pending");
        let names = rig.names();
        let expected = ["PoolCleared", "Closed", "CheckOutFailed", "CheckOutFailed", "CheckOutFailed"];
        assert_eq!(names, expected);
        assert!(matches!(rig.failed(first), CheckOutError::EstablishFailed { .. }), "its own error");
        let cleared = CheckOutError::PoolCleared { cause: Some(Cause::Authentication) };
        assert_eq!(rig.failed(second), cleared);
        assert_eq!(rig.failed(third), cleared);
        assert_eq!(rig.pool.state(), PoolState::Paused);
        assert_eq!(rig.pool.generation().get(), 1);
    });
}

#[test]
#[doc(alias("CMAP-49", "P36"))]
fn a_connection_established_after_a_clear_is_closed_as_stale() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let waiter = rig.queue();
        let conn = rig.begin();
        rig.clear(ALL);
        assert_eq!(rig.failed(waiter), CheckOutError::PoolCleared { cause: Some(Cause::Network) });
        assert_eq!(rig.counts(), [1, 0, 0, 0], "it may finish");
        rig.ready();
        let next = rig.queue();
        rig.events();
        assert_eq!(rig.established(conn), Err(Stale));
        assert_eq!(closed(&rig.events()), [(1, "stale")]);
        assert_eq!(rig.claim(next), Claim::Waiting);
        let _ = rig.establish();
        let _ = rig.granted(next);
    });
}

#[test]
#[doc(alias = "CMAP-49")]
fn a_connection_in_the_background_is_not_available_before_it_is_established() {
    on_each_memory!(PoolOptions { min_pool_size: 1, max_pool_size: 1, ..DEFAULT }, |rig| {
        rig.ready();
        let conn = rig.begin();
        let waiter = rig.queue();
        assert_eq!(rig.counts(), [1, 0, 0, 1]);
        rig.established(conn).expect("pending");
        assert_eq!(rig.granted(waiter).conn(), conn);
    });
}

#[test]
#[doc(alias = "P41")]
fn repeated_results_are_stale() {
    on_each_memory!(PoolOptions { max_connecting: 8, ..DEFAULT }, |rig| {
        rig.ready();
        let waiters = [(); 4].map(|()| rig.queue());
        let [good, bad, ..] = [(); 4].map(|()| rig.begin());
        rig.established(good).expect("pending");
        rig.establish_failed(bad, REFUSED).expect("pending");
        let before = (rig.counts(), rig.events().len());
        for conn in [good, bad] {
            assert_eq!(rig.established(conn), Err(Stale));
            assert_eq!(rig.establish_failed(conn, EstablishError { clear: Some(ALL), ..REFUSED }), Err(Stale));
        }
        assert_eq!((rig.counts(), rig.events().len()), (before.0, 0), "late news clears nothing either");
        let _ = waiters.map(|waiter| rig.cancel(waiter));
    });
}

#[test]
#[doc(alias = "CMAP-45")]
fn an_establishment_that_was_not_polled_can_end() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        rig.events();
        let [one, two] = [(); 2].map(|()| rig.queue());
        let conns: Vec<ConnId> = rig
            .events()
            .iter()
            .filter_map(|event| match event {
                PoolEvent::ConnectionCreated { conn, .. } => Some(*conn),
                _ => None,
            })
            .collect();
        rig.established(conns[0]).expect("pending");
        rig.establish_failed(conns[1], REFUSED).expect("pending");
        let _ = (rig.granted(one), rig.failed(two));
        assert_eq!(rig.actions(), [], "what was revoked is never seen");
    });
}
