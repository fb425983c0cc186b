//! Elections, crashes and partitions, and the time until the client learns of them.

use super::support::{
    PATIENCE, client, counts_agree, eventually, insert, known, next, options, ping, ping_with, rare, run, server_type,
    set, still_set, turned,
};
use core::time::Duration;
use poolhouse_smol::poolhouse_core::ServerType;
use poolhouse_smol::poolhouse_core::pool::PoolEvent;
use poolhouse_smol::{Client, ClientOptions, CommandOptions, Event, ReadMode, ReadPreference};
use poolhouse_tests::fake::replica_set::FakeReplicaSet;

/// Options with which the monitor detects a silent member within seconds. A shorter limit could
/// also detect a member that is only delayed by a busy machine.
fn watchful(set: &FakeReplicaSet) -> ClientOptions {
    let mut options = options(&set.uri());
    options.monitor.connect_timeout = Some(Duration::from_secs(2));
    options
}

/// Options with a next poll that is a minute away.
fn patient(set: &FakeReplicaSet) -> ClientOptions {
    let mut options = options(&set.uri());
    options.monitor.heartbeat_frequency = Duration::from_secs(60);
    options
}

/// The stream reports a step-down at once. The times are printed; the test asserts
/// that it did not wait for the next poll, a minute away.
#[test]
#[doc(alias("MON-30", "MON-65"))]
fn step_down_is_reported_by_the_stream() {
    run(async {
        const ROUNDS: usize = 50;
        let set = still_set();
        let client = client(patient(&set));
        known(&client, &set).await;
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let primary = set.primary().expect("a primary");
            let old = set.server(primary);
            eventually("its stream runs", || old.look(|view| view.exhausting_count()) == 1).await;
            let mut events = client.subscribe_where(rare);
            let begun = client.now();
            set.step_down();
            let (at, _) =
                next(&mut events, "the step-down", |event| turned(event, &old, ServerType::RsSecondary)).await;
            times.push(at.saturating_since(begun));
            set.elect((primary + 1) % 3);
            known(&client, &set).await;
        }
        times.sort_unstable();
        println!("step-down to the client's knowledge: median {:?}, most {:?}", times[ROUNDS / 2], times[ROUNDS - 1]);
        assert!(times[ROUNDS / 2] < Duration::from_secs(5), "{times:?}");
        client.close().await;
    });
}

/// An operation that waits for a primary continues at the election, not at the next check.
#[test]
#[doc(alias = "MON-18")]
fn selection_wakes_when_the_primary_is_elected() {
    run(async {
        let set = still_set();
        let old = set.primary().expect("a primary");
        let client = client(patient(&set));
        known(&client, &set).await;
        set.step_down();
        let gone = || server_type(&client, &set.server(old)) == ServerType::RsSecondary;
        eventually("the client knows of no primary", gone).await;
        let waiting: Vec<_> = (0..32)
            .map(|_| {
                let client = client.clone();
                smol::spawn(async move { insert(&client, CommandOptions::new()).await })
            })
            .collect();
        eventually("the streams run again", || {
            (0..3).all(|member| set.server(member).look(|view| view.exhausting_count()) == 1)
        })
        .await;
        let hellos = || (0..3).map(|member| set.server(member).look(|view| view.commands_count())).sum::<u64>();
        let before = hellos();
        smol::Timer::after(Duration::from_millis(300)).await;
        // Each waiter requests a check once at most, not repeatedly.
        assert!(hellos() - before < 30, "{} commands while nothing happened", hellos() - before);
        let begun = std::time::Instant::now();
        set.elect((old + 1) % 3);
        for task in waiting {
            task.await.expect("an insert");
        }
        println!("32 that waited were done {:?} after the election", begun.elapsed());
        assert!(begun.elapsed() < PATIENCE);
        client.close().await;
    });
}

async fn pool_cleared(events: &mut poolhouse_smol::Subscription) -> Event {
    next(events, "PoolCleared", |event| matches!(event, Event::Pool(PoolEvent::PoolCleared { .. }))).await.1
}

/// A step-down itself clears no pool and closes no connection (SDAM-83: since 4.2).
#[test]
#[doc(alias = "SDAM-83")]
fn step_down_keeps_connections() {
    run(async {
        let set = still_set();
        let old = set.primary().expect("a primary");
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        ping(&client).await.expect("a ping");
        let generation = |client: &Client| client.servers().iter().map(|it| it.pool.generation).collect::<Vec<_>>();
        set.step_down();
        set.elect((old + 1) % 3);
        known(&client, &set).await;
        ping(&client).await.expect("a ping");
        assert_eq!(generation(&client), [0, 0, 0]);
        client.close().await;
    });
}

