//! The official tests in the unified format, on genuine servers (`MONGOD`): a server, a replica set of
//! three, and relays that look like two routers and like a load balancer (`unified/router.rs`). Without
//! `MONGOD`, those tests that fake servers serve run on these.
//!
//! `POOLHOUSE_SPEC_DIR` names the folders of the tests. A case is named
//! `topology::folder/file::description`; a filter selects by any part of it:
//! `cargo test --test unified -- retryable-writes`. The table at the end counts each test once, with its worst
//! verdict. Operations are the commands that their specifications prescribe: the client has no collections yet.
//! The commands that the relays see are compared with the events; those to a server or a set have no relay.
//!
//! A test that needs an API that is missing, or that the runner does not know, is unsupported, and never
//! passes. `unified.json` has names of tests, `folder/file` or `folder/file::description`, which must exist if
//! there are tests of their folder:
//!
//! - `fails`: those that fail, with the reason and a part of the difference;
//! - `not_on_fakes`: what the fake servers do differently;
//! - `proves`: those that prove a requirement of `requirements.toml`.
#![forbid(unsafe_code)]
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "all other values, events and errors are compared or refused alike"
)]

extern crate alloc;

#[path = "unified/bulk.rs"]
mod bulk;
#[path = "capture/spans.rs"]
mod captured;
#[path = "unified/deployment.rs"]
mod deployment;
#[path = "unified/error.rs"]
mod error;
#[path = "unified/events.rs"]
mod events;
#[path = "capture/fields.rs"]
mod fields;
#[path = "unified/logs.rs"]
mod logs;
#[path = "unified/matching.rs"]
mod matching;
#[path = "capture/messages.rs"]
mod messages;
#[path = "unified/operations.rs"]
mod operations;
#[path = "unified/router.rs"]
mod router;
#[path = "unified/run.rs"]
mod run;
#[path = "unified/spans.rs"]
mod spans;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use bson::{Bson, Document};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use deployment::{Deployment, Shared, Topology};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use poolhouse_tests::suite::as_one;
use poolhouse_tests::{mongod, spec};
use run::Verdict;
use std::env;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Instant;

/// The versions of the format that the runner knows: `1.0` to this one.
const VERSION_MAX: (u32, u32) = (1, 29);

/// How many tests run at once on genuine servers. Most of them wait.
const THREADS: usize = 20;

/// How many tests run at once on fake servers.
const THREADS_OF_FAKES: usize = 12;

/// How many deployments of each kind there are.
const DEPLOYMENTS: usize = 6;

/// How often a test is repeated at most whose time the machine has taken.
const REPEATS_MAX: usize = 5;

/// The number of the repetitions, the last ones, that run while no other test does.
const REPEATS_ALONE: usize = 3;

/// Locked by each test: for itself alone by a repetition that other tests would make late again.
static RUNNING: RwLock<()> = RwLock::new(());

/// How often tests were repeated.
static REPEATED: AtomicUsize = AtomicUsize::new(0);

/// When the machine, or the executor of the clients, was late.
static LATE: Late = Late(Mutex::new(None));

/// The time in which some thread of the machine was ready and had no processor, since the system was
/// started: the servers are late, too, and [`LATE`] does not see them. `None` if the system does not count it.
fn time_without_processor() -> Option<Duration> {
    let counted = fs::read_to_string("/proc/pressure/cpu").ok()?;
    let total = counted.lines().find(|line| line.starts_with("some"))?.rsplit_once("total=")?.1;
    total.trim().parse().ok().map(Duration::from_micros)
}

struct Late(Mutex<Option<(Instant, Duration)>>);

impl Late {
    const TICK: Duration = Duration::from_millis(5);

    /// Measures for as long as the process lives.
    async fn watch(&self) -> ! {
        loop {
            let due = Instant::now() + Self::TICK;
            smol::Timer::at(due).await;
            let late = due.elapsed();
            if late > Self::TICK {
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((due, late));
            }
        }
    }

    /// How late the machine was at last, if that was after this time.
    fn since(&self, begun: Instant) -> Option<Duration> {
        let late = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        late.filter(|(at, _)| *at > begun).map(|(_, late)| late)
    }
}

/// The reason why a folder of official files is not run.
const LEFT_OUT: [(&str, &str); 3] = [
    ("gridfs", "GridFS is not planned"),
    ("client-side-encryption", "encryption is not planned"),
    ("unified-test-format/tests/invalid", "its files violate the format"),
];

