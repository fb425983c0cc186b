//! The frame of the examples: the command line, the network, the outcomes of requests, the end.
#![no_std]

use core::cell::Cell;
use core::fmt::Debug;
use core::net::Ipv4Addr;
use embassy_executor::{SpawnToken, Spawner};
use embassy_net::{IpEndpoint, Stack, tcp::ConnectError};
use embassy_time::{Duration, Timer, with_timeout};
use poolhouse_board::{host, println, stack};
use poolhouse_embassy::pool::{Config, Manager, Options, Pool, PoolError, TcpSockets};
use static_cell::StaticCell;

/// The options of the pools. An invalid one fails the build.
pub const CONFIG: Config = match Options::DEFAULT.validate() {
    Ok(config) => config,
    Err(_) => panic!("an option is out of its range"),
};

/// The time limit of a request: far longer than one takes, also on a slow emulator.
const LIMIT: Duration = Duration::from_secs(20);

/// One run of an example: the parameters from its command line, and the outcomes so far.
#[derive(Debug)]
pub struct Run {
    /// The server.
    pub server: IpEndpoint,
    /// The number of requests of each task.
    pub requests: u16,
    /// The pause after each request.
    pub pause: Duration,
    succeeded: Cell<usize>,
    failed: Cell<usize>,
}

impl Run {
    fn read(mut arguments: impl Iterator<Item = &'static str>) -> Option<Self> {
        let address: Ipv4Addr = arguments.next()?.parse().ok()?;
        let server = (address, arguments.next()?.parse().ok()?).into();
        let requests = arguments.next()?.parse().ok()?;
        let pause = Duration::from_millis(arguments.next()?.parse().ok()?);
        Some(Self { server, requests, pause, succeeded: Cell::new(0), failed: Cell::new(0) })
    }

    /// Awaits one request, at most 20 s, prints and counts its outcome, and pauses.
    pub async fn request<T: Debug>(&self, task: u8, number: u16, request: impl Future<Output = Result<T, Failure>>) {
        let counter = match with_timeout(LIMIT, request).await.unwrap_or(Err(Failure::Late)) {
            Ok(value) => {
                println!("task {task}, request {number}: {value:?}");
                &self.succeeded
            }
            Err(failure) => {
                println!("task {task}, request {number} failed: {failure:?}");
                &self.failed
            }
        };
        counter.set(counter.get() + 1);
        Timer::after(self.pause).await;
    }

    /// Waits until all requests of all tasks have an outcome, prints the totals, closes all
    /// connections, and ends the program.
    pub async fn finish<M: Manager, const CONNECTIONS: usize, const TASKS: usize>(
        &self,
        pool: &Pool<M, CONNECTIONS, TASKS>,
        sockets: &'static TcpSockets<CONNECTIONS>,
    ) {
        while self.succeeded.get() + self.failed.get() < TASKS * usize::from(self.requests) {
            Timer::after_millis(20).await;
        }
        let (succeeded, failed) = (self.succeeded.get(), self.failed.get());
        println!("succeeded {succeeded}, failed {failed}, stack {} bytes", stack::used_bytes());
        pool.close();
        pool.drained().await;
        sockets.closed().await;
        poolhouse_probe::end(Ok(()))
    }
}

/// Why a request has no valid reply.
#[derive(Debug)]
pub enum Failure {
    /// No connection.
    Pool(PoolError<ConnectError>),
    /// The connection ended before the end of the reply.
    Cut,
    /// The reply violates the protocol, or does not belong to the request.
    Invalid(&'static str),
    /// The server refused the request with this code.
    Exception(u8),
    /// The time limit, which includes the wait for a connection, was exceeded.
    Late,
}

/// Waits for a lease. Ends the program if there is none.
pub async fn lease(network: Stack<'_>) {
    if let Err(why) = poolhouse_probe::lease(network).await {
        poolhouse_probe::end(Err(why));
    }
}

/// Starts the board, the network and the task of an example.
///
/// # Panics
///
/// When called a second time.
pub fn start<S, E: Debug>(task: impl FnOnce(Spawner, Stack<'static>, &'static Run) -> Result<SpawnToken<S>, E>) -> ! {
    static RUN: StaticCell<Run> = StaticCell::new();
    let Some(run) = Run::read(host::arguments()) else {
        poolhouse_probe::usage("ADDRESS PORT REQUESTS (of each task) PAUSE (in ms)")
    };
    let run: &_ = RUN.init(run);
    poolhouse_board::run(|spawner| {
        let network = poolhouse_probe::start_network(spawner);
        spawner.spawn(task(spawner, network, run).expect("spawned once"));
    })
}
