//! A multiplexed pool: many requests in flight on each of a few connections to one host,
//! distinguished by stream ids.
//!
//! The pool is independent of the protocol. The driver is the program that calls the pool; other
//! modules name it *host*. It asks for a stream id ([`Mux::acquire`]), writes the request with this
//! id on the granted connection, and releases the id after it has taken the reply
//! ([`Mux::release`]). Replies arrive in any order; [`Mux::handle_reply`] returns the kind of
//! request that a reply belongs to.
//!
//! Read first: "Connection pooling" in the manual of the DataStax Java driver 3. The pool has the
//! behaviour described there:
//!
//! - **Selection**: the least busy open connection takes a request.
//! - **Growth**: with n connections, pending ones included, another one is opened when more than
//!   (n - 1) x `max_requests_per_connection` + `new_connection_threshold` requests are in flight,
//!   or when requests wait. Connections are opened one after the other, up to `max_connections`.
//! - **Shrinking**: every `shrink_interval`, surplus connections are trashed: those that even the
//!   highest number of requests in flight in that interval did not need. A trashed connection takes
//!   no requests. When the load rises again, the newest one is resurrected. Otherwise it is closed
//!   after `idle_timeout`, once its requests are answered. A connection that was opened at the
//!   threshold is kept until the load is below the threshold by a quarter of it (by at least one
//!   request, unless the threshold is 0).
//! - **Replacement**: [`Mux::replace_connections`] retires all connections and opens others.
//! - **Reconnecting**: a connection that failed is replaced after `backoff_min`, and requests wait for
//!   the new one. Further pauses grow up to `backoff_max` until a new connection receives a reply. After
//!   an attempt that failed, requests fail while no connection is open or pending.
//! - **Heartbeat**: a heartbeat is sent each `heartbeat_interval`, on busy connections too, so a peer that
//!   stops is noticed within `heartbeat_interval` and `heartbeat_timeout`. If it is not answered in time, and
//!   no other bytes arrive, the connection is closed.
//! - **Queue**: when all connections are busy, up to `max_queue_size` requests wait in a queue,
//!   each up to `pool_timeout`.
//! - **Orphans**: the id of a request that was abandoned stays reserved until its late reply
//!   arrives. A connection with less than three quarters of its ids usable is replaced.
//! - **Unknown replies**: a reply with an id that no request has closes its connection, because the
//!   next reply may belong to another request.
//!
//! The steps of a request: `acquire` returns [`Acquire::Granted`] with a [`Stream`], or
//! [`Acquire::Queued`]; in the second case [`Mux::claim`] returns the stream after the action
//! [`MuxAction::Wake`]. The driver writes the request. When it reads the reply,
//! [`Mux::handle_reply`] returns [`Reply::Request`], and the driver passes the reply to the owner
//! of the stream, which calls [`Mux::release`]. An owner that abandons its request calls `release`
//! without a reply.

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

pub use error::{AcquireError, ForeignStream, HexCode, ReplyError};
pub use event::{MuxClosed, MuxEvent};
#[cfg(feature = "alloc")]
pub use memory::MuxOnHeap;
pub use memory::{MuxFixed, MuxMemory};
pub use options::{Distance, HostOptions, MuxConfig, MuxOptions};
pub use streams::words as stream_words;
pub use types::{Acquire, HostState, MuxAction, MuxClaim, MuxConnId, MuxId, MuxWaiterId, Reply, Stream, Written};

use crate::machine::{Observer, Stale};
use crate::storage::table::Table;
use crate::storage::{Full, Store};
use crate::{Cause, Instant};
use core::fmt;
use core::hash::{Hash, Hasher};
use core::time::Duration;
use memory::{AllStreams, Conns, Verdict, WaiterDeadlines, Waiters};
use streams::Use;

/// The lists of connections. The list that a connection is on is its state.
mod conn {
    pub(super) const OWES_ESTABLISH: u8 = 0;
    pub(super) const ESTABLISHING: u8 = 1;
    pub(super) const OPEN: u8 = 2;
    pub(super) const TRASHED: u8 = 3;
    /// A connection that takes no more requests, and is closed when the last one is answered.
    pub(super) const RETIRED: u8 = 4;
    pub(super) const OWES_CLOSE: u8 = 5;
    pub(super) const LISTS: usize = 6;
}

