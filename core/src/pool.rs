//! MongoDB's connection pool (CMAP) as a state machine.
//!
//! Read first: CMAP, "Connection Pool", "Checking Out a Connection", "Clearing a Connection Pool".
//!
//! # One check-out
//!
//! [`Pool::check_out`] takes an available connection, the newest one by default:
//! [`CheckOut::Granted`]. If none is available, the request becomes a waiter: [`CheckOut::Queued`].
//! While `maxPoolSize` and `maxConnecting` allow it, a connection is created for the oldest waiter
//! that has no pending connection: the two are bound, and the pool owes [`PoolAction::Establish`].
//!
//! Connections are handed out in the order of the queue: an established or returned connection goes
//! to the oldest waiter W, bound or not. If W was bound to another, pending connection, that
//! connection is bound anew: to the waiter that the handed-out connection had been established for,
//! or else to the oldest unbound waiter. So no pending connection is without a waiter while an
//! unbound waiter exists, and a waiter once bound stays bound.
//!
//! The verdict of a waiter stays in its slot until [`Pool::claim`] or [`Pool::cancel`] takes it.
//! [`PoolAction::Wake`] reports that the verdict is available.
//!
//! # States
//!
//! A connection is on exactly one list, and the list is its state:
//!
//! ```text
//! (created) -> OWES_ESTABLISH -> ESTABLISHING -> AVAILABLE <-> IN_USE <-> OWES_INTERRUPT
//!                    |                |              |            |              |
//!                  (gone)       OWES_ABANDON     OWES_CLOSE   OWES_CLOSE     OWES_CLOSE  -> (gone, once polled)
//! ```
//!
//! The first two are pending; the first five count towards `maxPoolSize`.
//!
//! # Cost
//!
//! With a connection available and no waiter, a check-out and a check-in take some 120 instructions
//! together on x86-64, on the heap and in fixed memory. This path has no function call and no
//! allocation. `tests/scripts/instructions` counts the instructions and fails when they grow.
//! Services, pools without background work, perished connections and waiters take a path that is
//! not inlined. A host with a costly clock calls [`Pool::check_out_with`] and
//! [`Pool::check_in_with`], which read the clock only where the time matters.
//!
//! # Settled where the specification is silent or disagrees with its tests
//!
//! - Error texts are those of the specification's tests: "a connection" in lower case (1). A number
//!   in parentheses is that of an ambiguity in the list of requirements.
//! - A failed connection is subtracted from each count once (2). The report of a failure includes
//!   whether it clears the pool, so the order of events is PoolCleared, ConnectionClosed,
//!   ConnectionCheckOutFailed (3).
//! - A clear with the interrupt flag also interrupts pending connections (4). A clear without it
//!   lets them finish and then closes them as stale; their waiters fail at once like all others
//!   (5).
//! - A connection is stale if its generation differs from the pool's (6).
//! - In the background, one connection is established at a time, and never more than `minPoolSize`
//!   or the fill target requires (16). After a failure that did not clear the pool, the next
//!   attempt waits 100 ms; the pause doubles with each failure, up to 10 s. In any second, at most
//!   as many connections are opened in the background as it keeps, however fast they are closed:
//!   after that many without a pause of a second, the next attempt waits for the end of such a pause.
//! - A cancelled check-out emits ConnectionCheckOutFailed(connectionError) with
//!   [`CheckOutError::Cancelled`]. If it had been granted a connection, it emits
//!   ConnectionCheckedIn.
//! - Closing the pool abandons pending connections.
//! - A check-out with its own deadline is bounded only by that deadline, for waiting and
//!   establishing together. `waitQueueTimeoutMS` bounds the waiting of check-outs without a
//!   deadline.
//! - The host bounds the time of establishing: the whole by connectTimeoutMS; each command of the
//!   handshake by timeoutMS, or by socketTimeoutMS where timeoutMS is not set, or by the deadline
//!   of the waiter, if that is later. The earliest limit applies, and zero means no limit.
//! - The options of an existing pool can be changed: see [`Pool::reconfigure`]. A pool can be
//!   filled beyond `minPoolSize`, once: see [`Pool::set_fill_target`].
//! - A deadline has passed when `now` equals it. If the clock goes back, the last value is used.

