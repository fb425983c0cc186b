//! What is asked, and what is found.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

/// What is looked up under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// The hosts of a service.
    Srv,
    /// Texts.
    Txt,
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
}

/// A host of a service. Its priority and weight mean nothing here, so they are left off.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SrvRecord {
    /// The host's name, without a dot at its end. What is no letter, digit, hyphen or underscore is escaped by a backslash.
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
    /// One at least, in the order of the answer.
    pub records: Vec<SrvRecord>,
    /// How long they stand: the least of their times to live. Zero where it is not known.
    pub ttl: Duration,
}

/// What was found under a name: one at least of whatever it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Of [`RecordKind::Srv`].
    Srv(SrvAnswer),
    /// Of [`RecordKind::Txt`]: each record, its strings joined.
    Txt(Vec<String>),
    /// Of [`RecordKind::A`] and [`RecordKind::Aaaa`].
    Addresses(Vec<IpAddr>),
}
