//! What a multiplexed pool did, judged: M1-M6, and of the pools' invariants those that are about any pool (P1, P2, P6, P8, P18, P19, P25, P32).

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

/// What this oracle checks in the steps of a life with every kind of input.
pub const CHECKED: [&str; 14] =
    ["M1", "M2", "M3", "M4", "M5", "M6", "P1", "P2", "P6", "P8", "P18", "P19", "P25", "P32"];
