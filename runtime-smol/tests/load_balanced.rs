//! The client behind a fake load balancer: no monitors, separate services, and errors that affect
//! one service only.

use core::time::Duration;
use poolhouse_smol::poolhouse_core::pool::{
    CheckOutError, ClosedReason, Pinned, PoolCounts, PoolEvent, PoolState, Usage,
};
use poolhouse_smol::poolhouse_core::{Cause, ObjectId, ServerType};
use poolhouse_smol::poolhouse_driver::OperationError;
use poolhouse_smol::{
    Client, ClientOptions, CommandOptions, Connection, Error, Event, Notice, PoolSnapshot, ReadMode, ReadPreference,
    Subscription,
};
use poolhouse_tests::fake::balancer::FakeBalancer;
use poolhouse_tests::fake::{FailPoint, FailPointMode, FakeOptions, FakeServer, Received};
use poolhouse_tests::patience::{PATIENCE, eventually, refused, run};

fn options(uri: &str) -> ClientOptions {
    let mut options = ClientOptions::parse(uri).expect("the string is right");
    options.timeout = Some(PATIENCE);
    options
}

/// A balancer with two services, and a client of it with all its events.
fn balanced() -> (FakeBalancer, Client, Subscription) {
    let balancer = FakeBalancer::start(2).expect("it starts");
    let (client, events) = Client::new_subscribed(options(&balancer.uri())).expect("the options are right");
    (balancer, client, events)
}

async fn ping(guard: &mut Connection<'_>) -> Result<(), Error> {
    guard.run_command("admin", bson::doc! { "ping": 1 }).await.map(drop)
}

fn service(balancer: &FakeBalancer, place: usize) -> ObjectId {
    ObjectId(balancer.service(place).bytes())
}

fn service_of(guard: &mut Connection<'_>) -> ObjectId {
    guard.raw().established().and_then(|known| known.service_id).expect("it reached a service")
}

