use super::*;
use crate::Instant;
use crate::selection::SelectionError;
use crate::shell::{CheckOutFailure, ExchangeError, ServerAddress};
use crate::topology::{self, Topology, TopologyId, TopologyOptions, WireMismatch};
use core::time::Duration;

/// The error of a selection that failed like this.
fn selection(failure: SelectionFailure) -> Error {
    let config = TopologyOptions { seeds: &["a:1"], ..TopologyOptions::default() }.validate().expect("valid");
    let topology =
        Topology::<topology::OnHeap>::new(Instant::ORIGIN, TopologyId::new(1), config, &mut ()).expect("room");
    let description = topology.description();
    let report = SelectionError::new(failure, description).detail(description);
    Error::Operation(OperationError::ServerSelection(Box::new(report)))
}

fn check_out(error: CheckOutError) -> Error {
    Error::Operation(OperationError::CheckOut(CheckOutFailure::new(error, "a:1")))
}

fn establishing(cause: Cause) -> Error {
    check_out(CheckOutError::EstablishFailed { cause, overloaded: false })
}

#[test]
fn every_limit_that_has_passed_is_a_timeout() {
    let timeouts = [
        Error::Operation(OperationError::Timeout),
        selection(SelectionFailure::TimedOut { waited: Duration::from_secs(30) }),
        check_out(CheckOutError::WaitQueueTimeout { usage: None }),
        establishing(Cause::NetworkTimeout),
    ];
    for error in timeouts {
        assert!(error.is_timeout(), "{error}");
    }
}

#[test]
fn what_failed_at_once_is_no_timeout() {
    let others = [
        selection(SelectionFailure::Incompatible(WireMismatch::ServerTooOld(5))),
        selection(SelectionFailure::Closed),
        establishing(Cause::Network),
        establishing(Cause::Dns),
        check_out(CheckOutError::PoolCleared { cause: Some(Cause::NetworkTimeout) }),
        check_out(CheckOutError::PoolClosed),
        Error::Operation(OperationError::Exchange(ExchangeError::Network)),
        Error::Operation(OperationError::Interrupted(ServerAddress::new("a:1"))),
        Error::Operation(OperationError::Closed),
        Error::Operation(OperationError::Abandoned),
        Error::Unsupported("tls"),
        Error::OutOfMemory,
        Error::Bson(String::new()),
    ];
    for error in others {
        assert!(!error.is_timeout(), "{error}");
    }
}