mod check;
mod clear;
mod error;
mod event;
mod fill;
mod memory;
mod options;
mod reconfigure;
mod serve;
#[cfg(test)]
mod tests;
mod types;

pub use crate::machine::Stale;
pub use error::{CheckOutError, ForeignLease, ServiceError, Usage, WrongMode};
pub use event::{CheckOutFailedReason, ClosedReason, PoolEvent};
#[cfg(feature = "alloc")]
pub use memory::OnHeap;
pub use memory::{Fixed, Memory};
pub use options::{PoolConfig, PoolOptions, Reuse};
pub use types::{
    CheckOut, Claim, Clear, ConnId, EstablishError, Generation, Health, Lease, Pinned, PoolAction, PoolCounts, PoolId,
    PoolState, WaiterId,
};

use crate::hooks::{Point, fires};
use crate::machine::Observer;
use crate::storage::Full;
use crate::storage::table::{NIL, Table};
use crate::{Cause, Instant, ObjectId};
use core::fmt;
use core::time::Duration;
use memory::{ConnSlot, Conns, Fate, ServiceSlot, Services, Verdict, WaiterDeadlines, WaiterSlot, Waiters};

/// The lists of connections. The list that a connection is on is its state.
mod conn {
    pub(super) const OWES_ESTABLISH: u8 = 0;
    pub(super) const ESTABLISHING: u8 = 1;
    pub(super) const AVAILABLE: u8 = 2;
    pub(super) const IN_USE: u8 = 3;
    pub(super) const OWES_INTERRUPT: u8 = 4;
    pub(super) const OWES_ABANDON: u8 = 5;
    pub(super) const OWES_CLOSE: u8 = 6;
    pub(super) const LISTS: usize = 7;
}

/// The lists of waiters. The list that a waiter is on is its state. Every bound waiter is older
/// than every unbound one.
mod waiter {
    pub(super) const UNBOUND: u8 = 0;
    pub(super) const BOUND: u8 = 1;
    pub(super) const OWES_WAKE: u8 = 2;
    pub(super) const SETTLED: u8 = 3;
    pub(super) const LISTS: usize = 4;
}

/// A connection pool to one server. See the [module](self) for how it works.
///
/// Two pools are equal if all of their state is equal: clock, options, and the same connections and
/// check-outs with the same ids in the same slots. Equal pools return the same results for the same
/// calls. A clone accepts the ids and leases of its original; later changes of one do not affect
/// the other.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Pool<M: Memory> {
    id: PoolId,
    config: PoolConfig,
    state: PoolState,
    now: Instant,
    generation: Generation,
    conns: Conns<M, { conn::LISTS }>,
    waiters: Waiters<M, { waiter::LISTS }>,
    services: Services<M>,
    deadlines: WaiterDeadlines<M>,
    /// The error that the pool was cleared with. Unset by the next [`Pool::ready`].
    cleared_by: Option<Cause>,
    /// The connection that is being established in the background, or `NIL`.
    background: u32,
    /// The earliest time of the next background attempt; set after a failed one.
    populate_at: Option<Instant>,
    backoff: Duration,
    /// The number of connections opened in the background, each less than a second after the one
    /// before it.
    opened: u32,
    /// The time at which the last one was opened.
    opened_at: Instant,
    /// The number of connections that the pool is filled to once; 0 means no target. See
    /// [`Pool::set_fill_target`].
    fill_target: u32,
    /// Whether available connections may be stale.
    sweep_due: bool,
    /// Whether a connection slot was freed while a waiter or the background population lacked one.
    serve_due: bool,
    /// Whether the limits were lowered, so they may be exceeded now.
    shrunk: bool,
    /// Whether a call since the last [`Pool::take_changed`] may have changed the owed actions or
    /// the timeout.
    is_changed: bool,
    /// The numbers of leases pinned to cursors and to transactions.
    pinned: [u32; 2],
}

/// The pause before the next background attempt after a failure. It doubles up to `BACKOFF_LAST`.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_LAST: Duration = Duration::from_secs(10);

/// The time in which the background opens at most as many connections as it keeps.
const RATE_PERIOD: Duration = Duration::from_secs(1);

