//! A naive multiplexed pool: two lists that are scanned for each question.
//!
//! Written from the documentation of `poolhouse_core::mux` and from the pooling of the DataStax
//! Java driver 3. It shares value types with the machine (options, errors, reasons), but no logic:
//! time is nanoseconds; connections, requests and waiters are numbers. The machine chooses which
//! free stream id a request receives. It reports the id, and the model checks that the id was free.

mod commands;
mod news;
mod words;

pub use commands::Acquired;

use crate::machines::mux::Event;
use core::time::Duration;
use poolhouse_core::mux::{AcquireError, Distance, HostOptions, HostState, MuxClosed, MuxOptions};
use poolhouse_core::{Cause, Instant};

/// The end of time, which is never reached.
const END: u64 = u64::MAX - 1;

/// The longest pause after a failure that is no network error, unless `backoff_max` is longer.
const PAUSE_REFUSED: Duration = Duration::from_secs(60);

/// The longest pause after a failure if the host is reported to be available.
const PAUSE_UP: u64 = 250_000_000;

/// Capacities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Room {
    /// Connections, including closed ones with an owed close action.
    pub conns: usize,
    /// Waiters with an unclaimed outcome.
    pub waiters: usize,
    /// Stream ids of a connection.
    pub ids: u32,
}

impl Room {
    /// No limits.
    pub const ENDLESS: Self = Self { conns: usize::MAX, waiters: usize::MAX, ids: u32::MAX };
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The host has not taken the establish action.
    OwesEstablish,
    /// The host is establishing it.
    Establishing,
    /// It accepts requests.
    Open,
    /// In the trash: surplus, and may be resurrected.
    Trashed,
    /// Accepts no requests, and stays open until its requests are done.
    Retired,
    /// Closed, but the host has not taken the close action.
    OwesClose,
}

impl Place {
    const fn is_pending(self) -> bool {
        matches!(self, Self::OwesEstablish | Self::Establishing)
    }

    const fn is_established(self) -> bool {
        matches!(self, Self::Open | Self::Trashed | Self::Retired)
    }
}

/// State of a request that has a stream id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stand {
    /// Its reply is outstanding.
    Waiting,
    /// Its reply has been received.
    Answered,
    /// It was cancelled, and its reply is outstanding.
    Late,
}

/// A request that has a stream id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Its number.
    pub number: u64,
    /// Its stream id, once the machine has reported it.
    pub id: Option<u16>,
    /// Its state.
    pub stand: Stand,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Heartbeat {
    asked: u64,
    /// Its stream id, once the host has taken the action. The peer cannot know the id earlier.
    id: Option<u16>,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conn {
    /// Its number.
    pub id: u64,
    /// Its state.
    pub place: Place,
    /// The requests that hold its stream ids.
    pub requests: Vec<Request>,
    /// Number of its stream ids.
    pub ids: u32,
    /// The first of them that is assigned.
    pub first: u32,
    created: u64,
    heard: u64,
    /// The time of the last heartbeat, or of the establishment.
    polled: u64,
    answered: bool,
    replaced: bool,
    until: u64,
    heartbeat: Option<Heartbeat>,
}

impl Conn {
    fn count(&self, stand: Stand) -> u32 {
        count(self.requests.iter().filter(|request| request.stand == stand))
    }

    /// Requests with an outstanding reply.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.count(Stand::Waiting)
    }

    fn has_free_id(&self) -> bool {
        count(self.requests.iter()) + u32::from(self.heartbeat.is_some()) < self.ids - self.first
    }

    /// The stream id of the outstanding heartbeat.
    #[must_use]
    pub fn heartbeat_id(&self) -> Option<u16> {
        self.heartbeat.and_then(|heartbeat| heartbeat.id)
    }

    /// Whether an id is in use, according to the reports of the machine.
    #[must_use]
    pub fn is_taken(&self, id: u16) -> bool {
        self.heartbeat_id() == Some(id) || self.requests.iter().any(|request| request.id == Some(id))
    }
}

/// State of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Not decided yet.
    Waiting,
    /// Granted a stream id of this connection, as this request.
    Granted(u64, u64),
    /// It failed.
    Failed(AcquireError),
}

/// A request that was not served immediately.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// Its number. Older waiters have smaller numbers.
    pub number: u64,
    /// Its state.
    pub outcome: Outcome,
    started: u64,
    until: u64,
    owes_wake: bool,
}

/// A failure, and the pause after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Down {
    cause: Cause,
    /// It was an attempt, and requests fail, too. After the failure of a connection they wait.
    refuses: bool,
    since: u64,
    /// The earliest time of the next attempt.
    until: u64,
}

