use super::*;
use poolhouse_core::Reason;

fn started(lookup: &mut Lookup, millis: u64) -> LookupAction {
    lookup.poll_action(at(millis), 0xABCD_1234).unwrap()
}

fn found(hosts: &[&str], ttl: u64) -> Result<Answer, LookupError> {
    Ok(Answer::Srv(answer(hosts, ttl)))
}

#[test]
fn query_is_sent_to_the_first_server_and_its_answer_returned() {
    let mut lookup = lookup(&config(2));
    assert_eq!(lookup.poll_timeout(), None);
    assert_eq!(started(&mut lookup, 0), LookupAction::Datagram(server(1)));
    assert_eq!(lookup.poll_action(at(0), 0), None);
    assert_eq!(lookup.poll_timeout(), Some(at(5_000)));
    let request = Packet::parse(lookup.request()).unwrap();
    assert_eq!(request.id(), 0x1234);
    assert!(request.has_flags(PacketFlag::RECURSION_DESIRED) && !request.has_flags(PacketFlag::RESPONSE));
    assert_eq!(request.questions[0].qname.to_string(), NAME);
    assert_eq!(request.questions[0].qtype, QTYPE::TYPE(TYPE::SRV));
    assert_eq!(request.opt().unwrap().udp_packet_size, 1_232);

    let bytes = reply(lookup.request(), vec![srv(NAME, 90, "a.example.com", 1), srv(NAME, 70, "b.example.com", 2)]);
    lookup.handle_datagram(at(1), server(1), &bytes);
    assert!(lookup.is_done());
    assert_eq!((lookup.poll_timeout(), lookup.poll_action(at(1), 0)), (None, None));
    assert_eq!(lookup.into_result(), found(&["a.example.com:1", "b.example.com:2"], 70));
}

#[test]
fn servers_are_queried_in_turn_up_to_the_number_of_attempts() {
    let mut lookup = lookup(&config(2));
    for (round, number) in [1, 2, 1, 2].into_iter().enumerate() {
        let begin = round as u64 * 5_000;
        assert_eq!(started(&mut lookup, begin), LookupAction::Datagram(server(number)));
        lookup.handle_timeout(at(begin + 4_999));
        assert_eq!(lookup.poll_timeout(), Some(at(begin + 5_000)), "an early call changes nothing");
        lookup.handle_timeout(at(begin + 5_000));
    }
    assert!(lookup.is_done());
    assert_eq!(lookup.into_result(), Err(LookupError::Timeout));
}

#[test]
fn answer_at_the_deadline_is_late() {
    let mut lookup = lookup(&config(1));
    started(&mut lookup, 0);
    let bytes = reply(lookup.request(), vec![srv(NAME, 90, "a.example.com", 1)]);
    lookup.handle_datagram(at(5_000), server(1), &bytes);
    assert!(!lookup.is_done());
    assert_eq!(started(&mut lookup, 5_000), LookupAction::Datagram(server(1)));
}

/// A server that always replies at the last moment, and never with the answer, does not extend the
/// lookup.
#[test]
fn lookup_ends_after_the_time_of_all_attempts() {
    let mut aliases = 0_u32;
    let mut alias = |request: &[u8]| {
        aliases += 1;
        let asked = Packet::parse(request).unwrap().questions[0].qname.to_string();
        reply(request, vec![cname(&asked, 30, &alloc::format!("_mongodb._tcp.a{aliases}.example.com"))])
    };
    let cut = |request: &[u8]| reply_with(request, |packet| packet.set_flags(PacketFlag::TRUNCATION));
    let format_error = |request: &[u8]| refusal(request, RCODE::FormatError);
    for case in 0..3 {
        let mut lookup = lookup(&config(1));
        let mut now = 0;
        while !lookup.is_done() && lookup.poll_action(at(now), 7).is_some() {
            let until = lookup.poll_timeout().unwrap();
            assert!(until > at(now) && until <= at(10_000), "case {case}: {until:?}");
            now = (now + 4_999).min(9_999);
            let bytes = match case {
                0 => alias(lookup.request()),
                1 => cut(lookup.request()),
                _ => format_error(lookup.request()),
            };
            lookup.handle_datagram(at(now), server(1), &bytes);
            lookup.handle_stream(at(now), &prefixed(&bytes)[..1]);
            now += 1;
            if lookup.poll_timeout() == Some(at(now)) {
                lookup.handle_timeout(at(now));
            }
        }
        assert!(lookup.is_done() && now == 10_000, "case {case}: {now}");
        assert_eq!(lookup.into_result(), Err(LookupError::Timeout), "case {case}");
    }
}

