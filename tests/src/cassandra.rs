//! Starts and controls a real Cassandra node for the tests that need one.
//!
//! `tests/scripts/cassandra` installs Cassandra and runs a node. The environment variable
//! `CASSANDRA` names the folder with its jars; `./tests/run` provisions it. A [`Cassandra`] has a
//! separate port and folder; dropping it, also by a panic, ends the process by its id and removes
//! the folder.

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::ffi::{OsStr, OsString};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{env, fs, io, thread};

use crate::mongod::{Scratch, pick_ports};
use crate::process::Process;

/// The environment variable that names the folder with the jars.
pub const CASSANDRA: &str = "CASSANDRA";

/// The environment variable in which a script stores the reason why there is no Cassandra.
const CASSANDRA_MISSING: &str = "CASSANDRA_MISSING";

/// The Python with PyPI's `cassandra-driver`.
///
/// # Errors
///
/// Why there is none.
pub fn other_driver() -> Result<OsString, String> {
    env::var_os("POOLHOUSE_CQL_PYTHON").ok_or_else(|| {
        let reason = env::var("POOLHOUSE_CQL_PYTHON_MISSING");
        reason.unwrap_or_else(|_| "POOLHOUSE_CQL_PYTHON is not set (see tests/scripts/cql-client)".into())
    })
}

/// A script of `tests/clients` for this Python, with the address of a server as its first arguments.
#[must_use]
pub fn script_of_other_driver(python: &OsStr, name: &str, server: SocketAddr) -> Command {
    let mut command = Command::new("timeout");
    // Far longer than the limits of the scripts.
    command.arg("200").arg(python);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(name));
    command.args([server.ip().to_string(), server.port().to_string()]).stdin(Stdio::null());
    command
}

/// The script that runs a node.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/cassandra");

/// The line of a node's log before it accepts clients.
const READY: &str = "Starting listening for CQL clients";

/// The line of a new node's log after which it accepts the password of its user.
const USER_CREATED: &str = "Created default superuser role";

/// Time limit of a start. An idle machine needs 10 s.
const START_TIMEOUT: Duration = Duration::from_secs(180);

/// Time limit of an orderly shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(50);

/// Returns the folder with the jars of the Cassandra to test with.
///
/// # Errors
/// The reason why there is none.
pub fn available() -> Result<PathBuf, String> {
    let Some(value) = env::var_os(CASSANDRA).filter(|value| !value.is_empty()) else {
        let why = env::var(CASSANDRA_MISSING).unwrap_or_else(|_| format!("{CASSANDRA} is not set"));
        return Err(format!("no Cassandra ({why})"));
    };
    let path = crate::spec::resolve(Path::new(&value));
    if path.is_dir() { Ok(path) } else { Err(format!("no Cassandra ({CASSANDRA} = {} is no folder)", path.display())) }
}

/// The options of a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct CassandraOptions<'a> {
    /// Whether clients need a password; user and password are `cassandra`.
    pub requires_password: bool,
    /// Further lines of `cassandra.yaml`.
    pub more: &'a str,
    /// A node of the cluster to join, and the loopback address of this node: each node of a cluster
    /// has another. `None`: a cluster of its own on 127.0.0.1.
    pub join: Option<(&'a Cassandra, Ipv4Addr)>,
}

/// A node used by one test.
#[derive(Debug)]
pub struct Cassandra {
    // Fields are dropped in this order: the process ends before its folder is removed.
    process: Option<Process>,
    command: Command,
    address: SocketAddr,
    scratch: Scratch,
}

impl Cassandra {
    /// Starts a node and waits until it accepts clients.
    ///
    /// # Errors
    /// The reason why it does not, with the end of its log.
    pub fn start(options: CassandraOptions<'_>) -> Result<Self, String> {
        let jars = available()?;
        let scratch = Scratch::create().map_err(|error| error.to_string())?;
        // For clients, for other nodes, and for nodetool.
        let port = pick_ports(3).map_err(|error| error.to_string())?;
        let ip = options.join.map_or(Ipv4Addr::LOCALHOST, |(_, ip)| ip);
        let address = SocketAddr::from((ip, port));
        let mut command = Command::new(SCRIPT);
        command.arg(scratch.data()).arg(ip.to_string()).arg(port.to_string());
        command.env(CASSANDRA, jars).env("MORE", options.more);
        if options.requires_password {
            command.env("AUTHENTICATOR", "PasswordAuthenticator");
        }
        if let Some((seed, _)) = options.join {
            command.env("SEED", seed.address().to_string());
        }
        let mut node = Self { process: None, command, address, scratch };
        node.restart()?;
        if options.requires_password {
            node.wait_until(|node| node.has_logged(USER_CREATED))?;
        }
        Ok(node)
    }

