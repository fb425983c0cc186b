//! Runs the firmware of `runtime-embassy/firmware` under QEMU, for tests against a server.
//!
//! The environment variable `POOLHOUSE_FIRMWARE` names the folder of its ELFs, as printed by
//! `tests/scripts/firmware`; `./tests/run` builds them. The emulator ends at its time limit, or
//! when the value that represents it is dropped.

use core::fmt;
use core::time::Duration;
use std::env;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

/// The environment variable that names the folder of the ELFs.
pub const FIRMWARE: &str = "POOLHOUSE_FIRMWARE";

/// The environment variable in which a script stores the reason why there is no folder.
pub const FIRMWARE_MISSING: &str = "POOLHOUSE_FIRMWARE_MISSING";

/// Default time limit of the emulator.
const LIMIT: Duration = Duration::from_secs(120);

/// Returns the folder of the ELFs.
pub fn available() -> Result<PathBuf, String> {
    match env::var_os(FIRMWARE) {
        Some(folder) if Path::new(&folder).is_dir() => Ok(folder.into()),
        Some(folder) => Err(format!("{FIRMWARE} = {} is not a folder", folder.display())),
        None => Err(env::var(FIRMWARE_MISSING).unwrap_or_else(|_| format!("{FIRMWARE} names no folder of ELFs"))),
    }
}

/// A running firmware.
#[derive(Debug)]
pub struct Firmware {
    child: Child,
    lines: Receiver<String>,
    output: Vec<String>,
    cable: Option<Cable>,
}

/// The network cable of a running firmware.
#[derive(Clone, Debug)]
pub struct Cable {
    /// The emulator's monitor.
    monitor: PathBuf,
}

/// The firmware behaved unexpectedly; with its output.
#[derive(Debug)]
pub struct FirmwareError(String);

impl fmt::Display for FirmwareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for FirmwareError {}

impl From<io::Error> for FirmwareError {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

impl Firmware {
    /// Starts an ELF with these arguments.
    ///
    /// - `monitor`: path of a socket by which the cable can be unplugged ([`Firmware::set_link`]);
    ///   it must be short.
    pub fn start(name: &str, arguments: &[String], monitor: Option<PathBuf>) -> Result<Self, FirmwareError> {
        Self::start_for(LIMIT, name, arguments, monitor)
    }

    /// The same with another time limit, in whole seconds.
    pub fn start_for(
        limit: Duration,
        name: &str,
        arguments: &[String],
        monitor: Option<PathBuf>,
    ) -> Result<Self, FirmwareError> {
        let mut firmware = Self::start_in(
            limit,
            name,
            arguments,
            monitor.iter().map(|path| ("POOLHOUSE_FIRMWARE_MONITOR", path.as_os_str())),
        )?;
        firmware.cable = monitor.map(|monitor| Cable { monitor });
        Ok(firmware)
    }

    /// Starts an ELF without a network, on a serial line.
    ///
    /// - `line`: path of a Unix socket that listens; it must be short.
    pub fn start_on_line(name: &str, arguments: &[String], line: &Path) -> Result<Self, FirmwareError> {
        let environment =
            [("POOLHOUSE_FIRMWARE_NETWORK", OsStr::new("none")), ("POOLHOUSE_FIRMWARE_SERIAL", line.as_os_str())];
        Self::start_in(LIMIT, name, arguments, environment)
    }

    fn start_in<'a>(
        limit: Duration,
        name: &str,
        arguments: &[String],
        environment: impl IntoIterator<Item = (&'a str, &'a OsStr)>,
    ) -> Result<Self, FirmwareError> {
        let elf = available().map_err(FirmwareError)?.join(name);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/run-firmware");
        let mut command = Command::new(script);
        command.arg(elf).args(arguments).env("POOLHOUSE_FIRMWARE_SECONDS", limit.as_secs().to_string());
        command.envs(environment);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| FirmwareError("no standard output".into()))?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines, output: Vec::new(), cable: None })
    }

    /// Reads output until a matching line, and returns it.
    ///
    /// # Errors
    ///
    /// No line matches within `limit`, or the firmware ends before.
    pub fn wait_for(&mut self, limit: Duration, suits: impl Fn(&str) -> bool) -> Result<String, FirmwareError> {
        let until = Instant::now() + limit;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.output.push(line.clone());
                    if suits(&line) {
                        return Ok(line);
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Err(self.failed("no printed line matches")),
                Err(RecvTimeoutError::Disconnected) => return Err(self.failed("the firmware ended too early")),
            }
        }
    }

    /// Waits until the firmware has ended, and returns its exit status.
    pub fn finish(&mut self, limit: Duration) -> Result<i32, FirmwareError> {
        let until = Instant::now() + limit;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => self.output.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => return Err(self.failed("the firmware does not end")),
            }
        }
        Ok(self.child.wait()?.code().unwrap_or(-1))
    }

    /// Returns the output that was read so far.
    #[must_use]
    pub fn output(&self) -> &[String] {
        &self.output
    }

    /// Plugs the cable in, or unplugs it.
    pub fn set_link(&self, up: bool) -> Result<(), FirmwareError> {
        self.cable.as_ref().ok_or_else(|| self.failed("the firmware was started without a monitor"))?.set(up)
    }

    /// Returns its cable, so that it can be unplugged while another thread reads the output; `None`
    /// without a monitor.
    #[must_use]
    pub fn cable(&self) -> Option<Cable> {
        self.cable.clone()
    }

    fn failed(&self, what: &str) -> FirmwareError {
        FirmwareError(format!("{what}; the firmware printed:\n{}", self.output.join("\n")))
    }
}

impl Cable {
    /// Plugs it in, or unplugs it.
    pub fn set(&self, up: bool) -> Result<(), FirmwareError> {
        let mut socket = UnixStream::connect(&self.monitor)?;
        socket.set_read_timeout(Some(Duration::from_secs(20)))?;
        let mut answers = BufReader::new(socket.try_clone()?);
        let mut prompt = Vec::new();
        answers.read_until(b')', &mut prompt)?;
        writeln!(socket, "set_link nic0 {}", if up { "on" } else { "off" })?;
        // The next prompt appears when the command is done.
        let mut answer = Vec::new();
        while !answer.ends_with(b"(qemu)") {
            if answers.read_until(b')', &mut answer)? == 0 {
                break;
            }
        }
        Ok(())
    }
}

impl Drop for Firmware {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // The process that limits the emulator's time forwards the signal to it.
            if let Some(id) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process(id, Signal::TERM);
            }
            let _ = self.child.wait();
        }
    }
}
