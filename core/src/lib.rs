//! Connection pools and server monitors as pure state machines: events in, actions out.
//!
//! The machines perform no I/O, read no clock, and allocate nothing when a connection is available.
//! A host (one of the `poolhouse-*` adapters, or your own loop) reports the results of I/O and the
//! time to a machine, executes the actions that the machine owes, and calls it again at the instant
//! that `poll_timeout` returned. Protocols, authentication, connection strings and the async driver
//! are in the other [crates](#crates).
//!
//! Use this crate in a driver, a proxy or a program that has its own event loop. Applications use a
//! client crate: see [where to begin](#where-to-begin).
//!
//! ```
//! use poolhouse_core::pool::{CheckOut, Claim, Fixed, Health, Pool, PoolAction, PoolEvent, PoolId, PoolOptions};
//! use poolhouse_core::{Instant, Observer};
//! use core::time::Duration;
//!
//! /// Prints events. `&mut ()` ignores them.
//! struct Print;
//!
//! impl Observer<PoolEvent> for Print {
//!     fn on_event(&mut self, now: Instant, event: &PoolEvent) {
//!         println!("{now:?} {event}");
//!     }
//! }
//!
//! // Memory for four connections and eight waiters, without a heap. A bad option fails the build.
//! const OPTIONS: PoolOptions = PoolOptions { max_pool_size: 4, max_idle_time: Some(Duration::from_secs(60)), ..PoolOptions::DEFAULT };
//! let config = const {
//!     match OPTIONS.validate() {
//!         Ok(config) => config,
//!         Err(_) => panic!("the options are wrong"),
//!     }
//! };
//! let mut now = Instant::from_nanos(0); // your clock
//! let mut pool = Pool::<Fixed<4, 8>>::new(now, PoolId::new(1), config, &mut Print);
//! pool.ready(now, &mut Print); // the monitor has reached the server
//!
//! // No connection is available, so the check-out waits, and the pool owes a connection.
//! let Ok(CheckOut::Queued(waiter)) = pool.check_out(now, None, &mut Print) else { panic!() };
//! let Some(PoolAction::Establish(conn)) = pool.poll_action(now) else { panic!() };
//! // Here your code connects a socket and does the handshake.
//! now = now.saturating_add(Duration::from_millis(3));
//! pool.handle_established(now, conn, &mut Print).expect("nobody has given it up");
//! assert_eq!(pool.poll_action(now), Some(PoolAction::Wake(waiter)));
//! let Claim::Granted(lease) = pool.claim(now, waiter) else { panic!() };
//! pool.check_in(now, lease, Health::Healthy, &mut Print).expect("it is this pool's");
//!
//! // Call again at the pool's timeout: the connection has then been idle for too long.
//! now = pool.poll_timeout().expect("the connection's time");
//! pool.handle_timeout(now, &mut Print);
//! assert_eq!(pool.poll_action(now), Some(PoolAction::Close(conn)));
//! ```
//!
//! # Where to begin
//!
//! | you write | crates | documents |
//! |---|---|---|
//! | an application on smol or async-std | `poolhouse-smol`, `poolhouse-async-std` | their front pages; the guides `mongodb`, `cassandra`, `pool`, `observing`, `tuning` and `migrating` |
//! | firmware on embassy | `poolhouse-embassy` | the guide [`firmware`](guide::firmware) |
//! | another runtime | `poolhouse-client` with threads and a heap, else `poolhouse-driver` | the guide `adapter` |
//! | a loop of your own | this crate | the guide [`embedding`](guide::embedding) |
//!
//! All [guides](guide), and the [`glossary`](guide::glossary) of the specifications' terms.
//!
//! | machine | purpose |
//! |---|---|
//! | [`pool::Pool`] | one request at a time on each connection: MongoDB's connection pool (CMAP) |
//! | [`mux::Mux`] | many requests on each connection, distinguished by stream ids: the pool of Cassandra drivers |
//! | `cluster::Cluster` (feature `alloc`) | the nodes of a Cassandra cluster, found by its control connection |
//! | [`monitor::Monitor`] | the checks of one server, by polling and streaming, and its round-trip times |
//! | [`topology::Topology`] | the state of all servers, and its consequences |
//! | [`control::Control`] | a topology with its monitors |
//! | [`scan::Scan`] | the same for a program with one thread and no tasks |
//! | [`server::ServerMachine`] | one server: pool, monitor, and the bytes of their connections |
//!
//! # Features
//!
//! Without any feature the machines allocate nothing.
//!
//! | feature | effect |
//! |---|---|
//! | `alloc` | growable memory |
//! | `std` (default) | implies `alloc` |
//! | `defmt` | `defmt::Format` of events and errors of servers |
//! | `sim` | fault points for simulators. Not for applications, and not stable |
//!
//! # Crates
//!
//! | crate | contents |
//! |---|---|
//! | `poolhouse-core` | this crate: the machines |
//! | `poolhouse-wire` | MongoDB's protocol: BSON, messages, compression, hello, handshakes |
//! | `poolhouse-auth` | SCRAM-SHA-256, SCRAM-SHA-1, MONGODB-X509, PLAIN |
//! | `poolhouse-cql` | Cassandra's native protocol |
//! | `poolhouse-uri` | connection strings; SRV and TXT lookups, sans-IO |
//! | `poolhouse-driver` | the async driver, generic over a runtime, `no_std` |
//! | `poolhouse-client` | the hosted clients, over a platform; TLS, logs, metrics |
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

#[doc(hidden)]
pub mod address;
pub mod cluster;
mod config;
pub mod control;
pub mod guide;
#[allow(unreachable_pub, reason = "public with the feature `sim`")]
mod hooks;
mod id;
pub mod machine;
pub mod monitor;
pub mod mux;
pub mod observe;
pub mod pool;
#[cfg(test)]
mod replies;
pub mod scan;
pub mod selection;
pub mod server;
#[cfg(feature = "alloc")]
pub mod session;
#[cfg(feature = "sim")]
pub mod sim;
pub mod storage;
mod time;
pub mod topology;

pub use address::HostAddress;
pub use config::ConfigError;
#[doc(hidden)]
pub use config::millis_of;
pub use id::ServerId;
pub use machine::{Observer, Stale};
pub use poolhouse_wire::{Cause, CertificateFault, ObjectId, Reason, ServerType, TopologyVersion};
pub use time::Instant;
