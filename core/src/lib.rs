//! Connection pools and server monitors as pure state machines: events in, actions out.
//!
//! The machines perform no I/O, read no clock, and allocate nothing where a connection is there. A host (one of the `poolhouse-*` adapters, or
//! your own loop) tells a machine what happened and when, takes the actions that it owes, and calls
//! again when the instant of `poll_timeout` has come. Protocols, authentication, connection strings and the async driver are in the [crates](#crates) beside this one.
//!
//! ```
//! use poolhouse_core::pool::{CheckOut, Claim, Fixed, Health, Pool, PoolAction, PoolEvent, PoolId, PoolOptions};
//! use poolhouse_core::{Instant, Machine, Observer};
//! use core::time::Duration;
//!
//! /// Events go where you like; `&mut ()` is for nobody.
//! struct Print;
//!
//! impl Observer<PoolEvent> for Print {
//!     fn on_event(&mut self, now: Instant, event: &PoolEvent) {
//!         println!("{now:?} {event}");
//!     }
//! }
//!
//! // Room for four connections and eight who wait, without a heap. A bad option would fail the build.
//! const OPTIONS: PoolOptions = PoolOptions { max_pool_size: 4, max_idle_time: Some(Duration::from_secs(60)), ..PoolOptions::DEFAULT };
//! let config = const {
//!     match OPTIONS.validate() {
//!         Ok(config) => config,
//!         Err(_) => panic!("the options are wrong"),
//!     }
//! };
//! let mut now = Instant::from_nanos(0); // your clock
//! let mut pool = Pool::<Fixed<4, 8>>::new(now, PoolId::new(1), config, &mut Print);
//! pool.ready(now, &mut Print); // the monitor says that the server is there
//!
//! // Nobody is there yet, so who asks waits, and the pool owes a connection.
//! let Ok(CheckOut::Queued(waiter)) = pool.check_out(now, None, &mut Print) else { panic!() };
//! let Some(PoolAction::Establish(conn)) = pool.poll_action(now) else { panic!() };
//! // Your socket is connected and greeted.
//! now = now.saturating_add(Duration::from_millis(3));
//! pool.handle_established(now, conn, &mut Print).expect("nobody has given it up");
//! assert_eq!(pool.poll_action(now), Some(PoolAction::Wake(waiter)));
//! let Claim::Granted(lease) = pool.claim(now, waiter) else { panic!() };
//! pool.check_in(now, lease, Health::Healthy, &mut Print).expect("it is this pool's");
//!
//! // Call again when the pool says: the connection will have been idle for too long.
//! now = pool.poll_timeout().expect("the connection's time");
//! pool.handle_timeout(now, &mut Print);
//! assert_eq!(pool.poll_action(now), Some(PoolAction::Close(conn)));
//! ```
//!
//! # Where to begin
//!
//! | you have | take | read |
//! |---|---|---|
//! | an application on smol or async-std | `poolhouse-smol`, `poolhouse-async-std` | their front pages; the guides `observing`, `tuning` and `migrating` |
//! | firmware on embassy | `poolhouse-embassy` | the guide [`firmware`](guide::firmware) |
//! | another runtime | `poolhouse-client` with threads and a heap, else `poolhouse-driver` | the guide `adapter` |
//! | a loop of your own | this crate | the guide [`embedding`](guide::embedding) |
//!
//! All [guides](guide).
//!
//! | machine | what it is |
//! |---|---|
//! | [`pool::Pool`] | one request at a time on each connection: MongoDB's connection pool (CMAP) |
//! | [`mux::Mux`] | many requests on each connection, told apart by stream ids: the pool of Cassandra drivers |
//! | [`monitor::Monitor`] | one server's checks, polling and streaming, and its round-trip times |
//! | [`topology::Topology`] | what all servers are, and what follows from that |
//! | [`control::Control`] | a topology with its monitors |
//! | [`scan::Scan`] | the same for a program that owns one thread and no tasks |
//!
//! # Features
//!
//! Without them the machines allocate nothing.
//!
//! | feature | what it adds |
//! |---|---|
//! | `alloc` | growable memory |
//! | `std` (default) | implies `alloc` |
//! | `sim` | fault points for simulators. Not for use, and not stable |
//!
//! # Crates
//!
//! | crate | what it has |
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
pub use machine::{Machine, Observer, Stale};
pub use poolhouse_wire::{Cause, CertificateFault, ObjectId, Reason, ServerType, TopologyVersion};
pub use time::Instant;
