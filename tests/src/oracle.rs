//! One oracle, many generators: judges what a machine was told and what it answered, step by step, by the ids of [`crate::invariants`].
//!
//! For each kind of machine there is an `Oracle` whose `step` takes the time, the call (`Input`) and whatever was seen of the machine then (`Outputs`): the result, the
//! events, the action that was polled, and getters afterwards. It keeps a book of its own, written from the invariants and not from the machines: no code of
//! theirs is in it, only their words (causes, reasons, options). The reference models of [`crate::model`] say what *will* happen; an oracle only says of what *did*
//! whether it may.
//!
//! Generators do not call it themselves: they use `Watched` in place of the machine, which has the same methods, and panics with the id and what was
//! seen. What was recorded from outside, where only events are known, is judged as far as that goes: see [`trace`].
//!
//! Some invariants need more than one step's view, or two machines', or the world around: who checks which is in [`OWNERS`].

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "an oracle asks whether something is one of a few; whatever else there is or will be, is not"
)]

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
