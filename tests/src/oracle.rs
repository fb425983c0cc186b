//! The checks of a machine after each call, against the ids of [`crate::invariants`].
//!
//! Generators use `Watched` instead of a machine. It has the same methods, and panics with the id
//! of a broken invariant and the observed outputs. A watched pool holds its reference model
//! ([`crate::model`]), applies each call to both, and compares the results, the events, and all
//! observable state, for pools with limited memory too. A watched monitor and a watched control
//! machine have an oracle: it keeps its own state and checks that what happened is allowed, where a
//! model predicts what will happen. Models and oracles are written from the invariants and share no
//! code with the machines, only their value types (causes, reasons, options).
//!
//! An oracle of pools checks their events alone: their grammar and order, limits, durations,
//! numbers. It also checks recorded events of clients, whose calls are unknown: see [`trace`].
//!
//! Some invariants need more than one step, two machines, or the simulated run around the machine.
//! [`OWNERS`] lists the owner of each check.

#![allow(clippy::wildcard_enum_match_arm, reason = "an oracle checks for a few variants; all others are treated alike")]

mod checks;
pub mod control;
pub mod monitor;
pub mod mux;
mod owners;
pub mod pool;
#[cfg(test)]
mod tests;
pub mod trace;

pub use checks::{Checks, Violation};
pub use owners::{OWNERS, Owner, owner_of};
