//! Establishment of connections.

use super::*;

/// CMAP-35, P3
#[test]
fn no_more_than_max_connecting_are_established_at_once_the_background_included() {
    on_each_memory!(PoolOptions { max_connecting: 2, min_pool_size: 5, ..DEFAULT }, |world| {
        world.ready();
        assert_eq!(world.counts(), [1, 0, 0, 0], "one in the background");
        for _ in 0..4 {
            world.queue();
        }
        assert_eq!(world.counts(), [2, 0, 0, 4]);
        let mut most = 0;
        while let Some(conn) = world.act(|pool, _, _| pool.poll_establish()) {
            most = most.max(world.counts()[0]);
            world.established(conn).expect("pending");
        }
        assert_eq!((most, world.counts()), (2, [0, 1, 4, 0]));
    });
}

/// CMAP-34
#[test]
fn the_total_stays_within_max_pool_size_through_every_kind_of_change() {
    on_each_memory!(PoolOptions { max_pool_size: 2, max_connecting: 4, min_pool_size: 2, ..DEFAULT }, |world| {
        world.ready();
        let waiters = [(); 5].map(|()| world.queue());
        for waiter in waiters {
            if let Some(conn) = world.act(|pool, _, _| pool.poll_establish()) {
                world.established(conn).expect("pending");
            }
            let lease = world.granted(waiter);
            assert!(world.pool.counts().total() <= 2);
            world.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
            assert!(world.pool.counts().total() <= 2);
        }
    });
}

/// CMAP-46, CMAP-70
#[test]
fn a_failed_establishment_closes_its_connection_and_fails_its_check_out() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        let waiter = world.queue();
        let conn = world.begin();
        world.events();
        world.at(30);
        let error = EstablishError { cause: Cause::Authentication, overloaded: false, clear: None };
        world.establish_failed(conn, error).expect("pending");
        let events = world.events();
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
        assert_eq!(world.failed(waiter), failed);
        assert!(!failed.is_retryable());
        assert_eq!(world.counts(), [0; 4]);
    });
}

/// CMAP-46, CMAP-95, CMAP-96, CMAP-97, CMAP-98, P46
#[test]
fn labels_of_an_overloaded_server_reach_the_caller_unchanged() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        for overloaded in [true, false] {
            let waiter = world.queue();
            let conn = world.begin();
            world.establish_failed(conn, EstablishError { overloaded, ..REFUSED }).expect("pending");
            let error = world.failed(waiter);
            assert_eq!(error, CheckOutError::EstablishFailed { cause: Cause::Network, overloaded });
            assert_eq!(error.is_retryable(), overloaded);
        }
    });
}

/// CMAP-53, CMAP-86: the verdict arrives with the failure, so the pool is cleared before the
/// connection is closed
#[test]
fn a_failure_that_clears_emits_cleared_closed_failed() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        let [first, second, third] = [(); 3].map(|()| world.queue());
        let conn = world.begin();
        world.events();
        let error = EstablishError { cause: Cause::Authentication, overloaded: false, clear: Some(ALL) };
        world.establish_failed(conn, error).expect("pending");
        let names = world.names();
        let expected = ["PoolCleared", "Closed", "CheckOutFailed", "CheckOutFailed", "CheckOutFailed"];
        assert_eq!(names, expected);
        assert!(matches!(world.failed(first), CheckOutError::EstablishFailed { .. }), "its own error");
        let cleared = CheckOutError::PoolCleared { cause: Some(Cause::Authentication) };
        assert_eq!(world.failed(second), cleared);
        assert_eq!(world.failed(third), cleared);
        assert_eq!(world.pool.state(), PoolState::Paused);
        assert_eq!(world.pool.generation().get(), 1);
    });
}

/// CMAP-49, P36
#[test]
fn a_connection_established_after_a_clear_is_closed_as_stale() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        let waiter = world.queue();
        let conn = world.begin();
        world.clear(ALL);
        assert_eq!(world.failed(waiter), CheckOutError::PoolCleared { cause: Some(Cause::Network) });
        assert_eq!(world.counts(), [1, 0, 0, 0], "it may finish");
        world.ready();
        let next = world.queue();
        world.events();
        assert_eq!(world.established(conn), Err(Stale));
        assert_eq!(closed(&world.events()), [(1, "stale")]);
        assert_eq!(world.claim(next), Claim::Waiting);
        let _ = world.establish();
        let _ = world.granted(next);
    });
}

/// CMAP-49
#[test]
fn a_connection_in_the_background_is_not_available_before_it_is_established() {
    on_each_memory!(PoolOptions { min_pool_size: 1, max_pool_size: 1, ..DEFAULT }, |world| {
        world.ready();
        let conn = world.begin();
        let waiter = world.queue();
        assert_eq!(world.counts(), [1, 0, 0, 1]);
        world.established(conn).expect("pending");
        assert_eq!(world.granted(waiter).conn(), conn);
    });
}

/// P41
#[test]
fn repeated_results_are_stale() {
    on_each_memory!(PoolOptions { max_connecting: 8, ..DEFAULT }, |world| {
        world.ready();
        let waiters = [(); 4].map(|()| world.queue());
        let [good, bad, ..] = [(); 4].map(|()| world.begin());
        world.established(good).expect("pending");
        world.establish_failed(bad, REFUSED).expect("pending");
        let before = (world.counts(), world.events().len());
        for conn in [good, bad] {
            assert_eq!(world.established(conn), Err(Stale));
            assert_eq!(world.establish_failed(conn, EstablishError { clear: Some(ALL), ..REFUSED }), Err(Stale));
        }
        assert_eq!((world.counts(), world.events().len()), (before.0, 0), "late news clears nothing either");
        let _ = waiters.map(|waiter| world.cancel(waiter));
    });
}

/// CMAP-45
#[test]
fn an_establishment_that_was_not_polled_can_end() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        world.events();
        let [one, two] = [(); 2].map(|()| world.queue());
        let conns: Vec<ConnId> = world
            .events()
            .iter()
            .filter_map(|event| match event {
                PoolEvent::ConnectionCreated { conn, .. } => Some(*conn),
                _ => None,
            })
            .collect();
        world.established(conns[0]).expect("pending");
        world.establish_failed(conns[1], REFUSED).expect("pending");
        let _ = (world.granted(one), world.failed(two));
        assert_eq!(world.actions(), [], "what was revoked is never seen");
    });
}
