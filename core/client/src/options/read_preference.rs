//! A read preference that owns its data.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use poolhouse_core::ConfigError;
use poolhouse_core::selection::{MAX_STALENESS_MIN, ReadMode, ReadPreference, ReadPreferenceOptions, TagSet};
use poolhouse_uri::ConnectionString;

/// The owned form of [`ReadPreferenceOptions`]. The default is `primary`.
///
/// It can be converted from a [`ReadMode`], a [`ReadPreference`] or [`ReadPreferenceOptions`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OwnedReadPreference {
    /// The mode.
    pub mode: ReadMode,
    /// Tag sets, in order of preference: the first one that matches a member applies.
    pub tag_sets: Vec<Vec<(String, String)>>,
    /// `maxStalenessSeconds`: at least 90; `None` is no limit.
    pub max_staleness_seconds: Option<u64>,
}

impl OwnedReadPreference {
    pub(super) fn of_uri(uri: &ConnectionString) -> Self {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Self {
            mode: uri.read_mode(),
            tag_sets: uri.tag_sets().iter().map(|set| set.iter().map(owned).collect()).collect(),
            max_staleness_seconds: uri.max_staleness_seconds(),
        }
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let pairs = self.pairs();
        self.borrowed(&tag_sets(&pairs)).validate()?;
        match self.max_staleness_seconds.filter(|seconds| *seconds < MAX_STALENESS_MIN) {
            Some(seconds) => Err(ConfigError::new("maxStalenessSeconds", seconds, "be at least 90")),
            None => Ok(()),
        }
    }

    /// Borrows the tags; the first step of [`borrowed`](Self::borrowed). Allocates only if there
    /// are tags.
    pub(in super::super) fn pairs(&self) -> Vec<Vec<(&str, &str)>> {
        self.tag_sets
            .iter()
            .map(|set| set.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect())
            .collect()
    }

    /// Borrows the read preference, with the result of [`tag_sets`] for its [`pairs`](Self::pairs).
    pub(in super::super) const fn borrowed<'a>(&self, tag_sets: &'a [TagSet<'a>]) -> ReadPreferenceOptions<'a> {
        ReadPreferenceOptions { mode: self.mode, tag_sets, max_staleness_seconds: self.max_staleness_seconds }
    }
}

/// Borrows each tag set as a slice, the second step of [`OwnedReadPreference::borrowed`].
pub(in super::super) fn tag_sets<'a>(pairs: &'a [Vec<(&'a str, &'a str)>]) -> Vec<TagSet<'a>> {
    pairs.iter().map(Vec::as_slice).collect()
}

impl From<ReadMode> for OwnedReadPreference {
    fn from(mode: ReadMode) -> Self {
        Self { mode, ..Self::default() }
    }
}

impl From<ReadPreferenceOptions<'_>> for OwnedReadPreference {
    fn from(options: ReadPreferenceOptions<'_>) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            mode: options.mode,
            tag_sets: options.tag_sets.iter().map(|set| set.iter().map(owned).collect()).collect(),
            max_staleness_seconds: options.max_staleness_seconds,
        }
    }
}

impl From<ReadPreference<'_>> for OwnedReadPreference {
    fn from(preference: ReadPreference<'_>) -> Self {
        Self::from(*preference.options())
    }
}
