//! Options by chained methods.
//!
//! Read first: URI Options, "List of specified options".

use super::{ClientOptions, DriverInfo, OwnedReadPreference, WriteConcern};
#[cfg(feature = "tracing")]
use crate::log::LogOptions;
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

impl ClientOptions {
    /// One more server to begin with, beside that of [`ClientOptions::new`]: `host`, `host:port`, `[ipv6]:port`, or the path of a
    /// Unix domain socket.
    #[must_use]
    pub fn host(mut self, address: impl Into<String>) -> Self {
        self.hosts.push(address.into());
        self
    }

    /// Who the client says that it is: user, password, `authSource`, `authMechanism` and its properties.
    #[cfg(feature = "auth")]
    #[must_use]
    pub fn credential(mut self, credential: impl Into<OwnedCredential>) -> Self {
        self.credential = Some(credential.into());
        self
    }

    /// Lets the mechanism PLAIN send the password without TLS, where anyone on the path can read it, or with TLS that does not
    /// verify the server (`tlsInsecure` and the like), where any server receives it. Default false.
    #[cfg(feature = "auth")]
    #[must_use]
    pub fn allow_plain_without_tls(mut self, allow: bool) -> Self {
        self.allow_plain_without_tls = allow;
        self
    }

    /// `tls` and the options that begin so: TCP connections are encrypted.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: TlsOptions) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Who is asked for the addresses of hosts, instead of the platform.
    #[must_use]
    pub fn resolver(mut self, resolver: Arc<dyn Resolver>) -> Self {
        self.resolver = Some(resolver);
        self
    }

    /// `replicaSet`: the name that the set must have.
    #[must_use]
    pub fn replica_set(mut self, name: impl Into<String>) -> Self {
        self.replica_set = Some(name.into());
        self
    }

    /// `directConnection`: speak to the one host whatever it is, and look for no others. Default false.
    #[must_use]
    pub fn direct_connection(mut self, direct: bool) -> Self {
        self.direct_connection = direct;
        self
    }

    /// `loadBalanced`: the one host is a load balancer. Default false.
    #[must_use]
    pub fn load_balanced(mut self, load_balanced: bool) -> Self {
        self.pool.load_balanced = load_balanced;
        self
    }

    /// `appName`: what servers' logs call this client; 1 to 128 bytes.
    #[must_use]
    pub fn app_name(mut self, name: impl Into<String>) -> Self {
        self.app_name = Some(name.into());
        self
    }

    /// Adds a library on top of those that were added before; one that is there already is not added again.
    #[must_use]
    pub fn driver_info(mut self, info: DriverInfo) -> Self {
        if !self.driver_info.contains(&info) {
            self.driver_info.push(info);
        }
        self
    }

    /// The database of [`Client::default_database`](crate::Client::default_database).
    #[must_use]
    pub fn default_database(mut self, name: impl Into<String>) -> Self {
        self.default_database = Some(name.into());
        self
    }

    /// `readPreference`, `readPreferenceTags` and `maxStalenessSeconds`: a [`ReadMode`](poolhouse_core::selection::ReadMode), or
    /// [`ReadPreferenceOptions`](poolhouse_core::selection::ReadPreferenceOptions). See [`ClientOptions::read_preference`](#structfield.read_preference).
    #[must_use]
    pub fn read_preference(mut self, preference: impl Into<OwnedReadPreference>) -> Self {
        self.read_preference = preference.into();
        self
    }

    /// `readConcernLevel`, for libraries on top.
    #[must_use]
    pub fn read_concern_level(mut self, level: impl Into<String>) -> Self {
        self.read_concern_level = Some(level.into());
        self
    }

    /// `w`, `journal` and `wTimeoutMS`, for libraries on top.
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

    /// `maxAdaptiveRetries`: how often a command is attempted again once an overloaded server has refused it; zero is not at all. Default 2.
    #[must_use]
    pub fn max_adaptive_retries(mut self, retries: u32) -> Self {
        self.max_adaptive_retries = retries;
        self
    }

