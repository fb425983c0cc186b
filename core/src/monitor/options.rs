//! Options of a monitor: as given by the user, and validated.
//!
//! Read first: Server Monitoring, "serverMonitoringMode", "minHeartbeatFrequencyMS",
//! "heartbeatFrequencyMS" and "Streaming disabled"; URI Options, "List of specified options".

use core::fmt;
use core::time::Duration;

use crate::config::{ConfigError, limit, millis_of};

/// minHeartbeatFrequencyMS: the minimum interval between two checks of a server. Fixed.
pub const MIN_HEARTBEAT_FREQUENCY: Duration = Duration::from_millis(500);

/// The longest duration of an option: 2,147,483,647 ms, because peers use 32-bit numbers.
const LONGEST: Duration = Duration::from_millis(i32::MAX as u64);

/// How a server is monitored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ServerMonitoringMode {
    /// [`Stream`](Self::Stream), or [`Poll`](Self::Poll) in a function-as-a-service environment.
    #[default]
    Auto,
    /// The server replies when it changes, if it supports that; otherwise it is polled.
    Stream,
    /// The server is always polled.
    Poll,
}

impl ServerMonitoringMode {
    /// The name in the specifications.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Stream => "stream",
            Self::Poll => "poll",
        }
    }
}

impl fmt::Display for ServerMonitoringMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Monitoring options set by the user. [`MonitorOptions::validate`] checks them and returns a
/// [`MonitorConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MonitorOptions {
    /// heartbeatFrequencyMS: the interval between two checks unless a check is requested, and the
    /// longest time that a streaming server may delay a reply. 500 ms to 2,147,483,647 ms; default
    /// 10 s.
    pub heartbeat_frequency: Duration,
    /// connectTimeoutMS: the limit for a dial together with its first hello, and for the reply to
    /// any later hello. `None` and zero mean no limit; else at most 2,147,483,647 ms; default 10 s.
    pub connect_timeout: Option<Duration>,
    /// serverMonitoringMode; default `Auto`.
    pub server_monitoring_mode: ServerMonitoringMode,
    /// Whether this process runs as a function (AWS Lambda and similar), by the rules for
    /// `client.env` in MongoDB Handshake; default `false`.
    pub is_faas: bool,
    /// Whether the user selected the Stable API, so `hello` is used from the start; default `false`.
    pub server_api: bool,
}

impl MonitorOptions {
    /// Every option at its default.
    pub const DEFAULT: Self = Self {
        heartbeat_frequency: Duration::from_secs(10),
        connect_timeout: Some(Duration::from_secs(10)),
        server_monitoring_mode: ServerMonitoringMode::Auto,
        is_faas: false,
        server_api: false,
    };

    /// Checks the ranges.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for the first option that is out of its range: `heartbeatFrequencyMS` below
    /// 500 or above 2,147,483,647, `connectTimeoutMS` above 2,147,483,647.
    ///
    /// Source: Server Monitoring, "heartbeatFrequencyMS".
    pub const fn validate(self) -> Result<MonitorConfig, ConfigError> {
        let frequency = self.heartbeat_frequency;
        if frequency.as_nanos() < MIN_HEARTBEAT_FREQUENCY.as_nanos() {
            return Err(ConfigError::new("heartbeatFrequencyMS", millis_of(frequency), "be at least 500"));
        }
        if frequency.as_nanos() > LONGEST.as_nanos() {
            return Err(ConfigError::new("heartbeatFrequencyMS", millis_of(frequency), "be at most 2147483647"));
        }
        if let Err(error) = check_connect_timeout(self.connect_timeout) {
            return Err(error);
        }
        Ok(MonitorConfig { options: Self { connect_timeout: limit(self.connect_timeout), ..self } })
    }
}

/// Checks the range of `connectTimeoutMS`.
pub(crate) const fn check_connect_timeout(limit: Option<Duration>) -> Result<(), ConfigError> {
    match limit {
        Some(limit) if limit.as_nanos() > LONGEST.as_nanos() => {
            Err(ConfigError::new("connectTimeoutMS", millis_of(limit), "be at most 2147483647"))
        }
        Some(_) | None => Ok(()),
    }
}

impl Default for MonitorOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Validated options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MonitorConfig {
    options: MonitorOptions,
}

impl MonitorConfig {
    /// The options; a limit of zero is `None`.
    #[must_use]
    pub const fn options(&self) -> &MonitorOptions {
        &self.options
    }

    /// Whether streaming is used with a server that supports it.
    #[must_use]
    pub const fn streaming_enabled(&self) -> bool {
        match self.options.server_monitoring_mode {
            ServerMonitoringMode::Auto => !self.options.is_faas,
            ServerMonitoringMode::Stream => true,
            ServerMonitoringMode::Poll => false,
        }
    }

    /// heartbeatFrequencyMS.
    pub(super) const fn heartbeat_frequency(&self) -> Duration {
        self.options.heartbeat_frequency
    }

    /// The limit of a dial, or of a hello that is answered at once; `None` means no limit.
    pub(super) const fn answer_limit(&self) -> Option<Duration> {
        self.options.connect_timeout
    }

    /// The limit of an awaitable hello, or of the next reply of a stream; `None` means no limit.
    pub(super) const fn awaited_limit(&self) -> Option<Duration> {
        match self.answer_limit() {
            Some(limit) => Some(limit.saturating_add(self.options.heartbeat_frequency)),
            None => None,
        }
    }

    /// Whether connections use `hello` from the start.
    pub(super) const fn server_api(&self) -> bool {
        self.options.server_api
    }
}
