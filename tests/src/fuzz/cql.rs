//! Arbitrary bytes as the output of a Cassandra server: on a connection, and during the handshake.

pub mod values;

use flate2::Crc;
use poolhouse_cql::{
    Compression, CqlAuthenticator, CqlError, CqlErrorKind, CqlHandshake, CqlHandshakeError, CqlHandshakeOptions,
    CqlNext, Decoder, Direction, Elements, Encoder, Envelope, HEADER_BYTES, Header, Limits, Opcode, Outgoing, Pairs,
    Password, Replication, Response, SEGMENT_PAYLOAD_BYTES_MAX, Version, decode_header, encode_envelope, read_inet,
};
use poolhouse_wire::{Decoded, Unauthenticated};

/// Small enough to be exceeded by short inputs.
const LIMITS: Limits = Limits { body_bytes_max: 64 * 1024 };

/// Inputs up to this length are cut at every byte, longer ones at this number of positions.
const CUTS_MAX: usize = 256;

/// Each handshake ends within fewer replies.
const ROUNDS_MAX: usize = 40;

/// The negotiated parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Connection {
    version: Version,
    compression: Option<Compression>,
    started: bool,
}

/// All kinds of connection.
const CONNECTIONS: [Connection; 9] = [
    Connection { version: Version::V3, compression: None, started: true },
    Connection { version: Version::V3, compression: Some(Compression::Lz4), started: true },
    Connection { version: Version::V3, compression: Some(Compression::Snappy), started: true },
    Connection { version: Version::V4, compression: None, started: false },
    Connection { version: Version::V4, compression: Some(Compression::Lz4), started: true },
    Connection { version: Version::V4, compression: Some(Compression::Snappy), started: true },
    Connection { version: Version::V5, compression: None, started: false },
    Connection { version: Version::V5, compression: None, started: true },
    Connection { version: Version::V5, compression: Some(Compression::Lz4), started: true },
];

/// Number of ways to convert the bytes to a stream.
const SHAPES: u8 = 4;

/// The first byte of `data` chooses the kind of connection (modulo 9), and the conversion of the
/// rest to the server's output: unchanged, as bodies of envelopes, or as the payload of segments
/// with correct checksums, whole and in parts.
///
/// Passes the output to a decoder in pieces of several lengths. Checks that nothing panics, that
/// the pieces do not affect the result, that memory grows only with the received bytes, and that
/// each envelope can be read, and is unchanged after it was written and read again in each form of
/// transport. Then runs handshakes with a server that sends the bytes. They must end.
pub fn cql(data: &[u8]) {
    let (choice, rest) = data.split_first().map_or((0, data), |(first, rest)| (*first, rest));
    let connection = CONNECTIONS[usize::from(choice) % CONNECTIONS.len()];
    let stream = match choice / 9 % SHAPES {
        0 => rest.to_vec(),
        1 => bodies(connection, rest),
        2 => segments(connection, rest, true),
        _ => segments(connection, rest, false),
    };
    headers(&stream);
    let whole = decode(connection, &stream, [stream.len()]);
    let cut = decode(connection, &stream, ends(stream.len()));
    assert_eq!(cut, whole, "cut everywhere");
    let cut = decode(connection, &stream, places(&stream));
    assert_eq!(cut, whole, "cut somewhere");
    for (header, body) in &whole.0 {
        read(&Envelope { header: *header, body });
        again(*header, body);
    }
    handshakes(choice, rest);
}

/// Envelopes with bodies from `data`, split at each byte 0xfe. The first byte of a part chooses the
/// opcode and the flags.
fn bodies(connection: Connection, data: &[u8]) -> Vec<u8> {
    let responses: Vec<_> = Opcode::ALL.into_iter().filter(|one| one.direction() == Direction::Response).collect();
    let mut stream = Vec::new();
    for part in data.split(|byte| *byte == 0xfe) {
        let (first, body) = part.split_first().map_or((0, part), |(first, rest)| (*first, rest));
        let opcode = responses[usize::from(first) % responses.len()];
        stream.extend_from_slice(&[connection.version.number() | 0x80, first >> 3]);
        stream.extend_from_slice(if opcode == Opcode::Event { &[0xff, 0xff] } else { &[0, 0] });
        stream.push(opcode.number());
        stream.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
        stream.extend_from_slice(body);
    }
    stream
}

