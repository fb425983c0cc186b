//! Framing of the fake server: an implementation of the wire protocol that is independent of
//! poolhouse-wire's codec.
//!
//! Sections to read first: MongoDB Wire Protocol, "Standard Message Header", "OP_MSG"; OP_MSG
//! specification, "Sections", "Checksum"; for the legacy greeting, "OP_QUERY" and "OP_REPLY".

use bson::{Bson, Document, RawBsonRef, RawDocument};

use super::compress::{self, Algorithm, OP_COMPRESSED};

/// Bytes of a message header.
pub const HEADER_BYTES: usize = 16;
/// Deepest accepted nesting of documents, as on a real server.
pub const DEPTH_MAX: usize = 200;

pub const OP_REPLY: i32 = 1;
pub const OP_QUERY: i32 = 2004;
pub const OP_MSG: i32 = 2013;

pub const CHECKSUM_PRESENT: u32 = 1;
pub const MORE_TO_COME: u32 = 1 << 1;
pub const EXHAUST_ALLOWED: u32 = 1 << 16;
const REQUIRED_BITS: u32 = 0xffff;

/// The error in a peer's bytes; the connection that sent them is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadInput {
    /// A message length below 16 or beyond the limit.
    Length(i32),
    /// An opcode that this server does not support.
    OpCode(i32),
    /// The message ends inside one of its parts.
    Truncated(&'static str),
    /// Undefined required flag bits (0 to 15).
    Flags(u32),
    /// Sections that violate the format, with the reason.
    Sections(&'static str),
    /// The checksum does not match.
    Checksum,
    /// Malformed BSON, with the text of the decoder's error.
    Bson(String),
    /// Documents nested deeper than 200.
    TooDeep,
    /// A compressed message with wrong fields, with an algorithm that was not negotiated, or with a
    /// command that must not be compressed; with the reason.
    Compressed(&'static str),
    /// The connections together hold more unread bytes than the limit.
    Memory,
}

impl core::fmt::Display for BadInput {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Length(length) => write!(f, "message length {length}"),
            Self::OpCode(code) => write!(f, "opcode {code}"),
            Self::Truncated(part) => write!(f, "message ends inside {part}"),
            Self::Flags(flags) => write!(f, "unknown required flags {flags:#x}"),
            Self::Sections(why) => write!(f, "sections: {why}"),
            Self::Checksum => f.write_str("checksum does not match"),
            Self::Bson(why) => write!(f, "bson: {why}"),
            Self::Compressed(why) => write!(f, "compressed message: {why}"),
            Self::TooDeep => f.write_str("bson nested too deep"),
            Self::Memory => f.write_str("too many unread bytes"),
        }
    }
}

impl core::error::Error for BadInput {}

/// A message header, its length already checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub length: usize,
    pub request_id: i32,
    pub response_to: i32,
    pub op_code: i32,
}

/// The format of a message; the reply has the same format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Msg { flags: u32 },
    Query,
    Reply,
}

/// A decoded message: sequences of kind 1 are merged into the body as arrays.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub header: Header,
    pub form: Form,
    /// The algorithm with which it was compressed.
    pub algorithm: Option<Algorithm>,
    /// The collection of an OP_QUERY, else empty.
    pub collection: String,
    pub body: Document,
}

impl Message {
    pub fn has(&self, flag: u32) -> bool {
        match self.form {
            Form::Msg { flags } => flags & flag != 0,
            Form::Query | Form::Reply => false,
        }
    }
}

/// Reads the four bytes at `at`, which must exist.
pub fn i32_at(bytes: &[u8], at: usize) -> i32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    i32::from_le_bytes(four)
}

/// Returns the header at the start of `bytes`; `None` if there are fewer than 16 bytes. The length
/// is checked as soon as its four bytes have been received.
pub fn header(bytes: &[u8], length_max: usize) -> Result<Option<Header>, BadInput> {
    if bytes.len() < 4 {
        return Ok(None);
    }
    let claimed = i32_at(bytes, 0);
    let length = usize::try_from(claimed).map_err(|_| BadInput::Length(claimed))?;
    if !(HEADER_BYTES..=length_max).contains(&length) {
        return Err(BadInput::Length(claimed));
    }
    if bytes.len() < HEADER_BYTES {
        return Ok(None);
    }
    Ok(Some(Header { length, request_id: i32_at(bytes, 4), response_to: i32_at(bytes, 8), op_code: i32_at(bytes, 12) }))
}

