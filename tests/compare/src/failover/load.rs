//! The work of a client: tasks that write rows, read them, and record it.

use super::judge::{Outcome, Record, now_ms};
use alloc::sync::Arc;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use core::time::Duration;
use std::io::{Read, Write};
use std::sync::Mutex;

const TASKS: usize = 50;
/// The pause of a task after a write and its read, and after an error.
const PAUSE: Duration = Duration::from_millis(250);
/// The write that planted clients lose, or send twice: an early one, which no incident affects.
const PLANTED: i64 = 60;

/// A client that stores rows.
pub(super) trait Store: Clone + Send + Sync + 'static {
    fn write(&self, id: i64) -> impl Future<Output = Result<(), String>> + Send;
    /// Returns whether the row was found.
    fn read(&self, id: i64) -> impl Future<Output = Result<bool, String>> + Send;
    fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send;
}

/// A task of a client.
pub(super) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs the tasks until the end of the standard input, and prints the records. An operation that is running
/// then is not waited for.
///
/// - `client`: its name; the end of that of a planted client is its defect.
pub(super) fn run(client: &str, store: impl Store, spawn: impl Fn(Work)) -> ! {
    let shared = Arc::new(Shared {
        loses: client.ends_with("-loses"),
        doubles: client.ends_with("-doubles"),
        next: AtomicI64::new(0),
        has_ended: AtomicBool::new(false),
        records: Mutex::new((Vec::new(), vec![None; TASKS])),
    });
    for task in 0..TASKS {
        spawn(Box::pin(work(store.clone(), Arc::clone(&shared), task)));
    }
    println!("ready");
    let mut sink = [0; 64];
    while std::io::stdin().read(&mut sink).is_ok_and(|count| count > 0) {}
    shared.has_ended.store(true, Ordering::Relaxed);
    let (done, running) = &*shared.records.lock().expect("no panic");
    let now = now_ms();
    let running = running.iter().flatten().map(|record| Record { end_ms: now, ..record.clone() });
    let mut output = std::io::stdout().lock();
    for record in done.iter().cloned().chain(running) {
        let line = serde_json::to_string(&record).expect("a plain record");
        writeln!(output, "{line}").expect("the output is read");
    }
    writeln!(output, "end").expect("the output is read");
    // The tasks that are running would fail while their client is dropped.
    std::process::exit(0);
}

/// What the tasks of a client share.
struct Shared {
    loses: bool,
    doubles: bool,
    next: AtomicI64,
    has_ended: AtomicBool,
    /// Those that have ended, and that of each task that is running.
    records: Mutex<(Vec<Record>, Vec<Option<Record>>)>,
}

impl Shared {
    fn begins(&self, task: usize, is_write: bool, id: i64) {
        let record = Record { is_write, id, begin_ms: now_ms(), end_ms: f64::NAN, outcome: Outcome::Running };
        self.records.lock().expect("no panic").1[task] = Some(record);
    }

    /// Returns whether the operation has succeeded.
    fn ended(&self, task: usize, result: Result<Outcome, String>) -> bool {
        let end_ms = now_ms();
        let (done, running) = &mut *self.records.lock().expect("no panic");
        let is_done = result.is_ok();
        let record = running[task].take().expect("it has begun");
        done.push(Record { end_ms, outcome: result.unwrap_or_else(Outcome::Failed), ..record });
        is_done
    }
}

async fn work(store: impl Store, shared: Arc<Shared>, task: usize) {
    while !shared.has_ended.load(Ordering::Relaxed) {
        let id = shared.next.fetch_add(1, Ordering::Relaxed);
        shared.begins(task, true, id);
        let is_planted = id == PLANTED;
        let mut written = if shared.loses && is_planted { Ok(()) } else { store.write(id).await };
        if shared.doubles && is_planted {
            written = written.and(store.write(id).await);
        }
        if shared.ended(task, written.map(|()| Outcome::Done)) {
            shared.begins(task, false, id);
            let found = store.read(id).await;
            shared.ended(task, found.map(|found| if found { Outcome::Done } else { Outcome::Missing }));
        }
        store.sleep(PAUSE).await;
    }
}
