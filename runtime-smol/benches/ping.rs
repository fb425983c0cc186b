//! Benchmark of the client against the bare socket: `cargo bench -p poolhouse-smol --bench ping`.
//!
//! `ping` is performed by the client, from 1, 10, 64 and 100 tasks over 10 connections. The floor
//! is an exchange of the same request and reply bytes over bare sockets of async-io; each socket
//! either belongs to one task, or is taken from a channel that all tasks share. Everything runs on
//! smol's global executor, with one thread, then with two, against the fake server on a thread of
//! this process. The cases of a table alternate. Times are medians of the rounds; ratios are
//! medians of the ratios within a round, because a slower machine then affects both cases equally.
//!
//! One row is over TLS and includes the cost of encryption on both sides, because both run on this
//! machine.
//!
//! `ping instructions <case> <host:port> <times>` repeats one operation a number of times, for
//! `tests/scripts/ping_instructions.sh` to count its instructions.

extern crate alloc;

use alloc::sync::Arc;
use core::cell::Cell;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use poolhouse_allocator::Counting;
use poolhouse_exchange::mongo::{self, Exchange, Socket, median};
use poolhouse_smol::poolhouse_client::Platform;
use poolhouse_smol::{Client, ClientOptions, Smol};
use poolhouse_tests::fake::{FakeOptions, FakeServer};
use poolhouse_tests::tls::{CertificateRequest, Folder, Holder, ServerTls};
use smol::channel::{Receiver, Sender};
use std::process::{Command, ExitCode};
use std::time::Instant;

/// Number of rounds; the reported figures are their medians.
const ROUNDS: usize = 21;
/// Operations of a case in a round, rounded up to a multiple of the number of tasks.
const OPERATIONS: u32 = 1_400;
/// Connections of the client, and bare sockets.
const CONNECTIONS: u32 = 10;
const TASKS: [u32; 4] = [1, 10, 64, 100];
const THREADS: [&str; 2] = ["1", "2"];

#[global_allocator]
static ALLOCATOR: Counting = Counting(note);

thread_local! {
    /// Whether this thread runs tasks of the client.
    static CLIENT: Cell<bool> = const { Cell::new(false) };
}

/// Allocations of the client's threads.
static ASKED: AtomicU64 = AtomicU64::new(0);

fn note(taken: usize, _: usize) {
    // A thread that is ending has no thread-local cell any more. It is not a thread of the client.
    if taken > 0 && CLIENT.try_with(Cell::get).unwrap_or(false) {
        ASKED.fetch_add(1, Ordering::Relaxed);
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["tables"] => tables(),
        ["instructions", case, address, times] => {
            let case = Case::from_name(case).expect("a case");
            let times = times.parse().expect("a number of times");
            let address: SocketAddr = address.parse().expect("host:port");
            let (_encrypting, tls) = encrypting_server();
            let bench = Bench::new(address, tls);
            bench.round(case, 1, times);
        }
        // The number of threads of the global executor is fixed at its first use, so each number
        // needs a separate process.
        _ => {
            println!("machine: {} cores", std::thread::available_parallelism().map_or(1, usize::from));
            for threads in THREADS {
                println!("\nSMOL_THREADS={threads}");
                let this = std::env::current_exe().expect("this program has a path");
                let status = Command::new(this).arg("tables").env("SMOL_THREADS", threads).status();
                if !status.expect("this program runs").success() {
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    ExitCode::SUCCESS
}

/// The implementation that performs the operations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    /// Bare sockets, one for each task.
    Own,
    /// Bare sockets that tasks take from a channel and return to it.
    Channel,
    /// The client, without documents of the bson crate: commands are encoded into its buffers and
    /// replies parsed there.
    Raw,
    /// `Raw` with a time limit for each operation.
    Limited,
    /// The client with the documents of the bson crate.
    Bson,
    /// `Raw` over TLS. The server encrypts, too.
    Tls,
}

impl Case {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Own, "own"),
        (Self::Channel, "channel"),
        (Self::Raw, "raw"),
        (Self::Limited, "limited"),
        (Self::Bson, "bson"),
        (Self::Tls, "tls"),
    ];

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(case, _)| *case)
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Own => "bare sockets, a task each",
            Self::Channel => "bare sockets in a channel",
            Self::Raw => "client, raw",
            Self::Limited => "client, raw, with a time limit",
            Self::Bson => "client, bson documents",
            Self::Tls => "client, raw, over TLS",
        }
    }
}

/// The result of a round.
#[derive(Clone, Copy, Default)]
struct Figure {
    ns: f64,
    allocations: f64,
}

