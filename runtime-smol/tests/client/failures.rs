//! Servers that refuse, stall or report a change of state.

use super::support::{
    self, PATIENCE, Watch, at_rest, client, count, eventually, operation, options, ping, refused, run, server,
};
use alloc::sync::Arc;
use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use poolhouse_smol::poolhouse_core::monitor::MonitorEvent;
use poolhouse_smol::poolhouse_core::pool::{CheckOutError, ClosedReason, PoolEvent, PoolState};
use poolhouse_smol::poolhouse_core::{Cause, ServerType};
use poolhouse_smol::poolhouse_driver::{OperationError, SelectionRequest};
use poolhouse_smol::{Client, ClientOptions, Error, Event, LookupError, Resolver, ServerMonitoringMode, SrvAnswer};
use poolhouse_tests::fake::{Cut, FailPoint, FailPointMode, Fault, FaultRule};
use std::net::TcpListener;
use std::time::Instant;

async fn known(client: &Client) {
    // Selection requests checks, in case the first one exceeds a short connectTimeoutMS; afterwards
    // none is requested.
    client.core().select_server(&SelectionRequest::WRITE, None).await.expect("a server");
    eventually("the server is known", || {
        client.servers().first().is_some_and(|server| server.pool.state == PoolState::Ready)
    })
    .await;
}

/// Pings until a handshake ends within a short connectTimeoutMS, which may take several attempts on
/// a busy machine.
async fn ping_in_time(client: &Client) {
    let begun = Instant::now();
    while let Err(error) = ping(client).await {
        let late = CheckOutError::EstablishFailed { cause: Cause::NetworkTimeout, overloaded: true };
        assert_eq!(error.check_out(), Some(&late));
        assert!(begun.elapsed() < PATIENCE, "no handshake is in time");
    }
}

fn server_type(client: &Client) -> ServerType {
    client.servers()[0].server_type
}

#[test]
fn refused_connection_fails_selection_at_the_deadline() {
    run(async {
        let server = server();
        server.refuse().expect("it refuses");
        let client = client(options(&server));
        let begun = Instant::now();
        let error = refused(client.check_out_timeout(Some(Duration::from_millis(50))).await);
        assert!(matches!(operation(&error), OperationError::ServerSelection(_)), "{error}");
        assert!(error.is_timeout());
        assert!(begun.elapsed() >= Duration::from_millis(50));
        assert_eq!(server_type(&client), ServerType::Unknown);
        server.resume().expect("it listens");
        ping(&client).await.expect("a ping");
        client.close().await;
    });
}

/// A refused connection is overload and does not change the server's description.
#[test]
#[doc(alias("CMAP-95", "SDAM-68"))]
fn refused_connection_for_an_operation_clears_nothing() {
    run(async {
        let server = server();
        let client = client(options(&server));
        let guard = client.check_out().await.expect("a connection");
        let mut watch = Watch::of(&client);
        server.refuse().expect("it refuses");
        let error = refused(client.check_out().await);
        let expected = CheckOutError::EstablishFailed { cause: Cause::Network, overloaded: true };
        assert_eq!(error.check_out(), Some(&expected));
        assert!(error.is_retryable());
        server.resume().expect("it listens");
        ping(&client).await.expect("a ping");
        drop(guard);
        at_rest(&server, &client, 1).await;
        assert_eq!(count(&watch.pool_names(), "PoolCleared"), 0);
        client.close().await;
    });
}

