//! Random selections against their naive model.

use poolhouse_tests::fuzz::selection::{Counts, selection};
use poolhouse_tests::seeds::{Inputs, bytes_of_seeds};

/// Most random selections need more bytes than most inputs of the corpus have.
#[test]
fn random_selections_agree_with_the_model() {
    let mut seen = Counts::default();
    let runs = bytes_of_seeds(&Inputs { seeds: 1_000, lengths: 128..300 }, |bytes| {
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
    assert!(
        kinds.iter().all(|&count| u64::from(count) >= runs / 200),
        "some results did not occur often enough: {seen:?}"
    );
}
