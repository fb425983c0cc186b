//! A multiplexed pool: many requests in flight on each of a few connections to one host, told apart by stream ids.
//!
//! It knows no protocol. A request asks for a stream id ([`Mux::acquire`]), is written with it on the connection that it was given, and releases it when
//! the reply was taken ([`Mux::release`]). Replies come in any order; whose one is tells [`Mux::handle_reply`].
//!
//! Read first, of the DataStax Java driver 3: "Connection pooling" in its manual, whose behaviour this is.
//!
//! - **The least busy** connection that is open takes a request.
//! - **Growth**: with n connections, those on the way included, another one is opened when more than
//!   (n - 1) x `max_requests_per_connection` + `new_connection_threshold` requests are in flight, or when some wait; one after the other, up to `max_connections`.
//! - **Shrinking**: every `shrink_interval` those that the most requests in flight of that time did not need are trashed. A trashed connection takes no requests;
//!   the newest is resurrected when there is load again; it is closed after `idle_timeout`, once its requests are answered. A
//!   connection that was opened at the threshold is kept until the load is a quarter of the threshold (at least one request, unless that is 0) below.
//! - **Heartbeat**: a peer that was not heard for `heartbeat_interval` is asked. One that does not answer loses its connection.
//! - **Queue**: when all are busy up to `max_queue_size` requests wait, first come, first served, up to `pool_timeout` each.
//! - **Orphans**: the id of a request that was given up is kept until the late reply came. A connection of which less than three quarters of the ids are
//!   of use is replaced.
//! - A reply by an id that no request has closes its connection: the peer is confused, and the next reply may be somebody else's.
//!
//! One request, as it travels: `acquire` -> [`Acquire::Granted`] with a [`Stream`] (or [`Acquire::Queued`], then the action [`MuxAction::Wake`], then
//! [`Mux::claim`]); the host writes it; the peer's reply is read, [`Mux::handle_reply`] says [`Reply::Request`]; the host hands it to
//! whoever has the stream, who calls [`Mux::release`]. Who gives up calls it earlier.

mod check;
mod error;
mod event;
mod memory;
mod options;
mod resize;
mod serve;
mod streams;
mod timeout;
mod types;

#[cfg(test)]
mod tests;

pub use error::{AcquireError, ForeignStream, ReplyError};
pub use event::{MuxClosed, MuxEvent};
#[cfg(feature = "alloc")]
pub use memory::MuxOnHeap;
pub use memory::{MuxFixed, MuxMemory};
pub use options::{Distance, HostOptions, MuxConfig, MuxOptions};
pub use streams::words as stream_words;
pub use types::{Acquire, HostState, MuxAction, MuxClaim, MuxConnId, MuxId, MuxWaiterId, Reply, Stream, Written};

use crate::machine::{Machine, Observer, Stale};
use crate::storage::table::Table;
use crate::storage::{Full, Store};
use crate::{Cause, Instant};
use core::fmt;
use core::hash::{Hash, Hasher};
use core::time::Duration;
use memory::{AllStreams, Conns, Verdict, WaiterDeadlines, Waiters};
use streams::Use;

/// The lists of connections, which are their states.
mod conn {
    pub(super) const OWES_ESTABLISH: u8 = 0;
    pub(super) const ESTABLISHING: u8 = 1;
    pub(super) const OPEN: u8 = 2;
    pub(super) const TRASHED: u8 = 3;
    /// Takes no requests any more, and is closed when the last one is answered.
    pub(super) const RETIRED: u8 = 4;
    pub(super) const OWES_CLOSE: u8 = 5;
    pub(super) const LISTS: usize = 6;
}

/// The lists of requests that wait, which are their states.
mod waiter {
    pub(super) const WAITING: u8 = 0;
    pub(super) const OWES_WAKE: u8 = 1;
    pub(super) const SETTLED: u8 = 2;
    pub(super) const LISTS: usize = 3;
}

