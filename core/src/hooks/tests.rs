use super::*;
use crate::storage::table::Serial;
use crate::time::{Instant, Past};
use alloc::format;
use alloc::vec::Vec;
use core::hash::Hash;

/// Stores the words that are written to it.
#[derive(Default)]
struct Words(Vec<(Word, u64)>);

impl Hasher for Words {
    fn write(&mut self, bytes: &[u8]) {
        panic!("no word: {bytes:?}")
    }

    fn write_u128(&mut self, word: u128) {
        self.0.push(Word::of(word).expect("of a kind"));
    }

    fn finish(&self) -> u64 {
        0
    }
}

fn words(of: &impl Hash) -> Vec<(Word, u64)> {
    let mut words = Words::default();
    of.hash(&mut words);
    words.0
}

#[test]
fn numbers_are_hashed_with_their_kind_and_displayed_without_it() {
    let at = Instant::from_nanos(7);
    assert_eq!(words(&at), [(Word::Time, 8)]);
    assert_eq!(words(&Serial(5)), [(Word::Serial, 5)]);
    assert_eq!(words(&Past(at)), [], "a time that decides nothing is left out");
    assert_eq!(format!("{:?} {:?}", Serial(5), Past(6)), "5 6");
}

#[test]
fn word_without_a_kind_is_detected() {
    for kind in [Word::Time, Word::Serial, Word::Generation] {
        let mut words = Words::default();
        kind.hash(u64::MAX, &mut words);
        assert_eq!(words.0, [(kind, u64::MAX)]);
    }
    assert_eq!([0, u128::from(u64::MAX), 4 << 64, u128::MAX].map(Word::of), [None; 4]);
}
