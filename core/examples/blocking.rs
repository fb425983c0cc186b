//! A client without async, tasks or threads: the state machines of the core on blocking sockets of
//! the standard library.
//!
//! `cargo run -p poolhouse-core --example blocking -- host:port[,host:port]`
//!
//! Discovers the deployment, sends a ping to the primary, or to a secondary if there is no primary,
//! and prints the result.

#[path = "blocking/client.rs"]
mod client;

use client::Client;
use poolhouse_core::selection::{ReadMode, ReadPreference, SelectionCriteria};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let hosts = std::env::args().nth(1).unwrap_or_else(|| "localhost:27017".to_owned());
    match ping(&hosts) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn ping(hosts: &str) -> Result<(), client::Error> {
    let seeds: Vec<&str> = hosts.split(',').collect();
    let mut client = Client::new(&seeds)?;
    let criteria = SelectionCriteria::read(ReadPreference::of(ReadMode::PrimaryPreferred));
    let begin = Instant::now();
    let address = client.run(&criteria, "admin", |command| command.int32("ping", 1).map(drop))?;
    println!("{address} answered; with selection that took {:?}", begin.elapsed());
    println!("{}", client.topology().topology_type());
    for server in client.topology().servers() {
        match server.round_trip_time() {
            Some(time) => println!("  {server}, {time:?} away"),
            None => println!("  {server}"),
        }
    }
    client.close();
    Ok(())
}
