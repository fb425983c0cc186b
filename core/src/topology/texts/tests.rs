use super::super::memory::{Fixed, OnHeap};
use super::*;
use alloc::format;
use alloc::vec::Vec;

fn intern<M: Memory>(texts: &mut Texts<M>, text: &str) -> Result<TextId, Full> {
    let id = texts.intern([text.as_bytes(), &[], &[]]);
    texts.assert_invariants();
    id
}

#[test]
fn text_is_kept_once_and_found_in_parts() {
    let mut texts = Texts::<OnHeap>::empty();
    let id = intern(&mut texts, "ab\0c").unwrap();
    assert_eq!(intern(&mut texts, "ab\0c"), Ok(id));
    assert_eq!(texts.find([b"ab", b"\0", b"c"]), Some(id));
    assert_eq!(texts.find([b"ab", b"c", b"\0"]), None);
    assert_eq!(texts.find([b"ab", b"", b""]), None);
    assert_eq!(texts.view().get(id), "ab\0c");
    assert_ne!(intern(&mut texts, ""), Ok(id));
}

#[test]
fn sweep_keeps_what_is_marked_and_reuses_the_rest() {
    let mut texts = Texts::<OnHeap>::empty();
    let ids: Vec<_> = (0..100).map(|number| intern(&mut texts, &format!("text{number}")).unwrap()).collect();
    texts.unmark_all();
    for id in ids.iter().step_by(3) {
        assert!(texts.mark(*id));
        assert!(!texts.mark(*id));
    }
    texts.sweep();
    texts.assert_invariants();
    for (number, id) in ids.iter().enumerate().step_by(3) {
        assert_eq!(texts.view().get(*id), format!("text{number}"));
    }
    assert_eq!(texts.find([b"text1", b"", b""]), None);
    for number in 0..66 {
        intern(&mut texts, &format!("new{number}")).unwrap();
    }
    assert_eq!(texts.view().slots.len(), 100);
}

#[test]
fn full_texts_refuse_and_still_find() {
    let mut texts = Texts::<Fixed<1, 1, 2, 16>>::empty();
    let id = intern(&mut texts, "1234").unwrap();
    assert_eq!(intern(&mut texts, "12345"), Err(Full), "no bytes");
    intern(&mut texts, "abcd").unwrap();
    assert_eq!(intern(&mut texts, ""), Err(Full), "no place");
    assert_eq!(intern(&mut texts, "1234"), Ok(id));
    let mut none = Texts::<Fixed<1, 1, 0, 0>>::empty();
    assert_eq!(intern(&mut none, ""), Err(Full));
}

#[test]
fn marking_rounds_restart_after_an_overflow() {
    let mut texts = Texts::<OnHeap>::empty();
    let id = intern(&mut texts, "a").unwrap();
    texts.round = u32::MAX;
    texts.mark(id);
    texts.unmark_all();
    assert!(!texts.is_marked(id));
    assert!(texts.mark(id));
}

/// Texts with common prefixes, inserted in seven orders.
#[test]
fn texts_are_found_for_any_order_of_insertion() {
    let words = ["", "a", "aa", "ab", "aba", "b", "\u{e4}"];
    for first in 0..words.len() {
        let mut texts = Texts::<OnHeap>::empty();
        let ordered = words.iter().cycle().skip(first).step_by(3).take(words.len());
        let ids: Vec<_> = ordered.clone().map(|word| intern(&mut texts, word).unwrap()).collect();
        for (word, id) in ordered.zip(ids) {
            for cut in (0..=word.len()).filter(|cut| word.is_char_boundary(*cut)) {
                assert_eq!(texts.find([&word.as_bytes()[..cut], b"", &word.as_bytes()[cut..]]), Some(id));
            }
        }
        assert_eq!(texts.find([b"a", b"", b"c"]), None);
    }
}

#[test]
fn pinned_text_survives_every_sweep() {
    let mut texts = Texts::<OnHeap>::empty();
    let pinned = texts.intern_address(b"/tmp/a.sock", true).unwrap();
    intern(&mut texts, "other").unwrap();
    assert_eq!(texts.intern_address(b"/tmp/a.sock", false), Ok(pinned));
    for _ in 0..3 {
        texts.unmark_all();
        texts.sweep();
        texts.assert_invariants();
    }
    assert_eq!(texts.find_address("/tmp/a.sock"), Some(pinned));
    assert_eq!(texts.find([b"other", b"", b""]), None);
}

