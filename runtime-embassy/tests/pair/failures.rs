//! Failures of servers and networks, and the recovery from them.

use super::net::cable::addressed;
use super::net::{CLIENT, Net, clock, run};
use super::support::{
    DirectOnly, Log, Rig, Small, eventually, find, insert, options, ping, refused, rig, server, small,
};
use core::time::Duration;
use embassy_net::{ConfigV4, Stack};
use poolhouse_embassy::poolhouse_core::pool::{CheckOutError, PoolEvent, PoolState};
use poolhouse_embassy::poolhouse_core::{Cause, ServerType};
use poolhouse_embassy::{
    CommandOptions, Layout, MonitorOptions, OperationError, Options, ReadMode, ReadPreferenceOptions,
    ServerMonitoringMode, Sizes,
};
use poolhouse_tests::fake::{FailPoint, FailPointMode, FakeOptions, FakeServer, Fault, FaultRule, ServerState};
use poolhouse_tests::patience::Stopwatch;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HELLO: [&str; 2] = ["hello", "isMaster"];

/// Options with the default monitoring interval.
fn watchful(server: &FakeServer) -> Options {
    let monitor = MonitorOptions { server_monitoring_mode: ServerMonitoringMode::Poll, ..MonitorOptions::DEFAULT };
    Options { monitor, ..options(server) }
}

/// Waits until the pool is at rest and server and client agree, after connections that had ended on
/// one side only have ended on both.
async fn recovers<L: Layout>(net: &Net, rig: &Rig<L>, server: &FakeServer) {
    // A connection that died meanwhile fails the first operation on it, so the operation is
    // idempotent and has a second attempt.
    let idempotent = CommandOptions::new().idempotent(true);
    let mut reply = [0; 256];
    let ping = rig.client.run_command_with("admin", |it| it.int32("ping", 1).map(drop), &mut reply, idempotent);
    net.skipping(MINUTE, ping).await.expect("it is well again");
    net.skip_until("both sides agree", 5 * MINUTE, || {
        let counts = rig.pool().counts;
        server.open_count() == 1 + counts.available as usize && counts.in_use + counts.pending == 0
    })
    .await;
    rig.at_rest(server, 1).await;
}

/// At the limit, and not before. The port does not accept connections.
#[test]
#[doc(alias("MON-40", "SDAM-85"))]
fn absent_server_fails_selection_at_the_limit() {
    run(async |net| {
        let server = server();
        let rig: Rig<Small> = rig(net, Options { timeout: None, ..options(&server) });
        let (begun, skipped) = (clock::now(), clock::skipped());
        let error = refused(net.skipping(MINUTE, rig.ping()).await);
        assert!(matches!(error, OperationError::ServerSelection(_)), "{error:?}");
        let took = clock::now() - begun;
        assert!(took >= 30 * SECOND, "{took:?}");
        assert!(clock::skipped() - skipped <= 30 * SECOND);
        // MON-40: two dials per second while an operation waits.
        let checks = rig.log.heartbeat_failures();
        assert!((30..=2 + 2 * took.as_secs()).contains(&(checks.len() as u64)), "{} checks in {took:?}", checks.len());
        assert!(checks.iter().all(|cause| *cause == Cause::Network), "{checks:?}");
        rig.end(&[&server]).await;
        assert_eq!(server.accepted_count(), 0);
    });
}

#[test]
fn server_that_starts_late_is_found() {
    async fn found<L: Layout<Events = Log, Network = Stack<'static>>>(net: &Net) {
        let server = server();
        let rig: Rig<L> = rig(net, options(&server));
        let client = rig.client;
        let waiting = net.spawn_task(async move { ping(&client).await });
        net.skip(10 * SECOND).await;
        net.open_to(&server);
        net.skipping(2 * SECOND, waiting).await.expect("a ping");
        rig.at_rest(&server, 1).await;
        rig.end(&[&server]).await;
    }
    run(found::<Small>);
    run(found::<DirectOnly>);
}

#[test]
fn server_that_restarts_is_found_again() {
    async fn found<L: Layout<Events = Log, Network = Stack<'static>>>(net: &Net) {
        let server = server();
        net.open_to(&server);
        let rig: Rig<L> = rig(net, options(&server));
        for round in 1..=5 {
            rig.client.warm_up(Some(3)).await.expect("three");
            net.kill(&server);
            net.settled().await;
            net.restart(&server);
            recovers(net, &rig, &server).await;
            assert!(rig.pool().generation >= round, "the pool was cleared");
        }
        rig.end(&[&server]).await;
    }
    run(found::<Small>);
    run(found::<DirectOnly>);
}

