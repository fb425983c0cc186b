//! How lookups fail.

use crate::UriError;
use alloc::string::String;
use core::fmt;
use poolhouse_core::Reason;

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
    /// The last server that was asked could not be reached, or closed the connection. Holds what the operating system reported.
    Unreachable(Reason),
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
            Self::Referral => f.write_str("the name server returned only a referral to other name servers"),
            Self::Malformed => f.write_str("the name server's answer cannot be read"),
            Self::Unreachable(reason) => {
                f.write_str("the name server cannot be reached")?;
                reason.append(f)
            }
            Self::Timeout => f.write_str("the name server did not answer in time"),
            Self::Other(reason) => f.write_str(reason),
        }
    }
}

impl core::error::Error for LookupError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Unreachable(reason) => reason.source(),
            Self::Name
            | Self::NoSuchName
            | Self::NoRecords
            | Self::Text
            | Self::Aliases
            | Self::ServerFailed { .. }
            | Self::Referral
            | Self::Malformed
            | Self::Timeout
            | Self::Other(_) => None,
        }
    }
}

/// The hosts of a `mongodb+srv://` string cannot be used, or not be found. `name` is the name that was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SeedlistError {
    /// The hosts were not found.
    Srv {
        /// The name of the SRV records: `_mongodb._tcp.` and the host of the string, by default.
        name: String,
        /// Why not.
        error: LookupError,
    },
    /// Whether there is a TXT record was not found out.
    Txt {
        /// The name of the TXT record: the host of the string.
        name: String,
        /// Why not.
        error: LookupError,
    },
    /// There is no host in the answer.
    NoHosts {
        /// The name of the SRV records.
        name: String,
    },
    /// A host that is outside the domain of the string, or no host at all.
    ForeignHost {
        /// The name of the SRV records.
        name: String,
        /// What it is, as the DNS has it.
        target: String,
    },
    /// More than one TXT record.
    ManyTxt {
        /// The name of the TXT records.
        name: String,
        /// How many.
        count: usize,
    },
    /// The TXT record is wrong, or contradicts the string.
    Uri(UriError),
}

impl fmt::Display for SeedlistError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Srv { name, error } => write!(f, "SRV lookup of {name}: {error}"),
            Self::Txt { name, error } => write!(f, "TXT lookup of {name}: {error}"),
            Self::NoHosts { name } => write!(f, "SRV lookup of {name}: no host"),
            Self::ForeignHost { name, target } => {
                write!(f, "SRV lookup of {name}: {target} is outside the domain of the connection string")
            }
            Self::ManyTxt { name, count } => write!(f, "TXT lookup of {name}: there must be one record, not {count}"),
            Self::Uri(error) => write!(f, "with what the TXT record says: {error}"),
        }
    }
}

impl core::error::Error for SeedlistError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Srv { error, .. } | Self::Txt { error, .. } => Some(error),
            Self::Uri(error) => Some(error),
            Self::NoHosts { .. } | Self::ForeignHost { .. } | Self::ManyTxt { .. } => None,
        }
    }
}

impl From<UriError> for SeedlistError {
    fn from(error: UriError) -> Self {
        Self::Uri(error)
    }
}
