//! The rows of the report, each created from its recorded figures.

use super::sources;
use super::{Material, Row};
use crate::requirements::{Counts, Ran};
use alloc::collections::BTreeSet;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::process::{Command, Stdio};

/// A row under construction.
struct Draft<'a> {
    material: &'a Material,
    row: Row,
}

impl<'a> Draft<'a> {
    fn new(material: &'a Material, number: usize, title: &'static str) -> Self {
        Self { material, row: Row { number, title, figures: Vec::new(), missing: Vec::new() } }
    }

    fn add_figure(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.row.figures.push((name.into(), value.into()));
    }

    /// Adds these fields of a suite's figures, from this run or else from the last long run, or
    /// adds the suite to the missing ones.
    fn take(&mut self, suite: &str, fields: &[&str], what: &'static str, command: &'static str) {
        let Material { figures, long, .. } = self.material;
        match (figures.get(suite), long.get(suite)) {
            (Some(figures), _) => self.add_figure(what, only(figures, fields)),
            (None, Some(figures)) => self.add_figure(format!("{what}{}", self.long([figures])), only(figures, fields)),
            (None, None) => self.row.missing.push((what, command)),
        }
    }

    /// Adds these fields of this run, and also those of the last long run, which covers more.
    fn take_both(&mut self, suite: &str, fields: &[&str], what: &'static str, command: &'static str) {
        self.take(suite, fields, what, command);
        let Material { figures, long, .. } = self.material;
        if let Some(long) = long.get(suite).filter(|_| figures.contains_key(suite)) {
            self.add_figure(format!("{what}{}", self.long([long])), only(long, fields));
        }
    }

    /// The figures of a suite in this run and in the last long run, each with the text that follows
    /// its name.
    fn runs(&self, suite: &str) -> Vec<(&'a Value, String)> {
        let Material { figures, long, .. } = self.material;
        let this = figures.get(suite).map(|figures| (figures, String::new()));
        let last = long.get(suite).map(|figures| (figures, self.long([figures])));
        this.into_iter().chain(last).collect()
    }

    /// The text that follows the names of figures of an earlier run: the commits at which they were
    /// measured, and whether core has changed since.
    fn long<'f>(&self, figures: impl IntoIterator<Item = &'f Value>) -> String {
        let commits: BTreeSet<_> = figures
            .into_iter()
            .map(|figures| figures.get("commit").and_then(Value::as_str).unwrap_or("unknown"))
            .collect();
        let since = commits.iter().map(|commit| Since::of(&self.material.root, commit)).max();
        let what = since.unwrap_or(Since::Unknown).what();
        format!(", in the last long run (commit {}: {what})", commits.into_iter().collect::<Vec<_>>().join(", "))
    }

    /// The suites of this run with this field in their figures.
    fn having(&self, field: &'a str) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.material.figures.iter().filter(move |(_, figures)| figures.get(field).is_some())
    }
}

/// Whether core has changed since figures were measured. The best state is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Since {
    Same,
    Changed,
    Unknown,
}

impl Since {
    /// Compares the crates below `core` without their tests with their state at a commit.
    pub(super) fn of(root: &Path, commit: &str) -> Self {
        // A text that starts with another character could be an option of git. A `-dirty` commit
        // has uncommitted sources and cannot be compared.
        if commit.is_empty() || !commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Self::Unknown;
        }
        let tests = [":(exclude,glob)core/**/tests.rs", ":(exclude,glob)core/**/tests/**"];
        let mut git = Command::new("git");
        git.arg("-C").arg(root).args(["diff", "--quiet", commit, "--", "core"]).args(tests).stderr(Stdio::null());
        match git.status().ok().and_then(|status| status.code()) {
            Some(0) => Self::Same,
            Some(1) => Self::Changed,
            _ => Self::Unknown,
        }
    }

    pub(super) const fn what(self) -> &'static str {
        match self {
            Self::Same => "core is the same",
            Self::Changed => "CORE HAS CHANGED SINCE",
            Self::Unknown => "whether core has changed since is unknown",
        }
    }
}

/// Minimum number of timeouts for which percentiles are reported.
const LATE_MIN: u64 = 20;

/// Selects these fields, where they exist.
fn only(figures: &Value, fields: &[&str]) -> Value {
    let there = fields.iter().filter_map(|field| Some(((*field).to_owned(), figures.get(*field)?.clone())));
    Value::Object(there.collect())
}

