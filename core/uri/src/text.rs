//! Percent-encoding and decoding.

use super::{UriError, UriErrorKind};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::fmt::Write;
use zeroize::{Zeroize, Zeroizing};

/// The characters that hosts, usernames, passwords and databases contain unescaped, besides ASCII
/// letters and digits.
pub(super) const COMPONENT: &[u8] = b"-._~";
/// Those between the brackets of an IPv6 address.
pub(super) const LITERAL: &[u8] = b"-._~:";
/// Those in the value of an option: common characters of paths and lists.
pub(super) const VALUE: &[u8] = b"-._~:/$,";

/// A text that is percent-encoded when it is written, except these characters, ASCII letters and
/// digits.
pub(super) struct Escaped<'a>(pub(super) &'a str, pub(super) &'static [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text, plain) = self;
        text.bytes().try_for_each(|byte| match byte {
            byte if byte.is_ascii_alphanumeric() || plain.contains(&byte) => f.write_char(byte.into()),
            byte => write!(f, "%{byte:02X}"),
        })
    }
}

/// Decodes `raw`, in memory that is overwritten when it is dropped. `offset` is the position of
/// `raw` in the string.
pub(super) fn decode(raw: &str, offset: usize) -> Result<Zeroizing<String>, UriError> {
    // The decoded text is never longer than `raw`, so it is not reallocated.
    let mut decoded = Zeroizing::new(Vec::with_capacity(raw.len()));
    let mut rest = raw.as_bytes();
    while let [byte, after @ ..] = rest {
        let (byte, after) = match (byte, after) {
            (b'%', [high, low, after @ ..]) => (hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low), after),
            (b'%', _) => (None, after),
            (byte, after) => (Some(*byte), after),
        };
        let place = offset + raw.len() - rest.len();
        decoded.push(byte.ok_or_else(|| UriError::at(UriErrorKind::Escape, place))?);
        rest = after;
    }
    match String::from_utf8(core::mem::take(&mut *decoded)) {
        Ok(text) => {
            let text = Zeroizing::new(text);
            if text.contains('\0') { Err(UriError::at(UriErrorKind::Text, offset)) } else { Ok(text) }
        }
        Err(error) => {
            error.into_bytes().zeroize();
            Err(UriError::at(UriErrorKind::Text, offset))
        }
    }
}

/// The value of a hexadecimal digit.
fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}
