//! Slots with guarded keys, each on exactly one intrusive list; the list is the slot's state.

use super::{Full, Store};
use core::num::NonZeroU64;

#[cfg(test)]
mod tests;

/// No slot.
pub(crate) const NIL: u32 = u32::MAX;

/// Names a slot for as long as it is in use. The serial is unique in its table, starts at 1 and rises by
/// one with each insertion, so a key that outlived its slot matches nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) serial: NonZeroU64,
    pub(crate) index: u32,
}

/// A slot of a [`Table`].
#[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot<T> {
    value: T,
    serial: u64,
    prev: u32,
    next: u32,
    list: u8,
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

/// A table of slots on `LISTS` lists. Freed slots are on a list of their own and are reused newest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Table<S, const LISTS: usize> {
    store: S,
    lists: [List; LISTS],
    free: List,
    last_serial: u64,
}

/// The list number that marks a free slot.
const FREE: u8 = u8::MAX;

impl<S, const LISTS: usize> Table<S, LISTS> {
    pub(crate) const fn new(empty: S) -> Self {
        assert!(LISTS < FREE as usize);
        Self { store: empty, lists: [List::EMPTY; LISTS], free: List::EMPTY, last_serial: 0 }
    }

    /// How many slots are on `list`.
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
}

const fn some(index: u32) -> Option<u32> {
    if index == NIL { None } else { Some(index) }
}

impl<S, const LISTS: usize> Table<S, LISTS> {
    /// Adds a slot at the back of `list`.
    ///
    /// Cost: O(1); may allocate when no freed slot is left.
    pub(crate) fn insert<T: Copy>(&mut self, list: u8, value: T) -> Result<Key, Full>
    where
        S: Store<Slot<T>>,
    {
        debug_assert!((list as usize) < LISTS);
        let serial = self.last_serial + 1;
        let index = self.free.head;
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
            let slot = &mut slots[index as usize];
            slot.value = value;
            slot.serial = serial;
            index
        };
        self.last_serial = serial;
        push_back(self.store.slots_mut(), &mut self.lists[list as usize], index, list);
        Ok(Key { serial: NonZeroU64::new(serial).unwrap_or(NonZeroU64::MAX), index })
    }

    /// Frees a slot; every key of it is stale from now on.
    pub(crate) fn remove<T: Copy>(&mut self, index: u32)
    where
        S: Store<Slot<T>>,
    {
        let slots = self.store.slots_mut();
        let list = slots[index as usize].list;
        assert!(list != FREE, "a free slot is freed again");
        unlink(slots, &mut self.lists[list as usize], index);
        slots[index as usize].serial = 0;
        push_front(slots, &mut self.free, index);
    }

    /// Puts a slot at the back of another (or the same) list.
    pub(crate) fn move_to<T: Copy>(&mut self, index: u32, list: u8)
    where
        S: Store<Slot<T>>,
    {
        let slots = self.store.slots_mut();
        let from = slots[index as usize].list;
        unlink(slots, &mut self.lists[from as usize], index);
        push_back(slots, &mut self.lists[list as usize], index, list);
    }

    /// Puts a slot that is on list `from` at the back of list `to`: [`Table::move_to`] for hot paths that know both.
    #[inline(always)]
    pub(crate) fn transfer<T: Copy>(&mut self, index: u32, from: u8, to: u8)
    where
        S: Store<Slot<T>>,
    {
        let slots = self.store.slots_mut();
        debug_assert!(slots[index as usize].list == from);
        unlink(slots, &mut self.lists[from as usize], index);
        push_back(slots, &mut self.lists[to as usize], index, to);
    }

    /// Puts the last slot of list `from`, which is `index`, at the back of list `to`, and tells its key.
    #[inline(always)]
    pub(crate) fn transfer_back<T: Copy>(&mut self, index: u32, from: u8, to: u8) -> Key
    where
        S: Store<Slot<T>>,
    {
        assert!(self.lists[from as usize].tail == index, "not the last slot of its list");
        let slots = self.store.slots_mut();
        let Slot { prev, serial, .. } = slots[index as usize];
        let list = &mut self.lists[from as usize];
        match prev {
            NIL => list.head = NIL,
            prev => slots[prev as usize].next = NIL,
        }
        list.tail = prev;
        list.len -= 1;
        push_back(slots, &mut self.lists[to as usize], index, to);
        Key { serial: NonZeroU64::new(serial).unwrap_or(NonZeroU64::MAX), index }
    }

    /// The index that a key names, unless the key is stale.
    #[inline]
    pub(crate) fn find<T: Copy>(&self, key: Key) -> Option<u32>
    where
        S: Store<Slot<T>>,
    {
        match self.store.slots().get(key.index as usize) {
            Some(slot) if slot.serial == key.serial.get() => Some(key.index),
            _ => None,
        }
    }

    /// The key of a slot in use.
    #[inline]
    pub(crate) fn key<T: Copy>(&self, index: u32) -> Key
    where
        S: Store<Slot<T>>,
    {
        let serial = self.store.slots()[index as usize].serial;
        Key { serial: NonZeroU64::new(serial).unwrap_or(NonZeroU64::MAX), index }
    }

    /// The list that a slot in use is on.
    #[inline]
    pub(crate) fn list_of<T: Copy>(&self, index: u32) -> u8
    where
        S: Store<Slot<T>>,
    {
        self.store.slots()[index as usize].list
    }

    #[inline]
    pub(crate) fn get<T: Copy>(&self, index: u32) -> &T
    where
        S: Store<Slot<T>>,
    {
        &self.store.slots()[index as usize].value
    }

    #[inline]
    pub(crate) fn get_mut<T: Copy>(&mut self, index: u32) -> &mut T
    where
        S: Store<Slot<T>>,
    {
        &mut self.store.slots_mut()[index as usize].value
    }

    /// The slot after `index` on its list.
    #[inline]
    pub(crate) fn next<T: Copy>(&self, index: u32) -> Option<u32>
    where
        S: Store<Slot<T>>,
    {
        some(self.store.slots()[index as usize].next)
    }

    /// Whether [`Table::insert`] has a place, short of the allocator refusing.
    pub(crate) fn has_place<T: Copy>(&self) -> bool
    where
        S: Store<Slot<T>>,
    {
        self.free.len > 0 || self.store.slots().len() < self.store.limit() as usize
    }

    /// How many slots there can ever be.
    pub(crate) fn limit<T: Copy>(&self) -> u32
    where
        S: Store<Slot<T>>,
    {
        self.store.limit()
    }

    /// Makes room for `count` slots in all.
    pub(crate) fn reserve<T: Copy>(&mut self, count: u32) -> Result<(), Full>
    where
        S: Store<Slot<T>>,
    {
        self.store.reserve(count)
    }

    /// Every slot is on the list that it names, lists are well linked, and their lengths are true.
    pub(crate) fn assert_invariants<T: Copy>(&self)
    where
        S: Store<Slot<T>>,
    {
        let slots = self.store.slots();
        let mut seen = 0;
        for (number, list) in (0..).zip(&self.lists) {
            seen += check_list(slots, list, number);
        }
        seen += check_list(slots, &self.free, FREE);
        assert_eq!(seen, slots.len(), "a slot is on no list, or on two");
        for slot in slots {
            assert_eq!(slot.list == FREE, slot.serial == 0, "free slots have no serial, others have one");
            assert!(slot.serial <= self.last_serial);
        }
    }
}

