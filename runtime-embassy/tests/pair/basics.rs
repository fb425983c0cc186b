//! The main functions of a client: commands, concurrency, pool options.

use super::net::{Net, clock, run};
use super::support::{
    DirectOnly, Log, Rig, Small, document, eventually, find, insert, options, ping, refused, rig, seeds, server, small,
};
use alloc::rc::Rc;
use core::cell::RefCell;
use core::time::Duration;
use embassy_net::Stack;
use poolhouse_embassy::poolhouse_core::pool::{CheckOutError, ClosedReason};
use poolhouse_embassy::poolhouse_core::topology::TopologyType;
use poolhouse_embassy::{
    ADDRESS_BYTES_MAX, Buffers, Client, CommandOptions, Credential, Layout, MonitorOptions, OperationError, Options,
    PoolEvent, PoolOptions, RawDocument, Resources, ServerMonitoringMode, SetupError, Sizes,
};
use poolhouse_tests::fake::{FailPoint, FailPointMode, Fault, FaultRule};
use poolhouse_tests::patience::Stopwatch;

/// One server, and many tasks.
type Crowd = Sizes<1, 4, 32, 4096, 1024, 1024, Log>;
/// One server with two workers.
type Two = Sizes<1, 4, 8, 4096, 1024, 1024, Log, 2>;

#[test]
fn client_connects_and_pings() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        rig.ping().await.expect("a ping");
        assert_eq!(server.count_of("ping"), 1);
        assert_eq!(rig.client.topology_type(), TopologyType::Single);
        rig.at_rest(&server, 1).await;
        rig.end(&[&server]).await;
    });
}

#[test]
fn many_tasks_share_few_connections() {
    const TASKS: usize = 32;
    const PINGS: usize = 20;
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let rig: Rig<Crowd> = rig(net, options(&server));
        rig.known().await;
        let most = Rc::new(RefCell::new(0));
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let (client, most) = (rig.client, Rc::clone(&most));
                net.spawn_task(async move {
                    for _ in 0..PINGS {
                        ping(&client).await.expect("a ping");
                        client.for_each_server(|it| {
                            let mut most = most.borrow_mut();
                            *most = it.pool.counts.total().max(*most);
                        });
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        rig.at_rest(&server, 1).await;
        assert_eq!(server.count_of("ping"), (TASKS * PINGS) as u64);
        assert_eq!(*most.borrow(), 4, "connections of the pool, at most");
        assert_eq!(server.accepted_count(), 5);
        assert_eq!(rig.pool().generation, 0);
        rig.end(&[&server]).await;
    });
}

/// Waiters are served in order of arrival.
#[test]
#[doc(alias = "CMAP-20")]
fn waiters_are_served_in_order() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let pool = PoolOptions { max_pool_size: 1, ..PoolOptions::DEFAULT };
        let rig: Rig<Crowd> = rig(net, Options { pool, ..options(&server) });
        let held = rig.client.check_out().await.expect("a connection");
        let order = Rc::new(RefCell::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in 0..32 {
            let (client, order) = (rig.client, Rc::clone(&order));
            tasks.push(net.spawn_task(async move {
                let mut guard = client.check_out().await.expect("a connection");
                order.borrow_mut().push(number);
                guard.run_command("admin", |writer| writer.int32("ping", 1).map(drop)).await.expect("a ping");
            }));
            net.idle().await;
        }
        assert_eq!(rig.pool().counts.waiting, 32);
        drop(held);
        for task in tasks {
            task.await;
        }
        assert_eq!(*order.borrow(), (0..32).collect::<Vec<_>>());
        assert_eq!(server.accepted_count(), 2);
        rig.end(&[&server]).await;
    });
}