/// A multiplexed pool of connections to one host. See the [module](self) for how it works.
///
/// Equal pools have been through the same: same clock, same options, same connections, stream ids and requests that wait in the same places.
/// They answer every call alike. A clone knows the ids and streams of its original; what one does, the other does not learn of.
#[derive(Clone, PartialEq, Eq)]
pub struct Mux<M: MuxMemory> {
    id: MuxId,
    config: MuxConfig,
    closed: bool,
    now: Instant,
    conns: Conns<M, { conn::LISTS }>,
    /// The stream ids of each place of a connection.
    streams: AllStreams<M>,
    waiters: Waiters<M, { waiter::LISTS }>,
    deadlines: WaiterDeadlines<M>,
    /// On all connections.
    in_flight: u32,
    /// The most that there were since the last look.
    in_flight_max: u32,
    /// When is looked next whether there are more connections than are needed; as long as there are more than are kept open.
    shrink_at: Option<Instant>,
    /// Why the last attempt to establish failed, and when the next one may be made.
    down: Option<(Cause, Instant)>,
    backoff: Duration,
    /// A connection has failed on which no reply had come, and since then there was no first reply on any.
    fruitless: bool,
    /// How many heartbeats the host is to be told of.
    heartbeats_owed: u32,
}

/// The wait before the next attempt after one failed; it doubles up to the last.
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_LAST: Duration = Duration::from_secs(60);

impl<M: MuxMemory> Mux<M> {
    /// A pool, which begins to establish the connections that it keeps open.
    ///
    /// - `id`: what its host calls it. - `config`: with fewer stream ids, and no more requests on a connection than that, where there is no memory for all.
    ///
    /// Cost: O(core connections); allocates their stream ids. Owes an `Establish` for each. Events: `PoolCreated`, `ConnectionCreated`.
    pub fn new(now: Instant, id: MuxId, config: MuxConfig, observer: &mut impl Observer<MuxEvent>) -> Self {
        let config = match Self::ids_with_room(config.options().streams_per_connection) {
            0 => config,
            streams => config.with_streams(streams),
        };
        observer.on_event(now, &MuxEvent::PoolCreated { mux: id, config });
        let mut mux = Self {
            id,
            config,
            closed: false,
            now,
            conns: Table::empty(),
            streams: Store::empty(),
            waiters: Table::empty(),
            deadlines: WaiterDeadlines::<M>::empty(),
            in_flight: 0,
            in_flight_max: 0,
            shrink_at: None,
            down: None,
            backoff: BACKOFF_FIRST,
            fruitless: false,
            heartbeats_owed: 0,
        };
        mux.provide(now, false, observer);
        mux
    }

    /// Makes room for this many requests that wait, so that nothing is allocated up to there.
    ///
    /// # Errors
    ///
    /// [`Full`] when the allocator refuses; room beyond a fixed capacity is not asked for.
    pub fn reserve(&mut self, waiters: u32) -> Result<(), Full> {
        self.waiters.reserve(waiters)?;
        self.deadlines.reserve(waiters)
    }