/// A server that accepts connections and never answers. connectTimeoutMS ends the handshake.
#[test]
#[doc(alias = "CMAP-95")]
fn silent_server_ends_at_the_connect_timeout() {
    run(async {
        let server = server();
        let mut options = options(&server);
        options.monitor.connect_timeout = Some(Duration::from_millis(500));
        let client = client(options);
        known(&client).await;
        server.inject(FaultRule::once(Fault::Silence));
        let begun = Instant::now();
        let mut watch = Watch::of(&client);
        let error = refused(ping(&client).await);
        let expected = CheckOutError::EstablishFailed { cause: Cause::NetworkTimeout, overloaded: true };
        assert_eq!(error.check_out(), Some(&expected));
        assert!(begun.elapsed() >= Duration::from_millis(500));
        assert_eq!(watch.until_closed().await, ClosedReason::Error);
        ping_in_time(&client).await;
        at_rest(&server, &client, 1).await;
        assert_eq!(count(&watch.pool_names(), "PoolCleared"), 0);
        client.close().await;
    });
}

/// Establishment in the background also ends at connectTimeoutMS, and is tried again.
#[test]
#[doc(alias = "CMAP-60")]
fn background_establishment_ends_at_the_connect_timeout() {
    run(async {
        let server = server();
        let mut options = options(&server);
        options.monitor.connect_timeout = Some(Duration::from_millis(300));
        options.monitor.server_monitoring_mode = ServerMonitoringMode::Poll;
        options.pool.min_pool_size = 1;
        // With this, there is always another connection to be established.
        options.pool.max_idle_time = Some(Duration::from_millis(50));
        let client = client(options);
        known(&client).await;
        let mut watch = Watch::of(&client);
        server.inject(FaultRule::once(Fault::Silence));
        let timed_out = |event: &PoolEvent| {
            let cause = Some(Cause::NetworkTimeout);
            matches!(event, PoolEvent::ConnectionClosed { reason: ClosedReason::Error, cause: why, .. } if *why == cause)
        };
        watch.until_pool("ConnectionClosed at the time limit", timed_out).await;
        watch.until_pool("ConnectionReady", |event| matches!(event, PoolEvent::ConnectionReady { .. })).await;
        assert_eq!(count(&watch.pool_names(), "PoolCleared"), 0);
        client.close().await;
    });
}

/// A resolver that returns a stored address, or never returns.
#[derive(Debug, Default)]
struct Moody {
    silent: AtomicBool,
}

#[async_trait::async_trait]
impl Resolver for Moody {
    async fn lookup_srv(&self, _: &str) -> Result<SrvAnswer, LookupError> {
        Err(LookupError::NoRecords)
    }

    async fn lookup_txt(&self, _: &str) -> Result<Vec<String>, LookupError> {
        Err(LookupError::NoRecords)
    }

    async fn lookup_addresses(&self, _: &str) -> Option<Result<Vec<IpAddr>, LookupError>> {
        if self.silent.load(Ordering::SeqCst) {
            core::future::pending::<()>().await;
        }
        Some(Ok(vec![IpAddr::from([127, 0, 0, 1])]))
    }
}

/// Name servers that do not answer until connectTimeoutMS are no sign of an overloaded
/// server.
#[test]
#[doc(alias = "CMAP-97")]
fn lookup_that_takes_too_long_is_an_error_of_the_lookup_and_carries_no_label() {
    run(async {
        let server = server();
        let resolver = Arc::new(Moody::default());
        let mut options = ClientOptions::new(format!("a.test:{}", server.address().port()));
        options.monitor = support::options(&server).monitor;
        options.monitor.connect_timeout = Some(Duration::from_millis(500));
        let client = client(options.timeout(PATIENCE).resolver(Arc::<Moody>::clone(&resolver)));
        known(&client).await;
        resolver.silent.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        let error = refused(client.check_out().await);
        let expected = CheckOutError::EstablishFailed { cause: Cause::Dns, overloaded: false };
        assert_eq!(error.check_out(), Some(&expected));
        assert!(begun.elapsed() >= Duration::from_millis(500));
        resolver.silent.store(false, Ordering::SeqCst);
        ping_in_time(&client).await;
        client.close().await;
    });
}

