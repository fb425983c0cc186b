use super::*;

/// Returns the result of a lookup that receives one answer.
fn result(name: &str, kind: RecordKind, change: impl FnOnce(&mut Packet<'_>)) -> Option<Result<Answer, LookupError>> {
    let mut lookup = Lookup::new(&ResolverConfig { attempts: 1, ..config(1) }, name, kind, 0).unwrap();
    lookup.poll_action(at(0), 7).unwrap();
    let bytes = reply_with(lookup.request(), change);
    lookup.handle_datagram(at(1), server(1), &bytes);
    lookup.is_done().then(|| lookup.into_result())
}

fn of(name: &str, kind: RecordKind, answers: Vec<ResourceRecord<'static>>) -> Option<Result<Answer, LookupError>> {
    result(name, kind, |packet| packet.answers = answers)
}

fn hosts(hosts: &[&str], ttl: u64) -> Option<Result<Answer, LookupError>> {
    Some(Ok(Answer::Srv(answer(hosts, ttl))))
}

#[test]
fn strings_of_a_text_are_joined_and_texts_are_not() {
    let answers = vec![txt("a.example.com", &["replicaS", "et=rep", "l0"]), txt("A.example.COM", &["x"])];
    assert_eq!(
        of("a.example.com", RecordKind::Txt, answers),
        Some(Ok(Answer::Txt(vec!["replicaSet=repl0".into(), "x".into()])))
    );
}

#[test]
fn text_that_is_not_utf8_is_an_error() {
    let bytes = [1, 0xFF];
    let data = RData::NULL(16, NULL::new(&bytes).unwrap());
    assert_eq!(of("a.b", RecordKind::Txt, vec![record("a.b", 1, data)]), Some(Err(LookupError::Text)));
}

#[test]
fn addresses_are_found_in_their_order() {
    let a = |last: u32| record("a.b", 1, RData::A(A { address: 0x0A00_0000 + last }));
    let Some(Ok(Answer::Addresses(found))) = of("a.b", RecordKind::A, vec![a(2), a(1)]) else { panic!("no address") };
    assert_eq!(found, [[10, 0, 0, 2], [10, 0, 0, 1]].map(core::net::IpAddr::from));
}

#[test]
fn aliases_are_followed_within_an_answer_and_limit_its_time_to_live() {
    let answers = vec![
        srv("c.example.com", 80, "x.example.com", 2),
        cname("B.example.com", 70, "c.example.com"),
        cname(NAME, 90, "b.example.com"),
        // No alias leads to this name.
        srv("d.example.com", 1, "evil.example.com", 3),
    ];
    assert_eq!(of(NAME, RecordKind::Srv, answers), hosts(&["x.example.com:2"], 70));
}

#[test]
fn circular_aliases_are_an_error() {
    for answers in [vec![cname(NAME, 1, NAME)], vec![cname(NAME, 1, "b.example.com"), cname("b.example.com", 1, NAME)]]
    {
        assert_eq!(of(NAME, RecordKind::Srv, answers), Some(Err(LookupError::Aliases)));
    }
}

#[test]
fn alias_without_records_has_none() {
    let change = |packet: &mut Packet<'_>| {
        packet.answers = vec![cname(NAME, 1, "b.example.com")];
        packet.name_servers = vec![soa("example.com")];
    };
    assert_eq!(result(NAME, RecordKind::Srv, change), Some(Err(LookupError::NoRecords)));
    // The alias is not a name that a question could contain.
    let strange = vec![cname(NAME, 1, r"b\.c.example.com")];
    assert_eq!(of(NAME, RecordKind::Srv, strange), Some(Err(LookupError::NoRecords)));
}

#[test]
fn records_of_other_names_classes_and_sections_are_ignored() {
    let mut chaos = srv(NAME, 1, "evil.example.com", 1);
    chaos.class = CLASS::CH;
    let change = |packet: &mut Packet<'_>| {
        packet.answers = vec![chaos, srv("other.example.com", 1, "evil.example.com", 1), txt(NAME, &["x"])];
        packet.additional_records = vec![srv(NAME, 1, "evil.example.com", 1)];
    };
    assert_eq!(result(NAME, RecordKind::Srv, change), Some(Err(LookupError::NoRecords)));
}

