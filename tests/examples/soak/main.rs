//! A client on smol and a genuine replica set of three, with everything that can befall them, for as long as one likes.
//!
//! ```text
//! MONGOD=$(tests/scripts/mongod) cargo run --release -p poolhouse-tests --all-features --example soak -- [set | board] [--seconds S | --minutes M] [--seed N]
//! ```
//!
//! `set` (what is done without a word): tasks insert, find and ping through proxies that spoil connections, while members are killed, stopped, restarted, and
//! step down. It fails unless every operation ended once and in time, every acknowledged document is there once and none that was never sent, the
//! events of the client add up, nothing that the process holds grew, and in the end servers and pools count the same connections, and none once
//! the client is closed.
//!
//! `board`: the same of the firmware under QEMU, with one server behind a proxy; see [`board`].

extern crate alloc;

mod board;
mod chaos;
mod detour;
mod events;
mod load;
mod samples;
mod set;

use core::time::Duration;
use std::process::ExitCode;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    is_board: bool,
    /// How long it is done, the beginning and the end not counted.
    time: Duration,
    seed: u64,
}

const USAGE: &str = "usage: soak [set | board] [--seconds S | --minutes M] [--seed N]";

fn plan() -> Result<Plan, String> {
    let mut plan = Plan { is_board: false, time: Duration::from_secs(40), seed: 1 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|value| value.parse::<u64>().ok());
        match word.as_str() {
            "set" => plan.is_board = false,
            "board" => plan.is_board = true,
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
    let outcome = if plan.is_board { board::soak(plan) } else { set::soak(plan) };
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
