use super::*;
use crate::storage::Heap;
use alloc::collections::BTreeSet;

type OnHeap = Deadlines<Heap<Node>, Heap<Instant>, Heap<Instant>>;
type Fixed<const N: usize> = Deadlines<heapless::Vec<Node, N>, heapless::Vec<Instant, N>, heapless::Vec<Instant, N>>;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

#[test]
fn equal_timeouts_never_touch_the_tree() {
    let mut deadlines = OnHeap::empty();
    for waiter in 0..100 {
        deadlines.insert(waiter, at(u64::from(waiter / 3))).expect("room");
        assert_eq!(deadlines.tree.earliest(), None);
    }
    for waiter in 0..100 {
        assert_eq!(deadlines.earliest(), Some(at(u64::from(waiter / 3))));
        assert_eq!((deadlines.first(), deadlines.of(waiter)), (Some(waiter), deadlines.earliest()));
        deadlines.remove(waiter);
    }
    assert_eq!((deadlines.earliest(), deadlines.first()), (None, None));
}

fn agrees_with_a_sorted_set<N: Store<Node>, L: Store<Instant>>(waiters: usize, seed: u64) {
    let mut deadlines = Deadlines::<N, L, L>::empty();
    let mut set = BTreeSet::new();
    let mut present = alloc::vec![None; waiters];
    let mut state = seed;
    for time in 0..300 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let waiter = (state >> 33) as usize % present.len();
        let index = u32::try_from(waiter).expect("small");
        if let Some(was) = present[waiter].take() {
            set.remove(&(was, index));
            deadlines.remove(index);
        } else {
            let when = at(time + (state >> 40) % 64);
            present[waiter] = Some(when);
            set.insert((when, index));
            deadlines.insert(index, when).expect("room");
        }
        let earliest = set.first().map(|first| first.0);
        assert_eq!(deadlines.earliest(), earliest, "seed {seed}");
        assert_eq!(deadlines.first().and_then(|first| deadlines.of(first)), earliest, "seed {seed}");
        deadlines.assert_invariants(|waiter| present.get(waiter as usize).copied().flatten());
    }
}

#[test]
fn any_order_of_adding_and_removing_agrees_with_a_sorted_set() {
    for seed in 1..50 {
        for waiters in [1, 2, 9, 40, 150] {
            agrees_with_a_sorted_set::<Heap<Node>, Heap<Instant>>(waiters, seed);
        }
        agrees_with_a_sorted_set::<heapless::Vec<Node, 1>, heapless::Vec<Instant, 1>>(1, seed);
        agrees_with_a_sorted_set::<heapless::Vec<Node, 9>, heapless::Vec<Instant, 9>>(9, seed);
    }
}

#[test]
fn a_place_beyond_a_fixed_capacity_is_refused_and_the_rest_stays_as_it_was() {
    let mut deadlines = Fixed::<3>::empty();
    for waiter in 0..3 {
        deadlines.insert(waiter, at(9 - u64::from(waiter))).expect("room");
    }
    assert_eq!(deadlines.insert(3, at(4)), Err(Full));
    assert_eq!((deadlines.earliest(), deadlines.first()), (Some(at(7)), Some(2)));
    deadlines.assert_invariants(|waiter| Some(at(9 - u64::from(waiter))));
}

#[test]
fn a_deadline_at_the_end_of_time_is_none() {
    let mut deadlines = OnHeap::empty();
    deadlines.insert(3, Instant::MAX).expect("nothing to do");
    assert_eq!((deadlines.earliest(), deadlines.of(3)), (None, None));
    deadlines.remove(3);
}
