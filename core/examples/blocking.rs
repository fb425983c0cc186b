//! A client without async, tasks or threads: the server machine on blocking sockets of the standard
//! library.
//!
//! `cargo run -p poolhouse-core --example blocking -- host:port`
//!
//! Sends a ping, and prints the server and its round-trip time.

#[path = "blocking/client.rs"]
mod client;

use client::Client;
use core::time::Duration;
use poolhouse_wire::hello::{ClientMetadata, MetadataOptions};
use std::net::ToSocketAddrs;
use std::time::Instant;

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let host = std::env::args().nth(1).unwrap_or_else(|| "localhost:27017".to_owned());
    let address = host.to_socket_addrs()?.next().ok_or("the host has no address")?;
    let options = MetadataOptions {
        driver_name: "poolhouse-blocking",
        driver_version: env!("CARGO_PKG_VERSION"),
        os_type: std::env::consts::OS,
        ..MetadataOptions::default()
    };
    let metadata = ClientMetadata::new(&options)?;
    let mut client = Client::new(address, &metadata, Duration::from_secs(10))?;
    let begin = Instant::now();
    client.run(Duration::from_secs(30), |command| command.int32("ping", 1).map(drop))?;
    println!("{host} answered in {:?}, including the time to connect", begin.elapsed());
    for server in client.server.topology().servers() {
        println!("{server}, {:?} away", server.round_trip_time().unwrap_or_default());
    }
    Ok(())
}
