//! What waits for a reader that is behind, in bounded memory.

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;

/// Entries in their order. Those that do not fit are counted, and from then on none is kept until the reader has the count: so it knows where they are missing.
#[derive(Debug)]
pub(crate) struct Backlog<T> {
    /// Each with the bytes that it counts for.
    entries: VecDeque<(T, usize)>,
    bytes: usize,
    lagged: u64,
}

/// What a reader gets.
#[derive(Debug)]
pub(crate) enum Next<T> {
    Entry(T),
    /// So many are missing here.
    Lagged(u64),
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), bytes: 0, lagged: 0 }
    }
}

impl<T> Backlog<T> {
    /// Keeps an entry, unless there are `entries_max` already, or it would make their bytes more than `bytes_max`.
    ///
    /// - `make`: the entry, and the memory that it takes besides itself. It is made only if there is a place.
    pub(crate) fn push(&mut self, entries_max: usize, bytes_max: usize, make: impl FnOnce() -> (T, usize)) {
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

    pub(crate) fn pop(&mut self) -> Option<Next<T>> {
        match self.entries.pop_front() {
            Some((entry, bytes)) => {
                self.bytes -= bytes;
                Some(Next::Entry(entry))
            }
            None if self.lagged > 0 => Some(Next::Lagged(core::mem::take(&mut self.lagged))),
            None => None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.lagged == 0
    }

    /// How many entries there are, and how many are missing behind them.
    pub(crate) fn counts(&self) -> (usize, u64) {
        (self.entries.len(), self.lagged)
    }
}
