//! The numbers of [`poolhouse_tests::datastax`], documented, of the machine in virtual time, and of sessions on
//! smol with a real node. Takes some three minutes, because the longest of the times is 120 s.
//!
//! ```text
//! CASSANDRA=$(tests/scripts/cassandra) tests/scripts/watch datastax_numbers
//! ```
//!
//! The node is stopped (SIGSTOP) while requests have to be in flight. Times are those of the events.

extern crate alloc;

use alloc::sync::Arc;
use core::time::Duration;
use futures_lite::future::zip;
use poolhouse_smol::mux::cql::Consistency;
use poolhouse_smol::mux::{HostState, MuxClosed, MuxEvent, MuxOptions, RequestError, Session, SessionOptions};
use poolhouse_smol::poolhouse_core::Instant;
use poolhouse_smol::{Event, EventRef, Notice, Subscription};
use poolhouse_tests::cassandra::{Cassandra, CassandraOptions};
use poolhouse_tests::datastax::{DOCUMENTED, Numbers, REST, TWO_CONNECTIONS, of_machine};
use poolhouse_tests::figures;
use poolhouse_tests::patience::{PATIENCE, eventually};
use serde_json::{Map, Value, json};
use smol::{Task, Timer};
use std::process::ExitCode;

const TEXT: &str = "SELECT key FROM system.local";

/// How late a timer of a busy machine may be, in seconds.
const LATE_S: f64 = 1.0;

/// The time limit of an event that is due after at most two minutes.
const EVENT_LIMIT: Duration = Duration::from_secs(180);

/// A session with the node, and its events of the pool.
struct Subject {
    session: Arc<Session>,
    events: Subscription,
}

impl Subject {
    /// Creates a session with one connection.
    async fn new(node: &Cassandra, options: MuxOptions) -> Self {
        let options = SessionOptions::new([node.address().to_string()])
            .request_timeout(PATIENCE * 3)
            .connect_timeout(PATIENCE)
            .mux(options);
        let session = Arc::new(Session::new(options).expect("valid options"));
        session.query(TEXT).consistency(Consistency::One).send().await.expect("the node is up");
        let events = session.subscribe_where(|event| {
            let of_requests =
                |event: &MuxEvent| matches!(event, MuxEvent::StreamAcquired { .. } | MuxEvent::ReplyReceived { .. });
            matches!(event, EventRef::Mux(event) if !of_requests(event))
        });
        Self { session, events }
    }

    /// Waits for an event with this name; others before it are skipped, unless they are named `never`.
    async fn event(&mut self, name: &str, never: &str) -> (Instant, MuxEvent) {
        let late = async {
            Timer::after(EVENT_LIMIT).await;
            panic!("no event {name}");
        };
        let wanted = async {
            loop {
                let notice = self.events.next().await.expect("the session is open");
                let Notice::Event { at, event: Event::Mux(event) } = notice else { panic!("{notice:?}") };
                if event.name() == name {
                    return (at, event);
                }
                assert_ne!(event.name(), never, "before {name}");
            }
        };
        smol::future::or(wanted, late).await
    }

    /// Begins requests, all of which are in flight when it returns. The node must be stopped.
    async fn begin(&self, count: u32) -> Task<()> {
        let before = self.session.hosts()[0].state.in_flight;
        let session = Arc::clone(&self.session);
        let task = smol::spawn(async move {
            let calls = vec![session.query(TEXT).consistency(Consistency::One); count as usize];
            for result in session.request_all(&calls).await {
                result.expect("a reply");
            }
        });
        eventually("the requests are in flight", || self.session.hosts()[0].state.in_flight == before + count).await;
        task
    }

    /// Begins requests one by one until the event with this name. Returns its time, and the number of requests in
    /// flight that did not cause it.
    async fn grow(&mut self, node: &mut Cassandra, name: &str, never: &str) -> (Instant, u32) {
        node.stop().expect("it runs");
        // Fewer than the threshold.
        let mut requests = vec![self.begin(790).await];
        let count = |state: HostState| state.open + state.establishing;
        while count(self.session.hosts()[0].state) == 1 {
            requests.push(self.begin(1).await);
        }
        let in_flight = self.session.hosts()[0].state.in_flight;
        let (at, _) = self.event(name, never).await;
        node.cont().expect("it is stopped");
        for request in requests {
            request.await;
        }
        (at, in_flight - 1)
    }
}

fn seconds(later: Instant, earlier: Instant) -> f64 {
    later.saturating_since(earlier).as_secs_f64()
}

