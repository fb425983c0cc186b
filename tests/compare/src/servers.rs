//! Clients of several languages on a real MongoDB server and on a real Cassandra node, each in a process
//! of its own: commands per second, latencies, and what the client's process costs.

pub(crate) mod build;
mod certificates;
mod own;
mod peer;

use crate::measure::{Rounds, median};
use crate::process::{RealServer, on_core};
use crate::report::{Section, Table};
use crate::settings::Settings;
use certificates::Certificates;
use core::net::SocketAddr;
use peer::{Peer, Round};
use std::ffi::OsString;
use std::process::Command;

pub(crate) use own::run as run_own;

/// How to run a client, or the reason why it cannot be.
type Build = fn() -> Result<Vec<OsString>, String>;

/// A kind of server, and its clients.
struct Kind {
    name: &'static str,
    command: &'static str,
    /// Starts a server on this core, if there is one, which accepts connections with and without TLS.
    start: fn(Option<u32>, &Certificates) -> Result<RealServer, String>,
    /// The arguments of a client, for a server and a use of it.
    arguments: fn(SocketAddr, Use, &Certificates) -> Vec<String>,
    /// The first is Poolhouse, the second the Rust peer, to which the ratios refer.
    clients: &'static [(&'static str, Build)],
    /// Commands that are in progress at a time.
    loads: [u32; 3],
}

/// How a client uses the server.
#[derive(Clone, Copy, Debug)]
enum Use {
    Defaults,
    /// It keeps [`IDLE`] connections.
    Idle,
    Tls,
}

const IDLE: usize = 100;

const KINDS: [Kind; 2] = [
    Kind {
        name: "mongod",
        command: "ping",
        start: |core, certificates| RealServer::mongod(core, &certificates.of_mongod()),
        arguments: |server, how, certificates| {
            let options = match how {
                Use::Defaults => String::new(),
                Use::Idle => format!("?minPoolSize={IDLE}&maxPoolSize={IDLE}"),
                Use::Tls => format!("?tls=true&tlsCAFile={}", certificates.authority().display()),
            };
            vec![format!("{server}/{options}")]
        },
        clients: &[
            ("poolhouse-smol", || build::own("mongo-poolhouse")),
            ("mongodb on tokio", || build::own("mongo-official")),
            ("poolhouse-smol, 10 connections", || build::own("mongo-poolhouse-10")),
            ("poolhouse-smol, edge-triggered, 10 connections", || build::own("mongo-poolhouse-edge-10")),
            ("libmongoc", || build::c("mongo")),
            ("mongo-driver (Go)", || build::go("mongo")),
            ("mongodb-driver-sync (Java)", || build::java("Mongo")),
            ("pymongo", || build::python("mongo")),
        ],
        loads: [1, 10, 100],
    },
    Kind {
        name: "Cassandra",
        command: "SELECT of one row",
        start: |core, certificates| RealServer::cassandra(core, &certificates.of_cassandra()),
        arguments: |server, how, certificates| {
            let more = match how {
                Use::Defaults => vec![],
                Use::Idle => vec![IDLE.to_string()],
                Use::Tls => vec!["1".to_owned(), certificates.authority().display().to_string()],
            };
            [vec![server.to_string()], more].concat()
        },
        clients: &[
            ("poolhouse-smol", || build::own("cql-poolhouse")),
            ("scylla on tokio", || build::own("cql-scylla")),
            ("gocql", || build::go("cql")),
            ("DataStax (Java)", || build::java("Cql")),
            ("cassandra-driver (Python)", || build::python("cql")),
        ],
        loads: [1, 128, 1_024],
    },
];

