//! Prints the figures of the last run of the tests.
//!
//! ```text
//! cargo run -p poolhouse-tests --all-features --bin report -- [--json] [--trend FILE]
//! ```
//!
//! Figures are read from the folder that `POOLHOUSE_FIGURES` names (target/run/figures), from
//! target/run/tests.log and, for measurements that take hours, from tests/figures. `--trend`
//! compares with an earlier `--json`.

use poolhouse_tests::{figures, report};
use std::fs;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: report [--json] [--trend FILE]";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("report: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), String> {
    let (mut json, mut earlier) = (false, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--json" => json = true,
            "--trend" => {
                let file = words.next().ok_or(USAGE)?;
                let text = fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
                earlier = Some(serde_json::from_str(&text).map_err(|error| format!("{file}: {error}"))?);
            }
            _ => return Err(USAGE.to_owned()),
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let run = report::run_folder(root);
    let log = fs::read(run.join("tests.log")).unwrap_or_default();
    let material = report::Material {
        figures: report::read_figures(&figures::folder().unwrap_or_else(|| run.join("figures"))),
        long: report::read_figures(&report::long_folder(root)),
        log: String::from_utf8_lossy(&log).into_owned(),
        root: root.to_owned(),
    };
    let rows = report::rows(&material);
    if json {
        println!("{:#}", report::to_json(&rows));
    } else {
        print!("{}", report::to_text(&rows, earlier.as_ref()));
    }
    Ok(())
}
