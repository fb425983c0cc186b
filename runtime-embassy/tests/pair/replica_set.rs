//! Replica sets in a fixed number of slots: discovery, elections, members that join and leave.

use super::net::{Net, run};
use super::support::DropIt;
use super::support::{Log, PATIENCE, Rig, eventually, poll_times, refused, rig, seeds};
use alloc::sync::Arc;
use core::time::Duration;
use poolhouse_embassy::poolhouse_core::ServerType;
use poolhouse_embassy::poolhouse_core::pool::{CheckOutError, PoolState};
use poolhouse_embassy::poolhouse_core::topology::TopologyType;
use poolhouse_embassy::poolhouse_driver::PoolSnapshot;
use poolhouse_embassy::{
    Client, CommandOptions, Layout, MonitorOptions, OperationError, Options, PoolOptions, ReadMode, ReadPreference,
    ServerMonitoringMode, Sizes,
};
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions, MemberConfig, MemberOptions};
use poolhouse_tests::fake::{FailPoint, FailPointMode, FakeServer};

/// Three members, and one that joins while another leaves.
type Set = Sizes<4, 3, 8, 4096, 1024, 1024, Log>;

const SECOND: Duration = Duration::from_secs(1);

/// A set of this many members, all reachable, that changes only by commands of the test.
fn still_set(net: &Net, members: usize) -> FakeReplicaSet {
    let set = FakeReplicaSet::start(FakeReplicaSetOptions::of(members).by_hand()).expect("the set starts");
    for member in 0..members {
        net.open_for(set.address(member), 6);
    }
    set
}

/// Options with streaming monitors.
fn streaming(set: &FakeReplicaSet) -> Options {
    Options {
        seeds: seeds(&(0..set.servers_count()).map(|member| set.address(member)).collect::<Vec<_>>()),
        replica_set: Some(set.set_name().leak()),
        timeout: Some(PATIENCE),
        monitor: MonitorOptions { server_monitoring_mode: ServerMonitoringMode::Stream, ..MonitorOptions::DEFAULT },
        ..Options::DEFAULT
    }
}

/// Options with polling monitors, for clocks that the test advances.
fn polling(set: &FakeReplicaSet) -> Options {
    let monitor = MonitorOptions { server_monitoring_mode: ServerMonitoringMode::Poll, ..MonitorOptions::DEFAULT };
    Options { monitor, ..streaming(set) }
}

fn server_type<L: Layout>(client: &Client<L>, server: &FakeServer) -> ServerType {
    let address = server.address().to_string();
    let mut found = ServerType::Unknown;
    client.for_each_server(|it| {
        if it.address == address {
            found = it.server_type;
        }
    });
    found
}

fn addresses<L: Layout>(client: &Client<L>) -> Vec<String> {
    let mut addresses = Vec::new();
    client.for_each_server(|it| addresses.push(it.address.to_owned()));
    addresses
}

fn pool<L: Layout>(client: &Client<L>, server: &FakeServer) -> PoolSnapshot {
    let address = server.address().to_string();
    let mut found = None;
    client.for_each_server(|it| {
        if it.address == address {
            found = Some(it.pool);
        }
    });
    found.expect("a member")
}

/// Whether the client knows one primary, and all other members of the configuration as secondaries.
fn knows<L: Layout>(client: &Client<L>, set: &FakeReplicaSet) -> bool {
    let (members, primary) = (set.config(), set.primary());
    addresses(client).len() == members.len()
        && members.iter().all(|entry| {
            let primary = Some(entry.member) == primary;
            let expected = if primary { ServerType::RsPrimary } else { ServerType::RsSecondary };
            server_type(client, &set.server(entry.member)) == expected
        })
}

async fn known<L: Layout>(client: &Client<L>, set: &FakeReplicaSet) {
    eventually("the client knows the set", || knows(client, set)).await;
}

async fn ping<L: Layout>(client: &Client<L>, options: CommandOptions<'_>) -> Result<(), OperationError> {
    let mut reply = [0; 512];
    client.run_command_with("admin", |it| it.int32("ping", 1).map(drop), &mut reply, options).await.map(drop)
}

fn servers(set: &FakeReplicaSet) -> Vec<Arc<FakeServer>> {
    (0..set.servers_count()).map(|member| set.server(member)).collect()
}

