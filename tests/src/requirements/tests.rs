use super::log::fits;
use super::{Counts, Naming, Runs, find, invariants, mentions, official_files, parse, read_log};
use alloc::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn ids_are_found_in_lists_and_short_ranges() {
    let of = |text| mentions::of(text, 12).into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    assert_eq!(of("CMAP-16, MON-07; (SDAM-05) LOG-1"), ["CMAP-16", "MON-07", "SDAM-05", "LOG-01"]);
    assert_eq!(of("CMAP-08..10 and P1, not P1x, XP1, p50, P_1, P1234"), ["CMAP-08", "CMAP-09", "CMAP-10", "P1"]);
    assert_eq!(
        of("S1-S3 SDAM-14 to SDAM-15 MON-53..MON-54"),
        ["S1", "S2", "S3", "SDAM-14", "SDAM-15", "MON-53", "MON-54"]
    );
    assert!(of("CMAP-01..102").is_empty(), "a long range describes a file, not a check");
    assert_eq!(of("P18 to 20, M6-1"), ["P18", "M6"]);
    assert_eq!(of("ü P2 ü"), ["P2"]);
    assert!(mentions::is_id("CMAP-100") && !mentions::is_id("CMAP-") && !mentions::is_id("id"));
}

#[test]
fn function_of_an_id_is_the_next_after_a_comment_or_the_enclosing_one() {
    let text = "//! P1\n/// P2\n#[test]\nfn second() {\n    // P3\n    let x = 1;\n    assert!(x, \"P4\");\n}\n\nconst P: u8 = 1; // P5\n";
    let expected = [("P1", None), ("P2", Some("second")), ("P3", Some("second")), ("P4", Some("second")), ("P5", None)];
    let of = |text| -> Vec<(String, Option<String>)> {
        mentions::of(text, 12).into_iter().map(|(id, function)| (id, function.map(|function| function.name))).collect()
    };
    let expected: Vec<_> = expected.iter().map(|(id, of)| ((*id).to_owned(), of.map(str::to_owned))).collect();
    assert_eq!(of(text), expected);
    // An id in an item does not belong to the function before the item, but to the one around it.
    let text = "fn before(\n    a: u8,\n) {\n    assert!(a, \"P1\");\n}\n\npub(crate) const ALL: [&str; 1] = [\n    \"P2\",\n];\n\nfn around() {\n    const ALL: [&str; 1] = [\n        \"P3\",\n    ];\n}\n";
    let expected = [("P1", Some("before")), ("P2", None), ("P3", Some("around"))];
    let expected: Vec<_> = expected.iter().map(|(id, of)| ((*id).to_owned(), of.map(str::to_owned))).collect();
    assert_eq!(of(text), expected);
    let is_test = |text| mentions::of(text, 12)[0].1.as_ref().is_some_and(|function| function.is_test);
    assert!(is_test("/// P1\n#[test]\nfn f() {}\n") && is_test("#[test]\nfn f() {\n    // P1\n}\n"));
    assert!(!is_test("#[test]\nfn f() {}\n\n/// P1\nfn g() {}\n"));
}

/// Searches these sources in a temporary folder.
fn found_in(name: &str, sources: &[(&str, &str)]) -> BTreeMap<String, super::Requirement> {
    let root = std::env::temp_dir().join(format!("poolhouse-requirements-{name}-{}", std::process::id()));
    for (path, text) in sources {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder can be made");
        fs::write(path, text).expect("a file can be written");
    }
    let mut found = invariants();
    let outcome = find(&root, &mut found);
    fs::remove_dir_all(&root).expect("it was made");
    outcome.expect("all can be read");
    found
}

