//! Generators by name, each with a budget; used to measure whether, and how fast, a planted bug is
//! found.

use core::fmt::Write;
use std::fs;
use std::path::Path;

use crate::choices::{Choices, Decisions};
use crate::fuzz::mutate::mutated;
use crate::fuzz::{self, Body, TARGETS, lengths};
use crate::network;
use crate::rng::Rng;
use crate::search::{self, Figures, Stopped};
use crate::seeds::Run;
use crate::sim::{self, caught};

/// The result of a hunt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunted {
    /// Number of simulated runs, inputs or states.
    pub tried: u64,
    /// The failure that ended the hunt, if any.
    pub found: Option<String>,
}

/// A generator; its argument is the budget: the number of seeds, simulated runs or states.
pub type Generator = fn(u64) -> Hunted;

/// The generators that are not fuzz targets.
pub const GENERATORS: [(&str, Generator); 10] = [
    ("pool", |budget| runs(budget, sim::seed)),
    ("mux", |budget| runs(budget, sim::mux::seed)),
    ("network", |budget| runs(budget, network::seed)),
    ("monitor", |budget| seeds(budget, |seed| random(seed, 520, fuzz::monitor))),
    ("topology", |budget| seeds(budget, |seed| random(seed, 400, fuzz::topology))),
    ("control", |budget| seeds(budget, |seed| random(seed, 2_000, fuzz::control))),
    ("search_pool", |budget| scopes(budget, &search::pool::scopes(), search::pool::Shape::run_up_to)),
    ("search_mux", |budget| scopes(budget, &search::mux::scopes(), search::mux::Shape::run_up_to)),
    ("search_monitor", |budget| scopes(budget, &search::monitor::scopes(), search::monitor::Shape::run_up_to)),
    ("search_control", |budget| scopes(budget, &search::control::scopes(), search::control::Shape::run_up_to)),
];

/// Runs a generator until a bug is found, or the budget is used up.
///
/// - `generator`: one of [`GENERATORS`], or `fuzz_NAME` of a target.
/// - `budget`: number of seeds, simulated runs, inputs or states.
/// - `corpus`: the folder of the corpora.
pub fn hunt(generator: &str, budget: u64, corpus: &Path) -> Result<Hunted, String> {
    if let Some(name) = generator.strip_prefix("fuzz_") {
        let target = TARGETS.iter().find(|(target, _)| *target == name);
        let (_, body) = target.ok_or_else(|| format!("unknown fuzz target {name}"))?;
        return Ok(inputs(name, *body, budget, corpus));
    }
    let found = GENERATORS.iter().find(|(name, _)| *name == generator);
    let (_, run) = found.ok_or_else(|| format!("unknown generator {generator}; known are {}", names().join(", ")))?;
    Ok(run(budget))
}

/// Returns the names of all generators.
#[must_use]
pub fn names() -> Vec<String> {
    let targets = TARGETS.iter().map(|(target, _)| format!("fuzz_{target}"));
    GENERATORS.iter().map(|(name, _)| (*name).to_owned()).chain(targets).collect()
}

fn runs<C: Default>(budget: u64, run: Run<C>) -> Hunted {
    seeds(budget, |seed| run(&Decisions::of_seed(seed), &mut C::default(), None))
}

fn seeds(budget: u64, mut run: impl FnMut(u64) -> Result<(), String>) -> Hunted {
    for seed in 0..budget {
        if let Err(error) = run(seed) {
            return Hunted { tried: seed + 1, found: Some(format!("seed {seed}: {error}")) };
        }
    }
    Hunted { tried: budget, found: None }
}

/// Executes a simulated run described by random bytes.
fn random(seed: u64, length: u32, body: Body) -> Result<(), String> {
    let mut rng = Rng::stream(seed, "hunt");
    let data: Vec<u8> = (0..rng.below(length)).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
    caught(|| body(&data))
}

/// Explores the first states of each scope: an equal part of the budget for each; an unused rest is
/// available to the next.
fn scopes<S>(budget: u64, shapes: &[S], run: impl Fn(&S, usize) -> Result<Figures, Stopped>) -> Hunted {
    let mut tried = 0;
    for (place, shape) in shapes.iter().enumerate() {
        let until = budget * (place as u64 + 1) / shapes.len() as u64;
        let states = usize::try_from(until.saturating_sub(tried)).unwrap_or(usize::MAX);
        let (met, found) = match run(shape, states) {
            Ok(figures) => (figures.states, None),
            Err(Stopped::Limit(states) | Stopped::NeverMet { states, .. }) => (states, None),
            Err(Stopped::Wrong { way, states }) => (states, Some(format!("scope {place}: {way}"))),
        };
        tried += met as u64;
        if found.is_some() {
            return Hunted { tried, found };
        }
    }
    Hunted { tried, found: None }
}

/// Runs the corpus of a target unchanged, then with random changes.
fn inputs(name: &str, body: Body, budget: u64, corpus: &Path) -> Hunted {
    let files = files(&corpus.join(name));
    let mut rng = Rng::stream(0, name);
    for tried in 0..budget {
        let whole = usize::try_from(tried).ok().and_then(|place| files.get(place));
        let data = whole.cloned().unwrap_or_else(|| changed(name, &files, &mut rng));
        if let Err(error) = caught(|| body(&data)) {
            let mut shown = String::new();
            for byte in data.iter().take(64) {
                let _ = write!(shown, "{byte:02x}");
            }
            return Hunted { tried: tried + 1, found: Some(format!("{} bytes {shown}: {error}", data.len())) };
        }
    }
    Hunted { tried: budget, found: None }
}

/// Returns the files of a folder in the order of their names; none if the folder does not exist.
#[must_use]
pub fn files(folder: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    paths.sort();
    paths.into_iter().flat_map(fs::read).collect()
}

/// Returns one of the files with a few changes.
fn changed(name: &str, files: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut data = mutated(files, &[], rng);
    match name {
        "bson" | "hello" | "wire" | "decompress" => lengths::repair(&mut data, rng.below(4)),
        "wire_cql" => lengths::repair_envelopes(&mut data, rng.below(4)),
        _ => {}
    }
    data
}
