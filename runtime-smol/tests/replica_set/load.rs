//! Many tasks while the set changes: no operation fails that a retry could have completed.

use super::support::{Load, PATIENCE, client, counts_agree, eventually, known, options, run, set};
use core::time::Duration;
use poolhouse_smol::poolhouse_core::pool::PoolState;
use std::time::Instant;

#[test]
fn step_down_under_load_fails_no_idempotent_operation() {
    run(async {
        let set = set();
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        let load = Load::start(&client, 64);
        load.more_successes(200).await;
        for _ in 0..5 {
            set.fail_over().expect("another is elected");
            known(&client, &set).await;
            load.turn_over().await;
            load.more_successes(200).await;
        }
        let (succeeded, errors) = load.end().await;
        assert_eq!(errors, Vec::<String>::new(), "{succeeded} succeeded");
        client.close().await;
    });
}

#[test]
fn killed_primary_under_load_fails_no_idempotent_operation() {
    run(async {
        let set = set();
        let mut options = options(&set.uri());
        options.pool.max_pool_size = 8;
        let client = client(options);
        known(&client, &set).await;
        let load = Load::start(&client, 64);
        load.more_successes(200).await;
        for _ in 0..3 {
            let old = set.wait_for_primary(PATIENCE).expect("a primary");
            set.kill(old).expect("it dies");
            set.wait_for_primary(PATIENCE).expect("a primary");
            load.more_successes(200).await;
            set.restart(old).expect("it starts");
            known(&client, &set).await;
            load.turn_over().await;
        }
        let (succeeded, errors) = load.end().await;
        assert_eq!(errors, Vec::<String>::new(), "{succeeded} succeeded");
        client.close().await;
    });
}

/// Some seconds of failovers, kills and freezes; then client and servers count the same
/// connections.
#[test]
fn counts_agree_after_seconds_of_failovers() {
    run(async {
        let set = set();
        let mut options = options(&set.uri());
        // Long enough that a delay of a busy machine is not a second fault: each operation survives
        // one.
        options.monitor.connect_timeout = Some(Duration::from_secs(2));
        options.pool.max_pool_size = 10;
        let client = client(options);
        known(&client, &set).await;
        let load = Load::start(&client, 64);
        let begun = Instant::now();
        let mut rounds = 0;
        // Each kind at least once.
        while rounds < 3 || begun.elapsed() < Duration::from_secs(3) {
            let old = set.wait_for_primary(PATIENCE).expect("a primary");
            match rounds % 3 {
                0 => {
                    set.fail_over().expect("another is elected");
                }
                1 => {
                    set.kill(old).expect("it dies");
                    set.wait_until(PATIENCE, |view| view.primary().is_some_and(|it| it != old)).expect("another");
                    load.more_successes(20).await;
                    set.restart(old).expect("it starts");
                }
                _ => {
                    set.freeze(old);
                    set.wait_until(PATIENCE, |view| view.primaries().iter().any(|it| *it != old)).expect("another");
                    load.more_successes(20).await;
                    set.thaw(old);
                }
            }
            load.more_successes(50).await;
            known(&client, &set).await;
            load.turn_over().await;
            rounds += 1;
        }
        let (succeeded, errors) = load.end().await;
        println!("{rounds} rounds, {succeeded} operations succeeded");
        assert_eq!(errors, Vec::<String>::new());
        let servers: Vec<_> = (0..3).map(|member| set.server(member)).collect();
        counts_agree(&client, &servers, 2).await;
        assert!(client.servers().iter().all(|it| it.pool.state == PoolState::Ready && it.pool.counts.total() <= 10));
        client.close().await;
        eventually("no connection is left", || servers.iter().all(|server| server.open_count() == 0)).await;
    });
}
