//! Slots with guarded keys, each on exactly one intrusive list; the list is the slot's state.

use super::{Full, Slots, Store};
use crate::hooks::{Point, Word, fires};
use core::fmt;
use core::hash::{Hash, Hasher};
use core::num::NonZeroU64;

#[cfg(test)]
mod tests;

/// The index that means "no slot".
pub(crate) const NIL: u32 = u32::MAX;

/// The serial number of the owner of a slot; 0 means none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Serial(pub(crate) u64);

impl Hash for Serial {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Word::Serial.hash(self.0, state);
    }
}

impl fmt::Debug for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifies a slot while it is in use. The serial is unique in its table, starts at 1 and rises
/// by one with each insertion, so the key of a freed slot matches no later owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) serial: NonZeroU64,
    /// A `u32`, in a whole word: processors stall when a word is loaded that was stored in parts.
    index: u64,
}

impl Key {
    const fn new(serial: NonZeroU64, index: u32) -> Self {
        Self { serial, index: index as u64 }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the index is a u32")]
    pub(crate) const fn index(self) -> u32 {
        self.index as u32
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (Serial(self.serial.get()), self.index()).hash(state);
    }
}

/// A slot of a [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot<T> {
    value: T,
    serial: Serial,
    prev: u32,
    next: u32,
    list: u8,
}

