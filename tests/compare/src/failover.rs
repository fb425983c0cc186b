//! Clients of a real replica set of MongoDB and of a real cluster of Cassandra, to whose servers incidents
//! happen: failed operations, acknowledged writes that were lost, writes that were executed twice, and the
//! times without a success.
//!
//! Each client runs in a process of its own, at the same time as the others, and records its operations.
//! The judge reads the database after the end, and compares it with these records.

mod cassandra;
mod client;
mod incidents;
mod judge;
mod load;
mod mongo;

use crate::process::{RealServer, this};
use crate::report::{Section, Table};
use crate::servers::build;
use crate::settings::Settings;
use client::{Client, Seen};
use core::net::SocketAddr;
use core::ops::Range;
use core::time::Duration;
use incidents::{INCIDENTS, Incident};
use judge::{Record, now_ms};
use std::collections::HashMap;
use std::ffi::OsString;

/// Three servers, and how they are read back.
trait Deployment {
    fn servers(&mut self) -> &mut [RealServer];
    /// What clients connect to.
    fn contact(&self) -> String;
    /// The server to which an incident happens: the primary, if there is one.
    fn victim(&mut self) -> Result<usize, String>;
    /// Waits until another server is primary. `None`: there are no primaries.
    fn successor(&mut self, of: usize) -> Result<Option<usize>, String>;
    /// Ends the work of a server in order. Returns whether it must be restarted.
    fn retire(&mut self, server: usize) -> Result<bool, String>;
    /// Waits until all servers work.
    fn settle(&mut self) -> Result<(), String>;
    /// How often each write is stored, by its client and its number.
    fn stored(&mut self) -> Result<HashMap<(String, i64), u64>, String>;
}

/// A kind of deployment, and its clients.
struct Kind {
    title: &'static str,
    start: fn() -> Result<Box<dyn Deployment>, String>,
    clients: &'static [Case],
}

/// A client: its name for [`run_store`], its title, and how it is run.
struct Case(&'static str, &'static str, fn() -> Result<Vec<OsString>, String>);

const KINDS: [Kind; 2] = [
    Kind {
        title: "MongoDB, a replica set of three",
        start: mongo::start,
        clients: &[
            Case("mongo-poolhouse", "poolhouse-smol", own),
            Case("mongo-poolhouse-best", "poolhouse-smol, best options", own),
            Case("mongo-official", "mongodb on tokio", own),
            Case("mongo-official-best", "mongodb on tokio, best options", own),
            Case("mongo-pymongo", "pymongo", || build::python("store")),
            Case("mongo-pymongo-best", "pymongo, best options", || build::python("store")),
            Case("mongo-poolhouse-loses", LOSES, own),
            Case("mongo-poolhouse-doubles", DOUBLES, own),
        ],
    },
    Kind {
        title: "Cassandra, a cluster of three",
        start: cassandra::start,
        clients: &[
            Case("cql-poolhouse", "poolhouse-smol", own),
            Case("cql-poolhouse-best", "poolhouse-smol, best options", own),
            Case("cql-scylla", "scylla on tokio", own),
            Case("cql-scylla-best", "scylla on tokio, best options", own),
            Case("cql-poolhouse-loses", LOSES, own),
            Case("cql-poolhouse-doubles", DOUBLES, own),
        ],
    },
];

/// The planted clients, whose defects the judge must find.
const LOSES: &str = "acknowledges a write that it has not sent";
const DOUBLES: &str = "sends a write twice";

fn own() -> Result<Vec<OsString>, String> {
    Ok(vec![this().get_program().to_owned(), "store".into()])
}

/// Runs the whole section.
pub(crate) fn run(settings: &Settings) -> Section {
    let mut section = Section::new("failover");
    for kind in KINDS.iter().filter(|kind| !kind.incidents(settings).is_empty()) {
        if let Err(why) = kind.measure(settings, &mut section) {
            let mut table = Table::new(kind.title, &[]);
            table.skip("all clients", why);
            section.tables.push(table);
        }
    }
    if KINDS.iter().all(|kind| kind.incidents(settings).is_empty()) {
        let mut table = Table::new("incidents", &[]);
        table.skip(
            "all clients",
            format!("no title of an incident has all words of --only={}", settings.only.join(",")),
        );
        section.tables.push(table);
    }
    section.note("Each client has 50 tasks. A task writes a row with a new number and reads it, with w: majority and QUORUM, and pauses for 250 ms. All clients run at the same time, so the incidents are the same for each; they share the machine, and their rates are no measurements. An operation is counted where it ends.");
    section.note("Lost: acknowledged writes that the judge does not find in the end. Doubled: writes that it finds more than once. The database chooses the rows' keys at each execution, so a second execution of a write adds a row; but the drivers of MongoDB choose them themselves, and then the second one fails. Not ended: operations that began before the last incident and were running at the end. Not read: reads that did not find a write that was acknowledged before. That may happen at a primary that was stopped, and continues before it has found that there is another one, and, as is presumed, at a new primary that has not learned yet which writes the majority has: reads with the read concern majority do not exclude it. The planted clients show that the judge finds these defects; they are clients with the default options otherwise.");
    section.note("A gap is a time without a success of any task. A return is the time from a server listening again, after its process had ended, to an established connection of the client. Opened: connections that the client has opened at the new primary since the incident until one second after the election, or at the returned node of Cassandra in its first second; after all members were killed, at the one that was primary before, in its first second. Both are found in the system's tables every 20 ms, and include connections of monitors.");
    section.note("The servers of MongoDB send heartbeats each 500 ms, elect another primary after 5 s, and end in order within 2 s. The incidents happen to the primary, or to the node of Cassandra that is the clients' contact point. A primary that ends its work in order steps down; a node is drained, and restarted.");
    section.note("Best options: for MongoDB heartbeatFrequencyMS=500, connectTimeoutMS=2000, and a time limit of 60 s for each operation with all its attempts, or, where there is none, for the selection of a server; for Cassandra, statements that are marked as idempotent, so that a client may execute them again, and heartbeats after 1 s that must be answered within 2 s. Other options, and all of the others, are the defaults.");
    section
}

