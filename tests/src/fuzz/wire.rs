//! Arbitrary bytes as all values that `poolhouse_wire` decodes.

use poolhouse_core::ObjectId;
use poolhouse_wire::bson::{DocumentWriter, RawDocument, RawValue};
use poolhouse_wire::command::CommandReply;
use poolhouse_wire::handshake::{Handshake, HandshakeError, Next};
use poolhouse_wire::hello::{ClientMetadata, HandshakeHello, HelloReply, MetadataOptions};
use poolhouse_wire::message::{
    Decoded, Exchange, Flags, HEADER_BYTES, Header, Limits, Matched, Message, OP_MSG, Outgoing, decode_message,
    encode_message,
};
use poolhouse_wire::{EncodeError, WireError, WireErrorKind};

/// Inputs up to this length are cut at every byte, longer ones at this number of positions.
const CUTS_MAX: usize = 256;

/// Limits that small inputs can exceed.
const TIGHT: Limits = Limits { message_bytes_max: 200, document_bytes_max: 100 };

/// Decodes `data` as a document, as the elements of one, as a message, as the sections of one with
/// and without a checksum, and as the peer's side of a conversation. Checks that nothing panics,
/// that accepted values are unchanged after they were written and read again, that the positions of
/// cuts do not affect the result, and that the bson crate agrees.
pub fn wire(data: &[u8]) {
    document(data);
    document(&framed(data));
    for limits in [Limits::DEFAULT, TIGHT] {
        message(data, &limits);
        message(&with_header(data, 0), &limits);
        message(&with_checksum(data), &limits);
    }
    exchange(data, Flags::EXHAUST_ALLOWED);
    exchange(&with_header(data, 0), Flags::NONE);
    exchange(&[with_header(data, 2), with_header(data, 0)].concat(), Flags::EXHAUST_ALLOWED);
    handshake(data);
    handshake(&with_header(data, 0));
}

/// `data` between the length and the terminator of a document.
pub(super) fn framed(data: &[u8]) -> Vec<u8> {
    let length = i32::try_from(data.len() + 5).unwrap_or(i32::MAX);
    [&length.to_le_bytes()[..], data, &[0]].concat()
}

/// `data` as the sections of a reply to message 1.
fn with_header(data: &[u8], flags: u32) -> Vec<u8> {
    let length_bytes = u32::try_from(HEADER_BYTES + 4 + data.len()).unwrap_or(u32::MAX);
    // As the second of two replies it answers the first reply, which has the same id.
    let header = Header { length_bytes, request_id: 1, response_to: 1, opcode: OP_MSG };
    [&header.to_bytes()[..], &flags.to_le_bytes(), data].concat()
}

/// `data` as the sections of a message with a correct checksum.
fn with_checksum(data: &[u8]) -> Vec<u8> {
    let mut bytes = with_header(&[data, &[0; 4]].concat(), 1);
    let Err(error) = decode_message(&bytes, &Limits::DEFAULT) else { return bytes };
    if let WireErrorKind::Checksum { computed, .. } = error.kind() {
        let at = bytes.len() - 4;
        bytes[at..].copy_from_slice(&computed.to_le_bytes());
    }
    bytes
}

pub(super) fn document(bytes: &[u8]) {
    let Ok(document) = RawDocument::new(bytes) else {
        assert!(
            bson::RawDocument::from_bytes(bytes).is_err(),
            "the bson crate opens a document that poolhouse-wire does not"
        );
        return;
    };
    let hello = HelloReply::parse(document);
    let command = CommandReply::parse(document);
    if let (Ok(hello), Ok(command)) = (&hello, &command) {
        assert_eq!(hello.ok, command.ok);
        assert_eq!(hello.topology_version, command.topology_version);
        let _ = (hello.server_type(), command.labels(), command.cause());
    }
    let verdict = document.validate();
    assert_offset(verdict, bytes.len());
    if verdict.is_ok() {
        let mut rewritten = Vec::new();
        let result = DocumentWriter::write(&mut rewritten, |writer| rewrite(document, writer));
        assert_eq!(result, Ok(bytes.len()));
        assert_eq!(rewritten, bytes, "writing the elements again must result in the same bytes");
        for element in document {
            let element = element.expect("validated");
            assert!(document.get(element.key).expect("validated").is_some());
        }
    }
    compare(document, verdict);
}

/// Writes every element again, documents element by element.
fn rewrite(document: RawDocument<'_>, writer: &mut DocumentWriter<'_, Vec<u8>>) -> Result<(), EncodeError> {
    for element in document {
        let element = element.expect("validated");
        if let RawValue::Document(inner) = element.value {
            writer.document(element.key, |writer| rewrite(inner, writer))?;
        } else {
            writer.value(element.key, element.value)?;
        }
    }
    Ok(())
}

