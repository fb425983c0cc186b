//! Members that join and leave.

use super::support::{
    Load, PATIENCE, client, counts_agree, eventually, known, next, options, ping, ping_with, rare, refused, run, sent,
    set, still_set, turned,
};
use alloc::sync::Arc;
use poolhouse_smol::poolhouse_core::ServerType;
use poolhouse_smol::poolhouse_core::pool::{CheckOutError, PoolEvent};
use poolhouse_smol::poolhouse_core::selection::{ReadMode, SelectionCriteria};
use poolhouse_smol::poolhouse_core::topology::OwnedSdamEvent;
use poolhouse_smol::poolhouse_driver::SelectionRequest;
use poolhouse_smol::{CommandOptions, Event, ReadPreference};
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions, MemberConfig, MemberOptions};

/// The pool and the connections of a removed member are closed, and its last task ends, which frees
/// its slot.
#[test]
#[doc(alias("CMAP-36", "SDAM-57", "SDAM-59"))]
fn removed_member_is_abandoned_completely() {
    run(async {
        let set = still_set();
        let primary = set.primary().expect("a primary");
        let gone = (primary + 1) % 3;
        let mut options = options(&set.uri());
        options.pool.min_pool_size = 3;
        let client = client(options);
        known(&client, &set).await;
        // Plus two connections of the monitor.
        eventually("its pool is filled", || set.server(gone).open_count() == 5).await;
        let only = SelectionRequest {
            criteria: SelectionCriteria::read(ReadPreference::of(ReadMode::Secondary)),
            deprioritized: &[],
        };
        let handle = loop {
            let handle = client.core().select_server(&only, None).await.expect("a secondary");
            if handle.address() == set.address(gone).to_string() {
                break Arc::downgrade(&handle);
            }
        };
        let mut events = client.subscribe_where(rare);
        set.remove(gone);
        let mut pool_closed = false;
        next(
            &mut events,
            "ServerClosed",
            |event| matches!(event, Event::Sdam(event) if matches!(&**event, OwnedSdamEvent::ServerClosed { .. })),
        )
        .await;
        while !pool_closed {
            let (_, event) = next(&mut events, "PoolClosed", |event| matches!(event, Event::Pool(_))).await;
            pool_closed = matches!(event, Event::Pool(PoolEvent::PoolClosed { .. }));
        }
        eventually("no connection is left", || set.server(gone).open_count() == 0).await;
        eventually("its tasks have ended", || handle.upgrade().is_none()).await;
        assert_eq!(client.servers().len(), 2);
        ping(&client).await.expect("a ping");
        client.close().await;
    });
}

#[test]
fn added_member_is_monitored_and_its_pool_is_filled() {
    run(async {
        let set = still_set();
        let mut options = options(&set.uri());
        options.pool.min_pool_size = 2;
        let client = client(options);
        known(&client, &set).await;
        let mut events = client.subscribe_where(rare);
        let new = set.add(MemberOptions::default()).expect("it starts");
        let server = set.server(new);
        set.settle();
        next(&mut events, "the new secondary", |event| turned(event, &server, ServerType::RsSecondary)).await;
        eventually("its connections appear", || set.server(new).open_count() == 4).await;
        known(&client, &set).await;
        client.close().await;
        eventually("no connection is left", || set.server(new).open_count() == 0).await;
    });
}

/// A member leaves and joins again, ten times, under load.
#[test]
fn member_that_leaves_and_joins_repeatedly_leaves_no_state() {
    run(async {
        let set = set();
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        let load = Load::start(&client, 16);
        for _ in 0..10 {
            let leaving = (set.wait_for_primary(PATIENCE).expect("a primary") + 1) % 3;
            set.remove(leaving);
            eventually("it is gone", || client.servers().len() == 2).await;
            load.more_successes(10).await;
            set.reconfigure(|members| members.push(MemberConfig::new(leaving, MemberOptions::default())));
            known(&client, &set).await;
            load.turn_over().await;
        }
        let (_, errors) = load.end().await;
        assert_eq!(errors, Vec::<String>::new());
        let servers: Vec<_> = (0..3).map(|member| set.server(member)).collect();
        counts_agree(&client, &servers, 2).await;
        client.close().await;
        eventually("no connection is left", || servers.iter().all(|server| server.open_count() == 0)).await;
    });
}

