//! What a multiplexed pool must do, said as simply as possible: two lists that every question walks through.
//!
//! Written from what `poolhouse_core::mux` says of itself, and from the pooling of the DataStax Java driver 3. It shares value types with the machine
//! (options, errors, reasons), but no logic: time is nanoseconds, connections, requests and those that wait are numbers. Which of the free stream ids a request
//! gets is the machine's affair; it tells, and the model says whether that one was free.

mod commands;
mod news;
mod words;

pub use commands::Acquired;

use core::time::Duration;
use poolhouse_core::Cause;
use poolhouse_core::mux::{AcquireError, Distance, HostOptions, HostState, MuxClosed, MuxOptions};

/// The end of time, which never comes.
const END: u64 = u64::MAX - 1;

/// The first pause after a connection could not be established, and the longest.
const PAUSES: [u64; 2] = [1_000_000_000, 60_000_000_000];

/// How many of each there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Room {
    /// Connections, those included whose closing the host was not told yet.
    pub conns: usize,
    /// Requests that waited and whose outcome was not claimed.
    pub waiters: usize,
    /// Stream ids of a connection.
    pub ids: u32,
}

impl Room {
    /// As much as one likes.
    pub const ENDLESS: Self = Self { conns: usize::MAX, waiters: usize::MAX, ids: u32::MAX };
}

/// The events, with numbers in place of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// PoolCreated.
    PoolCreated(MuxOptions),
    /// PoolReconfigured.
    Reconfigured(MuxOptions),
    /// PoolClosed.
    PoolClosed,
    /// ConnectionCreated.
    Created(u64),
    /// ConnectionReady, and nanoseconds since it was created.
    Ready(u64, u64),
    /// ConnectionTrashed, and requests in flight on it.
    Trashed(u64, u32),
    /// ConnectionResurrected.
    Resurrected(u64),
    /// ConnectionRetired, and its ids that wait for late replies.
    Retired(u64, u32),
    /// ConnectionClosed, and requests in flight on it.
    Closed(u64, MuxClosed, u32),
    /// HeartbeatStarted.
    HeartbeatStarted(u64),
    /// HeartbeatSucceeded, and nanoseconds since it started.
    HeartbeatSucceeded(u64, u64),
    /// HeartbeatFailed.
    HeartbeatFailed(u64),
    /// StreamAcquired: the connection, the request (of the machine: the id), and nanoseconds since it was asked for.
    Acquired(u64, u64, u64),
    /// RequestQueued, and how many wait.
    Queued(u32),
    /// AcquireFailed, and nanoseconds since it was asked for.
    Failed(AcquireError, u64),
    /// ReplyReceived, by this id.
    Reply(u64, u16),
    /// StreamOrphaned, and the connection's ids that wait for late replies.
    Orphaned(u64, u16, u32),
    /// LateReply, by this id.
    Late(u64, u16),
    /// UnknownReply.
    Unknown(u64, i32),
}

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The host was not told to establish it yet.
    OwesEstablish,
    /// The host is at it.
    Establishing,
    /// It takes requests.
    Open,
    /// It is not needed.
    Trashed,
    /// It is kept for the requests on it.
    Retired,
    /// Gone, but the host was not told yet.
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

/// How a request that has a stream id stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stand {
    /// Its reply is outstanding.
    Waiting,
    /// Its reply is there.
    Answered,
    /// It was given up, and its reply is outstanding.
    Late,
}

/// A request that has a stream id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Its number.
    pub number: u64,
    /// Its stream id, once the machine has told.
    pub id: Option<u16>,
    /// How it stands.
    pub stand: Stand,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Heartbeat {
    asked: u64,
    /// Its stream id, once the host was told. The peer cannot know it earlier.
    id: Option<u16>,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conn {
    /// Its number.
    pub id: u64,
    /// Where it is.
    pub place: Place,
    /// Who has its stream ids.
    pub requests: Vec<Request>,
    /// How many stream ids it has.
    pub ids: u32,
    created: u64,
    heard: u64,
    answered: bool,
    until: u64,
    heartbeat: Option<Heartbeat>,
}

impl Conn {
    fn count(&self, stand: Stand) -> u32 {
        count(self.requests.iter().filter(|request| request.stand == stand))
    }

    /// Requests whose replies are outstanding.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.count(Stand::Waiting)
    }

    fn has_free_id(&self) -> bool {
        count(self.requests.iter()) + u32::from(self.heartbeat.is_some()) < self.ids
    }

    /// The stream id by which the peer was asked whether it is there.
    #[must_use]
    pub fn heartbeat_id(&self) -> Option<u16> {
        self.heartbeat.and_then(|heartbeat| heartbeat.id)
    }

    /// Whether an id is used for something, as far as the machine has told.
    #[must_use]
    pub fn is_taken(&self, id: u16) -> bool {
        self.heartbeat_id() == Some(id) || self.requests.iter().any(|request| request.id == Some(id))
    }
}

