//! Arbitrary replies of name servers. Lookups must always end.

use core::net::SocketAddr;
use core::time::Duration;

use poolhouse_core::Instant;
use poolhouse_core::topology::TopologyType;
use poolhouse_uri::dns::{
    Answer, Lookup, LookupAction, LookupError, RecordKind, ResolverConfig, SrvAnswer, SrvPoll, SrvQuestion,
    hosts_addresses,
};
use poolhouse_uri::{ConnectionString, Host, Scheme};

use crate::choices::{Bytes, Choices};

#[cfg(test)]
mod tests;

const KINDS: [RecordKind; 4] = [RecordKind::Srv, RecordKind::Txt, RecordKind::A, RecordKind::Aaaa];
const NAME: &str = "_mongodb._tcp.x.b.example.com";
const URI: &str = "mongodb+srv://x.b.example.com/";
const DOMAIN: &str = ".b.example.com";

/// Processes the bytes as system files, as the reply of a server, and as a whole conversation.
pub fn dns(data: &[u8]) {
    files(&String::from_utf8_lossy(data));
    for kind in KINDS {
        answered(data, kind);
    }
    conversation(&mut Bytes::new(data), data);
}

fn files(text: &str) {
    let config = ResolverConfig::parse(text);
    assert!((1..=3).contains(&config.servers.len()));
    assert!((1..=5).contains(&config.attempts));
    assert!((Duration::from_secs(1)..=Duration::from_secs(30)).contains(&config.timeout));
    for host in ["a", "a.b", text] {
        let names = config.candidates(host);
        assert!((1..=33).contains(&names.len()));
        assert!(hosts_addresses(text, host).len() <= 64);
    }
}

/// A lookup receives these bytes after the valid beginning of a reply.
fn answered(data: &[u8], kind: RecordKind) {
    let server = SocketAddr::from(([10, 0, 0, 1], 53));
    let config = ResolverConfig { attempts: 1, ..ResolverConfig::new(vec![server]) };
    let now = Instant::ORIGIN;
    let begin = |lookup: &mut Lookup| {
        assert_eq!(lookup.poll_action(now, 7), Some(LookupAction::Datagram(server)));
        let mut bytes = lookup.request().to_vec();
        // The question stays; flags and counts are from the bytes.
        bytes.truncate(12 + NAME.len() + 2 + 4);
        bytes[2] |= 0x80;
        bytes[11] = 0;
        for (place, byte) in [(3, 0), (7, 1), (9, 2), (11, 3)] {
            bytes[place] = data.get(byte).map_or(0, |byte| byte % 8);
        }
        bytes.extend_from_slice(data.get(4..).unwrap_or_default());
        bytes
    };
    let mut lookup = Lookup::new(&config, NAME, kind, 0).expect("a name");
    let bytes = begin(&mut lookup);
    lookup.handle_datagram(now, server, &bytes);
    // A stream must return the same result, whole or in pieces.
    let mut stream = Lookup::new(&ResolverConfig { tcp: true, ..config }, NAME, kind, 0).expect("a name");
    assert_eq!(stream.poll_action(now, 7), Some(LookupAction::Stream(server)));
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    stream.handle_stream(now, &length.to_be_bytes());
    for piece in bytes.chunks(7) {
        stream.handle_stream(now, piece);
    }
    if bytes.len() < usize::from(u16::MAX) && lookup.is_done() {
        assert!(stream.is_done());
        assert_eq!(format!("{:?}", lookup.into_result()), format!("{:?}", stream.into_result()));
    }
    // The bytes unchanged.
    let mut lookup = Lookup::new(&ResolverConfig::new(vec![server]), NAME, kind, 0).expect("a name");
    lookup.poll_action(now, 7).expect("an attempt");
    lookup.handle_datagram(now, server, data);
}

