//! The types that an application uses in addition to its client. Every adapter crate re-exports all
//! of them at its root, next to its aliases for [`Client`], [`Connection`], [`Database`] and
//! [`DnsResolver`]. An application therefore changes its runtime by changing the name of one crate.
//!
//! [`Client`]: super::Client
//! [`Connection`]: super::Connection
//! [`Database`]: super::Database
//! [`DnsResolver`]: super::DnsResolver

pub use super::{
    ClientOptions, CommandError, CommandOptions, DriverInfo, Error, OptionError, OwnedReadPreference, ServerStatus,
    SetupError, WriteConcern,
};
#[cfg(feature = "tracing")]
pub use crate::log::LogOptions;
#[cfg(feature = "tls")]
pub use crate::tls::{TlsError, TlsOptions, TlsWarning};
pub use bson;
#[cfg(feature = "auth")]
pub use poolhouse_auth::{Credential, Mechanism, OwnedCredential, ScramMechanism};
pub use poolhouse_core::monitor::{MonitorEvent, MonitorOptions, ServerMonitoringMode};
pub use poolhouse_core::mux::MuxEvent;
pub use poolhouse_core::pool::{
    CheckOutError, CheckOutFailedReason, ClosedReason, PoolCounts, PoolEvent, PoolOptions, PoolState,
};
pub use poolhouse_core::selection::{ReadMode, ReadPreference, ReadPreferenceOptions, SelectionFailure};
pub use poolhouse_core::topology::{
    OwnedSdamEvent, OwnedServerDescription, OwnedTopologyDescription, SdamEvent, ServerDescription,
    TopologyConfigError, TopologyDescription, TopologyType,
};
pub use poolhouse_core::{Cause, CertificateFault, ConfigError, Instant, Reason, ServerType};
pub use poolhouse_driver::{
    CheckOutFailure, Event, EventRef, ForkReset, LoginFailure, Notice, OperationError, PoolSnapshot,
    SUBSCRIPTION_EVENTS, SelectionReport, Subscription,
};
pub use poolhouse_uri::dns::{LookupError, Resolver, ResolverConfig, SeedlistError, SrvAnswer, SrvRecord};
pub use poolhouse_uri::{Compressor, UriError, UriErrorKind, UriWarning, W};
pub use poolhouse_wire::AuthError;
pub use poolhouse_wire::hello::MetadataError;