#[test]
fn silent_listener_is_checked_repeatedly_and_stays_unknown() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut options = poolhouse_smol::ClientOptions::new(listener.local_addr().expect("bound").to_string());
        options.monitor.connect_timeout = Some(Duration::from_millis(50));
        options.monitor.heartbeat_frequency = Duration::from_millis(500);
        options.server_selection_timeout = Duration::from_millis(800);
        let (client, subscription) = Client::new_subscribed(options).expect("the options are right");
        let mut watch = Watch::over(subscription);
        for _ in 0..2 {
            watch
                .until("a check that timed out", |event| {
                    matches!(
                        event,
                        Event::Heartbeat(MonitorEvent::HeartbeatFailed { cause: Cause::NetworkTimeout, .. })
                    )
                })
                .await;
        }
        let error = refused(ping(&client).await);
        assert!(matches!(operation(&error), OperationError::ServerSelection(_)), "{error}");
        client.close().await;
    });
}

/// An error code in the handshake of an application's connection clears the pool and marks the
/// server.
#[test]
#[doc(alias("CMAP-86", "SDAM-75"))]
fn handshake_that_fails_with_a_state_change_clears_the_pool() {
    run(async {
        let server = server();
        let mut options = options(&server);
        options.app_name = Some("91".to_owned());
        let client = client(options);
        known(&client).await;
        let mut watch = Watch::of(&client);
        let point = FailPoint::new(FailPointMode::Times(1), &["hello", "isMaster"]).app_name("91").error(91);
        server.set_fail_point(point);
        let error = refused(ping(&client).await);
        let expected = CheckOutError::EstablishFailed { cause: Cause::Command { code: 91 }, overloaded: false };
        assert_eq!(error.check_out(), Some(&expected));
        ping(&client).await.expect("a ping");
        let names = watch.pool_names();
        let order =
            ["PoolCleared", "ConnectionClosed", "ConnectionCheckOutFailed", "PoolReady", "ConnectionCheckedOut"];
        let places: Vec<_> = order.iter().map(|name| names.iter().position(|each| each == name)).collect();
        assert!(places.is_sorted() && places[0].is_some(), "{names:?}");
        assert_eq!(client.servers()[0].pool.generation, 1);
        client.close().await;
    });
}

/// A handshake that is blocked, or ends with a closed connection, is overload: labelled, and
/// nothing is cleared.
#[test]
#[doc(alias("CMAP-95", "SDAM-68"))]
fn closed_or_blocked_handshake_clears_nothing() {
    run(async {
        let server = server();
        let hello = ["hello", "isMaster"];
        let cases = [
            (FailPoint::new(FailPointMode::Times(1), &hello).close(), Cause::Network),
            (FailPoint::new(FailPointMode::Times(1), &hello).block(Duration::from_secs(60)), Cause::NetworkTimeout),
        ];
        for (point, cause) in cases {
            let mut options = options(&server);
            options.app_name = Some(format!("{cause:?}"));
            options.monitor.connect_timeout = Some(Duration::from_millis(500));
            let client = client(options);
            known(&client).await;
            let mut watch = Watch::of(&client);
            server.set_fail_point(point.app_name(&format!("{cause:?}")));
            let error = refused(ping(&client).await);
            assert_eq!(error.check_out(), Some(&CheckOutError::EstablishFailed { cause, overloaded: true }));
            assert!(error.is_retryable());
            ping_in_time(&client).await;
            assert_eq!(count(&watch.pool_names(), "PoolCleared"), 0);
            assert_eq!(server_type(&client), ServerType::Standalone);
            client.close().await;
        }
    });
}

