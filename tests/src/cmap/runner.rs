//! A pool, a mock server and threads on virtual time.
//!
//! Each thread has a queue of operations and may be blocked; the main thread is one of them. All
//! threads that can run do so before the clock advances, so there are no races.

use super::format::{FailPoint, Fault, Operation, OperationKind, Test};
use super::matching::{compare_events, mismatch};
use crate::oracle::Checks;
use crate::oracle::pool::{Bounded, Watched};
use alloc::collections::{BTreeMap, VecDeque};
use core::fmt;
use core::time::Duration;
use poolhouse_core::pool::{
    CheckOut, CheckOutError, Claim, Clear, ConnId, EstablishError, Health, Lease, PoolAction, PoolEvent, PoolId,
    PoolState, WaiterId,
};
use poolhouse_core::{Cause, Instant, Observer};
use serde_json::{Value, json};

/// The address of the mock server.
const ADDRESS: &str = "mock.invalid:27017";
/// With more steps than this at one instant the pool counts as looping.
const STEPS_PER_INSTANT_MAX: u32 = 10_000;
/// The thread that runs the file's operations.
const MAIN: &str = "main";

/// Runs a test on a pool with this kind of memory.
///
/// # Errors
///
/// The difference from the file's expectations.
pub(super) fn run<M: Bounded>(test: &Test) -> Result<Checks, String> {
    let mut runner = Runner::<M>::new(test)?;
    let outcome = runner.run();
    runner.compare(test, outcome)?;
    runner.wind_up()
}

/// Failures of a thread.
#[derive(Clone, Debug)]
enum Failure {
    /// A check-out failed; a file can expect this.
    CheckOut(CheckOutError),
    /// A `waitForEvent` exceeded its time limit.
    Late(String),
    /// The file requests an invalid operation, or the pool refuses a valid one.
    Broken(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CheckOut(error) => write!(f, "{}: {error}", error.name()),
            Self::Late(text) | Self::Broken(text) => f.write_str(text),
        }
    }
}

/// The reason why a thread is blocked.
#[derive(Clone, Debug)]
enum Blocked {
    CheckOut { waiter: WaiterId, label: Option<String> },
    Until(Instant),
    Event { event: String, count: usize, deadline: Option<Instant> },
    Thread(String),
}

#[derive(Debug, Default)]
struct Thread {
    queue: VecDeque<Operation>,
    blocked: Option<Blocked>,
    failure: Option<Failure>,
}

impl Thread {
    fn is_done(&self) -> bool {
        self.failure.is_some() || (self.queue.is_empty() && self.blocked.is_none())
    }
}

/// The end of an establishment.
#[derive(Clone, Copy, Debug)]
struct Dial {
    at: Instant,
    conn: ConnId,
    fault: Option<Fault>,
}

/// The events in the notation of the files.
#[derive(Debug, Default)]
struct Log {
    events: Vec<Value>,
}

struct Runner<M: Bounded> {
    now: Instant,
    steps: u32,
    pool: Watched<M>,
    log: Log,
    fail_point: FailPoint,
    dials: VecDeque<Dial>,
    /// Waiters that the pool has woken.
    woken: Vec<WaiterId>,
    threads: Vec<(String, Thread)>,
    labels: BTreeMap<String, Lease>,
    leases: Vec<Lease>,
}

impl<M: Bounded> Runner<M> {
    fn new(test: &Test) -> Result<Self, String> {
        let config = test.options.validate().map_err(|error| error.to_string())?;
        let mut log = Log::default();
        let pool = Watched::new(Instant::ORIGIN, PoolId::new(1), config, &mut log);
        let main = Thread { queue: test.operations.iter().cloned().collect(), ..Thread::default() };
        Ok(Self {
            now: Instant::ORIGIN,
            steps: 0,
            pool,
            log,
            fail_point: test.fail_point.clone(),
            dials: VecDeque::new(),
            woken: Vec::new(),
            threads: vec![(MAIN.into(), main)],
            labels: BTreeMap::new(),
            leases: Vec::new(),
        })
    }

    /// Runs until the main thread has ended, and until the end of that instant.
    fn run(&mut self) -> Result<(), Failure> {
        loop {
            self.run_threads()?;
            if self.threads[0].1.is_done() {
                break;
            }
            let Some(at) = self.next_instant() else {
                return Err(Failure::Broken(format!("stuck: main waits for {:?}", self.threads[0].1.blocked)));
            };
            self.step(at)?;
        }
        while self.next_work().is_some_and(|at| at <= self.now) {
            self.step(self.now)?;
            self.run_threads()?;
        }
        self.threads[0].1.failure.take().map_or(Ok(()), Err)
    }

