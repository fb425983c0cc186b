//! Starts and controls a real mongod for the tests that need one.
//!
//! The environment variable `MONGOD` names the binary; `./tests/run` provisions one. Each
//! [`Mongod`] has a separate loopback port and data folder; dropping it, also by a panic, ends the
//! process and removes the folder. Processes are ended only by their id.

use alloc::sync::Arc;
use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use std::{env, thread};

use bson::{Document, doc};
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use self::client::Client;
use crate::process::Process;
use crate::tls::unverified;

pub use self::error::MongodError;
pub use self::replica_set::{MongodReplicaSet, MongodReplicaSetOptions};
pub use self::scratch::{Scratch, pick_ports};

mod client;
mod error;
mod replica_set;
mod scratch;

#[cfg(test)]
mod tests;

/// The environment variable that names the binary.
pub const MONGOD: &str = "MONGOD";

/// The environment variable in which a script stores the reason why there is no binary.
pub const MONGOD_MISSING: &str = "MONGOD_MISSING";

/// The application name of the harness's connection; fail points with another `appName` do not
/// affect it.
pub const APP_NAME: &str = "poolhouse-harness";

/// Time limit for a server's first answer.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Time limit for a server's orderly shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit of an administrative command, including connecting.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(15);

/// Time limit of `replSetInitiate`: the member contacts all others, which may still be starting,
/// and creates files.
const INITIATE_TIMEOUT: Duration = Duration::from_secs(60);

/// The interval between two checks of a server that is starting.
const POLL_PAUSE: Duration = Duration::from_millis(20);

/// Number of ports that are tried if they are taken.
const PORT_TRIES: usize = 8;

/// Returns the path of the mongod to test with.
pub fn available() -> Result<PathBuf, String> {
    let Some(value) = env::var_os(MONGOD).filter(|value| !value.is_empty()) else {
        let why = env::var(MONGOD_MISSING).unwrap_or_else(|_| format!("{MONGOD} is not set"));
        return Err(format!("no mongod ({why})"));
    };
    let path = crate::spec::resolve(Path::new(&value));
    if path.is_file() { Ok(path) } else { Err(format!("no mongod ({MONGOD} = {} is no file)", path.display())) }
}

/// The options of a server.
#[derive(Clone, Debug, Default)]
pub struct MongodOptions {
    /// The name of the server's replica set; the test must run `replSetInitiate`.
    pub repl_set: Option<String>,
    /// TLS, in addition to plain text unless `required`.
    pub tls: Option<MongodTls>,
    /// Further `--setParameter` values; `enableTestCommands=1` is always set.
    pub parameters: Vec<(String, String)>,
    /// Further arguments.
    pub args: Vec<OsString>,
}

impl MongodOptions {
    /// Returns the arguments of a server.
    fn arguments(&self, port: u16, scratch: &Scratch) -> Vec<OsString> {
        let mut args: Vec<OsString> = Vec::new();
        let mut option = |name: &str, value: OsString| args.extend([OsString::from(name), value]);
        option("--bind_ip", "127.0.0.1".into());
        option("--port", port.to_string().into());
        option("--dbpath", scratch.data().into());
        option("--logpath", scratch.log().into());
        option("--wiredTigerCacheSizeGB", "0.25".into());
        // With the defaults a fresh data folder takes 300 MB of journal instead of some 8 MB.
        option("--wiredTigerEngineConfigString", "log=(prealloc=false,file_max=8MB)".into());
        let fixed = [
            ("enableTestCommands", "1"),
            ("diagnosticDataCollectionEnabled", "false"),
            ("shutdownTimeoutMillisForSignaledShutdown", "100"),
        ];
        let own = self.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in fixed.into_iter().chain(own) {
            option("--setParameter", format!("{name}={value}").into());
        }
        if let Some(name) = &self.repl_set {
            option("--replSet", name.into());
            option("--oplogSize", "16".into());
        }
        if let Some(tls) = &self.tls {
            option("--tlsMode", if tls.required { "requireTLS".into() } else { "preferTLS".into() });
            option("--tlsCertificateKeyFile", tls.certificate_key_file.clone().into());
            if let Some(file) = &tls.ca_file {
                option("--tlsCAFile", file.clone().into());
            }
            if tls.allow_without_certificate {
                args.push("--tlsAllowConnectionsWithoutCertificates".into());
            }
        }
        args.extend(["--logappend", "--nounixsocket", "--quiet"].map(OsString::from));
        args.extend(self.args.iter().cloned());
        args
    }
}

/// The TLS options of a server.
#[derive(Clone, Debug)]
pub struct MongodTls {
    /// Certificate chain and private key in one PEM file.
    pub certificate_key_file: PathBuf,
    /// The CA certificates that verify client certificates.
    pub ca_file: Option<PathBuf>,
    /// Whether a client certificate is optional even with a `ca_file`.
    pub allow_without_certificate: bool,
    /// Whether plain text is refused (`requireTLS`). Otherwise it is accepted (`preferTLS`), and
    /// used by the harness itself.
    pub required: bool,
}

