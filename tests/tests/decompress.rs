//! The fuzz body of compressed messages on its seeds, on mutations of them, and on every tiny
//! input.

use poolhouse_tests::fuzz::{self, mutate::mutated};
use poolhouse_tests::rng::Rng;
use poolhouse_tests::seeds::each_seed;

/// Values that the format distinguishes.
const SIGNIFICANT: [u8; 8] = [0, 1, 2, 3, 0x7f, 0x80, 0xfe, 0xff];

#[test]
fn fuzz_body_holds_on_seeds_and_on_every_cut_of_them() {
    for seed in fuzz::decompress::seeds() {
        fuzz::decompress(&seed);
        for end in 0..seed.len() {
            fuzz::decompress(&seed[..end]);
        }
    }
}

#[test]
fn fuzz_body_holds_on_mutations_of_seeds() {
    let seeds = fuzz::decompress::seeds();
    each_seed(100, |seed| fuzz::decompress(&mutated(&seeds, &SIGNIFICANT, &mut Rng::new(seed))));
}

#[test]
fn fuzz_body_holds_on_every_tiny_input() {
    fuzz::decompress(&[]);
    for one in 0..=u8::MAX {
        fuzz::decompress(&[one]);
    }
    for one in [0, 1, 0x78, 0x9c, 0x28, 0xff] {
        for two in 0..=u8::MAX {
            fuzz::decompress(&[12, one, two]);
        }
    }
}
