//! Finds the files of the official tests.
//!
//! `POOLHOUSE_SPEC_DIR` names folders, separated as in `PATH`, each with the layout of the
//! specifications' `source/` folder, or a checkout of the specifications that contains it. A relative
//! path is resolved against the workspace root, then against the current folder. Without the variable it
//! is the checkout of `tests/scripts/specifications`, if that has run.

use alloc::collections::BTreeMap;
use core::fmt;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

#[cfg(test)]
mod tests;

/// The environment variable that names the folders.
pub const SPEC_DIR: &str = "POOLHOUSE_SPEC_DIR";

/// Limit of the depth of searched folders.
const DEPTH_MAX: usize = 16;

/// The reason why official files are not available; printed when a suite is skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkipReason(String);

impl SkipReason {
    /// Creates a reason from its text.
    #[must_use]
    pub const fn new(reason: String) -> Self {
        Self(reason)
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for SkipReason {}

/// Returns the official test files below `subdir`
/// (`connection-monitoring-and-pooling/tests/cmap-format`), by name.
///
/// Walks `subdir` recursively for `*.json`, in the order of the paths. A name is the file's stem;
/// if two files share one, the path below `subdir` without its extension
/// (`ReplicaSetNoPrimary/Nearest`). Names are unique.
///
/// If several folders have it, the first one counts.
///
/// # Errors
/// [`SkipReason`]: the variable is not set, the folder does not exist or cannot be read, or it
/// contains no such file.
pub fn files(subdir: &str) -> Result<Vec<(String, PathBuf)>, SkipReason> {
    let mut failed = Vec::new();
    for root in roots()? {
        match files_in(&root, subdir) {
            Ok(files) => return Ok(files),
            Err(SkipReason(reason)) => failed.push(reason),
        }
    }
    Err(SkipReason(failed.join("; ")))
}

/// Returns all official test files, by their paths below the folder with the layout of `source/`,
/// without extensions. A file that several folders have counts once.
///
/// # Errors
/// [`SkipReason`]: the variable is not set, or a folder cannot be read.
pub fn all_files() -> Result<Vec<(String, PathBuf)>, SkipReason> {
    let mut found = BTreeMap::new();
    for root in roots()? {
        let source = root.join("source");
        let root = if source.is_dir() { source } else { root };
        let mut paths = Vec::new();
        walk(&root, 0, &mut paths)
            .map_err(|error| SkipReason(format!("cannot read the folder {}: {error}", root.display())))?;
        for path in paths {
            let name = path.strip_prefix(&root).unwrap_or(&path).with_extension("");
            found.entry(name.to_string_lossy().into_owned()).or_insert(path);
        }
    }
    Ok(found.into_iter().collect())
}

/// Returns the folders that the variable names, or the checkout below the target folder.
///
/// # Errors
/// [`SkipReason`]: the variable is not set, and there is no checkout.
pub fn roots() -> Result<Vec<PathBuf>, SkipReason> {
    let checkout = || Some(resolve(Path::new("target/specifications"))).filter(|path| path.is_dir()).map(Into::into);
    let value = env::var_os(SPEC_DIR).filter(|value| !value.is_empty()).or_else(checkout).unwrap_or_default();
    let roots: Vec<_> =
        env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()).map(|path| resolve(&path)).collect();
    if roots.is_empty() {
        Err(SkipReason(format!("{SPEC_DIR} is not set, and tests/scripts/specifications has not run")))
    } else {
        Ok(roots)
    }
}

/// Returns whether the official files are a checkout of the specifications, which has every suite.
/// A folder with the layout of its `source/` may have only some suites.
#[must_use]
pub fn is_checkout() -> bool {
    roots().is_ok_and(|roots| roots.iter().any(|root| root.join("source").is_dir()))
}

/// Resolves a path given by the user: absolute, else relative to the workspace root, else to the
/// current folder.
///
/// Cargo runs a test target in its package's folder, not in the user's current folder.
#[must_use]
pub fn resolve(path: &Path) -> PathBuf {
    if path.is_absolute() {
        return path.to_owned();
    }
    let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let from_root = manifest_dir.parent().unwrap_or(manifest_dir).join(path);
    if from_root.exists() { from_root } else { path.to_owned() }
}

/// [`files`], with the folder as an argument.
pub fn files_in(root: &Path, subdir: &str) -> Result<Vec<(String, PathBuf)>, SkipReason> {
    let places = [root.join(subdir), root.join("source").join(subdir)];
    let Some(folder) = places.iter().find(|place| place.is_dir()) else {
        return Err(SkipReason(format!("{SPEC_DIR} = {} has no folder {subdir}", root.display())));
    };
    let mut found = Vec::new();
    walk(folder, 0, &mut found)
        .map_err(|error| SkipReason(format!("cannot read the folder {}: {error}", folder.display())))?;
    if found.is_empty() {
        return Err(SkipReason(format!("the folder {} holds no .json file", folder.display())));
    }
    found.sort();
    Ok(named(folder, found))
}

/// Collects the `*.json` files below `folder`. Links to folders are not followed, so there are no
/// cycles.
fn walk(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if depth < DEPTH_MAX {
                walk(&path, depth + 1, found)?;
            }
        } else if path.extension() == Some(OsStr::new("json")) && path.is_file() {
            found.push(path);
        }
    }
    Ok(())
}

/// Names each file by its stem, or by its path below `folder` if the stem is not unique.
fn named(folder: &Path, paths: Vec<PathBuf>) -> Vec<(String, PathBuf)> {
    let stem = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut counts: HashMap<String, usize> = HashMap::new();
    for path in &paths {
        *counts.entry(stem(path)).or_default() += 1;
    }
    paths
        .into_iter()
        .map(|path| {
            let stem = stem(&path);
            let unique = counts.get(&stem) == Some(&1);
            let long = path.strip_prefix(folder).unwrap_or(&path).with_extension("");
            (if unique { stem } else { long.to_string_lossy().into_owned() }, path)
        })
        .collect()
}