/// For a host that was suspended meanwhile, or with timers that fire late.
#[test]
fn no_server_is_queried_after_the_time_of_all_attempts() {
    let mut lookup = lookup(&config(3));
    started(&mut lookup, 0);
    lookup.handle_failed();
    assert_eq!(lookup.poll_action(at(30_000), 7), None);
    assert!(lookup.is_done());
    assert_eq!(lookup.into_result(), Err(LookupError::Timeout));
}

#[test]
fn servers_rotate_if_configured() {
    let config = ResolverConfig { rotate: true, attempts: 1, ..config(3) };
    let mut lookup = Lookup::new(&config, NAME, RecordKind::Srv, 5).unwrap();
    for number in [3, 1, 2] {
        assert_eq!(started(&mut lookup, 0), LookupAction::Datagram(server(number)));
        lookup.handle_failed();
    }
    assert_eq!(lookup.into_result(), Err(LookupError::Unreachable(Reason::NONE)));
}

#[test]
fn at_most_three_servers_are_queried() {
    let mut lookup = lookup(&ResolverConfig { attempts: 1, ..config(9) });
    for number in 1..=3 {
        assert_eq!(started(&mut lookup, 0), LookupAction::Datagram(server(number)));
        lookup.handle_failed();
    }
    assert!(lookup.is_done());
}

#[test]
fn foreign_datagrams_change_nothing() {
    let mut lookup = lookup(&config(1));
    started(&mut lookup, 0);
    let evil = || vec![srv(NAME, 1, "evil.example.com", 1)];
    let good = reply(lookup.request(), evil());
    let other_name = |packet: &mut Packet<'_>| {
        let question = &mut packet.questions[0];
        question.qname = Name::new("_mongodb._tcp.other.example.com").unwrap();
        packet.answers = evil();
    };
    let foreign = [
        reply_with(lookup.request(), |packet| packet.set_id(0x1235)),
        reply_with(lookup.request(), other_name),
        reply_with(lookup.request(), |packet| packet.questions[0].qtype = QTYPE::TYPE(TYPE::TXT)),
        reply_with(lookup.request(), |packet| packet.questions[0].qclass = QCLASS::CLASS(CLASS::CH)),
        reply_with(lookup.request(), |packet| packet.questions.clear()),
        reply_with(lookup.request(), |packet| packet.questions.push(packet.questions[0].clone())),
        // A question, not an answer.
        lookup.request().to_vec(),
        Vec::new(),
        vec![0x12],
        vec![0x12, 0x34],
    ];
    for bytes in foreign {
        lookup.handle_datagram(at(1), server(1), &bytes);
        assert_eq!(lookup.poll_timeout(), Some(at(5_000)), "{bytes:?}");
    }
    for from in [server(2), SocketAddr::from(([10, 0, 0, 1], 5_353))] {
        lookup.handle_datagram(at(1), from, &good);
        assert!(!lookup.is_done(), "another source");
    }
    // Bytes of a stream that was not opened.
    lookup.handle_stream(at(1), &prefixed(&good));
    assert!(!lookup.is_done());
    lookup.handle_datagram(at(1), server(1), &good);
    assert!(lookup.is_done());
}