/// Two connections to each service.
async fn two_of_each<'c>(balancer: &FakeBalancer, client: &'c Client) -> [[Connection<'c>; 2]; 2] {
    let mut each = Vec::new();
    for place in 0..2 {
        balancer.route_to(Some(place));
        let guards = [client.check_out().await.expect("a connection"), client.check_out().await.expect("a connection")];
        each.push(guards);
    }
    balancer.route_to(None);
    each.try_into().expect("two services")
}

fn pool(client: &Client) -> PoolSnapshot {
    client.servers()[0].pool
}

fn pool_events(events: &mut Subscription) -> Vec<PoolEvent> {
    let mut seen = Vec::new();
    while let Some(notice) = events.try_next() {
        match notice {
            Notice::Event { event: Event::Pool(event), .. } => seen.push(event),
            Notice::Event { .. } => {}
            Notice::Lagged { count } => panic!("{count} events were lost"),
        }
    }
    seen
}

/// The services that were cleared.
fn cleared(events: &[PoolEvent]) -> Vec<Option<ObjectId>> {
    events
        .iter()
        .filter_map(
            |event| if let PoolEvent::PoolCleared { service_id, .. } = event { Some(*service_id) } else { None },
        )
        .collect()
}

fn hellos(server: &FakeServer) -> Vec<Received> {
    server.log().into_iter().filter(|received| received.name.eq_ignore_ascii_case("hello")).collect()
}

/// A write without a reply pins no connection: the next one has it at once.
#[test]
fn write_without_acknowledgement_returns_its_connection_at_once() {
    run(async {
        let (balancer, client, _events) = balanced();
        for id in 0..5 {
            let insert = bson::doc! { "insert": "c", "documents": [{ "_id": id }], "writeConcern": { "w": 0 } };
            client.run_command("db", insert).await.expect("sent");
            let counts = pool(&client).counts;
            assert_eq!((counts.in_use, counts.available), (0, 1));
        }
        let reply = client.run_command("admin", bson::doc! { "buildInfo": 1 }).await.expect("a reply");
        assert!(reply.contains_key("version"), "{reply}");
        let inserts: u64 = (0..2).map(|place| balancer.backend(place).count_of("insert")).sum();
        assert_eq!(inserts, 5);
        client.close().await;
    });
}

/// The server is known at once, and is never checked.
#[test]
#[doc(alias("LOG-19", "SDAM-38"))]
fn load_balancer_is_not_monitored() {
    run(async {
        let (balancer, client, mut events) = balanced();
        assert_eq!(client.servers()[0].server_type, ServerType::LoadBalancer);
        assert_eq!(pool(&client).state, PoolState::Ready);
        client.run_command("admin", bson::doc! { "ping": 1 }).await.expect("a ping");
        let nearest = CommandOptions::new().read_preference(ReadPreference::of(ReadMode::Nearest));
        client.run_command_with("admin", bson::doc! { "ping": 1 }, nearest).await.expect("another");
        // One connection in total, and one hello on it.
        let (one, other) = (balancer.backend(0), balancer.backend(1));
        assert_eq!(one.accepted_count() + other.accepted_count(), 1);
        assert_eq!(hellos(one).len() + hellos(other).len(), 1);
        let mut sdam = Vec::new();
        while let Some(Notice::Event { event, .. }) = events.try_next() {
            match event {
                Event::Heartbeat(event) => panic!("a heartbeat: {event}"),
                Event::Sdam(event) => sdam.push(event.to_string().split(' ').next().expect("a name").to_owned()),
                Event::Pool(_) | _ => {}
            }
        }
        let expected = [
            "TopologyOpening",
            "TopologyDescriptionChanged",
            "ServerOpening",
            "ServerDescriptionChanged",
            "TopologyDescriptionChanged",
        ];
        assert_eq!(sdam, expected);
        client.close().await;
    });
}

/// Hello contains the service, and each connection belongs to its service; a
/// guard keeps the same connection.
#[test]
#[doc(alias("CMAP-91", "CMAP-92"))]
fn connection_belongs_to_the_service_that_it_reached() {
    run(async {
        let (balancer, client, _events) = balanced();
        let mut guards = two_of_each(&balancer, &client).await;
        for _ in 0..10 {
            for guard in guards.iter_mut().flatten() {
                ping(guard).await.expect("a ping");
            }
        }
        for (place, guards) in guards.iter_mut().enumerate() {
            let backend = balancer.backend(place);
            for guard in guards {
                assert_eq!(service_of(guard), service(&balancer, place));
                assert_eq!(
                    guard.raw().established().expect("it is there").server_type,
                    ServerType::LoadBalancer,
                    "whatever answers"
                );
            }
            assert_eq!(backend.count_of("ping"), 20);
            let hellos = hellos(backend);
            assert_eq!(hellos.len(), 2);
            for hello in hellos {
                assert_eq!(hello.name, "hello", "never by the legacy name");
                let body = hello.body.expect("small");
                assert_eq!(body.get_bool("loadBalanced").ok(), Some(true));
            }
        }
        drop(guards);
        assert_eq!(pool(&client).counts.available, 4);
        client.close().await;
    });
}

/// A failure of one service does not affect the others.
#[test]
#[doc(alias("CMAP-75", "CMAP-88", "CMAP-89", "SDAM-70"))]
fn network_error_clears_the_service_of_its_connection_only() {
    run(async {
        let (balancer, client, mut events) = balanced();
        let [[mut failing, idle], mut well] = two_of_each(&balancer, &client).await;
        drop(idle);
        pool_events(&mut events);
        balancer.backend(0).kill().expect("it dies");
        let error = refused(ping(&mut failing).await);
        assert!(matches!(error, Error::Operation(OperationError::Exchange(_), _)), "{error:?}");
        let seen = pool_events(&mut events);
        assert_eq!(cleared(&seen), [Some(service(&balancer, 0))]);
        let PoolSnapshot { state, generation, .. } = pool(&client);
        assert_eq!((state, generation), (PoolState::Ready, 0));
        assert_eq!(client.servers()[0].server_type, ServerType::LoadBalancer);
        drop(failing);
        for guard in &mut well {
            ping(guard).await.expect("a ping");
        }
        drop(well);
        eventually("the connections of the other service are left", || {
            pool(&client).counts == PoolCounts { available: 2, ..PoolCounts::default() }
        })
        .await;
        // The idle connection may have been closed before `seen` was read.
        let mut reasons: Vec<_> = seen
            .iter()
            .chain(&pool_events(&mut events))
            .filter_map(
                |event| if let PoolEvent::ConnectionClosed { reason, .. } = event { Some(*reason) } else { None },
            )
            .collect();
        reasons.sort_by_key(|reason| reason.name());
        assert_eq!(reasons, [ClosedReason::Error, ClosedReason::Stale], "the one that failed, and the idle one");
        let accepted = balancer.backend(1).accepted_count();
        for _ in 0..4 {
            client.run_command("admin", bson::doc! { "ping": 1 }).await.expect("a ping");
        }
        assert_eq!(balancer.backend(1).accepted_count(), accepted, "those that are there are used");
        client.close().await;
    });
}

/// The second error, of connections that are stale since the first, has no effect.
#[test]
#[doc(alias("CMAP-90", "SDAM-66"))]
fn stale_errors_do_not_clear_a_service_again() {
    run(async {
        let (balancer, client, mut events) = balanced();
        let [mut both, _well] = two_of_each(&balancer, &client).await;
        balancer.backend(0).kill().expect("it dies");
        for guard in &mut both {
            refused(ping(guard).await);
        }
        assert_eq!(cleared(&pool_events(&mut events)), [Some(service(&balancer, 0))]);
        drop(both);
        // After its restart it is cleared again: it has no connections left, and its generation
        // starts at zero (CMAP-90).
        balancer.backend(0).restart().expect("it starts");
        balancer.route_to(Some(0));
        let mut again = client.check_out().await.expect("a connection");
        assert_eq!(service_of(&mut again), service(&balancer, 0));
        balancer.backend(0).kill().expect("it dies");
        refused(ping(&mut again).await);
        assert_eq!(cleared(&pool_events(&mut events)), [Some(service(&balancer, 0))]);
        drop(again);
        client.close().await;
    });
}

/// A router that shuts down is cleared; a router with a changed primary is not.
#[test]
#[doc(alias("SDAM-70", "SDAM-76"))]
fn state_changes_clear_a_service_only_when_it_shuts_down() {
    run(async {
        for (code, clears) in [(10107, false), (189, false), (91, true), (11600, true)] {
            let (balancer, client, mut events) = balanced();
            let [[mut guard, other], well] = two_of_each(&balancer, &client).await;
            balancer.backend(0).set_fail_point(FailPoint::new(FailPointMode::Times(1), &["ping"]).error(code));
            pool_events(&mut events);
            let error = refused(ping(&mut guard).await);
            assert!(matches!(&error, Error::Command(error) if error.code == code), "{error:?}");
            let expected = if clears { vec![Some(service(&balancer, 0))] } else { Vec::new() };
            assert_eq!(cleared(&pool_events(&mut events)), expected, "{code}");
            drop((guard, other, well));
            let left = if clears { 2 } else { 4 };
            eventually("those of the service are closed", || pool(&client).counts.available == left).await;
            assert_eq!(client.servers()[0].server_type, ServerType::LoadBalancer);
            client.close().await;
        }
    });
}

/// Waiters in the queue continue to wait.
#[test]
#[doc(alias = "CMAP-89")]
fn clear_of_a_service_fails_no_waiter() {
    run(async {
        let balancer = FakeBalancer::start(2).expect("it starts");
        let mut options = options(&balancer.uri());
        options.pool.max_pool_size = 1;
        let client = Client::with_options(options).expect("the options are right");
        balancer.route_to(Some(0));
        let mut held = client.check_out().await.expect("a connection");
        let waiting = smol::spawn({
            let client = client.clone();
            async move {
                let mut guard = client.check_out().await?;
                Ok::<_, Error>(service_of(&mut guard))
            }
        });
        eventually("it waits", || pool(&client).counts.waiting == 1).await;
        balancer.backend(0).kill().expect("it dies");
        refused(ping(&mut held).await);
        assert_eq!(pool(&client).counts.waiting, 1);
        balancer.route_to(None);
        drop(held);
        assert_eq!(waiting.await.expect("a connection to who is left"), service(&balancer, 1));
        client.close().await;
    });
}

/// A server that sends no service in its hello is not behind a load balancer.
#[test]
#[doc(alias("CMAP-92", "CMAP-94"))]
fn hello_without_a_service_is_an_error() {
    run(async {
        let server = FakeServer::start(FakeOptions::default()).expect("it starts");
        let uri = format!("mongodb://{}/?loadBalanced=true", server.address());
        let (client, mut events) = Client::new_subscribed(options(&uri)).expect("the options are right");
        for _ in 0..2 {
            let error = refused(client.run_command("admin", bson::doc! { "ping": 1 }).await);
            let failed = CheckOutError::EstablishFailed { cause: Cause::MissingServiceId, overloaded: false };
            assert_eq!(error.check_out(), Some(&failed));
            let text = "attempted to initialize in load balancing mode, but the server does not support this mode";
            assert!(error.to_string().contains(text), "{error}");
            assert!(!error.is_retryable());
        }
        // CMAP-94: it has no effect on the pool or the server.
        assert_eq!(cleared(&pool_events(&mut events)), []);
        assert_eq!(
            pool(&client),
            PoolSnapshot { state: PoolState::Ready, generation: 0, counts: PoolCounts::default() }
        );
        assert_eq!(client.servers()[0].server_type, ServerType::LoadBalancer);
        assert_eq!(server.count_of("ping"), 0);
        client.close().await;
    });
}

/// Before the service is known, nothing can be cleared.
#[test]
#[doc(alias = "CMAP-94")]
fn connection_that_reaches_no_service_clears_nothing() {
    run(async {
        let (balancer, client, mut events) = balanced();
        let held = two_of_each(&balancer, &client).await;
        for backend in balancer.backends() {
            backend.refuse().expect("it refuses");
        }
        let error = refused(client.check_out().await);
        let failed = CheckOutError::EstablishFailed { cause: Cause::Network, overloaded: true };
        assert_eq!(error.check_out(), Some(&failed));
        // An error in the hello has no effect either.
        for backend in balancer.backends() {
            backend.resume().expect("it listens");
            backend.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["hello"]).error(91));
        }
        let error = refused(client.check_out().await);
        let failed = CheckOutError::EstablishFailed { cause: Cause::Command { code: 91 }, overloaded: false };
        assert_eq!(error.check_out(), Some(&failed));
        assert!(error.is_retryable());
        assert_eq!(cleared(&pool_events(&mut events)), []);
        drop(held);
        assert_eq!(pool(&client).counts.available, 4, "those that are there are well");
        client.close().await;
    });
}

