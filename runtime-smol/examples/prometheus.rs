//! Serves the metrics of a client to Prometheus, on smol and without tokio.
//!
//! ```sh
//! cargo run -p poolhouse-smol --features metrics,tracing --example prometheus -- mongodb://127.0.0.1:27017 127.0.0.1:9898
//! curl http://127.0.0.1:9898/metrics
//! ```
//!
//! Without a connection string it runs against a fake server in the process. Log messages are
//! written to standard error, filtered by `RUST_LOG`: `RUST_LOG=poolhouse=debug`, or
//! `poolhouse::topology=debug` for one component.

use core::error::Error;
use core::time::Duration;
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use poolhouse_smol::Client;
use poolhouse_tests::fake::{FakeOptions, FakeServer};
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::net::{TcpListener, TcpStream};
use smol::stream::StreamExt;

use std::io;
use tracing_subscriber::EnvFilter;

/// Maximum size of a request, in bytes.
const REQUEST_BYTES_MAX: usize = 8 * 1024;

fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_env_filter(EnvFilter::from_default_env()).with_writer(io::stderr).init();
    // Must precede the creation of the client: a pool registers its series when it is created, with
    // the recorder that is installed then.
    let recorder = recorder()?;

    let mut arguments = std::env::args().skip(1);
    let fake = FakeServer::start(FakeOptions::default())?;
    let uri = arguments.next().unwrap_or_else(|| fake.uri());
    let listen = arguments.next().unwrap_or_else(|| "127.0.0.1:9898".to_owned());
    smol::block_on(async {
        let client = Client::new(&uri).await?;
        let load = smol::spawn(keep_busy(client.clone()));
        let upkeep = smol::spawn(keep_up(recorder.clone()));
        let listener = TcpListener::bind(&listen).await?;
        eprintln!("http://{}/metrics", listener.local_addr()?);
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
        drop((load, upkeep));
        client.close().await;
        Ok(())
    })
}

/// The process's recorder: histograms of times from half a millisecond to ten seconds.
fn recorder() -> Result<PrometheusHandle, BuildError> {
    const SECONDS: [f64; 10] = [0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0];
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

async fn keep_busy(client: Client) {
    loop {
        if let Err(error) = client.run_command("admin", bson::doc! { "ping": 1 }).await {
            eprintln!("{error}");
        }
        smol::Timer::after(Duration::from_millis(20)).await;
    }
}

/// Answers one request, whatever its path, and closes the connection.
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
    let body = recorder.render();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.close().await
}
