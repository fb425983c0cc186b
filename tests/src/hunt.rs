//! Generators by name, each with the number of seeds that its test target has; used to show that planted bugs are
//! found.

use core::fmt::Write;
use std::fs;
use std::path::Path;

use crate::choices::{Choices, Decisions};
use crate::fuzz::mutate::mutated;
use crate::fuzz::{self, Body, TARGETS, lengths};
use crate::network;
use crate::rng::Rng;
use crate::seeds::caught;
use crate::seeds::{Inputs, Run, drawn};
use crate::sim;

/// Number of changed inputs of each fuzz target.
pub const CHANGED: u64 = 100;

/// Random runs of a monitor.
pub const MONITOR: Inputs = Inputs { seeds: 300, lengths: 20..520 };

/// Random runs of a topology.
pub const TOPOLOGY: Inputs = Inputs { seeds: 100, lengths: 100..1_100 };

/// Random runs of a control plane.
pub const CONTROL: Inputs = Inputs { seeds: 200, lengths: 0..2_000 };

/// The result of a hunt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunted {
    /// Number of simulated runs or inputs.
    pub tried: u64,
    /// The failure that ended the hunt, if any.
    pub found: Option<String>,
}

/// A generator.
pub type Generator = fn() -> Hunted;

/// The generators that are not fuzz targets.
pub const GENERATORS: [(&str, Generator); 6] = [
    ("pool", || runs(sim::SEEDS, sim::seed)),
    ("mux", || runs(sim::mux::SEEDS, sim::mux::seed)),
    ("network", || runs(network::SEEDS, network::seed)),
    ("monitor", || random(&MONITOR, fuzz::monitor)),
    ("topology", || random(&TOPOLOGY, fuzz::topology)),
    ("control", || random(&CONTROL, fuzz::control)),
];

/// Runs a generator with its [drawn] seeds until a bug is found.
///
/// - `generator`: one of [`GENERATORS`], or `fuzz_NAME` of a target.
/// - `corpus`: the folder of the corpora.
pub fn hunt(generator: &str, corpus: &Path) -> Result<Hunted, String> {
    if let Some(name) = generator.strip_prefix("fuzz_") {
        let target = TARGETS.iter().find(|(target, _)| *target == name);
        let (_, body) = target.ok_or_else(|| format!("unknown fuzz target {name}"))?;
        return Ok(inputs(name, *body, &files(&corpus.join(name))));
    }
    let found = GENERATORS.iter().find(|(name, _)| *name == generator);
    let (_, run) = found.ok_or_else(|| format!("unknown generator {generator}; known are {}", names().join(", ")))?;
    Ok(run())
}

/// Returns the names of all generators.
#[must_use]
pub fn names() -> Vec<String> {
    let targets = TARGETS.iter().map(|(target, _)| format!("fuzz_{target}"));
    GENERATORS.iter().map(|(name, _)| (*name).to_owned()).chain(targets).collect()
}

fn runs<C: Default>(count: u64, run: Run<C>) -> Hunted {
    seeds(count, |seed| run(&Decisions::of_seed(seed), &mut C::default(), None))
}

fn random(inputs: &Inputs, body: Body) -> Hunted {
    seeds(inputs.seeds, |seed| caught(|| body(&inputs.of_seed(seed))))
}

fn seeds(count: u64, mut run: impl FnMut(u64) -> Result<(), String>) -> Hunted {
    let mut tried = 0;
    for seed in drawn(count) {
        tried += 1;
        if let Err(error) = run(seed) {
            return Hunted { tried, found: Some(format!("seed {seed}: {error}")) };
        }
    }
    Hunted { tried, found: None }
}

/// Runs the corpus of a target unchanged, then changed by each seed.
fn inputs(name: &str, body: Body, files: &[Vec<u8>]) -> Hunted {
    let try_one = |data: &[u8]| {
        caught(|| body(data)).map_err(|error| {
            let mut shown = String::new();
            for byte in data.iter().take(64) {
                let _ = write!(shown, "{byte:02x}");
            }
            format!("{} bytes {shown}: {error}", data.len())
        })
    };
    for (tried, data) in (1..).zip(files) {
        if let Err(error) = try_one(data) {
            return Hunted { tried, found: Some(error) };
        }
    }
    let Hunted { tried, found } = seeds(CHANGED, |seed| try_one(&changed(name, files, seed)));
    Hunted { tried: tried + files.len() as u64, found }
}

/// Returns the files of a folder in the order of their names; none if the folder does not exist.
#[must_use]
pub fn files(folder: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    paths.sort();
    paths.into_iter().flat_map(fs::read).collect()
}

/// Returns one of the inputs of a target with a few changes.
#[must_use]
pub fn changed(name: &str, files: &[Vec<u8>], seed: u64) -> Vec<u8> {
    let mut rng = Rng::stream(seed, name);
    let mut data = mutated(files, &[], &mut rng);
    match name {
        "bson" | "hello" | "wire" | "decompress" => lengths::repair(&mut data, rng.below(4)),
        "wire_cql" => lengths::repair_envelopes(&mut data, rng.below(4)),
        _ => {}
    }
    data
}
