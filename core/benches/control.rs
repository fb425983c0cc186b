//! The cost of the control machine: `cargo bench -p poolhouse-core --bench control`.
//!
//! Figures are medians of rounds. Instructions are counted by `tests/scripts/instructions`.

#[path = "support/fleet.rs"]
mod fleet;

use fleet::{Fleet, Set};
use poolhouse_core::monitor::ServerMonitoringMode;
use std::time;

/// The number of figures of a median.
const ROUNDS: usize = 9;
/// Checks per second of a thousand servers with heartbeatFrequencyMS 500.
const CHECKS: f64 = 2_000.0;

fn main() {
    for (name, mode) in [("polling", ServerMonitoringMode::Poll), ("streaming", ServerMonitoringMode::Stream)] {
        let mut fleet = Fleet::new(1_000, mode);
        let ns = median(20_000, |times| fleet.check(times));
        let percent = ns * CHECKS / 1e9 * 100.0;
        println!("1,000 servers, {name}: {ns:8.0} ns a check, {percent:.3} % of a core at 2,000 a second (aim: 5 %)");
    }
    let ns = median(2_000, |times| Set::new().update(times));
    println!("50 members, the primary's description changes: {ns:8.0} ns an update (aim: 20,000)");
    let ns = median(2_000, |times| Set::new().replace(times));
    println!("50 members, one of them replaced: {ns:8.0} ns an update (aim: 20,000)");
}

/// The median time of a step in nanoseconds, where `act` performs `times` steps.
fn median(times: u64, mut act: impl FnMut(u64)) -> f64 {
    let mut figures: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = time::Instant::now();
            act(times);
            start.elapsed().as_nanos() as f64 / times as f64
        })
        .collect();
    figures.sort_by(f64::total_cmp);
    figures[ROUNDS / 2]
}
