//! Servers with host names.

use super::net::{Net, clock, run};
use super::support::{Rig, Small, UNASKED, eventually, options, refused, rig, server};
use core::net::Ipv4Addr;
use core::time::Duration;
use poolhouse_embassy::poolhouse_core::pool::CheckOutError;
use poolhouse_embassy::poolhouse_core::{Cause, ServerType};
use poolhouse_embassy::{MonitorOptions, OperationError, Options};
use poolhouse_tests::dns::{DnsServer, Fault, Records};
use poolhouse_tests::fake::FakeServer;

fn names(net: &Net) -> DnsServer {
    let mut records = Records::default();
    records.a.insert("db.test".to_owned(), vec![Ipv4Addr::LOCALHOST]);
    let server = DnsServer::start(records).expect("it starts");
    net.open_names(server.address());
    server
}

fn named(net: &Net, server: &FakeServer, name: &str) -> Rig<Small> {
    net.open_to(server);
    let seeds = super::support::seeds(&[format!("{name}:{}", server.address().port())]);
    rig(net, Options { seeds, ..options(server) })
}

#[test]
fn server_is_found_by_its_name() {
    run(async |net| {
        let (server, names) = (server(), names(net));
        let rig = named(net, &server, "db.test");
        rig.client.warm_up(Some(4)).await.expect("four");
        rig.at_rest(&server, 1).await;
        // A datagram without an answer is sent again.
        assert!((5..=9).contains(&names.queries().len()), "one each");
        rig.end(&[&server]).await;
    });
}

/// It is an error of the lookup and does not affect the server's description.
#[test]
#[doc(alias = "CMAP-97")]
fn unknown_name_is_an_error_of_the_lookup() {
    run(async |net| {
        let (server, _names) = (server(), names(net));
        net.open_to(&server);
        let seeds = super::support::seeds(&[format!("nobody.test:{}", server.address().port())]);
        let limit = Duration::from_secs(5);
        let rig: Rig<Small> =
            rig(net, Options { seeds, timeout: None, server_selection_timeout: limit, ..options(&server) });
        let error = refused(net.skipping(Duration::from_secs(10), rig.ping()).await);
        assert!(matches!(error, OperationError::ServerSelection(_)), "{error:?}");
        let failures = rig.log.heartbeat_failures();
        assert!(!failures.is_empty() && failures.iter().all(|cause| *cause == Cause::Dns), "{failures:?}");
        rig.end(&[&server]).await;
    });
}

/// Name servers that do not answer are no sign of an overloaded server. The lookup ends by
/// connectTimeoutMS at the latest.
#[test]
#[doc(alias = "CMAP-97")]
fn name_server_that_is_silent_is_an_error_of_the_lookup_by_the_deadline() {
    run(async |net| {
        let (server, names) = (server(), names(net));
        for seconds in [2, 40] {
            net.open_to(&server);
            names.set_fault(Fault::None);
            let seeds = super::support::seeds(&[format!("db.test:{}", server.address().port())]);
            let connect_timeout = Duration::from_secs(seconds);
            let monitor = MonitorOptions { connect_timeout: Some(connect_timeout), ..options(&server).monitor };
            let rig: Rig<Small> = rig(net, Options { seeds, monitor, timeout: None, ..options(&server) });
            rig.known().await;
            net.settled().await;
            names.set_fault(Fault::Silent);
            let before = names.queries().len();
            let skipped = clock::skipped();
            let pinging = net.jumping(UNASKED, || names.queries().len() > before, rig.ping());
            let error = refused(pinging.await);
            let expected = CheckOutError::EstablishFailed { cause: Cause::Dns, overloaded: false };
            assert_eq!(error.check_out(), Some(&expected));
            assert!(clock::skipped() - skipped <= connect_timeout);
            assert_eq!(rig.server_type(), ServerType::Unknown);
            names.set_fault(Fault::None);
            eventually("no socket is kept", || rig.sockets_away() <= 1).await;
            // Lookups that were not answered in the meantime are repeated.
            let begun = std::time::Instant::now();
            let client = rig.client;
            let pinging = net.spawn_task(async move { super::support::ping(&client).await });
            while !pinging.is_finished() && begun.elapsed() < super::support::PATIENCE {
                net.jump(Duration::from_millis(100)).await;
                async_io::Timer::after(Duration::from_micros(300)).await;
            }
            pinging.await.expect("a ping");
            rig.at_rest(&server, 1).await;
            rig.end(&[&server]).await;
        }
    });
}

/// More simultaneous lookups than the network stack has slots: they wait for a slot in turn.
#[test]
fn concurrent_lookups_all_complete() {
    run(async |net| {
        let (server, _names) = (server(), names(net));
        let rigs: Vec<_> = (0..5).map(|_| named(net, &server, "db.test")).collect();
        for rig in &rigs {
            net.skipping(Duration::from_secs(10), rig.ping()).await.expect("a ping");
        }
        for rig in &rigs {
            rig.end(&[]).await;
        }
        eventually("all are closed", || server.open_count() == 0).await;
    });
}
