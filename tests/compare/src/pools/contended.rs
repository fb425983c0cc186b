//! 64 tasks for 10 connections.

use super::floor::Floor;
use super::locked::Locked;
use super::others::{self, Numbers, Shell};
use super::peer::{LIMIT, Peer, cycle, warm};
use super::{CONNECTIONS, client, tokio};
use crate::measure::{Rounds, Waits, jain, median};
use crate::platform::Tokio;
use crate::report::{Section, Table};
use crate::settings::Settings;
use core::net::SocketAddr;
use core::time::Duration;
use poolhouse_smol::Smol;
use std::time::Instant;

const TASKS: usize = 64;

/// The results of the tasks in one turn of a case.
struct Tally {
    seconds: f64,
    cycles: f64,
    waits: Waits,
    /// Number of cycles of each task.
    shares: Vec<f64>,
}

/// How long tasks may take after the end of a turn: a pool that loses a wake-up never ends.
const GRACE: Duration = Duration::from_secs(5);

/// One turn of a case; `None` if a task was never woken.
type Case = (&'static str, Box<dyn FnMut(Duration) -> Option<Tally>>);

/// The executor of the tasks.
#[derive(Clone, Copy)]
enum Place<'r> {
    Smol,
    Tokio(&'r ::tokio::runtime::Runtime),
}

pub(super) fn run(server: SocketAddr, threads: usize, settings: &Settings) -> Section {
    let runtime: &'static _ = Box::leak(Box::new(tokio(threads)));
    let _entered = runtime.enter();
    let mut cases = cases(server, runtime);
    let turn = settings.turn();
    let mut tallies: Vec<Vec<Tally>> = cases.iter().map(|_| Vec::new()).collect();
    let mut stuck = vec![false; cases.len()];
    let rounds = Rounds::of(settings.rounds(), cases.len(), |case| {
        let tally = if stuck[case] { None } else { cases[case].1(turn) };
        let Some(tally) = tally else {
            stuck[case] = true;
            return f64::NAN;
        };
        let rate = tally.cycles / tally.seconds;
        tallies[case].push(tally);
        rate
    });
    let columns =
        ["cycles/s", "of the floor", "p50 us", "p99 us", "p99 of the floor", "max us", "Jain", "least/most of a task"];
    let plural = if threads == 1 { "" } else { "s" };
    let title = format!("{TASKS} tasks, {CONNECTIONS} connections, {threads} thread{plural}");
    let mut table = Table::new(title, &columns);
    let p99 = |case: usize| median(tallies[case].iter().map(|tally| tally.waits.quantile_ns(0.99)).collect());
    for (place, (name, _)) in cases.iter().enumerate() {
        if stuck[place] {
            table.skip(*name, format!("a task was not woken within {} s", GRACE.as_secs()));
            continue;
        }
        let of = |figure: fn(&Tally) -> f64| median(tallies[place].iter().map(figure).collect());
        // The baseline on the same runtime; the cases on threads are compared with the one on smol.
        let floor = usize::from(name.ends_with("(tokio)"));
        let figures = [
            rounds.median(place),
            rounds.ratio(place, floor),
            of(|tally| tally.waits.quantile_ns(0.5)) / 1e3,
            p99(place) / 1e3,
            p99(place) / p99(floor),
            of(|tally| tally.waits.max_ns as f64) / 1e3,
            of(|tally| jain(&tally.shares)),
            of(|tally| {
                let least = tally.shares.iter().copied().fold(f64::INFINITY, f64::min);
                least / tally.shares.iter().copied().fold(f64::MIN_POSITIVE, f64::max)
            }),
        ];
        table.row(*name, &figures);
    }
    let mut section = Section::new("pools");
    section.tables.push(table);
    section
}

/// The first two cases are the baselines: on smol, then on tokio.
fn cases(server: SocketAddr, runtime: &'static ::tokio::runtime::Runtime) -> Vec<Case> {
    let (smol, tokio) = (Place::Smol, Place::Tokio(runtime));
    let count = CONNECTIONS as usize;
    let on_smol = |limit| Shell::<Smol> { client: smol::block_on(client(server)), limit };
    let on_tokio = |limit| Shell::<Tokio> { client: runtime.block_on(client(server)), limit };
    let r2d2 = others::r2d2(CONNECTIONS);
    vec![
        case_of("floor (smol)", Floor::new(u64::from(CONNECTIONS)), smol),
        case_of("floor (tokio)", Floor::new(u64::from(CONNECTIONS)), tokio),
        case_of("poolhouse-core behind a mutex (smol)", Locked::new(CONNECTIONS), smol),
        case_of("poolhouse-core behind a mutex (tokio)", Locked::new(CONNECTIONS), tokio),
        case_of("Poolhouse, Pool::get (smol)", others::pool::<Smol>(CONNECTIONS, None), smol),
        case_of("Poolhouse, Pool::get (tokio)", others::pool::<Tokio>(CONNECTIONS, None), tokio),
        case_of(
            "Poolhouse, Pool::get, with a time limit (tokio)",
            others::pool::<Tokio>(CONNECTIONS, Some(LIMIT)),
            tokio,
        ),
        case_of("Poolhouse, Client::check_out (smol)", on_smol(None), smol),
        case_of("Poolhouse, Client::check_out (tokio)", on_tokio(None), tokio),
        case_of("Poolhouse, Client::check_out, with a time limit (smol)", on_smol(Some(LIMIT)), smol),
        case_of("Poolhouse, Client::check_out, with a time limit (tokio)", on_tokio(Some(LIMIT)), tokio),
        case_of("deadpool (smol)", others::deadpool(count, None), smol),
        case_of("deadpool (tokio)", others::deadpool(count, None), tokio),
        case_of("deadpool, with a time limit (tokio)", others::deadpool(count, Some(LIMIT)), tokio),
        case_of("bb8 (tokio)", runtime.block_on(others::bb8(CONNECTIONS)), tokio),
        case_of("mobc (tokio)", others::mobc(u64::from(CONNECTIONS)), tokio),
        case_of("qp (smol)", others::qp(count), smol),
        case_of("qp (tokio)", others::qp(count), tokio),
        ("r2d2 (a thread for each task)", Box::new(move |turn| threads(&r2d2, turn))),
    ]
}

fn case_of<P: Peer>(name: &'static str, pool: P, place: Place<'static>) -> Case {
    match place {
        Place::Smol => smol::block_on(warm(&pool, CONNECTIONS as usize)),
        Place::Tokio(runtime) => runtime.block_on(warm(&pool, CONNECTIONS as usize)),
    }
    (name, Box::new(move |turn| tasks(&pool, place, turn)))
}

/// Lets the tasks run cycles for this time.
fn tasks<P: Peer>(pool: &P, place: Place<'_>, turn: Duration) -> Option<Tally> {
    let start = Instant::now();
    let end = start + turn;
    let waits = match place {
        Place::Smol => {
            let running: Vec<_> = (0..TASKS).map(|_| smol::spawn(task(pool.clone(), end))).collect();
            let all = async {
                let mut waits = Vec::new();
                for task in running {
                    waits.push(task.await);
                }
                Some(waits)
            };
            let late = async {
                smol::Timer::after(turn + GRACE).await;
                None
            };
            smol::future::block_on(smol::future::or(all, late))?
        }
        Place::Tokio(runtime) => {
            let running: Vec<_> = (0..TASKS).map(|_| runtime.spawn(task(pool.clone(), end))).collect();
            let all = async {
                let mut waits = Vec::new();
                for task in running {
                    waits.push(task.await.expect("no panic"));
                }
                waits
            };
            runtime.block_on(async { ::tokio::time::timeout(turn + GRACE, all).await }).ok()?
        }
    };
    Some(sum(start, &waits))
}

async fn task<P: Peer>(pool: P, end: Instant) -> Waits {
    let mut waits = Waits::new();
    loop {
        let (waited, at) = cycle(&pool).await;
        // The wait that exceeds the turn is the last one, and is counted like the others.
        waits.add(waited);
        if at >= end {
            return waits;
        }
    }
}

/// One thread for each task, because the tasks block.
fn threads(pool: &r2d2::Pool<Numbers>, turn: Duration) -> Option<Tally> {
    let start = Instant::now();
    let end = start + turn;
    let work = || {
        let mut waits = Waits::new();
        loop {
            let begun = Instant::now();
            let held = pool.get().expect("no wait reaches the time limit");
            let granted = Instant::now();
            std::thread::yield_now();
            drop(held);
            std::thread::yield_now();
            waits.add(granted - begun);
            if granted >= end {
                return waits;
            }
        }
    };
    let waits: Vec<Waits> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..TASKS).map(|_| scope.spawn(work)).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    Some(sum(start, &waits))
}

fn sum(start: Instant, waits: &[Waits]) -> Tally {
    let seconds = start.elapsed().as_secs_f64();
    // The last cycle of each task ended after the turn.
    let shares: Vec<f64> = waits.iter().map(|waits| waits.total as f64 - 1.0).collect();
    let mut all = Waits::new();
    waits.iter().for_each(|waits| all.merge(waits));
    Tally { seconds, cycles: shares.iter().sum(), waits: all, shares }
}