    /// `enableOverloadRetargeting`: whether such an attempt goes to another server than the overloaded one, if another suits. Default false.
    #[must_use]
    pub fn enable_overload_retargeting(mut self, enable: bool) -> Self {
        self.enable_overload_retargeting = enable;
        self
    }

    /// `maxPoolSize`: how many connections to a server there may be; 0 is without limit. Default 100.
    #[must_use]
    pub fn max_pool_size(mut self, connections: u32) -> Self {
        self.pool.max_pool_size = connections;
        self
    }

    /// `minPoolSize`: how many connections to a server are kept; at most `max_pool_size`. Default 0.
    #[must_use]
    pub fn min_pool_size(mut self, connections: u32) -> Self {
        self.pool.min_pool_size = connections;
        self
    }

    /// `maxIdleTimeMS`: a connection that was idle for longer is closed; `None` is never, the default.
    #[must_use]
    pub fn max_idle_time(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.pool.max_idle_time = limit.into();
        self
    }

    /// `maxConnecting`: how many connections to a server may be established at once; at least 1. Default 2.
    #[must_use]
    pub fn max_connecting(mut self, connections: u32) -> Self {
        self.pool.max_connecting = connections;
        self
    }

    /// `waitQueueTimeoutMS`: how long an operation without a time limit may wait for a connection; `None` is no limit, the default. With one it
    /// does not apply: `timeout` is the better one.
    #[must_use]
    pub fn wait_queue_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.pool.wait_queue_timeout = limit.into();
        self
    }

    /// `heartbeatFrequencyMS`: the pause between two checks of a server; at least 500 ms. Default 10 s.
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

    /// `connectTimeoutMS`: how long a connection may take to be established, and a check to be answered; `None` is no limit. Default
    /// 10 s.
    #[must_use]
    pub fn connect_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.monitor.connect_timeout = limit.into();
        self
    }

    /// `serverSelectionTimeoutMS`: how long an operation waits for a server that suits it; at least 1 ms. Default 30 s.
    #[must_use]
    pub fn server_selection_timeout(mut self, limit: Duration) -> Self {
        self.server_selection_timeout = limit;
        self
    }

    /// `localThresholdMS`: how much slower than the nearest a server may be to be chosen. Default 15 ms.
    #[must_use]
    pub fn local_threshold(mut self, difference: Duration) -> Self {
        self.local_threshold = difference;
        self
    }

    /// `timeoutMS`: how long an operation may take in all, unless it has a timeout of its own; `None`, the default, is no limit. See
    /// [`ClientOptions::timeout`](#structfield.timeout).
    #[must_use]
    pub fn timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.timeout = limit.into();
        self
    }

    /// `socketTimeoutMS`: how long each command may take from when it is sent, if neither `timeout` nor the operation sets
    /// a limit; `None` is no limit, the default. `timeout` is the better one.
    #[must_use]
    pub fn socket_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.socket_timeout = limit.into();
        self
    }

    /// How long the reply to an operation that was given up is waited for in the background, so that its connection need not be
    /// closed; zero is not at all. Default 1 s.
    #[must_use]
    pub fn late_reply(mut self, limit: Duration) -> Self {
        self.late_reply = limit;
        self
    }

    /// `compressors`: what messages may be compressed with, best first. Default none.
    #[must_use]
    pub fn compressors(mut self, compressors: impl IntoIterator<Item = Compressor>) -> Self {
        self.compressors = compressors.into_iter().collect();
        self
    }

    /// `zlibCompressionLevel`: 0 (none) to 9 (best). Default zlib's own.
    #[must_use]
    pub fn zlib_compression_level(mut self, level: u32) -> Self {
        self.zlib_compression_level = Some(level);
        self
    }

    /// What is logged, and how. Default what the environment says.
    #[cfg(feature = "tracing")]
    #[must_use]
    pub fn log(mut self, log: LogOptions) -> Self {
        self.log = log;
        self
    }
}
