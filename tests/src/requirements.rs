//! Requirements and invariants: where code and tests name each of them, and which of those tests
//! ran.
//!
//! A requirement has an id (`CMAP-16`, `P10`). Code names it in a comment where it is implemented.
//! A test names it in a comment or in a failure message where it is checked. An official test file
//! checks the requirements that list it.

use alloc::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

mod log;
mod mentions;

#[cfg(test)]
mod tests;

pub use self::log::{Counts, Ran, read_log};

/// Environment variable with the path of the list of requirements. Without it, the list is searched
/// beside the folder of the official tests.
pub const REQUIREMENTS: &str = "POOLHOUSE_REQUIREMENTS";

/// Maximum length of a range of ids, such as `CMAP-36..40`. Longer ranges describe a whole file,
/// not a check.
const RANGE_MAX: u32 = 12;

/// Sources that mention ids without testing them: they define invariants, count mentions, or
/// implement an oracle. The work of an oracle is counted in the field `invariants` of its
/// generators' figures.
const NO_TESTS: [&str; 3] = ["tests/src/invariants.rs", "tests/src/requirements", "tests/src/oracle"];

/// A test that names a requirement.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Naming {
    /// The file, relative to the root of the repository.
    pub file: String,
    /// The function, if the mention belongs to one.
    pub function: Option<String>,
    /// Whether the function is itself a test, not a helper of tests.
    pub is_test: bool,
}

/// A requirement or invariant, and where it is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirement {
    /// Text of the list of requirements; empty for invariants.
    pub text: String,
    /// Official files by `folder/name`, with `*` for any text.
    pub official: Vec<String>,
    /// Files of code that name it.
    pub code: BTreeSet<String>,
    /// Tests that name it.
    pub tests: BTreeSet<Naming>,
}

/// The tests of one requirement that ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// Number of tests that name it and passed.
    pub tests: usize,
    /// Number of official files that passed.
    pub official: usize,
    /// Number of checks by oracles.
    pub checks: u64,
}

/// Returns the path of the list of requirements.
///
/// # Errors
/// The reason why no list was found.
pub fn list() -> Result<PathBuf, String> {
    let path = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let named = path(REQUIREMENTS).map(|path| crate::spec::resolve(&path));
    let beside = path(crate::spec::SPEC_DIR).map(|path| crate::spec::resolve(&path));
    let beside = beside.and_then(|folder| Some(folder.parent()?.join("requirements.md")));
    let found = named.or(beside).ok_or(format!("neither {REQUIREMENTS} nor {} is set", crate::spec::SPEC_DIR))?;
    if found.is_file() { Ok(found) } else { Err(format!("{} does not exist", found.display())) }
}

/// Parses the requirements of a list: the rows of its tables that begin with an id.
#[must_use]
pub fn parse(list: &str) -> BTreeMap<String, Requirement> {
    let mut requirements = BTreeMap::new();
    for line in list.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [id, _, text, .., official] = &cells[..] else { continue };
        if !mentions::is_id(id) {
            continue;
        }
        let requirement =
            Requirement { text: (*text).to_owned(), official: official_files(official), ..Requirement::default() };
        requirements.insert((*id).to_owned(), requirement);
    }
    requirements
}

/// The official files that a cell of the list names.
///
/// `cmap/a, b; rs/c_{d,e}* (words)` names `cmap/a`, `cmap/b`, `rs/c_d*`, `rs/c_e*`.
fn official_files(cell: &str) -> Vec<String> {
    let mut files = Vec::new();
    for group in cell.split(';') {
        let mut folder = None;
        for part in split_outside_braces(group) {
            let word = part.split_whitespace().next().unwrap_or("");
            let name = match word.split_once('/') {
                Some((of, name)) if !of.is_empty() && of.chars().all(|letter| letter.is_ascii_lowercase()) => {
                    folder = Some(of);
                    name
                }
                _ => word,
            };
            let is_name = |name: &str| {
                name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_*.{},".contains(letter))
                    && name.len() > 2
            };
            if let Some(folder) = folder.filter(|_| is_name(name) || name == "*") {
                files.extend(expand(&format!("{folder}/{name}")));
            }
        }
    }
    files
}

