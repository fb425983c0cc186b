//! Whether a request is sent again after a server has answered with an error.

#[cfg(test)]
mod tests;

use poolhouse_cql::{ErrorCode, Failure, FailureDetails};

/// Whether a request is sent again after a server has answered with an error.
///
/// With each policy, a request that a server has not begun, because it is still starting, goes to
/// the next host, and so does a request whose connection failed, if it was not sent or is
/// [idempotent](super::Call::idempotent).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RetryPolicy {
    /// The request is sent again where this can succeed and does no harm:
    ///
    /// | error | again |
    /// |---|---|
    /// | unavailable, idempotent | once, to the next host, which may see more replicas alive |
    /// | read timeout, although enough replicas answered, but not the one that was asked for the data | once, to the same host, which then asks another replica |
    /// | write timeout of the log of a batch, idempotent | once, to the same host, which then chooses other replicas for the log |
    /// | overloaded, server error or truncate error, idempotent | to the next host |
    ///
    /// The first three are one retry in all. If no host is left, the result is the server's error;
    /// after overload it is [`RequestError::NoHost`](super::RequestError::NoHost).
    ///
    /// Based on the default policy of the DataStax drivers, which also repeats a request that is not
    /// idempotent after *unavailable*. A server may have executed it for some of its partitions, though.
    #[default]
    Default,
    /// The server's error is the result.
    Fallthrough,
}

impl RetryPolicy {
    /// Returns whether a request is sent again after this error.
    ///
    /// - `has_retried`: whether a retry was made after an error for which only one is made.
    pub(super) fn allows(self, failure: &Failure<'_>, idempotent: bool, has_retried: bool) -> bool {
        if failure.code == ErrorCode::IS_BOOTSTRAPPING {
            return true;
        }
        if self == Self::Fallthrough {
            return false;
        }
        match (failure.code, failure.details()) {
            (ErrorCode::OVERLOADED | ErrorCode::SERVER_ERROR | ErrorCode::TRUNCATE_ERROR, _) => idempotent,
            (ErrorCode::UNAVAILABLE, _) => !has_retried && idempotent,
            (_, Ok(FailureDetails::ReadTimeout { received, required, data_present, .. })) => {
                !has_retried && received >= required && !data_present
            }
            (_, Ok(FailureDetails::WriteTimeout { write_type: "BATCH_LOG", .. })) => !has_retried && idempotent,
            _ => false,
        }
    }
}

/// Whether the retry after this error counts: after such errors, a request is sent again once in all.
pub(super) const fn is_retried_once(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::UNAVAILABLE) || repeats_host(code)
}

/// Whether a request that is sent again after this error is sent to the same host.
pub(super) const fn repeats_host(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::READ_TIMEOUT | ErrorCode::WRITE_TIMEOUT)
}