    /// Processes one event that is due at `at`: the end of an establishment, or a timer of the
    /// pool.
    fn step(&mut self, at: Instant) -> Result<(), Failure> {
        if at > self.now {
            self.now = at;
            self.steps = 0;
        }
        self.steps += 1;
        if self.steps > STEPS_PER_INSTANT_MAX {
            return Err(Failure::Broken("the pool does not become idle".into()));
        }
        let due = self.dials.iter().enumerate().filter(|(_, dial)| dial.at <= at).min_by_key(|(_, dial)| dial.at);
        if let Some(dial) = due.map(|(place, _)| place).and_then(|place| self.dials.remove(place)) {
            self.end_dial(dial)?;
        } else if self.pool.poll_timeout().is_some_and(|timeout| timeout <= at) {
            self.pool.handle_timeout(self.now, &mut self.log);
            if self.pool.poll_timeout().is_some_and(|timeout| timeout <= self.now) {
                return Err(Failure::Broken("handle_timeout left a due timer".into()));
            }
        }
        self.drain();
        Ok(())
    }

    fn end_dial(&mut self, Dial { conn, fault, .. }: Dial) -> Result<(), Failure> {
        // A result for a connection id that is already stale is normal after the pool was cleared
        // or closed.
        let _late = match fault {
            None => self.pool.handle_established(self.now, conn, &mut self.log),
            Some(fault) => {
                // As the server description would decide: a handshake error without the label
                // clears the pool.
                let (cause, overloaded) = match fault {
                    Fault::CloseConnection => (Cause::Network, true),
                    Fault::Error { code, overloaded } => (Cause::Command { code }, overloaded),
                };
                let current = self.pool.conn_generation(conn) == Some(self.pool.generation());
                let clear = (!overloaded && current).then_some(Clear::All { interrupt_in_use_connections: false });
                let error = EstablishError { cause, overloaded, clear };
                self.pool.handle_establish_failed(self.now, conn, error, &mut self.log)
            }
        };
        Ok(())
    }

    /// Executes the pending actions of the pool.
    fn drain(&mut self) {
        while let Some(action) = self.pool.poll_action(self.now) {
            match action {
                PoolAction::Establish(conn) => {
                    let (delay, fault) = self.fail_point.hello();
                    self.dials.push_back(Dial { at: self.now.saturating_add(delay), conn, fault });
                }
                PoolAction::Interrupt(conn) => self.dials.retain(|dial| dial.conn != conn),
                PoolAction::Wake(waiter) => self.woken.push(waiter),
                PoolAction::Close(_) => {}
            }
        }
        self.pool.assert_invariants();
    }

    /// Returns when the next timer of the pool or the next establishment is due.
    fn next_work(&self) -> Option<Instant> {
        self.dials.iter().map(|dial| dial.at).chain(self.pool.poll_timeout()).min()
    }

    /// Returns when the next event is due. An event that is due exactly at the end of a wait is
    /// processed before the wait ends.
    fn next_instant(&self) -> Option<Instant> {
        let timers = self.threads.iter().filter_map(|(_, thread)| match thread.blocked {
            Some(Blocked::Until(at) | Blocked::Event { deadline: Some(at), .. }) => Some(at),
            _ => None,
        });
        self.next_work().into_iter().chain(timers).min()
    }

    /// Runs every thread that is not blocked, named ones before the main thread, until all are
    /// blocked.
    fn run_threads(&mut self) -> Result<(), Failure> {
        loop {
            let mut ran = false;
            for place in (1..self.threads.len()).chain([0]) {
                ran |= self.unblock(place);
                ran |= self.run_thread(place)?;
            }
            if !ran {
                return Ok(());
            }
        }
    }

