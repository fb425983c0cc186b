//! Folders and ports of servers.

use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Instant;
use std::{env, process, thread};

use rustix::process::{Pid, Signal, kill_process};

use super::MongodError;

/// The environment variable that names the parent of scratch folders; by default the system's.
const SCRATCH: &str = "POOLHOUSE_SCRATCH";

/// Prefix of a scratch folder's name; the owner's process id and a number follow.
const PREFIX: &str = "poolhouse-mongod-";

/// Number of bytes of a log that are shown.
const TAIL_BYTES: u64 = 4096;

/// First port of servers: below the range of the system's ephemeral ports, so that no outgoing
/// connection takes a server's port while it is down.
const PORT_FIRST: u32 = 20_000;

/// Number of ports of servers.
const PORT_COUNT: u32 = 12_000;

/// A server's folder, removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates a folder, after removing those of killed processes.
    pub fn create() -> Result<Self, MongodError> {
        static SWEEP: Once = Once::new();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let root = env::var_os(SCRATCH).map_or_else(env::temp_dir, PathBuf::from);
        let doing = || format!("making a folder in {}", root.display());
        fs::create_dir_all(&root).map_err(MongodError::io(doing()))?;
        // Absolute and canonical, because command lines are compared with it.
        let root = fs::canonicalize(&root).map_err(MongodError::io(doing()))?;
        SWEEP.call_once(|| sweep(&root));
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let scratch = Self { path: root.join(format!("{PREFIX}{}-{number}", process::id())) };
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        builder.create(&scratch.path).map_err(MongodError::io(doing()))?;
        builder.create(scratch.data()).map_err(MongodError::io(doing()))?;
        Ok(scratch)
    }

    /// Returns the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the data folder.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// Returns the path of the log.
    pub(super) fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Opens the file for standard output and error, which receives messages until the log exists.
    pub fn output(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).open(self.path.join("output"))
    }

    /// Stores the id of a process that has the data folder as an argument, so that a later run can
    /// end the process if this one could not.
    pub fn record_pid(&self, pid: u32) -> io::Result<()> {
        File::create(self.path.join("pid"))?.write_all(pid.to_string().as_bytes())
    }

    /// Returns the end of log and output.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let tails = [self.log(), self.path.join("output")].map(|path| tail(&path).unwrap_or_default());
        tails.concat()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("cannot remove {}: {error}", self.path.display());
        }
    }
}

/// Returns the first of `count` consecutive loopback ports that are free, and that this process has not
/// picked recently: a server binds its ports some time after they were picked.
pub fn pick_ports(count: u16) -> Result<u16, MongodError> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = process::id().wrapping_mul(37);
    for _ in 0..PORT_COUNT {
        let offset = start.wrapping_add(NEXT.fetch_add(u32::from(count), Ordering::Relaxed)) % PORT_COUNT;
        let Ok(first) = u16::try_from(PORT_FIRST + offset) else { continue };
        if (first..first + count).all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()) {
            return Ok(first);
        }
    }
    Err(MongodError::io("looking for free ports")(io::ErrorKind::AddrInUse.into()))
}

/// Returns the last lines of a file.
fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Removes the folders of ended processes, and ends their servers.
///
/// A server is recognised by its process id and by the folder in its command line, never by its
/// name.
pub(super) fn sweep(root: &Path) {
    if !Path::new("/proc/self").exists() {
        return;
    }
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok());
        let Some(owner) = owner else { continue };
        if owner == process::id() || is_alive(owner) {
            continue;
        }
        end_orphan(&entry.path());
        drop(fs::remove_dir_all(entry.path()));
    }
}

/// Returns whether the process exists and is not a zombie.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, fields)| fields.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Kills the server of an abandoned folder, if it still runs.
fn end_orphan(folder: &Path) {
    let recorded = fs::read_to_string(folder.join("pid")).ok();
    let Some(pid) = recorded.and_then(|pid| pid.parse::<i32>().ok()).and_then(Pid::from_raw) else { return };
    if !runs_in(pid, folder) || kill_process(pid, Signal::KILL).is_err() {
        return;
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    while runs_in(pid, folder) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns whether the command line of a process contains this folder as its data folder's parent.
fn runs_in(pid: Pid, folder: &Path) -> bool {
    let data = folder.join("data");
    let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    line.split(|byte| *byte == 0).any(|argument| argument == data.as_os_str().as_bytes())
}