/// How a request that waits stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Not decided.
    Waiting,
    /// It has a stream id of this connection, as this request.
    Granted(u64, u64),
    /// It failed.
    Failed(AcquireError),
}

/// A request that was not served at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// Its number: older ones have smaller ones.
    pub number: u64,
    /// How it stands.
    pub outcome: Outcome,
    started: u64,
    until: u64,
    owes_wake: bool,
}

/// The pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Model {
    /// Everything that happened since these were last taken, and when.
    pub events: Vec<(u64, Event)>,
    options: MuxOptions,
    room: Room,
    now: u64,
    closed: bool,
    /// In the order in which they came to their places.
    conns: Vec<Conn>,
    waiters: Vec<Waiter>,
    /// While there are more connections than are kept open: when is looked next, and the most requests in flight since the last look.
    window: Option<(u64, u32)>,
    /// Why the last attempt failed, and when the next one may be made.
    down: Option<(Cause, u64)>,
    pause: u64,
    /// A connection has failed without a reply, and since then there was no first reply on any.
    fruitless: bool,
    last_conn: u64,
    last_waiter: u64,
    last_request: u64,
}

impl Model {
    /// A pool, which establishes the connections that it keeps open.
    #[must_use]
    pub fn new(now: u64, options: MuxOptions, room: Room) -> Self {
        let streams = options.streams_per_connection;
        // Of 64 each.
        let streams = if streams > room.ids { room.ids / 64 * 64 } else { streams };
        let options = Self::with_streams(options, streams);
        let mut model = Self {
            events: vec![(now, Event::PoolCreated(options))],
            options,
            room,
            now,
            closed: false,
            conns: Vec::new(),
            waiters: Vec::new(),
            window: None,
            down: None,
            pause: PAUSES[0],
            fruitless: false,
            last_conn: 0,
            last_waiter: 0,
            last_request: 0,
        };
        model.provide(false);
        model
    }

    /// These options with so many stream ids, and no more requests on a connection than that.
    fn with_streams(options: MuxOptions, streams_per_connection: u32) -> MuxOptions {
        let within = |host: HostOptions| {
            let most = host.max_requests_per_connection.min(streams_per_connection);
            let new_connection_threshold = host.new_connection_threshold.min(most);
            HostOptions { max_requests_per_connection: most, new_connection_threshold, ..host }
        };
        let (local, remote) = (within(options.local), within(options.remote));
        MuxOptions { streams_per_connection, local, remote, ..options }
    }

    /// The last time that it was told.
    #[must_use]
    pub const fn now(&self) -> u64 {
        self.now
    }

    /// The options in force.
    #[must_use]
    pub const fn options(&self) -> &MuxOptions {
        &self.options
    }

    /// A connection that is there, or of which the host was not told that it is not.
    #[must_use]
    pub fn conn(&self, id: u64) -> Option<&Conn> {
        self.conns.iter().find(|conn| conn.id == id)
    }

    /// A request that waited, until its outcome is claimed.
    #[must_use]
    pub fn waiter(&self, number: u64) -> Option<&Waiter> {
        self.waiters.iter().find(|waiter| waiter.number == number)
    }

    /// The connections in a place, in the order in which they came there.
    pub fn at(&self, place: Place) -> impl Iterator<Item = &Conn> {
        self.conns.iter().filter(move |conn| conn.place == place)
    }

    /// The connections over which replies may come.
    pub fn established(&self) -> impl Iterator<Item = &Conn> {
        [Place::Open, Place::Trashed, Place::Retired].into_iter().flat_map(|place| self.at(place))
    }

    /// Requests that wait, the oldest first.
    pub fn queue(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.iter().filter(|waiter| waiter.outcome == Outcome::Waiting)
    }