/// The bson crate must accept and reject the same documents, except where its rules differ.
fn compare(document: RawDocument<'_>, verdict: Result<(), WireError>) {
    let kind = verdict.map_err(WireError::kind);
    if kind == Err(WireErrorKind::TooDeep) {
        return;
    }
    let theirs = bson::Document::try_from(document);
    match kind {
        Ok(()) => {
            theirs.expect("the bson crate rejects a document that poolhouse-wire accepts");
            let theirs: &bson::RawDocument = document.try_into().expect("opened before");
            assert_eq!(theirs.iter().count(), document.iter().count());
            for (theirs, ours) in theirs.iter().zip(document) {
                let ((key, value), ours) = (theirs.expect("read before"), ours.expect("validated"));
                assert_eq!((key.as_str(), value.element_type() as u8), (ours.key, ours.value.element_type().tag()));
            }
        }
        Err(kind) => assert!(theirs.is_err(), "the bson crate accepts a document that poolhouse-wire rejects: {kind}"),
    }
}

/// The offset of an error is within the bytes, or directly after them.
fn assert_offset<T>(result: Result<T, WireError>, len: usize) {
    if let Err(error) = result {
        assert!(error.offset() as usize <= len, "{error} of {len} bytes");
    }
}

/// The lengths at which to cut `len` bytes.
fn cuts(len: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by(len / CUTS_MAX + 1)
}

fn message(bytes: &[u8], limits: &Limits) {
    let whole = decode_message(bytes, limits);
    assert_offset(whole, bytes.len());
    for cut in cuts(bytes.len()) {
        let part = decode_message(&bytes[..cut], limits);
        match (part, whole) {
            (Ok(Decoded::NeedMore { bytes_min }), _) => {
                assert!(bytes_min >= 1);
                assert!(cut + bytes_min <= (limits.message_bytes_max as usize).max(HEADER_BYTES));
                if let Ok(Decoded::Done { rest, .. }) = whole {
                    assert!(cut + bytes_min <= bytes.len() - rest.len());
                }
            }
            (Err(part), Err(whole)) => assert_eq!(part, whole),
            (Ok(Decoded::Done { value, .. }), Ok(Decoded::Done { value: other, .. })) => assert_eq!(value, other),
            (part, whole) => panic!("{part:?} of a part, {whole:?} of the whole"),
        }
    }
    if let Ok(Decoded::Done { value, rest }) = whole {
        assert_eq!(value.header().length_bytes as usize, bytes.len() - rest.len());
        assert_offset(value.validate_structure(), bytes.len());
        if value.flags().contains(Flags::CHECKSUM_PRESENT) {
            let (covered, checksum) = bytes[..bytes.len() - rest.len()].split_last_chunk().expect("it has one");
            assert_eq!(u32::from_le_bytes(*checksum), crc32c::crc32c(covered), "a wrong checksum was accepted");
        }
        encode_again(&value);
    }
}

fn encode_again(message: &Message<'_>) {
    let header = message.header();
    let outgoing = Outgoing { request_id: header.request_id, response_to: header.response_to, flags: message.flags() };
    let mut bytes = Vec::new();
    let length = encode_message(&mut bytes, outgoing, &Limits::DEFAULT, |writer| {
        writer.raw_body(message.body())?;
        message.sequences().try_for_each(|sequence| {
            writer.sequence(sequence.identifier(), |documents| {
                sequence.documents().try_for_each(|document| documents.raw_document(document.expect("opened before")))
            })
        })
    });
    assert_eq!(length, Ok(header.length_bytes as usize));
    let Ok(Decoded::Done { value, rest: [] }) = decode_message(&bytes, &Limits::DEFAULT) else {
        panic!("an encoded message does not decode");
    };
    assert_eq!((value.header(), value.flags(), value.body()), (header, message.flags(), message.body()));
    let names = |message: &Message<'_>| message.sequences().map(|s| s.documents().count()).collect::<Vec<_>>();
    assert_eq!(names(&value), names(message));
}

/// A stream of replies: any cuts must result in the same replies, and the same error.
fn exchange(bytes: &[u8], flags: Flags) {
    let whole = replies(bytes, flags, [bytes.len()].into_iter());
    let cut = replies(bytes, flags, cuts(bytes.len()).chain([bytes.len()]));
    assert_eq!(cut.1.is_some(), whole.1.is_some());
    // Bytes after the last reply are detected with it only if they have already arrived.
    if !matches!(whole.1.map(WireError::kind), Some(WireErrorKind::Unsolicited { .. })) {
        assert_eq!(cut, whole);
    }
}

/// Passes the prefixes of `bytes` up to each of `ends`. Returns the number of replies, and the
/// error.
fn replies(bytes: &[u8], flags: Flags, ends: impl Iterator<Item = usize>) -> (usize, Option<WireError>) {
    let mut exchange = Exchange::IDLE;
    exchange.begin(1, flags);
    let (mut start, mut count) = (0, 0);
    for end in ends {
        loop {
            match exchange.decode_reply(&bytes[start..end], &Limits::DEFAULT) {
                Ok(Decoded::Done { value: (message, matched), rest }) => {
                    count += 1;
                    start = end - rest.len();
                    assert_eq!(matched == Matched::Last, exchange.is_idle());
                    assert_eq!(message.validate_structure(), Ok(()));
                }
                Ok(Decoded::NeedMore { .. }) => break,
                Err(error) => return (count, Some(error)),
            }
        }
    }
    (count, None)
}

