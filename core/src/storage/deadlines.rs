//! The earliest deadline of many waiters.
//!
//! Waiters whose deadlines do not fall behind those of the waiters before them (all of them, when every check-out
//! has the same timeout) form a list that is in order by itself: adding and removing is O(1), however many there
//! are or ever were. The others are in a [`Tree`] of minima.

use crate::Instant;
use crate::sim::chance::{Point, fires};
use crate::storage::table::NIL;
use crate::storage::tree::{NEVER, Tree};
use crate::storage::{Full, Store};

#[cfg(test)]
mod tests;

/// A waiter's place in the list that is in order. One for each place in the waiter table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    /// Never: it is not in the list.
    at: Instant,
    prev: u32,
    next: u32,
}

impl Node {
    const NOWHERE: Self = Self { at: NEVER, prev: NIL, next: NIL };
}

const _: () = assert!(size_of::<Node>() == 16);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Deadlines<N, L, U> {
    nodes: N,
    head: u32,
    tail: u32,
    tree: Tree<L, U>,
}

impl<N: Store<Node>, L: Store<Instant>, U: Store<Instant>> Deadlines<N, L, U> {
    #[inline]
    pub(crate) fn empty() -> Self {
        Self { nodes: N::empty(), head: NIL, tail: NIL, tree: Tree::empty() }
    }

    /// Adds the deadline of a waiter that has none here. A deadline at the end of time is none.
    ///
    /// Cost: O(1) in order, O(log n) else. Allocates when the place is new; an error is possible only then.
    #[inline]
    pub(crate) fn insert(&mut self, waiter: u32, at: Instant) -> Result<(), Full> {
        if at == NEVER {
            return Ok(());
        }
        if waiter as usize >= self.nodes.slots().len() {
            self.grow(waiter)?;
        }
        let tail = self.tail;
        let nodes = self.nodes.slots_mut();
        if tail != NIL && nodes[tail as usize].at > at || fires(Point::DeadlineInTree) {
            return self.tree.insert(waiter, at);
        }
        let node = &mut nodes[waiter as usize];
        assert!(node.at == NEVER, "a waiter has one deadline");
        *node = Node { at, prev: tail, next: NIL };
        self.tail = waiter;
        match nodes.get_mut(tail as usize) {
            Some(last) => last.next = waiter,
            None => self.head = waiter,
        }
        Ok(())
    }

    /// Removes the deadline of a waiter; does nothing when it has none.
    ///
    /// Cost: as [`Deadlines::insert`], no allocation.
    #[inline]
    pub(crate) fn remove(&mut self, waiter: u32) {
        let nodes = self.nodes.slots_mut();
        let Some(node) = nodes.get_mut(waiter as usize) else { return };
        if node.at == NEVER {
            self.tree.remove(waiter);
            return;
        }
        let Node { prev, next, .. } = core::mem::replace(node, Node::NOWHERE);
        match nodes.get_mut(prev as usize) {
            Some(before) => before.next = next,
            None => self.head = next,
        }
        match nodes.get_mut(next as usize) {
            Some(after) => after.prev = prev,
            None => self.tail = prev,
        }
    }

    /// The earliest deadline. Cost: O(1).
    #[inline]
    pub(crate) fn earliest(&self) -> Option<Instant> {
        match (self.in_order(), self.tree.earliest()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// The deadline of a waiter.
    #[inline]
    pub(crate) fn of(&self, waiter: u32) -> Option<Instant> {
        let node = self.nodes.slots().get(waiter as usize)?;
        if node.at == NEVER { self.tree.of(waiter) } else { Some(node.at) }
    }

    /// The waiter with the earliest deadline; of equal ones, any. Cost: O(log n).
    pub(crate) fn first(&self) -> Option<u32> {
        match (self.in_order(), self.tree.earliest()) {
            (Some(one), other) if other.is_none_or(|other| one <= other) => Some(self.head),
            _ => self.tree.first(),
        }
    }

    /// Makes room for `count` waiters.
    pub(crate) fn reserve(&mut self, count: u32) -> Result<(), Full> {
        self.nodes.reserve(count)?;
        self.tree.reserve(count)
    }

    fn in_order(&self) -> Option<Instant> {
        self.nodes.slots().get(self.head as usize).map(|node| node.at)
    }

    /// Adds a place to all tables, so that a deadline that changes later needs none.
    #[cold]
    fn grow(&mut self, waiter: u32) -> Result<(), Full> {
        self.tree.grow(waiter as usize + 1)?;
        while self.nodes.slots().len() <= waiter as usize {
            self.nodes.try_push(Node::NOWHERE)?;
        }
        Ok(())
    }

    /// The list is in order, the tree is right, and every waiter has the deadline that it should, once.
    pub(crate) fn assert_invariants(&self, expected: impl Fn(u32) -> Option<Instant>) {
        let nodes = self.nodes.slots();
        let mut in_order = 0;
        let (mut prev, mut at) = (NIL, self.head);
        while at != NIL {
            let node = &nodes[at as usize];
            assert_eq!(node.prev, prev, "waiter {at} does not point back");
            assert!(prev == NIL || nodes[prev as usize].at <= node.at, "waiter {at} is out of order");
            in_order += 1;
            assert!(in_order <= nodes.len(), "the list has a cycle");
            (prev, at) = (at, node.next);
        }
        assert_eq!(self.tail, prev);
        assert_eq!(in_order, nodes.iter().filter(|node| node.at != NEVER).count());
        self.tree.assert_invariants(|waiter| {
            let listed = nodes.get(waiter as usize).is_some_and(|node| node.at != NEVER);
            if listed { None } else { expected(waiter) }
        });
        for (waiter, _) in (0..).zip(nodes) {
            assert_eq!(self.of(waiter), expected(waiter), "deadline of waiter {waiter}");
        }
    }
}
