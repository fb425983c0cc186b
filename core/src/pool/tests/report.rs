//! Events, errors and their texts.

use super::*;
use alloc::string::ToString;

/// CMAP-12, CMAP-101
#[test]
fn every_event_names_its_pool_and_has_the_name_that_the_specification_gives_it() {
    on_each_memory!(PoolOptions { max_pool_size: 1, ..DEFAULT }, |world| {
        world.ready();
        let lease = world.lease();
        let waiter = world.queue();
        world.cancel(waiter);
        world.give_back(lease);
        world.clear(ALL);
        world.close();
        let events = world.events();
        assert!(events.iter().all(|event| event.pool() == PoolId::new(7)));
        let mut names: Vec<_> = events.iter().map(PoolEvent::name).collect();
        names.sort_unstable();
        names.dedup();
        let eleven = [
            "ConnectionCheckOutFailed",
            "ConnectionCheckOutStarted",
            "ConnectionCheckedIn",
            "ConnectionCheckedOut",
            "ConnectionClosed",
            "ConnectionCreated",
            "ConnectionReady",
            "PoolCleared",
            "PoolClosed",
            "PoolCreated",
            "PoolReady",
        ];
        assert_eq!(names, eleven);
    });
}

/// CMAP-102, CMAP-32
#[test]
fn the_created_event_carries_the_options() {
    on_each_memory!(PoolOptions { max_pool_size: 8, ..DEFAULT }, |world| {
        let events = world.events();
        let [PoolEvent::PoolCreated { options, .. }] = events[..] else { panic!("{events:?}") };
        assert_eq!(options.non_default().collect::<Vec<_>>(), [("maxPoolSize", 8)]);
    });
}

/// CMAP-102
#[test]
fn reasons_have_the_names_of_the_specification() {
    use CheckOutFailedReason::{ConnectionError, PoolClosed, Timeout};
    assert_eq!(
        [ClosedReason::Stale, ClosedReason::Idle, ClosedReason::Error, ClosedReason::PoolClosed]
            .map(ClosedReason::name),
        ["stale", "idle", "error", "poolClosed"]
    );
    assert_eq!(
        [Timeout, ConnectionError, PoolClosed].map(CheckOutFailedReason::name),
        ["timeout", "connectionError", "poolClosed"]
    );
}

/// CMAP-102, P32
#[test]
fn durations_are_those_since_creation_and_since_the_start() {
    on_each_memory!(PoolOptions { max_connecting: 1, ..DEFAULT }, |world| {
        world.ready();
        world.at(10);
        let first = world.queue();
        world.at(15);
        let _second = world.queue();
        world.events();
        world.at(30);
        world.establish();
        let events = world.events();
        let durations: Vec<u128> = events
            .iter()
            .filter_map(|event| match event {
                PoolEvent::ConnectionReady { duration, .. } | PoolEvent::ConnectionCheckedOut { duration, .. } => {
                    Some(duration.as_millis())
                }
                _ => None,
            })
            .collect();
        assert_eq!(durations, [20, 20]);
        let _ = world.granted(first);
        world.at(40);
        world.establish();
        let events = world.events();
        assert!(
            events
                .iter()
                .any(|event| matches!(event, PoolEvent::ConnectionCheckedOut { duration, .. } if *duration == ms(25))),
            "{events:?}"
        );
    });
}

/// CMAP-99: "a connection" in lower case, as the tests have it and the text does not
#[test]
fn errors_have_the_types_and_texts_that_the_official_tests_compare() {
    let closed = CheckOutError::PoolClosed;
    assert_eq!(closed.name(), "PoolClosedError");
    assert_eq!(closed.to_string(), "Attempted to check out a connection from closed connection pool");
    let timeout = CheckOutError::WaitQueueTimeout { usage: None };
    assert_eq!(timeout.name(), "WaitQueueTimeoutError");
    assert_eq!(timeout.to_string(), "Timed out while checking out a connection from connection pool");
}

/// CMAP-99, CMAP-67
#[test]
fn a_cleared_error_is_retryable_and_names_its_cause() {
    let cleared = CheckOutError::PoolCleared { cause: Some(Cause::Network) };
    assert_eq!(cleared.name(), "PoolClearedError");
    assert!(cleared.to_string().ends_with(&Cause::Network.to_string()));
    assert!(cleared.is_retryable());
    let others = [
        CheckOutError::PoolClosed,
        CheckOutError::WaitQueueTimeout { usage: None },
        CheckOutError::Busy { waiting: 3 },
        CheckOutError::Cancelled,
        CheckOutError::EstablishFailed { cause: Cause::Dns, overloaded: false },
    ];
    assert!(!others.iter().any(CheckOutError::is_retryable));
}

/// CMAP-84
#[test]
fn an_interrupted_operations_cause_says_so() {
    let text = "interrupted due to server monitor timeout";
    assert_eq!(Cause::Interrupted.to_string(), text);
    assert!(CheckOutError::PoolCleared { cause: Some(Cause::Interrupted) }.to_string().ends_with(text));
}

/// CMAP-12
#[test]
fn nobody_needs_to_watch() {
    let mut pool = Pool::<Fixed<1, 1>>::new(Instant::ORIGIN, PoolId::new(1), PoolConfig::DEFAULT, &mut ());
    pool.ready(Instant::ORIGIN, &mut None::<()>);
    let Ok(CheckOut::Queued(waiter)) = pool.check_out(Instant::ORIGIN, None, &mut &mut ()) else { panic!("empty") };
    pool.cancel(Instant::ORIGIN, waiter, &mut ());
    pool.assert_invariants();
}
