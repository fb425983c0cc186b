//! Text that must not be shown.

use alloc::string::String;
use core::fmt;
use core::fmt::Write;
use zeroize::Zeroizing;

/// A password, or text that contains one. Its memory is overwritten when it is dropped, and it is
/// never shown: `Debug` prints `[redacted]`, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes ownership of a text. Earlier copies of it are not overwritten.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Builds a text in memory that is not reallocated, so no partial copy is left in memory.
    ///
    /// `write` is called twice, to measure and to write, and must write the same text both times.
    pub(super) fn written(write: impl Fn(&mut dyn Write) -> fmt::Result) -> Self {
        let mut length = Length(0);
        // Neither writer returns an error; debug builds assert it.
        let measured = write(&mut length);
        let mut text = Zeroizing::new(String::with_capacity(length.0));
        let written = write(&mut *text);
        debug_assert!(measured.is_ok() && written.is_ok() && text.len() == length.0, "`write` wrote different texts");
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

/// Counts the bytes written.
struct Length(usize);

impl Write for Length {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}
