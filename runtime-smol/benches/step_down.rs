//! The time until the client knows of a step-down and an election:
//! `cargo bench -p poolhouse-smol --bench step_down`.
//!
//! A fake replica set of three members repeats a step-down and an election. The next poll is a
//! minute away, so the client receives every change in a streamed reply. The measured times are
//! upper bounds: they begin before the command to the member, which precedes that reply, and the
//! fake server uses the same machine.
//!
//! - event: until the event of the server's changed description is emitted.
//! - snapshot: until a task that waits for that event runs, and the client's snapshot of servers
//!   contains the change.
//! - selection: from the election until a task that waits for a primary has a connection to it,
//!   which is already established.

use core::time::Duration;
use poolhouse_smol::poolhouse_core::ServerType;
use poolhouse_smol::poolhouse_core::topology::OwnedSdamEvent;
use poolhouse_smol::{Client, ClientOptions, Event, EventRef, Notice, Subscription};
use poolhouse_tests::fake::FakeServer;
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};
use std::time::Instant;

/// Number of step-downs.
const ROUNDS: usize = 300;
/// The maximum time that the client must not exceed.
const AIM_MS: f64 = 20.0;
/// The time limit of every wait; far longer than needed.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() {
    println!("machine: {} cores; {ROUNDS} step-downs, ms", std::thread::available_parallelism().map_or(1, usize::from));
    println!("{:<12}{:>9}{:>9}{:>9}", "", "median", "p99", "most");
    let [events, snapshots, selections] = smol::block_on(times());
    for (name, mut times) in [("event", events), ("snapshot", snapshots), ("selection", selections)] {
        times.sort_by(f64::total_cmp);
        let (median, p99, most) = (times[ROUNDS / 2], times[ROUNDS * 99 / 100], times[ROUNDS - 1]);
        let verdict = if p99 <= AIM_MS { "kept" } else { "missed" };
        println!("{name:<12}{median:>9.3}{p99:>9.3}{most:>9.3}  (aim: p99 {AIM_MS}, {verdict})");
    }
}

async fn times() -> [Vec<f64>; 3] {
    let set = FakeReplicaSet::start(FakeReplicaSetOptions::of(3).by_hand()).expect("a set on loopback");
    let mut options = ClientOptions::parse(&set.uri()).expect("its own string");
    options.monitor.heartbeat_frequency = Duration::from_secs(60);
    options.pool.min_pool_size = 1;
    let client = Client::with_options(options).expect("valid options");
    let mut all = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        ready(&client, &set).await;
        let primary = set.primary().expect("a primary");
        let old = set.server(primary);
        let mut events = client.subscribe_where(|event| matches!(event, EventRef::Sdam(_)));

        let (told, begun) = (client.now(), Instant::now());
        set.step_down();
        let learnt = turned(&mut events, &old).await;
        let shown = type_of(&client, &old);
        let took = begun.elapsed();
        assert_eq!(shown, Some(ServerType::RsSecondary), "the event is no earlier than the snapshot");
        all[0].push(ms(learnt.saturating_since(told)));
        all[1].push(ms(took));

        let waiting = smol::spawn({
            let client = client.clone();
            async move { client.check_out().await.map(drop).map(|()| Instant::now()) }
        });
        // No event reports that the task waits. If it does not wait yet, its measured time is
        // longer.
        smol::Timer::after(Duration::from_millis(2)).await;
        let begun = Instant::now();
        set.elect((primary + 1) % 3);
        let selected = waiting.await.expect("the new primary");
        all[2].push(ms(selected.duration_since(begun)));
    }
    client.close().await;
    all
}

/// Waits until the client knows the state of every member and has a connection to it, and every
/// member streams.
async fn ready(client: &Client, set: &FakeReplicaSet) {
    let begun = Instant::now();
    loop {
        let primary = set.primary();
        let is_ready = |member: usize| {
            let server = set.server(member);
            let expected = if Some(member) == primary { ServerType::RsPrimary } else { ServerType::RsSecondary };
            let streams = server.look(|view| view.exhausting_count()) == 1;
            let address = server.address().to_string();
            let known = |status: &poolhouse_smol::ServerStatus| {
                status.address == address && status.server_type == expected && status.pool.counts.available > 0
            };
            streams && client.servers().iter().any(known)
        };
        if (0..3).all(is_ready) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{:#?}", client.servers());
        smol::Timer::after(Duration::from_millis(1)).await;
    }
}

/// The time at which the server became a secondary.
async fn turned(events: &mut Subscription, server: &FakeServer) -> poolhouse_smol::poolhouse_core::Instant {
    let wanted = server.address().to_string();
    loop {
        let Some(Notice::Event { at, event: Event::Sdam(event) }) = events.next().await else {
            panic!("the client ended, or events were lost");
        };
        if let OwnedSdamEvent::ServerDescriptionChanged { address, new, .. } = &*event {
            if *address == wanted && new.server_type() == ServerType::RsSecondary {
                return at;
            }
        }
    }
}

fn type_of(client: &Client, server: &FakeServer) -> Option<ServerType> {
    let address = server.address().to_string();
    client.servers().iter().find(|status| status.address == address).map(|status| status.server_type)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