#[test]
fn root_as_a_host_means_no_host() {
    assert_eq!(of(NAME, RecordKind::Srv, vec![srv(NAME, 9, ".", 1)]), Some(Err(LookupError::NoRecords)));
    let answers = vec![srv(NAME, 9, ".", 1), srv(NAME, 9, "a.b", 1)];
    assert_eq!(of(NAME, RecordKind::Srv, answers), hosts(&["a.b:1"], 9));
}

#[test]
fn time_to_live_beyond_31_bits_is_zero() {
    assert_eq!(of(NAME, RecordKind::Srv, vec![srv(NAME, u32::MAX, "a.b", 1)]), hosts(&["a.b:1"], 0));
    let most = 0x7FFF_FFFF;
    assert_eq!(of(NAME, RecordKind::Srv, vec![srv(NAME, most, "a.b", 1)]), hosts(&["a.b:1"], most.into()));
}

#[test]
fn unusual_bytes_of_a_host_are_escaped() {
    let answers = vec![srv(NAME, 9, r"evil\.b\000\255.example.com", 1)];
    assert_eq!(of(NAME, RecordKind::Srv, answers), hosts(&[r"evil\046b\000\255.example.com:1"], 9));
}

#[test]
fn name_that_points_at_itself_is_an_error() {
    let mut lookup = Lookup::new(&ResolverConfig { attempts: 1, ..config(1) }, NAME, RecordKind::Srv, 0).unwrap();
    lookup.poll_action(at(0), 7).unwrap();
    for pointer in [0_u8, 12, 47, 49, 60] {
        let mut bytes = reply_with(lookup.request(), |packet| *packet.opt_mut() = None);
        assert_eq!(bytes.len(), 12 + NAME.len() + 2 + 4);
        bytes[7] = 1;
        // A record whose name and host are pointers.
        bytes.extend_from_slice(&[0xC0, pointer, 0, 33, 0, 1, 0, 0, 0, 9, 0, 8, 0, 0, 0, 0, 0, 1, 0xC0, pointer]);
        let mut lookup = Lookup::new(&ResolverConfig { attempts: 1, ..config(1) }, NAME, RecordKind::Srv, 0).unwrap();
        lookup.poll_action(at(0), 7).unwrap();
        lookup.handle_datagram(at(1), server(1), &bytes);
        let result = lookup.into_result();
        let is_sound = matches!(result, Ok(Answer::Srv(_)));
        assert_eq!(is_sound, pointer == 12, "{pointer}: {result:?}");
    }
}

/// The result for a reply with these records after its question, given as bytes.
fn raw(answers: u16, records: &[u8]) -> Option<Result<Answer, LookupError>> {
    let mut lookup = Lookup::new(&ResolverConfig { attempts: 1, ..config(1) }, NAME, RecordKind::Srv, 0).unwrap();
    lookup.poll_action(at(0), 7).unwrap();
    let mut bytes = reply_with(lookup.request(), |packet| *packet.opt_mut() = None);
    bytes[6..8].copy_from_slice(&answers.to_be_bytes());
    bytes.extend_from_slice(records);
    lookup.handle_datagram(at(1), server(1), &bytes);
    lookup.is_done().then(|| lookup.into_result())
}

fn raw_record(owner: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap();
    [owner, &kind.to_be_bytes(), &[0, 1, 0, 0, 0, 9], &length.to_be_bytes(), data].concat()
}

fn pointer(to: usize) -> [u8; 2] {
    (0xC000 | u16::try_from(to).unwrap()).to_be_bytes()
}

/// 2 bytes of a pointer, and 10 of the other fields.
const RECORD_HEAD: usize = 12;

/// A record with this many pointers, each to the one before, and the first to the question.
fn chain(length: usize) -> Vec<u8> {
    let begin = 12 + NAME.len() + 2 + 4 + RECORD_HEAD;
    let before = |place: usize| if place == 0 { 12 } else { begin + 2 * (place - 1) };
    let pointers: Vec<u8> = (0..length).flat_map(|place| pointer(before(place))).collect();
    raw_record(&pointer(12), 10, &pointers)
}

/// The offset of the last pointer of such a record.
fn end_of_chain(length: usize) -> usize {
    12 + NAME.len() + 2 + 4 + RECORD_HEAD + 2 * (length - 1)
}

