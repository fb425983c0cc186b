//! Assignment of connections to waiters.

use super::memory::Fate;
use super::{
    CheckOut, CheckOutError, ClosedReason, ConnId, ConnSlot, Health, Lease, Memory, Pinned, Pool, PoolEvent, PoolState,
    Reuse, Usage, Verdict, WaiterId, WaiterSlot, conn, waiter,
};
use crate::hooks::{Point, fires};
use crate::machine::Observer;
use crate::storage::table::NIL;
use crate::time::Past;
use crate::{Cause, Instant, ObjectId};

impl<M: Memory> Pool<M> {
    /// Returns the time of this call, which is never earlier than that of the last call.
    #[inline]
    pub(crate) fn advance(&mut self, now: Instant) -> Instant {
        if now > self.now {
            self.now = now;
        }
        self.now
    }

    /// Begins a call at `now`. Fails expired waiters before the call changes anything else.
    // Devices without a heap have little room: one copy serves all callers.
    #[cfg_attr(feature = "alloc", inline)]
    #[cfg_attr(not(feature = "alloc"), inline(never))]
    pub(super) fn begin(&mut self, now: Instant, observer: &mut impl Observer<PoolEvent>) -> Instant {
        let now = self.advance(now);
        self.is_changed = true;
        if self.oldest_waiter().is_some() && self.deadlines.earliest().is_some_and(|at| at <= now) {
            self.expire(now, observer);
        }
        now
    }

    /// Fails every expired waiter.
    #[cold]
    #[inline(never)]
    fn expire(&mut self, now: Instant, observer: &mut impl Observer<PoolEvent>) {
        while self.deadlines.earliest().is_some_and(|at| at <= now) {
            // Deadlines tend to be in the order of the queue, so the oldest waiter is looked at
            // first.
            let oldest = self.oldest_waiter().filter(|index| self.is_overdue(now, *index));
            let oldest = oldest.filter(|_| !fires(Point::OtherTimeout));
            let Some(index) = oldest.or_else(|| self.deadlines.first()) else { break };
            self.time_out(now, index, observer);
        }
    }

    /// Whether a call must read the clock: `maxIdleTimeMS` is set, or the observer is enabled.
    #[inline(always)]
    pub(super) fn is_timed(&self, observer: &impl Observer<PoolEvent>) -> bool {
        self.config.idle_ns > 0 || observer.is_enabled()
    }

    /// The time at which the newest available connection became available, or `None` if a check-out
    /// cannot take it on the fast path. Without background work, a check-out also populates the
    /// pool, so it takes the slow path.
    #[inline(always)]
    pub(super) fn newest_current(&mut self) -> Option<Instant> {
        if self.state != PoolState::Ready || !self.config.is_plain {
            return None;
        }
        if let Some(oldest) = self.conns.front(conn::AVAILABLE).filter(|_| fires(Point::OldestAvailable)) {
            self.conns.move_to(oldest, conn::AVAILABLE);
        }
        // No check-out waits while a connection is available.
        let newest = self.conns.last(conn::AVAILABLE)?;
        self.is_plainly_current(newest).then_some(newest.available_since)
    }

    /// The available connection that the next check-out takes.
    fn next_available(&self) -> Option<u32> {
        match self.config.options.reuse {
            Reuse::Newest => self.conns.back(conn::AVAILABLE),
            Reuse::Oldest => self.conns.front(conn::AVAILABLE),
        }
    }

    /// Grants the next available connection that has not perished, and closes the perished ones
    /// before it. If none is left, the request waits.
    #[inline(never)]
    pub(super) fn find_or_wait(
        &mut self,
        now: Instant,
        deadline: Option<Instant>,
        observer: &mut impl Observer<PoolEvent>,
    ) -> Result<CheckOut, CheckOutError> {
        let now = self.begin(now, observer);
        observer.on_event(now, &PoolEvent::ConnectionCheckOutStarted { pool: self.id });
        let mut closed = false;
        while let Some(index) = self.next_available().filter(|_| self.state == PoolState::Ready) {
            let Some(reason) = self.conns.at(index).and_then(|slot| self.perished(now, slot)) else {
                let Some(granted) = self.grant_next(now, observer) else { break };
                if !self.is_in_background() {
                    self.populate(now, observer);
                }
                if closed {
                    // Creates connections in the slots of the closed ones.
                    self.serve(now, observer);
                }
                return Ok(CheckOut::Granted(granted));
            };
            self.close_conn(now, index, reason, None, observer);
            closed = true;
        }
        self.enqueue(now, deadline, observer)
    }

