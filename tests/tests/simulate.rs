//! The pool against its reference model: fourteen thousand seeds, every life of tiny shapes, and random fuzz bytes.
//!
//! `POOLHOUSE_SEED=n` replays one seed and shows each operation and event; `POOLHOUSE_SEEDS=n` says how many seeds are lived.
#![forbid(unsafe_code)]

#[path = "simulate/exhaustive.rs"]
mod exhaustive;

use libtest_mimic::{Failed, Trial};
use poolhouse_core::sim::chance::Point;
use poolhouse_tests::oracle::pool::CHECKED;
use poolhouse_tests::seeds::{Bytes, Lives, with_points};
use poolhouse_tests::sim::{self, Counters};
use poolhouse_tests::{figures, fuzz};
use std::process::ExitCode;

/// Seeds that once failed, and what it was.
const REGRESSIONS: [(u64, &str); 17] = [
    (0, "late_check_out_got_a_connection"),
    (0, "failure_of_a_stale_connection_cleared"),
    (8, "pending_connections_were_abandoned_out_of_order"),
    (16, "service_was_cleared_before_the_pool_was_ready"),
    (86, "something_was_due_that_could_not_be_done"),
    (118, "refused_check_out_did_not_refill"),
    (852, "back_off_ended_with_no_place"),
    (978, "fork_was_told_as_the_cause_later"),
    (11_582, "oracle_took_the_time_of_a_call_that_was_refused"),
    (12_622, "pause_that_ended_as_a_check_out_was_cancelled"),
    (262_663, "of_idle_and_stale_connections_the_stale_were_closed_first"),
    (598_536, "model_did_not_make_up_for_what_a_check_out_closed"),
    (1_347_758, "oracle_took_the_oldest_where_another_was_late_for_longer"),
    (1_485_462, "oracle_took_one_of_two_for_the_other_and_both_had_ended"),
    (2_566_714, "pause_was_over_while_there_was_no_place"),
    (3_493_032, "oracle_took_one_of_many_that_were_late_for_another"),
    (4_878_786, "pause_was_over_and_an_idle_connection_kept_the_place"),
];

static LIVES: Lives<Counters> = Lives {
    suite: "pool",
    name: "{} seeds agree with the reference model",
    seeds: 14_000,
    lines: 60,
    live: sim::seed,
    add: Counters::add,
    report,
    regressions: &REGRESSIONS,
    scripts: &[],
    bytes: Bytes {
        name: "random fuzz bytes agree with the reference model",
        stream: "fuzz",
        times: 2_000,
        length: 600,
        body: fuzz::pool::pool,
    },
};

fn main() -> ExitCode {
    let points = Trial::test("seeds with fault points that nobody sees agree with the reference model", || {
        let points = [Point::OtherPlace, Point::DeadlineInTree, Point::OtherTimeout, Point::OtherAction];
        with_points(2_000, &points, sim::seed)
    });
    LIVES.run(exhaustive::trials().into_iter().chain([points]))
}

fn report(seeds: u64, counters: &Counters) -> Result<(), Failed> {
    println!("{seeds} seeds, {} operations, {} events", counters.steps, counters.events);
    let missing = counters.missing();
    if seeds >= 1_000 && !missing.is_empty() {
        return Err(format!("operations that never came: {missing:?}").into());
    }
    figures::record("simulate", &counters.json());
    let unchecked = counters.checks.missing(&[CHECKED.as_slice(), &["P43", "P51", "P52"]].concat());
    if seeds >= 1_000 && !unchecked.is_empty() {
        return Err(format!("invariants that were never checked: {unchecked:?}").into());
    }
    Ok(())
}