/// A folder with tests that must not pass.
const MUST_FAIL: &str = "unified-test-format/tests/valid-fail";

/// The worst verdict of each test, by folder and name.
type Verdicts = Arc<Mutex<BTreeMap<(String, String), Verdict>>>;

/// What `unified.json` lists.
struct Listed {
    /// The tests that fail.
    fails: Vec<Known>,
    /// What the fake servers cannot serve.
    not_on_fakes: Vec<Known>,
    /// The names of those that prove a requirement.
    proofs: Vec<String>,
}

struct Known {
    /// `folder/file::description`, or `folder/file`: all of its tests.
    name: String,
    /// The kind of servers, if it fails on one kind only.
    on: Option<String>,
    because: String,
    /// Of a test that fails: each of its differences has one of these texts.
    errors: Vec<String>,
    /// It also passes at times.
    is_unsteady: bool,
}

struct Test {
    folder: String,
    file: String,
    description: String,
    document: Arc<Document>,
    index: usize,
}

fn main() -> ExitCode {
    as_one(all)
}

fn all() -> ExitCode {
    let mut arguments = Arguments::from_args();
    messages::install();
    let is_ci = env::var("CI").is_ok_and(|ci| ci == "true");
    let missing = mongod::available().err();
    let threads = if missing.is_some() { THREADS_OF_FAKES } else { THREADS };
    arguments.test_threads = arguments.test_threads.or(Some(threads));
    let listed = match listed() {
        Ok(listed) => Arc::new(listed),
        Err(error) => return libtest_mimic::run(&arguments, vec![failing("unified.json", error)]).exit_code(),
    };
    smol::spawn(async { LATE.watch().await }).detach();
    // Without servers, those tests run that the fake ones serve.
    let is_fake = missing.is_some();
    let shared = Topology::ALL.map(|topology| Shared::new(topology, is_fake, DEPLOYMENTS));
    let shared: Arc<Vec<_>> = Arc::new(shared.into());
    let verdicts = Verdicts::default();
    let mut trials = Vec::new();
    match tests() {
        Ok((tests, unreadable)) => {
            trials.extend(unreadable);
            let unknown = unknown(&tests, &listed);
            trials.push(Trial::test("unified.json_names_tests", move || unknown.map_err(Failed::from)));
            for test in tests {
                add(test, &shared, &verdicts, &listed, &mut trials);
            }
            if let Some(reason) = missing {
                eprintln!("skipped: unified suite on genuine servers: {reason}");
                trials.push(left_out(
                    "genuine".to_owned(),
                    reason,
                    is_ci && env::var_os(mongod::MONGOD_MISSING).is_some(),
                ));
            }
        }
        Err(reason) => {
            eprintln!("skipped: unified suite: {reason}");
            // A folder with some of the official suites may lack these.
            trials.push(left_out("all".to_owned(), reason, is_ci && spec::is_checkout()));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        table(&verdicts.lock().unwrap_or_else(PoisonError::into_inner));
    }
    for shared in shared.iter() {
        shared.end();
    }
    conclusion.exit_code()
}

fn failing(name: &str, error: String) -> Trial {
    Trial::test(name, move || Err(Failed::from(error)))
}

fn left_out(name: String, reason: String, must_run: bool) -> Trial {
    Trial::ignorable_test(name, move || {
        if must_run {
            return Err(Failed::from(format!("not run, which is a failure with CI=true: {reason}")));
        }
        Ok(Completion::ignored_with(reason))
    })
}

/// The tests of all files in this format, and a failing case for each file that cannot be read.
fn tests() -> Result<(Vec<Test>, Vec<Trial>), String> {
    let (mut tests, mut unreadable) = (Vec::new(), Vec::new());
    let mut left_out_files: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    for (name, path) in spec::all_files().map_err(|reason| reason.to_string())? {
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        if !text.contains("\"schemaVersion\"") {
            continue;
        }
        if let Some((folder, reason)) = LEFT_OUT.iter().find(|(folder, _)| name.starts_with(folder)) {
            left_out_files.entry(*folder).or_insert((*reason, 0)).1 += 1;
            continue;
        }
        let document: Document = match serde_json::from_str(&text) {
            Ok(document) => document,
            Err(error) => {
                unreadable.push(failing(&name, error.to_string()));
                continue;
            }
        };
        let document = Arc::new(document);
        let (folder, file) = name.rsplit_once('/').unwrap_or(("", &name));
        for (index, test) in run::documents(&document, "tests").enumerate() {
            tests.push(Test {
                folder: folder.to_owned(),
                file: file.to_owned(),
                description: test.get_str("description").unwrap_or_default().to_owned(),
                document: Arc::clone(&document),
                index,
            });
        }
    }
    for (folder, (reason, files)) in left_out_files {
        eprintln!("skipped: unified/{folder}: {files} files: {reason}");
    }
    if tests.is_empty() && unreadable.is_empty() {
        return Err("no folder has unified tests".to_owned());
    }
    Ok((tests, unreadable))
}

/// Adds a case for each kind of servers that the test may run on.
fn add(test: Test, shared: &Arc<Vec<Shared>>, verdicts: &Verdicts, listed: &Arc<Listed>, trials: &mut Vec<Trial>) {
    let test = Arc::new(test);
    let key = (test.folder.clone(), format!("{}::{}", test.file, test.description));
    let topologies: Vec<_> =
        Topology::ALL.into_iter().enumerate().filter(|(_, topology)| test.is_for(*topology)).collect();
    if topologies.is_empty() {
        let reason = "no such servers".to_owned();
        note(verdicts, &key, Verdict::Skipped(reason.clone()));
        let name = format!("none::{}/{}", key.0, key.1);
        trials.push(left_out(name, reason, false));
    }
    for (index, topology) in topologies {
        let name = format!("{}::{}/{}", topology.name(), key.0, key.1);
        let (test, shared, verdicts) = (Arc::clone(&test), Arc::clone(shared), Arc::clone(verdicts));
        let (listed, key) = (Arc::clone(listed), key.clone());
        trials.push(Trial::ignorable_test(name, move || {
            let is_fake = shared[index].is_fake;
            let unserved = listed.not_on_fakes.iter().find(|known| is_fake && test.is(&known.name));
            let mut verdict = match unserved {
                Some(known) => Verdict::Skipped(format!("the fake servers do not serve it: {}", known.because)),
                None => test.run_on(&shared[index])?,
            };
            if test.folder == MUST_FAIL {
                verdict = match verdict {
                    Verdict::Passed | Verdict::Partial(_) => {
                        Verdict::Failed(vec!["it passed, but must not".to_owned()])
                    }
                    Verdict::Failed(errors) if !errors.iter().any(|error| is_of_runner(error)) => Verdict::Passed,
                    other => other,
                };
            }
            note(&verdicts, &key, verdict.clone());
            let is_here = |known: &&Known| known.on.as_deref().is_none_or(|on| on == topology.name());
            let known = listed.fails.iter().filter(is_here).find(|known| test.is(&known.name));
            match (verdict, known) {
                (Verdict::Failed(errors), Some(known)) if known.has_all(&errors) => {
                    Ok(Completion::ignored_with(format!("fails: {}", known.because)))
                }
                (Verdict::Passed | Verdict::Partial(_), Some(known)) if !known.is_unsteady => {
                    Err(Failed::from("it passes, but unified.json says that it fails"))
                }
                (Verdict::Passed, _) => Ok(Completion::Completed),
                (Verdict::Partial(what), _) => Ok(Completion::ignored_with(format!("passed, but for {what}"))),
                (Verdict::Unsupported(what), _) => Ok(Completion::ignored_with(format!("unsupported: {what}"))),
                (Verdict::Skipped(why), _) => Ok(Completion::ignored_with(why)),
                (Verdict::Failed(errors), _) => Err(Failed::from(errors.join("\n  "))),
            }
        }));
    }
}

fn note(verdicts: &Verdicts, key: &(String, String), verdict: Verdict) {
    let mut verdicts = verdicts.lock().unwrap_or_else(PoisonError::into_inner);
    let worst = verdicts.entry(key.clone()).or_insert_with(|| verdict.clone());
    if verdict > *worst {
        *worst = verdict;
    }
}

impl Test {
    /// Whether this is its name, or that of its file.
    fn is(&self, name: &str) -> bool {
        let rest = name.strip_prefix(&self.folder).and_then(|rest| rest.strip_prefix('/'));
        let rest = rest.and_then(|rest| rest.strip_prefix(&self.file));
        rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix("::") == Some(&self.description))
    }

    fn document(&self) -> &Document {
        run::documents(&self.document, "tests").nth(self.index).unwrap_or(&self.document)
    }

    /// Whether file and test allow these servers, apart from their release.
    fn is_for(&self, topology: Topology) -> bool {
        let of_topology = |requirement: &Document| match requirement.get_array("topologies") {
            Ok(names) => names.iter().filter_map(Bson::as_str).any(|name| topology.is_named(name)),
            Err(_) => true,
        };
        [&*self.document, self.document()].into_iter().all(|part| {
            let mut requirements = run::documents(part, "runOnRequirements").peekable();
            requirements.peek().is_none() || requirements.any(of_topology)
        })
    }

    /// Runs the test. One that measures time is repeated if it fails while the machine is late, at last
    /// alone: some of these tests leave the client 15 ms, and a handshake 250 ms.
    fn run_on(&self, shared: &Shared) -> Result<Verdict, String> {
        let mut left = REPEATS_MAX;
        loop {
            let is_alone = left < REPEATS_ALONE;
            let alone = is_alone.then(|| RUNNING.write().unwrap_or_else(PoisonError::into_inner));
            let among_others = (!is_alone).then(|| RUNNING.read().unwrap_or_else(PoisonError::into_inner));
            let (begun, before) = (Instant::now(), time_without_processor());
            let verdict = shared.with(|deployment| self.run(deployment));
            drop((alone, among_others));
            let verdict = verdict?;
            let Verdict::Failed(errors) = &verdict else { return Ok(verdict) };
            let file = self.document.to_string();
            let is_timed = ["blockTimeMS", "connectTimeoutMS", "timeoutMS"].iter().any(|name| file.contains(name));
            let waited = before.zip(time_without_processor()).map(|(before, after)| after.saturating_sub(before));
            // A tenth of the time is much on a machine that does little else.
            let is_much = |waited: &Duration| *waited > Late::TICK && *waited > begun.elapsed() / 10;
            let late = LATE.since(begun).or(waited.filter(is_much));
            let Some(late) = late.filter(|_| is_timed && left > 0) else { return Ok(verdict) };
            left -= 1;
            println!("repeated, since the machine was {late:?} late: {}: {}", self.description, errors.join("; "));
            REPEATED.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn run(&self, deployment: Arc<Deployment>) -> Verdict {
        let version = self.document.get_str("schemaVersion").unwrap_or_default();
        if !is_known(version) {
            return Verdict::Unsupported(format!("version {version} of the format"));
        }
        for part in [&*self.document, self.document()] {
            if let Ok(reason) = part.get_str("skipReason") {
                return Verdict::Skipped(reason.to_owned());
            }
            let unmet: Vec<_> =
                run::documents(part, "runOnRequirements").map(|requirement| unmet(requirement, &deployment)).collect();
            if !unmet.is_empty() && unmet.iter().all(Option::is_some) {
                let reasons: Vec<_> = unmet.into_iter().flatten().collect();
                return Verdict::Skipped(reasons.join("; "));
            }
        }
        if deployment.is_fake() && deployment.topology() == Topology::LoadBalanced && self.has_user() {
            return Verdict::Skipped("the fake load balancer has no users".to_owned());
        }
        run::test(&self.document, self.document(), self.has_user(), deployment)
    }

    /// Whether file or test require that clients authenticate.
    fn has_user(&self) -> bool {
        let parts = [&*self.document, self.document()];
        let mut requirements = parts.into_iter().flat_map(|part| run::documents(part, "runOnRequirements"));
        requirements.any(|requirement| requirement.get_bool("auth").unwrap_or(false))
    }
}

/// Whether an error is not of the test, but of the servers or the time.
fn is_of_runner(error: &str) -> bool {
    ["the runner: ", "no end in "].iter().any(|start| error.starts_with(start))
}

fn is_known(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    let (major, minor) = (parts.next().flatten(), parts.next().flatten());
    major == Some(VERSION_MAX.0) && minor.is_some_and(|minor| minor <= VERSION_MAX.1)
}

/// The reason why a deployment does not meet a requirement.
fn unmet(requirement: &Document, deployment: &Deployment) -> Option<String> {
    let version = |text: &str| text.split('.').filter_map(|part| part.parse().ok()).collect::<Vec<i64>>();
    for (name, value) in requirement {
        let text = value.as_str().unwrap_or_default();
        let is_met = match name.as_str() {
            "minServerVersion" => deployment.version >= version(text),
            "maxServerVersion" => {
                let max = version(text);
                deployment.version.iter().take(max.len()).copied().collect::<Vec<_>>() <= max
            }
            "topologies" => value
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Bson::as_str)
                .any(|name| deployment.topology().is_named(name)),
            "serverless" => text != "require",
            // Every deployment has a user, whom clients name if a test requires it.
            "auth" => true,
            "csfle" => value.as_bool() == Some(false),
            "serverParameters" => value.as_document().is_some_and(|wanted| deployment.has_parameters(wanted)),
            _ => false,
        };
        if !is_met {
            return Some(format!("it requires {name}: {value}"));
        }
    }
    None
}

fn listed() -> Result<Listed, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("unified.json");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let file: Document = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let texts = |texts: String| texts.split(" | ").map(str::to_owned).collect();
    let entries = |list: &'static str| {
        let entry = move |entry: &Document| {
            let need = |name: &str| {
                entry
                    .get_str(name)
                    .map(str::to_owned)
                    .map_err(|error| format!("unified.json: {name}: {error}: {entry}"))
            };
            Ok(Known {
                name: need("test")?,
                on: entry.get_str("on").ok().map(str::to_owned),
                because: need("because")?,
                errors: if list == "fails" { texts(need("errors")?) } else { Vec::new() },
                is_unsteady: entry.get_bool("unsteady").unwrap_or(false),
            })
        };
        run::documents(&file, list).map(entry).collect::<Result<Vec<_>, String>>()
    };
    let proofs = file.get_document("proves").map_err(|error| format!("unified.json: {error}"))?.values();
    let name = |name: &Bson| name.as_str().map(str::to_owned).ok_or_else(|| format!("unified.json: {name} is no name"));
    let proofs = proofs.flat_map(|names| names.as_array().into_iter().flatten()).map(name);
    Ok(Listed {
        fails: entries("fails")?,
        not_on_fakes: entries("not_on_fakes")?,
        proofs: proofs.collect::<Result<_, _>>()?,
    })
}