/// The lists of waiting requests. The list that a request is on is its state.
mod waiter {
    pub(super) const WAITING: u8 = 0;
    pub(super) const OWES_WAKE: u8 = 1;
    pub(super) const SETTLED: u8 = 2;
    pub(super) const LISTS: usize = 3;
}

/// A multiplexed pool of connections to one host. See the [module](self) for how it works.
///
/// Two pools are equal if all of their state is equal: clock, options, and the same connections,
/// stream ids and waiting requests in the same slots. Equal pools return the same results for the
/// same calls. A clone accepts the ids and streams of its original; later changes of one do not
/// affect the other.
#[derive(Clone, PartialEq, Eq)]
pub struct Mux<M: MuxMemory> {
    id: MuxId,
    config: MuxConfig,
    closed: bool,
    now: Instant,
    conns: Conns<M, { conn::LISTS }>,
    /// The stream ids of each connection slot.
    streams: AllStreams<M>,
    waiters: Waiters<M, { waiter::LISTS }>,
    deadlines: WaiterDeadlines<M>,
    /// Requests in flight on all connections.
    in_flight: u32,
    /// The maximum of `in_flight` since the last check for surplus connections.
    in_flight_max: u32,
    /// The time of the next check for surplus connections; set while more than `core_connections`
    /// are open.
    shrink_at: Option<Instant>,
    /// The pause after the last failure. That after an attempt that failed ends when a connection is
    /// established.
    pause: Option<Pause>,
    /// Whether the host was reported to be available while a connection was being established. Then
    /// the pause after its failure is at most `BACKOFF_UP`.
    is_reported_up: bool,
    /// The next pause after a failure, before the limits of the options.
    backoff: Duration,
    /// The state of the generator of the random parts of pauses. Zero stays zero, and has none.
    entropy: u32,
    /// The number of heartbeat actions that are owed.
    heartbeats_owed: u32,
    /// Whether stream 0 is never assigned.
    keeps_first: bool,
}

/// A pause before the next attempt to connect.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Pause {
    /// The cause of the first failure of this pause.
    cause: Cause,
    /// Whether it was an established connection that failed. Requests then wait for the next attempt.
    is_lost: bool,
    /// When it failed.
    at: Instant,
    /// The earliest time of the next attempt.
    until: Instant,
}

/// The longest pause after which a host that is reported to be available is tried again. It limits the
/// attempts that a stream of such reports causes.
const BACKOFF_UP: Duration = Duration::from_millis(250);

