//! Events, errors and their texts.

use super::*;
use alloc::string::ToString;

#[test]
#[doc(alias("CMAP-12", "CMAP-101"))]
fn every_event_contains_its_pool_and_has_its_specified_name() {
    on_each_memory!(PoolOptions { max_pool_size: 1, ..DEFAULT }, |rig| {
        rig.ready();
        let lease = rig.lease();
        let waiter = rig.queue();
        rig.cancel(waiter);
        rig.give_back(lease);
        rig.clear(ALL);
        rig.close();
        let events = rig.events();
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

#[test]
#[doc(alias("CMAP-32", "CMAP-102"))]
fn the_created_event_contains_the_options() {
    on_each_memory!(PoolOptions { max_pool_size: 8, ..DEFAULT }, |rig| {
        let events = rig.events();
        let [PoolEvent::PoolCreated { options, .. }] = events[..] else { panic!("{events:?}") };
        assert_eq!(options.non_default().collect::<Vec<_>>(), [("maxPoolSize", 8)]);
    });
}

#[test]
#[doc(alias = "CMAP-102")]
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

#[test]
#[doc(alias("CMAP-102", "P32"))]
fn durations_are_those_since_creation_and_since_the_start() {
    on_each_memory!(PoolOptions { max_connecting: 1, ..DEFAULT }, |rig| {
        rig.ready();
        rig.at(10);
        let first = rig.queue();
        rig.at(15);
        let _second = rig.queue();
        rig.events();
        rig.at(30);
        rig.establish();
        let events = rig.events();
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
        let _ = rig.granted(first);
        rig.at(40);
        rig.establish();
        let events = rig.events();
        assert!(
            events
                .iter()
                .any(|event| matches!(event, PoolEvent::ConnectionCheckedOut { duration, .. } if *duration == ms(25))),
            "{events:?}"
        );
    });
}

/// "a connection" in lower case, as in the specification's tests and unlike in its text
#[test]
#[doc(alias = "CMAP-99")]
fn errors_have_the_types_and_texts_that_the_official_tests_compare() {
    let closed = CheckOutError::PoolClosed;
    assert_eq!(closed.name(), "PoolClosedError");
    assert_eq!(closed.to_string(), "Attempted to check out a connection from closed connection pool");
    let timeout = CheckOutError::WaitQueueTimeout { usage: None };
    assert_eq!(timeout.name(), "WaitQueueTimeoutError");
    assert_eq!(timeout.to_string(), "Timed out while checking out a connection from connection pool");
}

#[test]
#[doc(alias("CMAP-67", "CMAP-99"))]
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

#[test]
#[doc(alias = "CMAP-84")]
fn an_interrupted_operation_has_the_cause_interrupted() {
    let text = "interrupted due to server monitor timeout";
    assert_eq!(Cause::Interrupted.to_string(), text);
    assert!(CheckOutError::PoolCleared { cause: Some(Cause::Interrupted) }.to_string().ends_with(text));
}

#[test]
#[doc(alias = "CMAP-12")]
fn an_observer_is_optional() {
    let mut pool = Pool::<Fixed<1, 1>>::new(Instant::ORIGIN, PoolId::new(1), PoolConfig::DEFAULT, &mut ());
    pool.ready(Instant::ORIGIN, &mut None::<()>);
    let Ok(CheckOut::Queued(waiter)) = pool.check_out(Instant::ORIGIN, None, &mut &mut ()) else { panic!("empty") };
    pool.cancel(Instant::ORIGIN, waiter, &mut ());
    pool.assert_invariants();
}

#[test]
#[doc(alias = "CMAP-102")]
fn every_event_is_displayed_on_one_line_with_its_fields() {
    let mut rig = Rig::<OnHeap>::new(PoolOptions { max_pool_size: 8, min_pool_size: 0, ..DEFAULT });
    rig.ready();
    let waiter = rig.queue();
    rig.at(5);
    rig.establish();
    let lease = rig.granted(waiter);
    let impatient = rig.queue_until(Some(at(7)));
    rig.tick(7);
    assert!(matches!(rig.failed(impatient), CheckOutError::WaitQueueTimeout { .. }));
    rig.check_in(lease, Health::Broken(Cause::NetworkTimeout)).expect("its own");
    rig.act(|pool, now, seen| pool.clear(now, INTERRUPT, Some(Cause::Network), seen)).expect("the pool's mode");
    rig.ready();
    rig.act(|pool, now, seen| pool.clear(now, ALL, None, seen)).expect("the pool's mode");
    rig.close();
    let lines: Vec<_> = rig.events().iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "PoolCreated maxPoolSize=8",
            "PoolReady",
            "ConnectionCheckOutStarted",
            "ConnectionCreated 1",
            "ConnectionReady 1 after 5.0ms",
            "ConnectionCheckedOut 1 after 5.0ms",
            "ConnectionCheckOutStarted",
            "ConnectionCreated 2",
            "ConnectionCheckOutFailed (timeout) after 2.0ms: Timed out while checking out a connection from connection pool",
            "ConnectionCheckedIn 1",
            "ConnectionClosed 1 (error): network timeout",
            "PoolCleared interruptInUseConnections=true: network error",
            "ConnectionClosed 2 (stale): network error",
            "PoolReady",
            "PoolCleared interruptInUseConnections=false",
            "PoolClosed",
        ]
    );
    let service_id = Some(ObjectId([0xab; 12]));
    let of_service = PoolEvent::PoolCleared {
        pool: PoolId::new(7),
        service_id,
        interrupt_in_use_connections: false,
        cause: Some(Cause::Dns),
    };
    assert_eq!(
        of_service.to_string(),
        "PoolCleared serviceId=abababababababababababab interruptInUseConnections=false: host name not resolved"
    );
}

#[test]
fn errors_outside_the_specification_have_texts() {
    let texts = [
        (
            CheckOutError::EstablishFailed { cause: Cause::Dns, overloaded: false },
            "ConnectionError",
            "Could not establish a connection: host name not resolved",
        ),
        (CheckOutError::Busy { waiting: 3 }, "BusyError", "Too many check-outs wait for a connection: 3"),
        (CheckOutError::Cancelled, "CancelledError", "The check-out was cancelled by its caller"),
        (CheckOutError::PoolCleared { cause: None }, "PoolClearedError", "Connection pool was cleared"),
    ];
    for (error, name, text) in texts {
        assert_eq!((error.name(), error.to_string().as_str()), (name, text));
    }
    assert_eq!(
        WrongMode.to_string(),
        "this kind of clear belongs to the other mode: clear a load-balanced pool by service, any other pool as a whole"
    );
    assert_eq!(ServiceError::Stale.to_string(), Stale.to_string());
    assert_eq!(ServiceError::WrongMode.to_string(), "the pool is not load-balanced");
    assert_eq!(ServiceError::Full.to_string(), "no slot for another service is free");
    let mut rig = Rig::<OnHeap>::new(DEFAULT);
    rig.ready();
    let lease = rig.lease();
    let mut other =
        Pool::<OnHeap>::new(Instant::ORIGIN, PoolId::new(8), DEFAULT.validate().expect("valid options"), &mut ());
    let refused = other.check_in(Instant::ORIGIN, lease, Health::Healthy, &mut ()).expect_err("of another pool");
    assert_eq!(refused.to_string(), "the connection was not checked out from this pool");
    assert_eq!(Generation(12).to_string(), "12");
}

#[test]
fn every_cause_has_a_different_text() {
    use crate::CertificateFault::{Expired, Invalid, NotYetValid, RefusedByPeer, Revoked, UnknownIssuer, WrongName};
    let plain = [
        Cause::Network,
        Cause::NetworkTimeout,
        Cause::Dns,
        Cause::Protocol,
        Cause::Command { code: 91 },
        Cause::Authentication,
        Cause::MissingServiceId,
        Cause::Interrupted,
        Cause::Cancelled,
        Cause::Closed,
        Cause::Forked,
        Cause::Resources,
    ];
    let faults = [Expired, NotYetValid, UnknownIssuer, WrongName, Revoked, Invalid, RefusedByPeer];
    let causes = plain.into_iter().chain(faults.map(Cause::Certificate));
    let mut texts: Vec<_> = causes.map(|cause| cause.to_string()).collect();
    assert_eq!(texts[4], "command failed with code 91");
    assert_eq!(texts[10], "the process was forked");
    let refused = texts.iter().filter(|text| text.starts_with("certificate refused: it ")).count();
    assert_eq!(refused, 5, "two tell of others than the certificate");
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), plain.len() + faults.len());
    assert_eq!(Full.to_string(), "no room left");
    assert_eq!(Stale.to_string(), "stale id: the object no longer exists");
}

#[test]
fn debug_of_a_pool_shows_id_state_and_counts() {
    on_each_memory!(PoolOptions { max_pool_size: 2, ..DEFAULT }, |rig| {
        assert_eq!(
            alloc::format!("{:?}", rig.pool),
            "Pool { id: PoolId(7), state: Paused, generation: 0, counts: PoolCounts { pending: 0, available: 0, in_use: 0, waiting: 0 }, .. }"
        );
        rig.ready();
        let [one, _two] = rig.leases::<2>();
        let _waiter = rig.queue();
        rig.give_back(one);
        rig.clear(ALL);
        assert_eq!(
            alloc::format!("{:?}", rig.pool),
            "Pool { id: PoolId(7), state: Paused, generation: 1, counts: PoolCounts { pending: 0, available: 0, in_use: 2, waiting: 0 }, .. }"
        );
    });
}