    /// Hands out the next available connection, if any.
    fn grant_next(&mut self, now: Instant, observer: &mut impl Observer<PoolEvent>) -> Option<Lease> {
        let index = self.next_available()?;
        self.conns.transfer(index, conn::AVAILABLE, conn::IN_USE);
        let conn = ConnId(self.conns.key(index));
        let lease = Lease { conn, pool: self.id };
        self.emit_granted(now, &lease, observer);
        Some(lease)
    }

    /// Emits the events of a check-out that did not wait.
    #[inline]
    pub(super) fn emit_granted(&self, now: Instant, lease: &Lease, observer: &mut impl Observer<PoolEvent>) {
        let duration = core::time::Duration::ZERO;
        observer.on_event(now, &PoolEvent::ConnectionCheckedOut { pool: self.id, conn: lease.conn, duration });
    }

    /// Adds a check-out to the queue, or refuses it.
    fn enqueue(
        &mut self,
        now: Instant,
        deadline: Option<Instant>,
        observer: &mut impl Observer<PoolEvent>,
    ) -> Result<CheckOut, CheckOutError> {
        let refused = match self.state {
            PoolState::Closed => Some(CheckOutError::PoolClosed),
            PoolState::Paused => Some(CheckOutError::PoolCleared { cause: self.cleared_by }),
            PoolState::Ready if deadline.is_some_and(|deadline| deadline <= now) => {
                Some(CheckOutError::WaitQueueTimeout { usage: self.usage() })
            }
            PoolState::Ready => None,
        };
        let entered = match refused {
            Some(error) => Err(error),
            None => self.enter(now, deadline).ok_or(CheckOutError::Busy { waiting: self.counts().waiting }),
        };
        match entered {
            Ok(id) => {
                self.serve_check_out(now, observer);
                Ok(CheckOut::Queued(id))
            }
            Err(error) => {
                self.refuse(now, error, observer);
                Err(error)
            }
        }
    }

    /// Serves waiters, and populates a pool without background work.
    #[inline]
    fn serve_check_out(&mut self, now: Instant, observer: &mut impl Observer<PoolEvent>) {
        self.serve(now, observer);
        if !self.is_in_background() {
            self.populate(now, observer);
        }
    }

    /// Fails a check-out at once. Then serves waiters, because perished connections may have been
    /// closed.
    #[cold]
    #[inline(never)]
    fn refuse(&mut self, now: Instant, error: CheckOutError, observer: &mut impl Observer<PoolEvent>) {
        self.emit_failed(now, now, error, observer);
        self.serve_check_out(now, observer);
    }

    /// Adds a waiter at the end of the queue; `None` when a table is full.
    fn enter(&mut self, now: Instant, deadline: Option<Instant>) -> Option<WaiterId> {
        let slot = WaiterSlot { started: Past(now), deadline, conn: NIL, verdict: Verdict::Waiting };
        if fires(Point::RefuseWaiter) {
            return None;
        }
        let key = self.waiters.insert(waiter::UNBOUND, slot).ok()?;
        let queue_deadline = || self.config.options.wait_queue_timeout.map(|timeout| now.saturating_add(timeout));
        if let Some(at) = deadline.or_else(queue_deadline) {
            if self.deadlines.insert(key.index(), at).is_err() {
                self.waiters.remove(key.index());
                return None;
            }
        }
        Some(WaiterId(key))
    }