impl<M: Memory> Pool<M> {
    /// Creates a pool: paused, generation 0, without connections.
    ///
    /// - `id`: the host's number for the pool.
    ///
    /// Cost: O(1), no allocation. Events: `PoolCreated`.
    ///
    /// # Panics
    ///
    /// If the pool is load-balanced and its memory has no slots for services.
    ///
    /// Source: CMAP, "Creating a Connection Pool".
    pub fn new(now: Instant, id: PoolId, config: PoolConfig, observer: &mut impl Observer<PoolEvent>) -> Self {
        let services = Services::<M>::empty();
        assert!(!config.options.load_balanced || services.limit() > 0, "a load-balanced pool has slots for services");
        observer.on_event(now, &PoolEvent::PoolCreated { pool: id, options: config.options });
        Self {
            id,
            config,
            state: PoolState::Paused,
            now,
            generation: Generation(0),
            conns: Table::empty(),
            waiters: Table::empty(),
            services,
            deadlines: WaiterDeadlines::<M>::empty(),
            cleared_by: None,
            background: NIL,
            populate_at: None,
            backoff: BACKOFF_FIRST,
            opened: 0,
            opened_at: now,
            fill_target: 0,
            sweep_due: false,
            serve_due: false,
            shrunk: false,
            is_changed: true,
            pinned: [0; 2],
        }
    }

    /// Creates a closed pool.
    #[doc(hidden)]
    #[inline]
    pub fn closed() -> Self {
        let new = Self::new(Instant::ORIGIN, PoolId::new(0), PoolConfig::DEFAULT, &mut ());
        Self { state: PoolState::Closed, ..new }
    }

    /// Reserves memory for this many connections and waiting check-outs, so nothing is allocated up
    /// to these numbers.
    ///
    /// # Errors
    ///
    /// [`Full`] when the allocator refuses. A number beyond a fixed capacity is no error.
    pub fn reserve(&mut self, conns: u32, waiters: u32) -> Result<(), Full> {
        self.conns.reserve(conns)?;
        self.waiters.reserve(waiters)?;
        self.deadlines.reserve(waiters)
    }

    /// Checks out a connection, or enters the wait queue.
    ///
    /// `Available -> InUse` for an available connection that has not perished, the newest one by
    /// default ([`PoolOptions::reuse`]); perished ones found first are closed. If no connection is
    /// available, the request waits, and a connection may be created for it.
    ///
    /// - `now`: from the same clock as in all other calls; if it goes back, the last value is used.
    /// - `deadline`: the caller's own, for waiting and establishing together. Without one,
    ///   `waitQueueTimeoutMS` applies until a connection is being established for the request.
    ///
    /// Cost: O(1) without allocation when a connection is available; otherwise O(log n) in the
    /// number of waiters, and O(pending) when a pending connection has no waiter. Owes at most one
    /// `Establish`, and a `Close` for each perished connection.
    /// Events: `ConnectionCheckOutStarted`, `ConnectionClosed` of perished ones, then
    /// `ConnectionCheckedOut`, `ConnectionCheckOutFailed` or neither, and `ConnectionCreated`.
    ///
    /// # Errors
    ///
    /// [`CheckOutError`]: the pool is closed or paused; the deadline has passed and no connection
    /// is available; or no slot for a waiter is left.
    ///
    /// Source: CMAP, "Checking Out a Connection".
    #[inline(always)]
    pub fn check_out(
        &mut self,
        now: Instant,
        deadline: Option<Instant>,
        observer: &mut impl Observer<PoolEvent>,
    ) -> Result<CheckOut, CheckOutError> {
        let now = self.advance(now);
        self.check_out_with(|| now, |_| deadline, observer)
    }

