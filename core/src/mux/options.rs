//! The options of a multiplexed pool.

use super::streams::IDS_MAX;
use crate::Cause;
use crate::{config::ConfigError, config::millis_of};
use core::time::Duration;

/// The distance of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distance {
    /// Near: preferred for requests.
    #[default]
    Local,
    /// Farther away: used when no near host takes a request.
    Remote,
    /// Not used: the pool has no connections to it.
    Ignored,
}

/// The limits of connections and requests for a host at a given distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostOptions {
    /// The number of connections that are kept open.
    pub core_connections: u32,
    /// The maximum number of connections, pending ones included.
    pub max_connections: u32,
    /// The maximum number of requests in flight on one connection.
    pub max_requests_per_connection: u32,
    /// One more connection is opened when more than this number of requests are in flight on the
    /// last connection, while all others are full.
    pub new_connection_threshold: u32,
}

impl HostOptions {
    const fn validate(&self, streams: u32) -> Result<(), ConfigError> {
        if self.max_connections == 0 {
            return Err(ConfigError::new("maxConnections", 0, "be at least 1"));
        }
        if self.core_connections > self.max_connections {
            return Err(ConfigError::new("coreConnections", self.core_connections as u64, "be at most maxConnections"));
        }
        let requests = self.max_requests_per_connection;
        if requests == 0 || requests > streams {
            return Err(ConfigError::new(
                "maxRequestsPerConnection",
                requests as u64,
                "be from 1 to streamsPerConnection",
            ));
        }
        if self.new_connection_threshold > requests {
            let threshold = self.new_connection_threshold as u64;
            return Err(ConfigError::new("newConnectionThreshold", threshold, "be at most maxRequestsPerConnection"));
        }
        Ok(())
    }
}

/// The options of a multiplexed pool, as the user sets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MuxOptions {
    /// The distance of the host. Default local.
    pub distance: Distance,
    /// The limits for a near host.
    pub local: HostOptions,
    /// The limits for a host farther away.
    pub remote: HostOptions,
    /// The number of stream ids of a connection: 128 in version 2 of Cassandra's protocol, 32,768
    /// from version 3 on. Does not change while a pool exists.
    pub streams_per_connection: u32,
    /// The maximum number of waiting requests. With 0, a request that no connection takes is
    /// rejected at once. Default 256.
    pub max_queue_size: u32,
    /// The maximum time that a request waits for a connection. With zero, requests do not wait.
    /// Default 5 s.
    pub pool_timeout: Duration,
    /// The time that a surplus connection is kept for resurrection. Default 120 s.
    pub idle_timeout: Duration,
    /// The interval in which a heartbeat is sent on each connection; zero means never. Default 30 s.
    pub heartbeat_interval: Duration,
    /// The maximum time until a heartbeat is answered, or other bytes arrive. Default 12 s.
    pub heartbeat_timeout: Duration,
    /// The interval at which surplus connections are detected. Default 10 s.
    pub shrink_interval: Duration,
    /// The pause before a connection that failed is replaced. After each further failure, until a new
    /// connection receives a reply, it is twice the last. Each is shortened by a random part of up to a
    /// quarter ([`Mux::set_entropy`](super::Mux::set_entropy)). At least 1 ms; default 50 ms.
    pub backoff_min: Duration,
    /// The longest pause after a network error or timeout, and after a connection that was established has
    /// failed: a host that listens again is tried within this time. Default 500 ms.
    ///
    /// After another failure to establish, such as a refused password, pauses grow up to 60 s, or to this
    /// option if that is longer: another attempt would probably fail as well, and costs the host a handshake.
    pub backoff_max: Duration,
}

/// The longest pause after a failure that is no network error, unless `backoff_max` is longer.
const BACKOFF_REFUSED: Duration = Duration::from_secs(60);

