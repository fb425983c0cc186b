//! Oracle of a monitor: S1-S6, S13-S18 and S21, and the part of S7 about interruption by a failure.

mod about;
mod book;
mod lines;
mod result;
#[cfg(test)]
mod tests;
mod watched;

pub use about::{Action, Answer, Input, Outputs, Seen, Wire};
pub use book::Oracle;
pub use watched::Watched;

/// Invariants that this oracle checks in the steps of a run with all kinds of input.
pub const CHECKED: [&str; 14] =
    ["S1", "S2", "S3", "S4", "S5", "S6", "S7", "S13", "S14", "S15", "S16", "S17", "S18", "S21"];
