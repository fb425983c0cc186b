//! Processes of this program: servers, and workers with a number of threads that is fixed at their
//! start.

use crate::report::Section;
use crate::settings::Settings;
use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use poolhouse_fake::cql::{CqlServer, CqlServerOptions};
use poolhouse_fake::mongo::{FakeOptions, FakeServer};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

/// How long a real server may take to start. Cassandra takes 10 s.
const START_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a real server may take to end in order.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// A command that runs this program with other arguments.
pub(crate) fn this() -> Command {
    Command::new(std::env::current_exe().expect("this program has a path"))
}

/// Runs a program to its end. Returns its standard output; the error has the last line of all output.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("no {program} ({error})"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let all = text + &String::from_utf8_lossy(&output.stderr);
    let last = all.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    Err(format!("{program} failed: {last}"))
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

/// A real server on loopback with an empty folder. Both end with this value.
#[derive(Debug)]
pub(crate) struct RealServer {
    name: &'static str,
    command: Command,
    child: Child,
    folder: PathBuf,
    pub(crate) address: SocketAddr,
}

impl RealServer {
    /// Starts the mongod that `MONGOD` names, on this core if there is one, with further arguments. The error
    /// is the reason why there is none.
    pub(crate) fn mongod(core: Option<u32>, more: &[OsString]) -> Result<Self, String> {
        let (program, address) = (mongod_program()?, free_ports(1)?);
        Self::start("mongod", address, |folder| {
            let mut command = mongod(core, &program, folder, address);
            command.args(more);
            command
        })
    }

    /// Starts the members of a replica set with this name, which the caller initiates.
    pub(crate) fn mongod_set(name: &str, members: u16) -> Result<Vec<Self>, String> {
        let (program, first) = (mongod_program()?, free_ports(members)?);
        (0..members)
            .map(|member| {
                let address = SocketAddr::new(first.ip(), first.port() + member);
                Self::start("mongod", address, |folder| {
                    let mut command = mongod(None, &program, folder, address);
                    command.args(["--replSet", name, "--oplogSize", "256", "--wiredTigerCacheSizeGB", "0.25"]);
                    // An orderly end waits this long for its clients: 15 s by default.
                    command.args(["--setParameter", "shutdownTimeoutMillisForSignaledShutdown=2000"]);
                    command
                })
            })
            .collect()
    }

    /// Starts one node of the Cassandra of `tests/scripts/cassandra`, with further lines of its configuration.
    pub(crate) fn cassandra(core: Option<u32>, more: &str) -> Result<Self, String> {
        let (jars, address) = (cassandra_jars()?, free_ports(CASSANDRA_PORTS)?);
        Self::start("Cassandra", address, |folder| {
            let mut command = cassandra_node(core, &jars, folder, address);
            command.env("MORE", more);
            command
        })
    }

    /// Starts a cluster of Cassandra, whose nodes have this number of loopback addresses and one port.
    pub(crate) fn cassandra_cluster(nodes: u8) -> Result<Vec<Self>, String> {
        let (jars, seed) = (cassandra_jars()?, free_ports(CASSANDRA_PORTS + u16::from(nodes))?);
        // One after another: two nodes that join at once refuse each other.
        (1..=nodes)
            .map(|node| {
                let address = SocketAddr::from(([127, 0, 0, node], seed.port()));
                Self::start("Cassandra", address, |folder| {
                    let mut command = cassandra_node(None, &jars, folder, address);
                    // Else a killed node forgets the writes of the last seconds.
                    command.env("SEED", seed.to_string()).env("COMMITLOG_SYNC", "batch");
                    command.env("NODETOOL_PORT", (seed.port() + CASSANDRA_PORTS + u16::from(node) - 1).to_string());
                    command
                })
            })
            .collect()
    }

    fn start(name: &'static str, address: SocketAddr, command: impl FnOnce(&Path) -> Command) -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("poolhouse-compare-{}-{}", address.ip(), address.port()));
        std::fs::create_dir(&folder).map_err(|error| error.to_string())?;
        let mut command = command(&folder);
        command.stdin(Stdio::null());
        let child = spawn(&mut command, &folder).inspect_err(|_| drop(std::fs::remove_dir_all(&folder)))?;
        let mut server = Self { name, command, child, folder, address };
        server.wait_until_it_listens()?;
        Ok(server)
    }

