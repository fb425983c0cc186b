//! The program `poolhouse-watch`, in a separate process, against genuine servers.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

use poolhouse_tests::figures;
use poolhouse_tests::mongod::{Mongod, MongodOptions, MongodReplicaSet};
use poolhouse_tests::suite::Suite;
use poolhouse_tests::tls::Folder;
use serde_json::{Value, json};
use smol::unblock;

use super::{Outcome, run};

/// Tolerance beyond the given time, on a busy machine.
const SLACK: Duration = Duration::from_secs(60);
/// Factor of the time of the second run, if the first was too short.
const LONGER: u64 = 5;
/// The number of runs that were repeated.
static AGAIN: AtomicU32 = AtomicU32::new(0);

pub(super) fn cases(suite: Suite) -> Suite {
    suite
        .case("watch_heeds_the_connection_string", || program().and_then(|_| run(applies_the_connection_string())))
        .case("watch_shows_every_member_of_a_set", || program().and_then(|_| run(shows_every_member_of_a_set())))
}

async fn applies_the_connection_string() -> Outcome {
    let mongod = unblock(|| Mongod::start(MongodOptions::default())).await?;
    let address = mongod.address().to_string();
    let most = |shown: &Shown| shown.rows(&address).map(|row| row.connections).max().unwrap_or(0);

    // More than the program's own maximum.
    let uri = format!("{}/?minPoolSize=20&noSuchOption=1", mongod.uri());
    let shown = watch_until(&uri, 6, |shown| most(shown) >= 20).await?;
    assert!(shown.0.contains("warning: noSuchOption: unknown option"), "{}", shown.0);
    assert!(shown.rows(&address).any(|row| row.server_type == "Standalone"), "{}", shown.0);
    assert!(most(&shown) >= 20, "{}", shown.0);

    let options = "maxPoolSize=3&timeoutMS=20000&heartbeatFrequencyMS=500&appName=other";
    let shown = watch_until(&format!("{}/?{options}", mongod.uri()), 3, |shown| most(shown) >= 3).await?;
    assert!(!shown.0.contains("warning:"), "{}", shown.0);
    // Each of the eight tasks requests a connection.
    assert_eq!(most(&shown), 3, "{}", shown.0);
    Ok(())
}

async fn shows_every_member_of_a_set() -> Outcome {
    let set = unblock(|| MongodReplicaSet::start(3)).await?;
    let shown = watch_until(&set.uri(), 4, |shown| shown.is_of(&set).is_ok()).await?;
    shown.is_of(&set)?;
    drop(set);
    Ok(())
}

/// The output of the program.
pub(super) struct Shown(pub(super) String);

/// A server in an output line.
struct Row<'s> {
    server_type: &'s str,
    /// The number of connections in use.
    connections: u32,
}

impl Shown {
    /// The rows of a server, in order.
    fn rows(&self, address: &str) -> impl Iterator<Item = Row<'_>> {
        self.0.lines().flat_map(|line| line.split(" | ").skip(1)).filter_map(move |server| {
            let [first, server_type, counts] = server.split(' ').collect::<Vec<_>>()[..] else { return None };
            let mut counts = counts.split('/').map(str::parse::<u32>);
            let (in_use, available) = (counts.next()?.ok()?, counts.next()?.ok()?);
            (first == address).then_some(Row { server_type, connections: in_use + available })
        })
    }

    /// Checks that the last rows of all members have their actual types.
    pub(super) fn is_of(&self, set: &MongodReplicaSet) -> Outcome {
        let mut types = Vec::new();
        for member in 0..set.members_count() {
            let row = self.rows(&set.member(member).address().to_string()).last();
            types.push(row.ok_or_else(|| format!("member {member} is missing: {}", self.0))?.server_type);
        }
        types.sort_unstable();
        if types != ["RSPrimary", "RSSecondary", "RSSecondary"] {
            return Err(format!("{types:?}: {}", self.0).into());
        }
        Ok(())
    }
}

/// Runs the program for this number of seconds. Returns its output if it succeeded.
pub(super) async fn watch(uri: String, seconds: u64) -> Result<Shown, String> {
    let (status, shown) = run_for(uri, seconds).await?;
    if status.success() { Ok(shown) } else { Err(format!("{status}: {}", shown.0)) }
}

/// As [`watch`]; runs the program once more, for longer, if its output is not enough. A run that
/// does not end well is an error.
///
/// The program ends after a fixed time, so on a busy machine its output may be too short. A second
/// run is printed and counted.
pub(super) async fn watch_until(uri: &str, seconds: u64, is_enough: impl Fn(&Shown) -> bool) -> Result<Shown, String> {
    let shown = watch(uri.to_owned(), seconds).await?;
    if is_enough(&shown) {
        return Ok(shown);
    }
    let count = AGAIN.fetch_add(1, Ordering::Relaxed) + 1;
    eprintln!(
        "watch: the output after {seconds} s is too short, run again (repetition {count} in this process): {}",
        shown.0
    );
    figures::record("watch", &json!({ "again": count }));
    watch(uri.to_owned(), seconds * LONGER).await
}

/// Runs the program for this number of seconds. Returns its exit status and its output.
pub(super) async fn run_for(uri: String, seconds: u64) -> Result<(ExitStatus, Shown), String> {
    unblock(move || {
        let folder = Folder::new();
        let path = folder.path().join("output");
        let output = File::create(&path).map_err(|error| error.to_string())?;
        let errors = output.try_clone().map_err(|error| error.to_string())?;
        let mut child = Command::new(program()?)
            .args([uri.as_str(), "--tasks", "8", "--seconds", &seconds.to_string()])
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(|error| format!("the program does not start: {error}"))?;
        let limit = Instant::now() + Duration::from_secs(seconds) + SLACK;
        let ended = loop {
            match child.try_wait().map_err(|error| error.to_string())? {
                Some(status) => break Ok(status),
                None if Instant::now() >= limit => {
                    // It may just have ended; in both cases it is gone afterwards.
                    let _ = child.kill();
                    let _ = child.wait();
                    break Err("it hangs".to_owned());
                }
                None => std::thread::sleep(Duration::from_millis(50)),
            }
        };
        let shown = fs::read_to_string(&path).map_err(|error| error.to_string())?;
        let status = ended.map_err(|error| format!("{error}: {shown}"))?;
        Ok((status, Shown(shown)))
    })
    .await
}

/// The path of the program, which cargo builds if necessary. That may take a while, so the first
/// caller should not be a case with a limit.
pub(super) fn program() -> Result<&'static Path, String> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PROGRAM.get_or_init(build).as_deref().map_err(Clone::clone)
}

fn build() -> Result<PathBuf, String> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // A test target selects the features of the build of the tests, so nothing is built twice.
    let targets = ["--bin", "poolhouse-watch", "--test", "watch_program"];
    cargo.args(["build", "--workspace", "--all-features", "--message-format", "json"]).args(targets);
    cargo
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    // Cargo's variables about this test: build scripts that read them would run again.
    for (name, _) in env::vars_os() {
        let about_this = |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.starts_with(prefix));
        if name.to_str().is_some_and(about_this) {
            cargo.env_remove(name);
        }
    }
    let output = cargo.output().map_err(|error| format!("cargo does not start: {error}"))?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut built = messages.filter(|message| message["target"]["name"] == "poolhouse-watch");
    let path = built.find_map(|message| message["executable"].as_str().map(PathBuf::from));
    path.filter(|_| output.status.success())
        .ok_or_else(|| format!("cargo did not build the program: {}", output.status))
}