/// Waits until nothing is in progress, and all servers together have as many connections as the
/// client has sockets in use.
async fn at_rest<L: Layout<Events = Log>>(rig: &Rig<L>, set: &FakeReplicaSet) {
    eventually("client and servers agree", || {
        let mut quiet = true;
        let mut conns = 0;
        rig.client.for_each_server(|it| {
            quiet &= it.pool.counts.in_use + it.pool.counts.pending + it.pool.counts.waiting == 0;
            conns += it.pool.counts.available as usize;
        });
        let open: usize = servers(set).iter().map(|server| server.open_count()).sum();
        quiet && open == rig.sockets_away() && open >= conns
    })
    .await;
}

async fn end<L: Layout<Events = Log>>(rig: &Rig<L>, set: &FakeReplicaSet) {
    let servers = servers(set);
    rig.end(&servers.iter().map(|server| &**server).collect::<Vec<_>>()).await;
}

/// Each time the client is opened, it finds the members again in the same slots, streaming or polling.
#[test]
fn client_of_a_set_is_opened_again() {
    for options in [streaming, polling] {
        run(async |net| {
            let set = still_set(net, 3);
            let rig: Rig<Set> = rig(net, options(&set));
            for round in 0..10 {
                known(&rig.client, &set).await;
                ping(&rig.client, CommandOptions::new()).await.expect("its reply");
                at_rest(&rig, &set).await;
                rig.client.close();
                rig.client.closed().await;
                assert_eq!(rig.sockets_away(), 0, "{round}");
                for server in servers(&set) {
                    eventually("the server has no connection", || server.open_count() == 0).await;
                }
                rig.client.open().expect("it is closed");
            }
            known(&rig.client, &set).await;
            rig.end(&servers(&set).iter().map(|server| &**server).collect::<Vec<_>>()).await;
        });
    }
}

fn preferring(mode: ReadMode) -> CommandOptions<'static> {
    CommandOptions::new().read_preference(ReadPreference::of(mode))
}

#[test]
fn set_is_discovered_from_one_secondary() {
    run(async |net| {
        let set = still_set(net, 3);
        let primary = set.primary().expect("a primary");
        let options = Options { seeds: seeds(&[set.address((primary + 1) % 3)]), ..streaming(&set) };
        let rig: Rig<Set> = rig(net, options);
        known(&rig.client, &set).await;
        assert_eq!(rig.client.topology_type(), TopologyType::ReplicaSetWithPrimary);
        // Commands are sent to the primary by default.
        for _ in 0..5 {
            ping(&rig.client, CommandOptions::new()).await.expect("a ping");
        }
        assert_eq!(set.server(primary).count_of("ping"), 5);
        for _ in 0..6 {
            ping(&rig.client, preferring(ReadMode::Secondary)).await.expect("a ping");
        }
        assert_eq!(set.server(primary).count_of("ping"), 5);
        let last = |server: &FakeServer| server.log().into_iter().rfind(|it| it.name == "ping");
        let told =
            servers(&set).iter().enumerate().filter(|(member, _)| *member != primary).find_map(|(_, it)| last(it));
        let told = told.and_then(|it| it.body).expect("a secondary was asked");
        let told = told.get_document("$readPreference").and_then(|it| it.get_str("mode")).expect("it was told");
        assert_eq!(told, "secondary");
        at_rest(&rig, &set).await;
        end(&rig, &set).await;
    });
}

#[test]
fn set_of_another_name_is_never_selected() {
    run(async |net| {
        let set = still_set(net, 2);
        let options = Options {
            replica_set: Some("another"),
            server_selection_timeout: 3 * SECOND,
            timeout: None,
            ..polling(&set)
        };
        let rig: Rig<Set> = rig(net, options);
        let error = refused(net.skipping(10 * SECOND, ping(&rig.client, CommandOptions::new())).await);
        assert!(matches!(error, OperationError::ServerSelection(_)), "{error:?}");
        assert_eq!(addresses(&rig.client), Vec::<String>::new());
        end(&rig, &set).await;
    });
}