/// All rows, in order.
pub(super) fn all(material: &Material, ran: &Ran) -> Vec<Row> {
    vec![
        tests(material, ran),
        runs(material),
        seeds(material),
        pairs(material),
        search(material),
        drops(material),
        fuzz(material),
        mutants(material),
        planted_bugs(material),
        coverage(material),
        lateness(material),
        costs(material, ran),
        assertions(material),
        soak(material),
        audit(material),
    ]
}

const TESTS: &str = "./tests/run --only tests";
const SIMULATORS: &str =
    "cargo test -p poolhouse-tests --all-features --test simulate --test simulate_mux --test network";
const SOAK: &str = "./tests/run --only soak; tests/scripts/soak --minutes 30";

fn tests(material: &Material, ran: &Ran) -> Row {
    let mut draft = Draft::new(material, 1, "tests");
    if material.log.is_empty() {
        draft.row.missing.push(("tests", TESTS));
    } else {
        let reported =
            |counts: Counts| json!({ "passed": counts.passed, "failed": counts.failed, "skipped": counts.skipped });
        draft.add_figure("all", reported(ran.totals()));
        let official = ["cmap", "sdam", "selection", "uri", "logging", "seedlist", "scram", "bson_corpus"];
        for target in official {
            let counts = ran.of_target(target);
            if counts.passed + counts.failed > 0 {
                draft.add_figure(target, reported(counts));
            } else {
                draft.row.missing.push((target, TESTS));
            }
        }
    }
    draft.row
}

fn sum(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}

fn number(figures: &Value, field: &str) -> u64 {
    figures.get(field).and_then(Value::as_u64).unwrap_or(0)
}

fn runs(material: &Material) -> Row {
    let mut draft = Draft::new(material, 2, "runs of the simulators");
    let suites: Vec<_> = draft.having("runs").map(|(name, figures)| (name.clone(), figures)).collect();
    for (name, figures) in &suites {
        // Shows the least frequent kind: a kind that never occurred was not tested.
        let least = |field: &str| {
            let counts = figures.get(field).and_then(Value::as_object).into_iter().flatten();
            let counts: Vec<_> = counts.filter_map(|(kind, count)| Some((kind.clone(), count.as_u64()?))).collect();
            counts
                .iter()
                .min_by_key(|(_, count)| *count)
                .map(|(kind, count)| json!([counts.len(), "kinds, least", kind, count]))
        };
        let mut reported = Map::new();
        for field in ["runs", "steps", "virtual_hours"] {
            reported.extend(figures.get(field).map(|value| (field.to_owned(), value.clone())));
        }
        reported.extend(least("inputs").map(|value| ("inputs".to_owned(), value)));
        reported.extend(least("faults").map(|value| ("faults".to_owned(), value)));
        reported.extend(least("invariants").map(|value| ("invariants".to_owned(), value)));
        draft.add_figure(name.clone(), Value::Object(reported));
    }
    if suites.is_empty() {
        draft.row.missing.push(("runs", SIMULATORS));
    }
    draft.row
}

fn seeds(material: &Material) -> Row {
    let mut draft = Draft::new(material, 3, "seeds that fail, regressions replayed");
    let failing: Vec<_> = draft.having("failing").map(|(_, figures)| figures).collect();
    let total = |field| sum(draft.having("regressions").map(|(_, figures)| number(figures, field)));
    let (replayed, known) = (total("regressions"), total("known"));
    if draft.having("regressions").next().is_some() {
        draft.add_figure("regressions replayed", json!({ "replayed": replayed, "known": known }));
    } else {
        draft
            .row
            .missing
            .push(("regressions", "cargo test -p poolhouse-tests --all-features --test simulate --test network"));
    }
    if failing.is_empty() {
        draft.row.missing.push(("seeds that fail", SIMULATORS));
    } else {
        draft.add_figure("seeds that fail", sum(failing.iter().map(|figures| number(figures, "failing"))));
    }
    draft.take(
        "simulated_runs",
        &["runs", "runs_of", "steps", "pairs", "failing", "missing", "seconds", "assertions"],
        "many runs",
        "cargo run --profile runs -p poolhouse-tests --all-features --bin simulate -- --seeds 0..5000000",
    );
    draft.row
}