    /// Hands out available connections, then creates connections for waiters and for `minPoolSize`,
    /// within the limits.
    pub(super) fn serve(&mut self, now: Instant, observer: &mut impl Observer<PoolEvent>) {
        if self.state != PoolState::Ready {
            return;
        }
        while self.oldest_waiter().is_some() {
            let Some(index) = self.conns.back(conn::AVAILABLE) else { break };
            match self.conns.at(index).and_then(|slot| self.perished(now, slot)) {
                Some(reason) => self.close_conn(now, index, reason, None, observer),
                None => self.hand_over(now, index, observer),
            }
        }
        while let Some(oldest) = self.next_to_bind(now, observer) {
            let Some(index) = self.pending_without_waiter().or_else(|| self.create(now, observer)) else {
                if !self.is_out_of_memory() {
                    break;
                }
                let error = CheckOutError::EstablishFailed { cause: Cause::Resources, overloaded: false };
                self.record_outcome(now, oldest, Verdict::Failed(error), observer);
                continue;
            };
            self.bind(index, oldest);
            if !self.serve_due && self.waiters.len(waiter::UNBOUND) > 0 && self.may_create() && fires(Point::ServeOne) {
                self.serve_due = true;
                return;
            }
        }
        if self.is_in_background() && (self.fill_target > 0 || self.wants_population()) {
            self.populate(now, observer);
        }
    }

    /// Whether the limits allow one more connection.
    fn may_create(&self) -> bool {
        let options = &self.config.options;
        let max = options.max_pool_size;
        self.pending_count() < options.max_connecting && (max == 0 || self.counts().total() < max)
    }

    /// Whether a waiter or the background population could use a freed slot.
    pub(super) fn could_serve(&self) -> bool {
        let populates = || {
            self.wants_population()
                && self.is_in_background()
                && self.populate_at.is_none()
                && self.rate_ends_at().is_none()
        };
        self.may_create() && self.conns.has_free_slot() && (self.waiters.len(waiter::UNBOUND) > 0 || populates())
    }

    /// Creates a connection if the limits allow it.
    fn create(&mut self, now: Instant, observer: &mut impl Observer<PoolEvent>) -> Option<u32> {
        if !self.may_create() || fires(Point::RefuseConn) {
            return None;
        }
        let key = self.conns.insert(conn::OWES_ESTABLISH, ConnSlot::new(now, self.generation)).ok()?;
        observer.on_event(now, &PoolEvent::ConnectionCreated { pool: self.id, conn: ConnId(key) });
        Some(key.index())
    }

    /// Whether the allocator refused memory. For a call after `create` returned `None`: then all
    /// limits allow one more connection.
    #[cold]
    fn is_out_of_memory(&self) -> bool {
        self.may_create() && self.conns.has_free_slot()
    }

    /// Delays the next background attempt. The delay doubles with each failure.
    pub(super) fn back_off(&mut self, now: Instant) {
        self.populate_at = Some(now.saturating_add(self.backoff));
        self.backoff = (self.backoff * 2).min(super::BACKOFF_LAST);
    }

    /// Establishes one connection in the background if the pool has fewer than `minPoolSize`, or
    /// than the fill target.
    pub(super) fn populate(&mut self, now: Instant, observer: &mut impl Observer<PoolEvent>) {
        if self.fill_target > 0 {
            self.note_filled();
        }
        if self.wants_population() && self.populate_at.is_none_or(|at| at <= now) && self.rate_ends_at().is_none() {
            if self.populate_at.is_none() && self.may_create() && fires(Point::PopulateLater) {
                self.populate_at = Some(now.saturating_add(core::time::Duration::from_millis(1)));
                return;
            }
            self.populate_at = None;
            if let Some(index) = self.create(now, observer) {
                self.background = index;
            } else if self.is_out_of_memory() {
                self.back_off(now);
            }
        }
    }

    /// Counts a connection that was opened in the background.
    pub(super) fn note_opened(&mut self, now: Instant) {
        if self.opened_at.saturating_add(super::RATE_PERIOD) <= now {
            self.opened = 0;
        }
        self.opened = self.opened.saturating_add(1);
        self.opened_at = now;
    }

    /// The end of the pause that keeps the rate: as many connections as the background keeps were
    /// opened, each less than a second after the one before it.
    fn rate_ends_at(&self) -> Option<Instant> {
        let end = self.opened_at.saturating_add(super::RATE_PERIOD);
        (end > self.now && self.opened >= self.population_goal()).then_some(end)
    }

    /// When the background establishes the next connection, if it wants one.
    #[inline]
    pub(super) fn population_due(&self) -> Option<Instant> {
        // A fixed capacity may be lower than `minPoolSize`.
        if !self.wants_population() || !self.is_in_background() || !self.conns.has_free_slot() {
            return None;
        }
        self.populate_at.max(self.rate_ends_at()).or_else(|| self.may_create().then_some(self.now))
    }

