use super::*;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

type Heap = crate::storage::Heap<u64>;

fn streams(ids: u32) -> Streams<Heap> {
    let mut streams = Streams::empty();
    streams.reset(ids, false).expect("memory");
    streams
}

fn free(streams: &mut Streams<Heap>, id: u32) {
    let taken_for = streams.of(id);
    streams.free(id, taken_for);
}

#[test]
#[doc(alias = "M1")]
fn every_id_is_assigned_once_and_none_beyond() {
    for ids in [1, 2, 63, 64, 65, 127, 128, 129, 4096, 4097, 32_768] {
        let mut streams = streams(ids);
        let mut seen = BTreeSet::new();
        while let Some(id) = streams.take() {
            assert!(id < ids && seen.insert(id), "{id} of {ids}");
        }
        assert_eq!(seen.len(), ids as usize);
        assert_eq!(streams.free_count(), 0);
        streams.assert_invariants();
        free(&mut streams, ids - 1);
        assert_eq!(streams.take(), Some(ids - 1));
        assert_eq!(streams.take(), None);
    }
}

/// An id is not reused at once, so a duplicate reply finds no request.
#[test]
fn an_id_that_was_freed_is_not_the_next_one() {
    let mut streams = streams(32_768);
    let mut last = VecDequeOf::new(60);
    for _ in 0..10_000 {
        let id = streams.take().expect("one is free");
        assert!(!last.seen.contains(&id), "{id} again");
        last.push(id);
        free(&mut streams, id);
    }
    streams.assert_invariants();
}

struct VecDequeOf {
    seen: Vec<u32>,
    len: usize,
}

impl VecDequeOf {
    fn new(len: usize) -> Self {
        Self { seen: Vec::new(), len }
    }

    fn push(&mut self, id: u32) {
        if self.seen.len() == self.len {
            self.seen.remove(0);
        }
        self.seen.push(id);
    }
}

/// Tables indexed by ids therefore need no more slots than that.
#[test]
fn few_requests_use_few_ids() {
    let mut streams = streams(32_768);
    let mut out = Vec::new();
    for turn in 0..100_000_u32 {
        if out.len() < 100 {
            out.push(streams.take().expect("one is free"));
        } else {
            let id = out.swap_remove(turn as usize * 7919 % out.len());
            free(&mut streams, id);
        }
        assert!(out.iter().all(|id| *id < 256));
    }
    streams.assert_invariants();
}

#[test]
fn uses_follow_the_calls() {
    let mut streams = streams(128);
    let id = streams.take().expect("one is free");
    assert_eq!(streams.of(id), Use::Waiting);
    streams.answer(id);
    assert_eq!(streams.of(id), Use::Answered);
    free(&mut streams, id);
    assert_eq!(streams.of(id), Use::Free);
    let id = streams.take().expect("one is free");
    streams.abandon(id);
    assert_eq!((streams.of(id), streams.late_count()), (Use::Late, 1));
    streams.assert_invariants();
    free(&mut streams, id);
    assert_eq!((streams.of(id), streams.late_count()), (Use::Free, 0));
    for id in [128, 4096, u32::MAX] {
        assert_eq!(streams.of(id), Use::Free, "there is no id {id}");
    }
    streams.assert_invariants();
}

/// Compared with a naive set.
#[test]
fn random_calls_agree_with_a_set() {
    for seed in 1..200_u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut draw = |limit: u32| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            u32::try_from(state >> 33).expect("31 bits") % limit
        };
        let ids = 1 + draw(400);
        let mut streams = streams(ids);
        let mut taken: Vec<(u32, Use)> = Vec::new();
        for _ in 0..400 {
            match draw(4) {
                0 | 1 => match streams.take() {
                    Some(id) => {
                        assert!(id < ids && taken.iter().all(|(other, _)| *other != id), "seed {seed}");
                        taken.push((id, Use::Waiting));
                    }
                    None => assert_eq!(taken.len(), ids as usize, "seed {seed}"),
                },
                2 if !taken.is_empty() => {
                    let place = draw(u32::try_from(taken.len()).expect("few")) as usize;
                    let (id, _) = taken.swap_remove(place);
                    free(&mut streams, id);
                }
                3 if !taken.is_empty() => {
                    let place = draw(u32::try_from(taken.len()).expect("few")) as usize;
                    let (id, taken_for) = &mut taken[place];
                    if *taken_for == Use::Waiting {
                        if draw(2) == 0 {
                            streams.answer(*id);
                            *taken_for = Use::Answered;
                        } else {
                            streams.abandon(*id);
                            *taken_for = Use::Late;
                        }
                    }
                }
                _ => {}
            }
            for (id, taken_for) in &taken {
                assert_eq!(streams.of(*id), *taken_for, "seed {seed}");
            }
            assert_eq!(streams.free_count() as usize, ids as usize - taken.len(), "seed {seed}");
        }
        streams.assert_invariants();
    }
}

#[test]
fn a_fixed_store_holds_the_ids_of_its_capacity() {
    let mut streams = Streams::<heapless::Vec<u64, { words(128) }>>::empty();
    streams.reset(128, false).expect("there is room");
    assert!(streams.reset(129, false).is_err());
    let mut streams = Streams::<heapless::Vec<u64, { words(32_768) }>>::empty();
    streams.reset(32_768, false).expect("there is room");
}

#[test]
fn free_ids_are_not_freed_again_and_unknown_ids_are_free() {
    let mut streams = streams(4096);
    let taken = streams.take().expect("one is free");
    let before = streams.clone();
    assert_eq!([taken + 1, 4095, 4096, 40_000].map(|id| streams.of(id)), [Use::Free; 4]);
    streams.free(taken + 1, Use::Free);
    assert_eq!(streams, before);
    assert_eq!(streams.of(taken), Use::Waiting);
    streams.assert_invariants();
}

/// No id follows the last 64 ids under a summary word, so the search continues with the next one,
/// and from the beginning after the last one.
#[test]
fn rotation_continues_after_the_last_ids_under_a_word() {
    let mut streams = streams(8192);
    while streams.take().is_some() {}
    for wanted in [4094, 5000, 1] {
        free(&mut streams, 4090);
        assert_eq!(streams.take(), Some(4090));
        free(&mut streams, wanted);
        assert_eq!(streams.take(), Some(wanted), "behind 4090, wherever it is");
        assert_eq!(streams.take(), None);
        streams.assert_invariants();
    }
}