#[test]
fn answer_to_an_earlier_attempt_changes_nothing() {
    let mut lookup = lookup(&config(1));
    lookup.poll_action(at(0), 7).unwrap();
    let late = reply(lookup.request(), vec![srv(NAME, 1, "late.example.com", 1)]);
    lookup.handle_timeout(at(5_000));
    lookup.handle_datagram(at(5_000), server(1), &late);
    lookup.poll_action(at(5_000), 8).unwrap();
    lookup.handle_datagram(at(5_001), server(1), &late);
    assert_eq!(lookup.poll_timeout(), Some(at(10_000)));
}

#[test]
fn truncated_answer_is_requested_again_over_a_stream() {
    let mut lookup = lookup(&config(2));
    started(&mut lookup, 0);
    let mut cut = reply_with(lookup.request(), |packet| packet.set_flags(PacketFlag::TRUNCATION));
    cut.truncate(20);
    lookup.handle_datagram(at(1), server(1), &cut);
    assert_eq!(started(&mut lookup, 1), LookupAction::Stream(server(1)));
    assert_eq!(lookup.stream_request(), prefixed(lookup.request()));
    let bytes = prefixed(&reply(lookup.request(), vec![srv(NAME, 90, "a.example.com", 1)]));
    for byte in &bytes {
        assert!(!lookup.is_done());
        lookup.handle_stream(at(2), &[*byte]);
    }
    assert_eq!(lookup.into_result(), found(&["a.example.com:1"], 90));
}

#[test]
fn stream_that_fails_is_followed_by_the_next_server() {
    let foreign = |request: &[u8]| reply_with(request, |packet| packet.set_id(9));
    let cut = |request: &[u8]| reply_with(request, |packet| packet.set_flags(PacketFlag::TRUNCATION));
    for what in 0..5 {
        let mut lookup = lookup(&ResolverConfig { tcp: true, attempts: 1, ..config(2) });
        assert_eq!(started(&mut lookup, 0), LookupAction::Stream(server(1)));
        let request = lookup.request().to_vec();
        match what {
            0 => lookup.handle_stream(at(1), &[]),
            1 => lookup.handle_failed(),
            2 => lookup.handle_stream(at(1), &prefixed(&foreign(&request))),
            3 => lookup.handle_stream(at(1), &prefixed(&cut(&request))),
            _ => lookup.handle_stream(at(1), &[0, 0]),
        }
        assert_eq!(started(&mut lookup, 1), LookupAction::Stream(server(2)), "case {what}");
        // The bytes that were read from the first stream are discarded.
        lookup.handle_stream(at(2), &prefixed(&reply(lookup.request(), vec![srv(NAME, 1, "a.example.com", 1)])));
        assert_eq!(lookup.into_result(), found(&["a.example.com:1"], 1));
    }
}

#[test]
fn endless_stream_is_bounded() {
    let mut lookup = lookup(&ResolverConfig { tcp: true, attempts: 1, ..config(1) });
    started(&mut lookup, 0);
    lookup.handle_stream(at(1), &[0xFF; 40_000]);
    assert!(!lookup.is_done());
    lookup.handle_stream(at(1), &[0xFF; 40_000]);
    assert_eq!(lookup.into_result(), Err(LookupError::Malformed));
}

#[test]
fn missing_name_and_missing_records_are_distinguished() {
    for (code, result) in [(RCODE::NameError, LookupError::NoSuchName), (RCODE::NoError, LookupError::NoRecords)] {
        let mut lookup = lookup(&config(2));
        started(&mut lookup, 0);
        let bytes = refusal(lookup.request(), code);
        lookup.handle_datagram(at(1), server(1), &bytes);
        assert!(lookup.is_done() && result.is_not_found());
        assert_eq!(lookup.into_result(), Err(result));
    }
}

