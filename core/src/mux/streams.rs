//! The stream ids of one connection: which are free, and what those that are not are taken for.
//!
//! An id is a bit. Above each 64 of them a bit says whether one of these is free, and again above each 64 of those, so that a free id is found
//! in three steps whatever is taken. Ids are given out in turn, so that one that was used is not used again at once: a reply that comes twice
//! then meets an id that nobody has. The turn goes round a window that grows when less than half of it is free, so that few requests
//! need few places in a table beside.

#[cfg(test)]
mod tests;

use crate::storage::{Full, Store};

/// The most ids that a connection can have: what 15 bits name.
pub(super) const IDS_MAX: u32 = 1 << 15;

/// The first window.
const WINDOW_FIRST: u32 = 128;

/// How many words a connection with so many ids takes.
#[must_use]
pub const fn words(ids: u32) -> usize {
    let leaves = leaves(ids);
    leaves * 3 + leaves.div_ceil(64)
}

const fn leaves(ids: u32) -> usize {
    ids.div_ceil(64) as usize
}

/// What an id is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Nothing; or there is no such id.
    Free,
    /// A request whose reply is outstanding.
    Waiting,
    /// A request whose reply is there, and was not taken yet.
    Answered,
    /// A request that was given up; the reply will still come.
    Late,
}

/// The ids of one connection. Three bits each: free, answered, late.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Streams<W> {
    words: W,
    /// One bit for each 64 words that have a free id among them.
    top: u64,
    ids: u32,
    /// Ids from here on were never given out.
    window: u32,
    /// Where the next free id is looked for.
    cursor: u32,
    free: u32,
    late: u32,
}

impl<W: Store<u64>> Streams<W> {
    /// No ids.
    pub(super) fn empty() -> Self {
        Self { words: W::empty(), top: 0, ids: 0, window: 0, cursor: 0, free: 0, late: 0 }
    }

    /// Makes it `ids` ids, all free. Cold: may allocate when it never had as many.
    pub(super) fn reset(&mut self, ids: u32) -> Result<(), Full> {
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
        Ok(())
    }

    /// Lets ids up to `window` be given out.
    fn open(&mut self, window: u32) {
        for id in self.window..window {
            self.put(id);
        }
        self.window = window;
    }

    /// How many ids can be given out.
    pub(super) const fn free_count(&self) -> u32 {
        self.free + (self.ids - self.window)
    }

    /// How many ids wait for a late reply.
    pub(super) const fn late_count(&self) -> u32 {
        self.late
    }

