//! Simulated runs: replays one, or counts many.
//!
//! - `simulate --seed N [--of pool|mux|monitor|network] [--script TEXT] [--trace] [--to STEP]
//!   [--shrink]` replays one run and prints its steps.
//! - `simulate --seeds FROM..TO [--of ..] [--threads N] [--json]` runs many seeds on all cores; if
//!   some fail, it prints them and exits with status 1. Use `--profile runs` for many runs: it is
//!   optimized and has all assertions enabled.
//! - `simulate --events FILE` checks events that a client's test has printed.
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use poolhouse_tests::choices::{Choices, Decisions, Script};
use poolhouse_tests::oracle::{Checks, monitor, trace};
use poolhouse_tests::seeds::caught;
use poolhouse_tests::seeds::{self, Limits, Run, TWICE, run_traced, shrunk};
use poolhouse_tests::sim::{self, Trace, mux};
use poolhouse_tests::{fuzz, network};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

const USAGE: &str = "\
usage: simulate --seed N [--of KIND] [--trace] [--to STEP] [--shrink]
       simulate --script TEXT [--of KIND] [--trace] [--to STEP] [--shrink]
       simulate --seeds FROM..TO [--of KIND] [--threads N] [--json]
       simulate --events FILE

Replays one simulated run and prints its steps, or runs many seeds.

  --of KIND      pool, mux, monitor or network; with --seeds also all, the default: each seed selects one of them
  --script TEXT  the decisions of a run, as printed by --shrink, instead of a seed
  --trace        prints emitted events too
  --to STEP      ends the output with this step
  --shrink       shrinks a failing run, for at most three minutes
  --threads N    the number of threads; the default is the number of cores
  --json         prints the totals as JSON
  --events FILE  judges the events of pools again that a failed test of a client has printed

Exit status 0: no run failed, and in a thousand runs or more every kind of event occurred. 1: otherwise.
2: wrong command line.";

/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);
/// Limits of shrinking one failing run.
const SHRINK: Limits = Limits { runs: 100_000, time: Duration::from_secs(180) };
/// Maximum number of failing seeds that are recorded.
const FAILURES_MAX: usize = 100;
/// Number of runs of a simulator after which each kind of event must have occurred.
const MANY: u64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Pool,
    Mux,
    Monitor,
    Network,
}

impl Of {
    const ALL: [Self; 4] = [Self::Pool, Self::Mux, Self::Monitor, Self::Network];

    const fn name(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Mux => "mux",
            Self::Monitor => "monitor",
            Self::Network => "network",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|of| of.name() == name)
    }

    /// Selects the simulator of a seed when all simulators share the seeds. One run of a network
    /// takes as long as a hundred of a pool.
    const fn of_seed(seed: u64) -> Self {
        match seed % 25 {
            0..15 => Self::Pool,
            15..19 => Self::Monitor,
            19..24 => Self::Mux,
            _ => Self::Network,
        }
    }
}

/// Totals of all runs.
#[derive(Debug, Default)]
struct Totals {
    runs: [u64; 4],
    pairs: u64,
    pool: sim::Counters,
    mux: mux::Counters,
    network: network::Counters,
    monitor: monitor::Counts,
    failures: Vec<(Of, u64, String)>,
    failed: u64,
}

impl Totals {
    fn run(&mut self, of: Of, decisions: &Decisions, trace: Option<&Trace>) -> Result<(), String> {
        match of {
            Of::Pool => sim::seed(decisions, &mut self.pool, trace),
            Of::Mux => mux::seed(decisions, &mut self.mux, trace),
            Of::Network => network::seed(decisions, &mut self.network, trace),
            Of::Monitor => live_monitor(decisions, &mut self.monitor, trace),
        }
    }

    fn add(&mut self, other: &Self) {
        for (sum, more) in self.runs.iter_mut().zip(other.runs) {
            *sum += more;
        }
        self.pairs += other.pairs;
        self.failed += other.failed;
        self.pool.add(&other.pool);
        self.mux.add(&other.mux);
        self.network.add(&other.network);
        self.monitor.add(&other.monitor);
        let room = FAILURES_MAX.saturating_sub(self.failures.len());
        self.failures.extend(other.failures.iter().take(room).cloned());
    }

