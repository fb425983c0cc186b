//! The clients that are part of this program, as processes of `peers/README.md`.

use crate::measure::quantile;
use crate::mux::one_connection;
use alloc::sync::Arc;
use core::num::{NonZeroU32, NonZeroUsize};
use core::pin::Pin;
use core::time::Duration;
use mongodb::bson::doc;
use poolhouse_client::Platform;
use poolhouse_smol::mux::cql::Consistency;
use poolhouse_smol::mux::{Session, SessionOptions, Statement};
use poolhouse_smol::{Client, ClientOptions, TlsOptions, edge};
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
        let call = self.0.execute(&self.1, &()).consistency(Consistency::LocalOne);
        let reply = call.send().await.expect("answered");
        assert!(reply.one::<(&str,)>().expect("a text").is_some());
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
///
/// - `server`, `more`: the arguments of `peers/README.md`.
pub(crate) fn run(name: &str, server: &str, more: &[&str]) {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let connections = more.first().map_or(NonZeroU32::MIN, |count| count.parse().expect("a number of connections"));
    let authority = more.get(1);
    match name {
        "mongo-poolhouse" | "mongo-poolhouse-10" => {
            let mut options = ClientOptions::parse(&format!("mongodb://{server}")).expect("a connection string");
            if name == "mongo-poolhouse-10" {
                options.pool.max_pool_size = 10;
            }
            let client = Client::with_options(options).unwrap_or_else(|error| fail(&error.to_string()));
            on_smol(&client, smol::spawn);
        }
        "mongo-poolhouse-edge-10" => {
            let mut options = ClientOptions::parse(&format!("mongodb://{server}")).expect("a connection string");
            options.pool.max_pool_size = 10;
            let client = edge::Client::with_options(options).unwrap_or_else(|error| fail(&error.to_string()));
            on_smol(&client, edge::spawn);
        }
        "mongo-official" => {
            let runtime = runtime();
            let client = runtime.block_on(mongodb::Client::with_uri_str(format!("mongodb://{server}")));
            on_tokio(&runtime, &client.expect("valid options"));
        }
        "cql-poolhouse" => {
            let mut mux = one_connection();
            (mux.local.core_connections, mux.local.max_connections) = (connections.get(), connections.get());
            let mut options = SessionOptions::contact_points([server]).mux(mux);
            if let Some(file) = authority {
                let mut tls = TlsOptions::default();
                tls.ca_file = Some(file.into());
                options = options.tls(tls);
            }
            let session = Session::new(options).expect("a session");
            let statement = smol::block_on(session.prepare(STATEMENT)).expect("a statement");
            on_smol(&(session, statement), smol::spawn);
        }
        "cql-scylla" => {
            let runtime = runtime();
            if authority.is_some() {
                fail("its TLS brings a second library of cryptography, which is built by a C compiler");
            }
            let connections = NonZeroUsize::try_from(connections).expect("not many");
            let building = SessionBuilder::new().known_node(server).pool_size(PoolSize::PerHost(connections));
            let session = runtime.block_on(building.build()).expect("a session");
            let statement = runtime.block_on(session.prepare(STATEMENT)).expect("a statement");
            on_tokio(&runtime, &(Arc::new(session), statement));
        }
        other => panic!("unknown client {other}"),
    }
}

fn fail(why: &str) -> ! {
    eprintln!("{why}");
    std::process::exit(1);
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