#[test]
#[doc(alias = "CMAP-93")]
fn wait_queue_timeout_contains_the_use_of_connections() {
    run(async {
        let balancer = FakeBalancer::start(1).expect("it starts");
        let mut options = options(&balancer.uri());
        options.pool.max_pool_size = 3;
        // It would replace the limit of the pool.
        options.timeout = None;
        options.pool.wait_queue_timeout = Some(Duration::from_millis(50));
        let client = Client::with_options(options).expect("the options are right");
        // Enough time for the connections that must be established.
        let mut cursor = client.check_out_timeout(Some(PATIENCE)).await.expect("a connection");
        let mut transaction = client.check_out_timeout(Some(PATIENCE)).await.expect("a connection");
        let other = client.check_out_timeout(Some(PATIENCE)).await.expect("a connection");
        cursor.raw().pin(Pinned::Cursor);
        transaction.raw().pin(Pinned::Transaction);
        let error = refused(client.check_out().await);
        let usage = Usage { max_pool_size: 3, cursors: 1, transactions: 1, others: 1 };
        assert_eq!(error.check_out(), Some(&CheckOutError::WaitQueueTimeout { usage: Some(usage) }));
        drop((cursor, transaction));
        // A connection that was checked in is no longer pinned.
        let again = [client.check_out().await.expect("a connection"), client.check_out().await.expect("a connection")];
        let error = refused(client.check_out().await);
        let usage = Usage { max_pool_size: 3, cursors: 0, transactions: 0, others: 3 };
        assert_eq!(error.check_out(), Some(&CheckOutError::WaitQueueTimeout { usage: Some(usage) }));
        drop((other, again));
        client.close().await;
    });
}

