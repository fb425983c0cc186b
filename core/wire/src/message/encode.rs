//! Encoding of messages.

use core::fmt;

use super::checksum::{CHECKSUM_BYTES, crc32c};
use super::{DOCUMENT_OVERHEAD_BYTES, Flags, HEADER_BYTES, Header, Limits, OP_MSG, SEQUENCES_MAX};
use crate::bson::{DocumentWriter, RawDocument};
use crate::error::EncodeError;
use crate::read::saturate;
use crate::sink::Sink;

/// Header fields and flags of a message to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Outgoing {
    /// The sender's id of this message.
    pub request_id: i32,
    /// The id of the message that this one answers; 0 in a request.
    pub response_to: i32,
    /// The flags. With [`Flags::CHECKSUM_PRESENT`] the checksum is appended.
    pub flags: Flags,
}

impl Outgoing {
    /// A request without flags.
    #[must_use]
    pub const fn request(request_id: i32) -> Self {
        Self { request_id, response_to: 0, flags: Flags::NONE }
    }

    /// A reply without flags.
    #[must_use]
    pub const fn reply(request_id: i32, response_to: i32) -> Self {
        Self { request_id, response_to, flags: Flags::NONE }
    }

    /// Sets the flags.
    #[must_use]
    pub const fn with_flags(self, flags: Flags) -> Self {
        Self { flags, ..self }
    }
}

/// Writes one message at the end of `sink`, and returns its length in bytes.
///
/// On an error the sink is unchanged.
///
/// # Errors
///
/// [`EncodeError`], including a missing body and an exceeded limit.
///
/// Source: OP_MSG, "Sections".
pub fn encode_message<S: Sink>(
    sink: &mut S,
    outgoing: Outgoing,
    limits: &Limits,
    write: impl FnOnce(&mut MessageWriter<'_, S>) -> Result<(), EncodeError>,
) -> Result<usize, EncodeError> {
    let start = sink.written().len();
    let result = encode(sink, start, outgoing, limits, write);
    if result.is_err() {
        sink.truncate(start);
    }
    result
}

/// Writes a command with a single document at the end of `sink`: the fields that `body` writes,
/// followed by `$db`. Returns the message's length in bytes; on an error the sink is unchanged.
///
/// # Errors
///
/// [`EncodeError`].
///
/// Source: OP_MSG, "Command Arguments".
pub fn encode_command<S: Sink>(
    sink: &mut S,
    outgoing: Outgoing,
    limits: &Limits,
    db: &str,
    body: impl FnOnce(&mut DocumentWriter<'_, S>) -> Result<(), EncodeError>,
) -> Result<usize, EncodeError> {
    encode_message(sink, outgoing, limits, |message| {
        message.body(|document| {
            body(document)?;
            document.str("$db", db).map(drop)
        })
    })
}

fn encode<S: Sink>(
    sink: &mut S,
    start: usize,
    outgoing: Outgoing,
    limits: &Limits,
    write: impl FnOnce(&mut MessageWriter<'_, S>) -> Result<(), EncodeError>,
) -> Result<usize, EncodeError> {
    let Outgoing { request_id, response_to, flags } = outgoing;
    let header = Header { length_bytes: 0, request_id, response_to, opcode: OP_MSG };
    let mut front = [0; HEADER_BYTES + 4];
    let (head, tail) = front.split_at_mut(HEADER_BYTES);
    head.copy_from_slice(&header.to_bytes());
    tail.copy_from_slice(&flags.bits().to_le_bytes());
    sink.append(&front)?;

    let document_bytes_max = limits.document_bytes_max.saturating_add(DOCUMENT_OVERHEAD_BYTES);
    let mut message = MessageWriter { sink, document_bytes_max, has_body: false, sequences: 0 };
    write(&mut message)?;
    if !message.has_body {
        return Err(EncodeError::BodyMissing);
    }

    let checksum = if flags.contains(Flags::CHECKSUM_PRESENT) { CHECKSUM_BYTES } else { 0 };
    let length = sink.written().len().saturating_sub(start).saturating_add(checksum);
    let (length_bytes, max_bytes) = (saturate(length), limits.message_bytes_max);
    if length_bytes > max_bytes.min(i32::MAX.unsigned_abs()) {
        return Err(EncodeError::MessageTooLarge { length_bytes, max_bytes });
    }
    crate::bson::patch_len(sink, start, length)?;
    if checksum != 0 {
        let value = crc32c(sink.written().get(start..).unwrap_or_default());
        sink.append(&value.to_le_bytes())?;
    }
    Ok(length)
}

/// Writes the sections of a message. Passed to the closure of [`encode_message`].
pub struct MessageWriter<'s, S: Sink> {
    sink: &'s mut S,
    document_bytes_max: u32,
    has_body: bool,
    sequences: usize,
}

impl<S: Sink> fmt::Debug for MessageWriter<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The content may be secret: only lengths are shown.
        write!(f, "MessageWriter({} bytes, {} sequences)", self.sink.written().len(), self.sequences)
    }
}

