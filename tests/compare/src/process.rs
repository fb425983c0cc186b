//! Processes of this program: servers, and workers with a number of threads that is fixed at their
//! start.

use crate::report::Section;
use crate::settings::Settings;
use core::net::SocketAddr;
use core::time::Duration;
use poolhouse_fake::cql::{CqlServer, CqlServerOptions};
use poolhouse_fake::mongo::{FakeOptions, FakeServer};
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// How long a real server may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);

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

/// A real MongoDB server on loopback with an empty folder. Both end with this value.
#[derive(Debug)]
pub(crate) struct Mongod {
    child: Child,
    folder: PathBuf,
    pub(crate) address: SocketAddr,
}

impl Mongod {
    /// Starts the program that `MONGOD` names. The error is the reason why there is none.
    pub(crate) fn start() -> Result<Self, String> {
        let program = std::env::var_os("MONGOD").ok_or("MONGOD does not name a server: see tests/scripts/mongod")?;
        let reserved = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
        let address = reserved.local_addr().map_err(|error| error.to_string())?;
        drop(reserved);
        let folder = std::env::temp_dir().join(format!("poolhouse-compare-{}", address.port()));
        std::fs::create_dir(&folder).map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.arg("--dbpath").arg(&folder).args(["--bind_ip", "127.0.0.1", "--port", &address.port().to_string()]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().map_err(|error| error.to_string())?;
        let mut server = Self { child, folder, address };
        let until = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(address).is_err() {
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(format!("mongod ended at its start: {status}"));
            }
            if Instant::now() > until {
                return Err(format!("mongod does not listen after {START_TIMEOUT:?}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }
}

impl Drop for Mongod {
    fn drop(&mut self) {
        // Errors mean that it has ended already, or that the folder is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
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
pub(crate) fn worker(part: &str, threads: usize, server: Option<SocketAddr>, settings: &Settings) -> Section {
    let mut command = this();
    command.args(["worker", part, &threads.to_string()]);
    command.args(server.map(|server| server.to_string()));
    command.args(settings.quick.then_some("--quick"));
    command.env("SMOL_THREADS", threads.to_string()).stderr(Stdio::inherit());
    let output = command.output().expect("this program runs");
    assert!(output.status.success(), "{part} failed: {}", output.status);
    serde_json::from_slice(&output.stdout).expect("a worker prints its results as JSON")
}
