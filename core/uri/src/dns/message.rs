//! Encoding of queries and decoding of replies.
//!
//! Read first: RFC 1035, 4 (messages); RFC 2181, 8 (times to live); RFC 2782; RFC 6891, 6.1 (how
//! large a datagram may be).

use super::answer::{Answer, RecordKind, SrvAnswer, SrvRecord};
use super::error::LookupError;
use super::outline::outline;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use simple_dns::rdata::{OPT, RData};
use simple_dns::{
    CLASS, Name, OPCODE, Packet, PacketFlag, QCLASS, QTYPE, Question, ResourceRecord, TYPE, header_buffer,
};

/// Maximum length of a name, in characters.
const NAME_MAX: usize = 253;
/// Maximum length of a label, in bytes.
const LABEL_MAX: usize = 63;
/// Maximum datagram size that common networks transport without fragmentation.
const DATAGRAM_BYTES: u16 = 1_232;
/// Maximum number of records and questions of a message.
const RECORDS_MAX: u32 = 1_000;

/// Whether the name can be looked up: labels of letters, digits, hyphens and underscores, separated
/// by dots.
pub(super) fn is_name(name: &str) -> bool {
    let is_label = |label: &str| (1..=LABEL_MAX).contains(&label.len()) && label.bytes().all(is_plain);
    name.len() <= NAME_MAX && name.split('.').all(is_label)
}

const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

const fn record_type(kind: RecordKind) -> TYPE {
    match kind {
        RecordKind::Srv => TYPE::SRV,
        RecordKind::Txt => TYPE::TXT,
        RecordKind::A => TYPE::A,
        RecordKind::Aaaa => TYPE::AAAA,
    }
}

/// Encodes a query. `edns`: whether to specify the maximum size of a reply; some servers reject
/// such queries.
pub(super) fn encode(id: u16, name: &str, kind: RecordKind, edns: bool) -> Result<Vec<u8>, LookupError> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new(name).map_err(|_| LookupError::Name)?;
    packet.questions.push(Question::new(name, QTYPE::TYPE(record_type(kind)), QCLASS::CLASS(CLASS::IN), false));
    if edns {
        *packet.opt_mut() = Some(OPT { opt_codes: Vec::new(), udp_packet_size: DATAGRAM_BYTES, version: 0 });
    }
    packet.build_bytes_vec().map_err(|_| LookupError::Name)
}

/// The classification of a received message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// Not a reply to this query: another id, another question, or not a reply at all.
    Foreign,
    /// A truncated reply: repeat the query over TCP.
    Truncated,
    /// The id matches, but the message is malformed.
    Malformed,
    /// The server returned this error code.
    Failed { code: u16 },
    /// Empty, and the server is neither authoritative nor recursive.
    Referral,
    /// The name does not exist.
    NoSuchName,
    /// No records of this type.
    NoRecords,
    /// An alias, after this number of steps, to a name without records in the reply.
    Alias { name: String, steps: u32 },
    /// More aliases than allowed.
    Aliases,
    /// A text record is not UTF-8.
    Text,
    /// Records of the requested type.
    Found(Answer),
}

/// Decodes a message as the reply to a query. At most `steps_max` aliases are followed. Linear in
/// the message.
pub(super) fn decode(bytes: &[u8], id: u16, name: &str, kind: RecordKind, steps_max: u32) -> Reply {
    let is_reply = header_buffer::has_flags(bytes, PacketFlag::RESPONSE).unwrap_or(false);
    if header_buffer::id(bytes) != Ok(id) || !is_reply {
        return Reply::Foreign;
    }
    // A truncated message may be malformed, so this is checked first.
    if header_buffer::has_flags(bytes, PacketFlag::TRUNCATION) == Ok(true) {
        return Reply::Truncated;
    }
    // The parser allocates memory for the number of records that the header claims.
    let counts = [
        header_buffer::questions(bytes),
        header_buffer::answers(bytes),
        header_buffer::name_servers(bytes),
        header_buffer::additional_records(bytes),
    ];
    let count: u32 = counts.into_iter().map(|count| count.map_or(0, u32::from)).sum();
    if count > RECORDS_MAX {
        return Reply::Malformed;
    }
    let mut bytes = bytes.to_vec();
    let Some(outline) = outline(&mut bytes, record_type(kind).into()) else { return Reply::Malformed };
    let Ok(packet) = Packet::parse(&bytes) else { return Reply::Malformed };
    let Ok(asked) = Name::new(name) else { return Reply::Foreign };
    // With an error code the question may be absent.
    let code = outline.code;
    let is_ours = |question: &Question<'_>| {
        question.qname == asked
            && question.qtype == QTYPE::TYPE(record_type(kind))
            && question.qclass == QCLASS::CLASS(CLASS::IN)
    };
    match packet.questions.as_slice() {
        [question] if is_ours(question) => {}
        [] if code != 0 => {}
        _ => return Reply::Foreign,
    }
    if packet.opcode() != OPCODE::StandardQuery {
        return Reply::Foreign;
    }
    match code {
        0 => find(&packet, &asked, kind, steps_max, outline.names_authority),
        3 => Reply::NoSuchName,
        code => Reply::Failed { code },
    }
}

