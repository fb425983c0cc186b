//! The end of a client.

use super::net::{Net, run};
use super::support::{
    DirectOnly, Log, Rig, Small, eventually, ignore_hello, made, options, ping, refused, rig, server, small,
};
use core::time::Duration;
use embassy_net::Stack;
use poolhouse_embassy::poolhouse_core::pool::{CheckOutError, ClosedReason};
use poolhouse_embassy::{Layout, OperationError, ServerMonitoringMode, SetupError, Sizes};
use poolhouse_tests::fake::{Ended, Fault, FaultRule};

/// As the server counts: every connection was ended by the client, in order.
#[test]
fn closed_client_leaves_no_connection() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        rig.client.warm_up(Some(4)).await.expect("four");
        rig.at_rest(&server, 1).await;
        rig.end(&[&server]).await;
        server.look(|view| {
            assert_eq!(view.closed().count(), 5);
            for connection in view.closed() {
                assert_eq!(connection.ended, Some(Ended::ByClient), "{connection:?}");
            }
        });
        assert_eq!(refused(rig.client.check_out().await), OperationError::Closed);
        assert_eq!(refused(rig.client.warm_up(None).await), OperationError::Closed);
        // Closing again changes nothing.
        rig.end(&[&server]).await;
    });
}

/// While the monitor's hello is not answered, and while a handshake of the pool is not answered.
#[test]
fn close_interrupts_handshakes_and_waits() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let mut options = options(&server);
        options.monitor.server_monitoring_mode = ServerMonitoringMode::Stream;
        let streaming: Rig<Small> = rig(net, options);
        streaming.known().await;
        eventually("its stream runs", || server.look(|view| view.exhausting_count()) == 1).await;
        let polling = small(net, &server);
        polling.known().await;
        net.idle().await;
        ignore_hello(&server);
        let client = polling.client;
        let waiting = net.spawn_task(async move { ping(&client).await });
        eventually("it is greeted", || polling.pool().counts.pending == 1 && server.open_count() == 4).await;
        client.close();
        assert_eq!(refused(waiting.await).check_out(), Some(&CheckOutError::PoolClosed));
        polling.client.close();
        streaming.client.close();
        polling.end(&[]).await;
        streaming.end(&[&server]).await;
    });
}

/// As often as the device sleeps: each time with new connections in the same memory.
#[test]
fn closed_client_is_opened_again() {
    async fn opened<L: Layout<Events = Log, Network = Stack<'static>>>(net: &Net) {
        let server = server();
        net.open_to(&server);
        let rig: Rig<L> = rig(net, options(&server));
        for round in 0..20 {
            rig.client.warm_up(Some(4)).await.expect("four");
            rig.at_rest(&server, 1).await;
            let client = rig.client;
            server.inject(FaultRule::once(Fault::Silence).on_command("ping"));
            let sent = net.spawn_task(async move { ping(&client).await });
            eventually("it is in use", || rig.pool().counts.in_use == 1).await;
            client.close();
            assert_eq!(refused(rig.client.check_out().await), OperationError::Closed);
            assert_eq!(client.open(), Err(SetupError::InUse), "{round}");
            drop(sent);
            client.closed().await;
            assert_eq!(rig.sockets_away(), 0);
            eventually("the server has no connection", || server.open_count() == 0).await;
            assert_eq!(refused(rig.client.check_out().await), OperationError::Closed);
            client.open().expect("it is closed");
            client.open().expect("nothing happens");
        }
        rig.ping().await.expect("its reply");
        rig.at_rest(&server, 1).await;
        assert_eq!(rig.log.count("PoolCreated"), 21);
        assert_eq!(rig.log.count("PoolClosed"), 20);
        rig.end(&[&server]).await;
        server.look(|view| assert!(view.closed().all(|it| it.ended == Some(Ended::ByClient)), "all in order"));
    }
    run(opened::<Small>);
    run(opened::<DirectOnly>);
}

/// Operations that begin at once after the opening wait for the server; those that waited before the
/// close have failed.
#[test]
fn operations_after_the_opening_wait_for_the_server() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        rig.known().await;
        ignore_hello(&server);
        let client = rig.client;
        let before = net.spawn_task(async move { ping(&client).await });
        eventually("it waits", || rig.pool().counts.waiting == 1).await;
        client.close();
        assert_eq!(refused(before.await).check_out(), Some(&CheckOutError::PoolClosed));
        client.closed().await;
        client.open().expect("it is closed");
        let after: Vec<_> = (0..8).map(|_| net.spawn_task(async move { ping(&client).await })).collect();
        net.idle().await;
        server.clear_faults();
        client.core().request_check();
        // The hello without a reply is given up.
        net.jump(Duration::from_secs(10)).await;
        for task in after {
            task.await.expect("its reply");
        }
        rig.end(&[&server]).await;
    });
}

