//! Options of a client.

mod build;
mod metadata;
mod read_preference;
#[cfg(test)]
mod tests;
mod validate;
mod warning;

pub(super) use metadata::Metadata;
pub use read_preference::OwnedReadPreference;
pub(super) use read_preference::tag_sets;
pub use warning::ClientWarning;

use super::srv::Srv;
use super::transaction::millis;
use super::{Error, SetupError};
#[cfg(feature = "tracing")]
use crate::log::LogOptions;
#[cfg(feature = "tracing")]
use crate::spans::TracingOptions;
#[cfg(feature = "tls")]
use crate::tls::TlsOptions;
use alloc::borrow::ToOwned;
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
use poolhouse_driver::{DRAIN_TIMEOUT, Login, RetryPolicy};
use poolhouse_uri::dns::{Resolver, SrvQuestion};
use poolhouse_uri::{Compressor, ConnectionString, Scheme, UriWarning, W};
use poolhouse_wire::compress::Compressors;
use poolhouse_wire::hello::ServerApi;

/// The options of a [`Client`](super::Client).
///
/// Options are created from an address ([`ClientOptions::new`]) or a connection string
/// ([`ClientOptions::parse`]), and changed by chained methods or through the fields. They are
/// validated when the client is created, or earlier by [`ClientOptions::validate`]. Every option of
/// a connection string has a method. Its name is the standard name in snake case, without the unit:
/// `max_pool_size` for `maxPoolSize`, `timeout` for `timeoutMS`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// The seed servers: `host`, `host:port`, `[ipv6]:port`, or the path of a Unix domain socket.
    /// One member of a replica set is enough; the client discovers the other members.
    pub hosts: Vec<String>,
    /// `replicaSet`: the required name of the replica set.
    pub replica_set: Option<String>,
    /// `directConnection`: use only the one host, whatever its server type, and discover no others.
    /// Default false.
    pub direct_connection: bool,
    /// `appName`: the name of this client in the server's logs; 1 to 128 bytes.
    pub app_name: Option<String>,
    /// Libraries that use this client, for the client metadata that servers receive: from the
    /// innermost to the outermost. 200 bytes of names and versions always fit, and more if
    /// `app_name` is short; a platform that does not fit is truncated.
    pub driver_info: Vec<DriverInfo>,
    /// The database of [`Client::default_database`](super::Client::default_database). In a
    /// connection string, it follows the hosts and ends before the first dot.
    pub default_database: Option<String>,
    /// `readPreference`, `readPreferenceTags`, `maxStalenessSeconds`. Default primary.
    ///
    /// Commands go to a server that accepts writes regardless of this option, unless their own
    /// options specify otherwise; see
    /// [`CommandOptions::client_read_preference`](super::CommandOptions::client_read_preference).
    pub read_preference: OwnedReadPreference,
    /// `readConcernLevel`, for transactions, and for libraries that use this client: the client adds
    /// no read concern to a command outside of a transaction.
    pub read_concern_level: Option<String>,
    /// `w`, `journal` and `wTimeoutMS`, for transactions, and for libraries that use this client: the
    /// client adds no write concern to a command outside of a transaction.
    pub write_concern: WriteConcern,
    /// `retryReads`: whether a command that reads, or one that is
    /// [idempotent](super::CommandOptions::idempotent), is retried. If the name of a command does
    /// not show whether it reads or writes, both this option and `retry_writes` must be set; it is
    /// retried only if it was not sent or an overloaded server refused it. See
    /// [`Client::run_command`](super::Client::run_command). Default true.
    pub retry_reads: bool,
    /// `retryWrites`: whether a write that affects a known number of documents is sent with a
    /// transaction number, and retried. Default true.
    pub retry_writes: bool,
    /// `maxAdaptiveRetries`: the maximum number of retries of a command after an overloaded server
    /// refused it or the connection for it (labels `SystemOverloadedError` and `RetryableError`),
    /// if `retry_reads` and `retry_writes` permit retries. A connection that was refused, reset or
    /// timed out before the reply to hello counts as overload. A
    /// [pause](poolhouse_driver::overload_pause) precedes each retry. Default 2.
    pub max_adaptive_retries: u32,
    /// `enableOverloadRetargeting`: whether a retry after an overload goes to a server other than
    /// the overloaded one, if another is suitable. In a sharded cluster it always does. Default
    /// false.
    pub enable_overload_retargeting: bool,
    /// The version of the Stable API: it is sent with every command, which must not have it already.
    /// Commands that the application writes by [`Connection::raw`](super::Connection::raw) need it
    /// too. `None`, the default, is the behaviour of the server's release.
    pub server_api: Option<ServerApi<'static>>,
    /// The options of every pool.
    pub pool: PoolOptions,
    /// The options of every monitor. Its `connect_timeout` also applies to connections of the
    /// pools.
    pub monitor: MonitorOptions,
    /// `serverSelectionTimeoutMS`: how long an operation waits for a suitable server. If the
    /// operation has a time limit, this timeout covers server selection and check-out together.
    /// Default 30 s.
    pub server_selection_timeout: Duration,
    /// `localThresholdMS`: a server is suitable only if its round-trip time is at most this much
    /// longer than that of the nearest server. Default 15 ms.
    pub local_threshold: Duration,
    /// `timeoutMS`: the time limit of each operation without its own timeout. `None`, the default, is
    /// no limit. If this or the operation's own timeout is set, `waitQueueTimeoutMS` and
    /// `socketTimeoutMS` do not apply. [`Duration::MAX`] therefore disables both, and no time ends
    /// retries; zero, also `timeoutMS=0` in a connection string, is converted to it. Server selection
    /// together with the check-out always takes at most `serverSelectionTimeoutMS`. A command
    /// is sent with `maxTimeMS`, unless it has its own: the rest of the time less the minimum
    /// round-trip time to the server. If no time would be left, it is not sent, and fails. Most
    /// commands of a [`Cursor`](super::Cursor) have none if its limit applies to each call, because
    /// that of the first command would apply to the whole cursor: see
    /// [`CursorOptions::timeout_mode`](super::CursorOptions#structfield.timeout_mode).
    pub timeout: Option<Duration>,
    /// `tls` and the options with the prefix `tls`: the encryption of TCP connections; `None`
    /// disables it. Unix domain sockets are never encrypted.
    #[cfg(feature = "tls")]
    pub tls: Option<TlsOptions>,
    /// The credential with which the client authenticates to every server; `None`, the default,
    /// disables authentication. `Debug` shows neither user nor password. A client keeps the
    /// credential until it is dropped, because every new connection needs it; its memory is wiped
    /// on drop.
    #[cfg(feature = "auth")]
    pub credential: Option<OwnedCredential>,
    /// Permits the mechanism PLAIN to send the password without TLS, or with TLS that does not
    /// verify the server (`tlsInsecure` and the like). In the first case anyone on the network path
    /// can read the password, in the second any server can receive it. Default false.
    #[cfg(feature = "auth")]
    pub allow_plain_without_tls: bool,
    /// The resolver for host addresses, and for repeated lookups of the hosts of a `mongodb+srv://`
    /// string. The platform resolves host addresses if this is `None` or returns none.
    pub resolver: Option<Arc<dyn Resolver>>,
    /// `socketTimeoutMS`: the time limit of each command, from the time it is sent, if neither
    /// `timeout` nor the operation sets a limit. `None` and zero are no limit. Prefer `timeout`. Each command of a connection's handshake is limited by `timeout`, or else by this
    /// option; if an operation with a later deadline waits for the connection, its deadline is the
    /// limit instead.
    pub socket_timeout: Option<Duration>,
    /// The drain timeout: how long the client waits in the background for the reply to an operation
    /// that timed out or was cancelled. If the reply arrives in time, the connection stays open.
    /// Zero disables the wait. At most 64 connections of a server are drained at the same time.
    /// Default 1 s.
    pub drain_timeout: Duration,
    /// Which events are logged, and how. The default is read from the environment: see
    /// [`LogOptions::from_environment`].
    #[cfg(feature = "tracing")]
    pub log: LogOptions,
    /// Whether operations and commands have spans, and what these contain. The default is read from the
    /// environment: see [`TracingOptions::from_environment`].
    #[cfg(feature = "tracing")]
    pub tracing: TracingOptions,
    /// `compressors`: the compressors for messages, in order of preference. The first one that the
    /// server also supports is used; without one, messages are not compressed. Compressors that are
    /// not compiled in (features `compression`, `zstd`) are ignored. Default none.
    pub compressors: Compressors,
    /// `zlibCompressionLevel`: 0 (none) to 9 (best); `None` is zlib's default.
    pub zlib_compression_level: Option<u32>,
    /// The ignored and deprecated parts of a connection string, each with the reason.
    /// [`Client::warnings`](super::Client::warnings) has further warnings.
    pub warnings: Vec<UriWarning>,
    /// The options of a connection string that have no effect.
    pub(super) without_effect: Vec<ClientWarning>,
    /// The SRV query to repeat; `None` without a `mongodb+srv://` string.
    pub(super) srv: Option<Srv>,
}

