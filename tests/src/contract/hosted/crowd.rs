//! Many tasks on the platform's executor, and threads without an executor.

use super::{Hosted, Probe, find, join};
use crate::contract::crowd::{CONNECTIONS, TASKS, TURNS, assert_fair};
use crate::contract::rig::{Rig, ping_by};
use crate::contract::run_case;
use crate::patience::eventually;
use crate::suite::Suite;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use poolhouse_client::{Client, Platform};

pub(super) fn add<P: Platform + Default>(suite: Suite) -> Suite {
    suite
        .case("hosted::crowd::every_task_has_its_turn", || run_case(every_task_has_its_turn::<P>))
        .case("hosted::crowd::no_task_has_twice_the_turns_of_another", || run_case(fair::<P>))
        .case("hosted::crowd::plain_threads_and_tasks_at_once", || run_case(threads::<P>))
}

async fn every_task_has_its_turn<P: Platform + Default>(subject: &Hosted<P>) {
    let (rig, turns) = crowd(subject, Arc::new(|_| false)).await;
    assert!(turns.iter().all(|turns| *turns == 1));
    assert_eq!(rig.server.count_of("ping"), u64::from(TASKS));
    rig.all_is_well().await;
    rig.end().await;
}

/// Each task continues until all tasks together had `TURNS` turns per task.
async fn fair<P: Platform + Default>(subject: &Hosted<P>) {
    let (rig, turns) = crowd(subject, Arc::new(|all| all < TASKS * TURNS)).await;
    assert_fair(turns);
    rig.all_is_well().await;
    rig.end().await;
}

/// Each task pings once, and again while `goes_on` returns `true`. Returns the number of pings of
/// each task.
///
/// - `goes_on`: receives the number of pings of all tasks together.
async fn crowd<P: Platform + Default>(
    subject: &Hosted<P>,
    goes_on: Arc<dyn Fn(u32) -> bool + Send + Sync>,
) -> (Rig<Hosted<P>>, Vec<u32>) {
    let rig = Rig::new(subject, |shape| shape.max_pool_size = CONNECTIONS);
    // All connections are in use, so the tasks start together.
    let mut guards = Vec::new();
    for _ in 0..CONNECTIONS {
        guards.push(rig.check_out().await);
    }
    let all = Arc::new(AtomicU32::new(0));
    let tasks = join(
        rig.client.platform(),
        (0..TASKS).map(|_| {
            let (client, all, goes_on) = (rig.client.client().clone(), Arc::clone(&all), Arc::clone(&goes_on));
            async move {
                let mut turns = 0;
                loop {
                    ping(&client).await;
                    turns += 1;
                    if !goes_on(all.fetch_add(1, Ordering::Relaxed) + 1) {
                        return turns;
                    }
                }
            }
        }),
    );
    let begin = async {
        eventually("all wait", || rig.counts().waiting == TASKS).await;
        drop(guards);
    };
    let (turns, ()) = futures_lite::future::zip(tasks, begin).await;
    (rig, turns)
}

async fn ping<P: Platform>(client: &Client<Probe<P>>) {
    let mut connection = client.check_out_timeout(None).await.expect("a connection");
    ping_by(connection.raw()).await.expect("a ping");
}

/// Threads outside of any executor block on the same client that tasks use.
async fn threads<P: Platform + Default>(subject: &Hosted<P>) {
    const EACH: u32 = 50;
    let rig = Rig::new(subject, |shape| shape.max_pool_size = 3);
    let work = |number: u32| {
        let client = rig.client.client().clone();
        async move {
            let name = if number.is_multiple_of(2) { "one" } else { "other" };
            for _ in 0..EACH {
                assert_eq!(find(&client, name).await.expect("it succeeds"), name);
            }
        }
    };
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let work = work(number);
            std::thread::spawn(|| futures_lite::future::block_on(work))
        })
        .collect();
    join(rig.client.platform(), (0..8).map(work)).await;
    eventually("the threads end", || threads.iter().all(std::thread::JoinHandle::is_finished)).await;
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert_eq!(rig.server.count_of("find"), u64::from(16 * EACH));
    rig.all_is_well().await;
    rig.end().await;
}
