//! Checks of a pool. The oracle judges its events; a watched pool is compared with the
//! [model](crate::model::pool) after each call.

mod history;
#[cfg(all(test, feature = "fuzz"))]
mod tests;
#[cfg(feature = "fuzz")]
mod watched;

pub use history::Oracle;
#[cfg(feature = "fuzz")]
pub use watched::{Bounded, Watched};

/// Invariants that are checked in the steps of a run with all kinds of input.
pub const CHECKED: [&str; 49] = [
    "P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11", "P12", "P13", "P14", "P15", "P16", "P17",
    "P18", "P19", "P20", "P21", "P22", "P23", "P24", "P25", "P26", "P27", "P28", "P29", "P30", "P31", "P32", "P33",
    "P34", "P35", "P36", "P37", "P38", "P39", "P40", "P41", "P42", "P44", "P45", "P46", "P47", "P48", "P50", "P53",
];
