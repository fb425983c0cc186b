//! Errors of building and opening a client.

use core::fmt;
use poolhouse_core::storage::Full;
use poolhouse_core::topology::TopologyConfigError;
#[cfg(feature = "auth")]
use poolhouse_wire::AuthError;
use poolhouse_wire::hello::MetadataError;

/// A client cannot be built, or not opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum SetupError {
    /// The seeds contradict each other or the other options, or a seed is not an address.
    Topology(TopologyConfigError),
    /// The credential is invalid for every server.
    #[cfg(feature = "auth")]
    Credential(AuthError),
    /// `appName` is too long.
    Metadata(MetadataError),
    /// There are more seeds than server slots, a seed is too long, or the memory of the description is too
    /// small for the seeds and `replicaSet`.
    Full,
    /// A connection or an operation of the closed client is left: wait for [`Client::closed`](crate::Client::closed).
    InUse,
    /// A runner of the client was dropped.
    Abandoned,
    /// A monitor that may stream needs two connections, and `MONITOR_CONNS` of [`Sizes`](crate::Sizes) is 1:
    /// set [`ServerMonitoringMode::Poll`](crate::ServerMonitoringMode::Poll).
    Streaming,
    /// The memory of [`Sizes`](crate::Sizes) is [`Direct`](crate::Direct), and
    /// [`Options::direct_connection`](crate::Options::direct_connection) is not set.
    NotDirect,
    /// TLS requires [`Options::random`](crate::Options::random), which is not set.
    #[cfg(feature = "tls")]
    NoRandom,
    /// An authority is not a valid certificate, or the client's key is not a valid key.
    #[cfg(feature = "tls")]
    TlsCertificate,
    /// The record buffers of [`TlsBuffers`](crate::TlsBuffers) are too small for the requested
    /// fragments, or for the client's certificate.
    #[cfg(feature = "tls")]
    TlsRecords,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topology(error) => error.fmt(f),
            #[cfg(feature = "auth")]
            Self::Credential(error) => error.fmt(f),
            Self::Metadata(error) => error.fmt(f),
            Self::Full => f.write_str("there is no room for the seeds or the set name"),
            Self::InUse => f.write_str("connections of the closed client are left: wait for `closed`"),
            Self::Abandoned => f.write_str("a runner of the client was dropped"),
            Self::Streaming => {
                f.write_str("a monitor that may stream needs two connections: set serverMonitoringMode to poll")
            }
            Self::NotDirect => f.write_str("the memory is for a direct connection: set directConnection"),
            #[cfg(feature = "tls")]
            Self::NoRandom => f.write_str("TLS wants random bytes"),
            #[cfg(feature = "tls")]
            Self::TlsCertificate => f.write_str("an authority or the client's key cannot be read"),
            #[cfg(feature = "tls")]
            Self::TlsRecords => f.write_str("the records of TLS are too small"),
        }
    }
}

impl core::error::Error for SetupError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Topology(error) => Some(error),
            #[cfg(feature = "auth")]
            Self::Credential(error) => Some(error),
            Self::Metadata(error) => Some(error),
            Self::Full | Self::InUse | Self::Abandoned | Self::Streaming | Self::NotDirect => None,
            #[cfg(feature = "tls")]
            Self::NoRandom | Self::TlsCertificate | Self::TlsRecords => None,
        }
    }
}

impl From<TopologyConfigError> for SetupError {
    fn from(error: TopologyConfigError) -> Self {
        Self::Topology(error)
    }
}

#[cfg(feature = "auth")]
impl From<AuthError> for SetupError {
    fn from(error: AuthError) -> Self {
        Self::Credential(error)
    }
}

impl From<MetadataError> for SetupError {
    fn from(error: MetadataError) -> Self {
        Self::Metadata(error)
    }
}

impl From<Full> for SetupError {
    fn from(_: Full) -> Self {
        Self::Full
    }
}
