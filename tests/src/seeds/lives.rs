//! Simulated runs by seed, as executed by the simulators' test targets: all seeds on all cores, a single one with
//! `POOLHOUSE_SEED=n`, and named regressions.
//!
//! A failing run is printed, and then reduced while it fails in the same way ([`shrink`]):
//! `POOLHOUSE_SCRIPT` replays the reduced run. One seed of twenty is run twice, and the complete
//! outputs are compared (P49).

use super::caught;
use crate::choices::{Decisions, Script};
use crate::seeds::{Inputs, Limits, Shrunk, again, drawn, number, shrink};
use crate::sim::Trace;
use core::cell::RefCell;
use core::hash::{Hash, Hasher};
use core::iter::StepBy;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use libtest_mimic::{Arguments, Failed, Trial};
use poolhouse_core::sim::chance::{self, Point};
use std::env;
use std::hash::DefaultHasher;
use std::process::ExitCode;
use std::thread;

/// Executes one run; the error is the failure.
pub type Run<C> = fn(&Decisions, &mut C, Option<&Trace>) -> Result<(), String>;

/// One seed of this many is run twice.
pub const TWICE: u64 = 20;

/// Number of failed seeds after which the suite stops.
const FAILING_MAX: u64 = 20;

/// The suite of a simulator.
#[derive(Debug)]
pub struct Lives<C: 'static> {
    /// Its name in the figures.
    pub suite: &'static str,
    /// The name of the test.
    pub name: &'static str,
    /// Number of seeds.
    pub seeds: u64,
    /// Number of lines that are printed of a failed run.
    pub lines: usize,
    /// Executes one run.
    pub run: Run<C>,
    /// Adds counts.
    pub add: fn(&mut C, &C),
    /// Prints the counts of this many runs, and fails if a behaviour did not occur.
    pub report: fn(u64, &C) -> Result<(), Failed>,
    /// Seeds that failed in the past, and the reason.
    pub regressions: &'static [(u64, &'static str)],
    /// Scripts of runs that failed in the past, and the reason.
    pub scripts: &'static [(&'static str, &'static str)],
    /// The test with random bytes.
    pub bytes: Bytes,
}

/// A test of a fuzz target's body with random bytes.
#[derive(Clone, Debug)]
pub struct Bytes {
    /// Its name.
    pub name: &'static str,
    /// The bytes.
    pub inputs: Inputs,
    /// The body.
    pub body: fn(&[u8]),
}

/// Runs some seeds with these fault points of core armed, each of which must fire in as many.
///
/// # Errors
///
/// The failure and its seed; or the points that did not fire.
pub fn with_points<C: Default>(count: u64, points: &[Point], run: Run<C>) -> Result<(), Failed> {
    let before = chance::fired();
    let seeds = drawn(count);
    for seed in seeds.clone() {
        let _armed = chance::arm(seed, points);
        run(&Decisions::of_seed(seed), &mut C::default(), None)
            .map_err(|error| format!("{}, fault points armed: {error}", again(seed)))?;
    }
    let seeds = seeds.end - seeds.start;
    let after = chance::fired();
    let times = |point: Point| after[point as usize] - before[point as usize];
    let counts: Vec<_> = points.iter().map(|&point| format!("{point:?} {}", times(point))).collect();
    println!("{seeds} seeds with fault points: {}", counts.join(", "));
    match points.iter().find(|&&point| seeds >= count && times(point) == 0) {
        Some(point) => Err(format!("{point:?} never fired").into()),
        None => Ok(()),
    }
}

/// Executes one run and returns its full trace.
pub fn run_traced<C: Default>(run: Run<C>, of: &Decisions) -> (Result<(), String>, Vec<String>) {
    let trace = RefCell::new(Vec::new());
    let outcome = run(of, &mut C::default(), Some(&trace));
    (outcome, trace.into_inner())
}