/// Requests in flight, requests that wait, and the time after which they have failed.
async fn limits(node: &mut Cassandra) -> (f64, f64, f64) {
    let full = Subject::new(node, MuxOptions::DEFAULT).await;
    node.stop().expect("it runs");
    let session = Arc::clone(&full.session);
    let requests = smol::spawn(async move {
        let calls = vec![session.query(TEXT).consistency(Consistency::One); 2000];
        session.request_all(&calls).await
    });
    let mut events = full.events;
    // Rejections come first; they have not waited.
    let waited = async {
        loop {
            let notice = events.next().await.expect("the session is open");
            let Notice::Event { event: Event::Mux(event), .. } = notice else { continue };
            if let MuxEvent::AcquireFailed { waited: Some(waited), .. } = event {
                if waited > Duration::from_secs(1) {
                    return waited;
                }
            }
        }
    };
    let late = async {
        Timer::after(EVENT_LIMIT).await;
        panic!("no request has waited until its limit");
    };
    let waited = smol::future::or(waited, late).await;
    eventually("no request waits", || full.session.hosts()[0].state.queued == 0).await;
    node.cont().expect("it is stopped");
    let results = requests.await;
    let answered = results.iter().filter(|result| result.is_ok()).count();
    let timed_out = results.iter().filter(|result| result.as_ref().is_err_and(RequestError::is_timeout)).count();
    full.session.close().await;
    (answered as f64, timed_out as f64, waited.as_secs_f64())
}

async fn of_node(node: &mut Cassandra) -> Numbers {
    let (requests_per_connection, queue, queue_timeout_s) = limits(node).await;
    let mut resting = Subject::new(node, MuxOptions::DEFAULT).await;
    let mut loaded = Subject::new(node, TWO_CONNECTIONS).await;
    let mut idle = Subject::new(node, TWO_CONNECTIONS).await;
    let (mut threshold, mut ready) = (0, Vec::new());
    for subject in [&mut loaded, &mut idle] {
        threshold = subject.grow(node, "ConnectionCreated", "ConnectionTrashed").await.1;
        let (at, _) = subject.event("ConnectionReady", "ConnectionTrashed").await;
        ready.push(at);
        // More load in the interval that begins there.
        node.stop().expect("it runs");
        let load = subject.begin(801).await;
        assert_eq!(subject.session.hosts()[0].state.open, 2);
        node.cont().expect("it is stopped");
        load.await;
    }
    let rest = async {
        let trashed = loaded.event("ConnectionTrashed", "ConnectionClosed").await;
        Timer::after(REST).await;
        trashed
    };
    let heartbeats = async {
        let first = resting.event("HeartbeatStarted", "ConnectionClosed").await.0;
        (first, resting.event("HeartbeatStarted", "ConnectionClosed").await.0)
    };
    let others = zip(idle.event("ConnectionTrashed", "ConnectionClosed"), heartbeats);
    let (trashed, (of_idle, (first, second))) = zip(rest, others).await;
    let (resurrected, _) = loaded.grow(node, "ConnectionResurrected", "ConnectionCreated").await;
    let (closed, event) = idle.event("ConnectionClosed", "ConnectionResurrected").await;
    assert!(matches!(event, MuxEvent::ConnectionClosed { reason: MuxClosed::Idle, .. }), "{event}");
    // After its end another connection is opened.
    idle.grow(node, "ConnectionCreated", "ConnectionResurrected").await;
    zip(loaded.session.close(), idle.session.close()).await;
    // The heartbeats so far were answered.
    while let Some(notice) = resting.events.try_next() {
        let Notice::Event { event: Event::Mux(event), .. } = notice else { panic!("{notice:?}") };
        assert!(matches!(event, MuxEvent::HeartbeatStarted { .. } | MuxEvent::HeartbeatSucceeded { .. }), "{event}");
    }
    node.stop().expect("it runs");
    let started = resting.event("HeartbeatStarted", "HeartbeatFailed").await.0;
    let failed = resting.event("HeartbeatFailed", "HeartbeatSucceeded").await.0;
    node.cont().expect("it is stopped");
    Numbers {
        requests_per_connection,
        queue,
        queue_timeout_s,
        threshold: f64::from(threshold),
        trashed_s: seconds(trashed.0, ready[0]),
        resurrected_s: seconds(resurrected, trashed.0),
        closed_s: seconds(closed, of_idle.0),
        heartbeat_s: seconds(second, first),
        heartbeat_timeout_s: seconds(failed, started),
    }
}

fn main() -> ExitCode {
    let mut node = match Cassandra::start(CassandraOptions::default()) {
        Ok(node) => node,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let (of_machine, of_node) = (of_machine(), smol::block_on(of_node(&mut node)));
    let mut wrong = 0;
    println!("{:<64} {:>10} {:>8} {:>10}", "number", "documented", "machine", "real node");
    for (((name, documented), (_, machine)), (_, real)) in
        DOCUMENTED.rows().into_iter().zip(of_machine.rows()).zip(of_node.rows())
    {
        let is_time = name.ends_with(", s");
        // A timer is never early, and the clock of events is that of the timers.
        let is_right = machine == documented
            && if is_time { (documented..documented + LATE_S).contains(&real) } else { real == documented };
        let digits = if is_time { 3 } else { 0 };
        let mark = if is_right { "" } else { "  wrong" };
        println!("{name:<64} {documented:>10} {machine:>8} {real:>10.digits$}{mark}");
        wrong += u32::from(!is_right);
    }
    let figures = |numbers: Numbers| -> Map<String, Value> {
        numbers.rows().into_iter().map(|(name, number)| (name.to_owned(), number.into())).collect()
    };
    let figures =
        json!({ "documented": figures(DOCUMENTED), "machine": figures(of_machine), "real_node": figures(of_node) });
    figures::record("datastax_numbers", &figures);
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
