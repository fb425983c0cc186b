//! The earliest deadline of many waiters.
//!
//! Waiters whose deadlines do not fall behind those of the waiters before them (all of them, when every
//! check-out has the same timeout) form a list that is in order by itself: adding and removing is O(1).
//! The others are in a heap whose entries know their places: adding and removing is O(log n), and O(1) on
//! average for deadlines in random order.

use crate::Instant;
use crate::storage::table::NIL;
use crate::storage::{Full, Store};

#[cfg(test)]
mod tests;

/// Where a waiter's deadline is kept. One node for each place in the waiter table.
#[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    place: Place,
    at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Nowhere,
    InOrder { prev: u32, next: u32 },
    Heap { position: u32 },
}

/// A deadline in the heap.
#[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    at: Instant,
    waiter: u32,
}

/// Children of a heap entry: four entries are one cache line.
const ARITY: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Deadlines<N, H> {
    nodes: N,
    heap: H,
    head: u32,
    tail: u32,
}

impl<N: Store<Node>, H: Store<Entry>> Deadlines<N, H> {
    pub(super) const EMPTY: Self = Self { nodes: N::EMPTY, heap: H::EMPTY, head: NIL, tail: NIL };

    /// Adds the deadline of a waiter that has none here.
    pub(super) fn insert(&mut self, waiter: u32, at: Instant) -> Result<(), Full> {
        while self.nodes.slots().len() <= waiter as usize {
            self.nodes.try_push(Node { place: Place::Nowhere, at: Instant::MAX })?;
        }
        let node = &mut self.nodes.slots_mut()[waiter as usize];
        assert!(node.place == Place::Nowhere, "a waiter has one deadline");
        node.at = at;
        let tail = self.tail;
        let place = if tail == NIL || self.nodes.slots()[tail as usize].at <= at {
            self.tail = waiter;
            if tail == NIL {
                self.head = waiter;
            } else {
                self.set_next(tail, waiter);
            }
            Place::InOrder { prev: tail, next: NIL }
        } else {
            let position = self.heap.slots().len();
            self.heap.try_push(Entry { at, waiter })?;
            Place::Heap { position: self.sift_up(position, Entry { at, waiter }) }
        };
        self.nodes.slots_mut()[waiter as usize].place = place;
        Ok(())
    }

    /// Removes the deadline of a waiter; does nothing when it has none.
    pub(super) fn remove(&mut self, waiter: u32) {
        let Some(node) = self.nodes.slots_mut().get_mut(waiter as usize) else { return };
        match core::mem::replace(&mut node.place, Place::Nowhere) {
            Place::Nowhere => {}
            Place::InOrder { prev, next } => {
                if prev == NIL {
                    self.head = next;
                } else {
                    self.set_next(prev, next);
                }
                if next == NIL {
                    self.tail = prev;
                } else if let Place::InOrder { prev: back, .. } = &mut self.nodes.slots_mut()[next as usize].place {
                    *back = prev;
                }
            }
            Place::Heap { position } => self.remove_from_heap(position as usize),
        }
    }

    /// The earliest deadline and its waiter; of equal ones, any.
    #[inline]
    pub(super) fn first(&self) -> Option<(Instant, u32)> {
        let top = self.heap.slots().first().map(|entry| (entry.at, entry.waiter));
        if self.head == NIL {
            return top;
        }
        let at = self.nodes.slots()[self.head as usize].at;
        match top {
            Some((top_at, _)) if top_at < at => top,
            _ => Some((at, self.head)),
        }
    }

    /// Makes room for `count` waiters.
    pub(super) fn reserve(&mut self, count: u32) -> Result<(), Full> {
        self.nodes.reserve(count)?;
        self.heap.reserve(count)
    }

    fn set_next(&mut self, waiter: u32, to: u32) {
        if let Place::InOrder { next, .. } = &mut self.nodes.slots_mut()[waiter as usize].place {
            *next = to;
        }
    }

    fn remove_from_heap(&mut self, position: usize) {
        let Some(last) = self.heap.pop() else { return };
        if position == self.heap.slots().len() {
            return;
        }
        let position = self.sift_up(position, last) as usize;
        self.sift_down(position, last);
    }

    /// Moves the hole at `position` up until `entry` fits into it; the place where it was put.
    fn sift_up(&mut self, mut position: usize, entry: Entry) -> u32 {
        while position > 0 {
            let parent = (position - 1) / ARITY;
            let above = self.heap.slots()[parent];
            if above.at <= entry.at {
                break;
            }
            self.put(position, above);
            position = parent;
        }
        self.put(position, entry)
    }

    fn sift_down(&mut self, mut position: usize, entry: Entry) {
        loop {
            let from = position * ARITY + 1;
            let slots = self.heap.slots();
            let children = slots.get(from..slots.len().min(from + ARITY)).unwrap_or(&[]);
            let Some((offset, &child)) = children.iter().enumerate().min_by_key(|(_, child)| child.at) else { break };
            if entry.at <= child.at {
                break;
            }
            self.put(position, child);
            position = from + offset;
        }
        self.put(position, entry);
    }

    fn put(&mut self, position: usize, entry: Entry) -> u32 {
        self.heap.slots_mut()[position] = entry;
        let position = u32::try_from(position).unwrap_or(NIL);
        self.nodes.slots_mut()[entry.waiter as usize].place = Place::Heap { position };
        position
    }

    /// The list is in order, the heap is one, and both agree with the nodes. `waiting` tells which waiters have a deadline.
    pub(super) fn assert_invariants(&self, mut has_deadline: impl FnMut(u32) -> bool) {
        let nodes = self.nodes.slots();
        let mut in_order = 0;
        let (mut prev, mut at) = (NIL, self.head);
        while at != NIL {
            let node = &nodes[at as usize];
            let Place::InOrder { prev: back, next } = node.place else { panic!("waiter {at} is not in order") };
            assert_eq!(back, prev, "waiter {at} does not point back");
            assert!(prev == NIL || nodes[prev as usize].at <= node.at, "waiter {at} is out of order");
            in_order += 1;
            assert!(in_order <= nodes.len(), "the list has a cycle");
            (prev, at) = (at, next);
        }
        assert_eq!(self.tail, prev);
        let heap = self.heap.slots();
        for (position, entry) in heap.iter().enumerate() {
            assert!(position == 0 || heap[(position - 1) / ARITY].at <= entry.at, "not a heap at {position}");
            let node = &nodes[entry.waiter as usize];
            assert_eq!(node.at, entry.at);
            assert!(matches!(node.place, Place::Heap { position: place } if place as usize == position));
        }
        let mut placed = 0;
        for (waiter, node) in (0..).zip(nodes) {
            assert_eq!(node.place != Place::Nowhere, has_deadline(waiter), "deadline of waiter {waiter}");
            placed += usize::from(node.place != Place::Nowhere);
        }
        assert_eq!(placed, in_order + heap.len());
    }
}
