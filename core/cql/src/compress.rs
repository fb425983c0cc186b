//! Compression: of bodies in v3 and v4, of segments in v5.
//!
//! Without the features `lz4` and `snappy` no compression is offered, and compressed input is
//! rejected with [`CqlErrorKind::CompressionNotAgreed`](super::CqlErrorKind::CompressionNotAgreed).
//!
//! Read first: Native Protocol v3 and v4, "Compression"; v5, "Compressed Format" and "Compression"
//! under "Protocol Negotiation".

#[cfg(test)]
mod tests;

use core::fmt;

use super::buffer::Buffer;
#[cfg(any(feature = "lz4", feature = "snappy"))]
use super::buffer::append_zeros;
use super::error::{CqlError, CqlErrorKind};
use super::header::{HEADER_BYTES, Version};
use poolhouse_wire::Full;
use poolhouse_wire::Sink;
use poolhouse_wire::saturate;

/// A compression algorithm for bodies or segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// LZ4 in its block format.
    Lz4,
    /// Snappy. Not in v5.
    Snappy,
}

/// Length of the size field before an LZ4-compressed body, in bytes.
const SIZE_BYTES: usize = 4;
/// The offset of a body in its envelope.
const BODY_AT: u32 = 9;
const _: () = assert!(HEADER_BYTES == 9);

