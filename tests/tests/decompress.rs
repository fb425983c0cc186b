//! The fuzz body of compressed messages on its seeds, on mutations of them, and on every tiny
//! input.

use poolhouse_tests::fuzz;
use poolhouse_tests::rng::Rng;

fn below(random: &mut Rng, bound: usize) -> usize {
    usize::try_from(random.next_u64() % u64::try_from(bound).expect("small")).expect("below a usize")
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Rng) {
    const SIGNIFICANT: [u8; 8] = [0, 1, 2, 3, 0x7f, 0x80, 0xfe, 0xff];
    for _ in 0..=below(random, 3) {
        let at = below(random, bytes.len() + 1);
        let byte = SIGNIFICANT[below(random, 8)];
        match below(random, 4) {
            0 if at < bytes.len() => bytes[at] = byte,
            1 => bytes.truncate(at),
            2 => bytes.insert(at, byte),
            _ => bytes.extend_from_within(at..),
        }
    }
}

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
    for number in 0..1_500 {
        let mut random = Rng::new(number);
        let mut bytes = seeds[below(&mut random, seeds.len())].clone();
        mutate(&mut bytes, &mut random);
        fuzz::decompress(&bytes);
    }
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