/// Runs the whole section.
pub(crate) fn run(settings: &Settings) -> Section {
    let mut section = Section::new("servers");
    let can_pin = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1)
        && Command::new("taskset").args(["-c", "0,1", "true"]).status().is_ok_and(|status| status.success());
    for kind in &KINDS {
        for pinned in [true, false] {
            if !pinned || can_pin {
                kind.measure(pinned, settings, &mut section);
            }
        }
    }
    if !can_pin {
        section.note("Without the cores 0 and 1 and taskset, no process is pinned to a core.");
    }
    section.note("Pinned: the server runs on one core, and the clients on another one. All clients have the default options of their drivers; those of Cassandra have one connection with room for all requests. Not pinned, smol's executor has one thread, and the other runtimes have one for each core.");
    section.note("A pool of the Rust driver of MongoDB has at most 10 connections by default, those of the other clients 100, as the specification requires. The server has a thread for each connection; so on one core, 100 connections are slower than 10. Two rows of Poolhouse therefore have 10; the edge-triggered one runs its tasks on the thread of its reactor.");
    section.note("The Cassandra node has a heap of 512 MB and a compiler that optimizes little, so that it starts fast. Each client uses the version of the protocol that it prefers.");
    section.note("CPU time and memory are those of the client's process, as the system counts them; CPU time has a resolution of 10 ms in each round. CPU us: for a command; user us and system us: the parts of it in the process and in the kernel. The system calls are counted by strace in a separate round with ten tasks.");
    section.note("The first reply is that since the start of the process. Memory with 100 idle connections: of a client with minPoolSize and maxPoolSize, or the number of connections to a node, at 100, a second after a round of 100 tasks. With TLS a client verifies the server's certificate; a connection of Cassandra's scylla has none here, because its TLS brings a second library of cryptography, which is built by a C compiler.");
    section
}

/// No part of this section runs in a worker.
pub(crate) fn part(_: &str, _: usize, _: Option<SocketAddr>, _: &Settings) -> Option<Section> {
    None
}

impl Kind {
    fn measure(&self, pinned: bool, settings: &Settings, section: &mut Section) {
        let (server_core, client_core) = if pinned { (Some(0), Some(1)) } else { (None, None) };
        let title = format!("{} on {}, {}", self.command, self.name, if pinned { "pinned" } else { "not pinned" });
        let certificates = Certificates::new();
        let server = match (self.start)(server_core, &certificates) {
            Ok(server) => server,
            Err(why) => {
                let mut table = Table::new(title, &["commands/s"]);
                table.skip("all clients", why);
                section.tables.push(table);
                return;
            }
        };
        let clients: Vec<_> = self.clients.iter().map(|(name, build)| (*name, build())).collect();
        let start = |words: &[OsString], how| {
            let mut command = on_core(client_core, &words[0]);
            command.args(&words[1..]).args((self.arguments)(server.address, how, &certificates));
            // Only Java reads it.
            command.env("JDK_JAVA_OPTIONS", certificates.of_java());
            Peer::start(command)
        };
        let mut peers: Vec<(&str, Result<Peer, String>)> = Vec::new();
        // Each client is started once more than it is counted: a new server is slow.
        let starts = Rounds::of(settings.of(1, 5), clients.len(), |case| {
            let (name, words) = &clients[case];
            let peer = words.clone().and_then(|words| start(&words, Use::Defaults));
            let first_reply_ms = peer.as_ref().map_or(f64::NAN, |peer| peer.first_reply_ms);
            match peers.get_mut(case) {
                Some(place) => *place = (*name, peer),
                None => peers.push((*name, peer)),
            }
            first_reply_ms
        });
        for (_, peer) in &mut peers {
            // Java compiles what it executes often.
            if let Ok(running) = peer
                && let Err(why) = running.round(self.loads[1], settings.of(200, 4_000))
            {
                *peer = Err(why);
            }
        }
        for load in self.loads {
            let table = measure(&format!("{title}, {load} at a time"), &mut peers, load, settings);
            section.tables.push(table);
        }
        let columns = ["first reply, ms", "memory MB", "peak MB", "syscalls/command"];
        let mut table = Table::new(format!("{title}, the process"), &columns);
        for (case, (name, peer)) in peers.iter_mut().enumerate() {
            match peer {
                Ok(peer) => {
                    let memory = peer.memory_mb();
                    let calls = peer.system_calls(settings);
                    let each = calls.as_ref().map_or(f64::NAN, |calls| calls.each);
                    table.row(*name, &[starts.median(case), memory.0, memory.1, each]);
                    match calls {
                        Ok(calls) => {
                            section.note(format!("{title}, {name}, system calls of a command: {}.", calls.names));
                            if case < 2 && !pinned {
                                section.note(format!("{title}, {name}, by `strace -c -f`:\n{}", calls.table));
                            }
                        }
                        Err(why) => section.note(format!("{title}, {name}: system calls were not counted: {why}.")),
                    }
                }
                Err(why) => table.skip(*name, why.clone()),
            }
        }
        section.tables.push(table);
        if pinned {
            return;
        }
        // Beside the clients of before, which are idle.
        let columns = ["first reply by TLS, ms", "MB with 100 idle connections"];
        let mut table = Table::new(format!("{title}, further processes"), &columns);
        let mut failures = vec![None; clients.len()];
        let starts = Rounds::of(settings.of(1, 5), clients.len(), |case| {
            let peer = clients[case].1.clone().and_then(|words| start(&words, Use::Tls));
            peer.map_or_else(
                |why| {
                    failures[case] = Some(why);
                    f64::NAN
                },
                |peer| peer.first_reply_ms,
            )
        });
        for (case, (name, words)) in clients.iter().enumerate() {
            let words = match words {
                Ok(words) => words,
                Err(why) => {
                    table.skip(*name, why.clone());
                    continue;
                }
            };
            let idle = start(words, Use::Idle).and_then(|mut peer| peer.idle_mb(server.address, IDLE));
            table.row(*name, &[starts.median(case), *idle.as_ref().unwrap_or(&f64::NAN)]);
            if let Some(why) = &failures[case] {
                section.note(format!("{title}, {name}: no reply by TLS: {why}."));
            }
            if let Err(why) = idle {
                section.note(format!("{title}, {name}: not with {IDLE} connections: {why}."));
            }
        }
        section.tables.push(table);
    }
}

