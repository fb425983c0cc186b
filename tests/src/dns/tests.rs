use super::*;
use poolhouse_core::Reason;
use poolhouse_uri::dns::{Answer, LookupError, RecordKind, ResolverConfig, SrvAnswer, SrvRecord};

const NAME: &str = "_mongodb._tcp.x.test.build.10gen.cc";

fn server() -> (DnsServer, ResolverConfig) {
    let mut records = Records { ttl: 77, ..Records::default() };
    records.set_srv(NAME, &["a.test.build.10gen.cc:27017", "b.test.build.10gen.cc:27018"]);
    records.txt.insert("x.test.build.10gen.cc".into(), vec![vec!["replica".into(), "Set=a".into()]]);
    records.a.insert("a.test.build.10gen.cc".into(), vec![[127, 0, 0, 1].into()]);
    records.cname.insert("_mongodb._tcp.alias.example.com".into(), NAME.into());
    let server = DnsServer::start(records).unwrap();
    let config = ResolverConfig::new(vec![server.address()]);
    (server, config)
}

fn hosts() -> Answer {
    let records = [("a.test.build.10gen.cc", 27_017), ("b.test.build.10gen.cc", 27_018)];
    let records = records.map(|(target, port)| SrvRecord::new(target, port)).to_vec();
    Answer::Srv(SrvAnswer { records, ttl: Duration::from_secs(77) })
}

#[test]
fn every_kind_of_record_is_found_and_missing_records_are_not() {
    let (server, config) = server();
    assert_eq!(ask(&config, NAME, RecordKind::Srv), Ok(hosts()));
    assert_eq!(ask(&config, &NAME.to_uppercase(), RecordKind::Srv), Ok(hosts()));
    assert_eq!(ask(&config, "_mongodb._tcp.alias.example.com", RecordKind::Srv), Ok(hosts()));
    let texts = ask(&config, "x.test.build.10gen.cc", RecordKind::Txt);
    assert_eq!(texts, Ok(Answer::Txt(vec!["replicaSet=a".into()])));
    let addresses = ask(&config, "a.test.build.10gen.cc", RecordKind::A);
    assert_eq!(addresses, Ok(Answer::Addresses(vec![[127, 0, 0, 1].into()])));
    assert_eq!(ask(&config, "a.test.build.10gen.cc", RecordKind::Aaaa), Err(LookupError::NoRecords));
    assert_eq!(ask(&config, "build.10gen.cc", RecordKind::Srv), Err(LookupError::NoRecords));
    assert_eq!(ask(&config, "example.org", RecordKind::Srv), Err(LookupError::NoSuchName));
    assert!(server.queries().iter().all(|query| !query.over_tcp));
}

#[test]
fn truncated_answer_is_requested_again_over_tcp() {
    let (server, config) = server();
    server.set_fault(Fault::Truncate);
    assert_eq!(ask(&config, NAME, RecordKind::Srv), Ok(hosts()));
    let over_tcp: Vec<bool> = server.queries().iter().map(|query| query.over_tcp).collect();
    assert_eq!(over_tcp, [false, true]);
    let config = ResolverConfig { tcp: true, ..config };
    assert_eq!(ask(&config, NAME, RecordKind::Srv), Ok(hosts()));
}

#[test]
fn forged_answers_are_ignored() {
    let (server, config) = server();
    server.set_fault(Fault::Forge);
    assert_eq!(ask(&config, NAME, RecordKind::Srv), Ok(hosts()));
    assert_eq!(server.queries().len(), 1);
}

#[test]
fn next_server_is_queried_after_one_that_fails_or_is_silent() {
    let ((first, mut config), (second, other)) = (server(), server());
    config.servers.extend(other.servers);
    for (count, fault) in [Fault::Silent, Fault::Refuse(2), Fault::Refuse(5)].into_iter().enumerate() {
        // The first server's timeout must expire, and the second server's answer may take as long.
        config.timeout = Duration::from_secs(if fault == Fault::Silent { 1 } else { 10 });
        first.set_fault(fault);
        assert_eq!(ask(&config, NAME, RecordKind::Srv), Ok(hosts()), "{fault:?}");
        assert!(second.queries().len() > count);
    }
    second.set_fault(Fault::Refuse(2));
    assert_eq!(ask(&config, NAME, RecordKind::Srv), Err(LookupError::ServerFailed { code: 2 }));
    let closed = ResolverConfig { tcp: true, attempts: 1, ..ResolverConfig::new(vec![([127, 0, 0, 1], 1).into()]) };
    assert_eq!(ask(&closed, NAME, RecordKind::Srv), Err(LookupError::Unreachable(Reason::NONE)));
}