/// Runs a seed twice.
///
/// # Errors
///
/// The outputs differ: operations, actions, events or bytes.
pub fn same_twice<C: Default>(run: Run<C>, seed: u64) -> Result<(), String> {
    let digest = || {
        let mut hasher = DefaultHasher::new();
        run_traced(run, &Decisions::of_seed(seed)).hash(&mut hasher);
        hasher.finish()
    };
    if digest() == digest() { Ok(()) } else { Err(format!("P49: two runs of seed {seed} differ")) }
}

/// Reduces the run of a failed seed; `None` if it does not fail while it is recorded.
pub fn shrunk<C: Default>(run: Run<C>, of: &Decisions, limits: Limits) -> Option<Shrunk> {
    let (script, error) = match of.script() {
        script if script.is_empty() => {
            let recorded = Decisions::recorded(of.seed());
            let error = run(&recorded, &mut C::default(), None).err()?;
            (recorded.script(), error)
        }
        script => {
            let error = run(of, &mut C::default(), None).err()?;
            (script, error)
        }
    };
    let again = |script: &Script| run(&Decisions::scripted(script.clone()), &mut C::default(), None).err();
    Some(shrink(script, error, limits, again))
}

impl<C: Default + Send> Lives<C> {
    /// Executes the runs and the other trials; with `POOLHOUSE_SEED` or `POOLHOUSE_SCRIPT` only
    /// that run.
    #[must_use]
    pub fn run(&'static self, others: impl IntoIterator<Item = Trial>) -> ExitCode {
        let arguments = Arguments::from_args();
        let mut trials = Vec::new();
        if let Ok(text) = env::var("POOLHOUSE_SCRIPT") {
            let script: Script = text.parse().unwrap_or_else(|error| panic!("POOLHOUSE_SCRIPT: {error}"));
            trials.push(Trial::test("script", move || self.replay(&Decisions::scripted(script))));
        } else if let Some(seed) = number("POOLHOUSE_SEED") {
            trials.push(Trial::test(format!("seed {seed}"), move || self.replay(&Decisions::of_seed(seed))));
        } else {
            trials.push(Trial::test(self.name, move || self.live_all(&drawn(self.seeds))));
            trials.push(Trial::test("two runs of one seed in twenty are equal (P49)", move || {
                self.same_twice(&drawn(self.seeds))
            }));
            trials.push(Trial::test(self.bytes.name, move || self.bytes.try_all()));
            trials.extend(self.regressions.iter().map(|&(seed, what)| {
                Trial::test(format!("regress::seed_{seed}_{what}"), move || self.regress(&Decisions::of_seed(seed)))
            }));
            trials.extend(self.scripts.iter().map(|&(text, what)| {
                Trial::test(format!("regress::script_{what}"), move || {
                    self.regress(&Decisions::scripted(text.parse::<Script>()?))
                })
            }));
            trials.extend(others);
        }
        libtest_mimic::run(&arguments, trials).exit_code()
    }

