//! Benchmark of a session against the bare socket: `cargo bench -p poolhouse-smol --bench mux`.
//!
//! Requests per second over one loopback connection with 1, 128, 1,024 and 32,768 requests in
//! flight, by
//!
//! - the floor: a bare exchange of the same bytes by one task, which sends requests for all ids
//!   that are free in one write, reads with an equally large buffer, and parses only the headers of
//!   replies;
//! - a minimal implementation with a future for each request: the same exchange with ids, wakers
//!   and bodies in one lock, and a task of smol's for each request in flight. It has no pool, no
//!   time limits and no errors, and its futures must not be dropped;
//! - Poolhouse's `Session`, a task of smol's for each request in flight; in version 4 of the
//!   protocol, and in version 5 (which has checksums);
//! - the same in version 4, with the host of each request chosen among 1,000;
//! - `Session::request_all` in version 4: one future for all requests in flight.
//!
//! `tests/compare` measures the `scylla` crate beside them.
//!
//! Everything runs in this process against one fake server, which has a thread for each connection;
//! with one thread for the client, then with two. The cases of a table alternate. Times are medians
//! of the rounds; ratios are medians of the ratios within a round, because a slower machine then
//! affects all cases equally.
//!
//! `mux server` runs only the server, and `mux requests <case> <in flight> <host:port> <times>`
//! repeats one request a number of times, for `tests/scripts/mux_instructions.sh` to count its
//! instructions.

extern crate alloc;

use alloc::sync::Arc;
use core::future::poll_fn;
use core::net::SocketAddr;
use core::pin::Pin;
use core::sync::atomic::{AtomicU32, Ordering};
use core::task::{Poll, Waker};
use poolhouse_exchange::cql::{Bare, INPUT_BYTES, envelope};
use poolhouse_exchange::mongo::median;
use poolhouse_smol::mux::cql::{Consistency, HEADER_BYTES, Limits, Outgoing, Parameters, Request, Version};
use poolhouse_smol::mux::{CqlHost, Distance, HostOptions, MuxId, MuxOptions, Session, SessionOptions};
use poolhouse_tests::cql_server::{CqlServer, CqlServerOptions, cell_of};
use smol::Async;
use smol::io::{AsyncRead, AsyncWrite};
use std::net::TcpStream;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::time::Instant;

/// Number of rounds; the reported figures are their medians.
const ROUNDS: usize = 11;
/// Requests in flight, and requests in a round.
const LOADS: [(u32, u32); 4] = [(1, 3_000), (128, 40_000), (1_024, 60_000), (32_768, 262_144)];
const THREADS: [&str; 2] = ["1", "2"];
/// The statement of each request, and the one cell of its reply.
const STATEMENT: &str = "echo a cell of twenty-four.";
const CELL: &[u8] = b"a cell of twenty-four.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["tables"] => tables(),
        ["server"] => {
            let server = CqlServer::start(CqlServerOptions::fast()).expect("a server on loopback");
            println!("{}", server.address());
            // Runs until standard input ends.
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        ["requests", case, in_flight, address, times] => {
            let case = Case::from_name(case).expect("a case");
            let in_flight = in_flight.parse().expect("a number of requests in flight");
            let address = address.parse().expect("host:port");
            Bench::new(address, case).round(in_flight, times.parse().expect("a number of times"));
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

/// The client that sends the requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    /// A bare exchange of the same bytes.
    Bare,
    /// A minimal implementation with a future for each request.
    Futures,
    /// A session, in version 4.
    Session,
    /// A session, in version 5.
    Session5,
    /// A session with 1,000 hosts, of which each request names one.
    Chosen,
    /// A session, one future for all requests in flight.
    All,
}

impl Case {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Bare, "bare"),
        (Self::Futures, "futures"),
        (Self::Session, "session"),
        (Self::Session5, "session5"),
        (Self::Chosen, "chosen"),
        (Self::All, "all"),
    ];

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(case, _)| *case)
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Bare => "bare exchange (the floor)",
            Self::Futures => "bare, a future each",
            Self::Session => "Session, v4",
            Self::Session5 => "Session, v5",
            Self::Chosen => "Session, 1,000 hosts",
            Self::All => "Session::request_all",
        }
    }
}