/// Segments with correct checksums. Self-contained ones hold the parts of `data`, split at each
/// byte 0xfd: unchanged, and as the envelopes of [`bodies`]. The others hold pieces of the
/// envelopes; the first byte of `data` is the length of a piece. On a connection with compression,
/// the first byte of a payload is the declared uncompressed length; 0 is uncompressed.
fn segments(connection: Connection, data: &[u8], self_contained: bool) -> Vec<u8> {
    let packs = connection.compression.is_some();
    let mut stream = Vec::new();
    let mut push = |payload: &[u8], self_contained: bool| {
        let (size, payload) = match payload.split_first() {
            Some((size, rest)) if packs => (u64::from(*size), rest),
            _ => (0, payload),
        };
        let payload = &payload[..payload.len().min(SEGMENT_PAYLOAD_BYTES_MAX)];
        stream.extend_from_slice(&segment(payload, packs.then_some(size), self_contained));
    };
    if self_contained {
        for part in data.split(|byte| *byte == 0xfd) {
            push(part, true);
            let mut envelopes = bodies(connection, part);
            if packs {
                envelopes.insert(0, 0);
            }
            push(&envelopes, true);
        }
    } else {
        let length = data.first().map_or(1, |first| usize::from(*first).max(1));
        for part in bodies(connection, data.get(1..).unwrap_or_default()).chunks(length) {
            let part = if packs { [&[0], part].concat() } else { part.to_vec() };
            push(&part, false);
        }
    }
    stream
}

/// Encodes a segment, independently of the library.
fn segment(payload: &[u8], inflated: Option<u64>, self_contained: bool) -> Vec<u8> {
    let length = u64::try_from(payload.len()).expect("short");
    let (bits, front) = match inflated {
        Some(size) => (length | size << 17 | u64::from(self_contained) << 34, 5),
        None => (length | u64::from(self_contained) << 17, 3),
    };
    let mut bytes = bits.to_le_bytes()[..front].to_vec();
    let mut crc = 0x87_5060_u32;
    for byte in &bytes {
        crc ^= u32::from(*byte) << 16;
        for _ in 0..8 {
            crc = if crc & 0x80_0000 == 0 { crc << 1 } else { crc << 1 ^ 0x197_4f0b };
        }
    }
    bytes.extend_from_slice(&crc.to_le_bytes()[..3]);
    bytes.extend_from_slice(payload);
    let mut crc = Crc::new();
    crc.update(&[0xfa, 0x2d, 0x55, 0xca]);
    crc.update(payload);
    bytes.extend_from_slice(&crc.sum().to_le_bytes());
    bytes
}

/// Positions at which to cut `len` bytes: all, or many.
fn ends(len: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by(len / CUTS_MAX + 1).chain([len])
}

/// Positions of cuts that the bytes choose.
fn places(bytes: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut at = 0;
    while at < bytes.len() && ends.len() < CUTS_MAX {
        ends.push(at);
        at += usize::from(bytes[at]) + 1;
    }
    ends.push(bytes.len());
    ends
}

/// Envelopes, and the error after them.
type Outcome = (Vec<(Header, Vec<u8>)>, Option<CqlError>);

fn decoder(connection: Connection, direction: Direction) -> Decoder<Vec<u8>> {
    let mut decoder = Decoder::new(connection.version, direction, LIMITS, Vec::new(), Vec::new());
    decoder.set_compression(connection.compression);
    if connection.started {
        decoder.set_started();
    }
    decoder
}