    #[inline]
    pub(super) fn wants_population(&self) -> bool {
        // Most pools have no minimum or have reached it, so this is checked first.
        let goal = self.population_goal();
        goal > 0 && self.counts().total() < goal && self.state == PoolState::Ready && self.background == NIL
    }

    /// Hands an established or returned connection to the oldest waiter, or makes it available.
    ///
    /// The oldest waiter may be bound to another connection, and this connection to another waiter.
    /// That connection and that waiter are then bound to each other. A connection that is left over
    /// is bound to the oldest unbound waiter.
    pub(super) fn hand_over(&mut self, now: Instant, index: u32, observer: &mut impl Observer<PoolEvent>) {
        let Some(oldest) = self.oldest_waiter() else {
            if self.is_beyond_max() {
                self.close_conn(now, index, ClosedReason::Idle, None, observer);
                return;
            }
            if let Some(slot) = self.conns.at_mut(index) {
                slot.available_since = now;
                debug_assert!(slot.waiter == NIL, "a connection is bound to a waiter that does not wait");
            }
            self.conns.move_to(index, conn::AVAILABLE);
            return;
        };
        let conn = ConnId(self.conns.key(index));
        let (Some(slot), Some(served)) = (self.conns.at_mut(index), self.waiters.at_mut(oldest)) else { return };
        let left_waiter = core::mem::replace(&mut slot.waiter, NIL);
        let left_conn = core::mem::replace(&mut served.conn, NIL);
        let started = served.started.0;
        served.verdict = Verdict::Granted(conn);
        // The list of connections in use has no order, so a connection that one check-out returns
        // and the next takes need not move.
        if self.conns.list_of(index) != conn::IN_USE {
            self.conns.move_to(index, conn::IN_USE);
        }
        self.deadlines.remove(oldest);
        self.waiters.move_to(oldest, waiter::OWES_WAKE);
        let duration = now.saturating_since(started);
        observer.on_event(now, &PoolEvent::ConnectionCheckedOut { pool: self.id, conn, duration });
        if left_conn != NIL && left_conn != index {
            if left_waiter == NIL {
                self.bind_to_next(now, left_conn, observer);
            } else if let (Some(slot), Some(left)) = (self.conns.at_mut(left_conn), self.waiters.at_mut(left_waiter)) {
                slot.waiter = left_waiter;
                left.conn = left_conn;
            }
        } else {
            debug_assert!(left_waiter == NIL || left_waiter == oldest, "bound waiters are older than unbound ones");
        }
    }

    /// The waiter that is served next.
    pub(super) fn oldest_waiter(&self) -> Option<u32> {
        self.waiters.front(waiter::BOUND).or_else(|| self.waiters.front(waiter::UNBOUND))
    }

    /// Binds a pending connection without a waiter to the oldest unbound waiter.
    fn bind_to_next(&mut self, now: Instant, index: u32, observer: &mut impl Observer<PoolEvent>) {
        self.conns.get_mut(index).waiter = NIL;
        if self.is_stale(self.conns.get(index)) {
            return;
        }
        if let Some(next) = self.next_to_bind(now, observer) {
            self.bind(index, next);
        }
    }

    /// The oldest unbound waiter that has not expired. Expired waiters before it fail.
    fn next_to_bind(&mut self, now: Instant, observer: &mut impl Observer<PoolEvent>) -> Option<u32> {
        loop {
            let oldest = self.waiters.front(waiter::UNBOUND)?;
            if !self.is_overdue(now, oldest) {
                return Some(oldest);
            }
            self.time_out(now, oldest, observer);
        }
    }

    #[inline]
    pub(super) fn is_overdue(&self, now: Instant, waiting: u32) -> bool {
        self.deadlines.of(waiting).is_some_and(|at| at <= now)
    }

    /// The deadline of the waiter that a pending connection is bound to; `None` if it is bound to
    /// no waiter or the waiter has no deadline. Expired waiters fail first, so the connection may
    /// then be bound to another waiter.
    #[doc(hidden)]
    pub fn waiter_deadline(
        &mut self,
        now: Instant,
        conn: ConnId,
        observer: &mut impl Observer<PoolEvent>,
    ) -> Option<Instant> {
        self.begin(now, observer);
        let waiting = self.conns.at(self.pending(conn)?)?.waiter;
        self.waiters.at(waiting)?.deadline
    }