impl<T: Hash> Hash for Slot<T> {
    /// Leaves out the previous contents of a free slot.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.list, self.prev, self.next).hash(state);
        if self.list != FREE {
            (self.serial, &self.value).hash(state);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl List {
    const EMPTY: Self = Self { head: NIL, tail: NIL, len: 0 };
}

/// A table of slots on `LISTS` lists. Freed slots are on a separate list and are reused newest
/// first.
pub(crate) struct Table<T, S, const LISTS: usize> {
    store: Slots<Slot<T>, S>,
    lists: [List; LISTS],
    free: List,
    last_serial: Serial,
}

/// The list number that marks a free slot.
const FREE: u8 = u8::MAX;

impl<T: Copy, S: Store<Slot<T>>, const LISTS: usize> Table<T, S, LISTS> {
    #[inline]
    pub(crate) fn empty() -> Self {
        const { assert!(LISTS < FREE as usize) };
        Self { store: Slots::empty(), lists: [List::EMPTY; LISTS], free: List::EMPTY, last_serial: Serial(0) }
    }

    /// The number of slots on `list`.
    #[inline]
    pub(crate) const fn len(&self, list: u8) -> u32 {
        self.lists[list as usize].len
    }

    /// The oldest slot on `list`.
    #[inline]
    pub(crate) const fn front(&self, list: u8) -> Option<u32> {
        some(self.lists[list as usize].head)
    }

    /// The newest slot on `list`.
    #[inline]
    pub(crate) const fn back(&self, list: u8) -> Option<u32> {
        some(self.lists[list as usize].tail)
    }

    /// Adds a slot at the back of `list`.
    ///
    /// Cost: O(1); may allocate when no freed slot is left.
    pub(crate) fn insert(&mut self, list: u8, value: T) -> Result<Key, Full> {
        debug_assert!((list as usize) < LISTS);
        let serial = Serial(self.last_serial.0 + 1);
        let index = if fires(Point::OtherPlace) { self.free.tail } else { self.free.head };
        let index = if index == NIL {
            let index = u32::try_from(self.store.slots().len()).map_err(|_| Full)?;
            if index >= self.store.limit() {
                return Err(Full);
            }
            self.store.try_push(Slot { value, serial, prev: NIL, next: NIL, list })?;
            index
        } else {
            let slots = self.store.slots_mut();
            unlink(slots, &mut self.free, index);
            let slot = slots.get_mut(index as usize).ok_or(Full)?;
            slot.value = value;
            slot.serial = serial;
            index
        };
        self.last_serial = serial;
        if let Some(to) = self.lists.get_mut(list as usize) {
            push_back(self.store.slots_mut(), to, index, list);
        }
        Ok(Key::new(NonZeroU64::new(serial.0).unwrap_or(NonZeroU64::MAX), index))
    }

    /// Frees a slot. All keys of it become stale.
    pub(crate) fn remove(&mut self, index: u32) {
        let slots = self.store.slots_mut();
        let Some(slot) = slots.get_mut(index as usize) else { return };
        debug_assert!(slot.list != FREE, "a free slot is freed again");
        let Some(list) = self.lists.get_mut(slot.list as usize) else { return };
        slot.serial = Serial(0);
        unlink(slots, list, index);
        push_front(slots, &mut self.free, index);
    }

    /// Moves a slot to the back of another (or the same) list.
    pub(crate) fn move_to(&mut self, index: u32, list: u8) {
        let slots = self.store.slots_mut();
        let Some(from) = slots.get(index as usize).and_then(|slot| self.lists.get_mut(slot.list as usize)) else {
            return;
        };
        unlink(slots, from, index);
        if let Some(to) = self.lists.get_mut(list as usize) {
            push_back(slots, to, index, list);
        }
    }

    /// Moves a slot from list `from` to the back of list `to`: a faster [`Table::move_to`] for
    /// callers that know both lists.
    #[inline(always)]
    pub(crate) fn transfer(&mut self, index: u32, from: u8, to: u8) {
        let slots = self.store.slots_mut();
        debug_assert!(slots.get(index as usize).is_some_and(|slot| slot.list == from));
        unlink(slots, &mut self.lists[from as usize], index);
        push_back(slots, &mut self.lists[to as usize], index, to);
    }

    /// Moves the last slot of list `from`, if any, to the back of list `to`, and returns its key.
    #[inline(always)]
    pub(crate) fn transfer_back(&mut self, from: u8, to: u8) -> Option<Key> {
        let slots = self.store.slots_mut();
        let list = &mut self.lists[from as usize];
        let index = list.tail;
        let &Slot { prev, serial, .. } = slots.get(index as usize)?;
        let serial = NonZeroU64::new(serial.0)?;
        match slots.get_mut(prev as usize) {
            Some(before) => before.next = NIL,
            None => list.head = NIL,
        }
        list.tail = prev;
        list.len -= 1;
        push_back(slots, &mut self.lists[to as usize], index, to);
        Some(Key::new(serial, index))
    }

    /// The index of the slot with this key, or `None` if the key is stale.
    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<u32> {
        match self.store.slots().get(key.index() as usize) {
            Some(slot) if slot.serial.0 == key.serial.get() => Some(key.index()),
            _ => None,
        }
    }

    /// The key of a slot in use.
    #[inline]
    pub(crate) fn key(&self, index: u32) -> Key {
        let serial = self.store.slots().get(index as usize).map_or(Serial(0), |slot| slot.serial);
        Key::new(NonZeroU64::new(serial.0).unwrap_or(NonZeroU64::MAX), index)
    }

    /// The list that a slot is on.
    #[inline]
    pub(crate) fn list_of(&self, index: u32) -> u8 {
        self.store.slots().get(index as usize).map_or(FREE, |slot| slot.list)
    }

    /// The value of a slot, for hot paths. `None` for [`NIL`].
    #[inline]
    pub(crate) fn at(&self, index: u32) -> Option<&T> {
        self.store.slots().get(index as usize).map(|slot| &slot.value)
    }

    /// The value of the newest slot on `list`.
    #[inline(always)]
    pub(crate) fn last(&self, list: u8) -> Option<&T> {
        // The value of an empty list's tail is `NIL`, which is the index of no slot.
        self.at(self.lists[list as usize].tail)
    }

    /// The value of the slot with this key, or `None` if the key is stale or the slot is on another
    /// list. For hot paths.
    #[inline(always)]
    pub(crate) fn find_on(&self, key: Key, list: u8) -> Option<&T> {
        let slot = self.store.slots().get(key.index() as usize)?;
        (slot.serial.0 == key.serial.get() && slot.list == list).then_some(&slot.value)
    }

    /// The value of a slot, for hot paths.
    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.store.slots_mut().get_mut(index as usize).map(|slot| &mut slot.value)
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &T {
        &self.store.slots()[index as usize].value
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut T {
        &mut self.store.slots_mut()[index as usize].value
    }

    /// The slot after `index` on its list.
    #[inline]
    pub(crate) fn next(&self, index: u32) -> Option<u32> {
        some(self.store.slots().get(index as usize)?.next)
    }

    /// Whether [`Table::insert`] has a free slot or may add one. The allocator may refuse
    /// nevertheless.
    pub(crate) fn has_free_slot(&self) -> bool {
        self.free.len > 0 || self.store.slots().len() < self.store.limit() as usize
    }

    /// Whether any slot is in use.
    pub(crate) fn has_any(&self) -> bool {
        self.free.len as usize != self.store.slots().len()
    }

    /// The maximum number of slots.
    #[inline]
    pub(crate) fn limit(&self) -> u32 {
        self.store.limit()
    }

    /// Reserves memory for `count` slots in total.
    pub(crate) fn reserve(&mut self, count: u32) -> Result<(), Full> {
        self.store.reserve(count)
    }

    /// Checks that every slot is on the list that it names, that lists are linked correctly, and
    /// that their lengths are correct.
    pub(crate) fn assert_invariants(&self) {
        let slots = self.store.slots();
        let mut seen = 0;
        for (number, list) in (0..).zip(&self.lists) {
            seen += check_list(slots, list, number);
        }
        seen += check_list(slots, &self.free, FREE);
        assert_eq!(seen, slots.len(), "a slot is on no list, or on two lists");
        for slot in slots {
            assert_eq!(slot.list == FREE, slot.serial.0 == 0, "free slots have no serial, others have one");
            assert!(slot.serial <= self.last_serial);
        }
    }
}

impl<T: Clone, S: Store<Slot<T>>, const LISTS: usize> Clone for Table<T, S, LISTS> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), ..*self }
    }
}