/// SDAM-35: no operation waits for a server with which the client cannot work.
#[test]
#[doc(alias = "SDAM-35")]
fn server_with_unknown_wire_versions_fails_selection_at_once() {
    async fn fails<L: Layout<Events = Log, Network = Stack<'static>>>(net: &Net) {
        let mut state = ServerState::default();
        state.fields = bson::doc! { "minWireVersion": 998, "maxWireVersion": 999 };
        let server = FakeServer::start(FakeOptions::with_state(state)).expect("the fake server starts");
        net.open_to(&server);
        let rig: Rig<L> = rig(net, options(&server));
        let skipped = clock::skipped();
        let error = refused(net.skipping(MINUTE, rig.ping()).await).to_string();
        assert!(error.contains("requires wire version 998"), "{error}");
        assert!(clock::skipped() - skipped < SECOND);
        rig.end(&[&server]).await;
    }
    run(fails::<Small>);
    run(fails::<DirectOnly>);
}

/// A direct connection accepts every mode, tag and staleness.
#[test]
fn direct_connection_ignores_the_read_preference() {
    async fn reads<L: Layout<Events = Log, Network = Stack<'static>>>(net: &Net) {
        let server = server();
        net.open_to(&server);
        let rig: Rig<L> = rig(net, options(&server));
        let tag_sets: &[&[(&str, &str)]] = &[&[("dc", "nowhere")]];
        let options = ReadPreferenceOptions { mode: ReadMode::Secondary, tag_sets, max_staleness_seconds: Some(90) };
        let options = CommandOptions::new().read_preference(options.validate().expect("they break no rule"));
        let mut reply = [0; 256];
        let ping = rig.client.run_command_with("admin", |it| it.int32("ping", 1).map(drop), &mut reply, options);
        net.skipping(2 * SECOND, ping).await.expect("its reply");
        rig.end(&[&server]).await;
    }
    run(reads::<Small>);
    run(reads::<DirectOnly>);
}

/// Nothing is left behind however long it takes, and dialing continues at the monitor's pace.
#[test]
#[doc(alias = "MON-07")]
fn server_is_found_after_minutes_of_absence() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let rig: Rig<Small> = rig(net, watchful(&server));
        rig.client.warm_up(Some(4)).await.expect("four");
        net.kill(&server);
        net.skip(12 * SECOND).await;
        assert_eq!(rig.server_type(), ServerType::Unknown);
        assert_eq!(rig.pool().state, PoolState::Paused);
        let before = rig.log.heartbeat_failures().len();
        net.skip(30 * MINUTE).await;
        let checks = rig.log.heartbeat_failures().len() - before;
        assert!((170..=190).contains(&checks), "{checks} checks in half an hour, one each 10 s");
        assert_eq!(rig.sockets_away(), 0);
        net.restart(&server);
        net.skip_until("it is known", 11 * SECOND, || rig.server_type() == ServerType::Standalone).await;
        recovers(net, &rig, &server).await;
        rig.end(&[&server]).await;
    });
}

/// Not even a refusal arrives: dials end at connectTimeoutMS.
#[test]
fn server_is_found_after_a_silent_disappearance() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let rig: Rig<Small> = rig(net, watchful(&server));
        rig.client.warm_up(Some(4)).await.expect("four");
        net.cable.cut(false);
        net.jump(15 * MINUTE).await;
        assert_eq!(rig.server_type(), ServerType::Unknown);
        assert!(rig.log.heartbeat_failures().contains(&Cause::NetworkTimeout));
        let error = refused(net.jumping(MINUTE, || true, rig.ping()).await);
        assert!(matches!(error, OperationError::ServerSelection(_)), "{error:?}");
        net.cable.mend();
        recovers(net, &rig, &server).await;
        rig.end(&[&server]).await;
    });
}

