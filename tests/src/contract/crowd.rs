//! Many tasks on few connections: each task gets connections, and no task gets far more than the
//! others.

use super::rig::{Rig, ping_by};
use super::{Subject, run_case};
use crate::patience::eventually;
use crate::suite::Suite;
use async_executor::LocalExecutor;
use core::cell::Cell;
use poolhouse_driver::SelectionRequest;

/// Maximum number of tasks; fewer when the subject has lower limits.
pub(super) const TASKS: u32 = 10_000;
/// Number of connections that the tasks share.
pub(super) const CONNECTIONS: u32 = 10;
/// Average number of turns of each task in the comparison. A turn is one ping.
pub(super) const TURNS: u32 = 4;

pub(super) fn add<S: Subject>(suite: Suite) -> Suite {
    suite
        .case("crowd::every_task_has_its_turn", || run_case::<S>(every_task_has_its_turn))
        .case("crowd::no_task_has_twice_the_turns_of_another", || run_case::<S>(fair))
}

/// Asserts that the maximum number of turns of a task is at most twice the minimum.
pub(super) fn assert_fair(turns: impl IntoIterator<Item = u32> + Clone) {
    let most = turns.clone().into_iter().max().expect("at least one task");
    let fewest = turns.into_iter().min().expect("at least one task");
    assert!(most <= 2 * fewest, "a task had {most} turns, another only {fewest}");
}

/// Creates a client, and returns it with the number of tasks. The tasks start together because all
/// connections are in use at that time.
fn crowd<S: Subject>(subject: &S) -> (Rig<S>, u32) {
    let rig = Rig::new(subject, |shape| shape.max_pool_size = S::LIMITS.connections.min(CONNECTIONS));
    (rig, S::LIMITS.waiters.min(TASKS))
}

async fn every_task_has_its_turn<S: Subject>(subject: &S) {
    let (rig, tasks) = crowd(subject);
    let turns: Vec<Cell<u32>> = vec![Cell::new(0); tasks as usize];
    run(&rig, &turns, |_| 1).await;
    assert!(turns.iter().all(|turns| turns.get() == 1));
    assert_eq!(rig.server.count_of("ping"), u64::from(tasks));
    rig.all_is_well().await;
    rig.end().await;
}

/// Each task continues until all tasks together had `TURNS` turns per task.
async fn fair<S: Subject>(subject: &S) {
    let (rig, tasks) = crowd(subject);
    let turns: Vec<Cell<u32>> = vec![Cell::new(0); tasks as usize];
    let all = Cell::new(0);
    run(&rig, &turns, |before| {
        all.set(all.get() + 1);
        if all.get() < tasks * TURNS { before + 2 } else { 0 }
    })
    .await;
    assert_fair(turns.iter().map(Cell::get));
    rig.all_is_well().await;
    rig.end().await;
}

/// Each task pings until it had as many turns as `request` returns; `request` is called after each
/// turn.
///
/// - `request`: maps the number of turns before this one to the total number of turns of the task.
async fn run<S: Subject>(rig: &Rig<S>, turns: &[Cell<u32>], request: impl Fn(u32) -> u32) {
    let waiting = u32::try_from(turns.len()).expect("not so many");
    let mut guards = Vec::new();
    for _ in 0..S::LIMITS.connections.min(CONNECTIONS) {
        guards.push(rig.check_out().await);
    }
    let executor = LocalExecutor::new();
    let tasks: Vec<_> = turns
        .iter()
        .map(|turns| {
            let (core, request) = (rig.core(), &request);
            executor.spawn(async move {
                loop {
                    let mut guard = core.check_out(&SelectionRequest::WRITE, None).await.expect("a connection");
                    ping_by(&mut guard).await.expect("a ping");
                    drop(guard);
                    let before = turns.replace(turns.get() + 1);
                    if turns.get() >= request(before) {
                        return;
                    }
                }
            })
        })
        .collect();
    executor
        .run(async {
            eventually("all wait", || rig.counts().waiting == waiting).await;
            drop(guards);
            for task in tasks {
                task.await;
            }
        })
        .await;
}
