//! Percent-encoding and decoding.

use super::{UriError, UriErrorKind};
use alloc::string::String;
use alloc::vec::Vec;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str};
use zeroize::{Zeroize, Zeroizing};

/// The characters to escape in hosts, usernames, passwords and databases: all that may have a
/// special meaning.
pub(super) const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The characters to escape between the brackets of an IPv6 address: those of `COMPONENT` except
/// the colon.
pub(super) const LITERAL: &AsciiSet = &COMPONENT.remove(b':');
/// The characters to escape in the value of an option: common characters of paths and lists are
/// left unescaped.
pub(super) const VALUE: &AsciiSet = &LITERAL.remove(b'/').remove(b'$').remove(b',');

/// Decodes `raw`, in memory that is overwritten when it is dropped. `offset` is the position of
/// `raw` in the string.
pub(super) fn decode(raw: &str, offset: usize) -> Result<Zeroizing<String>, UriError> {
    let bytes = raw.as_bytes();
    let mut place = 0;
    while let Some(found) = bytes.get(place..).and_then(|rest| rest.iter().position(|byte| *byte == b'%')) {
        let digits = bytes.get(place + found + 1..place + found + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            return Err(UriError::at(UriErrorKind::Escape, offset + place + found));
        }
        place += found + 3;
    }
    // The decoded text is never longer than `raw`, so it is not reallocated.
    let mut decoded = Vec::with_capacity(raw.len());
    decoded.extend(percent_decode_str(raw));
    match String::from_utf8(decoded) {
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