fn check_list<T>(slots: &[Slot<T>], list: &List, number: u8) -> usize {
    let mut len = 0;
    let mut prev = NIL;
    let mut at = list.head;
    while at != NIL {
        let slot = &slots[at as usize];
        assert_eq!(slot.list, number, "slot {at} is on another list than it says");
        assert_eq!(slot.prev, prev, "slot {at} does not point back");
        len += 1;
        assert!(len <= slots.len(), "list {number} has a cycle");
        prev = at;
        at = slot.next;
    }
    assert_eq!(list.tail, prev, "list {number} ends elsewhere");
    assert_eq!(list.len as usize, len, "list {number} counts wrong");
    len
}

#[inline(always)]
fn unlink<T>(slots: &mut [Slot<T>], list: &mut List, index: u32) {
    let Slot { prev, next, .. } = slots[index as usize];
    if prev == NIL {
        list.head = next;
    } else {
        slots[prev as usize].next = next;
    }
    if next == NIL {
        list.tail = prev;
    } else {
        slots[next as usize].prev = prev;
    }
    list.len -= 1;
}

#[inline(always)]
fn push_back<T>(slots: &mut [Slot<T>], list: &mut List, index: u32, number: u8) {
    let tail = list.tail;
    let slot = &mut slots[index as usize];
    slot.list = number;
    slot.prev = tail;
    slot.next = NIL;
    if tail == NIL {
        list.head = index;
    } else {
        slots[tail as usize].next = index;
    }
    list.tail = index;
    list.len += 1;
}

fn push_front<T>(slots: &mut [Slot<T>], list: &mut List, index: u32) {
    let head = list.head;
    let slot = &mut slots[index as usize];
    slot.list = FREE;
    slot.prev = NIL;
    slot.next = head;
    if head == NIL {
        list.tail = index;
    } else {
        slots[head as usize].prev = index;
    }
    list.head = index;
    list.len += 1;
}
