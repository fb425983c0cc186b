//! Oracle of a control machine: S7-S12 and S20, and for its monitors S1-S3, S6, S18 and S21 where
//! events suffice.

mod about;
mod book;
mod errors;
#[cfg(test)]
mod tests;
mod watched;

pub use about::{Answer, Event, Fault, FaultKind, Input, Looks, Outputs, Seen};
pub use book::Oracle;
pub use watched::Watched;

/// Invariants that this oracle checks in the steps of a run with all kinds of input.
pub const CHECKED: [&str; 13] = ["S1", "S2", "S3", "S6", "S7", "S8", "S9", "S10", "S11", "S12", "S18", "S20", "S21"];
