//! Which commands are never compressed.

use crate::bson::RawDocument;
use crate::message::{Decoded, Flags, HEADER_BYTES, Limits, OP_MSG, decode_message};
use crate::read::Reader;

/// Commands that carry secrets, or begin what others rest on. Names are compared without regard to case: one that a
/// server would not know by another case costs nothing uncompressed.
const FORBIDDEN: [&[u8]; 11] = [
    b"hello",
    b"isMaster",
    b"saslStart",
    b"saslContinue",
    b"getnonce",
    b"authenticate",
    b"createUser",
    b"updateUser",
    b"copydbSaslStart",
    b"copydbgetnonce",
    b"copydb",
];

/// Whether a message that was encoded may be compressed: every command may, but for hello in its forms and those that
/// authenticate or carry credentials.
///
/// - `message`: one whole OP_MSG. Of anything else the answer is no.
///
/// Cost: O(1) for a message whose first section is its body, as this crate writes them; else linear in the
/// number of its documents.
///
/// Source: Wire Compression, "Messages not allowed to be compressed".
#[must_use]
pub fn is_compressible(message: &[u8]) -> bool {
    command_name(message).is_some_and(|name| !FORBIDDEN.iter().any(|forbidden| forbidden.eq_ignore_ascii_case(name)))
}

/// The key of the first element of the message's body.
fn command_name(message: &[u8]) -> Option<&[u8]> {
    if message.get(HEADER_BYTES - 4..HEADER_BYTES)? != OP_MSG.to_le_bytes() {
        return None;
    }
    let sections_at = HEADER_BYTES + size_of::<Flags>();
    let body = match message.get(sections_at..)? {
        [0, body @ ..] => body,
        _ => {
            let limits = Limits { message_bytes_max: u32::MAX, ..Limits::DEFAULT };
            match decode_message(message, &limits).ok()? {
                Decoded::Done { value, .. } => RawDocument::as_bytes(value.body()),
                Decoded::NeedMore { .. } => return None,
            }
        }
    };
    // The document's length, then the first element's type.
    Reader::new(body.get(5..)?, 0).until_nul().ok()
}