/// A name in `unified.json` without a test is an error, unless the official files lack its whole folder.
fn unknown(tests: &[Test], listed: &Listed) -> Result<(), String> {
    let folders: BTreeSet<_> = tests.iter().map(|test| test.folder.as_str()).collect();
    let is_unknown = |name: &&String| {
        let file = name.split("::").next().and_then(|file| file.rsplit_once('/'));
        file.is_none_or(|(folder, _)| folders.contains(folder)) && !tests.iter().any(|test| test.is(name))
    };
    let known = listed.fails.iter().chain(&listed.not_on_fakes).map(|known| &known.name);
    let unknown: Vec<_> = known.chain(&listed.proofs).filter(is_unknown).map(String::as_str).collect();
    if unknown.is_empty() { Ok(()) } else { Err(format!("no such tests: {}", unknown.join(", "))) }
}

impl Known {
    fn has_all(&self, errors: &[String]) -> bool {
        errors.iter().all(|error| self.errors.iter().any(|text| error.contains(text)))
    }
}

/// Prints the verdicts of each folder.
fn table(verdicts: &BTreeMap<(String, String), Verdict>) {
    let mut rows: BTreeMap<&str, [usize; 6]> = BTreeMap::new();
    for ((folder, _), verdict) in verdicts {
        let column = match verdict {
            Verdict::Passed => 1,
            Verdict::Partial(_) => 2,
            Verdict::Failed(_) => 3,
            Verdict::Unsupported(_) => 4,
            Verdict::Skipped(_) => 5,
        };
        for row in [folder.as_str(), "all"] {
            let counts = rows.entry(row).or_default();
            counts[0] += 1;
            counts[column] += 1;
        }
    }
    let all = rows.remove("all").into_iter().map(|counts| ("all", counts));
    println!(
        "{:58} {:>5} {:>5} {:>7} {:>5} {:>11} {:>7}",
        "", "tests", "pass", "partial", "fail", "unsupported", "skipped"
    );
    for (folder, [tests, pass, partial, fail, unsupported, skipped]) in rows.iter().map(|(a, b)| (*a, *b)).chain(all) {
        println!("unified: {folder:49} {tests:5} {pass:5} {partial:7} {fail:5} {unsupported:11} {skipped:7}");
    }
    println!("unified: {} repetitions, because the machine was late", REPEATED.load(Ordering::Relaxed));
}