/// A lookup with several servers that answer correctly, wrongly, late or not at all.
fn conversation(choices: &mut impl Choices, data: &[u8]) {
    let servers = [0, 1, 2, 3].map(|last| SocketAddr::from(([10, 0, 0, last], 53)));
    let count = 1 + choices.index(servers.len());
    let mut config = ResolverConfig::new(servers[..count].to_vec());
    config.attempts = 1 + choices.below(5);
    config.rotate = choices.one_in(2);
    config.tcp = choices.one_in(4);
    let attempts_max = count.min(3) * config.attempts as usize;
    let kind = choices.one_of(&KINDS);
    let mut lookup = Lookup::new(&config, NAME, kind, choices.below(9)).expect("a name");
    let mut now = Instant::ORIGIN;
    let (mut begun, mut server) = (0, config.servers[0]);
    // The bound holds however often servers cause another attempt.
    let time = config.timeout * u32::try_from(attempts_max).expect("a few");
    let mut deadline = None;
    while !lookup.is_done() {
        if let Some(action) = lookup.poll_action(now, choices.below(4)) {
            begun += 1;
            // All attempts, each repeated once over a stream, one more for the datagram size, and
            // one for each alias.
            assert!(begun <= 2 * (attempts_max + 9), "too many attempts");
            deadline.get_or_insert(now.saturating_add(time));
            let (LookupAction::Datagram(to) | LookupAction::Stream(to)) = action;
            server = to;
            assert!(config.servers.contains(&to));
        }
        if lookup.is_done() {
            assert!(deadline.is_some_and(|deadline| deadline <= now), "there is time for an attempt");
            break;
        }
        let until = lookup.poll_timeout().expect("an attempt has a deadline");
        assert!(until > now);
        assert!(deadline.is_some_and(|deadline| until <= deadline), "the attempt exceeds the lookup's deadline");
        match choices.below(8) {
            0 | 1 => lookup.handle_datagram(now, server, &spoken(&lookup, choices, data)),
            2 => {
                let message = spoken(&lookup, choices, data);
                let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
                lookup.handle_stream(now, &[&length.to_be_bytes()[..], &message].concat());
            }
            3 => lookup.handle_stream(now, data),
            4 => lookup.handle_datagram(now, SocketAddr::from(([10, 9, 9, 9], 53)), &spoken(&lookup, choices, data)),
            5 => lookup.handle_failed(),
            6 => now = now.saturating_add(Duration::from_millis(choices.below(4_000).into())),
            _ => now = until,
        }
        lookup.handle_timeout(now);
        // An exhausted fuzzer lets time pass.
        if choices.is_over() {
            now = now.saturating_add(Duration::from_secs(1));
            lookup.handle_timeout(now);
        }
    }
    assert_eq!((lookup.poll_timeout(), lookup.poll_action(now, 0)), (None, None));
    match lookup.into_result() {
        Ok(Answer::Srv(answer)) => hosts(&answer, choices),
        Ok(Answer::Txt(texts)) => texts.iter().for_each(|text| options(text)),
        Ok(Answer::Addresses(addresses)) => assert!(!addresses.is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A more or less correct reply to the request in flight.
fn spoken(lookup: &Lookup, choices: &mut impl Choices, data: &[u8]) -> Vec<u8> {
    let mut bytes = lookup.request().to_vec();
    // The last record contains the maximum datagram size.
    let question = bytes.len() - if bytes[11] == 1 { 11 } else { 0 };
    bytes[2] |= 0x80;
    bytes[3] = choices.one_of(&[0, 0, 0, 0, 1, 2, 3, 4]);
    if choices.one_in(8) {
        bytes[2] |= 2;
    }
    if choices.one_in(8) {
        bytes[1] = bytes[1].wrapping_add(1);
    }
    bytes.truncate(question);
    bytes[11] = 0;
    // The requested kind of record.
    let kind = bytes[question - 3];
    let count = choices.one_of(&[0_u8, 1, 2, 3]);
    bytes[7] = count;
    for _ in 0..count {
        let name = choices.one_of(&[
            &b"\x01a\xc0\x1a"[..],
            b"\xc0\x0c",
            b"\x01e\x01b\x07example\x03com\0",
            b"\x04evil\x03com\0",
            b"\xc0\x40",
            b"\0",
        ]);
        let (kind, rest) = match (choices.below(4), kind) {
            (0, _) => (5, name.to_vec()),
            (_, 33) => (33, [&[0, 0, 0, 0, 0x69, 0x87], name].concat()),
            (_, 16) => (16, [&[20], &b"replicaSet=abcdefghi"[..]].concat()),
            (_, kind) => (kind, data.iter().copied().take(16).collect()),
        };
        let owner = choices.one_of(&[&b"\xc0\x0c"[..], b"\xc0\x0c", name]);
        bytes.extend_from_slice(owner);
        let length = u16::try_from(rest.len()).unwrap_or(u16::MAX);
        bytes.extend_from_slice(&[0, kind, 0, 1, 0, 0, 0, 60]);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&rest);
    }
    bytes
}

fn options(text: &str) {
    let uri = ConnectionString::parse(URI).expect("a string");
    let host = Host::tcp("a.b.example.com", Some(1)).expect("a host");
    if let Ok(resolved) = uri.resolved(vec![host], Some(text)) {
        assert_eq!(resolved.scheme(), Scheme::Mongodb);
        assert!(resolved.tls(), "a TXT record must not change the option tls");
    }
}

/// Hosts of an answer are accepted only within the domain.
fn hosts(answer: &SrvAnswer, choices: &mut impl Choices) {
    let max = choices.below(4);
    let uri = ConnectionString::parse(&format!("{URI}?srvMaxHosts={max}")).expect("a string");
    let question = SrvQuestion::of(&uri).expect("a connection string with SRV lookup");
    let limit = if max == 0 { usize::MAX } else { max as usize };
    let holds = |hosts: &[Host]| {
        assert!((1..=limit).contains(&hosts.len()));
        assert!(hosts.iter().all(|host| host.name().ends_with(DOMAIN)), "{hosts:?}");
    };
    let entropy = choices.below(u32::MAX).into();
    if let Ok(resolved) = question.resolve(&uri, answer, &[], entropy) {
        holds(resolved.hosts());
    }
    let now = Instant::ORIGIN;
    let mut poll = SrvPoll::new(now, question, answer.ttl, Duration::from_secs(10));
    let due = poll.poll_timeout().expect("it continues");
    assert!(due >= now.saturating_add(Duration::from_secs(60)));
    assert!(poll.poll_question(due).is_some());
    if choices.one_in(4) {
        poll.handle_topology(TopologyType::ReplicaSetNoPrimary);
    }
    let current = ["z.b.example.com:27015", "e.b.example.com:27015"];
    let current = &current[..current.len().min(limit)];
    let result = if choices.one_in(4) { Err(LookupError::Timeout) } else { Ok(answer) };
    if let Ok(Some(hosts)) = poll.handle_answer(due, result, current.iter().copied(), entropy) {
        assert!(!poll.is_stopped());
        holds(&hosts);
    }
    assert_eq!(poll.poll_timeout().is_none(), poll.is_stopped());
}
