use super::*;
use crate::UriErrorKind;

/// Whether a host may be used for this string.
fn fits(host: &str, target: &str) -> bool {
    question(&alloc::format!("mongodb+srv://{host}")).check(&SrvRecord::new(target, 27_017)).is_some()
}

#[test]
fn query_name_is_made_of_service_and_host() {
    let question = question("mongodb+srv://Cluster.Example.com./?srvMaxHosts=2");
    assert_eq!(question.srv_name(), "_mongodb._tcp.cluster.example.com");
    assert_eq!(question.txt_name(), "cluster.example.com");
    assert_eq!(question.hosts_max(), Some(2));
    assert_eq!(super::question("mongodb+srv://a.b/?srvServiceName=x").srv_name(), "_x._tcp.a.b");
    assert_eq!(SrvQuestion::of(&ConnectionString::parse("mongodb://a").unwrap()), None);
}

#[test]
fn host_must_be_in_the_domain_after_the_first_dot() {
    assert!(fits("a.b.example.com", "x.b.example.com"));
    assert!(fits("a.b.example.com", "X.Y.B.Example.COM."));
    assert!(fits("a.b.example.com", "a.b.example.com"));
    for target in
        ["b.example.com", "x.example.com", "xb.example.com", "x.b.example.org", "evil.com", ".b.example.com", ""]
    {
        assert!(!fits("a.b.example.com", target), "{target}");
    }
}

#[test]
fn host_of_a_short_name_must_have_one_more_label() {
    for (host, target) in
        [("localhost", "a.localhost"), ("mongo.local", "a.mongo.local"), ("mongo.local", "a.b.mongo.local")]
    {
        assert!(fits(host, target), "{host} {target}");
    }
    for (host, target) in [
        ("localhost", "localhost"),
        ("localhost", "localhost.mongodb"),
        ("localhost", "test_1.cluster_1localhost"),
        ("mongo.local", "mongo.local"),
        ("mongo.local", "test_1.evil.local"),
        ("mongo.local", "test_1.my_hostmongo.local"),
        ("mongo.local", ".mongo.local"),
    ] {
        assert!(!fits(host, target), "{host} {target}");
    }
}

#[test]
fn invalid_host_is_outside_the_domain() {
    for target in
        ["x\\046y.b.example.com", "x y.b.example.com", "x..b.example.com", "x/y.b.example.com", "x:1.b.example.com"]
    {
        assert!(!fits("a.b.example.com", target), "{target}");
    }
    let record = SrvRecord::new("x.b.example.com", 0);
    assert_eq!(question("mongodb+srv://a.b.example.com").check(&record), None, "no port");
}

#[test]
fn one_foreign_host_invalidates_the_answer() {
    let question = question("mongodb+srv://a.b.example.com");
    let error = question.hosts(&answer(&["x.b.example.com:1", "evil.example.com:1"], 60), 0).unwrap_err();
    let name = || "_mongodb._tcp.a.b.example.com".to_string();
    assert_eq!(error, SeedlistError::ForeignHost { name: name(), target: "evil.example.com".into() });
    assert_eq!(question.hosts(&SrvAnswer::default(), 0), Err(SeedlistError::NoHosts { name: name() }));
}

#[test]
fn hosts_up_to_the_maximum_are_chosen_at_random() {
    let hosts = ["a.b.c:1", "b.b.c:1", "c.b.c:1", "d.b.c:1", "A.b.c:1"];
    let question = question("mongodb+srv://x.b.c/?srvMaxHosts=2");
    let mut counts = alloc::collections::BTreeMap::<String, u32>::new();
    for entropy in 0..6_000_u64 {
        let chosen = question.hosts(&answer(&hosts, 60), entropy.wrapping_mul(0x9E37_79B9_7F4A_7C15)).unwrap();
        assert_eq!(chosen.len(), 2);
        assert_ne!(chosen[0], chosen[1], "a host that is named twice is one host");
        for host in chosen {
            *counts.entry(host.to_string()).or_default() += 1;
        }
    }
    assert_eq!(counts.len(), 4);
    assert!(counts.values().all(|count| (2_800..3_200).contains(count)), "{counts:?}");
}

#[test]
fn all_hosts_are_used_in_order_without_a_lower_limit() {
    for max in [0, 3, 4] {
        let question = question(&alloc::format!("mongodb+srv://x.b.c/?srvMaxHosts={max}"));
        let hosts = question.hosts(&answer(&["c.b.c:1", "a.b.c:1", "b.b.c:1"], 60), 99).unwrap();
        assert_eq!(hosts.iter().map(|host| host.as_str()).collect::<Vec<_>>(), ["c.b.c:1", "a.b.c:1", "b.b.c:1"]);
    }
}

/// A connection string with a database and without a user name has no credential.
#[test]
fn database_of_a_string_needs_no_credential() {
    let uri = ConnectionString::parse("mongodb+srv://x.b.c/adminDB?replicaSet=repl0").unwrap();
    let resolved = question("mongodb+srv://x.b.c").resolve(&uri, &answer(&["a.b.c:1"], 60), &[], 0).unwrap();
    assert_eq!((resolved.database(), resolved.credential()), (Some("adminDB"), None));
}

#[test]
fn more_than_one_text_is_an_error_and_none_is_not() {
    let uri = ConnectionString::parse("mongodb+srv://x.b.c").unwrap();
    let resolve = |txt: &[String]| question("mongodb+srv://x.b.c").resolve(&uri, &answer(&["a.b.c:1"], 60), txt, 0);
    assert_eq!(resolve(&[]).unwrap().to_string(), "mongodb://a.b.c:1/?tls=true");
    let texts = ["replicaSet=a".to_string(), "authSource=b".to_string()];
    assert_eq!(resolve(&texts), Err(SeedlistError::ManyTxt { name: "x.b.c".into(), count: 2 }));
    assert_eq!(resolve(&texts[..1]).unwrap().options().replica_set.as_deref(), Some("a"));
    let error = resolve(&["ssl=false".to_string()]).unwrap_err();
    let SeedlistError::Uri(inner) = &error else { panic!("{error}") };
    assert_eq!(inner.kind(), UriErrorKind::NotInTxt);
    assert!(core::error::Error::source(&error).is_some());
}
