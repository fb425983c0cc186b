//! The types that an application uses in addition to its client. Every adapter crate re-exports all
//! of them at its root, next to its aliases for [`Client`], [`ClientSession`], [`Connection`],
//! [`Cursor`], [`Database`] and [`DnsResolver`]. An application therefore changes its runtime by
//! changing the name of one crate.
//!
//! [`Client`]: super::Client
//! [`ClientSession`]: super::ClientSession
//! [`Connection`]: super::Connection
//! [`Cursor`]: super::Cursor
//! [`Database`]: super::Database
//! [`DnsResolver`]: super::DnsResolver

pub use super::{
    ClientOptions, ClientSessionOptions, ClientWarning, CommandError, CommandOptions, CursorOptions, DriverInfo, Error,
    OptionError, OwnedReadPreference, ServerStatus, SetupError, TimeoutMode, TransactionOptions, WriteConcern,
    WriteError,
};
#[cfg(feature = "tracing")]
pub use crate::log::{LogOptions, LogStyle};
pub use crate::pool::{Manager, PoolError, PoolStatus};
#[cfg(feature = "tracing")]
pub use crate::spans::TracingOptions;
#[cfg(feature = "tls")]
pub use crate::tls::{Authorities, FileFault, TlsError, TlsOptions, TlsWarning};
pub use bson;
#[cfg(feature = "auth")]
pub use poolhouse_auth::{Credential, Mechanism, OwnedCredential, ScramMechanism};
pub use poolhouse_core::monitor::{HeartbeatId, MonitorEvent, MonitorOptions, ServerMonitoringMode};
pub use poolhouse_core::mux::MuxEvent;
pub use poolhouse_core::pool::{
    CheckOutError, CheckOutFailedReason, ClosedReason, ConnId, PoolCounts, PoolEvent, PoolId, PoolOptions, PoolState,
    Reuse,
};
pub use poolhouse_core::selection::{ReadMode, ReadPreference, ReadPreferenceOptions, SelectionFailure};
pub use poolhouse_core::topology::{
    OwnedSdamEvent, OwnedServerDescription, OwnedTopologyDescription, SdamEvent, ServerDescription, ServerError,
    TopologyConfigError, TopologyDescription, TopologyType,
};
pub use poolhouse_core::{Cause, CertificateFault, ConfigError, Instant, ObjectId, Reason, ServerType};
pub use poolhouse_driver::{
    CheckOutFailure, CommandEvent, CommandStage, Event, EventKinds, EventRef, ExchangeError, ForkReset, LoginFailure,
    LoginReport, Notice, OperationError, OwnedCommandEvent, OwnedSelectionEvent, PoolSnapshot, SUBSCRIPTION_EVENTS,
    SelectionEvent, SelectionReport, SelectionStage, ServerAddress, Subscription,
};
pub use poolhouse_uri::dns::{LookupError, Resolver, ResolverConfig, SeedlistError, SrvAnswer, SrvRecord};
pub use poolhouse_uri::{Compressor, UriError, UriErrorKind, UriWarning, W};
pub use poolhouse_wire::hello::{MetadataError, ServerApi};
pub use poolhouse_wire::{AuthError, Labels};
