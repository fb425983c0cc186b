//! A set of deadlines with fast access to the earliest: a tree of minima over the slots of a table.
//!
//! Each slot has one deadline, a leaf of the tree. Each level above contains the minima of eight
//! entries of the level below, up to a single minimum. Eight entries are a cache line.
//!
//! An insertion stops at the first minimum that is not later; a removal stops at the first minimum
//! that does not change. With deadlines in random order, or inserted in order, that is one step on
//! average. The worst case is O(log n): seven steps for two million deadlines. There are no links
//! and no sorting.
//!
//! Memory of a fixed capacity of at most `SCANNED_MAX` slots has no minima: the earliest deadline
//! is found by a scan of the leaves. That is O(n), and less code. The capacity is a constant, so
//! only one of both ways is compiled.

use crate::Instant;
use crate::storage::{Full, Store};

#[cfg(test)]
mod tests;

/// The number of entries below one minimum.
const ARITY: usize = 8;

/// The number of levels of minima over 2^32 leaves.
const LEVELS: usize = 11;

/// The maximum capacity that is scanned: an operation then reads at most so many leaves, and there is
/// no code for minima.
const SCANNED_MAX: u32 = 32;

/// The value of a slot without a deadline. A deadline at this instant is ignored.
pub(crate) const NEVER: Instant = Instant::MAX;

#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Deadlines<S> {
    /// One leaf for each owner, up to the highest owner that ever had a deadline.
    leaves: S,
    /// The minima: first those of the leaves, last the minimum of all. None if leaves are scanned.
    minima: S,
    /// The number of leaves that the minima cover: none, or at least two.
    room: usize,
    /// The number of owners that have a deadline.
    count: usize,
}

impl<S: Store<Instant>> Deadlines<S> {
    #[doc(hidden)]
    #[inline]
    pub fn empty() -> Self {
        Self { leaves: S::empty(), minima: S::empty(), room: 0, count: 0 }
    }

    /// Adds the deadline of an owner that has none. A deadline at [`NEVER`] is ignored.
    ///
    /// Cost: O(log n), O(1) on average; O(1) if leaves are scanned. Allocates when the owner's leaf
    /// is new; an error is possible only then.
    #[doc(hidden)]
    #[inline]
    pub fn insert(&mut self, owner: u32, at: Instant) -> Result<(), Full> {
        if at == NEVER {
            return Ok(());
        }
        let index = owner as usize;
        if index >= self.leaves.slots().len() {
            self.grow(index + 1)?;
        }
        let leaf = &mut self.leaves.slots_mut()[index];
        assert!(*leaf == NEVER, "an owner has one deadline");
        *leaf = at;
        self.count += 1;
        if self.is_scanned() {
            return Ok(());
        }
        let minima = self.minima.slots_mut();
        let (mut start, mut size, mut index) = (0, self.room, index);
        while size > 1 {
            size = size.div_ceil(ARITY);
            index /= ARITY;
            let minimum = &mut minima[start + index];
            if *minimum <= at {
                break;
            }
            *minimum = at;
            start += size;
        }
        Ok(())
    }

    /// Removes the deadline of an owner, if any.
    ///
    /// Cost: O(log n), O(1) on average; O(1) if leaves are scanned.
    #[doc(hidden)]
    #[inline]
    pub fn remove(&mut self, owner: u32) {
        let Some(leaf) = self.leaves.slots_mut().get_mut(owner as usize) else { return };
        if *leaf == NEVER {
            return;
        }
        *leaf = NEVER;
        self.count -= 1;
        if self.is_scanned() {
            return;
        }
        // After the last deadline is removed, every minimum is `NEVER`.
        let earliest_of = |below: &[Instant], index| if self.count == 0 { NEVER } else { earliest_of(below, index) };
        let mut index = owner as usize / ARITY;
        let mut next = earliest_of(self.leaves.slots(), index);
        let (mut start, mut size) = (0, self.room.div_ceil(ARITY));
        let minima = self.minima.slots_mut();
        loop {
            let minimum = &mut minima[start + index];
            if *minimum == next {
                // Another owner has this minimum, or an equal one.
                break;
            }
            *minimum = next;
            if size == 1 {
                break;
            }
            index /= ARITY;
            next = earliest_of(&minima[start..start + size], index);
            start += size;
            size = size.div_ceil(ARITY);
        }
    }

    /// The earliest deadline. Cost: O(1); O(n) if leaves are scanned and one has a deadline.
    #[doc(hidden)]
    #[inline]
    pub fn earliest(&self) -> Option<Instant> {
        if self.is_scanned() {
            return if self.count == 0 { None } else { self.scan() };
        }
        self.minima.slots().last().copied().filter(|at| *at != NEVER)
    }

    /// The earliest leaf.
    #[inline(never)]
    fn scan(&self) -> Option<Instant> {
        self.leaves.slots().iter().copied().min()
    }

    /// The deadline of an owner.
    #[doc(hidden)]
    #[inline]
    pub fn of(&self, owner: u32) -> Option<Instant> {
        self.leaves.slots().get(owner as usize).copied().filter(|at| *at != NEVER)
    }

