use super::*;

fn seeds(uri: &str) -> Vec<String> {
    quiet(uri).seeds().map(Into::into).collect()
}

#[test]
#[doc(alias = "SDAM-04")]
fn names_are_in_lower_case_and_paths_as_they_are() {
    assert_eq!(seeds("mongodb://A.Example.COM,[FE80::A]:1/"), ["a.example.com", "[fe80::a]:1"]);
    assert_eq!(seeds("mongodb://%2FTmp%2FA.sock"), ["/Tmp/A.sock"]);
}

#[test]
fn kinds_names_and_ports_of_hosts_are_distinguished() {
    let uri = quiet("mongodb://a,127.0.0.1:2,[::1]:3,rel%2Fb.sock,c.sock,256.0.0.1");
    let found: Vec<_> = uri.hosts().iter().map(|host| (host.kind(), host.name(), host.port())).collect();
    let wanted = [
        (HostKind::Name, "a", None),
        (HostKind::Ipv4, "127.0.0.1", Some(2)),
        (HostKind::Ipv6, "::1", Some(3)),
        (HostKind::Unix, "rel/b.sock", None),
        (HostKind::Name, "c.sock", None),
        (HostKind::Name, "256.0.0.1", None),
    ];
    assert_eq!(found, wanted);
}

#[test]
fn name_that_looks_like_a_path_is_a_seed_with_its_port() {
    assert_eq!(seeds("mongodb://a.sock"), ["a.sock:27017"]);
}

#[test]
fn every_host_is_a_valid_seed() {
    let long = "a".repeat(255);
    let uri = format!("mongodb://a,B:1,[fe80::1%25eth0],127.0.0.1,%2Fa%20b.sock,{long},\u{fc}.com,%C3%BC");
    let uri = quiet(&uri);
    let seeds: Vec<_> = uri.seeds().collect();
    uri.topology_options(&seeds).validate().unwrap();
}

#[test]
fn invalid_host_is_an_error_at_its_offset() {
    for (uri, kind, offset) in [
        ("mongodb://", UriErrorKind::NoHost, 10),
        ("mongodb://a,,b", UriErrorKind::NoHost, 12),
        ("mongodb://a,", UriErrorKind::NoHost, 12),
        ("mongodb:///tmp/a.sock", UriErrorKind::NoHost, 10),
        ("mongodb://a b", UriErrorKind::Host, 10),
        ("mongodb://u:p@a,b%00", UriErrorKind::Text, 16),
        ("mongodb://a%0a", UriErrorKind::Host, 10),
        ("mongodb://a,%zz", UriErrorKind::Escape, 12),
        ("mongodb://%ff", UriErrorKind::Text, 10),
        ("mongodb://[::1", UriErrorKind::Host, 10),
        ("mongodb://[::1]x", UriErrorKind::Host, 10),
        ("mongodb://[a]", UriErrorKind::Host, 10),
        ("mongodb://[::1%25]", UriErrorKind::Host, 10),
        ("mongodb://[::1%eth0]", UriErrorKind::Escape, 14),
        ("mongodb://a:", UriErrorKind::Port, 12),
        ("mongodb://a:+1", UriErrorKind::Port, 12),
        ("mongodb://a:000001", UriErrorKind::Port, 12),
        ("mongodb://b,a:65536", UriErrorKind::Port, 14),
        ("mongodb://%2Ftmp%2Fa", UriErrorKind::Socket, 10),
        ("mongodb://%2Ftmp%2Fa.sock:1", UriErrorKind::Socket, 10),
        ("mongodb://%2Ftmp%0a.sock", UriErrorKind::Host, 10),
    ] {
        assert_eq!((error(uri).kind(), error(uri).offset()), (kind, Some(offset)), "{uri}");
    }
}

#[test]
fn ipv6_address_without_brackets_is_an_error_with_the_remedy() {
    for host in
        ["::1", "::", "fe80::1", "fe80::1%25eth0", "2001:db8::1:27017", "1:2:3:4:5:6:7:8:27017", "::ffff:1.2.3.4"]
    {
        let error = error(&format!("mongodb://b,{host}/db"));
        assert_eq!((error.kind(), error.offset()), (UriErrorKind::Ipv6Brackets, Some(12)), "{host}");
    }
    // These are not IPv6 addresses.
    for host in ["a:b", "a:1:2", "::x", "db:"] {
        assert_eq!(error(&format!("mongodb://{host}")).kind(), UriErrorKind::Port, "{host}");
    }
    assert_eq!(error("mongodb://::1:27017/").to_string(), "an IPv6 address must be enclosed in [ and ] (at byte 10)");
}

