//! What a client is told.

mod build;
mod metadata;
mod read_preference;
#[cfg(test)]
mod tests;
mod validate;

pub use read_preference::OwnedReadPreference;
pub(super) use read_preference::tag_sets;

use super::srv::Srv;
use super::{Error, SetupError};
#[cfg(feature = "tracing")]
use crate::log::LogOptions;
#[cfg(feature = "tls")]
use crate::tls::TlsOptions;
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
#[cfg(feature = "auth")]
use poolhouse_auth::{AuthError, OwnedCredential};
#[cfg(feature = "auth")]
use poolhouse_core::HostAddress;
use poolhouse_core::monitor::MonitorOptions;
use poolhouse_core::pool::PoolOptions;
use poolhouse_core::selection::{LOCAL_THRESHOLD, SERVER_SELECTION_TIMEOUT};
use poolhouse_driver::LATE_REPLY;
use poolhouse_driver::Login;
use poolhouse_driver::RetryPolicy;
use poolhouse_uri::dns::{Resolver, SrvQuestion};
use poolhouse_uri::{ConnectionString, Scheme, UriWarning, W};
use poolhouse_wire::compress::Compressors;

/// The options of a [`Client`](super::Client).
///
/// Begun from an address ([`ClientOptions::new`]) or a connection string ([`ClientOptions::parse`]), changed by chained methods or
/// through the fields, and checked when the client is made, or before by [`ClientOptions::validate`]. Whatever a connection string can
/// say can be said by methods, which are named after the standard names in snake case and without their units: `max_pool_size` for
/// `maxPoolSize`, `timeout` for `timeoutMS`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// The servers to begin with: `host`, `host:port`, `[ipv6]:port`, or the path of a Unix domain socket. One of a replica set
    /// will do, the others are found.
    pub hosts: Vec<String>,
    /// `replicaSet`: the name that the set must have.
    pub replica_set: Option<String>,
    /// `directConnection`: speak to the one host whatever it is, and look for no others. Default false.
    pub direct_connection: bool,
    /// `appName`: what the server's logs call this client; 1 to 128 bytes.
    pub app_name: Option<String>,
    /// Libraries on top of this one, which servers are told of: from the innermost to the outermost. 200 bytes of names and versions
    /// fit in any case, more if `app_name` is short; a platform that does not fit is cut off.
    pub driver_info: Vec<DriverInfo>,
    /// The database of [`Client::default_database`](super::Client::default_database): of a connection string what follows the hosts,
    /// up to a dot.
    pub default_database: Option<String>,
    /// `readPreference`, `readPreferenceTags`, `maxStalenessSeconds`. Default primary.
    ///
    /// Commands go to a server that accepts writes all the same unless their own options say otherwise; see
    /// [`CommandOptions::client_read_preference`](super::CommandOptions::client_read_preference).
    pub read_preference: OwnedReadPreference,
    /// `readConcernLevel`, for libraries on top: the client adds no read concern to a command.
    pub read_concern_level: Option<String>,
    /// `w`, `journal` and `wTimeoutMS`, for libraries on top: the client adds no write concern to a command.
    pub write_concern: WriteConcern,
    /// `retryReads`: whether a command that may run [twice](super::CommandOptions::idempotent) is attempted again. Another command, of which the
    /// client does not know whether it reads or writes, is attempted again only with both this and `retry_writes`, and only if it was never sent or
    /// an overloaded server refused it. Default true.
    pub retry_reads: bool,
    /// `retryWrites`: see `retry_reads`. Default true.
    pub retry_writes: bool,
    /// `maxAdaptiveRetries`: how often a command is attempted again once an overloaded server has refused it or the connection for it (labels
    /// `SystemOverloadedError` and `RetryableError`), if `retry_reads` and `retry_writes` allow it. A connection that was refused, reset or timed out before
    /// the reply to hello counts as overload. There is no backoff yet: each attempt follows at once, and more than 10 are 10. Default 2.
    pub max_adaptive_retries: u32,
    /// `enableOverloadRetargeting`: whether such an attempt goes to another server than the overloaded one, if another suits. In a sharded cluster it
    /// always does. Default false.
    pub enable_overload_retargeting: bool,
    /// The options of every pool.
    pub pool: PoolOptions,
    /// The options of every monitor. Its `connect_timeout` is the pools' connections' too.
    pub monitor: MonitorOptions,
    /// `serverSelectionTimeoutMS`: how long an operation waits for a server that suits it; if its time is limited, for that and a
    /// connection together. Default 30 s.
    pub server_selection_timeout: Duration,
    /// `localThresholdMS`: how much slower than the nearest a server may be to be chosen. Default 15 ms.
    pub local_threshold: Duration,
    /// `timeoutMS`: how long an operation may take in all, unless it has a timeout of its own; more than zero. `None`, the default, is no
    /// limit. Where this or the operation's own timeout is set, `waitQueueTimeoutMS` and `socketTimeoutMS` do not apply: [`Duration::MAX`], which is
    /// what a connection string's `timeoutMS=0` is, switches those off.
    pub timeout: Option<Duration>,
    /// `tls` and the options that begin so: how TCP connections are encrypted; `None` if they are not. A Unix domain socket never is.
    #[cfg(feature = "tls")]
    pub tls: Option<TlsOptions>,
    /// Who the client says that it is, to every server; `None`, the default, is nobody. `Debug` tells neither user nor password. A client
    /// keeps it for its life, because every new connection needs it; it is wiped when it is dropped.
    #[cfg(feature = "auth")]
    pub credential: Option<OwnedCredential>,
    /// Lets the mechanism PLAIN send the password without TLS, where anyone on the path can read it, or with TLS that does not
    /// verify the server (`tlsInsecure` and the like), where any server receives it. Default false.
    #[cfg(feature = "auth")]
    pub allow_plain_without_tls: bool,
    /// Who is asked for the addresses of hosts, and again for the hosts of a `mongodb+srv://` string; `None`, or one that gives no
    /// addresses, leaves hosts to the platform.
    pub resolver: Option<Arc<dyn Resolver>>,
    /// `socketTimeoutMS`: how long each command may take from when it is sent, if neither `timeout` nor the operation sets
    /// a limit; more than zero. `None` is no limit. `timeout` is the better one. Either bounds each command of a connection's handshake too, unless an operation
    /// with a longer time limit waits for the connection: then that limit does.
    pub socket_timeout: Option<Duration>,
    /// How long the reply to an operation that ran out of time or was given up is waited for in the background, so that its
    /// connection need not be closed; zero is not at all. At most 64 at a time of a server. Default 1 s.
    pub late_reply: Duration,
    /// What is logged, and how. Default what the environment says: see [`LogOptions::from_environment`].
    #[cfg(feature = "tracing")]
    pub log: LogOptions,
    /// `compressors`: what messages may be compressed with, best first. The first that the server has as well is used, and none if there is none.
    /// Those that this build does not have (features `snappy`, `zlib`, `zstd`) are left out. Default none.
    pub compressors: Compressors,
    /// `zlibCompressionLevel`: 0 (none) to 9 (best); `None` leaves it to zlib.
    pub zlib_compression_level: Option<u32>,
    /// The parts of a connection string that were ignored, each with the reason. With the feature `tracing` they are logged at *warn* when a client is made.
    pub warnings: Vec<UriWarning>,
    /// What is looked up again.
    pub(super) srv: Option<Srv>,
}