fn split_outside_braces(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0_u32, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '{' | '(' => depth += 1,
            '}' | ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

/// Expands each alternative in braces.
fn expand(pattern: &str) -> Vec<String> {
    let Some((head, (inner, tail))) =
        pattern.split_once('{').and_then(|(head, rest)| Some((head, rest.split_once('}')?)))
    else {
        return vec![pattern.to_owned()];
    };
    inner.split(',').flat_map(|word| expand(&format!("{head}{}{tail}", word.trim()))).collect()
}

/// The invariants of [`crate::invariants`] and of multiplexed pools.
#[must_use]
pub fn invariants() -> BTreeMap<String, Requirement> {
    let kinds = [('P', 54), ('M', 6), ('S', 21)];
    let ids = kinds.iter().flat_map(|(kind, count)| (1..=*count).map(move |number| format!("{kind}{number}")));
    ids.map(|id| (id, Requirement::default())).collect()
}

/// Adds the mentions of the ids in the sources of the repository.
///
/// # Errors
/// A folder or file cannot be read.
pub fn find(root: &Path, requirements: &mut BTreeMap<String, Requirement>) -> io::Result<()> {
    let folders = [
        "core",
        "runtime-smol",
        "runtime-async-std",
        "runtime-embassy/src",
        "runtime-embassy/tests",
        "tests",
        "fuzz/fuzz_targets",
    ];
    for folder in folders.map(|folder| root.join(folder)).iter().filter(|folder| folder.is_dir()) {
        let mut files = Vec::new();
        collect(folder, &mut files)?;
        for path in files {
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            if NO_TESTS.iter().any(|start| name.starts_with(start)) {
                continue;
            }
            let text = fs::read_to_string(&path)?;
            for (id, function) in mentions::of(&text, RANGE_MAX) {
                let Some(requirement) = requirements.get_mut(&id) else { continue };
                if is_test(&name) {
                    // A mention in the harness outside of a function, for example in a list, is not
                    // a test.
                    if function.is_none() && (name.starts_with("tests/src/") || name.starts_with("tests/fake/")) {
                        continue;
                    }
                    let is_test = function.as_ref().is_some_and(|function| function.is_test);
                    let function = function.map(|function| function.name);
                    requirement.tests.insert(Naming { file: name.clone(), function, is_test });
                } else {
                    requirement.code.insert(name.clone());
                }
            }
        }
    }
    Ok(())
}

fn is_scenario(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "scenarios")
}

fn is_test(name: &str) -> bool {
    name.starts_with("tests/") || name.starts_with("fuzz/") || name.contains("/tests/") || name.ends_with("/tests.rs")
}

/// Collects source files and scenarios. Other JSON files are the output of runs, not tests.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|end| end == "rs" || (end == "json" && is_scenario(&path))) {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

impl Requirement {
    /// Whether any test names it.
    ///
    /// - `ran`: the tests that ran; an official file counts only if it passed.
    #[must_use]
    pub fn is_tested(&self, ran: &Ran) -> bool {
        !self.tests.is_empty() || self.official.iter().any(|file| ran.official(file) > 0)
    }

    /// Counts the runs of its tests.
    ///
    /// - `checks`: number of checks of each id by oracles.
    #[must_use]
    pub fn runs(&self, id: &str, ran: &Ran, checks: &BTreeMap<String, u64>) -> Runs {
        Runs {
            tests: self.tests.iter().map(|naming| ran.passed_of(naming)).sum(),
            official: self.official.iter().map(|file| ran.official(file)).sum(),
            checks: checks.get(id).copied().unwrap_or(0),
        }
    }
}

/// The number of checks of each invariant by oracles, from the figures of the suites.
#[must_use]
pub fn checks(figures: &BTreeMap<String, Value>) -> BTreeMap<String, u64> {
    let mut checks = BTreeMap::new();
    for counts in figures.values().filter_map(|figures| figures.get("invariants")?.as_object()) {
        for (id, count) in counts {
            *checks.entry(id.clone()).or_insert(0) += count.as_u64().unwrap_or(0);
        }
    }
    checks
}

/// Formats all requirements as JSON.
#[must_use]
pub fn to_json(requirements: &BTreeMap<String, Requirement>, ran: &Ran, checks: &BTreeMap<String, u64>) -> Value {
    let mut all = serde_json::Map::new();
    for (id, requirement) in requirements {
        let runs = requirement.runs(id, ran, checks);
        let tests: Vec<String> = requirement.tests.iter().map(ToString::to_string).collect();
        let entry = json!({
            "code": requirement.code, "tests": tests, "official": requirement.official, "tested": requirement.is_tested(ran),
            "runs": { "tests": runs.tests, "official": runs.official, "checks": runs.checks },
        });
        all.insert(id.clone(), entry);
    }
    Value::Object(all)
}

impl core::fmt::Display for Naming {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match &self.function {
            Some(function) => write!(f, "{}: {function}", self.file),
            None => f.write_str(&self.file),
        }
    }
}
