//! Lookups for `mongodb+srv://`: the hosts of a cluster and some of its options stand in the DNS.
//!
//! Read first: Initial DNS Seedlist Discovery; Polling SRV Records for mongos Discovery; RFC 1035, RFC 2181, RFC 2782, RFC 6891, RFC 7766.
//!
//! # The parts
//!
//! - [`Lookup`] asks one question, sans-IO: which datagrams to send where, when to give up, when to ask again over TCP.
//! - [`ResolverConfig`] and [`hosts_addresses`] read the system's `resolv.conf` and hosts file: text in, values out.
//! - [`SrvQuestion`] has the rules of a seed list: what is asked for, which hosts count, how many of them.
//! - [`SrvPoll`] says when to look the hosts of a sharded cluster up again, and what changes then.
//! - [`Resolver`] is what all of it is asked through; users may bring their own.
//!
//! # What is believed
//!
//! An answer counts if it comes from the server that was asked, with the id and the question that were sent; whatever else arrives
//! is as if it had never come. A server's answer may be at most 64 KiB, with 1,000 records, and eight aliases from the name to
//! its records; however its names are compressed, the work is linear in its length. How often a server is asked is bounded by
//! `resolv.conf`: 3 servers, 5 attempts and 30 s each at the very most. The product of the three is as long as a lookup lasts, with
//! all aliases, refusals and streams that come between. Nothing is cached. A time to live of SRV records counts as a day at most.

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