    /// Checks whether the condition that blocks a thread is met.
    fn unblock(&mut self, place: usize) -> bool {
        let quiet = self.next_work().is_none_or(|at| at > self.now);
        let Some(blocked) = self.threads[place].1.blocked.take() else { return false };
        let still = match blocked {
            // A thread stays blocked until its waiter is woken, even if the pool could grant its
            // claim earlier.
            Blocked::CheckOut { waiter, .. } if !self.woken.contains(&waiter) => Some(blocked),
            Blocked::CheckOut { waiter, label } => match self.pool.claim(self.now, waiter) {
                Claim::Waiting => Some(Blocked::CheckOut { waiter, label }),
                Claim::Granted(lease) => {
                    self.keep(label, lease);
                    None
                }
                Claim::Failed(error) => {
                    self.threads[place].1.failure = Some(Failure::CheckOut(error));
                    None
                }
                Claim::Stale => {
                    self.threads[place].1.failure = Some(Failure::Broken("the pool lost a check-out".into()));
                    None
                }
            },
            Blocked::Until(at) if at <= self.now && quiet => None,
            Blocked::Event { ref event, count, deadline } => {
                let seen = self.log.events.iter().filter(|seen| seen["type"] == **event).count();
                if seen >= count {
                    None
                } else if deadline.is_some_and(|at| at <= self.now) && quiet {
                    let text = format!("timeout of the wait for {count} of {event}: {seen} were published");
                    self.threads[place].1.failure = Some(Failure::Late(text));
                    None
                } else {
                    Some(blocked)
                }
            }
            Blocked::Thread(name) => match self.threads.iter().find(|(other, _)| *other == name) {
                Some((_, thread)) if thread.is_done() => {
                    self.threads[place].1.failure = thread.failure.clone();
                    None
                }
                _ => Some(Blocked::Thread(name)),
            },
            Blocked::Until(_) => Some(blocked),
        };
        self.threads[place].1.blocked = still;
        self.threads[place].1.blocked.is_none()
    }

    /// Runs a thread until it blocks, fails or has no operation left.
    fn run_thread(&mut self, place: usize) -> Result<bool, Failure> {
        let mut ran = false;
        while self.threads[place].1.blocked.is_none() && self.threads[place].1.failure.is_none() {
            let Some(operation) = self.threads[place].1.queue.pop_front() else { break };
            ran = true;
            match operation.thread {
                Some(name) => {
                    let target = self.place_of(&name)?;
                    self.threads[target].1.queue.push_back(Operation { thread: None, kind: operation.kind });
                    if target != place {
                        self.run_thread(target)?;
                    }
                }
                None => self.operate(place, operation.kind)?,
            }
        }
        Ok(ran)
    }

    fn place_of(&self, name: &str) -> Result<usize, Failure> {
        let place = self.threads.iter().skip(1).position(|(other, _)| other == name);
        place.map(|place| place + 1).ok_or_else(|| Failure::Broken(format!("no thread {name:?} was started")))
    }

    fn operate(&mut self, place: usize, kind: OperationKind) -> Result<(), Failure> {
        let blocked = match kind {
            OperationKind::Start(name) => {
                if self.place_of(&name).is_ok() || name == MAIN {
                    return Err(Failure::Broken(format!("a second thread {name:?}")));
                }
                self.threads.push((name, Thread::default()));
                None
            }
            OperationKind::Wait(duration) => Some(Blocked::Until(self.now.saturating_add(duration))),
            OperationKind::WaitForThread(name) => {
                self.place_of(&name)?;
                Some(Blocked::Thread(name))
            }
            OperationKind::WaitForEvent { event, count, timeout } => {
                let deadline = timeout.map(|timeout| self.now.saturating_add(timeout));
                Some(Blocked::Event { event, count, deadline })
            }
            OperationKind::CheckOut(label) => match self.pool.check_out(self.now, None, &mut self.log) {
                Ok(CheckOut::Granted(lease)) => {
                    self.keep(label, lease);
                    None
                }
                Ok(CheckOut::Queued(waiter)) => Some(Blocked::CheckOut { waiter, label }),
                Err(error) => {
                    self.threads[place].1.failure = Some(Failure::CheckOut(error));
                    None
                }
            },
            OperationKind::CheckIn(label) => {
                let Some(lease) = self.labels.remove(&label) else {
                    return Err(Failure::Broken(format!("no connection is checked out as {label:?}")));
                };
                let checked_in = self.pool.check_in(self.now, lease, Health::Healthy, &mut self.log);
                checked_in.map_err(|error| Failure::Broken(error.to_string()))?;
                None
            }
            OperationKind::Clear { interrupt_in_use_connections } => {
                let clear = Clear::All { interrupt_in_use_connections };
                let cleared = self.pool.clear(self.now, clear, None, &mut self.log);
                cleared.map_err(|error| Failure::Broken(error.to_string()))?;
                None
            }
            OperationKind::Ready => {
                self.pool.ready(self.now, &mut self.log);
                None
            }
            OperationKind::Close => {
                self.pool.close(self.now, &mut self.log);
                None
            }
        };
        self.threads[place].1.blocked = blocked;
        self.drain();
        Ok(())
    }

    fn keep(&mut self, label: Option<String>, lease: Lease) {
        match label {
            Some(label) => self.leases.extend(self.labels.insert(label, lease)),
            None => self.leases.push(lease),
        }
    }