/// Server Selection, "Passing read preference to mongos and load balancers": a command to a
/// directly connected member carries a read preference that permits a secondary.
#[test]
fn direct_connection_to_a_secondary_may_read_there() {
    run(async |net| {
        let set = still_set(net, 2);
        let secondary = 1 - set.primary().expect("a primary");
        let seeds = seeds(&[set.address(secondary)]);
        let rig: Rig<Set> = rig(net, Options { seeds, direct_connection: true, replica_set: None, ..streaming(&set) });
        ping(&rig.client, CommandOptions::new()).await.expect("a ping");
        assert_eq!(rig.client.topology_type(), TopologyType::Single);
        let ping = set.server(secondary).log().into_iter().rfind(|it| it.name == "ping");
        let told = ping.and_then(|it| it.body).expect("a command");
        let told = told.get_document("$readPreference").and_then(|it| it.get_str("mode")).expect("it was told");
        assert_eq!(told, "primaryPreferred");
        end(&rig, &set).await;
    });
}

/// The stream reports a step-down and an election at once; waiters are woken.
#[test]
#[doc(alias("MON-18", "MON-30", "SDAM-83"))]
fn step_down_and_election_arrive_by_the_stream() {
    run(async |net| {
        let set = still_set(net, 3);
        let rig: Rig<Set> = rig(net, streaming(&set));
        known(&rig.client, &set).await;
        for _ in 0..5 {
            let old = set.step_down();
            let gone = || server_type(&rig.client, &set.server(old)) == ServerType::RsSecondary;
            eventually("the client knows of no primary", gone).await;
            let client = rig.client;
            let waiting: Vec<_> =
                (0..8).map(|_| net.spawn_task(async move { ping(&client, CommandOptions::new()).await })).collect();
            net.idle().await;
            set.elect((old + 1) % 3);
            for task in waiting {
                task.await.expect("a ping");
            }
            known(&rig.client, &set).await;
            // SDAM-83: no connection is closed because of it.
            assert!(servers(&set).iter().all(|server| pool(&rig.client, server).generation == 0));
        }
        at_rest(&rig, &set).await;
        end(&rig, &set).await;
    });
}

#[test]
fn idempotent_command_is_sent_to_the_new_primary() {
    run(async |net| {
        let set = still_set(net, 3);
        let rig: Rig<Set> = rig(net, polling(&set));
        known(&rig.client, &set).await;
        let old = set.primary().expect("a primary");
        // The client has not received it yet.
        set.elect((old + 1) % 3);
        set.server(old).set_fail_point(FailPoint::new(FailPointMode::Times(1), &["ping"]).error(10107));
        let idempotent = ping(&rig.client, CommandOptions::new().idempotent(true));
        net.skipping(10 * SECOND, idempotent).await.expect("the second attempt succeeds");
        assert_eq!((0..3).map(|it| set.server(it).count_of("ping")).sum::<u64>(), 2);
        assert_eq!(set.server(old).count_of("ping"), 1);
        // A command that is not marked idempotent has no second attempt.
        net.skip_until("the set is known", 60 * SECOND, || knows(&rig.client, &set)).await;
        let new = set.primary().expect("a primary");
        set.server(new).set_fail_point(FailPoint::new(FailPointMode::Times(1), &["ping"]).error(10107));
        let error = refused(ping(&rig.client, CommandOptions::new()).await);
        assert!(matches!(error, OperationError::Command { code: 10107, .. }), "{error:?}");
        at_rest(&rig, &set).await;
        end(&rig, &set).await;
    });
}

#[test]
fn killed_primary_clears_its_pool_and_returns_as_a_secondary() {
    run(async |net| {
        let set = still_set(net, 3);
        let rig: Rig<Set> = rig(net, polling(&set));
        known(&rig.client, &set).await;
        for _ in 0..3 {
            let new = (set.primary().expect("a primary") + 1) % 3;
            let old = set.primary().expect("a primary");
            ping(&rig.client, CommandOptions::new()).await.expect("a ping");
            net.shut(set.address(old));
            set.kill(old).expect("it dies");
            set.elect(new);
            let idempotent = ping(&rig.client, CommandOptions::new().idempotent(true));
            net.skipping(60 * SECOND, idempotent).await.expect("the new primary answers");
            assert_eq!(pool(&rig.client, &set.server(old)).state, PoolState::Paused);
            set.restart(old).expect("it starts");
            set.settle();
            net.open_for(set.address(old), 6);
            net.skip_until("the set is known", 60 * SECOND, || knows(&rig.client, &set)).await;
        }
        net.settled().await;
        at_rest(&rig, &set).await;
        end(&rig, &set).await;
    });
}