/// A busy executor processes several reconfigurations late: one member joins and leaves before any
/// of its tasks was started, and the next member takes its slot.
#[test]
fn members_added_and_removed_while_the_executor_is_busy_are_followed() {
    run(async {
        let set = still_set();
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        let primary = set.server(set.primary().expect("a primary"));
        for _ in 0..5 {
            // The client publishes a description before its monitor sends the hello that is answered
            // while the executor is blocked.
            eventually("the monitor streams", || primary.look(|view| view.exhausting_count() == 1)).await;
            let (begin, begun) = smol::channel::bounded(1);
            let (end, ended) = std::sync::mpsc::channel::<()>();
            // Meanwhile the only thread of the executor is blocked.
            let busy = smol::spawn(async move {
                begin.send(()).await.expect("the test waits");
                let _ = ended.recv_timeout(PATIENCE);
            });
            begun.recv().await.expect("it has begun");
            let first = set.add(MemberOptions::default()).expect("it starts");
            let others: Vec<_> = set.config().into_iter().filter(|entry| entry.member != first).collect();
            let replies = primary.look(|view| view.replies_count());
            set.reconfigure(|members| *members = others);
            let second = set.add(MemberOptions::default()).expect("it starts");
            set.settle();
            primary.wait_until(PATIENCE, |view| view.replies_count() > replies).expect("the server streams a change");
            end.send(()).expect("the executor waits");
            busy.await;
            known(&client, &set).await;
            set.remove(second);
            known(&client, &set).await;
            ping(&client).await.expect("a ping");
        }
        client.close().await;
        let count = set.servers_count();
        eventually("no connection is left", || (0..count).all(|member| set.server(member).open_count() == 0)).await;
    });
}

/// A command that waits for a connection to a member that is removed was never sent, and
/// is tried again on another member even if it is not idempotent. If the client is closed, no other
/// server exists, and the first error is returned.
#[test]
#[doc(alias = "CMAP-67")]
fn operation_waiting_for_a_removed_member_is_retried_on_another() {
    run(async {
        let set = FakeReplicaSet::start(FakeReplicaSetOptions::of(2).by_hand()).expect("the set starts");
        let primary = set.primary().expect("a primary");
        let gone = 1 - primary;
        let mut options = options(&set.uri());
        options.pool.max_pool_size = 1;
        let client = client(options);
        known(&client, &set).await;
        let waiting = |member: usize| {
            let address = set.address(member).to_string();
            client.servers().iter().any(|it| it.address == address && it.pool.counts.waiting == 1)
        };
        let held = client.check_out_preferring(ReadPreference::of(ReadMode::Secondary)).await.expect("a connection");
        let pinging = smol::spawn({
            let client = client.clone();
            async move {
                let preferred = ReadPreference::of(ReadMode::SecondaryPreferred);
                ping_with(&client, CommandOptions::new().read_preference(preferred)).await
            }
        });
        eventually("it waits", || waiting(gone)).await;
        set.remove(gone);
        pinging.await.expect("the primary answers");
        assert_eq!((sent(&set.server(gone), "ping").len(), sent(&set.server(primary), "ping").len()), (0, 1));
        drop(held);

        let held = client.check_out().await.expect("a connection");
        let pinging = smol::spawn({
            let client = client.clone();
            async move { ping(&client).await }
        });
        eventually("it waits", || waiting(primary)).await;
        client.close().await;
        assert_eq!(refused(pinging.await).check_out(), Some(&CheckOutError::PoolClosed));
        drop(held);
    });
}
