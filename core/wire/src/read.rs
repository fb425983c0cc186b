//! A bounded reader that tracks its offset.

use core::fmt;

use super::error::{WireError, WireErrorKind};

/// Converts a length for use in an error; lengths beyond 32 bits become `u32::MAX`.
#[doc(hidden)]
#[must_use]
pub fn saturate(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// The unread bytes, and the offset of the first of them.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub(crate) rest: &'a [u8],
    pub(crate) at: u32,
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Content may be secret: only length and offset are shown.
        write!(f, "Reader({} bytes at {})", self.rest.len(), self.at)
    }
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) const fn new(rest: &'a [u8], at: u32) -> Self {
        Self { rest, at }
    }

    /// An error at the current offset.
    #[inline]
    pub(crate) const fn error(&self, kind: WireErrorKind) -> WireError {
        WireError::new(kind, self.at)
    }

    #[cold]
    fn truncated(&self, needed: usize) -> WireError {
        self.error(WireErrorKind::Truncated { needed_bytes: saturate(needed), found_bytes: saturate(self.rest.len()) })
    }

    /// Takes the next `count` bytes.
    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let Some((head, tail)) = self.rest.split_at_checked(count) else {
            return Err(self.truncated(count));
        };
        self.rest = tail;
        self.at = self.at.saturating_add(saturate(count));
        Ok(head)
    }

    /// Takes the next `N` bytes by value.
    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let Some((head, tail)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.truncated(N));
        };
        self.rest = tail;
        self.at = self.at.saturating_add(saturate(N));
        Ok(*head)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    #[inline]
    pub(crate) fn i32(&mut self) -> Result<i32, WireError> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    /// Reads the next four bytes as a number without consuming them.
    #[inline]
    pub(crate) fn peek_i32(&self) -> Result<i32, WireError> {
        let mut ahead = *self;
        ahead.i32()
    }

    /// Takes the bytes before the next zero byte, and skips the zero byte.
    #[inline]
    pub(crate) fn until_nul(&mut self) -> Result<&'a [u8], WireError> {
        let Some(len) = self.rest.iter().position(|&byte| byte == 0) else {
            return Err(self.error(WireErrorKind::Terminator));
        };
        let text = self.take(len)?;
        self.take(1)?;
        Ok(text)
    }
}