    /// [`Pool::check_out`] with a clock instead of the time, for hosts with a costly clock.
    ///
    /// - `deadline`: called with the time if no connection is available.
    ///
    /// The clock is read at most once. It is not read if a current connection is available, the
    /// pool works in the background and reuses the newest connection, `maxIdleTimeMS` is not set
    /// and the observer is not [enabled](Observer::is_enabled). The time of the call is then that
    /// of the last reading.
    ///
    /// # Errors
    ///
    /// As [`Pool::check_out`].
    #[inline(always)]
    pub fn check_out_with(
        &mut self,
        clock: impl FnOnce() -> Instant,
        deadline: impl FnOnce(Instant) -> Option<Instant>,
        observer: &mut impl Observer<PoolEvent>,
    ) -> Result<CheckOut, CheckOutError> {
        let Some(available_since) = self.newest_current() else {
            let now = clock();
            return self.find_or_wait(now, deadline(now), observer);
        };
        let mut now = self.now;
        if self.is_timed(observer) {
            now = self.advance(clock());
            if self.is_idle_too_long(now, available_since) {
                return self.find_or_wait(now, deadline(now), observer);
            }
        }
        let Some(key) = self.conns.transfer_back(conn::AVAILABLE, conn::IN_USE) else {
            return self.find_or_wait(now, deadline(now), observer);
        };
        let lease = Lease { conn: ConnId(key), pool: self.id };
        if observer.is_enabled() {
            observer.on_event(now, &PoolEvent::ConnectionCheckOutStarted { pool: self.id });
            self.emit_granted(now, &lease, observer);
        }
        Ok(CheckOut::Granted(lease))
    }

    /// Takes the outcome of a check-out that waited.
    ///
    /// After it returns anything but [`Claim::Waiting`], the id is no longer valid.
    ///
    /// Cost: O(1), no allocation. Revokes the `Wake` that is owed.
    /// Events: none; they were emitted when the outcome was decided.
    ///
    /// Source: CMAP, "Checking Out a Connection".
    pub fn claim(&mut self, now: Instant, waiter: WaiterId) -> Claim {
        self.advance(now);
        let Some(index) = self.waiters.find(waiter.0) else { return Claim::Stale };
        let claim = match self.waiters.at(index).map_or(Verdict::Waiting, |slot| slot.verdict) {
            Verdict::Waiting => return Claim::Waiting,
            Verdict::Granted(conn) => Claim::Granted(Lease { conn, pool: self.id }),
            Verdict::Failed(error) => Claim::Failed(error),
        };
        self.waiters.remove(index);
        claim
    }

    /// Cancels a check-out that waited, whatever its outcome.
    ///
    /// If it still waits, it leaves the queue, and a connection that is being established for it
    /// goes to the oldest waiter without a pending connection. If it was granted a connection, the
    /// connection is checked in. An id that is no longer valid has no effect.
    ///
    /// Cost: O(log n) in the number of waiters, no allocation. Owes at most one `Wake`, one `Close`
    /// and one `Establish`.
    /// Events: `ConnectionCheckOutFailed`, or those of [`Pool::check_in`], or none.
    ///
    /// Source: an extension; the specification has no cancellation.
    pub fn cancel(&mut self, now: Instant, waiter: WaiterId, observer: &mut impl Observer<PoolEvent>) {
        self.advance(now);
        let Some(index) = self.waiters.find(waiter.0) else { return };
        let now = self.begin(now, observer);
        match self.waiters.get(index).verdict {
            Verdict::Waiting => {
                self.record_outcome(now, index, Verdict::Failed(CheckOutError::Cancelled), observer);
                self.waiters.remove(index);
            }
            Verdict::Failed(_) => self.waiters.remove(index),
            Verdict::Granted(conn) => {
                self.waiters.remove(index);
                self.return_conn(now, conn.0.index(), Health::Healthy, observer);
            }
        }
    }

    /// Returns a leased connection to the pool.
    ///
    /// `InUse -> InUse` when a waiter takes the connection, `InUse -> Available` when no check-out
    /// waits, or `InUse -> OwesClose` when the connection is broken, stale or interrupted, or the
    /// pool is closed.
    ///
    /// - `lease`: consumed.
    /// - `health`: [`Health::Broken`] after any network or protocol error.
    ///
    /// Cost: O(1), no allocation; O(log n) in the number of waiters when a check-out waits. Owes at
    /// most one `Close` and one `Wake`.
    /// Events: `ConnectionCheckedIn`, then `ConnectionCheckedOut` of the oldest waiter, or
    /// `ConnectionClosed` and perhaps `ConnectionCreated`.
    ///
    /// # Errors
    ///
    /// [`ForeignLease`]: another pool issued the lease. Nothing changed; the error contains the
    /// lease.
    ///
    /// Source: CMAP, "Checking In a Connection".
    #[inline(always)]
    pub fn check_in(
        &mut self,
        now: Instant,
        lease: Lease,
        health: Health,
        observer: &mut impl Observer<PoolEvent>,
    ) -> Result<(), ForeignLease> {
        let now = self.advance(now);
        self.check_in_with(|| now, lease, health, observer)
    }

