//! Pings a server from several threads, with a client in each.
//!
//! `cargo run --manifest-path core/client/examples/compio/Cargo.toml --example ping -- host:port`
//! (or a connection string; without an argument, a fake server of this process)

use compio::runtime::Runtime;
use poolhouse_client::Error;
use poolhouse_compio::Client;
use poolhouse_tests::fake::{FakeOptions, FakeServer};
use std::thread;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Pings of each thread.
const PINGS: u32 = 1_000;

fn main() -> Result<(), BoxError> {
    let server = std::env::args().nth(1);
    let fake = if server.is_none() { Some(FakeServer::start(FakeOptions::default())?) } else { None };
    let server = server.or(fake.as_ref().map(FakeServer::uri)).unwrap_or_default();
    let uri = if server.contains("://") { server } else { format!("mongodb://{server}") };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..thread::available_parallelism()?.get())
            .map(|number| {
                scope.spawn({
                    let uri = &uri;
                    move || run(number, uri)
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic")?;
        }
        Ok(())
    })
}

/// The body of a thread: a runtime, and a client that uses it.
fn run(number: usize, uri: &str) -> Result<(), BoxError> {
    let runtime = Runtime::new()?;
    let begun = std::time::Instant::now();
    runtime.block_on(async {
        let client = Client::new(uri).await?;
        for _ in 0..PINGS {
            client.run_command("admin", bson::doc! { "ping": 1 }).await?;
        }
        client.close().await;
        Ok::<(), Error>(())
    })?;
    println!("thread {number}, by {:?}: {PINGS} pings in {:?}", runtime.driver_type(), begun.elapsed());
    Ok(())
}
