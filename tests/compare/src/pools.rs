//! Check-out and check-in of connections that do nothing: Poolhouse, generic pools, and a
//! hand-written baseline (the floor).
//!
//! - uncontended: one thread, and a connection is always available. Futures are ready at their
//!   first poll, except those of mobc.
//! - contended: 64 tasks, 10 connections. Each connection is kept for one turn of the executor,
//!   with one turn between. It runs on 1 to 64 threads, on the runtime that each pool
//!   requires; pools without a requirement run on both runtimes. With more threads than cores, the
//!   system takes cores away from threads that hold a lock.
//! - memory: bytes for each idle connection and each waiter.

mod contended;
pub(crate) mod floor;
pub(crate) mod locked;
mod memory;
pub(crate) mod others;
pub(crate) mod peer;
mod uncontended;
mod wheel;

use crate::callgrind::{self, Program};
use crate::process::{Kind, Server, worker};
use crate::report::Section;
use crate::settings::Settings;
use core::net::SocketAddr;
use poolhouse_client::{Client, ClientOptions, Platform};

pub(crate) use uncontended::repeat;

/// Number of connections to which a client's pool is warmed up, and of the other pools.
const CONNECTIONS: u32 = 10;

/// Runs the whole section.
pub(crate) fn run(settings: &Settings) -> Section {
    let server = Server::start(Kind::Mongo);
    let mut section = Section::new("pools");
    section.append(worker("pools-uncontended", 1, Some(server.address), settings));
    for threads in [1, 2, 4, 16, 64] {
        section.append(worker("pools-contended", threads, Some(server.address), settings));
    }
    section.append(worker("pools-memory", 1, None, settings));
    section.note(
        "Client::check_out also selects a server; those of the other pools do not. Its connections are idle sockets.",
    );
    section.note("mobc returns a connection by a separate task, for which the next check-out waits.");
    section.note("The floor and the core behind a lock have no timer for their deadlines, because none is reached.");
    section
}

/// Runs a part of the section in a separate process.
pub(crate) fn part(name: &str, threads: usize, server: Option<SocketAddr>, settings: &Settings) -> Option<Section> {
    match name {
        "pools-uncontended" => Some(uncontended::run(server.expect("an address"), settings)),
        "pools-contended" => Some(contended::run(server.expect("an address"), threads, settings)),
        "pools-memory" => Some(memory::run(settings)),
        _ => None,
    }
}

/// Counts the instructions of one check-out and check-in.
pub(crate) fn instructions() -> Section {
    let server = Server::start(Kind::Mongo);
    let mut section = Section::new("pools-instructions");
    let (title, times) = ("check-out + check-in, uncontended: instructions", 2_000);
    let program = |name: &str, times| Ok(Program::own("pools", name, times, server.address));
    section.tables.push(callgrind::table(title, uncontended::NAMES, times, program));
    section
}

/// A client with all connections established and without event subscribers.
async fn client<P: Platform + Default>(server: SocketAddr) -> Client<P> {
    poolhouse_exchange::mongo::warm_client(ClientOptions::new(server.to_string()), CONNECTIONS, None).await
}

/// A runtime of tokio.
pub(crate) fn tokio(threads: usize) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(threads).enable_all().build().expect("a runtime")
}
