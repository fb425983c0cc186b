//! Errors of lookups.

use crate::UriError;
use alloc::string::String;
use core::fmt;
use poolhouse_core::Reason;

/// A failed lookup.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LookupError {
    /// The name is invalid: empty, too long, or with a character that is not allowed in names.
    Name,
    /// The name does not exist (NXDOMAIN).
    NoSuchName,
    /// The name exists, but has no records of this type (NODATA).
    NoRecords,
    /// A TXT record is not UTF-8.
    Text,
    /// Too many aliases between the name and its records, possibly a loop.
    Aliases,
    /// The last queried server returned an error.
    ServerFailed {
        /// Its response code: 2 is SERVFAIL, 5 is REFUSED.
        code: u16,
    },
    /// The last queried server returned only a referral to other servers: it is not a recursive
    /// resolver.
    Referral,
    /// The last queried server returned a malformed reply.
    Malformed,
    /// The last queried server could not be reached, or closed the connection. Contains the error
    /// of the operating system.
    Unreachable(Reason),
    /// The last queried server did not reply in time.
    Timeout,
    /// Another error, returned by a custom resolver.
    Other(String),
}

impl LookupError {
    /// Whether it is certain that no such records exist.
    #[must_use]
    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::NoSuchName | Self::NoRecords)
    }
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("the name is invalid, so it cannot be looked up"),
            Self::NoSuchName => f.write_str("the name does not exist"),
            Self::NoRecords => f.write_str("the name has no such records"),
            Self::Text => f.write_str("a TXT record is not UTF-8"),
            Self::Aliases => f.write_str("the name has too many aliases, or they form a loop"),
            Self::ServerFailed { code } => write!(f, "the name server failed with code {code}"),
            Self::Referral => f.write_str("the name server returned only a referral to other name servers"),
            Self::Malformed => f.write_str("the name server's reply is malformed"),
            Self::Unreachable(reason) => {
                f.write_str("the name server cannot be reached")?;
                reason.append(f)
            }
            Self::Timeout => f.write_str("the name server did not reply in time"),
            Self::Other(reason) => f.write_str(reason),
        }
    }
}

poolhouse_wire::debug_as_display!(LookupError);

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

/// The hosts of a `mongodb+srv://` string were not found, or are not valid. `name` is the name that
/// was looked up.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SeedlistError {
    /// The SRV lookup failed.
    Srv {
        /// The name of the SRV records: `_mongodb._tcp.` and the host of the string, by default.
        name: String,
        /// The cause.
        error: LookupError,
    },
    /// The TXT lookup failed, so it is unknown whether a record exists.
    Txt {
        /// The name of the TXT record: the host of the string.
        name: String,
        /// The cause.
        error: LookupError,
    },
    /// The reply contains no host.
    NoHosts {
        /// The name of the SRV records.
        name: String,
    },
    /// A host is outside the domain of the string, or is not a valid host name.
    ForeignHost {
        /// The name of the SRV records.
        name: String,
        /// The host, as in the DNS record.
        target: String,
    },
    /// There is more than one TXT record.
    ManyTxt {
        /// The name of the TXT records.
        name: String,
        /// The number of records.
        count: usize,
    },
    /// The TXT record is invalid, or contradicts the string.
    Uri(UriError),
}

impl fmt::Display for SeedlistError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Srv { name, error } => write!(f, "SRV lookup of {name}: {error}"),
            Self::Txt { name, error } => write!(f, "TXT lookup of {name}: {error}"),
            Self::NoHosts { name } => write!(f, "SRV lookup of {name}: the reply contains no host"),
            Self::ForeignHost { name, target } => {
                write!(f, "SRV lookup of {name}: {target} is outside the domain of the connection string")
            }
            Self::ManyTxt { name, count } => write!(f, "TXT lookup of {name}: there must be one record, not {count}"),
            Self::Uri(error) => write!(f, "with the options of the TXT record: {error}"),
        }
    }
}

poolhouse_wire::debug_as_display!(SeedlistError);

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
