//! The official log message tests of pools and topologies, a case per file and named after it, and our own scenarios in the same
//! (unified) format, each by a real client against the fake server.
//!
//! A test of an official file that asks for what is not here (authentication, sessions, messages of commands) is skipped by
//! name; a file of which every test is skipped counts as ignored. Our own must run. The subscriber is the process's, so cases
//! run one after the other.
#![forbid(unsafe_code)]

#[path = "logging/capture.rs"]
mod capture;
#[path = "logging/deployment.rs"]
mod deployment;
#[path = "logging/matching.rs"]
mod matching;
#[path = "logging/run.rs"]
mod run;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use poolhouse_tests::spec;
use run::Outcome;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Folders of official files, and how the names of those that are about log messages begin.
const FOLDERS: [(&str, &str); 2] = [
    ("connection-monitoring-and-pooling/tests/logging", ""),
    ("server-discovery-and-monitoring/tests/unified", "logging-"),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    capture::install();
    let mut trials = Vec::new();
    for (folder, prefix) in FOLDERS {
        match spec::files(folder) {
            Ok(files) => {
                let wanted = files.into_iter().filter(|(name, _)| name.starts_with(prefix));
                trials.extend(wanted.map(|(name, path)| case(name, path, Source::Official)));
            }
            // No failure with CI=true, as elsewhere: a folder of official files need not have these, and our own scenarios are
            // about the same messages.
            Err(reason) => {
                let reason = reason.to_string();
                if !arguments.list {
                    eprintln!("skipped: logging/{folder}: {reason}");
                }
                trials.push(Trial::ignorable_test(folder, move || Ok(Completion::ignored_with(reason))));
            }
        }
    }
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    match spec::files_in(&own, "logging") {
        Ok(files) => {
            trials.extend(files.into_iter().map(|(name, path)| case(format!("own::{name}"), path, Source::Own)))
        }
        Err(reason) => trials.push(Trial::test("own", move || Err(Failed::from(reason.to_string())))),
    }
    trials.push(Trial::test("own::relaxed_tls_is_a_warning", relaxed_tls));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Checks that TLS leaves out are told of as loudly as anything is.
fn relaxed_tls() -> Result<(), Failed> {
    for (option, expected) in [("tlsInsecure", 1), ("tlsAllowInvalidHostnames", 1), ("tls", 0)] {
        capture::clear();
        let uri = format!("mongodb://127.0.0.1:1/?{option}=true");
        let Ok(client) = smol::block_on(poolhouse_smol::Client::connect(&uri)) else {
            // Only without authorities of the platform, where nothing can be checked.
            assert_ne!(option, "tlsInsecure");
            continue;
        };
        smol::block_on(client.close());
        let insecure = |message: &&capture::Message| message.data.to_string().contains("INSECURE");
        let warnings: Vec<_> = capture::taken().iter().filter(insecure).cloned().collect();
        assert_eq!(warnings.len(), expected, "{option}");
        assert!(warnings.iter().all(|warning| warning.level == "warn" && warning.component == "connection"));
    }
    Ok(())
}

/// Whose scenario a file is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// It may ask for what is not here.
    Official,
    /// It must run.
    Own,
}

fn case(name: String, path: PathBuf, source: Source) -> Trial {
    Trial::ignorable_test(name.clone(), move || file(&name, &path, source))
}

fn file(name: &str, path: &Path, source: Source) -> Result<Completion, Failed> {
    let text = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let file: Value = serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let (mut passed, mut skipped, mut failed) = (0, Vec::new(), Vec::new());
    for test in file["tests"].as_array().into_iter().flatten() {
        let description = test["description"].as_str().unwrap_or_default();
        match run::test(&file, test) {
            Ok(Outcome::Passed) => passed += 1,
            Ok(Outcome::Skipped(reason)) if source == Source::Own => {
                failed.push(format!("{description}: it must run, and does not: {reason}"));
            }
            Ok(Outcome::Skipped(reason)) => skipped.push(format!("{description}: {reason}")),
            Err(error) => failed.push(format!("{description}: {error}")),
        }
    }
    for skipped in &skipped {
        eprintln!("skipped: {name}: {skipped}");
    }
    if !failed.is_empty() {
        return Err(Failed::from(failed.join("\n")));
    }
    if passed == 0 && skipped.is_empty() {
        return Err(Failed::from("no test in it"));
    }
    Ok(if passed == 0 { Completion::ignored_with(skipped.join("; ")) } else { Completion::Completed })
}