#[test]
fn reply_is_copied_to_the_caller_or_read_where_it_was_received() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        insert(&rig.client, "some", 7).await.expect("an insert");
        assert_eq!(find(&rig.client, "some").await.expect("a reply"), 7);
        // A command that was encoded beforehand.
        let command = [bson::doc! { "find": "some" }].map(|it| it.to_vec().expect("bytes")).concat();
        let mut reply = [0; 1024];
        let raw = RawDocument::new(&command).expect("a document");
        let reply = rig.client.run_raw_command("db", raw, &mut reply).await.expect("a reply");
        assert!(document(reply).get_document("cursor").is_ok());
        let mut guard = rig.client.check_out().await.expect("a connection");
        let borrowed = guard.run_command("db", |writer| writer.str("find", "some").map(drop)).await.expect("a reply");
        assert_eq!(borrowed.get("ok").expect("well-formed").map(|ok| ok.as_flag()), Some(Some(true)));
        assert!(guard.reply().is_some());
        drop(guard);
        assert_eq!(server.count_of("find"), 3);
        let last = server.log().pop().expect("a command").body.expect("a small one");
        assert_eq!(last.get_str("$db").expect("a text"), "db");
        rig.at_rest(&server, 1).await;
        rig.end(&[&server]).await;
    });
}

#[test]
fn refused_command_has_its_code_and_keeps_the_connection() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        let mut guard = rig.client.check_out().await.expect("a connection");
        let error = refused(guard.run_command("admin", |writer| writer.int32("unheardOf", 1).map(drop)).await);
        assert!(matches!(error, OperationError::Command { code: 59, .. }), "{error:?}");
        let told = document(guard.reply().expect("the server's words"));
        assert_eq!(told.get_i32("code").expect("a number"), 59);
        guard.run_command("admin", |writer| writer.int32("ping", 1).map(drop)).await.expect("as good as before");
        drop(guard);
        rig.at_rest(&server, 1).await;
        assert_eq!(server.accepted_count(), 2);
        rig.end(&[&server]).await;
    });
}

#[test]
fn time_limit_of_a_command_replaces_the_clients() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        rig.ping().await.expect("a ping");
        server.inject(FaultRule::once(Fault::Silence).on_command("ping"));
        let (begun, skipped) = (clock::now(), clock::skipped());
        let limit = Duration::from_secs(7);
        let limited = CommandOptions::new().timeout(limit);
        let mut reply = [0; 256];
        let ping = rig.client.run_command_with("admin", |it| it.int32("ping", 1).map(drop), &mut reply, limited);
        let error = refused(net.jumping(Duration::from_secs(30), || server.count_of("ping") == 2, ping).await);
        assert_eq!(error, OperationError::Timeout);
        assert!(clock::now() - begun >= limit);
        assert!(clock::skipped() - skipped <= limit);
        // The reply is outstanding: the connection is not handed to another caller.
        assert_eq!(rig.log.closed(), [ClosedReason::Error]);
        rig.ping().await.expect("a ping");
        rig.at_rest(&server, 1).await;
        rig.end(&[&server]).await;
    });
}

/// Client Side Operations Timeout, "timeoutMS": the limit of the client covers a whole operation.
#[test]
fn clients_time_limit_ends_an_operation() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let rig: Rig<Small> = rig(net, Options { timeout: Some(Duration::from_secs(3)), ..options(&server) });
        rig.ping().await.expect("a ping");
        server.freeze();
        let begun = clock::now();
        let error = refused(net.jumping(Duration::from_secs(30), || net.is_owed(), rig.ping()).await);
        assert_eq!(error, OperationError::Timeout);
        assert!(clock::now() - begun >= Duration::from_secs(3));
        server.thaw();
        rig.ping().await.expect("a ping");
        rig.end(&[&server]).await;
    });
}