    /// [`Pool::check_in`] with a clock instead of the time, for hosts with a costly clock.
    ///
    /// The clock is read at most once. It is not read if the connection becomes available or goes to
    /// a waiter, no waiter has a time limit, `maxIdleTimeMS` is not set and the observer is not
    /// [enabled](Observer::is_enabled). The time of the call is then that of the last reading.
    ///
    /// # Errors
    ///
    /// As [`Pool::check_in`].
    #[inline(always)]
    pub fn check_in_with(
        &mut self,
        clock: impl FnOnce() -> Instant,
        lease: Lease,
        health: Health,
        observer: &mut impl Observer<PoolEvent>,
    ) -> Result<(), ForeignLease> {
        let conn = lease.conn;
        if self.has_waiters() || !self.is_reusable(&lease, health) {
            let Some(index) = self.leased(&lease) else { return Err(ForeignLease(lease)) };
            let is_timed = self.deadlines.earliest().is_some() || self.is_timed(observer);
            let now = if is_timed || !self.is_reusable(&lease, health) { clock() } else { self.now };
            self.return_conn(now, index, health, observer);
            return Ok(());
        }
        let mut now = self.now;
        if self.is_timed(observer) {
            now = self.advance(clock());
            // Only the connection that has been available for longest determines the time of the
            // next idle expiry.
            self.is_changed |= self.config.idle_ns > 0 && self.conns.len(conn::AVAILABLE) == 0;
        }
        if let Some(slot) = self.conns.at_mut(conn.index()) {
            slot.available_since = now;
        }
        self.conns.transfer(conn.index(), conn::IN_USE, conn::AVAILABLE);
        if observer.is_enabled() {
            observer.on_event(now, &PoolEvent::ConnectionCheckedIn { pool: self.id, conn });
        }
        Ok(())
    }

    /// Marks the pool as ready to hand out connections, and fills it to `minPoolSize`.
    ///
    /// `Paused -> Ready`. No effect on a ready or a closed pool: closed is final.
    ///
    /// Cost: O(1). Owes at most one `Establish`.
    /// Events: `PoolReady`, then perhaps `ConnectionCreated`.
    ///
    /// Source: CMAP, "Marking a Connection Pool as Ready".
    pub fn ready(&mut self, now: Instant, observer: &mut impl Observer<PoolEvent>) {
        self.advance(now);
        if self.state != PoolState::Paused {
            return;
        }
        let now = self.begin(now, observer);
        self.state = PoolState::Ready;
        self.cleared_by = None;
        observer.on_event(now, &PoolEvent::PoolReady { pool: self.id });
        if self.is_in_background() {
            self.populate(now, observer);
        }
    }

    /// Records the service of a connection, from its hello reply. Call it before
    /// [`Pool::handle_established`].
    ///
    /// The connection takes the generation of its service, which is returned.
    ///
    /// Cost: O(services).
    ///
    /// # Errors
    ///
    /// [`ServiceError`]: the connection is no longer being established, the pool is not
    /// load-balanced, or no slot for another service is left.
    ///
    /// Source: CMAP, "Load Balancer Mode".
    pub fn handle_service(&mut self, conn: ConnId, service_id: ObjectId) -> Result<Generation, ServiceError> {
        if !self.is_load_balanced() {
            return Err(ServiceError::WrongMode);
        }
        let index = self.pending(conn).ok_or(ServiceError::Stale)?;
        if self.conns.get(index).service != NIL {
            return Ok(self.conns.get(index).generation);
        }
        let service = match self.service(service_id) {
            Some(service) => service,
            None => {
                let slot = ServiceSlot { id: service_id, generation: Generation(0), count: 0 };
                self.services.insert(0, slot).map_err(|Full| ServiceError::Full)?.index()
            }
        };
        let slot = self.services.get_mut(service);
        slot.count += 1;
        let generation = slot.generation;
        let conn = self.conns.get_mut(index);
        conn.service = service;
        conn.generation = generation;
        Ok(generation)
    }