impl MuxOptions {
    /// The defaults for connections with 32,768 stream ids: one connection to each host.
    pub const DEFAULT: Self = Self {
        distance: Distance::Local,
        local: HostOptions {
            core_connections: 1,
            max_connections: 1,
            max_requests_per_connection: 1024,
            new_connection_threshold: 800,
        },
        remote: HostOptions {
            core_connections: 1,
            max_connections: 1,
            max_requests_per_connection: 256,
            new_connection_threshold: 200,
        },
        streams_per_connection: IDS_MAX,
        max_queue_size: 256,
        pool_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(120),
        heartbeat_interval: Duration::from_secs(30),
        heartbeat_timeout: Duration::from_secs(12),
        shrink_interval: Duration::from_secs(10),
        backoff_min: Duration::from_millis(50),
        backoff_max: Duration::from_millis(500),
    };

    /// The defaults for connections with 128 stream ids: more connections when the load rises.
    pub const DEFAULT_128: Self = Self {
        local: HostOptions {
            core_connections: 2,
            max_connections: 8,
            max_requests_per_connection: 128,
            new_connection_threshold: 100,
        },
        remote: HostOptions {
            core_connections: 1,
            max_connections: 2,
            max_requests_per_connection: 128,
            new_connection_threshold: 100,
        },
        streams_per_connection: 128,
        ..Self::DEFAULT
    };

    /// Checks every option. Usable in a `const`, so a bad option fails the build.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] contains the option, its value and the rule.
    pub const fn validate(self) -> Result<MuxConfig, ConfigError> {
        let streams = self.streams_per_connection;
        if streams == 0 || streams > IDS_MAX {
            return Err(ConfigError::new("streamsPerConnection", streams as u64, "be from 1 to 32768"));
        }
        if let Err(error) = self.local.validate(streams) {
            return Err(error);
        }
        if let Err(error) = self.remote.validate(streams) {
            return Err(error);
        }
        if self.shrink_interval.is_zero() {
            return Err(ConfigError::new("shrinkIntervalMS", 0, "be more than 0"));
        }
        if self.heartbeat_timeout.is_zero() && !self.heartbeat_interval.is_zero() {
            let timeout = millis_of(self.heartbeat_timeout);
            return Err(ConfigError::new("heartbeatTimeoutMS", timeout, "be more than 0 where there are heartbeats"));
        }
        if self.backoff_min.as_nanos() < 1_000_000 {
            return Err(ConfigError::new("backoffMinMS", 0, "be at least 1"));
        }
        if self.backoff_max.as_nanos() < self.backoff_min.as_nanos() {
            return Err(ConfigError::new("backoffMaxMS", millis_of(self.backoff_max), "be at least backoffMinMS"));
        }
        Ok(MuxConfig { options: self })
    }
}

impl Default for MuxOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Validated options: only [`MuxOptions::validate`] creates them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MuxConfig {
    options: MuxOptions,
}

impl MuxConfig {
    /// The defaults for connections with 32,768 stream ids.
    pub const DEFAULT: Self = Self { options: MuxOptions::DEFAULT };

    /// The validated options.
    #[must_use]
    pub const fn options(&self) -> &MuxOptions {
        &self.options
    }

    /// The limits for the host's distance; `None` if the host is ignored.
    #[must_use]
    pub const fn host(&self) -> Option<&HostOptions> {
        match self.options.distance {
            Distance::Local => Some(&self.options.local),
            Distance::Remote => Some(&self.options.remote),
            Distance::Ignored => None,
        }
    }

    /// The longest pause after a failure for this cause.
    pub(super) fn backoff_after(&self, cause: Cause) -> Duration {
        let longest = self.options.backoff_max;
        if cause.is_network() { longest } else { longest.max(BACKOFF_REFUSED) }
    }

    /// These options with another number of stream ids, which also limits the requests per
    /// connection.
    pub(super) fn with_streams(self, streams_per_connection: u32) -> Self {
        let [local, remote] = [self.options.local, self.options.remote].map(|host| {
            let max_requests_per_connection = host.max_requests_per_connection.min(streams_per_connection);
            let new_connection_threshold = host.new_connection_threshold.min(max_requests_per_connection);
            HostOptions { max_requests_per_connection, new_connection_threshold, ..host }
        });
        Self { options: MuxOptions { local, remote, streams_per_connection, ..self.options } }
    }
}

impl Default for MuxConfig {
    fn default() -> Self {
        Self::DEFAULT
    }
}