/// A check that fails clears the pool, and the next successful one makes it ready.
#[test]
#[doc(alias("MON-52", "MON-53", "MON-55"))]
fn failed_check_clears_the_pool_until_the_next_success() {
    run(async {
        let server = server();
        for (point, cause) in [
            (FailPoint::new(FailPointMode::Times(1), &["hello", "isMaster"]).error(91), Cause::Command { code: 91 }),
            // The first failure is retried at once (MON-55), so it takes two.
            (FailPoint::new(FailPointMode::Times(2), &["hello", "isMaster"]).close(), Cause::Network),
        ] {
            let mut options = options(&server);
            options.app_name = Some(format!("check {cause:?}"));
            options.monitor.heartbeat_frequency = Duration::from_millis(500);
            let client = client(options);
            ping(&client).await.expect("a ping");
            let mut watch = Watch::of(&client);
            server.set_fail_point(point.app_name(&format!("check {cause:?}")));
            watch
                .until("a check that failed", |event| {
                    matches!(event, Event::Heartbeat(MonitorEvent::HeartbeatFailed { cause: found, .. }) if *found == cause)
                })
                .await;
            let cleared = watch.until_pool("PoolCleared", |event| matches!(event, PoolEvent::PoolCleared { .. })).await;
            assert!(
                matches!(cleared, PoolEvent::PoolCleared { cause: Some(found), interrupt_in_use_connections: false, .. } if found == cause),
                "{cleared:?}"
            );
            watch.until_pool("PoolReady", |event| matches!(event, PoolEvent::PoolReady { .. })).await;
            ping(&client).await.expect("a ping");
            at_rest(&server, &client, 1).await;
            client.close().await;
            server.clear_fail_points();
        }
    });
}

/// Which codes mark the server Unknown, and which of them clear
/// the pool. A check follows at once.
#[test]
#[doc(alias("SDAM-76", "SDAM-78", "SDAM-81", "SDAM-83"))]
fn state_change_errors_of_commands_mark_the_server_and_clear_as_specified() {
    let cases = [
        (91, true, true),
        (11600, true, true),
        (10107, true, false),
        (13435, true, false),
        (10058, true, false),
        (11602, true, false),
        (13436, true, false),
        (189, true, false),
        (96, false, false),
        (112, false, false),
    ];
    run(async {
        let server = server();
        for in_write_concern in [false, true] {
            let mut tasks = Vec::new();
            for (code, marks, clears) in cases {
                let name = format!("{code} {in_write_concern}");
                let mut options = options(&server);
                options.app_name = Some(name.clone());
                let client = client(options);
                let point = FailPoint::new(FailPointMode::Times(1), &["insert"]).app_name(&name);
                let point = if in_write_concern {
                    let mut point = point;
                    point.write_concern_error = Some(bson::doc! { "code": code, "errmsg": "so it is" });
                    point
                } else {
                    point.error(code)
                };
                server.set_named_fail_point(&name, point);
                tasks.push(smol::spawn(async move {
                    let (client, name) = (client, name);
                    known(&client).await;
                    let mut watch = Watch::of(&client);
                    let insert = bson::doc! { "insert": "some", "documents": [{}] };
                    let outcome = client.run_command("db", insert).await;
                    let error = refused(outcome);
                    assert_eq!(error.code(), Some(code), "{name}");
                    assert_eq!(matches!(error, Error::Write(_)), in_write_concern, "{name}");
                    ping(&client).await.expect("a ping");
                    let names = watch.pool_names();
                    let changed = watch.seen.iter().filter(|event| matches!(event, Event::Sdam(_))).count();
                    assert_eq!(changed > 0, marks, "{name}: {:#?}", watch.seen);
                    assert_eq!(count(&names, "PoolCleared"), usize::from(clears), "{name}: {names:?}");
                    let generation = client.servers()[0].pool.generation;
                    assert_eq!(generation, u64::from(clears), "{name}");
                    client.close().await;
                }));
            }
            for task in tasks {
                task.await;
            }
        }
    });
}