    /// Completes the establishment of a connection. Before the call, the host stores the socket in
    /// its table at the connection's slot index.
    ///
    /// `Establishing -> InUse` when a check-out waits, `Establishing -> Available` otherwise.
    ///
    /// Cost: O(log n) in the number of waiters. Owes at most one `Wake`, and an `Establish` for
    /// each further connection that the limits allow.
    /// Events: `ConnectionReady`, then perhaps `ConnectionCheckedOut` and `ConnectionCreated`; or
    /// `ConnectionClosed`.
    ///
    /// # Errors
    ///
    /// [`Stale`]: the pool was cleared or closed in the meantime, or is load-balanced and the
    /// service was not recorded. The connection has left the pool; drop the socket.
    ///
    /// Source: CMAP, "Establishing a Connection".
    pub fn handle_established(
        &mut self,
        now: Instant,
        conn: ConnId,
        observer: &mut impl Observer<PoolEvent>,
    ) -> Result<(), Stale> {
        self.advance(now);
        let index = self.pending(conn).ok_or(Stale)?;
        let now = self.begin(now, observer);
        if self.background == index {
            self.note_opened(now);
        }
        let slot = *self.conns.get(index);
        if self.is_load_balanced() && slot.service == NIL {
            let cause = Cause::MissingServiceId;
            let error = EstablishError { cause, overloaded: false, clear: None };
            self.handle_establish_failed(now, conn, error, observer)?;
            return Err(Stale);
        }
        if self.is_stale(&slot) {
            let cause = self.cleared_by;
            self.drop_pending(now, index, ClosedReason::Stale, None, CheckOutError::PoolCleared { cause }, observer);
            self.serve(now, observer);
            return Err(Stale);
        }
        let duration = now.saturating_since(slot.created.0);
        observer.on_event(now, &PoolEvent::ConnectionReady { pool: self.id, conn, duration });
        if self.background == index {
            self.background = NIL;
            self.backoff = BACKOFF_FIRST;
            self.populate_at = None;
        }
        self.hand_over(now, index, observer);
        self.serve(now, observer);
        Ok(())
    }

    /// Handles a failure to establish a connection.
    ///
    /// The connection is closed, and the check-out that is bound to it fails with
    /// [`CheckOutError::EstablishFailed`].
    ///
    /// - `error`: the cause, and whether it clears the pool. The caller decides this before the
    ///   call and marks the server as unknown at the same time.
    ///
    /// Cost: O(log n) in the number of waiters; O(waiters) when it clears the pool. Owes `Wake`s,
    /// and the `Establish` that the freed slot allows.
    /// Events: `PoolCleared` if it clears the pool, `ConnectionClosed`, `ConnectionCheckOutFailed`.
    ///
    /// # Errors
    ///
    /// [`Stale`]: the connection had already left the pool; nothing changed.
    ///
    /// Source: CMAP, "Establishing a Connection".
    pub fn handle_establish_failed(
        &mut self,
        now: Instant,
        conn: ConnId,
        error: EstablishError,
        observer: &mut impl Observer<PoolEvent>,
    ) -> Result<(), Stale> {
        self.advance(now);
        let index = self.pending(conn).ok_or(Stale)?;
        let now = self.begin(now, observer);
        let EstablishError { cause, overloaded, clear } = error;
        // A connection that was created before the last clear does not clear the pool again.
        let clear = clear.filter(|clear| self.is_mode_of(*clear) && !self.is_stale(self.conns.get(index)));
        if let Some(clear) = clear {
            self.begin_clear(now, clear, Some(cause), observer);
        }
        let in_background = self.background == index;
        let failed = CheckOutError::EstablishFailed { cause, overloaded };
        self.drop_pending(now, index, ClosedReason::Error, Some(cause), failed, observer);
        if let Some(clear) = clear {
            self.finish_clear(now, clear, Some(cause), observer);
        }
        if in_background && self.state == PoolState::Ready {
            self.back_off(now);
        }
        self.serve(now, observer);
        Ok(())
    }

