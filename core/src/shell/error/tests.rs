use super::*;
use crate::CertificateFault;

fn establish_failed(cause: Cause, overloaded: bool) -> OperationError {
    OperationError::CheckOut(CheckOutError::EstablishFailed { cause, overloaded })
}

fn refused(code: i32) -> OperationError {
    OperationError::Command { code, labels: Labels::NONE }
}

/// Every code that the topology takes for a change of state, and no list of its own.
#[test]
fn changes_of_state_are_the_same_here_and_in_the_topology() {
    for code in -1..20_000 {
        let is_change = StateChange::of_code(code).is_some();
        assert!(refused(code).is_transient() || !is_change, "{code}");
        let failed = establish_failed(Cause::Command { code }, false);
        assert_eq!(failed.is_retryable(), refused(code).is_transient(), "{code}");
        assert!(!refused(code).is_retryable(), "{code} alone says nothing of what has happened");
    }
    let others: alloc::vec::Vec<i32> =
        (0..20_000).filter(|code| refused(*code).is_transient() && StateChange::of_code(*code).is_none()).collect();
    assert_eq!(others, [6, 7, 89, 134, 262, 9001]);
}

/// CMAP-67, CMAP-95..98
#[test]
fn what_never_reached_a_server_may_be_retried() {
    let retryable = [
        OperationError::CheckOut(CheckOutError::PoolClosed),
        OperationError::CheckOut(CheckOutError::PoolCleared { cause: None }),
        establish_failed(Cause::Network, true),
        establish_failed(Cause::NetworkTimeout, false),
        establish_failed(Cause::Command { code: 11600 }, false),
        OperationError::Command { code: 1, labels: Labels::RETRYABLE_ERROR },
    ];
    for error in retryable {
        assert!(error.is_retryable(), "{error:?}");
    }
    let others = [
        OperationError::CheckOut(CheckOutError::WaitQueueTimeout { usage: None }),
        OperationError::CheckOut(CheckOutError::Cancelled),
        OperationError::CheckOut(CheckOutError::Busy { waiting: 1 }),
        establish_failed(Cause::Command { code: 13 }, false),
        establish_failed(Cause::Certificate(CertificateFault::Expired), false),
        establish_failed(Cause::Authentication, false),
        OperationError::Exchange(ExchangeError::Network),
        OperationError::Interrupted,
        OperationError::Timeout,
        OperationError::Closed,
    ];
    for error in others {
        assert!(!error.is_retryable(), "{error:?}");
    }
}
