//! Hosts that change while a client exists. Its clock runs a hundred times as fast as the real one:
//! a minute takes 0.6 s.

use super::support::run;
use super::support::{NAME, PATIENCE, config, eventually, hosts, name_server, resolver, uri};
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use core::net::SocketAddr;
use core::time::Duration;
use poolhouse_smol::poolhouse_client as client;
use poolhouse_smol::poolhouse_client::{Platform, clock};
use poolhouse_smol::poolhouse_core::{Instant, ServerType};
use poolhouse_smol::poolhouse_driver::Subscribers;
use poolhouse_smol::{ClientOptions, DnsResolver, ServerMonitoringMode, Smol};
use poolhouse_tests::dns::{DnsServer, Fault};
use poolhouse_tests::fake::mongoses::FakeMongoses;
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};
use smol::future::FutureExt;
use std::io;
use std::path::Path;

/// Factor by which the clock runs faster.
const HURRY: u64 = 100;

/// smol with the faster clock.
#[derive(Clone, Copy, Debug, Default)]
struct Hurried;

impl Platform for Hurried {
    const DRIVER_NAME: &'static str = Smol::DRIVER_NAME;
    const DRIVER_VERSION: &'static str = Smol::DRIVER_VERSION;
    const PLATFORM_NAME: &'static str = Smol::PLATFORM_NAME;

    type Tcp = <Smol as Platform>::Tcp;
    type Unix = <Smol as Platform>::Unix;
    type Udp = <Smol as Platform>::Udp;
    type Task = <Smol as Platform>::Task;

    fn now(&self) -> Instant {
        Instant::from_nanos(clock::now().as_nanos().saturating_mul(HURRY))
    }

    async fn sleep_until(&self, at: Instant) {
        Smol.sleep_until(Instant::from_nanos(at.as_nanos().div_ceil(HURRY))).await;
    }

    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Smol.resolve(host, port).await
    }

    async fn connect_tcp(&self, address: SocketAddr) -> io::Result<Self::Tcp> {
        Smol.connect_tcp(address).await
    }

    async fn connect_unix(&self, path: &Path) -> io::Result<Self::Unix> {
        Smol.connect_unix(path).await
    }

    async fn connect_udp(&self, peer: SocketAddr) -> io::Result<Self::Udp> {
        Smol.connect_udp(peer).await
    }

    async fn send_udp(&self, socket: &Self::Udp, datagram: &[u8]) -> io::Result<usize> {
        Smol.send_udp(socket, datagram).await
    }

    async fn receive_udp(&self, socket: &Self::Udp, buffer: &mut [u8]) -> io::Result<usize> {
        Smol.receive_udp(socket, buffer).await
    }

    fn spawn<F>(&self, work: F) -> Self::Task
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Smol.spawn(work)
    }
}

type Client = client::Client<Hurried>;

/// A client with limits that are long in real time, which checks its servers every 50 ms of real
/// time.
async fn client(server: &DnsServer, more: &str) -> Client {
    let resolver = Arc::new(DnsResolver::with_config(Smol, config(server.address())));
    let mut options = ClientOptions::resolve(&uri(more), resolver).await.expect("hosts are found");
    options.monitor.heartbeat_frequency = Duration::from_secs(5);
    options.monitor.connect_timeout = None;
    options.monitor.server_monitoring_mode = ServerMonitoringMode::Poll;
    options.server_selection_timeout = Duration::from_secs(PATIENCE.as_secs() * HURRY);
    options.local_threshold = Duration::from_secs(1_000);
    Client::with_platform(Hurried, options, Subscribers::default()).expect("the options are right")
}

/// The servers that the client knows as routers.
fn known(client: &Client) -> BTreeSet<String> {
    let servers = client.servers().into_iter().filter(|server| server.server_type == ServerType::Mongos);
    servers.map(|server| server.address).collect()
}

fn all(client: &Client) -> BTreeSet<String> {
    client.servers().into_iter().map(|server| server.address).collect()
}

async fn becomes(client: &Client, hosts: &[&str]) {
    let wanted: BTreeSet<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
    eventually(&format!("{hosts:?} are known, and nobody else"), || known(client) == wanted && all(client) == wanted)
        .await;
    client.run_command("admin", bson::doc! { "ping": 1 }).await.expect("a ping");
}

/// The number of lookups of the hosts.
fn lookups(server: &DnsServer) -> usize {
    server.queries().iter().filter(|query| query.name == NAME && query.kind == 33).count()
}

