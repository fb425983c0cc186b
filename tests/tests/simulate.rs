//! The pool against its reference model: ten thousand seeds, every life of tiny shapes, and random fuzz bytes.
//!
//! `POOLHOUSE_SEED=n` replays one seed and shows each operation and event; `POOLHOUSE_SEEDS=n` says how many seeds are lived.
#![forbid(unsafe_code)]

#[path = "simulate/exhaustive.rs"]
mod exhaustive;

use libtest_mimic::Failed;
use poolhouse_tests::fuzz;
use poolhouse_tests::seeds::{Bytes, Lives};
use poolhouse_tests::sim::{self, Counters};
use std::process::ExitCode;

/// Seeds that once failed, and what it was.
const REGRESSIONS: [(u64, &str); 8] = [
    (0, "late_check_out_got_a_connection"),
    (0, "failure_of_a_stale_connection_cleared"),
    (8, "pending_connections_were_abandoned_out_of_order"),
    (16, "service_was_cleared_before_the_pool_was_ready"),
    (86, "something_was_due_that_could_not_be_done"),
    (118, "refused_check_out_did_not_refill"),
    (852, "back_off_ended_with_no_place"),
    (978, "fork_was_told_as_the_cause_later"),
];

static LIVES: Lives<Counters> = Lives {
    name: "{} seeds agree with the reference model",
    seeds: 10_000,
    twice: 200,
    lines: 60,
    live: sim::seed,
    add: Counters::add,
    report,
    regressions: &REGRESSIONS,
    bytes: Bytes {
        name: "random fuzz bytes agree with the reference model",
        stream: "fuzz",
        times: 2_000,
        length: 600,
        body: fuzz::pool::pool,
    },
};

fn main() -> ExitCode {
    LIVES.run(exhaustive::trials())
}

fn report(seeds: u64, counters: &Counters) -> Result<(), Failed> {
    println!("{seeds} seeds, {} operations, {} events", counters.steps, counters.events);
    let missing = counters.missing();
    if seeds >= 1_000 && !missing.is_empty() {
        return Err(format!("operations that never came: {missing:?}").into());
    }
    Ok(())
}
