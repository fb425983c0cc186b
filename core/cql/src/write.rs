//! Encoding of envelopes.
//!
//! Read first: Native Protocol, "Frame header", "Notations".

#[cfg(test)]
mod tests;

use core::fmt;

use super::Limits;
use super::error::CqlEncodeError;
use super::header::{Direction, EVENT_STREAM, Flags, HEADER_BYTES, Header, Opcode, Version};
use poolhouse_wire::Sink;
use poolhouse_wire::saturate;

/// Header fields of an envelope to write, except opcode and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outgoing {
    /// The version of the protocol.
    pub version: Version,
    /// Header flags, written verbatim. If a flag implies a body prefix (e.g. a tracing id), the
    /// caller must write it. Must not include [`Flags::COMPRESSION`], which the
    /// [`Encoder`](super::Encoder) sets.
    pub flags: Flags,
    /// The stream id.
    pub stream: i16,
}

impl Outgoing {
    /// Creates header fields without flags.
    ///
    /// - `stream`: from 0 on; [`EVENT_STREAM`] for events.
    #[must_use]
    pub const fn new(version: Version, stream: i16) -> Self {
        Self { version, flags: Flags::NONE, stream }
    }

    /// Sets the flags.
    #[must_use]
    pub const fn with_flags(self, flags: Flags) -> Self {
        Self { flags, ..self }
    }
}

/// Writes an envelope at the end of `sink`, and returns its length in bytes. Send it unchanged in
/// v3 and v4 without compression and before STARTUP is answered; otherwise convert it with an
/// [`Encoder`](super::Encoder).
///
/// The opcode determines the direction. On an error the sink is unchanged.
///
/// # Errors
///
/// Errors of `write`; [`CqlEncodeError::Stream`], [`CqlEncodeError::BodyTooLarge`],
/// [`CqlEncodeError::Full`].
///
/// Source: Native Protocol, "Frame header".
pub fn encode_envelope<S: Sink>(
    sink: &mut S,
    outgoing: Outgoing,
    opcode: Opcode,
    limits: &Limits,
    write: impl FnOnce(&mut BodyWriter<'_, S>) -> Result<(), CqlEncodeError>,
) -> Result<usize, CqlEncodeError> {
    let start = sink.written().len();
    let result = encode(sink, start, outgoing, opcode, limits, write);
    if result.is_err() {
        sink.truncate(start);
    }
    result
}

fn encode<S: Sink>(
    sink: &mut S,
    start: usize,
    outgoing: Outgoing,
    opcode: Opcode,
    limits: &Limits,
    write: impl FnOnce(&mut BodyWriter<'_, S>) -> Result<(), CqlEncodeError>,
) -> Result<usize, CqlEncodeError> {
    let Outgoing { version, flags, stream } = outgoing;
    if !opcode.can_have(stream) {
        return Err(CqlEncodeError::Stream { stream });
    }
    sink.append(&[0; HEADER_BYTES])?;
    write(&mut BodyWriter { sink, version })?;
    let whole = sink.written_mut().get_mut(start..).ok_or(CqlEncodeError::Full)?;
    let length = whole.len();
    let length_bytes = saturate(length.saturating_sub(HEADER_BYTES));
    let max_bytes = limits.body_bytes_max;
    if length_bytes > max_bytes.min(i32::MAX.unsigned_abs()) {
        return Err(CqlEncodeError::BodyTooLarge { length_bytes, max_bytes });
    }
    let header = Header { version, direction: opcode.direction(), flags, stream, opcode, length_bytes };
    let place = whole.first_chunk_mut::<HEADER_BYTES>().ok_or(CqlEncodeError::Full)?;
    *place = header.to_bytes();
    Ok(length)
}

const _: () = assert!(EVENT_STREAM == -1);
const _: () = assert!(matches!(Opcode::Event.direction(), Direction::Response));

/// Writes the body of an envelope, in the notations of the protocol. Passed to the closure of
/// [`encode_envelope`].
pub struct BodyWriter<'s, S: Sink> {
    sink: &'s mut S,
    version: Version,
}

impl<S: Sink> fmt::Debug for BodyWriter<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The content may be secret: only the length is shown.
        write!(f, "BodyWriter({} bytes)", self.sink.written().len())
    }
}

