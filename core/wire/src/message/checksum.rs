//! CRC-32C, the checksum of OP_MSG.

#[cfg(not(feature = "std"))]
use crc::NoTable;
#[cfg(feature = "std")]
use crc::Table;
use crc::{CRC_32_ISCSI, Crc};

/// With `std`: 16 KiB of tables, several gigabytes per second. Without `std`: no table, because
/// servers send checksums only to clients that send them.
#[cfg(feature = "std")]
const CRC: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);
#[cfg(not(feature = "std"))]
const CRC: Crc<u32, NoTable> = Crc::<u32, NoTable>::new(&CRC_32_ISCSI);

static TABLE: &CrcTable = &CRC;

#[cfg(feature = "std")]
type CrcTable = Crc<u32, Table<16>>;
#[cfg(not(feature = "std"))]
type CrcTable = Crc<u32, NoTable>;

/// Bytes of a checksum.
pub(super) const CHECKSUM_BYTES: usize = 4;

/// The CRC-32C of all bytes.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    TABLE.checksum(bytes)
}