/// The connections in use of a silent member are interrupted, and their operations
/// continue on another member.
#[test]
#[doc(alias("CMAP-82", "MON-54"))]
fn frozen_primary_interrupts_operations_which_continue_on_the_next() {
    run(async |net| {
        let set = still_set(net, 3);
        let rig: Rig<Set> = rig(net, Options { timeout: None, ..polling(&set) });
        known(&rig.client, &set).await;
        let old = set.primary().expect("a primary");
        rig.client.warm_up(Some(3)).await.expect("three");
        set.freeze(old);
        let client = rig.client;
        let tasks: Vec<_> = (0..3)
            .map(|_| net.spawn_task(async move { ping(&client, CommandOptions::new().idempotent(true)).await }))
            .collect();
        eventually("they are under way", || pool(&rig.client, &set.server(old)).counts.in_use == 3).await;
        net.idle().await;
        set.elect((old + 1) % 3);
        net.expect(&set.server(old), false);
        for task in tasks {
            net.skipping(60 * SECOND, task).await.expect("a ping");
        }
        set.thaw(old);
        net.expect(&set.server(old), true);
        set.settle();
        net.skip_until("the set is known", 60 * SECOND, || knows(&rig.client, &set)).await;
        end(&rig, &set).await;
    });
}

/// Fifty changes of the configuration: slots and sockets are reused.
#[test]
fn members_can_leave_and_join_repeatedly() {
    const CHANGES: usize = 50;
    run(async |net| {
        let set = still_set(net, 3);
        let pool = PoolOptions { min_pool_size: 1, ..PoolOptions::DEFAULT };
        let rig: Rig<Set> = rig(net, Options { pool, ..polling(&set) });
        known(&rig.client, &set).await;
        for change in 0..CHANGES / 2 {
            let leaving = (set.primary().expect("a primary") + 1 + change % 2) % 3;
            set.remove(leaving);
            net.skip_until("it is gone", 60 * SECOND, || knows(&rig.client, &set)).await;
            eventually("it has no connection", || set.server(leaving).open_count() == 0).await;
            ping(&rig.client, CommandOptions::new()).await.expect("a ping");
            set.reconfigure(|members| members.push(MemberConfig::new(leaving, MemberOptions::default())));
            set.settle();
            net.skip_until("it is back", 60 * SECOND, || knows(&rig.client, &set)).await;
            ping(&rig.client, preferring(ReadMode::Nearest)).await.expect("a ping");
        }
        net.settled().await;
        at_rest(&rig, &set).await;
        end(&rig, &set).await;
    });
}

/// A hundred times, members with new names: names do not accumulate either.
#[test]
fn members_of_new_names_can_join_and_leave_repeatedly() {
    run(async |net| {
        let set = still_set(net, 1);
        let rig: Rig<Set> = rig(net, polling(&set));
        known(&rig.client, &set).await;
        let own = set.address(0).to_string();
        for round in 0..100 {
            let strangers = [0, 1].map(|number| format!("member-{number}-of-round-{round}.test:27017"));
            let mut hosts = vec![own.clone()];
            hosts.extend(strangers.iter().cloned());
            set.set_fields(0, bson::doc! { "hosts": hosts, "setVersion": 2 + round });
            net.skip_until("they are known", 60 * SECOND, || {
                let known = addresses(&rig.client);
                known.len() == 3 && strangers.iter().all(|it| known.contains(it))
            })
            .await;
            ping(&rig.client, CommandOptions::new()).await.expect("a ping");
        }
        set.set_fields(0, bson::doc! { "hosts": [own], "setVersion": 1000 });
        net.skip_until("one is left", 60 * SECOND, || addresses(&rig.client).len() == 1).await;
        net.settled().await;
        at_rest(&rig, &set).await;
        end(&rig, &set).await;
    });
}

/// More members than slots: a specific error, and no panic. Once the members fit, the set is used.
#[test]
fn set_of_more_members_than_slots_is_an_error_until_it_fits() {
    type Two = Sizes<2, 2, 4, 4096, 1024, 1024, Log>;
    run(async |net| {
        let set = still_set(net, 5);
        let primary = set.primary().expect("a primary");
        let seeds = seeds(&[set.address(primary)]);
        let rig: Rig<Two> = rig(net, Options { seeds, timeout: None, ..polling(&set) });
        let error = refused(net.skipping(60 * SECOND, ping(&rig.client, CommandOptions::new())).await);
        assert!(matches!(error, OperationError::ServerSelection(_)), "{error:?}");
        assert!(error.to_string().contains("more than 2 members"), "{error}");
        let keep = (primary + 1) % 5;
        set.reconfigure(|members| members.retain(|it| it.member == primary || it.member == keep));
        net.skip_until("the two are known", 60 * SECOND, || knows(&rig.client, &set)).await;
        ping(&rig.client, CommandOptions::new()).await.expect("a ping");
        net.settled().await;
        at_rest(&rig, &set).await;
        end(&rig, &set).await;
    });
}