/// Operations in flight without their own limit end when the monitor has timed out (MON-54,
/// CMAP-82).
#[test]
#[doc(alias("CMAP-82", "MON-54"))]
fn frozen_server_interrupts_operations_in_flight() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let rig: Rig<Small> = rig(net, Options { timeout: None, ..watchful(&server) });
        rig.client.warm_up(Some(3)).await.expect("three");
        rig.at_rest(&server, 1).await;
        server.freeze();
        let client = rig.client;
        let tasks: Vec<_> = (0..3).map(|_| net.spawn_task(async move { ping(&client).await })).collect();
        eventually("they are under way", || rig.pool().counts.in_use == 3).await;
        net.idle().await;
        for task in tasks {
            let error = refused(net.jumping(MINUTE, || true, task).await);
            assert!(matches!(error, OperationError::Interrupted(_)), "{error:?}");
        }
        let interrupted =
            |event: &PoolEvent| matches!(event, PoolEvent::PoolCleared { interrupt_in_use_connections: true, .. });
        assert!(rig.log.pool_events().iter().any(interrupted));
        server.thaw();
        recovers(net, &rig, &server).await;
        rig.end(&[&server]).await;
    });
}

/// With small buffers, one connection for the monitor, and the longest application name.
#[test]
fn polling_monitor_with_one_connection_finds_a_frozen_server_again() {
    type OneMonitorConn = Sizes<1, 2, 4, 1024, 512, 512, Log, 1, Stack<'static>, 512, 1>;
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let rig: Rig<OneMonitorConn> =
            rig(net, Options { app_name: Some("n".repeat(128).leak()), ..watchful(&server) });
        for _ in 0..2 {
            let guards = [rig.client.check_out().await, rig.client.check_out().await];
            assert!(guards.iter().all(Result::is_ok), "{guards:?}");
            assert_eq!((rig.sockets_away(), OneMonitorConn::SOCKETS), (3, 3));
            drop(guards);
            server.freeze();
            net.jump(5 * MINUTE).await;
            assert_eq!(rig.server_type(), ServerType::Unknown);
            server.thaw();
            recovers(net, &rig, &server).await;
        }
        let mut round_trip = None;
        rig.client.for_each_server(|it| round_trip = it.round_trip_average);
        assert!(round_trip.is_some());
        rig.end(&[&server]).await;
    });
}

/// The cable is cut for a moment: TCP retransmits, and no operation fails.
#[test]
fn link_down_for_a_second_costs_a_second() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        insert(&rig.client, "some", 1).await.expect("an insert");
        for noticed in [false, true] {
            net.cable.cut(noticed);
            let client = rig.client;
            let finding = net.spawn_task(async move { find(&client, "some").await });
            net.jump(SECOND).await;
            net.cable.mend();
            assert_eq!(net.skipping(10 * SECOND, finding).await.expect("a reply"), 1);
        }
        rig.at_rest(&server, 1).await;
        assert_eq!((rig.pool().generation, server.accepted_count()), (0, 2));
        rig.end(&[&server]).await;
    });
}

#[test]
fn link_down_for_minutes_leaves_no_connection() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let rig: Rig<Small> = rig(net, watchful(&server));
        for noticed in [true, false, true] {
            net.skipping(10 * SECOND, rig.client.warm_up(Some(4))).await.expect("four");
            net.cable.cut(noticed);
            let client = rig.client;
            let tasks: Vec<_> = (0..6).map(|_| net.spawn_task(async move { ping(&client).await })).collect();
            net.jump(5 * MINUTE).await;
            for task in tasks {
                refused(task.await);
            }
            assert_eq!(rig.server_type(), ServerType::Unknown);
            net.cable.mend();
            recovers(net, &rig, &server).await;
        }
        rig.end(&[&server]).await;
    });
}

/// Like a DHCP lease that ends and is renewed only after a while.
#[test]
fn lost_address_leaves_no_connection() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let rig: Rig<Small> = rig(net, watchful(&server));
        for _ in 0..3 {
            net.skipping(10 * SECOND, rig.client.warm_up(Some(4))).await.expect("four");
            net.stack.set_config_v4(ConfigV4::None);
            let client = rig.client;
            let tasks: Vec<_> = (0..6).map(|_| net.spawn_task(async move { ping(&client).await })).collect();
            net.jump(5 * MINUTE).await;
            for task in tasks {
                refused(task.await);
            }
            assert_eq!(rig.server_type(), ServerType::Unknown);
            net.stack.set_config_v4(addressed(CLIENT));
            recovers(net, &rig, &server).await;
        }
        rig.end(&[&server]).await;
    });
}