#[test]
fn lists_are_no_tests() {
    let list = "//! P1\n\nfn unrelated() {}\n\npub const CHECKED: [&str; 2] = [\n    \"P2\", \"P3\",\n];\n";
    let helper = "/// P5\nfn helper() {}\n";
    let found = found_in(
        "lists",
        &[
            ("tests/src/network.rs", list),
            ("tests/src/oracle/owners.rs", "fn owners() {\n    let all = [\"P4\"];\n}\n"),
            ("tests/src/sim/network.rs", helper),
            ("tests/tests/whole.rs", "//! P6\n"),
            ("core/src/pool.rs", "/// P1\nfn f() {}\n"),
        ],
    );
    for id in ["P1", "P2", "P3", "P4"] {
        assert!(found[id].tests.is_empty(), "{id}: {:?}", found[id].tests);
    }
    for (id, naming) in [("P5", "tests/src/sim/network.rs: helper"), ("P6", "tests/tests/whole.rs")] {
        assert_eq!(found[id].tests.iter().map(ToString::to_string).collect::<Vec<_>>(), [naming]);
    }
    assert!(found["P1"].code.contains("core/src/pool.rs"));
}

#[test]
fn official_files_of_a_cell_are_found() {
    let cell = "cmap/pool-ready, pool-clear-ready; uni/pool-cleared-error; retryable flag **NONE** as unit";
    assert_eq!(official_files(cell), ["cmap/pool-ready", "cmap/pool-clear-ready", "uni/pool-cleared-error"]);
    assert_eq!(official_files("rs/a_{less,equal}, b_* *(weak)*"), ["rs/a_less", "rs/a_equal", "rs/b_*"]);
    assert_eq!(official_files("prose 1, 2; machine **NONE**"), [""; 0]);
    assert_eq!(official_files("mon/* (\"42\")"), ["mon/*"]);
}

#[test]
fn any_text_is_any_text() {
    assert!(fits("pool-clear-ready", "pool-clear*") && fits("a", "*") && fits("abc", "a*c") && fits("", "*"));
    assert!(!fits("pool-clear", "pool-clear-*") && !fits("abc", "a*d") && !fits("abc", "ab"));
}

#[test]
fn runs_are_those_that_passed() {
    let list = "| id | lvl | requirement | official tests |\n|---|---|---|---|\n| CMAP-16 | M | ids rise | cmap/connection-must-*, other |\n";
    let mut requirements = parse(list);
    assert_eq!(requirements.len(), 1);
    let ran = read_log(LOG);
    assert_eq!(ran.of_target("cmap"), Counts { passed: 2, failed: 0, skipped: 1 });
    assert_eq!(ran.of_target("other"), Counts::default());
    let requirement = requirements.get_mut("CMAP-16").expect("it is in the list");
    let checks = BTreeMap::from([("CMAP-16".to_owned(), 7)]);
    assert!(requirement.is_tested(&ran) && !requirement.is_tested(&read_log("")));
    for (function, expected) in [("ids_rise", 1), ("ids_fall", 0)] {
        requirement.tests = [naming("core/src/pool/tests/ids.rs", function, true)].into();
        assert_eq!(requirement.runs("CMAP-16", &ran, &checks), Runs { tests: expected, official: 1, checks: 7 });
    }
}

const LOG: &str = "     Running unittests src/lib.rs (target/debug/deps/poolhouse_core-1)\ntest pool::tests::ids_rise ... ok\n\
    test pool::tests::ids_fall ... FAILED\ntest ids_leave ... ok\ntest result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured\n\
    error: poolhouse_core of core ended with 101\n     Running tests/cmap.rs (target/debug/deps/cmap-1)\n\
    test connection-must-have-id     ... ok\ntest own::connection-must-be-ours ... ok\ntest x ... ignored, no reason\n\
    test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured\n     Running tests/contract.rs (target/debug/deps/contract-1)\n\
    test dropping::ids_leave ... ok\ntest ids_fall - should panic ... ok\ntest result: ok. 2 passed; 0 failed; 0 ignored\n\
    test dropping::ids_leave ... ok\nran for 1.0 s: contract of runtime-smol\n\
    error: contract of runtime-smol ended with -6\n     Running tests/srv.rs (target/debug/deps/srv-1)\ntest ids_rise ... ok\n\
    ran for 9.0 s: srv of tests\n   Doc-tests poolhouse_core\n\ntest result: ok. 0 passed; 0 failed; 3 ignored; 0 measured\n";

