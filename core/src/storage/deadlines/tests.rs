use super::*;
use crate::storage::Heap;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

type OnHeap = Deadlines<Heap<Instant>>;
type Fixed<const N: usize> = Deadlines<heapless::Vec<Instant, N>>;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

#[test]
fn the_earliest_deadline_is_first_and_of_equal_ones_the_lowest_owner() {
    let mut deadlines = OnHeap::empty();
    for waiter in 0..100 {
        deadlines.insert(waiter, at(u64::from(waiter / 3))).expect("room");
    }
    for waiter in 0..100 {
        assert_eq!(deadlines.earliest(), Some(at(u64::from(waiter / 3))));
        assert_eq!(deadlines.of(waiter), deadlines.earliest());
        assert_eq!(deadlines.first(), Some(waiter));
        deadlines.remove(waiter);
        assert_eq!(deadlines.of(waiter), None);
    }
    assert_eq!((deadlines.earliest(), deadlines.first()), (None, None));
}

fn agrees_with_a_sorted_set<S: Store<Instant>>(waiters: usize, seed: u64) {
    let mut deadlines = Deadlines::<S>::empty();
    let mut set = BTreeSet::new();
    let mut present = alloc::vec![None; waiters];
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
        assert_eq!(deadlines.earliest(), set.first().map(|first| first.0), "seed {seed}");
        assert_eq!(deadlines.first(), set.first().map(|first| first.1), "seed {seed}");
        deadlines.assert_invariants(|waiter| present.get(waiter as usize).copied().flatten());
    }
}

#[test]
fn any_order_of_adding_and_removing_agrees_with_a_sorted_set() {
    for seed in 1..50 {
        for waiters in [1, 7, 8, 9, 40, 64, 65, 150] {
            agrees_with_a_sorted_set::<Heap<Instant>>(waiters, seed);
        }
        agrees_with_a_sorted_set::<heapless::Vec<Instant, 1>>(1, seed);
        agrees_with_a_sorted_set::<heapless::Vec<Instant, 8>>(8, seed);
        agrees_with_a_sorted_set::<heapless::Vec<Instant, 9>>(9, seed);
        agrees_with_a_sorted_set::<heapless::Vec<Instant, 32>>(32, seed);
        agrees_with_a_sorted_set::<heapless::Vec<Instant, 33>>(33, seed);
        agrees_with_a_sorted_set::<heapless::Vec<Instant, 73>>(73, seed);
    }
}

#[test]
fn an_owner_beyond_a_fixed_capacity_is_refused() {
    let mut deadlines = Fixed::<3>::empty();
    for waiter in 0..3 {
        deadlines.insert(waiter, at(9 - u64::from(waiter))).expect("room");
    }
    assert_eq!(deadlines.insert(3, at(4)), Err(Full));
    assert_eq!((deadlines.earliest(), deadlines.first()), (Some(at(7)), Some(2)));
    deadlines.assert_invariants(|waiter| Some(at(9 - u64::from(waiter))));
}

#[test]
fn reserved_memory_suffices_for_deadlines() {
    let mut deadlines = OnHeap::empty();
    deadlines.insert(0, at(5)).expect("room");
    deadlines.reserve(1_000).expect("memory");
    deadlines.assert_invariants(|_| Some(at(5)));
    let minima: Vec<Instant> = deadlines.minima.slots().to_vec();
    for waiter in 1..1_000 {
        deadlines.insert(waiter, at(6)).expect("room");
    }
    assert_eq!(deadlines.minima.slots().len(), minima.len());
    assert_eq!(deadlines.first(), Some(0));
}

#[test]
fn a_deadline_at_the_end_of_time_is_none() {
    let mut deadlines = OnHeap::empty();
    deadlines.insert(3, Instant::MAX).expect("nothing to do");
    assert_eq!((deadlines.earliest(), deadlines.of(3)), (None, None));
    deadlines.remove(3);
}

#[test]
fn existing_leaves_are_kept_and_a_refused_allocation_changes_nothing() {
    use crate::storage::tests::{Scarce, with_memory_for};
    let mut deadlines = Deadlines::<Scarce<Instant>>::empty();
    deadlines.reserve(20).expect("memory");
    let (done, is_out) = with_memory_for(0, || {
        for waiter in (0..20).rev() {
            deadlines.insert(waiter, at(u64::from(waiter))).expect("there is room");
        }
        deadlines.reserve(8)
    });
    assert_eq!((done, is_out, deadlines.room), (Ok(()), false, 20));
    let before = deadlines.clone();
    // More entries than fit require two allocations: for the leaves, and then for the minima.
    for count in 0..2 {
        let (refused, is_out) = with_memory_for(count, || deadlines.reserve(30));
        assert_eq!((refused, is_out), (Err(Full), true));
        assert_eq!(deadlines, before);
    }
    assert_eq!((deadlines.reserve(30), deadlines.first()), (Ok(()), Some(0)));
    deadlines.assert_invariants(|waiter| (waiter < 20).then(|| at(u64::from(waiter))));
}
