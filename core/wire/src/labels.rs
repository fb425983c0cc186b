//! Error labels, and the rule that assigns them to a failed establishment.
//!
//! Read first: CMAP, "Connection Pool Backpressure"; SDAM, "Network error" under "Application
//! errors".

#[cfg(test)]
mod tests;

use core::fmt;
use core::ops::{BitOr, BitOrAssign};

use crate::cause::Cause;

/// A set of the error labels that affect the behaviour of drivers. Other labels are dropped.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Labels(u8);

/// All known labels with their names on the wire.
const NAMES: [(Labels, &str); 7] = [
    (Labels::SYSTEM_OVERLOADED_ERROR, "SystemOverloadedError"),
    (Labels::RETRYABLE_ERROR, "RetryableError"),
    (Labels::RETRYABLE_WRITE_ERROR, "RetryableWriteError"),
    (Labels::TRANSIENT_TRANSACTION_ERROR, "TransientTransactionError"),
    (Labels::UNKNOWN_TRANSACTION_COMMIT_RESULT, "UnknownTransactionCommitResult"),
    (Labels::NO_WRITES_PERFORMED, "NoWritesPerformed"),
    (Labels::RESUMABLE_CHANGE_STREAM_ERROR, "ResumableChangeStreamError"),
];

/// The phase that the establishment of a connection had reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Phase {
    /// Name resolution and the TCP or unix-domain connect.
    Connect,
    /// The handshake with a SOCKS5 proxy.
    Proxy,
    /// The TLS handshake.
    Tls,
    /// Writing hello and reading its reply.
    Hello,
    /// Authentication, after hello.
    Authentication,
}

impl Labels {
    /// No label.
    pub const NONE: Self = Self(0);
    /// The server is overloaded and rejects work.
    pub const SYSTEM_OVERLOADED_ERROR: Self = Self(1);
    /// Any operation may be retried.
    pub const RETRYABLE_ERROR: Self = Self(1 << 1);
    /// A write may be retried.
    pub const RETRYABLE_WRITE_ERROR: Self = Self(1 << 2);
    /// The transaction may be retried.
    pub const TRANSIENT_TRANSACTION_ERROR: Self = Self(1 << 3);
    /// The commit may be retried.
    pub const UNKNOWN_TRANSACTION_COMMIT_RESULT: Self = Self(1 << 4);
    /// The failed command wrote nothing.
    pub const NO_WRITES_PERFORMED: Self = Self(1 << 5);
    /// The change stream may be resumed.
    pub const RESUMABLE_CHANGE_STREAM_ERROR: Self = Self(1 << 6);

    /// The labels of an establishment that failed in `phase` for `cause`.
    ///
    /// `SystemOverloadedError` and `RetryableError` for a network error or timeout up to and
    /// including hello, including an I/O error inside the TLS handshake. None after authentication
    /// has begun, and none for errors that overload cannot cause: name resolution, certificates,
    /// proxies, protocol and command errors.
    ///
    /// Source: CMAP, "Connection Pool Backpressure".
    #[must_use]
    pub const fn for_establishment(phase: Phase, cause: Cause) -> Self {
        match phase {
            Phase::Connect | Phase::Tls | Phase::Hello if cause.is_network() => {
                Self(Self::SYSTEM_OVERLOADED_ERROR.0 | Self::RETRYABLE_ERROR.0)
            }
            Phase::Connect | Phase::Tls | Phase::Hello | Phase::Proxy | Phase::Authentication => Self::NONE,
        }
    }

    /// The label with that name on the wire; the empty set for an unknown name.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        NAMES.iter().find(|(_, known)| *known == name).map_or(Self::NONE, |(label, _)| *label)
    }

    /// Whether all labels of `other` are in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The union of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The names on the wire, in a fixed order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES.iter().filter(move |(label, _)| self.contains(*label)).map(|(_, name)| *name)
    }
}

impl BitOr for Labels {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl BitOrAssign for Labels {
    fn bitor_assign(&mut self, other: Self) {
        *self = self.union(other);
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for Labels {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "Labels(");
        self.names().for_each(|name| defmt::write!(f, " {=str}", name));
        defmt::write!(f, " )");
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
