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

/// The invariants with other owners; all others have only the [`Oracle`].
#[rustfmt::skip]
pub const OWNERS: [(&str, &[Owner]); 25] = [
    ("P43", &[Generator("simulate"), Generator("network"), Test("close")]),
    ("P48", &[Oracle, Test("alloc_free"), Test("mux_allocations")]),
    ("P49", &[Generator("simulate"), Generator("simulate_mux"), Generator("network")]),
    ("P50", &[Oracle, Test("time")]),
    ("P51", &[Generator("simulate"), Generator("network")]),
    ("P52", &[Generator("simulate")]),
    ("P53", &[Oracle, Test("populate")]),
    ("P54", &[Generator("network")]),
    ("P55", &[Generator("network")]),
    ("P56", &[Generator("network")]),
    ("P57", &[Generator("network")]),
    ("P58", &[Generator("contract")]),
    ("P59", &[Generator("network")]),
    ("P60", &[Generator("network")]),
    ("P61", &[Generator("network")]),
    ("P62", &[Generator("network")]),
    ("S7", &[Oracle, Generator("search")]),
    ("S8", &[Generator("search")]),
    ("S9", &[Generator("search")]),
    ("S10", &[Generator("corpus")]),
    ("S11", &[Generator("corpus")]),
    ("S12", &[Generator("corpus"), Generator("network")]),
    ("S18", &[Oracle, Generator("network")]),
    ("S19", &[Generator("network"), Test("monitor")]),
    ("S20", &[Oracle, Test("monitor")]),
];

/// The number of ids of each kind.
pub(super) const KINDS: [(char, usize); 3] = [('P', 62), ('M', 6), ('S', 21)];

/// Each id and its owners.
pub fn owners() -> impl Iterator<Item = (String, &'static [Owner])> {
    let ids = KINDS.into_iter().flat_map(|(kind, count)| (1..=count).map(move |number| format!("{kind}{number}")));
    ids.map(|id| {
        let other = OWNERS.iter().find(|(known, _)| *known == id);
        let owners = other.map_or(&[Oracle] as &[Owner], |(_, owners)| owners);
        (id, owners)
    })
}