    /// The kinds of events that never occurred, for simulators with at least [`MANY`] runs.
    fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        let mut note = |of: Of, kinds: Vec<String>| {
            if self.runs[of as usize] >= MANY {
                missing.extend(kinds.into_iter().map(|kind| format!("{} {kind}", of.name())));
            }
        };
        note(Of::Pool, self.pool.missing().iter().map(|kind| format!("{kind:?}")).collect());
        note(Of::Mux, self.mux.missing().iter().map(|kind| format!("{kind:?}")).collect());
        note(Of::Network, self.network.missing().iter().map(|kind| format!("{kind:?}")).collect());
        let still = network::POINTS.into_iter().filter(|point| self.network.fired(*point) == 0);
        note(Of::Network, still.map(|point| format!("fault point {point:?}")).collect());
        missing
    }

    fn to_json(&self, seconds: f64) -> Value {
        let runs: Map<String, Value> =
            Of::ALL.into_iter().zip(self.runs).map(|(of, count)| (of.name().to_owned(), count.into())).collect();
        let kinds: Map<String, Value> =
            network::Kind::ALL.into_iter().map(|kind| (format!("{kind:?}"), self.network.of(kind).into())).collect();
        let failures: Vec<Value> = self
            .failures
            .iter()
            .map(|(of, seed, error)| json!({ "of": of.name(), "seed": seed, "error": error.lines().next() }))
            .collect();
        let steps = self.pool.steps + self.mux.steps + self.network.steps;
        json!({
            "runs": self.runs.iter().sum::<u64>(),
            "runs_of": runs,
            "steps": steps,
            "steps_of": { "pool": self.pool.steps, "mux": self.mux.steps, "network": self.network.steps },
            "network": { "virtual_hours": self.network.seconds / 3_600, "bytes": self.network.bytes, "inputs": kinds, "invariants": self.network.checks.json() },
            "pairs": self.pairs,
            "failing": self.failed,
            "failures": failures,
            "missing": self.missing(),
            "seconds": seconds,
            "assertions": cfg!(debug_assertions),
        })
    }
}

/// Runs a monitor. The first decision determines the number of input bytes.
fn live_monitor(of: &Decisions, counts: &mut monitor::Counts, trace: Option<&Trace>) -> Result<(), String> {
    let (mut length, mut bytes) = (of.stream("length"), of.stream("bytes"));
    let length = length.below(500) + 20;
    let data: Vec<u8> = (0..length)
        .map_while(|_| (!bytes.is_over()).then(|| u8::try_from(bytes.below(256)).unwrap_or(u8::MAX)))
        .collect();
    if let Some(trace) = trace {
        trace.borrow_mut().push(format!("bytes: {data:?}"));
    }
    caught(|| counts.add(&fuzz::monitor::run(&data)))
}

#[derive(Debug, Default)]
struct Arguments {
    seed: Option<u64>,
    script: Option<Script>,
    seeds: Option<(u64, u64)>,
    events: Option<PathBuf>,
    of: Option<Of>,
    trace: bool,
    to: Option<usize>,
    shrink: bool,
    json: bool,
    threads: Option<u64>,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self::default();
        while let Some(name) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{name} requires a value"));
            match name.as_str() {
                "--seed" => arguments.seed = Some(number(&value()?)?),
                "--script" => arguments.script = Some(value()?.parse()?),
                "--seeds" => {
                    let value = value()?;
                    let (from, to) = value.split_once("..").ok_or("--seeds requires FROM..TO")?;
                    let (from, to) = (number(from)?, number(to)?);
                    if from >= to {
                        return Err(format!("the range {value} has no seed"));
                    }
                    arguments.seeds = Some((from, to));
                }
                "--events" => arguments.events = Some(PathBuf::from(value()?)),
                "--of" => {
                    let value = value()?;
                    let of = Of::named(&value);
                    if of.is_none() && value != "all" {
                        return Err(format!("unknown simulator {value:?}"));
                    }
                    arguments.of = of;
                }
                "--to" => arguments.to = Some(usize::try_from(number(&value()?)?).unwrap_or(usize::MAX)),
                "--threads" => arguments.threads = Some(number(&value()?)?.max(1)),
                "--trace" => arguments.trace = true,
                "--shrink" => arguments.shrink = true,
                "--json" => arguments.json = true,
                _ => return Err(format!("unknown argument {name}")),
            }
        }
        let Self { seed, script, seeds, events, .. } = &arguments;
        let ways = [seed.is_some(), script.is_some(), seeds.is_some(), events.is_some()];
        if ways.into_iter().filter(|way| *way).count() != 1 {
            return Err("exactly one of --seed, --script, --seeds and --events is required".to_owned());
        }
        Ok(arguments)
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.replace('_', "").parse().map_err(|_| format!("{text:?} is not a number"))
}

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("simulate: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    // Panics are reported once, at the end.
    std::panic::set_hook(Box::new(|_| {}));
    if let Some(file) = &arguments.events {
        return judge(file).unwrap_or_else(|error| {
            eprintln!("simulate: {error}");
            ExitCode::from(2)
        });
    }
    match (arguments.seeds, arguments.script.clone()) {
        (Some((from, to)), _) => many(&arguments, from, to),
        (None, Some(script)) => one(&arguments, &Decisions::scripted(script)),
        (None, None) => one(&arguments, &Decisions::of_seed(arguments.seed.unwrap_or(0))),
    }
}

fn one(arguments: &Arguments, of: &Decisions) -> ExitCode {
    match arguments.of.unwrap_or_else(|| Of::of_seed(of.seed())) {
        Of::Pool => print_run(arguments, of, sim::seed),
        Of::Mux => print_run(arguments, of, mux::seed),
        Of::Monitor => print_run(arguments, of, live_monitor),
        Of::Network => print_run(arguments, of, network::seed),
    }
}

