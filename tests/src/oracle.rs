//! The checks of a machine after each call, against the ids of [`crate::invariants`].
//!
//! Generators use `Watched` instead of a machine. It has the same methods, holds a reference model
//! ([`crate::model`]), applies each call to both, and compares the results, the events, and all
//! observable state, for pools with limited memory too. It panics with the id of a broken invariant
//! and the observed outputs. Models are written from the invariants and share no code with the
//! machines, only their value types (causes, reasons, options).
//!
//! An oracle checks events alone: their grammar and order, limits, durations, numbers. That of
//! pools also checks recorded events of clients, whose calls are unknown: see [`trace`]; that of
//! monitors also checks those of clients in a simulated network.
//!
//! Some invariants need more than one step, two machines, or the simulated run around the machine.
//! [`owners`] lists the owners of each check.

#![allow(clippy::wildcard_enum_match_arm, reason = "an oracle checks for a few variants; all others are treated alike")]

mod checks;
#[cfg(feature = "fuzz")]
pub(crate) mod log;
#[cfg(feature = "fuzz")]
pub mod monitor;
#[cfg(feature = "fuzz")]
pub mod mux;
mod owners;
pub mod pool;
#[cfg(all(test, feature = "simulation"))]
mod tests;
pub mod trace;

pub use checks::{Checks, Violation};
pub use owners::{OWNERS, Owner, owners};
