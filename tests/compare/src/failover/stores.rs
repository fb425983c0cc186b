//! The clients: 64 tasks that write rows, and read those whose write was acknowledged.

use super::{Outcome, TABLE};
use alloc::sync::Arc;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use core::time::Duration;
use poolhouse_smol::mux::cql::{Consistency, Parameters};
use poolhouse_smol::mux::{RequestOptions, Session, SessionOptions, Statement};
use scylla::client::session::Session as ScyllaSession;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::Consistency as ScyllaConsistency;
use scylla::statement::prepared::PreparedStatement;
use std::io::Read;
use std::sync::Mutex;
use std::time::Instant;

const TASKS: usize = 64;
/// The write that the planted client loses.
pub(super) const LOST: i64 = 500;
/// The pause of a task after an error.
const PAUSE: Duration = Duration::from_millis(10);

fn texts() -> [String; 2] {
    [
        format!("INSERT INTO {TABLE} (client, id) VALUES (?, ?)"),
        format!("SELECT id FROM {TABLE} WHERE client = ? AND id = ?"),
    ]
}

/// A client that stores rows.
trait Store: Clone + Send + Sync + 'static {
    fn write(&self, id: i64) -> impl Future<Output = Result<(), String>> + Send;
    /// Returns whether the row was found.
    fn read(&self, id: i64) -> impl Future<Output = Result<bool, String>> + Send;
    fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send;
}

#[derive(Clone)]
struct Poolhouse {
    session: Session,
    name: &'static str,
    write: Statement,
    read: Statement,
}

impl Poolhouse {
    async fn connect(contact: SocketAddr, name: &'static str) -> Self {
        let session = Session::new(SessionOptions::contact_points([contact.to_string()])).expect("valid options");
        let [write, read] = texts();
        let write = session.prepare(&write).await.expect("a statement");
        let read = session.prepare(&read).await.expect("a statement");
        Self { session, name, write, read }
    }

    async fn execute(&self, statement: &Statement, id: i64) -> Result<poolhouse_smol::mux::Reply, String> {
        let bound = statement.bind(&(self.name, id)).map_err(|error| error.to_string())?;
        let parameters = Parameters::new(Consistency::Quorum);
        let options = RequestOptions { idempotent: true, ..RequestOptions::default() };
        let reply = self.session.execute(statement, parameters.values(&bound.values()), options).await;
        reply.map_err(|error| error.to_string())
    }
}

impl Store for Poolhouse {
    async fn write(&self, id: i64) -> Result<(), String> {
        if self.name == "planted" && id == LOST {
            return Ok(());
        }
        self.execute(&self.write, id).await.map(drop)
    }

    async fn read(&self, id: i64) -> Result<bool, String> {
        let reply = self.execute(&self.read, id).await?;
        let rows: Vec<(i64,)> = reply.rows_as().map_err(|error| error.to_string())?;
        Ok(rows == [(id,)])
    }

    async fn sleep(&self, time: Duration) {
        smol::Timer::after(time).await;
    }
}

#[derive(Clone)]
struct Scylla {
    session: Arc<ScyllaSession>,
    write: PreparedStatement,
    read: PreparedStatement,
}

impl Scylla {
    async fn connect(contact: SocketAddr) -> Self {
        let session = SessionBuilder::new().known_node_addr(contact).build().await.expect("a session");
        let [mut write, mut read] = texts().map(scylla::statement::Statement::new);
        for statement in [&mut write, &mut read] {
            statement.set_is_idempotent(true);
            statement.set_consistency(ScyllaConsistency::Quorum);
        }
        let write = session.prepare(write).await.expect("a statement");
        let read = session.prepare(read).await.expect("a statement");
        Self { session: Arc::new(session), write, read }
    }
}

impl Store for Scylla {
    async fn write(&self, id: i64) -> Result<(), String> {
        let reply = self.session.execute_unpaged(&self.write, ("scylla", id)).await;
        reply.map(drop).map_err(|error| error.to_string())
    }

