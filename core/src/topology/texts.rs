//! Interned texts, each stored once: addresses, set names, tags.
//!
//! Texts are stored one after the other in one block of bytes. Before each text is a header with
//! its number and length. A list contains the numbers in the lexical order of their texts, for a
//! binary search: unlike with a hash, no choice of names makes a lookup slow. Uses of a text are
//! not counted. When room is needed, a sweep removes the texts that no description uses.

use super::memory::Memory;
use crate::hooks::origin;
use crate::storage::{Full, Slots, Store};
use core::cmp::Ordering;

#[cfg(test)]
mod tests;

/// Identifies a text while a description uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TextId(pub(super) u16);

/// No text.
const NONE: u16 = u16::MAX;
/// The bytes before a text: its number and its length.
const HEAD: u32 = 4;

/// The location of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TextSlot {
    offset: u32,
    /// The marking round in which it was last marked.
    mark: u32,
    len: u16,
    /// The next free slot.
    next: u16,
    used: bool,
    /// Whether it was interned as an address, in normal form.
    is_address: bool,
    /// Whether every sweep keeps it.
    pinned: bool,
}

/// The texts, read-only.
#[derive(Clone, Copy)]
pub(super) struct TextsRef<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) slots: &'a [TextSlot],
}

impl<'a> TextsRef<'a> {
    /// The text of this id; empty if there is none, which is a bug.
    pub(super) fn get(self, id: TextId) -> &'a str {
        core::str::from_utf8(self.bytes(id)).unwrap_or_default()
    }

    fn bytes(self, id: TextId) -> &'a [u8] {
        let slot = &self.slots[usize::from(id.0)];
        debug_assert!(slot.used, "a sweep removed a text that is in use");
        let at = slot.offset as usize;
        &self.bytes[at..at + usize::from(slot.len)]
    }
}

impl TextSlot {
    /// A slot in use, not marked.
    pub(super) const fn at(offset: u32, len: u16) -> Self {
        Self { offset, mark: 0, len, next: NONE, used: true, is_address: false, pinned: false }
    }
}

/// The interned texts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Texts<M: Memory> {
    bytes: Slots<u8, <M as Memory>::Bytes>,
    slots: Slots<TextSlot, <M as Memory>::PerText<TextSlot>>,
    /// The numbers of the used slots, in the order of their texts.
    order: Slots<u16, <M as Memory>::PerText<u16>>,
    /// The first free slot.
    free: u16,
    used: u16,
    /// The number of used slots after the last sweep.
    kept: u16,
    /// The current marking round.
    round: u32,
}

/// A sweep runs only if room is needed while at most this number of texts are used.
const SWEEP_MIN: u16 = 64;

impl<M: Memory> Texts<M> {
    #[inline]
    pub(super) fn empty() -> Self {
        Self {
            bytes: Store::empty(),
            slots: Store::empty(),
            order: Store::empty(),
            free: NONE,
            used: 0,
            kept: 0,
            round: origin(),
        }
    }