/// The pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Model {
    /// Events since they were last taken, with their times.
    pub events: Vec<(Instant, Event)>,
    options: MuxOptions,
    room: Room,
    /// The first stream id of a connection that has others is not assigned.
    keeps_first: bool,
    now: u64,
    closed: bool,
    /// In the order in which they entered their state.
    conns: Vec<Conn>,
    waiters: Vec<Waiter>,
    /// Set while more connections are open than the core number: when the window ends, and the
    /// maximum number of requests in flight in it.
    window: Option<(u64, u32)>,
    /// The last failure, and the pause after it.
    down: Option<Down>,
    /// The host was reported to be available during an attempt.
    reported_up: bool,
    /// The last pause without its random part; `None` after a reply.
    pause: Option<Duration>,
    /// The random number from which the next one follows.
    random: u32,
    last_conn: u64,
    last_waiter: u64,
    last_request: u64,
}

impl Model {
    /// Creates a pool and the connections that it keeps open.
    #[must_use]
    pub fn new(now: u64, options: MuxOptions, room: Room) -> Self {
        let streams = options.streams_per_connection;
        // Stream ids are stored in blocks of 64.
        let streams = if streams > room.ids { room.ids / 64 * 64 } else { streams };
        let options = Self::with_streams(options, streams);
        let mut model = Self {
            events: vec![(Instant::from_nanos(now), Event::PoolCreated(options))],
            options,
            room,
            keeps_first: false,
            now,
            closed: false,
            conns: Vec::new(),
            waiters: Vec::new(),
            window: None,
            down: None,
            reported_up: false,
            pause: None,
            random: 0,
            last_conn: 0,
            last_waiter: 0,
            last_request: 0,
        };
        model.provide(false);
        model
    }

    /// These options with this number of stream ids, and at most as many requests on a connection.
    fn with_streams(options: MuxOptions, streams_per_connection: u32) -> MuxOptions {
        let within = |host: HostOptions| {
            let most = host.max_requests_per_connection.min(streams_per_connection);
            let new_connection_threshold = host.new_connection_threshold.min(most);
            HostOptions { max_requests_per_connection: most, new_connection_threshold, ..host }
        };
        let (local, remote) = (within(options.local), within(options.remote));
        MuxOptions { streams_per_connection, local, remote, ..options }
    }

    /// The time of the last input.
    #[must_use]
    pub const fn now(&self) -> u64 {
        self.now
    }

    /// The options in force.
    #[must_use]
    pub const fn options(&self) -> &MuxOptions {
        &self.options
    }

    /// A connection that is open or pending, or closed with an owed close action.
    #[must_use]
    pub fn conn(&self, id: u64) -> Option<&Conn> {
        self.conns.iter().find(|conn| conn.id == id)
    }

    /// A waiter with an unclaimed outcome.
    #[must_use]
    pub fn waiter(&self, number: u64) -> Option<&Waiter> {
        self.waiters.iter().find(|waiter| waiter.number == number)
    }

    /// The connections in a state, in the order in which they entered it.
    pub fn at(&self, place: Place) -> impl Iterator<Item = &Conn> {
        self.conns.iter().filter(move |conn| conn.place == place)
    }

    /// The connections on which replies can arrive.
    pub fn established(&self) -> impl Iterator<Item = &Conn> {
        [Place::Open, Place::Trashed, Place::Retired].into_iter().flat_map(|place| self.at(place))
    }

    /// The request that has an id of a connection.
    #[must_use]
    pub fn request(&self, conn: u64, id: u16) -> Option<u64> {
        let known = self.conn(conn)?.requests.iter().find(|request| request.id == Some(id))?;
        Some(known.number)
    }

