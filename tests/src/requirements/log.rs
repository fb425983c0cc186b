//! What a run of the tests has printed.

use super::Naming;
use alloc::collections::BTreeMap;

/// Tests that ran, by target and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// How many of each name passed; the last part of a path (`pool::tests::name`), and the whole.
    passed: BTreeMap<String, usize>,
    /// How many of each target passed, by the name of its file without end.
    targets: BTreeMap<String, usize>,
    /// Names with their targets.
    trials: Vec<(String, String)>,
    /// Tests that passed, failed, and were left out.
    pub totals: (usize, usize, usize),
}

/// Reads what `cargo test` has printed.
#[must_use]
pub fn read_log(log: &str) -> Ran {
    let mut ran = Ran::default();
    let mut target = String::new();
    for line in log.lines() {
        if let Some(rest) = line.trim_start().strip_prefix("Running ") {
            let file = rest.split_whitespace().rfind(|word| !word.starts_with('(')).unwrap_or("");
            target = file.rsplit('/').next().unwrap_or("").trim_end_matches(".rs").to_owned();
        }
        let Some((name, end)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) else { continue };
        let name = name.trim();
        match end.split([',', ' ']).next().unwrap_or("") {
            "ok" => {
                ran.totals.0 += 1;
                *ran.passed.entry(name.rsplit("::").next().unwrap_or(name).to_owned()).or_insert(0) += 1;
                *ran.targets.entry(target.clone()).or_insert(0) += 1;
                ran.trials.push((target.clone(), name.to_owned()));
            }
            "ignored" => ran.totals.2 += 1,
            _ => ran.totals.1 += 1,
        }
    }
    ran
}

impl Ran {
    /// How many tests passed that this one stands for: those of the function's name; where there are none, it is a helper, or a
    /// whole file, and stands for the target of that file. What is said of the harness stands for none.
    #[must_use]
    pub fn passed_of(&self, naming: &Naming) -> usize {
        let of_function = naming.function.as_ref().and_then(|name| self.passed.get(name)).copied();
        if let Some(count) = of_function {
            return count;
        }
        let name = &naming.file;
        if let Some(scenario) = name.strip_prefix("tests/scenarios/") {
            let stem = scenario.rsplit('/').next().unwrap_or(scenario).trim_end_matches(".json");
            return self.trials.iter().filter(|(_, trial)| trial.rsplit("own::").next() == Some(stem)).count();
        }
        let target = name
            .split_once("tests/tests/")
            .or_else(|| name.split_once("/tests/").filter(|(of, _)| !of.contains("src")));
        let target = target.map(|(_, rest)| rest.split('/').next().unwrap_or(rest).trim_end_matches(".rs"));
        target.and_then(|target| self.targets.get(target)).copied().unwrap_or(0)
    }

    /// How many tests of a target passed, by the name of its file without end.
    #[must_use]
    pub fn of_target(&self, target: &str) -> usize {
        self.targets.get(target).copied().unwrap_or(0)
    }

    /// How many official files passed of those that a pattern names: `cmap/pool-clear*`.
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
        let of_target = self.trials.iter().filter(|(of, trial)| of == target && !trial.starts_with("own::"));
        let named = of_target.filter(|(_, trial)| {
            let rest = trial.strip_prefix(path).map(|rest| rest.trim_start_matches('/'));
            rest.is_some_and(|rest| fits(rest, name) || fits(rest.rsplit('/').next().unwrap_or(rest), name))
        });
        named.count()
    }
}

/// Whether a name is one that a pattern stands for; `*` is any text.
pub(super) fn fits(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((head, tail)) => name
            .strip_prefix(head)
            .is_some_and(|rest| (0..=rest.len()).any(|at| rest.is_char_boundary(at) && fits(&rest[at..], tail))),
    }
}
