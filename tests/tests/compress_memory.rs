//! Compression in bounded memory: a warm packer allocates nothing, and inflating takes no more than
//! a message declares and the limit allows.
//!
//! Memory that zstd takes from C's allocator is not counted; it does not depend on the bytes of a
//! peer.

use allocation_counter::{AllocationInfo, measure};
use poolhouse_cql as cql;
use poolhouse_tests::fake::{Algorithm, compressed, compressed_raw};
use poolhouse_wire::bson::DocumentWriter;
use poolhouse_wire::compress::{Compressor, Compressors, Packer, UnpackError, Unpacked};
use poolhouse_wire::message::{Limits, Outgoing, encode_command};
use poolhouse_wire::{WireError, WireErrorKind};

/// The bytes that are still allocated.
fn kept_bytes(taken: AllocationInfo) -> usize {
    usize::try_from(taken.bytes_current).expect("more is allocated than freed")
}

const EACH: [(Compressor, Algorithm); 3] =
    [(Compressor::Snappy, Algorithm::Snappy), (Compressor::Zlib, Algorithm::Zlib), (Compressor::Zstd, Algorithm::Zstd)];

fn packer(compressor: Compressor) -> Packer {
    let only = Compressors::NONE.with(compressor);
    let mut packer = Packer::new(only, None);
    packer.agree(only);
    packer
}

fn request(length: usize) -> Vec<u8> {
    let text: String = "pool house ".chars().cycle().take(length).collect();
    let body = |body: &mut DocumentWriter<'_, Vec<u8>>| body.int32("insert", 1)?.str("text", &text).map(drop);
    let mut sink = Vec::new();
    encode_command(&mut sink, Outgoing::request(1), &Limits::DEFAULT, "db", body).expect("the command fits");
    sink
}

