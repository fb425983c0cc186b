//! A burst of tasks on an empty pool, and on one that was warmed up.

use super::{FailPoint, driver, ours};
use crate::measure::{median, quantile};
use crate::report::{Section, Table};
use crate::settings::Settings;
use core::net::SocketAddr;
use core::time::Duration;
use tokio::runtime::Runtime;

/// The server's delay of each hello.
const HANDSHAKE: Duration = Duration::from_millis(5);
/// The specification's default of `maxPoolSize`.
const MAX: u32 = 100;

const TITLES: [&str; 4] =
    ["poolhouse-smol", "mongodb on tokio", "poolhouse-smol, warmed up", "mongodb on tokio, warmed up"];

pub(super) fn run(runtime: &Runtime, server: SocketAddr, settings: &Settings, section: &mut Section) {
    let tasks = settings.of(200, 1_000);
    let _slow = FailPoint::slow(server, "alwaysOn", &["hello", "isMaster", "ismaster"], HANDSHAKE);
    let once = |case: usize| match case {
        0 => smol::block_on(ours::burst(server, tasks, MAX, false)),
        1 => runtime.block_on(driver::burst(server, tasks, MAX, false)),
        2 => smol::block_on(ours::burst(server, tasks, MAX, true)),
        _ => runtime.block_on(driver::burst(server, tasks, MAX, true)),
    };
    let mut found: [Vec<[Vec<f64>; 2]>; 4] = [const { Vec::new() }; 4];
    for _ in 0..settings.rounds() {
        for (case, found) in found.iter_mut().enumerate() {
            found.push(once(case).map(|times| times.iter().map(|time| time.as_secs_f64() * 1e3).collect()));
        }
    }
    let columns =
        ["p50 ms", "p99 ms", "max ms", "p99 of the driver", "done p99 ms", "done p99 of the driver", "all done ms"];
    let title = format!(
        "check-out in a burst of {tasks} tasks, maxPoolSize {MAX}, maxConnecting 2, handshake {} ms",
        HANDSHAKE.as_millis()
    );
    let mut table = Table::new(title, &columns);
    let mut of = |case: usize, what: usize, share: f64| {
        median(found[case].iter_mut().map(|round| quantile(&mut round[what], share)).collect())
    };
    for (case, title) in TITLES.iter().enumerate() {
        let p99 = of(case, 0, 0.99);
        let ratio = p99 / of(case | 1, 0, 0.99);
        let done = of(case, 1, 0.99);
        let done_ratio = done / of(case | 1, 1, 0.99);
        let figures = [of(case, 0, 0.5), p99, of(case, 0, 1.0), ratio, done, done_ratio, of(case, 1, 1.0)];
        table.row(*title, &figures);
    }
    section.tables.push(table);
    section.note("The duration of a check-out is that of the event for the driver, and that of the task's wait for Poolhouse; both servers are known before. The driver's tasks request connections one after another, those of Poolhouse all at once, and then wait in the queue. Compare the times at which the pings are done; a large part of them is the server's own time.");
}
