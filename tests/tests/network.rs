//! The client that ships against a simulated network with faults: random runs by seed, and scripts
//! that found planted bugs.
//!
//! `POOLHOUSE_SEED=n` replays one seed and shows its events, `POOLHOUSE_SCRIPT` the remaining steps
//! of a shrunk one. See [`poolhouse_tests::seeds`].
#![forbid(unsafe_code)]

use core::time::Duration;
use libtest_mimic::{Failed, Trial};
use poolhouse_tests::fuzz;
use poolhouse_tests::hunt::CONTROL;
use poolhouse_tests::network::{self, Counters};
use poolhouse_tests::seeds::{Bytes, Lives};
use serde_json::{Map, Value};
use std::process::ExitCode;

/// Shrunk runs that fail with a bug planted, and the patch of tests/planted-bugs.
const SCRIPTS: [(&str, &str); 2] = [
    (include_str!("network/drain_too_long.txt"), "drain_too_long"),
    (include_str!("network/mux_output_not_woken.txt"), "mux_output_not_woken"),
];

/// Seeds that once failed, each with the name of its bug, beyond the seeds that every run of the
/// suite tries. In each, a check of the simulation was wrong.
const REGRESSIONS: [(u64, &str); 3] = [
    (10_904, "write_of_the_faulty_phase_is_repeated_on_a_secondary"),
    (15_842, "write_of_the_faulty_phase_is_repeated_on_an_arbiter"),
    (10_050_698, "busy_pool_opened_as_many_connections_as_it_may_at_a_time"),
];

static LIVES: Lives<Counters> = Lives {
    suite: "network",
    name: "in simulated runs operations end as they must, and all succeed after faults stop",
    seeds: network::SEEDS,
    lines: 80,
    run: network::seed,
    add: Counters::add,
    report,
    regressions: &REGRESSIONS,
    scripts: &SCRIPTS,
    bytes: Bytes {
        name: "any inputs keep the invariants of the control machine (S21)",
        inputs: CONTROL,
        body: fuzz::control,
    },
};

fn main() -> ExitCode {
    LIVES.run([Trial::test("a node that stops is noticed within a heartbeat's interval and timeout", stopped_node)])
}

fn stopped_node() -> Result<(), Failed> {
    for part in [0.1, 0.5, 0.9] {
        let (gap, bound) = network::stopped_node(part);
        assert!(gap <= bound, "after {part} of the interval: no request succeeds for {gap:?}; the bound is {bound:?}");
        assert!(
            gap >= Duration::from_secs(1),
            "after {part} of the interval: the stopped node was not waited for: {gap:?}"
        );
    }
    Ok(())
}

fn report(seeds: u64, counters: &Counters) -> Result<(), Failed> {
    let hours = counters.seconds / 3_600;
    println!("{seeds} seeds, {} polls, {hours} virtual hours, {} bytes", counters.steps, counters.bytes);
    let kinds: Map<String, Value> =
        network::Kind::ALL.into_iter().map(|kind| (format!("{kind:?}"), counters.of(kind).into())).collect();
    for (kind, count) in &kinds {
        println!("  {kind}: {count}");
    }
    let points: Map<String, Value> =
        network::POINTS.into_iter().map(|point| (format!("{point:?}"), counters.fired(point).into())).collect();
    println!("  fault points of core: {}", Value::Object(points));
    println!("  invariants: {}", counters.checks.json());
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
