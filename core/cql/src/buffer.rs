//! A buffer for received bytes.

use core::fmt;

use poolhouse_wire::Full;
use poolhouse_wire::Sink;

/// A buffer at the front of a sink. Clearing it does not shorten the sink, to avoid zeroing bytes
/// again.
pub(super) struct Buffer<S> {
    sink: S,
    len: usize,
}

impl<S: Sink> Buffer<S> {
    /// Creates an empty buffer; existing content of the sink is overwritten.
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

    /// Appends all of `bytes`, or nothing.
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

    /// Appends `count` bytes of arbitrary content, for the caller to overwrite.
    pub(super) fn grow(&mut self, count: usize) -> Result<&mut [u8], Full> {
        let start = self.len;
        let end = start.checked_add(count).ok_or(Full)?;
        let missing = end.saturating_sub(self.sink.written().len());
        append_zeros(&mut self.sink, missing)?;
        self.len = end;
        self.sink.written_mut().get_mut(start..end).ok_or(Full)
    }

    /// The emptied sink: the caller can shrink it. All bytes are lost.
    pub(super) fn emptied(&mut self) -> &mut S {
        self.len = 0;
        self.sink.truncate(0);
        &mut self.sink
    }

    pub(super) const fn sink(&self) -> &S {
        &self.sink
    }
}

impl<S> fmt::Debug for Buffer<S> {
    /// Omits the bytes, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

/// Appends `count` zeros, or nothing if they do not fit.
pub(super) fn append_zeros<S: Sink>(sink: &mut S, count: usize) -> Result<(), Full> {
    const ZEROS: [u8; 256] = [0; 256];
    let start = sink.written().len();
    let mut left = count;
    while left > 0 {
        let some = ZEROS.get(..left).unwrap_or(&ZEROS);
        if let Err(full) = sink.append(some) {
            sink.truncate(start);
            return Err(full);
        }
        left -= some.len();
    }
    Ok(())
}