/// Routers are killed and restarted under load; every remaining connection is also open on a
/// router.
#[test]
fn load_continues_when_services_are_killed() {
    run(async {
        let balancer = FakeBalancer::start(3).expect("it starts");
        let mut options = options(&balancer.uri());
        options.pool.max_pool_size = 10;
        let client = Client::with_options(options).expect("the options are right");
        let stop = alloc::sync::Arc::new(core::sync::atomic::AtomicBool::new(false));
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let (client, stop) = (client.clone(), alloc::sync::Arc::clone(&stop));
                smol::spawn(async move {
                    let (mut well, mut failed) = (0_u32, 0_u32);
                    while !stop.load(core::sync::atomic::Ordering::Acquire) {
                        let outcome = client
                            .run_command_with("admin", bson::doc! { "ping": 1 }, CommandOptions::new().idempotent(true))
                            .await;
                        match outcome {
                            Ok(_) => well += 1,
                            Err(error) => {
                                assert!(error.is_transient() || error.is_retryable(), "{error:?}");
                                failed += 1;
                            }
                        }
                        smol::future::yield_now().await;
                    }
                    (well, failed)
                })
            })
            .collect();
        let pings = |place: usize| balancer.backend(place).count_of("ping");
        for round in 0..6 {
            let place = round % 3;
            // The pool may have no connection to the other router, and establishes none while it
            // has enough. So wait until it has one, or room for a new one.
            let other = (place + 1) % 3;
            let before = pings(other);
            eventually("operations reach another", || pings(other) > before || pool(&client).counts.total() < 10).await;
            balancer.backend(place).kill().expect("it dies");
            let before: u64 = (0..3).map(pings).sum();
            eventually("operations go on", || (0..3).map(pings).sum::<u64>() > before + 50).await;
            balancer.backend(place).restart().expect("it starts");
        }
        stop.store(true, core::sync::atomic::Ordering::Release);
        let mut well = 0;
        for task in tasks {
            well += task.await.0;
        }
        assert!(well > 300, "{well} operations succeeded");
        eventually("counts agree", || {
            let counts = pool(&client).counts;
            let open: usize = balancer.backends().iter().map(|backend| backend.open_count()).sum();
            counts.in_use + counts.pending + counts.waiting == 0 && open == counts.available as usize
        })
        .await;
        assert_eq!((pool(&client).state, pool(&client).generation), (PoolState::Ready, 0));
        client.close().await;
    });
}

extern crate alloc;