/// Decodes one complete message.
pub fn decode(frame: &[u8]) -> Result<Message, BadInput> {
    let header = header(frame, frame.len())?.ok_or(BadInput::Truncated("the header"))?;
    if header.length != frame.len() {
        return Err(BadInput::Truncated("the message"));
    }
    match header.op_code {
        OP_MSG => decode_msg(header, frame),
        OP_QUERY => decode_query(header, &frame[HEADER_BYTES..]),
        OP_REPLY => decode_reply(header, &frame[HEADER_BYTES..]),
        OP_COMPRESSED => {
            let (algorithm, message) = compress::inflated(frame)?;
            // A compressed message cannot contain another one.
            Ok(Message { algorithm: Some(algorithm), ..decode(&message)? })
        }
        code => Err(BadInput::OpCode(code)),
    }
}

fn decode_msg(header: Header, frame: &[u8]) -> Result<Message, BadInput> {
    let mut rest = &frame[HEADER_BYTES..];
    let flags = u32::from_le_bytes(take_array(&mut rest, "the flags")?);
    let unknown = flags & REQUIRED_BITS & !(CHECKSUM_PRESENT | MORE_TO_COME);
    if unknown != 0 {
        return Err(BadInput::Flags(unknown));
    }
    if flags & CHECKSUM_PRESENT != 0 {
        let cut = rest.len().checked_sub(4).ok_or(BadInput::Truncated("the checksum"))?;
        let mut sum = &rest[cut..];
        let claimed = u32::from_le_bytes(take_array(&mut sum, "the checksum")?);
        if crc32c::crc32c(&frame[..frame.len() - 4]) != claimed {
            return Err(BadInput::Checksum);
        }
        rest = &rest[..cut];
    }
    let mut body = None;
    let mut sequences: Vec<(String, Vec<Bson>)> = Vec::new();
    while let Some((&kind, after)) = rest.split_first() {
        rest = after;
        match kind {
            0 => {
                if body.is_some() {
                    return Err(BadInput::Sections("two sections of kind 0"));
                }
                body = Some(take_document(&mut rest)?);
            }
            1 => sequences.push(take_sequence(&mut rest)?),
            _ => return Err(BadInput::Sections("unknown kind")),
        }
    }
    let mut body = body.ok_or(BadInput::Sections("no section of kind 0"))?;
    for (name, documents) in sequences {
        if body.contains_key(&name) {
            return Err(BadInput::Sections("identifier given twice"));
        }
        body.insert(name, documents);
    }
    Ok(Message { header, form: Form::Msg { flags }, algorithm: None, collection: String::new(), body })
}

fn decode_query(header: Header, mut rest: &[u8]) -> Result<Message, BadInput> {
    let _flags = take(&mut rest, 4, "the flags")?;
    let collection = take_cstring(&mut rest)?;
    let _skip_and_count = take(&mut rest, 8, "the counts")?;
    let mut body = take_document(&mut rest)?;
    if let Some(Bson::Document(inner)) = body.get_mut("$query") {
        body = core::mem::take(inner);
    }
    if !rest.is_empty() {
        let _selector = take_document(&mut rest)?;
    }
    if !rest.is_empty() {
        return Err(BadInput::Sections("bytes after the query"));
    }
    Ok(Message { header, form: Form::Query, algorithm: None, collection, body })
}

fn decode_reply(header: Header, mut rest: &[u8]) -> Result<Message, BadInput> {
    let _flags_cursor_start = take(&mut rest, 16, "the reply's fields")?;
    if take_array(&mut rest, "the count")? != 1_i32.to_le_bytes() {
        return Err(BadInput::Sections("not one document"));
    }
    let body = take_document(&mut rest)?;
    if !rest.is_empty() {
        return Err(BadInput::Sections("bytes after the document"));
    }
    Ok(Message { header, form: Form::Reply, algorithm: None, collection: String::new(), body })
}

fn take<'a>(rest: &mut &'a [u8], count: usize, part: &'static str) -> Result<&'a [u8], BadInput> {
    let (head, tail) = rest.split_at_checked(count).ok_or(BadInput::Truncated(part))?;
    *rest = tail;
    Ok(head)
}

fn take_array<const N: usize>(rest: &mut &[u8], part: &'static str) -> Result<[u8; N], BadInput> {
    let mut array = [0; N];
    array.copy_from_slice(take(rest, N, part)?);
    Ok(array)
}

fn take_cstring(rest: &mut &[u8]) -> Result<String, BadInput> {
    let end = rest.iter().position(|&byte| byte == 0).ok_or(BadInput::Truncated("a name"))?;
    let name = core::str::from_utf8(&rest[..end]).map_err(|_| BadInput::Sections("a name that is not UTF-8"))?;
    let name = name.to_owned();
    *rest = &rest[end + 1..];
    Ok(name)
}

fn take_document(rest: &mut &[u8]) -> Result<Document, BadInput> {
    if rest.len() < 5 {
        return Err(BadInput::Truncated("a document"));
    }
    let length = usize::try_from(i32_at(rest, 0)).map_err(|_| BadInput::Truncated("a document"))?;
    document(take(rest, length, "a document")?)
}

