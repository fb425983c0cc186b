//! A fleet of clients on a replica set of three servers, with a failing primary, on virtual time.
//! It measures the number of connections per second that the new primary must establish, with
//! `maxConnecting` 2 and without a limit.
//!
//! Each client is a control machine with its three monitors and three pools, driven as every
//! adapter drives them. Network and servers are a model: see [`simulation`]. Only the times at
//! which tasks start operations are random; they are derived from a seed.

mod client;
mod simulation;

use crate::measure::Waits;
use crate::report::{Plot, Section, Series, Table};
use crate::settings::Settings;
use core::time::Duration;
use simulation::{Outcome, Simulation};

/// Number of clients of the fleet.
const CLIENTS: usize = 10_000;
/// `maxPoolSize`. A pool has no more connections than the client has tasks.
const MAX_POOL_SIZE: u32 = 100;

/// Runs the whole section.
pub(crate) fn run(settings: &Settings) -> Section {
    let clients = settings.of(500, CLIENTS);
    let cases = [("maxConnecting 2", 2), ("no limit", MAX_POOL_SIZE)];
    let outcomes = cases.map(|(name, max_connecting)| (name, Simulation::new(clients, max_connecting).run()));
    let columns = [
        "connections opened",
        "maximum in a second",
        "failed attempts",
        "queue served after s",
        "never served",
        "p50 ms",
        "p99 ms",
        "max ms",
    ];
    let title = format!("a fail-over with {clients} clients of {} tasks: the new primary", simulation::TASKS);
    let mut table = Table::new(title, &columns);
    for (name, outcome) in &outcomes {
        let Outcome { opened, failed, served_at, unserved, waits } = outcome;
        let ms = |waits: &Waits, share| waits.quantile_ns(share) / 1e6;
        let figures = [
            opened.iter().sum::<u64>() as f64,
            most_in_a_second(opened) as f64,
            *failed as f64,
            served_at.as_secs_f64(),
            *unserved as f64,
            ms(waits, 0.5),
            ms(waits, 0.99),
            waits.max_ns as f64 / 1e6,
        ];
        table.row(*name, &figures);
    }
    let mut section = Section::new("fleet");
    section.tables.push(table);
    let series = |(name, outcome): &(&str, Outcome)| Series { name: (*name).to_owned(), points: rate(&outcome.opened) };
    section.plots.push(Plot::Lines {
        file: "fleet.svg".to_owned(),
        title: format!("{clients} clients: connections opened at the new primary"),
        x: "s since the old primary failed".to_owned(),
        y: "connections per second".to_owned(),
        series: outcomes.iter().map(series).collect(),
    });
    section.note(format!(
        "The model: a round trip of {} us, {} ms for an operation, {} s between the operations of a task, {} handshakes per second at a server, an election after {} s, connectTimeoutMS {}.",
        simulation::ROUND_TRIP.as_micros(),
        simulation::OPERATION.as_millis(),
        simulation::PAUSE.as_secs_f64(),
        Duration::from_secs(1).as_nanos() / simulation::HANDSHAKE.as_nanos(),
        simulation::OUTAGE.as_secs(),
        simulation::CONNECT_TIMEOUT.as_millis(),
    ));
    section.note(
        "The queue is served when the last operation that was requested before the election has ended; the time is counted from the election.",
    );
    section.note("p50, p99 and max are latencies, from the request to the end, of the operations requested between the failure and four seconds after the election.");
    section
}

/// The maximum number of connections in ten consecutive bins.
fn most_in_a_second(opened: &[u64]) -> u64 {
    let bins = usize::try_from(Duration::from_secs(1).as_nanos() / simulation::BIN.as_nanos()).unwrap_or(1);
    opened.windows(bins).map(|window| window.iter().sum()).max().unwrap_or(0)
}

/// Connections per second by time in seconds, starting just before the election.
fn rate(opened: &[u64]) -> Vec<(f64, f64)> {
    let bin = simulation::BIN.as_secs_f64();
    let points = opened.iter().enumerate().map(|(place, count)| (place as f64 * bin, *count as f64 / bin));
    points.filter(|(at, _)| *at >= simulation::OUTAGE.as_secs_f64() - 1.0).collect()
}
