//! One oracle for many generators. It checks the inputs and outputs of a machine step by step
//! against the ids of [`crate::invariants`].
//!
//! There is an `Oracle` for each kind of machine. Its `step` takes the time, the call (`Input`) and
//! the observed outputs (`Outputs`): the result, the events, the polled action, and the getters
//! after the call. An oracle keeps its own state. It is written from the invariants and shares no
//! code with the machines, only their value types (causes, reasons, options). The reference models
//! of [`crate::model`] predict what *will* happen; an oracle only checks that what *did* happen is
//! allowed.
//!
//! Generators do not call an oracle directly. They use `Watched` instead of the machine. It has the
//! same methods, and panics with the id and the observed outputs. Traces that contain only events
//! are checked to the extent possible: see [`trace`].
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