impl<S: Sink> MessageWriter<'_, S> {
    /// Writes the section of kind 0.
    ///
    /// # Errors
    ///
    /// Errors of `write`; [`EncodeError::BodyTwice`], [`EncodeError::DocumentTooLarge`].
    pub fn body(
        &mut self,
        write: impl FnOnce(&mut DocumentWriter<'_, S>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        if self.has_body {
            return Err(EncodeError::BodyTwice);
        }
        self.sink.append(&[0])?;
        let len = DocumentWriter::write(self.sink, write)?;
        self.has_body = true;
        check_len(len, self.document_bytes_max)
    }

    /// Writes the section of kind 0 from an existing document.
    ///
    /// # Errors
    ///
    /// As [`Self::body`].
    pub fn raw_body(&mut self, document: RawDocument<'_>) -> Result<(), EncodeError> {
        self.body(|body| body.extend(document).map(drop))
    }

    /// Writes a section of kind 1: documents that replace an array field of this name.
    ///
    /// # Errors
    ///
    /// Errors of `write`; [`EncodeError::InteriorNul`], [`EncodeError::SequencesTooMany`].
    pub fn sequence(
        &mut self,
        identifier: &str,
        write: impl FnOnce(&mut SequenceWriter<'_, S>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        if self.sequences >= SEQUENCES_MAX {
            return Err(EncodeError::SequencesTooMany);
        }
        if identifier.as_bytes().contains(&0) {
            return Err(EncodeError::InteriorNul);
        }
        self.sink.append(&[1])?;
        let start = self.sink.written().len();
        self.sink.append(&[0; 4])?;
        self.sink.append(identifier.as_bytes())?;
        self.sink.append(&[0])?;
        write(&mut SequenceWriter { sink: &mut *self.sink, document_bytes_max: self.document_bytes_max })?;
        let len = self.sink.written().len().saturating_sub(start);
        crate::bson::patch_len(self.sink, start, len)?;
        self.sequences += 1;
        Ok(())
    }
}

/// Writes the documents of a sequence. Passed to the closure of [`MessageWriter::sequence`].
pub struct SequenceWriter<'s, S: Sink> {
    sink: &'s mut S,
    document_bytes_max: u32,
}

impl<S: Sink> fmt::Debug for SequenceWriter<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The content may be secret: only the length is shown.
        write!(f, "SequenceWriter({} bytes)", self.sink.written().len())
    }
}

impl<S: Sink> SequenceWriter<'_, S> {
    /// Appends a document that `write` writes.
    ///
    /// # Errors
    ///
    /// Errors of `write`; [`EncodeError::DocumentTooLarge`].
    pub fn document(
        &mut self,
        write: impl FnOnce(&mut DocumentWriter<'_, S>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let len = DocumentWriter::write(self.sink, write)?;
        check_len(len, self.document_bytes_max)
    }

    /// Appends an existing document.
    ///
    /// # Errors
    ///
    /// [`EncodeError::Full`], [`EncodeError::DocumentTooLarge`].
    pub fn raw_document(&mut self, document: RawDocument<'_>) -> Result<(), EncodeError> {
        check_len(document.as_bytes().len(), self.document_bytes_max)?;
        Ok(self.sink.append(document.as_bytes())?)
    }
}

fn check_len(len: usize, max_bytes: u32) -> Result<(), EncodeError> {
    let length_bytes = saturate(len);
    if length_bytes > max_bytes {
        return Err(EncodeError::DocumentTooLarge { length_bytes, max_bytes });
    }
    Ok(())
}
