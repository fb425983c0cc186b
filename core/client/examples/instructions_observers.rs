//! Repeats the check-out and check-in of a pool, with an observer, a given number of times;
//! `tests/scripts/instructions` counts its instructions.
//!
//! Usage: `instructions_observers <case> <times>`. Cases: `logs` (feature `tracing`, no subscriber), `metrics`
//! (no recorder).

#[path = "../../benches/support/warm.rs"]
mod warm;

use core::hint::black_box;
use poolhouse_client::log::{LogOptions, Logs};
use poolhouse_client::metrics::PoolMetrics;
use poolhouse_core::observe::{EventContext, Within};
use poolhouse_core::pool::OnHeap;
use warm::{cycle, warm};

fn main() {
    let mut args = std::env::args().skip(1);
    let case = args.next().expect("a case");
    let times: u64 = args.next().expect("a number of times").parse().expect("a number");
    match case.as_str() {
        "logs" => {
            let context = EventContext::of_server(black_box("localhost:27017"));
            let mut logs = Within::new(Logs::new(LogOptions::DEFAULT), context);
            cycle(&mut warm::<OnHeap>(), &mut logs, times);
        }
        "metrics" => cycle(&mut warm::<OnHeap>(), &mut PoolMetrics::new("localhost:27017"), times),
        other => panic!("unknown case {other}"),
    }
}