fn refused(packer: &mut Packer, input: &[u8]) -> WireErrorKind {
    match packer.unpack(input, &Limits::DEFAULT) {
        Err(UnpackError::Wire(error)) => WireError::kind(error),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_counter_counts_allocations() {
    let mut kept = Vec::new();
    let taken = measure(|| {
        drop(core::hint::black_box(Vec::<u8>::with_capacity(1000)));
        kept = Vec::<u8>::with_capacity(500);
    });
    assert_eq!((taken.count_total, taken.bytes_max, taken.bytes_current), (2, 1000, 500));
    drop(kept);
}

/// The numbers in the documentation of `Packer`, plus the buffers.
#[test]
fn contexts_allocate_the_documented_bytes() {
    for (compressor, compress_max, inflate_max) in [
        (Compressor::Snappy, 36 * 1024, 0),
        (Compressor::Zlib, 330 * 1024, 44 * 1024),
        // zstd allocates in C, which is not counted.
        (Compressor::Zstd, 0, 0),
    ] {
        let message = request(100_000);
        let mut packer = packer(compressor);
        let taken = measure(|| assert_eq!(packer.pack(&message, &Limits::DEFAULT), Ok(true)));
        let context = kept_bytes(taken) - packer.buffer_bytes();
        assert!(context <= compress_max, "{compressor} allocates {context} to compress");
        assert!(packer.buffer_bytes() < message.len() + message.len() / 4 + 1024, "{compressor}");
        let packed = packer.packed().to_vec();
        let before = packer.buffer_bytes();
        let taken = measure(|| assert!(packer.unpack(&packed, &Limits::DEFAULT).is_ok()));
        assert_eq!(packer.buffer_bytes() - before, message.len());
        let context = kept_bytes(taken) - message.len();
        assert!(context <= inflate_max, "{compressor} allocates {context} to inflate");
    }
}

#[test]
fn warm_packer_allocates_nothing() {
    for (compressor, algorithm) in EACH {
        let mut packer = packer(compressor);
        let requests = [100_000, 10, 0, 50_000, 3_000].map(request);
        let replies: Vec<_> = requests.iter().map(|request| compressed(algorithm, request)).collect();
        let mut round = || {
            for (request, reply) in requests.iter().zip(&replies) {
                assert_eq!(packer.pack(request, &Limits::DEFAULT), Ok(true));
                assert_eq!(
                    packer.unpack(reply, &Limits::DEFAULT),
                    Ok(Unpacked::Inflated { length_bytes: reply.len() })
                );
                packer.trim(256 * 1024);
            }
        };
        round();
        let taken = measure(|| (0..20).for_each(|_| round()));
        assert_eq!((taken.count_total, taken.bytes_current), (0, 0), "{compressor}");
    }
}

/// Forty megabytes in a few kilobytes, declared as a few bytes: no byte beyond the declared size is
/// written.
#[test]
fn bomb_allocates_no_more_than_it_declares() {
    let zeros = vec![0; 40_000_000];
    for (compressor, algorithm) in EACH {
        let data = algorithm.compress(&zeros);
        let bomb = compressed_raw(&request(0)[..16], 100, algorithm.id(), &data);
        let mut packer = packer(compressor);
        // Including the context, which is allocated once.
        assert!(packer.unpack(&compressed(algorithm, &request(0)), &Limits::DEFAULT).is_ok());
        let taken = measure(|| {
            let kind = refused(&mut packer, &bomb);
            let expected = match compressor {
                Compressor::Snappy => WireErrorKind::InflatedSize { declared_bytes: 100, found_bytes: 40_000_000 },
                Compressor::Zlib | Compressor::Zstd => WireErrorKind::InflatedTooLong { declared_bytes: 100 },
            };
            assert_eq!(kind, expected);
        });
        assert!(taken.bytes_max <= 116, "{compressor}: {taken:?}");
    }
}

/// A message with a true declaration is bounded by the limit on messages, and its memory is
/// released.
#[test]
fn bomb_within_the_limit_allocates_its_size_and_frees_it() {
    let zeros = vec![0; 47_999_984];
    for (compressor, algorithm) in EACH {
        let data = algorithm.compress(&zeros);
        let bomb = compressed_raw(&request(0)[..16], zeros.len(), algorithm.id(), &data);
        let mut packer = packer(compressor);
        assert!(packer.unpack(&compressed(algorithm, &request(0)), &Limits::DEFAULT).is_ok());
        packer.trim(0);
        let taken = measure(|| {
            assert_eq!(packer.unpack(&bomb, &Limits::DEFAULT), Ok(Unpacked::Inflated { length_bytes: bomb.len() }));
            packer.trim(256 * 1024);
        });
        assert_eq!((taken.count_total, taken.bytes_max, taken.bytes_current), (1, 48_000_000, 0), "{compressor}");
        // With one more byte, nothing is allocated at all.
        let longer = compressed_raw(&request(0)[..16], zeros.len() + 1, algorithm.id(), &data);
        let taken = measure(|| {
            let (size_bytes, max_bytes) = (47_999_985, 47_999_984);
            assert_eq!(refused(&mut packer, &longer), WireErrorKind::UncompressedSize { size_bytes, max_bytes });
        });
        assert_eq!(taken.count_total, 0, "{compressor}");
    }
}

/// A few bytes that declare megabytes cost nothing: such a ratio is impossible.
#[test]
fn impossible_size_allocates_nothing() {
    for (compressor, algorithm) in EACH {
        let lie = compressed_raw(&request(0)[..16], 47_000_000, algorithm.id(), &[0x78; 30]);
        let mut packer = packer(compressor);
        let taken = measure(|| {
            let kind = refused(&mut packer, &lie);
            assert!(matches!(kind, WireErrorKind::UncompressedSize { .. }), "{kind}");
        });
        assert_eq!(taken.count_total, 0, "{compressor}");
    }
}

/// The forms of compression in Cassandra's protocol: bodies, or segments.
const CQL: [(cql::Version, Option<cql::Compression>); 6] = [
    (cql::Version::V4, None),
    (cql::Version::V4, Some(cql::Compression::Lz4)),
    (cql::Version::V4, Some(cql::Compression::Snappy)),
    (cql::Version::V5, None),
    (cql::Version::V5, Some(cql::Compression::Lz4)),
    (cql::Version::V3, None),
];

fn cql_decoder(version: cql::Version, compression: Option<cql::Compression>) -> cql::Decoder<Vec<u8>> {
    let response = cql::Direction::Response;
    let mut decoder = cql::Decoder::new(version, response, cql::Limits::DEFAULT, Vec::new(), Vec::new());
    decoder.set_compression(compression);
    decoder.set_started();
    decoder
}

fn cql_result(sink: &mut Vec<u8>, version: cql::Version, body: &[u8]) {
    let (outgoing, opcode) = (cql::Outgoing::new(version, 1), cql::Opcode::Result);
    cql::encode_envelope(sink, outgoing, opcode, &cql::Limits::DEFAULT, |writer| writer.raw(body).map(drop))
        .expect("the command fits");
}

/// Decodes `bytes`, which arrive in pieces of `size`. Returns the number of envelopes.
fn cql_decode(decoder: &mut cql::Decoder<Vec<u8>>, bytes: &[u8], size: usize) -> Result<usize, cql::CqlErrorKind> {
    let mut count = 0;
    for mut piece in bytes.chunks(size) {
        loop {
            let step = decoder.decode(piece).map_err(cql::CqlError::kind)?;
            piece = &piece[step.consumed_bytes..];
            if step.envelope.is_none() {
                break;
            }
            count += 1;
        }
    }
    Ok(count)
}

/// Small envelopes that share segments, and large ones in parts, in both directions.
#[test]
fn warm_connection_of_cassandra_allocates_nothing() {
    let text: Vec<u8> = "pool house ".bytes().cycle().take(300_000).collect();
    for (version, compression) in CQL {
        let (mut encoder, mut decoder) = (cql::Encoder::new(version, compression), cql_decoder(version, compression));
        let (mut plain, mut travels) = (Vec::new(), Vec::new());
        let mut round = || {
            plain.clear();
            travels.clear();
            for length in [10, 0, 3_000, 300_000, 20, 100_000] {
                cql_result(&mut plain, version, &text[..length]);
            }
            encoder.encode(&plain, &mut travels).expect("the command fits");
            for size in [travels.len(), 1_000, 70_000] {
                assert_eq!(cql_decode(&mut decoder, &travels, size), Ok(6));
            }
        };
        round();
        let taken = measure(|| (0..5).for_each(|_| round()));
        assert_eq!((taken.count_total, taken.bytes_current), (0, 0), "{version} {compression:?}");
    }
}

/// A few bytes that declare megabytes cost nothing if the ratio is impossible, nor if it is
/// possible but beyond the limit.
#[test]
fn bombs_of_cassandra_allocate_nothing() {
    let refused = |version: cql::Version, compression, limit, bytes: &[u8]| {
        let response = cql::Direction::Response;
        let limits = cql::Limits { body_bytes_max: limit };
        let mut decoder = cql::Decoder::new(version, response, limits, Vec::new(), Vec::new());
        decoder.set_compression(Some(compression));
        decoder.set_started();
        let taken = measure(|| {
            let kind = cql_decode(&mut decoder, bytes, bytes.len()).expect_err("a bomb");
            assert!(matches!(kind, cql::CqlErrorKind::InflatedSize { .. }), "{kind}");
        });
        assert_eq!(taken.count_total, 0, "{version} {compression} {taken:?}");
    };
    let lz4 = [&200_000_000_u32.to_be_bytes()[..], &[0x1f; 30]].concat();
    let snappy = [&[0x80, 0x84, 0xaf, 0x5f][..], &[0x11; 30]].concat();
    for (compression, body) in [(cql::Compression::Lz4, lz4), (cql::Compression::Snappy, snappy)] {
        let mut lie = Vec::new();
        cql_result(&mut lie, cql::Version::V4, &body);
        lie[1] = 1;
        refused(cql::Version::V4, compression, 1 << 28, &lie);

        let mut truth = Vec::new();
        cql_result(&mut truth, cql::Version::V4, &vec![0; 4_000_000]);
        let mut bomb = Vec::new();
        cql::Encoder::new(cql::Version::V4, Some(compression)).encode(&truth, &mut bomb).expect("the command fits");
        assert!(bomb.len() < 400_000);
        refused(cql::Version::V4, compression, 3_999_999, &bomb);
        let mut decoder = cql_decoder(cql::Version::V4, Some(compression));
        let taken = measure(|| assert_eq!(cql_decode(&mut decoder, &bomb, bomb.len()), Ok(1)));
        // A vector that grows by steps may end up twice as long.
        assert!(taken.bytes_max <= 12_000_000, "{compression} {taken:?}");
    }
}

/// A declared quarter of a gigabyte, of which a hundred bytes have arrived.
#[test]
fn declared_sizes_of_cassandra_allocate_no_more_than_received() {
    for (version, compression) in CQL.into_iter().filter(|(version, _)| *version != cql::Version::V5) {
        let mut claim = Vec::new();
        cql_result(&mut claim, version, &[7; 100]);
        claim[5..9].copy_from_slice(&(1_u32 << 28).to_be_bytes());
        let mut decoder = cql_decoder(version, compression);
        let taken = measure(|| assert_eq!(cql_decode(&mut decoder, &claim, 1), Ok(0)));
        assert!(taken.bytes_max <= 512, "{version} {compression:?} {taken:?}");
    }
    // In version 5 an envelope arrives in segments, and only the received ones take memory.
    for compression in [None, Some(cql::Compression::Lz4)] {
        let mut whole = Vec::new();
        cql_result(&mut whole, cql::Version::V5, &vec![7; 4_000_000]);
        let mut travels = Vec::new();
        cql::Encoder::new(cql::Version::V5, compression).encode(&whole, &mut travels).expect("the command fits");
        let mut decoder = cql_decoder(cql::Version::V5, compression);
        let first = if compression.is_some() { 600 } else { 131_081 };
        let taken = measure(|| assert_eq!(cql_decode(&mut decoder, &travels[..first], first), Ok(0)));
        assert!(taken.bytes_max <= 3 * 131_072, "{compression:?} {taken:?}");
    }
}
