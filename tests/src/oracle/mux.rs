//! Oracle of a multiplexed pool: M1-M6, and the invariants of all kinds of pools (P1, P2, P6, P8,
//! P18, P19, P25, P32).

mod about;
mod book;
mod history;
mod result;
#[cfg(test)]
mod tests;
mod watched;

pub use about::{Action, Answer, Event, Input, Outputs, Seen};
pub use book::Oracle;
pub use watched::{Bounded, Watched};

/// Invariants that this oracle checks in the steps of a run with all kinds of input.
pub const CHECKED: [&str; 14] =
    ["M1", "M2", "M3", "M4", "M5", "M6", "P1", "P2", "P6", "P8", "P18", "P19", "P25", "P32"];
