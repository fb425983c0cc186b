//! Tasks that insert, find and ping during the whole run, and the outcome of each operation.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use futures_lite::future;
use poolhouse_tests::choices::Choices;
use poolhouse_tests::rng::Rng;
use serde_json::{Value, json};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Time limit of each operation.
pub(crate) const DEADLINE: Duration = Duration::from_secs(5);
/// Additional time for a busy machine, or one that stalls for 20 s; an operation that takes longer
/// counts as hanging.
const SLACK: Duration = Duration::from_secs(30);
/// Capacity for an hour, so that the ledger does not allocate memory during the run.
const INSERTS: usize = 1 << 17;
const TASKS: i64 = 24;
/// Number of errors that are kept for the report.
const SHOWN: usize = 20;
/// Smallest number of timeouts for which percentiles are reported.
const LATE_MIN: usize = 20;

/// A row: the numbers of the task that inserted it and of the insert.
pub(crate) type Row = (i64, i64);

/// What the tasks do with a client.
pub(crate) trait Database: Clone + Send + Sync + 'static {
    /// Inserts a row. One that is sent twice is stored twice.
    fn insert(&self, row: Row) -> impl Future<Output = Result<Insert, Failed>> + Send;
    /// Finds the rows with these numbers.
    fn find(&self, row: Row) -> impl Future<Output = Result<Vec<Row>, Failed>> + Send;
    fn ping(&self) -> impl Future<Output = Result<(), Failed>> + Send;
}

/// Why an operation failed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The client returned an error.
    Error {
        text: String,
        timed_out: bool,
        /// Whether the server may have executed the operation.
        may_be_stored: bool,
    },
    /// The reply is a violation.
    Wrong(String),
}

/// The outcome of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Insert {
    /// It may be stored: no reply arrived, or the reply was not usable.
    Unknown,
    /// It is stored.
    Acknowledged,
    /// It was never sent.
    Never,
}

/// Outcomes of operations, counted.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) started: AtomicU64,
    pub(crate) succeeded: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Futures dropped deliberately before their end.
    pub(crate) dropped: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    /// Timeouts that were reported before the deadline.
    pub(crate) early: AtomicU64,
    /// Largest lateness of a timeout, in microseconds.
    pub(crate) latest_us: AtomicU64,
    running: AtomicUsize,
    failed_since: AtomicU64,
    stop: AtomicBool,
    pause: AtomicBool,
    /// Lateness of each timeout, in microseconds.
    lateness: Mutex<Vec<u64>>,
    /// Violations.
    wrong: Mutex<Vec<String>>,
    errors: Mutex<alloc::collections::BTreeMap<String, u64>>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The load: its tasks and their tallies.
pub(crate) struct Load {
    pub(crate) tally: Arc<Tally>,
    tasks: Vec<smol::Task<Vec<Insert>>>,
}

impl Load {
    pub(crate) fn start(client: &impl Database, seed: u64) -> Self {
        let tally = Arc::new(Tally::default());
        let tasks = (0..TASKS).map(|task| {
            let (client, tally) = (client.clone(), Arc::clone(&tally));
            let rng = Rng::stream(seed, &format!("task {task}"));
            smol::spawn(Worker { client, tally, task, rng, inserts: Vec::with_capacity(INSERTS) }.work())
        });
        Self { tasks: tasks.collect(), tally }
    }

