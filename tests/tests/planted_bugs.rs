//! Bugs of other pools, monitors and drivers, planted into a copy of this one. Each bug must be
//! found by each of its assigned generators, with the seeds of a full run ([`EFFORT`]); without a planted
//! bug, nothing may be found. `POOLHOUSE_DRAWS=n` repeats each hunt with n different first seeds. Bugs that only
//! an official test finds need `MONGOD` and `POOLHOUSE_SPEC_DIR`.
//!
//! Each file of tests/planted-bugs is a patch with a head: the original bug, what it breaks (an invariant of
//! tests/src/invariants.rs, or an official test), and a line for each generator, with texts that are separated by
//! ` | `: `found-by: pool seen: P1: | P5:`. The output of the generator must contain one of its texts, which
//! proves that the planted bug was found and not another. The bugs are enabled by a switch, so one build contains
//! all of them.
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::collections::BTreeSet;
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::OnceLock;
use std::time::Instant;

use poolhouse_tests::suite::{Suite, as_one};
use poolhouse_tests::{mongod, seeds, spec};
use serde_json::{Value, json};

/// The parts of the repository that are copied.
const COPIED: [&str; 9] = [
    ".cargo",
    "Cargo.lock",
    "Cargo.toml",
    "README.md",
    "core",
    "runtime-async-std",
    "runtime-embassy",
    "runtime-smol",
    "tests",
];

/// A folder of official tests in the unified format, which need a mongod.
const OFFICIAL: &str = "sessions/tests";

/// The patch that all others need.
const SWITCH: &str = "00-switch";

/// The effort of a full run: that of each hunt.
const EFFORT: u64 = 50;

/// The effort without a planted bug: every seed is run, where hunts end with the first that fails.
const EFFORT_OF_CONTROL: u64 = EFFORT / 10;

/// The distance between the first seeds of two draws.
const DRAW: u64 = 10_000_000;

/// Timeout of a hunt.
const SECONDS_MAX: &str = "120";

/// A planted bug.
struct PlantedBug {
    name: String,
    found_by: Vec<Finder>,
}

/// A generator that must find a bug.
struct Finder {
    generator: String,
    /// Its output must contain one of these texts.
    seen: Vec<String>,
}

fn main() -> ExitCode {
    as_one(run)
}

fn run() -> ExitCode {
    let mut planted_bugs = match planted_bugs() {
        Ok(planted_bugs) => planted_bugs,
        Err(error) => return Suite::new("planted_bugs").case("heads", move || Err::<(), _>(error)).run(),
    };
    let missing = mongod::available().err().or_else(|| spec::files(OFFICIAL).err().map(|reason| reason.to_string()));
    if let Some(reason) = missing {
        eprintln!("skipped: planted_bugs that only official tests find: {reason}");
        planted_bugs.retain(|bug| !bug.found_by.iter().any(|finder| finder.generator.starts_with("unified/")));
    }
    let finders = planted_bugs.iter().flat_map(|bug| &bug.found_by);
    let generators: BTreeSet<String> = finders.map(|finder| finder.generator.clone()).collect();
    let mut suite = Suite::new("planted_bugs");
    suite = suite.case("nothing_planted_and_nothing_found", move || without(&generators));
    for bug in planted_bugs {
        suite = suite.case(bug.name.replace('-', "_"), move || found(&bug));
    }
    suite.run()
}

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The build folder of this program.
fn target() -> Result<PathBuf, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    // target/debug/deps/planted_bugs-..
    program.ancestors().nth(3).map(Path::to_path_buf).ok_or_else(|| "no target folder".to_owned())
}

fn planted_bugs() -> Result<Vec<PlantedBug>, String> {
    let mut names = names().map_err(|error| format!("tests/planted-bugs: {error}"))?;
    names.retain(|name| name != SWITCH);
    names.into_iter().map(bug).collect()
}

fn names() -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root().join("tests/planted-bugs"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "patch") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

