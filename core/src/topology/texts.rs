//! Every text once: addresses, set names, tags.
//!
//! Texts lie one after the other in one block of bytes, each behind its number and length, and are found by a hash.
//! Nobody counts who uses a text: those that nobody marks are swept away when room is wanted.

use super::memory::Stores;
use crate::storage::{Full, Store};

/// Names a text for as long as a description has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TextId(pub(super) u16);

/// No text.
const NONE: u16 = u16::MAX;
/// What lies before the bytes of a text: its number and its length.
const HEAD: u32 = 4;

/// Where a text is.
#[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TextSlot {
    offset: u32,
    hash: u32,
    /// The round in which it was marked last.
    mark: u32,
    len: u16,
    /// The next one of its bucket, or the next free one.
    next: u16,
    used: bool,
}

/// Texts to be read.
#[derive(Clone, Copy)]
pub(super) struct TextsRef<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) slots: &'a [TextSlot],
}

impl<'a> TextsRef<'a> {
    /// The text of this number; empty if there is none, which is a bug.
    pub(super) fn get(self, id: TextId) -> &'a str {
        core::str::from_utf8(self.bytes(id)).unwrap_or_default()
    }

    fn bytes(self, id: TextId) -> &'a [u8] {
        let slot = &self.slots[usize::from(id.0)];
        debug_assert!(slot.used, "a text was swept away that is still named");
        let at = slot.offset as usize;
        &self.bytes[at..at + usize::from(slot.len)]
    }
}

impl TextSlot {
    /// The place of a text that is only read.
    #[cfg(feature = "alloc")]
    pub(super) const fn at(offset: u32, len: u16) -> Self {
        Self { offset, hash: 0, mark: 0, len, next: NONE, used: true }
    }
}

/// Texts, each once.
#[derive(Clone, Debug)]
pub(super) struct Texts<M: Stores> {
    bytes: M::Bytes,
    slots: M::Texts,
    buckets: M::Buckets,
    /// The first free slot.
    free: u16,
    /// How many slots are used.
    used: u16,
    /// How many were used after the last sweep.
    kept: u16,
    /// The round of marks that is under way.
    round: u32,
}
impl<M: Stores> Texts<M> {
    pub(super) fn get_ref(&self) -> TextsRef<'_> { TextsRef { bytes: self.bytes.slots(), slots: self.slots.slots() } }
}
