//! Tasks that insert, find and ping for the whole time, and what became of each operation.

use crate::detour::Detour;
use alloc::sync::Arc;
use bson::{Bson, Document, doc};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use futures_lite::future;
use poolhouse_smol::poolhouse_client::Client;
use poolhouse_smol::poolhouse_driver::OperationError;
use poolhouse_smol::{CommandOptions, Error};
use poolhouse_tests::choices::Choices;
use poolhouse_tests::rng::Rng;
use serde_json::{Value, json};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How long each operation may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(5);
/// What comes on top where the machine is busy, or stands still for 20 s; beyond that an operation hangs.
const SLACK: Duration = Duration::from_secs(30);
pub(crate) const DATABASE: &str = "soak";
pub(crate) const COLLECTION: &str = "documents";
/// Room for an hour, so that the ledger is no reason for more memory.
const INSERTS: usize = 1 << 17;
const TASKS: usize = 24;
/// Errors that are kept to be shown.
const SHOWN: usize = 20;
/// Of fewer timeouts percentiles say nothing.
const LATE_MIN: usize = 20;

/// What became of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Insert {
    /// It may be there: the answer did not come, or was of no use.
    Unknown,
    /// It is there.
    Acknowledged,
    /// It was never sent.
    Never,
}

/// How operations ended.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) started: AtomicU64,
    pub(crate) succeeded: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Dropped before its end, on purpose.
    pub(crate) dropped: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    /// Of those, before their time.
    pub(crate) early: AtomicU64,
    /// How late the latest timeout was, in microseconds.
    pub(crate) latest_us: AtomicU64,
    running: AtomicUsize,
    failed_since: AtomicU64,
    stop: AtomicBool,
    pause: AtomicBool,
    /// How late each timeout was, in microseconds.
    lateness: Mutex<Vec<u64>>,
    /// What must never be.
    wrong: Mutex<Vec<String>>,
    errors: Mutex<alloc::collections::BTreeMap<String, u64>>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The load.
pub(crate) struct Load {
    pub(crate) tally: Arc<Tally>,
    tasks: Vec<smol::Task<Vec<Insert>>>,
}

impl Load {
    pub(crate) fn start(client: &Client<Detour>, seed: u64) -> Self {
        let tally = Arc::new(Tally::default());
        let tasks = (0..TASKS)
            .map(|task| {
                let (client, tally) = (client.clone(), Arc::clone(&tally));
                let rng = Rng::stream(seed, &format!("task {task}"));
                smol::spawn(
                    Worker { client, tally, task: task as i64, rng, inserts: Vec::with_capacity(INSERTS) }.work(),
                )
            })
            .collect();
        Self { tally, tasks }
    }

