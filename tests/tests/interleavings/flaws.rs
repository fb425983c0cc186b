//! Lost wake-ups that the model must find.

use super::bench::{Bench, Client};
use super::model::{Depth, Parker, block_on_with, explore, join, task};

fn reply_arrives_while_it_is_awaited(depth: Depth, bench: fn() -> Bench) {
    explore("a reply that arrives while it is awaited", depth, move || {
        let bench = bench();
        let client = Client::new(bench.clone()).connected();
        bench.hold();
        let reader = task(client.ping());
        bench.release();
        assert_eq!(join(reader), Ok(()));
        "answered"
    });
}

#[test]
fn reply_that_arrives_while_it_is_awaited_is_read() {
    reply_arrives_while_it_is_awaited(Depth::All, Bench::new);
}

#[test]
#[should_panic(expected = "deadlock")]
fn stream_that_checks_before_it_registers_its_reader_is_detected() {
    reply_arrives_while_it_is_awaited(Depth::Flaw, Bench::with_careless_streams);
}

/// Discards a wake-up that arrived while the task was running.
fn sleep_anyway(parker: &Parker) {
    parker.take();
    parker.sleep();
}

#[test]
#[should_panic(expected = "deadlock")]
fn executor_that_loses_a_wake_up_is_detected() {
    explore("two tasks, one of which loses a wake-up", Depth::Flaw, || {
        let client = Client::new(Bench::new()).connected();
        let careful = task(client.clone().ping());
        block_on_with(sleep_anyway, client.ping()).expect("answered");
        assert_eq!(join(careful), Ok(()));
        "both"
    });
}
