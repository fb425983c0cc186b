//! Received bytes that are kept until there are enough of them.

use core::fmt;

use super::compress::append_zeros;
use poolhouse_wire::Full;
use poolhouse_wire::Sink;

/// Bytes at the front of a sink, which stays as long as it was: nothing is written twice.
pub(super) struct Pile<S> {
    sink: S,
    len: usize,
}

impl<S: Sink> Pile<S> {
    /// None, whatever the sink has.
    pub(super) const fn new(sink: S) -> Self {
        Self { sink, len: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.sink.written().get(..self.len).unwrap_or_default()
    }

    pub(super) const fn clear(&mut self) {
        self.len = 0;
    }

    /// Puts bytes behind the others: all, or none.
    pub(super) fn extend(&mut self, bytes: &[u8]) -> Result<(), Full> {
        let end = self.len.checked_add(bytes.len()).ok_or(Full)?;
        let there = self.sink.written().len().saturating_sub(self.len).min(bytes.len());
        let (over, behind) = bytes.split_at(there);
        if !behind.is_empty() {
            self.sink.append(behind)?;
        }
        if let Some(place) = self.sink.written_mut().get_mut(self.len..self.len + there) {
            place.copy_from_slice(over);
        }
        self.len = end;
        Ok(())
    }

    /// Puts bytes of any value behind the others, to be written by the caller.
    pub(super) fn grow(&mut self, count: usize) -> Result<&mut [u8], Full> {
        let start = self.len;
        let end = start.checked_add(count).ok_or(Full)?;
        let missing = end.saturating_sub(self.sink.written().len());
        append_zeros(&mut self.sink, missing)?;
        self.len = end;
        self.sink.written_mut().get_mut(start..end).ok_or(Full)
    }

    /// Where they are kept, to be made smaller. What is there is lost.
    pub(super) fn emptied(&mut self) -> &mut S {
        self.len = 0;
        self.sink.truncate(0);
        &mut self.sink
    }

    pub(super) const fn sink(&self) -> &S {
        &self.sink
    }
}

impl<S> fmt::Debug for Pile<S> {
    /// Without the bytes, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pile({} bytes)", self.len)
    }
}