impl<T: PartialEq, S: Store<Slot<T>>, const LISTS: usize> PartialEq for Table<T, S, LISTS> {
    fn eq(&self, other: &Self) -> bool {
        (&self.store, self.lists, self.free, self.last_serial)
            == (&other.store, other.lists, other.free, other.last_serial)
    }
}

impl<T: Eq, S: Store<Slot<T>>, const LISTS: usize> Eq for Table<T, S, LISTS> {}

impl<T: Hash, S: Store<Slot<T>>, const LISTS: usize> Hash for Table<T, S, LISTS> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.store, self.lists, self.free, self.last_serial).hash(state);
    }
}

const fn some(index: u32) -> Option<u32> {
    if index == NIL { None } else { Some(index) }
}

fn check_list<T>(slots: &[Slot<T>], list: &List, number: u8) -> usize {
    let mut len = 0;
    let mut prev = NIL;
    let mut at = list.head;
    while at != NIL {
        let slot = &slots[at as usize];
        assert_eq!(slot.list, number, "slot {at} is on another list than it names");
        assert_eq!(slot.prev, prev, "the back link of slot {at} is wrong");
        len += 1;
        assert!(len <= slots.len(), "list {number} has a cycle");
        prev = at;
        at = slot.next;
    }
    assert_eq!(list.tail, prev, "list {number} ends elsewhere");
    assert_eq!(list.len as usize, len, "list {number} counts wrong");
    len
}

// `NIL` is the index of no slot, so one bounds check detects whether a neighbour exists, and no
// index can panic.

#[inline(always)]
fn unlink<T>(slots: &mut [Slot<T>], list: &mut List, index: u32) {
    let Some(&Slot { prev, next, .. }) = slots.get(index as usize) else { return };
    match slots.get_mut(prev as usize) {
        Some(before) => before.next = next,
        None => list.head = next,
    }
    match slots.get_mut(next as usize) {
        Some(after) => after.prev = prev,
        None => list.tail = prev,
    }
    list.len -= 1;
}

#[inline(always)]
fn push_back<T>(slots: &mut [Slot<T>], list: &mut List, index: u32, number: u8) {
    let tail = list.tail;
    let Some(slot) = slots.get_mut(index as usize) else { return };
    slot.list = number;
    slot.prev = tail;
    slot.next = NIL;
    match slots.get_mut(tail as usize) {
        Some(last) => last.next = index,
        None => list.head = index,
    }
    list.tail = index;
    list.len += 1;
}

fn push_front<T>(slots: &mut [Slot<T>], list: &mut List, index: u32) {
    let head = list.head;
    let Some(slot) = slots.get_mut(index as usize) else { return };
    slot.list = FREE;
    slot.prev = NIL;
    slot.next = head;
    match slots.get_mut(head as usize) {
        Some(first) => first.prev = index,
        None => list.tail = index,
    }
    list.head = index;
    list.len += 1;
}
