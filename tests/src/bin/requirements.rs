//! Prints where each requirement and each invariant is named in code and in tests, and how many of those tests ran; exit status 1 when one has no test.
//! Without a list of requirements it looks at the invariants alone.
//!
//! ```text
//! cargo run -p poolhouse-tests --all-features --bin requirements -- [--json] [--all] [--log FILE]
//! ```
//!
//! - `--all`: a line for each, not only for those of which something is missing.
//! - `--log`: what `cargo test` has printed (target/run/tests.log).

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
    let (mut json, mut all, mut log) = (false, false, report::run_folder(root).join("tests.log"));
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--json" => json = true,
            "--all" => all = true,
            "--log" => log = PathBuf::from(words.next().ok_or("--log wants a file")?),
            _ => return Err("usage: requirements [--json] [--all] [--log FILE]".to_owned()),
        }
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
    let ran = requirements::read_log(&String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()));
    let folder = figures::folder().unwrap_or_else(|| report::run_folder(root).join("figures"));
    let checks = requirements::checks(&report::read_figures(&folder));
    let value = requirements::to_json(&found, &ran, &checks);
    if json {
        println!("{value:#}");
    }
    let (mut tested, mut run, mut unnamed) = (0, 0, 0);
    let mut untested = Vec::new();
    for (id, requirement) in &found {
        let runs = requirement.runs(id, &ran, &checks);
        let has_run = runs.tests + runs.official > 0 || runs.checks > 0;
        let is_tested = requirement.is_tested(&ran) || runs.checks > 0;
        tested += usize::from(is_tested);
        run += usize::from(has_run);
        let is_named = !requirement.code.is_empty();
        unnamed += usize::from(!is_named);
        if !is_tested {
            untested.push(id.clone());
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
    println!(
        "requirements: {listed} of the specifications and {} invariants; tested {tested}, run {run}, named in no code {unnamed}, without a test {}{}",
        found.len() - listed,
        untested.len(),
        if untested.is_empty() { String::new() } else { format!(": {}", untested.join(" ")) }
    );
    let counts = BTreeMap::from([
        ("listed", listed),
        ("invariants", found.len() - listed),
        ("tested", tested),
        ("run", run),
        ("named_in_no_code", unnamed),
        ("untested", untested.len()),
    ]);
    figures::record("requirements", &serde_json::json!(counts));
    Ok(untested.is_empty())
}
