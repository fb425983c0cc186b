//! Text chosen by a peer, sanitized for errors, events and logs.

/// Maximum length of text that is kept, in bytes.
pub const PEER_TEXT_BYTES_MAX: usize = 256;

/// Sanitizes text to a single line: at most [`PEER_TEXT_BYTES_MAX`] bytes, with each control
/// character, line separator and direction mark replaced by a space.
///
/// These characters would allow a peer to forge log lines, or to send commands to a terminal.
///
/// Cost: O(1); text after the limit is not read.
pub fn one_line(text: &str) -> impl Iterator<Item = char> + use<'_> {
    let mut end = text.len().min(PEER_TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let front = text.get(..end).unwrap_or_default();
    front.chars().map(|char| if char.is_control() || is_format(char) { ' ' } else { char })
}

/// Whether a character separates lines or changes the direction of the text after it.
const fn is_format(char: char) -> bool {
    matches!(char, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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