/// A command that may be run twice has a second attempt after an error of the server's state; all
/// others have no second attempt.
#[test]
fn only_an_idempotent_command_is_run_twice() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        rig.ping().await.expect("a ping");
        for (options, succeeds) in [(CommandOptions::new(), false), (CommandOptions::new().idempotent(true), true)] {
            server.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["ping"]).error(91));
            let mut reply = [0; 256];
            let ping = rig.client.run_command_with("admin", |it| it.int32("ping", 1).map(drop), &mut reply, options);
            let outcome = net.skipping(Duration::from_secs(5), ping).await.map(drop);
            assert_eq!(outcome.is_ok(), succeeds, "{outcome:?}");
        }
        rig.at_rest(&server, 1).await;
        rig.end(&[&server]).await;
    });
}

/// All tables are full: an error, and no panic. Waiters are still served.
#[test]
fn pool_whose_waiters_table_is_full_is_busy() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let pool = PoolOptions { max_pool_size: 1, ..PoolOptions::DEFAULT };
        let rig: Rig<Small> = rig(net, Options { pool, ..options(&server) });
        let held = rig.client.check_out().await.expect("a connection");
        let waiting = wait(net, &rig, 8).await;
        assert_eq!(rig.pool().counts.waiting, 8);
        for _ in 0..3 {
            let error = refused(rig.client.check_out().await);
            assert_eq!(error.check_out(), Some(&CheckOutError::Busy { waiting: 8 }));
        }
        // A waiter that is dropped frees its slot.
        let mut waiting = waiting;
        drop(waiting.pop());
        eventually("one has left", || rig.pool().counts.waiting == 7).await;
        waiting.extend(wait(net, &rig, 1).await);
        drop(held);
        for task in waiting {
            task.await.expect("a ping");
        }
        rig.at_rest(&server, 1).await;
        rig.end(&[&server]).await;
    });
}

async fn wait(net: &Net, rig: &Rig<Small>, count: usize) -> Vec<async_executor::Task<Result<(), OperationError>>> {
    let client = rig.client;
    let tasks = (0..count).map(|_| net.spawn_task(async move { ping(&client).await })).collect();
    net.idle().await;
    tasks
}

#[test]
fn selection_whose_table_is_full_is_busy() {
    run(async |net| {
        let server = server();
        // The server does not accept connections yet.
        let rig: Rig<Small> = rig(net, options(&server));
        let waiting = wait(net, &rig, 8).await;
        for _ in 0..3 {
            assert_eq!(refused(rig.client.check_out().await), OperationError::Busy);
        }
        net.open_to(&server);
        for task in waiting {
            net.skipping(Duration::from_secs(10), task).await.expect("a ping");
        }
        rig.at_rest(&server, 1).await;
        rig.end(&[&server]).await;
    });
}

#[test]
fn warming_up_whose_table_is_full_is_busy() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let rig: Rig<Small> = rig(net, options(&server));
        rig.known().await;
        // From now on the server answers no handshake.
        server.inject(FaultRule::always(Fault::Silence));
        let client = rig.client;
        let warming: Vec<_> = (0..4).map(|_| net.spawn_task(async move { client.warm_up(Some(3)).await })).collect();
        net.idle().await;
        let error = refused(client.warm_up(Some(3)).await);
        assert!(matches!(error.check_out(), Some(CheckOutError::Busy { .. })), "{error:?}");
        drop(warming);
        server.clear_faults();
        rig.end(&[&server]).await;
    });
}

/// The wait ends at the timeout and not earlier.
#[test]
#[doc(alias("CMAP-22", "CMAP-23"))]
fn wait_queue_timeout_ends_a_wait() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let wait_queue_timeout = Duration::from_secs(40);
        let pool =
            PoolOptions { max_pool_size: 1, wait_queue_timeout: Some(wait_queue_timeout), ..PoolOptions::DEFAULT };
        let rig: Rig<Small> = rig(net, Options { pool, timeout: None, ..options(&server) });
        let held = rig.client.check_out().await.expect("a connection");
        let (begun, skipped) = (clock::now(), clock::skipped());
        let error = refused(net.skipping(Duration::from_secs(60), rig.client.check_out()).await);
        assert_eq!(error.check_out(), Some(&CheckOutError::WaitQueueTimeout { usage: None }));
        assert!(clock::now() - begun >= wait_queue_timeout);
        assert!(clock::skipped() - skipped <= wait_queue_timeout);
        drop(held);
        rig.ping().await.expect("a ping");
        rig.end(&[&server]).await;
    });
}

