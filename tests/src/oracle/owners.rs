//! The owners of the checks of each invariant.

use Owner::{Generator, Oracle, Test};

/// The owner of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// An oracle or a model, after each step of all generators.
    Oracle,
    /// A generator: the name of its test target. A separate phase names the id, there or in the
    /// generator's part of this library, or counts it.
    Generator(&'static str),
    /// A test that names the id: its target, or its file in the unit tests of core.
    Test(&'static str),
}

/// The owners for each id.
#[rustfmt::skip]
pub const OWNERS: [(&str, &[Owner]); 81] = [
    ("P1", &[Oracle]),
    ("P2", &[Oracle]),
    ("P3", &[Oracle]),
    ("P4", &[Oracle]),
    ("P5", &[Oracle]),
    ("P6", &[Oracle]),
    ("P7", &[Oracle]),
    ("P8", &[Oracle]),
    ("P9", &[Oracle]),
    ("P10", &[Oracle]),
    ("P11", &[Oracle]),
    ("P12", &[Oracle]),
    ("P13", &[Oracle]),
    ("P14", &[Oracle]),
    ("P15", &[Oracle]),
    ("P16", &[Oracle]),
    ("P17", &[Oracle]),
    ("P18", &[Oracle]),
    ("P19", &[Oracle]),
    ("P20", &[Oracle]),
    ("P21", &[Oracle]),
    ("P22", &[Oracle]),
    ("P23", &[Oracle]),
    ("P24", &[Oracle]),
    ("P25", &[Oracle]),
    ("P26", &[Oracle]),
    ("P27", &[Oracle]),
    ("P28", &[Oracle]),
    ("P29", &[Oracle]),
    ("P30", &[Oracle]),
    ("P31", &[Oracle]),
    ("P32", &[Oracle]),
    ("P33", &[Oracle]),
    ("P34", &[Oracle]),
    ("P35", &[Oracle]),
    ("P36", &[Oracle]),
    ("P37", &[Oracle]),
    ("P38", &[Oracle]),
    ("P39", &[Oracle]),
    ("P40", &[Oracle]),
    ("P41", &[Oracle]),
    ("P42", &[Oracle]),
    ("P43", &[Generator("simulate"), Generator("network"), Test("close")]),
    ("P44", &[Oracle]),
    ("P45", &[Oracle]),
    ("P46", &[Oracle]),
    ("P47", &[Oracle]),
    ("P48", &[Oracle, Test("alloc_free"), Test("mux_allocations")]),
    ("P49", &[Generator("simulate"), Generator("simulate_mux"), Generator("network")]),
    ("P50", &[Oracle, Test("time")]),
    ("P51", &[Generator("simulate"), Generator("network")]),
    ("P52", &[Generator("simulate")]),
    ("P53", &[Oracle, Test("populate")]),
    ("P54", &[Generator("network")]),
    ("M1", &[Oracle]),
    ("M2", &[Oracle]),
    ("M3", &[Oracle]),
    ("M4", &[Oracle]),
    ("M5", &[Oracle]),
    ("M6", &[Oracle]),
    ("S1", &[Oracle]),
    ("S2", &[Oracle]),
    ("S3", &[Oracle]),
    ("S4", &[Oracle]),
    ("S5", &[Oracle]),
    ("S6", &[Oracle]),
    ("S7", &[Oracle]),
    ("S8", &[Oracle]),
    ("S9", &[Oracle]),
    ("S10", &[Oracle]),
    ("S11", &[Oracle]),
    ("S12", &[Oracle]),
    ("S13", &[Oracle]),
    ("S14", &[Oracle]),
    ("S15", &[Oracle]),
    ("S16", &[Oracle]),
    ("S17", &[Oracle]),
    ("S18", &[Oracle, Generator("network")]),
    ("S19", &[Generator("network"), Test("monitor")]),
    ("S20", &[Oracle, Test("monitor")]),
    ("S21", &[Oracle]),
];

/// The owners of an id; empty for an unknown id.
#[must_use]
pub fn owner_of(id: &str) -> &'static [Owner] {
    OWNERS.iter().find(|(known, _)| *known == id).map_or(&[], |(_, owners)| owners)
}