    /// Kills the process, which has no time to tell its clients.
    pub(crate) fn kill(&mut self) {
        // Errors mean that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal to the process, such as `STOP`, by its id.
    pub(crate) fn signal(&mut self, name: &str) -> Result<(), String> {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return Err(format!("{} has ended", self.name));
        }
        output(Command::new("kill").args(["-s", name, &self.child.id().to_string()])).map(drop)
    }

    /// Runs nodetool on this node of Cassandra.
    pub(crate) fn nodetool(&self, command: &str) -> Result<(), String> {
        let mut nodetool = Command::new(CASSANDRA);
        nodetool.envs(self.command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        output(nodetool.arg(&self.folder).args(["nodetool", command])).map(drop)
    }

    /// Waits until the process has ended, as after the signal `TERM`, starts the server again with its data,
    /// and waits until it listens.
    pub(crate) fn restart(&mut self) -> Result<(), String> {
        let until = Instant::now() + END_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                return Err(format!("{} does not end within {END_TIMEOUT:?}", self.name));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.child = spawn(&mut self.command, &self.folder)?;
        self.wait_until_it_listens()
    }

    fn wait_until_it_listens(&mut self) -> Result<(), String> {
        let until = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(self.address).is_err() {
            if let Ok(Some(status)) = self.child.try_wait() {
                let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                let last = log.lines().last().unwrap_or_default();
                return Err(format!("{} ended at its start ({status}): {last}", self.name));
            }
            if Instant::now() > until {
                return Err(format!("{} does not listen after {START_TIMEOUT:?}", self.name));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

fn spawn(command: &mut Command, folder: &Path) -> Result<Child, String> {
    let log = File::create(folder.join("log")).map_err(|error| error.to_string())?;
    let errors = log.try_clone().map_err(|error| error.to_string())?;
    command.stdout(log).stderr(errors).spawn().map_err(|error| error.to_string())
}

fn mongod_program() -> Result<OsString, String> {
    std::env::var_os("MONGOD").ok_or_else(|| "MONGOD does not name a server: see tests/scripts/mongod".to_owned())
}

fn mongod(core: Option<u32>, program: &OsStr, folder: &Path, address: SocketAddr) -> Command {
    let mut command = on_core(core, program);
    command.arg("--dbpath").arg(folder);
    command.args(["--bind_ip", "127.0.0.1", "--port", &address.port().to_string()]);
    command
}

/// For clients, for other nodes, for tools.
const CASSANDRA_PORTS: u16 = 3;

const CASSANDRA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/cassandra");

/// Returns the folder with the programs of Cassandra, which are installed if necessary.
fn cassandra_jars() -> Result<String, String> {
    let output = Command::new(CASSANDRA).output().map_err(|error| error.to_string())?;
    let (folder, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(folder.trim().to_owned()) } else { Err(errors.trim().to_owned()) }
}

fn cassandra_node(core: Option<u32>, jars: &str, folder: &Path, address: SocketAddr) -> Command {
    let mut command = on_core(core, CASSANDRA);
    command.env("CASSANDRA", jars);
    command.arg(folder).args([address.ip().to_string(), address.port().to_string()]);
    command
}

impl Drop for RealServer {
    fn drop(&mut self) {
        self.kill();
        // The error means that the folder is gone.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the first of some consecutive ports that are free on the first loopback addresses. They are
/// below those that the system chooses for connections, which could take the port of a killed server.
fn free_ports(count: u16) -> Result<SocketAddr, String> {
    let is_free = |port| (1..=3).all(|last| TcpListener::bind((Ipv4Addr::new(127, 0, 0, last), port)).is_ok());
    let start = u16::try_from(std::process::id() % 10_000).unwrap_or_default();
    let candidates = (0..1_000).map(|step| 12_000 + (start + 10 * step) % 18_000);
    let first = candidates.into_iter().find(|&first| (first..first + count).all(is_free));
    first.map(|first| SocketAddr::from(([127, 0, 0, 1], first))).ok_or_else(|| "no free ports".to_owned())
}

/// Returns the lines of an output as they are printed.
pub(crate) fn lines(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

/// Returns a command that runs a program on one core, or on any.
pub(crate) fn on_core(core: Option<u32>, program: impl AsRef<OsStr>) -> Command {
    let Some(core) = core else { return Command::new(program) };
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string()]).arg(program);
    command
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
