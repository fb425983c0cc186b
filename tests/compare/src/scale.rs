//! Large numbers of waiters with deadlines, of monitored servers, and of connections in one pool:
//! time and memory.

mod connections;
mod waiters;

#[path = "../../../core/benches/support/fleet.rs"]
mod fleet;

use crate::allocator::counted;
use crate::measure::{Rounds, ns_each};
use crate::process::{Kind, Server, worker};
use crate::report::{Section, Table};
use crate::settings::Settings;
use core::net::SocketAddr;
use fleet::{Fleet, Set};
use poolhouse_core::monitor::ServerMonitoringMode;

/// Runs the whole section.
pub(crate) fn run(settings: &Settings) -> Section {
    let server = Server::start(Kind::Mongo);
    let mut section = Section::new("scale");
    section.append(worker("scale-waiters", 1, None, settings));
    section.append(worker("scale-servers", 1, None, settings));
    section.append(worker("scale-connections", 1, Some(server.address), settings));
    section
}

/// Runs a part of the section in a separate process.
pub(crate) fn part(name: &str, _: usize, server: Option<SocketAddr>, settings: &Settings) -> Option<Section> {
    match name {
        "scale-waiters" => Some(waiters::run(settings)),
        "scale-servers" => Some(servers(settings)),
        "scale-connections" => Some(connections::run(server.expect("an address"), settings)),
        _ => None,
    }
}

/// Number of servers that one control machine monitors.
const SERVERS: u32 = 1_000;

fn servers(settings: &Settings) -> Section {
    let mut section = Section::new("scale");
    // heartbeatFrequencyMS 500 means two checks of each server in a second.
    let columns = ["ns a check", "% of a core", "bytes a server"];
    let mut table = Table::new("1,000 servers monitored at heartbeatFrequencyMS 500 by one machine", &columns);
    let times = u32::try_from(settings.of(2_000, 20_000)).expect("not many");
    for (name, mode) in [("polling", ServerMonitoringMode::Poll), ("streaming", ServerMonitoringMode::Stream)] {
        let (mut fleet, held) = counted(|| Fleet::new(u64::from(SERVERS), mode));
        let ns = Rounds::of(settings.rounds(), 1, |_| ns_each(times, || fleet.check(1))).median(0);
        let percent = ns * f64::from(SERVERS) * 2.0 / 1e9 * 100.0;
        table.row(name, &[ns, percent, held.bytes as f64 / f64::from(SERVERS)]);
    }
    section.tables.push(table);
    let mut table = Table::new("a replica set of 50: time of an update in the machine", &["us"]);
    let mut set = Set::new();
    let times = times / 10;
    table.row("an update from the primary", &[ns_each(times, || set.update(1)) / 1e3]);
    table.row("a member replaced by another", &[ns_each(times, || set.replace(2)) / 2e3]);
    section.tables.push(table);
    section.note("The bytes of a server are those of its slot in the machine, its monitor and its names; sockets, buffers and pools are not included.");
    section
}
