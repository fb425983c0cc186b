//! The multiplexed pool: two connections of two streams each, three requests, and peers that reply
//! late, twice or never.

use super::{Figures, Limits, Scope, Stopped, search};
use crate::canon::Canon;
use crate::model::mux::{Outcome, Place, Stand};
use crate::oracle::Checks;
use crate::oracle::mux::Watched;
use core::hash::Hash;
use core::time::Duration;
use poolhouse_core::mux::{
    Acquire, AcquireError, Distance, HostOptions, Mux, MuxAction, MuxClaim, MuxConnId, MuxEvent, MuxFixed, MuxId,
    MuxOptions, ReplyError, Stream, Written,
};
use poolhouse_core::{Cause, Instant};

/// Capacity for this many connections, including those that only wait for late replies.
type Memory<const CONNS: usize> = MuxFixed<CONNS, 3, 4>;

/// A tick, in nanoseconds.
const TICK: u64 = 1_000_000_000;

/// Start time of a search, in nanoseconds.
const BEGIN: u64 = 1_000_000_000;

/// Optional inputs, in addition to requests, replies and established connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Can {
    /// Connections cannot be established, or fail.
    Fail,
    /// Requests are cancelled after they were written.
    GiveUp,
    /// Replies without a waiting request.
    Unknown,
    /// The pool is closed.
    Close,
    /// The driver calls when the pool has a due timer.
    Due,
    /// The options change.
    Reconfigure,
    /// All connections are replaced.
    Replace,
}

/// A scope of the multiplexed pool.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Its name.
    pub name: &'static str,
    /// The options.
    pub options: MuxOptions,
    /// Largest number of requests that wait for or hold a stream.
    pub requests: usize,
    /// Capacity for 2 connections; else for 3, so that a connection is replaced before its last
    /// reply has arrived.
    pub is_tight: bool,
    /// The optional inputs.
    pub can: Vec<Can>,
    /// The driver executes effects at once.
    pub eager: bool,
    /// The first stream is never assigned.
    pub keeps_first: bool,
    /// Largest number of steps; `None`: unlimited.
    pub depth: Option<u32>,
    /// The situations that must be reached.
    pub reaches: u64,
}

mod mark {
    pub(super) const QUEUE: u64 = 1;
    pub(super) const LATE: u64 = 1 << 1;
    pub(super) const UNKNOWN: u64 = 1 << 2;
    pub(super) const RETIRED: u64 = 1 << 3;
    pub(super) const TRASHED: u64 = 1 << 4;
    pub(super) const RESURRECTED: u64 = 1 << 5;
    pub(super) const HEARTBEAT: u64 = 1 << 6;
    pub(super) const TIMEOUT: u64 = 1 << 7;
    pub(super) const DOWN: u64 = 1 << 8;
    pub(super) const LOST: u64 = 1 << 9;
    pub(super) const CANCEL_GRANTED: u64 = 1 << 10;
    pub(super) const NAMES: [&str; 11] = [
        "a queue",
        "a late reply",
        "an unknown reply",
        "a connection retired",
        "a connection trashed",
        "a connection resurrected",
        "a heartbeat",
        "a timeout",
        "a host that is down",
        "requests lost with their connection",
        "a grant cancelled",
    ];
}

