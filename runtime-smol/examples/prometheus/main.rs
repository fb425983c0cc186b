//! Serves the metrics of a client to Prometheus, and a dashboard of them, on smol and without tokio.
//!
//! ```sh
//! cargo run -p poolhouse-smol --features metrics,tracing --example prometheus -- mongodb://127.0.0.1:27017 127.0.0.1:9898
//! curl http://127.0.0.1:9898/metrics
//! ```
//!
//! The dashboard is `http://127.0.0.1:9898/`. The first argument is `mongodb://..`, `cassandra://host:port`, or
//! `redis://host:port`, which is a generic pool; without it, a fake MongoDB server runs in the process. Twenty
//! tasks keep the server busy. Log messages are written to standard error, filtered by `RUST_LOG`:
//! `RUST_LOG=info`, or `poolhouse::topology=debug` for one component.

#[path = "../pool_redis.rs"]
#[expect(dead_code, reason = "the example with this name is a program of its own")]
mod pool_redis;

use core::error::Error;
use core::time::Duration;
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use pool_redis::Redis;
use poolhouse_smol::bson::doc;
use poolhouse_smol::mux::{Session, SessionOptions};
use poolhouse_smol::{Client, Pool};
use poolhouse_tests::fake::{FakeOptions, FakeServer};
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::net::{TcpListener, TcpStream};
use smol::stream::StreamExt;
use std::io;
use tracing_subscriber::EnvFilter;

/// Maximum size of a request, in bytes.
const REQUEST_BYTES_MAX: usize = 8 * 1024;
/// The number of tasks that keep the server busy, and the pause between two of their operations.
const TASKS: usize = 20;
const PAUSE: Duration = Duration::from_millis(10);

const DASHBOARD: &str = include_str!("dashboard.html");

fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_env_filter(EnvFilter::from_default_env()).with_writer(io::stderr).init();
    // Must precede the creation of the client, which registers its series with the recorder that is
    // installed then.
    let recorder = recorder()?;

    let mut arguments = std::env::args().skip(1);
    let given = arguments.next();
    let fake = if given.is_none() { Some(FakeServer::start(FakeOptions::default())?) } else { None };
    let url = given.or_else(|| fake.as_ref().map(FakeServer::uri)).unwrap_or_default();
    let listen = arguments.next().unwrap_or_else(|| "127.0.0.1:9898".to_owned());
    smol::block_on(async {
        let mut tasks = vec![smol::spawn(keep_up(recorder.clone()))];
        match url.split_once("://") {
            Some(("cassandra", address)) => {
                let session = Session::new(SessionOptions::contact_points([address]))?;
                tasks.extend((0..TASKS).map(|_| smol::spawn(read_rows(session.clone()))));
            }
            Some(("redis", address)) => {
                let redis = Redis { address: address.to_owned(), password: None };
                let pool = Pool::builder(redis).name(address).wait_timeout(Duration::from_secs(2)).build()?;
                tasks.extend((0..TASKS).map(|_| smol::spawn(count(pool.clone()))));
            }
            _ => {
                let client = Client::new(&url).await?;
                tasks.extend((0..TASKS).map(|_| smol::spawn(insert(client.clone()))));
            }
        }
        let listener = TcpListener::bind(&listen).await?;
        eprintln!("http://{}/", listener.local_addr()?);
        let mut incoming = listener.incoming();
        while let Some(stream) = incoming.next().await {
            let Ok(stream) = stream else { continue };
            let recorder = recorder.clone();
            smol::spawn(async move {
                if let Err(error) = answer(stream, &recorder).await {
                    eprintln!("a scrape failed: {error}");
                }
            })
            .detach();
        }
        drop(tasks);
        Ok(())
    })
}

/// The process's recorder: histograms of times from half a millisecond to thirty seconds.
fn recorder() -> Result<PrometheusHandle, BuildError> {
    const SECONDS: [f64; 12] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0];
    PrometheusBuilder::new().set_buckets(&SECONDS)?.install_recorder()
}

/// Runs the periodic upkeep of the exporter. Its own HTTP listener, which is not used here, would
/// do that.
async fn keep_up(recorder: PrometheusHandle) {
    loop {
        smol::Timer::after(Duration::from_secs(5)).await;
        recorder.run_upkeep();
    }
}

async fn insert(client: Client) {
    let database = client.database("poolhouse");
    loop {
        if let Err(error) = database.run_command(doc! { "insert": "ticks", "documents": [{ "n": 1 }] }).await {
            eprintln!("{error}");
        }
        smol::Timer::after(PAUSE).await;
    }
}

async fn read_rows(session: Session) {
    loop {
        let read = session.query("SELECT release_version FROM system.local").idempotent(true);
        if let Err(error) = read.send().await {
            eprintln!("{error}");
        }
        smol::Timer::after(PAUSE).await;
    }
}

async fn count(pool: Pool<Redis>) {
    loop {
        match pool.get().await {
            Ok(mut connection) => {
                if let Err(error) = connection.command(&["INCR", "ticks"]).await {
                    eprintln!("{error}");
                }
            }
            Err(error) => eprintln!("{error}"),
        }
        smol::Timer::after(PAUSE).await;
    }
}

/// Answers one request, `GET /metrics` or any other, which gets the dashboard, and closes the connection.
async fn answer(mut stream: TcpStream, recorder: &PrometheusHandle) -> io::Result<()> {
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST_BYTES_MAX {
        let count = stream.read(&mut part).await?;
        if count == 0 {
            return Ok(());
        }
        request.extend_from_slice(part.get(..count).unwrap_or_default());
    }
    let (kind, body) = if request.starts_with(b"GET /metrics ") {
        ("text/plain; version=0.0.4", recorder.render())
    } else {
        ("text/html; charset=utf-8", DASHBOARD.to_owned())
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.close().await
}
