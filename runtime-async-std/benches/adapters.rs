//! Benchmarks of the two adapters: `cargo bench -p poolhouse-async-std --bench adapters`.
//!
//! `ping` is performed by the client on smol and by the client on async-std, from 1, 10 and 64
//! tasks over 10 connections. For comparison, the same request and reply bytes are sent over bare
//! sockets of each runtime, with a task for each, and over the standard library's blocking sockets,
//! with a thread for each. Executors have one thread, then two. The fake server runs in this
//! process, and each runtime in a separate process, because in one process both would use the same
//! reactor. The cases alternate. Times are medians of the rounds; ratios are medians of the ratios
//! within a round, because a slower machine then affects all cases equally.

extern crate alloc;

use alloc::sync::Arc;
use core::net::SocketAddr;
use poolhouse_async_std::poolhouse_client::{Client, Platform};
use poolhouse_async_std::{AsyncStd, ClientOptions};
use poolhouse_exchange::mongo::{Exchange, Socket, connect, median, ping, warm_client};
use poolhouse_smol::Smol;
use poolhouse_tests::fake::{FakeOptions, FakeServer};
use poolhouse_tests::patience::run;
use std::io::{BufRead, BufReader, Lines, Write, stdin};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Instant;

/// Number of rounds; the reported figures are their medians.
const ROUNDS: usize = 21;
/// Operations of a case in a round, rounded up to a multiple of the number of tasks.
const OPERATIONS: u32 = 1_400;
/// Connections of a client, and bare sockets.
const CONNECTIONS: u32 = 10;
const TASKS: [u32; 3] = [1, 10, 64];
const THREADS: [&str; 2] = ["1", "2"];
/// Minimum throughput of async-std, relative to smol's.
const AIM: f64 = 0.85;

/// The processes, and the cases that each of them performs.
const RUNTIMES: [&str; 3] = ["std", "smol", "async-std"];
const CASES: [(usize, &str, &str); 5] = [
    (0, "bare", "std TcpStream, a thread each"),
    (1, "bare", "smol, bare sockets, a task each"),
    (2, "bare", "async-std, bare sockets, a task each"),
    (1, "client", "smol, client"),
    (2, "client", "async-std, client"),
];
const BARE: [usize; 3] = [0, 1, 2];
const CLIENTS: [usize; 2] = [3, 4];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if let ["runtime", runtime, address] = args[..] {
        let address: SocketAddr = address.parse().expect("host:port");
        match runtime {
            "std" => obey(&mut Threads::new(address)),
            "smol" => obey(&mut Tasks::<Smol>::new(address)),
            _ => obey(&mut Tasks::<AsyncStd>::new(address)),
        }
        return;
    }
    println!("machine: {} cores", std::thread::available_parallelism().map_or(1, usize::from));
    let server = FakeServer::start(FakeOptions::default()).expect("a server on loopback");
    for threads in THREADS {
        println!("\nSMOL_THREADS={threads} ASYNC_STD_THREAD_COUNT={threads}");
        println!("{:<38}{:>6}{:>10}{:>10}{:>10}{:>16}", "", "tasks", "us/op", "op/s", "of std", "of its sockets");
        let mut runtimes = RUNTIMES.map(|runtime| Process::start(runtime, server.address(), threads));
        for tasks in TASKS {
            table(&mut runtimes, tasks);
        }
    }
}

fn table(runtimes: &mut [Process; 3], tasks: u32) {
    let mut round = |operations| CASES.map(|(runtime, case, _)| runtimes[runtime].measure(case, tasks, operations));
    // Warms up buffers, tables and caches.
    round(OPERATIONS / 4);
    let rounds: Vec<_> = (0..ROUNDS).map(|_| round(OPERATIONS)).collect();
    // Throughput of one case relative to another's.
    let part = |case: usize, whole: usize| median(rounds.iter().map(|round| round[whole] / round[case]).collect());
    for (index, (runtime, _, title)) in CASES.into_iter().enumerate() {
        let ns = median(rounds.iter().map(|round| round[index]).collect());
        let share = |whole| format!("{:.1} %", part(index, whole) * 100.0);
        let of_its_own = if CLIENTS.contains(&index) { share(BARE[runtime]) } else { String::new() };
        let tasks = if BARE.contains(&index) { tasks.min(CONNECTIONS) } else { tasks };
        println!("{title:<38}{tasks:>6}{:>10.2}{:>10.0}{:>10}{of_its_own:>16}", ns / 1e3, 1e9 / ns, share(BARE[0]),);
    }
    let ratio = part(CLIENTS[1], CLIENTS[0]);
    let verdict = if ratio < AIM { "MISSED" } else { "ok" };
    println!("async-std's client of smol's: {:.1} %, aim >= {:.0} %: {verdict}\n", ratio * 100.0, AIM * 100.0);
}

