//! What a monitor did, judged: S1-S6 and S13-S18, S21, and of S7 that a failure says whether it interrupts.

mod about;
mod book;
mod host;
mod lines;
mod result;
#[cfg(test)]
mod tests;
mod watched;

pub use about::{Action, Answer, Input, Outputs, Seen, Wire};
pub use book::Oracle;
pub use host::Hosted;
pub use watched::Watched;

/// What this oracle checks in the steps of a life with every kind of input.
pub const CHECKED: [&str; 14] =
    ["S1", "S2", "S3", "S4", "S5", "S6", "S7", "S13", "S14", "S15", "S16", "S17", "S18", "S21"];
