//! Tasks that share a pool while its server is killed and started again.

use crate::pools::server::Server;
use alloc::sync::Arc;
use core::time::Duration;
use poolhouse_smol::poolhouse_client::pool::Builder;
use poolhouse_smol::{EventRef, Manager, Pool, PoolCounts, PoolEvent, Smol};
use smol::future::{or, pending, yield_now};
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

const TASKS: u64 = 32;
const THREADS: u64 = 4;
const CONNECTIONS: u32 = 8;
const RESTARTS: u32 = 3;
/// The numbers of operations that succeed before the server is killed, and fail before it is
/// started again.
const SERVED: u64 = 5_000;
const FAILED: u64 = 20;
/// The time limit of each wait; much longer than any needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The outcomes of operations.
#[derive(Default)]
struct Tally {
    served: u64,
    failed: u64,
    dropped: u64,
    /// Replies to other requests.
    wrong: Vec<String>,
    /// When the server was started; taken by the first success of an operation that was begun
    /// later.
    restarted: Option<Instant>,
    recoveries: Vec<Duration>,
    is_stopped: bool,
    ended: u64,
}

/// The numbers of events of check-outs and connections.
#[derive(Debug, Default, PartialEq)]
struct Events {
    started: u64,
    checked_out: u64,
    refused: u64,
    checked_in: u64,
    created: u64,
    closed: u64,
}

impl Events {
    fn count(&mut self, event: &EventRef<'_>) {
        let EventRef::Pool(event) = event else { panic!("{event:?}") };
        #[expect(clippy::wildcard_enum_match_arm, reason = "other events are not counted")]
        match event {
            PoolEvent::ConnectionCheckOutStarted { .. } => self.started += 1,
            PoolEvent::ConnectionCheckedOut { .. } => self.checked_out += 1,
            PoolEvent::ConnectionCheckOutFailed { .. } => self.refused += 1,
            PoolEvent::ConnectionCheckedIn { .. } => self.checked_in += 1,
            PoolEvent::ConnectionCreated { .. } => self.created += 1,
            PoolEvent::ConnectionClosed { .. } => self.closed += 1,
            _ => {}
        }
    }
}

struct Load<M: Manager> {
    pool: Pool<M>,
    tally: Mutex<Tally>,
    changed: Condvar,
}

impl<M: Manager> Load<M> {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a state of the tally.
    fn wait(&self, server: &mut Server, what: &str, is_reached: impl Fn(&Tally) -> bool) {
        let begun = Instant::now();
        let mut tally = self.tally();
        while !is_reached(&tally) {
            assert!(tally.wrong.is_empty(), "replies to other requests: {:?}", tally.wrong);
            assert!(
                begun.elapsed() < PATIENCE,
                "it did not happen: {what}; {:?}; log of the server: {}",
                self.pool.status(),
                server.log()
            );
            server.ensure_started();
            // The limit is for the two conditions above.
            (tally, _) = self.changed.wait_timeout(tally, Duration::from_millis(50)).unwrap();
        }
    }

    /// Begins operations until the load is stopped.
    async fn work<E>(&self, task: u64, echo: E)
    where
        E: AsyncFn(&mut M::Connection, &str) -> io::Result<String>,
    {
        let mut number = task << 32;
        while !self.tally().is_stopped {
            number += 1;
            let (text, begun) = (number.to_string(), Instant::now());
            // One in seven check-outs is dropped after some polls, and one in fifty operations with
            // its connection; each if it has not ended before.
            let polls = number / 7 % 8;
            let limit = |is_dropped| if is_dropped { Some(polls) } else { None };
            let operation = async {
                match limited(limit(number.is_multiple_of(7)), self.pool.get()).await? {
                    Ok(mut connection) => limited(limit(number.is_multiple_of(50)), echo(&mut connection, &text)).await,
                    Err(error) => Some(Err(io::Error::other(error))),
                }
            };
            self.record(&text, begun, operation.await);
            yield_now().await;
        }
        self.tally().ended += 1;
        self.changed.notify_all();
    }

