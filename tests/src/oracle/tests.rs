//! Each invariant must have a check.

pub(super) mod falsify;

use super::{Checks, OWNERS, Owner, Violation, monitor, mux, owners, pool};
use crate::choices::Decisions;
use crate::network;
use crate::sim;
use alloc::collections::BTreeSet;
use core::fmt::Debug;
use core::slice;
use expect_test::expect;
use std::fs;
use std::path::Path;

/// Checks that a correct history passes, and that one more step breaks this invariant and no other
/// first.
pub(super) fn breaks<S: Clone + Debug, T>(
    id: &str,
    right: &[S],
    wrong: &S,
    judge: impl Fn(&[S]) -> Result<T, Violation>,
) {
    if let Err(found) = judge(right) {
        panic!("{id}: an earlier step fails: {found}");
    }
    let Err(found) = judge(&[right, slice::from_ref(wrong)].concat()) else { panic!("{id}: {wrong:?} passes") };
    assert_eq!(found.id, id, "{found}");
}

#[test]
fn each_oracle_checks_its_listed_invariants() {
    let lists: [&[&'static str]; 3] = [&pool::CHECKED, &mux::CHECKED, &monitor::CHECKED];
    let checked: BTreeSet<&str> = lists.iter().flat_map(|list| list.iter().copied()).collect();
    for (id, owners) in owners() {
        assert_eq!(owners.contains(&Owner::Oracle), checked.contains(id.as_str()), "{id}");
    }
    let known: BTreeSet<String> = owners().map(|(id, _)| id).collect();
    assert!(OWNERS.iter().all(|(id, owners)| known.contains(*id) && !owners.is_empty()));
}

/// A generator's part of this library, and the additional invariants that it must count.
fn parts_of(generator: &str) -> (&'static [&'static str], &'static [&'static str]) {
    // All of them run from seeds, and some runs are repeated.
    match generator {
        "simulate" => (&["tests/src/seeds/lives.rs", "tests/src/sim/network.rs", "tests/src/sim/ops.rs"], &[]),
        "corpus" => (&["tests/src/fuzz/"], &[]),
        "search" => (&["tests/src/search/", "tests/src/machines/control.rs"], &[]),
        "simulate_mux" => (&["tests/src/seeds/lives.rs", "tests/src/sim/mux/"], &[]),
        "contract" => (&["tests/src/contract/"], &[]),
        "network" => (&["tests/src/seeds/lives.rs", "tests/src/network/"], &network::CHECKED),
        _ => panic!("unknown generator {generator}"),
    }
}

/// Reads the sources below a folder, with their paths from the root of the repository.
fn read(root: &Path, folder: &Path, sources: &mut Vec<(String, String)>) {
    for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            read(root, &path, sources);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let name = path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
            sources.push((name, fs::read_to_string(&path).expect("a source")));
        }
    }
}

#[test]
fn each_owner_of_an_invariant_names_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder");
    let mut sources = Vec::new();
    for folder in ["core", "tests/src", "tests/tests"] {
        read(root, &root.join(folder), &mut sources);
    }
    // The words of each file, without those of its head.
    let words: Vec<(&str, BTreeSet<&str>)> = sources
        .iter()
        .map(|(file, text)| {
            let lines = text.lines().filter(|line| !line.starts_with("//!"));
            (file.as_str(), lines.flat_map(|line| line.split(|letter: char| !letter.is_ascii_alphanumeric())).collect())
        })
        .collect();
    for (id, owners) in owners() {
        let files: Vec<&str> =
            words.iter().filter(|(_, words)| words.contains(id.as_str())).map(|(file, _)| *file).collect();
        let is_target = |file: &str, target: &str| {
            let rest = file.strip_prefix("tests/tests/").and_then(|rest| rest.strip_prefix(target));
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        for owner in owners {
            let names_it = match owner {
                Owner::Oracle => continue,
                Owner::Test(name) => {
                    let unit = format!("/tests/{name}.rs");
                    let is_unit = |file: &str| file.starts_with("core/") && file.ends_with(&unit);
                    files.iter().any(|file| is_target(file, name) || is_unit(file))
                }
                Owner::Generator(name) => {
                    let (parts, counted) = parts_of(name);
                    let is_part = |file: &str| parts.iter().any(|part| file.starts_with(part));
                    counted.contains(&id.as_str()) || files.iter().any(|file| is_target(file, name) || is_part(file))
                }
            };
            assert!(names_it, "{id} is not named by {owner:?}: {files:?}");
        }
    }
}

#[test]
fn checks_are_counted_by_id() {
    assert_eq!(size_of::<Checks>(), owners().count() * size_of::<u64>(), "one counter for each id");
    let mut checks = Checks::default();
    checks.add("P54");
    checks.add("M1");
    checks.check("S21", true, String::new).expect("it holds");
    let violation = checks.check("S21", false, || "what".into()).expect_err("it does not hold");
    assert_eq!(violation.to_string(), "S21: what");
    let mut sum = Checks::default();
    sum.merge(&checks);
    sum.merge(&checks);
    assert_eq!(sum.json(), serde_json::json!({ "P54": 2, "M1": 2, "S21": 4 }));
    assert_eq!(sum.missing(&["P53", "P54", "M2", "S21"]), ["P53", "M2"]);
}

#[test]
fn runs_of_a_hundred_seeds_make_these_checks() {
    let (mut pools, mut muxes) = (sim::Counters::default(), sim::mux::Counters::default());
    for seed in 0..100 {
        let of = Decisions::of_seed(seed);
        sim::seed(&of, &mut pools, None).expect("pool and model agree");
        sim::mux::seed(&of, &mut muxes, None).expect("pool and model agree");
    }
    let text = format!(
        "{} steps, {} events, {}\n{} steps, {} events, {}",
        pools.steps,
        pools.events,
        pools.checks.json(),
        muxes.steps,
        muxes.events,
        muxes.checks.json()
    );
    expect![[r#"
        9026 steps, 5880 events, {"P1":13974,"P10":799,"P11":109,"P12":186,"P13":60,"P14":135,"P15":1085,"P16":590,"P17":475,"P18":240,"P19":2529,"P2":475,"P20":13974,"P21":240,"P22":240,"P23":244,"P24":243,"P25":5886,"P26":362,"P27":1384,"P28":1904,"P29":20566,"P3":475,"P30":153,"P31":1750,"P32":2145,"P33":340,"P34":68620,"P35":366,"P36":813,"P37":575,"P38":1777,"P39":1147,"P4":70009,"P40":51,"P41":88,"P42":734,"P43":100,"P44":9,"P45":85091,"P46":59,"P47":9789,"P48":181,"P5":5225,"P50":2172,"P51":86,"P52":29,"P53":2366,"P6":475,"P7":118,"P8":3636,"P9":668}
        16736 steps, 13048 events, {"M1":847,"M2":2156,"M3":165,"M4":157517,"M5":2114,"M6":117511,"P1":28918,"P18":742,"P19":6092,"P2":638,"P20":28918,"P25":823,"P32":470,"P6":638,"P8":756}"#]].assert_eq(&text);
}
