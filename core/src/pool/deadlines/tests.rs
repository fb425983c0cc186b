use super::*;
use crate::storage::Heap;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

type OnHeap = Deadlines<Heap<Node>, Heap<Entry>>;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

#[test]
fn equal_timeouts_never_touch_the_heap() {
    let mut deadlines = OnHeap::EMPTY;
    for waiter in 0..100 {
        deadlines.insert(waiter, at(u64::from(waiter / 3))).expect("room");
    }
    assert!(deadlines.heap.slots().is_empty());
    for waiter in 0..100 {
        assert_eq!(deadlines.first(), Some((at(u64::from(waiter / 3)), waiter)));
        deadlines.remove(waiter);
    }
    assert_eq!(deadlines.first(), None);
}

#[test]
fn any_order_of_adding_and_removing_agrees_with_a_sorted_set() {
    for seed in 1..200_u64 {
        let mut deadlines = OnHeap::EMPTY;
        let mut set = BTreeSet::new();
        let mut present = Vec::from([None; 40]);
        let mut state = seed;
        for _ in 0..300 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let waiter = (state >> 33) as usize % present.len();
            let index = u32::try_from(waiter).expect("small");
            if let Some(was) = present[waiter].take() {
                set.remove(&(was, index));
                deadlines.remove(index);
            } else {
                let when = at((state >> 40) % 64);
                present[waiter] = Some(when);
                set.insert((when, index));
                deadlines.insert(index, when).expect("room");
            }
            assert_eq!(deadlines.first().map(|first| first.0), set.first().map(|first| first.0), "seed {seed}");
            deadlines.assert_invariants(|waiter| present.get(waiter as usize).is_some_and(Option::is_some));
        }
    }
}

#[test]
fn a_full_heap_refuses_the_deadline() {
    let mut deadlines = Deadlines::<heapless::Vec<Node, 3>, heapless::Vec<Entry, 1>>::EMPTY;
    deadlines.insert(0, at(9)).expect("in order");
    deadlines.insert(1, at(5)).expect("in the heap");
    assert_eq!(deadlines.insert(2, at(4)), Err(Full));
    assert_eq!(deadlines.first(), Some((at(5), 1)));
}