/// The scopes.
#[must_use]
pub fn scopes() -> Vec<Shape> {
    use mark::{CANCEL_GRANTED, DOWN, HEARTBEAT, LATE, LOST, QUEUE, RESURRECTED, RETIRED, TIMEOUT, TRASHED, UNKNOWN};
    let host = HostOptions {
        core_connections: 1,
        max_connections: 2,
        max_requests_per_connection: 2,
        new_connection_threshold: 1,
    };
    let still = MuxOptions {
        local: host,
        remote: host,
        streams_per_connection: 2,
        max_queue_size: 3,
        pool_timeout: Duration::from_nanos(2 * TICK),
        idle_timeout: Duration::from_nanos(2 * TICK),
        heartbeat_interval: Duration::ZERO,
        heartbeat_timeout: Duration::from_nanos(TICK),
        shrink_interval: Duration::from_nanos(TICK),
        distance: Distance::Local,
        backoff_min: Duration::from_nanos(TICK),
        backoff_max: Duration::from_nanos(60 * TICK),
    };
    let core2 = HostOptions { core_connections: 2, ..host };
    let shape = |name, options, requests, can: &[Can], reaches| Shape {
        name,
        options,
        requests,
        can: can.to_vec(),
        is_tight: false,
        eager: true,
        keeps_first: false,
        depth: None,
        reaches,
    };
    let lazy = |shape: Shape| Shape { eager: false, ..shape };
    let tight = |shape: Shape| Shape { is_tight: true, ..shape };
    vec![
        tight(shape(
            "two connections of two streams, three requests",
            still,
            3,
            &[Can::GiveUp],
            QUEUE | LATE | RETIRED | CANCEL_GRANTED,
        )),
        tight(shape(
            "hostile peers",
            still,
            2,
            &[Can::GiveUp, Can::Unknown, Can::Fail, Can::Close],
            UNKNOWN | LATE | LOST | DOWN,
        )),
        lazy(shape("one action at a time", still, 2, &[Can::GiveUp], QUEUE | LATE | RETIRED)),
        shape("time", still, 2, &[Can::Due], TRASHED | RESURRECTED | TIMEOUT),
        shape("a host that is down", still, 1, &[Can::Due, Can::Fail], DOWN),
        shape(
            "heartbeats",
            MuxOptions { heartbeat_interval: Duration::from_nanos(TICK), local: core2, ..still },
            1,
            &[Can::Due],
            HEARTBEAT,
        ),
        shape("other options", still, 2, &[Can::Reconfigure], TRASHED | RETIRED),
        Shape {
            keeps_first: true,
            ..tight(shape("the first stream is kept", still, 2, &[Can::GiveUp, Can::Unknown], QUEUE | UNKNOWN))
        },
        shape("replaced connections", still, 2, &[Can::Replace, Can::Reconfigure], TRASHED | RESURRECTED | RETIRED),
    ]
}

/// An input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A request acquires a stream.
    Acquire,
    /// A waiting request claims its outcome.
    Claim(u8),
    /// A waiting request is cancelled.
    Cancel(u8),
    /// A request releases its stream; and whether it was written.
    Release(u8, Written),
    /// A reply with this stream id, on this connection.
    Reply(u8, i32),
    /// The driver takes an effect.
    Take,
    /// A connection is established.
    Established(u8),
    /// An establishment fails.
    EstablishFailed(u8),
    /// A connection fails.
    Failed(u8),
    /// The pool is closed.
    Close,
    /// The driver calls when a timer is due.
    Due,
    /// The server becomes more distant, with one connection; ignored; or local again.
    Reconfigure(Distance),
    /// All connections are replaced.
    Replace,
}

/// A multiplexed pool with its model, and the state of the simulated driver.
#[derive(Debug)]
pub struct State<const CONNS: usize> {
    mux: Watched<Memory<CONNS>>,
    log: Vec<(Instant, MuxEvent)>,
    now: u64,
    streams: Vec<Stream>,
    establishing: Vec<MuxConnId>,
    marks: u64,
}

impl<const CONNS: usize> Clone for State<CONNS> {
    fn clone(&self) -> Self {
        Self {
            mux: self.mux.clone(),
            log: Vec::new(),
            now: self.now,
            streams: self.streams.iter().map(Stream::cloned).collect(),
            establishing: self.establishing.clone(),
            marks: 0,
        }
    }
}

impl Shape {
    /// Runs the search.
    pub fn run(&self) -> Result<Figures, Stopped> {
        let limits = Limits { depth: self.depth, ..Limits::all(2_000_000) };
        if self.is_tight { search(&MuxScope::<2>(self), limits) } else { search(&MuxScope::<3>(self), limits) }
    }

