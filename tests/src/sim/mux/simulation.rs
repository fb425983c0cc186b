//! The pool, its model, and the state of a host. All are compared after each operation.

use super::book::{Book, Entry};
use super::kind::{Counters, Kind};
use super::{Shape, Trace, same};
use crate::choices::Choices;
use crate::model::mux::{Event, Model, Place, Room};
use crate::oracle::mux::{Bounded, Watched};
use crate::sim::next_kind;
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::mux::{
    AcquireError, Mux, MuxAction, MuxConfig, MuxConnId, MuxEvent, MuxId, MuxOnHeap, MuxOptions, MuxWaiterId, Stream,
    Written,
};

/// Number of closed connections that are still used in calls.
const GONE_MAX: usize = 8;

/// A pool with its model and its host.
pub(super) struct Simulation<'a, M: Bounded> {
    pub(super) shape: &'a Shape,
    pub(super) counters: &'a mut Counters,
    trace: Option<&'a Trace>,
    pub(super) mux: Watched<M>,
    pub(super) model: Model,
    pub(super) book: Book,
    pub(super) log: Vec<(Instant, MuxEvent)>,
    pub(super) now: u64,
    /// The streams, and their request numbers in the model.
    pub(super) streams: Vec<(Stream, u64)>,
    /// Unclaimed waiters, and their numbers in the model.
    pub(super) waiters: Vec<(MuxWaiterId, u64)>,
    /// Ids of waiters that have ended.
    pub(super) used_up: Vec<MuxWaiterId>,
    /// Connections that the host is establishing, from its view.
    pub(super) establishing: Vec<MuxConnId>,
    /// Connections that the pool may know, and some closed ones.
    pub(super) known: Vec<MuxConnId>,
    pub(super) gone: Vec<MuxConnId>,
    pub(super) foreign: Option<Stream>,
}

impl<'a, M: Bounded> Simulation<'a, M> {
    pub(super) fn new(shape: &'a Shape, room: Room, counters: &'a mut Counters, trace: Option<&'a Trace>) -> Self {
        let mut log = Vec::new();
        let now = 1_000_000_000;
        let config = shape.options.validate().expect("options that were drawn to be valid");
        Self {
            shape,
            counters,
            trace,
            mux: Watched::new(Instant::from_nanos(now), MuxId::new(1), config, &mut log),
            model: Model::new(now, shape.options, room),
            book: Book::default(),
            log,
            now,
            streams: Vec::new(),
            waiters: Vec::new(),
            used_up: Vec::new(),
            establishing: Vec::new(),
            known: Vec::new(),
            gone: Vec::new(),
            foreign: None,
        }
    }

    /// Executes the complete run.
    pub(super) fn run(mut self, choices: &mut impl Choices) {
        self.compare();
        let mut last = None;
        for _ in 0..self.shape.steps {
            if choices.is_over() {
                break;
            }
            let Shape { weights, sticky, .. } = self.shape;
            last = next_kind(Kind::ALL, *weights, *sticky, last, |kind| self.is_enabled(kind), choices);
            let Some(kind) = last else { break };
            self.counters.count(kind);
            self.operate(kind, choices);
            self.compare();
        }
        self.peace();
        self.end();
        self.counters.note_life(self.mux.checks());
    }