    /// Executes a run that failed in the past.
    fn regress(&self, of: &Decisions) -> Result<(), Failed> {
        match (self.run)(of, &mut C::default(), None) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.failure_report(of, &error).into()),
        }
    }

    /// Returns the report of a failed run: its trace, and that of the reduced run.
    fn failure_report(&self, of: &Decisions, error: &str) -> String {
        let again = of.script();
        let again = if again.is_empty() { Decisions::of_seed(of.seed()) } else { Decisions::scripted(again) };
        let (_, lines) = run_traced(self.run, &again);
        let mut text = format!("POOLHOUSE_SEED={} fails after {} lines:\n", of.seed(), lines.len());
        text += &self.ends(&lines, error);
        // Callers that need only the verdict disable shrinking.
        let wanted = number("POOLHOUSE_SHRINK") != Some(0);
        if let Some(shrunk) = wanted.then(|| shrunk(self.run, &again, Limits::DEFAULT)).flatten() {
            let (count, script) = (shrunk.script.len(), &shrunk.script);
            let (_, lines) = run_traced(self.run, &Decisions::scripted(script.clone()));
            text += &format!("\n\nshrunk to {count} decisions, POOLHOUSE_SCRIPT='{script}':\n");
            text += &self.ends(&lines, &shrunk.error);
        }
        text
    }

    /// Returns the first and the last lines of a run.
    fn ends(&self, lines: &[String], error: &str) -> String {
        let (first, rest) = lines.split_at(lines.len().min(1));
        let last = &rest[rest.len().saturating_sub(self.lines)..];
        format!("{}\n...\n{}\n{error}", first.join("\n"), last.join("\n"))
    }

    fn replay(&self, of: &Decisions) -> Result<(), Failed> {
        let (outcome, lines) = run_traced(self.run, of);
        println!("{}", lines.join("\n"));
        outcome.map_err(Failed::from)
    }

    fn live_all(&self, seeds: &Range<u64>) -> Result<(), Failed> {
        let failing = AtomicU64::new(0);
        let results = on_all_cores(seeds, 1, |mut mine| {
            let (mut counters, mut failures, mut lived) = (C::default(), Vec::new(), 0_u64);
            while let Some(seed) = mine.next().filter(|_| failing.load(Ordering::Relaxed) < FAILING_MAX) {
                lived += 1;
                if let Err(error) = (self.run)(&Decisions::of_seed(seed), &mut counters, None) {
                    failing.fetch_add(1, Ordering::Relaxed);
                    failures.push((seed, error));
                }
            }
            (counters, failures, lived)
        });
        let (mut counters, mut failures, mut lived) = (C::default(), Vec::new(), 0);
        for (counted, mut failed, count) in results {
            (self.add)(&mut counters, &counted);
            failures.append(&mut failed);
            lived += count;
        }
        failures.sort_unstable();
        let Some(((seed, error), others)) = failures.split_first() else {
            return (self.report)(lived, &counters);
        };
        let mut text = self.failure_report(&Decisions::of_seed(*seed), error);
        for (seed, error) in others {
            text += &format!("\nPOOLHOUSE_SEED={seed} fails too: {}", error.lines().next().unwrap_or_default());
        }
        Err(format!("{text}\n{} of {lived} seeds fail", failures.len()).into())
    }

    fn same_twice(&self, seeds: &Range<u64>) -> Result<(), Failed> {
        let outcomes = on_all_cores(seeds, TWICE, |mine| -> Vec<String> {
            mine.filter_map(|seed| same_twice(self.run, seed).err()).collect()
        });
        let pairs = (seeds.end - seeds.start).div_ceil(TWICE);
        let different = outcomes.concat();
        if different.is_empty() {
            println!("{pairs} seeds were run twice, with equal results");
            return Ok(());
        }
        Err(different.join("\n").into())
    }
}

/// Distributes every `step`-th of some seeds over as many threads as there are cores.
fn on_all_cores<T: Send>(seeds: &Range<u64>, step: u64, work: impl Fn(StepBy<Range<u64>>) -> T + Sync) -> Vec<T> {
    let threads = thread::available_parallelism().map_or(1, |count| count.get() as u64).min(8);
    thread::scope(|scope| {
        let work = &work;
        let start = |place: u64| {
            let mine = (seeds.start + place * step..seeds.end).step_by(usize::try_from(threads * step).unwrap_or(1));
            scope.spawn(move || work(mine))
        };
        let handles: Vec<_> = (0..threads).map(start).collect();
        handles.into_iter().map(|handle| handle.join().expect("panics are caught")).collect()
    })
}

impl Bytes {
    fn try_all(&self) -> Result<(), Failed> {
        for seed in drawn(self.inputs.seeds) {
            caught(|| (self.body)(&self.inputs.of_seed(seed))).map_err(|error| format!("{}: {error}", again(seed)))?;
        }
        Ok(())
    }
}
