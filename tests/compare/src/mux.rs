//! Requests on one multiplexed connection of Cassandra's protocol: Poolhouse's `Session` and the
//! `scylla` crate, compared with a bare exchange of the same bytes, which parses only the header of
//! a reply. Version 4 on both sides; the server is a separate process.

mod askers;

use crate::measure::Rounds;
use crate::process::{Kind, Server, worker};
use crate::report::{Section, Table};
use crate::settings::Settings;
use askers::Askers;
use core::net::SocketAddr;

pub(crate) use askers::one_connection;

/// Requests in flight, and number of requests of a round.
const LOADS: [(u32, u32); 3] = [(1, 3_000), (128, 40_000), (1_024, 60_000)];

/// Runs the whole section.
pub(crate) fn run(settings: &Settings) -> Section {
    let server = Server::start(Kind::Cql);
    let mut section = Section::new("mux");
    for threads in [1, 2] {
        section.append(worker("mux", threads, Some(server.address), settings));
    }
    section.note("The floor is one task that sends requests for all free ids by one write; the others have one task for each request in flight.");
    section
}

/// Runs a part of the section in a separate process.
pub(crate) fn part(name: &str, threads: usize, server: Option<SocketAddr>, settings: &Settings) -> Option<Section> {
    (name == "mux").then(|| measure(threads, server.expect("an address"), settings))
}

fn measure(threads: usize, server: SocketAddr, settings: &Settings) -> Section {
    let mut askers = Askers::new(server, threads);
    let mut section = Section::new("mux");
    for (in_flight, operations) in LOADS {
        let operations = if settings.quick { operations / 20 } else { operations };
        let plural = if threads == 1 { "" } else { "s" };
        let title = format!("{in_flight} in flight, {threads} thread{plural}");
        let mut table = Table::new(title, &["us/request", "requests/s", "of the floor", "of scylla"]);
        let names = askers::NAMES;
        let rounds =
            Rounds::of(settings.rounds(), names.len(), |case| 1.0 / askers.round(names[case].0, in_flight, operations));
        let scylla = names.iter().position(|(name, _)| *name == "scylla").expect("one of them");
        for (place, (_, title)) in names.iter().enumerate() {
            let rate = rounds.median(place);
            table.row(*title, &[1e6 / rate, rate, rounds.ratio(place, 0), rounds.ratio(place, scylla)]);
        }
        section.tables.push(table);
    }
    section
}