fn tables() {
    let server = CqlServer::start(CqlServerOptions::fast()).expect("a server on loopback");
    let benches = Case::ALL.map(|(case, _)| Bench::new(server.address(), case));
    println!("{:<28}{:>10}{:>12}{:>12}{:>15}", "", "in flight", "us/request", "requests/s", "of the floor");
    for (in_flight, operations) in LOADS {
        for bench in &benches {
            // Warms up buffers, tables and caches.
            bench.round(in_flight, operations / 4);
        }
        let mut rounds: Vec<[f64; Case::ALL.len()]> = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push(benches.each_ref().map(|bench| bench.round(in_flight, operations)));
        }
        for (index, (case, _)) in Case::ALL.into_iter().enumerate() {
            let ns = median(rounds.iter().map(|round| round[index]).collect());
            // The floor is the first case.
            let share = median(rounds.iter().map(|round| round[0] / round[index]).collect()) * 100.0;
            println!("{:<28}{in_flight:>10}{:>12.3}{:>12.0}{share:>13.1} %", case.title(), ns / 1e3, 1e9 / ns,);
        }
        println!();
    }
    let counts = server.counts();
    println!(
        "{} requests on {} connections, {} reads and {} writes",
        counts.requests, counts.open, counts.reads, counts.writes
    );
}

/// A connected client.
enum Bench {
    Bare(Mutex<Option<Bare<Async<TcpStream>>>>),
    Futures(Arc<Mutex<Common>>),
    Session(Session),
    Chosen(Session, Arc<[MuxId]>),
    All(Session),
}

impl Bench {
    fn new(address: SocketAddr, case: Case) -> Self {
        let session = |version, others: u16| {
            let most = 32_768;
            let host = HostOptions {
                core_connections: 1,
                max_connections: 1,
                max_requests_per_connection: most,
                new_connection_threshold: most,
            };
            let mux = MuxOptions { local: host, ..MuxOptions::DEFAULT };
            let mut options = SessionOptions::new([address.to_string()]).version(version).mux(mux);
            let other = |number| CqlHost { address: format!("host{number}"), distance: Distance::Ignored };
            options.hosts.extend((0..others).map(other));
            let session = Session::new(options).expect("a session");
            // Establishes its connection.
            smol::block_on(session.query(STATEMENT).consistency(Consistency::One).send()).expect("an answer");
            session
        };
        match case {
            Case::Bare => Self::Bare(Mutex::new(Some(smol::block_on(connect(address))))),
            Case::Futures => Self::Futures(share(smol::block_on(connect(address)).into_stream())),
            Case::Session => Self::Session(session(Version::V4, 0)),
            Case::Session5 => Self::Session(session(Version::V5, 0)),
            Case::Chosen => {
                let session = session(Version::V4, 999);
                let chosen =
                    session.hosts().iter().find(|host| host.address == address.to_string()).map(|host| host.id);
                Self::Chosen(session, chosen.into_iter().collect())
            }
            Case::All => Self::All(session(Version::V4, 0)),
        }
    }

