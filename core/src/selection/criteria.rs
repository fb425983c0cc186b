//! Requirements of an operation on its server.
//!
//! Read first: Server Selection, "Read preference" and "localThresholdMS"; Max Staleness, "API" and
//! "Smallest allowed value for maxStalenessSeconds".

use crate::topology::TopologyType;
use crate::{config::ConfigError, config::millis_of};
use core::fmt;
use core::time::Duration;

/// The minimum of maxStalenessSeconds, in seconds.
pub const MAX_STALENESS_MIN: u64 = 90;
/// idleWritePeriodMS: the interval at which an idle primary writes, so its secondaries do not
/// appear stale.
pub const IDLE_WRITE_PERIOD: Duration = Duration::from_secs(10);
/// The default localThresholdMS.
pub const LOCAL_THRESHOLD: Duration = Duration::from_millis(15);
/// The default heartbeatFrequencyMS of clients whose servers are monitored in the background.
const HEARTBEAT_FREQUENCY: Duration = Duration::from_secs(10);

/// Names and values of tags that a server must have, all of them. The empty set suits every server.
pub type TagSet<'a> = &'a [(&'a str, &'a str)];

/// The members of a replica set that a read may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReadMode {
    /// The primary.
    #[default]
    Primary,
    /// The primary if it is available, else a secondary.
    PrimaryPreferred,
    /// A secondary.
    Secondary,
    /// A secondary if one suits, else the primary.
    SecondaryPreferred,
    /// The primary or a secondary.
    Nearest,
}

impl ReadMode {
    /// Every mode.
    pub const ALL: [Self; 5] =
        [Self::Primary, Self::PrimaryPreferred, Self::Secondary, Self::SecondaryPreferred, Self::Nearest];

    /// The name in URIs and commands.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::PrimaryPreferred => "primaryPreferred",
            Self::Secondary => "secondary",
            Self::SecondaryPreferred => "secondaryPreferred",
            Self::Nearest => "nearest",
        }
    }

    /// The mode with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

impl fmt::Display for ReadMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A read preference as given by the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReadPreferenceOptions<'a> {
    /// The eligible members.
    pub mode: ReadMode,
    /// Tag sets in order of preference: the first one that a member has is used. An empty list
    /// suits every member, as `[{}]` does.
    pub tag_sets: &'a [TagSet<'a>],
    /// maxStalenessSeconds. `None` means no limit; in URIs -1.
    pub max_staleness_seconds: Option<u64>,
}

impl<'a> ReadPreferenceOptions<'a> {
    /// Performs the checks that need no topology.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: mode `primary` with a non-empty tag set (the error's value is the number of
    /// tag sets) or with a maxStalenessSeconds above 0.
    ///
    /// Source: Server Selection, "tag_sets"; Max Staleness, "API".
    pub const fn validate(self) -> Result<ReadPreference<'a>, ConfigError> {
        if matches!(self.mode, ReadMode::Primary) {
            let mut filled = 0;
            let mut place = 0;
            while place < self.tag_sets.len() {
                filled += !self.tag_sets[place].is_empty() as u64;
                place += 1;
            }
            if filled > 0 {
                return Err(ConfigError::new("readPreferenceTags", filled, "be absent when readPreference is primary"));
            }
            if let Some(seconds @ 1..) = self.max_staleness_seconds {
                let rule = "be absent when readPreference is primary";
                return Err(ConfigError::new("maxStalenessSeconds", seconds, rule));
            }
        }
        Ok(ReadPreference { options: self })
    }
}

/// A validated read preference. The default is `primary`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReadPreference<'a> {
    options: ReadPreferenceOptions<'a>,
}

impl<'a> ReadPreference<'a> {
    /// The preference for the primary.
    pub const PRIMARY: Self = Self::of(ReadMode::Primary);

    /// A read preference with this mode, any tags and any staleness.
    #[must_use]
    pub const fn of(mode: ReadMode) -> Self {
        Self { options: ReadPreferenceOptions { mode, tag_sets: &[], max_staleness_seconds: None } }
    }

    /// The options.
    #[must_use]
    pub const fn options(&self) -> &ReadPreferenceOptions<'a> {
        &self.options
    }
}

