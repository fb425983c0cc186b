//! The official log message tests of pools, topologies and server selection: a case for each test, with the name
//! `file: description`. And our own scenarios in the same (unified) format: a case for each file.
//! Each case runs a real client against the fake server.
//!
//! A test of an official file that requires missing features (authentication, sessions, messages of
//! commands) is skipped by name and counts as ignored. Our own scenarios must run. The process has
//! one log subscriber, so cases run one after the other.
#![forbid(unsafe_code)]

extern crate alloc;

#[path = "logging/capture.rs"]
mod capture;
#[path = "logging/deployment.rs"]
mod deployment;
#[path = "logging/failover.rs"]
mod failover;
#[path = "logging/matching.rs"]
mod matching;
#[path = "logging/run.rs"]
mod run;

use alloc::sync::Arc;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use poolhouse_client::log::LogOptions;
use poolhouse_smol::bson::doc;
use poolhouse_smol::{Client, ClientOptions, Cursor, Error};
use poolhouse_tests::fake::FakeServer;
use poolhouse_tests::spec;
use run::Outcome;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// Folders of official files, and the prefixes of those that concern log messages.
const FOLDERS: [(&str, &str); 3] = [
    ("connection-monitoring-and-pooling/tests/logging", ""),
    ("server-discovery-and-monitoring/tests/unified", "logging-"),
    ("server-selection/tests/logging", ""),
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
                trials.extend(wanted.flat_map(|(name, path)| official(&name, &path)));
            }
            // A checkout of the specifications has these files, and with CI=true they must run. A
            // selection of the official files may lack them. Then the folder is an ignored case
            // with its name, and our own scenarios test the same messages.
            Err(reason) => {
                let reason = reason.to_string();
                if !arguments.list {
                    eprintln!("skipped: logging/{folder}: {reason}");
                }
                let must_run = spec::is_checkout() && std::env::var("CI").is_ok_and(|ci| ci == "true");
                trials.push(Trial::ignorable_test(folder, move || {
                    if must_run {
                        return Err(Failed::from(format!("not run, which is a failure with CI=true: {reason}")));
                    }
                    Ok(Completion::ignored_with(reason))
                }));
            }
        }
    }
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    match spec::files_in(&own, "logging") {
        Ok(files) => {
            trials.extend(files.into_iter().map(|(name, path)| {
                let trial = format!("own::{name}");
                Trial::test(trial, move || run_own(&path))
            }));
        }
        Err(reason) => trials.push(Trial::test("own", move || Err(Failed::from(reason.to_string())))),
    }
    trials.push(Trial::test("own::relaxed_tls_is_a_warning", relaxed_tls));
    trials.push(Trial::test("own::security_4_warnings_of_a_connection_string_are_logged", ignored_options));
    trials.push(Trial::test("own::cursor_that_run_command_leaves_open_is_a_warning_once", open_cursor));
    let shows = arguments.nocapture;
    trials.push(Trial::test("own::visible_failures_killed_primary_is_reported_once", move || {
        failover::killed_primary(shows)
    }));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Every disabled TLS check is logged as a warning.
