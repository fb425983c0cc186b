//! Text of bounded length.

use core::fmt::{self, Write};

/// Displays the inner value up to a number of bytes, then `...`. A character is never cut. If `T`
/// stops at an error, the text after the cut is not formatted.
#[derive(Clone, Copy, Debug)]
pub struct Truncated<T> {
    inner: T,
    bytes_max: usize,
}

impl<T> Truncated<T> {
    /// Displays `inner` in at most `bytes_max` bytes, `...` not counted.
    #[must_use]
    pub const fn new(inner: T, bytes_max: usize) -> Self {
        Self { inner, bytes_max }
    }
}

impl<T: fmt::Display> fmt::Display for Truncated<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cut = Cut { out: f, left: self.bytes_max, full: false, failed: false };
        let written = write!(cut, "{}", self.inner);
        let Cut { full, failed, .. } = cut;
        if failed || (written.is_err() && !full) {
            return Err(fmt::Error);
        }
        if full { f.write_str("...") } else { Ok(()) }
    }
}

struct Cut<'f, 'b> {
    out: &'f mut fmt::Formatter<'b>,
    left: usize,
    /// Whether the text was longer than the limit.
    full: bool,
    /// Whether the formatter has returned an error.
    failed: bool,
}

impl Cut<'_, '_> {
    fn pass(&mut self, text: &str) -> fmt::Result {
        self.left -= text.len();
        self.out.write_str(text).inspect_err(|_| self.failed = true)
    }
}

impl Write for Cut<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.full {
            return Err(fmt::Error);
        }
        if text.len() <= self.left {
            return self.pass(text);
        }
        self.full = true;
        let mut end = self.left;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.pass(text.get(..end).unwrap_or_default())?;
        Err(fmt::Error)
    }
}
