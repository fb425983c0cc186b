//! The `Debug` and `Display` texts of a client's parts: they identify the part, and show nothing of
//! its contents.

use super::*;
use crate::event::Tap;
use crate::{Event, EventKinds, EventRef, Notice, Publish};
use alloc::format;
use alloc::string::ToString;
use poolhouse_core::ServerId;
use poolhouse_core::machine::Observer;
use poolhouse_core::monitor::{HeartbeatId, MonitorEvent};
use poolhouse_core::observe::EventContext;
use poolhouse_core::pool::{PoolEvent, PoolId};
use poolhouse_core::selection::SelectionCriteria;
use poolhouse_wire::{EncodeError, WireError, WireErrorKind};

#[test]
fn servers_are_shown_by_their_addresses_and_pools_by_their_ids() {
    let (_, core, server) = open();
    let (id, snapshot) = (server.id(), server.pool_snapshot());
    assert_eq!(format!("{server:?}"), format!("Server {{ id: {id:?}, address: \"a:27017\", pool: {snapshot:?}, .. }}"));
    let (state, pool) = server.state.with(|state| (format!("{state:?}"), state.driven.pool.id()));
    assert_eq!(state, format!("ServerState {{ pool: {pool:?}, .. }}"));
    let pool = PoolOptions::DEFAULT.validate().unwrap();
    let new = Server::<Bench>::create(core.now(), id, PoolId::new(7), "b:1".into(), pool, Subscribers::default());
    assert_eq!(format!("{new:?}"), format!("NewServer {{ id: {id:?}, address: \"b:1\", .. }}"));
}

#[test]
fn debug_of_tasks_and_operations_names_their_server() {
    let (_, core, server) = open();
    let guard = TaskGuard::new(Arc::clone(&core), Some(server.id()));
    assert_eq!(format!("{guard:?}"), format!("TaskGuard {{ server: Some({:?}), .. }}", server.id()));
    guard.end();
    let attempts = core.attempts::<OperationError>(SelectionCriteria::write(), None, RetryPolicy::DEFAULT);
    assert_eq!(format!("{attempts:?}"), "Attempts { server: None, .. }");
}

/// A further poll returns an error, and does not touch another waiter's outcome.
#[test]
fn finished_check_out_has_no_server() {
    let (_, core, server) = open();
    let mut waiting = Box::pin(core.check_out_of(Arc::clone(&server), None, None));
    assert_eq!(format!("{waiting:?}"), "CheckingOut { server: Some(\"a:27017\"), .. }");
    assert!(poll(&mut waiting).is_pending());
    let mut establishing = worker(&core, &server);
    assert!(poll(&mut establishing).is_pending());
    let Poll::Ready(Ok(guard)) = poll(&mut waiting) else { panic!("established") };
    assert_eq!(format!("{waiting:?}"), "CheckingOut { server: None, .. }");
    let Poll::Ready(Err(error)) = poll(&mut waiting) else { panic!("it was given its connection") };
    assert_eq!(error, OperationError::check_out_of("", CheckOutError::Cancelled));
    drop(waiting);
    assert_eq!(counts(&server).in_use, 1, "of the guard");
    drop(guard);
    assert_eq!((counts(&server).in_use, counts(&server).available), (0, 1));
}

#[test]
fn errors_of_connections_name_their_cause() {
    let encode = EncodeError::InteriorNul;
    let wire = WireError::new(WireErrorKind::BodyMissing, 21);
    let texts = [
        (ExchangeError::Encode(encode), encode.to_string()),
        (ExchangeError::Wire(wire), wire.to_string()),
        (
            ExchangeError::Transport { cause: Cause::Protocol, reason: poolhouse_core::Reason::NONE },
            format!("the connection failed: {}", Cause::Protocol),
        ),
    ];
    for (error, text) in texts {
        assert_eq!(error.to_string(), text);
    }
    let error = ConnectError::from(Cause::Dns);
    assert_eq!(error.to_string(), format!("could not connect: {}", Cause::Dns));
    assert!(core::error::Error::source(&error).is_some_and(|source| source.is::<Cause>()));
}

#[test]
fn events_of_monitors_reach_their_observers_only() {
    let id = HeartbeatId { server: ServerId::new(1), connection: 2, server_connection: None };
    let event = MonitorEvent::HeartbeatStarted { id, awaited: false };
    let subscribers = Subscribers::default();
    Tap::new(&subscribers).on_event(Instant::ORIGIN, &event);
    let mut subscription = subscribers.subscribe(EventKinds::ALL, 1, |_| true);
    Tap::new(&subscribers).on_event(Instant::ORIGIN, &event);
    let Some(Notice::Event { event: Event::Heartbeat(heard), .. }) = subscription.try_next() else { panic!("heard") };
    assert_eq!(heard, event);
    assert!(subscription.try_next().is_none(), "of the first one nobody heard");
    // The observer `()` discards every event, and a call without context is no error.
    assert!(().kinds() == EventKinds::NONE);
    let ready = PoolEvent::PoolReady { pool: PoolId::new(1) };
    ().publish_in(Instant::ORIGIN, EventRef::Pool(&ready), &EventContext::NONE);
}