    /// Requests whose replies are outstanding, on all connections.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.conns.iter().map(Conn::in_flight).sum()
    }

    /// What the pool says of itself.
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
            capacity: self.at(Place::Open).map(|conn| most.min(conn.ids - conn.count(Stand::Late))).sum(),
        }
    }

    /// The earliest thing that is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        if self.closed {
            return None;
        }
        let waits = self.queue().map(|waiter| waiter.until);
        let look = self.window.map(|(at, _)| at);
        let peers = self.established().filter_map(|conn| self.peer_due(conn));
        // One that was busy at its time is closed when it is not.
        let trash = self.at(Place::Trashed).filter(|conn| conn.in_flight() == 0 || conn.until > self.now);
        let trash = trash.map(|conn| conn.until);
        let wanted = self.wants_growth(false) && self.conns.len() < self.room.conns;
        let growth = wanted.then(|| self.down.map_or(self.now, |(_, at)| at.max(self.now)));
        waits.chain(look).chain(peers).chain(trash).chain(growth).min().filter(|at| *at < END)
    }

    /// Those that the host must be told of.
    #[must_use]
    pub fn owed_wakes(&self) -> Vec<u64> {
        self.waiters.iter().filter(|waiter| waiter.owes_wake).map(|waiter| waiter.number).collect()
    }

    /// Connections over which the host must be told to ask.
    #[must_use]
    pub fn owed_heartbeats(&self) -> Vec<u64> {
        let owed = |conn: &&Conn| conn.heartbeat.is_some_and(|heartbeat| heartbeat.id.is_none());
        self.conns.iter().filter(owed).map(|conn| conn.id).collect()
    }

    /// The machine has told which id a request has.
    ///
    /// # Panics
    ///
    /// Panics when it is not free, or there is no such id.
    pub fn name(&mut self, conn: u64, request: u64, id: u16) {
        // With its connection the request is gone.
        let Some(conn) = self.conns.iter_mut().find(|known| known.id == conn) else { return };
        assert!(u32::from(id) < conn.ids, "stream {id} of {}", conn.ids);
        assert!(!conn.is_taken(id), "stream {id} of connection {} was not free", conn.id);
        if let Some(request) = conn.requests.iter_mut().find(|known| known.number == request) {
            request.id = Some(id);
        }
    }

    // --- what follows is said in terms of the rules, for the commands ---

    fn emit(&mut self, event: Event) {
        self.events.push((self.now, event));
    }

    /// A clock that goes back is held.
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

    /// When the silence of a peer is of interest.
    fn peer_due(&self, conn: &Conn) -> Option<u64> {
        let MuxOptions { heartbeat_interval, heartbeat_timeout, .. } = self.options;
        let due = match conn.heartbeat {
            Some(heartbeat) => later(heartbeat.asked, heartbeat_timeout),
            None if conn.has_free_id() => later(conn.heard, heartbeat_interval).max(self.now),
            // There is no id to ask by.
            None => later(later(conn.heard, heartbeat_interval), heartbeat_timeout),
        };
        (!heartbeat_interval.is_zero()).then_some(due)
    }

    fn first_at(&self, place: Place) -> Option<u64> {
        self.at(place).next().map(|conn| conn.id)
    }

    /// Its number, and since when it waits.
    fn first_waiting(&self) -> Option<(u64, u64)> {
        self.queue().next().map(|waiter| (waiter.number, waiter.started))
    }

    fn conn_mut(&mut self, id: u64) -> &mut Conn {
        self.conns.iter_mut().find(|conn| conn.id == id).expect("a connection of the model")
    }

    /// To the end of the connections in a place.
    fn put(&mut self, id: u64, place: Place) {
        let index = self.conns.iter().position(|conn| conn.id == id).expect("a connection of the model");
        let mut conn = self.conns.remove(index);
        conn.place = place;
        self.conns.push(conn);
    }

    /// Of those with the fewest in flight the one that takes requests for longest.
    fn least_busy(&self) -> Option<u64> {
        let most = self.host()?.max_requests_per_connection;
        let takes = |conn: &&Conn| conn.in_flight() < most && conn.has_free_id();
        self.at(Place::Open).filter(takes).min_by_key(|conn| conn.in_flight()).map(|conn| conn.id)
    }

    fn grant(&mut self, id: u64, started: u64) -> u64 {
        self.last_request += 1;
        let request = self.last_request;
        self.conn_mut(id).requests.push(Request { number: request, id: None, stand: Stand::Waiting });
        let in_flight = self.in_flight();
        if let Some((_, most)) = &mut self.window {
            *most = in_flight.max(*most);
        }
        self.emit(Event::Acquired(id, request, self.now - started));
        request
    }

    /// Who waits has what there is, the oldest first.
    fn serve(&mut self) {
        while let Some((number, started)) = self.first_waiting() {
            let Some(id) = self.least_busy() else { return };
            let request = self.grant(id, started);
            self.settle(number, Outcome::Granted(id, request));
        }
    }

    fn settle(&mut self, number: u64, outcome: Outcome) {
        let now = self.now;
        let waiter = self.waiters.iter_mut().find(|waiter| waiter.number == number).expect("it waits");
        waiter.outcome = outcome;
        waiter.owes_wake = true;
        let waited = now - waiter.started;
        if let Outcome::Failed(error) = outcome {
            self.emit(Event::Failed(error, waited));
        }
    }

    fn fail_queue(&mut self, error: AcquireError) {
        while let Some((number, _)) = self.first_waiting() {
            self.settle(number, Outcome::Failed(error));
        }
    }

    /// Why there is no connection and none on the way, if an attempt has failed.
    fn down_cause(&self) -> Option<Cause> {
        let none = self.at(Place::Open).next().is_none() && self.pending() == 0;
        self.down.filter(|_| none).map(|(cause, _)| cause)
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

    /// The newest one that may be resurrected.
    fn usable_trash(&self) -> Option<u64> {
        self.at(Place::Trashed).filter(|conn| conn.until > self.now).last().map(|conn| conn.id)
    }

    /// What is wanted comes out of the trash, the newest first, or is created.
    fn provide(&mut self, pressed: bool) {
        let mut pressed = pressed;
        while self.wants_growth(pressed) {
            if let Some(id) = self.usable_trash() {
                self.put(id, Place::Open);
                self.emit(Event::Resurrected(id));
                self.look();
                self.serve();
                pressed = pressed && self.least_busy().is_none();
            } else if self.down.is_some_and(|(_, at)| at > self.now) {
                return;
            } else if self.conns.len() < self.room.conns {
                self.create();
            } else {
                // A place will be free, if there ever is one.
                if self.conns.is_empty() {
                    self.note_failure(Cause::Resources);
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
            created: self.now,
            heard: self.now,
            answered: false,
            until: END,
            heartbeat: None,
        });
        self.emit(Event::Created(self.last_conn));
    }

    /// Of failures within a pause the first counts.
    fn note_failure(&mut self, cause: Cause) {
        if self.down.is_none_or(|(_, at)| at <= self.now) {
            self.down = Some((cause, self.now.saturating_add(self.pause).min(END)));
            self.pause = (self.pause * 2).min(PAUSES[1]);
        }
    }

    /// As long as there are more connections than are kept open, it is looked at times whether they are needed.
    fn look(&mut self) {
        let kept = self.host().map_or(0, |host| host.core_connections);
        if count(self.at(Place::Open)) <= kept {
            self.window = None;
        } else if self.window.is_none() {
            self.window = Some((self.after(self.options.shrink_interval), self.in_flight()));
        }
    }

    /// A connection is gone, and who is on it.
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

    /// The peer serves.
    fn note_reply(&mut self, id: u64) {
        if !self.conn(id).is_some_and(|conn| conn.answered) {
            self.conn_mut(id).answered = true;
            self.fruitless = false;
            self.pause = PAUSES[0];
        }
    }

    /// The second in a row that failed before any reply came counts as an attempt that failed.
    fn fail(&mut self, id: u64, cause: Cause) {
        if !self.conn(id).is_some_and(|conn| conn.answered) {
            if self.fruitless {
                self.note_failure(cause);
            }
            self.fruitless = true;
        }
        self.lose(id, MuxClosed::Error(cause));
        self.provide(false);
        self.fail_if_down();
    }

    /// Beyond a number of connections the least busy are trashed, of these the newest.
    fn trash_beyond(&mut self, number: u32) {
        while count(self.at(Place::Open)) > number {
            let open: Vec<_> = self.at(Place::Open).collect();
            // The first of the smallest, from the end.
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
            let worn = self.host().is_some();
            self.lose(id, if worn { MuxClosed::Worn } else { MuxClosed::PoolClosed });
        } else if conn.place == Place::Trashed && conn.until <= now {
            self.lose(id, MuxClosed::Idle);
        }
    }

    /// A connection has a request less in flight.
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
