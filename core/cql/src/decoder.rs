//! Decoding of received bytes, in arbitrary pieces, into envelopes.

#[cfg(test)]
mod tests;

use core::fmt;

use super::Limits;
use super::buffer::Buffer;
use super::compress::Compression;
use super::error::{CqlError, CqlErrorKind};
use super::header::{Direction, Expected, Flags, HEADER_BYTES, Header, Version, check_front, check_header};
use super::response::Envelope;
use super::segment::{Format, SegmentHeader, TRAILER_BYTES, check_payload};
use poolhouse_wire::Full;
use poolhouse_wire::Sink;
use poolhouse_wire::saturate;

/// Decodes received bytes, in pieces of any length, into envelopes: of v3, v4 and v5, compressed or
/// not.
///
/// An envelope that lies completely in one piece, uncompressed and in a single segment, is borrowed
/// from that piece. All others are collected in two sinks that the caller supplies: one for data
/// that arrived in pieces (an envelope; in v5 a segment, at most 131 KiB), the other for data that
/// were inflated, or assembled from several segments. Both grow with the bytes received, not with
/// the lengths that the peer declares. Inflated data are at most 255 times as long as their
/// compressed bytes, and within the limit.
///
/// ```
/// use poolhouse_cql::{Decoder, Direction, Limits, Opcode, Version};
///
/// let mut decoder = Decoder::new(Version::V4, Direction::Response, Limits::DEFAULT, Vec::new(), Vec::new());
/// for mut piece in [&[0x84, 0, 0][..], &[7, 2, 0, 0, 0, 0]] {
///     loop {
///         let step = decoder.decode(piece)?;
///         piece = &piece[step.consumed_bytes..];
///         let Some(envelope) = step.envelope else { break };
///         assert_eq!((envelope.header.opcode, envelope.header.stream), (Opcode::Ready, 7));
///     }
/// }
/// # Ok::<(), poolhouse_cql::CqlError>(())
/// ```
pub struct Decoder<S> {
    expected: Expected,
    limits: Limits,
    compression: Option<Compression>,
    framed: bool,
    /// The beginning of an envelope or a segment that arrived in pieces.
    received: Buffer<S>,
    /// An inflated body or payload, or the parts of an envelope.
    assembled: Buffer<S>,
    place: Place,
    /// Whether an envelope is being assembled from segments.
    in_parts: bool,
    /// The error that occurred. Every later call returns it, because later bytes cannot be
    /// interpreted.
    failed: Option<CqlError>,
}

/// Where the next envelope is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// From the front of the input, or of the bytes already collected.
    Between,
    /// The collected bytes were returned as an envelope; they are cleared at the next call.
    Lent,
    /// From a payload with a verified checksum.
    Payload { source: Source, start: usize, end: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Input,
    Received,
    Assembled,
}

/// A decoded envelope: its header, and the position of its body.
struct Found {
    header: Header,
    source: Source,
    start: usize,
    end: usize,
}

/// The result of decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// The number of bytes consumed from the front of the input. The others must be passed in
    /// again.
    pub consumed_bytes: usize,
    /// An envelope. `None`: all bytes are consumed, and more are needed.
    pub envelope: Option<Envelope<'a>>,
}

impl<S: Sink> Decoder<S> {
    /// A decoder for a new connection: no compression, no segments.
    ///
    /// - `version`: the only version that is accepted.
    /// - `direction`: the direction of the received messages.
    /// - `limits`: on bodies, compressed and inflated.
    /// - `received`, `assembled`: see [`Decoder`]; their content is overwritten. The second one
    ///   stays empty without compression and segments.
    ///
    /// Cost: no allocation.
    #[must_use]
    pub const fn new(version: Version, direction: Direction, limits: Limits, received: S, assembled: S) -> Self {
        Self {
            expected: Expected { version: Some(version), direction },
            limits,
            compression: None,
            framed: false,
            received: Buffer::new(received),
            assembled: Buffer::new(assembled),
            place: Place::Between,
            in_parts: false,
            failed: None,
        }
    }

    /// Sets the compression that STARTUP requested: from now on bodies (in v5 segments, once they
    /// are used) may be compressed.
    ///
    /// - `compression`: never accepted if this build or the version does not support it.
    pub fn set_compression(&mut self, compression: Option<Compression>) {
        let version = self.expected.version;
        let can_be = |one: &Compression| one.is_available() && version.is_none_or(|version| one.is_in(version));
        self.compression = compression.filter(can_be);
    }

    /// Registers the reply to STARTUP: in v5 all later data arrive in segments. No effect in other
    /// versions.
    pub const fn set_started(&mut self) {
        if let Some(version) = self.expected.version {
            self.framed = version.has_segments();
        }
    }

