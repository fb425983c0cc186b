//! What a pool is told before it starts.
//!
//! Read first: CMAP, "Connection Pool Options" (CMAP-01..10).

use crate::config::{ConfigError, millis_of};
use crate::time::nanos_of;
use core::time::Duration;

/// The options of a pool, as the user states them. All pools of a client share them (CMAP-07).
///
/// The deprecated `waitQueueSize` and `waitQueueMultiple` do not exist here: bound the number of tasks
/// that check out, or the time they wait (CMAP-09).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolOptions {
    /// `maxPoolSize`: how many connections there may be, pending and in use included; 0 is no limit. Default 100.
    pub max_pool_size: u32,
    /// `minPoolSize`: how many connections are kept while the pool is ready; at most `max_pool_size`. Default 0.
    pub min_pool_size: u32,
    /// `maxIdleTimeMS`: a connection that was available for longer is closed; zero is never. Default zero.
    pub max_idle_time: Duration,
    /// `maxConnecting`: how many connections may be established at once; at least 1. Default 2.
    pub max_connecting: u32,
    /// `waitQueueTimeoutMS`: how long a check-out may wait for a connection to be there or to begin to be
    /// established for it, if it brings no deadline of its own; zero is no limit. Default zero.
    pub wait_queue_timeout: Duration,
    /// `loadBalanced`: generations are kept per `serviceId`. Default false.
    pub load_balanced: bool,
    /// Whether the pool works in the background (CMAP-57): keeps `min_pool_size` and closes perished
    /// connections when they perish. Without it a check-out triggers the filling (CMAP-55) and perished
    /// connections are closed when a check-out meets them; the pool then asks for no wake-ups but those of
    /// its waiters. Default true.
    pub background: bool,
}

impl PoolOptions {
    /// The defaults of the specification.
    pub const DEFAULT: Self = Self {
        max_pool_size: 100,
        min_pool_size: 0,
        max_idle_time: Duration::ZERO,
        max_connecting: 2,
        wait_queue_timeout: Duration::ZERO,
        load_balanced: false,
        background: true,
    };

    /// Checks every option; usable in a `const`, so that a bad option fails the build.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] names the option, its value and the rule: `maxConnecting` of 0, or a `minPoolSize`
    /// above a `maxPoolSize` that is not 0.
    ///
    /// Source: CMAP, "Connection Pool Options" (CMAP-01..06).
    pub const fn validate(self) -> Result<PoolConfig, ConfigError> {
        if self.max_connecting == 0 {
            return Err(ConfigError::new("maxConnecting", 0, "be at least 1"));
        }
        if self.max_pool_size > 0 && self.min_pool_size > self.max_pool_size {
            return Err(ConfigError::new("minPoolSize", self.min_pool_size as u64, "be at most maxPoolSize"));
        }
        Ok(PoolConfig::of(self))
    }

    /// The options that differ from their defaults, by their standard names; times in milliseconds (CMAP-102).
    pub fn non_default(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let default = Self::DEFAULT;
        [
            ("maxPoolSize", u64::from(self.max_pool_size), u64::from(default.max_pool_size)),
            ("minPoolSize", u64::from(self.min_pool_size), u64::from(default.min_pool_size)),
            ("maxIdleTimeMS", millis_of(self.max_idle_time), millis_of(default.max_idle_time)),
            ("maxConnecting", u64::from(self.max_connecting), u64::from(default.max_connecting)),
            ("waitQueueTimeoutMS", millis_of(self.wait_queue_timeout), millis_of(default.wait_queue_timeout)),
        ]
        .into_iter()
        .filter(|(_, value, default)| value != default)
        .map(|(name, value, _)| (name, value))
    }
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Options that were checked: [`PoolOptions::validate`] is the only way to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolConfig {
    pub(super) options: PoolOptions,
    /// `max_idle_time` in nanoseconds: asked for at each check-out.
    pub(super) idle_ns: u64,
}

impl PoolConfig {
    /// The defaults of the specification.
    pub const DEFAULT: Self = Self::of(PoolOptions::DEFAULT);

    const fn of(options: PoolOptions) -> Self {
        Self { options, idle_ns: nanos_of(options.max_idle_time) }
    }

    /// These options, in the mode of others: what does not change in the life of a pool.
    pub(crate) const fn in_mode_of(self, other: Self) -> Self {
        let PoolOptions { load_balanced, background, .. } = other.options;
        Self::of(PoolOptions { load_balanced, background, ..self.options })
    }

    /// The options that were checked.
    #[must_use]
    pub const fn options(&self) -> &PoolOptions {
        &self.options
    }
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self::DEFAULT
    }
}
