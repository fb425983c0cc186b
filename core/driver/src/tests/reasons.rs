//! The reasons in the errors of operations if a server cannot be reached.

use super::*;
use crate::failure::Misfit;
use alloc::string::ToString;
use poolhouse_core::Reason;
use poolhouse_core::topology::{Topology, TopologyId};
use poolhouse_wire::hello::HelloReply;
use std::io;

fn failed(kind: io::ErrorKind) -> ConnectError {
    ConnectError::new(Cause::Network, Reason::new(io::Error::from(kind)))
}

/// The kind of the operating system's error at the end of the sources of a check-out's error.
fn kind_of(error: &OperationError) -> Option<io::ErrorKind> {
    let mut end: &(dyn core::error::Error + 'static) = error;
    while let Some(source) = end.source() {
        end = source;
    }
    end.downcast_ref::<io::Error>().map(io::Error::kind)
}

#[test]
fn failed_check_out_has_the_reason_of_the_last_failure_with_the_same_cause() {
    let (_bench, _hub, server) = open();
    let establishing = |cause| CheckOutError::EstablishFailed { cause, overloaded: false };
    let network = establishing(Cause::Network);
    let cleared = CheckOutError::PoolCleared { cause: Some(Cause::Network) };
    assert_eq!(server.explain(network).to_string(), "a:27017: Could not establish a connection: network error");
    server.note_failure(failed(io::ErrorKind::ConnectionReset));
    server.note_failure(failed(io::ErrorKind::ConnectionRefused));
    for (error, text) in [
        (network, "Could not establish a connection: network error: connection refused"),
        (
            cleared,
            "Connection pool was cleared because another operation failed with: network error: connection refused",
        ),
    ] {
        let explained = server.explain(error);
        assert_eq!(explained.to_string(), alloc::format!("a:27017: {text}"));
        assert_eq!(kind_of(&explained), Some(io::ErrorKind::ConnectionRefused));
    }
    for other in [establishing(Cause::Dns), CheckOutError::PoolClosed, CheckOutError::PoolCleared { cause: None }] {
        assert_eq!(server.explain(other).to_string(), alloc::format!("a:27017: {other}"));
    }
    server.forget_failure();
    assert_eq!(kind_of(&server.explain(network)), None);
}

#[test]
fn established_connection_clears_the_recorded_failure() {
    let (_bench, core, server) = open();
    server.note_failure(failed(io::ErrorKind::ConnectionRefused));
    let mut waiting = Box::pin(core.check_out_of(Arc::clone(&server), None, None));
    assert!(poll(&mut waiting).is_pending());
    let mut establishing = worker(&core, &server);
    assert!(poll(&mut establishing).is_pending());
    assert!(matches!(poll(&mut waiting), Poll::Ready(Ok(_))));
    assert!(server.reason_of(Cause::Network).is_none());
}

#[test]
fn timed_out_check_out_reports_the_counts_of_the_pool() {
    let (_bench, _hub, server) = open();
    let explained = server.explain(CheckOutError::WaitQueueTimeout { usage: None });
    assert_eq!(
        explained.to_string(),
        "a:27017: Timed out while checking out a connection from connection pool: \
         maxPoolSize 100, 0 in use, 0 being established, 0 others waiting"
    );
}

/// The topology has already removed the server, so the text of the topology does not name it.
#[test]
fn server_of_another_deployment_is_named_if_no_server_is_known() {
    let (_bench, core, server) = open();
    let hello = |set_name| HelloReply { set_name, ..HelloReply::OK };
    let hint = |replica_set| {
        let options = TopologyOptions { seeds: &["b"], replica_set, ..TopologyOptions::default() };
        let topology = Topology::<topology::OnHeap>::new(
            Instant::ORIGIN,
            TopologyId::new(1),
            options.validate().unwrap(),
            &mut (),
        )
        .unwrap();
        core.state.with(|state| state.misfit.as_ref().and_then(|misfit: &Misfit| misfit.hint(&topology.description())))
    };
    assert_eq!(hint(Some("rs1")), None);
    core.note_fitness(&server, &hello(Some("rs1")), true);
    assert_eq!(hint(Some("rs1")), None);
    core.note_fitness(&server, &hello(Some("rs\n0")), false);
    let other = "the client looks for replica set \"rs1\"; a:27017 is a member of \"rs 0\"";
    assert_eq!(hint(Some("rs1")).as_deref(), Some(other));
    assert_eq!(hint(None), None, "the client requires no replica set");
    core.note_fitness(&server, &hello(None), false);
    let none = "the client looks for replica set \"rs1\"; a:27017 is not a member of one (its type is Standalone)";
    assert_eq!(hint(Some("rs1")).as_deref(), Some(none));
    core.note_fitness(&server, &hello(Some("rs1")), false);
    assert_eq!(hint(Some("rs1")), None, "its set is the required one, and another member may be about to reply");
}

/// A seed of another set that was removed when the client started is not the reason if no server is
/// known weeks later.
#[test]
fn server_of_another_set_is_no_longer_named_after_a_member_replies() {
    let (_, core, server) = open();
    let other = HelloReply { set_name: Some("rs0"), ..HelloReply::OK };
    let member = HelloReply { ok: true, is_writable_primary: true, set_name: Some("rs1"), ..HelloReply::OK };
    let is_kept = || core.state.with(|state| state.misfit.is_some());
    core.note_fitness(&server, &other, false);
    assert!(is_kept());
    core.note_fitness(&server, &member, true);
    assert!(!is_kept());
}
