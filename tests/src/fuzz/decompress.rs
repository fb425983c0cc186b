//! Arbitrary bytes as compressed messages of a server.

use poolhouse_wire::compress::{
    COMPRESSED_HEADER_BYTES, Compressor, Compressors, OP_COMPRESSED, Packer, UnpackError, Unpacked, decode_compressed,
    is_compressible,
};
use poolhouse_wire::message::{
    Decoded, HEADER_BYTES, Header, Limits, OP_MSG, Outgoing, decode_message, encode_command,
};

use crate::fake::{Algorithm, compressed};

/// Small enough to be exceeded by short inputs.
const LIMITS: Limits = Limits { message_bytes_max: 256 * 1024, document_bytes_max: 64 * 1024 };

/// Passes `data` to a packer: unchanged, and as the compressed bytes of messages with a correct
/// header and a declared size that is correct, too small or too large. Checks that nothing panics,
/// that no output exceeds the declared and the allowed size, that a truncated message asks for more
/// bytes, and that the packer stays usable. Then compresses `data` and decompresses it again.
pub fn decompress(data: &[u8]) {
    let all: Compressors = Compressor::ALL.into_iter().collect();
    let mut packer = Packer::new(all, None);
    packer.agree(all);
    whole(&mut packer, all, data);
    let (first, rest) = data.split_first().map_or((0, data), |(first, rest)| (*first, rest));
    let sizes = [
        10,
        u32::from(first),
        rest.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)),
        LIMITS.message_bytes_max - 16,
    ];
    for id in 0..=4 {
        for size in sizes {
            whole(&mut packer, all, &framed(id, size, rest));
        }
    }
    for compressor in Compressor::ALL {
        not_agreed(compressor, &framed(compressor.id(), sizes[2], rest));
        round_trip(compressor, rest, u32::from(first % 10));
    }
}

/// A compressor that was not negotiated must not inflate or allocate.
fn not_agreed(compressor: Compressor, input: &[u8]) {
    let others: Compressors = Compressor::ALL.into_iter().filter(|other| *other != compressor).collect();
    for accepted in [Compressors::NONE, others] {
        let mut packer = Packer::new(others, None);
        packer.agree(accepted);
        let outcome = packer.unpack(input, &LIMITS);
        // If no compressor was negotiated, the message is passed on unchanged, and the message
        // decoder rejects it.
        let is_left = outcome == Ok(Unpacked::Plain) && accepted.is_empty() && decode_message(input, &LIMITS).is_err();
        assert!(
            is_left || matches!(outcome, Err(UnpackError::Wire(_))),
            "{compressor:?} was not negotiated: {outcome:?}"
        );
        assert_eq!(packer.buffer_bytes(), 0, "memory was allocated for a compressor that was not negotiated");
    }
}

/// A compressed message with these bytes.
fn framed(id: u8, size: u32, data: &[u8]) -> Vec<u8> {
    let length_bytes = u32::try_from(COMPRESSED_HEADER_BYTES + data.len()).unwrap_or(u32::MAX);
    let header = Header { length_bytes, request_id: 9, response_to: 7, opcode: OP_COMPRESSED };
    let mut bytes = header.to_bytes().to_vec();
    bytes.extend_from_slice(&OP_MSG.to_le_bytes());
    bytes.extend_from_slice(&size.to_le_bytes());
    bytes.push(id);
    bytes.extend_from_slice(data);
    bytes
}

