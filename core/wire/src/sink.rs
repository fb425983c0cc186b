//! The output buffer of encoders.

use core::fmt;

/// The buffer has reached its limit, or the allocator refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no room left")
    }
}

impl core::error::Error for Full {}

/// A buffer to append to, with readable and writable content.
///
/// Implemented for [`SliceSink`], [`heapless::Vec`] and, with `alloc`, for `Vec<u8>` (which grows,
/// and reports [`Full`] when the allocator refuses). Encoders keep the existing content.
pub trait Sink {
    /// All content.
    fn written(&self) -> &[u8];

    /// All content, mutable.
    fn written_mut(&mut self) -> &mut [u8];

    /// Appends all of `bytes`, or nothing.
    ///
    /// # Errors
    ///
    /// [`Full`] if they do not fit.
    fn append(&mut self, bytes: &[u8]) -> Result<(), Full>;

    /// Removes all bytes after the first `len`; no-op if there are fewer.
    fn truncate(&mut self, len: usize);
}

/// A [`Sink`] over a borrowed slice.
#[derive(PartialEq, Eq)]
pub struct SliceSink<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> SliceSink<'a> {
    /// Creates an empty sink with the capacity of `buffer`.
    #[must_use]
    pub const fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0 }
    }

    /// Returns the written part, with the lifetime of the borrowed buffer.
    #[must_use]
    pub fn into_written(self) -> &'a mut [u8] {
        self.buffer.get_mut(..self.len).unwrap_or_default()
    }
}

impl fmt::Debug for SliceSink<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Content may be secret: only lengths are shown.
        write!(f, "SliceSink({} of {} bytes)", self.len, self.buffer.len())
    }
}

impl Sink for SliceSink<'_> {
    #[inline]
    fn written(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or_default()
    }

    #[inline]
    fn written_mut(&mut self) -> &mut [u8] {
        self.buffer.get_mut(..self.len).unwrap_or_default()
    }

    #[inline]
    fn append(&mut self, bytes: &[u8]) -> Result<(), Full> {
        let end = self.len.checked_add(bytes.len()).ok_or(Full)?;
        self.buffer.get_mut(self.len..end).ok_or(Full)?.copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    #[inline]
    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl<const N: usize> Sink for heapless::Vec<u8, N> {
    #[inline]
    fn written(&self) -> &[u8] {
        self
    }

    #[inline]
    fn written_mut(&mut self) -> &mut [u8] {
        self
    }

    #[inline]
    fn append(&mut self, bytes: &[u8]) -> Result<(), Full> {
        self.extend_from_slice(bytes).map_err(|_| Full)
    }

    #[inline]
    fn truncate(&mut self, len: usize) {
        self.truncate(len);
    }
}

#[cfg(feature = "alloc")]
impl Sink for alloc::vec::Vec<u8> {
    #[inline]
    fn written(&self) -> &[u8] {
        self
    }

    #[inline]
    fn written_mut(&mut self) -> &mut [u8] {
        self
    }

    #[inline]
    fn append(&mut self, bytes: &[u8]) -> Result<(), Full> {
        // `try_reserve` is a call, and most buffers have room.
        if self.capacity() - self.len() < bytes.len() {
            self.try_reserve(bytes.len()).map_err(|_| Full)?;
        }
        self.extend_from_slice(bytes);
        Ok(())
    }

    #[inline]
    fn truncate(&mut self, len: usize) {
        self.truncate(len);
    }
}

impl<S: Sink + ?Sized> Sink for &mut S {
    #[inline]
    fn written(&self) -> &[u8] {
        (**self).written()
    }

    #[inline]
    fn written_mut(&mut self) -> &mut [u8] {
        (**self).written_mut()
    }

    #[inline]
    fn append(&mut self, bytes: &[u8]) -> Result<(), Full> {
        (**self).append(bytes)
    }

    #[inline]
    fn truncate(&mut self, len: usize) {
        (**self).truncate(len);
    }
}