fn tables() {
    let server = FakeServer::start(FakeOptions::default()).expect("a server on loopback");
    let (_encrypting, tls) = encrypting_server();
    let bench = Bench::new(server.address(), tls);
    println!("{:<34}{:>6}{:>10}{:>12}{:>14}{:>10}", "", "tasks", "us/op", "op/s", "of the floor", "alloc/op");
    for tasks in TASKS {
        // With a socket for each task, no task waits for a socket, so the floor is `Own`. Otherwise
        // it is `Channel`.
        let floor = if tasks <= CONNECTIONS { Case::Own } else { Case::Channel };
        let own = if tasks <= CONNECTIONS { tasks } else { CONNECTIONS };
        let cases = Case::ALL.map(|(case, _)| case);
        let tasks_of = |case| if case == Case::Own { own } else { tasks };
        for case in cases {
            // Warms up buffers, tables and caches.
            bench.round(case, tasks_of(case), OPERATIONS / 4);
        }
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push(cases.map(|case| bench.round(case, tasks_of(case), OPERATIONS)));
        }
        let floor = cases.iter().position(|case| *case == floor).expect("one of them");
        for (index, case) in cases.into_iter().enumerate() {
            let ns = median(rounds.iter().map(|round| round[index].ns).collect());
            let share = median(rounds.iter().map(|round| round[floor].ns / round[index].ns).collect());
            let allocations = median(rounds.iter().map(|round| round[index].allocations).collect());
            println!(
                "{:<34}{:>6}{:>10.2}{:>12.0}{:>12.1} %{:>10.2}",
                case.title(),
                tasks_of(case),
                ns / 1e3,
                1e9 / ns,
                share * 100.0,
                allocations,
            );
        }
        println!();
    }
}

type Tcp = <Smol as Platform>::Tcp;

/// The clients and sockets of the cases, connected and warm.
struct Bench {
    client: Client,
    limited: Client,
    tls: Client,
    bare: Arc<Exchange>,
    sockets: (Sender<Socket<Tcp>>, Receiver<Socket<Tcp>>),
}

impl Bench {
    fn new(address: SocketAddr, tls: ClientOptions) -> Self {
        let sockets = smol::channel::bounded(CONNECTIONS as usize);
        for _ in 0..CONNECTIONS {
            let stream = smol::block_on(Smol.connect_tcp(address)).expect("a server that listens");
            sockets.0.try_send(Socket::new(stream)).expect("room for all");
        }
        let plain = ClientOptions::new(address.to_string());
        let warm = |options, timeout| smol::block_on(mongo::warm_client(options, CONNECTIONS, timeout));
        let client = warm(plain.clone(), None);
        let limited = warm(plain, Some(Duration::from_secs(10)));
        let tls = warm(tls, None);
        Self { client, limited, tls, bare: Arc::new(Exchange::with(address)), sockets }
    }

    /// Runs one case: `operations` in all, shared among `tasks`.
    fn round(&self, case: Case, tasks: u32, operations: u32) -> Figure {
        let each = operations.div_ceil(tasks);
        let count = f64::from(each * tasks);
        let before = ASKED.load(Ordering::Relaxed);
        let start = Instant::now();
        let running: Vec<smol::Task<()>> = (0..tasks).map(|_| self.spawn(case, each)).collect();
        smol::future::block_on(async {
            for task in running {
                task.await;
            }
        });
        let ns = start.elapsed().as_secs_f64() * 1e9 / count;
        let asked = ASKED.load(Ordering::Relaxed) - before;
        Figure { ns, allocations: f64::from(u32::try_from(asked).expect("a round is short")) / count }
    }

    fn spawn(&self, case: Case, times: u32) -> smol::Task<()> {
        let bare = Arc::clone(&self.bare);
        let (put, take) = self.sockets.clone();
        match case {
            Case::Own => smol::spawn(async move {
                let mut socket = take.recv().await.expect("open");
                for _ in 0..times {
                    CLIENT.set(true);
                    bare.once(&mut socket).await;
                }
                put.send(socket).await.expect("open");
            }),
            Case::Channel => smol::spawn(async move {
                for _ in 0..times {
                    CLIENT.set(true);
                    let mut socket = take.recv().await.expect("open");
                    bare.once(&mut socket).await;
                    put.send(socket).await.expect("open");
                }
            }),
            Case::Raw => smol::spawn(raw(self.client.clone(), times)),
            Case::Limited => smol::spawn(raw(self.limited.clone(), times)),
            Case::Tls => smol::spawn(raw(self.tls.clone(), times)),
            Case::Bson => {
                let client = self.client.clone();
                smol::spawn(async move {
                    for _ in 0..times {
                        CLIENT.set(true);
                        let reply = client.run_command("admin", bson::doc! { "ping": 1 }).await.expect("answered");
                        assert!(reply.contains_key("ok"));
                    }
                })
            }
        }
    }
}

async fn raw(client: Client, times: u32) {
    for _ in 0..times {
        CLIENT.set(true);
        mongo::ping(&client).await;
    }
}

/// A fake server with TLS, and options for it.
fn encrypting_server() -> ((FakeServer, Folder), ClientOptions) {
    let (root, folder) = (Holder::root("root"), Folder::new());
    let mut options = FakeOptions::default();
    options.tls = Some(ServerTls::new(root.issue(&CertificateRequest::server(&["127.0.0.1"])).identity()));
    let server = FakeServer::start(options).expect("a server on loopback");
    let mut options = ClientOptions::new(server.address().to_string());
    options.tls.get_or_insert_default().ca_file = Some(folder.write("ca.pem", root.certificate()));
    ((server, folder), options)
}