#[test]
fn host_longer_than_any_name_is_an_error() {
    assert_eq!(error(&format!("mongodb://{}", "a".repeat(256))).kind(), UriErrorKind::Host);
    assert_eq!(error(&format!("mongodb://%2F{}.sock", "a".repeat(256))).kind(), UriErrorKind::Host);
    let zoned = |zone: usize| format!("mongodb://[::1%25{}]", "a".repeat(zone));
    assert_eq!(seeds(&zoned(249)), [format!("[::1%{}]", "a".repeat(249))]);
    assert_eq!(error(&zoned(250)).kind(), UriErrorKind::Host);
}

#[test]
fn srv_requires_one_name_without_a_port() {
    assert_eq!(seeds("mongodb+srv://A.Example.com."), ["a.example.com"]);
    assert_eq!(seeds("mongodb+srv://localhost/db"), ["localhost"]);
    let long = format!("mongodb+srv://{}.com", "a".repeat(64));
    for uri in [
        "mongodb+srv://a,b",
        "mongodb+srv://a:1",
        "mongodb+srv://[::1]",
        "mongodb+srv://127.0.0.1",
        "mongodb+srv://a..b",
        &long,
    ] {
        assert_eq!((error(uri).kind(), error(uri).offset()), (UriErrorKind::SrvHost, Some(14)), "{uri}");
    }
    assert_eq!(error("mongodb+srv://").kind(), UriErrorKind::NoHost);
    assert_eq!(error("mongodb+srv://u:p@").offset(), Some(18));
}

#[test]
fn host_from_a_lookup_follows_the_same_rules() {
    assert_eq!(Host::tcp("DB1.Example.com", Some(1)).unwrap().as_str(), "db1.example.com:1");
    assert_eq!(Host::tcp("::1", None).unwrap().as_str(), "[::1]");
    assert_eq!(Host::tcp("[::1]", Some(2)).unwrap().to_string(), "[::1]:2");
    for (name, port) in [("", None), ("a b", None), ("a/b", None), ("a:1", None), ("a", Some(0))] {
        Host::tcp(name, port).unwrap_err();
    }
}

#[test]
fn database_is_decoded_and_may_be_a_namespace() {
    assert_eq!(quiet("mongodb://a/d%3Fb.c?w=1").database(), Some("d?b.c"));
    assert_eq!(quiet("mongodb://a/").database(), None);
    assert_eq!(quiet("mongodb://a?w=1").database(), None);
    for uri in [
        "mongodb://a/b/c",
        "mongodb://a/b%2Fc",
        "mongodb://a/$b",
        "mongodb://a/b%20c",
        "mongodb://a/%22",
        "mongodb://a/b\\",
    ] {
        assert_eq!((error(uri).kind(), error(uri).offset()), (UriErrorKind::Database, Some(12)), "{uri}");
    }
    assert_eq!(error("mongodb://a/%00").kind(), UriErrorKind::Text);
}

#[test]
fn hosts_are_printed_as_they_are_parsed() {
    let uri = quiet("mongodb://a,127.0.0.1:2,[fe80::1]:3,[::1],rel%2Fb.sock");
    assert_eq!(parse(&uri.to_string()), uri);
    assert!(uri.to_string().contains("127.0.0.1:2,[fe80::1]:3,[::1],"), "{uri}");
}

#[test]
fn strings_with_different_meanings_are_different() {
    let uri = |text: &str| parse(text);
    assert_eq!(uri("mongodb://A/?unknown=1"), uri("mongodb://a/"), "what is ignored makes no difference");
    assert_ne!(uri("mongodb://a/"), uri("mongodb+srv://a.b.c/"));
    assert_ne!(uri("mongodb://a/"), uri("mongodb://b/"));
    assert_ne!(uri("mongodb://a/x"), uri("mongodb://a/y"));
    assert_ne!(uri("mongodb://a/"), uri("mongodb://a/?tls=true"));
    assert_ne!(uri("mongodb://u:p@a/"), uri("mongodb://u:q@a/"));
}