impl MongodTls {
    /// Returns the TLS configuration of the harness's own connection.
    fn client_config(&self) -> Result<Arc<ClientConfig>, MongodError> {
        let malformed = |error: &dyn core::fmt::Display| {
            MongodError::Malformed(format!("{}: {error}", self.certificate_key_file.display()))
        };
        let certificates =
            CertificateDer::pem_file_iter(&self.certificate_key_file).map_err(|error| malformed(&error))?;
        let certificates: Result<Vec<_>, _> = certificates.collect();
        let key = PrivateKeyDer::from_pem_file(&self.certificate_key_file).map_err(|error| malformed(&error))?;
        unverified(certificates.map_err(|error| malformed(&error))?, key).map_err(|error| malformed(&error))
    }
}

/// The mode of a fail point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailPointMode {
    /// Disabled.
    Off,
    /// Enabled until it is disabled.
    AlwaysOn,
    /// Enabled for the next N commands that match.
    Times(u32),
}

/// A server used by one test.
#[derive(Debug)]
pub struct Mongod {
    // Fields are dropped in this order: the process ends before its folder is removed.
    server: Option<Process>,
    client: Mutex<Option<Client>>,
    binary: PathBuf,
    options: MongodOptions,
    port: u16,
    scratch: Scratch,
}

impl Mongod {
    /// Starts the server that `MONGOD` names and waits, at most a minute, until it answers `hello`.
    ///
    /// # Errors
    /// [`MongodError::Unavailable`] if there is no binary; else the reason why the server did not
    /// answer, with the end of its log.
    pub fn start(options: MongodOptions) -> Result<Self, MongodError> {
        let binary = available().map_err(MongodError::Unavailable)?;
        let scratch = Scratch::create()?;
        let mut mongod = Self { server: None, client: Mutex::new(None), binary, options, port: 0, scratch };
        let mut tries = PORT_TRIES;
        loop {
            tries -= 1;
            mongod.port = scratch::pick_ports(1)?;
            match mongod.launch() {
                Err(MongodError::Exited { log, .. }) if tries > 0 && log.contains("Address already in use") => {}
                Err(error) => return Err(error),
                Ok(()) => return Ok(mongod),
            }
        }
    }