/// The address changes, as after a lease of another DHCP server: connections of the old address are
/// unusable.
#[test]
fn changed_address_is_survived() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let rig: Rig<Small> = rig(net, watchful(&server));
        let [a, b, c, last] = CLIENT;
        for step in 1..4 {
            net.skipping(10 * SECOND, rig.client.warm_up(Some(4))).await.expect("four");
            net.stack.set_config_v4(addressed([a, b, c, last + step]));
            net.jump(2 * MINUTE).await;
            recovers(net, &rig, &server).await;
        }
        rig.end(&[&server]).await;
    });
}

/// The cable is cut for 90 seconds, after each number of frames that the first operation takes,
/// counted from the start of the client.
#[test]
fn link_cut_after_any_frame_leaves_no_connection() {
    let mut frames = 0;
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        rig.ping().await.expect("a ping");
        frames = net.cable.frames.get();
        rig.end(&[&server]).await;
    });
    for cut_at in 1..=frames {
        run(async |net| {
            let server = server();
            net.cable.cut_at.set(cut_at);
            let rig = small(net, &server);
            let client = rig.client;
            let pinging = net.spawn_task(async move { ping(&client).await });
            let begun = std::time::Instant::now();
            while net.cable.frames.get() < cut_at && begun.elapsed() < SECOND {
                net.jump(Duration::from_millis(100)).await;
            }
            net.jump(Duration::from_secs(90)).await;
            let _ = pinging.await;
            net.cable.mend();
            recovers(net, &rig, &server).await;
            rig.end(&[&server]).await;
        });
    }
}

/// Which codes mark the server Unknown, and which of them clear
/// the pool. A check follows at once.
#[test]
#[doc(alias("SDAM-76", "SDAM-78", "SDAM-81", "SDAM-83"))]
fn state_change_errors_mark_the_server_and_clear_as_specified() {
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
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        rig.ping().await.expect("a ping");
        for (code, marks, clears) in cases {
            rig.at_rest(&server, 1).await;
            rig.log.clear();
            let (generation, checks) = (rig.pool().generation, server.count_of("hello"));
            server.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["ping"]).error(code));
            let error = refused(rig.ping().await);
            assert!(matches!(error, OperationError::Command { code: found, .. } if found == code), "{error:?}");
            net.skipping(2 * SECOND, rig.ping()).await.expect("a ping");
            assert_eq!(rig.pool().generation - generation, u64::from(clears), "{code}");
            assert_eq!(server.count_of("hello") > checks, marks, "{code}: checked");
        }
        rig.at_rest(&server, 1).await;
        rig.end(&[&server]).await;
    });
}

/// A state change error in the handshake of an application's connection clears
/// the pool.
#[test]
#[doc(alias("CMAP-86", "SDAM-75"))]
fn handshake_that_fails_with_a_state_change_clears_the_pool() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        rig.known().await;
        net.settled().await;
        server.set_fail_point(FailPoint::new(FailPointMode::Times(1), &HELLO).error(91));
        let error = refused(rig.ping().await);
        let expected = CheckOutError::EstablishFailed { cause: Cause::Command { code: 91 }, overloaded: false };
        assert_eq!(error.check_out(), Some(&expected));
        assert_eq!(rig.pool().generation, 1);
        net.skipping(2 * SECOND, rig.ping()).await.expect("a ping");
        rig.at_rest(&server, 1).await;
        rig.end(&[&server]).await;
    });
}

/// A handshake that is not answered, or ends with a closed connection, is a sign
/// of overload. Nothing is cleared.
#[test]
#[doc(alias("CMAP-95", "SDAM-68"))]
fn handshake_without_an_answer_clears_nothing() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        rig.known().await;
        net.settled().await;
        server.set_fail_point(FailPoint::new(FailPointMode::Times(1), &HELLO).close());
        let error = refused(rig.ping().await);
        let expected = |cause| CheckOutError::EstablishFailed { cause, overloaded: true };
        assert_eq!(error.check_out(), Some(&expected(Cause::Network)));
        let hellos = || HELLO.map(|name| server.count_of(name)).iter().sum::<u64>();
        let before = hellos();
        server.inject(FaultRule::once(Fault::Silence));
        let begun = clock::now();
        let error = refused(net.jumping(MINUTE, || hellos() > before, rig.ping()).await);
        assert_eq!(error.check_out(), Some(&expected(Cause::NetworkTimeout)));
        assert!(clock::now() - begun >= MonitorOptions::DEFAULT.connect_timeout.expect("there is a limit"));
        rig.ping().await.expect("a ping");
        rig.at_rest(&server, 1).await;
        assert_eq!(rig.pool().generation, 0);
        rig.end(&[&server]).await;
    });
}