fn relaxed_tls() -> Result<(), Failed> {
    for (option, expected) in [("tlsInsecure", 1), ("tlsAllowInvalidHostnames", 1), ("tls", 0)] {
        capture::clear();
        let uri = format!("mongodb://127.0.0.1:1/?{option}=true");
        let Ok(client) = smol::block_on(poolhouse_smol::Client::new(&uri)) else {
            // Only without authorities of the platform, where nothing can be verified.
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

/// `run_command` returns the first batch only, which its caller may take for all documents.
fn open_cursor() -> Result<(), Failed> {
    let server = FakeServer::start(Default::default()).map_err(|error| error.to_string())?;
    let client = smol::block_on(Client::new(&server.uri())).expect("a client");
    let warnings = || capture::taken().into_iter().filter(|message| message.level == "warn").collect::<Vec<_>>();
    let find = |size: i32| doc! { "find": "c", "batchSize": size };
    let outcome: Result<_, Error> = smol::block_on(async {
        let db = client.database("db");
        db.run_command(doc! { "insert": "c", "documents": [{}, {}, {}] }).await?;
        capture::clear();
        db.run_command(find(3)).await?;
        let mut cursor: Cursor = db.run_cursor_command(find(1)).await?;
        while cursor.try_next().await?.is_some() {}
        assert_eq!(warnings().len(), 0);
        db.run_command(find(1)).await?;
        db.run_command(find(1)).await?;
        Ok(())
    });
    outcome.map_err(|error| error.to_string())?;
    let [warning] = &warnings()[..] else { return Err("not one warning".into()) };
    let text = warning.data["message"].to_string();
    assert!(warning.component == "command" && text.contains("run_cursor_command returns all"), "{text}");
    smol::block_on(client.close());
    Ok(())
}

/// Every constructor of a client logs the options that are ignored or have no effect.
fn ignored_options() -> Result<(), Failed> {
    let uri = "mongodb://127.0.0.1:1/?foo=shop&retryReads=yes&w=majority";
    let parse = || ClientOptions::parse(uri).expect("unknown options are left out");
    let makers: [fn(&str, ClientOptions) -> Client; 3] = [
        |uri, _| smol::block_on(Client::new(uri)).expect("a client"),
        |_, options| Client::with_options(options).expect("a client"),
        |_, options| Client::new_subscribed(options).expect("a client").0,
    ];
    let client = Client::with_options(parse()).expect("a client");
    let expected: Vec<_> = client.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(expected.len(), 3, "{expected:?}");
    smol::block_on(client.close());
    let taken = |client: Client| {
        smol::block_on(client.close());
        capture::taken()
    };
    for make in makers {
        capture::clear();
        let mut messages = taken(make(uri, parse()));
        messages.retain(|message| message.level == "warn" && message.component == "connection");
        let warnings: Vec<_> = messages.iter().map(|message| &message.data["message"]).collect();
        assert_eq!(warnings, expected.iter().collect::<Vec<_>>());
    }
    let mut options = parse();
    options.log = LogOptions::OFF;
    capture::clear();
    let messages = taken(Client::with_options(options).expect("a client"));
    assert!(messages.is_empty(), "{messages:?}");
    Ok(())
}

fn read(path: &Path) -> Result<Value, Failed> {
    let text = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?)
}

fn tests(file: &Value) -> impl Iterator<Item = &Value> {
    file["tests"].as_array().into_iter().flatten()
}

/// A case for each test of an official file. A test may require features that this driver lacks.
fn official(name: &str, path: &Path) -> Vec<Trial> {
    let file = match read(path) {
        Ok(file) if tests(&file).next().is_some() => Arc::new(file),
        Ok(_) => return vec![Trial::test(name, || Err(Failed::from("the file has no test")))],
        Err(error) => return vec![Trial::test(name, move || Err(error))],
    };
    let trial = |(place, test): (usize, &Value)| {
        let name = format!("{name}: {}", test["description"].as_str().unwrap_or_default());
        let file = Arc::clone(&file);
        Trial::ignorable_test(name.clone(), move || match run::test(&file, &file["tests"][place])? {
            Outcome::Passed => Ok(Completion::Completed),
            Outcome::Skipped(reason) => {
                eprintln!("skipped: {name}: {reason}");
                Ok(Completion::ignored_with(reason))
            }
        })
    };
    tests(&file).enumerate().map(trial).collect()
}

/// Runs all tests of one of our own scenarios. Each test must run.
fn run_own(path: &Path) -> Result<(), Failed> {
    let file = read(path)?;
    let mut failed = Vec::new();
    for test in tests(&file) {
        let description = test["description"].as_str().unwrap_or_default();
        match run::test(&file, test) {
            Ok(Outcome::Passed) => {}
            Ok(Outcome::Skipped(reason)) => {
                failed.push(format!("{description}: it must run, and does not: {reason}"));
            }
            Err(error) => failed.push(format!("{description}: {error}")),
        }
    }
    if tests(&file).next().is_none() {
        failed.push("the file has no test".to_owned());
    }
    if failed.is_empty() { Ok(()) } else { Err(Failed::from(failed.join("\n"))) }
}
