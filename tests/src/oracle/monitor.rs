//! Checks of a monitor. The oracle judges its events; a watched monitor is compared with the
//! [model](crate::model::monitor) after each call.

mod history;
#[cfg(test)]
mod tests;
mod watched;

pub use history::{Counts, Oracle};
pub use watched::Watched;

/// Invariants that are checked in the steps of a run with all kinds of input.
pub const CHECKED: [&str; 15] =
    ["S1", "S2", "S3", "S4", "S5", "S6", "S7", "S13", "S14", "S15", "S16", "S17", "S18", "S20", "S21"];
