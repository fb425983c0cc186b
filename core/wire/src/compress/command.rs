//! Commands that are never compressed.

use crate::bson::RawDocument;
use crate::message::{Decoded, Flags, HEADER_BYTES, Limits, OP_MSG, decode_message};
use crate::read::Reader;

/// Commands that contain secrets or negotiate the connection. Names are compared
/// case-insensitively; the only effect on a name in another case, which servers do not accept, is
/// that the message is not compressed.
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

/// Whether an encoded message may be compressed: all commands except hello in its forms and
/// commands that authenticate or carry credentials.
///
/// - `message`: a complete OP_MSG; `false` for anything else.
///
/// Cost: O(1) if the body is the first section, as in messages of this crate; otherwise linear in
/// the number of its documents.
///
/// Source: Wire Compression, "Messages not allowed to be compressed".
#[must_use]
pub fn is_compressible(message: &[u8]) -> bool {
    command_name(message).is_some_and(|name| !FORBIDDEN.iter().any(|forbidden| forbidden.eq_ignore_ascii_case(name)))
}

/// The command's name: the key of the first element of the message's body.
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
    // Skips the document's length and the first element's type.
    Reader::new(body.get(5..)?, 0).until_nul().ok()
}