/// CMAP-08, CMAP-51.
#[test]
#[doc(alias("CMAP-08", "CMAP-51"))]
fn idle_connections_are_closed_in_time() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let pool = PoolOptions { max_idle_time: Some(Duration::from_secs(60)), ..PoolOptions::DEFAULT };
        let rig: Rig<Small> = rig(net, Options { pool, ..options(&server) });
        let guards = [rig.client.check_out().await, rig.client.check_out().await];
        drop(guards);
        rig.at_rest(&server, 1).await;
        assert_eq!(rig.pool().counts.available, 2);
        net.skip(Duration::from_secs(50)).await;
        assert_eq!(rig.pool().counts.available, 2, "before their time");
        net.skip(Duration::from_secs(20)).await;
        assert_eq!(rig.pool().counts.available, 0);
        assert_eq!(rig.log.closed(), [ClosedReason::Idle, ClosedReason::Idle]);
        rig.at_rest(&server, 1).await;
        rig.ping().await.expect("a ping");
        rig.end(&[&server]).await;
    });
}

/// CMAP-06.
#[test]
#[doc(alias = "CMAP-06")]
fn pool_is_filled_to_its_minimum_and_filled_again() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let pool =
            PoolOptions { min_pool_size: 3, max_idle_time: Some(Duration::from_secs(100)), ..PoolOptions::DEFAULT };
        let rig: Rig<Small> = rig(net, Options { pool, ..options(&server) });
        rig.client.warm_up(None).await.expect("it is filled");
        assert_eq!(rig.pool().counts.available, 3);
        rig.at_rest(&server, 1).await;
        net.skip(Duration::from_secs(110)).await;
        eventually("it is filled again", || rig.pool().counts.available == 3).await;
        assert_eq!(rig.log.closed(), [ClosedReason::Idle; 3]);
        rig.at_rest(&server, 1).await;
        rig.end(&[&server]).await;
    });
}

#[test]
fn warm_up_establishes_the_requested_connections() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        rig.client.warm_up(Some(4)).await.expect("it is filled");
        assert_eq!(rig.pool().counts.available, 4);
        rig.at_rest(&server, 1).await;
        rig.ping().await.expect("a ping");
        assert_eq!(server.accepted_count(), 5);
        rig.end(&[&server]).await;
    });
}

/// A handshake that hangs does not delay the other one.
#[test]
#[doc(alias = "CMAP-07")]
fn two_connections_are_established_at_once() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let rig: Rig<Two> = rig(net, options(&server));
        rig.known().await;
        net.settled().await;
        server.inject(FaultRule::once(Fault::Silence));
        let client = rig.client;
        let begun = Stopwatch::start();
        let tasks: Vec<_> = (0..2).map(|_| net.spawn_task(async move { client.check_out().await.is_ok() })).collect();
        eventually("one has its connection", || tasks.iter().any(|task| task.is_finished())).await;
        // Otherwise it waits for the other for ten seconds.
        begun.assert_below(Duration::from_secs(8));
        drop(tasks);
        rig.end(&[&server]).await;
    });
}

#[test]
fn max_pool_size_beyond_the_memory_means_the_memory() {
    run(async |net| {
        let server = server();
        for max_pool_size in [0, 100] {
            let pool = PoolOptions { max_pool_size, ..PoolOptions::DEFAULT };
            net.open_to(&server);
            let rig: Rig<Small> = rig(net, Options { pool, ..options(&server) });
            let mut held = Vec::new();
            for _ in 0..4 {
                held.push(rig.client.check_out().await.expect("a connection"));
            }
            let waiting = wait(net, &rig, 2).await;
            assert_eq!((rig.pool().counts.total(), rig.pool().counts.waiting), (4, 2));
            drop(held);
            for task in waiting {
                task.await.expect("a ping");
            }
            rig.end(&[&server]).await;
        }
    });
}