/// For example `secondary, tag sets [{dc: ny}, {}], maxStalenessSeconds 120`.
impl fmt::Display for ReadPreference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.options.mode.fmt(f)?;
        for (place, set) in self.options.tag_sets.iter().enumerate() {
            f.write_str(if place == 0 { ", tag sets [{" } else { ", {" })?;
            for (place, (name, value)) in set.iter().enumerate() {
                write!(f, "{}{name}: {value}", if place == 0 { "" } else { ", " })?;
            }
            f.write_str("}")?;
        }
        if !self.options.tag_sets.is_empty() {
            f.write_str("]")?;
        }
        match self.options.max_staleness_seconds {
            Some(seconds) => write!(f, ", maxStalenessSeconds {seconds}"),
            None => Ok(()),
        }
    }
}

/// Whether an operation reads or writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A read: may use any server that its read preference allows.
    #[default]
    Read,
    /// A write: must use a server that accepts writes; its read preference is ignored.
    Write,
}

/// Requirements of an operation on its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SelectionCriteria<'a> {
    operation: Operation,
    read_preference: ReadPreference<'a>,
    local_threshold: Duration,
    heartbeat_frequency: Duration,
}

impl<'a> SelectionCriteria<'a> {
    /// The criteria of a read.
    #[must_use]
    pub const fn read(read_preference: ReadPreference<'a>) -> Self {
        Self {
            operation: Operation::Read,
            read_preference,
            local_threshold: LOCAL_THRESHOLD,
            heartbeat_frequency: HEARTBEAT_FREQUENCY,
        }
    }

    /// The criteria of a write.
    #[must_use]
    pub const fn write() -> Self {
        Self { operation: Operation::Write, ..Self::read(ReadPreference::PRIMARY) }
    }

    /// Sets localThresholdMS: the maximum difference from the shortest round-trip time; default 15
    /// ms. With zero, only servers with the shortest round-trip time are in the window.
    #[must_use]
    pub const fn with_local_threshold(self, local_threshold: Duration) -> Self {
        Self { local_threshold, ..self }
    }

    /// Sets heartbeatFrequencyMS of the client, on which the staleness limit depends; default 10 s.
    #[must_use]
    pub const fn with_heartbeat_frequency(self, heartbeat_frequency: Duration) -> Self {
        Self { heartbeat_frequency, ..self }
    }

    /// Whether it reads or writes.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        self.operation
    }

    /// The read preference; `primary` for a write.
    #[must_use]
    pub const fn read_preference(&self) -> &ReadPreference<'a> {
        &self.read_preference
    }

    /// localThresholdMS.
    #[must_use]
    pub const fn local_threshold(&self) -> Duration {
        self.local_threshold
    }

    /// heartbeatFrequencyMS.
    #[must_use]
    pub const fn heartbeat_frequency(&self) -> Duration {
        self.heartbeat_frequency
    }

    /// Checks maxStalenessSeconds against a deployment: the option is used in replica sets only.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: in a replica set, below 90 s or below heartbeatFrequencyMS + 10 s.
    ///
    /// Source: Max Staleness, "Smallest allowed value for maxStalenessSeconds".
    pub fn check(&self, topology_type: TopologyType) -> Result<(), ConfigError> {
        let is_set = matches!(topology_type, TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary);
        // A write has no staleness limit.
        let Some(seconds) = self.read_preference.options.max_staleness_seconds else { return Ok(()) };
        if !is_set {
            return Ok(());
        }
        if seconds < MAX_STALENESS_MIN {
            return Err(ConfigError::new("maxStalenessSeconds", seconds, "be at least 90"));
        }
        let least_ms = millis_of(self.heartbeat_frequency.saturating_add(IDLE_WRITE_PERIOD));
        if seconds.saturating_mul(1_000) < least_ms {
            return Err(ConfigError::new(
                "maxStalenessSeconds",
                seconds,
                "be at least heartbeatFrequencyMS and 10 s more",
            ));
        }
        Ok(())
    }
}

/// `write`, or `read from <read preference>`.
impl fmt::Display for SelectionCriteria<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation {
            Operation::Write => f.write_str("write"),
            Operation::Read => write!(f, "read from {}", self.read_preference),
        }
    }
}
