//! Hunts for a bug with one generator:
//! `hunt --generator NAME [--planted NAME] [--corpus FOLDER]`.
//!
//! The generators are those of [`poolhouse_tests::hunt::GENERATORS`], and `fuzz_NAME` for each fuzz
//! target. The error for an unknown generator lists them. The variables of [`poolhouse_tests::seeds`] set
//! the seeds. Bugs can be planted only in a build to which the patches of tests/planted-bugs were applied.
//!
//! Prints one line of JSON. The exit status is 0 when no bug was found, 1 when one was found.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use poolhouse_tests::hunt::{Hunted, hunt};
use serde_json::json;

const USAGE: &str = "usage: hunt --generator NAME [--planted NAME] [--corpus FOLDER]";

#[derive(Debug, Default)]
struct Arguments {
    generator: Option<String>,
    planted: Option<String>,
    corpus: Option<PathBuf>,
}

fn main() -> ExitCode {
    let outcome = parse().and_then(|arguments| run(&arguments));
    outcome.unwrap_or_else(|error| {
        eprintln!("{error}\n{USAGE}");
        ExitCode::from(2)
    })
}

fn parse() -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} requires a value"))?;
        match word.as_str() {
            "--generator" => arguments.generator = Some(value),
            "--planted" => arguments.planted = Some(value),
            "--corpus" => arguments.corpus = Some(PathBuf::from(value)),
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    Ok(arguments)
}

fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let generator = arguments.generator.as_deref().ok_or("--generator is missing")?;
    if let Some(name) = &arguments.planted {
        plant(name)?;
    }
    let here = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus"));
    let corpus = arguments.corpus.as_ref().unwrap_or(&here);
    // Panics are reported in the result line.
    std::panic::set_hook(Box::new(|_| {}));
    let begun = Instant::now();
    let Hunted { tried, found } = hunt(generator, corpus)?;
    let seconds = begun.elapsed().as_secs_f64();
    let line = json!({
        "generator": generator, "planted": arguments.planted, "tried": tried, "seconds": seconds, "found": found,
    });
    println!("{line}");
    Ok(ExitCode::from(u8::from(found.is_some())))
}

/// Plants a bug.
fn plant(name: &str) -> Result<(), String> {
    Err(format!("this build has no planted bug {name}: apply the patches of tests/planted-bugs first"))
}
