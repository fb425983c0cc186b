//! The compression algorithms. Each uses its library, with contexts that are created at first use
//! and then reused.

use super::{Compressed, Compressor};
use crate::Full;
use crate::compress::{COMPRESSED_HEADER_BYTES, SIZE_AT};
use crate::error::{WireError, WireErrorKind};
use crate::read::saturate;
use alloc::vec::Vec;

/// Compression contexts of a connection.
pub(super) struct Codec {
    #[cfg(feature = "snappy")]
    snappy: Option<alloc::boxed::Box<snap::raw::Encoder>>,
    #[cfg(feature = "zlib")]
    zlib: zlib::Zlib,
    #[cfg(feature = "zstd")]
    zstd: zstd::Zstd,
}

impl Codec {
    pub(super) const fn new(zlib_level: Option<u32>) -> Self {
        #[cfg(not(feature = "zlib"))]
        let _ = zlib_level;
        Self {
            #[cfg(feature = "snappy")]
            snappy: None,
            #[cfg(feature = "zlib")]
            zlib: zlib::Zlib::new(zlib_level),
            #[cfg(feature = "zstd")]
            zstd: zstd::Zstd::new(),
        }
    }

    /// Compresses `data` into `output` from `start` on; `output` is lengthened as needed. Returns
    /// the end of the compressed bytes. Returns [`Full`] also for a compressor that this build does
    /// not support.
    pub(super) fn compress(
        &mut self,
        compressor: Compressor,
        data: &[u8],
        output: &mut Vec<u8>,
        start: usize,
    ) -> Result<usize, Full> {
        match compressor {
            #[cfg(feature = "snappy")]
            Compressor::Snappy => {
                let encoder = self.snappy.get_or_insert_with(|| alloc::boxed::Box::new(snap::raw::Encoder::new()));
                let room = room(output, start, snap::raw::max_compress_len(data.len()))?;
                encoder.compress(data, room).map(|count| start + count).map_err(|_| Full)
            }
            #[cfg(feature = "zlib")]
            Compressor::Zlib => self.zlib.compress(data, output, start),
            #[cfg(feature = "zstd")]
            Compressor::Zstd => self.zstd.compress(data, output, start),
            #[cfg(not(feature = "snappy"))]
            Compressor::Snappy => Err(Full),
            #[cfg(not(feature = "zlib"))]
            Compressor::Zlib => Err(Full),
            #[cfg(not(feature = "zstd"))]
            Compressor::Zstd => Err(Full),
        }
    }

    /// Inflates a message into `output`, whose length is the declared size. Never writes beyond it.
    #[cfg_attr(
        not(any(feature = "zlib", feature = "zstd")),
        allow(clippy::needless_pass_by_ref_mut, reason = "snappy keeps nothing to inflate with")
    )]
    pub(super) fn inflate(&mut self, message: &Compressed<'_>, output: &mut [u8]) -> Result<(), WireError> {
        let data = message.data();
        let declared_bytes = saturate(output.len());
        let found = match message.compressor() {
            None => {
                if let Some(output) = output.get_mut(..data.len()) {
                    output.copy_from_slice(data);
                }
                Found::Bytes(data.len())
            }
            #[cfg(feature = "snappy")]
            Some(Compressor::Snappy) => snappy_inflate(data, output),
            #[cfg(feature = "zlib")]
            Some(Compressor::Zlib) => self.zlib.inflate(data, output),
            #[cfg(feature = "zstd")]
            Some(Compressor::Zstd) => self.zstd.inflate(data, output),
            #[cfg(not(feature = "snappy"))]
            Some(compressor @ Compressor::Snappy) => return Err(not_built(compressor)),
            #[cfg(not(feature = "zlib"))]
            Some(compressor @ Compressor::Zlib) => return Err(not_built(compressor)),
            #[cfg(not(feature = "zstd"))]
            Some(compressor @ Compressor::Zstd) => return Err(not_built(compressor)),
        };
        let at = saturate(COMPRESSED_HEADER_BYTES);
        let (kind, offset) = match (found, message.compressor()) {
            (Found::Bytes(count), _) if count == output.len() => return Ok(()),
            (Found::Bytes(count), _) => {
                (WireErrorKind::InflatedSize { declared_bytes, found_bytes: saturate(count) }, SIZE_AT)
            }
            (Found::TooMany, _) => (WireErrorKind::InflatedTooLong { declared_bytes }, SIZE_AT),
            #[cfg(feature = "zlib")]
            (Found::Rest { after }, _) => {
                let count_bytes = saturate(data.len().saturating_sub(after));
                (WireErrorKind::CompressedRest { count_bytes }, at.saturating_add(saturate(after)))
            }
            (Found::Malformed, Some(compressor)) => (WireErrorKind::CompressedData { compressor }, at),
            // Unreachable: uncompressed data ("noop") cannot be malformed.
            (Found::Malformed, None) => (WireErrorKind::InflatedTooLong { declared_bytes }, SIZE_AT),
        };
        Err(WireError::new(kind, offset))
    }
}

/// The error for a compressor that this build does not support. Such a compressor cannot have been
/// negotiated either.
#[cfg(not(all(feature = "snappy", feature = "zlib", feature = "zstd")))]
const fn not_built(compressor: Compressor) -> WireError {
    WireError::new(WireErrorKind::CompressorNotNegotiated { compressor }, super::COMPRESSOR_AT)
}

/// The result of inflating.
#[derive(Clone, Copy)]
enum Found {
    /// The data ended after this number of inflated bytes.
    Bytes(usize),
    /// More bytes than declared.
    #[cfg_attr(
        not(any(feature = "zlib", feature = "zstd")),
        allow(dead_code, reason = "snappy declares its size itself")
    )]
    TooMany,
    /// The compressed data ended at `after`, and more bytes follow.
    #[cfg(feature = "zlib")]
    Rest {
        after: usize,
    },
    Malformed,
}

