//! Our own scenarios of the client, `scenarios/client.json`: operations with fail points, and the
//! results, errors and command events that must follow. Each runs against a fake deployment, and
//! against genuine servers (`MONGOD`): a few of the behaviours that the official tests (`unified.rs`)
//! check on genuine servers only, and some that they do not check.
//!
//! `scenarios/file.rs` has the format.
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

use alloc::sync::Arc;
use deployment::{Deployment, Genuine};
use file::Scenario;
use poolhouse_tests::mongod;
use poolhouse_tests::suite::{Suite, as_one};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

fn main() -> ExitCode {
    as_one(all)
}

fn all() -> ExitCode {
    let mut suite = Suite::new("scenarios").case("file_with_an_unknown_field_is_refused", strict);
    let scenarios = match read() {
        Ok(scenarios) => scenarios,
        Err(error) => return suite.case("client.json", move || Err::<(), _>(error)).run(),
    };
    let genuine: Arc<Mutex<Option<Genuine>>> = Arc::default();
    let missing = mongod::available().err();
    for scenario in scenarios.into_iter().map(Arc::new) {
        let (on_fake, on_mongod) = (format!("fake::{}", scenario.name), format!("mongod::{}", scenario.name));
        suite = suite.case(on_fake, {
            let scenario = Arc::clone(&scenario);
            move || run::scenario(&scenario, &Deployment::fake(&scenario)?)
        });
        suite = with_mongod(suite, on_mongod, missing.as_deref(), &genuine, move |genuine| {
            run::scenario(&scenario, &Deployment::genuine(&scenario, genuine)?)
        });
    }
    suite = with_mongod(suite, "mongod::cookbook_of_the_guide".to_owned(), missing.as_deref(), &genuine, |genuine| {
        run::cookbook(&Deployment::genuine_set(genuine)?)
    });
    let status = suite.run();
    // The processes of the servers end here.
    drop(genuine.lock().unwrap_or_else(PoisonError::into_inner).take());
    status
}

/// Adds a case on genuine servers. Fail points are global to a server, so one runs at a time.
fn with_mongod(
    suite: Suite,
    name: String,
    missing: Option<&str>,
    genuine: &Arc<Mutex<Option<Genuine>>>,
    case: impl FnOnce(&mut Option<Genuine>) -> Result<(), String> + Send + 'static,
) -> Suite {
    let genuine = Arc::clone(genuine);
    match missing {
        Some(reason) => suite.missing(name, reason),
        None => suite.case(name, move || case(&mut genuine.lock().unwrap_or_else(PoisonError::into_inner))),
    }
}

fn read() -> Result<Vec<Scenario>, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/client.json");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let document = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    file::scenarios(document).map_err(|error| format!("{}: {error}", path.display()))
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
        step(bson::doc! { "read": { "find": "c" }, "batch_sizes": 1 }),
        step(bson::doc! { "sleep": 1 }),
    ];
    for file in wrong {
        if file::scenarios(file.clone()).is_ok() {
            return Err(format!("this file was accepted: {file}"));
        }
    }
    Ok(())
}