    /// Closes a connection as soon as no check-out uses it: at the end of its lifetime, for
    /// example.
    ///
    /// `Available -> OwesClose` at once; a connection in use is closed when it is checked in. A
    /// connection that is being established, and an id that is no longer valid, are not affected.
    ///
    /// Cost: O(1), no allocation. Owes at most one `Close`, and the `Establish` that replaces the
    /// connection.
    /// Events: `ConnectionClosed` with [`ClosedReason::Stale`], then perhaps `ConnectionCreated`.
    ///
    /// Source: an extension; the specification limits only the time that a connection is idle.
    pub fn retire(&mut self, now: Instant, id: ConnId, observer: &mut impl Observer<PoolEvent>) {
        let now = self.begin(now, observer);
        let Some(index) = self.conns.find(id.0) else { return };
        match self.conns.list_of(index) {
            conn::AVAILABLE => {
                self.close_conn(now, index, ClosedReason::Stale, None, observer);
                self.serve(now, observer);
            }
            conn::IN_USE => {
                let slot = self.conns.get_mut(index);
                if slot.fate == Fate::Reusable {
                    slot.fate = Fate::Retired;
                }
            }
            // An interrupted connection is closed at its check-in in any case.
            _ => {}
        }
    }

    /// The times at which the waiting check-outs started, the oldest first.
    ///
    /// Cost: O(1) for each.
    pub fn waiting_since(&self) -> impl Iterator<Item = Instant> + '_ {
        [waiter::BOUND, waiter::UNBOUND].into_iter().flat_map(|list| {
            core::iter::successors(self.waiters.front(list), |index| self.waiters.next(*index))
                .map(|index| self.waiters.get(index).started.0)
        })
    }

    /// Records what a leased connection is pinned to, for the message of the timeout error in
    /// load-balanced mode.
    ///
    /// # Errors
    ///
    /// [`Stale`]: another pool issued the lease.
    pub fn pin(&mut self, lease: &Lease, pinned: Pinned) -> Result<(), Stale> {
        let index = self.leased(lease).ok_or(Stale)?;
        self.set_pinned(index, pinned);
        Ok(())
    }

    /// The pool's id.
    #[must_use]
    pub const fn id(&self) -> PoolId {
        self.id
    }

    /// The options in force.
    #[must_use]
    pub const fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// Whether the pool hands out connections.
    #[must_use]
    pub const fn state(&self) -> PoolState {
        self.state
    }

    /// The number of times the pool was cleared. An error of a connection clears the pool only if
    /// the connection's generation equals this one.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// The number of times a service was cleared; 0 for a service without connections.
    #[must_use]
    pub fn service_generation(&self, service_id: ObjectId) -> Generation {
        self.service(service_id).map_or(Generation(0), |service| self.services.get(service).generation)
    }

    /// The generation of a connection, or `None` if it has left the pool.
    #[must_use]
    pub fn conn_generation(&self, conn: ConnId) -> Option<Generation> {
        self.conns.find(conn.0).map(|index| self.conns.get(index).generation)
    }

    /// The service of a connection, or `None` before [`Pool::handle_service`].
    #[must_use]
    pub fn conn_service(&self, conn: ConnId) -> Option<ObjectId> {
        let service = self.conns.get(self.conns.find(conn.0)?).service;
        (service != NIL).then(|| self.services.get(service).id)
    }

    /// The numbers of connections and of waiters. Cost: O(1).
    #[must_use]
    pub const fn counts(&self) -> PoolCounts {
        PoolCounts {
            pending: self.pending_count(),
            available: self.conns.len(conn::AVAILABLE),
            in_use: self.conns.len(conn::IN_USE) + self.conns.len(conn::OWES_INTERRUPT),
            waiting: self.waiters.len(waiter::UNBOUND) + self.waiters.len(waiter::BOUND),
        }
    }

    /// The number of services that have connections, in load-balanced mode.
    #[must_use]
    pub const fn service_count(&self) -> u32 {
        self.services.len(0)
    }

    /// The next connection to establish, or `None`: the [`PoolAction::Establish`] part of
    /// [`Pool::poll_action`], for hosts with workers that fetch their own work.
    #[inline]
    pub fn poll_establish(&mut self) -> Option<ConnId> {
        let index = self.conns.front(conn::OWES_ESTABLISH)?;
        self.conns.move_to(index, conn::ESTABLISHING);
        Some(ConnId(self.conns.key(index)))
    }

    /// Whether [`Pool::poll_establish`] will return a connection.
    #[must_use]
    pub const fn owes_establish(&self) -> bool {
        self.owed_establish_count() > 0
    }

    /// The number of connections that [`Pool::poll_establish`] will return.
    #[doc(hidden)]
    pub const fn owed_establish_count(&self) -> u32 {
        self.conns.len(conn::OWES_ESTABLISH)
    }

    /// Whether a call since the last call of this method may have changed the owed actions or the
    /// timeout. If not, a host that has taken all actions need not poll again.
    #[inline]
    pub const fn take_changed(&mut self) -> bool {
        core::mem::replace(&mut self.is_changed, false)
    }

    /// The next action that is not [`PoolAction::Establish`], or `None`.
    #[inline]
    pub fn poll_prompt(&mut self) -> Option<PoolAction> {
        let owed = [conn::OWES_CLOSE, conn::OWES_INTERRUPT, conn::OWES_ABANDON];
        let puts_off = fires(Point::OtherAction) && owed.into_iter().any(|list| self.conns.len(list) > 0);
        if let Some(index) = self.waiters.front(waiter::OWES_WAKE).filter(|_| !puts_off) {
            self.waiters.transfer(index, waiter::OWES_WAKE, waiter::SETTLED);
            return Some(PoolAction::Wake(WaiterId(self.waiters.key(index))));
        }
        if let Some(index) = self.conns.front(conn::OWES_CLOSE) {
            return Some(PoolAction::Close(self.release(index)));
        }
        if let Some(index) = self.conns.front(conn::OWES_INTERRUPT) {
            self.conns.move_to(index, conn::IN_USE);
            return Some(PoolAction::Interrupt(ConnId(self.conns.key(index))));
        }
        let index = self.conns.front(conn::OWES_ABANDON)?;
        Some(PoolAction::Interrupt(self.release(index)))
    }

    /// Frees the slot of a connection that has left the pool, and returns its id.
    fn release(&mut self, index: u32) -> ConnId {
        let conn = ConnId(self.conns.key(index));
        if !self.conns.has_free_slot() {
            let populates = self.is_in_background() && self.wants_population();
            self.serve_due |= self.waiters.len(waiter::UNBOUND) > 0 || populates;
            self.is_changed |= self.serve_due;
        }
        self.conns.remove(index);
        conn
    }
}