    /// Fails an expired waiter.
    pub(super) fn time_out(&mut self, now: Instant, index: u32, observer: &mut impl Observer<PoolEvent>) {
        let usage = self.usage();
        self.record_outcome(now, index, Verdict::Failed(CheckOutError::WaitQueueTimeout { usage }), observer);
    }

    /// A pending connection without a waiter that a waiter can use. Cost: O(pending) if one exists.
    fn pending_without_waiter(&self) -> Option<u32> {
        if self.pending_count() == self.waiters.len(waiter::BOUND) + u32::from(self.background != NIL) {
            return None;
        }
        for list in [conn::ESTABLISHING, conn::OWES_ESTABLISH] {
            let mut at = self.conns.front(list);
            while let Some(index) = at {
                let slot = self.conns.get(index);
                if slot.waiter == NIL && index != self.background && !self.is_stale(slot) {
                    return Some(index);
                }
                at = self.conns.next(index);
            }
        }
        None
    }

    /// Binds a pending connection to a waiter. From then on `waitQueueTimeoutMS` does not apply to
    /// the waiter, unless [`PoolOptions::limits_establishing`](super::PoolOptions) is
    /// set.
    fn bind(&mut self, index: u32, waiting: u32) {
        assert!(self.waiters.list_of(waiting) == waiter::UNBOUND);
        self.conns.get_mut(index).waiter = waiting;
        let slot = self.waiters.get_mut(waiting);
        slot.conn = index;
        let keeps_limit = slot.deadline.is_some() || self.config.options.limits_establishing;
        self.waiters.move_to(waiting, waiter::BOUND);
        if !keeps_limit {
            self.deadlines.remove(waiting);
        }
    }

    /// Ends the wait of a check-out. Its verdict stays in the slot until it is claimed.
    pub(super) fn record_outcome(
        &mut self,
        now: Instant,
        index: u32,
        verdict: Verdict,
        observer: &mut impl Observer<PoolEvent>,
    ) {
        self.deadlines.remove(index);
        let slot = self.waiters.get_mut(index);
        assert!(slot.verdict == Verdict::Waiting, "a check-out ends once");
        slot.verdict = verdict;
        let started = slot.started.0;
        let conn = core::mem::replace(&mut slot.conn, NIL);
        self.waiters.move_to(index, waiter::OWES_WAKE);
        if let Verdict::Failed(error) = verdict {
            self.emit_failed(now, started, error, observer);
        }
        if conn != NIL {
            self.bind_to_next(now, conn, observer);
        }
    }

    fn emit_failed(
        &self,
        now: Instant,
        started: Instant,
        error: CheckOutError,
        observer: &mut impl Observer<PoolEvent>,
    ) {
        let (pool, reason, duration) = (self.id, error.reason(), now.saturating_since(started));
        observer.on_event(now, &PoolEvent::ConnectionCheckOutFailed { pool, reason, error, duration });
    }

    /// Whether a returned connection becomes available, or goes to a waiter, and nothing else happens.
    #[inline(always)]
    pub(super) fn is_reusable(&self, lease: &Lease, health: Health) -> bool {
        let Some(slot) = self.conns.find_on(lease.conn.0, conn::IN_USE).filter(|_| lease.pool == self.id) else {
            return false;
        };
        let is_healthy = health == Health::Healthy && slot.fate == Fate::Reusable;
        let is_plain = is_healthy && slot.pinned == Pinned::No && !self.shrunk;
        is_plain && self.state != PoolState::Closed && self.is_plainly_current(slot)
    }

    #[inline(always)]
    pub(super) const fn has_waiters(&self) -> bool {
        self.waiters.len(waiter::BOUND) | self.waiters.len(waiter::UNBOUND) != 0
    }