fn pairs(material: &Material) -> Row {
    let mut draft = Draft::new(material, 4, "runs that were executed twice and compared");
    let pairs = sum(draft.having("pairs").map(|(_, figures)| number(figures, "pairs")));
    let different = sum(draft.having("pairs").map(|(_, figures)| number(figures, "different")));
    if draft.having("pairs").next().is_some() {
        draft.add_figure("pairs", pairs);
        draft.add_figure("different", different);
    } else {
        draft.row.missing.push(("pairs", SIMULATORS));
    }
    draft.row
}

fn search(material: &Material) -> Row {
    let mut draft = Draft::new(material, 5, "exhaustive search");
    let fields = ["scopes", "complete", "states", "transitions", "seconds"];
    draft.take("search", &fields, "scopes", "cargo test -p poolhouse-tests --all-features --test search");
    draft.row
}

fn drops(material: &Material) -> Row {
    let mut draft = Draft::new(material, 6, "futures dropped at each poll");
    let lines = material.log.lines().filter_map(|line| line.trim().strip_prefix("contract (")?.split_once("): "));
    let lines = lines.filter(|(_, rest)| rest.contains("drop points"));
    let counts: Map<String, Value> = lines
        .filter_map(|(name, rest)| Some((name.to_owned(), rest.split_whitespace().next()?.parse::<u64>().ok()?.into())))
        .collect();
    if counts.is_empty() {
        draft.row.missing.push(("drop points", TESTS));
    } else {
        draft.add_figure("drop points", Value::Object(counts));
    }
    let command = "cargo test -p poolhouse-tests --all-features --test schedules";
    draft.take("schedules", &["schedules", "kinds"], "schedules of a client's tasks", command);
    draft.row
}

fn fuzz(material: &Material) -> Row {
    let mut draft = Draft::new(material, 7, "fuzz targets");
    let targets: Vec<_> =
        material.figures.iter().filter_map(|(name, figures)| Some((name.strip_prefix("fuzz_")?, figures))).collect();
    for (name, figures) in &targets {
        let fields = ["seconds", "execs", "edges", "corpus", "new", "last_new_edge_exec", "crashes"];
        draft.add_figure(*name, only(figures, &fields));
    }
    if targets.is_empty() {
        draft.row.missing.push(("targets", "./tests/run --only fuzz"));
    } else {
        draft.add_figure("crashes", sum(targets.iter().map(|(_, figures)| number(figures, "crashes"))));
    }
    let long: Vec<_> =
        material.long.iter().filter(|(name, _)| name.starts_with("fuzz_")).map(|(_, figures)| figures).collect();
    if !long.is_empty() {
        let total = |field| sum(long.iter().map(|figures| number(figures, field)));
        let (seconds, execs, crashes) = (total("seconds"), total("execs"), total("crashes"));
        draft.add_figure(
            format!("all{}", draft.long(long.iter().copied())),
            json!({ "targets": long.len(), "seconds": seconds, "execs": execs, "crashes": crashes }),
        );
    }
    let corpus = material.figures.get("corpus").and_then(Value::as_object);
    if let Some(corpus) = corpus {
        draft.add_figure("files of the corpus replayed", sum(corpus.values().filter_map(Value::as_u64)));
    }
    draft.row
}

fn mutants(material: &Material) -> Row {
    let mut draft = Draft::new(material, 8, "mutants");
    let fields = ["mutants", "viable", "caught", "timeout", "missed", "equivalent", "survivors"];
    draft.take("mutants", &fields, "of core", "tests/scripts/mutants");
    draft.row
}

fn planted_bugs(material: &Material) -> Row {
    let mut draft = Draft::new(material, 9, "planted bugs");
    draft.take(
        "planted_bugs",
        &["planted", "found"],
        "planted_bugs",
        "cargo test -p poolhouse-tests --all-features --test planted_bugs",
    );
    draft.row
}

fn coverage(material: &Material) -> Row {
    let mut draft = Draft::new(material, 10, "coverage");
    draft.take("coverage", &["suites", "lines", "branches", "assertions"], "of core", "tests/scripts/coverage");
    let fields = ["listed", "invariants", "tested", "run", "untested", "not_run", "requirements_named_in_no_code"];
    draft.take(
        "requirements",
        &fields,
        "requirements",
        "cargo run -p poolhouse-tests --all-features --bin requirements",
    );
    draft.row
}

