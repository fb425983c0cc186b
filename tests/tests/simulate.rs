//! The pool against its reference model: random runs by seed, and random fuzz bytes.
//!
//! `POOLHOUSE_SEED=n` replays one seed and shows each operation and event. See [`poolhouse_tests::seeds`].
#![forbid(unsafe_code)]

use libtest_mimic::{Failed, Trial};
use poolhouse_core::sim::chance::Point;
use poolhouse_tests::fuzz;
use poolhouse_tests::oracle::pool::CHECKED;
use poolhouse_tests::seeds::{Bytes, Inputs, Lives, with_points};
use poolhouse_tests::sim::{self, Counters};
use std::process::ExitCode;

/// Simulated runs that once failed, each with the name of its bug. Each is the reduced form of a
/// run that fails if its bug is reintroduced.
const SCRIPTS: [(&str, &str); 9] = [
    (
        "239: operations 301 0 207 189 0 0 99 172 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 147 0 64 0 0 0 0 256 330 0 285 622 1 200; shape 0 0 1 0 0 0 0 0 1 0 1 63 1 82 1 80 0 1 81 1 0 0 1 96 1 49 0 1 40 1 1 0 1 52 1 72 0 1 0 1 82 0 1 65 1 42 1 64 1 56 1 72 1 80 1 54 1 0 1 60 1 66 0 1 54 1 69 0 1 0 0 0 0 8",
        "late_check_out_got_a_connection",
    ),
    (
        "27: operations 133 30 75 0 4; shape 0 2 0 0 0 0 0 0 1 1 74 1 0 0 0 0 0 0 0 0 0 0 1 40 0 1 80 1 12 0 0 0 0 0 0 0 1 16 0 0 0 0 0 0 0 0 0 0 0 0 0 0 2",
        "refused_check_out_did_not_refill",
    ),
    (
        "8: operations 212 0 0 202 332 0 0 0 0 252 0 379 0 0 0 339 0 0 379; shape 0 3 1 0 3 0 0 0 1 1 97 1 0 1 82 0 1 60 1 57 0 0 0 0 0 0 0 1 24 1 72 1 62 0 1 0 1 16 1 72 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 4",
        "failure_of_a_stale_connection_cleared",
    ),
    ("3: operations 56", "service_was_cleared_before_the_pool_was_ready"),
    (
        "8: operations 198 0 0 186 0 396; shape 0 3 0 0 2 0 0 0 1 1 98 1 3 1 82 0 1 63 0 0 0 0 0 0 0 1 24 1 72 1 62 0 0 0 1 72 1 60 0 0 1",
        "pending_connections_were_abandoned_out_of_order",
    ),
    (
        "978: operations 261 0 262 120 0 27 0 4 120 0 133 363 0 0 27 0 0 176 437 0 120 0 233 1 2 0 422 2; shape 0 2 0 0 1 0 0 0 1 1 26 1 92 1 12 1 0 0 1 48 0 0 0 0 0 1 88 1 96 1 4 0 0 1 92 0 1 24 0 1 55 1 0 1 24 1 80 1 78 0 0 0 0 0 0 0 0 1 0 0 0 0 0 5",
        "fork_was_reported_as_the_cause_later",
    ),
    (
        "86: operations 136 0 172 142 0 145 0 146 0 146 1 0 0; shape 0 0 1 2 0 0 0 2 1 1 0 1 53 1 85 1 64 0 1 57 0 0 0 0 0 1 72 1 1 0 1 80 1 27 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1",
        "work_was_due_that_could_not_be_done",
    ),
    (
        "552: operations 226 29 0 4 103 0 324 0 0; shape 0 4 0 0 0 0 1 2 1 1 28 1 72 1 43 0 0 0 0 0 0 0 0 1 0 1 56 1 36 1 20 1 35 1 53 0 1",
        "back_off_ended_without_a_free_slot",
    ),
    (
        "262663: operations 148 219 0 8 112 0 0 112 0 8 112 0 1 112 0 207 133 1 0 211; shape 0 0 0 2 0 0 1 0 1 0 0 0 0 0 0 0 0 0 0 0 1 56 1 80 1 30 1 12 0 1 0 0 1 0 0 0 1 0 1 80 1 64 1 60 1 80 1 51 0 1 0 0 1 0 1 6 1 9 1 0 1 0 0 0 0 2",
        "of_idle_and_stale_connections_the_stale_were_closed_first",
    ),
];

/// Seeds that once failed, each with the name of its bug, beyond the seeds that every run of the
/// suite tries. In each, the model or the oracle was wrong.
const REGRESSIONS: [(u64, &str); 8] = [
    (598_536, "model_did_not_make_up_for_what_a_check_out_closed"),
    (1_347_758, "oracle_took_the_oldest_where_another_was_late_for_longer"),
    (1_485_462, "oracle_took_one_of_two_for_the_other_and_both_had_ended"),
    (2_566_714, "pause_was_over_while_there_was_no_place"),
    (3_493_032, "oracle_took_one_of_many_that_were_late_for_another"),
    (4_878_786, "pause_was_over_and_an_idle_connection_kept_the_place"),
    (18_181_307, "oracle_did_not_know_when_a_cancelled_check_out_had_timed_out_with_others"),
    (3_886_741_318, "silence_began_when_a_check_out_was_overdue"),
];

static LIVES: Lives<Counters> = Lives {
    suite: "pool",
    name: "random runs agree with the reference model",
    seeds: sim::SEEDS,
    lines: 60,
    run: sim::seed,
    add: Counters::add,
    report,
    regressions: &REGRESSIONS,
    scripts: &SCRIPTS,
    bytes: Bytes {
        name: "random fuzz bytes agree with the reference model",
        inputs: Inputs { seeds: 200, lengths: 0..600 },
        body: fuzz::pool::pool,
    },
};

fn main() -> ExitCode {
    let points = Trial::test("runs with fault points without observable effect agree with the reference model", || {
        let points = [Point::OtherPlace, Point::OtherTimeout, Point::OtherAction];
        with_points(200, &points, sim::seed)
    });
    LIVES.run([points])
}

fn report(seeds: u64, counters: &Counters) -> Result<(), Failed> {
    println!("{seeds} seeds, {} operations, {} events", counters.steps, counters.events);
    let missing = counters.missing();
    if seeds >= 1_000 && !missing.is_empty() {
        return Err(format!("operations that never occurred: {missing:?}").into());
    }
    let unchecked = counters.checks.missing(&[CHECKED.as_slice(), &["P43", "P51", "P52"]].concat());
    if seeds >= 1_000 && !unchecked.is_empty() {
        return Err(format!("invariants that were never checked: {unchecked:?}").into());
    }
    Ok(())
}
