//! The pool with its model, and the state of a host.

use super::kind::{Counters, Kind};
use super::ops::Progress;
use super::{Shape, Trace};
use crate::choices::Choices;
use crate::machines::mux::Event;
use crate::model::mux::Place;
use crate::oracle::mux::{Bounded, Watched};
use crate::sim::next_kind;
use alloc::collections::BTreeSet;
use poolhouse_core::Instant;
use poolhouse_core::mux::{
    AcquireError, Mux, MuxAction, MuxConfig, MuxConnId, MuxEvent, MuxId, MuxOnHeap, MuxOptions, MuxWaiterId, Stream,
    Written,
};

/// A pool and its host.
pub(super) struct Simulation<'a, M: Bounded> {
    pub(super) shape: &'a Shape,
    pub(super) counters: &'a mut Counters,
    trace: Option<&'a Trace>,
    pub(super) mux: Watched<M>,
    /// Connection and id of the requests that were written.
    pub(super) written: BTreeSet<(u64, u16)>,
    /// Used ids that were freed, the newest last.
    pub(super) freed: Vec<(u64, u16)>,
    pub(super) log: Vec<(Instant, MuxEvent)>,
    pub(super) now: u64,
    pub(super) streams: Vec<Stream>,
    /// Ids of waiters that have ended.
    pub(super) used_up: Vec<MuxWaiterId>,
    /// Connections that the host is establishing, from its view.
    pub(super) establishing: Vec<MuxConnId>,
    pub(super) foreign: Option<Stream>,
}

impl<'a, M: Bounded> Simulation<'a, M> {
    pub(super) fn new(shape: &'a Shape, counters: &'a mut Counters, trace: Option<&'a Trace>) -> Self {
        let mut log = Vec::new();
        let now = 1_000_000_000;
        let config = shape.options.validate().expect("options that were drawn to be valid");
        let mut mux = Watched::new(Instant::from_nanos(now), MuxId::new(1), config, &mut log);
        mux.set_entropy(shape.entropy);
        if shape.keeps_first {
            mux.keep_first_stream();
        }
        Self {
            shape,
            counters,
            trace,
            mux,
            written: BTreeSet::new(),
            freed: Vec::new(),
            log,
            now,
            streams: Vec::new(),
            used_up: Vec::new(),
            establishing: Vec::new(),
            foreign: None,
        }
    }

    /// Executes the complete run.
    pub(super) fn run(mut self, choices: &mut impl Choices) {
        self.look();
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
            self.look();
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

    /// The connection with this number.
    pub(super) fn conn_of(&self, number: u64) -> MuxConnId {
        let found = self.mux.conns().iter().find(|conn| conn.number().get() == number);
        *found.expect("a connection that the pool has reported")
    }

    /// Takes note of the last events.
    pub(super) fn look(&mut self) {
        let events: Vec<_> = self.log.drain(..).map(|(_, event)| Event::of(&event)).collect();
        if let Some(trace) = self.trace {
            trace.borrow_mut().extend(events.iter().map(|event| format!("{:>20} {event:?}", "->")));
        }
        self.counters.events += u64::try_from(events.len()).unwrap_or(0);
        for event in events {
            if let Event::Acquired(conn, id, _) = event {
                self.written.remove(&(conn, u16::try_from(id).expect("an id")));
            } else if let Event::Closed(conn, ..) = event {
                self.freed.retain(|(known, _)| *known != conn);
            }
        }
        let model = self.mux.model();
        self.establishing
            .retain(|conn| model.conn(conn.number().get()).is_some_and(|conn| conn.place == Place::Establishing));
    }

    /// Takes one action. Returns false if none is owed.
    pub(super) fn poll(&mut self) -> bool {
        let action = self.mux.poll_action(self.at());
        self.note(|| format!("poll: {action:?}"));
        if let Some(MuxAction::Establish(conn)) = action {
            self.establishing.push(conn);
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
        for round in 0..self.mux.waiters().len() + 8 {
            // A failure is followed by a pause.
            let due = self.mux.poll_timeout().map(Instant::as_nanos).filter(|due| *due < self.now + 61_000_000_000);
            self.now = due.filter(|_| round > 2).unwrap_or(self.now).max(self.now);
            self.tick();
            self.look();
            self.drain();
            self.tick();
            self.look();
            self.drain();
            self.look();
            while let Some(conn) = self.establishing.pop() {
                self.established(conn);
                self.look();
            }
            for place in (0..self.mux.waiters().len()).rev() {
                self.claim(place);
                self.look();
            }
            self.write_all();
            self.answer_all();
            while !self.streams.is_empty() {
                self.release(0, Written::Perhaps);
                self.look();
            }
        }
        let state = self.mux.state();
        assert_eq!((state.in_flight, state.orphaned), (0, 0), "a stream id is lost");
        assert_eq!(self.all(|_| true), [], "a stream id is lost");
        self.mux.assert_peace();
    }

    fn write_all(&mut self) {
        self.written.extend(self.all(|progress| progress == Progress::Unwritten));
    }

    /// Delivers all outstanding replies.
    fn answer_all(&mut self) {
        for (conn, id) in self.all(|progress| matches!(progress, Progress::Written | Progress::GivenUp)) {
            let conn = self.conn_of(conn);
            self.reply(conn, i32::from(id));
            self.look();
            self.write_all();
        }
        let asked: Vec<_> =
            self.mux.model().established().filter_map(|conn| Some((conn.id, conn.heartbeat_id()?))).collect();
        for (conn, id) in asked {
            if self.mux.model().conn(conn).is_some_and(|known| known.heartbeat_id() == Some(id)) {
                let conn = self.conn_of(conn);
                self.reply(conn, i32::from(id));
                self.look();
                self.write_all();
            }
        }
    }

    /// Closes the pool and checks that nothing is left.
    fn end(&mut self) {
        self.close();
        self.look();
        while !self.streams.is_empty() {
            self.release(0, Written::Perhaps);
            self.look();
        }
        for place in (0..self.mux.waiters().len()).rev() {
            self.cancel(place);
            self.look();
        }
        self.drain();
        self.look();
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
