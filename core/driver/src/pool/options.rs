//! The options of a pool.

use core::time::Duration;
use poolhouse_core::ConfigError;
use poolhouse_core::pool::{PoolConfig, PoolOptions, Reuse};

/// The options of a pool. All limits of time are optional: `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The maximum number of connections, those being opened included; at least 1. A pool of fixed
    /// capacity has at most so many. Default 10.
    pub max_size: u32,
    /// The number of connections that are kept open; at most `max_size`. Default 0.
    pub min_size: u32,
    /// The maximum number of connections that are opened at the same time; at least 1. It limits
    /// the load of a server that was restarted. Default 2.
    pub max_connecting: u32,
    /// The maximum time of a check-out. With zero it fails if no connection is available. Default
    /// 30 s.
    pub wait_timeout: Option<Duration>,
    /// The maximum time in which a connection is opened, and that of a check before reuse; more
    /// than zero. Default 10 s.
    pub connect_timeout: Option<Duration>,
    /// A connection that was available for longer is closed; more than zero. Costs a reading of the
    /// clock at each check-out and check-in. Default `None`.
    pub idle_timeout: Option<Duration>,
    /// A connection that was opened earlier is closed: at once if it is available, otherwise when
    /// it is returned; more than zero. Each connection has a random limit between 90 % and all of
    /// this time, so that connections that were opened together are not closed together. Default 30
    /// min.
    pub max_lifetime: Option<Duration>,
    /// The order in which available connections are used. Default [`Reuse::Newest`].
    pub reuse: Reuse,
    /// Whether [`Manager::check`](super::Manager::check) is called for a connection that was used
    /// before. Default true.
    pub check_before_reuse: bool,
    /// The maximum pause between attempts to connect that fail. The first pause is 50 ms, each
    /// further one twice the last, with a random part of a quarter. A pause ends when another
    /// connection is opened. Default 5 s.
    pub max_backoff: Duration,
}

impl Options {
    /// The defaults.
    pub const DEFAULT: Self = Self {
        max_size: 10,
        min_size: 0,
        max_connecting: 2,
        wait_timeout: Some(Duration::from_secs(30)),
        connect_timeout: Some(Duration::from_secs(10)),
        idle_timeout: None,
        max_lifetime: Some(Duration::from_secs(30 * 60)),
        reuse: Reuse::Newest,
        check_before_reuse: true,
        max_backoff: Duration::from_secs(5),
    };

    /// Checks every option. Usable in a `const`, so a bad option fails the build.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with the option, its value and the rule.
    pub const fn validate(self) -> Result<Config, ConfigError> {
        if self.max_size == 0 {
            return Err(ConfigError::new("max_size", 0, "be at least 1"));
        }
        if self.min_size > self.max_size {
            return Err(ConfigError::new("min_size", self.min_size as u64, "be at most max_size"));
        }
        if self.max_connecting == 0 {
            return Err(ConfigError::new("max_connecting", 0, "be at least 1"));
        }
        if matches!(self.connect_timeout, Some(Duration::ZERO)) {
            return Err(ConfigError::new("connect_timeout", 0, "be more than 0"));
        }
        if matches!(self.idle_timeout, Some(Duration::ZERO)) {
            return Err(ConfigError::new("idle_timeout", 0, "be more than 0"));
        }
        if matches!(self.max_lifetime, Some(Duration::ZERO)) {
            return Err(ConfigError::new("max_lifetime", 0, "be more than 0"));
        }
        let pool = PoolOptions {
            max_pool_size: self.max_size,
            min_pool_size: self.min_size,
            max_idle_time: self.idle_timeout,
            max_connecting: self.max_connecting,
            wait_queue_timeout: self.wait_timeout,
            limits_establishing: true,
            reuse: self.reuse,
            ..PoolOptions::DEFAULT
        };
        match pool.validate() {
            Ok(pool) => Ok(Config { options: self, pool }),
            Err(error) => Err(error),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Validated options: only [`Options::validate`] creates them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    options: Options,
    pool: PoolConfig,
}

impl Config {
    /// The validated options.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }

    pub(super) const fn pool(&self) -> PoolConfig {
        self.pool
    }
}
