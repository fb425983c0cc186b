//! Compression of one connection. Without the feature of a compressor it occupies no memory and
//! does nothing.

use super::connection::ExchangeError;
#[cfg(any(feature = "snappy", feature = "zlib", feature = "zstd"))]
use alloc::boxed::Box;
use poolhouse_wire::EncodeError;
use poolhouse_wire::compress::Compressors;
#[cfg(any(feature = "snappy", feature = "zlib", feature = "zstd"))]
use poolhouse_wire::compress::{Packer, UnpackError, Unpacked};
use poolhouse_wire::message::Limits;

/// The message at the front of the received bytes.
pub(super) enum Front {
    /// Not compressed: decode the bytes themselves.
    Plain,
    /// An incomplete compressed message.
    #[cfg_attr(
        not(any(feature = "snappy", feature = "zlib", feature = "zstd")),
        expect(dead_code, reason = "nothing compressed is understood")
    )]
    NeedMore { bytes_min: usize },
    /// A compressed message of `length` bytes; decode [`Packing::inflated`] instead.
    #[cfg_attr(
        not(any(feature = "snappy", feature = "zlib", feature = "zstd")),
        expect(dead_code, reason = "nothing compressed is understood")
    )]
    Inflated { length: usize },
}

/// Empty until compressors are offered. Boxed, because the connection is moved at each check-out.
#[cfg(any(feature = "snappy", feature = "zlib", feature = "zstd"))]
pub(super) struct Packing(Option<Box<Packer>>);

#[cfg(any(feature = "snappy", feature = "zlib", feature = "zstd"))]
impl Packing {
    pub(super) const NONE: Self = Self(None);

    /// Prepares for a hello that offers compressors.
    pub(super) fn offer(&mut self, offered: Compressors, zlib_level: Option<u32>) {
        self.0 = if offered.is_empty() { None } else { Some(Box::new(Packer::new(offered, zlib_level))) };
    }

    /// Sets the compressors that the server has agreed to.
    pub(super) fn agree(&mut self, agreed: Compressors) {
        match &mut self.0 {
            Some(packer) if !agreed.is_empty() => packer.agree(agreed),
            _ => self.0 = None,
        }
    }

    /// Compresses a message if the connection compresses it; returns whether to send
    /// [`Packing::packed`] instead.
    pub(super) fn pack(&mut self, message: &[u8], limits: &Limits) -> Result<bool, EncodeError> {
        self.0.as_mut().map_or(Ok(false), |packer| packer.pack(message, limits))
    }

    pub(super) fn packed(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |packer| packer.packed())
    }

    /// Inflates the message at the front of `input` if it is compressed.
    pub(super) fn unpack(&mut self, input: &[u8], limits: &Limits) -> Result<Front, ExchangeError> {
        let Some(packer) = &mut self.0 else { return Ok(Front::Plain) };
        match packer.unpack(input, limits) {
            Ok(Unpacked::Plain) => Ok(Front::Plain),
            Ok(Unpacked::NeedMore { bytes_min }) => Ok(Front::NeedMore { bytes_min }),
            Ok(Unpacked::Inflated { length_bytes }) => Ok(Front::Inflated { length: length_bytes }),
            Err(UnpackError::Wire(error)) => Err(ExchangeError::Wire(error)),
            Err(UnpackError::Full) => Err(ExchangeError::NoMemory),
        }
    }

    pub(super) fn inflated(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |packer| packer.inflated())
    }

    /// Discards both messages, and frees buffers that are larger than `keep_bytes`.
    pub(super) fn trim(&mut self, keep_bytes: usize) {
        if let Some(packer) = &mut self.0 {
            packer.trim(keep_bytes);
        }
    }
}

/// No compression.
#[cfg(not(any(feature = "snappy", feature = "zlib", feature = "zstd")))]
pub(super) struct Packing;

#[cfg(not(any(feature = "snappy", feature = "zlib", feature = "zstd")))]
#[expect(
    clippy::needless_pass_by_ref_mut,
    clippy::unnecessary_wraps,
    clippy::unused_self,
    reason = "stands in for one that compresses"
)]
impl Packing {
    pub(super) const NONE: Self = Self;

    pub(super) const fn offer(&mut self, _offered: Compressors, _zlib_level: Option<u32>) {}

    pub(super) const fn agree(&mut self, _agreed: Compressors) {}

    pub(super) const fn pack(&mut self, _message: &[u8], _limits: &Limits) -> Result<bool, EncodeError> {
        Ok(false)
    }

    pub(super) const fn packed(&self) -> &[u8] {
        &[]
    }

    pub(super) const fn unpack(&mut self, _input: &[u8], _limits: &Limits) -> Result<Front, ExchangeError> {
        Ok(Front::Plain)
    }

    pub(super) const fn inflated(&self) -> &[u8] {
        &[]
    }

    pub(super) const fn trim(&mut self, _keep_bytes: usize) {}
}
