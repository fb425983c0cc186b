//! The stream ids of one connection and the use of each.
//!
//! Each id has a bit that is set while the id is free. For each word of 64 ids, a bit in the level
//! above is set if the word has a free id; a third level does the same for 64 words of the second.
//! So a free id is found in three steps, however many are taken.
//!
//! Ids are assigned in rotation, so an id that was just freed is not reused at once: a duplicate
//! reply then has an id that no request has, and is detected. The rotation is limited to a window
//! that grows when less than half of it is free, so few requests need few entries in the driver's
//! table of requests.

#[cfg(test)]
mod tests;

use crate::hooks::{Point, fires};
use crate::storage::{Full, Store};

/// The maximum number of ids of a connection: 15 bits.
pub(super) const IDS_MAX: u32 = 1 << 15;

/// The offsets of the three words for each 64 ids: free, answered and late bits.
const FREE: usize = 0;
const ANSWERED: usize = 1;
const LATE: usize = 2;

/// The initial size of the window.
const WINDOW_FIRST: u32 = 128;

/// The number of words that a connection with this number of ids needs.
#[must_use]
pub const fn words(ids: u32) -> usize {
    let leaves = leaves(ids);
    leaves * 3 + leaves.div_ceil(64)
}

const fn leaves(ids: u32) -> usize {
    ids.div_ceil(64) as usize
}

/// The use of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Not in use, or not an id of this connection.
    Free,
    /// In use by a request whose reply is outstanding.
    Waiting,
    /// In use by a request whose reply has arrived and has not been taken.
    Answered,
    /// Reserved for the late reply to an abandoned request.
    Late,
}

/// The ids of one connection. Three bits for each: free, answered, late; while a reply is
/// outstanding, none of them is set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Streams<W> {
    words: W,
    /// One bit for each word of the second level, set if one of its 4096 ids is free.
    top: u64,
    ids: u32,
    /// The ids from this one on have never been assigned.
    window: u32,
    /// The id at which the search for a free id begins.
    cursor: u32,
    free: u32,
    late: u32,
}

impl<W: Store<u64>> Streams<W> {
    /// Creates a table without ids.
    pub(super) fn empty() -> Self {
        Self { words: W::empty(), top: 0, ids: 0, window: 0, cursor: 0, free: 0, late: 0 }
    }

    /// Sets the number of ids, and frees all of them. May allocate if the number is higher than
    /// ever before.
    ///
    /// - `keeps_first`: the first id is never assigned, unless it is the only one.
    pub(super) fn reset(&mut self, ids: u32, keeps_first: bool) -> Result<(), Full> {
        debug_assert!(ids > 0 && ids <= IDS_MAX);
        let count = words(ids);
        self.words.reserve(u32::try_from(count).map_err(|_| Full)?)?;
        while self.words.slots().len() < count {
            self.words.try_push(0)?;
        }
        self.words.slots_mut().fill(0);
        *self = Self {
            ids,
            window: 0,
            cursor: 0,
            free: 0,
            late: 0,
            top: 0,
            words: core::mem::replace(&mut self.words, W::empty()),
        };
        self.open(WINDOW_FIRST.min(ids));
        if keeps_first && ids > 1 {
            // No reply is expected with an id whose reply has arrived.
            if let Some(first) = self.take() {
                self.answer(first);
            }
        }
        Ok(())
    }

    /// Enlarges the window up to `window`, with the new ids free.
    fn open(&mut self, window: u32) {
        for id in self.window..window {
            self.put(id);
        }
        self.window = window;
    }

    /// The number of ids that can be assigned.
    pub(super) const fn free_count(&self) -> u32 {
        self.free + (self.ids - self.window)
    }

    /// The number of ids that are reserved for late replies.
    pub(super) const fn late_count(&self) -> u32 {
        self.late
    }

    /// The number of ids.
    pub(super) const fn ids(&self) -> u32 {
        self.ids
    }

    /// Takes a free id.
    ///
    /// Cost: O(1), amortized where the window grows.
    #[inline]
    pub(super) fn take(&mut self) -> Option<u32> {
        if self.free * 2 < self.window && self.window < self.ids {
            self.widen();
        }
        if fires(Point::OtherStream) {
            self.cursor = 0;
        }
        let near = (self.cursor / 64) as usize;
        let after = self.words.slots().get(near * 3 + FREE)? & (u64::MAX << (self.cursor % 64));
        let leaf = if after != 0 { near } else { self.next_leaf(near)? };
        let word = self.words.slots_mut().get_mut(leaf * 3 + FREE)?;
        // The free ids from the cursor on; for another word, all free ids.
        let found = if after != 0 { after } else { *word };
        let place = found.trailing_zeros();
        *word &= !bit(place);
        if *word == 0 {
            self.note_none(leaf);
        }
        let id = u32::try_from(leaf).ok()? * 64 + place;
        self.cursor = if id + 1 == self.ids { 0 } else { id + 1 };
        self.free -= 1;
        Some(id)
    }

    #[cold]
    fn widen(&mut self) {
        self.open((self.window * 2).min(self.ids));
    }