#[test]
fn steps_through_names_are_limited_by_the_length_of_the_message() {
    // One such name is expensive, but only one is read.
    let length = 7_000;
    let end = pointer(end_of_chain(length));
    let host = [&[0, 0, 0, 0, 0, 1][..], &end].concat();
    let one = [chain(length), raw_record(&end, 33, &host)].concat();
    assert_eq!(raw(2, &one), hosts(&[&alloc::format!("{NAME}:1")], 9));
    // Three bytes of a message must not each cost thousands of steps.
    let question = pointer(12);
    for (owner, kind, data) in [(end, 1, &[1, 2, 3, 4][..]), (question, 33, &host), (question, 5, &end)] {
        let many = [chain(length), raw_record(&owner, kind, data).repeat(900)].concat();
        let is_refused = matches!(raw(901, &many), Some(Err(LookupError::Malformed)));
        assert!(is_refused, "{kind}");
    }
}

/// Records of other kinds are not read, even if reading them is expensive or impossible.
#[test]
fn records_of_other_kinds_are_not_parsed() {
    let beyond = pointer(0x3FFF);
    // NS, MINFO, MX, A.
    for (kind, data) in [(2, &beyond[..]), (14, &[beyond, beyond].concat()), (15, &[0, 0]), (1, &[1])] {
        let other = raw_record(&pointer(12), kind, data);
        let host = raw_record(&pointer(12), 33, b"\0\0\0\0\0\x01\x01a\x01b\0");
        assert_eq!(raw(2, &[other, host].concat()), hosts(&["a.b:1"], 9), "{kind}");
    }
}

/// The parser would allocate memory for the number that the header claims.
#[test]
fn answer_that_claims_more_than_a_thousand_records_is_malformed() {
    let host = raw_record(&pointer(12), 33, b"\0\0\0\0\0\x01\x01a\x01b\0");
    // The question is one of them.
    assert!(matches!(raw(999, &host.repeat(999)), Some(Ok(Answer::Srv(_)))));
    assert_eq!(raw(1_000, &host.repeat(1_000)), Some(Err(LookupError::Malformed)));
}

#[test]
fn long_names_of_many_records_are_followed() {
    // Names of 34 labels, like those of IPv6 addresses, as one pointer each.
    let name = ["a"; 34].join(".");
    let records: Vec<_> = (0..900).map(|last| record(&name, 1, RData::A(A { address: last }))).collect();
    let mut lookup = Lookup::new(&ResolverConfig { attempts: 1, ..config(1) }, &name, RecordKind::A, 0).unwrap();
    lookup.poll_action(at(0), 7).unwrap();
    let mut packet = Packet::parse(lookup.request()).unwrap().into_reply();
    packet.answers = records;
    lookup.handle_datagram(at(1), server(1), &packet.build_bytes_vec_compressed().unwrap());
    assert!(matches!(lookup.into_result(), Ok(Answer::Addresses(found)) if found.len() == 900));
}

#[test]
fn ipv6_addresses_are_returned_if_requested() {
    use core::net::{IpAddr, Ipv6Addr};
    use simple_dns::rdata::AAAA;
    let one = record("a_b-c.d", 1, RData::AAAA(AAAA { address: 1 }));
    let other = record("a_b-c.d", 1, RData::A(A { address: 0x0A00_0001 }));
    let found = of("a_b-c.d", RecordKind::Aaaa, vec![other, one]);
    assert_eq!(found, Some(Ok(Answer::Addresses(vec![IpAddr::V6(Ipv6Addr::LOCALHOST)]))));
}

/// A message that is not the answer to a query is ignored.
#[test]
fn reply_to_another_operation_is_ignored() {
    let mut lookup = Lookup::new(&ResolverConfig { attempts: 1, ..config(1) }, NAME, RecordKind::Srv, 0).unwrap();
    lookup.poll_action(at(0), 7).unwrap();
    let mut bytes = reply_with(lookup.request(), |packet| packet.answers = vec![srv(NAME, 1, "x.example.com", 1)]);
    // The operation is in the bits after the reply bit: 4 is a notification by the server.
    bytes[2] |= 4 << 3;
    lookup.handle_datagram(at(1), server(1), &bytes);
    assert!(!lookup.is_done());
}

/// A record with a kind and without data.
#[test]
fn record_without_data_is_ignored() {
    for (kind, of_kind) in [
        (RecordKind::A, TYPE::A),
        (RecordKind::Aaaa, TYPE::AAAA),
        (RecordKind::Srv, TYPE::SRV),
        (RecordKind::Txt, TYPE::TXT),
    ] {
        let hollow = record("a.b", 1, RData::Empty(of_kind));
        assert_eq!(of("a.b", kind, vec![hollow]), Some(Err(LookupError::NoRecords)), "{kind:?}");
    }
}
