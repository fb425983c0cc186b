//! Prints where code and tests name each requirement and each invariant, and how many of those
//! tests ran. The exit status is 1 when one has no test, or none that ran, and 2 when no test ran
//! at all. Without a list of requirements only invariants are checked.
//!
//! ```text
//! cargo run -p poolhouse-tests --all-features --bin requirements -- [--json] [--all] [--only-named] [--log FILE]
//! ```
//!
//! - `--all`: prints a line for each, not only for those with a missing part; and the requirements
//!   that no code names.
//! - `--only-named`: requires only that each has a test, for environments in which some tests
//!   cannot run.
//! - `--log`: the output of `cargo test` (target/run/tests.log).

extern crate alloc;

use alloc::collections::BTreeMap;
use poolhouse_tests::{figures, report, requirements};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("requirements: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let (mut json, mut all, mut only_named, mut log) =
        (false, false, false, report::run_folder(root).join("tests.log"));
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--json" => json = true,
            "--all" => all = true,
            "--only-named" => only_named = true,
            "--log" => log = PathBuf::from(words.next().ok_or("--log requires a file")?),
            _ => return Err("usage: requirements [--json] [--all] [--only-named] [--log FILE]".to_owned()),
        }
    }
    let text =
        fs::read(&log).map_err(|error| format!("{}: {error}; ./tests/run --only tests writes it", log.display()))?;
    let ran = requirements::read_log(&String::from_utf8_lossy(&text));
    let totals = ran.totals();
    if totals.passed + totals.failed == 0 {
        return Err(format!("{}: no test ran", log.display()));
    }
    let mut found = match requirements::list() {
        Ok(list) => {
            let text = fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
            requirements::parse(&text)
        }
        Err(reason) => {
            println!("skipped: requirements of the specifications: {reason}");
            BTreeMap::new()
        }
    };
    let listed = found.len();
    found.extend(requirements::invariants());
    requirements::find(root, &mut found).map_err(|error| error.to_string())?;
    let folder = figures::folder().unwrap_or_else(|| report::run_folder(root).join("figures"));
    let checks = requirements::checks(&report::read_figures(&folder));
    let value = requirements::to_json(&found, &ran, &checks);
    if json {
        println!("{value:#}");
    }
    let (mut tested, mut run, mut unnamed_invariants) = (0, 0, 0);
    let (mut untested, mut not_run, mut unnamed) = (Vec::new(), Vec::new(), Vec::new());
    for (id, requirement) in &found {
        let runs = requirement.runs(id, &ran, &checks);
        let has_run = runs.tests + runs.official > 0 || runs.checks > 0;
        let is_tested = requirement.is_tested(&ran) || runs.checks > 0;
        tested += usize::from(is_tested);
        run += usize::from(has_run);
        // Invariants apply to the whole library; only requirements must be named in the code that
        // implements them.
        if requirement.code.is_empty() && requirement.text.is_empty() {
            unnamed_invariants += 1;
        } else if requirement.code.is_empty() {
            unnamed.push(id.as_str());
        }
        if !is_tested {
            untested.push(id.as_str());
        } else if !has_run {
            not_run.push(id.as_str());
        }
        if !json && (all || !is_tested || !has_run) {
            let state = if !is_tested {
                "NO TEST"
            } else if has_run {
                ""
            } else {
                "not run"
            };
            println!(
                "{id:8} code {:3}, tests {:3}, ran {:5}, official {:3}, checks {:9}  {state}",
                requirement.code.len(),
                requirement.tests.len(),
                runs.tests,
                runs.official,
                runs.checks
            );
            for naming in requirement.tests.iter().take(if all { 3 } else { 0 }) {
                println!("             {naming}");
            }
        }
    }
    if all && !json && !unnamed.is_empty() {
        println!("requirements that no code names: {}", unnamed.join(" "));
    }
    let named = |ids: &[&str]| match ids {
        [] => "0".to_owned(),
        _ => format!("{}: {}", ids.len(), ids.join(" ")),
    };
    println!(
        "requirements: {listed} of the specifications, {} of them named in code, and {} invariants; tested {tested}, run {run}; without a test {}; not run {}",
        listed - unnamed.len(),
        found.len() - listed,
        named(&untested),
        named(&not_run),
    );
    let counts = BTreeMap::from([
        ("listed", listed),
        ("invariants", found.len() - listed),
        ("tested", tested),
        ("run", run),
        ("requirements_named_in_no_code", unnamed.len()),
        ("invariants_named_in_no_code", unnamed_invariants),
        ("untested", untested.len()),
        ("not_run", not_run.len()),
    ]);
    figures::record("requirements", &serde_json::json!(counts));
    Ok(untested.is_empty() && (only_named || not_run.is_empty()))
}
