//! A bounded queue of entries for a reader that is behind.

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;

/// Entries in their order. An entry that does not fit is counted. From then on no entry is kept until the reader has received the count, which stands where the
/// entries are missing.
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
    /// The number of entries that are missing here.
    Lagged(u64),
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), bytes: 0, lagged: 0 }
    }
}

impl<T> Backlog<T> {
    /// Keeps an entry, unless the queue has `entries_max` already, or would have more than `bytes_max` bytes with it.
    ///
    /// - `make`: returns the entry and the bytes of its heap memory. Called only if there is a free slot.
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

    /// Takes the next entry, or the number of those that were lost before it.
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

    /// Whether there is nothing to take.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.lagged == 0
    }

    /// The number of entries, and of those that are missing behind them.
    pub fn counts(&self) -> (usize, u64) {
        (self.entries.len(), self.lagged)
    }
}
