//! A bounded queue of entries for a reader that lags.

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;

/// A queue of entries in order. An entry that does not fit is dropped and counted. From then on all
/// entries are dropped until the reader has received the count, which is at the position of the
/// dropped entries.
#[derive(Debug)]
pub struct Backlog<T> {
    /// Each entry with the bytes that it counts as.
    entries: VecDeque<(T, usize)>,
    bytes: usize,
    lagged: u64,
}

/// The next item for the reader.
#[derive(Debug)]
pub enum Next<T> {
    /// The next entry.
    Entry(T),
    /// The number of entries that were dropped here.
    Lagged(u64),
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), bytes: 0, lagged: 0 }
    }
}

impl<T> Backlog<T> {
    /// Adds an entry, unless the queue already has `entries_max` entries, or would exceed
    /// `bytes_max` bytes with it.
    ///
    /// - `make`: returns the entry and the bytes of its heap memory. Called only if there is a free
    ///   slot.
    pub fn push(&mut self, entries_max: usize, bytes_max: usize, make: impl FnOnce() -> (T, usize)) {
        if self.lagged > 0 || self.entries.len() >= entries_max {
            self.lagged += 1;
            return;
        }
        let (entry, bytes) = make();
        if bytes > bytes_max - self.bytes {
            self.lagged += 1;
            return;
        }
        self.bytes += bytes;
        self.entries.push_back((entry, bytes));
    }

    /// Takes the next entry, or the number of entries that were dropped at this position.
    pub fn pop(&mut self) -> Option<Next<T>> {
        match self.entries.pop_front() {
            Some((entry, bytes)) => {
                self.bytes -= bytes;
                Some(Next::Entry(entry))
            }
            None if self.lagged > 0 => Some(Next::Lagged(core::mem::take(&mut self.lagged))),
            None => None,
        }
    }

    /// Whether there is no item to take.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.lagged == 0
    }

    /// The number of entries, and the number of entries that were dropped after them.
    pub fn counts(&self) -> (usize, u64) {
        (self.entries.len(), self.lagged)
    }
}
