//! What a client is told before it starts. It is checked when it is compiled.

use crate::embassy::Random;
use crate::run::WORKERS;
use core::time::Duration;
#[cfg(feature = "auth")]
use poolhouse_auth::Credential;
use poolhouse_core::ConfigError;
use poolhouse_core::monitor::{MonitorConfig, MonitorOptions};
use poolhouse_core::pool::{PoolConfig, PoolOptions};
use poolhouse_core::selection::ReadPreference;
use poolhouse_core::topology::TopologyOptions;

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
/// A bad one fails the build:
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
    /// The hosts to begin with: `host`, `host:port`; at least one. Without feature `dns` they have IPv4 addresses.
    pub seeds: &'static [&'static str],
    /// `replicaSet`: the name of the set, if it is one.
    pub replica_set: Option<&'static str>,
    /// `directConnection`: the one seed is spoken to, whatever it is a member of. Default false.
    pub direct_connection: bool,
    /// The options of pools. `maxConnecting` is at most 2, and `loadBalanced` is not there.
    pub pool: PoolOptions,
    /// The options of monitors. `connectTimeoutMS` of these is that of pools too.
    pub monitor: MonitorOptions,
    /// `serverSelectionTimeoutMS`. Default 30 s.
    pub server_selection_timeout: Duration,
    /// `timeoutMS`: how long an operation may take in all; more than zero. `None`, the default, is no limit.
    pub timeout: Option<Duration>,
    /// `localThresholdMS`. Default 15 ms.
    pub local_threshold: Duration,
    /// The read preference of commands that ask for the client's.
    pub read_preference: ReadPreference<'static>,
    /// `appName`, which servers log. At most 128 bytes.
    pub app_name: Option<&'static str>,
    /// Who is calling, if servers want to know. Wants `random`. Passwords are ASCII.
    #[cfg(feature = "auth")]
    pub credential: Option<Credential<'static>>,
    /// Fills a buffer with random bytes that nobody can guess: a hardware generator. Needed for authentication and TLS; without it, choices among equal
    /// servers are made by the time.
    pub random: Option<Random>,
}

impl Options {
    /// The defaults of the specifications, and no seed.
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

    /// Checks what can be checked without looking at texts, which [`Client::new`](crate::Client::new) does.
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
        if self.pool.max_connecting > WORKERS {
            return Err(ConfigError::new("maxConnecting", self.pool.max_connecting as u64, "be at most 2"));
        }
        #[cfg(feature = "auth")]
        if self.credential.is_some() && self.random.is_none() {
            return Err(ConfigError::new("random", 0, "be there when there is a credential"));
        }
        if matches!(self.timeout, Some(Duration::ZERO)) {
            return Err(ConfigError::new("timeoutMS", 0, "be more than 0"));
        }
        let pool = match self.pool.validate() {
            Ok(pool) => pool,
            Err(error) => return Err(error),
        };
        let monitor = match self.monitor.validate() {
            Ok(monitor) => monitor,
            Err(error) => return Err(error),
        };
        Ok(Config { options: self, pool, monitor })
    }

    /// [`Options::validate`] for a `const`: a bad option fails the build.
    ///
    /// # Panics
    ///
    /// With the rule that an option breaks.
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

/// Options that were checked.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    options: Options,
    pool: PoolConfig,
    monitor: MonitorConfig,
}

impl Config {
    /// The options as they were given.
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
