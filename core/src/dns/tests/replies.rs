use super::*;

/// What a lookup makes of the one answer it gets.
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
fn aliases_are_followed_within_an_answer_and_shorten_its_life() {
    let answers = vec![
        srv("c.example.com", 80, "x.example.com", 2),
        cname("B.example.com", 70, "c.example.com"),
        cname(NAME, 90, "b.example.com"),
        // Nobody's alias.
        srv("d.example.com", 1, "evil.example.com", 3),
    ];
    assert_eq!(of(NAME, RecordKind::Srv, answers), hosts(&["x.example.com:2"], 70));
}

#[test]
fn aliases_that_go_round_in_circles_are_an_error() {
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
    // The alias is no name that could be asked for.
    let strange = vec![cname(NAME, 1, r"b\.c.example.com")];
    assert_eq!(of(NAME, RecordKind::Srv, strange), Some(Err(LookupError::NoRecords)));
}

#[test]
fn records_of_other_names_classes_and_sections_do_not_count() {
    let mut chaos = srv(NAME, 1, "evil.example.com", 1);
    chaos.class = CLASS::CH;
    let change = |packet: &mut Packet<'_>| {
        packet.answers = vec![chaos, srv("other.example.com", 1, "evil.example.com", 1), txt(NAME, &["x"])];
        packet.additional_records = vec![srv(NAME, 1, "evil.example.com", 1)];
    };
    assert_eq!(result(NAME, RecordKind::Srv, change), Some(Err(LookupError::NoRecords)));
}

#[test]
fn root_as_a_host_says_that_there_is_none() {
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
fn strange_bytes_of_a_host_are_escaped() {
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
        // A record whose name is a pointer, and whose host is, too.
        bytes.extend_from_slice(&[0xC0, pointer, 0, 33, 0, 1, 0, 0, 0, 9, 0, 8, 0, 0, 0, 0, 0, 1, 0xC0, pointer]);
        let mut lookup = Lookup::new(&ResolverConfig { attempts: 1, ..config(1) }, NAME, RecordKind::Srv, 0).unwrap();
        lookup.poll_action(at(0), 7).unwrap();
        lookup.handle_datagram(at(1), server(1), &bytes);
        let result = lookup.into_result();
        let is_sound = matches!(result, Ok(Answer::Srv(_)));
        assert_eq!(is_sound, pointer == 12, "{pointer}: {result:?}");
    }
}