fn take_sequence(rest: &mut &[u8]) -> Result<(String, Vec<Bson>), BadInput> {
    let mut claimed = *rest;
    let size = i32::from_le_bytes(take_array(&mut claimed, "a sequence's size")?);
    let size = usize::try_from(size).map_err(|_| BadInput::Sections("negative size of a sequence"))?;
    let mut section = take(rest, size, "a sequence")?;
    let _size = take(&mut section, 4, "a sequence's size")?;
    let name = take_cstring(&mut section)?;
    let mut documents = Vec::new();
    while !section.is_empty() {
        documents.push(Bson::Document(take_document(&mut section)?));
    }
    Ok((name, documents))
}

/// Decodes one document that consists of exactly `bytes`; the depth is checked first, so that no
/// peer can exhaust the stack.
pub fn document(bytes: &[u8]) -> Result<Document, BadInput> {
    let raw = RawDocument::from_bytes(bytes).map_err(|error| BadInput::Bson(error.to_string()))?;
    check_depth(raw, 1)?;
    Document::try_from(raw).map_err(|error| BadInput::Bson(error.to_string()))
}

fn check_depth(document: &RawDocument, depth: usize) -> Result<(), BadInput> {
    if depth > DEPTH_MAX {
        return Err(BadInput::TooDeep);
    }
    for element in document {
        let (_, value) = element.map_err(|error| BadInput::Bson(error.to_string()))?;
        if let RawBsonRef::Document(inner) = value {
            check_depth(inner, depth + 1)?;
        } else if let RawBsonRef::Array(inner) = value {
            let inner = RawDocument::from_bytes(inner.as_bytes()).map_err(|error| BadInput::Bson(error.to_string()))?;
            check_depth(inner, depth + 1)?;
        } else if let RawBsonRef::JavaScriptCodeWithScope(code) = value {
            check_depth(code.scope, depth + 1)?;
        }
    }
    Ok(())
}

/// Writes one OP_MSG with a section of kind 0 into `out`, replacing its content. With
/// [`CHECKSUM_PRESENT`] in the flags the checksum is computed.
pub fn encode_msg(out: &mut Vec<u8>, request_id: i32, response_to: i32, flags: u32, body: &Document) {
    start(out, request_id, response_to, OP_MSG);
    out.extend_from_slice(&flags.to_le_bytes());
    out.push(0);
    append_document(out, body);
    if flags & CHECKSUM_PRESENT != 0 {
        out.extend_from_slice(&[0; 4]);
    }
    seal(out);
}

/// Writes one OP_QUERY into `out`.
pub fn encode_query(out: &mut Vec<u8>, request_id: i32, collection: &str, body: &Document) {
    start(out, request_id, 0, OP_QUERY);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(collection.as_bytes());
    out.push(0);
    out.extend_from_slice(&0_i32.to_le_bytes());
    out.extend_from_slice(&(-1_i32).to_le_bytes());
    append_document(out, body);
    seal(out);
}

/// Writes one OP_REPLY with one document into `out`.
pub fn encode_reply(out: &mut Vec<u8>, request_id: i32, response_to: i32, body: &Document) {
    const AWAIT_CAPABLE: u32 = 8;
    start(out, request_id, response_to, OP_REPLY);
    out.extend_from_slice(&AWAIT_CAPABLE.to_le_bytes());
    out.extend_from_slice(&0_i64.to_le_bytes());
    out.extend_from_slice(&0_i32.to_le_bytes());
    out.extend_from_slice(&1_i32.to_le_bytes());
    append_document(out, body);
    seal(out);
}

fn start(out: &mut Vec<u8>, request_id: i32, response_to: i32, op_code: i32) {
    out.clear();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&request_id.to_le_bytes());
    out.extend_from_slice(&response_to.to_le_bytes());
    out.extend_from_slice(&op_code.to_le_bytes());
}

fn append_document(out: &mut Vec<u8>, body: &Document) {
    // Writing into memory fails only for keys with a NUL, which this server never creates.
    body.to_writer(&mut *out).expect("a reply's keys have no NUL");
}

/// Sets the length, and the checksum if the flags announce one.
pub fn seal(frame: &mut [u8]) {
    let length = i32::try_from(frame.len()).expect("a frame is shorter than 2 GiB");
    frame[..4].copy_from_slice(&length.to_le_bytes());
    seal_checksum(frame);
}

/// Recomputes the checksum of an OP_MSG that announces one; other messages are unchanged.
pub fn seal_checksum(frame: &mut [u8]) {
    let announced = frame.len() > HEADER_BYTES + 4 && i32_at(frame, 12) == OP_MSG && frame[HEADER_BYTES] & 1 != 0;
    if announced {
        let at = frame.len() - 4;
        let sum = crc32c::crc32c(&frame[..at]);
        frame[at..].copy_from_slice(&sum.to_le_bytes());
    }
}
