//! Chained methods of the client options.
//!
//! Read first: URI Options, "List of specified options".

use super::{ClientOptions, DriverInfo, OwnedReadPreference, WriteConcern};
#[cfg(feature = "tracing")]
use crate::log::LogOptions;
#[cfg(feature = "tracing")]
use crate::spans::TracingOptions;
#[cfg(feature = "tls")]
use crate::tls::TlsOptions;
use alloc::string::String;
use alloc::sync::Arc;
use core::time::Duration;
#[cfg(feature = "auth")]
use poolhouse_auth::OwnedCredential;
use poolhouse_core::monitor::ServerMonitoringMode;
use poolhouse_uri::Compressor;
use poolhouse_uri::dns::Resolver;
use poolhouse_wire::hello::ServerApi;

impl ClientOptions {
    /// Adds a seed server to that of [`ClientOptions::new`]: `host`, `host:port`, `[ipv6]:port`, or
    /// the path of a Unix domain socket.
    #[must_use]
    pub fn host(mut self, address: impl Into<String>) -> Self {
        self.hosts.push(address.into());
        self
    }

    /// Sets the credential: user, password, `authSource`, `authMechanism` and its properties.
    #[cfg(feature = "auth")]
    #[must_use]
    pub fn credential(mut self, credential: impl Into<OwnedCredential>) -> Self {
        self.credential = Some(credential.into());
        self
    }

    /// Permits the mechanism PLAIN to send the password without TLS, or with TLS that does not
    /// verify the server (`tlsInsecure` and the like). In the first case anyone on the network path
    /// can read the password, in the second any server can receive it. Default false.
    #[cfg(feature = "auth")]
    #[must_use]
    pub fn allow_plain_without_tls(mut self, allow: bool) -> Self {
        self.allow_plain_without_tls = allow;
        self
    }

    /// `tls` and the options with the prefix `tls`: encrypts TCP connections.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: TlsOptions) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets the resolver that looks up host addresses instead of the platform.
    #[must_use]
    pub fn resolver(mut self, resolver: Arc<dyn Resolver>) -> Self {
        self.resolver = Some(resolver);
        self
    }

    /// `replicaSet`: the required name of the replica set.
    #[must_use]
    pub fn replica_set(mut self, name: impl Into<String>) -> Self {
        self.replica_set = Some(name.into());
        self
    }

    /// `directConnection`: use only the one host, whatever its server type, and discover no others.
    /// Default false.
    #[must_use]
    pub fn direct_connection(mut self, direct: bool) -> Self {
        self.direct_connection = direct;
        self
    }

    /// `loadBalanced`: whether the one host is a load balancer. Default false.
    #[must_use]
    pub fn load_balanced(mut self, load_balanced: bool) -> Self {
        self.pool.load_balanced = load_balanced;
        self
    }

    /// `appName`: the name of this client in the servers' logs; 1 to 128 bytes.
    #[must_use]
    pub fn app_name(mut self, name: impl Into<String>) -> Self {
        self.app_name = Some(name.into());
        self
    }

    /// Sets the version of the Stable API: `ServerApi::V1.strict(true)`.
    #[must_use]
    pub fn server_api(mut self, api: ServerApi<'static>) -> Self {
        self.server_api = Some(api);
        self
    }

    /// Adds a library that uses the client and the libraries added earlier. Has no effect if an
    /// equal entry exists. [`Client::append_metadata`](crate::Client::append_metadata) adds one to a
    /// client that exists already.
    #[must_use]
    pub fn driver_info(mut self, info: DriverInfo) -> Self {
        if !self.driver_info.iter().any(|known| known.is_same(&info)) {
            self.driver_info.push(info);
        }
        self
    }

    /// Sets the database of [`Client::default_database`](crate::Client::default_database).
    #[must_use]
    pub fn default_database(mut self, name: impl Into<String>) -> Self {
        self.default_database = Some(name.into());
        self
    }

    /// `readPreference`, `readPreferenceTags` and `maxStalenessSeconds`, as a
    /// [`ReadMode`](poolhouse_core::selection::ReadMode) or
    /// [`ReadPreferenceOptions`](poolhouse_core::selection::ReadPreferenceOptions). See
    /// [`ClientOptions::read_preference`](#structfield.read_preference).
    #[must_use]
    pub fn read_preference(mut self, preference: impl Into<OwnedReadPreference>) -> Self {
        self.read_preference = preference.into();
        self
    }

    /// `readConcernLevel`, for libraries that use the client.
    #[must_use]
    pub fn read_concern_level(mut self, level: impl Into<String>) -> Self {
        self.read_concern_level = Some(level.into());
        self
    }

    /// `w`, `journal` and `wTimeoutMS`, for libraries that use the client.
    #[must_use]
    pub fn write_concern(mut self, concern: WriteConcern) -> Self {
        self.write_concern = concern;
        self
    }

    /// `retryReads`. See [`ClientOptions::retry_reads`](#structfield.retry_reads). Default true.
    #[must_use]
    pub fn retry_reads(mut self, retry: bool) -> Self {
        self.retry_reads = retry;
        self
    }

    /// `retryWrites`. See [`ClientOptions::retry_reads`](#structfield.retry_reads). Default true.
    #[must_use]
    pub fn retry_writes(mut self, retry: bool) -> Self {
        self.retry_writes = retry;
        self
    }