#[test]
fn hello_contains_the_application_and_the_driver() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let rig: Rig<Small> = rig(net, Options { app_name: Some("thermometer"), ..options(&server) });
        rig.ping().await.expect("a ping");
        let told = server.look(|view| view.open().last().and_then(|info| info.client.clone())).expect("it was told");
        let text = |of: &str, name: &str| told.get_document(of).and_then(|it| it.get_str(name)).expect("a text");
        assert_eq!(text("application", "name"), "thermometer");
        assert_eq!(text("driver", "name"), "poolhouse");
        assert_eq!(text("driver", "version"), env!("CARGO_PKG_VERSION"));
        rig.end(&[&server]).await;
    });
}

#[test]
fn max_connecting_is_limited_to_the_workers() {
    async fn limit_of<L: Layout<Events = Log, Network = Stack<'static>>>(
        net: &Net,
        max_connecting: u32,
    ) -> Option<u32> {
        let server = server();
        net.open_to(&server);
        let pool = PoolOptions { max_connecting, ..PoolOptions::DEFAULT };
        let rig: Rig<L> = rig(net, Options { pool, ..options(&server) });
        rig.ping().await.expect("a ping");
        let created = |event: &PoolEvent| {
            if let PoolEvent::PoolCreated { options, .. } = event { Some(options.max_connecting) } else { None }
        };
        let limit = rig.log.pool_events().iter().find_map(created);
        rig.end(&[&server]).await;
        limit
    }

    run(async |net| {
        assert_eq!(limit_of::<Small>(net, 2).await, Some(1));
        assert_eq!(limit_of::<Two>(net, 9).await, Some(2));
        assert_eq!(limit_of::<Two>(net, 1).await, Some(1));
    });
}

/// Events, in order, from the beginning.
#[test]
fn events_arrive_in_order() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        rig.ping().await.expect("a ping");
        rig.end(&[&server]).await;
        let expected = [
            "PoolCreated",
            "PoolReady",
            "ConnectionCheckOutStarted",
            "ConnectionCreated",
            "ConnectionReady",
            "ConnectionCheckedOut",
            "ConnectionCheckedIn",
            "ConnectionClosed",
            "PoolClosed",
        ];
        assert_eq!(rig.log.pool_names(), expected);
    });
}

/// `Options::validate` is `const`: in a `const` item, options that it refuses fail the build.
#[test]
fn wrong_options_are_refused_by_name() {
    fn random(bytes: &mut [u8]) {
        bytes.fill(1);
    }
    let good = Options { seeds: &["10.0.0.1"], ..Options::DEFAULT };
    assert!(good.validate().is_ok());
    let pool = PoolOptions::DEFAULT;
    let monitor = MonitorOptions::DEFAULT;
    let credential = Some(Credential::new("ada", "a pencil"));
    let cases = [
        ("seeds", Options { seeds: &[], ..good }),
        ("seeds", Options { seeds: &["a", "b"], direct_connection: true, ..good }),
        ("loadBalanced", Options { pool: PoolOptions { load_balanced: true, ..pool }, ..good }),
        ("maxConnecting", Options { pool: PoolOptions { max_connecting: 0, ..pool }, ..good }),
        ("minPoolSize", Options { pool: PoolOptions { min_pool_size: 5, max_pool_size: 4, ..pool }, ..good }),
        (
            "heartbeatFrequencyMS",
            Options { monitor: MonitorOptions { heartbeat_frequency: Duration::from_millis(499), ..monitor }, ..good },
        ),
        ("random", Options { credential, ..good }),
    ];
    for (name, options) in cases {
        let error = refused(options.validate());
        assert!(error.to_string().contains(name), "{name}: {error}");
    }
    assert!(Options { credential, random: Some(random), ..good }.validate().is_ok());
}