    fn record(&self, text: &str, begun: Instant, outcome: Option<io::Result<String>>) {
        let mut tally = self.tally();
        match outcome {
            Some(Ok(reply)) if reply == text => {
                tally.served += 1;
                if let Some(restarted) = tally.restarted.take_if(|restarted| *restarted <= begun) {
                    tally.recoveries.push(restarted.elapsed());
                }
            }
            Some(Ok(reply)) => tally.wrong.push(format!("{reply} to {text}")),
            Some(Err(_)) => tally.failed += 1,
            None => tally.dropped += 1,
        }
        drop(tally);
        self.changed.notify_all();
    }
}

/// The result of an operation; `None` if it is dropped after some polls.
async fn limited<T>(polls: Option<u64>, operation: impl Future<Output = T>) -> Option<T> {
    let limit = async {
        match polls {
            Some(polls) => {
                for _ in 0..polls {
                    yield_now().await;
                }
            }
            None => pending().await,
        }
        None
    };
    or(async { Some(operation.await) }, limit).await
}

/// Puts load on a pool, kills the server three times, and prints the numbers of outcomes.
///
/// - `echo`: an operation whose reply has this text.
pub(crate) fn loses_nothing<M, E>(name: &str, builder: Builder<M, Smol>, mut server: Server, echo: E)
where
    M: Manager,
    E: AsyncFn(&mut M::Connection, &str) -> io::Result<String> + Clone + Send + 'static,
{
    let builder = builder.name(name).max_size(CONNECTIONS).max_backoff(Duration::from_millis(100));
    let pool = builder.build().unwrap();
    let events = Arc::new(Mutex::new(Events::default()));
    let subscription = pool.subscribe_where({
        let events = Arc::clone(&events);
        move |event| {
            events.lock().unwrap().count(event);
            false
        }
    });
    let load = Arc::new(Load { pool, tally: Mutex::default(), changed: Condvar::new() });
    let server = &mut server;
    let start = |thread| {
        let (load, echo) = (Arc::clone(&load), echo.clone());
        thread::spawn(move || {
            let executor = smol::LocalExecutor::new();
            for task in (1..=TASKS).filter(|task| task % THREADS == thread) {
                executor.spawn(load.work(task, echo.clone())).detach();
            }
            while !executor.is_empty() {
                smol::block_on(executor.tick());
            }
        })
    };
    let threads: Vec<_> = (0..THREADS).map(start).collect();
    for restart in 0..RESTARTS as usize {
        let target = load.tally().served + SERVED;
        load.wait(server, "operations succeed", |tally| tally.served >= target);
        server.kill();
        let target = load.tally().failed + FAILED;
        load.wait(server, "operations fail without a server", |tally| tally.failed >= target);
        load.tally().restarted = Some(Instant::now());
        server.restart();
        load.wait(server, "an operation succeeds after a restart", |tally| tally.recoveries.len() > restart);
        load.pool.clear();
    }
    let target = load.tally().served + SERVED;
    load.wait(server, "operations succeed after the last restart", |tally| tally.served >= target);
    load.tally().is_stopped = true;
    load.wait(server, "all tasks end", |tally| tally.ended == TASKS);
    threads.into_iter().for_each(|thread| thread.join().unwrap());

    let PoolCounts { in_use, waiting, .. } = load.pool.status().counts;
    assert_eq!((in_use, waiting), (0, 0), "every connection was returned, every waiter has its outcome");
    poolhouse_tests::patience::run(load.pool.close());
    drop(subscription);
    let events = core::mem::take(&mut *events.lock().unwrap());
    assert_eq!(events.started, events.checked_out + events.refused, "each check-out has one outcome: {events:?}");
    assert_eq!(events.checked_out, events.checked_in, "each connection was returned: {events:?}");
    assert_eq!(events.created, events.closed, "each connection was closed: {events:?}");
    let tally = load.tally();
    assert!(tally.wrong.is_empty(), "replies to other requests: {:?}", tally.wrong);
    println!(
        "pool of {name}: {} operations, {} failed and {} dropped; {RESTARTS} restarts of the server, \
         at most {:.0?} from one to the next success; {} connections",
        tally.served + tally.failed + tally.dropped,
        tally.failed,
        tally.dropped,
        tally.recoveries.iter().max().unwrap(),
        events.created,
    );
}