/// An operation that is not polled keeps its server's place: the client is not opened until it is dropped.
#[test]
fn closed_waits_for_operations_that_are_not_polled() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        rig.known().await;
        ignore_hello(&server);
        let client = rig.client;
        let mut waiting = Box::pin(client.check_out());
        assert!(futures_lite::future::poll_once(&mut waiting).await.is_none());
        client.close();
        eventually("all sockets are at home", || rig.sockets_away() == 0).await;
        net.idle().await;
        assert!(futures_lite::future::poll_once(client.closed()).await.is_none());
        assert_eq!(client.open(), Err(SetupError::InUse));
        let closed = net.spawn_task(async move { client.closed().await });
        net.idle().await;
        drop(waiting);
        closed.await;
        server.clear_faults();
        client.open().expect("it is closed");
        rig.ping().await.expect("its reply");
        rig.end(&[&server]).await;
    });
}

/// Without its runner, an opened client would never serve its waiters.
#[test]
fn client_without_its_runner_is_not_opened_again() {
    for closed_before in [false, true] {
        run(async |net| {
            let server = server();
            net.open_to(&server);
            let (rig, runner) = made::<Small>(net, options(&server));
            let running = net.spawn_task(async move { runner.run().await });
            rig.ping().await.expect("its reply");
            if closed_before {
                rig.client.close();
                rig.client.closed().await;
            }
            drop(running);
            net.idle().await;
            assert_eq!(rig.client.open(), Err(SetupError::Abandoned));
            assert_eq!(refused(rig.client.check_out().await), OperationError::Abandoned);
        });
    }
}

/// State of a runner when it is dropped.
#[derive(Clone, Copy, Debug)]
enum Dropped {
    /// Not started.
    Whole,
    Running,
    CoreRunner,
    ServerRunner,
    /// Waits for a second server, which does not exist.
    IdleServerRunner,
}

/// Without a runner, waiters would never be served, so they fail. A connection in use continues,
/// and is closed when it is checked in.
#[test]
fn dropped_runner_fails_all_waiters_with_its_own_reason() {
    type Two = Sizes<2, 1, 8, 4096, 1024, 1024, Log>;
    for dropped in [Dropped::Running, Dropped::CoreRunner, Dropped::ServerRunner, Dropped::IdleServerRunner] {
        run(async |net| {
            let server = server();
            net.open_to(&server);
            let (rig, runner) = made::<Two>(net, options(&server));
            let mut tasks = Vec::new();
            let client = rig.client;
            let victim = if let Dropped::Running = dropped {
                tasks.push(net.spawn_task(async move { runner.run().await }));
                0
            } else {
                let (core, servers) = runner.split();
                tasks.push(net.spawn_task(async move { core.run().await }));
                tasks.push(net.spawn_task(async move { servers.run().await }));
                rig.known().await;
                tasks.push(net.spawn_task(async move { servers.run().await }));
                net.idle().await;
                match dropped {
                    Dropped::ServerRunner => 1,
                    Dropped::IdleServerRunner => 2,
                    Dropped::Whole | Dropped::Running | Dropped::CoreRunner => 0,
                }
            };
            let mut guard = client.check_out().await.expect("a connection");
            let waiting: Vec<_> = (0..8).map(|_| net.spawn_task(async move { ping(&client).await })).collect();
            net.idle().await;
            assert_eq!(rig.pool().counts.waiting, 8, "{dropped:?}");
            drop(tasks.swap_remove(victim));
            for task in waiting {
                assert_eq!(refused(task.await), OperationError::Abandoned, "{dropped:?}");
            }
            assert_eq!(refused(client.check_out().await), OperationError::Abandoned, "{dropped:?}");
            assert_eq!(refused(client.warm_up(None).await), OperationError::Abandoned, "{dropped:?}");
            guard.run_command("admin", |it| it.int32("ping", 1).map(drop)).await.expect("its reply");
            drop(guard);
            assert_eq!(rig.log.closed(), [ClosedReason::PoolClosed], "{dropped:?}");
        });
    }
}

/// A client with a runner that is dropped before it runs: as a whole, as the future of `run`, or
/// after `split`.
#[test]
fn client_whose_runner_is_dropped_before_it_runs_fails_at_once() {
    run(async |net| {
        let server = server();
        for dropped in [Dropped::Whole, Dropped::Running, Dropped::CoreRunner] {
            let (rig, runner) = made::<Small>(net, options(&server));
            match dropped {
                Dropped::Running => drop(runner.run()),
                Dropped::CoreRunner => drop(runner.split()),
                Dropped::Whole | Dropped::ServerRunner | Dropped::IdleServerRunner => drop(runner),
            }
            let client = rig.client;
            let waiting = net.spawn_task(async move { ping(&client).await });
            assert_eq!(refused(waiting.await), OperationError::Abandoned, "{dropped:?}");
        }
        assert_eq!(server.accepted_count(), 0);
    });
}