    /// Performs `operations` requests, at most `in_flight` at a time. Returns nanoseconds per
    /// request.
    fn round(&self, in_flight: u32, operations: u32) -> f64 {
        let start = Instant::now();
        let left = Arc::new(AtomicU32::new(operations));
        match self {
            Self::Bare(bare) => {
                let mut place = bare.lock().expect("no panic");
                let mut own = place.take().expect("one at a time");
                // On a thread of the executor, as in the other cases.
                let work = smol::spawn(async move {
                    own.exchange(in_flight, operations).await;
                    own
                });
                *place = Some(smol::future::block_on(work));
            }
            Self::Futures(common) => {
                let ask = |_| smol::spawn(ask_bare(Arc::clone(common), Arc::clone(&left)));
                let running: Vec<_> = (0..in_flight).map(ask).collect();
                smol::future::block_on(async {
                    for task in running {
                        task.await;
                    }
                });
            }
            Self::Session(session) => {
                let ask = |_| smol::spawn(ask_session(session.clone(), Arc::clone(&left)));
                let running: Vec<_> = (0..in_flight).map(ask).collect();
                smol::future::block_on(async {
                    for task in running {
                        task.await;
                    }
                });
            }
            Self::Chosen(session, host) => {
                let ask = |_| smol::spawn(ask_chosen(session.clone(), Arc::clone(host), Arc::clone(&left)));
                let running: Vec<_> = (0..in_flight).map(ask).collect();
                smol::future::block_on(async {
                    for task in running {
                        task.await;
                    }
                });
            }
            Self::All(session) => {
                let asking = ask_all(session.clone(), in_flight as usize, operations as usize);
                smol::future::block_on(smol::spawn(asking));
            }
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(operations)
    }
}

/// Decrements the number of remaining requests. Returns `false` if none is left.
fn take(left: &AtomicU32) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

async fn ask_session(session: Session, left: Arc<AtomicU32>) {
    while take(&left) {
        let reply = session.query(STATEMENT).consistency(Consistency::One).send().await.expect("an answer");
        debug_assert_eq!(cell_of(reply.body()), Some(CELL));
    }
}

async fn ask_chosen(session: Session, host: Arc<[MuxId]>, left: Arc<AtomicU32>) {
    while take(&left) {
        let call = session.query(STATEMENT).consistency(Consistency::One).hosts(&host);
        let reply = call.send().await.expect("an answer");
        debug_assert_eq!(cell_of(reply.body()), Some(CELL));
    }
}

async fn ask_all(session: Session, in_flight: usize, operations: usize) {
    let calls = vec![session.query(STATEMENT).consistency(Consistency::One); in_flight];
    for begun in (0..operations).step_by(in_flight) {
        let some = &calls[..in_flight.min(operations - begun)];
        for reply in session.request_all(some).await {
            debug_assert_eq!(cell_of(reply.expect("an answer").body()), Some(CELL));
        }
    }
}

async fn ask_bare(common: Arc<Mutex<Common>>, left: Arc<AtomicU32>) {
    while take(&left) {
        let mut own = None;
        let body = poll_fn(|context| {
            let mut common = common.lock().expect("no panic");
            let Common { out, free, places, task, .. } = &mut *common;
            let Some(id) = own else {
                let id = free.pop().expect("not more requests than ids");
                own = Some(id);
                let task = if out.is_empty() { task.take() } else { None };
                let query = Request::Query { text: STATEMENT, parameters: Parameters::new(Consistency::One) };
                query.encode(out, Outgoing::new(Version::V4, id), &Limits::DEFAULT).expect("a request");
                places[id as usize].0 = Some(context.waker().clone());
                drop(common);
                task.into_iter().for_each(Waker::wake);
                return Poll::Pending;
            };
            match places[id as usize].1.take() {
                Some(body) => {
                    free.push(id);
                    Poll::Ready(body)
                }
                None => Poll::Pending,
            }
        });
        let body = body.await;
        debug_assert_eq!(cell_of(&body), Some(CELL));
    }
}

/// State shared by the requests and the task that reads and writes.
struct Common {
    out: Vec<u8>,
    free: Vec<i16>,
    /// The waker of each waiting request and the body of its reply, by stream id.
    places: Vec<(Option<Waker>, Option<Vec<u8>>)>,
    /// The waker of the task that reads and writes.
    task: Option<Waker>,
}

/// A socket in version 4, after the handshake.
async fn connect(address: SocketAddr) -> Bare<Async<TcpStream>> {
    let stream = Async::<TcpStream>::connect(address).await.expect("a server that listens");
    stream.get_ref().set_nodelay(true).expect("a socket");
    Bare::over(stream, STATEMENT).await
}

/// Reads and writes in a separate task until the program ends.
fn share(mut stream: Async<TcpStream>) -> Arc<Mutex<Common>> {
    let places = (0..=i16::MAX).map(|_| (None, None)).collect();
    let common = Common { out: Vec::new(), free: (0..=i16::MAX).collect(), places, task: None };
    let common = Arc::new(Mutex::new(common));
    let shared = Arc::clone(&common);
    let (mut sent, mut end, mut wakers) = (0, 0, Vec::new());
    let (mut input, mut output) = (vec![0; INPUT_BYTES], Vec::new());
    let serving = poll_fn(move |context| {
        if sent == output.len() {
            sent = 0;
            output.clear();
            let mut common = shared.lock().expect("no panic");
            core::mem::swap(&mut common.out, &mut output);
            common.task = Some(context.waker().clone());
        }
        while sent < output.len() {
            match Pin::new(&mut stream).poll_write(context, &output[sent..]) {
                Poll::Ready(count) => sent += count.expect("written"),
                Poll::Pending => break,
            }
        }
        let Poll::Ready(count) = Pin::new(&mut stream).poll_read(context, &mut input[end..]) else {
            return Poll::Pending;
        };
        let Ok(count @ 1..) = count else {
            // The server has closed the connection: the task ends.
            return Poll::Ready(());
        };
        end += count;
        let mut common = shared.lock().expect("no panic");
        let mut start = 0;
        while let Some((header, length)) = envelope(&input[start..end]) {
            let (waker, body) = &mut common.places[header.stream as usize];
            *body = Some(input[start + HEADER_BYTES..start + length].to_vec());
            wakers.extend(waker.take());
            start += length;
        }
        drop(common);
        wakers.drain(..).for_each(Waker::wake);
        input.copy_within(start..end, 0);
        end -= start;
        context.waker().wake_by_ref();
        Poll::Pending
    });
    smol::spawn(serving).detach();
    common
}
