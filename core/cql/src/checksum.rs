//! The checksums of segments: CRC-24 of their headers, CRC-32 of their payloads.
//!
//! Both are algorithms of the `crc` crate with parameters of the protocol: a CRC-24 with its own
//! polynomial and initial value, and the usual CRC-32 over four fixed bytes, which are never sent,
//! followed by the payload.
//!
//! Read first: Native Protocol v5, "Uncompressed Format".

#[cfg(test)]
mod tests;

#[cfg(feature = "std")]
use crc::Table;
use crc::{Algorithm, CRC_32_ISO_HDLC, Crc, NoTable};

/// Length of a CRC-24 in bytes.
pub(super) const CRC24_BYTES: usize = 3;
/// Length of a CRC-32 in bytes.
pub(super) const CRC32_BYTES: usize = 4;

/// The fixed bytes before every payload.
const FRONT: [u8; 4] = [0xfa, 0x2d, 0x55, 0xca];

static HEADER: Algorithm<u32> = Algorithm {
    width: 24,
    poly: 0x97_4f0b,
    init: 0x87_5060,
    refin: false,
    refout: false,
    xorout: 0,
    check: 0x4b_3f02,
    residue: 0,
};

static PAYLOAD: Algorithm<u32> = Algorithm {
    // The state of the register after the fixed bytes.
    init: (!Crc::<u32, NoTable>::new(&CRC_32_ISO_HDLC).checksum(&FRONT)).reverse_bits(),
    check: 0xe2a2_61a7,
    ..CRC_32_ISO_HDLC
};

/// With `std`: 16 KiB of tables, several gigabytes per second. Without `std`: no table.
#[cfg(feature = "std")]
static CRC32: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&PAYLOAD);
#[cfg(not(feature = "std"))]
static CRC32: Crc<u32, NoTable> = Crc::<u32, NoTable>::new(&PAYLOAD);

/// A small table is enough: headers have three or five bytes.
#[cfg(feature = "std")]
static CRC24: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&HEADER);
#[cfg(not(feature = "std"))]
static CRC24: Crc<u32, NoTable> = Crc::<u32, NoTable>::new(&HEADER);

/// The CRC-24 of a header.
pub(super) fn crc24(header: &[u8]) -> u32 {
    CRC24.checksum(header)
}

/// The CRC-32 of a payload.
pub(super) fn crc32(payload: &[u8]) -> u32 {
    CRC32.checksum(payload)
}