impl<M: MuxMemory> Mux<M> {
    /// Creates a pool, and begins to establish `core_connections`.
    ///
    /// - `id`: the driver's number for the pool.
    /// - `config`: the numbers of stream ids and of requests per connection are reduced if there is
    ///   no memory for all ids.
    ///
    /// Cost: O(core connections); allocates their stream ids. Owes an `Establish` for each.
    /// Events: `PoolCreated`, `ConnectionCreated`.
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
            pause: None,
            is_reported_up: false,
            backoff: Duration::ZERO,
            entropy: 0,
            heartbeats_owed: 0,
            keeps_first: false,
        };
        mux.open_needed(now, false, observer);
        mux
    }

    /// Reserves memory for this many waiting requests, so nothing is allocated up to this number.
    ///
    /// # Errors
    ///
    /// [`Full`] when the allocator refuses. A number beyond a fixed capacity is no error.
    pub fn reserve(&mut self, waiters: u32) -> Result<(), Full> {
        self.waiters.reserve(waiters)?;
        self.deadlines.reserve(waiters)
    }

    /// Sets the source of the random part of pauses between attempts to connect. Without it, or with
    /// 0, the pauses have none.
    ///
    /// Pools that lost their host at the same moment then return at different times.
    ///
    /// - `entropy`: a random number, another one for each pool. Needs no secrecy.
    ///
    /// Cost: O(1), no allocation. Owes nothing. Events: none.
    pub const fn set_entropy(&mut self, entropy: u32) {
        self.entropy = entropy;
    }

    /// Never assigns stream 0, unless connections have no other. A reply on a stream that is not assigned closes its
    /// connection.
    ///
    /// For servers that send errors on stream 0 to requests on other streams: another request would take the
    /// error for its own, and a third one with the same id the reply to that.
    ///
    /// Called before a connection is established; those that are established keep their ids.
    ///
    /// Cost: O(connections). Owes nothing. Events: none.
    pub fn keep_first_stream(&mut self) {
        self.keeps_first = true;
        for list in [conn::OWES_ESTABLISH, conn::ESTABLISHING] {
            let mut at = self.conns.front(list);
            while let Some(index) = at {
                let prepared = self.prepare_streams(index);
                debug_assert!(prepared.is_ok(), "there was room for the same number of ids");
                at = self.conns.next(index);
            }
        }
    }

    /// Returns whether a request would wait until the first connection is established, and begins to
    /// establish it as [`Mux::acquire`] does, unless there is a pause. A driver of several hosts asks
    /// another one first.
    ///
    /// Cost: O(1) if a connection is open, otherwise O(connections). Owes at most an `Establish`, or the
    /// `Wake`s of requests that a resurrected connection takes.
    /// Events: `ConnectionCreated`, `ConnectionResurrected`.
    pub fn must_connect(&mut self, now: Instant, observer: &mut impl Observer<MuxEvent>) -> bool {
        if self.conns.len(conn::OPEN) > 0 {
            return false;
        }
        let now = self.advance(now);
        self.open_needed(now, true, observer);
        self.conns.len(conn::OPEN) == 0
            && (self.pending_count() > 0 || (self.needs_growth(true) && self.down_cause().is_none()))
    }

    /// Acquires a stream id on the least busy connection, or enters the queue.
    ///
    /// - `now`: from the same clock as in all other calls; if it goes back, the last value is used.
    /// - `deadline`: the end of the wait, if it is earlier than that of `pool_timeout`.
    ///
    /// Cost: O(connections) without allocation when a connection takes the request; otherwise
    /// O(log n) in the number of waiting requests. Owes at most an `Establish` for each connection
    /// that the load requires.
    /// Events: `StreamAcquired`, or `RequestQueued`, or `AcquireFailed`; then `ConnectionCreated`
    /// or `ConnectionResurrected`.
    ///
    /// # Errors
    ///
    /// [`AcquireError`]: no connection takes the request, and it may not wait.
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
                let stream = self.grant(now, index, None, observer);
                if let Some((conn, id)) = stream {
                    if self.needs_growth(false) {
                        self.open_needed(now, false, observer);
                    }
                    return Ok(Acquire::Granted(Stream { conn, id, mux: self.id }));
                }
            }
        }
        self.acquire_slow(now, deadline, observer)
    }

    /// Takes the outcome of a request that waited.
    ///
    /// After it returns anything but [`MuxClaim::Waiting`], the id is no longer valid.
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

    /// Cancels a request that waited, whatever its outcome. A stream id that it was granted goes to
    /// the next request.
    ///
    /// Cost: O(log n) in the number of waiting requests. Owes at most one `Wake`.
    /// Events: `AcquireFailed`, or those of [`Mux::release`], or none.
    pub fn cancel(&mut self, now: Instant, waiter: MuxWaiterId, observer: &mut impl Observer<MuxEvent>) {
        let now = self.advance(now);
        let Some(index) = self.waiters.find(waiter.0) else { return };
        match self.waiters.get(index).verdict {
            Verdict::Waiting => {
                self.record_outcome(now, index, Verdict::Failed(AcquireError::Cancelled), observer);
                self.waiters.remove(index);
            }
            Verdict::Failed(_) => self.waiters.remove(index),
            Verdict::Granted(conn, id) => {
                self.waiters.remove(index);
                self.return_stream(now, conn, id, Written::No, observer);
            }
        }
    }

    /// Returns a stream id: its reply was taken, or its request is abandoned.
    ///
    /// If the reply has arrived, or no byte was written, the id is free. Otherwise it stays
    /// reserved until the reply arrives. If less than three quarters of the connection's ids are
    /// left, the connection is retired and another one is opened.
    ///
    /// - `written`: whether bytes of the request were written. Matters only if the request is
    ///   abandoned.
    ///
    /// Cost: O(1), and O(connections) when requests wait; no allocation unless a connection is
    /// replaced. Owes at most one `Wake`, one `Close` and one `Establish`.
    /// Events: none; or `StreamOrphaned` and perhaps `ConnectionRetired`; then `StreamAcquired` of
    /// the oldest waiting request.
    ///
    /// # Errors
    ///
    /// [`ForeignStream`]: another pool issued the stream. Nothing changed; the error contains the
    /// stream.
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

    /// Changes the options. `streams_per_connection` is not changed, and limits the requests per
    /// connection.
    ///
    /// Connections beyond a lower maximum are trashed at once, the least busy first. If the host
    /// becomes ignored, all connections are retired and waiting requests fail. Waiting requests
    /// keep their deadlines. A shorter `backoff_max` also shortens the pause of a host that failed.
    ///
    /// Cost: O(connections^2 + waiting requests).
    /// Events: `PoolReconfigured`, then those of the changes.
    pub fn reconfigure(&mut self, now: Instant, config: MuxConfig, observer: &mut impl Observer<MuxEvent>) {
        let now = self.advance(now);
        if self.closed {
            return;
        }
        self.config = config.with_streams(self.config.options().streams_per_connection);
        observer.on_event(now, &MuxEvent::PoolReconfigured { mux: self.id, config: self.config });
        self.apply_limits(now, observer);
    }

    /// Replaces all connections: those that exist take no more requests. Call it after a change of what
    /// the driver does when it establishes a connection.
    ///
    /// Established connections, trashed ones included, are retired: the requests in flight on them are
    /// answered, then they are closed. Connections that the driver is establishing are abandoned. A
    /// connection whose `Establish` was not polled stays, because the driver has not begun it. The pause
    /// after a failure ends, because its cause may be gone. Requests wait until one of the
    /// others is established.
    ///
    /// Cost: O(connections). Owes a `Close` for each connection without requests, and an `Establish` for
    /// each of `core_connections`; the pool grows again with its load.
    /// Events: `ConnectionRetired`, `ConnectionClosed`, `ConnectionCreated`.
    pub fn replace_connections(&mut self, now: Instant, observer: &mut impl Observer<MuxEvent>) {
        let now = self.advance(now);
        self.pause = None;
        self.retire_all(now, observer);
        self.open_needed(now, false, observer);
        self.fail_if_down(now, observer);
    }

    /// Closes the pool permanently: closes every connection, with the requests on it, and fails
    /// every waiting request.
    ///
    /// Cost: O(connections + waiting requests). Owes a `Close` for each connection and a `Wake` for
    /// each waiting request.
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

    /// Completes the establishment of a connection. Waiting requests take the connection at once.
    ///
    /// Cost: O(requests that it takes). Owes their `Wake`s, and the `Establish` that the load still
    /// requires.
    /// Events: `ConnectionReady`, `StreamAcquired`, `ConnectionCreated`.
    ///
    /// # Errors
    ///
    /// [`Stale`]: the connection was abandoned in the meantime. Drop the socket.
    pub fn handle_established(
        &mut self,
        now: Instant,
        conn: MuxConnId,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Result<(), Stale> {
        let now = self.advance(now);
        let index = self.establishing(conn).ok_or(Stale)?;
        // The pause after a connection was lost goes on: it began after this attempt.
        self.pause = self.pause.filter(|pause| pause.is_lost);
        self.is_reported_up = false;
        self.conns.move_to(index, conn::OPEN);
        let slot = self.conns.get_mut(index);
        (slot.received_at, slot.heartbeat_at) = (now, now);
        let duration = now.saturating_since(slot.created.0);
        observer.on_event(now, &MuxEvent::ConnectionReady { mux: self.id, conn, duration });
        self.arm_shrinking(now);
        self.serve(now, observer);
        self.open_needed(now, false, observer);
        Ok(())
    }

    /// Handles a failure to establish a connection.
    ///
    /// The next attempt is made after a pause, which doubles from
    /// [`backoff_min`](MuxOptions::backoff_min) to [`backoff_max`](MuxOptions::backoff_max) until a new
    /// connection receives a reply; [`Mux::handle_host_up`] shortens it. If no other connection is open or
    /// pending, waiting requests fail.
    ///
    /// Cost: O(waiting requests). Owes their `Wake`s. Events: `ConnectionClosed`, `AcquireFailed`.
    ///
    /// # Errors
    ///
    /// [`Stale`]: the connection was abandoned in the meantime.
    pub fn handle_establish_failed(
        &mut self,
        now: Instant,
        conn: MuxConnId,
        cause: Cause,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Result<(), Stale> {
        let now = self.advance(now);
        let index = self.establishing(conn).ok_or(Stale)?;
        self.note_failure(now, cause, false);
        self.drop_conn(now, index, MuxClosed::Error(cause), observer);
        // A trashed connection may replace it.
        self.open_needed(now, false, observer);
        self.fail_if_down(now, observer);
        Ok(())
    }

    /// Handles a report that the host accepts connections: shortens the pause after a failure to at
    /// most 250 ms, also if the connection that is being established fails later.
    ///
    /// Cost: O(connections). Owes at most an `Establish` for each connection that the load requires.
    /// Events: `ConnectionCreated`.
    pub fn handle_host_up(&mut self, now: Instant, observer: &mut impl Observer<MuxEvent>) {
        let now = self.advance(now);
        self.is_reported_up = self.pending_count() > 0;
        if let Some(pause) = &mut self.pause {
            pause.until = pause.until.min(pause.at.saturating_add(BACKOFF_UP));
        }
        self.open_needed(now, false, observer);
    }

    /// Handles the failure of a connection: closes it, and fails the requests on it.
    ///
    /// The next connection is opened after a pause, and requests wait for it: a host that shuts down may
    /// accept a connection at once, and refuse all requests on it. The pause grows from
    /// [`backoff_min`](MuxOptions::backoff_min) to [`backoff_max`](MuxOptions::backoff_max) until a new
    /// connection receives a reply.
    ///
    /// Cost: O(connections + waiting requests). Owes its `Close`, and the `Wake`s of requests that a
    /// resurrected connection takes.
    /// Events: `ConnectionClosed`, `ConnectionResurrected`, `StreamAcquired`, `AcquireFailed`.
    ///
    /// # Errors
    ///
    /// [`Stale`]: the connection had already left the pool.
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

    /// Records that bytes were received on a connection, which proves that the peer is alive. The
    /// bytes need not be a whole reply.
    ///
    /// The timeout of a heartbeat in flight starts anew, because its reply may follow many other
    /// bytes.
    ///
    /// Cost: O(1), no allocation. Owes nothing. Events: none.
    ///
    /// # Errors
    ///
    /// [`Stale`]: the connection had already left the pool.
    pub fn handle_received(&mut self, now: Instant, conn: MuxConnId) -> Result<(), Stale> {
        let now = self.advance(now);
        let index = self.established(conn).ok_or(Stale)?;
        let slot = self.conns.get_mut(index);
        slot.received_at = now;
        if let Some(heartbeat) = slot.heartbeat.as_mut().filter(|heartbeat| heartbeat.polled) {
            heartbeat.asked = now;
        }
        Ok(())
    }

    /// Handles a reply on a connection.
    ///
    /// - `stream`: the stream id as it was read, unchecked.
    ///
    /// Cost: O(1), and O(connections) when requests wait; no allocation. Owes at most one `Wake`,
    /// one `Close`.
    /// Events: `ReplyReceived`, `LateReply`, or `HeartbeatSucceeded`; or `UnknownReply` and
    /// `ConnectionClosed`.
    ///
    /// # Errors
    ///
    /// [`ReplyError::Unknown`]: no request waits for the reply; the connection is closed, and the
    /// requests on it fail. [`ReplyError::Stale`]: the connection had already left the pool.
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
        slot.received_at = now;
        if let Some(heartbeat) = slot.heartbeat.filter(|heartbeat| heartbeat.stream == id) {
            if !heartbeat.polled {
                // The heartbeat has not been sent yet, so this cannot be its reply.
                return Err(self.refuse_reply(now, index, stream, observer));
            }
            let duration = now.saturating_since(slot.heartbeat_at);
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

    /// The options in force.
    #[must_use]
    pub const fn config(&self) -> &MuxConfig {
        &self.config
    }

    /// Whether the pool was closed.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether there is a pause before the next attempt to connect. While this is true, a rise of the load
    /// can make the attempt due without a timeout.
    #[doc(hidden)]
    pub const fn has_failed(&self) -> bool {
        self.pause.is_some()
    }

    /// Whether some connection has no free stream id. Until one is free, no heartbeat can be sent
    /// on it.
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

    /// The state of the pool. Cost: O(connections).
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
                    let kept = u32::from(self.keeps_first && streams.ids() > 1);
                    capacity = capacity.saturating_add(max.min(streams.ids() - streams.late_count() - kept));
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

    /// The number of requests in flight on a connection; `None` after it was closed, whether or not
    /// its `Close` was polled.
    #[must_use]
    pub fn conn_in_flight(&self, conn: MuxConnId) -> Option<u32> {
        let index = self.conns.find(conn.0).filter(|index| self.conns.list_of(*index) != conn::OWES_CLOSE)?;
        Some(self.conns.get(index).in_flight)
    }

    /// Calls `visit` with each established connection, the number of requests in flight on it, and
    /// whether it takes more.
    pub fn for_each_conn(&self, mut visit: impl FnMut(MuxConnId, u32, bool)) {
        for list in [conn::OPEN, conn::TRASHED, conn::RETIRED] {
            self.for_each(list, |index| {
                visit(MuxConnId(self.conns.key(index)), self.conns.get(index).in_flight, list == conn::OPEN);
            });
        }
    }

    /// Records the first reply on a connection, which proves that the host serves requests.
    #[inline]
    fn note_reply(&mut self, index: u32) {
        if !core::mem::replace(&mut self.conns.get_mut(index).answered, true) {
            self.backoff = Duration::ZERO;
        }
    }

    /// Returns the time of this call, which is never earlier than that of the last call.
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

impl<M: MuxMemory> Mux<M> {
    /// Fails requests that waited too long, trashes and closes surplus connections, starts
    /// heartbeats, and opens connections after the pauses that follow failures.
    ///
    /// Cost: O(connections^2), and O(log n) for each affected waiting request.
    pub fn handle_timeout(&mut self, now: Instant, observer: &mut impl Observer<MuxEvent>) {
        let now = self.advance(now);
        self.expire(now, observer);
    }

    /// The next action owed to the host, or `None`. Cost: O(1).
    pub fn poll_action(&mut self, _now: Instant) -> Option<MuxAction> {
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

    /// The earliest instant at which work is due; `None` if and only if no work is due at any time.
    ///
    /// After `handle_timeout(t)` it is later than `t`, or `None`.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.next_timeout()
    }

    /// Checks every internal invariant, O(n). For tests, fuzzing and simulation.
    ///
    /// # Panics
    ///
    /// Panics when an invariant is broken, which is a bug in this crate.
    pub fn assert_invariants(&self) {
        self.check();
    }
}

impl<M: MuxMemory> Hash for Mux<M> {
    /// The hash leaves out the stream ids of closed connections, and the maximum in flight of a
    /// pool that does not shrink, because they do not affect later results.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { id, config, closed, now, conns, streams, waiters, deadlines, in_flight, in_flight_max, .. } = self;
        let Self { shrink_at, pause, is_reported_up, backoff, entropy, heartbeats_owed, keeps_first, .. } = self;
        let in_flight_max = shrink_at.map(|_| in_flight_max);
        (id, config, closed, now, conns, waiters, deadlines, in_flight, in_flight_max).hash(state);
        (shrink_at, pause, is_reported_up, backoff, entropy, heartbeats_owed, keeps_first).hash(state);
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
