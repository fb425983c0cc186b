//! What an application names besides its client: every adapter has all of it at its root, next to aliases of its own for [`Client`],
//! [`Connection`], [`Database`] and [`DnsResolver`]. So an application changes its runtime by the name of a crate.
//!
//! [`Client`]: super::Client
//! [`Connection`]: super::Connection
//! [`Database`]: super::Database
//! [`DnsResolver`]: super::DnsResolver

pub use super::{
    ClientOptions, CommandError, CommandOptions, DriverInfo, Error, OptionError, OwnedReadPreference, ServerStatus,
    WriteConcern,
};
pub use crate::dns::{LookupError, Resolver, ResolverConfig, SeedlistError, SrvAnswer, SrvRecord};
pub use crate::monitor::{MonitorOptions, ServerMonitoringMode};
pub use crate::pool::PoolOptions;
pub use crate::selection::{ReadMode, ReadPreference, ReadPreferenceOptions};
pub use crate::shell::{Event, EventRef, Notice, PoolSnapshot, Subscription};
#[cfg(feature = "tls")]
pub use crate::tls::{TlsError, TlsOptions, TlsWarning};
pub use crate::topology::OwnedTopologyDescription;
