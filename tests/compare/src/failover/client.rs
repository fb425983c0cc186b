//! The process of a client, and its connections.

use super::judge::Record;
use crate::process::lines;
use crate::sockets::{self, Sockets};
use core::net::SocketAddr;
use core::time::Duration;
use std::collections::HashSet;
use std::ffi::OsString;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Instant;

/// How long a client may take to connect, and for each line of its records.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval in which the system's tables are read.
const INTERVAL: Duration = Duration::from_millis(20);
/// The time in which opened connections are counted.
const COUNTED: Duration = Duration::from_secs(1);

/// A client's process. It ends with this value.
pub(super) struct Client {
    child: Child,
    lines: Receiver<String>,
}

/// What is seen of a client at a server; NaN if it was not measured.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    /// From the begin to a new connection, or as long as it was waited for.
    pub(super) return_ms: f64,
    /// The number of new connections.
    pub(super) opened: f64,
}

impl Default for Seen {
    fn default() -> Self {
        Self { return_ms: f64::NAN, opened: f64::NAN }
    }
}

impl Client {
    /// Starts a client, and waits until it is connected.
    pub(super) fn start(words: &[OsString], name: &str, contact: &str) -> Result<Self, String> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args([name, contact]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let lines = lines(child.stdout.take().ok_or("no standard output")?);
        let client = Self { child, lines };
        let line = client.lines.recv_timeout(PATIENCE);
        if line.is_ok_and(|line| line == "ready") { Ok(client) } else { Err("it did not connect".to_owned()) }
    }

    /// Ends the client. Returns its operations.
    pub(super) fn end(&mut self) -> Result<Vec<Record>, String> {
        drop(self.child.stdin.take());
        let mut records = Vec::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE).map_err(|error| format!("its records end: {error}"))?;
            if line == "end" {
                return Ok(records);
            }
            records.push(serde_json::from_str(&line).map_err(|error| format!("not a record: {error}"))?);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The connections of each client.
pub(super) fn sockets(clients: &[Client]) -> Vec<Sockets> {
    let all = sockets::all();
    clients.iter().map(|client| sockets::of(client.child.id(), &all)).collect()
}

/// Observes connections to a server that were not there before: for a second, and until each client has one,
/// at most for this time.
pub(super) fn observe(clients: &[Client], before: &[Sockets], server: SocketAddr, limit: Duration) -> Vec<Seen> {
    let begun = Instant::now();
    let mut opened = vec![HashSet::new(); clients.len()];
    let mut seen = vec![Seen::default(); clients.len()];
    loop {
        let time = begun.elapsed();
        for (case, sockets) in sockets(clients).into_iter().enumerate() {
            let new =
                sockets.into_iter().filter(|(socket, peer)| *peer == server && !before[case].contains_key(socket));
            let new: Vec<u64> = new.map(|(socket, _)| socket).collect();
            if !new.is_empty() && seen[case].return_ms.is_nan() {
                seen[case].return_ms = time.as_secs_f64() * 1e3;
            }
            if time <= COUNTED {
                opened[case].extend(new);
                seen[case].opened = opened[case].len() as f64;
            }
        }
        let is_complete = time > limit || seen.iter().all(|seen| !seen.return_ms.is_nan());
        if time > COUNTED && is_complete {
            return seen;
        }
        std::thread::sleep(INTERVAL);
    }
}
