use super::super::memory::{Fixed, OnHeap};
use super::*;
use alloc::format;
use alloc::vec::Vec;

fn intern<M: Stores>(texts: &mut Texts<M>, text: &str) -> Result<TextId, Full> {
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
fn rounds_of_marks_begin_anew_when_they_run_out() {
    let mut texts = Texts::<OnHeap>::empty();
    let id = intern(&mut texts, "a").unwrap();
    texts.round = u32::MAX;
    texts.mark(id);
    texts.unmark_all();
    assert!(!texts.is_marked(id));
    assert!(texts.mark(id));
}
