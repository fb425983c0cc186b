//! How lookups fail.

use crate::uri::UriError;
use alloc::string::String;
use core::fmt;

/// A lookup that found nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LookupError {
    /// What is to be looked up is no name: empty, too long, or with a character that names do not have.
    Name,
    /// The name does not exist (NXDOMAIN).
    NoSuchName,
    /// The name exists, but has nothing of that kind (NODATA).
    NoRecords,
    /// A text that is not UTF-8.
    Text,
    /// More aliases from the name to its records than are followed; perhaps they go round in circles.
    Aliases,
    /// The last server that was asked could not or would not answer.
    ServerFailed {
        /// Its response code: 2 is SERVFAIL, 5 is REFUSED.
        code: u16,
    },
    /// The last server that was asked named others to ask, and had no answer: it resolves nothing for its clients.
    Referral,
    /// The last server that was asked gave an answer that cannot be read.
    Malformed,
    /// The last server that was asked could not be reached.
    Unreachable,
    /// The last server that was asked did not answer in time.
    Timeout,
    /// Something else, of a resolver that is not ours.
    Other(String),
}

impl LookupError {
    /// Whether it is certain that there are no such records.
    #[must_use]
    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::NoSuchName | Self::NoRecords)
    }
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("not a name that can be looked up"),
            Self::NoSuchName => f.write_str("the name does not exist"),
            Self::NoRecords => f.write_str("the name has no such records"),
            Self::Text => f.write_str("a TXT record is not UTF-8"),
            Self::Aliases => f.write_str("the name has too many aliases, or they form a loop"),
            Self::ServerFailed { code } => write!(f, "the name server failed with code {code}"),
            Self::Referral => f.write_str("the name server only knows others to ask"),
            Self::Malformed => f.write_str("the name server's answer cannot be read"),
            Self::Unreachable => f.write_str("the name server cannot be reached"),
            Self::Timeout => f.write_str("the name server did not answer in time"),
            Self::Other(reason) => f.write_str(reason),
        }
    }
}

impl core::error::Error for LookupError {}

/// The hosts of a `mongodb+srv://` string cannot be used, or not be found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SeedlistError {
    /// The hosts were not found.
    Srv(LookupError),
    /// Whether there is a TXT record was not found out.
    Txt(LookupError),
    /// There is no host in the answer.
    NoHosts,
    /// A host that is outside the domain of the string, or no host at all.
    ForeignHost {
        /// What it is, as the DNS has it.
        target: String,
    },
    /// More than one TXT record.
    ManyTxt {
        /// How many.
        count: usize,
    },
    /// The TXT record is wrong, or contradicts the string.
    Uri(UriError),
}

impl fmt::Display for SeedlistError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Srv(error) => write!(f, "SRV lookup: {error}"),
            Self::Txt(error) => write!(f, "TXT lookup: {error}"),
            Self::NoHosts => f.write_str("SRV lookup: no host"),
            Self::ForeignHost { target } => {
                write!(f, "SRV lookup: {target} is outside the domain of the connection string")
            }
            Self::ManyTxt { count } => write!(f, "TXT lookup: there must be one record, not {count}"),
            Self::Uri(error) => write!(f, "with what the TXT record says: {error}"),
        }
    }
}

impl core::error::Error for SeedlistError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Srv(error) | Self::Txt(error) => Some(error),
            Self::Uri(error) => Some(error),
            Self::NoHosts | Self::ForeignHost { .. } | Self::ManyTxt { .. } => None,
        }
    }
}

impl From<UriError> for SeedlistError {
    fn from(error: UriError) -> Self {
        Self::Uri(error)
    }
}
