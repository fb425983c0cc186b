//! Decoding of messages.

use core::fmt;

use super::checksum::{CHECKSUM_BYTES, crc32c};
use super::{Flags, HEADER_BYTES, Header, Limits, OP_COMPRESSED, OP_MSG, SEQUENCES_MAX};
use crate::bson::RawDocument;
use crate::error::{WireError, WireErrorKind};
use crate::read::{Reader, saturate};

/// The result of decoding the front of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a, T> {
    /// The value was complete.
    Done {
        /// The decoded value.
        value: T,
        /// The bytes after it.
        rest: &'a [u8],
    },
    /// More input is needed.
    NeedMore {
        /// Minimum number of further bytes needed to make progress. Within the given limits, but
        /// declared by the peer: grow the buffer as bytes arrive, not at once.
        bytes_min: usize,
    },
}

/// Decodes the header at the front of `input`. O(1).
///
/// The length is checked as soon as its four bytes have arrived, so an invalid length is rejected
/// without waiting for further bytes.
///
/// # Errors
///
/// [`WireErrorKind::MessageTooShort`], [`WireErrorKind::MessageTooLong`].
///
/// Source: MongoDB Wire Protocol, "Standard Message Header".
pub fn decode_header<'a>(input: &'a [u8], limits: &Limits) -> Result<Decoded<'a, Header>, WireError> {
    let mut reader = Reader::new(input, 0);
    if let Ok(length_bytes) = reader.peek_i32() {
        let max_bytes = limits.message_bytes_max;
        match u32::try_from(length_bytes) {
            Ok(length) if length > max_bytes => {
                return Err(reader.error(WireErrorKind::MessageTooLong { length_bytes, max_bytes }));
            }
            Ok(length) if length as usize >= HEADER_BYTES => {}
            Ok(_) | Err(_) => return Err(reader.error(WireErrorKind::MessageTooShort { length_bytes })),
        }
    }
    if input.len() < HEADER_BYTES {
        return Ok(Decoded::NeedMore { bytes_min: HEADER_BYTES - input.len() });
    }
    let length_bytes = reader.i32()?.unsigned_abs();
    let header = Header { length_bytes, request_id: reader.i32()?, response_to: reader.i32()?, opcode: reader.i32()? };
    Ok(Decoded::Done { value: header, rest: reader.rest })
}

/// A message that has arrived in full. Its sections are valid; its documents are opened and not
/// validated yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    header: Header,
    flags: Flags,
    body: RawDocument<'a>,
    sections: Sections<'a>,
}

/// Everything between the flags and the checksum.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sections<'a>(&'a [u8]);

impl fmt::Debug for Sections<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Content may be secret: only the length is shown.
        write!(f, "Sections({} bytes)", self.0.len())
    }
}

/// Length of header and flags: the offset of the first section.
const SECTIONS_AT: u32 = 20;

/// Length of the shortest message: header, flags, one section with an empty document.
pub(crate) const MESSAGE_BYTES_MIN: usize = 26;

const KIND_BODY: u8 = 0;
const KIND_SEQUENCE: u8 = 1;

/// Decodes the message at the front of `input`.
///
/// Checks the header, the required flags, the checksum if present, and the division into sections
/// and documents. Does not check the content of documents: [`Message::validate_structure`] does,
/// and [`Exchange`](super::Exchange) calls it.
///
/// Cost: O(1) until all bytes have arrived, then linear in the number of documents (in all bytes,
/// if there is a checksum). No allocation.
///
/// # Errors
///
/// [`WireError`], as soon as the invalid bytes have arrived: the connection must be closed.
///
/// Source: OP_MSG, "Sections", "Flag Bits".
pub fn decode_message<'a>(input: &'a [u8], limits: &Limits) -> Result<Decoded<'a, Message<'a>>, WireError> {
    let header = match decode_header(input, limits)? {
        Decoded::Done { value, .. } => value,
        Decoded::NeedMore { bytes_min } => return Ok(Decoded::NeedMore { bytes_min }),
    };
    if header.opcode == OP_COMPRESSED {
        return Err(WireError::new(WireErrorKind::Compressed, 12));
    }
    if header.opcode != OP_MSG {
        return Err(WireError::new(WireErrorKind::Opcode { opcode: header.opcode }, 12));
    }
    let length = header.length_bytes as usize;
    if length < MESSAGE_BYTES_MIN {
        let length_bytes = i32::from_le_bytes(header.length_bytes.to_le_bytes());
        return Err(WireError::new(WireErrorKind::MessageTooShort { length_bytes }, 0));
    }
    let Some((bytes, rest)) = input.split_at_checked(length) else {
        return Ok(Decoded::NeedMore { bytes_min: length - input.len() });
    };
    let mut reader = Reader::new(bytes, 0);
    reader.take(HEADER_BYTES)?;
    let flags_at = reader;
    let bits = u32::from_le_bytes(reader.array()?);
    let Some(flags) = Flags::from_bits(bits) else {
        return Err(flags_at.error(WireErrorKind::Flags { flags: bits }));
    };
    if flags.contains(Flags::CHECKSUM_PRESENT) {
        reader.rest = without_checksum(bytes, reader)?;
    }
    let sections = Sections(reader.rest);
    let body = sections.check()?;
    Ok(Decoded::Done { value: Message { header, flags, body, sections }, rest })
}