/// A connection in use to a removed member keeps the member's slot; the next member is placed as
/// soon as the connection is checked in.
#[test]
fn slot_of_a_removed_member_is_kept_while_it_is_in_use() {
    type Two = Sizes<2, 2, 4, 4096, 1024, 1024, Log>;
    run(async |net| {
        let set = still_set(net, 2);
        let primary = set.primary().expect("a primary");
        let leaving = 1 - primary;
        let rig: Rig<Two> = rig(net, polling(&set));
        known(&rig.client, &set).await;
        let preference = Some(ReadPreference::of(ReadMode::Secondary));
        let held = rig.client.check_out_preferring(preference).await.expect("a connection");
        set.remove(leaving);
        net.skip_until("it is gone", 60 * SECOND, || addresses(&rig.client).len() == 1).await;
        let new = set.add(MemberOptions::default()).expect("it starts");
        net.open_for(set.address(new), 6);
        set.settle();
        net.skip(30 * SECOND).await;
        // The removed member still has the slot.
        assert_eq!(addresses(&rig.client), [set.address(primary).to_string()]);
        drop(held);
        net.skip_until("the new one is known", 60 * SECOND, || knows(&rig.client, &set)).await;
        net.settled().await;
        at_rest(&rig, &set).await;
        end(&rig, &set).await;
    });
}

/// A command that waits for a connection to a member that is removed was never sent, and
/// is tried again on another member even if it is not idempotent.
#[test]
#[doc(alias = "CMAP-67")]
fn operation_waiting_for_a_removed_member_is_sent_to_another() {
    run(async |net| {
        let set = still_set(net, 2);
        let primary = set.primary().expect("a primary");
        let leaving = 1 - primary;
        let pool_options = PoolOptions { max_pool_size: 1, ..PoolOptions::DEFAULT };
        let rig: Rig<Set> = rig(net, Options { pool: pool_options, timeout: None, ..polling(&set) });
        known(&rig.client, &set).await;
        let preference = Some(ReadPreference::of(ReadMode::Secondary));
        let held = rig.client.check_out_preferring(preference).await.expect("a connection");
        let client = rig.client;
        let pinging = net.spawn_task(async move { ping(&client, preferring(ReadMode::SecondaryPreferred)).await });
        eventually("it waits", || pool(&client, &set.server(leaving)).counts.waiting == 1).await;
        set.remove(leaving);
        net.skipping(60 * SECOND, pinging).await.expect("the primary answers");
        assert_eq!((set.server(leaving).count_of("ping"), set.server(primary).count_of("ping")), (0, 1));
        drop(held);
        // If the client is closed, no other server exists.
        let held = rig.client.check_out().await.expect("a connection");
        let pinging = net.spawn_task(async move { ping(&client, CommandOptions::new()).await });
        eventually("it waits", || pool(&client, &set.server(primary)).counts.waiting == 1).await;
        client.close();
        assert_eq!(refused(pinging.await).check_out(), Some(&CheckOutError::PoolClosed));
        drop(held);
        end(&rig, &set).await;
    });
}

/// Operations dropped at each poll while the set holds elections: no slot, socket or connection
/// leaks.
#[test]
fn operations_dropped_at_any_poll_during_elections_leave_no_connection() {
    run(async |net| {
        let set = still_set(net, 3);
        let rig: Rig<Set> = rig(net, streaming(&set));
        known(&rig.client, &set).await;
        for times in 1..=24 {
            let primary = set.primary().expect("a primary");
            set.elect((primary + 1) % 3);
            let idempotent = CommandOptions::new().idempotent(true);
            let _ = poll_times(ping(&rig.client, idempotent), times, DropIt::AtOnce).await;
        }
        known(&rig.client, &set).await;
        ping(&rig.client, CommandOptions::new()).await.expect("a ping");
        at_rest(&rig, &set).await;
        end(&rig, &set).await;
    });
}
