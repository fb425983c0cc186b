//! The fuzz bodies of Cassandra's protocol and of CQL's values on their seeds, on cuts and mutations of them, and
//! on every input of at most one byte; that of the protocol also on those of two, of which the second is significant without effort.

use poolhouse_tests::fuzz::{self, mutate::mutated};
use poolhouse_tests::rng::Rng;
use poolhouse_tests::seeds::{each_seed, of_effort};

/// Values that the format distinguishes.
const SIGNIFICANT: [u8; 12] = [0, 1, 2, 8, 9, 0x10, 0x7f, 0x80, 0x84, 0x85, 0xfe, 0xff];

/// A body and its seeds.
type Subject = (fn(&[u8]), fn() -> Vec<Vec<u8>>);

const SUBJECTS: [Subject; 2] = [(fuzz::cql, fuzz::cql::seeds), (fuzz::cql_values, fuzz::cql::values::seeds)];

#[test]
fn fuzz_bodies_hold_on_seeds_and_on_cuts_of_them() {
    for (body, seeds) in SUBJECTS {
        for seed in seeds() {
            body(&seed);
            for end in (0..seed.len()).step_by(seed.len() / 20 + 1) {
                body(&seed[..end]);
            }
        }
    }
}

#[test]
fn fuzz_bodies_hold_on_mutations_of_seeds() {
    for (body, seeds) in SUBJECTS {
        let seeds = seeds();
        each_seed(200, |seed| body(&mutated(&seeds, &SIGNIFICANT, &mut Rng::new(seed))));
    }
}

#[test]
fn fuzz_bodies_hold_on_every_tiny_input() {
    for (body, _) in SUBJECTS {
        body(&[]);
        (0..=u8::MAX).for_each(|one| body(&[one]));
    }
    // The body of values would take ten times as long.
    for one in 0..=u8::MAX {
        of_effort(&SIGNIFICANT).iter().for_each(|&two| fuzz::cql(&[one, two]));
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
