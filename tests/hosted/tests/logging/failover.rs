//! The log lines for operators while the primary of a replica set is killed and restarted.

use crate::messages::{self, Message};
use libtest_mimic::Failed;
use poolhouse_core::ServerType;
use poolhouse_core::monitor::MonitorEvent;
use poolhouse_core::topology::{TopologyDescription, TopologyType};
use poolhouse_smol::{Client, ClientOptions, Event, Notice, Subscription};
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};
use poolhouse_tests::patience::PATIENCE;
use smol::future::FutureExt;

/// The number of connections in use when the primary is killed. The operation on each of them
/// fails.
const IN_USE: usize = 5;
/// The number of failed heartbeats before another primary is elected.
const HEARTBEATS: usize = 3;
/// The reasons that a connection to a killed server can have.
const REASONS: [&str; 3] = ["the server closed the connection", "Connection reset by peer", "Connection refused"];

/// Kills the primary of a set, leaves it down for some heartbeats, elects another primary, and
/// restarts the first one. Each change has one line.
///
/// - `shows`: whether the lines are printed, as with `RUST_LOG=poolhouse=info`.
pub(crate) fn killed_primary(shows: bool) -> Result<(), Failed> {
    let set = FakeReplicaSet::start(FakeReplicaSetOptions::of(3).by_hand()).map_err(|error| error.to_string())?;
    let killed = set.primary().expect("a set starts with a primary");
    let address = set.address(killed).to_string();
    let from = messages::count();
    let elected = smol::block_on(async {
        let options = ClientOptions::parse(&format!("{}&heartbeatFrequencyMS=500", set.uri()));
        let (client, mut events) = Client::new_subscribed(options.expect("a connection string")).expect("a client");
        until(&mut events, &client, |topology| topology.servers().all(|server| server.server_type().is_known())).await;
        let mut in_use = Vec::new();
        for _ in 0..IN_USE {
            in_use.push(client.check_out().await.expect("a primary"));
        }

        set.kill(killed).expect("sockets");
        for mut connection in in_use {
            connection.run_command("admin", bson::doc! { "ping": 1 }).await.expect_err("the server is killed");
        }
        let is_lost = |topology: TopologyDescription<'_>| topology.topology_type() == TopologyType::ReplicaSetNoPrimary;
        until(&mut events, &client, is_lost).await;
        let mut failed = 0;
        while failed < HEARTBEATS {
            failed +=
                usize::from(matches!(next(&mut events).await, Event::Heartbeat(MonitorEvent::HeartbeatFailed { .. })));
        }

        set.settle();
        let elected = set.primary().expect("two of three are a majority");
        until(&mut events, &client, |topology| topology.has_writable_server()).await;
        set.restart(killed).expect("its port is free");
        set.settle();
        let is_back = |topology: TopologyDescription<'_>| {
            topology
                .servers()
                .all(|server| matches!(server.server_type(), ServerType::RsPrimary | ServerType::RsSecondary))
        };
        until(&mut events, &client, is_back).await;
        client.close().await;
        set.address(elected).to_string()
    });
    let expected = [
        ("info", format!("primary found: {address} of replica set rs0")),
        ("warn", format!("primary lost: {address} of replica set rs0: network error")),
        ("info", format!("primary found: {elected} of replica set rs0")),
        ("info", format!("server reconnected: {address}")),
    ];
    let lines: Vec<Message> = messages::since(from)
        .into_iter()
        .filter(|message| ["warn", "info"].contains(&message.level.as_str()))
        .collect();
    let mut found: Vec<_> = lines.iter().map(|line| (line.level.as_str(), crate::text(line).to_owned())).collect();
    for (level, line) in found.iter().filter(|_| shows) {
        println!("{} poolhouse::deployment: {line}", level.to_uppercase());
    }
    // The reason is that of the connection that failed first: closed, reset or refused.
    let lost = &mut found.get_mut(1).ok_or("no second line")?.1;
    let (fact, reason) = lost.split_once("network error: ").ok_or_else(|| format!("no reason: {lost}"))?;
    assert!(REASONS.iter().any(|known| is_reason(reason, known)), "{reason}");
    *lost = format!("{fact}network error");
    assert_eq!(found, expected);
    assert!(lines.iter().all(|line| line.component == "deployment"), "{lines:?}");
    Ok(())
}

/// Whether `reason` is `known`, or `known` with the number of the operating system's error.
fn is_reason(reason: &str, known: &str) -> bool {
    let Some(number) = reason.strip_prefix(known) else { return false };
    number.is_empty() || number.strip_prefix(" (os error ").is_some_and(|number| number.ends_with(')'))
}

/// The client's next event.
async fn next(events: &mut Subscription) -> Event {
    let late = async {
        smol::Timer::after(PATIENCE).await;
        panic!("no event in {PATIENCE:?}")
    };
    match events.next().or(late).await {
        Some(Notice::Event { event, .. }) => event,
        other => panic!("an event, not {other:?}"),
    }
}

/// Waits until the client's topology is as `is_so` requires.
async fn until(events: &mut Subscription, client: &Client, is_so: impl Fn(TopologyDescription<'_>) -> bool) {
    while !is_so(client.topology().get()) {
        next(events).await;
    }
}