impl ClientOptions {
    /// Creates options with default values for the server at this address.
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
            server_api: None,
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
            drain_timeout: DRAIN_TIMEOUT,
            #[cfg(feature = "tracing")]
            log: LogOptions::from_environment(environment),
            #[cfg(feature = "tracing")]
            tracing: TracingOptions::from_environment(environment),
            compressors: Compressors::NONE,
            zlib_compression_level: None,
            warnings: Vec::new(),
            without_effect: Vec::new(),
            srv: None,
        }
    }

    /// Parses the options of a `mongodb://` string.
    ///
    /// Unknown, deprecated and out-of-range options are ignored and reported in
    /// [`ClientOptions::warnings`]; [`Client::new`](super::Client::new) refuses most of them.
    ///
    /// # Errors
    ///
    /// [`SetupError::Uri`]: the string is malformed. [`SetupError::Credential`]: it lacks a
    /// password, or names a mechanism that is not supported. [`SetupError::LookupNeeded`]: it is a
    /// `mongodb+srv://` string, see [`ClientOptions::resolve`]. [`SetupError::Unsupported`]: it
    /// requires a proxy, which is not implemented, TLS in a build without the feature `tls`, or
    /// credentials in a build without the feature `auth`. These options are never silently
    /// ignored.
    pub fn parse(uri: &str) -> Result<Self, Error> {
        Self::of(&ConnectionString::parse(uri)?, uri)
    }

    /// Parses the options of any connection string. For a `mongodb+srv://` string, the hosts and
    /// the TXT record options are looked up.
    ///
    /// While the topology is sharded or unknown, the client repeats the lookup of the hosts: every
    /// 60 s, or less often if the records' time to live is longer, but at least once a day.
    ///
    /// - `resolver`: performs the lookups, also the later ones of the client; becomes
    ///   [`ClientOptions::resolver`].
    ///
    /// # Errors
    ///
    /// As [`ClientOptions::parse`]; [`SetupError::Seedlist`]: the lookup failed, or its result is
    /// not allowed.
    ///
    /// Source: Initial DNS Seedlist Discovery, "Connection String Format"; Polling SRV Records for
    /// mongos Discovery, "Implementation".
    pub async fn resolve(uri: &str, resolver: Arc<dyn Resolver>) -> Result<Self, Error> {
        let text = uri;
        let uri = ConnectionString::parse(text)?;
        let (uri, srv) = match SrvQuestion::of(&uri) {
            None => (uri, None),
            Some(question) => {
                let (uri, answer) = question.look_up(&uri, &*resolver, fastrand::u64(..)).await?;
                (uri, Some(Srv { question, ttl: answer.ttl }))
            }
        };
        Ok(Self { resolver: Some(resolver), srv, ..Self::of(&uri, text)? })
    }

    /// Converts a parsed connection string with known hosts.
    ///
    /// - `text`: the string as written.
    fn of(uri: &ConnectionString, text: &str) -> Result<Self, Error> {
        if uri.scheme() == Scheme::MongodbSrv {
            return Err(SetupError::LookupNeeded.into());
        }
        #[cfg(not(feature = "auth"))]
        if uri.credential().is_some() {
            return Err(SetupError::Unsupported("credentials, in a build without the feature auth").into());
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
            // Searched without a lower-case copy of the text, because the text may contain a
            // password.
            let is_option = |window: &[u8]| window.eq_ignore_ascii_case(b"compressors=");
            let offset = text.as_bytes().windows("compressors=".len()).rposition(is_option).unwrap_or_default();
            let option = "compressors";
            let feature = match compressor {
                Compressor::Snappy | Compressor::Zlib => "compression",
                Compressor::Zstd => "zstd",
            };
            let warning = UriWarning::NotBuilt { option, feature, offset };
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
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
            write_concern: WriteConcern { w: given.w.clone(), journal: given.journal, w_timeout: uri.w_timeout() },
            retry_reads: uri.retry_reads(),
            retry_writes: uri.retry_writes(),
            max_adaptive_retries: given.max_adaptive_retries.unwrap_or(RetryPolicy::DEFAULT.max_adaptive_retries),
            enable_overload_retargeting: given.enable_overload_retargeting.unwrap_or_default(),
            server_api: None,
            pool: uri.pool_options(),
            monitor: uri.monitor_options(),
            server_selection_timeout: uri.server_selection_timeout(),
            local_threshold: uri.local_threshold(),
            #[cfg(feature = "auth")]
            credential: uri.credential().map(OwnedCredential::try_from).transpose()?,
            #[cfg(feature = "auth")]
            allow_plain_without_tls: false,
            timeout: uri.timeout(),
            #[cfg(feature = "tls")]
            tls: TlsOptions::from_uri(uri),
            socket_timeout: uri.socket_timeout(),
            drain_timeout: DRAIN_TIMEOUT,
            #[cfg(feature = "tracing")]
            log: LogOptions::from_environment(environment),
            #[cfg(feature = "tracing")]
            tracing: TracingOptions::from_environment(environment),
            compressors: uri.compressors().iter().copied().collect(),
            zlib_compression_level: uri.zlib_compression_level(),
            resolver: None,
            warnings,
            without_effect: warning::without_effect(uri),
            srv: None,
        })
    }

    /// Converts time limits of zero to no limit, as in a connection string.
    pub(super) fn with_zero_as_no_limit(mut self) -> Self {
        let limits = [
            &mut self.pool.max_idle_time,
            &mut self.pool.wait_queue_timeout,
            &mut self.monitor.connect_timeout,
            &mut self.socket_timeout,
            &mut self.write_concern.w_timeout,
        ];
        for limit in limits {
            *limit = no_limit_if_zero(*limit);
        }
        self.timeout = self.timeout.map(|limit| if limit.is_zero() { Duration::MAX } else { limit });
        self
    }

    /// Converts the credential for the driver.
    #[cfg(feature = "auth")]
    pub(super) fn login(&self) -> Result<Option<Login>, Error> {
        let Some(credential) = self.credential.clone() else { return Ok(None) };
        let login = Login::new(credential)?.allow_plain_without_tls(self.allow_plain_without_tls);
        if login.needs_privacy() && !self.is_private() {
            return Err(SetupError::Credential(AuthError::PlainWithoutTls).into());
        }
        Ok(Some(login))
    }

    /// Returns `None`: the feature `auth` is disabled.
    #[cfg(not(feature = "auth"))]
    #[expect(clippy::unnecessary_wraps, reason = "the same with the feature")]
    pub(super) const fn login(&self) -> Result<Option<Login>, Error> {
        Ok(None)
    }

    /// Returns the time limit of each command of a connection's handshake.
    pub(super) fn handshake_command_timeout(&self) -> Option<Duration> {
        self.timeout.or(self.socket_timeout)
    }

    /// Whether only the configured hosts can read data sent to them: verified TLS, or only Unix
    /// domain sockets.
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
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A time limit in which zero is no limit.
pub(super) fn no_limit_if_zero(limit: Option<Duration>) -> Option<Duration> {
    limit.filter(|limit| !limit.is_zero())
}