    /// How many ids there are.
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
        let id = self.next_free(self.cursor).or_else(|| self.next_free(0))?;
        let leaf = (id / 64) as usize;
        let (at, above) = (self.mid(leaf / 64), leaf / 64);
        let words = self.words.slots_mut();
        let word = words.get_mut(leaf)?;
        *word &= !bit(id);
        if *word == 0 {
            let mid = words.get_mut(at)?;
            *mid &= !(1 << (leaf % 64));
            if *mid == 0 {
                self.top &= !(1 << above);
            }
        }
        self.cursor = id + 1;
        self.free -= 1;
        Some(id)
    }

    #[cold]
    fn widen(&mut self) {
        self.open((self.window * 2).min(self.ids));
    }

    /// The first free id from `from` on.
    #[inline]
    fn next_free(&self, from: u32) -> Option<u32> {
        let words = self.words.slots();
        let leaf = (from / 64) as usize;
        if from >= self.window {
            return None;
        }
        let rest = words.get(leaf)? & (u64::MAX << (from % 64));
        if rest != 0 {
            return Some(from / 64 * 64 + rest.trailing_zeros());
        }
        let above = leaf / 64;
        let rest = words.get(self.mid(above))? & beyond(leaf % 64);
        let leaf = if rest != 0 {
            above * 64 + rest.trailing_zeros() as usize
        } else {
            let rest = self.top & beyond(above);
            if rest == 0 {
                return None;
            }
            let above = rest.trailing_zeros() as usize;
            above * 64 + words.get(self.mid(above))?.trailing_zeros() as usize
        };
        let word = words.get(leaf)?;
        u32::try_from(leaf).ok().map(|leaf| leaf * 64 + word.trailing_zeros())
    }

    /// Marks an id that is taken as free.
    #[inline]
    fn put(&mut self, id: u32) {
        let leaf = (id / 64) as usize;
        let at = self.mid(leaf / 64);
        let words = self.words.slots_mut();
        if let Some(word) = words.get_mut(leaf) {
            debug_assert!(*word & bit(id) == 0, "a free id is freed again");
            *word |= bit(id);
        }
        if let Some(mid) = words.get_mut(at) {
            *mid |= 1 << (leaf % 64);
        }
        self.top |= 1 << (leaf / 64);
        self.free += 1;
    }

    /// What an id is taken for.
    #[inline]
    pub(super) fn of(&self, id: u32) -> Use {
        let leaf = (id / 64) as usize;
        let leaves = leaves(self.ids);
        let words = self.words.slots();
        let has = |index: usize| words.get(index).is_some_and(|word| word & bit(id) != 0);
        if id >= self.window || has(leaf) {
            Use::Free
        } else if has(leaves + leaf) {
            Use::Answered
        } else if has(2 * leaves + leaf) {
            Use::Late
        } else {
            Use::Waiting
        }
    }

    /// `Waiting -> Answered`.
    #[inline]
    pub(super) fn answer(&mut self, id: u32) {
        debug_assert!(self.of(id) == Use::Waiting);
        self.flip(leaves(self.ids), id);
    }

    /// `Waiting -> Late`.
    pub(super) fn give_up(&mut self, id: u32) {
        debug_assert!(self.of(id) == Use::Waiting);
        self.flip(2 * leaves(self.ids), id);
        self.late += 1;
    }

    /// Frees an id, whatever it is taken for.
    #[inline]
    pub(super) fn free(&mut self, id: u32) {
        match self.of(id) {
            Use::Free => return,
            Use::Waiting => {}
            Use::Answered => self.flip(leaves(self.ids), id),
            Use::Late => {
                self.flip(2 * leaves(self.ids), id);
                self.late -= 1;
            }
        }
        self.put(id);
    }

    #[inline]
    fn flip(&mut self, start: usize, id: u32) {
        if let Some(word) = self.words.slots_mut().get_mut(start + (id / 64) as usize) {
            *word ^= bit(id);
        }
    }

    /// Where the word is that stands above 64 leaves.
    #[inline]
    const fn mid(&self, above: usize) -> usize {
        leaves(self.ids) * 3 + above
    }

    /// How many ids are taken for requests whose replies are outstanding, counted anew.
    pub(super) fn count_waiting(&self) -> u32 {
        (0..self.window).map(|id| u32::from(self.of(id) == Use::Waiting)).sum()
    }

    /// Counts and summaries are true.
    pub(super) fn assert_invariants(&self) {
        let leaves = leaves(self.ids);
        let words = self.words.slots();
        let (mut free, mut late) = (0, 0);
        for id in 0..self.ids {
            let index = (id / 64) as usize;
            let [is_free, is_answered, is_late] =
                [index, leaves + index, 2 * leaves + index].map(|index| words[index] & bit(id) != 0);
            assert!(u32::from(is_free) + u32::from(is_answered) + u32::from(is_late) <= 1, "stream {id} is two things");
            assert!(id < self.window || !(is_free || is_answered || is_late), "stream {id} is beyond the window");
            free += u32::from(is_free);
            late += u32::from(is_late);
        }
        assert_eq!((free, late), (self.free, self.late), "free and late stream ids");
        for leaf in 0..leaves {
            let above = words[self.mid(leaf / 64)] >> (leaf % 64) & 1 == 1;
            assert_eq!(above, words[leaf] != 0, "the bit above word {leaf}");
        }
        for above in 0..leaves.div_ceil(64) {
            assert_eq!(self.top >> above & 1 == 1, words[self.mid(above)] != 0, "the bit on top of word {above}");
        }
    }
}

#[inline]
const fn bit(id: u32) -> u64 {
    1 << (id % 64)
}

/// All bits after one.
#[inline]
const fn beyond(place: usize) -> u64 {
    if place == 63 { 0 } else { u64::MAX << (place + 1) }
}