/// The sections before the checksum, if the checksum matches.
fn without_checksum<'a>(bytes: &'a [u8], sections: Reader<'a>) -> Result<&'a [u8], WireError> {
    let Some((covered, checksum)) = bytes.split_last_chunk::<CHECKSUM_BYTES>() else {
        return Err(sections.error(WireErrorKind::BodyMissing));
    };
    let found = u32::from_le_bytes(*checksum);
    let computed = crc32c(covered);
    if computed != found {
        let at = saturate(covered.len());
        return Err(WireError::new(WireErrorKind::Checksum { computed, found }, at));
    }
    let kept = sections.rest.len().saturating_sub(CHECKSUM_BYTES);
    Ok(sections.rest.get(..kept).unwrap_or_default())
}

/// One section of a message.
enum Section<'a> {
    Body(RawDocument<'a>),
    Sequence(Sequence<'a>),
}

impl<'a> Sections<'a> {
    fn reader(self) -> Reader<'a> {
        Reader::new(self.0, SECTIONS_AT)
    }

    /// Checks all sections; returns the body.
    fn check(self) -> Result<RawDocument<'a>, WireError> {
        let mut reader = self.reader();
        let mut body = None;
        let mut names = [""; SEQUENCES_MAX];
        let mut count = 0_usize;
        while !reader.rest.is_empty() {
            let start = reader;
            match take_section(&mut reader)? {
                Section::Body(_) if body.is_some() => return Err(start.error(WireErrorKind::BodyTwice)),
                Section::Body(document) => body = Some(document),
                Section::Sequence(sequence) => {
                    if names.iter().take(count).any(|name| *name == sequence.identifier) {
                        return Err(start.error(WireErrorKind::SequenceTwice));
                    }
                    let place = names.get_mut(count).ok_or(start.error(WireErrorKind::SequencesTooMany))?;
                    *place = sequence.identifier;
                    count += 1;
                    for document in sequence.documents() {
                        document?;
                    }
                }
            }
        }
        body.ok_or(self.reader().error(WireErrorKind::BodyMissing))
    }
}

/// Takes the next section.
fn take_section<'a>(reader: &mut Reader<'a>) -> Result<Section<'a>, WireError> {
    let start = *reader;
    match reader.u8()? {
        KIND_BODY => RawDocument::take(reader).map(Section::Body),
        KIND_SEQUENCE => {
            let length_bytes = reader.peek_i32()?;
            let fits = usize::try_from(length_bytes).ok().filter(|len| (5..=reader.rest.len()).contains(len));
            let Some(len) = fits else {
                return Err(reader.error(WireErrorKind::SectionLength { length_bytes }));
            };
            let at = reader.at;
            let mut section = Reader::new(reader.take(len)?, at);
            section.take(4)?;
            let name_at = section.at;
            let name = section.until_nul()?;
            let identifier = core::str::from_utf8(name).map_err(|_| WireError::new(WireErrorKind::Utf8, name_at))?;
            Ok(Section::Sequence(Sequence { identifier, documents: section.rest, at: section.at }))
        }
        kind => Err(start.error(WireErrorKind::SectionKind { kind })),
    }
}

impl<'a> Message<'a> {
    /// The header.
    #[must_use]
    pub const fn header(&self) -> Header {
        self.header
    }

    /// The flags.
    #[must_use]
    pub const fn flags(&self) -> Flags {
        self.flags
    }

    /// The document of the section of kind 0.
    #[must_use]
    pub const fn body(&self) -> RawDocument<'a> {
        self.body
    }

    /// The document sequences, in order.
    #[must_use]
    pub fn sequences(&self) -> Sequences<'a> {
        Sequences { rest: self.sections.reader() }
    }

    /// Checks the structure of every document in the message. Linear in the bytes.
    ///
    /// # Errors
    ///
    /// As [`RawDocument::validate_structure`].
    pub fn validate_structure(&self) -> Result<(), WireError> {
        self.body.validate_structure()?;
        if self.sections.0.len() <= self.body.as_bytes().len().saturating_add(1) {
            return Ok(());
        }
        for sequence in self.sequences() {
            for document in sequence.documents() {
                document?.validate_structure()?;
            }
        }
        Ok(())
    }
}

/// Named documents: a section that replaces an array field of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sequence<'a> {
    identifier: &'a str,
    documents: &'a [u8],
    at: u32,
}

impl fmt::Debug for Sequence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Content may be secret: only length and offset are shown.
        write!(f, "Sequence({}: {} bytes at {})", self.identifier, self.documents.len(), self.at)
    }
}

impl<'a> Sequence<'a> {
    /// The name of the field that the sequence replaces.
    #[must_use]
    pub const fn identifier(&self) -> &'a str {
        self.identifier
    }

    /// The documents in order. Ends after the first error.
    #[must_use]
    pub const fn documents(&self) -> Documents<'a> {
        Documents { rest: Reader::new(self.documents, self.at) }
    }
}

/// The document sequences of a message. Returned by [`Message::sequences`].
#[derive(Clone, Debug)]
pub struct Sequences<'a> {
    rest: Reader<'a>,
}

impl<'a> Iterator for Sequences<'a> {
    type Item = Sequence<'a>;

    fn next(&mut self) -> Option<Sequence<'a>> {
        while !self.rest.rest.is_empty() {
            // Cannot fail: all sections were checked when the message was decoded.
            match take_section(&mut self.rest).ok()? {
                Section::Sequence(sequence) => return Some(sequence),
                Section::Body(_) => {}
            }
        }
        None
    }
}

/// A sequence of documents. Returned by [`Sequence::documents`].
#[derive(Clone, Debug)]
pub struct Documents<'a> {
    rest: Reader<'a>,
}

impl<'a> Iterator for Documents<'a> {
    type Item = Result<RawDocument<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.rest.is_empty() {
            return None;
        }
        let document = RawDocument::take(&mut self.rest);
        if document.is_err() {
            self.rest.rest = &[];
        }
        Some(document)
    }
}
