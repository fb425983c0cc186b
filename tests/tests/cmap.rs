//! The official CMAP tests, a case for each file and named after it, and our own scenarios in the
//! same format.
//!
//! `POOLHOUSE_SPEC_DIR` names the folders of the official files (or a checkout of the specifications).
//! Without it they are one ignored case, which is a failure when `CI=true`.
#![forbid(unsafe_code)]

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use poolhouse_tests::{cmap, spec};
use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    match spec::roots() {
        Ok(roots) => {
            let found: Vec<_> = roots.iter().map(|root| cmap::official_files(root)).collect();
            match found.into_iter().reduce(Result::or) {
                Some(Ok(files)) => trials.extend(files.into_iter().map(|file| case("", file))),
                Some(Err(error)) => trials.push(Trial::test("POOLHOUSE_SPEC_DIR", move || Err(Failed::from(error)))),
                None => {}
            }
        }
        Err(reason) => trials.push(skipped("cmap/official files", &reason.to_string())),
    }
    trials.extend(cmap::own_files().into_iter().map(|file| case("own::", file)));
    if !arguments.list {
        eprintln!("each file runs on both kinds of memory: {}", cmap::MEMORIES.join(" and "));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn case(prefix: &str, file: PathBuf) -> Trial {
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    Trial::test(format!("{prefix}{stem}"), move || {
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        cmap::run(&text).map(drop).map_err(Failed::from)
    })
}

/// A case that cannot run here: it is reported as ignored when it runs, and fails if every case must
/// run. It has no ignored flag, because nextest does not run cases with that flag.
fn skipped(what: &str, reason: &str) -> Trial {
    let must_run = env::var("CI").is_ok_and(|ci| ci == "true");
    let text = format!("{what}: {reason}");
    Trial::ignorable_test(what.to_owned(), move || {
        println!("skipped: {text}");
        if must_run { Err(Failed::from(text)) } else { Ok(Completion::ignored_with(text)) }
    })
}