/// Every method fails with [`CqlEncodeError::Full`] if the sink has no room; additional errors are
/// listed at each method.
impl<S: Sink> BodyWriter<'_, S> {
    /// The protocol version; some fields are encoded differently in each version.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Writes bytes without a length.
    ///
    /// # Errors
    ///
    /// [`CqlEncodeError::Full`].
    pub fn raw(&mut self, bytes: &[u8]) -> Result<&mut Self, CqlEncodeError> {
        self.sink.append(bytes)?;
        Ok(self)
    }

    /// Writes a `byte`.
    ///
    /// # Errors
    ///
    /// [`CqlEncodeError::Full`].
    pub fn byte(&mut self, value: u8) -> Result<&mut Self, CqlEncodeError> {
        self.raw(&[value])
    }

    /// Writes a `short`.
    ///
    /// # Errors
    ///
    /// [`CqlEncodeError::Full`].
    pub fn short(&mut self, value: u16) -> Result<&mut Self, CqlEncodeError> {
        self.raw(&value.to_be_bytes())
    }

    /// Writes an `int`.
    ///
    /// # Errors
    ///
    /// [`CqlEncodeError::Full`].
    pub fn int(&mut self, value: i32) -> Result<&mut Self, CqlEncodeError> {
        self.raw(&value.to_be_bytes())
    }

    /// Writes a `long`.
    ///
    /// # Errors
    ///
    /// [`CqlEncodeError::Full`].
    pub fn long(&mut self, value: i64) -> Result<&mut Self, CqlEncodeError> {
        self.raw(&value.to_be_bytes())
    }

    /// Writes a `string`.
    ///
    /// # Errors
    ///
    /// [`CqlEncodeError::Full`], [`CqlEncodeError::StringTooLong`].
    pub fn string(&mut self, text: &str) -> Result<&mut Self, CqlEncodeError> {
        self.short_bytes(text.as_bytes())
    }

    /// Writes a `long string`.
    ///
    /// # Errors
    ///
    /// [`CqlEncodeError::Full`], [`CqlEncodeError::BodyTooLarge`].
    pub fn long_string(&mut self, text: &str) -> Result<&mut Self, CqlEncodeError> {
        self.bytes(Some(text.as_bytes()))
    }

    /// Writes `short bytes`, such as an id.
    ///
    /// # Errors
    ///
    /// [`CqlEncodeError::Full`], [`CqlEncodeError::StringTooLong`].
    pub fn short_bytes(&mut self, bytes: &[u8]) -> Result<&mut Self, CqlEncodeError> {
        let length_bytes = saturate(bytes.len());
        let length = u16::try_from(length_bytes).map_err(|_| CqlEncodeError::StringTooLong { length_bytes })?;
        self.short(length)?.raw(bytes)
    }

    /// Writes `bytes`; `None` is null.
    ///
    /// # Errors
    ///
    /// [`CqlEncodeError::Full`], [`CqlEncodeError::BodyTooLarge`].
    pub fn bytes(&mut self, bytes: Option<&[u8]>) -> Result<&mut Self, CqlEncodeError> {
        let Some(bytes) = bytes else { return self.int(-1) };
        let (length_bytes, max_bytes) = (saturate(bytes.len()), i32::MAX.unsigned_abs());
        let length =
            i32::try_from(length_bytes).map_err(|_| CqlEncodeError::BodyTooLarge { length_bytes, max_bytes })?;
        self.int(length)?.raw(bytes)
    }

    /// Writes `bytes` with the content that `write` writes.
    ///
    /// # Errors
    ///
    /// Errors of `write`; [`CqlEncodeError::Full`].
    pub fn bytes_with(
        &mut self,
        write: impl FnOnce(&mut BodyWriter<'_, S>) -> Result<(), CqlEncodeError>,
    ) -> Result<&mut Self, CqlEncodeError> {
        let at = self.sink.written().len();
        self.int(0)?;
        let start = self.sink.written().len();
        write(self)?;
        let length = self.sink.written().len().saturating_sub(start);
        let (length_bytes, max_bytes) = (saturate(length), i32::MAX.unsigned_abs());
        let length =
            i32::try_from(length_bytes).map_err(|_| CqlEncodeError::BodyTooLarge { length_bytes, max_bytes })?;
        let place = self.sink.written_mut().get_mut(at..start).ok_or(CqlEncodeError::Full)?;
        place.copy_from_slice(&length.to_be_bytes());
        Ok(self)
    }

    /// Writes a `string list`.
    ///
    /// # Errors
    ///
    /// [`CqlEncodeError::Full`], [`CqlEncodeError::StringTooLong`], [`CqlEncodeError::ListTooLong`].
    pub fn strings<'a>(&mut self, texts: impl ExactSizeIterator<Item = &'a str>) -> Result<&mut Self, CqlEncodeError> {
        self.count(texts.len())?;
        for text in texts {
            self.string(text)?;
        }
        Ok(self)
    }

    /// Writes a `bytes map`, such as a custom payload, which only v4 and later have.
    ///
    /// # Errors
    ///
    /// [`CqlEncodeError::Full`], [`CqlEncodeError::StringTooLong`], [`CqlEncodeError::ListTooLong`],
    /// [`CqlEncodeError::BodyTooLarge`]; [`CqlEncodeError::VersionLacks`] in v3.
    pub fn bytes_map<'a>(
        &mut self,
        entries: impl ExactSizeIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<&mut Self, CqlEncodeError> {
        if self.version == Version::V3 {
            return Err(CqlEncodeError::VersionLacks { version: self.version, what: "a custom payload" });
        }
        self.count(entries.len())?;
        for (name, bytes) in entries {
            self.string(name)?.bytes(Some(bytes))?;
        }
        Ok(self)
    }

    /// Writes the length of a list, as a `short`.
    ///
    /// # Errors
    ///
    /// [`CqlEncodeError::Full`], [`CqlEncodeError::ListTooLong`].
    pub fn count(&mut self, count: usize) -> Result<&mut Self, CqlEncodeError> {
        let count = saturate(count);
        let short = u16::try_from(count).map_err(|_| CqlEncodeError::ListTooLong { count })?;
        self.short(short)
    }
}
