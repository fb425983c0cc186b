//! The process of a client: see `peers/README.md`.

use crate::process::lines;
use crate::settings::Settings;
use crate::sockets;
use core::net::SocketAddr;
use core::time::Duration;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

/// How long a client may take beyond the time of a round, and to connect.
const PATIENCE: Duration = Duration::from_secs(60);
/// Clock ticks of the system in a second, on Linux.
const TICKS: f64 = 100.0;

/// A running client. It ends with this value.
#[derive(Debug)]
pub(super) struct Peer {
    child: Child,
    lines: Receiver<String>,
    errors: Receiver<String>,
    pub(super) first_reply_ms: f64,
}

/// The figures of a round; times are those of one command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) rate: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) user_us: f64,
    pub(super) system_us: f64,
    commands: f64,
}

/// The system calls of a round.
pub(super) struct SystemCalls {
    /// The number of one command.
    pub(super) each: f64,
    /// The most frequent ones with their number.
    pub(super) names: String,
    /// What strace has printed.
    pub(super) table: String,
}

impl Peer {
    /// Starts a client and waits for its first reply.
    pub(super) fn start(mut command: Command) -> Result<Self, String> {
        let begun = Instant::now();
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("the program does not run: {error}"))?;
        let output = lines(child.stdout.take().ok_or("the program has no standard output")?);
        let errors = lines(child.stderr.take().ok_or("the program has no standard error")?);
        let mut peer = Self { child, lines: output, errors, first_reply_ms: 0.0 };
        let line = peer.line(PATIENCE)?;
        peer.first_reply_ms = begun.elapsed().as_secs_f64() * 1e3;
        if line == "ready" { Ok(peer) } else { Err(format!("the program is not ready: {line}")) }
    }

    fn line(&mut self, limit: Duration) -> Result<String, String> {
        self.lines.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("no line within {limit:?}"),
            RecvTimeoutError::Disconnected => {
                let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
                let why = self.errors.iter().filter(|line| !line.trim().is_empty()).last().unwrap_or_default();
                format!("it ended ({status}): {why}")
            }
        })
    }

    /// Lets this number of tasks send commands for a time.
    pub(super) fn round(&mut self, tasks: u32, milliseconds: usize) -> Result<Round, String> {
        let before = self.cpu_us()?;
        let input = self.child.stdin.as_mut().ok_or("the program has no standard input")?;
        writeln!(input, "{tasks} {milliseconds}").map_err(|error| format!("the program has ended: {error}"))?;
        let [commands, seconds] = self.figures(PATIENCE + Duration::from_millis(milliseconds as u64))?;
        let after = self.cpu_us()?;
        let [p50_us, p99_us] = self.figures(PATIENCE)?;
        let (user_us, system_us) = ((after.0 - before.0) / commands, (after.1 - before.1) / commands);
        Ok(Round { rate: commands / seconds, p50_us, p99_us, user_us, system_us, commands })
    }

    /// Reads a line with two figures.
    fn figures(&mut self, limit: Duration) -> Result<[f64; 2], String> {
        let line = self.line(limit)?;
        let figures: Result<Vec<f64>, _> = line.split(' ').map(str::parse).collect();
        let figures = figures.ok().and_then(|figures| figures.try_into().ok());
        figures.ok_or_else(|| format!("the program has printed {line:?}"))
    }

    fn read_proc(&self, file: &str) -> Result<String, String> {
        let path = format!("/proc/{}/{file}", self.child.id());
        std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))
    }

    /// The time of user code and of the system since the start, in microseconds.
    fn cpu_us(&self) -> Result<(f64, f64), String> {
        let stat = self.read_proc("stat")?;
        // After the name, which may contain spaces.
        let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let us = |place: usize| {
            fields.get(place).and_then(|ticks| ticks.parse::<f64>().ok()).map(|ticks| ticks / TICKS * 1e6)
        };
        us(11).zip(us(12)).ok_or_else(|| "the system counts no CPU time".to_owned())
    }

    /// The resident memory now, and its maximum; NaN if it is unknown.
    pub(super) fn memory_mb(&self) -> (f64, f64) {
        let status = self.read_proc("status").unwrap_or_default();
        let mb = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kb = line
                .and_then(|line| line.trim_start_matches(':').trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
            kb.map_or(f64::NAN, |kb| kb * 1_024.0 / 1e6)
        };
        (mb("VmRSS"), mb("VmHWM"))
    }

    /// The resident memory of a client that keeps this number of connections, after a round that has used them.
    pub(super) fn idle_mb(&mut self, server: SocketAddr, connections: usize) -> Result<f64, String> {
        let until = Instant::now() + PATIENCE;
        self.round(u32::try_from(connections).map_err(|error| error.to_string())?, 1_000)?;
        loop {
            let open = sockets::of(self.child.id(), &sockets::all());
            let open = open.values().filter(|peer| **peer == server).count();
            if open >= connections {
                std::thread::sleep(Duration::from_secs(1));
                return Ok(self.memory_mb().0);
            }
            if Instant::now() > until {
                return Err(format!("it has {open} after {PATIENCE:?}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Counts the system calls of a round with ten tasks.
    pub(super) fn system_calls(&mut self, settings: &Settings) -> Result<SystemCalls, String> {
        let pid = self.child.id().to_string();
        let mut command = Command::new("strace");
        command.args(["-f", "-c", "-S", "calls", "-p", &pid]).stdin(Stdio::null()).stdout(Stdio::null());
        let strace = command.stderr(Stdio::piped()).spawn();
        let mut strace = strace.map_err(|error| format!("strace does not run: {error}"))?;
        let mut output = BufReader::new(strace.stderr.take().ok_or("strace has no output")?);
        let mut line = String::new();
        // Its first line states that it is attached, or why it cannot be.
        output.read_line(&mut line).map_err(|error| error.to_string())?;
        if !line.contains("attached") {
            let _ = strace.wait();
            return Err(line.trim().to_owned());
        }
        let round = self.round(10, settings.of(200, 1_000));
        // strace prints its table when it is interrupted.
        let status = Command::new("kill").args(["-INT", &strace.id().to_string()]).status();
        if !status.is_ok_and(|status| status.success()) {
            let _ = strace.kill();
        }
        let lines: Vec<String> = output.lines().map_while(Result::ok).collect();
        strace.wait().map_err(|error| error.to_string())?;
        let commands = round?.commands;
        let table: Vec<&str> =
            lines.iter().map(String::as_str).skip_while(|line| !line.starts_with("% time")).collect();
        let calls: Vec<(f64, &str)> = lines.iter().filter_map(|line| count(line)).collect();
        let total: f64 = calls.iter().map(|(count, _)| count).sum();
        let names = calls.iter().map(|(count, name)| (count / commands, name)).filter(|(each, _)| *each >= 0.05);
        let names: Vec<String> = names.map(|(each, name)| format!("{name} {each:.2}")).collect();
        Ok(SystemCalls { each: total / commands, names: names.join(", "), table: table.join("\n") })
    }
}

/// The number and the name of a line of strace's table: `% time, seconds, usecs/call, calls, errors, syscall`.
fn count(line: &str) -> Option<(f64, &str)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let name = *fields.last()?;
    let is_call = fields.len() >= 5 && fields[0].parse::<f64>().is_ok() && name != "total";
    is_call.then(|| Some((fields[3].parse().ok()?, name)))?
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
