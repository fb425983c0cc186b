//! Lives by seeds, as the simulators' test targets run them: all seeds on all cores, one again by `POOLHOUSE_SEED=n`, what once failed by name.

use crate::choices::Choices;
use crate::rng::Rng;
use crate::sim::{Trace, caught};
use core::cell::RefCell;
use libtest_mimic::{Arguments, Failed, Trial};
use std::env;
use std::process::ExitCode;
use std::thread;

/// What a simulator lives.
#[derive(Debug)]
pub struct Lives<C: 'static> {
    /// What the lives show; the number of seeds is put in the place of `{}`.
    pub name: &'static str,
    /// How many seeds are lived, unless `POOLHOUSE_SEEDS` says.
    pub seeds: u64,
    /// How many are lived twice.
    pub twice: u64,
    /// How many lines of a life that failed are shown.
    pub lines: usize,
    /// Lives one: what failed, in words.
    pub live: fn(u64, &mut C, Option<&Trace>) -> Result<(), String>,
    /// Adds what was counted.
    pub add: fn(&mut C, &C),
    /// Prints what was counted in so many lives, and fails if something never came.
    pub report: fn(u64, &C) -> Result<(), Failed>,
    /// Seeds that once failed, and what it was.
    pub regressions: &'static [(u64, &'static str)],
    /// What random bytes show.
    pub bytes: Bytes,
}

/// A fuzz target's body, on random bytes.
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    /// What they show.
    pub name: &'static str,
    /// Which stream of random numbers they are of.
    pub stream: &'static str,
    /// How many times.
    pub times: u64,
    /// They are less long than this.
    pub length: u32,
    /// What they are given to.
    pub body: fn(&[u8]),
}

/// The number that an environment variable holds.
///
/// # Panics
///
/// If it holds something else.
#[must_use]
pub fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text:?}")))
}

impl<C: Default + Send> Lives<C> {
    /// Runs the lives, and other trials besides; with `POOLHOUSE_SEED` only that one.
    #[must_use]
    pub fn run(&'static self, others: impl IntoIterator<Item = Trial>) -> ExitCode {
        let arguments = Arguments::from_args();
        let mut trials = Vec::new();
        if let Some(seed) = number("POOLHOUSE_SEED") {
            trials.push(Trial::test(format!("seed {seed}"), move || self.replay(seed)));
        } else {
            let seeds = number("POOLHOUSE_SEEDS").unwrap_or(self.seeds);
            trials.push(Trial::test(self.name.replace("{}", &seeds.to_string()), move || self.live_all(seeds)));
            trials.push(Trial::test("a seed lives the same life twice (P49)", move || self.same_twice()));
            trials.push(Trial::test(self.bytes.name, move || self.bytes.try_all()));
            trials.extend(self.regressions.iter().map(|&(seed, what)| {
                Trial::test(format!("regress::seed_{seed}_{what}"), move || self.one(seed, &mut C::default()))
            }));
            trials.extend(others);
        }
        libtest_mimic::run(&arguments, trials).exit_code()
    }

    /// Lives one seed; when it fails, once more to tell how it came.
    fn one(&self, seed: u64, counters: &mut C) -> Result<(), Failed> {
        (self.live)(seed, counters, None).map_err(|error| {
            let trace = RefCell::new(Vec::new());
            let _again = (self.live)(seed, &mut C::default(), Some(&trace));
            let lines = trace.into_inner();
            let (first, rest) = lines.split_at(lines.len().min(1));
            let last = &rest[rest.len().saturating_sub(self.lines)..];
            let text = format!("{}\n...\n{}", first.join("\n"), last.join("\n"));
            format!("POOLHOUSE_SEED={seed} fails after {} lines:\n{text}\n{error}", lines.len()).into()
        })
    }

    fn replay(&self, seed: u64) -> Result<(), Failed> {
        let trace = RefCell::new(Vec::new());
        let outcome = (self.live)(seed, &mut C::default(), Some(&trace));
        println!("{}", trace.into_inner().join("\n"));
        outcome.map_err(Failed::from)
    }

    fn live_all(&self, seeds: u64) -> Result<(), Failed> {
        let threads = thread::available_parallelism().map_or(1, |count| count.get() as u64).min(8);
        let results: Vec<(C, Result<(), Failed>)> = thread::scope(|scope| {
            let live = |first: u64| {
                let mut counters = C::default();
                let mut mine = (first..seeds).step_by(usize::try_from(threads).unwrap_or(1));
                let outcome = mine.try_for_each(|seed| self.one(seed, &mut counters));
                (counters, outcome)
            };
            let handles: Vec<_> = (0..threads).map(|first| scope.spawn(move || live(first))).collect();
            handles.into_iter().map(|handle| handle.join().expect("panics are caught")).collect()
        });
        let mut counters = C::default();
        for (counted, outcome) in results {
            (self.add)(&mut counters, &counted);
            outcome?;
        }
        (self.report)(seeds, &counters)
    }

    fn same_twice(&self) -> Result<(), Failed> {
        for seed in 0..self.twice {
            let live = || {
                let trace = RefCell::new(Vec::new());
                let outcome = (self.live)(seed, &mut C::default(), Some(&trace));
                (outcome, trace.into_inner())
            };
            if live() != live() {
                return Err(format!("seed {seed} lived two different lives").into());
            }
        }
        Ok(())
    }
}

impl Bytes {
    fn try_all(self) -> Result<(), Failed> {
        for seed in 0..self.times {
            let mut rng = Rng::stream(seed, self.stream);
            let len = rng.below(self.length);
            let data: Vec<u8> = (0..len).map(|_| u8::try_from(rng.below(256)).unwrap_or(0)).collect();
            caught(|| (self.body)(&data)).map_err(|error| format!("bytes of seed {seed}: {error}"))?;
        }
        Ok(())
    }
}