#[test]
fn missing_and_excess_seeds_are_refused_at_the_start() {
    run(async |net| {
        let begin = |addresses: &[String], app_name| {
            let options = Options { seeds: seeds(addresses), app_name, ..Options::DEFAULT };
            let config = Box::leak(Box::new(options.validate().expect("nothing that can be seen without looking")));
            let resources = Box::leak(Box::new(Resources::<Sizes<2, 1, 1>>::new()));
            let buffers = Box::leak(Box::new(Buffers::new()));
            refused(Client::new(resources, buffers, net.stack, config).map(drop))
        };
        let name = |length: usize| "h".repeat(length);
        assert_eq!(begin(&["a", "b", "c"].map(String::from), None), SetupError::Full);
        assert_eq!(begin(&[name(ADDRESS_BYTES_MAX)], None), SetupError::Full);
        assert!(matches!(begin(&[String::from("a:0")], None), SetupError::Topology(_)));
        assert!(matches!(begin(&[String::new()], None), SetupError::Topology(_)));
        assert!(matches!(begin(&[String::from("a")], Some("n".repeat(129).leak())), SetupError::Metadata(_)));
    });
}

#[test]
fn monitor_with_one_connection_must_poll() {
    type OneMonitorConn = Sizes<1, 2, 4, 1024, 512, 512, (), 1, Stack<'static>, 512, 1>;
    run(async |net| {
        let begin = |server_monitoring_mode| {
            let monitor = MonitorOptions { server_monitoring_mode, ..MonitorOptions::DEFAULT };
            let options = Options { seeds: &["a"], monitor, ..Options::DEFAULT };
            let config = Box::leak(Box::new(options.validate().expect("they break no rule")));
            let resources = Box::leak(Box::new(Resources::<OneMonitorConn>::new()));
            let buffers = Box::leak(Box::new(Buffers::new()));
            Client::new(resources, buffers, net.stack, config).map(drop)
        };
        assert_eq!(begin(ServerMonitoringMode::Auto), Err(SetupError::Streaming));
        assert_eq!(begin(ServerMonitoringMode::Stream), Err(SetupError::Streaming));
        assert_eq!(begin(ServerMonitoringMode::Poll), Ok(()));
    });
}

#[test]
fn memory_for_a_direct_connection_is_refused_without_one() {
    run(async |net| {
        let config = Box::leak(Box::new(Options { seeds: &["a"], ..Options::DEFAULT }.build()));
        let resources = Box::leak(Box::new(Resources::<DirectOnly>::new()));
        let buffers = Box::leak(Box::new(Buffers::new()));
        let made = Client::with_events(resources, buffers, net.stack, config, Log::default()).map(drop);
        assert_eq!(made, Err(SetupError::NotDirect));
    });
}

/// TCP retransmits the frames that the cable loses; the client is only delayed.
#[test]
fn lost_and_late_frames_cost_time_only() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        rig.ping().await.expect("a ping");
        net.cable.lose_each.set(6);
        net.cable.delay.set(Duration::from_millis(20));
        for id in 0..20 {
            net.skipping(Duration::from_secs(20), insert(&rig.client, "some", id)).await.expect("an insert");
        }
        assert!(net.cable.lost.get() > 5, "{} of {} frames lost", net.cable.lost.get(), net.cable.frames.get());
        net.cable.lose_each.set(0);
        assert_eq!(server.count_of("insert"), 20);
        assert_eq!(rig.log.closed(), []);
        assert_eq!(rig.pool().generation, 0);
        net.cable.delay.set(Duration::ZERO);
        rig.end(&[&server]).await;
    });
}
