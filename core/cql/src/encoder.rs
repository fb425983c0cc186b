//! Encoding of envelopes for the network: in segments, or with compressed bodies.

#[cfg(test)]
mod tests;

use super::compress::{Compression, Deflater};
use super::error::CqlEncodeError;
use super::header::{Flags, HEADER_BYTES, LENGTH_AT, Version};
use super::segment::{Format, SEGMENT_PAYLOAD_BYTES_MAX, begin_segment, end_segment};
use poolhouse_wire::Sink;
use poolhouse_wire::saturate;

/// Converts envelopes to the bytes that are sent on a connection, after STARTUP was answered.
///
/// Requests are first encoded one after another by [`encode_envelope`](super::encode_envelope). In
/// v3 and v4 without compression these bytes are sent unchanged ([`is_plain`](Self::is_plain)).
/// Otherwise [`encode`](Self::encode) converts them: in v5 it puts as many envelopes as fit into
/// one segment, and splits an envelope that is too large into several segments; in v3 and v4 it
/// compresses the bodies. Data that compression does not shorten are sent uncompressed.
///
/// Memory: none without compression. With LZ4: 8 KiB from the first envelope on, and 16 KiB after
/// 64 KiB were compressed in one call (without `alloc`: on the stack, during the call). With
/// Snappy: 2 KiB, and 32 KiB once a body exceeds a kilobyte.
#[derive(Debug)]
pub struct Encoder {
    version: Version,
    compression: Option<Compression>,
    deflater: Deflater,
}

impl Encoder {
    /// Creates an encoder for an established connection with this version and compression.
    ///
    /// - `compression`: nothing is compressed if this build or the version does not support it.
    ///
    /// Cost: no allocation.
    #[must_use]
    pub fn new(version: Version, compression: Option<Compression>) -> Self {
        let compression = compression.filter(|compression| compression.is_in(version));
        Self { version, compression, deflater: Deflater::new() }
    }

    /// Whether envelopes are sent unchanged; [`encode`](Self::encode) would only copy them.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        !self.version.has_segments() && self.compression.is_none()
    }

    /// Appends the bytes to send for `envelopes`, any number of complete ones, to `sink`.
    ///
    /// On an error the sink is unchanged.
    ///
    /// Cost: linear in the bytes. Compression temporarily needs room in the sink for a tenth more
    /// than the uncompressed size.
    ///
    /// # Errors
    ///
    /// [`CqlEncodeError::Full`], [`CqlEncodeError::NotEnvelopes`].
    ///
    /// Source: Native Protocol v5, "Frame Format"; v3 and v4, "Compression".
    pub fn encode<S: Sink>(&mut self, envelopes: &[u8], sink: &mut S) -> Result<(), CqlEncodeError> {
        let start = sink.written().len();
        let result = if self.version.has_segments() {
            self.encode_segments(envelopes, sink)
        } else {
            self.encode_bodies(envelopes, sink)
        };
        if result.is_err() {
            sink.truncate(start);
        }
        result
    }

    fn encode_segments<S: Sink>(&mut self, envelopes: &[u8], sink: &mut S) -> Result<(), CqlEncodeError> {
        let mut rest = envelopes;
        while !rest.is_empty() {
            // Count the envelopes that fit into a segment.
            let mut count = 0;
            let mut behind = rest;
            while !behind.is_empty() {
                let length = envelope_bytes(behind)?;
                if count + length > SEGMENT_PAYLOAD_BYTES_MAX {
                    if count == 0 {
                        count = length;
                    }
                    break;
                }
                count += length;
                behind = rest.get(count..).unwrap_or_default();
            }
            let (payload, behind) = rest.split_at_checked(count).ok_or(CqlEncodeError::NotEnvelopes)?;
            let self_contained = payload.len() <= SEGMENT_PAYLOAD_BYTES_MAX;
            for part in payload.chunks(SEGMENT_PAYLOAD_BYTES_MAX) {
                self.encode_segment(part, self_contained, sink)?;
            }
            rest = behind;
        }
        Ok(())
    }

    fn encode_segment<S: Sink>(
        &mut self,
        payload: &[u8],
        self_contained: bool,
        sink: &mut S,
    ) -> Result<(), CqlEncodeError> {
        let start = sink.written().len();
        let format = if self.compression.is_some() { Format::Compressed } else { Format::Plain };
        begin_segment(sink, format)?;
        let mut inflated_bytes = None;
        if let Some(compression) = self.compression {
            if self.deflater.deflate(compression, false, payload, sink)? {
                inflated_bytes = Some(payload.len());
            }
        }
        if inflated_bytes.is_none() {
            sink.append(payload)?;
        }
        Ok(end_segment(sink, start, format, inflated_bytes, self_contained)?)
    }

    fn encode_bodies<S: Sink>(&mut self, envelopes: &[u8], sink: &mut S) -> Result<(), CqlEncodeError> {
        let Some(compression) = self.compression else { return Ok(sink.append(envelopes)?) };
        let mut rest = envelopes;
        while !rest.is_empty() {
            let (envelope, behind) =
                rest.split_at_checked(envelope_bytes(rest)?).ok_or(CqlEncodeError::NotEnvelopes)?;
            let (header, body) = envelope.split_at_checked(HEADER_BYTES).ok_or(CqlEncodeError::NotEnvelopes)?;
            let start = sink.written().len();
            sink.append(header)?;
            if self.deflater.deflate(compression, true, body, sink)? {
                let written = sink.written_mut().get_mut(start..).ok_or(CqlEncodeError::Full)?;
                let length = saturate(written.len().saturating_sub(HEADER_BYTES)).to_be_bytes();
                let [_, flags, _, _, _, a, b, c, d, ..] = written else { return Err(CqlEncodeError::Full) };
                *flags |= Flags::COMPRESSION.bits();
                [*a, *b, *c, *d] = length;
            } else {
                sink.append(body)?;
            }
            rest = behind;
        }
        Ok(())
    }
}

const _: () = assert!(LENGTH_AT == 5);

/// Length of the envelope at the front of `bytes`, from its header; at least the header's length.
fn envelope_bytes(bytes: &[u8]) -> Result<usize, CqlEncodeError> {
    let length = match *bytes {
        [_, _, _, _, _, a, b, c, d, ..] => usize::try_from(u32::from_be_bytes([a, b, c, d])),
        _ => return Err(CqlEncodeError::NotEnvelopes),
    };
    let length = length.unwrap_or(usize::MAX).saturating_add(HEADER_BYTES);
    if length > bytes.len() { Err(CqlEncodeError::NotEnvelopes) } else { Ok(length) }
}
