//! The output of a run of the tests.

use super::Naming;
use alloc::collections::BTreeMap;
use core::ops::AddAssign;

/// Numbers of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of tests that passed.
    pub passed: usize,
    /// Number of tests that failed. A program that did not complete counts as one.
    pub failed: usize,
    /// Number of tests that were skipped.
    pub skipped: usize,
}

/// The tests that ran, by program and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    programs: Vec<Program>,
}

/// A test program, and its results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Program {
    /// Its source, relative to the folder of its package: `tests/cmap.rs`. Empty for output before
    /// the first program.
    source: String,
    /// The folder of its package, if the log states it.
    folder: Option<String>,
    /// Tests by full name, with the number of times that each passed: some run on several
    /// executors.
    trials: BTreeMap<String, usize>,
    /// Number of summary lines.
    results: usize,
    /// Whether it ended with an error.
    has_ended_badly: bool,
    counts: Counts,
}

/// Parses the output of `cargo test`, or of tests/scripts/test-binaries. tests/run counts by the
/// same rules.
#[must_use]
pub fn read_log(log: &str) -> Ran {
    let mut ran = Ran { programs: vec![Program::default()] };
    for line in log.lines() {
        if let Some(program) = begins(line) {
            ran.close();
            ran.programs.push(program);
        } else if let Some(program) = ran.programs.last_mut() {
            program.read(line);
        }
    }
    ran.close();
    ran
}

/// The top-level folder of a crate's folder, which is known by its last part.
fn top_folder(name: &str) -> &str {
    match name {
        "wire" | "auth" | "cql" | "uri" | "driver" | "client" => "core",
        "fake" => "tests",
        _ => name,
    }
}

/// Parses a line after which the output of a program begins.
fn begins(line: &str) -> Option<Program> {
    let line = line.strip_prefix(' ')?.trim_start();
    if let Some(name) = line.strip_prefix("Doc-tests ") {
        return Some(Program { source: format!("doc {name}"), ..Program::default() });
    }
    let mut words = line.strip_prefix("Running ")?.split_whitespace().peekable();
    let is_of_units = words.next_if_eq(&"unittests").is_some();
    let source = words.next()?.to_owned();
    // target/debug/deps/poolhouse_smol-0123: the name of an adapter's crate determines its folder.
    let name = words.next().and_then(|path| path.rsplit('/').next()?.split('-').next()?.strip_prefix("poolhouse_"));
    let folder = name.filter(|_| is_of_units).map(|name| match top_folder(name) {
        folder @ ("core" | "tests") => folder.to_owned(),
        _ => format!("runtime-{}", name.replace('_', "-")),
    });
    Some(Program { source, folder, ..Program::default() })
}

impl Program {
    fn read(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("test result: ") {
            self.results += 1;
            let mut number = 0;
            for word in rest.split_whitespace() {
                match word {
                    "passed;" => self.counts.passed += number,
                    "failed;" => self.counts.failed += number,
                    "ignored;" => self.counts.skipped += number,
                    _ => number = word.parse().unwrap_or(0),
                }
            }
        } else if let Some((name, end)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) {
            let name = name.trim().trim_end_matches(" - should panic");
            let passed = self.trials.entry(name.to_owned()).or_insert(0);
            *passed += usize::from(end.split([',', ' ']).next() == Some("ok"));
        } else if line.starts_with("error: ") && line.contains(" ended with ") {
            self.has_ended_badly = true;
        } else if let Some((_, folder)) = line.strip_prefix("ran for ").and_then(|rest| rest.rsplit_once(" of ")) {
            self.folder = Some(top_folder(folder.trim()).to_owned());
        }
    }

    fn is_of(&self, folder: &str) -> bool {
        self.folder.as_ref().is_none_or(|own| own == folder)
    }

    /// The number of passes of tests with matching names; `None` if no name matches.
    fn passed_like(&self, is_like: impl Fn(&str) -> bool) -> Option<usize> {
        let mut like = self.trials.iter().filter(|(name, _)| is_like(name)).map(|(_, passed)| *passed).peekable();
        like.peek()?;
        Some(like.sum())
    }