    fn can(&self, what: Can) -> bool {
        self.can.contains(&what)
    }

    /// Options with one connection for a more distant server.
    fn reconfigured(&self, distance: Distance) -> MuxOptions {
        let remote = HostOptions { max_connections: 1, ..self.options.remote };
        MuxOptions { distance, remote, ..self.options }
    }
}

fn small(len: usize) -> impl Iterator<Item = u8> {
    0..u8::try_from(len).expect("a few")
}

struct MuxScope<'s, const CONNS: usize>(&'s Shape);

impl<const CONNS: usize> Scope for MuxScope<'_, CONNS> {
    type State = State<CONNS>;
    type Input = Input;

    fn start(&self) -> State<CONNS> {
        let config = self.0.options.validate().expect("the options of a scope are valid");
        let mut mux = Watched::new(Instant::from_nanos(BEGIN), MuxId::new(1), config, &mut ());
        if self.0.keeps_first {
            mux.keep_first_stream();
        }
        State { mux, log: Vec::new(), now: BEGIN, streams: Vec::new(), establishing: Vec::new(), marks: 0 }
    }

    fn inputs(&self, state: &State<CONNS>, inputs: &mut Vec<Input>) {
        if state.streams.len() + state.mux.waiters().len() < self.0.requests {
            inputs.push(Input::Acquire);
        }
        for place in small(state.mux.waiters().len()) {
            let number = state.mux.waiters()[usize::from(place)].1;
            if state.mux.model().waiter(number).is_some_and(|waiter| waiter.outcome != Outcome::Waiting) {
                inputs.push(Input::Claim(place));
            }
            inputs.push(Input::Cancel(place));
        }
        for place in small(state.streams.len()) {
            let waits = state.stand_of(usize::from(place)) == Some(Stand::Waiting);
            if self.0.can(Can::GiveUp) || !waits {
                inputs.push(Input::Release(place, Written::Perhaps));
            }
            if waits {
                inputs.push(Input::Release(place, Written::No));
            }
        }
        for (place, conn) in (0..).zip(state.mux.conns()) {
            let Some(conn) = state.mux.model().conn(conn.number().get()) else { continue };
            if !matches!(conn.place, Place::Open | Place::Trashed | Place::Retired) {
                continue;
            }
            let ids = 0..u16::try_from(conn.ids).expect("a few");
            let is_due = |id: &u16| {
                let waits = conn.requests.iter().any(|known| known.id == Some(*id) && known.stand != Stand::Answered);
                conn.heartbeat_id() == Some(*id) || waits
            };
            let replies = ids.filter(|id| self.0.can(Can::Unknown) || is_due(id));
            inputs.extend(replies.map(|id| Input::Reply(place, i32::from(id))));
            if self.0.can(Can::Unknown) {
                inputs.extend([Input::Reply(place, -1), Input::Reply(place, 65_536)]);
            }
            if self.0.can(Can::Fail) {
                inputs.push(Input::Failed(place));
            }
        }
        for place in small(state.establishing.len()) {
            inputs.push(Input::Established(place));
            if self.0.can(Can::Fail) {
                inputs.push(Input::EstablishFailed(place));
            }
        }
        if !self.0.eager && state.owes() {
            inputs.push(Input::Take);
        }
        if self.0.can(Can::Close) && !state.mux.is_closed() {
            inputs.push(Input::Close);
        }
        if self.0.can(Can::Due) && state.mux.poll_timeout().is_some() {
            inputs.push(Input::Due);
        }
        if self.0.can(Can::Replace) {
            inputs.push(Input::Replace);
        }
        if self.0.can(Can::Reconfigure) {
            inputs.extend([Distance::Local, Distance::Remote, Distance::Ignored].map(Input::Reconfigure));
        }
    }

    fn step(&self, state: &mut State<CONNS>, input: Input) {
        match input {
            Input::Acquire => state.acquire(),
            Input::Claim(place) => state.claim(place.into()),
            Input::Cancel(place) => state.cancel(place.into()),
            Input::Release(place, written) => state.release(place.into(), written),
            Input::Reply(place, stream) => state.reply(state.mux.conns()[usize::from(place)], stream),
            Input::Take => assert!(state.take(), "an action is owed"),
            Input::Established(place) => {
                let conn = state.establishing.remove(place.into());
                state.established(conn);
            }
            Input::EstablishFailed(place) => {
                let conn = state.establishing.remove(place.into());
                let _stale = state.mux.handle_establish_failed(state.at(), conn, Cause::Network, &mut state.log);
            }
            Input::Failed(place) => {
                let conn = state.mux.conns()[usize::from(place)];
                let _stale = state.mux.handle_failed(state.at(), conn, Cause::Network, &mut state.log);
            }
            Input::Close => state.close(),
            Input::Due => {
                let due = state.mux.poll_timeout().expect("something is due");
                state.now = state.now.max(due.as_nanos());
                state.mux.handle_timeout(state.at(), &mut state.log);
            }
            Input::Reconfigure(distance) => {
                let options = self.0.reconfigured(distance);
                state.mux.reconfigure(state.at(), options.validate().expect("valid options"), &mut state.log);
            }
            Input::Replace => state.mux.replace_connections(state.at(), &mut state.log),
        }
        state.look();
        if self.0.eager {
            while state.take() {}
            state.look();
        }
    }

    fn print(&self, state: &State<CONNS>) -> u128 {
        let mut canon =
            Canon::new(state.now, TICK * if self.0.options.heartbeat_interval.is_zero() { 1 } else { 3 }, None);
        let mux: &Mux<_> = &state.mux;
        mux.hash(&mut canon);
        state.mux.model().words(&mut canon);
        for conn in state.mux.conns() {
            conn.index().hash(&mut canon);
        }
        let mut sorted: Vec<u32> = state.establishing.iter().map(|conn| conn.index()).collect();
        sorted.sort_unstable();
        sorted.hash(&mut canon);
        // All streams whose connection no longer exists count as equal.
        let held = |place: usize| {
            let stream = &state.streams[place];
            state.stand_of(place).map(|_| (stream.conn().index(), stream.id()))
        };
        let mut held: Vec<_> = (0..state.streams.len()).map(held).collect();
        held.sort_unstable();
        held.hash(&mut canon);
        state.mux.waiters().len().hash(&mut canon);
        state.mux.waiters().iter().for_each(|(waiter, _)| waiter.index().hash(&mut canon));
        canon.print()
    }

    fn marks(&self, state: &State<CONNS>) -> u64 {
        state.marks
    }

    fn take_checks(&self, state: &mut State<CONNS>) -> Option<Checks> {
        Some(state.mux.take_checks())
    }

    fn reaches(&self) -> Vec<(u64, &'static str)> {
        let bits = (0..).map(|bit| 1 << bit);
        bits.zip(mark::NAMES).filter(|(bit, _)| self.0.reaches & bit != 0).collect()
    }

    fn end(&self, mut state: State<CONNS>) {
        state.close();
        state.look();
        while state.take() {}
        while !state.mux.waiters().is_empty() {
            state.claim(0);
        }
        while !state.streams.is_empty() {
            state.release(0, Written::Perhaps);
        }
        state.look();
        state.mux.assert_over();
    }
}

