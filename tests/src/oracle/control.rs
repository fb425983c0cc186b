//! What a control machine did, judged: S7-S12 and S20, and of its monitors S1-S3, S6, S18 and S21 as far as events show them.

mod about;
mod book;
mod errors;
#[cfg(test)]
mod tests;
mod watched;

pub use about::{Answer, Event, Fault, FaultKind, Input, Looks, Outputs, Seen};
pub use book::Oracle;
pub use watched::Watched;

/// What this oracle checks in the steps of a life with every kind of input.
pub const CHECKED: [&str; 13] = ["S1", "S2", "S3", "S6", "S7", "S8", "S9", "S10", "S11", "S12", "S18", "S20", "S21"];
