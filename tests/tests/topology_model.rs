//! Random simulated runs of a topology against its naive model, on the heap, in fixed memory, and in that
//! for a direct connection.

use poolhouse_tests::choices::Choices;
use poolhouse_tests::fuzz::topology::{Counts, runs, topology};
use poolhouse_tests::hunt::TOPOLOGY;
use poolhouse_tests::rng::Rng;
use poolhouse_tests::seeds::{bytes_of_seeds, each_seed};

/// SDAM-11..84, LOG-01..07, S8-S12. A topology changes in most ways only after many reports.
#[test]
#[doc(alias("LOG-01", "LOG-02", "LOG-03", "LOG-04", "LOG-05", "LOG-06", "LOG-07", "S8", "S9", "S10", "S11", "S12"))]
fn random_runs_agree_with_the_model() {
    let mut seen = Counts::default();
    let runs = bytes_of_seeds(&TOPOLOGY, |bytes| seen.add(&runs(bytes)));
    eprintln!("{seen:?}");
    let Counts { news, events, added, removed, primaries, stale, clears, late, sharded, seeds, direct } = seen;
    let kinds = [news, events, added, removed, primaries, stale, clears, late, sharded, seeds, direct];
    assert!(
        runs < 1_000 || kinds.iter().all(|&count| count >= runs / 8),
        "some kinds did not occur often enough: {seen:?}"
    );
}

/// Random texts of all kinds, as replies.
#[test]
fn texts_that_are_not_addresses_are_harmless() {
    let words =
        ["a", "b:1", "[::1]", "|", "\n", ",", ":", "]", "host:99999", "\0", " ", "rs", "\u{7}", "xxxxxxxxxxxxxxxx"];
    each_seed(50, |seed| {
        let mut rng = Rng::new(seed);
        let text: String = (0..rng.below(60)).map(|_| rng.one_of(&words)).collect();
        topology(text.as_bytes());
    });
}
