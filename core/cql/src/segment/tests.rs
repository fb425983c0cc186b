use alloc::vec::Vec;

use super::*;

const EACH: [Format; 2] = [Format::Plain, Format::Compressed];

fn segment(payload: &[u8], format: Format, inflated: Option<usize>, self_contained: bool) -> Vec<u8> {
    let mut sink = alloc::vec![9; 3];
    begin_segment(&mut sink, format).expect("room");
    sink.extend_from_slice(payload);
    end_segment(&mut sink, 3, format, inflated, self_contained).expect("room");
    assert_eq!(sink[..3], [9; 3]);
    sink.split_off(3)
}

#[test]
fn headers_are_read_back_as_written() {
    let sizes = [1, 2, 255, 256, 65_535, 65_536, SEGMENT_PAYLOAD_BYTES_MAX];
    for format in EACH {
        for payload_bytes in sizes {
            for self_contained in [false, true] {
                for inflated in sizes {
                    let inflated_bytes = Some(inflated).filter(|_| format == Format::Compressed);
                    let header = SegmentHeader { payload_bytes, inflated_bytes, self_contained };
                    let bytes = header.to_bytes(format);
                    let (bytes, _) = bytes.split_at(format.header_bytes());
                    assert_eq!(SegmentHeader::decode(bytes, format), Ok(header));
                }
            }
        }
    }
}

#[test]
fn header_bytes_of_segments_equal_those_of_another_implementation() {
    let largest =
        SegmentHeader { payload_bytes: SEGMENT_PAYLOAD_BYTES_MAX, inflated_bytes: None, self_contained: false };
    assert_eq!(largest.to_bytes(Format::Plain)[..6], [0xff, 0xff, 0x01, 0x38, 0x91, 0xfe]);
    assert_eq!(largest.to_bytes(Format::Compressed), [0xff, 0xff, 0x01, 0, 0, 0xe8, 0x4f, 0xe1]);
    let small = SegmentHeader { payload_bytes: 0x69, inflated_bytes: None, self_contained: true };
    assert_eq!(small.to_bytes(Format::Plain)[..6], [0x69, 0, 0x02, 0x51, 0x94, 0xa2]);
    let packed = SegmentHeader { payload_bytes: 0x31, inflated_bytes: Some(0x69), self_contained: true };
    assert_eq!(packed.to_bytes(Format::Compressed), [0x31, 0, 0xd2, 0, 0x04, 0xe8, 0xad, 0x26]);
}

#[test]
fn every_flipped_bit_of_a_header_is_detected() {
    for format in EACH {
        let inflated = Some(500).filter(|_| format == Format::Compressed);
        let whole = segment(&[7; 300], format, inflated, true);
        let front = &whole[..format.header_bytes()];
        for bit in 0..front.len() * 8 {
            let mut bytes = front.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let error = SegmentHeader::decode(&bytes, format).expect_err("another checksum");
            assert!(matches!(error.kind(), CqlErrorKind::SegmentHeaderChecksum { .. }), "{error}");
            assert_eq!(error.offset(), saturate(format.header_bytes() - 3));
        }
    }
}

#[test]
fn payload_with_another_checksum_is_refused() {
    for format in EACH {
        let whole = segment(b"pool house", format, None, true);
        let front = format.header_bytes();
        assert_eq!(whole.len(), front + 10 + 4);
        let (payload, trailer) = whole[front..].split_at(10);
        assert_eq!(trailer, 0xef09_1945_u32.to_le_bytes());
        assert_eq!(check_payload(payload, trailer, 16), Ok(()));
        let kind = CqlErrorKind::SegmentChecksum { computed: 0xef09_1945, found: 0xef09_1944 };
        let wrong = [&[0x44][..], &trailer[1..]].concat();
        assert_eq!(check_payload(payload, &wrong, 16), Err(CqlError::new(kind, 16)));
        assert!(check_payload(b"pool houses", trailer, 16).is_err());
    }
}

#[test]
fn segment_without_payload_is_refused() {
    for format in EACH {
        let bytes = SegmentHeader { payload_bytes: 0, inflated_bytes: None, self_contained: true }.to_bytes(format);
        let decoded = SegmentHeader::decode(&bytes[..format.header_bytes()], format);
        assert_eq!(decoded, Err(CqlError::new(CqlErrorKind::SegmentEmpty, 0)));
    }
}

#[test]
fn padding_bits_are_ignored() {
    for (format, padding) in [(Format::Plain, 0b1111_1100), (Format::Compressed, 0b1111_1000)] {
        let header = SegmentHeader { payload_bytes: 5, inflated_bytes: None, self_contained: true };
        let mut bytes = header.to_bytes(format);
        let at = format.front_bytes();
        bytes[at - 1] |= padding;
        let checksum = crc24(&bytes[..at]).to_le_bytes();
        bytes[at..at + 3].copy_from_slice(&checksum[..3]);
        assert_eq!(SegmentHeader::decode(&bytes[..at + 3], format), Ok(header));
    }
}

#[test]
fn segment_that_does_not_fit_is_an_error() {
    let mut small = heapless::Vec::<u8, 12>::new();
    assert_eq!(begin_segment(&mut small, Format::Plain), Ok(()));
    small.extend_from_slice(&[1; 4]).expect("room");
    assert_eq!(end_segment(&mut small, 0, Format::Plain, None, true), Err(Full));
    assert_eq!(begin_segment(&mut small, Format::Compressed), Err(Full));
}