/// Reads the head of a patch.
fn bug(name: String) -> Result<PlantedBug, String> {
    let path = root().join("tests/planted-bugs").join(format!("{name}.patch"));
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let head: Vec<&str> = text.lines().take_while(|line| !line.starts_with("--- ")).collect();
    let field = |field: &str| {
        let line = head.iter().find_map(|line| line.strip_prefix(field));
        line.map(str::trim).filter(|line| !line.is_empty()).ok_or_else(|| format!("{name} has no line {field}"))
    };
    let found_by = head.iter().filter_map(|line| line.strip_prefix("found-by:"));
    let found_by = found_by.map(|line| finder(line).ok_or_else(|| format!("{name}: not a generator: {line}")));
    let found_by = found_by.collect::<Result<Vec<_>, String>>()?;
    if found_by.is_empty() {
        return Err(format!("{name} has no line found-by:"));
    }
    field("breaks:")?;
    Ok(PlantedBug { found_by, name })
}

/// Reads `generator seen: text | text`.
fn finder(line: &str) -> Option<Finder> {
    let (generator, seen) = line.split_once(" seen: ")?;
    let seen = seen.split(" | ").map(|text| text.trim().to_owned()).collect::<Vec<_>>();
    let is_whole = seen.iter().all(|text| !text.is_empty());
    is_whole.then_some(Finder { generator: generator.trim().to_owned(), seen })
}

/// No generator finds anything without a planted bug.
fn without(generators: &BTreeSet<String>) -> Result<(), String> {
    for generator in generators {
        let hunted = hunt(generator, 0, None)?;
        if !hunted["found"].is_null() {
            return Err(format!("{generator} fails without a planted bug: {hunted}"));
        }
    }
    Ok(())
}

/// Whether the seeds change what a generator does.
fn is_random(generator: &str) -> bool {
    let fixed = ["interleavings/", "contract/", "unified/"];
    !fixed.iter().any(|fixed| generator.starts_with(fixed))
}

/// Each generator finds the bug, and its output identifies it.
fn found(bug: &PlantedBug) -> Result<(), String> {
    let mut missed = Vec::new();
    let draws = seeds::number("POOLHOUSE_DRAWS").unwrap_or(1);
    let draws_of = |finder: &Finder| if is_random(&finder.generator) { draws } else { 1 };
    let hunted = bug.found_by.iter().flat_map(|finder| (0..draws_of(finder)).map(move |draw| (finder, draw)));
    for (Finder { generator, seen }, draw) in hunted {
        match hunt(generator, draw, Some(&bug.name)) {
            Ok(hunted) => match hunted["found"].as_str() {
                None => missed.push(format!("{generator} does not find it in draw {draw}")),
                Some(said) if !seen.iter().any(|text| said.contains(text)) => {
                    missed.push(format!("{generator} finds another failure, none of {seen:?}: {said}"));
                }
                Some(_) => {}
            },
            // A hunt that did not end has found nothing.
            Err(error) => missed.push(format!("{generator}: {error}")),
        }
    }
    if missed.is_empty() { Ok(()) } else { Err(missed.join("\n")) }
}

/// The programs of the copy.
#[derive(Clone)]
struct Programs {
    hunt: PathBuf,
    interleavings: PathBuf,
    schedules: PathBuf,
    contract: PathBuf,
    unified: PathBuf,
}

/// Runs a program of the copy.
///
/// - `draw`: which of the draws of first seeds.
fn hunt(generator: &str, draw: u64, planted: Option<&str>) -> Result<Value, String> {
    static PROGRAMS: OnceLock<Result<Programs, String>> = OnceLock::new();
    let programs = PROGRAMS.get_or_init(build).as_ref().map_err(Clone::clone)?;
    let of_tests = [
        ("interleavings", &programs.interleavings),
        ("schedules", &programs.schedules),
        ("contract", &programs.contract),
        ("unified", &programs.unified),
    ];
    for (name, program) in of_tests {
        if let Some(test) = generator.strip_prefix(name).and_then(|rest| rest.strip_prefix('/')) {
            let mut command = command(program, draw, planted);
            command.args(["--exact", test]);
            return one_test(generator, command, planted);
        }
    }
    let mut command = command(&programs.hunt, draw, planted);
    command.args(["--generator", generator]).arg("--corpus").arg(root().join("fuzz/corpus"));
    if let Some(name) = planted {
        command.args(["--planted", name]);
    }
    let output = command.output().map_err(|error| format!("timeout: {error}"))?;
    let reported = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&reported).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("{generator}, {planted:?}: {}: {}", output.status, said.trim())
    })
}

