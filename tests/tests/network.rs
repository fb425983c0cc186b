//! The client against a simulated network with faults: three thousand seeds, and seeds that once
//! failed.
//!
//! `POOLHOUSE_SEED=n` replays one seed and shows its events, `POOLHOUSE_SCRIPT` the remaining steps
//! of a shrunk one; `POOLHOUSE_SEEDS=n` sets the number of seeds.
#![forbid(unsafe_code)]

use libtest_mimic::Failed;
use poolhouse_tests::network::{self, Counters};
use poolhouse_tests::seeds::{Bytes, Lives};
use poolhouse_tests::{figures, fuzz};
use serde_json::{Map, Value, json};
use std::process::ExitCode;

/// Seeds that once failed, and their faults.
const REGRESSIONS: [(u64, &str); 8] = [
    (3_146, "check_out_that_closed_an_idle_connection_did_not_refill"),
    (6_624, "oracle_took_one_of_two_for_the_other_who_came_at_the_same_time"),
    (46_174, "member_that_was_an_arbiter_when_it_greeted"),
    (1_465_124, "connection_that_broke_before_peace_was_used_late"),
    (1_624_674, "nobody_asked_and_the_next_request_had_its_number"),
    (2_030_824, "probe_met_a_connection_that_broke_before_peace"),
    (2_707_924, "member_was_lost_within_a_heartbeat_of_the_end"),
    (3_135_799, "member_was_lost_late_in_a_long_life"),
];

static LIVES: Lives<Counters> = Lives {
    suite: "network",
    name: "in {} simulated runs the view converges after faults stop, and every step is atomic",
    seeds: 3_000,
    lines: 80,
    run: network::seed,
    add: Counters::add,
    report,
    regressions: &REGRESSIONS,
    scripts: &[],
    bytes: Bytes {
        name: "any inputs keep the invariants of the control machine (S21)",
        stream: "control",
        times: 10_000,
        length: 2_000,
        body: fuzz::control,
    },
};

fn main() -> ExitCode {
    LIVES.run([])
}

fn report(seeds: u64, counters: &Counters) -> Result<(), Failed> {
    let hours = counters.seconds / 3_600;
    println!("{seeds} seeds, {} steps, {hours} virtual hours, {} bytes", counters.steps, counters.bytes);
    let kinds: Map<String, Value> =
        network::Kind::ALL.into_iter().map(|kind| (format!("{kind:?}"), counters.of(kind).into())).collect();
    for (kind, count) in &kinds {
        println!("  {kind}: {count}");
    }
    let points: Map<String, Value> =
        network::POINTS.into_iter().map(|point| (format!("{point:?}"), counters.fired(point).into())).collect();
    println!("  fault points of core: {}", Value::Object(points.clone()));
    println!("  invariants: {}", counters.checks.json());
    let figures = json!({ "runs": seeds, "steps": counters.steps, "virtual_hours": hours, "bytes": counters.bytes, "inputs": kinds, "points": points, "invariants": counters.checks.json() });
    figures::record("network", &figures);
    let missing = counters.missing();
    if seeds >= 1_000 && !missing.is_empty() {
        return Err(format!("kinds that never occurred: {missing:?}").into());
    }
    let still: Vec<_> = network::POINTS.into_iter().filter(|point| counters.fired(*point) == 0).collect();
    if seeds >= 1_000 && !still.is_empty() {
        return Err(format!("fault points that never fired: {still:?}").into());
    }
    let unchecked = counters.checks.missing(&network::CHECKED);
    if seeds >= 1_000 && !unchecked.is_empty() {
        return Err(format!("invariants that were never checked: {unchecked:?}").into());
    }
    Ok(())
}