    /// Returns its address; the same after a restart.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Returns its connection string, without options.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("mongodb://{}", self.address())
    }

    /// Returns its private folder: data, log and files of the test. Removed when this value is
    /// dropped.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Returns the id of its process; `None` while it is not running.
    pub fn pid(&mut self) -> Option<u32> {
        let server = self.server.as_mut()?;
        if let Ok(None) = server.exit_status() { Some(server.id()) } else { None }
    }

    /// Returns the end of its log, for messages of failing tests.
    #[must_use]
    pub fn log_tail(&self) -> String {
        self.scratch.log_tail()
    }

    /// Ends the process at once, as `kill -9` does, and waits for its end. No-op if it is not
    /// running.
    ///
    /// # Errors
    /// [`MongodError::Io`] if the process cannot be signalled.
    pub fn kill9(&mut self) -> Result<(), MongodError> {
        self.forget_client();
        match self.server.take() {
            Some(mut server) => server.kill().map_err(MongodError::io("killing mongod")),
            None => Ok(()),
        }
    }

    /// Stops the process (SIGSTOP) and waits until it is stopped: connecting still succeeds, but it
    /// sends no bytes.
    ///
    /// # Errors
    /// [`MongodError::NotRunning`], or [`MongodError::Io`] if it has ended or is not stopped within 10 s.
    pub fn stop(&mut self) -> Result<(), MongodError> {
        self.running()?.stop().map_err(MongodError::io("stopping mongod"))
    }

    /// Continues a stopped process (SIGCONT).
    pub fn cont(&mut self) -> Result<(), MongodError> {
        self.running()?.cont().map_err(MongodError::io("continuing mongod"))
    }

    /// Starts the server again on the same port and data and waits until it answers; shuts it down
    /// first if it is running.
    pub fn restart(&mut self) -> Result<(), MongodError> {
        self.shutdown()?;
        self.launch()
    }

    /// Shuts the process down (SIGTERM) and waits for its end. No-op if it is not running.
    ///
    /// # Errors
    /// [`MongodError::Io`] if it had to be killed after 30 s; also then it has ended.
    pub fn shutdown(&mut self) -> Result<(), MongodError> {
        self.forget_client();
        match self.server.take() {
            Some(mut server) => server.terminate(SHUTDOWN_TIMEOUT).map_err(MongodError::io("shutting mongod down")),
            None => Ok(()),
        }
    }

    /// Runs a command on the database `admin` and returns the reply, at most 15 s later.
    ///
    /// All commands of a server share one connection, opened when needed and replaced after an
    /// error. It uses plain text or, if the server requires TLS, TLS without verification of the
    /// server's certificate, which also serves as the client certificate.
    ///
    /// # Errors
    /// [`MongodError::Command`] if the server refuses it; else the error of the connection.
    pub fn run_command(&self, command: Document) -> Result<Document, MongodError> {
        self.run_command_on("admin", command)
    }

    /// [`Self::run_command`] on another database.
    pub fn run_command_on(&self, database: &str, command: Document) -> Result<Document, MongodError> {
        self.run_command_within(COMMAND_TIMEOUT, database, command)
    }

    /// Calls [`Self::run_command_on`] with another time limit.
    fn run_command_within(&self, limit: Duration, database: &str, command: Document) -> Result<Document, MongodError> {
        let mut slot = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Instant::now() + limit;
        let mut client = match slot.take() {
            Some(client) => client,
            None => self.connect(deadline)?,
        };
        let reply = client.run_command(database, command, deadline);
        // After any other error the stream may contain half a reply.
        if matches!(reply, Ok(_) | Err(MongodError::Command { .. })) {
            *slot = Some(client);
        }
        reply
    }

    /// Returns the number of open connections without the harness's own, by `serverStatus`.
    pub fn other_connections(&self) -> Result<u64, MongodError> {
        let status = self.run_command(doc! { "serverStatus": 1 })?;
        let value = status.get_document("connections").ok().and_then(|counts| counts.get("current"));
        let count = value.and_then(|value| value.as_i64().or_else(|| value.as_i32().map(i64::from)));
        let count = count.and_then(|count| u64::try_from(count).ok());
        let malformed = || MongodError::Malformed(format!("serverStatus: connections.current is {value:?}"));
        count.map(|count| count.saturating_sub(1)).ok_or_else(malformed)
    }

    /// Sets the fail point `failCommand`.
    ///
    /// `data` contains `failCommands` and the fault (`errorCode`, `closeConnection`,
    /// `blockConnection` with `blockTimeMS`); it is empty when the fail point is disabled. Set the
    /// `appName` of the client under test in it, else the harness's own connection is affected as
    /// well.
    pub fn fail_command(&self, mode: FailPointMode, data: Document) -> Result<(), MongodError> {
        let mut command = doc! { "configureFailPoint": "failCommand" };
        match mode {
            FailPointMode::Off => command.insert("mode", "off"),
            FailPointMode::AlwaysOn => command.insert("mode", "alwaysOn"),
            FailPointMode::Times(times) => command.insert("mode", doc! { "times": i64::from(times) }),
        };
        if mode != FailPointMode::Off {
            command.insert("data", data);
        }
        self.run_command(command).map(drop)
    }

    /// Starts the process on the chosen port and waits for its first answer; no process is left
    /// after an error.
    fn launch(&mut self) -> Result<(), MongodError> {
        assert!(self.server.is_none(), "one process at a time");
        let mut command = Command::new(&self.binary);
        command.args(self.options.arguments(self.port, &self.scratch));
        let doing = format!("starting {}", self.binary.display());
        let mut server = Process::spawn(&mut command, &self.scratch).map_err(MongodError::io(doing))?;
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let error = match self.first_answer(server.id(), deadline) {
                Ok(client) => {
                    *self.client.get_mut().unwrap_or_else(PoisonError::into_inner) = Some(client);
                    self.server = Some(server);
                    return Ok(());
                }
                Err(error) => error,
            };
            if let Some(status) = server.exit_status().map_err(MongodError::io("waiting for mongod"))? {
                return Err(MongodError::Exited { status: status.to_string(), log: self.scratch.log_tail() });
            }
            if Instant::now() >= deadline {
                return Err(MongodError::Timeout {
                    doing: format!("waiting for the first answer ({error}); log: {}", self.scratch.log_tail()),
                    limit: START_TIMEOUT,
                });
            }
            thread::sleep(POLL_PAUSE);
        }
    }

    /// Connects, and checks that the answer is from our process: another process may have taken the
    /// port first.
    fn first_answer(&self, pid: u32, deadline: Instant) -> Result<Client, MongodError> {
        let mut client = self.connect(deadline)?;
        match client.run_command("admin", doc! { "serverStatus": 1 }, deadline) {
            Ok(status) if status.get_i64("pid").is_ok_and(|answering| answering == i64::from(pid)) => Ok(client),
            // A server with access control does not report its pid; if our process had ended, the
            // next command would detect it.
            Err(MongodError::Command { .. }) => Ok(client),
            Ok(status) => {
                let answering = status.get("pid");
                Err(MongodError::Malformed(format!("process {answering:?} answers on the port of process {pid}")))
            }
            Err(error) => Err(error),
        }
    }

    fn connect(&self, deadline: Instant) -> Result<Client, MongodError> {
        let tls = self.options.tls.as_ref().filter(|tls| tls.required).map(MongodTls::client_config).transpose()?;
        Client::connect(self.address(), tls, deadline)
    }

    fn running(&mut self) -> Result<&mut Process, MongodError> {
        self.server.as_mut().ok_or(MongodError::NotRunning)
    }

    fn forget_client(&mut self) {
        *self.client.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
