//! The clients that are part of this program, as processes of `peers/README.md`.

use crate::clients::official;
use crate::measure::quantile;
use crate::mux::one_connection;
use alloc::sync::Arc;
use core::net::SocketAddr;
use core::num::NonZeroUsize;
use core::pin::Pin;
use core::time::Duration;
use mongodb::bson::doc;
use poolhouse_client::Platform;
use poolhouse_smol::mux::cql::{Consistency, Parameters};
use poolhouse_smol::mux::{RequestOptions, Session, SessionOptions, Statement};
use poolhouse_smol::{Client, ClientOptions, edge};
use scylla::client::PoolSize;
use scylla::client::session::Session as Scylla;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::prepared::PreparedStatement;
use std::time::Instant;
use tokio::runtime::Runtime;

/// A task that sends commands, and returns their times.
type Work = Pin<Box<dyn Future<Output = Vec<f64>> + Send>>;

const STATEMENT: &str = "SELECT release_version FROM system.local";

/// A client that sends the command of its kind of server.
trait Sends: Clone + Send + Sync + 'static {
    fn send(&self) -> impl Future<Output = ()> + Send;
}

impl<P: Platform> Sends for poolhouse_client::Client<P> {
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

impl Sends for (Session, Statement) {
    async fn send(&self) {
        let (parameters, options) = (Parameters::new(Consistency::LocalOne), RequestOptions::default());
        let reply = self.0.execute(&self.1, parameters, options).await.expect("answered");
        let rows: Vec<(&str,)> = reply.rows_as().expect("a text");
        assert_eq!(rows.len(), 1);
    }
}

impl Sends for (Arc<Scylla>, PreparedStatement) {
    async fn send(&self) {
        let reply = self.0.execute_unpaged(&self.1, ()).await.expect("answered");
        let rows = reply.into_rows_result().expect("rows");
        let _: (&str,) = rows.single_row().expect("a text");
    }
}

/// The main function of a client's process.
pub(crate) fn run(name: &str, server: SocketAddr) {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    match name {
        "mongo-poolhouse" | "mongo-poolhouse-10" => {
            let mut options = ClientOptions::new(server.to_string());
            if name == "mongo-poolhouse-10" {
                options.pool.max_pool_size = 10;
            }
            on_smol(&Client::with_options(options).expect("valid options"), smol::spawn);
        }
        "mongo-poolhouse-edge-10" => {
            let mut options = ClientOptions::new(server.to_string());
            options.pool.max_pool_size = 10;
            on_smol(&edge::Client::with_options(options).expect("valid options"), edge::spawn);
        }
        "mongo-official" => {
            let runtime = runtime();
            let client = runtime.block_on(async { mongodb::Client::with_options(official(server)) });
            on_tokio(&runtime, &client.expect("valid options"));
        }
        "cql-poolhouse" => {
            let options = SessionOptions::contact_points([server.to_string()]).mux(one_connection());
            let session = Session::new(options).expect("a session");
            let statement = smol::block_on(session.prepare(STATEMENT)).expect("a statement");
            on_smol(&(session, statement), smol::spawn);
        }
        "cql-scylla" => {
            let runtime = runtime();
            let building = SessionBuilder::new().known_node_addr(server);
            let building = building.pool_size(PoolSize::PerHost(NonZeroUsize::MIN));
            let session = runtime.block_on(building.build()).expect("a session");
            let statement = runtime.block_on(session.prepare(STATEMENT)).expect("a statement");
            on_tokio(&runtime, &(Arc::new(session), statement));
        }
        other => panic!("unknown client {other}"),
    }
}

/// - `spawn`: runs the future of a task.
fn on_smol(client: &impl Sends, spawn: fn(Work) -> smol::Task<Vec<f64>>) {
    smol::block_on(client.send());
    rounds(|tasks, end| {
        let running: Vec<_> = (0..tasks).map(|_| spawn(Box::pin(work(client.clone(), end)))).collect();
        smol::future::block_on(async {
            let mut all = Vec::new();
            for task in running {
                all.push(task.await);
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
            let mut all = Vec::new();
            for task in running {
                all.push(task.await.expect("no panic"));
            }
            all
        })
    });
}

/// Sends commands, one after another, until the end of the round. Returns their times in microseconds.
async fn work(client: impl Sends, end: Instant) -> Vec<f64> {
    let mut waits = Vec::new();
    let mut start = Instant::now();
    while start < end {
        client.send().await;
        let now = Instant::now();
        waits.push((now - start).as_secs_f64() * 1e6);
        start = now;
    }
    waits
}

/// Reads the rounds from the standard input, and prints their figures.
fn rounds(round: impl Fn(u32, Instant) -> Vec<Vec<f64>>) {
    println!("ready");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let words = line.split_once(' ').expect("a number of tasks, and milliseconds");
        let tasks = words.0.parse().expect("a number of tasks");
        let duration = Duration::from_millis(words.1.parse().expect("milliseconds"));
        let begun = Instant::now();
        let waits = round(tasks, begun + duration);
        println!("{} {}", waits.iter().map(Vec::len).sum::<usize>(), begun.elapsed().as_secs_f64());
        let mut all = waits.concat();
        println!("{} {}", quantile(&mut all, 0.5), quantile(&mut all, 0.99));
    }
}
