//! Texts that nobody may see.

use alloc::string::String;
use core::fmt;
use core::fmt::Write;
use zeroize::Zeroizing;

/// A password, or a text that has one in it. Its memory is overwritten when it is dropped, and it is never shown: `Debug` prints
/// `[redacted]`, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes a text over. Copies that were made before are not its business.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// What it holds.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Writes a text that never moves while it grows, so that no copy of a part of it is left behind.
    ///
    /// `write` is called twice, to measure and to write, and must write the same.
    pub(super) fn written(write: impl Fn(&mut dyn Write) -> fmt::Result) -> Self {
        let mut length = Length(0);
        // What is measured cannot fail; what did not fit the measure would only be cut.
        let measured = write(&mut length);
        let mut text = Zeroizing::new(String::with_capacity(length.0));
        let written = write(&mut *text);
        debug_assert!(measured.is_ok() && written.is_ok() && text.len() == length.0, "the same text twice");
        Self(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::new(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// Measures what is written.
struct Length(usize);

impl Write for Length {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}