/// Passes a decoder of responses pieces that end at `ends`.
fn decode(connection: Connection, stream: &[u8], ends: impl IntoIterator<Item = usize>) -> Outcome {
    let mut decoder = decoder(connection, Direction::Response);
    let (mut start, mut envelopes) = (0, Vec::new());
    for end in ends {
        loop {
            match decoder.decode(&stream[start..end]) {
                Ok(step) => {
                    start += step.consumed_bytes;
                    assert!(start <= end);
                    let Some(Envelope { header, body }) = step.envelope else { break };
                    assert_eq!(usize::try_from(header.length_bytes).ok(), Some(body.len()));
                    assert!(header.length_bytes <= LIMITS.body_bytes_max);
                    envelopes.push((header, body.to_vec()));
                }
                Err(error) => {
                    assert!(!matches!(error.kind(), CqlErrorKind::NoMemory { .. }), "{error}");
                    assert_eq!(decoder.decode(&stream[start..end]), Err(error), "an error is final");
                    return (envelopes, Some(error));
                }
            }
            bounded(connection, &decoder, end);
        }
        assert_eq!(start, end, "without an envelope all bytes are consumed");
        bounded(connection, &decoder, end);
    }
    (envelopes, None)
}

/// Memory is bounded by the received bytes and their inflated size. The factor 2 is the growth of
/// the buffer.
fn bounded(connection: Connection, decoder: &Decoder<Vec<u8>>, came: usize) {
    let times = if connection.compression.is_some() { 255 } else { 1 };
    let [received, assembled] = decoder.memory().map(Vec::capacity);
    assert!(received <= 2 * came + 64, "{received} of {came}");
    assert!(assembled <= 2 * came * times + 512, "{assembled} of {came}");
}

/// Each prefix of `bytes` as a header. An early result must equal the final one.
fn headers(bytes: &[u8]) {
    for direction in [Direction::Request, Direction::Response] {
        for version in [None, Some(Version::V4)] {
            let bytes = &bytes[..bytes.len().min(HEADER_BYTES + 1)];
            let whole = decode_header(bytes, version, direction, &LIMITS);
            for cut in 0..bytes.len() {
                match decode_header(&bytes[..cut], version, direction, &LIMITS) {
                    Ok(Decoded::NeedMore { bytes_min }) => assert_eq!(bytes_min, HEADER_BYTES - cut),
                    Ok(Decoded::Done { value, .. }) => {
                        assert!(matches!(whole, Ok(Decoded::Done { value: other, .. }) if other == value));
                    }
                    Err(error) => assert_eq!(whole, Err(error)),
                }
            }
            if let Ok(Decoded::Done { value, .. }) = whole {
                assert!(value.length_bytes <= LIMITS.body_bytes_max);
                assert_eq!(value.to_bytes(), bytes[..HEADER_BYTES]);
            }
        }
    }
}

/// Calls all getters of a response.
fn read(envelope: &Envelope<'_>) {
    let length = HEADER_BYTES + envelope.body.len();
    let within = |error: CqlError| assert!(error.offset() as usize <= length, "{error} of {length} bytes");
    if let Ok(parts) = envelope.parts() {
        assert!(parts.message().len() <= envelope.body.len());
        assert_eq!(parts.warnings.count(), parts.warnings.len());
        assert_eq!(parts.custom_payload.count(), parts.custom_payload.len());
    }
    let response = match envelope.response() {
        Ok(response) => response,
        Err(error) => return within(error),
    };
    match response {
        Response::Error(failure) => {
            let _ = (failure.code.to_string(), failure.details().map_err(within));
        }
        Response::Supported(supported) => {
            let options = supported.options();
            assert_eq!(options.count(), options.len());
            assert!(options.map(|(_, values)| values.count()).sum::<usize>() <= envelope.body.len() / 2);
            let _ = supported.protocol_versions().count();
        }
        Response::Result(outcome) => {
            let _ = (outcome.keyspace(), outcome.prepared_id(), outcome.schema_change());
            if let Ok(Some(rows)) = outcome.rows() {
                rows.deserialize::<serde_json::Value>().for_each(drop);
                assert_eq!(rows.map(Iterator::count).sum::<usize>(), rows.len() * rows.column_count);
                for cell in rows.flatten().flatten() {
                    let _ = (Elements::read(cell).map(Iterator::count), read_inet(cell));
                    let _ = Pairs::read(cell).map(Replication::read);
                }
                let _ = format!("{rows:?}");
            }
            if let Ok(Some(prepared)) = outcome.prepared(envelope.header.version) {
                let _ = (format!("{prepared:?}"), prepared.key_positions().count());
            }
        }
        Response::Ready
        | Response::Authenticate(_)
        | Response::Event(_)
        | Response::AuthChallenge(_)
        | Response::AuthSuccess(_)
        | _ => {}
    }
    let _ = format!("{envelope:?} {response:?}");
}

