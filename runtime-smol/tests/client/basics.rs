//! The main functions: commands through a pool, its options, its events, its snapshot.

use super::support::{Bell, Watch, at_rest, client, count, operation, options, ping, refused, run, server};
use alloc::sync::Arc;
use alloc::task::Wake;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use poolhouse_smol::poolhouse_core::monitor::MonitorEvent;
use poolhouse_smol::poolhouse_core::pool::{CheckOutError, PoolEvent, PoolState};
use poolhouse_smol::poolhouse_core::topology::OwnedSdamEvent;
use poolhouse_smol::poolhouse_core::{Cause, ServerType};
use poolhouse_smol::poolhouse_driver::OperationError;
use poolhouse_smol::{Client, ClientOptions, Connection, Error, Event, Notice, ServerMonitoringMode, SetupError};
use poolhouse_tests::fake::{FailPoint, FailPointMode, FakeOptions, FakeServer, ServerState};

#[test]
fn sixty_four_tasks_share_ten_connections() {
    const TASKS: usize = 64;
    const PINGS: usize = 50;
    run(async {
        let server = Arc::new(server());
        let mut options = options(&server);
        options.pool.max_pool_size = 10;
        options.pool.max_connecting = 3;
        let client = client(options);
        let done = Arc::new(AtomicUsize::new(0));
        // The server checks after each of its events: never more than the pool's ten connections
        // and the monitor's one.
        let watcher = smol::unblock({
            let (server, done) = (Arc::clone(&server), Arc::clone(&done));
            move || {
                let mut most = 0;
                let waited = server.wait_until(Duration::from_secs(60), |view| {
                    most = most.max(view.open_count());
                    done.load(Ordering::Acquire) == TASKS
                });
                (waited, most)
            }
        });
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let (client, done) = (client.clone(), Arc::clone(&done));
                smol::spawn(async move {
                    for _ in 0..PINGS {
                        ping(&client).await.expect("a ping");
                    }
                    done.fetch_add(1, Ordering::Release);
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        // One more event makes the watcher check at the end.
        ping(&client).await.expect("a ping");
        let (waited, most) = watcher.await;
        waited.expect("the tasks end");
        assert!(most <= 11, "{most} connections");
        assert!(most > 2, "only {most} connections: nothing was shared");
        at_rest(&server, &client, 1).await;
        assert_eq!(server.count_of("ping"), (TASKS * PINGS + 1) as u64);
        let snapshot = client.servers()[0].pool;
        assert_eq!((snapshot.state, snapshot.generation), (PoolState::Ready, 0));
        client.close().await;
    });
}

/// A `ConfigError` names the option, and nothing is started: no connection reaches the server.
#[test]
#[doc(alias("CMAP-03", "CMAP-05", "MON-24"))]
fn options_out_of_range_start_nothing() {
    run(async {
        let server = server();
        type Change = fn(&mut ClientOptions);
        let cases: [(&str, Change); 5] = [
            ("maxConnecting", |options| options.pool.max_connecting = 0),
            ("minPoolSize", |options| {
                options.pool.max_pool_size = 3;
                options.pool.min_pool_size = 4;
            }),
            ("heartbeatFrequencyMS", |options| options.monitor.heartbeat_frequency = Duration::from_millis(499)),
            ("heartbeatFrequencyMS", |options| options.monitor.heartbeat_frequency = Duration::MAX),
            ("connectTimeoutMS", |options| options.monitor.connect_timeout = Some(Duration::MAX)),
        ];
        for (name, change) in cases {
            let mut options = options(&server);
            options.pool.min_pool_size = 1;
            change(&mut options);
            let error = refused(Client::with_options(options));
            let Error::Setup(SetupError::Config(error)) = error else { panic!("{name}: {error:?}") };
            assert!(error.to_string().contains(name), "{error}");
        }
        let mut named = options(&server);
        named.app_name = Some("n".repeat(129));
        assert!(matches!(refused(Client::with_options(named)), Error::Setup(SetupError::Metadata(_))));
        assert!(matches!(
            refused(Client::with_options(ClientOptions::new("a:0"))),
            Error::Setup(SetupError::Option(_))
        ));
        for uri in
            ["http://a", "mongodb://a,", "mongodb://:1", "mongodb://", "mongodb://a/?replicaSet=r&loadBalanced=true"]
        {
            assert!(matches!(refused(Client::new(uri).await), Error::Setup(SetupError::Uri(_))), "{uri}");
        }
        assert!(matches!(
            refused(Client::new("mongodb://a/?proxyHost=p").await),
            Error::Setup(SetupError::Unsupported(_))
        ));
        assert!(matches!(ClientOptions::parse("mongodb+srv://a.b.c"), Err(Error::Setup(SetupError::LookupNeeded))));
        // The next connection is the first that the server accepts.
        let client = client(options(&server));
        ping(&client).await.expect("a ping");
        assert_eq!(server.accepted_count(), 2);
        client.close().await;
    });
}

/// The sizes in a monitor's hello apply to no other connection; each uses the sizes of its
/// own hello.
#[test]
#[doc(alias = "SDAM-86")]
fn each_connection_keeps_the_sizes_of_its_own_hello() {
    run(async {
        let server = server();
        let client = client(options(&server));
        let first = client.check_out().await.expect("a connection");
        server.update_state(|state| state.document_bytes_max = 1_000_000);
        let mut second = client.check_out().await.expect("another");
        let mut first = first;
        let bytes = |guard: &mut Connection<'_>| guard.raw().established().map(|told| told.sizes.max_bson_object_bytes);
        assert_eq!(bytes(&mut first), Some(16 * 1024 * 1024));
        assert_eq!(bytes(&mut second), Some(1_000_000));
        let large = bson::doc! { "insert": "some", "documents": [{ "text": "x".repeat(2_000_000) }] };
        first.run_command("db", large.clone()).await.expect("the first still takes it");
        assert!(matches!(operation(&refused(second.run_command("db", large).await)), OperationError::Exchange(_)));
    });
}

/// A scope that always checks its connection in.
#[test]
#[doc(alias = "CMAP-74")]
fn with_connection_keeps_one_connection_and_returns_it() {
    run(async {
        let server = server();
        let client = client(options(&server));
        let ids = client
            .with_connection(async |guard| {
                let mut ids = Vec::new();
                for _ in 0..3 {
                    guard.run_command("admin", bson::doc! { "ping": 1 }).await.expect("a ping");
                    ids.push(guard.connection_id());
                }
                Ok::<_, Error>(ids)
            })
            .await
            .expect("a connection");
        assert_eq!(ids, [1, 1, 1]);
        at_rest(&server, &client, 1).await;
        let error: Result<(), Error> =
            client.with_connection(async |guard| guard.run_command("a", bson::doc! { "no": 1 }).await).await.map(drop);
        assert!(matches!(refused(error), Error::Command(error) if error.code == 59));
        at_rest(&server, &client, 1).await;
        assert_eq!(client.servers()[0].pool.counts.available, 1);
        client.close().await;
    });
}

#[test]
fn refused_command_returns_the_servers_error_and_keeps_the_connection() {
    run(async {
        let server = server();
        let client = client(options(&server));
        let point = FailPoint::new(FailPointMode::Times(1), &["ping"]).error(96).labels(&["RetryableError", "Other"]);
        server.set_fail_point(point);
        let error = refused(ping(&client).await);
        assert!(error.is_retryable());
        let Error::Command(error) = error else { panic!("{error:?}") };
        assert_eq!(error.code, 96);
        assert_eq!(error.labels, ["RetryableError", "Other"]);
        assert!(error.message.is_some());
        ping(&client).await.expect("a ping");
        assert_eq!(client.servers()[0].pool.counts.total(), 1);
        assert_eq!(server.accepted_count(), 2);
        client.close().await;
    });
}

/// The names of the events that the next test checks for their order.
fn name(event: &Event) -> Option<&'static str> {
    Some(match event {
        Event::Pool(event) => event.name(),
        Event::Heartbeat(MonitorEvent::HeartbeatStarted { .. }) => "HeartbeatStarted",
        Event::Heartbeat(MonitorEvent::HeartbeatSucceeded { .. }) => "HeartbeatSucceeded",
        Event::Heartbeat(_) => return None,
        Event::Sdam(event) => match **event {
            OwnedSdamEvent::TopologyOpening { .. } => "TopologyOpening",
            OwnedSdamEvent::ServerOpening { .. } => "ServerOpening",
            OwnedSdamEvent::ServerDescriptionChanged { .. } => "ServerDescriptionChanged",
            OwnedSdamEvent::ServerClosed { .. } => "ServerClosed",
            OwnedSdamEvent::TopologyClosed { .. } => "TopologyClosed",
            OwnedSdamEvent::TopologyDescriptionChanged { .. } | OwnedSdamEvent::NoServers { .. } | _ => return None,
        },
        Event::Mux(_) | Event::Cluster(_) | Event::Command(_) | _ => return None,
    })
}

/// Nothing is missed, and descriptions change before pools do.
#[test]
#[doc(alias("CMAP-101", "LOG-02", "MON-52"))]
fn events_are_in_order_from_the_beginning() {
    run(async {
        let server = server();
        let (client, subscription) = Client::new_subscribed(options(&server)).expect("the options are right");
        let mut watch = Watch::over(subscription);
        ping(&client).await.expect("a ping");
        client.close().await;
        let names: Vec<&str> = watch.read_to_the_end().await.iter().filter_map(name).collect();
        let place =
            |name: &str| names.iter().position(|each| *each == name).unwrap_or_else(|| panic!("{name}: {names:?}"));
        let order = [
            "TopologyOpening",
            "ServerOpening",
            "HeartbeatStarted",
            "HeartbeatSucceeded",
            "ServerDescriptionChanged",
            "PoolReady",
            "ConnectionCheckOutStarted",
            "ConnectionCreated",
            "ConnectionReady",
            "ConnectionCheckedOut",
            "ConnectionCheckedIn",
            "ConnectionClosed",
            "PoolClosed",
        ];
        for pair in order.windows(2) {
            assert!(place(pair[0]) < place(pair[1]), "{pair:?}: {names:?}");
        }
        assert!(place("PoolCreated") < place("PoolReady"));
        assert_eq!(count(&names, "PoolCreated"), 1);
        assert!(place("PoolReady") < place("TopologyClosed"));
        assert!(place("ServerClosed") < place("TopologyClosed"));
    });
}

#[test]
fn lagging_subscription_reports_the_number_of_lost_events() {
    run(async {
        let server = server();
        let client = client(options(&server));
        ping(&client).await.expect("a ping");
        let mut behind = client.subscribe_where(|event| matches!(event, poolhouse_smol::EventRef::Pool(_)));
        let mut kept_up = client.subscribe();
        let mut read = 0;
        // Three events each: started, out, in.
        for _ in 0..400 {
            ping(&client).await.expect("a ping");
            while kept_up.try_next().is_some() {
                read += 1;
            }
        }
        assert!(read >= 1200);
        let mut events = 0;
        loop {
            match behind.next().await.expect("the client lives") {
                Notice::Event { .. } => events += 1,
                Notice::Lagged { count } => {
                    assert_eq!((events, count), (1024, 1200 - 1024));
                    break;
                }
            }
        }
        assert!(behind.try_next().is_none());
        // The subscription continues after that.
        ping(&client).await.expect("a ping");
        assert!(matches!(
            behind.next().await,
            Some(Notice::Event { event: Event::Pool(PoolEvent::ConnectionCheckOutStarted { .. }), .. })
        ));
        client.close().await;
    });
}

#[test]
fn snapshot_shows_server_and_pool() {
    run(async {
        let server = server();
        let mut options = options(&server);
        options.pool.max_pool_size = 1;
        let client = client(options);
        let guard = client.check_out().await.expect("a connection");
        let waiting = smol::spawn({
            let client = client.clone();
            async move { ping(&client).await }
        });
        super::support::eventually("one waits", || {
            client.servers().first().is_some_and(|server| server.pool.counts.waiting == 1)
        })
        .await;
        let [status] = &client.servers()[..] else { panic!("one server") };
        assert_eq!(status.address, server.address().to_string());
        assert_eq!(status.server_type, ServerType::Standalone);
        assert!(status.round_trip_average.is_some());
        assert_eq!(status.pool.counts.in_use, 1);
        assert_eq!(status.pool.counts.total(), 1);
        drop(guard);
        waiting.await.expect("a ping");
        at_rest(&server, &client, 1).await;
        client.close().await;
    });
}

#[test]
fn unix_socket_serves_like_tcp() {
    run(async {
        let folder = std::env::temp_dir().join(format!("poolhouse-client-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("mongodb-1.sock");
        let mut fake = FakeOptions::default();
        fake.unix_path = Some(path.clone());
        let server = FakeServer::start(fake).expect("the fake server starts");
        let address = path.to_str().expect("UTF-8").to_owned();
        let encoded = address.replace('/', "%2F");
        let client = Client::new(&format!("mongodb://{encoded}")).await.expect("a path is an address");
        ping(&client).await.expect("a ping");
        assert!(server.look(|view| view.open().all(|info| info.peer.is_none())));
        assert_eq!(client.servers()[0].address, address);
        client.close().await;
        drop(server);
        std::fs::remove_dir_all(&folder).expect("the folder goes");
    });
}

#[test]
fn server_receives_the_application_and_driver_names() {
    run(async {
        let server = server();
        let mut options = options(&server);
        options.app_name = Some("the \u{e4}pp".to_owned());
        options.monitor.server_monitoring_mode = ServerMonitoringMode::Auto;
        let client = client(options);
        ping(&client).await.expect("a ping");
        // The connections of check, RTT and pool.
        server
            .wait_until(super::support::PATIENCE, |view| view.open().filter(|info| info.client.is_some()).count() == 3)
            .expect("three connections greet");
        server.look(|view| {
            for info in view.open() {
                assert_eq!(info.app_name.as_deref(), Some("the \u{e4}pp"));
                let driver =
                    info.client.as_ref().and_then(|client| client.get_document("driver").ok()).expect("a driver");
                assert_eq!(driver.get_str("name").ok(), Some("poolhouse-smol"));
                assert_eq!(driver.get_str("version").ok(), Some(env!("CARGO_PKG_VERSION")));
            }
        });
        client.close().await;
    });
}

/// The time in the queue is limited, and the caller's own deadline applies as
/// well.
#[test]
#[doc(alias("CMAP-25", "CMAP-70"))]
fn waiting_for_a_connection_ends_at_the_deadline() {
    run(async {
        let server = server();
        let mut options = options(&server);
        options.pool.max_pool_size = 1;
        let client = client(options);
        let guard = client.check_out().await.expect("a connection");
        for timeout in [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(30)] {
            let begun = std::time::Instant::now();
            let error = refused(client.check_out_timeout(Some(timeout)).await);
            assert!(matches!(error.check_out(), Some(CheckOutError::WaitQueueTimeout { .. })), "{error:?}");
            assert!(error.is_timeout());
            assert!(begun.elapsed() >= timeout);
        }
        assert_eq!(client.servers()[0].pool.counts.waiting, 0);
        drop(guard);
        ping(&client).await.expect("a ping");
        client.close().await;
    });
}

#[test]
fn too_large_documents_leave_the_connection_usable() {
    run(async {
        let server = server();
        let client = client(options(&server));
        let text = "x".repeat(3_000_000);
        let insert = bson::doc! { "insert": "large", "documents": [{ "_id": 1, "text": text.as_str() }] };
        client.run_command("db", insert).await.expect("an insert");
        for _ in 0..2 {
            let found = client.run_command("db", bson::doc! { "find": "large" }).await.expect("a find");
            let batch =
                found.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch")).expect("a batch");
            assert_eq!(batch[0].as_document().and_then(|doc| doc.get_str("text").ok()).map(str::len), Some(3_000_000));
            ping(&client).await.expect("a ping");
        }
        let huge = bson::doc! { "insert": "large", "text": "x".repeat(48_000_000) };
        let error = refused(client.run_command("db", huge).await);
        let OperationError::Exchange(error) = operation(&error) else { panic!("{error:?}") };
        assert_eq!(error.cause(), None::<Cause>);
        ping(&client).await.expect("a ping");
        // One connection of the pool performed everything.
        assert_eq!(server.accepted_count(), 2);
        client.close().await;
    });
}

/// The number of connections established at a time has no upper bound; the number of tasks for it
/// has.
#[test]
fn unlimited_max_connecting_has_a_bounded_number_of_tasks() {
    run(async {
        let server = server();
        for max_pool_size in [0, 2] {
            let mut options = options(&server);
            options.pool.max_connecting = u32::MAX;
            options.pool.max_pool_size = max_pool_size;
            let client = client(options);
            ping(&client).await.expect("a ping");
            client.close().await;
        }
    });
}

/// A waker that reads the client's state: no lock may be held while a waker is called.
struct Nosy {
    client: Client,
    woken: Bell,
}

impl Wake for Nosy {
    fn wake(self: Arc<Self>) {
        let _ = self.client.servers();
        drop(self.client.subscribe());
        self.woken.ring();
    }
}

#[test]
fn wakers_may_call_the_client() {
    let server = server();
    let mut options = options(&server);
    options.pool.max_pool_size = 1;
    let client = client(options);
    let mut subscription = client.subscribe();
    // A reader of events, a task in selection, and waiters that are granted the connection in turn.
    let nosy = Arc::new(Nosy { client: client.clone(), woken: Bell::default() });
    let waker = Waker::from(Arc::clone(&nosy));
    let mut context = Context::from_waker(&waker);
    for _ in 0..20 {
        let mut operations: Vec<_> = (0..3).map(|_| Box::pin(ping(&client))).collect();
        let mut read = 0;
        while !operations.is_empty() {
            let mut idle = true;
            operations.retain_mut(|operation| {
                let polled = operation.as_mut().poll(&mut context);
                idle &= polled.is_pending();
                polled.is_pending()
            });
            while let Poll::Ready(notice) = subscription.poll_next(&mut context) {
                assert!(notice.is_some());
                (read, idle) = (read + 1, false);
            }
            assert!(!idle || nosy.woken.wait(), "never woken");
        }
        assert!(read > 0);
    }
    run(client.close());
}

/// Behind a load balancer the server is not monitored; a failed
/// connection makes those to its service stale, and the pool stays ready.
#[test]
#[doc(alias("CMAP-88", "CMAP-89", "SDAM-38"))]
fn load_balancer_is_not_checked_and_cleared_by_service() {
    run(async {
        let service = bson::oid::ObjectId::new();
        let state = ServerState::load_balanced(vec![service]);
        let server = FakeServer::start(FakeOptions::with_state(state)).expect("the fake server starts");
        let mut options = options(&server);
        options.pool.load_balanced = true;
        let client = client(options);
        ping(&client).await.expect("a ping");
        assert_eq!(server.accepted_count(), 1);
        assert_eq!(client.servers()[0].server_type, ServerType::LoadBalancer);
        let mut watch = Watch::of(&client);
        server.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["ping"]).close());
        refused(ping(&client).await);
        let cleared = watch.until_pool("PoolCleared", |event| matches!(event, PoolEvent::PoolCleared { .. })).await;
        assert!(matches!(cleared, PoolEvent::PoolCleared { service_id: Some(_), .. }), "{cleared:?}");
        ping(&client).await.expect("a ping");
        assert_eq!(
            client.servers().first().map(|server| (server.pool.state, server.pool.generation)),
            Some((PoolState::Ready, 0))
        );
        at_rest(&server, &client, 0).await;
        client.close().await;
    });
}

/// A server that is not behind a load balancer is refused.
#[test]
#[doc(alias = "CMAP-92")]
fn server_without_a_load_balancer_is_refused_in_load_balanced_mode() {
    run(async {
        let server = server();
        let mut options = options(&server);
        options.pool.load_balanced = true;
        let client = client(options);
        let error = refused(ping(&client).await);
        let expected = CheckOutError::EstablishFailed { cause: Cause::MissingServiceId, overloaded: false };
        assert_eq!(error.check_out(), Some(&expected));
        client.close().await;
    });
}
