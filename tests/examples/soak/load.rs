//! Tasks that insert, find and ping during the whole run, and the outcome of each operation.

use crate::detour::Detour;
use alloc::sync::Arc;
use bson::{Bson, Document, doc};
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use futures_lite::future;
use poolhouse_smol::poolhouse_client::{Client, Platform};
use poolhouse_smol::poolhouse_driver::OperationError;
use poolhouse_smol::{CommandOptions, Error};
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
pub(crate) const DATABASE: &str = "soak";
pub(crate) const COLLECTION: &str = "documents";
/// Capacity for an hour, so that the ledger does not allocate memory during the run.
const INSERTS: usize = 1 << 17;
const TASKS: usize = 24;
/// Number of errors that are kept for the report.
const SHOWN: usize = 20;
/// Smallest number of timeouts for which percentiles are reported.
const LATE_MIN: usize = 20;

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

/// Runs a task of the load on an executor.
pub(crate) type Spawn = fn(Pin<Box<dyn Future<Output = Vec<Insert>> + Send>>) -> smol::Task<Vec<Insert>>;

/// The load: its tasks and their tallies.
pub(crate) struct Load {
    pub(crate) tally: Arc<Tally>,
    tasks: Vec<smol::Task<Vec<Insert>>>,
}

impl Load {
    pub(crate) fn start<P: Platform>(client: &Client<Detour<P>>, seed: u64, spawn: Spawn) -> Self {
        let tally = Arc::new(Tally::default());
        let tasks = (0..TASKS)
            .map(|task| {
                let (client, tally) = (client.clone(), Arc::clone(&tally));
                let rng = Rng::stream(seed, &format!("task {task}"));
                let worker = Worker { client, tally, task: task as i64, rng, inserts: Vec::with_capacity(INSERTS) };
                spawn(Box::pin(worker.work()))
            })
            .collect();
        Self { tally, tasks }
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

    fn note_error(&self, error: &Error, took: Duration) {
        self.failed.fetch_add(1, Ordering::SeqCst);
        self.failed_since.fetch_add(1, Ordering::SeqCst);
        // Without the parts that differ between occurrences, so that there are few kinds.
        let text = if let Error::Command(refusal) = error {
            format!("command: {} {:?}", refusal.code, refusal.code_name)
        } else {
            let text = format!("{error:?}");
            let words = text.split(|letter: char| !letter.is_ascii_alphabetic()).filter(|word| !word.is_empty());
            words.take(6).collect::<Vec<_>>().join(" ")
        };
        *held(&self.errors).entry(text).or_insert(0) += 1;
        if matches!(error, Error::Operation(OperationError::Timeout, _)) {
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

struct Worker<P: Platform> {
    client: Client<Detour<P>>,
    tally: Arc<Tally>,
    task: i64,
    rng: Rng,
    inserts: Vec<Insert>,
}

/// Returns whether a server that is no longer primary refused a write. If the write had begun, its
/// error is among `writeErrors`.
fn is_refused_by_state(reply: &Document) -> bool {
    /// PrimarySteppedDown, NotWritablePrimary, InterruptedAtShutdown,
    /// InterruptedDueToReplStateChange, ShutdownInProgress.
    const CODES: [i32; 5] = [189, 10107, 11600, 11602, 91];
    let is_of_state = |error: &Bson| {
        let code = error.as_document().map(|error| error.get_i32("code"));
        code.is_some_and(|code| code.is_ok_and(|code| CODES.contains(&code)))
    };
    reply.get_array("writeErrors").is_ok_and(|errors| !errors.is_empty() && errors.iter().all(is_of_state))
}

/// The result of an operation; `None` if it was dropped.
type Outcome = Option<Result<Document, Error>>;

impl<P: Platform> Worker<P> {
    async fn work(mut self) -> Vec<Insert> {
        while !self.tally.stop.load(Ordering::SeqCst) {
            self.tally.running.fetch_add(1, Ordering::SeqCst);
            if self.tally.pause.load(Ordering::SeqCst) {
                self.tally.running.fetch_sub(1, Ordering::SeqCst);
                smol::Timer::after(Duration::from_millis(10)).await;
                continue;
            }
            self.operation().await;
            self.tally.running.fetch_sub(1, Ordering::SeqCst);
            // The load is limited, not the highest that the machine can sustain.
            let pause = Duration::from_millis(u64::from(20 + self.rng.below(160)));
            smol::Timer::after(pause).await;
        }
        self.inserts
    }

    async fn operation(&mut self) {
        match self.rng.below(5) {
            0 | 1 => self.insert().await,
            2 | 3 => self.find().await,
            _ => {
                self.run("admin", doc! { "ping": 1 }).await;
            }
        }
    }

    /// Inserts a document without an `_id`, so that a document that is sent twice is stored twice.
    async fn insert(&mut self) {
        if self.inserts.len() == INSERTS {
            return;
        }
        let number = self.inserts.len() as i64;
        self.inserts.push(Insert::Unknown);
        let insert = doc! {
            "insert": COLLECTION, "documents": [{ "task": self.task, "number": number }],
            "writeConcern": { "w": "majority" },
        };
        let became = match self.run(DATABASE, insert).await {
            Some(Ok(reply)) if reply.contains_key("writeErrors") => {
                if !is_refused_by_state(&reply) {
                    self.tally.note_wrong(format!("an insert was refused: {reply}"));
                }
                Insert::Unknown
            }
            Some(Ok(reply)) if reply.contains_key("writeConcernError") => Insert::Unknown,
            Some(Ok(reply)) if reply.get_i32("n").is_ok_and(|count| count == 1) => Insert::Acknowledged,
            Some(Ok(reply)) => {
                self.tally.note_wrong(format!("the reply to another command: {reply}"));
                Insert::Unknown
            }
            Some(Err(Error::Operation(error, _))) if error.is_retryable() => Insert::Never,
            Some(Err(_)) | None => Insert::Unknown,
        };
        if let Some(last) = self.inserts.last_mut() {
            *last = became;
        }
    }

    /// Finds a document that is known to be stored.
    async fn find(&mut self) {
        let known = self.inserts.len();
        if known == 0 {
            return;
        }
        let number = self.rng.index(known);
        let filter = doc! { "task": self.task, "number": number as i64 };
        let find = doc! { "find": COLLECTION, "filter": filter, "limit": 2, "singleBatch": true };
        let Some(Ok(reply)) = self.run(DATABASE, find).await else { return };
        let found = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        let Ok(found) = found else {
            return self.tally.note_wrong(format!("the reply to another command: {reply}"));
        };
        let ours = found.iter().filter_map(|it| it.as_document());
        let is = |it: &Document, key, wanted| it.get_i64(key).is_ok_and(|value| value == wanted);
        if ours.clone().any(|it| !is(it, "number", number as i64) || !is(it, "task", self.task)) {
            self.tally.note_wrong(format!("the reply to another find: {reply}"));
        }
        let (became, count) = (self.inserts[number], ours.count());
        let right = match became {
            Insert::Acknowledged => count == 1,
            Insert::Never => count == 0,
            Insert::Unknown => count <= 1,
        };
        if !right {
            self.tally
                .note_wrong(format!("document {}/{number} was found {count} times, but is {became:?}", self.task));
        }
    }

    /// Runs one operation to its end. One in fifty is dropped before its end.
    async fn run(&mut self, database: &str, command: Document) -> Outcome {
        let limit = Duration::from_millis(u64::from(self.rng.below(20)));
        let is_dropped = self.rng.one_in(50);
        self.tally.started.fetch_add(1, Ordering::SeqCst);
        let begun = Instant::now();
        let options = CommandOptions::new().timeout(DEADLINE);
        let operation = async { Some(self.client.run_command_with(database, command, options).await) };
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
            self.tally.note_wrong(format!("an operation took {took:?}"));
        }
        match &outcome {
            None => self.tally.dropped.fetch_add(1, Ordering::SeqCst),
            Some(Ok(_)) => self.tally.succeeded.fetch_add(1, Ordering::SeqCst),
            Some(Err(error)) => {
                self.tally.note_error(error, took);
                0
            }
        };
        outcome
    }
}
