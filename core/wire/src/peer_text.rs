//! Text that a peer chose, made fit for errors, events and logs.

/// The most of a text that is kept, in bytes.
pub const PEER_TEXT_BYTES_MAX: usize = 256;

/// The text on one line: at most [`PEER_TEXT_BYTES_MAX`] bytes, each control character, line separator and direction mark replaced by a space.
///
/// These characters would let a peer write other lines into a log, or commands to a terminal.
///
/// Cost: O(1); the text behind the limit is not read.
pub fn one_line(text: &str) -> impl Iterator<Item = char> + use<'_> {
    let mut end = text.len().min(PEER_TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let front = text.get(..end).unwrap_or_default();
    front.chars().map(|char| if char.is_control() || is_format(char) { ' ' } else { char })
}

/// Whether a character separates lines or reverses the direction of the text behind it.
const fn is_format(char: char) -> bool {
    matches!(char, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a text has a secret in it; an empty secret is none.
///
/// - `text`: the whole text, before [`one_line`] cuts it.
#[must_use]
pub fn reveals(text: &str, secret: &str) -> bool {
    // Not `str::contains`: its code calls panics, and no decoder of the firmware may.
    !secret.is_empty() && text.as_bytes().windows(secret.len()).any(|part| part == secret.as_bytes())
}

#[cfg(test)]
mod tests;
