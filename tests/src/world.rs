//! A seeded world in virtual time: a deployment with faults, and a client made of the real control machine and real pools.
//!
//! The deployment (`truth`) is a replica set, routers, or a server on its own. The client drives a [`Control`](poolhouse_core::control::Control)
//! and a [`Pool`](poolhouse_core::pool::Pool) for each server, as a host does. First come faults: everything that is
//! observable is checked after each step. Then they stop, and within a bound in virtual time the client must see the
//! deployment as it is, and its pools must work; then it closes, and nothing may be left.

mod client;
mod faults;
mod kind;
mod life;
pub(crate) mod log;
mod network;
mod truth;

pub use kind::{Counters, Kind};

use crate::rng::Rng;
use crate::sim::{Trace, caught};

/// Lives the life of this seed.
///
/// # Errors
///
/// The message of the panic, when an invariant is broken or the view does not converge.
pub fn seed(seed: u64, counters: &mut Counters, trace: Option<&Trace>) -> Result<(), String> {
    caught(|| life::World::new(Rng::stream(seed, "world"), counters, trace).live())
}