    async fn read(&self, id: i64) -> Result<bool, String> {
        let reply =
            self.session.execute_unpaged(&self.read, ("scylla", id)).await.map_err(|error| error.to_string())?;
        let rows = reply.into_rows_result().map_err(|error| error.to_string())?;
        let row: Option<(i64,)> = rows.maybe_first_row().map_err(|error| error.to_string())?;
        Ok(row == Some((id,)))
    }

    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// The main function of a client's process: it runs until the end of its standard input, and then prints
/// its outcome.
pub(crate) fn run(name: &str, contact: SocketAddr) {
    let outcome = match name {
        "poolhouse" => on_smol(contact, "poolhouse"),
        "planted" => on_smol(contact, "planted"),
        "scylla" => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
            let store = runtime.block_on(Scylla::connect(contact));
            let shared = Arc::new(Shared::new());
            for task in 0..TASKS {
                drop(runtime.spawn(work(store.clone(), Arc::clone(&shared), task)));
            }
            shared.outcome_at_the_end()
        }
        other => panic!("unknown client {other}"),
    };
    println!("{}", serde_json::to_string(&outcome).expect("plain figures"));
}

fn on_smol(contact: SocketAddr, name: &'static str) -> Outcome {
    let store = smol::block_on(Poolhouse::connect(contact, name));
    let shared = Arc::new(Shared::new());
    for task in 0..TASKS {
        smol::spawn(work(store.clone(), Arc::clone(&shared), task)).detach();
    }
    shared.outcome_at_the_end()
}

/// What the tasks of a client share.
struct Shared {
    next: AtomicI64,
    has_ended: AtomicBool,
    state: Mutex<State>,
}

struct State {
    /// The outcome so far.
    outcome: Outcome,
    last_success: Instant,
    /// The begin of the operation of each task.
    running: [Option<Instant>; TASKS],
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Shared {
    fn new() -> Self {
        let state = State { outcome: Outcome::default(), last_success: Instant::now(), running: [None; TASKS] };
        Self { next: AtomicI64::new(0), has_ended: AtomicBool::new(false), state: Mutex::new(state) }
    }

    /// Waits for the end of the standard input. A write that is in progress then is not acknowledged.
    fn outcome_at_the_end(&self) -> Outcome {
        println!("ready");
        let mut sink = [0; 64];
        while std::io::stdin().read(&mut sink).is_ok_and(|count| count > 0) {}
        self.has_ended.store(true, Ordering::Relaxed);
        let state = &mut *self.state.lock().expect("no panic");
        let (now, mut outcome) = (Instant::now(), core::mem::take(&mut state.outcome));
        outcome.gap_ms = outcome.gap_ms.max(ms(now - state.last_success));
        let running = state.running.iter().flatten().map(|begun| ms(now - *begun));
        outcome.slowest_ms = running.fold(outcome.slowest_ms, f64::max);
        outcome
    }

    /// Records that a task begins an operation.
    fn begins(&self, task: usize) {
        self.state.lock().expect("no panic").running[task] = Some(Instant::now());
    }

    /// Records the end of a task's operation.
    fn ended<T>(&self, task: usize, result: &Result<T, String>, record: impl FnOnce(&mut Outcome, bool)) {
        let State { outcome, last_success, running } = &mut *self.state.lock().expect("no panic");
        let now = Instant::now();
        let took = running[task].take().map_or(0.0, |begun| ms(now - begun));
        outcome.slowest_ms = outcome.slowest_ms.max(took);
        match result {
            Ok(_) => {
                outcome.gap_ms = outcome.gap_ms.max(ms(now - *last_success));
                *last_success = now;
            }
            Err(error) if outcome.error.is_none() => outcome.error = Some(error.clone()),
            Err(_) => {}
        }
        record(outcome, result.is_ok());
    }
}

async fn work(store: impl Store, shared: Arc<Shared>, task: usize) {
    while !shared.has_ended.load(Ordering::Relaxed) {
        let id = shared.next.fetch_add(1, Ordering::Relaxed);
        shared.begins(task);
        let written = store.write(id).await;
        shared.ended(task, &written, |outcome, is_done| match is_done {
            true => outcome.acknowledged.push(id),
            false => outcome.failed_writes += 1,
        });
        if written.is_err() {
            store.sleep(PAUSE).await;
            continue;
        }
        shared.begins(task);
        let read = store.read(id).await;
        let is_missing = read == Ok(false);
        shared.ended(task, &read, |outcome, is_done| match is_done {
            true => (outcome.reads, outcome.missing) = (outcome.reads + 1, outcome.missing + u64::from(is_missing)),
            false => outcome.failed_reads += 1,
        });
        if read.is_err() {
            store.sleep(PAUSE).await;
        }
    }
}
