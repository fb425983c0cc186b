//! Processes of this program: servers, and workers with a number of threads that is fixed at their
//! start.

use crate::report::Section;
use crate::settings::Settings;
use core::net::SocketAddr;
use poolhouse_fake::cql::{CqlServer, CqlServerOptions};
use poolhouse_fake::mongo::{FakeOptions, FakeServer};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

/// A command that runs this program with other arguments.
fn this() -> Command {
    Command::new(std::env::current_exe().expect("this program has a path"))
}

/// The kind of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// MongoDB's protocol.
    Mongo,
    /// Cassandra's.
    Cql,
}

/// A fake server on loopback in a separate process, which ends with this process.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start(kind: Kind) -> Self {
        let name = match kind {
            Kind::Mongo => "mongo",
            Kind::Cql => "cql",
        };
        let child = this().args(["serve", name]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("this program runs");
        let mut line = String::new();
        let output = child.stdout.take().expect("a pipe to the program");
        BufReader::new(output).read_line(&mut line).expect("a server that prints its address");
        let address = line.trim().parse().expect("an address");
        Self { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server ends when its standard input is closed.
        drop(self.child.stdin.take());
        // An error means that it has ended already.
        let _ = self.child.wait();
    }
}

/// The main function of a server process.
pub(crate) fn serve(name: &str) {
    let until_the_end = || {
        let mut sink = [0; 64];
        while std::io::stdin().read(&mut sink).is_ok_and(|count| count > 0) {}
    };
    match name {
        "mongo" => {
            let mut options = FakeOptions::default();
            options.log_max = 0;
            options.connections_max = 20_000;
            let server = FakeServer::start(options).expect("a server on loopback");
            println!("{}", server.address());
            until_the_end();
        }
        "cql" => {
            let server = CqlServer::start(CqlServerOptions::fast()).expect("a server on loopback");
            println!("{}", server.address());
            until_the_end();
        }
        other => panic!("unknown server {other}"),
    }
}

/// Runs a part of a section in a separate process, with this number of threads for smol and for
/// tokio.
pub(crate) fn worker(part: &str, threads: usize, server: Option<&Server>, settings: &Settings) -> Section {
    let mut command = this();
    command.args(["worker", part, &threads.to_string()]);
    command.args(server.map(|server| server.address.to_string()));
    command.args(settings.quick.then_some("--quick"));
    command.env("SMOL_THREADS", threads.to_string()).stderr(Stdio::inherit());
    let output = command.output().expect("this program runs");
    assert!(output.status.success(), "{part} failed: {}", output.status);
    serde_json::from_slice(&output.stdout).expect("a worker prints its results as JSON")
}
