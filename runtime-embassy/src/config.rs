//! The options of a client, which are checked at compile time.

use core::time::Duration;
#[cfg(feature = "auth")]
use poolhouse_auth::Credential;
use poolhouse_core::ConfigError;
use poolhouse_core::monitor::{MonitorConfig, MonitorOptions};
use poolhouse_core::pool::{PoolConfig, PoolOptions};
use poolhouse_core::selection::ReadPreference;
use poolhouse_core::topology::TopologyOptions;

/// Fills a buffer with unpredictable random bytes.
pub type Random = fn(&mut [u8]);

/// The options of a client, by their standard names in snake case.
///
/// ```
/// use poolhouse_embassy::{Config, Options, PoolOptions};
///
/// const CONFIG: Config = Options {
///     seeds: &["10.0.0.5:27017"],
///     direct_connection: true,
///     pool: PoolOptions { max_pool_size: 4, ..PoolOptions::DEFAULT },
///     ..Options::DEFAULT
/// }
/// .build();
/// ```
///
/// An invalid option fails the build:
///
/// ```compile_fail,E0080
/// use poolhouse_embassy::{Config, Options, PoolOptions};
///
/// const CONFIG: Config = Options {
///     seeds: &["10.0.0.5:27017"],
///     pool: PoolOptions { min_pool_size: 8, max_pool_size: 4, ..PoolOptions::DEFAULT },
///     ..Options::DEFAULT
/// }
/// .build();
/// # let _ = CONFIG;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The initial hosts: `host` or `host:port`, at least one. Without feature `dns`, hosts must be
    /// IPv4 addresses.
    pub seeds: &'static [&'static str],
    /// `replicaSet`: the name of the replica set, or `None` if the deployment is not one.
    pub replica_set: Option<&'static str>,
    /// `directConnection`: use only the one seed, whatever deployment it is a member of. Default
    /// false.
    pub direct_connection: bool,
    /// The options of pools. `maxPoolSize` and `maxConnecting` are limited by
    /// [`Sizes`](crate::Sizes); `loadBalanced` is not supported.
    pub pool: PoolOptions,
    /// The options of monitors. Their `connectTimeoutMS` is also that of the pools.
    pub monitor: MonitorOptions,
    /// `serverSelectionTimeoutMS`. Default 30 s.
    pub server_selection_timeout: Duration,
    /// `timeoutMS`: the maximum total time of an operation. `None`, the default, and zero mean no limit.
    pub timeout: Option<Duration>,
    /// `localThresholdMS`. Default 15 ms.
    pub local_threshold: Duration,
    /// The read preference of commands that use that of the client.
    pub read_preference: ReadPreference<'static>,
    /// `appName`, which servers write to their logs. At most 128 bytes.
    pub app_name: Option<&'static str>,
    /// The credential, for servers that require authentication. Requires `random`. Passwords must
    /// be ASCII.
    #[cfg(feature = "auth")]
    pub credential: Option<Credential<'static>>,
    /// Fills a buffer with unpredictable random bytes, from a hardware generator. Required for
    /// authentication and TLS. Without it, the choice among equal servers depends on the clock.
    pub random: Option<Random>,
}

impl Options {
    /// The defaults of the specifications, without a seed.
    pub const DEFAULT: Self = Self {
        seeds: &[],
        replica_set: None,
        direct_connection: false,
        pool: PoolOptions::DEFAULT,
        monitor: MonitorOptions::DEFAULT,
        server_selection_timeout: Duration::from_secs(30),
        timeout: None,
        local_threshold: Duration::from_millis(15),
        read_preference: ReadPreference::of(poolhouse_core::selection::ReadMode::Primary),
        app_name: None,
        #[cfg(feature = "auth")]
        credential: None,
        random: None,
    };

    /// Checks the options, except texts, which [`Client::new`](crate::Client::new) checks.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] names the option, its value and the rule.
    pub const fn validate(self) -> Result<Config, ConfigError> {
        if self.seeds.is_empty() {
            return Err(ConfigError::new("seeds", 0, "be at least 1"));
        }
        if self.direct_connection && self.seeds.len() > 1 {
            return Err(ConfigError::new("seeds", self.seeds.len() as u64, "be 1 when directConnection is true"));
        }
        if self.pool.load_balanced {
            return Err(ConfigError::new("loadBalanced", 1, "be absent: it is not implemented here"));
        }
        #[cfg(feature = "auth")]
        if self.credential.is_some() && self.random.is_none() {
            return Err(ConfigError::new("random", 0, "be there when there is a credential"));
        }
        let pool = match self.pool.validate() {
            Ok(pool) => pool,
            Err(error) => return Err(error),
        };
        let monitor = match self.monitor.validate() {
            Ok(monitor) => monitor,
            Err(error) => return Err(error),
        };
        let timeout = match self.timeout {
            Some(Duration::ZERO) => None,
            given => given,
        };
        let options = Self { timeout, pool: *pool.options(), monitor: *monitor.options(), ..self };
        Ok(Config { options, pool, monitor })
    }

    /// [`Options::validate`] for a `const`: an invalid option fails the build.
    ///
    /// # Panics
    ///
    /// If an option is invalid; the message is the rule that it violates.
    #[must_use]
    pub const fn build(self) -> Config {
        match self.validate() {
            Ok(config) => config,
            Err(error) => panic!("{}", error.rule()),
        }
    }

    pub(crate) const fn topology(&self) -> TopologyOptions<'static> {
        TopologyOptions {
            seeds: self.seeds,
            replica_set: self.replica_set,
            direct_connection: self.direct_connection,
            load_balanced: false,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Checked options.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    options: Options,
    pool: PoolConfig,
    monitor: MonitorConfig,
}

impl Config {
    /// Returns the options.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) const fn pool(&self) -> PoolConfig {
        self.pool
    }

    pub(crate) const fn monitor(&self) -> MonitorConfig {
        self.monitor
    }
}
