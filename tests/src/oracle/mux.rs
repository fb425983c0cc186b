//! Checks of a multiplexed pool, which is compared with the [model](crate::model::mux) after each
//! call: M1-M6, and the invariants of all kinds of pools (P1, P2, P6, P8, P18, P19, P20, P25, P32).

mod watched;

pub use watched::{Bounded, Watched};

/// Invariants that are checked in the steps of a run with all kinds of input.
pub const CHECKED: [&str; 15] =
    ["M1", "M2", "M3", "M4", "M5", "M6", "P1", "P2", "P6", "P8", "P18", "P19", "P20", "P25", "P32"];
