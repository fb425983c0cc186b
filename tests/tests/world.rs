//! The client against a world of faults: two thousand seeds, and what once failed.
//!
//! `POOLHOUSE_SEED=n` replays one seed and shows what happened; `POOLHOUSE_SEEDS=n` says how many seeds are lived.
#![forbid(unsafe_code)]

use libtest_mimic::Failed;
use poolhouse_tests::fuzz;
use poolhouse_tests::seeds::{Bytes, Lives};
use poolhouse_tests::world::{self, Counters};
use std::process::ExitCode;

static LIVES: Lives<Counters> = Lives {
    name: "in {} worlds the view converges once faults stop, and no step is seen half-done",
    seeds: 2_000,
    twice: 50,
    lines: 80,
    live: world::seed,
    add: Counters::add,
    report,
    regressions: &[],
    bytes: Bytes {
        name: "any inputs leave the control machine whole (S21)",
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
    println!("{seeds} seeds, {} steps, {} virtual hours", counters.steps, counters.seconds / 3_600);
    for kind in world::Kind::ALL {
        println!("  {kind:?}: {}", counters.of(kind));
    }
    let missing = counters.missing();
    if seeds >= 1_000 && !missing.is_empty() {
        return Err(format!("what never came: {missing:?}").into());
    }
    Ok(())
}