    /// Takes back a connection that was in use: closes it, hands it to a waiter, or makes it
    /// available.
    pub(super) fn return_conn(
        &mut self,
        now: Instant,
        index: u32,
        health: Health,
        observer: &mut impl Observer<PoolEvent>,
    ) {
        let now = self.begin(now, observer);
        let conn = ConnId(self.conns.key(index));
        observer.on_event(now, &PoolEvent::ConnectionCheckedIn { pool: self.id, conn });
        self.set_pinned(index, Pinned::No);
        let is_surplus = self.is_beyond_max();
        let Some(slot) = self.conns.at(index) else { return };
        let closed = match health {
            Health::Broken(cause) => Some((ClosedReason::Error, Some(cause))),
            Health::Healthy if self.state == PoolState::Closed => Some((ClosedReason::PoolClosed, None)),
            Health::Healthy if slot.fate != Fate::Reusable || self.is_stale(slot) => Some((ClosedReason::Stale, None)),
            Health::Healthy if is_surplus => Some((ClosedReason::Idle, None)),
            Health::Healthy => None,
        };
        match closed {
            Some((reason, cause)) => {
                self.close_conn(now, index, reason, cause, observer);
                self.serve(now, observer);
            }
            None => self.hand_over(now, index, observer),
        }
    }

    /// Closes a connection that has a socket: first it leaves the counts, then the event is
    /// emitted, then the `Close` is owed.
    #[cold]
    pub(super) fn close_conn(
        &mut self,
        now: Instant,
        index: u32,
        reason: ClosedReason,
        cause: Option<Cause>,
        observer: &mut impl Observer<PoolEvent>,
    ) {
        self.leave_service(index);
        self.conns.move_to(index, conn::OWES_CLOSE);
        self.emit_closed(now, index, reason, cause, observer);
    }

    /// Removes a pending connection after the host has reported its end. The waiter that is bound
    /// to it fails with `error`.
    pub(super) fn drop_pending(
        &mut self,
        now: Instant,
        index: u32,
        reason: ClosedReason,
        cause: Option<Cause>,
        error: CheckOutError,
        observer: &mut impl Observer<PoolEvent>,
    ) {
        let waiting = self.forget_pending(index);
        let conn = ConnId(self.conns.key(index));
        self.conns.remove(index);
        observer.on_event(now, &PoolEvent::ConnectionClosed { pool: self.id, conn, reason, cause });
        if let Some(waiting) = waiting {
            self.record_outcome(now, waiting, Verdict::Failed(error), observer);
        }
    }

    /// Detaches a pending connection from its service, from the background work and from its
    /// waiter, which is returned.
    pub(super) fn forget_pending(&mut self, index: u32) -> Option<u32> {
        self.leave_service(index);
        if self.background == index {
            self.background = NIL;
        }
        let waiting = core::mem::replace(&mut self.conns.get_mut(index).waiter, NIL);
        if waiting == NIL {
            return None;
        }
        self.waiters.get_mut(waiting).conn = NIL;
        Some(waiting)
    }

    pub(super) fn emit_closed(
        &self,
        now: Instant,
        index: u32,
        reason: ClosedReason,
        cause: Option<Cause>,
        observer: &mut impl Observer<PoolEvent>,
    ) {
        let conn = ConnId(self.conns.key(index));
        observer.on_event(now, &PoolEvent::ConnectionClosed { pool: self.id, conn, reason, cause });
    }

    /// Whether a connection has no service and is of the pool's generation. Only for fast paths:
    /// connections with a service take the slow path.
    #[inline(always)]
    pub(super) fn is_plainly_current(&self, slot: &ConnSlot) -> bool {
        slot.service == NIL && slot.generation == self.generation
    }

    /// Whether an available connection has been idle for too long.
    #[inline(always)]
    pub(super) fn is_idle_too_long(&self, now: Instant, available_since: Instant) -> bool {
        let idle_ns = self.config.idle_ns;
        idle_ns > 0 && now > available_since.saturating_add_nanos(idle_ns)
    }

    /// The reason why an available connection must not be handed out, or `None`.
    pub(super) fn perished(&self, now: Instant, slot: &ConnSlot) -> Option<ClosedReason> {
        if self.is_stale(slot) {
            return Some(ClosedReason::Stale);
        }
        self.is_idle_too_long(now, slot.available_since).then_some(ClosedReason::Idle)
    }

    /// Whether the pool, or the connection's service, was cleared since the connection was created.
    #[inline]
    pub(super) fn is_stale(&self, slot: &ConnSlot) -> bool {
        let generation = self.services.at(slot.service).map_or(self.generation, |service| service.generation);
        slot.generation != generation
    }

