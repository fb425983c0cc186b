//! DNS lookups for `mongodb+srv://`: the hosts of a cluster and some of its options are DNS
//! records.
//!
//! Read first: Initial DNS Seedlist Discovery; Polling SRV Records for mongos Discovery; RFC 1035,
//! RFC 2181, RFC 2782, RFC 6891, RFC 7766.
//!
//! # The parts
//!
//! - [`Lookup`] is a single query, without I/O: it determines which datagrams to send to which
//!   server, when to time out, and when to repeat the query over TCP.
//! - [`ResolverConfig`] and [`hosts_addresses`] parse the system's `resolv.conf` and hosts file.
//! - [`SrvQuestion`] implements the rules of a seed list: the query name, the valid hosts and their
//!   maximum number.
//! - [`SrvPoll`] schedules repeated lookups of the hosts of a sharded cluster, and computes the
//!   changes.
//! - [`Resolver`] is the interface for all lookups; users may implement it.
//!
//! # Validation and limits
//!
//! A reply is accepted only if it was sent by the queried server, with the id and the question of
//! the query; any other packet is ignored. A reply may have at most 64 KiB, 1,000 records, and
//! eight aliases between the name and its records. The work is linear in its length, however its
//! names are compressed. The number of queries is limited by `resolv.conf`: at most 3 servers, 5
//! attempts and 30 s each. The product of the three is the maximum duration of a lookup, including
//! all aliases, refusals and TCP queries. Nothing is cached. The time to live of SRV records is
//! limited to a day.

mod answer;
mod config;
mod error;
mod hosts;
mod lookup;
mod message;
mod outline;
mod poll;
mod resolver;
mod seedlist;
#[cfg(test)]
mod tests;

pub use answer::{Answer, RecordKind, SrvAnswer, SrvRecord};
pub use config::{DNS_PORT, ResolverConfig};
pub use error::{LookupError, SeedlistError};
pub use hosts::hosts_addresses;
pub use lookup::{Lookup, LookupAction};
pub use poll::{SRV_POLL_INTERVAL_MAX, SRV_POLL_INTERVAL_MIN, SrvPoll};
pub use resolver::Resolver;
pub use seedlist::SrvQuestion;