    /// Suspends the load: starts no further operation, and waits until none is in progress. Ends in
    /// bounded time, because each operation has a deadline.
    pub(crate) async fn rest(&self) -> Result<(), String> {
        self.tally.pause.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        while self.tally.running.load(Ordering::SeqCst) > 0 {
            if begun.elapsed() > DEADLINE + SLACK {
                return Err(format!("{} operations did not end", self.tally.running.load(Ordering::SeqCst)));
            }
            smol::Timer::after(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Continues a load that was suspended.
    pub(crate) fn resume(&self) {
        self.tally.pause.store(false, Ordering::SeqCst);
    }

    /// Ends the load. Returns the outcomes of each task's inserts, in order.
    pub(crate) async fn end(self) -> Vec<Vec<Insert>> {
        self.tally.stop.store(true, Ordering::SeqCst);
        let mut ledgers = Vec::new();
        for task in self.tasks {
            ledgers.push(task.await);
        }
        ledgers
    }
}

impl Tally {
    /// Resets the count of failures.
    pub(crate) fn forget_failures(&self) {
        self.failed_since.store(0, Ordering::SeqCst);
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failed_since.load(Ordering::SeqCst)
    }

    pub(crate) fn ended(&self) -> u64 {
        [&self.succeeded, &self.failed, &self.dropped].iter().map(|count| count.load(Ordering::SeqCst)).sum()
    }

    /// Returns the violations.
    pub(crate) fn wrong(&self) -> Vec<String> {
        held(&self.wrong).clone()
    }

    /// Returns the errors by kind, most frequent first.
    pub(crate) fn errors(&self) -> Vec<(String, u64)> {
        let mut errors: Vec<_> = held(&self.errors).iter().map(|(text, count)| (text.clone(), *count)).collect();
        errors.sort_by_key(|(_, count)| core::cmp::Reverse(*count));
        errors
    }

    /// Returns the lateness of timeouts, in microseconds: their number, the maximum, and the number
    /// that were early; if there are at least `LATE_MIN`, also the 50th and the 99th percentile.
    pub(crate) fn lateness_us(&self) -> Value {
        let mut times = held(&self.lateness).clone();
        times.sort_unstable();
        let mut reported = json!({ "count": times.len(), "early": self.early.load(Ordering::SeqCst) });
        if let Some(latest) = times.last() {
            reported["max"] = (*latest).into();
        }
        if times.len() >= LATE_MIN {
            for (name, percent) in [("p50", 50), ("p99", 99)] {
                reported[name] = times[times.len() * percent / 100].into();
            }
        }
        reported
    }

    fn note_wrong(&self, what: String) {
        let mut wrong = held(&self.wrong);
        if wrong.len() < SHOWN {
            wrong.push(what);
        }
    }

    fn note_failure(&self, failed: &Failed, took: Duration) {
        self.failed.fetch_add(1, Ordering::SeqCst);
        self.failed_since.fetch_add(1, Ordering::SeqCst);
        let (text, timed_out) = match failed {
            Failed::Wrong(what) => return self.note_wrong(what.clone()),
            Failed::Error { text, timed_out, .. } => (text, *timed_out),
        };
        // Without the parts that differ between occurrences, so that there are few kinds.
        let words = text.split(|letter: char| !letter.is_ascii_alphabetic()).filter(|word| !word.is_empty());
        *held(&self.errors).entry(words.take(6).collect::<Vec<_>>().join(" ")).or_insert(0) += 1;
        if timed_out {
            self.timed_out.fetch_add(1, Ordering::SeqCst);
            match took.checked_sub(DEADLINE) {
                None => {
                    self.early.fetch_add(1, Ordering::SeqCst);
                    self.note_wrong(format!("an operation timed out {:?} early", DEADLINE - took));
                }
                Some(late) => {
                    let late = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
                    self.latest_us.fetch_max(late, Ordering::SeqCst);
                    held(&self.lateness).push(late);
                }
            }
        }
    }
}

struct Worker<D> {
    client: D,
    tally: Arc<Tally>,
    task: i64,
    rng: Rng,
    inserts: Vec<Insert>,
}

impl<D: Database> Worker<D> {
    async fn work(mut self) -> Vec<Insert> {
        while !self.tally.stop.load(Ordering::SeqCst) {
            self.tally.running.fetch_add(1, Ordering::SeqCst);
            if self.tally.pause.load(Ordering::SeqCst) {
                self.tally.running.fetch_sub(1, Ordering::SeqCst);
                smol::Timer::after(Duration::from_millis(10)).await;
                continue;
            }
            match self.rng.below(5) {
                0 | 1 => self.insert().await,
                2 | 3 => self.find().await,
                _ => drop(run(&self.tally, &mut self.rng, self.client.ping()).await),
            }
            self.tally.running.fetch_sub(1, Ordering::SeqCst);
            // The load is limited, not the highest that the machine can sustain.
            let pause = Duration::from_millis(u64::from(20 + self.rng.below(160)));
            smol::Timer::after(pause).await;
        }
        self.inserts
    }

    async fn insert(&mut self) {
        let number = self.inserts.len();
        if number == INSERTS {
            return;
        }
        self.inserts.push(Insert::Unknown);
        let outcome = run(&self.tally, &mut self.rng, self.client.insert((self.task, number as i64))).await;
        self.inserts[number] = match outcome {
            Some(Ok(became)) => became,
            Some(Err(Failed::Error { may_be_stored: false, .. })) => Insert::Never,
            Some(Err(_)) | None => Insert::Unknown,
        };
    }

    /// Finds a row whose outcome is known.
    async fn find(&mut self) {
        if self.inserts.is_empty() {
            return;
        }
        let number = self.rng.index(self.inserts.len());
        let wanted = (self.task, number as i64);
        let Some(Ok(found)) = run(&self.tally, &mut self.rng, self.client.find(wanted)).await else { return };
        if found.iter().any(|row| *row != wanted) {
            self.tally.note_wrong(format!("the reply to another find than of {wanted:?}: {found:?}"));
        }
        let (became, count) = (self.inserts[number], found.len());
        if !became.allows(count) {
            self.tally.note_wrong(format!("row {wanted:?} was found {count} times, but is {became:?}"));
        }
    }
}

impl Insert {
    /// Whether a row with this outcome may be stored this number of times.
    pub(crate) const fn allows(self, count: usize) -> bool {
        match self {
            Self::Acknowledged => count == 1,
            Self::Never => count == 0,
            Self::Unknown => count <= 1,
        }
    }
}

/// Runs one operation to its end. One in fifty is dropped before its end: `None`.
async fn run<T>(
    tally: &Tally,
    rng: &mut Rng,
    operation: impl Future<Output = Result<T, Failed>>,
) -> Option<Result<T, Failed>> {
    let limit = Duration::from_millis(u64::from(rng.below(20)));
    let is_dropped = rng.one_in(50);
    tally.started.fetch_add(1, Ordering::SeqCst);
    let begun = Instant::now();
    let operation = async { Some(operation.await) };
    let outcome = if is_dropped {
        let dropping = async {
            smol::Timer::after(limit).await;
            None
        };
        future::or(operation, dropping).await
    } else {
        operation.await
    };
    let took = begun.elapsed();
    if took > DEADLINE + SLACK {
        tally.note_wrong(format!("an operation took {took:?}"));
    }
    match &outcome {
        None => drop(tally.dropped.fetch_add(1, Ordering::SeqCst)),
        Some(Ok(_)) => drop(tally.succeeded.fetch_add(1, Ordering::SeqCst)),
        Some(Err(failed)) => tally.note_failure(failed, took),
    }
    outcome
}