    pub(super) fn view(&self) -> TextsRef<'_> {
        TextsRef { bytes: self.bytes.slots(), slots: self.slots.slots() }
    }

    /// The id of this text, if it is stored. Cost: O(log n) comparisons.
    pub(super) fn find(&self, parts: [&[u8]; 3]) -> Option<TextId> {
        let at = self.search(parts).ok()?;
        self.order.slots().get(at).copied().map(TextId)
    }

    /// The index of this text in the order, or the index at which it must be inserted.
    fn search(&self, parts: [&[u8]; 3]) -> Result<usize, usize> {
        let view = self.view();
        self.order.slots().binary_search_by(|number| compare(view.bytes(TextId(*number)), parts))
    }

    /// Returns the id of the concatenation of these parts, and stores it if it is new.
    ///
    /// Cost: O(log n) comparisons; for a new text also O(length), and the later numbers in the
    /// order move by one. May allocate for a new text.
    pub(super) fn intern(&mut self, parts: [&[u8]; 3]) -> Result<TextId, Full> {
        let at = match self.search(parts) {
            Ok(at) => return Ok(TextId(self.order.slots()[at])),
            Err(at) => at,
        };
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let len = u16::try_from(len).map_err(|_| Full)?;
        let offset = u32::try_from(self.bytes.slots().len()).map_err(|_| Full)? + HEAD;
        let end = offset + u32::from(len);
        if end > M::BYTES_MAX || end > self.bytes.limit() {
            return Err(Full);
        }
        self.bytes.reserve(end)?;
        let id = self.store(TextSlot::at(offset, len), at)?;
        let head = id.0.to_le_bytes().into_iter().chain(len.to_le_bytes());
        for byte in head.chain(parts.into_iter().flatten().copied()) {
            self.bytes.try_push(byte)?;
        }
        Ok(id)
    }

    /// The id of a text that was interned as an address.
    pub(super) fn find_address(&self, text: &str) -> Option<TextId> {
        let id = self.find([text.as_bytes(), &[], &[]])?;
        self.slots.slots()[usize::from(id.0)].is_address.then_some(id)
    }

    /// Whether the text of this id equals `text` and was interned as an address.
    pub(super) fn is_address(&self, id: TextId, text: &str) -> bool {
        self.slots.slots()[usize::from(id.0)].is_address && self.view().bytes(id) == text.as_bytes()
    }

    /// [`Texts::intern`] for an address in its normal form. A pinned one is never removed.
    pub(super) fn intern_address(&mut self, address: &[u8], pinned: bool) -> Result<TextId, Full> {
        let id = self.intern([address, &[], &[]])?;
        let slot = &mut self.slots.slots_mut()[usize::from(id.0)];
        slot.is_address = true;
        slot.pinned |= pinned;
        Ok(id)
    }

    /// Whether far more texts are used than after the last sweep, or there is no room for `more`
    /// texts of `bytes` in total.
    pub(super) fn is_sweep_due(&self, more: u32, bytes: u32) -> bool {
        let bytes = bytes.saturating_add(HEAD.saturating_mul(more));
        let held = u32::try_from(self.bytes.slots().len()).unwrap_or(u32::MAX);
        self.used > self.kept.saturating_mul(2).max(SWEEP_MIN)
            || u32::from(self.used).saturating_add(more) > self.limit()
            || held.saturating_add(bytes) > M::BYTES_MAX.min(self.bytes.limit())
    }

    /// The maximum number of texts.
    pub(super) fn limit(&self) -> u32 {
        u32::from(M::TEXTS_MAX).min(self.slots.limit())
    }

    /// Begins a marking round: no text is marked.
    pub(super) fn unmark_all(&mut self) {
        if let Some(round) = self.round.checked_add(1) {
            self.round = round;
            return;
        }
        self.round = 1;
        for slot in self.slots.slots_mut() {
            slot.mark = 0;
        }
    }

    /// Marks a text. Returns whether it was not yet marked in this round.
    pub(super) fn mark(&mut self, id: TextId) -> bool {
        let slot = &mut self.slots.slots_mut()[usize::from(id.0)];
        let is_new = slot.mark != self.round;
        slot.mark = self.round;
        is_new
    }

    /// Whether a text was marked in this round.
    pub(super) fn is_marked(&self, id: TextId) -> bool {
        self.slots.slots()[usize::from(id.0)].mark == self.round
    }

    /// Unpins all texts. They are no addresses either until they are interned as such again.
    pub(super) fn unpin_all(&mut self) {
        for slot in self.slots.slots_mut().iter_mut().filter(|slot| slot.pinned) {
            (slot.pinned, slot.is_address) = (false, false);
        }
    }

    /// Removes every text that is neither marked in this round nor pinned. Cost: O(bytes).
    pub(super) fn sweep(&mut self) {
        let slots = self.slots.slots_mut();
        let bytes = self.bytes.slots_mut();
        let (mut from, mut to) = (0, 0);
        while from < bytes.len() {
            let number = u16::from_le_bytes([bytes[from], bytes[from + 1]]);
            let len = u16::from_le_bytes([bytes[from + 2], bytes[from + 3]]);
            let end = from + HEAD as usize + usize::from(len);
            let slot = &mut slots[usize::from(number)];
            if slot.mark == self.round || slot.pinned {
                bytes.copy_within(from..end, to);
                slot.offset = u32::try_from(to).unwrap_or(u32::MAX) + HEAD;
                to += end - from;
            } else {
                slot.used = false;
                slot.next = self.free;
                self.free = number;
                self.used -= 1;
            }
            from = end;
        }
        while self.bytes.slots().len() > to {
            self.bytes.pop();
        }
        self.kept = self.used;
        let mut left = 0;
        for at in 0..self.order.slots().len() {
            let number = self.order.slots()[at];
            if self.slots.slots()[usize::from(number)].used {
                self.order.slots_mut()[left] = number;
                left += 1;
            }
        }
        while self.order.slots().len() > left {
            self.order.pop();
        }
    }

    /// Stores the slot in a free entry or a new one, and inserts its number into the order at this
    /// index.
    fn store(&mut self, slot: TextSlot, at: usize) -> Result<TextId, Full> {
        self.order.try_push(NONE)?;
        let number = self.take_slot(slot).inspect_err(|Full| {
            self.order.pop();
        })?;
        self.used += 1;
        let order = self.order.slots_mut();
        order.copy_within(at..order.len() - 1, at + 1);
        order[at] = number;
        Ok(TextId(number))
    }

    fn take_slot(&mut self, slot: TextSlot) -> Result<u16, Full> {
        let number = self.free;
        if number != NONE {
            let free = &mut self.slots.slots_mut()[usize::from(number)];
            self.free = free.next;
            *free = slot;
            return Ok(number);
        }
        let number = u16::try_from(self.slots.slots().len()).map_err(|_| Full)?;
        if u32::from(number) >= self.limit() {
            return Err(Full);
        }
        self.slots.try_push(slot)?;
        Ok(number)
    }

    /// Checks that every used text is found and is located at its offset, and that the block
    /// contains no other texts.
    pub(super) fn assert_invariants(&self) {
        let view = self.view();
        let mut at = 0;
        let mut count = 0;
        while at < view.bytes.len() {
            let number = u16::from_le_bytes([view.bytes[at], view.bytes[at + 1]]);
            let slot = &view.slots[usize::from(number)];
            assert!(slot.used, "the block contains a text with a free number");
            assert_eq!(slot.offset as usize, at + HEAD as usize, "a text is at another offset than its slot names");
            let text = view.bytes(TextId(number));
            assert_eq!(self.find([text, &[], &[]]), Some(TextId(number)), "a text is not found, or is stored twice");
            assert!(core::str::from_utf8(text).is_ok());
            at += HEAD as usize + usize::from(slot.len);
            count += 1;
        }
        assert_eq!(at, view.bytes.len());
        assert_eq!(count, self.used, "texts are counted wrong");
        let order = self.order.slots();
        assert_eq!(order.len(), usize::from(self.used), "the order has a text twice, or lacks one");
        let is_sorted = order.is_sorted_by_key(|number| view.bytes(TextId(*number)));
        assert!(is_sorted, "texts are out of order");
        assert_eq!(view.slots.iter().filter(|slot| slot.used).count(), usize::from(self.used));
        let mut free = 0;
        let mut next = self.free;
        while next != NONE {
            assert!(!view.slots[usize::from(next)].used, "a used slot is on the free list");
            next = view.slots[usize::from(next)].next;
            free += 1;
        }
        assert_eq!(free + usize::from(self.used), view.slots.len(), "a slot is neither used nor free");
    }
}

/// Compares a text with the concatenation of these parts.
fn compare(text: &[u8], parts: [&[u8]; 3]) -> Ordering {
    // Fast path: addresses and set names have one part.
    if let [whole, [], []] = parts {
        return text.cmp(whole);
    }
    let mut rest = text;
    for part in parts {
        let (head, tail) = rest.split_at(part.len().min(rest.len()));
        match head.cmp(part) {
            Ordering::Equal => rest = tail,
            unequal @ (Ordering::Less | Ordering::Greater) => return unequal,
        }
    }
    rest.len().cmp(&0)
}
