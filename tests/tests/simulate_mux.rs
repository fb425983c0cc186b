//! The multiplexed pool against its reference model: random runs by seed, including stream-id
//! attacks, and random fuzz bytes; and a day of load in virtual time.
//!
//! `POOLHOUSE_SEED=n` replays one seed and shows each operation and event; `POOLHOUSE_DAY=n` selects the day. See
//! [`poolhouse_tests::seeds`].
#![forbid(unsafe_code)]

use libtest_mimic::{Failed, Trial};
use poolhouse_core::sim::chance::Point;
use poolhouse_tests::fuzz;
use poolhouse_tests::oracle::mux::CHECKED;
use poolhouse_tests::seeds::{Bytes, Inputs, Lives, drawn, number, with_points};
use poolhouse_tests::sim::mux::day::{self, OPTIONS, Report};
use poolhouse_tests::sim::mux::{self, Counters};
use std::process::ExitCode;

/// The maximum number of connections opened in an hour, when the load varies at random by more than
/// one connection carries: twice the maximum number of connections.
const OPENED_PER_HOUR: u32 = 2 * OPTIONS.local.max_connections;

static LIVES: Lives<Counters> = Lives {
    suite: "mux",
    name: "random runs agree with the reference model",
    seeds: mux::SEEDS,
    lines: 60,
    run: mux::seed,
    add: Counters::add,
    report,
    regressions: &[],
    scripts: &[],
    bytes: Bytes {
        name: "random fuzz bytes agree with the reference model",
        inputs: Inputs { seeds: 200, lengths: 0..600 },
        body: fuzz::mux::mux,
    },
};

fn main() -> ExitCode {
    LIVES.run([
        Trial::test("runs with fault points without observable effect agree with the reference model", || {
            let points = [Point::OtherPlace, Point::OtherStream];
            with_points(100, &points, mux::seed)
        }),
        Trial::test("a day of load at random: connections do not flap", noisy_day),
        Trial::test("a day of smooth load opens each connection once", smooth_day),
        Trial::test("an hour at a threshold opens at most one connection", threshold),
    ])
}

fn report(seeds: u64, counters: &Counters) -> Result<(), Failed> {
    println!("{seeds} seeds, {} operations, {} events", counters.steps, counters.events);
    let missing = counters.missing();
    if seeds >= 1_000 && !missing.is_empty() {
        return Err(format!("operations that never occurred: {missing:?}").into());
    }
    let unchecked = counters.checks.missing(&CHECKED);
    if seeds >= 1_000 && !unchecked.is_empty() {
        return Err(format!("invariants that were never checked: {unchecked:?}").into());
    }
    Ok(())
}

fn show(what: &str, day: &Report) {
    let Report { requests, queued, rejected, opened, trashed, resurrected, open: _, most } = day;
    println!("{what}: {requests} requests, {queued} of them queued, {rejected} rejected");
    println!("  connections: {most} at most; {trashed} trashed, {resurrected} resurrected");
    println!("  opened per hour: {opened:?}, {} in all", day.opened_in_all());
}

fn noisy_day() -> Result<(), Failed> {
    let seed = number("POOLHOUSE_DAY").unwrap_or_else(|| drawn(1).start);
    let day = day::noisy(seed);
    show(&format!("a day of load at random, seed {seed}"), &day);
    if day.opened.iter().any(|opened| *opened > OPENED_PER_HOUR) || day.rejected > 0 {
        return Err(format!("connections are opened and closed too often: {day:?}").into());
    }
    Ok(())
}

fn smooth_day() -> Result<(), Failed> {
    for seed in drawn(1) {
        let day = day::smooth(seed);
        show(&format!("a day of smooth load, seed {seed}"), &day);
        // Each connection is opened once while the load rises, and trashed once while it falls.
        if day.opened_in_all() != day.most || day.trashed != day.most - 1 || day.resurrected > 0 {
            return Err(format!("connections are opened and closed too often: {day:?}").into());
        }
    }
    Ok(())
}

fn threshold() -> Result<(), Failed> {
    let host = OPTIONS.local;
    for others in 0..4 {
        for period in [1, 7, 10, 60, 140, 600] {
            let level = others * host.max_requests_per_connection + host.new_connection_threshold;
            let day = day::at_threshold(level, period);
            let before = others + 1;
            if day.opened_in_all() > before + 1 || day.trashed > 0 {
                return Err(format!("{level} requests in flight and one more, each for {period} s: {day:?}").into());
            }
        }
    }
    Ok(())
}
