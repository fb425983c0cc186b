//! The process of a server: its arguments, its signals, its end.

use core::time::Duration;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::scratch::Scratch;
use super::{MongodError, MongodOptions};

/// The interval between two checks of a process that is ending or stopping.
const PAUSE: Duration = Duration::from_millis(5);

/// Time limit for a process to stop after SIGSTOP.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// A child process; killed and reaped when dropped.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
}

/// The command line of a server.
pub(super) fn arguments(options: &MongodOptions, port: u16, scratch: &Scratch) -> Vec<OsString> {
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
    let own = options.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in fixed.into_iter().chain(own) {
        option("--setParameter", format!("{name}={value}").into());
    }
    if let Some(name) = &options.repl_set {
        option("--replSet", name.into());
        option("--oplogSize", "16".into());
    }
    if let Some(tls) = &options.tls {
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
    args.extend(options.args.iter().cloned());
    args
}

impl Server {
    /// Starts the process with its output in the scratch folder.
    pub(super) fn spawn(binary: &Path, args: &[OsString], scratch: &Scratch) -> Result<Self, MongodError> {
        let doing = || format!("starting {}", binary.display());
        let output = scratch.output().map_err(MongodError::io(doing()))?;
        let errors = output.try_clone().map_err(MongodError::io(doing()))?;
        let mut command = Command::new(binary);
        command.args(args).stdin(Stdio::null()).stdout(output).stderr(errors);
        let server = Self { child: command.spawn().map_err(MongodError::io(doing()))? };
        scratch.record_pid(server.id()).map_err(MongodError::io(doing()))?;
        Ok(server)
    }

    /// Returns its id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns its exit status, once it has ended.
    pub(super) fn exit_status(&mut self) -> Result<Option<ExitStatus>, MongodError> {
        self.child.try_wait().map_err(MongodError::io("waiting for mongod"))
    }

    /// Returns its id, while it has not ended.
    pub(super) fn pid_if_running(&mut self) -> Option<u32> {
        if let Ok(None) = self.child.try_wait() { Some(self.id()) } else { None }
    }

    /// Sends SIGKILL, and waits for the end.
    pub(super) fn kill(&mut self) -> Result<(), MongodError> {
        self.child.kill().map_err(MongodError::io("killing mongod"))?;
        self.child.wait().map_err(MongodError::io("waiting for mongod"))?;
        Ok(())
    }

    /// Sends SIGTERM, and waits for the end; sends SIGKILL if it takes longer than `limit`.
    pub(super) fn terminate(&mut self, limit: Duration) -> Result<(), MongodError> {
        if self.exit_status()?.is_some() {
            return Ok(());
        }
        self.signal(Signal::TERM)?;
        // A stopped process would not handle the signal.
        self.signal(Signal::CONT)?;
        let deadline = Instant::now() + limit;
        while self.exit_status()?.is_none() {
            if Instant::now() >= deadline {
                self.kill()?;
                return Err(MongodError::Timeout { doing: "shutting mongod down".to_owned(), limit });
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Sends SIGSTOP, and waits until every thread is stopped.
    pub(super) fn stop(&mut self) -> Result<(), MongodError> {
        self.signal(Signal::STOP)?;
        let deadline = Instant::now() + STOP_TIMEOUT;
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        loop {
            let status = waitid(WaitId::Pid(Pid::from_child(&self.child)), options);
            let status = status.map_err(|error| MongodError::io("stopping mongod")(error.into()))?;
            if status.is_some_and(|status| status.stopped()) {
                return Ok(());
            }
            if self.exit_status()?.is_some() {
                return Err(MongodError::NotRunning);
            }
            if Instant::now() >= deadline {
                return Err(MongodError::Timeout { doing: "stopping mongod".to_owned(), limit: STOP_TIMEOUT });
            }
            thread::sleep(PAUSE);
        }
    }

    /// Sends SIGCONT.
    pub(super) fn cont(&mut self) -> Result<(), MongodError> {
        self.signal(Signal::CONT)
    }

    /// Signals the process. Its id cannot have been reused: the process is reaped only here.
    fn signal(&mut self, signal: Signal) -> Result<(), MongodError> {
        if self.exit_status()?.is_some() {
            return Err(MongodError::NotRunning);
        }
        kill_process(Pid::from_child(&self.child), signal)
            .map_err(|error| MongodError::io(format!("signalling mongod ({signal:?})"))(error.into()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The error cannot be reported. SIGKILL also ends a stopped process, and an ended one is
        // reaped without a signal.
        drop(self.kill());
    }
}
