//! Soak tests: a client on smol and real servers, under all kinds of faults, for a given time.
//!
//! ```text
//! tests/scripts/soak [set | cassandra | board] [--seconds S | --minutes M] [--seed N]
//! ```
//!
//! `set` (the default): tasks insert, find and ping in a replica set of three members, through proxies
//! that inject faults, while members are killed, stopped, restarted, and step down. The soak fails unless
//! every operation ended once and in time, every acknowledged row is stored once, no row is stored that
//! was never sent, the client's events are consistent, no resource of the process grew, and at the end
//! servers and pools count the same connections, and none after the client is closed.
//!
//! `cassandra`: the same for a session with a cluster of three nodes.
//!
//! `board`: the firmware under QEMU, with one server behind a proxy; see [`board`].

extern crate alloc;

mod board;
mod cassandra;
mod chaos;
mod detour;
mod events;
mod load;
mod samples;
mod set;
mod soak;

use core::time::Duration;
use poolhouse_tests::mongod::MongodReplicaSet;
use std::process::ExitCode;

/// Runs a soak. Returns a list of the faults found.
type Soak = fn(Plan) -> Result<Vec<String>, soak::Failure>;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Duration, without set-up and shutdown.
    time: Duration,
    seed: u64,
}

const USAGE: &str = "usage: soak [set | cassandra | board] [--seconds S | --minutes M] [--seed N]";

fn plan() -> Result<(Soak, Plan), String> {
    let mut soak: Soak = soak::soak::<MongodReplicaSet>;
    let mut plan = Plan { time: Duration::from_secs(40), seed: 1 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|value| value.parse::<u64>().ok());
        match word.as_str() {
            "set" => soak = soak::soak::<MongodReplicaSet>,
            "cassandra" => soak = soak::soak::<cassandra::Nodes>,
            "board" => soak = board::soak,
            "--seconds" => plan.time = Duration::from_secs(number().ok_or(USAGE)?),
            "--minutes" => plan.time = Duration::from_secs(number().ok_or(USAGE)? * 60),
            "--seed" => plan.seed = number().ok_or(USAGE)?,
            _ => return Err(USAGE.to_owned()),
        }
    }
    Ok((soak, plan))
}

fn main() -> ExitCode {
    let (soak, plan) = match plan() {
        Ok(chosen) => chosen,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    let wrong = soak(plan).unwrap_or_else(|error| vec![error.to_string()]);
    for what in &wrong {
        println!("wrong: {what}");
    }
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