impl<M: Memory> Pool<M> {
    /// Fails expired waiters, closes perished connections, and fills the pool to `minPoolSize`.
    ///
    /// Cost: O(log n) for each affected waiter, O(1) for each affected connection.
    /// Events: `ConnectionCheckOutFailed`, `ConnectionClosed`, `ConnectionCreated`.
    ///
    /// Source: CMAP, "Background Thread" and "WaitQueue".
    pub fn handle_timeout(&mut self, now: Instant, observer: &mut impl Observer<PoolEvent>) {
        let now = self.begin(now, observer);
        if self.is_in_background() {
            self.sweep(now, observer);
        }
        self.serve_due = true;
        self.serve(now, observer);
        self.serve_due = false;
    }

    /// The next action owed to the host, or `None`. Cost: O(1).
    pub fn poll_action(&mut self, _now: Instant) -> Option<PoolAction> {
        self.poll_prompt().or_else(|| self.poll_establish().map(PoolAction::Establish))
    }

    /// The earliest instant at which work is due; `None` if and only if no work is due at any time.
    ///
    /// After `handle_timeout(t)` it is later than `t`, or `None`.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = (self.serve_due && self.could_serve()) || (self.sweep_due && self.is_in_background());
        if due {
            return Some(self.now);
        }
        let deadline = self.deadlines.earliest();
        let idle = self.idle_expiry();
        earlier(earlier(deadline, idle), self.population_due())
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

impl<M: Memory> fmt::Debug for Pool<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("id", &self.id)
            .field("state", &self.state)
            .field("generation", &self.generation.0)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

/// The earlier of two instants, if there is one.
fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