    /// Accepts only this version; with `None` any supported one.
    pub(super) const fn expect(&mut self, version: Option<Version>) {
        self.expected.version = version;
    }

    /// Sets the limits from the next envelope on.
    pub(super) const fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Decodes bytes that were received and not consumed yet, up to the first envelope.
    ///
    /// If an envelope is returned, the unconsumed rest must be passed in again, unchanged;
    /// otherwise all bytes are consumed.
    ///
    /// Cost: linear in the consumed bytes, regardless of the pieces. See [`Decoder`] for memory.
    ///
    /// # Errors
    ///
    /// [`CqlError`]: the connection must be closed. Each further call returns the same error. Those
    /// of [`decode_header`](super::decode_header); [`CqlErrorKind::CompressionNotAgreed`],
    /// [`CqlErrorKind::InflatedSize`], [`CqlErrorKind::CompressedData`];
    /// [`CqlErrorKind::SegmentHeaderChecksum`], [`CqlErrorKind::SegmentChecksum`],
    /// [`CqlErrorKind::SegmentEmpty`], [`CqlErrorKind::SegmentTooShort`],
    /// [`CqlErrorKind::SegmentTooLong`], [`CqlErrorKind::SegmentInterrupts`];
    /// [`CqlErrorKind::NoMemory`] when a sink is full.
    ///
    /// # Panics
    ///
    /// If the input does not continue where the last call stopped.
    ///
    /// Source: Native Protocol v5, "Frame Format", "Frame Payload"; v3 and v4, "Frame header",
    /// "Compression".
    pub fn decode<'a>(&'a mut self, input: &'a [u8]) -> Result<Step<'a>, CqlError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if let Some(step) = self.borrow_whole(input) {
            return Ok(step);
        }
        let mut at = 0;
        let found = match self.advance(input, &mut at) {
            Ok(found) => found,
            Err(error) => {
                self.failed = Some(error);
                return Err(error);
            }
        };
        let envelope = found.map(|Found { header, source, start, end }| {
            let bytes = match source {
                Source::Input => input,
                Source::Received => self.received.bytes(),
                Source::Assembled => self.assembled.bytes(),
            };
            Envelope { header, body: bytes.get(start..end).unwrap_or_default() }
        });
        Ok(Step { consumed_bytes: at, envelope })
    }

    /// Whether no partial data are stored: the consumed bytes end at the end of an envelope.
    #[must_use]
    pub const fn is_between(&self) -> bool {
        let kept = match self.place {
            Place::Between => self.received.len() > 0,
            Place::Lent => false,
            Place::Payload { .. } => true,
        };
        !kept && !self.in_parts
    }

    /// The sink for data in pieces, and the sink for inflated or assembled data.
    #[must_use]
    pub const fn memory(&self) -> [&S; 2] {
        [self.received.sink(), self.assembled.sink()]
    }

    /// Both sinks, emptied: the caller can shrink them after a large envelope; `None` while they
    /// are in use.
    pub fn idle_memory(&mut self) -> Option<[&mut S; 2]> {
        if !self.is_between() {
            return None;
        }
        self.place = Place::Between;
        Some([self.received.emptied(), self.assembled.emptied()])
    }

    /// The first envelope, if it is complete in the input and nothing of it has to be stored: nearly
    /// every envelope of v3 and v4. Errors are left to [`Self::advance`].
    #[inline]
    fn borrow_whole<'a>(&self, input: &'a [u8]) -> Option<Step<'a>> {
        if self.framed || self.place != Place::Between || self.received.len() > 0 {
            return None;
        }
        let header = check_header(input.first_chunk()?, self.expected, &self.limits).ok()?;
        let end = whole_bytes(header);
        let body = input.get(HEADER_BYTES..end)?;
        // In v5 this flag has no meaning.
        let is_plain = header.version.has_segments() || !header.flags.contains(Flags::COMPRESSION);
        is_plain.then_some(Step { consumed_bytes: end, envelope: Some(Envelope { header, body }) })
    }

    fn advance(&mut self, input: &[u8], at: &mut usize) -> Result<Option<Found>, CqlError> {
        loop {
            let found = match self.place {
                Place::Payload { source, start, end } => Some(self.walk(input, at, source, start, end)?),
                Place::Lent => {
                    self.received.clear();
                    self.place = Place::Between;
                    continue;
                }
                Place::Between if self.framed => match self.take_segment(input, at)? {
                    Taken::Found(found) => Some(found),
                    Taken::Again => continue,
                    Taken::NeedsMore => None,
                },
                Place::Between => self.take_envelope(input, at)?,
            };
            return Ok(found);
        }
    }

    /// Makes `count` contiguous bytes available: in the input from `at` on, or in `received`.
    /// Returns `None` if more input is needed.
    fn gather(&mut self, input: &[u8], at: &mut usize, count: usize) -> Result<Option<Source>, CqlError> {
        let rest = input.get(*at..).unwrap_or_default();
        if self.received.len() == 0 && rest.len() >= count {
            return Ok(Some(Source::Input));
        }
        let missing = count.saturating_sub(self.received.len()).min(rest.len());
        let some = rest.get(..missing).unwrap_or_default();
        self.received.extend(some).map_err(|Full| no_memory(count))?;
        *at += missing;
        Ok((self.received.len() >= count).then_some(Source::Received))
    }

    fn gathered<'a>(&'a self, input: &'a [u8], at: usize, source: Source) -> &'a [u8] {
        match source {
            Source::Input => input.get(at..).unwrap_or_default(),
            Source::Received => self.received.bytes(),
            Source::Assembled => self.assembled.bytes(),
        }
    }

    /// Takes an envelope that is not in a segment.
    fn take_envelope(&mut self, input: &[u8], at: &mut usize) -> Result<Option<Found>, CqlError> {
        let Some(source) = self.gather(input, at, HEADER_BYTES)? else {
            check_front(self.received.bytes(), self.expected)?;
            return Ok(None);
        };
        let header = self.header_of(self.gathered(input, *at, source))?;
        let length = whole_bytes(header);
        let Some(source) = self.gather(input, at, length)? else { return Ok(None) };
        let start = if source == Source::Input { *at } else { 0 };
        let (body, end) = (start.saturating_add(HEADER_BYTES), start.saturating_add(length));
        match source {
            Source::Input => *at = end,
            Source::Received | Source::Assembled => self.place = Place::Lent,
        }
        // In v5 this flag has no meaning.
        if header.version.has_segments() || !header.flags.contains(Flags::COMPRESSION) {
            return Ok(Some(Found { header, source, start: body, end }));
        }
        let Some(compression) = self.compression else {
            return Err(CqlError::new(CqlErrorKind::CompressionNotAgreed, 1));
        };
        self.assembled.clear();
        let bytes = if source == Source::Input { input } else { self.received.bytes() };
        let limit = usize::try_from(self.limits.body_bytes_max).unwrap_or(usize::MAX);
        compression.inflate_body(bytes.get(body..end).unwrap_or_default(), limit, &mut self.assembled)?;
        let end = self.assembled.len();
        let flags = header.flags.without(Flags::COMPRESSION);
        let header = Header { flags, length_bytes: saturate(end), ..header };
        Ok(Some(Found { header, source: Source::Assembled, start: 0, end }))
    }

    /// Takes the next segment. A self-contained one is then read envelope by envelope; any other is
    /// a part of an envelope.
    fn take_segment(&mut self, input: &[u8], at: &mut usize) -> Result<Taken, CqlError> {
        let format = if self.compression.is_some() { Format::Compressed } else { Format::Plain };
        let front = format.header_bytes();
        let Some(source) = self.gather(input, at, front)? else { return Ok(Taken::NeedsMore) };
        let bytes = self.gathered(input, *at, source);
        let header = SegmentHeader::decode(bytes.get(..front).unwrap_or_default(), format)?;
        if header.self_contained && self.in_parts {
            return Err(CqlError::new(CqlErrorKind::SegmentInterrupts, 0));
        }
        let behind = front.saturating_add(header.payload_bytes);
        let total = behind.saturating_add(TRAILER_BYTES);
        let Some(source) = self.gather(input, at, total)? else { return Ok(Taken::NeedsMore) };
        let segment = self.gathered(input, *at, source);
        let payload = segment.get(front..behind).unwrap_or_default();
        check_payload(payload, segment.get(behind..total).unwrap_or_default(), behind)?;

        if header.self_contained && header.inflated_bytes.is_none() {
            // The envelopes are read in place.
            self.place = match source {
                Source::Input => {
                    *at += front;
                    Place::Payload { source, start: 0, end: header.payload_bytes }
                }
                Source::Received | Source::Assembled => Place::Payload { source, start: front, end: behind },
            };
            return Ok(Taken::Again);
        }
        if !self.in_parts {
            self.assembled.clear();
        }
        let segment =
            if source == Source::Input { input.get(*at..).unwrap_or_default() } else { self.received.bytes() };
        let payload = segment.get(front..behind).unwrap_or_default();
        match (header.inflated_bytes, self.compression) {
            (Some(size), Some(compression)) => {
                compression.inflate_segment(payload, size, saturate(front), &mut self.assembled)?;
            }
            (Some(_), None) | (None, _) => {
                let needed = self.assembled.len().saturating_add(payload.len());
                self.assembled.extend(payload).map_err(|Full| no_memory(needed))?;
            }
        }
        match source {
            Source::Input => *at = at.saturating_add(total),
            Source::Received | Source::Assembled => self.received.clear(),
        }
        if header.self_contained {
            self.place = Place::Payload { source: Source::Assembled, start: 0, end: self.assembled.len() };
            return Ok(Taken::Again);
        }
        self.in_parts = true;
        self.take_assembled(saturate(front))
    }

    /// Takes the envelope that is being assembled, if it is complete.
    ///
    /// - `front`: the offset of the payload in the last segment.
    fn take_assembled(&mut self, front: u32) -> Result<Taken, CqlError> {
        let there = self.assembled.len();
        if there < HEADER_BYTES {
            check_front(self.assembled.bytes(), self.expected)?;
            return Ok(Taken::Again);
        }
        let header = self.header_of(self.assembled.bytes())?;
        let length = whole_bytes(header);
        if there < length {
            return Ok(Taken::Again);
        }
        if there > length {
            let count_bytes = saturate(there - length);
            return Err(CqlError::new(CqlErrorKind::SegmentTooLong { count_bytes }, front));
        }
        self.in_parts = false;
        Ok(Taken::Found(Found { header, source: Source::Assembled, start: HEADER_BYTES, end: length }))
    }

    /// Takes the next envelope of a verified payload, which extends from `start` to `end`.
    fn walk(
        &mut self,
        input: &[u8],
        at: &mut usize,
        source: Source,
        start: usize,
        end: usize,
    ) -> Result<Found, CqlError> {
        let bytes = self.gathered(input, *at, source);
        let payload = bytes.get(start..end);
        assert!(payload.is_some(), "the input does not continue where the last call stopped");
        let payload = payload.unwrap_or_default();
        let too_short = |missing: usize| {
            let missing_bytes = saturate(missing);
            CqlError::new(CqlErrorKind::SegmentTooShort { missing_bytes }, saturate(payload.len()))
        };
        if payload.len() < HEADER_BYTES {
            check_front(payload, self.expected)?;
            return Err(too_short(HEADER_BYTES - payload.len()));
        }
        let header = self.header_of(payload)?;
        let length = whole_bytes(header);
        if payload.len() < length {
            return Err(too_short(length - payload.len()));
        }
        let is_last = payload.len() == length;
        let front = if source == Source::Input { *at } else { start };
        let found = Found { header, source, start: front + HEADER_BYTES, end: front + length };
        self.place = match source {
            _ if is_last => {
                if source == Source::Input {
                    *at = at.saturating_add(TRAILER_BYTES);
                }
                if source == Source::Received { Place::Lent } else { Place::Between }
            }
            Source::Input => Place::Payload { source, start: 0, end: end - length },
            Source::Received | Source::Assembled => Place::Payload { source, start: start + length, end },
        };
        if source == Source::Input {
            *at = at.saturating_add(length);
        }
        Ok(found)
    }

    /// Decodes the header at the front of `bytes`, which has at least the length of a header.
    fn header_of(&self, bytes: &[u8]) -> Result<Header, CqlError> {
        match bytes.first_chunk::<HEADER_BYTES>() {
            Some(bytes) => check_header(bytes, self.expected, &self.limits),
            None => Err(CqlError::new(
                CqlErrorKind::Truncated { needed_bytes: saturate(HEADER_BYTES), found_bytes: saturate(bytes.len()) },
                0,
            )),
        }
    }
}

/// The result of taking a segment.
enum Taken {
    Found(Found),
    /// A segment was consumed; try again.
    Again,
    /// All input is consumed.
    NeedsMore,
}

/// Length of an envelope in bytes, including its header.
fn whole_bytes(header: Header) -> usize {
    usize::try_from(header.length_bytes).unwrap_or(usize::MAX).saturating_add(HEADER_BYTES)
}

fn no_memory(needed: usize) -> CqlError {
    CqlError::new(CqlErrorKind::NoMemory { needed_bytes: saturate(needed) }, 0)
}

impl<S> fmt::Debug for Decoder<S> {
    /// Omits the content of envelopes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("version", &self.expected.version)
            .field("compression", &self.compression)
            .field("framed", &self.framed)
            .field("received", &self.received)
            .field("assembled", &self.assembled)
            .finish_non_exhaustive()
    }
}
