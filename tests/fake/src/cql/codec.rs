//! Frames of Cassandra's native protocol, for either side: envelopes, their compression, and the
//! segments of version 5.
//!
//! Written apart from the crate `poolhouse-cql`, whose sessions are tested with it: an error of one is not
//! hidden by the same error of the other. Only the blocks of LZ4 and snappy are those of the same crates. A real
//! node is the judge of both: see
//! `tests/hosted/tests/cassandra/recording.rs` in the repository.
//!
//! Sections to read first: Native Protocol v5, "Frame header" and what follows it on segments and
//! envelopes; v4, "Frame header" and "Compression".

#[cfg(test)]
mod tests;

/// Length of an envelope's header, bytes.
pub const HEADER_BYTES: usize = 9;
/// Largest length of a segment's payload, bytes.
pub const PAYLOAD_BYTES_MAX: usize = 128 * 1024 - 1;
/// The flag of a compressed body, in versions 3 and 4.
pub const COMPRESSED: u8 = 0x01;

/// Length of the checksum after a payload, bytes.
const TRAILER_BYTES: usize = 4;
/// The number of bits of a length in a segment's header.
const LENGTH_BITS: u32 = 17;
/// The bytes that the checksum of each payload covers before the payload.
const CRC32_FRONT: [u8; 4] = [0xfa, 0x2d, 0x55, 0xca];
/// Shorter bodies are sent uncompressed.
const COMPRESS_BYTES_MIN: usize = 32;
/// Most bytes that one compressed byte can become, in either format.
const EXPANSION_MAX: usize = 256;

/// A compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// LZ4, in its block format.
    Lz4,
    /// Snappy. Not in version 5.
    Snappy,
}

impl Compression {
    /// All compressions.
    pub const ALL: [Self; 2] = [Self::Lz4, Self::Snappy];

    /// Its name in STARTUP and SUPPORTED.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Snappy => "snappy",
        }
    }

    /// Compresses a body, as versions 3 and 4 send it.
    fn deflate_body(self, body: &[u8]) -> Vec<u8> {
        match self {
            Self::Lz4 => {
                let mut sent = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes().to_vec();
                sent.extend(lz4_flex::block::compress(body));
                sent
            }
            Self::Snappy => snap::raw::Encoder::new().compress_vec(body).unwrap_or_default(),
        }
    }

    /// `None` if the bytes are malformed, or become longer than `length_max`.
    fn inflate_body(self, sent: &[u8], length_max: usize) -> Option<Vec<u8>> {
        match self {
            Self::Lz4 => {
                let (length, block) = sent.split_first_chunk()?;
                let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
                if length > length_max {
                    return None;
                }
                inflate_block(block, length)
            }
            Self::Snappy => {
                let length = snap::raw::decompress_len(sent).ok()?;
                if length > length_max.min(sent.len().saturating_mul(EXPANSION_MAX)) {
                    return None;
                }
                snap::raw::Decoder::new().decompress_vec(sent).ok()
            }
        }
    }
}

/// Decompresses a block of LZ4 of a known length.
fn inflate_block(block: &[u8], length: usize) -> Option<Vec<u8>> {
    // A length that the block cannot have must not reserve memory.
    if length > block.len().saturating_mul(EXPANSION_MAX) {
        return None;
    }
    if length == 0 && block.is_empty() {
        return Some(Vec::new());
    }
    lz4_flex::block::decompress(block, length).ok().filter(|whole| whole.len() == length)
}

/// How the envelopes of a connection are sent. The default: one after another, uncompressed, as before
/// the answer to STARTUP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framing {
    /// Whether they are sent in segments: in version 5.
    pub has_segments: bool,
    /// The compression of bodies, or of segments.
    pub compression: Option<Compression>,
}

impl Framing {
    /// The framing after the answer to STARTUP.
    #[must_use]
    pub const fn of(version: u8, compression: Option<Compression>) -> Self {
        Self { has_segments: version >= 5, compression }
    }

    /// Whether envelopes are sent as they are.
    #[must_use]
    pub const fn is_plain(self) -> bool {
        !self.has_segments && self.compression.is_none()
    }
}

/// The header of an envelope, without the length of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The first byte: the version, and in replies the highest bit.
    pub version: u8,
    /// The flags.
    pub flags: u8,
    /// The stream id.
    pub stream: i16,
    /// The opcode.
    pub opcode: u8,
}

impl Header {
    fn read(bytes: &[u8; HEADER_BYTES]) -> (Self, i32) {
        let [version, flags, high, low, opcode, length @ ..] = *bytes;
        (Self { version, flags, stream: i16::from_be_bytes([high, low]), opcode }, i32::from_be_bytes(length))
    }

    /// Returns the bytes of the header of a body of this length.
    #[must_use]
    pub fn bytes(self, length: i32) -> [u8; HEADER_BYTES] {
        let ([high, low], [a, b, c, d]) = (self.stream.to_be_bytes(), length.to_be_bytes());
        [self.version, self.flags, high, low, self.opcode, a, b, c, d]
    }

