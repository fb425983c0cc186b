//! 64 tasks that ping on 10 connections.

use super::{driver, ours};
use crate::measure::{Waits, jain, median};
use crate::report::{Section, Table};
use crate::settings::Settings;
use core::net::SocketAddr;
use tokio::runtime::Runtime;

const TASKS: usize = 64;
const CONNECTIONS: u32 = 10;

pub(super) fn run(runtime: &Runtime, server: SocketAddr, settings: &Settings, section: &mut Section) {
    let turn = settings.turn();
    let mut rounds: [Vec<Vec<Waits>>; 2] = [const { Vec::new() }; 2];
    for _ in 0..settings.rounds() {
        rounds[0].push(smol::block_on(ours::fair(server, TASKS, CONNECTIONS, turn)));
        rounds[1].push(runtime.block_on(driver::fair(server, TASKS, CONNECTIONS, turn)));
    }
    let columns = ["p50 us", "p99 us", "max us", "Jain", "least/most of a task"];
    let mut table = Table::new(format!("ping by {TASKS} tasks on {CONNECTIONS} connections"), &columns);
    for (name, rounds) in ["poolhouse-smol", "mongodb on tokio"].iter().zip(&rounds) {
        let of = |figure: &dyn Fn(&Waits, &[f64]) -> f64| {
            let round = |waits: &Vec<Waits>| {
                let mut all = Waits::new();
                waits.iter().for_each(|waits| all.merge(waits));
                // The last ping of each task ended after the turn.
                let shares: Vec<f64> = waits.iter().map(|waits| waits.total as f64 - 1.0).collect();
                figure(&all, &shares)
            };
            median(rounds.iter().map(round).collect())
        };
        let figures = [
            of(&|all, _| all.quantile_ns(0.5) / 1e3),
            of(&|all, _| all.quantile_ns(0.99) / 1e3),
            of(&|all, _| all.max_ns as f64 / 1e3),
            of(&|_, shares| jain(shares)),
            of(&|_, shares| {
                let most = shares.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
                shares.iter().copied().fold(f64::INFINITY, f64::min) / most
            }),
        ];
        table.row(*name, &figures);
    }
    section.tables.push(table);
}
