//! Poolhouse and its peers, measured in one run with the same work: see README.md beside this
//! crate's manifest.
//!
//! `poolhouse-compare [SECTION..] [--quick] [--write] [--instructions]`

extern crate alloc;

mod allocator;
mod callgrind;
mod clients;
mod cursors;
mod failover;
mod measure;
mod mux;
mod platform;
mod plot;
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

const USAGE: &str = "usage: poolhouse-compare [SECTION..] [--quick] [--write] [--instructions]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let settings = Settings { quick: args.contains(&"--quick") };
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

/// Runs the named sections, or all of them.
fn compare(args: &[&str], settings: &Settings) -> ExitCode {
    let (flags, names): (Vec<&str>, Vec<&str>) = args.iter().partition(|arg| arg.starts_with("--"));
    let known = |name: &str| ENTRIES.iter().any(|entry| entry.name == name);
    let flag = |flag: &str| flags.contains(&flag);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        eprintln!("unknown section {unknown}\n{USAGE}");
        return ExitCode::from(2);
    }
    if let Some(unknown) = flags.iter().find(|flag| !["--quick", "--write", "--instructions"].contains(flag)) {
        eprintln!("unknown flag {unknown}\n{USAGE}");
        return ExitCode::from(2);
    }
    let mut report = Report {
        machine: machine(),
        command: format!("poolhouse-compare {}", args.join(" ")).trim_end().to_owned(),
        quick: settings.quick,
        sections: Vec::new(),
    };
    println!("{report}");
    let mut keep = |section: Section| {
        println!("{section}");
        report.sections.push(section);
    };
    let chosen = || ENTRIES.iter().filter(|entry| names.is_empty() || names.contains(&entry.name));
    chosen().for_each(|entry| keep((entry.run)(settings)));
    if flag("--instructions") {
        chosen().filter_map(|entry| entry.instructions).for_each(|run| keep(run()));
    }
    if flag("--write") || (names.is_empty() && !settings.quick) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
        if let Err(error) = write(&report, &folder) {
            eprintln!("the results were not written: {error}");
            return ExitCode::FAILURE;
        }
        println!("written to {}", folder.display());
    }
    ExitCode::SUCCESS
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    format!("{cores} cores, {}, {}", model.map_or(std::env::consts::ARCH, |(_, model)| model), std::env::consts::OS)
}

fn write(report: &Report, folder: &Path) -> Result<(), Box<dyn core::error::Error>> {
    std::fs::create_dir_all(folder)?;
    for section in &report.sections {
        let report = Report { sections: vec![section.clone()], ..report.clone() };
        std::fs::write(folder.join(format!("{}.txt", section.name)), report.to_string())?;
        std::fs::write(folder.join(format!("{}.json", section.name)), serde_json::to_string_pretty(&report)? + "\n")?;
        section.plots.iter().try_for_each(|drawn| plot::draw(drawn, folder))?;
    }
    Ok(())
}