    /// Returns an envelope.
    #[must_use]
    pub fn envelope(self, body: &[u8]) -> Vec<u8> {
        let length = i32::try_from(body.len()).unwrap_or(i32::MAX);
        [&self.bytes(length), body].concat()
    }
}

/// A received envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Its header, as it was sent.
    pub header: Header,
    /// Its body, uncompressed.
    pub body: &'a [u8],
}

/// Why received bytes are no envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The stream id in the header; 0 without a header.
    pub stream: i16,
    /// The reason.
    pub reason: Reason,
}

/// Why received bytes are no envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The length of a body is negative or beyond the limit.
    Length(i32),
    /// A segment of whole envelopes ends within an envelope.
    Incomplete,
    /// Any other reason.
    Other(&'static str),
}

/// Returns the header of the first envelope, and the end of its body; `None` if more bytes are needed.
fn front(bytes: &[u8], length_max: usize) -> Result<Option<(Header, usize)>, Malformed> {
    let Some(first) = bytes.first_chunk() else { return Ok(None) };
    let (header, length) = Header::read(first);
    let Some(length) = usize::try_from(length).ok().filter(|length| *length <= length_max) else {
        return Err(Malformed { stream: header.stream, reason: Reason::Length(length) });
    };
    let end = HEADER_BYTES + length;
    Ok((bytes.len() >= end).then_some((header, end)))
}

/// Encodes envelopes for the network.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    framing: Framing,
}

impl Encoder {
    /// Creates an encoder.
    #[must_use]
    pub const fn new(framing: Framing) -> Self {
        Self { framing }
    }

    /// Returns the framing.
    #[must_use]
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// Appends whole envelopes as the network has them. Small ones share a segment.
    pub fn encode(&self, envelopes: &[u8], wire: &mut Vec<u8>) {
        let mut rest = envelopes;
        while !rest.is_empty() {
            let mut end = envelope_end(rest);
            if !self.framing.has_segments {
                self.encode_body(&rest[..end], wire);
            } else if end > PAYLOAD_BYTES_MAX {
                for part in rest[..end].chunks(PAYLOAD_BYTES_MAX) {
                    self.encode_segment(part, false, wire);
                }
            } else {
                while end < rest.len() && end + envelope_end(&rest[end..]) <= PAYLOAD_BYTES_MAX {
                    end += envelope_end(&rest[end..]);
                }
                self.encode_segment(&rest[..end], true, wire);
            }
            rest = &rest[end..];
        }
    }

    /// Appends an envelope whose body is compressed if that makes it shorter.
    fn encode_body(&self, envelope: &[u8], wire: &mut Vec<u8>) {
        let (front, body) = envelope.split_at(HEADER_BYTES.min(envelope.len()));
        if let Some(compression) = self.framing.compression.filter(|_| body.len() >= COMPRESS_BYTES_MIN) {
            let sent = compression.deflate_body(body);
            if sent.len() < body.len() {
                let length = u32::try_from(sent.len()).unwrap_or(u32::MAX);
                wire.extend([front[0], front[1] | COMPRESSED, front[2], front[3], front[4]]);
                wire.extend(length.to_be_bytes());
                wire.extend(sent);
                return;
            }
        }
        wire.extend_from_slice(envelope);
    }

    /// Appends one segment.
    ///
    /// - `payload`: at most [`PAYLOAD_BYTES_MAX`].
    /// - `is_whole`: whether it consists of whole envelopes, not of a part of one.
    pub fn encode_segment(&self, payload: &[u8], is_whole: bool, wire: &mut Vec<u8>) {
        let is_whole = u64::from(is_whole);
        let deflated = match self.framing.compression {
            Some(_) if payload.len() >= COMPRESS_BYTES_MIN => Some(lz4_flex::block::compress(payload)),
            Some(_) | None => None,
        };
        let deflated = deflated.filter(|block| block.len() < payload.len());
        let sent = deflated.as_deref().unwrap_or(payload);
        let length = sent.len() as u64;
        let (header, header_bytes) = if self.framing.compression.is_some() {
            // A length of 0 before compression: the payload is not compressed.
            let whole = deflated.as_ref().map_or(0, |_| payload.len() as u64);
            (length | whole << LENGTH_BITS | is_whole << (2 * LENGTH_BITS), 5)
        } else {
            (length | is_whole << LENGTH_BITS, 3)
        };
        let header = &header.to_le_bytes()[..header_bytes];
        wire.extend_from_slice(header);
        wire.extend_from_slice(&crc24(header).to_le_bytes()[..3]);
        wire.extend_from_slice(sent);
        wire.extend(crc32(sent).to_le_bytes());
    }
}

/// Returns the end of the first of some whole envelopes.
fn envelope_end(envelopes: &[u8]) -> usize {
    let length =
        envelopes.first_chunk().map(|first| Header::read(first).1).and_then(|length| usize::try_from(length).ok());
    length.map_or(envelopes.len(), |length| envelopes.len().min(HEADER_BYTES + length))
}

/// Decodes what the network delivers, in pieces of any length.
#[derive(Clone, Debug)]
pub struct Decoder {
    framing: Framing,
    length_max: usize,
    /// Received bytes from `input_at` on.
    input: Vec<u8>,
    input_at: usize,
    /// The content of segments, from `content_at` on.
    content: Vec<u8>,
    content_at: usize,
    /// The last body, if it was compressed.
    body: Vec<u8>,
}

