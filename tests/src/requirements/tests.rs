use super::log::fits;
use super::{Naming, Runs, mentions, official_files, parse, read_log};
use alloc::collections::BTreeMap;

#[test]
fn ids_are_those_of_lists_and_ranges_alone() {
    let of = |text| mentions::of(text, 12).into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    assert_eq!(of("CMAP-16, MON-07; (SDAM-05) LOG-1"), ["CMAP-16", "MON-07", "SDAM-05", "LOG-01"]);
    assert_eq!(of("CMAP-08..10 and P1, not P1x, XP1, p50, P_1, P1234"), ["CMAP-08", "CMAP-09", "CMAP-10", "P1"]);
    assert_eq!(
        of("S1-S3 SDAM-14 to SDAM-15 MON-53..MON-54"),
        ["S1", "S2", "S3", "SDAM-14", "SDAM-15", "MON-53", "MON-54"]
    );
    assert!(of("CMAP-01..102").is_empty(), "that says what a file is about");
    assert_eq!(of("P18 to 20, M6-1"), ["P18", "M6"]);
    assert_eq!(of("ü P2 ü"), ["P2"]);
    assert!(mentions::is_id("CMAP-100") && !mentions::is_id("CMAP-") && !mentions::is_id("id"));
}

#[test]
fn function_is_the_next_after_a_comment_and_else_the_one_around() {
    let text = "//! P1\n/// P2\n#[test]\nfn second() {\n    // P3\n    let x = 1;\n    assert!(x, \"P4\");\n}\n\nconst P: u8 = 1; // P5\n";
    let expected = [("P1", None), ("P2", Some("second")), ("P3", Some("second")), ("P4", Some("second")), ("P5", None)];
    let expected: Vec<_> = expected.iter().map(|(id, of)| ((*id).to_owned(), of.map(str::to_owned))).collect();
    assert_eq!(mentions::of(text, 12), expected);
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
    let log = "     Running unittests src/lib.rs (target/debug/deps/poolhouse_core-1)\ntest pool::tests::ids_rise ... ok\n\
        test pool::tests::ids_fall ... FAILED\n     Running tests/cmap.rs (target/debug/deps/cmap-1)\ntest connection-must-have-id     ... ok\n\
        test own::connection-must-be-ours ... ok\ntest x ... ignored, no reason\n";
    let ran = read_log(log);
    assert_eq!(ran.totals, (3, 1, 1));
    let requirement = requirements.get_mut("CMAP-16").expect("it is in the list");
    let checks = BTreeMap::from([("CMAP-16".to_owned(), 7)]);
    assert!(requirement.is_tested(&ran) && !requirement.is_tested(&read_log("")));
    for (function, expected) in [("ids_rise", 1), ("ids_fall", 0)] {
        let file = "core/src/pool/tests/ids.rs".to_owned();
        requirement.tests = [Naming { file, function: Some(function.to_owned()) }].into();
        assert_eq!(requirement.runs("CMAP-16", &ran, &checks), Runs { tests: expected, official: 1, checks: 7 });
    }
    // A helper of a suite stands for all of it, and a scenario for itself.
    let naming = |file: &str| Naming { file: file.to_owned(), function: Some("helper".to_owned()) };
    assert_eq!(ran.passed_of(&naming("tests/tests/cmap.rs")), 2);
    assert_eq!(ran.passed_of(&naming("tests/scenarios/cmap/connection-must-be-ours.json")), 1);
    assert_eq!(ran.passed_of(&naming("tests/src/sim.rs")), 0);
}
