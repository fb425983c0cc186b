//! Repeats one operation a given number of times; `tests/scripts/instructions` counts its
//! instructions.
//!
//! Usage: `instructions_control <case> <times>`, with the cases `checks`, `streams`, `update`,
//! `replace`. It is a separate example, so changes to it do not move the code that is counted
//! for the pool.

#[path = "../benches/support/fleet.rs"]
mod fleet;

use fleet::{Fleet, Set};
use poolhouse_core::monitor::ServerMonitoringMode;

fn main() {
    let mut args = std::env::args().skip(1);
    let case = args.next().expect("a case");
    let times: u64 = args.next().expect("a number of times").parse().expect("a number");
    match case.as_str() {
        "checks" => Fleet::new(1_000, ServerMonitoringMode::Poll).check(times),
        "streams" => Fleet::new(1_000, ServerMonitoringMode::Stream).check(times),
        "update" => Set::new().update(times),
        "replace" => Set::new().replace(times),
        other => panic!("unknown case {other}"),
    }
}
