//! What can be seen of a host.

use super::host::Host;
use alloc::string::String;
use alloc::vec::Vec;
use poolhouse_core::Instant;
use poolhouse_core::mux::{HostState, MuxConfig, MuxId};
use poolhouse_cql::Version;

/// A connection of a host at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionStatus {
    /// Its number in its pool, from 1 on.
    pub number: u64,
    /// Requests in flight on it.
    pub in_flight: u32,
    /// Whether it takes more.
    pub takes_requests: bool,
}

/// A host at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostStatus {
    /// What events call it.
    pub id: MuxId,
    /// Its address.
    pub address: String,
    /// Its pool.
    pub state: HostState,
    /// Its options.
    pub config: MuxConfig,
    /// Its established connections, the oldest first, those that take no more requests last.
    pub connections: Vec<ConnectionStatus>,
    /// The version of the protocol that its next connection tries first: see [`LOWER_VERSION_FOR`](super::LOWER_VERSION_FOR).
    pub version: Version,
    /// The text of its server when it last refused a connection, or what the operating system, TLS or the resolver reported when it could not be dialed: the
    /// first 256 bytes on one line, control characters replaced by spaces. `None` if the password is in it, and once the server accepted a connection.
    pub refusal: Option<String>,
}

impl HostStatus {
    pub(super) fn of(now: Instant, host: &Host) -> Self {
        host.look(now, |mux, version, refusal| {
            let mut connections = Vec::new();
            mux.for_each_conn(|conn, in_flight, takes_requests| {
                connections.push(ConnectionStatus { number: conn.number().get(), in_flight, takes_requests });
            });
            Self {
                id: host.id,
                address: host.address.clone(),
                state: mux.state(),
                config: *mux.config(),
                connections,
                version,
                refusal: refusal.map(String::from),
            }
        })
    }
}