    /// The time at which the next available connection will have been idle for too long.
    pub(super) fn idle_expiry(&self) -> Option<Instant> {
        let options = &self.config.options;
        if options.max_idle_time.is_none() || !self.is_in_background() {
            return None;
        }
        let oldest = self.conns.get(self.conns.front(conn::AVAILABLE)?);
        let last = oldest.available_since.saturating_add_nanos(self.config.idle_ns);
        (last < Instant::MAX).then(|| last.saturating_add(core::time::Duration::from_nanos(1)))
    }

    /// Closes the perished available connections. The list is in the order of age, so those that
    /// were idle for too long are in front; stale ones may be anywhere.
    pub(super) fn sweep(&mut self, now: Instant, observer: &mut impl Observer<PoolEvent>) {
        if core::mem::take(&mut self.sweep_due) {
            let mut at = self.conns.front(conn::AVAILABLE);
            while let Some(index) = at {
                at = self.conns.next(index);
                if let Some(reason) = self.perished(now, self.conns.get(index)) {
                    self.close_conn(now, index, reason, None, observer);
                }
            }
        }
        while let Some(index) = self.conns.front(conn::AVAILABLE) {
            let Some(reason) = self.conns.at(index).and_then(|slot| self.perished(now, slot)) else { break };
            self.close_conn(now, index, reason, None, observer);
        }
    }

    #[inline]
    pub(super) const fn pending_count(&self) -> u32 {
        self.conns.len(conn::OWES_ESTABLISH) + self.conns.len(conn::ESTABLISHING)
    }

    /// The slot index of a connection that is being established.
    pub(super) fn pending(&self, id: ConnId) -> Option<u32> {
        let index = self.conns.find(id.0)?;
        matches!(self.conns.list_of(index), conn::OWES_ESTABLISH | conn::ESTABLISHING).then_some(index)
    }

    /// The slot index of a connection that is in use under this lease.
    pub(super) fn leased(&self, lease: &Lease) -> Option<u32> {
        if lease.pool != self.id {
            return None;
        }
        let index = self.conns.find(lease.conn.0)?;
        matches!(self.conns.list_of(index), conn::IN_USE | conn::OWES_INTERRUPT).then_some(index)
    }

    pub(super) fn service(&self, id: ObjectId) -> Option<u32> {
        let mut at = self.services.front(0);
        while let Some(index) = at {
            if self.services.get(index).id == id {
                return Some(index);
            }
            at = self.services.next(index);
        }
        None
    }

    /// Removes a connection from its service. The service is removed with its last connection.
    pub(super) fn leave_service(&mut self, index: u32) {
        let service = core::mem::replace(&mut self.conns.get_mut(index).service, NIL);
        if self.is_load_balanced() && service != NIL {
            let slot = self.services.get_mut(service);
            slot.count -= 1;
            if slot.count == 0 {
                self.services.remove(service);
            }
        }
    }

    pub(super) fn set_pinned(&mut self, index: u32, pinned: Pinned) {
        let Some(slot) = self.conns.at_mut(index) else { return };
        let was = core::mem::replace(&mut slot.pinned, pinned);
        if was == pinned {
            return;
        }
        for (kind, change) in [(was, -1_i32), (pinned, 1)] {
            let count = match kind {
                Pinned::No => continue,
                Pinned::Cursor => &mut self.pinned[0],
                Pinned::Transaction => &mut self.pinned[1],
            };
            *count = count.saturating_add_signed(change);
        }
    }

    /// Whether the pool is load-balanced. Memory without slots for services makes this a constant:
    /// the code of load-balanced mode is then not compiled.
    #[inline]
    pub(super) fn is_load_balanced(&self) -> bool {
        self.services.limit() > 0 && self.config.options.load_balanced
    }

    /// The numbers of connections by use; in load-balanced mode only.
    pub(super) fn usage(&self) -> Option<Usage> {
        let options = &self.config.options;
        let [cursors, transactions] = self.pinned;
        self.is_load_balanced().then(|| Usage {
            max_pool_size: options.max_pool_size,
            cursors,
            transactions,
            others: self.counts().in_use.saturating_sub(cursors + transactions),
        })
    }
}
