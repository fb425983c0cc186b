//! Options of a scan: as given by the user, and validated.
//!
//! Read first: Server Monitoring, "heartbeatFrequencyMS" and "cooldownMS"; Server Selection,
//! "serverSelectionTryOnce" and "socketCheckIntervalMS".

use crate::config::{ConfigError, limit, millis_of};
use crate::monitor::{MIN_HEARTBEAT_FREQUENCY, check_connect_timeout};
use crate::selection::SERVER_SELECTION_TIMEOUT;
use core::time::Duration;

/// cooldownMS: how long a server is not checked after a network error. Fixed.
pub const COOLDOWN: Duration = Duration::from_millis(5_000);
/// socketCheckIntervalMS: a connection that was idle for at least this time is checked before it is
/// used. Fixed.
pub const SOCKET_CHECK_INTERVAL: Duration = Duration::from_millis(5_000);

/// The longest duration of an option: 2,147,483,647 ms, because peers use 32-bit numbers.
const LONGEST: Duration = Duration::from_millis(i32::MAX as u64);

/// Options set by the user of a client without monitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScanOptions {
    /// heartbeatFrequencyMS: the maximum age of a scan when an operation begins; 500 to
    /// 2,147,483,647 ms, default 60 s.
    pub heartbeat_frequency: Duration,
    /// connectTimeoutMS: the limit for a dial together with its hello, and for any later hello.
    /// `None` and zero mean no limit; else at most 2,147,483,647 ms; default 10 s.
    pub connect_timeout: Option<Duration>,
    /// serverSelectionTimeoutMS, used only without `server_selection_try_once`; at most
    /// 2,147,483,647 ms, default 30 s. A selection may take longer, because a scan that has begun
    /// is finished.
    pub server_selection_timeout: Duration,
    /// serverSelectionTryOnce: whether an operation that finds no server fails after one scan,
    /// regardless of its duration; default `true`.
    pub server_selection_try_once: bool,
    /// Whether the user selected the Stable API, so `hello` is used from the start; default
    /// `false`.
    pub server_api: bool,
}

impl ScanOptions {
    /// Every option at its default.
    pub const DEFAULT: Self = Self {
        heartbeat_frequency: Duration::from_secs(60),
        connect_timeout: Some(Duration::from_secs(10)),
        server_selection_timeout: SERVER_SELECTION_TIMEOUT,
        server_selection_try_once: true,
        server_api: false,
    };

    /// Checks the ranges.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for the first option that is out of its range.
    ///
    /// Source: Server Monitoring, "heartbeatFrequencyMS"; URI Options.
    pub const fn validate(self) -> Result<ScanConfig, ConfigError> {
        let frequency = self.heartbeat_frequency;
        if frequency.as_nanos() < MIN_HEARTBEAT_FREQUENCY.as_nanos() {
            return Err(ConfigError::new("heartbeatFrequencyMS", millis_of(frequency), "be at least 500"));
        }
        if frequency.as_nanos() > LONGEST.as_nanos() {
            return Err(too_long("heartbeatFrequencyMS", frequency));
        }
        if let Err(error) = check_connect_timeout(self.connect_timeout) {
            return Err(error);
        }
        if self.server_selection_timeout.as_nanos() > LONGEST.as_nanos() {
            return Err(too_long("serverSelectionTimeoutMS", self.server_selection_timeout));
        }
        Ok(ScanConfig { options: Self { connect_timeout: limit(self.connect_timeout), ..self } })
    }
}

const fn too_long(option: &'static str, value: Duration) -> ConfigError {
    ConfigError::new(option, millis_of(value), "be at most 2147483647")
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Validated options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScanConfig {
    options: ScanOptions,
}

impl ScanConfig {
    /// The options; a limit of zero is `None`.
    #[must_use]
    pub const fn options(&self) -> &ScanOptions {
        &self.options
    }
}