    /// The number of passes of all tests.
    fn passed(&self) -> usize {
        self.trials.values().sum()
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl Ran {
    /// Completes the last program. A program that crashed or was killed prints no summary, and
    /// counts as failed.
    fn close(&mut self) {
        let Some(program) = self.programs.last_mut().filter(|program| !program.source.is_empty()) else { return };
        if program.results == 0 || program.has_ended_badly && program.counts.failed == 0 {
            program.counts.failed += 1;
        }
    }

    /// Counts all tests.
    #[must_use]
    pub fn totals(&self) -> Counts {
        self.sum(|_| true)
    }

    /// Counts the tests of a target of the harness; `target` is the name of its file without
    /// extension.
    #[must_use]
    pub fn of_target(&self, target: &str) -> Counts {
        self.sum(|program| program.is_of("tests") && program.source == format!("tests/{target}.rs"))
    }

    fn sum(&self, is_meant: impl Fn(&Program) -> bool) -> Counts {
        let mut sum = Counts::default();
        for program in self.programs.iter().filter(|program| is_meant(program)) {
            sum += program.counts;
        }
        sum
    }

    /// The number of passed tests that a mention stands for: those with the name of the function,
    /// in the programs of its file. If the log has no test of that name, with any result, the
    /// mention is in a helper or covers a whole file, and stands for all tests of that file's
    /// target. A mention in the harness stands for the tests that the harness creates.
    #[must_use]
    pub fn passed_of(&self, naming: &Naming) -> usize {
        let Some((folder, rest)) = naming.file.split_once('/') else { return 0 };
        let stem = rest.rsplit('/').next().unwrap_or(rest).split('.').next().unwrap_or(rest);
        let names = |trial: &str, function: &str| trial.rsplit("::").next() == Some(function);
        let sum = |is_run_by: &dyn Fn(&Program) -> bool, is_like: &dyn Fn(&str) -> bool| {
            let passed = self.programs.iter().filter(|program| is_run_by(program)).map(|it| it.passed_like(is_like));
            passed.fold(None, |sum: Option<usize>, passed| sum.map_or(passed, |sum| Some(sum + passed.unwrap_or(0))))
        };
        if let Some(scenario) = rest.strip_prefix("scenarios/") {
            let stem = scenario.rsplit('/').next().unwrap_or(scenario).trim_end_matches(".json");
            return sum(&|_| true, &|trial| trial.rsplit("own::").next() == Some(stem)).unwrap_or(0);
        }
        if let Some(target) = rest.strip_prefix("tests/") {
            let target = target.split('/').next().unwrap_or(target).trim_end_matches(".rs");
            let source = format!("tests/{target}.rs");
            let is_run_by = |program: &Program| program.is_of(folder) && program.source == source;
            let of_function = naming.function.as_ref().map(|function| sum(&is_run_by, &|trial| names(trial, function)));
            return match of_function.flatten() {
                Some(passed) => passed,
                None if naming.is_test => 0,
                None => self.programs.iter().filter(|program| is_run_by(program)).map(Program::passed).sum(),
            };
        }
        let Some(function) = &naming.function else { return 0 };
        if folder == "tests" && !naming.is_test {
            // A module of cases that other crates also run.
            let is_like = |trial: &str| {
                let mut parts = trial.rsplit("::");
                parts.next() == Some(function.as_str()) && parts.next() == Some(stem)
            };
            return sum(&|_| true, &is_like).unwrap_or(0);
        }
        let source = if rest.starts_with("src/bin/") { rest } else { "src/lib.rs" };
        let is_run_by = |program: &Program| program.is_of(folder) && program.source == source;
        sum(&is_run_by, &|trial| names(trial, function)).unwrap_or(0)
    }

    /// The number of official files that passed and match a pattern: `cmap/pool-clear*`.
    #[must_use]
    pub fn official(&self, pattern: &str) -> usize {
        let (folder, name) = pattern.split_once('/').unwrap_or(("", pattern));
        let (target, path) = match folder {
            "cmap" => ("cmap", ""),
            "rs" | "single" | "sharded" | "errors" => ("sdam", folder),
            "mon" => ("sdam", "monitoring"),
            "lbd" => ("sdam", "load-balanced"),
            "uri" => ("uri", ""),
            "ss" => ("selection", "server_selection"),
            "rtt" => ("selection", "rtt"),
            "win" => ("selection", "in_window"),
            "ms" => ("selection", "max-staleness"),
            "uni" | "cmaplog" => ("logging", ""),
            _ => return 0,
        };
        let source = format!("tests/{target}.rs");
        let is_named = |trial: &str| {
            let rest = trial.strip_prefix(path).filter(|_| !trial.starts_with("own::"));
            rest.map(|rest| rest.trim_start_matches('/'))
                .is_some_and(|rest| fits(rest, name) || fits(rest.rsplit('/').next().unwrap_or(rest), name))
        };
        let of_target = self.programs.iter().filter(|program| program.is_of("tests") && program.source == source);
        of_target.filter_map(|program| program.passed_like(is_named)).sum()
    }
}

/// Whether a name matches a pattern; `*` matches any text.
pub(super) fn fits(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((head, tail)) => name
            .strip_prefix(head)
            .is_some_and(|rest| (0..=rest.len()).any(|at| rest.is_char_boundary(at) && fits(&rest[at..], tail))),
    }
}
