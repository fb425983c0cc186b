//! The clients that are part of this program, as processes of `peers/README.md`.

use crate::clients::official;
use crate::measure::Waits;
use alloc::sync::Arc;
use core::net::SocketAddr;
use core::num::NonZeroUsize;
use core::time::Duration;
use mongodb::bson::doc;
use poolhouse_smol::mux::cql::Consistency;
use poolhouse_smol::mux::{HostOptions, MuxOptions, Session, SessionOptions};
use poolhouse_smol::{Client, ClientOptions};
use scylla::client::PoolSize;
use scylla::client::session::Session as Scylla;
use scylla::client::session_builder::SessionBuilder;
use std::io::Write;
use std::time::Instant;
use tokio::runtime::Runtime;

const STATEMENT: &str = "SELECT release_version FROM system.local";

/// A client that sends the command of its kind of server.
trait Sends: Clone + Send + Sync + 'static {
    fn send(&self) -> impl Future<Output = ()> + Send;
}

impl Sends for Client {
    async fn send(&self) {
        let reply = self.run_command("admin", doc! { "ping": 1 }).await.expect("answered");
        assert!(reply.contains_key("ok"));
    }
}

impl Sends for mongodb::Client {
    async fn send(&self) {
        let reply = self.database("admin").run_command(doc! { "ping": 1 }).await.expect("answered");
        assert!(reply.contains_key("ok"));
    }
}

impl Sends for Session {
    async fn send(&self) {
        self.query(STATEMENT, Consistency::One).await.expect("answered");
    }
}

impl Sends for Arc<Scylla> {
    async fn send(&self) {
        self.query_unpaged(STATEMENT, ()).await.expect("answered");
    }
}

/// The main function of a client's process.
pub(crate) fn run(name: &str, server: SocketAddr) {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    match name {
        "mongo-poolhouse" => {
            let options = ClientOptions::new(server.to_string());
            on_smol(&Client::with_options(options).expect("valid options"));
        }
        "mongo-official" => {
            let runtime = runtime();
            let client = runtime.block_on(async { mongodb::Client::with_options(official(server)) });
            on_tokio(&runtime, &client.expect("valid options"));
        }
        "cql-poolhouse" => {
            let most = 32_768;
            let local = HostOptions {
                core_connections: 1,
                max_connections: 1,
                max_requests_per_connection: most,
                new_connection_threshold: most,
            };
            let mux = MuxOptions { local, ..MuxOptions::DEFAULT };
            on_smol(&Session::new(SessionOptions::new([server.to_string()]).mux(mux)).expect("a session"));
        }
        "cql-scylla" => {
            let runtime = runtime();
            let building = SessionBuilder::new().known_node_addr(server);
            let building = building.pool_size(PoolSize::PerHost(NonZeroUsize::MIN));
            let session = runtime.block_on(building.build()).expect("a session");
            on_tokio(&runtime, &Arc::new(session));
        }
        other => panic!("unknown client {other}"),
    }
}

fn on_smol(client: &impl Sends) {
    smol::block_on(client.send());
    rounds(|tasks, end| {
        let running: Vec<_> = (0..tasks).map(|_| smol::spawn(work(client.clone(), end))).collect();
        smol::future::block_on(async {
            let mut all = Waits::new();
            for task in running {
                all.merge(&task.await);
            }
            all
        })
    });
}

fn on_tokio(runtime: &Runtime, client: &impl Sends) {
    runtime.block_on(client.send());
    rounds(|tasks, end| {
        let running: Vec<_> = (0..tasks).map(|_| runtime.spawn(work(client.clone(), end))).collect();
        runtime.block_on(async {
            let mut all = Waits::new();
            for task in running {
                all.merge(&task.await.expect("no panic"));
            }
            all
        })
    });
}

/// Sends commands, one after another, until the end of the round. Returns their times.
async fn work(client: impl Sends, end: Instant) -> Waits {
    let mut waits = Waits::new();
    let mut start = Instant::now();
    while start < end {
        client.send().await;
        let now = Instant::now();
        waits.add(now - start);
        start = now;
    }
    waits
}

/// Reads the rounds from the standard input, and prints their figures.
fn rounds(round: impl Fn(u32, Instant) -> Waits) {
    println!("ready");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let words = line.split_once(' ').expect("a number of tasks, and milliseconds");
        let tasks = words.0.parse().expect("a number of tasks");
        let duration = Duration::from_millis(words.1.parse().expect("milliseconds"));
        let begun = Instant::now();
        let waits = round(tasks, begun + duration);
        let us = |share| waits.quantile_ns(share) / 1e3;
        println!("{} {} {} {}", waits.total, begun.elapsed().as_secs_f64(), us(0.5), us(0.99));
        std::io::stdout().flush().expect("a pipe");
    }
}
