//! The generators that find planted bugs find nothing where none is planted. An integration test, so that
//! the program of the unit tests does not contain all generators.

use poolhouse_tests::fuzz::selection::selection;
use poolhouse_tests::fuzz::topology::topology;
use poolhouse_tests::hunt::hunt;
use poolhouse_tests::seeds::bytes_of_seeds;
use std::path::Path;

/// The budget of each generator that judges steps with a model or an oracle. All of them together
/// take a few seconds, even in a build without optimization.
const SHORT: [(&str, u64); 5] =
    [("pool", 300), ("mux", 150), ("monitor", 300), ("control", 80), ("search_control", 600)];

#[test]
fn short_hunts_find_nothing_without_a_planted_bug() {
    for (generator, budget) in SHORT {
        let hunted = hunt(generator, budget, Path::new("no corpus")).expect("a generator");
        assert_eq!(hunted.found, None, "{generator}");
    }
}

/// A selection needs more bytes than most inputs of the corpus have, and a topology changes in most
/// ways only after many reports.
#[test]
fn long_random_inputs_agree_with_the_models() {
    bytes_of_seeds(3_000, 300..301, |bytes| {
        selection(bytes);
    });
    bytes_of_seeds(60, 1_500..1_501, topology);
}