#[test]
fn server_that_fails_is_followed_by_the_next_one() {
    let mut lookup = lookup(&ResolverConfig { attempts: 1, ..config(3) });
    for (number, code) in [(1, RCODE::ServerFailure), (2, RCODE::Refused)] {
        assert_eq!(started(&mut lookup, 0), LookupAction::Datagram(server(number)));
        let bytes = refusal(lookup.request(), code);
        lookup.handle_datagram(at(1), server(number), &bytes);
    }
    assert_eq!(started(&mut lookup, 1), LookupAction::Datagram(server(3)));
    let bytes = refusal(lookup.request(), RCODE::ServerFailure);
    lookup.handle_datagram(at(1), server(3), &bytes);
    let error = lookup.into_result().unwrap_err();
    assert_eq!(error, LookupError::ServerFailed { code: 2 });
    assert!(!error.is_not_found());
}

/// The parser does not name all codes, and cannot name those of which a part is in the EDNS record.
#[test]
fn response_code_is_returned_unchanged() {
    for code in [6_u16, 11, 15, 16, 0x123, 0xFF0] {
        let mut lookup = lookup(&ResolverConfig { attempts: 1, ..config(1) });
        started(&mut lookup, 0);
        let edns = || OPT { opt_codes: Vec::new(), udp_packet_size: 1_232, version: 0 };
        let mut bytes = reply_with(lookup.request(), |packet| *packet.opt_mut() = Some(edns()));
        let [high, low] = (code >> 4 << 8 | code & 15).to_be_bytes();
        bytes[3] |= low;
        // The EDNS record is the last one. Its time to live begins six bytes before its end, with
        // the upper part of the code.
        let place = bytes.len() - 6;
        bytes[place] = high;
        lookup.handle_datagram(at(1), server(1), &bytes);
        assert_eq!(lookup.into_result(), Err(LookupError::ServerFailed { code }), "{code}");
    }
}

/// A server that does not resolve for its clients refers them to other servers. A referral is no
/// answer.
#[test]
fn referral_is_followed_by_the_next_server() {
    let mut lookup = lookup(&ResolverConfig { attempts: 1, ..config(2) });
    let referral = |request: &[u8]| {
        reply_with(request, |packet| {
            packet.remove_flags(PacketFlag::RECURSION_AVAILABLE);
            packet.name_servers = vec![record("com", 9, RData::NS(NS(Name::new("a.gtld-servers.net").unwrap())))];
        })
    };
    started(&mut lookup, 0);
    let bytes = referral(lookup.request());
    lookup.handle_datagram(at(1), server(1), &bytes);
    assert_eq!(started(&mut lookup, 1), LookupAction::Datagram(server(2)));
    let bytes = referral(lookup.request());
    lookup.handle_datagram(at(2), server(2), &bytes);
    let error = lookup.into_result().unwrap_err();
    assert_eq!(error, LookupError::Referral);
    assert!(!error.is_not_found());
}