#[test]
fn each_limit_of_texts_applies_separately() {
    let mut places = Texts::<Fixed<1, 1, 2, 64>>::empty();
    let ids = ["a", "b"].map(|text| intern(&mut places, text).unwrap());
    assert_eq!(intern(&mut places, "c"), Err(Full), "no place, but bytes");
    assert_eq!(["a", "b"].map(|text| intern(&mut places, text).unwrap()), ids);
    let mut none = Texts::<Fixed<1, 1, 0, 16>>::empty();
    assert_eq!(intern(&mut none, "a"), Err(Full));
    assert_eq!(none.find([b"a", b"", b""]), None);

    let mut bytes = Texts::<OnHeap>::empty();
    assert_eq!(intern(&mut bytes, &"x".repeat(0x1_0000)), Err(Full), "longer than a length can say");
    let long = "x".repeat(0xfff0);
    let held = (0..).take_while(|number| intern(&mut bytes, &format!("{long}{number}")).is_ok()).count();
    assert_eq!(held, (4 << 20) / (0xfff0 + 4 + 2), "4 MiB together");
    intern(&mut bytes, "short").unwrap();
}

/// The allocator refuses at each allocation in turn: stored texts are found, and refused texts can
/// be stored later.
#[test]
fn text_without_memory_is_refused_and_can_be_stored_later() {
    use super::super::tests::scarce::OnScarce;
    use crate::storage::tests::with_memory_for;
    for count in 0.. {
        let mut texts = Texts::<OnScarce>::empty();
        let words: Vec<_> = (0..40).map(|number| format!("word{number}")).collect();
        let (outcomes, is_out) =
            with_memory_for(count, || words.iter().map(|word| intern(&mut texts, word)).collect::<Vec<_>>());
        for (word, outcome) in words.iter().zip(&outcomes) {
            assert_eq!(texts.find([word.as_bytes(), &[], &[]]).ok_or(Full), *outcome, "{word}");
        }
        for (word, outcome) in words.iter().zip(outcomes) {
            let id = intern(&mut texts, word).unwrap();
            assert_eq!(texts.view().get(id), word);
            assert!(outcome.is_err() || outcome == Ok(id));
        }
        if !is_out {
            break;
        }
    }
}

/// Stores that are smaller than the limits, so the size of each store is a limit too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Tight;

impl Memory for Tight {
    type PerServer<T> = heapless::Vec<T, 1>;
    type PerName<T> = heapless::Vec<T, 1>;
    type PerText<T> = heapless::Vec<T, 6>;
    type Bytes = heapless::Vec<u8, 32>;
    const NAMES_MAX: u16 = 100;
    const SERVERS_MAX: u32 = 100;
    const TEXTS_MAX: u16 = 100;
    const BYTES_MAX: u32 = 100;
}

#[test]
fn stores_smaller_than_the_limits_are_filled_completely() {
    let mut texts = Texts::<Tight>::empty();
    assert_eq!(intern(&mut texts, &"x".repeat(29)), Err(Full), "33 bytes");
    let ids: Vec<_> = ["", "a", "b", "c", "d"].map(|text| intern(&mut texts, text).unwrap()).into();
    assert_eq!(texts.limit(), 6);
    assert!(texts.is_sweep_due(2, 0) && texts.is_sweep_due(1, 5) && !texts.is_sweep_due(1, 4));
    assert_eq!(intern(&mut texts, "wxyz!"), Err(Full), "one byte too many");
    intern(&mut texts, "wxyz").unwrap();
    assert_eq!(intern(&mut texts, "e"), Err(Full), "neither bytes nor a place");
    assert_eq!(["", "a", "b", "c", "d"].map(|text| intern(&mut texts, text).unwrap()), ids[..]);
    texts.unmark_all();
    texts.mark(ids[2]);
    texts.sweep();
    texts.assert_invariants();
    assert_eq!(["a", "b", "wxyz"].map(|text| texts.find([text.as_bytes(), &[], &[]])), [None, Some(ids[2]), None]);
}
