//! `ping` by complete clients on one loopback server in a separate process: Poolhouse on smol and on its
//! edge-triggered platform, the official driver on tokio, libmongoc on threads, and bare sockets of
//! async-io, at 1, 10 and 100 tasks over 10 connections.

mod actors;
pub(crate) mod libmongoc;

use crate::callgrind::{self, Program};
use crate::measure::{Rounds, median};
use crate::process::{Kind, Server, worker};
use crate::report::{Section, Table};
use crate::settings::Settings;
use actors::Actors;
use core::net::SocketAddr;

pub(crate) use actors::{official, repeat};

const TASKS: [u32; 3] = [1, 10, 100];

/// Runs the whole section.
pub(crate) fn run(settings: &Settings) -> Section {
    let server = Server::start(Kind::Mongo);
    let mut section = Section::new("clients");
    for threads in [1, 2] {
        section.append(worker("clients", threads, Some(server.address), settings));
    }
    section.note("The floor is one socket for each task if there are enough sockets; otherwise tasks share sockets through a channel.");
    section.note("libmongoc runs each task on a separate thread, regardless of the number of threads of the others.");
    section.note("The tasks of the edge-triggered client run on the one thread of its reactor, regardless of the number of threads of the others.");
    section.note("Allocations are those of all threads of the client's process; those of libmongoc are not counted.");
    section
}

/// Runs a part of the section in a separate process.
pub(crate) fn part(name: &str, threads: usize, server: Option<SocketAddr>, settings: &Settings) -> Option<Section> {
    (name == "clients").then(|| measure(threads, server.expect("an address"), settings))
}

/// Counts the instructions of the client's process for one ping.
pub(crate) fn instructions() -> Section {
    let server = Server::start(Kind::Mongo);
    let mut section = Section::new("clients-instructions");
    let (title, times) = ("ping by one task: instructions of the client's process", 2_000);
    let libmongoc = libmongoc::Program::build();
    let program = |name: &str, times| match (name, &libmongoc) {
        ("libmongoc", Ok(program)) => {
            let words = vec![program.path.clone().into(), libmongoc::uri(server.address, 1).into()];
            Ok(Program { words, input: format!("1 {times}\n") })
        }
        ("libmongoc", Err(why)) => Err(why.clone()),
        _ => Ok(Program::own("clients", name, times, server.address)),
    };
    section.tables.push(callgrind::table(title, actors::NAMES, times, program));
    section
}

fn measure(threads: usize, server: SocketAddr, settings: &Settings) -> Section {
    let mut actors = Actors::new(server, threads);
    let mut section = Section::new("clients");
    let operations = u32::try_from(settings.of(200, 6_000)).expect("not many");
    for tasks in TASKS {
        let columns = ["us/op", "op/s", "of the floor", "of the driver", "allocations/op"];
        let plural = if threads == 1 { "" } else { "s" };
        let title = format!("ping, {tasks} at a time, {threads} thread{plural}");
        let mut table = Table::new(title, &columns);
        // The first row is the baseline for this number of tasks.
        let floor = if tasks <= actors::CONNECTIONS { "own" } else { "channel" };
        let has_slot = |name: &str| name == floor || !["own", "channel"].contains(&name);
        let names: Vec<_> = actors::NAMES.iter().filter(|(name, _)| has_slot(name)).collect();
        let there: Vec<_> = names.iter().filter(|(name, _)| actors.absence(name).is_none()).collect();
        let rounds =
            Rounds::of(settings.rounds(), there.len(), |case| 1.0 / actors.round(there[case].0, tasks, operations));
        let driver = there.iter().position(|(name, _)| *name == "official").expect("it is always there");
        for (place, (name, title)) in there.iter().enumerate() {
            let rate = rounds.median(place);
            let allocations = actors.allocations(name, tasks, operations).unwrap_or(f64::NAN);
            let figures = [1e6 / rate, rate, rounds.ratio(place, 0), rounds.ratio(place, driver), allocations];
            table.row(*title, &figures);
        }
        for (name, title) in names {
            if let Some(why) = actors.absence(name) {
                table.skip(*title, why);
            }
        }
        section.tables.push(table);
    }
    section
}

/// The median of some durations, in milliseconds.
pub(crate) fn median_ms(times: &[core::time::Duration]) -> f64 {
    median(times.iter().map(|time| time.as_secs_f64() * 1e3).collect())
}
