//! The clients that ping.

use super::libmongoc::Libmongoc;
use crate::allocator::counted;
use alloc::sync::Arc;
use core::net::SocketAddr;
use mongodb::bson::doc;
use mongodb::options::{ClientOptions as DriverOptions, ServerAddress};
use poolhouse_client::Platform;
use poolhouse_exchange::mongo::{self, Exchange, Socket};
use poolhouse_smol::{Client, ClientOptions, Smol, edge};
use smol::channel::{Receiver, Sender};
use std::time::Instant;

/// Number of connections of each client, and of bare sockets.
pub(super) const CONNECTIONS: u32 = 10;

/// The operations that are run before a round and not timed: one for each of this number in the round.
const WARM_UP: u32 = 10;

/// The cases by name.
pub(super) const NAMES: &[(&str, &str)] = &[
    ("own", "floor: bare async-io, a socket each"),
    ("channel", "floor: bare async-io, sockets in a channel"),
    ("raw", "poolhouse-smol, in place"),
    ("bson", "poolhouse-smol, bson documents"),
    ("edge", "poolhouse on smol, edge-triggered, bson documents"),
    ("official", "mongodb on tokio"),
    ("libmongoc", "libmongoc on threads"),
];

type Tcp = <Smol as Platform>::Tcp;

/// All clients, connected and warmed up.
pub(super) struct Actors {
    client: Client,
    edge: edge::Client,
    bare: Arc<Exchange>,
    sockets: (Sender<Socket<Tcp>>, Receiver<Socket<Tcp>>),
    driver: Option<Driver>,
    libmongoc: Result<Libmongoc, String>,
}

/// The official driver and its runtime.
struct Driver {
    runtime: tokio::runtime::Runtime,
    client: mongodb::Client,
}

impl Actors {
    pub(super) fn new(server: SocketAddr, threads: usize) -> Self {
        let driver = Some(Driver::new(server, threads));
        Self { driver, libmongoc: Libmongoc::start(server, CONNECTIONS), ..Self::without_peers(server) }
    }

    /// Only the cases that run on smol.
    fn without_peers(server: SocketAddr) -> Self {
        let sockets = smol::channel::bounded(CONNECTIONS as usize);
        for _ in 0..CONNECTIONS {
            let stream = smol::block_on(Smol.connect_tcp(server)).expect("a server that listens");
            sockets.0.try_send(Socket::new(stream)).expect("room for all");
        }
        let options = ClientOptions::new(server.to_string());
        let edge = smol::block_on(mongo::warm_client(options.clone(), CONNECTIONS, None));
        let client = smol::block_on(mongo::warm_client(options, CONNECTIONS, None));
        let bare = Arc::new(Exchange::with(server));
        Self { client, edge, bare, sockets, driver: None, libmongoc: Err("it was not requested".to_owned()) }
    }

    /// Returns the reason why a case cannot be measured here.
    pub(super) fn absence(&self, name: &str) -> Option<&str> {
        let why = self.libmongoc.as_ref().err()?;
        (name == "libmongoc").then_some(why)
    }

    /// Allocations for each operation, if they can be counted.
    pub(super) fn allocations(&mut self, name: &str, tasks: u32, operations: u32) -> Option<f64> {
        if name == "libmongoc" {
            return None;
        }
        let each = operations.div_ceil(tasks);
        let (_, found) = counted(|| self.run(name, tasks, each));
        Some(found.allocations as f64 / f64::from(each * tasks))
    }

    /// Runs this number of operations, shared among tasks, after some that are not timed: the first ones
    /// of a case depend on the case before it, which may have left this runtime idle. Returns seconds for each.
    pub(super) fn round(&mut self, name: &str, tasks: u32, operations: u32) -> f64 {
        let each = operations.div_ceil(tasks);
        self.run(name, tasks, each.div_ceil(WARM_UP));
        self.run(name, tasks, each)
    }