fn lateness(material: &Material) -> Row {
    let mut draft = Draft::new(material, 11, "timeouts");
    let mut is_there = false;
    for (figures, behind) in draft.runs("soak") {
        let Some(late) = figures.get("lateness_us") else { continue };
        is_there = true;
        // Earlier figures have this count in another field.
        let timed_out = figures.get("operations").map_or(0, |operations| number(operations, "timed_out"));
        let count = late.get("count").and_then(Value::as_u64).unwrap_or(timed_out);
        let mut fields = vec!["early", "max"];
        if count >= LATE_MIN {
            fields.extend(["p50", "p99"]);
        }
        let mut reported = only(late, &fields);
        reported["timeouts"] = count.into();
        draft.add_figure(format!("late under load and faults, microseconds{behind}"), reported);
    }
    if !is_there {
        draft.row.missing.push(("lateness", SOAK));
    }
    draft.row
}

/// The folders of the crates that adapters depend on.
const CORE: [&str; 7] = ["core", "core/wire", "core/auth", "core/cql", "core/uri", "core/driver", "core/client"];

fn costs(material: &Material, ran: &Ran) -> Row {
    let mut draft = Draft::new(material, 12, "costs");
    for (target, what) in [
        ("alloc_free", "passed tests of operations without allocations, and of the memory of compressors (alloc_free)"),
        ("mux_allocations", "passed tests of the allocations of a session's request (mux_allocations)"),
    ] {
        let passed = ran.of_target(target).passed;
        if passed > 0 {
            draft.add_figure(what, passed);
        } else {
            draft.row.missing.push((what, TESTS));
        }
    }
    let fields = ["ram", "panics", "unwanted"];
    draft.take("firmware_numbers", &fields, "firmware", "./tests/run --only firmware:numbers");
    let crates = CORE.into_iter().chain(["runtime-smol", "runtime-async-std", "runtime-embassy"]);
    let unsafe_of = |name: &&'static str| (*name, sources::count(&material.root.join(name).join("src")).uses_of_unsafe);
    let counts: Map<String, Value> =
        crates.map(|name| unsafe_of(&name)).map(|(name, count)| (name.to_owned(), count.into())).collect();
    draft.add_figure("unsafe", Value::Object(counts));
    draft.row
}

fn assertions(material: &Material) -> Row {
    let mut draft = Draft::new(material, 13, "assertions of core");
    let counts = CORE.map(|name| sources::count(&material.root.join(name).join("src")));
    let functions: usize = counts.iter().map(|count| count.functions).sum();
    let assertions: usize = counts.iter().map(|count| count.assertions).sum();
    draft.add_figure("functions", functions);
    draft.add_figure("assertions", assertions);
    draft.add_figure("a function", assertions as f64 / functions.max(1) as f64);
    let on: Map<String, Value> = draft
        .having("assertions")
        .map(|(name, figures)| (name.trim_end_matches("_failing").to_owned(), figures["assertions"].clone()))
        .collect();
    if on.is_empty() {
        draft.row.missing.push(("whether those of debug builds are on in the simulators", SIMULATORS));
    } else {
        draft.add_figure("those of debug builds are on in the simulators", Value::Object(on));
    }
    draft.row
}

fn soak(material: &Material) -> Row {
    let mut draft = Draft::new(material, 14, "soak");
    let fields = ["seconds", "wrong", "operations", "inserts"];
    draft.take_both("soak", &fields, "a set of three", SOAK);
    for (figures, behind) in draft.runs("soak") {
        for (name, figures) in figures.get("drift").and_then(Value::as_object).into_iter().flatten() {
            let drift = figures.get("drift").cloned().unwrap_or(Value::Null);
            draft.add_figure(format!("{name}, drift of the second half{behind}"), drift);
        }
    }
    let fields = ["seconds", "wrong", "attempts", "found", "stack", "served"];
    draft.take_both(
        "soak_board",
        &fields,
        "the emulated board",
        "./tests/run --only soak:board; tests/scripts/soak board --minutes 10",
    );
    draft.row
}

fn audit(material: &Material) -> Row {
    let mut draft = Draft::new(material, 15, "dependencies");
    draft.take("advisories", &["found", "database"], "known holes", "tests/scripts/advisories");
    draft.row
}
