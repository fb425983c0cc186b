//! Check-outs that were cancelled while they waited.

use super::{FailPoint, driver, ours};
use crate::clients::median_ms;
use crate::report::{Section, Table};
use crate::settings::Settings;
use core::net::SocketAddr;
use core::time::Duration;
use mongodb::bson::doc;
use tokio::runtime::Runtime;

/// How long the driver's only connection is in use while check-outs wait.
const HELD: Duration = Duration::from_millis(200);

pub(super) fn run(runtime: &Runtime, server: SocketAddr, settings: &Settings, section: &mut Section) {
    let columns = ["ms", "additional, for each of them"];
    let mut table = Table::new("the next ping after cancelled check-outs, one connection", &columns);
    let rounds = settings.of(1, 5);
    let mut rows = |name: &str, counts: &[usize], mut once: Box<dyn FnMut(usize) -> Duration + '_>| {
        let mut none = 0.0;
        for &count in counts {
            let ms = median_ms(&(0..rounds).map(|_| once(count)).collect::<Vec<_>>());
            if count == 0 {
                none = ms;
            }
            let each = if count == 0 { f64::NAN } else { (ms - none) / count as f64 };
            table.row(format!("{name}, {count} cancelled"), &[ms, each]);
        }
    };
    let ours = |count| smol::block_on(ours::after_abandoned(server, count));
    let theirs = |count| {
        let _slow = FailPoint::slow(server, doc! { "times": 1 }, &["ping"], HELD);
        runtime.block_on(driver::after_abandoned(server, count))
    };
    let (our_counts, their_counts): (&[usize], &[usize]) =
        if settings.quick { (&[0, 10, 1_000], &[0, 2]) } else { (&[0, 1, 10, 1_000, 100_000], &[0, 1, 10]) };
    rows("poolhouse-smol", our_counts, Box::new(ours));
    rows("mongodb on tokio", their_counts, Box::new(theirs));
    section.tables.push(table);
}