/// Returns the database of a namespace, which is a database, a dot and a collection.
fn database_of(uri: &ConnectionString) -> Option<String> {
    let name = uri.database()?.split('.').next()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// A library that uses the client, for the client metadata that servers receive.
///
/// Source: MongoDB Handshake, "Supporting Wrapping Libraries".
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct DriverInfo {
    /// The library's name.
    pub name: String,
    /// The library's version.
    pub version: Option<String>,
    /// The library's description of its platform.
    pub platform: Option<String>,
}

impl DriverInfo {
    /// Creates the metadata of a library with this name. None of its texts may contain `|`, which
    /// separates libraries in the metadata.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), version: None, platform: None }
    }

    /// Sets the version.
    #[must_use]
    pub fn version(self, version: impl Into<String>) -> Self {
        Self { version: Some(version.into()), ..self }
    }

    /// Sets the description of the platform.
    #[must_use]
    pub fn platform(self, platform: impl Into<String>) -> Self {
        Self { platform: Some(platform.into()), ..self }
    }
}

/// A write concern; `None` means that the field was not specified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteConcern {
    /// `w`: the number of members, or the name of a rule that selects them.
    pub w: Option<W>,
    /// `journal`.
    pub journal: Option<bool>,
    /// `wTimeoutMS`; zero is no limit.
    pub w_timeout: Option<Duration>,
}