impl Decoder {
    /// Creates a decoder of envelopes that are not framed.
    ///
    /// - `length_max`: largest length of a body, before and after decompression.
    #[must_use]
    pub const fn new(length_max: usize) -> Self {
        let framing = Framing { has_segments: false, compression: None };
        Self {
            framing,
            length_max,
            input: Vec::new(),
            input_at: 0,
            content: Vec::new(),
            content_at: 0,
            body: Vec::new(),
        }
    }

    /// Sets the framing of all bytes after the last envelope that was returned.
    pub const fn set_framing(&mut self, framing: Framing) {
        self.framing = framing;
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.input.drain(..self.input_at);
        self.input_at = 0;
        self.input.extend_from_slice(bytes);
    }

    /// Returns the next envelope; `None` if more bytes are needed.
    ///
    /// # Errors
    /// The bytes are malformed. No further envelope can be decoded.
    pub fn envelope(&mut self) -> Result<Option<Envelope<'_>>, Malformed> {
        let (bytes, at) = if self.framing.has_segments {
            while front(&self.content[self.content_at..], self.length_max)?.is_none() {
                if !self.take_segment()? {
                    return Ok(None);
                }
            }
            (&self.content, &mut self.content_at)
        } else {
            (&self.input, &mut self.input_at)
        };
        let Some((header, end)) = front(&bytes[*at..], self.length_max)? else { return Ok(None) };
        let body = &bytes[*at + HEADER_BYTES..*at + end];
        *at += end;
        if self.framing.has_segments || header.flags & COMPRESSED == 0 {
            return Ok(Some(Envelope { header, body }));
        }
        let malformed = |reason| Malformed { stream: header.stream, reason: Reason::Other(reason) };
        let compression = self.framing.compression.ok_or_else(|| malformed("no compression was agreed on"))?;
        let inflated = compression.inflate_body(body, self.length_max);
        self.body = inflated.ok_or_else(|| malformed("a compressed body is malformed"))?;
        Ok(Some(Envelope { header, body: &self.body }))
    }

    /// Moves the payload of the next segment to the content; false if more bytes are needed.
    fn take_segment(&mut self) -> Result<bool, Malformed> {
        let malformed = |reason| Malformed { stream: 0, reason: Reason::Other(reason) };
        let header_bytes = if self.framing.compression.is_some() { 5 } else { 3 };
        let input = &self.input[self.input_at..];
        let Some((header, rest)) = input.split_at_checked(header_bytes + 3) else { return Ok(false) };
        let (header, checksum) = header.split_at(header_bytes);
        if crc24(header).to_le_bytes()[..3] != *checksum {
            return Err(malformed("the checksum of a segment's header does not match"));
        }
        let mut bits = [0; 8];
        bits[..header_bytes].copy_from_slice(header);
        let bits = u64::from_le_bytes(bits);
        let length_at = |shift: u32| usize::try_from(bits >> shift & ((1 << LENGTH_BITS) - 1)).unwrap_or_default();
        let (length, whole_shift) = (length_at(0), if header_bytes == 5 { 2 * LENGTH_BITS } else { LENGTH_BITS });
        let is_whole = bits >> whole_shift & 1 == 1;
        let Some((payload, checksum)) = rest.get(..length + TRAILER_BYTES).and_then(|rest| rest.split_last_chunk())
        else {
            return Ok(false);
        };
        if crc32(payload) != u32::from_le_bytes(*checksum) {
            return Err(malformed("the checksum of a segment's payload does not match"));
        }
        self.content.drain(..self.content_at);
        self.content_at = 0;
        if is_whole && !self.content.is_empty() {
            return Err(malformed("a segment of whole envelopes follows a part of an envelope"));
        }
        match if header_bytes == 5 { length_at(LENGTH_BITS) } else { 0 } {
            0 => self.content.extend_from_slice(payload),
            whole => {
                let inflated = inflate_block(payload, whole);
                self.content.extend(inflated.ok_or_else(|| malformed("a compressed segment is malformed"))?);
            }
        }
        if is_whole {
            let mut at = 0;
            while at < self.content.len() {
                let Some((_, end)) = front(&self.content[at..], self.length_max)? else {
                    return Err(Malformed { stream: 0, reason: Reason::Incomplete });
                };
                at += end;
            }
        }
        self.input_at += header_bytes + 3 + length + TRAILER_BYTES;
        Ok(true)
    }
}

/// The checksum of a segment's header.
fn crc24(bytes: &[u8]) -> u32 {
    let mut sum = 0x87_5060;
    for byte in bytes {
        sum ^= u32::from(*byte) << 16;
        for _ in 0..8 {
            sum <<= 1;
            if sum & 0x100_0000 != 0 {
                sum ^= 0x197_4f0b;
            }
        }
    }
    sum
}

/// The checksum of a segment's payload.
fn crc32(payload: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&CRC32_FRONT);
    sum.update(payload);
    sum.finalize()
}
