//! What a multiplexed pool is told before it starts, and may be told later.

use super::streams::IDS_MAX;
use crate::{config::ConfigError, config::millis_of};
use core::time::Duration;

/// How far away a host is, for whoever uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distance {
    /// Near: where requests go first.
    #[default]
    Local,
    /// Farther away: where requests go when no near host takes them.
    Remote,
    /// Not used: there are no connections to it.
    Ignored,
}

/// How many connections a host at some distance gets, and how many requests they carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostOptions {
    /// How many connections are kept open.
    pub core_connections: u32,
    /// How many there may be, those that are being established included.
    pub max_connections: u32,
    /// How many requests may be in flight on one connection.
    pub max_requests_per_connection: u32,
    /// How full the last connection may be, in requests in flight, before another one is opened beside it.
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

/// The options of a multiplexed pool, as the user states them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MuxOptions {
    /// How far away the host is. Default local.
    pub distance: Distance,
    /// For hosts that are near.
    pub local: HostOptions,
    /// For hosts that are farther away.
    pub remote: HostOptions,
    /// How many stream ids a connection has: 128 in version 2 of Cassandra's protocol, 32,768 from version 3 on. Does not change in the life of a pool.
    pub streams_per_connection: u32,
    /// How many requests may wait for a connection that takes them; 0: none, who finds no room is rejected at once. Default 256.
    pub max_queue_size: u32,
    /// How long a request may wait for that; zero: not at all. Default 5 s.
    pub pool_timeout: Duration,
    /// How long a connection that is not needed is kept, in case that it is needed again. Default 120 s.
    pub idle_timeout: Duration,
    /// After how much silence of the peer it is asked whether it is there; zero: never. Default 30 s.
    pub heartbeat_interval: Duration,
    /// How long it may take to answer that. Default 12 s.
    pub heartbeat_timeout: Duration,
    /// How often is looked whether there are more connections than are needed. Default 10 s.
    pub shrink_interval: Duration,
}

impl MuxOptions {
    /// The defaults where a connection has 32,768 stream ids: one connection.
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
    };

    /// The defaults where a connection has 128 stream ids: more connections under load.
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

    /// Checks every option; usable in a `const`, so that a bad option fails the build.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] names the option, its value and the rule.
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
        Ok(MuxConfig { options: self })
    }
}

impl Default for MuxOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Options that were checked: [`MuxOptions::validate`] is the only way to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MuxConfig {
    options: MuxOptions,
}

impl MuxConfig {
    /// The defaults where a connection has 32,768 stream ids.
    pub const DEFAULT: Self = Self { options: MuxOptions::DEFAULT };

    /// The options that were checked.
    #[must_use]
    pub const fn options(&self) -> &MuxOptions {
        &self.options
    }

    /// Those of the host's distance; `None` when it is ignored.
    #[must_use]
    pub const fn host(&self) -> Option<&HostOptions> {
        match self.options.distance {
            Distance::Local => Some(&self.options.local),
            Distance::Remote => Some(&self.options.remote),
            Distance::Ignored => None,
        }
    }

    /// These options with so many stream ids, which do not change in the life of a pool. Requests per connection are no more than that.
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
