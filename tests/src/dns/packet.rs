//! Encoding and decoding of the server's packets.

use super::Records;

/// A received question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    id: u16,
    /// The name, in lower case.
    pub name: String,
    /// The number of the kind of record: 1 A, 16 TXT, 28 AAAA, 33 SRV.
    pub kind: u16,
    /// Whether it was received over TCP.
    pub over_tcp: bool,
    /// The question, unmodified.
    question: Vec<u8>,
}

/// Offset of the question's name in the packet.
const QUESTION: u16 = 12;
const SRV: u16 = 33;
pub(super) const TXT: u16 = 16;
pub(super) const AAAA: u16 = 28;
const A: u16 = 1;
const CNAME: u16 = 5;

impl Query {
    /// Parses a query; `None` if it is not a query.
    pub(super) fn parse(bytes: &[u8], over_tcp: bool) -> Option<Self> {
        let id = u16::from_be_bytes([*bytes.first()?, *bytes.get(1)?]);
        // It must be a question, and the only one.
        if bytes.get(2)? & 0x80 != 0 || bytes.get(4..6)? != [0, 1] {
            return None;
        }
        let mut at = usize::from(QUESTION);
        let mut labels = Vec::new();
        loop {
            let length = usize::from(*bytes.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            labels.push(String::from_utf8(bytes.get(at..at + length)?.to_ascii_lowercase()).ok()?);
            at += length;
        }
        let kind = u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]);
        let question = bytes.get(usize::from(QUESTION)..at + 4)?.to_vec();
        Some(Self { id, name: labels.join("."), kind, over_tcp, question })
    }
}

/// Returns the records' answer to a query.
pub(super) fn answer(query: &Query, records: &Records) -> Vec<u8> {
    let ttl = records.ttl;
    let mut found = Vec::new();
    // A compression pointer to the name in the question.
    let owner = (0xC000 | QUESTION).to_be_bytes();
    let mut add = |kind: u16, data: Vec<u8>| found.push([&owner[..], &record(kind, ttl, &data)].concat());
    match query.kind {
        SRV => {
            for (target, port) in records.srv.get(&query.name).into_iter().flatten() {
                let fixed = [[0, 0], [0, 0], port.to_be_bytes()].concat();
                add(SRV, [fixed, name(target)].concat());
            }
        }
        TXT => {
            for strings in records.txt.get(&query.name).into_iter().flatten() {
                add(TXT, strings.iter().flat_map(|string| text(string)).collect());
            }
        }
        A => {
            for address in records.a.get(&query.name).into_iter().flatten() {
                add(A, address.octets().to_vec());
            }
        }
        _ => {}
    }
    if let (true, Some(alias)) = (found.is_empty(), records.cname.get(&query.name)) {
        found.push([&owner[..], &record(CNAME, ttl, &name(alias))].concat());
    }
    let code = if records.has_name(&query.name) { 0 } else { 3 };
    let count = u16::try_from(found.len()).unwrap_or(u16::MAX);
    [header(query.id, 0x8180 | code, count), query.question.clone(), found.concat()].concat()
}

/// Returns a negative answer with a response code.
pub(super) fn refusal(query: &Query, code: u8) -> Vec<u8> {
    [header(query.id, 0x8180 | u16::from(code), 0), query.question.clone()].concat()
}

/// Returns the start of an answer, truncated in the middle of its question.
pub(super) fn truncated(query: &Query) -> Vec<u8> {
    let mut bytes = [header(query.id, 0x8380, 5), query.question.clone()].concat();
    bytes.truncate(20);
    bytes
}

/// Returns forged answers, with hosts that must not be used, and messages that are not answers.
pub(super) fn forged(query: &Query) -> Vec<Vec<u8>> {
    let data = [vec![0, 0, 0, 0, 0x69, 0x87], name("evil.test.build.10gen.cc")].concat();
    let evil = [&(0xC000 | QUESTION).to_be_bytes()[..], &record(SRV, 600, &data)].concat();
    let other = [name("other.example.com"), vec![0, 33, 0, 1]].concat();
    vec![
        [header(query.id.wrapping_add(1), 0x8180, 1), query.question.clone(), evil.clone()].concat(),
        [header(query.id, 0x8180, 1), other, evil.clone()].concat(),
        // Marked as a question.
        [header(query.id, 0x0100, 0), query.question.clone()].concat(),
        Vec::new(),
        query.id.to_be_bytes().to_vec(),
    ]
}

fn header(id: u16, flags: u16, answers: u16) -> Vec<u8> {
    [id, flags, 1, answers, 0, 0].map(u16::to_be_bytes).concat()
}

/// Encodes a record of class IN, without its owner.
fn record(kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap_or(u16::MAX);
    [&kind.to_be_bytes()[..], &[0, 1], &ttl.to_be_bytes(), &length.to_be_bytes(), data].concat()
}

fn name(name: &str) -> Vec<u8> {
    let mut bytes: Vec<u8> = name.split('.').flat_map(text).collect();
    bytes.push(0);
    bytes
}

/// Encodes a label, or a string of a TXT record.
fn text(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
    let mut bytes = vec![length];
    bytes.extend(text.bytes().take(length.into()));
    bytes
}