/// No part of this section runs in a worker.
pub(crate) fn part(_: &str, _: usize, _: Option<SocketAddr>, _: &Settings) -> Option<Section> {
    None
}

/// The main function of a client's process: it runs until the end of its standard input, and then prints its
/// records.
pub(crate) fn run_store(name: &str, contact: &str) -> ! {
    if name.starts_with("mongo-") { mongo::run(name, contact) } else { cassandra::run(name, contact) }
}

/// An incident, with the undisturbed time after it.
struct Window {
    title: String,
    times_ms: Range<f64>,
    /// For each client.
    seen: Vec<Seen>,
}

impl Kind {
    /// The incidents that are chosen, with their titles.
    fn incidents(&self, settings: &Settings) -> Vec<(String, Incident)> {
        let all = INCIDENTS.iter().map(|(name, incident)| (format!("{}: {name}", self.title), *incident));
        all.filter(|(title, _)| settings.is_chosen(title)).collect()
    }

    fn measure(&self, settings: &Settings, section: &mut Section) -> Result<(), String> {
        let calm = || std::thread::sleep(Duration::from_secs(settings.of(1, 3) as u64));
        let mut deployment = (self.start)()?;
        let contact = deployment.contact();
        // A client that does not start is a row with the reason.
        let mut clients = Vec::new();
        let started: Vec<Result<usize, String>> = self
            .clients
            .iter()
            .map(|Case(name, _, build)| {
                clients.push(Client::start(&build()?, name, &contact)?);
                Ok(clients.len() - 1)
            })
            .collect();
        calm();
        let mut begin_ms = now_ms();
        let mut windows = vec![Window {
            title: format!("{}: undisturbed", self.title),
            times_ms: f64::NEG_INFINITY..begin_ms,
            seen: vec![Seen::default(); clients.len()],
        }];
        for (title, incident) in self.incidents(settings) {
            let error = |error| format!("{title}: {error}");
            let (elected_s, seen) = incident.happen(&mut *deployment, &clients).map_err(error)?;
            if let Some(elected_s) = elected_s {
                section.note(format!("{title}: there was another primary after {elected_s:.1} s."));
            }
            deployment.settle().map_err(error)?;
            calm();
            let end_ms = now_ms();
            windows.push(Window { title, times_ms: begin_ms..end_ms, seen });
            begin_ms = end_ms;
        }
        let records: Vec<_> = clients.iter_mut().map(Client::end).collect();
        let stored = deployment.stored()?;
        let records = started.into_iter().map(|place| place.and_then(|place| Ok((place, records[place].clone()?))));
        self.judge(&records.collect::<Vec<_>>(), &stored, &windows, section)
    }

    /// Adds a table for each window, and one for the planted clients.
    ///
    /// - `records`: of each client, with its place among those that were seen.
    fn judge(
        &self,
        records: &[Result<(usize, Vec<Record>), String>],
        stored: &HashMap<(String, i64), u64>,
        windows: &[Window],
        section: &mut Section,
    ) -> Result<(), String> {
        let columns = ["lost", "doubled"];
        let mut planted = Table::new(format!("{}: planted clients, found by the judge", self.title), &columns);
        let mut tables: Vec<_> = windows.iter().map(|window| Table::new(&*window.title, &judge::COLUMNS)).collect();
        for (Case(name, title, _), records) in self.clients.iter().zip(records) {
            let is_planted = [LOSES, DOUBLES].contains(title);
            let (place, records) = match records {
                Ok((place, records)) => (*place, records),
                Err(why) if is_planted => return Err(format!("a planted client was not run: {why}")),
                Err(why) => {
                    tables.iter_mut().for_each(|table| table.skip(*title, why.clone()));
                    continue;
                }
            };
            let copies = |id| stored.get(&((*name).to_owned(), id)).copied().unwrap_or(0);
            let judged = windows.iter().enumerate().map(|(index, window)| {
                let is_last = index + 1 == windows.len();
                let last_ms = if is_last { f64::INFINITY } else { window.times_ms.end };
                judge::judge(records, copies, window.times_ms.clone(), last_ms)
            });
            let judged: Vec<_> = judged.collect();
            if is_planted {
                let lost: u64 = judged.iter().map(|judged| judged.lost).sum();
                let doubled: u64 = judged.iter().map(|judged| judged.doubled).sum();
                planted.row(*title, &[lost as f64, doubled as f64]);
                if (lost, doubled) != if *title == LOSES { (1, 0) } else { (0, 1) } {
                    return Err(format!(
                        "of the planted client that {title}, the judge finds {lost} lost and {doubled} doubled"
                    ));
                }
                continue;
            }
            for ((table, judged), window) in tables.iter_mut().zip(judged).zip(windows) {
                table.row(*title, &judged.figures(window.seen[place]));
                let errors = judged.errors();
                if !errors.is_empty() {
                    section.note(format!("{}: {title}: {errors}.", window.title));
                }
            }
        }
        section.tables.append(&mut tables);
        section.tables.push(planted);
        Ok(())
    }
}