#[test]
fn killed_primary_clears_its_pool_and_restarts_as_a_secondary() {
    run(async {
        let set = set();
        let old = set.primary().expect("a primary");
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        ping(&client).await.expect("a ping");
        let mut events = client.subscribe_where(rare);
        set.kill(old).expect("it dies");
        pool_cleared(&mut events).await;
        insert(&client, CommandOptions::new().idempotent(true)).await.expect("an insert");
        assert_eq!(server_type(&client, &set.server(old)), ServerType::Unknown);
        set.restart(old).expect("it starts");
        known(&client, &set).await;
        let secondary = CommandOptions::new().read_preference(ReadPreference::of(ReadMode::Secondary));
        ping_with(&client, secondary).await.expect("a ping");
        let servers: Vec<_> = (0..3).map(|member| set.server(member)).collect();
        counts_agree(&client, &servers, 2).await;
        client.close().await;
    });
}

/// The connections in use of a silent member are interrupted, and their operations continue on
/// another member.
#[test]
#[doc(alias("CMAP-82", "MON-54"))]
fn frozen_primary_interrupts_operations_which_continue_on_the_next_primary() {
    run(async {
        let set = set();
        let old = set.primary().expect("a primary");
        let client = client(watchful(&set));
        known(&client, &set).await;
        ping(&client).await.expect("a ping");
        let mut events = client.subscribe_where(rare);
        set.freeze(old);
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let client = client.clone();
                smol::spawn(async move { ping_with(&client, CommandOptions::new().idempotent(true)).await })
            })
            .collect();
        let cleared = pool_cleared(&mut events).await;
        let interrupts =
            matches!(cleared, Event::Pool(PoolEvent::PoolCleared { interrupt_in_use_connections: true, .. }));
        assert!(interrupts, "{cleared:?}");
        for task in tasks {
            task.await.expect("a ping");
        }
        assert_ne!(set.wait_for_primary(PATIENCE).expect("a primary"), old);
        set.thaw(old);
        known(&client, &set).await;
        let servers: Vec<_> = (0..3).map(|member| set.server(member)).collect();
        counts_agree(&client, &servers, 2).await;
        client.close().await;
    });
}

/// Two primaries at a time: the one of the later election counts, and nothing is written
/// to the other.
#[test]
#[doc(alias = "SDAM-50")]
fn primary_cut_off_from_its_set_is_not_written_to() {
    run(async {
        let set = still_set();
        let old = set.primary().expect("a primary");
        let new = (old + 1) % 3;
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        set.partition(&[&[old]]);
        set.split_brain(new);
        eventually("the new primary is known", || {
            server_type(&client, &set.server(new)) == ServerType::RsPrimary
                && server_type(&client, &set.server(old)) == ServerType::Unknown
        })
        .await;
        for _ in 0..20 {
            insert(&client, CommandOptions::new()).await.expect("an insert");
        }
        assert_eq!(set.server(old).count_of("insert"), 0);
        assert_eq!(set.server(new).count_of("insert"), 20);
        set.heal();
        set.settle();
        known(&client, &set).await;
        client.close().await;
    });
}

/// A member that the client cannot reach, though the set can: it stays Unknown, and reads are sent
/// to the other.
#[test]
fn unreachable_member_is_avoided() {
    run(async {
        let set = still_set();
        let primary = set.primary().expect("a primary");
        let (far, near) = ((primary + 1) % 3, (primary + 2) % 3);
        let client = client(watchful(&set));
        known(&client, &set).await;
        set.set_reachable(far, false);
        eventually("it is Unknown", || server_type(&client, &set.server(far)) == ServerType::Unknown).await;
        let before = set.server(near).count_of("ping");
        for _ in 0..10 {
            let secondary = CommandOptions::new().read_preference(ReadPreference::of(ReadMode::Secondary));
            ping_with(&client, secondary).await.expect("a ping");
        }
        assert_eq!(set.server(near).count_of("ping"), before + 10);
        set.set_reachable(far, true);
        known(&client, &set).await;
        client.close().await;
    });
}