/// Writes an envelope and reads it again, in each form of transport.
fn again(header: Header, body: &[u8]) {
    let Header { version, flags, stream, opcode, .. } = header;
    let mut plain = Vec::new();
    let outgoing = Outgoing::new(version, stream).with_flags(flags);
    let length = encode_envelope(&mut plain, outgoing, opcode, &LIMITS, |writer| writer.raw(body).map(drop));
    assert_eq!(length, Ok(HEADER_BYTES + body.len()));
    assert_eq!(plain, [&header.to_bytes()[..], body].concat());
    // Two envelopes, so segments are shared.
    let twice = plain.repeat(2);
    for connection in CONNECTIONS.into_iter().filter(|connection| connection.version == version && connection.started) {
        let mut travels = Vec::new();
        Encoder::new(version, connection.compression).encode(&twice, &mut travels).expect("it grows");
        let expected = (vec![(header, body.to_vec()); 2], None);
        assert_eq!(decode(connection, &travels, [travels.len()]), expected);
        assert_eq!(decode(connection, &travels, places(&travels)), expected);
    }
}

/// Runs several kinds of handshake with a server that sends `data`.
fn handshakes(choice: u8, data: &[u8]) {
    let version = Version::ALL[usize::from(choice) % 3];
    for (ask_supported, compressions) in [(true, &Compression::ALL[..]), (false, &Compression::ALL), (false, &[])] {
        let options = CqlHandshakeOptions { version, compressions, ask_supported, ..CqlHandshakeOptions::DEFAULT };
        let password = Password { username: "ada", password: "hunter2" };
        let whole = run_handshake(options, password, data, false);
        assert_eq!(run_handshake(options, password, data, true), whole, "byte by byte");
        let _ = run_handshake(options, Unauthenticated, data, true);
    }
}

/// The result of a handshake.
type HandshakeResult = Option<Result<CqlNext, CqlHandshakeError>>;

/// The server sends nothing before the first request. After each request it sends the next part of
/// `data`, split at each byte 0xfe: as a response with the opcode in its first byte, or unchanged.
/// Returns `None` if no part is left.
fn run_handshake(
    options: CqlHandshakeOptions<'_>,
    authenticator: impl CqlAuthenticator,
    data: &[u8],
    bytewise: bool,
) -> HandshakeResult {
    let mut handshake = CqlHandshake::new(options, authenticator, Vec::new(), Vec::new());
    let mut said = 0;
    let mut replies = data.split(|byte| *byte == 0xfe);
    for _ in 0..ROUNDS_MAX {
        let mut sink = Vec::new();
        match handshake.poll_transmit(&mut sink) {
            Ok(transmitted) => assert_eq!(transmitted, !sink.is_empty()),
            Err(error) => panic!("the buffer is too small: {error}"),
        }
        said += usize::from(!sink.is_empty());
        assert!(said <= ROUNDS_MAX);
        let Some(part) = replies.next() else { break };
        let reply = reply(options, said, part);
        let step = if bytewise { 1 } else { reply.len().max(1) };
        let mut speaks = false;
        for mut piece in reply.chunks(step) {
            let handled = match handshake.handle_input(piece) {
                Ok(handled) => handled,
                Err(error) => {
                    assert_eq!(handshake.handle_input(piece), Err(CqlHandshakeError::Ended));
                    assert!(!handshake.refusal().contains(char::is_control), "a refusal contains control characters");
                    // The number of unsolicited bytes depends on the sizes of the pieces.
                    return if speaks { None } else { Some(Err(error)) };
                }
            };
            assert!(!speaks, "an unsolicited response was accepted");
            piece = &piece[handled.consumed_bytes..];
            match handled.next {
                CqlNext::Reconnect { version } => {
                    assert!(version < options.version, "each attempt uses an older version");
                    return Some(Ok(handled.next));
                }
                CqlNext::Established(established) => {
                    assert_eq!(established.version, options.version);
                    return Some(Ok(handled.next));
                }
                // The rest is unsolicited. Both kinds of pieces must detect it.
                CqlNext::Transmit => {
                    speaks = true;
                    if !piece.is_empty() {
                        return None;
                    }
                }
                CqlNext::Receive => {
                    assert!(piece.is_empty());
                }
            }
        }
    }
    None
}