/// Follows the aliases in a reply from the queried name to its records.
///
/// - `names_authority`: whether the message contains a start of authority (SOA).
fn find(packet: &Packet<'_>, asked: &Name<'_>, kind: RecordKind, steps_max: u32, names_authority: bool) -> Reply {
    let mut owner = asked;
    let mut ttl = u32::MAX;
    let mut steps = 0;
    loop {
        let owned = || packet.answers.iter().filter(|record| record.class == CLASS::IN && record.name == *owner);
        let found = || owned().filter(|record| record.rdata.type_code() == record_type(kind));
        if found().next().is_some() {
            ttl = found().map(seconds).fold(ttl, u32::min);
            return collect(found(), kind, Duration::from_secs(ttl.into()));
        }
        let alias = owned().find_map(|record| {
            let RData::CNAME(alias) = &record.rdata else { return None };
            Some((&alias.0, seconds(record)))
        });
        let Some((alias, alias_ttl)) = alias else { break };
        steps += 1;
        if steps > steps_max {
            return Reply::Aliases;
        }
        owner = alias;
        ttl = ttl.min(alias_ttl);
    }
    // A start of authority (SOA) together with an alias means that the alias has no such records.
    if names_authority {
        return Reply::NoRecords;
    }
    if steps == 0 {
        let knows = [PacketFlag::AUTHORITATIVE_ANSWER, PacketFlag::RECURSION_AVAILABLE];
        return if knows.iter().any(|flag| packet.has_flags(*flag)) { Reply::NoRecords } else { Reply::Referral };
    }
    let name = presented(owner);
    if is_name(&name) { Reply::Alias { name, steps } } else { Reply::NoRecords }
}

fn collect<'r, 'p: 'r>(
    records: impl Iterator<Item = &'r ResourceRecord<'p>>,
    kind: RecordKind,
    ttl: Duration,
) -> Reply {
    let (mut hosts, mut texts, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
    for record in records {
        if let RData::SRV(srv) = &record.rdata {
            let target = presented(&srv.target);
            // The root as a host means that the service does not exist.
            if !target.is_empty() {
                hosts.push(SrvRecord { target, port: srv.port });
            }
        } else if let RData::TXT(txt) = &record.rdata {
            let Ok(text) = String::try_from(txt.clone()) else { return Reply::Text };
            texts.push(text);
        } else if let RData::A(a) = &record.rdata {
            addresses.push(Ipv4Addr::from(a.address).into());
        } else if let RData::AAAA(aaaa) = &record.rdata {
            addresses.push(Ipv6Addr::from(aaaa.address).into());
        }
    }
    let (is_empty, answer) = match kind {
        RecordKind::Srv => (hosts.is_empty(), Answer::Srv(SrvAnswer { records: hosts, ttl })),
        RecordKind::Txt => (texts.is_empty(), Answer::Txt(texts)),
        RecordKind::A | RecordKind::Aaaa => (addresses.is_empty(), Answer::Addresses(addresses)),
    };
    if is_empty { Reply::NoRecords } else { Reply::Found(answer) }
}

/// The time to live of a record in seconds. Values beyond 31 bits count as zero (RFC 2181).
fn seconds(record: &ResourceRecord<'_>) -> u32 {
    if record.ttl > i32::MAX.unsigned_abs() { 0 } else { record.ttl }
}

/// Formats a name; all bytes that are not allowed in labels are escaped, so every dot separates
/// labels.
fn presented(name: &Name<'_>) -> String {
    let mut text = String::new();
    for (place, label) in name.as_bytes().enumerate() {
        if place > 0 {
            text.push('.');
        }
        for byte in label {
            if is_plain(*byte) {
                text.push(char::from(*byte));
            } else {
                // Writing to a `String` cannot fail.
                let _ = write!(text, "\\{byte:03}");
            }
        }
    }
    text
}