    /// `maxAdaptiveRetries`: the maximum number of retries of a command after an overloaded server
    /// refused it; zero disables them. Default 2.
    #[must_use]
    pub fn max_adaptive_retries(mut self, retries: u32) -> Self {
        self.max_adaptive_retries = retries;
        self
    }

    /// `enableOverloadRetargeting`: whether a retry after an overload goes to a server other than
    /// the overloaded one, if another is suitable. Default false.
    #[must_use]
    pub fn enable_overload_retargeting(mut self, enable: bool) -> Self {
        self.enable_overload_retargeting = enable;
        self
    }

    /// `maxPoolSize`: the maximum number of connections to a server; 0 is no limit. Default 100.
    #[must_use]
    pub fn max_pool_size(mut self, connections: u32) -> Self {
        self.pool.max_pool_size = connections;
        self
    }

    /// `minPoolSize`: the number of connections to a server that the pool maintains; at most
    /// `max_pool_size`. Default 0.
    #[must_use]
    pub fn min_pool_size(mut self, connections: u32) -> Self {
        self.pool.min_pool_size = connections;
        self
    }

    /// `maxIdleTimeMS`: the idle time after which a connection is closed; `None`, the default, and
    /// zero are no limit.
    #[must_use]
    pub fn max_idle_time(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.pool.max_idle_time = limit.into();
        self
    }

    /// `maxConnecting`: the maximum number of connections to a server that are established at the
    /// same time; at least 1. Default 2.
    #[must_use]
    pub fn max_connecting(mut self, connections: u32) -> Self {
        self.pool.max_connecting = connections;
        self
    }

    /// `waitQueueTimeoutMS`: how long an operation without a time limit may wait for a connection;
    /// `None`, the default, and zero are no limit. It does not apply to an operation with a time
    /// limit. Prefer `timeout`.
    #[must_use]
    pub fn wait_queue_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.pool.wait_queue_timeout = limit.into();
        self
    }

    /// `heartbeatFrequencyMS`: the pause between two checks of a server; at least 500 ms. Default
    /// 10 s.
    #[must_use]
    pub fn heartbeat_frequency(mut self, pause: Duration) -> Self {
        self.monitor.heartbeat_frequency = pause;
        self
    }

    /// `serverMonitoringMode`. Default `auto`.
    #[must_use]
    pub fn server_monitoring_mode(mut self, mode: ServerMonitoringMode) -> Self {
        self.monitor.server_monitoring_mode = mode;
        self
    }

    /// `connectTimeoutMS`: the time limit for establishing a connection, and for the reply to a
    /// check; at most 2,147,483,647 ms. `None` and zero, not [`Duration::MAX`], are no limit. Default
    /// 10 s.
    #[must_use]
    pub fn connect_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.monitor.connect_timeout = limit.into();
        self
    }

    /// `serverSelectionTimeoutMS`: how long an operation waits for a suitable server; at least 1
    /// ms. Default 30 s.
    #[must_use]
    pub fn server_selection_timeout(mut self, limit: Duration) -> Self {
        self.server_selection_timeout = limit;
        self
    }

    /// `localThresholdMS`: a server is suitable only if its round-trip time is at most this much
    /// longer than that of the nearest server. Default 15 ms.
    #[must_use]
    pub fn local_threshold(mut self, difference: Duration) -> Self {
        self.local_threshold = difference;
        self
    }

    /// `timeoutMS`: the time limit of each operation without its own timeout; `None`, the default,
    /// and zero are no limit. See [`ClientOptions::timeout`](#structfield.timeout).
    #[must_use]
    pub fn timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.timeout = limit.into();
        self
    }

    /// `socketTimeoutMS`: the time limit of each command, from the time it is sent, if neither
    /// `timeout` nor the operation sets a limit; `None`, the default, and zero are no limit. Prefer
    /// `timeout`.
    #[must_use]
    pub fn socket_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.socket_timeout = limit.into();
        self
    }

    /// Sets the drain timeout: how long the client waits in the background for the reply to an
    /// operation that timed out or was cancelled. If the reply arrives in time, the connection
    /// stays open. Zero disables the wait. Default 1 s.
    #[must_use]
    pub fn drain_timeout(mut self, limit: Duration) -> Self {
        self.drain_timeout = limit;
        self
    }

    /// `compressors`: the compressors for messages, in order of preference. Default none.
    #[must_use]
    pub fn compressors(mut self, compressors: impl IntoIterator<Item = Compressor>) -> Self {
        self.compressors = compressors.into_iter().collect();
        self
    }

    /// `zlibCompressionLevel`: 0 (none) to 9 (best). Default zlib's default.
    #[must_use]
    pub fn zlib_compression_level(mut self, level: u32) -> Self {
        self.zlib_compression_level = Some(level);
        self
    }

    /// Sets which events are logged, and how. The default is read from the environment.
    #[cfg(feature = "tracing")]
    #[must_use]
    pub fn log(mut self, log: LogOptions) -> Self {
        self.log = log;
        self
    }

    /// Sets whether operations and commands have spans, and what these contain. The default is read from
    /// the environment.
    #[cfg(feature = "tracing")]
    #[must_use]
    pub fn tracing(mut self, tracing: TracingOptions) -> Self {
        self.tracing = tracing;
        self
    }
}