/// The bytes that the server sends.
fn reply(options: CqlHandshakeOptions<'_>, said: usize, part: &[u8]) -> Vec<u8> {
    let Some((first, body)) = part.split_first() else { return Vec::new() };
    let Some(opcode) = Opcode::from_number(*first) else { return part.to_vec() };
    let mut bytes = vec![options.version.number() | 0x80, 0, 0, 0, opcode.number()];
    bytes.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(body);
    // After the reply to STARTUP, bytes are in segments.
    let startups = 1 + usize::from(options.ask_supported);
    if options.version == Version::V5 && said > startups {
        let size = if options.compressions.is_empty() { None } else { Some(0) };
        return segment(&bytes[..bytes.len().min(SEGMENT_PAYLOAD_BYTES_MAX)], size, true);
    }
    bytes
}

/// A `string`.
fn string(text: &str) -> Vec<u8> {
    [&u16::try_from(text.len()).expect("short").to_be_bytes()[..], text.as_bytes()].concat()
}

/// Well-formed seed inputs for each kind of connection and each conversion.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let text = "pool house ".repeat(20);
    let messages: [(Opcode, Vec<u8>); 9] = [
        (Opcode::Ready, Vec::new()),
        (Opcode::Error, [&[0, 0, 0x10, 0][..], &string("why"), &[0, 1, 0, 0, 0, 3, 0, 0, 0, 1]].concat()),
        (Opcode::Authenticate, string("org.apache.cassandra.auth.PasswordAuthenticator")),
        (Opcode::AuthChallenge, vec![0, 0, 0, 2, 7, 7]),
        (Opcode::AuthSuccess, vec![0xff; 4]),
        (Opcode::Result, [&[0, 0, 0, 2][..], text.as_bytes()].concat()),
        (Opcode::Result, [&[0, 0, 0, 5][..], &["CREATED", "TABLE", "k", "t"].map(string).concat()].concat()),
        (Opcode::Event, [string("STATUS_CHANGE"), string("UP"), vec![4, 127, 0, 0, 1, 0, 0, 0x23, 0x52]].concat()),
        (
            Opcode::Supported,
            [
                &[0, 2][..],
                &string("CQL_VERSION"),
                &[0, 1],
                &string("3.4.6"),
                &string("PROTOCOL_VERSIONS"),
                &[0, 2],
                &string("4/v4"),
                &string("5/v5"),
            ]
            .concat(),
        ),
    ];
    let mut seeds = vec![Vec::new()];
    for (number, connection) in (0_u8..).zip(CONNECTIONS) {
        let mut plain = Vec::new();
        for (opcode, body) in &messages {
            let outgoing = Outgoing::new(connection.version, if *opcode == Opcode::Event { -1 } else { 7 });
            encode_envelope(&mut plain, outgoing, *opcode, &LIMITS, |writer| writer.raw(body).map(drop)).expect("room");
        }
        let mut travels = plain.clone();
        if connection.started {
            travels.clear();
            Encoder::new(connection.version, connection.compression).encode(&plain, &mut travels).expect("room");
        }
        seeds.push([&[number][..], &travels].concat());
        for shape in 1..SHAPES {
            let parts: Vec<_> = messages.iter().map(|(opcode, body)| [&[opcode.number()][..], body].concat()).collect();
            seeds.push([&[number + 9 * shape][..], &parts.join(&0xfe)].concat());
        }
    }
    // Complete handshakes.
    let spoken = |order: &[usize]| {
        let parts: Vec<_> =
            order.iter().map(|at| [&[messages[*at].0.number()][..], &messages[*at].1].concat()).collect();
        parts.join(&0xfe)
    };
    for order in [&[8, 0][..], &[0], &[8, 2, 4], &[2, 4], &[2, 3, 4], &[1]] {
        for version in 0..3 {
            seeds.push([&[version][..], &spoken(order)].concat());
        }
    }
    seeds
}