    fn compare(&self, test: &Test, outcome: Result<(), Failure>) -> Result<(), String> {
        match (&test.error, outcome) {
            (None, Ok(())) => {}
            (Some(expected), Err(Failure::CheckOut(error))) => {
                let actual = json!({ "type": error.name(), "message": error.to_string(), "address": ADDRESS });
                if let Some(difference) = mismatch(expected, Some(&actual)) {
                    return Err(format!("the error: {difference}"));
                }
            }
            (Some(expected), Ok(())) => return Err(format!("expected {expected}, found no error")),
            (_, Err(failure)) => return Err(format!("{failure}\n  events: {:#?}", self.log.events)),
        }
        compare_events(&test.events, &self.log.events, &test.ignore)
    }

    /// Checks everything in and closes the pool, which must be empty then.
    fn wind_up(mut self) -> Result<Checks, String> {
        self.pool.close(self.now, &mut self.log);
        for lease in core::mem::take(&mut self.labels).into_values().chain(core::mem::take(&mut self.leases)) {
            self.pool
                .check_in(self.now, lease, Health::Healthy, &mut self.log)
                .map_err(|error| format!("at the end: {error}"))?;
        }
        self.drain();
        let counts = self.pool.counts();
        if self.threads.iter().all(|(_, thread)| thread.is_done()) {
            self.pool.assert_over();
        }
        let idle = counts.total() == 0 && counts.waiting == 0 && self.pool.poll_timeout().is_none();
        if self.pool.state() != PoolState::Closed || !idle {
            return Err(format!(
                "after the end, counts or deadlines are left: {counts:?}, due {:?}",
                self.pool.poll_timeout()
            ));
        }
        Ok(self.pool.checks().clone())
    }
}

impl FailPoint {
    /// Returns the delay and the fault of the next `hello`.
    fn hello(&mut self) -> (Duration, Option<Fault>) {
        if self.skip > 0 {
            self.skip -= 1;
            return (Duration::ZERO, None);
        }
        match &mut self.times {
            Some(0) => return (Duration::ZERO, None),
            Some(times) => *times -= 1,
            None => {}
        }
        (self.block, self.fault)
    }
}

impl Observer<PoolEvent> for Log {
    fn on_event(&mut self, _now: Instant, event: &PoolEvent) {
        let name = event.name();
        // The files also use the prefix "Connection" for events of the pool itself.
        let name = if name.starts_with("Pool") { format!("Connection{name}") } else { name.to_owned() };
        let mut value = json!({ "type": name, "address": ADDRESS });
        match *event {
            PoolEvent::PoolCreated { options, .. } => {
                let options = options.non_default().map(|(name, value)| (name.to_owned(), json!(value)));
                value["options"] = Value::Object(options.collect());
            }
            PoolEvent::PoolCleared { service_id, interrupt_in_use_connections, .. } => {
                value["interruptInUseConnections"] = json!(interrupt_in_use_connections);
                if let Some(service_id) = service_id {
                    value["serviceId"] = json!(service_id.to_string());
                }
            }
            PoolEvent::ConnectionCreated { conn, .. } | PoolEvent::ConnectionCheckedIn { conn, .. } => {
                value["connectionId"] = json!(conn.connection_id().get());
            }
            PoolEvent::ConnectionReady { conn, duration, .. }
            | PoolEvent::ConnectionCheckedOut { conn, duration, .. } => {
                value["connectionId"] = json!(conn.connection_id().get());
                value["duration"] = millis(duration);
            }
            PoolEvent::ConnectionClosed { conn, reason, cause, .. } => {
                value["connectionId"] = json!(conn.connection_id().get());
                value["reason"] = json!(reason.name());
                if let Some(cause) = cause {
                    value["error"] = json!(cause.to_string());
                }
            }
            PoolEvent::ConnectionCheckOutFailed { reason, error, duration, .. } => {
                value["reason"] = json!(reason.name());
                value["error"] = json!(error.to_string());
                value["duration"] = millis(duration);
            }
            PoolEvent::PoolReady { .. }
            | PoolEvent::PoolClosed { .. }
            | PoolEvent::ConnectionCheckOutStarted { .. } => {}
            _ => unreachable!("an event that the format does not contain: {event:?}"),
        }
        self.events.push(value);
    }
}

/// Whole milliseconds are written as integers, so that they equal an integer in a file.
fn millis(duration: Duration) -> Value {
    let millis = duration.as_secs_f64() * 1_000.0;
    if millis.fract() == 0.0 { json!(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)) } else { json!(millis) }
}