    /// Runs this number of operations in each task. Returns seconds for each.
    fn run(&mut self, name: &str, tasks: u32, each: u32) -> f64 {
        if name == "libmongoc" {
            return self.libmongoc.as_mut().expect("it is there").round(tasks, each);
        }
        let start = Instant::now();
        if name == "official" {
            let Driver { runtime, client } = self.driver.as_ref().expect("the program timeout is installed");
            let running: Vec<_> = (0..tasks).map(|_| runtime.spawn(ping_official(client.clone(), each))).collect();
            runtime.block_on(async {
                for task in running {
                    task.await.expect("no panic");
                }
            });
        } else {
            let running: Vec<_> = (0..tasks).map(|_| self.spawn(name, each)).collect();
            smol::future::block_on(async {
                for task in running {
                    task.await;
                }
            });
        }
        start.elapsed().as_secs_f64() / f64::from(each * tasks)
    }

    fn spawn(&self, name: &str, times: u32) -> smol::Task<()> {
        let bare = Arc::clone(&self.bare);
        let (put, take) = self.sockets.clone();
        let client = self.client.clone();
        match name {
            "own" => smol::spawn(async move {
                let mut socket = take.recv().await.expect("open");
                for _ in 0..times {
                    bare.once(&mut socket).await;
                }
                put.send(socket).await.expect("open");
            }),
            "channel" => smol::spawn(async move {
                for _ in 0..times {
                    let mut socket = take.recv().await.expect("open");
                    bare.once(&mut socket).await;
                    put.send(socket).await.expect("open");
                }
            }),
            "raw" => smol::spawn(async move {
                for _ in 0..times {
                    mongo::ping(&client).await;
                }
            }),
            "bson" => smol::spawn(ping_documents(client, times)),
            "edge" => edge::spawn(ping_documents(self.edge.clone(), times)),
            other => panic!("unknown case {other}"),
        }
    }
}

impl Driver {
    /// Creates a client, warmed up to as many connections as the others have.
    fn new(server: SocketAddr, threads: usize) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(threads).enable_all().build().expect("a runtime");
        let client = runtime.block_on(async {
            let mut options = official(server);
            options.max_pool_size = Some(CONNECTIONS);
            options.min_pool_size = Some(CONNECTIONS);
            options.max_connecting = Some(CONNECTIONS);
            let client = mongodb::Client::with_options(options).expect("valid options");
            client.warm_connection_pool().await;
            client
        });
        Self { runtime, client }
    }
}

async fn ping_documents<P: Platform>(client: poolhouse_client::Client<P>, times: u32) {
    for _ in 0..times {
        let reply = client.run_command("admin", doc! { "ping": 1 }).await.expect("answered");
        assert!(reply.contains_key("ok"));
    }
}

async fn ping_official(driver: mongodb::Client, times: u32) {
    let admin = driver.database("admin");
    for _ in 0..times {
        let reply = admin.run_command(doc! { "ping": 1 }).await.expect("answered");
        assert!(reply.contains_key("ok"));
    }
}

/// Options of the official driver for one server.
pub(crate) fn official(server: SocketAddr) -> DriverOptions {
    let host = ServerAddress::Tcp { host: server.ip().to_string(), port: Some(server.port()) };
    DriverOptions::builder().hosts(vec![host]).build()
}

/// Runs this number of pings of one case in one task; their instructions are counted.
pub(crate) fn repeat(name: &str, server: SocketAddr, times: u32) {
    match name {
        // Only one client is created: the others' instructions would be counted too.
        "official" => {
            let Driver { runtime, client } = Driver::new(server, 1);
            runtime.block_on(runtime.spawn(ping_official(client, times))).expect("no panic");
        }
        "raw" | "bson" | "edge" | "own" | "channel" => {
            Actors::without_peers(server).run(name, 1, times);
        }
        other => panic!("unknown case {other}"),
    }
}
