//! The options of a scan, as given and as valid.
//!
//! Read first: Server Monitoring, "heartbeatFrequencyMS" and "cooldownMS"; Server Selection, "serverSelectionTryOnce" and
//! "socketCheckIntervalMS".

use crate::monitor::{MIN_HEARTBEAT_FREQUENCY, check_connect_timeout};
use crate::selection::SERVER_SELECTION_TIMEOUT;
use crate::{config::ConfigError, config::millis_of};
use core::time::Duration;

/// cooldownMS: how long a server is left alone after a network error. Fixed (MON-58).
pub const COOLDOWN: Duration = Duration::from_millis(5_000);
/// socketCheckIntervalMS: a connection that was idle this long is checked before it is used. Fixed (MON-64).
pub const SOCKET_CHECK_INTERVAL: Duration = Duration::from_millis(5_000);

/// The longest time that an option may say: 2,147,483,647 ms, what a peer takes as a 32-bit number.
const LONGEST: Duration = Duration::from_millis(i32::MAX as u64);

/// What the user wants of a client without monitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScanOptions {
    /// heartbeatFrequencyMS: how old a scan may be when an operation begins; 500 to 2,147,483,647 ms, default 60 s.
    pub heartbeat_frequency: Duration,
    /// connectTimeoutMS: the time for a connection with its hello, and for any later hello; `None` = without limit; more than
    /// zero and at most 2,147,483,647 ms, default 10 s.
    pub connect_timeout: Option<Duration>,
    /// serverSelectionTimeoutMS, which counts only without `server_selection_try_once`; at most 2,147,483,647 ms, default 30 s.
    /// No hard limit: a scan that has begun is finished.
    pub server_selection_timeout: Duration,
    /// serverSelectionTryOnce: whether an operation that finds no server fails after one scan, however long that takes; default `true`.
    pub server_selection_try_once: bool,
    /// Whether the user asked for the Stable API, so that `hello` is used from the start; default `false`.
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
        Ok(ScanConfig { options: self })
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

/// Options that were found valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScanConfig {
    options: ScanOptions,
}

impl ScanConfig {
    /// The options as they were given.
    #[must_use]
    pub const fn options(&self) -> &ScanOptions {
        &self.options
    }
}
