//! The path of a field: the keys that lead to it.

#[cfg(test)]
mod tests;

use core::fmt::{self, Write};

use super::document::RawDocument;
use crate::peer_text::{PEER_TEXT_BYTES_MAX, one_line};

/// Displays the path of a field, such as `items.3.name`. Returned by [`RawDocument::path_at`].
///
/// The keys have at most 256 bytes together, and are sanitized as by [`one_line`]; bytes that are not
/// UTF-8 are shown as U+FFFD.
#[derive(Clone, Copy, Debug)]
pub struct FieldPath<'a> {
    document: RawDocument<'a>,
    offset: u32,
}

impl<'a> RawDocument<'a> {
    /// The path of the field at an offset, which is counted as in the errors of this document: the field
    /// that a [`WireError`](crate::WireError) is about. No allocation, no recursion.
    #[must_use]
    pub const fn path_at(self, offset: u32) -> FieldPath<'a> {
        FieldPath { document: self, offset }
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut around = Some(self.document);
        let mut separator = "";
        let mut room = PEER_TEXT_BYTES_MAX;
        while let Some(document) = around.take() {
            // The values before the offset are skipped.
            let found = document.raw_elements().map_while(Result::ok).find(|raw| self.offset < raw.end());
            let Some(raw) = found else { break };
            f.write_str(separator)?;
            separator = ".";
            let shown = raw.key.get(..room).unwrap_or(raw.key);
            room -= shown.len();
            key(f, shown)?;
            if room == 0 {
                break;
            }
            around = raw.document().ok().flatten().filter(|inner| self.offset >= inner.offset());
        }
        Ok(())
    }
}

fn key(f: &mut fmt::Formatter<'_>, key: &[u8]) -> fmt::Result {
    for chunk in key.utf8_chunks() {
        one_line(chunk.valid()).try_for_each(|char| f.write_char(char))?;
        if !chunk.invalid().is_empty() {
            f.write_char(char::REPLACEMENT_CHARACTER)?;
        }
    }
    Ok(())
}