/// A runtime in a separate process.
struct Process {
    child: Child,
    commands: ChildStdin,
    figures: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(runtime: &str, server: SocketAddr, threads: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program has a path"))
            .args(["runtime", runtime, &server.to_string()])
            .env("SMOL_THREADS", threads)
            .env("ASYNC_STD_THREAD_COUNT", threads)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program runs");
        let commands = child.stdin.take().expect("a pipe");
        let figures = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self { child, commands, figures }
    }

    /// Nanoseconds for each operation.
    fn measure(&mut self, case: &str, tasks: u32, operations: u32) -> f64 {
        writeln!(self.commands, "{case} {tasks} {operations}").expect("it runs");
        let figure = self.figures.next().expect("it runs").expect("it answers");
        figure.parse().expect("a number")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process has no state that must be saved, so it can be killed at any point.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The cases of a process: each performs `times` operations in each of `tasks` tasks.
trait Work {
    fn bare(&mut self, tasks: u32, times: u32);
    fn client(&mut self, tasks: u32, times: u32);
}

/// Executes the commands on standard input and prints how long each took.
fn obey(work: &mut impl Work) {
    for line in stdin().lines() {
        let line = line.expect("a line");
        let words: Vec<&str> = line.split(' ').collect();
        let [case, tasks, operations] = words[..] else { panic!("{line}") };
        let (tasks, operations): (u32, u32) = (tasks.parse().expect("a number"), operations.parse().expect("a number"));
        let bare = case == "bare";
        // The number of tasks is at most that of the sockets, so no task waits for a socket.
        let tasks = if bare { tasks.min(CONNECTIONS) } else { tasks };
        let times = operations.div_ceil(tasks);
        let start = Instant::now();
        if bare {
            work.bare(tasks, times);
        } else {
            work.client(tasks, times);
        }
        println!("{}", start.elapsed().as_secs_f64() * 1e9 / f64::from(times * tasks));
    }
}

/// Blocking sockets.
struct Threads {
    exchange: Exchange,
    sockets: Vec<Socket<TcpStream>>,
}

impl Threads {
    fn new(server: SocketAddr) -> Self {
        Self { exchange: Exchange::with(server), sockets: (0..CONNECTIONS).map(|_| connect(server)).collect() }
    }
}

impl Work for Threads {
    fn bare(&mut self, tasks: u32, times: u32) {
        let exchange = &self.exchange;
        std::thread::scope(|scope| {
            for socket in self.sockets.iter_mut().take(tasks as usize) {
                scope.spawn(move || (0..times).for_each(|_| exchange.once_blocking(socket)));
            }
        });
    }

    fn client(&mut self, _tasks: u32, _times: u32) {
        panic!("the client needs a runtime");
    }
}

/// Sockets and the client of a runtime, on its executor.
struct Tasks<P: Platform> {
    platform: P,
    exchange: Arc<Exchange>,
    sockets: Vec<Socket<P::Tcp>>,
    client: Client<P>,
}

impl<P: Platform + Default> Tasks<P>
where
    P::Tcp: 'static,
{
    fn new(server: SocketAddr) -> Self {
        let platform = P::default();
        let (sockets, client) = run(async {
            let mut sockets = Vec::new();
            for _ in 0..CONNECTIONS {
                sockets.push(Socket::new(platform.connect_tcp(server).await.expect("it listens")));
            }
            (sockets, warm_client(ClientOptions::new(server.to_string()), CONNECTIONS, None).await)
        });
        Self { platform, exchange: Arc::new(Exchange::with(server)), sockets, client }
    }
}

impl<P: Platform + Default> Work for Tasks<P>
where
    P::Tcp: 'static,
{
    fn bare(&mut self, tasks: u32, times: u32) {
        let (put, done) = channel();
        let running: Vec<P::Task> = self
            .sockets
            .drain(..tasks as usize)
            .map(|mut socket| {
                let (put, exchange) = (put.clone(), Arc::clone(&self.exchange));
                self.platform.spawn(async move {
                    for _ in 0..times {
                        exchange.once(&mut socket).await;
                    }
                    put.send(socket).expect("waited for");
                })
            })
            .collect();
        self.sockets.extend((0..tasks).map(|_| done.recv().expect("the task ends")));
        drop(running);
    }

    fn client(&mut self, tasks: u32, times: u32) {
        let (tell, done) = channel();
        let running: Vec<P::Task> = (0..tasks)
            .map(|_| {
                let (tell, client) = (tell.clone(), self.client.clone());
                self.platform.spawn(async move {
                    for _ in 0..times {
                        ping(&client).await;
                    }
                    tell.send(()).expect("waited for");
                })
            })
            .collect();
        (0..tasks).for_each(|_| done.recv().expect("the task ends"));
        drop(running);
    }
}