#[test]
fn routers_are_added_and_removed_with_their_records() {
    run(async {
        let routers = FakeMongoses::start(4).expect("they start");
        let hosts = hosts(&routers);
        let [a, b, c, d] = [0, 1, 2, 3].map(|place: usize| hosts[place].as_str());
        let server = name_server(&[a, b]);
        let begun = Hurried.now();
        let client = client(&server, "").await;
        becomes(&client, &[a, b]).await;
        server.change(|records| records.set_srv(NAME, &[a, b, c]));
        becomes(&client, &[a, b, c]).await;
        assert!(client.now().saturating_since(begun) >= Duration::from_secs(60), "not before a minute is over");
        server.change(|records| records.set_srv(NAME, &[c]));
        becomes(&client, &[c]).await;
        server.change(|records| records.set_srv(NAME, &[d, b, "r0.evil.test:1"]));
        becomes(&client, &[d, b]).await;
        // TXT records are looked up once.
        assert_eq!(server.queries().iter().filter(|query| query.kind == 16).count(), 1);
        client.close().await;
        eventually("all connections are closed", || routers.servers().iter().all(|it| it.open_count() == 0)).await;
    });
}

#[test]
fn failed_lookups_keep_the_routers_and_are_repeated() {
    run(async {
        let routers = FakeMongoses::start(3).expect("they start");
        let hosts = hosts(&routers);
        let [a, b, c] = [0, 1, 2].map(|place: usize| hosts[place].as_str());
        let server = name_server(&[a, b]);
        let client = client(&server, "").await;
        becomes(&client, &[a, b]).await;
        server.change(|records| records.set_srv(NAME, &[c]));
        server.set_fault(Fault::Refuse(2));
        let before = lookups(&server);
        eventually("the lookup is repeated", || lookups(&server) >= before + 3).await;
        assert_eq!(all(&client), [a, b].map(str::to_owned).into());
        server.set_fault(Fault::None);
        becomes(&client, &[c]).await;
        client.close().await;
    });
}

#[test]
fn number_of_routers_is_limited_by_the_string() {
    run(async {
        let routers = FakeMongoses::start(4).expect("they start");
        let hosts = hosts(&routers);
        let [a, b, c, d] = [0, 1, 2, 3].map(|place: usize| hosts[place].as_str());
        let server = name_server(&[a, b]);
        let client = client(&server, "&srvMaxHosts=2").await;
        becomes(&client, &[a, b]).await;
        server.change(|records| records.set_srv(NAME, &[b, c, d]));
        eventually("one of the new ones takes the place of that which is gone", || {
            let known = known(&client);
            known.len() == 2 && known.contains(b) && (known.contains(c) != known.contains(d)) && all(&client) == known
        })
        .await;
        client.close().await;
    });
}

/// The members of a set are discovered from the set, however often its SRV records change.
#[test]
fn replica_set_is_not_looked_up_again() {
    run(async {
        let set = FakeReplicaSet::start(FakeReplicaSetOptions::of(1)).expect("it starts");
        let host = format!("r0.example.test:{}", set.server(0).address().port());
        let server = name_server(&[&host]);
        let client = client(&server, "").await;
        eventually("the set is found", || {
            client.servers().iter().any(|server| server.server_type == ServerType::RsPrimary)
        })
        .await;
        let before = lookups(&server);
        server.change(|records| records.set_srv(NAME, &["r1.example.test:1"]));
        let later = client.now().saturating_add(Duration::from_secs(200));
        eventually("three minutes are over", || client.now() >= later).await;
        assert_eq!(lookups(&server), before);
        client.close().await;
    });
}

/// Closing the client core below the client leaves no task that sleeps until the next lookup.
#[test]
fn close_of_the_client_core_ends_the_lookups() {
    run(async {
        let server = name_server(&["r0.example.test:1"]);
        let resolver = resolver(&server);
        let options = ClientOptions::resolve(&uri(""), Arc::clone(&resolver) as _).await.expect("hosts are found");
        let client = poolhouse_smol::Client::with_options(options).expect("the options are right");
        let handles = Arc::strong_count(&resolver);
        // Time for its task to start sleeping. Without it the test would prove less; its result
        // does not depend on it.
        smol::Timer::after(Duration::from_millis(50)).await;
        client.core().close();
        eventually("the task has dropped its resolver", || Arc::strong_count(&resolver) < handles).await;
        drop(client);
    });
}

#[test]
fn close_ends_a_lookup_in_progress() {
    run(async {
        let routers = FakeMongoses::start(1).expect("they start");
        let hosts = hosts(&routers);
        let server = name_server(&[&hosts[0]]);
        let client = client(&server, "").await;
        becomes(&client, &[&hosts[0]]).await;
        server.set_fault(Fault::Silent);
        let before = lookups(&server);
        eventually("a lookup that nobody answers begins", || lookups(&server) > before).await;
        let limit = async {
            smol::Timer::after(PATIENCE / 2).await;
            panic!("it waits for an answer");
        };
        client.close().or(limit).await;
    });
}
