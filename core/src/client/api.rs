//! What an application names besides its client: every adapter has all of it at its root, next to aliases of its own for [`Client`],
//! [`Connection`], [`Database`] and [`DnsResolver`]. So an application changes its runtime by the name of a crate.
//!
//! [`Client`]: super::Client
//! [`Connection`]: super::Connection
//! [`Database`]: super::Database
//! [`DnsResolver`]: super::DnsResolver

pub use super::{
    ClientOptions, CommandError, CommandOptions, DriverInfo, Error, OptionError, OwnedReadPreference, ServerStatus,
    SetupError, WriteConcern,
};
#[cfg(feature = "auth")]
pub use crate::auth::{Credential, Mechanism, OwnedCredential, ScramMechanism};
pub use crate::dns::{LookupError, Resolver, ResolverConfig, SeedlistError, SrvAnswer, SrvRecord};
#[cfg(feature = "tracing")]
pub use crate::log::LogOptions;
pub use crate::monitor::{MonitorEvent, MonitorOptions, ServerMonitoringMode};
pub use crate::mux::MuxEvent;
pub use crate::pool::{
    CheckOutError, CheckOutFailedReason, ClosedReason, PoolCounts, PoolEvent, PoolOptions, PoolState,
};
pub use crate::selection::{ReadMode, ReadPreference, ReadPreferenceOptions, SelectionFailure};
pub use crate::shell::{
    CheckOutFailure, Event, EventRef, ForkReset, LoginFailure, Notice, OperationError, PoolSnapshot,
    SUBSCRIPTION_EVENTS, SelectionReport, Subscription,
};
#[cfg(feature = "tls")]
pub use crate::tls::{TlsError, TlsOptions, TlsWarning};
pub use crate::topology::{
    OwnedSdamEvent, OwnedServerDescription, OwnedTopologyDescription, SdamEvent, ServerDescription,
    TopologyConfigError, TopologyDescription, TopologyType,
};
pub use crate::uri::{Compressor, UriError, UriErrorKind, UriWarning, W};
pub use crate::wire::AuthError;
pub use crate::wire::hello::MetadataError;
pub use crate::{Cause, CertificateFault, ConfigError, Instant, Reason, ServerType};
pub use bson;
