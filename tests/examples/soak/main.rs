//! Soak tests: a client on smol and a real replica set of three members, under all kinds of faults,
//! for a given time.
//!
//! ```text
//! MONGOD=$(tests/scripts/mongod) cargo run --release -p poolhouse-tests --all-features --example soak -- [set | edge | board] [--seconds S | --minutes M] [--seed N]
//! ```
//!
//! `set` (the default): tasks insert, find and ping through proxies that inject faults, while
//! members are killed, stopped, restarted, and step down. The soak fails unless every operation
//! ended once and in time, every acknowledged document is stored once, no document is stored that
//! was never sent, the client's events are consistent, no resource of the process grew, and at the
//! end servers and pools count the same connections, and no connections after the client is closed.
//!
//! `edge`: the same for the platform with the edge-triggered reactor, on whose thread the tasks run.
//!
//! `board`: the same for the firmware under QEMU, with one server behind a proxy; see [`board`].

extern crate alloc;

mod board;
mod chaos;
mod detour;
mod events;
mod load;
mod samples;
mod set;

use core::time::Duration;
use poolhouse_smol::Smol;
use poolhouse_smol::edge::{self, Edge};
use std::process::ExitCode;

/// What is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A client of a replica set, on `Smol`.
    Set,
    /// A client of a replica set, on `Edge`.
    Edge,
    /// The firmware.
    Board,
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    subject: Subject,
    /// Duration, without set-up and shutdown.
    time: Duration,
    seed: u64,
}

const USAGE: &str = "usage: soak [set | edge | board] [--seconds S | --minutes M] [--seed N]";

fn plan() -> Result<Plan, String> {
    let mut plan = Plan { subject: Subject::Set, time: Duration::from_secs(40), seed: 1 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|value| value.parse::<u64>().ok());
        match word.as_str() {
            "set" => plan.subject = Subject::Set,
            "edge" => plan.subject = Subject::Edge,
            "board" => plan.subject = Subject::Board,
            "--seconds" => plan.time = Duration::from_secs(number().ok_or(USAGE)?),
            "--minutes" => plan.time = Duration::from_secs(number().ok_or(USAGE)? * 60),
            "--seed" => plan.seed = number().ok_or(USAGE)?,
            _ => return Err(USAGE.to_owned()),
        }
    }
    Ok(plan)
}

fn main() -> ExitCode {
    let plan = match plan() {
        Ok(plan) => plan,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    let outcome = match plan.subject {
        Subject::Set => set::soak::<Smol>(plan, smol::spawn),
        Subject::Edge => set::soak::<Edge>(plan, edge::spawn),
        Subject::Board => board::soak(plan),
    };
    match outcome {
        Ok(wrong) if wrong.is_empty() => ExitCode::SUCCESS,
        Ok(wrong) => {
            for what in wrong {
                println!("wrong: {what}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("wrong: {error}");
            ExitCode::FAILURE
        }
    }
}