/// Measures one load. A client that fails is a row with the reason from then on.
fn measure(title: &str, peers: &mut [(&str, Result<Peer, String>)], load: u32, settings: &Settings) -> Table {
    let columns = [
        "commands/s",
        "of the Rust peer",
        "p50 us",
        "p99 us",
        "CPU us",
        "user us",
        "system us",
        "CPU of the Rust peer",
    ];
    let mut table = Table::new(title, &columns);
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); peers.len()];
    // A command takes up to half a second if many are in progress.
    let milliseconds = settings.of(200, if load > 100 { 3_000 } else { 1_500 });
    let rates = Rounds::of(settings.of(1, 5), peers.len(), |case| {
        let (_, peer) = &mut peers[case];
        let Ok(running) = peer else { return f64::NAN };
        match running.round(load, milliseconds) {
            Ok(round) => {
                rounds[case].push(round);
                round.rate
            }
            Err(why) => {
                *peer = Err(why);
                f64::NAN
            }
        }
    });
    let of = |case: usize, figure: fn(&Round) -> f64| {
        // The first round is the warm-up.
        median(rounds[case].iter().skip(1).map(figure).collect())
    };
    for (case, (name, peer)) in peers.iter().enumerate() {
        if let Err(why) = peer {
            table.skip(*name, why.clone());
            continue;
        }
        let cpu = |round: &Round| round.user_us + round.system_us;
        let of_rust_peer = |ratio: f64| if peers[1].1.is_ok() { ratio } else { f64::NAN };
        let cpu_ratios = rounds[case].iter().zip(&rounds[1]).skip(1).map(|(one, rust)| cpu(one) / cpu(rust));
        let figures = [
            rates.median(case),
            of_rust_peer(rates.ratio(case, 1)),
            of(case, |round| round.p50_us),
            of(case, |round| round.p99_us),
            of(case, cpu),
            of(case, |round| round.user_us),
            of(case, |round| round.system_us),
            of_rust_peer(median(cpu_ratios.collect())),
        ];
        table.row(*name, &figures);
    }
    table
}