/// A program of the copy, with a timeout and the seeds of a draw.
fn command(program: &Path, draw: u64, planted: Option<&str>) -> Command {
    let effort = if planted.is_some() { EFFORT } else { EFFORT_OF_CONTROL };
    let first = seeds::number("POOLHOUSE_SEEDS_FROM").unwrap_or(0) + draw * DRAW;
    let mut command = Command::new("timeout");
    command.arg(SECONDS_MAX).arg(program);
    command.env("POOLHOUSE_EFFORT", effort.to_string()).env("POOLHOUSE_SEEDS_FROM", first.to_string());
    command.env_remove("POOLHOUSE_SEED").env_remove("POOLHOUSE_SEEDS");
    command
}

/// Runs one test: a scenario in all its interleavings, in some schedules, or with a future that is
/// dropped at each of its polls.
fn one_test(generator: &str, mut command: Command, planted: Option<&str>) -> Result<Value, String> {
    let begun = Instant::now();
    // Runs the contract in one way, and in this process.
    command.env("POOLHOUSE_CONTRACT_WAY", "threads: 1").env("SMOL_THREADS", "1").env("RUST_BACKTRACE", "0");
    let output = command.env("POOLHOUSE_PLANTED", planted.unwrap_or_default()).output();
    let output = output.map_err(|error| format!("timeout: {error}"))?;
    let reported = [output.stdout, output.stderr].concat();
    let reported = String::from_utf8_lossy(&reported);
    let is_run = reported.contains("running 1 test");
    let found = match output.status.code() {
        Some(0) if is_run => None,
        // The exit status of cargo's test programs when a test fails.
        Some(101) if is_run => Some(panic_of(&reported)),
        _ => return Err(format!("{generator}: {}: {reported}", output.status)),
    };
    Ok(json!({
        "generator": generator, "planted": planted, "tried": 1, "seconds": begun.elapsed().as_secs_f64(), "found": found,
    }))
}

