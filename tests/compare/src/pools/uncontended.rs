//! One thread, with a connection that is always available.

use super::floor::Floor;
use super::locked::{Locked, config};
use super::others::{self, Shell};
use super::peer::{LIMIT, Peer, once, warm};
use super::{CONNECTIONS, client, tokio};
use crate::measure::{Rounds, ns_each};
use crate::report::{Section, Table};
use crate::settings::Settings;
use core::hint::black_box;
use core::net::SocketAddr;
use poolhouse_core::Instant;
use poolhouse_core::pool::{CheckOut, Health, OnHeap, Pool, PoolId};
use poolhouse_smol::Smol;

/// The cases by name. The first is the baseline.
pub(super) const NAMES: &[(&str, &str)] = &[
    ("floor", "floor: mutex, FIFO hand-off, timer wheel"),
    ("floor-lazy", "floor that reads no clock"),
    ("core", "poolhouse-core, no lock, no clock"),
    ("locked", "poolhouse-core behind a mutex"),
    ("pool", "Poolhouse, Pool::get"),
    ("pool-limited", "Poolhouse, Pool::get with a time limit"),
    ("client", "Poolhouse, Client::check_out"),
    ("client-limited", "Poolhouse, Client::check_out with a time limit"),
    ("deadpool", "deadpool"),
    ("deadpool-limited", "deadpool, with a time limit"),
    ("bb8", "bb8"),
    ("mobc", "mobc"),
    ("qp", "qp"),
    ("r2d2", "r2d2"),
];

/// A case; runs a number of cycles.
type Case = Box<dyn FnMut(u32) -> f64>;

pub(super) fn run(server: SocketAddr, settings: &Settings) -> Section {
    let runtime = tokio(1);
    let _entered = runtime.enter();
    let mut cases: Vec<Case> = NAMES.iter().map(|(name, _)| case(name, server, &runtime)).collect();
    let times = u32::try_from(settings.of(2_000, 200_000)).expect("not many");
    let rounds = Rounds::of(settings.rounds(), cases.len(), |case| cases[case](times));
    let deadpool = NAMES.iter().position(|(name, _)| *name == "deadpool").expect("one of them");
    let columns = ["ns", "of the floor", "of deadpool"];
    let mut table = Table::new("check-out + check-in, uncontended, one thread", &columns);
    for (place, (_, title)) in NAMES.iter().enumerate() {
        table.row(*title, &[rounds.median(place), rounds.ratio(place, 0), rounds.ratio(place, deadpool)]);
    }
    let mut section = Section::new("pools");
    section.tables.push(table);
    section
}

/// Runs this number of cycles of one case; their instructions are counted.
pub(crate) fn repeat(name: &str, server: SocketAddr, times: u32) {
    let runtime = tokio(1);
    let _entered = runtime.enter();
    case(name, server, &runtime)(times);
}

fn case(name: &str, server: SocketAddr, runtime: &::tokio::runtime::Runtime) -> Case {
    let count = CONNECTIONS as usize;
    let shell = |limit| Shell::<Smol> { client: smol::block_on(client(server)), limit };
    match name {
        "floor" => case_of(Floor::new(u64::from(CONNECTIONS)), runtime),
        "floor-lazy" => case_of(Floor::lazy(u64::from(CONNECTIONS)), runtime),
        "core" => bare(),
        "locked" => case_of(Locked::new(CONNECTIONS), runtime),
        "pool" => case_of(others::pool::<Smol>(CONNECTIONS, None), runtime),
        "pool-limited" => case_of(others::pool::<Smol>(CONNECTIONS, Some(LIMIT)), runtime),
        "client" => case_of(shell(None), runtime),
        "client-limited" => case_of(shell(Some(LIMIT)), runtime),
        "deadpool" => case_of(others::deadpool(count, None), runtime),
        "deadpool-limited" => case_of(others::deadpool(count, Some(LIMIT)), runtime),
        "bb8" => case_of(runtime.block_on(others::bb8(CONNECTIONS)), runtime),
        "mobc" => case_of(others::mobc(u64::from(CONNECTIONS)), runtime),
        "qp" => case_of(others::qp(count), runtime),
        "r2d2" => {
            let pool = others::r2d2(CONNECTIONS);
            Box::new(move |times| ns_each(times, || drop(black_box(pool.get().expect("a connection is available")))))
        }
        other => panic!("unknown case {other}"),
    }
}

fn case_of<P: Peer>(pool: P, runtime: &::tokio::runtime::Runtime) -> Case {
    runtime.block_on(warm(&pool, CONNECTIONS as usize));
    Box::new(move |times| ns_each(times, || once(black_box(&pool))))
}

/// The pool's state machine without a driver; the time is an argument.
fn bare() -> Case {
    let mut pool = Pool::<OnHeap>::new(Instant::ORIGIN, PoolId::new(0), config(CONNECTIONS), &mut ());
    pool.ready(Instant::ORIGIN, &mut ());
    let waiting: Vec<_> = (0..CONNECTIONS).map(|_| pool.check_out(Instant::ORIGIN, None, &mut ())).collect();
    while let Some(conn) = pool.poll_establish() {
        pool.handle_established(Instant::ORIGIN, conn, &mut ()).expect("it is pending");
    }
    for waiter in waiting {
        let Ok(CheckOut::Queued(id)) = waiter else { unreachable!("no connection was available") };
        pool.cancel(Instant::ORIGIN, id, &mut ());
    }
    let mut nanos = 1;
    Box::new(move |times| {
        ns_each(times, || {
            nanos += 1;
            let now = Instant::from_nanos(nanos);
            let granted = black_box(&mut pool).check_out(now, None, &mut ());
            let Ok(CheckOut::Granted(lease)) = granted else { unreachable!("a connection is available") };
            pool.check_in(now, lease, Health::Healthy, &mut ()).expect("ours");
        })
    })
}