/// After the first network error of a check, the check is repeated at once;
/// the second clears the pool until the next successful check.
#[test]
#[doc(alias("MON-52", "MON-53", "MON-55"))]
fn check_that_fails_clears_the_pool_until_the_next_good_one() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let rig: Rig<Small> = rig(net, watchful(&server));
        rig.ping().await.expect("a ping");
        for point in [
            FailPoint::new(FailPointMode::Times(1), &HELLO).error(91),
            FailPoint::new(FailPointMode::Times(2), &HELLO).close(),
        ] {
            rig.at_rest(&server, 1).await;
            rig.log.clear();
            server.set_fail_point(point);
            net.skip_until("PoolCleared", 15 * SECOND, || rig.log.count("PoolCleared") == 1).await;
            net.skip_until("PoolReady", 15 * SECOND, || rig.log.count("PoolReady") == 1).await;
            rig.ping().await.expect("a ping");
        }
        rig.at_rest(&server, 1).await;
        rig.end(&[&server]).await;
    });
}

/// A refused connection is treated like any other failure: nothing is cleared.
#[test]
fn refused_connection_for_an_operation_clears_nothing() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        rig.known().await;
        net.settled().await;
        net.refuse(&server);
        let error = refused(rig.ping().await);
        let expected = CheckOutError::EstablishFailed { cause: Cause::Network, overloaded: true };
        assert_eq!(error.check_out(), Some(&expected));
        net.resume(&server);
        rig.ping().await.expect("a ping");
        rig.at_rest(&server, 1).await;
        assert_eq!(rig.pool().generation, 0);
        rig.end(&[&server]).await;
    });
}

/// Sockets are reused, and each end is acknowledged: no peer is ever notified by a reset.
#[test]
fn short_lived_connections_are_closed_in_order() {
    type One = poolhouse_embassy::Sizes<1, 1, 4, 4096, 1024, 1024, Log>;
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let rig: Rig<One> = rig(net, options(&server));
        for _ in 0..40 {
            rig.ping().await.expect("a ping");
            let mut guard = rig.client.check_out().await.expect("a connection");
            // The reply is not awaited, so the connection is closed.
            let command = guard.run_command("admin", |it| it.int32("ping", 1).map(drop));
            assert!(super::support::poll_times(command, 1, super::support::DropIt::AtOnce).await.is_none());
        }
        rig.ping().await.expect("a ping");
        rig.end(&[&server]).await;
        net.settled().await;
        assert_eq!(net.cable.resets.get(), 0);
        assert_eq!(server.accepted_count(), 42);
    });
}

/// Nothing else is in progress: the runner is woken for this alone.
#[test]
fn broken_connection_is_closed_at_check_in() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        rig.ping().await.expect("a ping");
        rig.at_rest(&server, 1).await;
        let mut guard = rig.client.check_out().await.expect("a connection");
        guard.set_deadline(None);
        let command = guard.run_command("admin", |it| it.int32("ping", 1).map(drop));
        assert!(super::support::poll_times(command, 1, super::support::DropIt::AtOnce).await.is_none());
        net.settled().await;
        let begun = Stopwatch::start();
        drop(guard);
        rig.at_rest(&server, 1).await;
        begun.assert_below(5 * SECOND);
        rig.end(&[&server]).await;
    });
}

/// Every socket is in use, so the next connection waits for the one that is being closed, and no
/// longer.
#[test]
fn connection_waits_for_the_socket_of_the_last_one() {
    type One = poolhouse_embassy::Sizes<1, 1, 4, 4096, 1024, 1024, Log>;
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let mut options = watchful(&server);
        options.monitor.server_monitoring_mode = ServerMonitoringMode::Stream;
        let rig: Rig<One> = rig(net, options);
        rig.ping().await.expect("a ping");
        eventually("the monitor has both connections", || server.open_count() == 3).await;
        let begun = Stopwatch::start();
        for _ in 0..10 {
            assert_eq!(rig.sockets_away(), 3);
            let mut guard = rig.client.check_out().await.expect("a connection");
            let command = guard.run_command("admin", |it| it.int32("ping", 1).map(drop));
            assert!(super::support::poll_times(command, 1, super::support::DropIt::AtOnce).await.is_none());
            drop(guard);
            rig.ping().await.expect("a ping");
        }
        // Each takes some 20 ms.
        begun.assert_below(8 * SECOND);
        rig.end(&[&server]).await;
    });
}
