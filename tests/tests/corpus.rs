//! The seeds of the fuzz targets, unchanged and with random changes, and inputs that once failed: a case per
//! target. See fuzz/README.md.
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use poolhouse_tests::fuzz::{Body, TARGETS};
use poolhouse_tests::hunt::{CHANGED, changed, files};
use poolhouse_tests::seeds::caught;
use poolhouse_tests::seeds::each_seed;
use poolhouse_tests::suite::Suite;

/// Upper bounds of the seeds of a target: they are stored in the repository.
const FILES_MAX: usize = 10;
const BYTES_MAX: usize = 20_000;

fn main() -> ExitCode {
    let mut suite = Suite::new("corpus").case("every_target_is_here_and_has_a_program", lists_agree);
    for (name, body) in TARGETS {
        suite = suite.case(name, move || replay(name, body));
    }
    suite.run()
}

fn fuzz_folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz"))
}

fn corpus(name: &str) -> PathBuf {
    fuzz_folder().join("corpus").join(name)
}

fn replay(name: &str, body: Body) -> Result<(), String> {
    let saved = files(&corpus(name));
    if saved.is_empty() {
        return Err("the target has no seeds: see fuzz/README.md".to_owned());
    }
    let bytes: usize = saved.iter().map(Vec::len).sum();
    if saved.len() > FILES_MAX || bytes > BYTES_MAX {
        return Err(format!("there are {} seeds, {bytes} bytes: keep those that reach most", saved.len()));
    }
    let failed = files(&fuzz_folder().join("regressions").join(name));
    for (place, data) in saved.iter().chain(&failed).enumerate() {
        caught(|| body(data)).map_err(|error| format!("file {place}, {data:02x?}: {error}"))?;
    }
    caught(|| {
        each_seed(CHANGED, |seed| {
            let data = changed(name, &saved, seed);
            caught(|| body(&data)).unwrap_or_else(|error| panic!("{data:02x?}: {error}"));
        });
    })
}

/// The names of the files of a folder, without extensions; none if the folder is missing.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.path().file_stem().map(|stem| stem.to_string_lossy().into_owned())).collect()
}

fn lists_agree() -> Result<(), String> {
    let here: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let programs = names(&fuzz_folder().join("fuzz_targets"));
    if here != programs {
        return Err(format!("tests/src/fuzz.rs has {here:?}, fuzz/fuzz_targets {programs:?}"));
    }
    for folder in ["corpus", "regressions", "dictionaries"] {
        let others: Vec<String> = names(&fuzz_folder().join(folder)).difference(&here).cloned().collect();
        if !others.is_empty() {
            return Err(format!("fuzz/{folder} has folders without a target: {others:?}"));
        }
    }
    Ok(())
}
