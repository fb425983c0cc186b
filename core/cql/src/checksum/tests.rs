use super::*;

/// Computed by another implementation, bit by bit.
#[test]
fn header_checksums_equal_those_of_another_implementation() {
    for (header, checksum) in [
        (&[0, 0, 0][..], 0x7d_e777),
        (&[1, 0, 2], 0xac_5672),
        (&[0xff, 0xff, 3], 0x47_4025),
        (&[0xff, 0xff, 0xff, 0xff, 7], 0x57_6593),
        (&[0x10, 0x32, 0x54, 0x76, 0x98], 0xa0_a97c),
        (b"123456789", HEADER.check),
    ] {
        assert_eq!(crc24(header), checksum, "{header:x?}");
    }
}

/// Computed by zlib's `crc32`, over the four initial bytes and these.
#[test]
fn payload_checksums_equal_those_of_another_implementation() {
    let mut counted = [0; 1024];
    for (byte, value) in counted.iter_mut().zip((0..=u8::MAX).cycle()) {
        *byte = value;
    }
    for (payload, checksum) in [
        (&b""[..], 0x4477_7ed3),
        (b"\0", 0xcd9c_1b9d),
        (b"pool house", 0xef09_1945),
        (&counted, 0x37b7_0df4),
        (b"123456789", PAYLOAD.check),
    ] {
        assert_eq!(crc32(payload), checksum);
    }
}