    /// Returns the address for clients; the same after a restart.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the end of its log, for messages of failing tests.
    #[must_use]
    pub fn log_tail(&self) -> String {
        self.scratch.log_tail()
    }

    /// Starts the node again on the same port and data, and waits until it accepts clients; kills it
    /// first if it is running.
    ///
    /// # Errors
    /// The reason why it does not, with the end of its log.
    pub fn restart(&mut self) -> Result<(), String> {
        self.kill();
        let output = self.scratch.path().join("output");
        // Only the log of this start is searched.
        let _ = fs::remove_file(&output);
        let process = Process::spawn(&mut self.command, &self.scratch).map_err(text("starting Cassandra"))?;
        self.process = Some(process);
        // The log has this line shortly before the port is open.
        self.wait_until(|node| node.has_logged(READY) && TcpStream::connect(node.address()).is_ok())
    }

    fn has_logged(&self, line: &str) -> bool {
        fs::read_to_string(self.scratch.path().join("output")).is_ok_and(|log| log.contains(line))
    }

    fn wait_until(&mut self, is_ready: impl Fn(&Self) -> bool) -> Result<(), String> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !is_ready(self) {
            let ended = self.running()?.exit_status().map_err(text("waiting for Cassandra"))?;
            if ended.is_some() || Instant::now() >= deadline {
                return Err(format!("Cassandra did not start ({ended:?}): {}", self.scratch.log_tail()));
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Ends the process at once (SIGKILL). No-op if it is not running.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Stops the process (SIGSTOP) and waits until it is stopped: connecting still succeeds, but it
    /// sends no bytes.
    ///
    /// # Errors
    /// The process is not running, or is not stopped within 10 s.
    pub fn stop(&mut self) -> Result<(), String> {
        self.running()?.stop().map_err(text("stopping Cassandra"))
    }

    /// Continues a stopped process (SIGCONT).
    ///
    /// # Errors
    /// The process is not running.
    pub fn cont(&mut self) -> Result<(), String> {
        self.running()?.cont().map_err(text("continuing Cassandra"))
    }

    /// Shuts the process down (SIGTERM), and waits for its end.
    ///
    /// # Errors
    /// The process is not running, or did not end within a minute; it is killed then.
    pub fn shutdown(&mut self) -> Result<(), String> {
        let ended = self.running()?.terminate(SHUTDOWN_TIMEOUT);
        self.process = None;
        ended.map_err(|error| format!("shutting Cassandra down: {error}: {}", self.scratch.log_tail()))
    }

    /// Makes the node forget the statements that it has prepared: shuts it down, removes their table, and
    /// starts it again.
    ///
    /// # Errors
    /// The node is not running or does not start again, or a folder cannot be removed.
    pub fn forget_statements(&mut self) -> Result<(), String> {
        self.shutdown()?;
        let system = self.scratch.data().join("data/system");
        let mut removed = 0;
        for entry in fs::read_dir(&system).map_err(|error| format!("{}: {error}", system.display()))? {
            let path = entry.map_err(|error| error.to_string())?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("prepared_statements-")) {
                fs::remove_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                removed += 1;
            }
        }
        if removed == 0 {
            return Err(format!("{} has no table of prepared statements", system.display()));
        }
        self.restart()
    }

    /// Runs nodetool on the node, for seconds, and returns its output.
    ///
    /// # Errors
    /// What nodetool reports.
    pub fn nodetool(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(SCRIPT);
        command.arg(self.scratch.data()).arg("nodetool").args(arguments).env(CASSANDRA, available()?);
        let output = command.output().map_err(text("running nodetool"))?;
        let lines = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            return Ok(lines(&output.stdout));
        }
        Err(format!("nodetool {arguments:?}: {}: {}{}", output.status, lines(&output.stdout), lines(&output.stderr)))
    }

    fn running(&mut self) -> Result<&mut Process, String> {
        self.process.as_mut().ok_or_else(|| "Cassandra is not running".to_owned())
    }
}

fn text(doing: &'static str) -> impl FnOnce(io::Error) -> String {
    move |error| format!("{doing}: {error}")
}