/// A reply without records is an answer if the server resolves for clients, is authoritative, or
/// names an authoritative server.
#[test]
fn missing_records_are_accepted_from_resolving_or_authoritative_servers() {
    let changes: [fn(&mut Packet<'_>); 3] = [
        |packet| packet.set_flags(PacketFlag::RECURSION_AVAILABLE),
        |packet| packet.set_flags(PacketFlag::AUTHORITATIVE_ANSWER),
        |packet| packet.name_servers = vec![soa("example.com")],
    ];
    for change in changes {
        let mut lookup = lookup(&config(2));
        started(&mut lookup, 0);
        let bytes = reply_with(lookup.request(), |packet| {
            packet.remove_flags(PacketFlag::RECURSION_AVAILABLE);
            change(packet);
        });
        lookup.handle_datagram(at(1), server(1), &bytes);
        assert_eq!(lookup.into_result(), Err(LookupError::NoRecords));
    }
}

#[test]
fn server_without_edns_is_queried_again_without_it() {
    for code in [RCODE::FormatError, RCODE::NotImplemented] {
        let mut lookup = lookup(&ResolverConfig { attempts: 1, ..config(1) });
        started(&mut lookup, 0);
        // Such a server need not repeat the question.
        let bytes = reply_with(lookup.request(), |packet| {
            *packet.opt_mut() = None;
            packet.questions.clear();
            *packet.rcode_mut() = code;
        });
        lookup.handle_datagram(at(1), server(1), &bytes);
        assert_eq!(started(&mut lookup, 1), LookupAction::Datagram(server(1)));
        assert!(Packet::parse(lookup.request()).unwrap().opt().is_none());
        lookup.handle_datagram(at(2), server(1), &bytes);
        assert_eq!(lookup.into_result(), Err(LookupError::ServerFailed { code: code as u16 }));
    }
}

#[test]
fn malformed_reply_is_followed_by_the_next_server() {
    let mut lookup = lookup(&ResolverConfig { attempts: 1, ..config(2) });
    started(&mut lookup, 0);
    let mut bytes = reply(lookup.request(), vec![srv(NAME, 90, "a.example.com", 1)]);
    bytes.truncate(bytes.len() - 1);
    lookup.handle_datagram(at(1), server(1), &bytes);
    assert_eq!(started(&mut lookup, 1), LookupAction::Datagram(server(2)));
    // The header declares more records than the message contains.
    let mut bytes = reply(lookup.request(), Vec::new());
    bytes[6..8].copy_from_slice(&[0xFF, 0xFF]);
    lookup.handle_datagram(at(1), server(2), &bytes);
    assert_eq!(lookup.into_result(), Err(LookupError::Malformed));
}

#[test]
fn unresolved_alias_is_queried() {
    let mut lookup = lookup(&config(1));
    started(&mut lookup, 0);
    let bytes = reply(lookup.request(), vec![cname(NAME, 30, "_mongodb._tcp.alias.example.com")]);
    lookup.handle_datagram(at(1), server(1), &bytes);
    assert_eq!(started(&mut lookup, 1), LookupAction::Datagram(server(1)));
    let asked = Packet::parse(lookup.request()).unwrap().questions[0].qname.to_string();
    assert_eq!(asked, "_mongodb._tcp.alias.example.com");
    let bytes = reply(lookup.request(), vec![srv(&asked, 90, "a.example.com", 1)]);
    lookup.handle_datagram(at(2), server(1), &bytes);
    assert_eq!(lookup.into_result(), found(&["a.example.com:1"], 90));
}

#[test]
fn endless_aliases_are_an_error() {
    let mut lookup = lookup(&config(1));
    for step in 0_u32..8 {
        assert!(lookup.poll_action(at(0), step).is_some(), "step {step}");
        let asked = Packet::parse(lookup.request()).unwrap().questions[0].qname.to_string();
        let next = alloc::format!("_mongodb._tcp.a{step}.example.com");
        let bytes = reply(lookup.request(), vec![cname(&asked, 30, &next)]);
        lookup.handle_datagram(at(1), server(1), &bytes);
    }
    lookup.poll_action(at(1), 0).unwrap();
    let asked = Packet::parse(lookup.request()).unwrap().questions[0].qname.to_string();
    let bytes = reply(lookup.request(), vec![cname(&asked, 30, NAME)]);
    lookup.handle_datagram(at(1), server(1), &bytes);
    assert_eq!(lookup.into_result(), Err(LookupError::Aliases));
}

#[test]
fn invalid_name_is_not_queried() {
    let long = ["a"; 127].join(".") + ".b";
    let label = "a".repeat(64);
    for name in ["", ".", "a..b", ".a", "a b", "a\\.b", "\u{fc}", "a/b", &long, &label] {
        let error = Lookup::new(&config(1), name, RecordKind::Srv, 0).unwrap_err();
        assert_eq!(error, LookupError::Name, "{name}");
    }
    let error = Lookup::new(&config(0), NAME, RecordKind::Srv, 0).unwrap_err();
    assert_eq!(error, LookupError::Unreachable(Reason::NONE));
    assert!(Lookup::new(&config(1), "a.b.", RecordKind::A, 0).is_ok());
}
