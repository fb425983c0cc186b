pub(crate) mod timers;

use super::*;
use crate::dial::tests::Mock;
use core::net::{Ipv4Addr, Ipv6Addr};

#[test]
fn missing_file_is_read_as_empty_text() {
    assert_eq!(read(Path::new("/nonexistent/resolv.conf")), "");
    assert_eq!(read(Path::new("/")), "", "a folder");
    let path = std::env::temp_dir().join(std::format!("poolhouse-resolver-{}", std::process::id()));
    std::fs::write(&path, b"nameserver 10.0.0.1\n\xFF\nnameserver 10.0.0.2\n").unwrap();
    let config = ResolverConfig::parse(&read(&path));
    let oversized = vec![b'#'; 3 << 20];
    std::fs::write(&path, oversized).unwrap();
    let length = read(&path).len();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(config.servers.len(), 2);
    assert_eq!(length, 1 << 20);
}

const SIX: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
const FOUR: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// RFC 8305, "Hostname Resolution Query Handling": both families are queried at once, and the wait
/// for IPv6 is short.
#[test]
fn families_are_looked_up_concurrently() {
    use LookupError::{NoRecords, NoSuchName, Timeout};
    const NEVER: u64 = u64::MAX;
    let cases = [
        // IPv6: the answer and its time in ms; IPv4: the same; the result and its time in ms.
        ((Ok(SIX), 10), (Ok(FOUR), 5), (Ok(vec![SIX, FOUR]), 10)),
        ((Ok(SIX), 55), (Ok(FOUR), 5), (Ok(vec![SIX, FOUR]), 55)),
        ((Ok(SIX), 56), (Ok(FOUR), 5), (Ok(vec![FOUR]), 55)),
        ((Ok(SIX), NEVER), (Ok(FOUR), 5), (Ok(vec![FOUR]), 55)),
        ((Ok(SIX), 5), (Ok(FOUR), 3_000), (Ok(vec![SIX, FOUR]), 3_000)),
        ((Ok(SIX), 5), (Err(Timeout), 3_000), (Ok(vec![SIX]), 3_000)),
        ((Ok(SIX), 3_000), (Err(NoRecords), 5), (Ok(vec![SIX]), 3_000)),
        ((Err(NoRecords), 3), (Ok(FOUR), 9), (Ok(vec![FOUR]), 9)),
        // Some servers answer so for a name that has other records.
        ((Err(NoSuchName), 3), (Ok(FOUR), 9), (Ok(vec![FOUR]), 9)),
        ((Ok(SIX), NEVER), (Err(NoSuchName), 5), (Err(NoSuchName), 55)),
        ((Err(Timeout), 3_000), (Err(NoRecords), 5), (Err(Timeout), 3_000)),
        ((Err(NoRecords), 5), (Err(Timeout), 3_000), (Err(Timeout), 3_000)),
        ((Err(NoRecords), 5), (Err(NoRecords), 5), (Err(NoRecords), 5)),
    ];
    for ((six, six_ms), (four, four_ms), (expected, expected_ms)) in cases {
        let mock = Mock::default();
        let answer = async |answer: Result<IpAddr, LookupError>, at_ms: u64| {
            mock.sleep_until(Instant::from_nanos(at_ms.saturating_mul(1_000_000))).await;
            answer.map(|address| vec![address])
        };
        let shown = std::format!("{six:?} at {six_ms}, {four:?} at {four_ms}");
        let both = both_families(&mock, answer(six, six_ms), answer(four, four_ms));
        let found = mock.run(both);
        assert_eq!((found, mock.now()), (Some(expected), Instant::from_nanos(expected_ms * 1_000_000)), "{shown}");
    }
}

fn resolver(config: ResolverConfig) -> (Mock, DnsResolver<Mock>) {
    let mock = Mock::default();
    (mock.clone(), DnsResolver::with_config(mock, config))
}

fn one_server() -> ResolverConfig {
    ResolverConfig::new(vec![([10, 0, 0, 1], 53).into()])
}

/// No question is sent if no time is left.
#[test]
fn lookup_without_time_ends_before_a_query() {
    let (mock, resolver) = resolver(ResolverConfig { timeout: Duration::ZERO, ..one_server() });
    assert_eq!(mock.run(resolver.lookup_srv("_mongodb._tcp.a.test")), Some(Err(LookupError::Timeout)));
    assert_eq!(mock.now(), Instant::ORIGIN);
}

/// The platform of these tests has no datagrams.
#[test]
fn unreachable_name_servers_end_the_search_of_domains() {
    let config = ResolverConfig { search: vec!["b.test".into(), "c.test".into()], ..one_server() };
    let (mock, resolver) = resolver(config);
    let found = mock.run(resolver.lookup_addresses("host-that-is-in-no-file"));
    let unsupported = || LookupError::Unreachable(Reason::new(io::Error::from(io::ErrorKind::Unsupported)));
    assert_eq!(found, Some(Some(Err(unsupported()))));
    let txt = mock.run(resolver.lookup_txt("a.test")).expect("an end");
    assert_eq!(txt, Err(unsupported()));
}

#[test]
fn system_resolver_leaves_only_hosts_to_the_platform() {
    let mock = Mock::default();
    let resolver = DnsResolver::new(mock.clone());
    assert_eq!(mock.run(resolver.lookup_addresses("a.test")), Some(None));
    let srv = mock.run(resolver.lookup_srv("_mongodb._tcp.a.test")).expect("an end");
    let unsupported = LookupError::Unreachable(Reason::new(io::Error::from(io::ErrorKind::Unsupported)));
    assert_eq!(srv, Err(unsupported), "whichever name servers this machine is configured with");
    assert_eq!(std::format!("{resolver:?}"), "DnsResolver { config: None, .. }");
}
