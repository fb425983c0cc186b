use super::*;
use alloc::format;
use alloc::vec::Vec;

/// Keeps the words that are written to it.
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
fn numbers_are_written_with_their_kind_and_shown_without_it() {
    let (at, times) = (Instant::from_nanos(7), (Duration::from_nanos(3), Duration::MAX));
    assert_eq!(words(&Serial(5)), [(Word::Serial, 5)]);
    assert_eq!(words(&Past(6)), [(Word::Past, 6)]);
    assert_eq!(words(&Past(at)), [(Word::Past, 7)]);
    assert_eq!(words(&Past(times)), [(Word::Past, 3), (Word::Past, u64::MAX)], "as far as a word goes");
    assert_eq!(format!("{:?} {:?} {:?}", Serial(5), Past(6), Past(times)), format!("5 6 {times:?}"));
}

#[test]
fn word_of_no_kind_is_told_apart() {
    for kind in [Word::Time, Word::Serial, Word::Generation, Word::Past] {
        let mut words = Words::default();
        kind.hash(u64::MAX, &mut words);
        assert_eq!(words.0, [(kind, u64::MAX)]);
    }
    assert_eq!([0, u128::from(u64::MAX), 5 << 64, u128::MAX].map(Word::of), [None; 4]);
}
