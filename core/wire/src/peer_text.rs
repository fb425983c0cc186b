//! Text chosen by a peer, sanitized for errors, events and logs.

use core::fmt::{self, Write};

/// Maximum length of text that is kept, in bytes.
pub const PEER_TEXT_BYTES_MAX: usize = 256;

/// Whether a character must not reach a terminal or a log: a control character, a separator of lines
/// or paragraphs, a mark that changes the direction of text, or a byte order mark.
///
/// These characters would allow a peer to forge log lines, or to send commands to a terminal.
#[must_use]
pub fn is_unsafe(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
        )
}

/// Displays a text of any length as a single line: each [unsafe](is_unsafe) character is a space.
#[derive(Clone, Copy, Debug)]
pub struct OneLine<'a>(pub &'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, part) in self.0.split(is_unsafe).enumerate() {
            if place > 0 {
                f.write_char(' ')?;
            }
            f.write_str(part)?;
        }
        Ok(())
    }
}

/// Sanitizes text as [`OneLine`] does, and cuts it after at most [`PEER_TEXT_BYTES_MAX`] bytes.
///
/// Cost: O(1); text after the limit is not read.
pub fn one_line(text: &str) -> impl Iterator<Item = char> + use<'_> {
    let mut end = text.len().min(PEER_TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let front = text.get(..end).unwrap_or_default();
    front.chars().map(|char| if is_unsafe(char) { ' ' } else { char })
}

/// Whether text contains a secret; an empty secret is never contained.
///
/// - `text`: the whole text, before [`one_line`] truncates it.
#[must_use]
pub fn reveals(text: &str, secret: &str) -> bool {
    // Not `str::contains`: it contains calls that can panic, which the firmware's decoders must not
    // have.
    !secret.is_empty() && text.as_bytes().windows(secret.len()).any(|part| part == secret.as_bytes())
}

#[cfg(test)]
mod tests;