impl<const CONNS: usize> State<CONNS> {
    fn at(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    /// Returns the state of the request on this stream; `None` if its connection no longer exists.
    fn stand_of(&self, place: usize) -> Option<Stand> {
        let stream = &self.streams[place];
        let conn = self.mux.model().conn(stream.conn().number().get())?;
        conn.requests.iter().find(|known| known.id == Some(stream.id())).map(|known| known.stand)
    }

    fn owes(&self) -> bool {
        let model = self.mux.model();
        let is_at = |place| model.at(place).next().is_some();
        let heartbeats = !model.owed_heartbeats().is_empty();
        is_at(Place::OwesClose) || is_at(Place::OwesEstablish) || heartbeats || !model.owed_wakes().is_empty()
    }

    /// Marks the situations that the last events show.
    fn look(&mut self) {
        self.marks |= self.log.drain(..).fold(0, |marks, (_, event)| marks | mark_of(&event));
        let model = self.mux.model();
        let is_at_it =
            |conn: &MuxConnId| model.conn(conn.number().get()).is_some_and(|conn| conn.place == Place::Establishing);
        self.establishing.retain(is_at_it);
    }

    /// Takes one effect; returns false if none is pending.
    fn take(&mut self) -> bool {
        let action = self.mux.poll_action(self.at());
        if let Some(MuxAction::Establish(conn)) = action {
            self.establishing.push(conn);
        }
        action.is_some()
    }

    fn acquire(&mut self) {
        if let Ok(Acquire::Granted(stream)) = self.mux.acquire(self.at(), None, &mut self.log) {
            self.streams.push(stream);
        }
    }

    fn claim(&mut self, place: usize) {
        let (waiter, _) = self.mux.waiters()[place];
        match self.mux.claim(self.at(), waiter) {
            MuxClaim::Granted(stream) => self.streams.push(stream),
            MuxClaim::Failed(_) => {}
            MuxClaim::Waiting | MuxClaim::Stale => panic!("only woken waiters claim"),
        }
    }

    fn cancel(&mut self, place: usize) {
        let (waiter, number) = self.mux.waiters()[place];
        let outcome = self.mux.model().waiter(number).map(|waiter| waiter.outcome);
        if matches!(outcome, Some(Outcome::Granted(..))) {
            self.marks |= mark::CANCEL_GRANTED;
        }
        self.mux.cancel(self.at(), waiter, &mut self.log);
    }

    fn release(&mut self, place: usize, written: Written) {
        let stream = self.streams.remove(place);
        self.mux.release(self.at(), stream, written, &mut self.log).expect("its own");
    }

    fn reply(&mut self, conn: MuxConnId, stream: i32) {
        let reported = self.mux.handle_reply(self.at(), conn, stream, &mut self.log);
        assert_ne!(reported, Err(ReplyError::Stale), "its connection exists");
    }

    fn established(&mut self, conn: MuxConnId) {
        let _stale = self.mux.handle_established(self.at(), conn, &mut self.log);
    }

    fn close(&mut self) {
        self.mux.close(self.at(), &mut self.log);
    }
}

/// Returns the situation that an event shows.
#[expect(clippy::wildcard_enum_match_arm, reason = "other events show no situation of interest")]
const fn mark_of(event: &MuxEvent) -> u64 {
    match event {
        MuxEvent::RequestQueued { .. } => mark::QUEUE,
        MuxEvent::LateReply { .. } => mark::LATE,
        MuxEvent::UnknownReply { .. } => mark::UNKNOWN,
        MuxEvent::ConnectionRetired { .. } => mark::RETIRED,
        MuxEvent::ConnectionTrashed { .. } => mark::TRASHED,
        MuxEvent::ConnectionResurrected { .. } => mark::RESURRECTED,
        MuxEvent::HeartbeatSucceeded { .. } => mark::HEARTBEAT,
        MuxEvent::AcquireFailed { error: AcquireError::TimedOut { .. }, .. } => mark::TIMEOUT,
        MuxEvent::AcquireFailed { error: AcquireError::Down { .. }, .. } => mark::DOWN,
        MuxEvent::ConnectionClosed { in_flight, .. } if *in_flight > 0 => mark::LOST,
        _ => 0,
    }
}