impl ClientOptions {
    /// The defaults, for the server at this address.
    #[must_use]
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            hosts: vec![address.into()],
            replica_set: None,
            direct_connection: false,
            app_name: None,
            driver_info: Vec::new(),
            default_database: None,
            read_preference: OwnedReadPreference::default(),
            read_concern_level: None,
            write_concern: WriteConcern::default(),
            retry_reads: true,
            retry_writes: true,
            max_adaptive_retries: RetryPolicy::DEFAULT.max_adaptive_retries,
            enable_overload_retargeting: RetryPolicy::DEFAULT.enable_overload_retargeting,
            pool: PoolOptions::DEFAULT,
            monitor: MonitorOptions::DEFAULT,
            server_selection_timeout: SERVER_SELECTION_TIMEOUT,
            local_threshold: LOCAL_THRESHOLD,
            timeout: None,
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "auth")]
            credential: None,
            #[cfg(feature = "auth")]
            allow_plain_without_tls: false,
            resolver: None,
            socket_timeout: None,
            late_reply: LATE_REPLY,
            #[cfg(feature = "tracing")]
            log: environment_log(),
            compressors: Compressors::NONE,
            zlib_compression_level: None,
            warnings: Vec::new(),
            srv: None,
        }
    }

    /// The options of a `mongodb://` string.
    ///
    /// Options that are unknown, deprecated or out of range are left out, and told in [`ClientOptions::warnings`]. One has no effect
    /// by its nature: `serverSelectionTryOnce` is for clients without monitors.
    ///
    /// # Errors
    ///
    /// [`SetupError::Uri`]: the string is wrong. [`SetupError::Credential`]: it lacks a password, or names a mechanism that is not supported.
    /// [`SetupError::LookupNeeded`]: it is a `mongodb+srv://` string, see [`ClientOptions::resolve`].
    /// [`SetupError::Unsupported`]: it asks for what is not implemented yet (a proxy), for TLS without the feature `tls`, or for
    /// credentials without the feature `auth`, so that nothing is silently left out.
    pub fn parse(uri: &str) -> Result<Self, Error> {
        Self::of(&ConnectionString::parse(uri).map_err(|error| SetupError::Uri(Box::new(error)))?, uri)
    }

    /// The options of any connection string: the hosts and the rest of a `mongodb+srv://` one are looked up.
    ///
    /// While the deployment is a sharded cluster, or not known yet, the client looks its hosts up again: every 60 s, or less often
    /// if the records' time to live is longer, but at least once a day.
    ///
    /// - `resolver`: who is asked, by the client too; becomes [`ClientOptions::resolver`].
    ///
    /// # Errors
    ///
    /// As [`ClientOptions::parse`]; [`SetupError::Seedlist`]: the lookup failed, or found what may not be used.
    ///
    /// Source: Initial DNS Seedlist Discovery, "Connection String Format"; Polling SRV Records for mongos Discovery, "Implementation".
    pub async fn resolve(uri: &str, resolver: Arc<dyn Resolver>) -> Result<Self, Error> {
        let text = uri;
        let uri = ConnectionString::parse(text).map_err(|error| SetupError::Uri(Box::new(error)))?;
        let (uri, srv) = match SrvQuestion::of(&uri) {
            None => (uri, None),
            Some(question) => {
                let found = question.look_up(&uri, &*resolver, fastrand::u64(..)).await;
                let (uri, answer) = found.map_err(|error| SetupError::Seedlist(Box::new(error)))?;
                (uri, Some(Srv { question, ttl: answer.ttl }))
            }
        };
        Ok(Self { resolver: Some(resolver), srv, ..Self::of(&uri, text)? })
    }

    /// The options of a string that was parsed, and whose hosts are there. `text`: as it was written.
    fn of(uri: &ConnectionString, text: &str) -> Result<Self, Error> {
        if uri.scheme() == Scheme::MongodbSrv {
            return Err(SetupError::LookupNeeded.into());
        }
        #[cfg(not(feature = "auth"))]
        if uri.credential().is_some() {
            return Err(SetupError::Unsupported("credentials").into());
        }
        #[cfg(not(feature = "tls"))]
        if uri.tls() {
            return Err(SetupError::Unsupported("TLS, in a build without the feature tls").into());
        }
        if uri.proxy().is_some() {
            return Err(SetupError::Unsupported("proxyHost").into());
        }
        let mut warnings = uri.warnings().to_vec();
        for compressor in uri.compressors().iter().filter(|compressor| !compressor.is_available()) {
            // Without a copy of the text, which has a password in it.
            let is_option = |window: &[u8]| window.eq_ignore_ascii_case(b"compressors=");
            let offset = text.as_bytes().windows("compressors=".len()).rposition(is_option).unwrap_or_default();
            let option = "compressors";
            warnings.push(UriWarning::NotBuilt { option, feature: compressor.name(), offset });
        }
        let given = uri.options();
        Ok(Self {
            hosts: uri.seeds().map(str::to_owned).collect(),
            replica_set: given.replica_set.clone(),
            direct_connection: given.direct_connection.unwrap_or_default(),
            app_name: given.app_name.clone(),
            driver_info: Vec::new(),
            default_database: database_of(uri),
            read_preference: OwnedReadPreference::of_uri(uri),
            read_concern_level: given.read_concern_level.clone(),
            write_concern: WriteConcern {
                w: given.w.clone(),
                journal: given.journal,
                w_timeout: given.w_timeout.filter(|limit| !limit.is_zero()),
            },
            retry_reads: uri.retry_reads(),
            retry_writes: uri.retry_writes(),
            max_adaptive_retries: given.max_adaptive_retries.unwrap_or(RetryPolicy::DEFAULT.max_adaptive_retries),
            enable_overload_retargeting: given.enable_overload_retargeting.unwrap_or_default(),
            pool: uri.pool_options(),
            monitor: uri.monitor_options(),
            server_selection_timeout: uri.server_selection_timeout(),
            local_threshold: uri.local_threshold(),
            #[cfg(feature = "auth")]
            credential: uri.credential().map(OwnedCredential::try_from).transpose()?,
            #[cfg(feature = "auth")]
            allow_plain_without_tls: false,
            timeout: given.timeout.map(|limit| if limit.is_zero() { Duration::MAX } else { limit }),
            #[cfg(feature = "tls")]
            tls: TlsOptions::from_uri(uri),
            socket_timeout: given.socket_timeout.filter(|limit| !limit.is_zero()),
            late_reply: LATE_REPLY,
            #[cfg(feature = "tracing")]
            log: environment_log(),
            compressors: uri.compressors().iter().copied().collect(),
            zlib_compression_level: uri.zlib_compression_level(),
            resolver: None,
            warnings,
            srv: None,
        })
    }

    /// The credential as the shell takes it.
    #[cfg(feature = "auth")]
    pub(super) fn login(&self) -> Result<Option<Login>, Error> {
        let Some(credential) = self.credential.clone() else { return Ok(None) };
        let login = Login::new(credential)?.allow_plain_without_tls(self.allow_plain_without_tls);
        if login.needs_privacy() && !self.is_private() {
            return Err(SetupError::Credential(AuthError::PlainWithoutTls).into());
        }
        Ok(Some(login))
    }

    /// Without the feature `auth` there is none.
    #[cfg(not(feature = "auth"))]
    #[expect(clippy::unnecessary_wraps, reason = "the same with the feature")]
    pub(super) const fn login(&self) -> Result<Option<Login>, Error> {
        Ok(None)
    }

    /// How long each command of a connection's handshake may take (CMAP-60).
    pub(super) fn handshake_command_timeout(&self) -> Option<Duration> {
        self.timeout.or(self.socket_timeout)
    }

    /// Whether only these hosts can read what is sent to them.
    #[cfg(feature = "auth")]
    fn is_private(&self) -> bool {
        #[cfg(feature = "tls")]
        if self.tls.as_ref().is_some_and(TlsOptions::verify_servers) {
            return true;
        }
        self.hosts.iter().all(|host| matches!(HostAddress::parse(host), Some(HostAddress::Unix(_))))
    }
}