fn naming(file: &str, function: &str, is_test: bool) -> Naming {
    Naming { file: file.to_owned(), function: Some(function.to_owned()), is_test }
}

#[test]
fn name_counts_only_in_its_own_programs() {
    let ran = read_log(LOG);
    let passed = |file, function, is_test| ran.passed_of(&naming(file, function, is_test));
    // A helper of a suite stands for the whole suite, and a scenario for itself.
    assert_eq!(passed("tests/tests/cmap.rs", "helper", false), 2);
    assert_eq!(passed("tests/scenarios/cmap/connection-must-be-ours.json", "helper", false), 1);
    assert_eq!(passed("tests/src/sim.rs", "helper", false), 0);
    // A test that failed, was skipped or does not exist stands for nothing, also if other tests
    // have the same name.
    assert_eq!(passed("tests/tests/cmap.rs", "x", false), 0);
    assert_eq!(passed("tests/tests/cmap.rs", "ids_rise", true), 0);
    assert_eq!(passed("core/src/pool/tests/ids.rs", "ids_fall", true), 0);
    assert_eq!(passed("runtime-smol/src/tests.rs", "ids_rise", true), 0);
    // Two adapters have targets with the same name.
    assert_eq!(passed("runtime-smol/tests/contract.rs", "ids_fall", true), 1);
    assert_eq!(passed("runtime-embassy/tests/contract.rs", "ids_fall", true), 0);
    // Adapters run the cases of the harness, once for each of their executors.
    assert_eq!(passed("tests/src/contract/dropping.rs", "ids_leave", false), 2);
    assert_eq!(passed("tests/src/contract/ending.rs", "ids_leave", false), 0);
    let whole = Naming { file: "tests/tests/cmap.rs".to_owned(), function: None, is_test: false };
    assert_eq!(ran.passed_of(&whole), 2);
}

#[test]
fn programs_that_do_not_complete_have_failed() {
    let totals = |log| read_log(log).totals();
    // The contract ended with an error after its first executor, and srv during its only test.
    assert_eq!(totals(LOG), Counts { passed: 6, failed: 3, skipped: 4 });
    assert_eq!(totals("   Compiling poolhouse-core\nerror: could not compile\n"), Counts::default());
    assert_eq!(totals("     Running tests/a.rs (target/debug/deps/a-1)\n").failed, 1);
}

/// ./tests/run counts with a shell function, before any program of this workspace is built.
#[test]
fn tests_run_counts_by_the_same_rules() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("run");
    let log = std::env::temp_dir().join(format!("poolhouse-requirements-{}.log", std::process::id()));
    let reported: Vec<String> = [LOG, "", "     Running tests/a.rs (target/debug/deps/a-1)\n"]
        .into_iter()
        .map(|text| {
            fs::write(&log, text).expect("a file can be written");
            let line = "eval \"$(sed -n '/^count_tests() {/,/^}/p' \"$0\")\"; count_tests \"$1\"";
            let output = Command::new("bash").args(["-c", line]).arg(&script).arg(&log).output().expect("bash");
            let Counts { passed, failed, skipped } = read_log(text).totals();
            let reported = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            assert_eq!(reported, format!("{passed} {failed} {skipped}"), "{text}");
            reported
        })
        .collect();
    fs::remove_file(&log).expect("it was written");
    assert_eq!(reported, ["6 3 4", "0 0 0", "0 1 0"]);
}

/// The crates in folders below `core` are named by the last part of their folder.
#[test]
fn unit_tests_of_crates_below_core_count_for_their_files() {
    let ran = read_log(
        "     Running unittests src/lib.rs (target/debug/deps/poolhouse_wire-1)\ntest hello::tests::ids_rise ... ok\n\
         test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured\nran for 1.0 s: poolhouse_wire of wire\n",
    );
    assert_eq!(ran.passed_of(&naming("core/wire/src/hello/tests.rs", "ids_rise", true)), 1);
}
