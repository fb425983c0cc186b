//! The rows, each from what was left of it.

use super::sources::{self, Counted};
use super::{Material, Row};
use crate::requirements::Ran;
use serde_json::{Map, Value, json};

/// A row in the making.
struct Draft<'a> {
    material: &'a Material,
    row: Row,
}

impl<'a> Draft<'a> {
    fn new(material: &'a Material, number: usize, title: &'static str) -> Self {
        Self { material, row: Row { number, title, figures: Vec::new(), missing: Vec::new() } }
    }

    fn tell(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.row.figures.push((name.into(), value.into()));
    }

    /// Tells these fields of what a suite has left, or its last long run, or that neither has.
    fn take(&mut self, suite: &str, fields: &[&str], what: &'static str, command: &'static str) {
        let Material { figures, long, .. } = self.material;
        match (figures.get(suite), long.get(suite)) {
            (Some(figures), _) => self.tell(what, only(figures, fields)),
            (None, Some(figures)) => self.tell(format!("{what}{LONG}"), only(figures, fields)),
            (None, None) => self.row.missing.push((what, command)),
        }
    }

    /// What suites have left whose figures have this field.
    fn having(&self, field: &'a str) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.material.figures.iter().filter(move |(_, figures)| figures.get(field).is_some())
    }
}

/// Behind the names of figures that are not of this run.
const LONG: &str = ", in the last long run";

/// Those fields that are there.
fn only(figures: &Value, fields: &[&str]) -> Value {
    let there = fields.iter().filter_map(|field| Some(((*field).to_owned(), figures.get(*field)?.clone())));
    Value::Object(there.collect())
}

/// All of them, in their order.
pub(super) fn all(material: &Material, ran: &Ran) -> Vec<Row> {
    vec![
        tests(material, ran),
        lives(material),
        seeds(material),
        pairs(material),
        search(material),
        drops(material),
        fuzz(material),
        mutants(material),
        canaries(material),
        coverage(material),
        lateness(material),
        costs(material, ran),
        assertions(material),
        soak(material),
        audit(material),
    ]
}

const TESTS: &str = "./tests/run --only tests";
const SOAK: &str = "./tests/run --only soak; tests/scripts/soak --minutes 30";

