//! How often an idle client is polled.

use super::net::run;
use super::support::{Rig, Small, eventually, options, rig, server};
use core::time::Duration;
use poolhouse_embassy::{MonitorOptions, Options, ServerMonitoringMode};

const MINUTE: Duration = Duration::from_secs(60);

/// With one connection in the pool, and checks every 10 s, as by default. The bound is the measured
/// number with a small margin.
#[test]
fn idle_polling_client_wakes_a_few_times_for_each_check() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let monitor = MonitorOptions { server_monitoring_mode: ServerMonitoringMode::Poll, ..MonitorOptions::DEFAULT };
        let rig: Rig<Small> = rig(net, Options { monitor, ..options(&server) });
        rig.ping().await.expect("a ping");
        rig.at_rest(&server, 1).await;
        net.skip(MINUTE).await;
        let (polls, checks) = (rig.polls.get(), server.count_of("hello") + server.count_of("isMaster"));
        net.skip(MINUTE).await;
        let polls = rig.polls.get() - polls;
        let checks = server.count_of("hello") + server.count_of("isMaster") - checks;
        println!("polling: the runner of an idle client was polled {polls} times in a minute, for {checks} checks");
        assert!((5..=6).contains(&checks));
        assert!(polls <= 30, "{polls} polls in a minute");
        rig.end(&[&server]).await;
    });
}

/// With checks that the server streams every 10 s, and a separate ping every 10 s that measures the
/// round trip: the default.
#[test]
fn idle_streaming_client_wakes_a_few_times_for_each_check() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let monitor =
            MonitorOptions { server_monitoring_mode: ServerMonitoringMode::Stream, ..MonitorOptions::DEFAULT };
        let rig: Rig<Small> = rig(net, Options { monitor, ..options(&server) });
        rig.ping().await.expect("a ping");
        eventually("the stream runs", || server.look(|view| view.exhausting_count()) == 1).await;
        rig.at_rest(&server, 2).await;
        let mut begun = 0;
        for round in 0..7 {
            if round == 1 {
                begun = rig.polls.get();
            }
            // The server waits in real time, of which little passes: it answers because its state
            // has changed.
            for _ in 0..10 {
                net.jump(Duration::from_secs(1)).await;
                let replies = || server.look(|view| view.replies_count());
                eventually("the round trip is measured", || !net.is_owed() || replies() > 0).await;
            }
            let news = rig.log.heartbeats();
            server.update_state(|_| ());
            eventually("the stream tells", || rig.log.heartbeats() > news).await;
            net.idle().await;
        }
        let polls = rig.polls.get() - begun;
        println!("streaming: the runner of an idle client was polled {polls} times in a minute");
        assert!(polls <= 60, "{polls} polls in a minute");
        assert_eq!(rig.pool().generation, 0);
        rig.end(&[&server]).await;
    });
}

/// No timer is due for two minutes: no task is woken.
#[test]
fn client_with_nothing_due_is_not_polled() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let rig: Rig<Small> = rig(net, options(&server));
        rig.ping().await.expect("a ping");
        rig.at_rest(&server, 1).await;
        // Timers of finished operations, like their limits, may still be queued.
        net.skip(MINUTE / 2).await;
        let before = rig.polls.get();
        net.skip(MINUTE).await;
        assert_eq!(rig.polls.get() - before, 0);
        rig.end(&[&server]).await;
    });
}
