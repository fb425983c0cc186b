//! The fuzz bodies of Cassandra's protocol and of CQL's values on their seeds, on mutations of them, and on
//! every tiny input.

use poolhouse_tests::fuzz::{self, mutate::mutated};
use poolhouse_tests::rng::Rng;

/// Values that the format distinguishes.
const SIGNIFICANT: [u8; 12] = [0, 1, 2, 8, 9, 0x10, 0x7f, 0x80, 0x84, 0x85, 0xfe, 0xff];

#[test]
fn fuzz_body_holds_on_seeds_and_on_cuts_of_them() {
    for seed in fuzz::cql::seeds() {
        fuzz::cql(&seed);
        for end in (0..seed.len()).step_by(seed.len() / 60 + 1) {
            fuzz::cql(&seed[..end]);
        }
    }
    fuzz::cql::values::seeds().iter().for_each(|seed| fuzz::cql_values(seed));
}

#[test]
fn fuzz_body_holds_on_mutations_of_seeds() {
    let seeds = fuzz::cql::seeds();
    for number in 0..3_000 {
        fuzz::cql(&mutated(&seeds, &SIGNIFICANT, &mut Rng::new(number)));
    }
    let seeds = fuzz::cql::values::seeds();
    for number in 0..3_000 {
        fuzz::cql_values(&mutated(&seeds, &SIGNIFICANT, &mut Rng::new(number)));
    }
}

#[test]
fn fuzz_body_holds_on_every_tiny_input() {
    fuzz::cql(&[]);
    for one in 0..=u8::MAX {
        fuzz::cql(&[one]);
        for two in 0..=u8::MAX {
            fuzz::cql(&[one, two]);
        }
    }
    // Not mutated: for each kind of connection, headers with combinations of these bytes.
    for kind in 0..9 {
        for two in [0x83, 0x84, 0x85, 4, 5] {
            for three in [0, 1, 0xff] {
                for opcode in 0..=0x11 {
                    for length in [0, 1, 0x7f, 0x80, 0xff] {
                        fuzz::cql(&[kind, two, three, 0, 0, opcode, 0, 0, 0, length, 0]);
                        fuzz::cql(&[kind, two, three, 0xff, 0xff, opcode, length, 0, 0, 0, 0]);
                    }
                }
            }
        }
    }
}
