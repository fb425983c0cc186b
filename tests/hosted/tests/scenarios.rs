//! Our own scenarios of the client, `scenarios/client/*.json`: operations with fail points, and the
//! results, errors and command events that must follow. Each runs against a fake deployment, and
//! against genuine servers (`MONGOD`).
//!
//! `scenarios/file.rs` has the format. A scenario that can run on one kind of server only states
//! the reason, and is skipped by name on the other.
#![forbid(unsafe_code)]

extern crate alloc;

mod cookbook {
    //! The code of the guide `cookbook`.
    include!(concat!(env!("OUT_DIR"), "/cookbook.rs"));

    pub(crate) async fn all(client: &Client) -> Outcome {
        writes(client).await?;
        reads(client).await?;
        changes(client).await?;
        transactions(client).await?;
        collections(client).await?;
        server(client).await
    }
}
#[path = "scenarios/deployment.rs"]
mod deployment;
#[path = "scenarios/events.rs"]
mod events;
#[path = "scenarios/file.rs"]
mod file;
#[path = "scenarios/matching.rs"]
mod matching;
#[path = "scenarios/run.rs"]
mod run;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use deployment::{Deployment, Genuine};
use file::{Scenario, Servers};
use poolhouse_tests::suite::{Suite, as_one};
use poolhouse_tests::{mongod, spec};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

/// The minimum number of scenarios of each part.
const SCENARIOS_MIN: usize = 8;

fn main() -> ExitCode {
    as_one(all)
}

fn all() -> ExitCode {
    let mut suite = Suite::new("scenarios");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let parts = match spec::files_in(&folder, "client") {
        Ok(files) => files.into_iter().map(|(name, path)| (name, read(&path))).collect::<Vec<_>>(),
        Err(reason) => return suite.case("files", move || Err::<(), _>(reason.to_string())).run(),
    };
    let genuine: Arc<Mutex<Option<Genuine>>> = Arc::default();
    let missing = mongod::available().err();
    let mut counts = BTreeMap::new();
    for (name, scenarios) in parts {
        let scenarios = match scenarios {
            Ok(scenarios) => scenarios,
            Err(error) => {
                suite = suite.case(name, move || Err::<(), _>(error));
                continue;
            }
        };
        counts.insert(name.clone(), scenarios.len());
        for scenario in scenarios.into_iter().map(Arc::new) {
            let on_fake = format!("fake::{name}::{}", scenario.name);
            suite = match scenario.skipped_on(Servers::Fake) {
                Some(reason) => suite.left_out(on_fake, reason),
                None => {
                    let scenario = Arc::clone(&scenario);
                    suite.case(on_fake, move || run::scenario(&scenario, &Deployment::fake(&scenario)?))
                }
            };
            let on_mongod = format!("mongod::{name}::{}", scenario.name);
            suite = match (scenario.skipped_on(Servers::Mongod), &missing) {
                (Some(reason), _) => suite.left_out(on_mongod, reason),
                (None, Some(reason)) => suite.missing(on_mongod, reason),
                (None, None) => {
                    let genuine = Arc::clone(&genuine);
                    suite.case(on_mongod, move || {
                        // Fail points are global to a server, so one scenario runs at a time.
                        let mut genuine = genuine.lock().unwrap_or_else(PoisonError::into_inner);
                        run::scenario(&scenario, &Deployment::genuine(&scenario, &mut genuine)?)
                    })
                }
            };
        }
    }
    suite = suite.case("file_with_an_unknown_field_is_refused", strict);
    let name = "mongod::cookbook_of_the_guide";
    suite = match missing {
        Some(reason) => suite.missing(name, reason),
        None => {
            let genuine = Arc::clone(&genuine);
            suite.case(name, move || {
                let mut genuine = genuine.lock().unwrap_or_else(PoisonError::into_inner);
                run::cookbook(&Deployment::genuine_set(&mut genuine)?)
            })
        }
    };
    let status = suite.case("each_part_has_scenarios", move || enough(&counts)).run();
    // The processes of the servers end here.
    drop(genuine.lock().unwrap_or_else(PoisonError::into_inner).take());
    status
}

fn read(path: &PathBuf) -> Result<Vec<Scenario>, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let document = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    file::scenarios(document).map_err(|error| format!("{}: {error}", path.display()))
}

/// Prints the number of scenarios of each part.
fn enough(counts: &BTreeMap<String, usize>) -> Result<(), String> {
    println!("scenarios: {counts:?}, {} in total", counts.values().sum::<usize>());
    match counts.iter().find(|(_, count)| **count < SCENARIOS_MIN) {
        _ if counts.is_empty() => Err("no part was found".to_owned()),
        Some((part, count)) => Err(format!("{part} has {count} scenarios, fewer than {SCENARIOS_MIN}")),
        None => Ok(()),
    }
}

/// A misspelt field must not make a scenario check less. So must not a scenario without checks.
fn strict() -> Result<(), String> {
    let step = |step: bson::Document| bson::doc! { "scenarios": [{ "name": "it", "steps": [step], "outcome": [] }] };
    file::scenarios(step(bson::doc! { "run": { "ping": 1 } }))?;
    let wrong = [
        bson::doc! { "scenarios": [], "parts": 1 },
        bson::doc! { "scenarios": [{ "name": "it", "steps": [{ "run": { "ping": 1 } }] }] },
        bson::doc! { "scenarios": [{ "name": "it", "outcomes": [], "steps": [{ "run": { "ping": 1 } }], "outcome": [] }] },
        step(bson::doc! { "run": { "ping": 1 }, "expects": {} }),
        step(bson::doc! { "run": { "ping": 1 }, "error": { "codes": 1 } }),
        step(bson::doc! { "run": { "ping": 1 }, "options": { "retries": false } }),
        step(bson::doc! { "sleep": 1 }),
        step(bson::doc! { "reply": { "ok": 1 }, "command": "ping" }),
    ];
    for file in wrong {
        if file::scenarios(file.clone()).is_ok() {
            return Err(format!("this file was accepted: {file}"));
        }
    }
    Ok(())
}