/// An operation without a suitable server requests a check at once, and
/// many operations together request one.
#[test]
#[doc(alias("MON-15", "MON-16", "SDAM-85"))]
fn waiting_for_a_server_requests_a_check() {
    run(async {
        let server = server();
        server.refuse().expect("it refuses");
        let (client, subscription) = Client::new_subscribed(options(&server)).expect("the options are right");
        let mut watch = Watch::over(subscription);
        let failed = |event: &Event| {
            matches!(event, Event::Heartbeat(MonitorEvent::HeartbeatFailed { cause: Cause::Network, .. }))
        };
        watch.until("a check that failed", failed).await;
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let client = client.clone();
                smol::spawn(async move { ping(&client).await })
            })
            .collect();
        // Far sooner than heartbeatFrequencyMS, but not sooner than minHeartbeatFrequencyMS.
        watch.until("another one", failed).await;
        server.resume().expect("it listens");
        for task in tasks {
            task.await.expect("a ping");
        }
        watch.catch_up();
        let checks = watch.seen.iter().zip(&watch.times);
        let begun = |event: &Event| matches!(event, Event::Heartbeat(MonitorEvent::HeartbeatStarted { .. }));
        let begun: Vec<_> = checks.filter(|(event, _)| begun(event)).map(|(_, at)| *at).collect();
        assert!(begun.len() >= 3);
        for pair in begun.windows(2) {
            let pause = pair[1].saturating_since(pair[0]);
            assert!(pause >= Duration::from_millis(500), "{begun:?}");
        }
        client.close().await;
    });
}

/// An operation's network error cancels the check in flight: its connection is presumed
/// dead.
#[test]
#[doc(alias = "MON-50")]
fn network_error_of_an_operation_cancels_the_check() {
    run(async {
        let server = server();
        let mut options = options(&server);
        options.monitor.server_monitoring_mode = poolhouse_smol::ServerMonitoringMode::Stream;
        let client = client(options);
        ping(&client).await.expect("a ping");
        server.wait_until(PATIENCE, |view| view.awaiting_count() == 1).expect("a check waits");
        let mut watch = Watch::of(&client);
        server.inject(FaultRule::once(Fault::TruncatedFrame { bytes: 3, by: Cut::Rst }).on_command("ping"));
        refused(ping(&client).await);
        watch
            .until("the cancelled check", |event| {
                matches!(
                    event,
                    Event::Heartbeat(MonitorEvent::HeartbeatFailed { awaited: true, cause: Cause::Cancelled, .. })
                )
            })
            .await;
        ping(&client).await.expect("a ping");
        server.wait_until(PATIENCE, |view| view.open_count() == 3).expect("the old connections are closed");
        client.close().await;
    });
}

/// The hello of a connection that was created before the pool was cleared is older than the error
/// that cleared it: it does not make the server known again, nor the pool ready.
#[test]
#[doc(alias = "MON-20")]
fn hello_of_a_stale_connection_is_ignored() {
    run(async {
        let server = server();
        let client = client(options(&server));
        let mut guard = client.check_out().await.expect("a connection");
        // The second connection's handshake is delayed for a while.
        server.inject(FaultRule::once(Fault::Delay(Duration::from_secs(5))));
        let mut watch = Watch::of(&client);
        let late = smol::spawn({
            let client = client.clone();
            async move { refused(ping(&client).await) }
        });
        server
            .wait_until(PATIENCE, |view| view.fault_count(poolhouse_tests::fake::FaultKind::Delay) == 1)
            .expect("it greets");
        // Meanwhile the server reports its shutdown, to the checks as well.
        server.set_fail_point(FailPoint::new(FailPointMode::AlwaysOn, &["hello", "isMaster", "insert"]).error(91));
        let insert = bson::doc! { "insert": "some", "documents": [{}] };
        refused(guard.run_command("db", insert).await);
        let error = late.await;
        assert!(matches!(error.check_out(), Some(CheckOutError::PoolCleared { .. })), "{error:?}");
        assert_eq!(watch.until_closed().await, ClosedReason::Stale);
        assert_eq!(count(&watch.pool_names(), "PoolReady"), 0);
        assert_eq!(server_type(&client), ServerType::Unknown);
        server.clear_fail_points();
        drop(guard);
        ping(&client).await.expect("a ping");
        at_rest(&server, &client, 1).await;
        client.close().await;
    });
}