/// Prints one run, or its shrunk form.
fn print_run<C: Default>(arguments: &Arguments, of: &Decisions, run: Run<C>) -> ExitCode {
    let (mut outcome, mut lines) = run_traced(run, of);
    if let (true, Err(error)) = (arguments.shrink, &outcome) {
        let count = lines.len();
        match shrunk(run, of, SHRINK) {
            None => println!("the run does not fail while its decisions are recorded: {error}"),
            Some(left) => {
                println!("shrunk from {count} lines by {} runs to {} decisions:", left.runs, left.script.len());
                println!("  --script '{}'", left.script);
                (outcome, lines) = run_traced(run, &Decisions::scripted(left.script));
            }
        }
    }
    let to = arguments.to.unwrap_or(usize::MAX);
    for (step, line) in lines.iter().enumerate().take(to) {
        // Lines of emitted events are indented.
        if arguments.trace || !line.starts_with("    ") {
            println!("{step:>6} {line}");
        }
    }
    match outcome {
        Ok(()) => {
            println!("seed {}: {} lines, nothing failed", of.seed(), lines.len());
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("seed {} fails after {} lines: {error}", of.seed(), lines.len());
            ExitCode::FAILURE
        }
    }
}

/// Runs some seeds of each simulator twice and compares the runs. `None` for the other seeds.
fn pair(of: Of, seed: u64) -> Option<Result<(), String>> {
    (seed % TWICE == seed / TWICE % TWICE).then(|| match of {
        Of::Pool => seeds::same_twice(sim::seed, seed),
        Of::Mux => seeds::same_twice(mux::seed, seed),
        Of::Monitor => seeds::same_twice(live_monitor, seed),
        Of::Network => seeds::same_twice(network::seed, seed),
    })
}

fn many(arguments: &Arguments, from: u64, to: u64) -> ExitCode {
    let threads =
        arguments.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, |count| count.get() as u64));
    let (next, done) = (AtomicU64::new(from), AtomicU64::new(0));
    let started = Instant::now();
    let reported = Mutex::new(started);
    let work = || {
        let mut totals = Totals::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= to {
                return totals;
            }
            let of = arguments.of.unwrap_or_else(|| Of::of_seed(seed));
            let mut outcome = totals.run(of, &Decisions::of_seed(seed), None);
            totals.runs[of as usize] += 1;
            if let (Ok(()), Some(same)) = (&outcome, pair(of, seed)) {
                totals.pairs += 1;
                outcome = same;
            }
            if let Err(error) = outcome {
                eprintln!("--of {} --seed {seed}: {}", of.name(), error.lines().next().unwrap_or_default());
                totals.failed += 1;
                if totals.failures.len() < FAILURES_MAX {
                    totals.failures.push((of, seed, error));
                }
            }
            let count = done.fetch_add(1, Ordering::Relaxed) + 1;
            if let Ok(mut reported) = reported.try_lock() {
                if reported.elapsed() >= PROGRESS {
                    *reported = Instant::now();
                    let rate = count as f64 / started.elapsed().as_secs_f64();
                    eprintln!("{count} of {} runs, {rate:.0} per second", to.saturating_sub(from));
                }
            }
        }
    };
    let mut totals = Totals::default();
    thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for handle in handles {
            totals.add(&handle.join().expect("panics are caught"));
        }
    });
    sum_up(arguments, &totals, started.elapsed().as_secs_f64())
}

fn sum_up(arguments: &Arguments, totals: &Totals, seconds: f64) -> ExitCode {
    let figures = totals.to_json(seconds);
    if arguments.json {
        println!("{figures:#}");
    } else {
        let runs: u64 = totals.runs.iter().sum();
        println!("{runs} runs in {seconds:.1} s, {:.0} per second", runs as f64 / seconds.max(1e-9));
        for (of, count) in Of::ALL.into_iter().zip(totals.runs) {
            println!("  {}: {count}", of.name());
        }
        println!("  {} of them were executed twice; {} failed", totals.pairs, totals.failed);
    }
    let missing = totals.missing();
    if !missing.is_empty() {
        eprintln!("kinds that never occurred: {}", missing.join(", "));
    }
    for (of, seed, error) in &totals.failures {
        eprintln!(
            "cargo run -p poolhouse-tests --features simulation --bin simulate -- --of {} --seed {seed} --shrink\n  {error}",
            of.name()
        );
    }
    if totals.failed == 0 && missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Checks recorded events with the oracle. The output of [`trace::Trace::json`] may start anywhere
/// in the file.
fn judge(file: &Path) -> Result<ExitCode, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let events = text.match_indices("[[").find_map(|(at, _)| {
        // Other output of the test may follow.
        let value = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>().next()?.ok()?;
        trace::Trace::parse(&value).ok()
    });
    let events = events.ok_or_else(|| format!("{} contains no events", file.display()))?;
    let mut checks = Checks::default();
    let outcome = events.judge(&mut checks);
    println!("{} events; checked {}", events.0.len(), checks.json());
    Ok(match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(found) => {
            println!("{found}");
            ExitCode::FAILURE
        }
    })
}