    pub(super) fn at(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    pub(super) fn note(&self, text: impl FnOnce() -> String) {
        if let Some(trace) = self.trace {
            trace.borrow_mut().push(format!("{:>16} {}", self.now, text()));
        }
    }

    /// The connection with this number, among those that the pool may know.
    pub(super) fn conn_of(&self, number: u64) -> MuxConnId {
        let found = self.known.iter().find(|conn| conn.number().get() == number);
        *found.expect("a connection that the pool has reported")
    }

    /// Compares all observable state of the pool with the model.
    pub(super) fn compare(&mut self) {
        let mut actual: Vec<(u64, Event)> = Vec::with_capacity(self.log.len());
        for (at, event) in self.log.drain(..) {
            if let MuxEvent::ConnectionCreated { conn, .. } = event {
                self.known.push(conn);
            }
            actual.push((at.as_nanos(), translated(&event)));
        }
        if let Some(trace) = self.trace {
            trace.borrow_mut().extend(actual.iter().map(|(_, event)| format!("{:>20} {event:?}", "->")));
        }
        self.counters.events += u64::try_from(actual.len()).unwrap_or(0);
        let actual = same::assert_events(actual, &mut self.model);
        for (_, event) in &actual {
            if let Event::Acquired(conn, id, _) = *event {
                self.book.acquired(conn, u16::try_from(id).expect("an id"));
            } else if let Event::Closed(conn, _, in_flight) = *event {
                self.book.closed(conn, in_flight);
            }
        }
        same::assert_state(&self.mux, &self.model);
        // The machine and the book must agree on the ids in use.
        let taken: usize = self.model.established().map(|conn| conn.requests.len()).sum();
        assert_eq!(taken, self.book.all(|_| true).len(), "stream ids that are not free");
        assert_eq!(self.model.in_flight() as usize, self.book.alive(), "requests that wait for replies");

        let (mux, model, gone) = (&self.mux, &self.model, &mut self.gone);
        self.known.retain(|&conn| {
            let expected = model.conn(conn.number().get());
            let in_flight = expected.filter(|conn| conn.place != Place::OwesClose).map(|conn| conn.in_flight());
            assert_eq!(mux.conn_in_flight(conn), in_flight, "in flight on {conn:?}");
            if expected.is_none() {
                if gone.len() == GONE_MAX {
                    gone.remove(0);
                }
                gone.push(conn);
            }
            expected.is_some()
        });
        for &conn in &self.gone {
            assert_eq!(self.mux.conn_in_flight(conn), None, "{conn:?} no longer exists");
        }
        let model = &self.model;
        self.establishing
            .retain(|conn| model.conn(conn.number().get()).is_some_and(|conn| conn.place == Place::Establishing));
    }

    /// Takes one action. Returns false if none is owed.
    pub(super) fn poll(&mut self) -> bool {
        let action = self.mux.poll_action(self.at());
        let wakes = self.model.owed_wakes();
        let owed = [Place::OwesClose, Place::OwesEstablish].map(|place| self.model.at(place).next().is_some());
        let [owes_close, owes_establish] = owed;
        let owes_heartbeat = !self.model.owed_heartbeats().is_empty();
        self.note(|| format!("poll: {action:?}"));
        match action {
            None => assert!(
                wakes.is_empty() && !owes_close && !owes_establish && !owes_heartbeat,
                "an action is owed: wakes {wakes:?}, close {owes_close}, establish {owes_establish}"
            ),
            Some(MuxAction::Wake(waiter)) => {
                let found = self.waiters.iter().find(|(id, _)| *id == waiter);
                let number = found.expect("the pool wakes an open request").1;
                self.model.took_wake(number);
            }
            Some(MuxAction::Close(conn)) => {
                assert!(wakes.is_empty(), "wake actions are polled first");
                self.model.took_close(conn.number().get());
                assert!(self.book.all(|_| true).iter().all(|(number, _)| *number != conn.number().get()));
            }
            Some(MuxAction::Heartbeat(conn, stream)) => {
                self.model.took_heartbeat(conn.number().get(), stream);
                assert_eq!(self.book.entry(conn.number().get(), stream), None, "the id is a request's");
            }
            Some(MuxAction::Establish(conn)) => {
                assert!(!owes_heartbeat && !owes_close, "heartbeats and closes are polled before establishments");
                self.model.took_establish(conn.number().get());
                self.establishing.push(conn);
            }
        }
        action.is_some()
    }

    pub(super) fn drain(&mut self) {
        while self.poll() {}
    }

    /// Faults have stopped and each peer answers: each waiter must end soon, and each id must be
    /// freed.
    fn peace(&mut self) {
        if self.mux.is_closed() {
            return;
        }
        self.note(|| "peace".into());
        for round in 0..self.waiters.len() + 8 {
            // A failure is followed by a pause.
            let due = self.mux.poll_timeout().map(Instant::as_nanos).filter(|due| *due < self.now + 61_000_000_000);
            self.now = due.filter(|_| round > 2).unwrap_or(self.now).max(self.now);
            self.tick();
            self.compare();
            self.drain();
            self.tick();
            self.compare();
            self.drain();
            self.compare();
            while let Some(conn) = self.establishing.pop() {
                self.established(conn);
                self.compare();
            }
            for place in (0..self.waiters.len()).rev() {
                self.claim(place);
                self.compare();
            }
            self.write_all();
            self.answer_all();
            while !self.streams.is_empty() {
                self.release(0, Written::Perhaps);
                self.compare();
            }
        }
        let state = self.mux.state();
        assert_eq!((state.in_flight, state.orphaned), (0, 0), "a stream id is lost");
        assert!(self.book.is_empty(), "a stream id is lost: {:?}", self.book);
        assert_eq!(state.queued, 0, "a request waits forever");
        self.mux.assert_peace();
    }

    fn write_all(&mut self) {
        for (conn, id) in self.book.all(|entry| matches!(entry, Entry::Unwritten(_))) {
            self.book.written(conn, id);
        }
    }

    /// Delivers all outstanding replies.
    fn answer_all(&mut self) {
        for (conn, id) in self.book.all(|entry| matches!(entry, Entry::Written(_) | Entry::GivenUp(_))) {
            let conn = self.conn_of(conn);
            self.reply(conn, i32::from(id));
            self.compare();
            self.write_all();
        }
        let asked: Vec<_> = self.model.established().filter_map(|conn| Some((conn.id, conn.heartbeat_id()?))).collect();
        for (conn, id) in asked {
            if self.model.conn(conn).is_some_and(|known| known.heartbeat_id() == Some(id)) {
                let conn = self.conn_of(conn);
                self.reply(conn, i32::from(id));
                self.compare();
                self.write_all();
            }
        }
    }

    /// Closes the pool and checks that nothing is left.
    fn end(&mut self) {
        self.close();
        self.compare();
        while !self.streams.is_empty() {
            self.release(0, Written::Perhaps);
            self.compare();
        }
        for place in (0..self.waiters.len()).rev() {
            self.cancel(place);
            self.compare();
        }
        self.drain();
        self.compare();
        assert_eq!(self.mux.state(), poolhouse_core::mux::HostState::default(), "something is left");
        assert!(self.book.is_empty(), "something is left: {:?}", self.book);
        assert!(self.known.is_empty(), "a connection is left");
        assert_eq!(self.mux.poll_timeout(), None, "something is due");
        let now = self.at();
        self.mux.assert_over();
        assert_eq!(self.mux.acquire(now, None, &mut ()), Err(AcquireError::Closed));
    }

    /// Creates a stream of another pool.
    pub(super) fn foreign_stream(&mut self) -> Stream {
        self.foreign.take().unwrap_or_else(|| {
            let now = self.at();
            let config: MuxConfig = MuxOptions::DEFAULT_128.validate().expect("defaults");
            let mut other = Mux::<MuxOnHeap>::new(now, MuxId::new(2), config, &mut ());
            let Some(MuxAction::Establish(conn)) = other.poll_action(now) else { unreachable!("it owes one") };
            other.handle_established(now, conn, &mut ()).expect("it is pending");
            let Ok(poolhouse_core::mux::Acquire::Granted(stream)) = other.acquire(now, None, &mut ()) else {
                unreachable!("a connection is available")
            };
            stream
        })
    }
}

/// Converts an event of the pool to one of the model.
pub(crate) fn translated(event: &MuxEvent) -> Event {
    let id = |conn: MuxConnId| conn.number().get();
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).expect("a short time");
    match *event {
        MuxEvent::PoolCreated { config, .. } => Event::PoolCreated(*config.options()),
        MuxEvent::PoolReconfigured { config, .. } => Event::Reconfigured(*config.options()),
        MuxEvent::PoolClosed { .. } => Event::PoolClosed,
        MuxEvent::ConnectionCreated { conn, .. } => Event::Created(id(conn)),
        MuxEvent::ConnectionReady { conn, duration, .. } => Event::Ready(id(conn), nanos(duration)),
        MuxEvent::ConnectionTrashed { conn, in_flight, .. } => Event::Trashed(id(conn), in_flight),
        MuxEvent::ConnectionResurrected { conn, .. } => Event::Resurrected(id(conn)),
        MuxEvent::ConnectionRetired { conn, orphaned, .. } => Event::Retired(id(conn), orphaned),
        MuxEvent::ConnectionClosed { conn, reason, in_flight, .. } => Event::Closed(id(conn), reason, in_flight),
        MuxEvent::HeartbeatStarted { conn, .. } => Event::HeartbeatStarted(id(conn)),
        MuxEvent::HeartbeatSucceeded { conn, duration, .. } => Event::HeartbeatSucceeded(id(conn), nanos(duration)),
        MuxEvent::HeartbeatFailed { conn, .. } => Event::HeartbeatFailed(id(conn)),
        MuxEvent::StreamAcquired { conn, stream, duration, .. } => {
            Event::Acquired(id(conn), u64::from(stream), nanos(duration))
        }
        MuxEvent::RequestQueued { queued, .. } => Event::Queued(queued),
        MuxEvent::AcquireFailed { error, duration, .. } => Event::Failed(error, nanos(duration)),
        MuxEvent::ReplyReceived { conn, stream, .. } => Event::Reply(id(conn), stream),
        MuxEvent::StreamOrphaned { conn, stream, orphaned, .. } => Event::Orphaned(id(conn), stream, orphaned),
        MuxEvent::LateReply { conn, stream, .. } => Event::Late(id(conn), stream),
        MuxEvent::UnknownReply { conn, stream, .. } => Event::Unknown(id(conn), stream),
        _ => unreachable!("an event that the model does not contain: {event:?}"),
    }
}
