//! Memory of an idle connection and of a waiter, counted by the allocator.

use super::floor::Floor;
use super::locked::Locked;
use super::others;
use super::peer::{Peer, warm};
use super::tokio;
use crate::allocator::counted;
use crate::report::{Section, Table};
use crate::settings::Settings;
use core::task::{Context, Waker};
use poolhouse_smol::Smol;

/// A power of two, at which buffers that double their capacity are full.
const COUNT: u32 = 1_024;

pub(super) fn run(_: &Settings) -> Section {
    let runtime = tokio(1);
    let _entered = runtime.enter();
    let columns = ["idle connection", "waiter", "of it its future"];
    let mut table = Table::new("bytes, with connections of 8 bytes that do nothing", &columns);
    // r2d2 runs first, because pools end in the background. It has no futures.
    let (pool, found) = counted(|| others::r2d2(COUNT));
    let threads = found.bytes as f64 / f64::from(COUNT);
    drop(pool);
    let count = COUNT as usize;
    let rows: [(&str, [f64; 3]); 7] = [
        ("floor: mutex, FIFO hand-off, timer wheel", bytes(&runtime, || Floor::new(u64::from(COUNT)))),
        ("poolhouse-core behind a mutex", bytes(&runtime, || Locked::new(COUNT))),
        ("Poolhouse, Pool::get", bytes(&runtime, || others::pool::<Smol>(COUNT, None))),
        ("deadpool", bytes(&runtime, || others::deadpool(count, None))),
        ("bb8", bytes(&runtime, || runtime.block_on(others::bb8(COUNT)))),
        ("mobc", bytes(&runtime, || others::mobc(u64::from(COUNT)))),
        ("qp", bytes(&runtime, || others::qp(count))),
    ];
    for (name, figures) in rows {
        table.row(name, &figures);
    }
    table.row("r2d2 (a waiter is a thread)", &[threads, f64::NAN, f64::NAN]);
    let mut section = Section::new("pools");
    section.tables.push(table);
    section.note("A waiter is a waiting check-out in a separate box; the memory of its task is not included.");
    section
}

fn bytes<P: Peer>(runtime: &::tokio::runtime::Runtime, made: impl FnOnce() -> P) -> [f64; 3] {
    let each = |bytes: i64| bytes as f64 / f64::from(COUNT);
    let (pool, idle) = counted(|| {
        let pool = made();
        runtime.block_on(warm(&pool, COUNT as usize));
        pool
    });
    let held: Vec<_> = runtime.block_on(async {
        let mut held = Vec::new();
        for _ in 0..COUNT {
            held.push(pool.get().await);
        }
        held
    });
    let mut waiters = Vec::with_capacity(COUNT as usize);
    let mut future_bytes = 0;
    let ((), waiting) = counted(|| {
        for _ in 0..COUNT {
            let mut waiter = Box::pin(pool.get());
            future_bytes = size_of_val(&*waiter);
            let polled = waiter.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending(), "all connections are in use");
            waiters.push(waiter);
        }
    });
    drop(waiters);
    drop(held);
    [each(idle.bytes), each(waiting.bytes), future_bytes as f64]
}