/// Unpacks `input` whole and truncated.
fn whole(packer: &mut Packer, accepted: Compressors, input: &[u8]) {
    let declared = match decode_compressed(input, &LIMITS, accepted) {
        Ok(Decoded::Done { value, rest }) => {
            assert_eq!(value.data().len() + COMPRESSED_HEADER_BYTES + rest.len(), input.len());
            assert!(value.header().length_bytes <= LIMITS.message_bytes_max);
            Some(value.size_bytes() + HEADER_BYTES)
        }
        Ok(Decoded::NeedMore { bytes_min }) => {
            assert!(bytes_min > 0 && input.len() + bytes_min <= LIMITS.message_bytes_max as usize);
            None
        }
        Err(error) => {
            assert!(error.offset() <= 24, "{error}");
            None
        }
    };
    match packer.unpack(input, &LIMITS) {
        Ok(Unpacked::Plain) => assert!(packer.inflated().is_empty()),
        Ok(Unpacked::NeedMore { bytes_min }) => {
            assert!(bytes_min > 0 && declared.is_none() && packer.inflated().is_empty());
        }
        Ok(Unpacked::Inflated { length_bytes }) => {
            assert_eq!(Some(packer.inflated().len()), declared);
            assert!(length_bytes <= input.len());
            let inflated = packer.inflated().to_vec();
            same_by_others(&input[..length_bytes], &inflated[HEADER_BYTES..]);
            if let Ok(Decoded::Done { value, rest }) = decode_message(&inflated, &LIMITS) {
                assert!(rest.is_empty());
                let _ = value.validate_structure();
            }
            let _ = is_compressible(&inflated);
            // A second call has the same result, and all bytes except the last are not enough.
            assert_eq!(packer.unpack(input, &LIMITS), Ok(Unpacked::Inflated { length_bytes }));
            assert_eq!(packer.inflated(), inflated);
            let cut = packer.unpack(&input[..length_bytes - 1], &LIMITS);
            assert_eq!(cut, Ok(Unpacked::NeedMore { bytes_min: 1 }));
        }
        Err(UnpackError::Wire(error)) => {
            assert!(packer.inflated().is_empty());
            assert!(usize::try_from(error.offset()).is_ok_and(|offset| offset <= input.len()), "{error}");
        }
        Err(UnpackError::Full) => panic!("no memory for {declared:?} bytes"),
    }
    // Requests bound the buffers by the allowed size, because nothing else can have grown them.
    assert!(packer.buffer_bytes() <= LIMITS.message_bytes_max as usize, "{packer:?}");
}

/// Compares uncompressed bytes with the input, and snappy output with that of the `snap` crate.
fn same_by_others(input: &[u8], inflated: &[u8]) {
    let data = &input[COMPRESSED_HEADER_BYTES..];
    match input[COMPRESSED_HEADER_BYTES - 1] {
        0 => assert_eq!(data, inflated, "the decompressed bytes differ"),
        1 => assert_eq!(
            snap::raw::Decoder::new().decompress_vec(data).as_deref(),
            Ok(inflated),
            "the decompressed bytes differ"
        ),
        _ => {}
    }
}

/// Compresses a request that contains `data` and decompresses it again, also from the output of
/// another implementation.
fn round_trip(compressor: Compressor, data: &[u8], level: u32) {
    let mut request = Vec::new();
    let written =
        encode_command(&mut request, Outgoing::request(5), &LIMITS, "db", |body| body.binary("x", 0, data).map(drop));
    if written.is_err() {
        return;
    }
    let mut packer = Packer::new(Compressors::NONE.with(compressor), Some(level));
    packer.agree(Compressors::NONE.with(compressor));
    if packer.pack(&request, &LIMITS) == Ok(true) {
        let packed = packer.packed().to_vec();
        assert_eq!(packer.unpack(&packed, &LIMITS), Ok(Unpacked::Inflated { length_bytes: packed.len() }));
        assert_eq!(packer.inflated(), request);
    }
    let algorithm = match compressor {
        Compressor::Snappy => Algorithm::Snappy,
        Compressor::Zlib => Algorithm::Zlib,
        Compressor::Zstd => Algorithm::Zstd,
    };
    let packed = compressed(algorithm, &request);
    if packed.len() <= LIMITS.message_bytes_max as usize {
        assert_eq!(packer.unpack(&packed, &LIMITS), Ok(Unpacked::Inflated { length_bytes: packed.len() }));
        assert_eq!(packer.inflated(), request);
    }
}

/// Seed inputs: compressed messages and streams of each compressor.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut message = Vec::new();
    encode_command(&mut message, Outgoing::reply(9, 7), &LIMITS, "db", |body| {
        body.int32("ok", 1)?.str("text", &"pool house ".repeat(20)).map(drop)
    })
    .expect("the command fits");
    let mut seeds = vec![Vec::new(), message.clone()];
    for algorithm in Algorithm::ALL {
        seeds.push(compressed(algorithm, &message));
        let size = u8::try_from((message.len() - HEADER_BYTES).min(255)).expect("a byte");
        seeds.push([&[size][..], &algorithm.compress(&message[HEADER_BYTES..])].concat());
        seeds.push([&[200][..], &algorithm.compress(&[0; 200])].concat());
        seeds.push(compressed(algorithm, &compressed(algorithm, &message)));
    }
    seeds
}