/// The minimum length of data that are compressed; shorter data would become longer.
const COMPRESS_BYTES_MIN: usize = 32;

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

    /// Whether this build supports it: each compression is a separate feature.
    #[must_use]
    pub const fn is_available(self) -> bool {
        match self {
            Self::Lz4 => cfg!(feature = "lz4"),
            Self::Snappy => cfg!(feature = "snappy"),
        }
    }

    /// Whether a version of the protocol supports it.
    #[must_use]
    pub const fn is_in(self, version: Version) -> bool {
        match self {
            Self::Lz4 => true,
            Self::Snappy => !version.has_segments(),
        }
    }

    /// The maximum ratio of inflated to compressed size that the format allows.
    const fn expansion_max(self) -> usize {
        match self {
            // Each byte of a length field adds up to 255 bytes.
            Self::Lz4 => 255,
            // A copy element of 3 bytes yields 64.
            Self::Snappy => 22,
        }
    }

    const fn malformed(self, at: u32) -> CqlError {
        CqlError::new(CqlErrorKind::CompressedData { compression: self }, at)
    }

    /// Checks the declared size: the limit must allow it, and the compressed bytes must be able to
    /// inflate to it.
    fn check_size(self, size: usize, data: &[u8], limit: usize, at: u32) -> Result<(), CqlError> {
        // On 32-bit machines the product may overflow.
        let Some(most) = data.len().checked_mul(self.expansion_max() + 1) else { return Err(self.malformed(at)) };
        let most = most.saturating_sub(data.len()).min(limit);
        if size <= most {
            return Ok(());
        }
        let (size_bytes, max_bytes) = (saturate(size), saturate(most));
        Err(CqlError::new(CqlErrorKind::InflatedSize { size_bytes, max_bytes }, at))
    }

    /// Inflates the body of a v3 or v4 envelope at the end of `output`.
    ///
    /// - `limit`: maximum length of the inflated body.
    pub(super) fn inflate_body<S: Sink>(
        self,
        data: &[u8],
        limit: usize,
        output: &mut Buffer<S>,
    ) -> Result<(), CqlError> {
        match self {
            Self::Lz4 => {
                let Some((size, block)) = data.split_first_chunk::<SIZE_BYTES>() else {
                    return Err(self.malformed(BODY_AT));
                };
                let size = usize::try_from(u32::from_be_bytes(*size)).unwrap_or(usize::MAX);
                self.check_size(size, block, limit, BODY_AT)?;
                let at = BODY_AT + 4;
                inflate_block(block, room(output, size, BODY_AT)?).map_err(|NotInflated| self.malformed(at))
            }
            Self::Snappy => {
                let size = snappy_size(data).map_err(|NotInflated| self.malformed(BODY_AT))?;
                self.check_size(size, data, limit, BODY_AT)?;
                let room = room(output, size, BODY_AT)?;
                inflate_snappy(data, room).map_err(|NotInflated| self.malformed(BODY_AT))
            }
        }
    }

    /// Inflates the payload of a v5 segment at the end of `output`.
    ///
    /// - `size`: the size that the segment's header declares.
    /// - `at`: the offset of the payload in the segment.
    pub(super) fn inflate_segment<S: Sink>(
        self,
        block: &[u8],
        size: usize,
        at: u32,
        output: &mut Buffer<S>,
    ) -> Result<(), CqlError> {
        self.check_size(size, block, usize::MAX, 0)?;
        inflate_block(block, room(output, size, 0)?).map_err(|NotInflated| self.malformed(at))
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn room<S: Sink>(output: &mut Buffer<S>, size: usize, at: u32) -> Result<&mut [u8], CqlError> {
    let needed_bytes = saturate(output.len().saturating_add(size));
    output.grow(size).map_err(|Full| CqlError::new(CqlErrorKind::NoMemory { needed_bytes }, at))
}

/// The data are malformed, end too early, or inflate to another size than declared; or this build
/// cannot inflate them.
struct NotInflated;

#[cfg(feature = "lz4")]
fn inflate_block(block: &[u8], output: &mut [u8]) -> Result<(), NotInflated> {
    // No compressed bytes are valid for an empty output.
    if block.is_empty() && output.is_empty() {
        return Ok(());
    }
    match lz4_flex::block::decompress_into(block, output) {
        Ok(count) if count == output.len() => Ok(()),
        Ok(_) | Err(_) => Err(NotInflated),
    }
}

#[cfg(not(feature = "lz4"))]
const fn inflate_block(_: &[u8], _: &mut [u8]) -> Result<(), NotInflated> {
    Err(NotInflated)
}

#[cfg(feature = "snappy")]
fn snappy_size(data: &[u8]) -> Result<usize, NotInflated> {
    snap::raw::decompress_len(data).map_err(|_| NotInflated)
}

#[cfg(not(feature = "snappy"))]
const fn snappy_size(_: &[u8]) -> Result<usize, NotInflated> {
    Err(NotInflated)
}

#[cfg(feature = "snappy")]
fn inflate_snappy(data: &[u8], output: &mut [u8]) -> Result<(), NotInflated> {
    match snap::raw::Decoder::new().decompress(data, output) {
        Ok(count) if count == output.len() => Ok(()),
        Ok(_) | Err(_) => Err(NotInflated),
    }
}

#[cfg(not(feature = "snappy"))]
const fn inflate_snappy(_: &[u8], _: &mut [u8]) -> Result<(), NotInflated> {
    Err(NotInflated)
}

/// The compressor of a connection, with tables that are created at first use and then reused.
pub(super) struct Deflater {
    #[cfg(feature = "lz4")]
    #[cfg(feature = "alloc")]
    lz4: Option<lz4_flex::block::CompressTable>,
    #[cfg(feature = "snappy")]
    snappy: Option<alloc::boxed::Box<snap::raw::Encoder>>,
}

impl Deflater {
    pub(super) const fn new() -> Self {
        Self {
            #[cfg(feature = "lz4")]
            #[cfg(feature = "alloc")]
            lz4: None,
            #[cfg(feature = "snappy")]
            snappy: None,
        }
    }

    /// Compresses `data` at the end of `sink`, if this makes them shorter; returns whether it does.
    /// Otherwise the sink is unchanged.
    ///
    /// - `sized`: whether LZ4 data are preceded by the size, as in bodies.
    pub(super) fn deflate<S: Sink>(
        &mut self,
        compression: Compression,
        sized: bool,
        data: &[u8],
        sink: &mut S,
    ) -> Result<bool, Full> {
        let start = sink.written().len();
        let shorter = match compression {
            _ if data.len() < COMPRESS_BYTES_MIN => Ok(None),
            Compression::Lz4 => self.deflate_lz4(sized, data, sink),
            Compression::Snappy => self.deflate_snappy(data, sink),
        };
        match shorter {
            Ok(Some(end)) if end.saturating_sub(start) < data.len() => {
                sink.truncate(end);
                Ok(true)
            }
            Ok(_) => {
                sink.truncate(start);
                Ok(false)
            }
            Err(Full) => {
                sink.truncate(start);
                Err(Full)
            }
        }
    }

    #[cfg(feature = "lz4")]
    #[cfg_attr(not(feature = "alloc"), expect(clippy::needless_pass_by_ref_mut, reason = "the table is on the stack"))]
    fn deflate_lz4<S: Sink>(&mut self, sized: bool, data: &[u8], sink: &mut S) -> Result<Option<usize>, Full> {
        use lz4_flex::block;
        if sized {
            sink.append(&saturate(data.len()).to_be_bytes())?;
        }
        let start = sink.written().len();
        append_zeros(sink, block::get_maximum_output_size(data.len()))?;
        let room = sink.written_mut().get_mut(start..).unwrap_or_default();
        #[cfg(feature = "alloc")]
        let written = block::compress_into_with_table(data, room, self.lz4.get_or_insert_default());
        #[cfg(not(feature = "alloc"))]
        let written = {
            let Self {} = self;
            block::compress_into(data, room)
        };
        Ok(written.ok().map(|count| start.saturating_add(count)))
    }

    #[cfg(not(feature = "lz4"))]
    #[expect(clippy::needless_pass_by_ref_mut, reason = "as with the feature")]
    const fn deflate_lz4<S: Sink>(&mut self, _: bool, _: &[u8], _: &mut S) -> Result<Option<usize>, Full> {
        Ok(None)
    }

    #[cfg(feature = "snappy")]
    fn deflate_snappy<S: Sink>(&mut self, data: &[u8], sink: &mut S) -> Result<Option<usize>, Full> {
        let start = sink.written().len();
        append_zeros(sink, snap::raw::max_compress_len(data.len()))?;
        let room = sink.written_mut().get_mut(start..).unwrap_or_default();
        let encoder = self.snappy.get_or_insert_with(|| alloc::boxed::Box::new(snap::raw::Encoder::new()));
        Ok(encoder.compress(data, room).ok().map(|count| start.saturating_add(count)))
    }

    #[cfg(not(feature = "snappy"))]
    #[expect(clippy::needless_pass_by_ref_mut, reason = "as with the feature")]
    const fn deflate_snappy<S: Sink>(&mut self, _: &[u8], _: &mut S) -> Result<Option<usize>, Full> {
        Ok(None)
    }
}

impl fmt::Debug for Deflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Deflater")
    }
}