fn tests(material: &Material, ran: &Ran) -> Row {
    let mut draft = Draft::new(material, 1, "tests");
    if material.log.is_empty() {
        draft.row.missing.push(("tests", TESTS));
    } else {
        let (passed, failed, skipped) = ran.totals;
        draft.tell("all", json!({ "passed": passed, "failed": failed, "skipped": skipped }));
        let official = ["cmap", "sdam", "selection", "uri", "logging", "seedlist", "scram", "bson_corpus"];
        for target in official {
            draft.tell(target, json!({ "passed": ran.of_target(target) }));
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

fn lives(material: &Material) -> Row {
    let mut draft = Draft::new(material, 2, "lives of the simulators");
    let suites: Vec<_> = draft.having("lives").map(|(name, figures)| (name.clone(), figures)).collect();
    for (name, figures) in &suites {
        // The least is what tells: a kind that never came proves nothing.
        let least = |field: &str| {
            let counts = figures.get(field).and_then(Value::as_object).into_iter().flatten();
            let counts: Vec<_> = counts.filter_map(|(kind, count)| Some((kind.clone(), count.as_u64()?))).collect();
            counts
                .iter()
                .min_by_key(|(_, count)| *count)
                .map(|(kind, count)| json!([counts.len(), "kinds, least", kind, count]))
        };
        let mut told = Map::new();
        for field in ["lives", "steps", "virtual_hours"] {
            told.extend(figures.get(field).map(|value| (field.to_owned(), value.clone())));
        }
        told.extend(least("inputs").map(|value| ("inputs".to_owned(), value)));
        told.extend(least("faults").map(|value| ("faults".to_owned(), value)));
        told.extend(least("invariants").map(|value| ("invariants".to_owned(), value)));
        draft.tell(name.clone(), Value::Object(told));
    }
    if suites.is_empty() {
        draft.row.missing.push((
            "lives",
            "cargo test -p poolhouse-tests --all-features --test simulate --test simulate_mux --test world",
        ));
    }
    draft.row
}

fn seeds(material: &Material) -> Row {
    let mut draft = Draft::new(material, 3, "seeds that fail, regressions replayed");
    let failing: Vec<_> = draft.having("failing").map(|(_, figures)| figures).collect();
    let replayed = draft.having("regressions").map(|(_, figures)| number(figures, "regressions"));
    let (replayed, is_there) = (sum(replayed), draft.having("regressions").next().is_some());
    if is_there {
        draft.tell("regressions replayed", replayed);
    } else {
        draft
            .row
            .missing
            .push(("regressions", "cargo test -p poolhouse-tests --all-features --test simulate --test world"));
    }
    if failing.is_empty() {
        draft.row.missing.push((
            "seeds that fail",
            "cargo test -p poolhouse-tests --all-features --test simulate --test simulate_mux --test world",
        ));
    } else {
        draft.tell("seeds that fail", sum(failing.iter().map(|figures| number(figures, "failing"))));
    }
    draft.take(
        "life",
        &["lives", "lives_of", "steps", "pairs", "failing", "seconds"],
        "many lives",
        "cargo run --profile lives -p poolhouse-tests --all-features --bin life -- --seeds 0..5000000",
    );
    draft.row
}

fn pairs(material: &Material) -> Row {
    let mut draft = Draft::new(material, 4, "lives that were lived twice and compared");
    let pairs = sum(draft.having("pairs").map(|(_, figures)| number(figures, "pairs")));
    let different = sum(draft.having("pairs").map(|(_, figures)| number(figures, "different")));
    if draft.having("pairs").next().is_some() {
        draft.tell("pairs", pairs);
        draft.tell("different", different);
    } else {
        draft.row.missing.push((
            "pairs",
            "cargo test -p poolhouse-tests --all-features --test simulate --test simulate_mux --test world",
        ));
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
        draft.tell("drop points", Value::Object(counts));
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
        draft.tell(*name, only(figures, &fields));
    }
    if targets.is_empty() {
        draft.row.missing.push(("targets", "./tests/run --only fuzz"));
    } else {
        draft.tell("crashes", sum(targets.iter().map(|(_, figures)| number(figures, "crashes"))));
    }
    let long: Vec<_> =
        material.long.iter().filter(|(name, _)| name.starts_with("fuzz_")).map(|(_, figures)| figures).collect();
    if !long.is_empty() {
        let total = |field| sum(long.iter().map(|figures| number(figures, field)));
        let (seconds, execs, crashes) = (total("seconds"), total("execs"), total("crashes"));
        draft.tell(
            format!("all{LONG}"),
            json!({ "targets": long.len(), "seconds": seconds, "execs": execs, "crashes": crashes }),
        );
    }
    let corpus = material.figures.get("corpus").and_then(Value::as_object);
    if let Some(corpus) = corpus {
        draft.tell("files of the corpus replayed", sum(corpus.values().filter_map(Value::as_u64)));
    }
    draft.row
}

fn mutants(material: &Material) -> Row {
    let mut draft = Draft::new(material, 8, "mutants");
    let fields = ["mutants", "viable", "caught", "timeout", "missed", "equivalent", "survivors"];
    draft.take("mutants", &fields, "of core", "tests/scripts/mutants");
    draft.row
}

fn canaries(material: &Material) -> Row {
    let mut draft = Draft::new(material, 9, "planted bugs");
    draft.take(
        "canaries",
        &["planted", "found"],
        "canaries",
        "cargo test -p poolhouse-tests --all-features --test canaries",
    );
    draft.row
}

fn coverage(material: &Material) -> Row {
    let mut draft = Draft::new(material, 10, "coverage");
    draft.take("coverage", &["suites", "lines", "branches"], "of core", "tests/scripts/coverage");
    let fields = ["listed", "invariants", "tested", "run", "untested"];
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
    let late = material.figures.get("soak").and_then(|figures| figures.get("lateness_us"));
    match late {
        Some(late) => draft.tell("late under load and faults, microseconds", late.clone()),
        None => draft.row.missing.push(("lateness", SOAK)),
    }
    draft.row
}

fn costs(material: &Material, ran: &Ran) -> Row {
    let mut draft = Draft::new(material, 12, "costs");
    for (target, what) in [
        ("alloc_free", "tests that warm cycles allocate nothing"),
        ("mux_allocations", "the same of multiplexed pools"),
    ] {
        if ran.of_target(target) > 0 {
            draft.tell(what, ran.of_target(target));
        } else {
            draft.row.missing.push((what, TESTS));
        }
    }
    let fields = ["ram", "panics", "unwanted"];
    draft.take("firmware_numbers", &fields, "firmware", "./tests/run --only firmware:numbers");
    let crates = ["core", "runtime-smol", "runtime-async-std", "runtime-embassy"];
    let unsafe_of = |name: &&'static str| (*name, sources::count(&material.root.join(name).join("src")).uses_of_unsafe);
    let counts: Map<String, Value> =
        crates.iter().map(unsafe_of).map(|(name, count)| (name.to_owned(), count.into())).collect();
    draft.tell("unsafe", Value::Object(counts));
    draft.row
}

fn assertions(material: &Material) -> Row {
    let mut draft = Draft::new(material, 13, "assertions of core");
    let Counted { functions, assertions, .. } = sources::count(&material.root.join("core/src"));
    draft.tell("functions", functions);
    draft.tell("assertions", assertions);
    draft.tell("a function", assertions as f64 / functions.max(1) as f64);
    draft.tell("on in this build", cfg!(debug_assertions));
    draft.row
}

fn soak(material: &Material) -> Row {
    let mut draft = Draft::new(material, 14, "soak");
    let fields = ["seconds", "wrong", "operations", "inserts"];
    draft.take("soak", &fields, "a set of three", SOAK);
    let drift = material.figures.get("soak").and_then(|figures| figures.get("drift")?.as_object());
    for (name, figures) in drift.into_iter().flatten() {
        draft.tell(format!("{name}, drift of the second half"), figures.get("drift").cloned().unwrap_or(Value::Null));
    }
    let fields = ["seconds", "wrong", "attempts", "found", "stack", "served"];
    draft.take(
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
