//! Four tasks of a device store what they measure over a pool of two connections, in static memory.
//!
//! ```sh
//! cargo run -p poolhouse-embassy --example telemetry
//! cargo run -p poolhouse-embassy --example telemetry -- 127.0.0.1:27017
//! ```
//!
//! The device is a thread here. Its network stack is embassy-net, as on a device, at one end of a
//! cable in memory. The bridge at the other end forwards to the server of the argument, or to a
//! fake server.

extern crate alloc;

#[path = "../../tests/pair"]
mod pair {
    #[allow(dead_code, reason = "tests use all of it")]
    pub(crate) mod net;
}
mod typed;

use core::error::Error;
use core::net::SocketAddr;
use core::time::Duration;
use embassy_time::{Instant, Timer};
use pair::net;
use poolhouse_embassy::{Buffers, Client, Options, PoolOptions, Resources, Sizes};
use poolhouse_tests::fake::{FakeOptions, FakeServer};
use typed::{Reading, StoreError};

/// One server, two connections, four tasks that may wait for them.
type Device = Sizes<1, 2, 4>;

const TASKS: i64 = 4;
const READINGS: i64 = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let named = std::env::args().nth(1).map(|address| address.parse::<SocketAddr>()).transpose()?;
    let fake = if named.is_none() { Some(FakeServer::start(FakeOptions::default())?) } else { None };
    let Some(address) = named.or(fake.as_ref().map(FakeServer::address)) else { return Err("no server".into()) };
    net::run(async |net| {
        net.open_for(address, 8);
        if let Err(error) = report(net, address).await {
            eprintln!("{error}");
        }
    });
    if let Some(fake) = fake {
        println!("the fake server was sent {} inserts", fake.count_of("insert"));
    }
    Ok(())
}

/// Runs the program of a device. On a device, the memory that is leaked here is in statics, and the
/// options are a `const`.
async fn report(net: &net::Net, address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let seeds: &'static [&'static str] = vec![&*address.to_string().leak()].leak();
    let pool = PoolOptions { max_pool_size: 2, ..PoolOptions::DEFAULT };
    let options = Options { seeds, direct_connection: true, pool, app_name: Some("telemetry"), ..Options::DEFAULT };
    let config = Box::leak(Box::new(options.validate()?));
    let resources = Box::leak(Box::new(Resources::<Device>::new()));
    let buffers = Box::leak(Box::new(Buffers::new()));
    let (client, runner) = Client::new(resources, buffers, net.stack, config)?;
    net.spawn(async move { runner.run().await });

    typed::ping(&client).await?;
    println!("{:?}", typed::hello(&client).await?);
    let tasks: Vec<_> = (0..TASKS).map(|task| net.spawn_task(measure(client, task))).collect();
    for task in tasks {
        task.await?;
    }
    println!("{} documents were stored in {} ms", TASKS * READINGS, Instant::now().as_millis());
    client.close();
    Timer::after_millis(100).await;
    Ok(())
}

async fn measure(client: Client<Device>, task: i64) -> Result<(), StoreError> {
    for number in 0..READINGS {
        let at_ms = i64::try_from(Instant::now().as_millis()).unwrap_or(i64::MAX);
        let reading = Reading {
            device: "thermometer",
            number: task * READINGS + number,
            at_ms,
            millidegrees: 21_500 + i32::try_from(number).unwrap_or(0),
        };
        typed::store(&client, "telemetry", "readings", &reading, Duration::from_secs(5)).await?;
        Timer::after_millis(10).await;
    }
    Ok(())
}