/// A server that sends `bytes` as the reply to a hello.
fn handshake(bytes: &[u8]) {
    let options = MetadataOptions { driver_name: "d", driver_version: "1", os_type: "x", ..Default::default() };
    let client = ClientMetadata::new(&options).expect("short");
    for load_balanced in [false, true] {
        let hello = HandshakeHello { load_balanced, ..HandshakeHello::new(&client) };
        let begin = || {
            let mut handshake = Handshake::new(hello);
            assert_eq!(handshake.poll_transmit(&mut Vec::new()), Ok(true));
            handshake
        };
        let whole = outcome(begin().handle_input(bytes).map(|handled| handled.next));
        let mut handshake = begin();
        for cut in cuts(bytes.len()) {
            match outcome(handshake.handle_input(&bytes[..cut]).map(|handled| handled.next)) {
                Outcome::More => {}
                Outcome::Established(service) => {
                    assert!(service.is_some() || !load_balanced);
                    break;
                }
                Outcome::Failed(error) => {
                    assert!(whole == Outcome::Failed(error) || is_unsolicited(&whole), "{error:?}, {whole:?}");
                    break;
                }
            }
        }
    }
}

/// Bytes after a reply are detected before the reply is read, if they have already arrived.
fn is_unsolicited(outcome: &Outcome) -> bool {
    let Outcome::Failed(HandshakeError { wire: Some(wire), .. }) = outcome else { return false };
    matches!(wire.kind(), WireErrorKind::Unsolicited { .. })
}

#[derive(Debug, PartialEq)]
enum Outcome {
    More,
    Established(Option<ObjectId>),
    Failed(HandshakeError),
}

fn outcome(result: Result<Next, HandshakeError>) -> Outcome {
    match result {
        Ok(Next::Transmit | Next::Work | Next::Receive { .. }) => Outcome::More,
        Ok(Next::Established(established)) => Outcome::Established(established.service_id),
        Err(error) => Outcome::Failed(error),
    }
}

/// A function that writes a document.
type Write<'a> = &'a dyn Fn(&mut DocumentWriter<'_, Vec<u8>>) -> Result<(), EncodeError>;

fn written(write: Write<'_>) -> Vec<u8> {
    let mut sink = Vec::new();
    DocumentWriter::write(&mut sink, write).expect("grows");
    sink
}

/// Well-formed seed inputs: documents, messages, hello replies.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let hello = written(&|d| {
        d.boolean("helloOk", true)?.boolean("isWritablePrimary", true)?.str("setName", "rs")?;
        d.array("hosts", |hosts| hosts.str("a:27017")?.str("b:27017").map(drop))?;
        d.document("topologyVersion", |v| v.object_id("processId", ObjectId([1; 12]))?.int64("counter", 3).map(drop))?;
        d.document("lastWrite", |w| w.date_time("lastWriteDate", 5).map(drop))?
            .object_id("serviceId", ObjectId([2; 12]))?;
        d.int32("maxWireVersion", 21)?.int32("minWireVersion", 6)?.double("ok", 1.0).map(drop)
    });
    let error = written(&|d| {
        d.double("ok", 0.0)?.str("errmsg", "no")?.int32("code", 91)?.str("codeName", "ShutdownInProgress")?;
        d.array("errorLabels", |labels| labels.str("RetryableWriteError").map(drop))?;
        d.document("writeConcernError", |e| e.int64("code", 11600).map(drop)).map(drop)
    });
    let types = written(&|d| {
        let scope = RawDocument::new(&[8, 0, 0, 0, 10, b'x', 0, 0]).expect("well-formed");
        d.value("code", RawValue::JavaScriptWithScope { code: "f", scope })?;
        d.binary("old", 2, b"abc")?.null("n")?.raw_document("d", scope)?;
        d.value("min", RawValue::MinKey)?.value("sym", RawValue::Symbol("s"))?.value("u", RawValue::Undefined).map(drop)
    });
    let mut seeds = vec![hello.clone(), error.clone(), types.clone(), hello[4..hello.len() - 1].to_vec()];
    for (index, body) in [&hello, &error, &types].into_iter().enumerate() {
        let flags = [Flags::NONE, Flags::MORE_TO_COME, Flags::CHECKSUM_PRESENT][index];
        let mut sink = Vec::new();
        encode_message(&mut sink, Outgoing::reply(1, 1).with_flags(flags), &Limits::DEFAULT, |message| {
            message.raw_body(RawDocument::new(body).expect("well-formed"))?;
            message.sequence("docs", |documents| documents.document(|d| d.int32("x", 1).map(drop)))
        })
        .expect("grows");
        seeds.push(sink[20..].to_vec());
        seeds.push(sink);
    }
    seeds
}
