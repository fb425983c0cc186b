//! Poolhouse and its peers, measured in one run with the same work: see README.md beside this
//! crate's manifest.
//!
//! `poolhouse-compare [SECTION..] [--quick] [--runs=N] [--write] [--instructions] [--only=WORD,..]`

extern crate alloc;

mod allocator;
mod callgrind;
mod clients;
mod cursors;
mod failover;
mod measure;
mod merge;
mod mux;
mod platform;
mod pools;
mod process;
mod report;
mod scale;
mod servers;
mod settings;
mod sockets;
mod tail;

use core::net::SocketAddr;
use report::{Report, Section};
use settings::Settings;
use std::path::Path;
use std::process::ExitCode;

/// A section that can be run.
struct Entry {
    name: &'static str,
    run: fn(&Settings) -> Section,
    /// Runs a part of the section in a worker process: the name of the part, the number of threads,
    /// the server.
    part: fn(&str, usize, Option<SocketAddr>, &Settings) -> Option<Section>,
    /// Counts the instructions of the section.
    instructions: Option<fn() -> Section>,
}

/// The sections, in the order of the report.
const ENTRIES: [Entry; 8] = [
    Entry { name: "pools", run: pools::run, part: pools::part, instructions: Some(pools::instructions) },
    Entry { name: "clients", run: clients::run, part: clients::part, instructions: Some(clients::instructions) },
    Entry { name: "cursors", run: cursors::run, part: cursors::part, instructions: None },
    Entry { name: "mux", run: mux::run, part: mux::part, instructions: None },
    Entry { name: "servers", run: servers::run, part: servers::part, instructions: None },
    Entry { name: "failover", run: failover::run, part: failover::part, instructions: None },
    Entry { name: "tail", run: tail::run, part: tail::part, instructions: None },
    Entry { name: "scale", run: scale::run, part: scale::part, instructions: None },
];

const USAGE: &str =
    "usage: poolhouse-compare [SECTION..] [--quick] [--runs=N] [--write] [--instructions] [--only=WORD,..]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let only = args.iter().find_map(|arg| arg.strip_prefix("--only="));
    let only = only.map_or_else(Vec::new, |words| words.split(',').map(str::to_owned).collect());
    let settings = Settings { quick: args.contains(&"--quick"), only };
    match args.as_slice() {
        ["serve", name] => process::serve(name),
        ["worker", part, threads, rest @ ..] => {
            let threads = threads.parse().expect("a number of threads");
            let server = rest.first().and_then(|address| address.parse().ok());
            let section =
                ENTRIES.iter().find_map(|entry| (entry.part)(part, threads, server, &settings)).expect("a part");
            println!("{}", serde_json::to_string(&section).expect("plain figures"));
        }
        ["peer", name, server, more @ ..] => servers::run_own(name, server, more),
        ["store", name, contact] => failover::run_store(name, contact),
        ["repeat", section, case, times, server] => {
            let (times, server) = (times.parse().expect("a number of times"), server.parse().expect("an address"));
            match *section {
                "clients" => clients::repeat(case, server, times),
                "pools" => pools::repeat(case, server, times),
                other => panic!("unknown section {other}"),
            }
        }
        _ => return compare(&args, &settings),
    }
    ExitCode::SUCCESS
}

/// Runs the named sections, or all of them, once or several times. With several runs, the report has medians of
/// them, and is written after each.
fn compare(args: &[&str], settings: &Settings) -> ExitCode {
    let (flags, names): (Vec<&str>, Vec<&str>) = args.iter().partition(|arg| arg.starts_with("--"));
    let known = |name: &str| ENTRIES.iter().any(|entry| entry.name == name);
    let flag = |flag: &str| flags.contains(&flag);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        eprintln!("unknown section {unknown}\n{USAGE}");
        return ExitCode::from(2);
    }
    let runs = flags.iter().find_map(|flag| flag.strip_prefix("--runs=")).map_or(Some(1), |number| number.parse().ok());
    let takes = |flag: &str| flag.starts_with("--runs=") || flag.starts_with("--only=");
    let unknown = flags.iter().find(|flag| !["--quick", "--write", "--instructions"].contains(flag) && !takes(flag));
    if let Some(unknown) = unknown {
        eprintln!("unknown flag {unknown}\n{USAGE}");
        return ExitCode::from(2);
    }
    if flag("--write") && !settings.only.is_empty() {
        eprintln!("--write takes all incidents\n{USAGE}");
        return ExitCode::from(2);
    }
    let Some(runs @ 1..) = runs else {
        eprintln!("--runs takes a number of at least 1\n{USAGE}");
        return ExitCode::from(2);
    };
    let chosen: Vec<&Entry> = ENTRIES.iter().filter(|entry| names.is_empty() || names.contains(&entry.name)).collect();
    let is_written = flag("--write") || (names.is_empty() && !settings.quick && settings.only.is_empty());
    let header = Report {
        machine: machine(),
        commit: commit(),
        command: format!("poolhouse-compare {}", args.join(" ")).trim_end().to_owned(),
        quick: settings.quick,
        runs: 0,
        sections: Vec::new(),
    };
    println!("{header}");
    let mut all: Vec<Vec<Section>> = Vec::new();
    for number in 1..=runs {
        if runs > 1 {
            println!("-- run {number} of {runs}\n");
        }
        let mut sections = Vec::new();
        let mut keep = |section: Section| {
            println!("{section}");
            sections.push(section);
        };
        chosen.iter().for_each(|entry| keep((entry.run)(settings)));
        if flag("--instructions") {
            chosen.iter().filter_map(|entry| entry.instructions).for_each(|run| keep(run()));
        }
        all.push(sections);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
        let report = Report { runs: number, sections: merge::merged(&all), ..header.clone() };
        if number == runs && runs > 1 {
            println!("-- {runs} runs\n\n{report}");
        }
        if is_written && let Err(error) = write(&report, &folder) {
            eprintln!("the results were not written: {error}");
            return ExitCode::FAILURE;
        }
        if is_written {
            println!("written to {}", folder.display());
        }
    }
    ExitCode::SUCCESS
}

/// The commit of the sources, with `-dirty` if they were changed after it.
fn commit() -> String {
    let git = |args: &[&str]| {
        let mut git = std::process::Command::new("git");
        let output = git.arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let found = git(&["rev-parse", "--short=8", "HEAD"]);
    let is_changed =
        git(&["status", "--porcelain", "--", ":/", ":(exclude)results"]).is_some_and(|files| !files.is_empty());
    found.map_or_else(|| "unknown".to_owned(), |commit| if is_changed { commit + "-dirty" } else { commit })
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    format!("{cores} cores, {}, {}", model.map_or(std::env::consts::ARCH, |(_, model)| model), std::env::consts::OS)
}

fn write(report: &Report, folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for section in &report.sections {
        let report = Report { sections: vec![section.clone()], ..report.clone() };
        std::fs::write(folder.join(format!("{}.txt", section.name)), report.to_string())?;
    }
    Ok(())
}