/// Returns `output` from `start` on, lengthened to at least `count` bytes.
fn room(output: &mut Vec<u8>, start: usize, count: usize) -> Result<&mut [u8], Full> {
    let wanted = start.checked_add(count).ok_or(Full)?;
    lengthen(output, wanted)?;
    output.get_mut(start..).ok_or(Full)
}

/// Lengthens `buffer` to at least `len` bytes. Never shortens it, because lengthening it again
/// would zero the bytes again.
pub(super) fn lengthen(buffer: &mut Vec<u8>, len: usize) -> Result<(), Full> {
    if buffer.len() < len {
        buffer.try_reserve_exact(len - buffer.len()).map_err(|_| Full)?;
        buffer.resize(len, 0);
    }
    Ok(())
}

#[cfg(feature = "snappy")]
fn snappy_inflate(data: &[u8], output: &mut [u8]) -> Found {
    match snap::raw::decompress_len(data) {
        // Snappy data begin with the uncompressed size.
        Ok(count) if count != output.len() => Found::Bytes(count),
        Ok(_) => snap::raw::Decoder::new().decompress(data, output).map_or(Found::Malformed, Found::Bytes),
        Err(_) => Found::Malformed,
    }
}

#[cfg(feature = "zlib")]
mod zlib {
    use super::{Found, Full, Vec, room};
    use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

    pub(super) struct Zlib {
        level: Option<u32>,
        compress: Option<Compress>,
        decompress: Option<Decompress>,
    }

    impl Zlib {
        pub(super) const fn new(level: Option<u32>) -> Self {
            Self { level, compress: None, decompress: None }
        }

        pub(super) fn compress(&mut self, data: &[u8], output: &mut Vec<u8>, start: usize) -> Result<usize, Full> {
            let level = self.level.map_or_else(Compression::default, |level| Compression::new(level.min(9)));
            let context = self.compress.get_or_insert_with(|| Compress::new(level, true));
            context.reset();
            let mut end = start;
            let mut rest = data;
            loop {
                // Incompressible data grow by a few bytes in a thousand.
                let room = room(output, end, rest.len() + rest.len() / 64 + 128)?;
                let (read, written) = (context.total_in(), context.total_out());
                let status = context.compress(rest, room, FlushCompress::Finish).map_err(|_| Full)?;
                let read = usize::try_from(context.total_in() - read).map_err(|_| Full)?;
                let written = usize::try_from(context.total_out() - written).map_err(|_| Full)?;
                end += written;
                rest = rest.get(read..).unwrap_or_default();
                match status {
                    Status::StreamEnd => return Ok(end),
                    Status::Ok | Status::BufError if read + written > 0 => {}
                    Status::Ok | Status::BufError => return Err(Full),
                }
            }
        }

        pub(super) fn inflate(&mut self, data: &[u8], output: &mut [u8]) -> Found {
            let context = self.decompress.get_or_insert_with(|| Decompress::new(true));
            context.reset(true);
            let status = context.decompress(data, output, FlushDecompress::Finish);
            let size = |total| usize::try_from(total).unwrap_or(usize::MAX);
            let (after, count) = (size(context.total_in()), size(context.total_out()));
            match status {
                Ok(Status::StreamEnd) if after < data.len() => Found::Rest { after },
                Ok(Status::StreamEnd) => Found::Bytes(count),
                // The stream has not ended: more output space or more data is needed.
                Ok(Status::Ok | Status::BufError) if count == output.len() && after < data.len() => Found::TooMany,
                Ok(Status::Ok | Status::BufError) | Err(_) => Found::Malformed,
            }
        }
    }
}

#[cfg(feature = "zstd")]
mod zstd {
    use super::{Found, Full, Vec, room};
    use ::zstd::zstd_safe::{CCtx, CParameter, DCtx, ErrorCode, compress_bound};

    /// zstd's own default.
    const LEVEL: i32 = 3;
    /// `ZSTD_error_dstSize_tooSmall` as functions return it; the numbers are part of the library's
    /// stable interface.
    const OUTPUT_TOO_SMALL: ErrorCode = 70_usize.wrapping_neg();

    pub(super) struct Zstd {
        compress: Option<CCtx<'static>>,
        decompress: Option<DCtx<'static>>,
    }

    impl Zstd {
        pub(super) const fn new() -> Self {
            Self { compress: None, decompress: None }
        }

        pub(super) fn compress(&mut self, data: &[u8], output: &mut Vec<u8>, start: usize) -> Result<usize, Full> {
            if self.compress.is_none() {
                let mut context = CCtx::try_create().ok_or(Full)?;
                context.set_parameter(CParameter::CompressionLevel(LEVEL)).map_err(|_| Full)?;
                self.compress = Some(context);
            }
            let context = self.compress.as_mut().ok_or(Full)?;
            let room = room(output, start, compress_bound(data.len()))?;
            context.compress2(room, data).map(|count| start + count).map_err(|_| Full)
        }

        pub(super) fn inflate(&mut self, data: &[u8], output: &mut [u8]) -> Found {
            if self.decompress.is_none() {
                self.decompress = DCtx::try_create();
            }
            match self.decompress.as_mut().map(|context| context.decompress(output, data)) {
                Some(Ok(count)) => Found::Bytes(count),
                Some(Err(OUTPUT_TOO_SMALL)) => Found::TooMany,
                Some(Err(_)) | None => Found::Malformed,
            }
        }
    }
}