impl WriteConcern {
    /// Returns `w: "majority"`: a write is acknowledged when a majority of the members has it, and then
    /// survives a change of the primary.
    #[must_use]
    pub fn majority() -> Self {
        Self { w: Some(W::Name("majority".into())), ..Self::default() }
    }

    /// Returns the value of `writeConcern` in a command, because the client adds no write concern to
    /// commands outside of a transaction:
    /// `doc! { "insert": .., "writeConcern": WriteConcern::majority().to_document() }`.
    ///
    /// A field that is not specified is left out. `wtimeout` has whole milliseconds, at least 1; a
    /// limit that is zero, or longer than servers accept, is left out too.
    ///
    /// Source: Read and Write Concern, "Write Concern", on the format of commands.
    #[must_use]
    pub fn to_document(&self) -> bson::Document {
        let mut document = bson::Document::new();
        match &self.w {
            Some(W::Nodes(count)) => drop(document.insert("w", i64::from(*count))),
            Some(W::Name(name)) => drop(document.insert("w", name)),
            None => {}
        }
        if let Some(journal) = self.journal {
            document.insert("j", journal);
        }
        if let Some(timeout_ms) = no_limit_if_zero(self.w_timeout).and_then(millis) {
            document.insert("wtimeout", timeout_ms);
        }
        document
    }
}