    /// Waits until no operation is under way, and lets none begin. Each has an end in its time, so this has one, too.
    pub(crate) async fn rest(&self) -> Result<(), String> {
        self.tally.pause.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        while self.tally.running.load(Ordering::SeqCst) > 0 {
            if begun.elapsed() > DEADLINE + SLACK {
                return Err(format!("{} operations hang", self.tally.running.load(Ordering::SeqCst)));
            }
            smol::Timer::after(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Ends the load; of each task what became of its inserts, in their order.
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
    /// Failures are counted anew from now on.
    pub(crate) fn forget_failures(&self) {
        self.failed_since.store(0, Ordering::SeqCst);
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failed_since.load(Ordering::SeqCst)
    }

    pub(crate) fn ended(&self) -> u64 {
        [&self.succeeded, &self.failed, &self.dropped].iter().map(|count| count.load(Ordering::SeqCst)).sum()
    }

    /// What must never be, and was.
    pub(crate) fn wrong(&self) -> Vec<String> {
        held(&self.wrong).clone()
    }

    /// The errors by their kind, most frequent first.
    pub(crate) fn errors(&self) -> Vec<(String, u64)> {
        let mut errors: Vec<_> = held(&self.errors).iter().map(|(text, count)| (text.clone(), *count)).collect();
        errors.sort_by_key(|(_, count)| core::cmp::Reverse(*count));
        errors
    }

    /// How late timeouts were, in microseconds: how many there were, the latest, those that came early; and, of enough of them, by how much half of them
    /// and 99 of 100 were late at most.
    pub(crate) fn lateness_us(&self) -> Value {
        let mut times = held(&self.lateness).clone();
        times.sort_unstable();
        let mut told = json!({ "count": times.len(), "early": self.early.load(Ordering::SeqCst) });
        if let Some(latest) = times.last() {
            told["max"] = (*latest).into();
        }
        if times.len() >= LATE_MIN {
            for (name, percent) in [("p50", 50), ("p99", 99)] {
                told[name] = times[times.len() * percent / 100].into();
            }
        }
        told
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
        // Without what differs from one to the next, so that there are few.
        let text = if let Error::Command(refusal) = error {
            format!("command: {} {:?}", refusal.code, refusal.code_name)
        } else {
            let text = format!("{error:?}");
            let words = text.split(|letter: char| !letter.is_ascii_alphabetic()).filter(|word| !word.is_empty());
            words.take(6).collect::<Vec<_>>().join(" ")
        };
        *held(&self.errors).entry(text).or_insert(0) += 1;
        if matches!(error, Error::Operation(OperationError::Timeout)) {
            self.timed_out.fetch_add(1, Ordering::SeqCst);
            match took.checked_sub(DEADLINE) {
                None => {
                    self.early.fetch_add(1, Ordering::SeqCst);
                    self.note_wrong(format!("timed out {:?} early", DEADLINE - took));
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

struct Worker {
    client: Client<Detour>,
    tally: Arc<Tally>,
    task: i64,
    rng: Rng,
    inserts: Vec<Insert>,
}

/// Whether a server that is not primary any more refused a write: one that had begun has its error among those of documents.
fn is_refused_by_state(reply: &Document) -> bool {
    /// PrimarySteppedDown, NotWritablePrimary, InterruptedAtShutdown, InterruptedDueToReplStateChange, ShutdownInProgress.
    const CODES: [i32; 5] = [189, 10107, 11600, 11602, 91];
    let is_of_state = |error: &Bson| {
        let code = error.as_document().map(|error| error.get_i32("code"));
        code.is_some_and(|code| code.is_ok_and(|code| CODES.contains(&code)))
    };
    reply.get_array("writeErrors").is_ok_and(|errors| !errors.is_empty() && errors.iter().all(is_of_state))
}

/// What an operation came to.
type Outcome = Option<Result<Document, Error>>;

impl Worker {
    async fn work(mut self) -> Vec<Insert> {
        while !self.tally.stop.load(Ordering::SeqCst) {
            if self.tally.pause.load(Ordering::SeqCst) {
                smol::Timer::after(Duration::from_millis(10)).await;
                continue;
            }
            self.tally.running.fetch_add(1, Ordering::SeqCst);
            self.operation().await;
            self.tally.running.fetch_sub(1, Ordering::SeqCst);
            // A load, and not all that the machine can do.
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

    /// Without a number of its own, so that one that is sent twice is there twice.
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
                self.tally.note_wrong(format!("the answer to another command: {reply}"));
                Insert::Unknown
            }
            Some(Err(Error::Operation(error))) if error.is_retryable() => Insert::Never,
            Some(Err(_)) | None => Insert::Unknown,
        };
        if let Some(last) = self.inserts.last_mut() {
            *last = became;
        }
    }

    /// Looks for a document that is there.
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
            return self.tally.note_wrong(format!("the answer to another command: {reply}"));
        };
        let ours = found.iter().filter_map(|it| it.as_document());
        let is = |it: &Document, key, wanted| it.get_i64(key).is_ok_and(|value| value == wanted);
        if ours.clone().any(|it| !is(it, "number", number as i64) || !is(it, "task", self.task)) {
            self.tally.note_wrong(format!("the answer to another find: {reply}"));
        }
        let (became, count) = (self.inserts[number], ours.count());
        let right = match became {
            Insert::Acknowledged => count == 1,
            Insert::Never => count == 0,
            Insert::Unknown => count <= 1,
        };
        if !right {
            self.tally.note_wrong(format!("{count} of document {}/{number}, which is {became:?}", self.task));
        }
    }

    /// One operation to its end. One in fifty is dropped somewhere on its way.
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
