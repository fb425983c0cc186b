//! Random selections against their naive model.

use poolhouse_tests::fuzz::selection::{Counts, selection};
use poolhouse_tests::seeds::bytes_of_seeds;

/// `POOLHOUSE_SEED=n` replays one seed.
#[test]
fn fifty_thousand_random_selections_agree_with_the_model() {
    let mut seen = Counts::default();
    let all = bytes_of_seeds(50_000, 128..129, |bytes| {
        let counts = selection(bytes);
        seen.invalid += counts.invalid;
        seen.none += counts.none;
        seen.one += counts.one;
        seen.several += counts.several;
        seen.narrowed += counts.narrowed;
        seen.fell_back += counts.fell_back;
    });
    let Counts { invalid, none, one, several, narrowed, fell_back } = seen;
    let kinds = [invalid, none, one, several, narrowed, fell_back];
    assert!(!all || kinds.iter().all(|&count| count >= 500), "some results did not occur often enough: {seen:?}");
}
