//! Monitors with a server that replies faster than they read.

use super::wide::Bell;
use super::*;

/// An endless stream of replies, each available before it is read.
#[test]
#[doc(alias = "MON-24")]
fn monitor_of_a_server_that_sends_without_pause_yields_to_other_tasks() {
    const REPLIES: usize = 10_000;
    let (bench, core, server) = open();
    bench.flood.store(REPLIES, Ordering::Relaxed);
    let mut check = Box::pin(core.run_server_task(&server, ServerTask::Check));
    let bell = Arc::new(Bell::default());
    let mut read = 0;
    for round in 0..100 {
        assert!(bell.poll(&mut check).is_pending());
        assert_eq!(bell.rings(), 1, "it goes on when it is its turn, in round {round}");
        let before = core::mem::replace(&mut read, REPLIES - bench.flood.load(Ordering::Relaxed));
        assert!(read - before <= 2, "{} replies in one turn", read - before);
    }
    assert!(read > 50, "it reads on: {read}");
}