    /// The first word with a free id after the word `near`; if none follows, the first from the
    /// beginning.
    #[inline]
    fn next_leaf(&self, near: usize) -> Option<usize> {
        let words = self.words.slots();
        let above = near / 64;
        let rest = words.get(self.mid(above))? & beyond(near % 64);
        if rest != 0 {
            return Some(above * 64 + rest.trailing_zeros() as usize);
        }
        let rest = self.top & beyond(above);
        let top = if rest != 0 { rest } else { self.top };
        if top == 0 {
            return None;
        }
        let above = top.trailing_zeros() as usize;
        Some(above * 64 + words.get(self.mid(above))?.trailing_zeros() as usize)
    }

    /// Records that a word has no free id left.
    #[inline]
    fn note_none(&mut self, leaf: usize) {
        let (at, above) = (self.mid(leaf / 64), leaf / 64);
        if let Some(mid) = self.words.slots_mut().get_mut(at) {
            *mid &= !(1 << (leaf % 64));
            if *mid == 0 {
                self.top &= !(1 << above);
            }
        }
    }

    /// Records that a word has a free id again.
    #[inline]
    fn note_some(&mut self, leaf: usize) {
        let (at, above) = (self.mid(leaf / 64), leaf / 64);
        if let Some(mid) = self.words.slots_mut().get_mut(at) {
            *mid |= 1 << (leaf % 64);
        }
        self.top |= 1 << above;
    }

    /// Marks a taken id as free.
    #[inline]
    fn put(&mut self, id: u32) {
        let leaf = (id / 64) as usize;
        let Some(word) = self.words.slots_mut().get_mut(leaf * 3 + FREE) else { return };
        debug_assert!(*word & bit(id) == 0, "a free id is freed again");
        let before = *word;
        *word |= bit(id);
        if before == 0 {
            self.note_some(leaf);
        }
        self.free += 1;
    }

    /// The use of an id.
    #[inline]
    pub(super) fn of(&self, id: u32) -> Use {
        let start = (id / 64) as usize * 3;
        let words = self.words.slots().get(start..start + 3);
        let Some([free, answered, late]) = words else { return Use::Free };
        let bit = bit(id);
        if id >= self.window || free & bit != 0 {
            Use::Free
        } else if answered & bit != 0 {
            Use::Answered
        } else if late & bit != 0 {
            Use::Late
        } else {
            Use::Waiting
        }
    }

    /// `Waiting -> Answered`.
    #[inline]
    pub(super) fn answer(&mut self, id: u32) {
        debug_assert!(self.of(id) == Use::Waiting);
        self.flip(ANSWERED, id);
    }

    /// `Waiting -> Late`.
    pub(super) fn abandon(&mut self, id: u32) {
        debug_assert!(self.of(id) == Use::Waiting);
        self.flip(LATE, id);
        self.late += 1;
    }

    /// Frees an id whose [use](Streams::of) is `taken_for`.
    #[inline]
    pub(super) fn free(&mut self, id: u32, taken_for: Use) {
        debug_assert!(self.of(id) == taken_for);
        match taken_for {
            Use::Free => return,
            Use::Waiting => {}
            Use::Answered => self.flip(ANSWERED, id),
            Use::Late => {
                self.flip(LATE, id);
                self.late -= 1;
            }
        }
        self.put(id);
    }

    #[inline]
    fn flip(&mut self, what: usize, id: u32) {
        if let Some(word) = self.words.slots_mut().get_mut((id / 64) as usize * 3 + what) {
            *word ^= bit(id);
        }
    }

    /// The index of the second-level word that covers word `above` of the ids.
    #[inline]
    const fn mid(&self, above: usize) -> usize {
        leaves(self.ids) * 3 + above
    }

    /// The number of ids with outstanding replies, counted one by one.
    pub(super) fn count_waiting(&self) -> u32 {
        (0..self.window).map(|id| u32::from(self.of(id) == Use::Waiting)).sum()
    }

    /// Checks that counts and upper levels match the ids.
    pub(super) fn assert_invariants(&self) {
        let leaves = leaves(self.ids);
        let words = self.words.slots();
        let (mut free, mut late) = (0, 0);
        for id in 0..self.ids {
            let start = (id / 64) as usize * 3;
            let [is_free, is_answered, is_late] = [FREE, ANSWERED, LATE].map(|what| words[start + what] & bit(id) != 0);
            assert!(
                u32::from(is_free) + u32::from(is_answered) + u32::from(is_late) <= 1,
                "stream id {id} has two uses"
            );
            assert!(
                id < self.window || !(is_free || is_answered || is_late),
                "stream id {id} beyond the window is in use"
            );
            free += u32::from(is_free);
            late += u32::from(is_late);
        }
        assert_eq!((free, late), (self.free, self.late), "free and late stream ids");
        for leaf in 0..leaves {
            let above = words[self.mid(leaf / 64)] >> (leaf % 64) & 1 == 1;
            assert_eq!(above, words[leaf * 3 + FREE] != 0, "the second-level bit of word {leaf} is wrong");
        }
        for above in 0..leaves.div_ceil(64) {
            assert_eq!(
                self.top >> above & 1 == 1,
                words[self.mid(above)] != 0,
                "the top-level bit of word {above} is wrong"
            );
        }
    }
}

#[inline]
const fn bit(id: u32) -> u64 {
    1 << (id % 64)
}

/// The bits above the bit `place`.
#[inline]
const fn beyond(place: usize) -> u64 {
    if place == 63 { 0 } else { u64::MAX << (place + 1) }
}