/// The output of a failing test, from the line with the location of the panic, or the head of its error, to
/// the next empty line or note.
fn panic_of(reported: &str) -> String {
    let heads = [" panicked at ", "test panicked: ", "---- "];
    let begin = heads.into_iter().find_map(|head| reported.find(head)).unwrap_or_default();
    let lines = reported[begin..].lines().take_while(|line| !line.is_empty() && !line.starts_with("note: "));
    lines.take(8).collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// Adds the path of a file or folder to an error.
fn failed_at(what: &Path) -> impl Fn(io::Error) -> String {
    move |error| format!("{}: {error}", what.display())
}

/// Makes the copy with all bugs in it, and builds it with the same compiler and flags as the
/// repository.
fn build() -> Result<Programs, String> {
    let target = target()?;
    let (stage, copy) = (target.join("planted_bugs/stage"), target.join("planted_bugs/copy"));
    // Never the build folder of the repository itself: cargo identifies packages by their position
    // in a workspace, so it would confuse the copy's packages with the repository's.
    let built = target.join("planted_bugs/target");
    for part in ["debug/.fingerprint", "debug/build", "debug/deps"] {
        link_dependencies(&target.join(part), &built.join(part)).map_err(failed_at(&built))?;
    }
    if stage.exists() {
        fs::remove_dir_all(&stage).map_err(failed_at(&stage))?;
    }
    for name in COPIED {
        copy_all(&root().join(name), &stage.join(name)).map_err(failed_at(&stage))?;
    }
    for name in names().map_err(failed_at(&stage))? {
        apply(&stage, &name)?;
    }
    // Unchanged files keep their times, so they are not built again.
    sync(&stage, &copy).map_err(failed_at(&copy))?;
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(&copy).env("CARGO_TARGET_DIR", &built);
    // Cargo's variables about this package: build scripts that read them would run again, in both
    // builds.
    for (name, _) in env::vars_os() {
        let is_of_package = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_EXE_"]
            .iter()
            .any(|start| name.to_string_lossy().starts_with(start));
        if is_of_package {
            cargo.env_remove(name);
        }
    }
    cargo.args(["test", "--locked", "--offline", "--workspace", "--all-features", "--no-run"]);
    cargo.args(["--bin", "hunt", "--test", "interleavings", "--test", "schedules"]);
    cargo.args(["--test", "contract", "--test", "unified"]);
    let output = cargo.arg("--message-format=json").output().map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("the copy does not build:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let built: Vec<Value> = messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    // Several adapters have a contract, of which only smol's has the cases of clients on a platform.
    let is_of_other = |message: &Value| {
        let package = message["package_id"].as_str().unwrap_or_default();
        message["target"]["name"] == "contract" && !package.contains("poolhouse-smol")
    };
    let program = |name: &str| {
        let messages = built.iter().filter(|message| message["target"]["name"] == name && !is_of_other(message));
        let program = messages.filter_map(|message| message["executable"].as_str()).next_back();
        program.map(PathBuf::from).ok_or_else(|| format!("cargo did not report the path of {name}"))
    };
    Ok(Programs {
        hunt: program("hunt")?,
        interleavings: program("interleavings")?,
        schedules: program("schedules")?,
        contract: program("contract")?,
        unified: program("unified")?,
    })
}

/// Links the built dependencies of the repository, so they are not built twice; linked files keep
/// their times. The names of our own packages all begin with one word.
fn link_dependencies(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (entry, to) = entry.map(|entry| (entry.path(), to.join(entry.file_name())))?;
        let name = to.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Programs are also our own, and are not libraries.
        let is_program = from.ends_with("deps") && !name.starts_with("lib");
        if name.contains("poolhouse") || is_program {
            continue;
        }
        let linked = match entry.is_dir() {
            true => link_dependencies(&entry, &to),
            false if to.exists() => Ok(()),
            false => fs::hard_link(&entry, &to),
        };
        // Another build, which runs meanwhile, removes its temporary files and folders.
        match linked {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            linked => linked?,
        }
    }
    Ok(())
}

fn apply(folder: &Path, name: &str) -> Result<(), String> {
    let patch = root().join("tests/planted-bugs").join(format!("{name}.patch"));
    let patch = patch.canonicalize().map_err(|error| format!("{}: {error}", patch.display()))?;
    let mut git = Command::new("git");
    // The folder is not a part of the repository that contains it.
    git.current_dir(folder).env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap_or(folder));
    let output = git.args(["apply", "-C1"]).arg(&patch).output().map_err(|error| format!("git: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{name} does not apply any more: {}", String::from_utf8_lossy(&output.stderr)))
}

fn is_left_out(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "target" || name == "firmware" && path.is_dir())
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        return fs::copy(from, to).map(drop);
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        if let Some(name) = path.file_name().filter(|_| !is_left_out(&path)) {
            copy_all(&path, &to.join(name))?;
        }
    }
    Ok(())
}

/// Makes `to` equal to `from`, and touches only what differs.
fn sync(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        let content = fs::read(from)?;
        if fs::read(to).is_ok_and(|old| old == content) {
            return Ok(());
        }
        return fs::write(to, content);
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        let path = entry.path();
        if !from.join(entry.file_name()).exists() {
            if path.is_dir() { fs::remove_dir_all(&path)? } else { fs::remove_file(&path)? }
        }
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        sync(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}