    /// Asks for a stream id on the least busy connection.
    ///
    /// - `now`: the clock of every other call; one that goes back is held at the last value seen.
    /// - `deadline`: until when it may wait; `pool_timeout` applies besides.
    ///
    /// Cost: O(connections) when one takes it, without allocation; O(log n) in the number of requests that wait otherwise. Owes at most what connections the load asks
    /// for. Events: `StreamAcquired`, or `RequestQueued`, or `AcquireFailed`; then `ConnectionCreated` or `ConnectionResurrected`.
    ///
    /// # Errors
    ///
    /// [`AcquireError`]: no connection takes it, and it may not wait.
    #[inline]
    pub fn acquire(
        &mut self,
        now: Instant,
        deadline: Option<Instant>,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Result<Acquire, AcquireError> {
        let now = self.advance(now);
        if self.waiters.len(waiter::WAITING) == 0 {
            if let Some(index) = self.least_busy() {
                let stream = self.grant(now, index, now, observer);
                if let Some((conn, id)) = stream {
                    if self.wants_growth(false) {
                        self.provide(now, false, observer);
                    }
                    return Ok(Acquire::Granted(Stream { conn, id, mux: self.id }));
                }
            }
        }
        self.acquire_otherwise(now, deadline, observer)
    }

    /// Takes the outcome of a request that waited.
    ///
    /// Once it returns anything but [`MuxClaim::Waiting`], the id is used up.
    ///
    /// Cost: O(1), no allocation. Revokes the `Wake` that is owed.
    pub fn claim(&mut self, now: Instant, waiter: MuxWaiterId) -> MuxClaim {
        self.advance(now);
        let Some(index) = self.waiters.find(waiter.0) else { return MuxClaim::Stale };
        let claim = match self.waiters.at(index).map_or(Verdict::Waiting, |slot| slot.verdict) {
            Verdict::Waiting => return MuxClaim::Waiting,
            Verdict::Granted(conn, id) => MuxClaim::Granted(Stream { conn, id, mux: self.id }),
            Verdict::Failed(error) => MuxClaim::Failed(error),
        };
        self.waiters.remove(index);
        claim
    }

    /// Gives up a request that waited, whatever has become of it. A stream id that it was granted goes to the next one.
    ///
    /// Cost: O(log n) in the number of requests that wait. Owes at most one `Wake`. Events: `AcquireFailed`, or those of [`Mux::release`], or none.
    pub fn cancel(&mut self, now: Instant, waiter: MuxWaiterId, observer: &mut impl Observer<MuxEvent>) {
        let now = self.advance(now);
        let Some(index) = self.waiters.find(waiter.0) else { return };
        match self.waiters.get(index).verdict {
            Verdict::Waiting => {
                self.settle(now, index, Verdict::Failed(AcquireError::Cancelled), observer);
                self.waiters.remove(index);
            }
            Verdict::Failed(_) => self.waiters.remove(index),
            Verdict::Granted(conn, id) => {
                self.waiters.remove(index);
                self.return_stream(now, conn, id, Written::No, observer);
            }
        }
    }

    /// Returns a stream id: its reply was taken, or its request is given up.
    ///
    /// If the reply is there, or no byte was written, the id is free. Else it is kept until the reply comes, and when less than three quarters of the
    /// connection's ids are left, the connection is retired and another one opened.
    ///
    /// - `written`: whether the request was written, if it is given up.
    ///
    /// Cost: O(1), and O(connections) when somebody waits; no allocation unless a connection is replaced. Owes at most one `Wake`, one `Close` and one `Establish`.
    /// Events: none; or `StreamOrphaned` and perhaps `ConnectionRetired`; then `StreamAcquired` of the oldest that waits.
    ///
    /// # Errors
    ///
    /// [`ForeignStream`]: another pool issued it; nothing changed, the stream is handed back.
    #[inline]
    pub fn release(
        &mut self,
        now: Instant,
        stream: Stream,
        written: Written,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Result<(), ForeignStream> {
        if stream.mux != self.id {
            return Err(ForeignStream(stream));
        }
        let now = self.advance(now);
        self.return_stream(now, stream.conn, stream.id, written, observer);
        Ok(())
    }

    /// Puts other options in force. `streams_per_connection` stays as it is, and the requests of a connection are no more than that.
    ///
    /// Connections beyond a lower maximum are trashed at once, the least busy first; where the host is to be ignored, all are retired and requests that wait
    /// fail. Requests that wait keep the time that they had.
    ///
    /// Cost: O(connections^2 + requests that wait). Events: `PoolReconfigured`, and what follows.
    pub fn reconfigure(&mut self, now: Instant, config: MuxConfig, observer: &mut impl Observer<MuxEvent>) {
        let now = self.advance(now);
        if self.closed {
            return;
        }
        self.config = config.with_streams(self.config.options().streams_per_connection);
        observer.on_event(now, &MuxEvent::PoolReconfigured { mux: self.id, config: self.config });
        self.apply_limits(now, observer);
    }

    /// Closes the pool for good: every connection, with the requests on it, and every request that waits fails.
    ///
    /// Cost: O(connections + requests that wait). Owes a `Close` for each connection and a `Wake` for each request that waits.
    /// Events: `AcquireFailed`, `ConnectionClosed`, then `PoolClosed`.
    pub fn close(&mut self, now: Instant, observer: &mut impl Observer<MuxEvent>) {
        let now = self.advance(now);
        if core::mem::replace(&mut self.closed, true) {
            return;
        }
        self.fail_waiters(now, AcquireError::Closed, observer);
        for list in [conn::OWES_ESTABLISH, conn::ESTABLISHING, conn::OPEN, conn::TRASHED, conn::RETIRED] {
            while let Some(index) = self.conns.front(list) {
                self.drop_conn(now, index, MuxClosed::PoolClosed, observer);
            }
        }
        self.shrink_at = None;
        observer.on_event(now, &MuxEvent::PoolClosed { mux: self.id });
    }

    /// News: a connection is established. Requests that wait have it at once.
    ///
    /// Cost: O(requests that it takes). Owes their `Wake`s, and the `Establish` that the load still asks for. Events: `ConnectionReady`, `StreamAcquired`, `ConnectionCreated`.
    ///
    /// # Errors
    ///
    /// [`Stale`]: it was given up meanwhile. Drop the socket.
    pub fn handle_established(
        &mut self,
        now: Instant,
        conn: MuxConnId,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Result<(), Stale> {
        let now = self.advance(now);
        let index = self.establishing(conn).ok_or(Stale)?;
        self.down = None;
        self.conns.move_to(index, conn::OPEN);
        let slot = self.conns.get_mut(index);
        slot.heard = now;
        let duration = now.saturating_since(slot.created.0);
        observer.on_event(now, &MuxEvent::ConnectionReady { mux: self.id, conn, duration });
        self.arm_shrinking(now);
        self.serve(now, observer);
        self.provide(now, false, observer);
        Ok(())
    }

    /// News: a connection could not be established. The next attempt is made after a pause, which doubles from 1 s to 60 s until a reply comes; when there is no other
    /// connection, and none on the way, requests that wait fail.
    ///
    /// Cost: O(requests that wait). Owes their `Wake`s. Events: `ConnectionClosed`, `AcquireFailed`.
    ///
    /// # Errors
    ///
    /// [`Stale`]: it was given up meanwhile.
    pub fn handle_establish_failed(
        &mut self,
        now: Instant,
        conn: MuxConnId,
        cause: Cause,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Result<(), Stale> {
        let now = self.advance(now);
        let index = self.establishing(conn).ok_or(Stale)?;
        self.note_failure(now, cause);
        self.drop_conn(now, index, MuxClosed::Error(cause), observer);
        // One that is kept for such a time may do.
        self.provide(now, false, observer);
        self.fail_if_down(now, observer);
        Ok(())
    }

    /// News: a connection failed. It is closed, and the requests on it fail. The next one is opened at once; but after a pause, as when it could not be established, if it is
    /// the second one in a row on which no reply had come.
    ///
    /// Cost: O(connections + requests that wait). Owes its `Close`, and perhaps an `Establish`. Events: `ConnectionClosed`, `ConnectionCreated` or `ConnectionResurrected`.
    ///
    /// # Errors
    ///
    /// [`Stale`]: it was gone already.
    pub fn handle_failed(
        &mut self,
        now: Instant,
        conn: MuxConnId,
        cause: Cause,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Result<(), Stale> {
        let now = self.advance(now);
        let index = self.established(conn).ok_or(Stale)?;
        self.fail(now, index, cause, observer);
        Ok(())
    }

    /// News: bytes were read on a connection, whether or not they are a whole reply: the peer is there. One that was asked has as long again to answer, as its answer
    /// may stand behind much else.
    ///
    /// Cost: O(1), no allocation. Owes nothing. Events: none.
    ///
    /// # Errors
    ///
    /// [`Stale`]: it was gone already.
    pub fn handle_received(&mut self, now: Instant, conn: MuxConnId) -> Result<(), Stale> {
        let now = self.advance(now);
        let index = self.established(conn).ok_or(Stale)?;
        let slot = self.conns.get_mut(index);
        slot.heard = now;
        if let Some(heartbeat) = slot.heartbeat.as_mut().filter(|heartbeat| heartbeat.told) {
            heartbeat.asked = now;
        }
        Ok(())
    }

    /// News: a reply by this stream id was read on a connection.
    ///
    /// - `stream`: as it was read; whatever it is.
    ///
    /// Cost: O(1), and O(connections) when somebody waits; no allocation. Owes at most one `Wake`, one `Close`. Events: `ReplyReceived`, `LateReply`, or
    /// `HeartbeatSucceeded`; or `UnknownReply` and `ConnectionClosed`.
    ///
    /// # Errors
    ///
    /// [`ReplyError::Unknown`]: no request waits for it; the connection is closed, with the requests on it. [`ReplyError::Stale`]: the connection was gone already.
    #[inline]
    pub fn handle_reply(
        &mut self,
        now: Instant,
        conn: MuxConnId,
        stream: i32,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Result<Reply, ReplyError> {
        let now = self.advance(now);
        let index = self.established(conn).ok_or(ReplyError::Stale)?;
        let Some((id, taken_for)) = self.use_of(index, stream) else {
            return Err(self.refuse_reply(now, index, stream, observer));
        };
        let mux = self.id;
        let slot = self.conns.get_mut(index);
        slot.heard = now;
        if let Some(heartbeat) = slot.heartbeat.filter(|heartbeat| heartbeat.stream == id) {
            if !heartbeat.told {
                // It was not asked yet.
                return Err(self.refuse_reply(now, index, stream, observer));
            }
            let duration = now.saturating_since(heartbeat.asked);
            slot.heartbeat = None;
            self.note_reply(index);
            self.free_id(index, id, taken_for);
            observer.on_event(now, &MuxEvent::HeartbeatSucceeded { mux, conn, duration });
            self.serve(now, observer);
            return Ok(Reply::Heartbeat);
        }
        if taken_for == Use::Late {
            self.note_reply(index);
            self.free_id(index, id, taken_for);
            observer.on_event(now, &MuxEvent::LateReply { mux, conn, stream: id });
            self.serve(now, observer);
            return Ok(Reply::Late);
        }
        slot.in_flight -= 1;
        self.in_flight -= 1;
        self.note_reply(index);
        if let Some(streams) = self.streams.slots_mut().get_mut(index as usize) {
            streams.answer(u32::from(id));
        }
        observer.on_event(now, &MuxEvent::ReplyReceived { mux, conn, stream: id });
        self.after_reply(now, index, observer);
        Ok(Reply::Request)
    }

    /// The pool's id.
    #[must_use]
    pub const fn id(&self) -> MuxId {
        self.id
    }

    /// The options that are in force.
    #[must_use]
    pub const fn config(&self) -> &MuxConfig {
        &self.config
    }

    /// Whether the pool was closed.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether the last attempt to establish a connection has failed: then load alone brings the next one about.
    #[doc(hidden)]
    pub const fn has_failed(&self) -> bool {
        self.down.is_some()
    }

    /// Whether there is no free stream id on some connection: until there is, its peer cannot be asked.
    #[doc(hidden)]
    pub fn is_tight(&self) -> bool {
        let mut tight = false;
        for list in [conn::OPEN, conn::TRASHED, conn::RETIRED] {
            self.for_each(list, |index| {
                tight |= self.streams.slots().get(index as usize).is_some_and(|streams| streams.free_count() == 0);
            });
        }
        tight
    }

    /// What the pool is doing. Cost: O(connections).
    #[must_use]
    pub fn state(&self) -> HostState {
        let max = self.config.host().map_or(0, |host| host.max_requests_per_connection);
        let mut capacity = 0_u32;
        let mut orphaned = 0;
        for list in [conn::OPEN, conn::TRASHED, conn::RETIRED] {
            self.for_each(list, |index| {
                let Some(streams) = self.streams.slots().get(index as usize) else { return };
                orphaned += streams.late_count();
                if list == conn::OPEN {
                    capacity = capacity.saturating_add(max.min(streams.ids() - streams.late_count()));
                }
            });
        }
        HostState {
            open: self.conns.len(conn::OPEN),
            establishing: self.conns.len(conn::OWES_ESTABLISH) + self.conns.len(conn::ESTABLISHING),
            trashed: self.conns.len(conn::TRASHED),
            retired: self.conns.len(conn::RETIRED),
            in_flight: self.in_flight,
            orphaned,
            queued: self.waiters.len(waiter::WAITING),
            capacity,
        }
    }

    /// How many requests are in flight on a connection; `None` once it is gone, whether or not its `Close` was polled.
    #[must_use]
    pub fn conn_in_flight(&self, conn: MuxConnId) -> Option<u32> {
        let index = self.conns.find(conn.0).filter(|index| self.conns.list_of(*index) != conn::OWES_CLOSE)?;
        Some(self.conns.get(index).in_flight)
    }

    /// Calls `visit` with each connection that is established, how many requests are in flight on it, and whether it takes more.
    pub fn for_each_conn(&self, mut visit: impl FnMut(MuxConnId, u32, bool)) {
        for list in [conn::OPEN, conn::TRASHED, conn::RETIRED] {
            self.for_each(list, |index| {
                visit(MuxConnId(self.conns.key(index)), self.conns.get(index).in_flight, list == conn::OPEN);
            });
        }
    }

    /// The host serves: the first reply on a connection.
    #[inline]
    fn note_reply(&mut self, index: u32) {
        if !core::mem::replace(&mut self.conns.get_mut(index).answered, true) {
            self.fruitless = false;
            self.backoff = BACKOFF_FIRST;
        }
    }

    /// The time, which does not go back.
    #[inline]
    fn advance(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.now
    }

    fn for_each(&self, list: u8, mut visit: impl FnMut(u32)) {
        let mut at = self.conns.front(list);
        while let Some(index) = at {
            visit(index);
            at = self.conns.next(index);
        }
    }

    fn establishing(&self, conn: MuxConnId) -> Option<u32> {
        self.conns.find(conn.0).filter(|index| self.conns.list_of(*index) == conn::ESTABLISHING)
    }

    #[inline]
    fn established(&self, conn: MuxConnId) -> Option<u32> {
        let is_there = |index: &u32| matches!(self.conns.list_of(*index), conn::OPEN | conn::TRASHED | conn::RETIRED);
        self.conns.find(conn.0).filter(is_there)
    }
}

impl<M: MuxMemory> Machine for Mux<M> {
    type Action = MuxAction;
    type Event = MuxEvent;

    /// Fails requests that have waited too long, trashes and closes connections that are not needed, asks silent peers, and tries again where establishing failed.
    ///
    /// Cost: O(connections^2), and O(log n) for each request that waits and is concerned.
    fn handle_timeout(&mut self, now: Instant, observer: &mut impl Observer<MuxEvent>) {
        let now = self.advance(now);
        self.expire(now, observer);
    }

    fn poll_action(&mut self, _now: Instant) -> Option<MuxAction> {
        if let Some(index) = self.waiters.front(waiter::OWES_WAKE) {
            self.waiters.move_to(index, waiter::SETTLED);
            return Some(MuxAction::Wake(MuxWaiterId(self.waiters.key(index))));
        }
        if let Some(index) = self.conns.front(conn::OWES_CLOSE) {
            let conn = MuxConnId(self.conns.key(index));
            self.conns.remove(index);
            return Some(MuxAction::Close(conn));
        }
        if let Some(action) = self.owed_heartbeat() {
            return Some(action);
        }
        let index = self.conns.front(conn::OWES_ESTABLISH)?;
        self.conns.move_to(index, conn::ESTABLISHING);
        Some(MuxAction::Establish(MuxConnId(self.conns.key(index))))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.next_timeout()
    }

    fn assert_invariants(&self) {
        self.check();
    }
}

impl<M: MuxMemory> Hash for Mux<M> {
    /// What the stream ids of a connection that is gone were used for is history, and so is how busy a pool was that does not shrink.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { id, config, closed, now, conns, streams, waiters, deadlines, in_flight, in_flight_max, .. } = self;
        let Self { shrink_at, down, backoff, fruitless, heartbeats_owed, .. } = self;
        let in_flight_max = shrink_at.map(|_| in_flight_max);
        (id, config, closed, now, conns, waiters, deadlines, in_flight, in_flight_max).hash(state);
        (shrink_at, down, backoff, fruitless, heartbeats_owed).hash(state);
        for (index, streams) in (0..).zip(streams.slots()) {
            if matches!(conns.list_of(index), conn::OPEN | conn::TRASHED | conn::RETIRED) {
                streams.hash(state);
            }
        }
    }
}

impl<M: MuxMemory> fmt::Debug for Mux<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mux").field("id", &self.id).field("state", &self.state()).finish_non_exhaustive()
    }
}