    /// The owner with the earliest deadline; of equal ones, the one with the lowest index. Cost:
    /// O(log n); O(n) if leaves are scanned.
    #[doc(hidden)]
    pub fn first(&self) -> Option<u32> {
        let at = self.earliest()?;
        if self.is_scanned() {
            return (0..).zip(self.leaves.slots()).find_map(|(owner, leaf)| (*leaf == at).then_some(owner));
        }
        let mut levels = [(0, 0); LEVELS];
        let (mut start, mut size, mut count) = (0, self.room, 0);
        while size > 1 {
            size = size.div_ceil(ARITY);
            levels[count] = (start, size);
            start += size;
            count += 1;
        }
        let minima = self.minima.slots();
        let mut index = 0;
        for (start, size) in levels[..count - 1].iter().rev() {
            index = first_at(&minima[*start..start + size], index, at)?;
        }
        u32::try_from(first_at(self.leaves.slots(), index, at)?).ok()
    }

    /// Reserves memory for `count` owners.
    pub(crate) fn reserve(&mut self, count: u32) -> Result<(), Full> {
        let count = count.min(self.leaves.limit()) as usize;
        self.leaves.reserve(u32::try_from(count).map_err(|_| Full)?)?;
        if count > self.room && !self.is_scanned() { self.widen(count) } else { Ok(()) }
    }

    /// Adds leaves up to `count`. If there are minima and they do not cover the leaves, extends them
    /// to twice as many leaves.
    #[cold]
    pub(crate) fn grow(&mut self, count: usize) -> Result<(), Full> {
        if count > self.room && !self.is_scanned() {
            let limit = self.leaves.limit() as usize;
            self.widen(count.saturating_mul(2).max(ARITY).min(limit).max(count))?;
        }
        while self.leaves.slots().len() < count {
            self.leaves.try_push(NEVER)?;
        }
        Ok(())
    }

    /// Whether a scan of the leaves replaces the minima.
    #[inline]
    fn is_scanned(&self) -> bool {
        self.leaves.limit() <= SCANNED_MAX
    }

    /// Extends the minima to `room` leaves, and computes them.
    fn widen(&mut self, room: usize) -> Result<(), Full> {
        // Even a single leaf has a minimum.
        let room = room.max(2);
        let (mut count, mut size) = (0, room);
        while size > 1 {
            size = size.div_ceil(ARITY);
            count += size;
        }
        self.minima.reserve(u32::try_from(count).map_err(|_| Full)?)?;
        while self.minima.slots().len() < count {
            self.minima.try_push(NEVER)?;
        }
        self.room = room;
        let minima = self.minima.slots_mut();
        let (mut start, mut size) = (0, room.div_ceil(ARITY));
        for (index, minimum) in minima[..size].iter_mut().enumerate() {
            *minimum = earliest_of(self.leaves.slots(), index);
        }
        while size > 1 {
            let (below, above) = minima[start..].split_at_mut(size);
            start += size;
            size = size.div_ceil(ARITY);
            for (index, minimum) in above[..size].iter_mut().enumerate() {
                *minimum = earliest_of(below, index);
            }
        }
        Ok(())
    }

    /// Checks that every minimum is correct, and that every owner has the expected deadline.
    pub(crate) fn assert_invariants(&self, expected: impl Fn(u32) -> Option<Instant>) {
        let leaves = self.leaves.slots();
        for (owner, leaf) in (0..).zip(leaves) {
            assert_eq!(*leaf, expected(owner).unwrap_or(NEVER), "deadline of owner {owner}");
        }
        assert!(leaves.len() <= self.room || self.is_scanned());
        assert_eq!(self.count, leaves.iter().filter(|at| **at != NEVER).count());
        let minima = self.minima.slots();
        let (mut below, mut start, mut size) = (leaves, 0, self.room);
        while size > 1 {
            size = size.div_ceil(ARITY);
            let level = &minima[start..start + size];
            for (index, minimum) in level.iter().enumerate() {
                assert_eq!(*minimum, earliest_of(below, index), "minimum {index} of {size}");
            }
            below = level;
            start += size;
        }
        assert_eq!(minima.len(), start);
        assert_eq!(self.earliest(), leaves.iter().copied().min().filter(|at| *at != NEVER));
    }
}

/// The earliest of the eight entries below this minimum; missing ones count as `NEVER`.
#[inline]
fn earliest_of(below: &[Instant], index: usize) -> Instant {
    let from = (index * ARITY).min(below.len());
    let to = (from + ARITY).min(below.len());
    below[from..to].iter().copied().min().unwrap_or(NEVER)
}

/// The index of the first of the eight entries below this minimum that equals `at`.
fn first_at(below: &[Instant], index: usize, at: Instant) -> Option<usize> {
    let from = index * ARITY;
    let to = (from + ARITY).min(below.len());
    below.get(from..to)?.iter().position(|one| *one == at).map(|offset| from + offset)
}
