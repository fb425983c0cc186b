//! Fake servers for tests of clients: a MongoDB server or replica set ([`mongo`]) and nodes of a
//! Cassandra cluster ([`cql`]).
//!
//! Use them to test a client, a driver or an application without a real server.
//!
//! ```
//! use bson::doc;
//! use core::time::Duration;
//! use poolhouse_fake::mongo::{BlockingClient, FakeServer};
//!
//! # fn main() -> std::io::Result<()> {
//! let server = FakeServer::start(Default::default())?;
//! println!("{}", server.uri()); // for the client under test
//!
//! let mut client = BlockingClient::connect(server.address(), Duration::from_secs(5))?;
//! let reply = client.run("admin", doc! { "ping": 1 })?;
//! assert_eq!(reply.get_f64("ok").ok(), Some(1.0));
//! assert_eq!(server.count_of("ping"), 1);
//! # Ok(())
//! # }
//! ```
//!
//! They listen on loopback, keep small data in memory, and inject faults on request: cut
//! connections, late or malformed replies, elections. [`tls`] makes certificates of every kind for
//! them.
//!
//! Read next: [`FakeServer`](mongo::FakeServer), [`mongo::replica_set`] and [`cql`].
#![forbid(unsafe_code)]

extern crate alloc;

pub mod choices;
#[cfg(feature = "cql")]
pub mod cql;
pub mod mongo;
pub mod rng;
#[cfg(feature = "tls")]
pub mod tls;
