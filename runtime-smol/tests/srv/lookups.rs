//! The built-in resolver.

use super::support::{NAME, PATIENCE, config, name_server, resolver, run};
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use poolhouse_smol::{DnsResolver, LookupError, Resolver, ResolverConfig, Smol, SrvRecord};
use poolhouse_tests::dns::Fault;
use poolhouse_tests::patience::eventually;
use smol::future::FutureExt;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Instant;

fn records() -> Vec<SrvRecord> {
    vec![SrvRecord::new("r0.example.test", 1), SrvRecord::new("r1.example.test", 2)]
}

#[test]
fn long_answers_are_received_over_tcp() {
    run(async {
        let server = name_server(&["r0.example.test:1", "r1.example.test:2"]);
        let resolver = resolver(&server);
        for (fault, over_tcp) in [(Fault::None, false), (Fault::Forge, false), (Fault::Truncate, true)] {
            server.set_fault(fault);
            let answer = resolver.lookup_srv(NAME).await.expect("two hosts");
            assert_eq!((answer.records, answer.ttl), (records(), Duration::from_secs(60)), "{fault:?}");
            assert_eq!(server.queries().last().map(|query| query.over_tcp), Some(over_tcp), "{fault:?}");
        }
        assert_eq!(resolver.lookup_txt(NAME).await, Err(LookupError::NoRecords));
        assert_eq!(resolver.lookup_txt("nobody.test").await, Err(LookupError::NoSuchName));
        server.change(|records| {
            records.txt.insert("cluster.example.test".into(), vec![vec!["a=".into(), "b".into()]]);
        });
        assert_eq!(resolver.lookup_txt("cluster.example.test").await, Ok(vec!["a=b".to_owned()]));
    });
}

#[test]
fn addresses_are_resolved_by_the_same_servers_or_by_the_platform() {
    run(async {
        let server = name_server(&["r0.example.test:1"]);
        let mut config = config(server.address());
        config.search = vec!["nowhere.test".to_owned(), "example.test".to_owned()];
        let resolver = DnsResolver::with_config(Smol, config);
        let loopback = IpAddr::from([127, 0, 0, 1]);
        for host in ["r1.example.test", "r1.example.test.", "r1"] {
            assert_eq!(resolver.lookup_addresses(host).await, Some(Ok(vec![loopback])), "{host}");
        }
        assert_eq!(resolver.lookup_addresses("r1.").await, Some(Err(LookupError::NoSuchName)));
        let from_file = resolver.lookup_addresses("localhost").await;
        assert!(matches!(from_file, Some(Ok(found)) if found.iter().all(IpAddr::is_loopback)), "the hosts file has it");
        assert_eq!(DnsResolver::new(Smol).lookup_addresses("r1.example.test").await, None);
    });
}

/// RFC 8305, "Hostname Resolution Query Handling": a server that does not answer for one family
/// does not delay the other.
#[test]
fn server_silent_about_ipv6_does_not_delay_addresses() {
    run(async {
        let server = name_server(&[]);
        server.set_fault(Fault::DropAaaa);
        let resolver = DnsResolver::with_config(Smol, config(server.address()));
        let begun = Instant::now();
        let found = resolver.lookup_addresses("r1.example.test.").await;
        assert_eq!(found, Some(Ok(vec![IpAddr::from([127, 0, 0, 1])])));
        // A nonexistent name has neither family.
        assert_eq!(resolver.lookup_addresses("nobody.test.").await, Some(Err(LookupError::NoSuchName)));
        assert!(begun.elapsed() < PATIENCE, "as long as the silence");
        let asked = |kind| server.queries().iter().filter(|query| query.kind == kind).count();
        assert_eq!((asked(1), asked(28)), (2, 2));
    });
}

#[test]
fn next_server_is_queried_after_a_refusal_a_failure_or_silence() {
    run(async {
        let (first, second) = (name_server(&[]), name_server(&["r0.example.test:1", "r1.example.test:2"]));
        let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let silent = silent.local_addr().expect("it is bound");
        for (before, fault) in
            [(first.address(), Fault::Refuse(2)), (first.address(), Fault::Silent), (silent, Fault::None)]
        {
            first.set_fault(fault);
            let mut config = config(before);
            config.servers.push(second.address());
            config.timeout = Duration::from_millis(300);
            // If the second query was slow, it would be repeated once.
            config.attempts = 5;
            let resolver = DnsResolver::with_config(Smol, config);
            assert_eq!(resolver.lookup_srv(NAME).await.expect("the second has it").records, records(), "{fault:?}");
        }
        assert!(!first.queries().is_empty());
    });
}

#[test]
fn unanswered_lookup_fails_at_its_deadline() {
    run(async {
        let server = name_server(&[]);
        server.set_fault(Fault::Silent);
        let mut config = config(server.address());
        (config.timeout, config.attempts) = (Duration::from_millis(100), 3);
        let begun = Instant::now();
        let resolver = DnsResolver::with_config(Smol, config.clone());
        assert_eq!(resolver.lookup_srv(NAME).await, Err(LookupError::Timeout));
        assert!(begun.elapsed() >= Duration::from_millis(300));
        eventually("each was heard", || server.queries().len() == 3).await;

        // Nothing listens at this port.
        let closed = SocketAddr::from(([127, 0, 0, 1], 1));
        let config = ResolverConfig { tcp: true, servers: vec![closed], ..config };
        let resolver = DnsResolver::with_config(Smol, config);
        assert!(matches!(resolver.lookup_srv(NAME).await, Err(LookupError::Unreachable(_))), "the port is closed");
        assert_eq!(resolver.lookup_srv("no name").await, Err(LookupError::Name));
    });
}

/// Over UDP, the system reports a closed port as the error of the next read.
#[test]
fn lookup_at_a_closed_port_fails_with_the_error_of_the_system() {
    run(async {
        let free = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let closed = free.local_addr().expect("it is bound");
        drop(free);
        let mut config = config(closed);
        (config.timeout, config.attempts) = (PATIENCE, 1);
        for tcp in [false, true] {
            config.tcp = tcp;
            let resolver = DnsResolver::with_config(Smol, config.clone());
            let error = resolver.lookup_txt("cluster.example.test").await.expect_err("the port is closed");
            let source = core::error::Error::source(&error).and_then(|source| source.downcast_ref::<std::io::Error>());
            assert_eq!(source.map(std::io::Error::kind), Some(ErrorKind::ConnectionRefused), "{error:?}");
            assert!(error.to_string().starts_with("the name server cannot be reached: Connection refused"), "{error}");
        }
    });
}

#[test]
fn lookup_can_be_dropped_at_any_point() {
    run(async {
        let server = name_server(&["r0.example.test:1", "r1.example.test:2"]);
        let resolver = resolver(&server);
        for polls in 0..20 {
            server.set_fault(if polls % 2 == 0 { Fault::None } else { Fault::Truncate });
            let mut lookup = Box::pin(resolver.lookup_srv(NAME));
            for _ in 0..polls {
                let polled = async { Some((&mut lookup).await) };
                let pause = async {
                    smol::Timer::after(Duration::from_micros(100)).await;
                    None
                };
                if polled.or(pause).await.is_some() {
                    break;
                }
            }
        }
        assert_eq!(resolver.lookup_srv(NAME).await.expect("two hosts").records, records());
    });
}
