use super::rows::Since;
use super::sources::{Counted, add};
use super::{Material, rows, to_json, to_text};
use alloc::collections::BTreeMap;
use serde_json::json;
use std::path::Path;
use std::process::Command;

#[test]
fn missing_figures_are_reported_as_not_measured() {
    let rows = rows(&Material::default());
    assert_eq!(rows.iter().map(|row| row.number).collect::<Vec<_>>(), (1..=15).collect::<Vec<_>>());
    let text = to_text(&rows, None);
    for number in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15] {
        assert!(!rows[number - 1].missing.is_empty(), "{number}");
    }
    assert!(text.contains("scopes: not measured (cargo test"), "{text}");
}

#[test]
fn figures_of_suites_are_reported_and_compared() {
    let figures = |states: u64| {
        BTreeMap::from([
            ("search".to_owned(), json!({ "scopes": 2, "complete": 2, "states": states, "other": 1 })),
            (
                "simulate".to_owned(),
                json!({ "runs": 7, "steps": 70, "inputs": { "a": 3, "b": 0 }, "invariants": { "P1": 5 } }),
            ),
            ("simulate_twice".to_owned(), json!({ "pairs": 3, "different": 0 })),
            ("simulate_regress".to_owned(), json!({ "regressions": 4, "known": 5 })),
            ("simulate_failing".to_owned(), json!({ "failing": 2, "of": 7, "assertions": false })),
            ("soak".to_owned(), json!({ "lateness_us": { "count": 1, "max": 63, "early": 0, "p50": 63 } })),
            ("fuzz_uri".to_owned(), json!({ "execs": 10, "crashes": 1 })),
        ])
    };
    let log = "contract (smol): 123 drop points tried\n     Running tests/cmap.rs (target/debug/deps/cmap-1)\ntest a ... ok\ntest b ... ignored\n\
        test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured\n     Running tests/uri.rs (target/debug/deps/uri-1)\ntest c ... ok\n\
        \x20    Running tests/sdam.rs (target/debug/deps/sdam-1)\ntest d ... ignored\ntest result: ok. 0 passed; 0 failed; 1 ignored; 0 measured\n";
    let report = |states| rows(&Material { figures: figures(states), log: log.to_owned(), ..Material::default() });
    let earlier = to_json(&report(8));
    let text = to_text(&report(9), Some(&earlier));
    let wanted = [
        "scopes: complete 2, scopes 2, states 9   (was complete 2, scopes 2, states 8)",
        "inputs 2 kinds, least b 0",
        "regressions replayed: known 5, replayed 4",
        "seeds that fail: 2",
        "in the simulators: simulate false",
        "microseconds: early 0, max 63, timeouts 1\n",
        "pairs: 3",
        "crashes: 1",
        "drop points: smol 123",
        "all: failed 1, passed 1, skipped 2",
        "cmap: failed 0, passed 1, skipped 1",
        "uri: failed 1, passed 0, skipped 0",
        // No test of `sdam` ran; no test of `scram` is known.
        "sdam: not measured (",
        "scram: not measured (",
    ];
    for line in wanted {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
    assert_eq!(earlier["5"]["figures"]["scopes"]["states"], 8);
    assert!(!to_text(&report(8), Some(&earlier)).contains("(was"));
}

#[test]
fn long_run_is_reported_as_one_until_a_newer_run_exists() {
    let of = |missed: u64| BTreeMap::from([("mutants".to_owned(), json!({ "missed": missed }))]);
    let fuzz = |execs: u64| json!({ "seconds": 600, "execs": execs, "crashes": 0 });
    let mut long = of(3);
    long.extend([("fuzz_uri".to_owned(), fuzz(5)), ("fuzz_wire".to_owned(), fuzz(6))]);
    let old = Material { long, ..Material::default() };
    let text = to_text(&rows(&old), None);
    assert!(
        text.contains(
            "of core, in the last long run (commit unknown: whether core has changed since is unknown): missed 3"
        ),
        "{text}"
    );
    assert!(text.contains("all, in the last long run (commit unknown: whether core has changed since is unknown): crashes 0, execs 11, seconds 1200, targets 2"), "{text}");
    assert!(text.contains("targets: not measured (./tests/run --only fuzz)"), "the long run is not this one: {text}");
    let text = to_text(&rows(&Material { figures: of(4), ..old }), None);
    assert!(text.contains("of core: missed 4") && !text.contains("missed 3"), "{text}");
}

#[test]
fn long_soak_is_reported_beside_a_short_one() {
    let soak = |seconds: u64, late: u64| {
        let late = json!({ "max": late, "p50": 1, "early": 0 });
        let figures = json!({
            "seconds": seconds, "lateness_us": late, "operations": { "timed_out": seconds / 10 },
            "drift": { "tasks": { "drift": 0.5 } },
        });
        BTreeMap::from([("soak".to_owned(), figures)])
    };
    let text = to_text(&rows(&Material { long: soak(1_800, 9), ..Material::default() }), None);
    assert!(
        text.contains(
            "a set of three, in the last long run (commit unknown: whether core has changed since is unknown): "
        ) && !text.contains("a set of three: "),
        "{text}"
    );
    let both = Material { figures: soak(40, 5), long: soak(1_800, 9), ..Material::default() };
    let text = to_text(&rows(&both), None);
    let wanted = [
        "a set of three: operations timed_out 4, seconds 40",
        "a set of three, in the last long run (commit unknown: whether core has changed since is unknown): operations timed_out 180, seconds 1800",
        "microseconds: early 0, max 5, timeouts 4\n",
        "microseconds, in the last long run (commit unknown: whether core has changed since is unknown): early 0, max 9, p50 1, timeouts 180",
        "tasks, drift of the second half: 0.5",
        "tasks, drift of the second half, in the last long run (commit unknown: whether core has changed since is unknown): 0.5",
    ];
    for line in wanted {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
}

#[test]
fn words_in_comments_and_names_do_not_count() {
    let mut counted = Counted::default();
    add(
        "/// unsafe { }\nfn f() { // fn g()\n    assert!(x);\n    my_assert!(x);\n}\nfn g();\nunsafe fn h() {\nlet unsafely = 1;",
        &mut counted,
    );
    assert_eq!(counted, Counted { functions: 2, assertions: 1, uses_of_unsafe: 1 });
}

#[test]
fn figures_of_a_long_run_show_their_commit_and_whether_core_has_changed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text).filter(|text| !text.is_empty())
    };
    for commit in ["unknown", "", "0123456789ab-dirty", "ffffffffffff", "--output=x"] {
        assert_eq!(Since::of(root, commit), Since::Unknown, "{commit}");
    }
    // A copy of the sources may have no git repository, or a shallow one.
    let is_whole =
        root.join(".git").exists() && git(&["rev-parse", "--is-shallow-repository"]).as_deref() == Some("false");
    let roots = git(&["rev-list", "--max-parents=0", "HEAD"]).filter(|_| is_whole);
    let Some(first) = roots.as_deref().and_then(|roots| roots.lines().next()).map(str::to_owned) else {
        return;
    };
    assert_eq!(Since::of(root, &first), Since::Changed);
    let long = BTreeMap::from([("mutants".to_owned(), json!({ "missed": 3, "commit": first }))]);
    let text = to_text(&rows(&Material { long, root: root.to_owned(), ..Material::default() }), None);
    assert!(text.contains(&format!("(commit {first}: CORE HAS CHANGED SINCE): missed 3")), "{text}");
}
