//! DNS record types and lookup results.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

/// The type of record to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// The hosts of a service.
    Srv,
    /// Text records.
    Txt,
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
}

/// A host of a service. Priority and weight are not used by MongoDB, so they are omitted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SrvRecord {
    /// The host's name, without a trailing dot. Characters other than letters, digits, hyphens and
    /// underscores are escaped by a backslash.
    pub target: String,
    /// Its port.
    pub port: u16,
}

impl SrvRecord {
    /// A host and its port.
    #[must_use]
    pub fn new(target: impl Into<String>, port: u16) -> Self {
        Self { target: target.into(), port }
    }
}

/// The hosts of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SrvAnswer {
    /// The records, at least one, in the order of the reply.
    pub records: Vec<SrvRecord>,
    /// The smallest time to live of the records. Zero if unknown.
    pub ttl: Duration,
}

/// The result of a lookup, with at least one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The result for [`RecordKind::Srv`].
    Srv(SrvAnswer),
    /// The result for [`RecordKind::Txt`]: the text of each record, its strings joined.
    Txt(Vec<String>),
    /// The result for [`RecordKind::A`] and [`RecordKind::Aaaa`].
    Addresses(Vec<IpAddr>),
}
