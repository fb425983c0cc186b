//! The multiplexed pool against its reference model: ten thousand seeds, stream-id attacks included, and random fuzz bytes; and a day of load in virtual time.
//!
//! `POOLHOUSE_SEED=n` replays one seed and shows each operation and event; `POOLHOUSE_SEEDS=n` says how many seeds are lived, `POOLHOUSE_DAY=n` which day.
#![forbid(unsafe_code)]

use core::cell::RefCell;
use libtest_mimic::{Arguments, Failed, Trial};
use poolhouse_tests::choices::Choices;
use poolhouse_tests::fuzz;
use poolhouse_tests::rng::Rng;
use poolhouse_tests::sim;
use poolhouse_tests::sim::mux::day::{self, OPTIONS, Report};
use poolhouse_tests::sim::mux::{self, Counters};
use std::env;
use std::process::ExitCode;
use std::thread;

/// How many seeds are lived when nobody says.
const SEEDS: u64 = 10_000;
/// How many connections are opened in an hour at most, when the load goes up and down at random by more than one carries: twice as many as there may be.
const OPENED_PER_HOUR: u32 = 2 * OPTIONS.local.max_connections;
/// How many lines of a failed life are shown.
const LINES: usize = 60;
/// Seeds that once failed, and what it was.
const REGRESSIONS: [(u64, &str); 0] = [];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    if let Some(seed) = number("POOLHOUSE_SEED") {
        trials.push(Trial::test(format!("seed {seed}"), move || replay(seed)));
    } else {
        let seeds = number("POOLHOUSE_SEEDS").unwrap_or(SEEDS);
        trials.push(Trial::test(format!("{seeds} seeds agree with the reference model"), move || live_all(seeds)));
        trials.push(Trial::test("a seed lives the same life twice (P49)", same_twice));
        trials.push(Trial::test("random fuzz bytes agree with the reference model", random_bytes));
        trials.push(Trial::test("a day of load at random: resizing follows the rule and does not flap", noisy_day));
        trials.push(Trial::test("a day of smooth load opens each connection once", smooth_day));
        trials.push(Trial::test("an hour at a threshold opens at most one connection", threshold));
        trials.extend(REGRESSIONS.iter().map(|&(seed, what)| {
            Trial::test(format!("regress::seed_{seed}_{what}"), move || one(seed, &mut Counters::default()))
        }));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text:?}")))
}

/// Lives one seed; when it fails, once more to tell how it came.
fn one(seed: u64, counters: &mut Counters) -> Result<(), Failed> {
    mux::seed(seed, counters, None).map_err(|error| {
        let trace = RefCell::new(Vec::new());
        let _again = mux::seed(seed, &mut Counters::default(), Some(&trace));
        let lines = trace.into_inner();
        let (first, last) = (&lines[..1], &lines[lines.len().saturating_sub(LINES).max(1)..]);
        let text = format!("{}\n...\n{}", first.join("\n"), last.join("\n"));
        format!("POOLHOUSE_SEED={seed} fails after {} lines:\n{text}\n{error}", lines.len()).into()
    })
}

fn replay(seed: u64) -> Result<(), Failed> {
    let trace = RefCell::new(Vec::new());
    let outcome = mux::seed(seed, &mut Counters::default(), Some(&trace));
    println!("{}", trace.into_inner().join("\n"));
    outcome.map_err(Failed::from)
}

fn live_all(seeds: u64) -> Result<(), Failed> {
    let threads = thread::available_parallelism().map_or(1, |count| count.get() as u64).min(8);
    let results: Vec<(Counters, Result<(), Failed>)> = thread::scope(|scope| {
        let live = |first: u64| {
            let mut counters = Counters::default();
            let mut mine = (first..seeds).step_by(usize::try_from(threads).unwrap_or(1));
            let outcome = mine.try_for_each(|seed| one(seed, &mut counters));
            (counters, outcome)
        };
        let handles: Vec<_> = (0..threads).map(|first| scope.spawn(move || live(first))).collect();
        handles.into_iter().map(|handle| handle.join().expect("panics are caught")).collect()
    });
    let mut counters = Counters::default();
    for (counted, outcome) in results {
        counters.add(&counted);
        outcome?;
    }
    println!("{seeds} seeds, {} operations, {} events", counters.steps, counters.events);
    let missing = counters.missing();
    if seeds >= 1_000 && !missing.is_empty() {
        return Err(format!("operations that never came: {missing:?}").into());
    }
    Ok(())
}

fn same_twice() -> Result<(), Failed> {
    for seed in 0..200 {
        let live = || {
            let trace = RefCell::new(Vec::new());
            let outcome = mux::seed(seed, &mut Counters::default(), Some(&trace));
            (outcome, trace.into_inner())
        };
        if live() != live() {
            return Err(format!("seed {seed} lived two different lives").into());
        }
    }
    Ok(())
}

fn random_bytes() -> Result<(), Failed> {
    for seed in 0..2_000 {
        let mut rng = Rng::stream(seed, "fuzz");
        let len = rng.below(600);
        let data: Vec<u8> = (0..len).map(|_| u8::try_from(rng.below(256)).unwrap_or(0)).collect();
        sim::caught(|| fuzz::mux::mux(&data)).map_err(|error| format!("bytes of seed {seed}: {error}"))?;
    }
    Ok(())
}

fn show(what: &str, day: &Report) {
    let Report { requests, queued, rejected, opened, trashed, resurrected, most, mean } = day;
    println!("{what}: {requests} requests, {queued} of them queued, {rejected} rejected");
    println!("  connections: {mean:.2} in the mean, {most} at most; {trashed} trashed, {resurrected} resurrected");
    println!("  opened per hour: {opened:?}, {} in all", day.opened_in_all());
}

fn noisy_day() -> Result<(), Failed> {
    let seed = number("POOLHOUSE_DAY").unwrap_or(0);
    let day = day::noisy(seed);
    show(&format!("a day of load at random, seed {seed}"), &day);
    if day.opened.iter().any(|opened| *opened > OPENED_PER_HOUR) || day.rejected > 0 {
        return Err(format!("connections come and go: {day:?}").into());
    }
    Ok(())
}

fn smooth_day() -> Result<(), Failed> {
    for seed in 0..3 {
        let day = day::smooth(seed);
        show(&format!("a day of smooth load, seed {seed}"), &day);
        // Each once on the way up, each once on the way down.
        if day.opened_in_all() != day.most || day.trashed != day.most - 1 || day.resurrected > 0 {
            return Err(format!("connections come and go: {day:?}").into());
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