    /// Whether the pool was closed.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether waiters with an unclaimed outcome, connections or owed actions are left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty() && self.conns.is_empty()
    }

    /// Waiters, the oldest first.
    pub fn queue(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.iter().filter(|waiter| waiter.outcome == Outcome::Waiting)
    }

    /// Requests with an outstanding reply, on all connections.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.conns.iter().map(Conn::in_flight).sum()
    }

    /// The state that the pool reports.
    #[must_use]
    pub fn state(&self) -> HostState {
        let most = self.host().map_or(0, |host| host.max_requests_per_connection);
        HostState {
            open: count(self.at(Place::Open)),
            establishing: self.pending(),
            trashed: count(self.at(Place::Trashed)),
            retired: count(self.at(Place::Retired)),
            in_flight: self.in_flight(),
            orphaned: self.conns.iter().map(|conn| conn.count(Stand::Late)).sum(),
            queued: count(self.queue()),
            capacity: self.at(Place::Open).map(|conn| most.min(conn.ids - conn.first - conn.count(Stand::Late))).sum(),
        }
    }

    /// The earliest deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        if self.closed {
            return None;
        }
        let waits = self.queue().map(|waiter| waiter.until);
        let look = self.window.map(|(at, _)| at);
        let peers = self.established().filter_map(|conn| self.peer_due(conn));
        // A trashed connection that was busy at its deadline is closed when its last request is
        // done.
        let trash = self.at(Place::Trashed).filter(|conn| conn.in_flight() == 0 || conn.until > self.now);
        let trash = trash.map(|conn| conn.until);
        let wanted = self.wants_growth(false) && self.conns.len() < self.room.conns;
        let growth = wanted.then(|| self.down.map_or(self.now, |down| down.until.max(self.now)));
        waits.chain(look).chain(peers).chain(trash).chain(growth).min().filter(|at| *at < END)
    }

    /// Waiters with an owed wake action.
    #[must_use]
    pub fn owed_wakes(&self) -> Vec<u64> {
        self.waiters.iter().filter(|waiter| waiter.owes_wake).map(|waiter| waiter.number).collect()
    }

    /// Connections with an owed heartbeat action.
    #[must_use]
    pub fn owed_heartbeats(&self) -> Vec<u64> {
        let owed = |conn: &&Conn| conn.heartbeat.is_some_and(|heartbeat| heartbeat.id.is_none());
        self.conns.iter().filter(owed).map(|conn| conn.id).collect()
    }

    /// Records the stream id that the machine reported for a request.
    pub fn name(&mut self, conn: u64, request: u64, id: u16) {
        // The request has ended with its connection.
        let Some(conn) = self.conns.iter_mut().find(|known| known.id == conn) else { return };
        assert!((conn.first..conn.ids).contains(&id.into()), "M1: stream {id} of {}..{}", conn.first, conn.ids);
        assert!(!conn.is_taken(id), "M1: stream {id} of connection {} was not free", conn.id);
        if let Some(request) = conn.requests.iter_mut().find(|known| known.number == request) {
            request.id = Some(id);
        }
    }

    // --- The rules, in the terms that the commands use ---

    fn emit(&mut self, event: Event) {
        self.events.push((Instant::from_nanos(self.now), event));
    }

    const fn since(&self, started: u64) -> Duration {
        Duration::from_nanos(self.now - started)
    }

    /// Sets the time. A time before the current one is ignored.
    pub fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    fn after(&self, time: Duration) -> u64 {
        later(self.now, time)
    }

    const fn host(&self) -> Option<HostOptions> {
        match self.options.distance {
            Distance::Local => Some(self.options.local),
            Distance::Remote => Some(self.options.remote),
            Distance::Ignored => None,
        }
    }

    fn pending(&self) -> u32 {
        count(self.conns.iter().filter(|conn| conn.place.is_pending()))
    }

    /// Deadline of the heartbeat or of its timeout.
    fn peer_due(&self, conn: &Conn) -> Option<u64> {
        let MuxOptions { heartbeat_interval, heartbeat_timeout, .. } = self.options;
        let due = match conn.heartbeat {
            Some(heartbeat) => later(heartbeat.asked, heartbeat_timeout),
            None if conn.has_free_id() => later(conn.polled, heartbeat_interval).max(self.now),
            // No id is free for a heartbeat.
            None => later(later(conn.heard, heartbeat_interval), heartbeat_timeout),
        };
        (!heartbeat_interval.is_zero()).then_some(due)
    }

    fn first_at(&self, place: Place) -> Option<u64> {
        self.at(place).next().map(|conn| conn.id)
    }

    /// The number of the oldest waiter, and the time of its request.
    fn first_waiting(&self) -> Option<(u64, u64)> {
        self.queue().next().map(|waiter| (waiter.number, waiter.started))
    }

    fn conn_mut(&mut self, id: u64) -> &mut Conn {
        self.conns.iter_mut().find(|conn| conn.id == id).expect("a connection of the model")
    }

    /// Moves a connection to the end of those in a state.
    fn put(&mut self, id: u64, place: Place) {
        let index = self.conns.iter().position(|conn| conn.id == id).expect("a connection of the model");
        let mut conn = self.conns.remove(index);
        conn.place = place;
        self.conns.push(conn);
    }

    /// Among the connections with the fewest requests in flight, the one that has accepted requests
    /// for longest.
    fn least_busy(&self) -> Option<u64> {
        let most = self.host()?.max_requests_per_connection;
        let takes = |conn: &&Conn| conn.in_flight() < most && conn.has_free_id();
        self.at(Place::Open).filter(takes).min_by_key(|conn| conn.in_flight()).map(|conn| conn.id)
    }

    fn grant(&mut self, id: u64, started: Option<u64>) -> u64 {
        self.last_request += 1;
        let request = self.last_request;
        self.conn_mut(id).requests.push(Request { number: request, id: None, stand: Stand::Waiting });
        let in_flight = self.in_flight();
        if let Some((_, most)) = &mut self.window {
            *most = in_flight.max(*most);
        }
        self.emit(Event::Acquired(id, request, started.map(|started| self.since(started))));
        request
    }

    /// Grants free stream ids to the waiters, the oldest first.
    fn serve(&mut self) {
        while let Some((number, started)) = self.first_waiting() {
            let Some(id) = self.least_busy() else { return };
            let request = self.grant(id, Some(started));
            self.settle(number, Outcome::Granted(id, request));
        }
    }

    fn settle(&mut self, number: u64, outcome: Outcome) {
        let waiter = self.waiters.iter_mut().find(|waiter| waiter.number == number).expect("it waits");
        waiter.outcome = outcome;
        waiter.owes_wake = true;
        let started = waiter.started;
        if let Outcome::Failed(error) = outcome {
            self.emit(Event::Failed(error, Some(self.since(started))));
        }
    }

    fn fail_queue(&mut self, error: AcquireError) {
        while let Some((number, _)) = self.first_waiting() {
            self.settle(number, Outcome::Failed(error));
        }
    }

    /// Why requests fail while no connection is open or pending; `None` if they wait.
    fn down_cause(&self) -> Option<Cause> {
        let none = self.at(Place::Open).next().is_none() && self.pending() == 0;
        self.down.filter(|down| none && down.refuses).map(|down| down.cause)
    }

    fn fail_if_down(&mut self) {
        if let Some(cause) = self.down_cause() {
            self.fail_queue(AcquireError::Down { cause });
        }
    }

    /// The growth rule.
    fn wants_growth(&self, pressed: bool) -> bool {
        let Some(host) = self.host() else { return false };
        let n = count(self.at(Place::Open)) + self.pending();
        if self.closed || n >= host.max_connections {
            return false;
        }
        let most = u64::from(host.max_requests_per_connection);
        let full =
            n > 0 && u64::from(self.in_flight()) > u64::from(n - 1) * most + u64::from(host.new_connection_threshold);
        let waits = self.queue().next().is_some();
        let none_comes = self.pending() == 0 || self.usable_trash().is_some();
        n < host.core_connections || (none_comes && (full || pressed || waits))
    }

    /// The newest trashed connection that may be resurrected.
    fn usable_trash(&self) -> Option<u64> {
        self.at(Place::Trashed).filter(|conn| conn.until > self.now).last().map(|conn| conn.id)
    }

    /// Resurrects the newest trashed connections as needed, and creates the rest.
    fn provide(&mut self, pressed: bool) {
        let mut pressed = pressed;
        while self.wants_growth(pressed) {
            if let Some(id) = self.usable_trash() {
                self.put(id, Place::Open);
                self.emit(Event::Resurrected(id));
                self.look();
                self.serve();
                pressed = pressed && self.least_busy().is_none();
            } else if self.down.is_some_and(|down| down.until > self.now) {
                return;
            } else if self.conns.len() < self.room.conns {
                self.create();
            } else {
                // A connection slot will become free if the capacity is not 0.
                if self.conns.is_empty() {
                    self.note_failure(Cause::Resources, true);
                    self.fail_if_down();
                }
                return;
            }
        }
    }

    fn create(&mut self) {
        self.last_conn += 1;
        let ids = self.options.streams_per_connection;
        self.conns.push(Conn {
            id: self.last_conn,
            place: Place::OwesEstablish,
            requests: Vec::new(),
            ids,
            first: u32::from(self.keeps_first && ids > 1),
            created: self.now,
            heard: self.now,
            polled: self.now,
            answered: false,
            replaced: false,
            until: END,
            heartbeat: None,
        });
        self.emit(Event::Created(self.last_conn));
    }

    /// Of several failures within a pause, the first one counts; but attempts that fail count more than
    /// connections.
    fn note_failure(&mut self, cause: Cause, refuses: bool) {
        let is_up = refuses && core::mem::take(&mut self.reported_up);
        if self.down.is_none_or(|down| down.until <= self.now || (refuses && !down.refuses)) {
            let first = self.options.backoff_min;
            let longest = if refuses { self.longest(cause) } else { self.options.backoff_max };
            let pause = self.pause.map_or(first, |last| last.saturating_mul(2).max(first)).min(longest);
            self.pause = Some(pause);
            let longest = if is_up { PAUSE_UP.into() } else { u128::MAX };
            let pause = pause.as_nanos().min(longest);
            for (left, right) in [(13, 0), (0, 17), (5, 0)] {
                self.random ^= if right == 0 { self.random << left } else { self.random >> right };
            }
            let less = pause / 4 * u128::from(self.random) / (1 << 32);
            let until = u64::try_from(u128::from(self.now) + pause - less).unwrap_or(END).min(END);
            self.down = Some(Down { cause, refuses, since: self.now, until });
        }
    }

    /// The longest pause after an attempt that failed.
    fn longest(&self, cause: Cause) -> Duration {
        let is_network = matches!(cause, Cause::Network | Cause::NetworkTimeout);
        let longest = self.options.backoff_max;
        if is_network { longest } else { longest.max(PAUSE_REFUSED) }
    }

    /// Sets the number from which the random parts of pauses follow.
    pub const fn set_entropy(&mut self, entropy: u32) {
        self.random = entropy;
    }

    /// The first stream id is not assigned, on connections that are not yet established.
    pub fn keep_first_stream(&mut self) {
        self.keeps_first = true;
        for conn in self.conns.iter_mut().filter(|conn| conn.place.is_pending()) {
            conn.first = u32::from(conn.ids > 1);
        }
    }

    /// Keeps the shrink window open while more connections are open than the core number.
    fn look(&mut self) {
        let kept = self.host().map_or(0, |host| host.core_connections);
        if count(self.at(Place::Open)) <= kept {
            self.window = None;
        } else if self.window.is_none() {
            self.window = Some((self.after(self.options.shrink_interval), self.in_flight()));
        }
    }

    /// Closes a connection. Its requests end with it.
    fn lose(&mut self, id: u64, reason: MuxClosed) {
        let conn = self.conn_mut(id);
        let in_flight = conn.in_flight();
        conn.requests.clear();
        conn.heartbeat = None;
        if conn.place == Place::OwesEstablish {
            self.conns.retain(|conn| conn.id != id);
        } else {
            self.put(id, Place::OwesClose);
        }
        self.emit(Event::Closed(id, reason, in_flight));
        self.look();
    }

    /// A reply proves that the peer serves requests.
    fn note_reply(&mut self, id: u64) {
        if !self.conn(id).is_some_and(|conn| conn.answered) {
            self.conn_mut(id).answered = true;
            self.pause = None;
        }
    }

    fn fail(&mut self, id: u64, cause: Cause) {
        self.note_failure(cause, false);
        self.lose(id, MuxClosed::Error(cause));
        self.provide(false);
        self.fail_if_down();
    }

    /// Trashes the least busy connections beyond a number. Of equally busy ones, the newest.
    fn trash_beyond(&mut self, number: u32) {
        while count(self.at(Place::Open)) > number {
            let open: Vec<_> = self.at(Place::Open).collect();
            // `min_by_key` returns the first minimum, so the iteration is reversed.
            let conn = open.iter().rev().min_by_key(|conn| conn.in_flight()).expect("some are open");
            let (id, in_flight) = (conn.id, conn.in_flight());
            self.put(id, Place::Trashed);
            self.conn_mut(id).until = self.after(self.options.idle_timeout);
            self.emit(Event::Trashed(id, in_flight));
            self.close_if_empty(id);
        }
    }

    fn retire(&mut self, id: u64) {
        self.put(id, Place::Retired);
        let late = self.conn_mut(id).count(Stand::Late);
        self.emit(Event::Retired(id, late));
        self.look();
        self.close_if_empty(id);
    }

    fn close_if_empty(&mut self, id: u64) {
        let now = self.now;
        let conn = self.conn_mut(id);
        if conn.in_flight() > 0 {
            return;
        }
        if conn.place == Place::Retired {
            let own = if conn.replaced { MuxClosed::Replaced } else { MuxClosed::Worn };
            self.lose(id, if self.host().is_some() { own } else { MuxClosed::PoolClosed });
        } else if conn.place == Place::Trashed && conn.until <= now {
            self.lose(id, MuxClosed::Idle);
        }
    }

    /// The number of requests in flight on a connection has decreased.
    fn one_less(&mut self, id: u64) {
        if self.conn_mut(id).place == Place::Open {
            self.serve();
        } else {
            self.close_if_empty(id);
        }
    }
}

fn count<T>(items: impl Iterator<Item = T>) -> u32 {
    u32::try_from(items.count()).expect("not that many")
}

fn later(at: u64, time: Duration) -> u64 {
    at.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)).min(END)
}