#[cfg(feature = "tracing")]
fn environment_log() -> LogOptions {
    LogOptions::from_environment(|name| std::env::var(name).ok())
}

/// A namespace is a database, a dot and a collection.
fn database_of(uri: &ConnectionString) -> Option<String> {
    let name = uri.database()?.split('.').next()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// A library on top of the client, as it is told to servers.
///
/// Source: MongoDB Handshake, "Supporting Wrapping Libraries".
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct DriverInfo {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: Option<String>,
    /// What it says of its platform.
    pub platform: Option<String>,
}

impl DriverInfo {
    /// A library of this name. No text here may have a `|`, which separates them from each other.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), version: None, platform: None }
    }

    /// With a version.
    #[must_use]
    pub fn version(self, version: impl Into<String>) -> Self {
        Self { version: Some(version.into()), ..self }
    }

    /// With what it says of its platform.
    #[must_use]
    pub fn platform(self, platform: impl Into<String>) -> Self {
        Self { platform: Some(platform.into()), ..self }
    }
}

/// A write concern; what is `None` was not said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteConcern {
    /// `w`: how many members, or which.
    pub w: Option<W>,
    /// `journal`.
    pub journal: Option<bool>,
    /// `wTimeoutMS`.
    pub w_timeout: Option<Duration>,
}
