//! The options of a pool.
//!
//! Read first: CMAP, "Connection Pool Options".

use crate::config::{ConfigError, limit, millis_of};
use crate::time::nanos_of;
use core::time::Duration;

/// The options of a pool, as the user sets them. All pools of a client share them.
///
/// The deprecated `waitQueueSize` and `waitQueueMultiple` are not supported: limit the number of
/// tasks that check out, or the time that they wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct PoolOptions {
    /// `maxPoolSize`: the maximum number of connections, pending and in use included; 0 means no
    /// limit. Default 100.
    pub max_pool_size: u32,
    /// `minPoolSize`: the number of connections kept while the pool is ready; at most
    /// `max_pool_size`. In any second, at most this many are opened for it. Default 0.
    pub min_pool_size: u32,
    /// `maxIdleTimeMS`: a connection that was available for longer is closed, also one of the minimum,
    /// which is then opened anew. `None`, the default, and zero mean never.
    pub max_idle_time: Option<Duration>,
    /// `maxConnecting`: the maximum number of connections that are established at the same time; at
    /// least 1. Default 2.
    pub max_connecting: u32,
    /// `waitQueueTimeoutMS`: the maximum time that a check-out without a deadline waits until a
    /// connection is available, or until one begins to be established for it. `None`, the default,
    /// and zero mean no limit.
    pub wait_queue_timeout: Option<Duration>,
    /// Whether `wait_queue_timeout` continues to bound a check-out while a connection is being
    /// established for it. Default false, as the specification requires.
    pub limits_establishing: bool,
    /// `loadBalanced`: generations are kept per `serviceId`. Default false. The pool's memory must
    /// have slots for services.
    pub load_balanced: bool,
    /// Which available connection a check-out takes. Default [`Reuse::Newest`], as the
    /// specification requires.
    pub reuse: Reuse,
    /// Whether the pool works in the background: keeps `min_pool_size` and closes
    /// perished connections when they perish. Without it, a check-out triggers the filling,
    /// perished connections are closed when a check-out finds them, and the pool's timeouts are
    /// those of its waiters only. Default true.
    pub background: bool,
}

impl PoolOptions {
    /// The defaults of the specification.
    pub const DEFAULT: Self = Self {
        max_pool_size: 100,
        min_pool_size: 0,
        max_idle_time: None,
        max_connecting: 2,
        wait_queue_timeout: None,
        limits_establishing: false,
        load_balanced: false,
        reuse: Reuse::Newest,
        background: true,
    };

    /// Checks every option. Usable in a `const`, so a bad option fails the build.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] contains the option, its value and the rule: `maxConnecting` of 0, or a
    /// `minPoolSize` above a `maxPoolSize` that is not 0.
    ///
    /// Source: CMAP, "Connection Pool Options".
    pub const fn validate(self) -> Result<PoolConfig, ConfigError> {
        if self.max_connecting == 0 {
            return Err(ConfigError::new("maxConnecting", 0, "be at least 1"));
        }
        if self.max_pool_size > 0 && self.min_pool_size > self.max_pool_size {
            return Err(ConfigError::new("minPoolSize", self.min_pool_size as u64, "be at most maxPoolSize"));
        }
        let (max_idle_time, wait_queue_timeout) = (limit(self.max_idle_time), limit(self.wait_queue_timeout));
        Ok(PoolConfig::of(Self { max_idle_time, wait_queue_timeout, ..self }))
    }

    /// The options that differ from their defaults, by their standard names; times in whole
    /// milliseconds, at least 1.
    pub fn non_default(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let default = Self::DEFAULT;
        let count = |count: u32| Some(u64::from(count));
        let millis = |given: Option<Duration>| limit(given).map(|limit| millis_of(limit).max(1));
        [
            ("maxPoolSize", count(self.max_pool_size), count(default.max_pool_size)),
            ("minPoolSize", count(self.min_pool_size), count(default.min_pool_size)),
            ("maxIdleTimeMS", millis(self.max_idle_time), millis(default.max_idle_time)),
            ("maxConnecting", count(self.max_connecting), count(default.max_connecting)),
            ("waitQueueTimeoutMS", millis(self.wait_queue_timeout), millis(default.wait_queue_timeout)),
        ]
        .into_iter()
        .filter(|(_, value, default)| value != default)
        .filter_map(|(name, value, _)| Some((name, value?)))
    }
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The order in which available connections are reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Reuse {
    /// The connection that was returned last: the others can become idle and be closed (LIFO).
    #[default]
    Newest,
    /// The connection that was returned first: all connections are used equally (FIFO). Each
    /// check-out reads the clock.
    Oldest,
}

/// Validated options: only [`PoolOptions::validate`] creates them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolConfig {
    pub(super) options: PoolOptions,
    /// `max_idle_time` in nanoseconds, read at each check-out; 0 means never.
    pub(super) idle_ns: u64,
    /// Whether check-outs can take the fast path: the pool works in the background and reuses the
    /// newest connection.
    pub(super) is_plain: bool,
}

impl PoolConfig {
    /// The defaults of the specification.
    pub const DEFAULT: Self = Self::of(PoolOptions::DEFAULT);

    const fn of(options: PoolOptions) -> Self {
        let idle_ns = match options.max_idle_time {
            Some(limit) => nanos_of(limit),
            None => 0,
        };
        let is_plain = options.background && matches!(options.reuse, Reuse::Newest);
        Self { options, idle_ns, is_plain }
    }

    /// These options, with the `load_balanced` and `background` of `other`, which do not change
    /// while a pool exists.
    #[doc(hidden)]
    pub const fn in_mode_of(self, other: Self) -> Self {
        let PoolOptions { load_balanced, background, .. } = other.options;
        Self::of(PoolOptions { load_balanced, background, ..self.options })
    }

    /// The validated options.
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
