//! The official CMAP format, on virtual time and without a server.
//!
//! A file specifies the operations of threads on a pool and the expected events. The mock server
//! answers a `hello` as the file's fail point specifies; no file is handled by name. Each file runs
//! on both kinds of memory.
//!
//! Source: CMAP, "Connection Monitoring and Pooling" test format.

pub mod format;
pub mod matching;
mod runner;

use crate::oracle::Checks;
use format::Test;
use poolhouse_core::pool::{Fixed, OnHeap};
use std::fs;
use std::path::{Path, PathBuf};

/// The fixed memory on which every file runs, in addition to the heap.
pub type InPlace = Fixed<128, 64>;

/// The names of the kinds of memory.
pub const MEMORIES: [&str; 2] = ["OnHeap", "Fixed<128, 64>"];

/// Runs the text of a file on both kinds of memory, and returns the checks of the
/// [oracle](crate::oracle::pool).
///
/// # Errors
///
/// The kind of memory, and either the difference from the file's expectations or the unsupported
/// part of the file.
pub fn run(text: &str) -> Result<Checks, String> {
    let test = Test::parse(text)?;
    let fail = |memory, error| format!("{}\n  on {memory}: {error}", test.description);
    let mut checks = runner::run::<OnHeap>(&test).map_err(|error| fail(MEMORIES[0], error))?;
    checks.merge(&runner::run::<InPlace>(&test).map_err(|error| fail(MEMORIES[1], error))?);
    Ok(checks)
}

/// Returns the official files under a folder: the specifications' test data, a checkout of the
/// specifications, or a folder that contains only files of this format. Relative folders are also
/// resolved against the workspace's folder.
///
/// # Errors
///
/// The folders searched, if they contain no file.
pub fn official_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    const INSIDE: &str = "connection-monitoring-and-pooling/tests/cmap-format";
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let roots = [folder.to_owned(), workspace.join(folder)];
    let places = roots.iter().flat_map(|root| [root.join(INSIDE), root.join("source").join(INSIDE)]);
    for place in places.chain(roots.clone()) {
        let files = files_in(&place);
        if !files.is_empty() {
            return Ok(files);
        }
    }
    Err(format!("no JSON file under {}, neither in {INSIDE} nor in source/{INSIDE}", folder.display()))
}

/// Returns this project's own scenarios.
#[must_use]
pub fn own_files() -> Vec<PathBuf> {
    files_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/cmap"))
}

/// Returns the JSON files of a folder, by name.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    let mut files: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests;
