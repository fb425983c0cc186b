//! Valid and hostile messages in the packer.

use alloc::string::String;

use super::*;
use crate::message::{Exchange, Matched, decode_message};

fn packer(compressor: Compressor) -> Packer {
    let only = Compressors::NONE.with(compressor);
    let mut packer = Packer::new(only, None);
    packer.agree(only);
    packer
}

fn pack(packer: &mut Packer, message: &[u8]) -> Vec<u8> {
    assert_eq!(packer.pack(message, &Limits::DEFAULT), Ok(true));
    packer.packed().to_vec()
}

fn error(compressor: Compressor, input: &[u8], limits: &Limits) -> (WireErrorKind, u32) {
    let mut packer = packer(compressor);
    let before = packer.unpack(input, limits);
    assert!(packer.inflated().is_empty());
    match before {
        Err(UnpackError::Wire(error)) => (error.kind(), error.offset()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_of_the_maximum_length_is_packed() {
    let message = request("find", Flags::NONE, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    for compressor in available().iter() {
        let mut packer = packer(compressor);
        let len = u32::try_from(pack(&mut packer, &message).len()).expect("short");
        for (message_bytes_max, packed) in [(len, true), (len - 1, false)] {
            let limits = Limits { message_bytes_max, ..Limits::DEFAULT };
            assert_eq!(packer.pack(&message, &limits), Ok(packed));
        }
    }
}

/// Compresses these bytes.
fn squeeze(compressor: Compressor, body: &[u8]) -> Vec<u8> {
    let mut output = Vec::new();
    let end = super::super::codec::Codec::new(None).compress(compressor, body, &mut output, 0).expect("memory");
    output.truncate(end);
    output
}

/// Bytes that no compressor makes shorter.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn message_is_restored_by_every_compressor_at_every_size() {
    for compressor in available().iter() {
        let mut packer = packer(compressor);
        for len in [0, 1, 15, 16, 100, 1000, 4096, 70_000, 1_000_000, 10] {
            for flags in [Flags::NONE, Flags::CHECKSUM_PRESENT] {
                let filler: String = "poolhouse ".chars().cycle().take(len).collect();
                let message = request("insert", flags, &filler);
                let packed = pack(&mut packer, &message);
                assert_eq!(packed[4..12], message[4..12], "the ids are those of the message");
                assert_eq!(packed[12..20], [&OP_COMPRESSED.to_le_bytes()[..], &OP_MSG.to_le_bytes()].concat());
                assert_eq!(packed[24], compressor.id());
                assert!(len < 1000 || packed.len() < message.len() / 2, "{compressor} {len}: {}", packed.len());
                let input = [packed.as_slice(), b"next"].concat();
                let unpacked = packer.unpack(&input, &Limits::DEFAULT);
                assert_eq!(unpacked, Ok(Unpacked::Inflated { length_bytes: packed.len() }));
                assert_eq!(packer.inflated(), message);
                assert!(decode_message(packer.inflated(), &Limits::DEFAULT).is_ok());
            }
        }
    }
}

#[test]
fn incompressible_bytes_are_restored_at_every_zlib_level() {
    for level in [None, Some(0), Some(1), Some(6), Some(9), Some(99)] {
        for compressor in available().iter() {
            let only = Compressors::NONE.with(compressor);
            let mut packer = Packer::new(only, level);
            packer.agree(only);
            let mut message = request("insert", Flags::NONE, &"x".repeat(200_000));
            let end = message.len() - 2;
            message[100..end].copy_from_slice(&noise(end - 100));
            let packed = pack(&mut packer, &message);
            assert!(packed.len() > 190_000, "{compressor} {level:?}");
            assert!(packer.unpack(&packed, &Limits::DEFAULT).is_ok());
            assert_eq!(packer.inflated(), message);
        }
    }
}

#[cfg(feature = "zlib")]
#[test]
fn zlib_level_zero_stores_and_nine_is_no_longer_than_one() {
    let message = request("insert", Flags::NONE, &"poolhouse ".repeat(1000));
    let only = Compressors::NONE.with(Compressor::Zlib);
    let len = |level| {
        let mut packer = Packer::new(only, Some(level));
        packer.agree(only);
        pack(&mut packer, &message).len()
    };
    assert!(len(0) > message.len());
    assert!(len(9) <= len(1));
    assert!(len(1) < message.len() / 10);
}

#[test]
fn messages_are_compressed_only_after_negotiation() {
    let message = request("ping", Flags::NONE, "x");
    let mut packer = Packer::new(available(), None);
    assert_eq!(packer.pack(&message, &Limits::DEFAULT), Ok(false));
    packer.agree(Compressors::NONE);
    assert_eq!(packer.pack(&message, &Limits::DEFAULT), Ok(false));
    packer.agree(available());
    assert_eq!(packer.pack(&message, &Limits::DEFAULT), Ok(true));
    assert_eq!(Some(packer.packed()[24]), available().first().map(Compressor::id));
    assert_eq!(packer.pack(&request("saslContinue", Flags::NONE, "x"), &Limits::DEFAULT), Ok(false));
    assert!(packer.packed().is_empty());
}

/// The reply to hello itself may be compressed, with any compressor that was offered.
#[test]
fn reply_to_the_offer_may_be_compressed() {
    for compressor in available().iter() {
        let mut packer = Packer::new(available(), None);
        let message = request("reply", Flags::NONE, "x");
        let packed = pack(&mut super::packer::packer(compressor), &message);
        assert_eq!(packer.unpack(&packed, &Limits::DEFAULT), Ok(Unpacked::Inflated { length_bytes: packed.len() }));
        packer.agree(Compressors::NONE);
        assert_eq!(packer.unpack(&packed, &Limits::DEFAULT), Ok(Unpacked::Plain));
    }
}

#[test]
fn plain_messages_and_their_prefixes_are_unchanged() {
    let mut packer = Packer::new(available(), None);
    let plain = request("ping", Flags::NONE, "x");
    for end in 0..=plain.len() {
        assert_eq!(packer.unpack(&plain[..end], &Limits::DEFAULT), Ok(Unpacked::Plain));
    }
}

#[test]
fn message_beyond_the_limit_after_compression_is_sent_unchanged() {
    for compressor in available().iter() {
        let mut packer = packer(compressor);
        let mut message = request("insert", Flags::NONE, &"x".repeat(5000));
        let end = message.len() - 2;
        message[60..end].copy_from_slice(&noise(end - 60));
        let limits = Limits { message_bytes_max: saturate(message.len()), ..Limits::DEFAULT };
        assert_eq!(packer.pack(&message, &limits), Ok(false), "{compressor}");
        assert!(packer.packed().is_empty());
    }
}

/// However a compressed reply is cut, all of its bytes are requested and it is matched once.
#[test]
fn reply_split_at_every_byte_is_inflated_once() {
    for compressor in available().iter() {
        let mut packer = packer(compressor);
        let mut message = request("reply", Flags::CHECKSUM_PRESENT, &"x".repeat(300));
        // A checksum covers the message before its compression.
        message[8..12].copy_from_slice(&7_i32.to_le_bytes());
        let end = message.len() - 4;
        let checksum = crc::Crc::<u32, crc::Table<1>>::new(&crc::CRC_32_ISCSI).checksum(&message[..end]);
        message[end..].copy_from_slice(&checksum.to_le_bytes());
        let packed = pack(&mut packer, &message);
        for end in 0..packed.len() {
            match packer.unpack(&packed[..end], &Limits::DEFAULT) {
                Ok(Unpacked::Plain) => assert!(end < 16),
                Ok(Unpacked::NeedMore { bytes_min }) => assert!((1..=packed.len() - end).contains(&bytes_min)),
                other => panic!("{other:?} at {end}"),
            }
        }
        assert!(packer.unpack(&packed, &Limits::DEFAULT).is_ok());
        let mut exchange = Exchange::IDLE;
        exchange.begin(7, Flags::NONE);
        let Ok(Decoded::Done { value: (_, Matched::Last), rest: b"" }) =
            exchange.decode_reply(packer.inflated(), &Limits::DEFAULT)
        else {
            panic!("the reply");
        };
    }
}

/// A wrong checksum is detected after the decompression.
#[test]
fn wrong_checksum_of_the_inner_message_is_detected() {
    for compressor in available().iter() {
        let mut packer = packer(compressor);
        let mut message = request("reply", Flags::CHECKSUM_PRESENT, "text");
        let last = message.len() - 1;
        message[last] ^= 1;
        let packed = pack(&mut packer, &message);
        assert!(packer.unpack(&packed, &Limits::DEFAULT).is_ok());
        let error = decode_message(packer.inflated(), &Limits::DEFAULT).expect_err("wrong");
        assert!(matches!(error.kind(), WireErrorKind::Checksum { .. }));
    }
}

#[test]
fn message_of_exactly_the_limit_is_inflated() {
    for compressor in available().iter() {
        let message = request("reply", Flags::NONE, &"x".repeat(3000));
        let packed = pack(&mut packer(compressor), &message);
        let limits = |len: usize| Limits { message_bytes_max: saturate(len), ..Limits::DEFAULT };
        let mut packer = packer(compressor);
        assert!(packer.unpack(&packed, &limits(message.len())).is_ok());
        let size_bytes = i32::try_from(message.len() - 16).expect("small");
        let max_bytes = saturate(message.len() - 17);
        let kind = WireErrorKind::UncompressedSize { size_bytes, max_bytes };
        assert_eq!(error(compressor, &packed, &limits(message.len() - 1)), (kind, 20));
    }
}

/// Messages with a declared size that is too small or too large, by one and by much.
#[test]
fn wrong_declared_sizes_are_detected() {
    let body = [7; 500];
    for compressor in available().iter() {
        let data = squeeze(compressor, &body);
        for declared in [10, 499, 501, 505] {
            let input = compressed(OP_MSG, declared, compressor.id(), &data);
            let (kind, offset) = error(compressor, &input, &Limits::DEFAULT);
            let declared_bytes = declared.unsigned_abs();
            let short = WireErrorKind::InflatedSize { declared_bytes, found_bytes: 500 };
            let long = WireErrorKind::InflatedTooLong { declared_bytes };
            let expected = if declared > 500 || compressor == Compressor::Snappy { short } else { long };
            assert_eq!((kind, offset), (expected, 20), "{compressor} {declared}");
        }
        let input = compressed(OP_MSG, 500, compressor.id(), &data);
        assert!(packer(compressor).unpack(&input, &Limits::DEFAULT).is_ok());
    }
    let noop = compressed(OP_MSG, 11, 0, &[0; 12]);
    let one = available().first().expect("a feature");
    let kind = WireErrorKind::InflatedSize { declared_bytes: 11, found_bytes: 12 };
    assert_eq!(error(one, &noop, &Limits::DEFAULT), (kind, 20));
    let noop = compressed(OP_MSG, 12, 0, &[3; 12]);
    let mut packer = packer(one);
    assert!(packer.unpack(&noop, &Limits::DEFAULT).is_ok());
    assert_eq!(packer.inflated()[16..], [3; 12]);
}

#[test]
fn malformed_and_truncated_data_are_detected() {
    let body = noise(400);
    for compressor in available().iter() {
        let data = squeeze(compressor, &body);
        for end in 1..data.len() {
            let input = compressed(OP_MSG, 400, compressor.id(), &data[..end]);
            let (kind, offset) = error(compressor, &input, &Limits::DEFAULT);
            let by_size = matches!(kind, WireErrorKind::UncompressedSize { .. } | WireErrorKind::InflatedSize { .. });
            assert!(by_size || (kind, offset) == (WireErrorKind::CompressedData { compressor }, 25), "{kind} at {end}");
        }
        let input = compressed(OP_MSG, 400, compressor.id(), &[0xff; 400]);
        let kind = error(compressor, &input, &Limits::DEFAULT).0;
        assert_eq!(kind, WireErrorKind::CompressedData { compressor });
        let longer = [data.as_slice(), b"rest"].concat();
        let kind = error(compressor, &compressed(OP_MSG, 400, compressor.id(), &longer), &Limits::DEFAULT);
        let rest_at = u32::try_from(25 + data.len()).expect("small");
        match compressor {
            Compressor::Zlib => assert_eq!(kind, (WireErrorKind::CompressedRest { count_bytes: 4 }, rest_at)),
            Compressor::Snappy | Compressor::Zstd => {
                assert_eq!(kind, (WireErrorKind::CompressedData { compressor }, 25));
            }
        }
    }
}

/// After an error the contexts work like new ones.
#[test]
fn contexts_are_usable_after_an_error() {
    for compressor in available().iter() {
        let mut packer = packer(compressor);
        let message = request("reply", Flags::NONE, &"abc".repeat(100));
        let packed = pack(&mut packer, &message);
        for at in 25..packed.len() {
            let mut broken = packed.clone();
            broken[at] ^= 0x55;
            let _ = packer.unpack(&broken, &Limits::DEFAULT);
            assert!(packer.unpack(&packed, &Limits::DEFAULT).is_ok(), "{compressor} at {at}");
            assert_eq!(packer.inflated(), message);
        }
    }
}

#[test]
fn large_buffers_are_freed_and_small_ones_kept() {
    for compressor in available().iter() {
        let mut packer = packer(compressor);
        let large = request("insert", Flags::NONE, &"x".repeat(1_000_000));
        let packed = pack(&mut packer, &large);
        assert!(packer.unpack(&packed, &Limits::DEFAULT).is_ok());
        assert!(packer.buffer_bytes() > 1_000_000);
        packer.trim(4096);
        assert!(packer.buffer_bytes() < 8192, "{}", packer.buffer_bytes());
        assert!(packer.inflated().is_empty() && packer.packed().is_empty());
        let small = request("ping", Flags::NONE, "x");
        let packed = pack(&mut packer, &small);
        assert!(packer.unpack(&packed, &Limits::DEFAULT).is_ok());
        let kept = packer.buffer_bytes();
        packer.trim(4096);
        assert_eq!(packer.buffer_bytes(), kept);
    }
}

#[test]
fn debug_shows_no_byte_of_a_message() {
    for compressor in available().iter() {
        let mut packer = packer(compressor);
        let message = request("insert", Flags::NONE, "secret");
        let packed = pack(&mut packer, &message);
        assert!(packer.unpack(&packed, &Limits::DEFAULT).is_ok());
        let text = alloc::format!("{packer:?}");
        assert!(!text.contains("secret") && !text.contains("115"), "{text}");
    }
}

#[test]
fn errors_distinguish_the_peer_from_this_side() {
    use crate::Full;
    use alloc::string::ToString;
    assert_eq!(UnpackError::from(Full).to_string(), "out of memory: the message was not inflated");
    let wire = WireError::new(WireErrorKind::Terminator, 3);
    assert_eq!(UnpackError::from(wire).to_string(), wire.to_string());
}
