//! Serves a fake mongod, or a fake replica set, on loopback:
//!
//! ```text
//! fake_server [--port P] [--seconds S] [--replica-set N [--fail-over-every S]]
//!     [--user NAME:PASSWORD[:MECHANISM]]..
//! ```
//!
//! With `--user`, the server, or each member of the set, has access control. A user without a
//! mechanism has both SCRAM mechanisms.
//!
//! Prints the connection string, and the address of each new primary. Ends when standard input is
//! closed, or after S seconds with `--seconds`.

use alloc::sync::Arc;
use core::time::Duration;
use std::io::Read;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Instant;

use poolhouse_fake::mongo::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};
use poolhouse_fake::mongo::{FakeOptions, FakeServer, FakeUser};

extern crate alloc;

type Failure = Box<dyn core::error::Error>;

const USAGE: &str = "usage: fake_server [--port P] [--seconds S] [--replica-set N [--fail-over-every S]] \
                     [--user NAME:PASSWORD[:MECHANISM]]..";
const MEMBERS_MAX: usize = 50;

#[derive(Debug, Default)]
struct Arguments {
    port: Option<u16>,
    limit: Option<Duration>,
    members: Option<usize>,
    period: Option<Duration>,
    users: Vec<FakeUser>,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut arguments = Self::default();
        while let Some(name) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{name} requires a value"));
            match name.as_str() {
                "--port" => arguments.port = Some(value()?.parse().map_err(|error| format!("--port: {error}"))?),
                "--seconds" => arguments.limit = Some(seconds(&name, &value()?)?),
                "--replica-set" => {
                    let count: usize = value()?.parse().map_err(|error| format!("--replica-set: {error}"))?;
                    if !(1..=MEMBERS_MAX).contains(&count) {
                        return Err(
                            format!("--replica-set requires a number of members from 1 to {MEMBERS_MAX}").into()
                        );
                    }
                    arguments.members = Some(count);
                }
                "--fail-over-every" => arguments.period = Some(seconds(&name, &value()?)?),
                "--user" => arguments.users.push(user(&value()?)),
                _ => return Err(format!("unknown argument {name}; {USAGE}").into()),
            }
        }
        if arguments.members.is_some() && arguments.port.is_some() {
            return Err(
                "--port and --replica-set cannot be combined: the members of a set choose their own ports".into()
            );
        }
        if arguments.members.is_none() && arguments.period.is_some() {
            return Err("--fail-over-every requires --replica-set".into());
        }
        Ok(arguments)
    }
}

fn seconds(name: &str, value: &str) -> Result<Duration, Failure> {
    let seconds = value.parse::<f64>().map_err(|error| format!("{name}: {error}"))?;
    Ok(Duration::try_from_secs_f64(seconds).map_err(|error| format!("{name}: {error}"))?)
}

/// `NAME:PASSWORD[:MECHANISM]`.
fn user(value: &str) -> FakeUser {
    let mut parts = value.splitn(3, ':');
    let user = FakeUser::new(parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    match parts.next() {
        None => user,
        Some("PLAIN") => user.with_mechanisms(&["PLAIN"]).with_source("$external"),
        Some(mechanism) => user.with_mechanisms(&[mechanism]),
    }
}

fn main() -> ExitCode {
    match Arguments::parse(std::env::args().skip(1)).and_then(|arguments| serve(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fake_server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(arguments: &Arguments) -> Result<(), Failure> {
    let end = end_of(arguments.limit);
    let servers = match arguments.members {
        None => {
            let mut options = FakeOptions::default();
            options.port = arguments.port.unwrap_or(0);
            options.auth_required = !arguments.users.is_empty();
            options.users.clone_from(&arguments.users);
            let server = FakeServer::start(options)?;
            println!("{}", server.uri());
            while !end.has_come_within(None) {}
            vec![Arc::new(server)]
        }
        Some(count) => {
            let mut options = FakeReplicaSetOptions::of(count);
            options.server.auth_required = !arguments.users.is_empty();
            options.server.users.clone_from(&arguments.users);
            let set = FakeReplicaSet::start(options)?;
            println!("{}", set.uri());
            let mut primary = set.primary();
            loop {
                if let Some(primary) = primary {
                    println!("primary: {}", set.address(primary));
                }
                if end.has_come_within(arguments.period) {
                    break;
                }
                primary = Some(set.fail_over()?);
            }
            (0..set.servers_count()).map(|member| set.server(member)).collect()
        }
    };
    let accepted: u64 = servers.iter().map(|server| server.accepted_count()).sum();
    let commands: u64 = servers.iter().map(|server| server.look(|view| view.commands_count())).sum();
    println!("{accepted} connections, {commands} commands");
    Ok(())
}

/// When the program ends: at a time if there is one, otherwise when standard input is closed.
struct End {
    at: Option<Instant>,
    closed: Receiver<()>,
    /// Keeps the channel open if standard input is ignored; nothing is ever sent.
    _open: Option<Sender<()>>,
}

fn end_of(limit: Option<Duration>) -> End {
    let (closing, closed) = mpsc::channel();
    if let Some(limit) = limit {
        return End { at: Instant::now().checked_add(limit), closed, _open: Some(closing) };
    }
    std::thread::spawn(move || {
        let mut sink = [0; 1024];
        while std::io::stdin().read(&mut sink).is_ok_and(|count| count > 0) {}
        // The receiver is dropped when the server has ended.
        let _ = closing.send(());
    });
    End { at: None, closed, _open: None }
}

impl End {
    /// Waits for the end, at most for this time (`None` = no limit). Returns whether the end was
    /// reached.
    fn has_come_within(&self, time: Option<Duration>) -> bool {
        let left = self.at.map(|at| at.saturating_duration_since(Instant::now()));
        let wait = [left, time].into_iter().flatten().min();
        let Some(wait) = wait else {
            // An error also is the end: the sender is dropped.
            let _ = self.closed.recv();
            return true;
        };
        match self.closed.recv_timeout(wait) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => true,
            Err(RecvTimeoutError::Timeout) => self.at.is_some_and(|at| at <= Instant::now()),
        }
    }
}
