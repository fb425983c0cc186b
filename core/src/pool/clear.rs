//! Clearing and closing of a pool, and its reset after a fork.
//!
//! Read first: CMAP, "Clearing a Connection Pool", "Closing a Connection Pool", "Forking".

use super::memory::Fate;
use super::{CheckOutError, Clear, ClosedReason, Memory, Pool, PoolEvent, PoolState, Verdict, WrongMode, conn, waiter};
use crate::machine::Observer;
use crate::storage::table::NIL;
use crate::{Cause, Instant};

impl<M: Memory> Pool<M> {
    /// Makes connections stale.
    ///
    /// [`Clear::All`]: `Ready -> Paused`. The generation rises and every waiter fails. With the
    /// interrupt flag, each connection in use that is not of a newer generation is interrupted
    /// once, and each pending one is abandoned. On a paused pool the generation rises and
    /// connections are interrupted as requested, but no `PoolCleared` is emitted. No effect on a
    /// closed pool.
    ///
    /// [`Clear::Service`]: the generation of that service rises, and nothing else changes.
    ///
    /// Stale connections are closed when a check-in or a check-out finds them, and by
    /// `handle_timeout`, which is due at once.
    ///
    /// - `cause`: the error that led to the clear. It is reported to waiters, and to check-outs
    ///   until the next [`Pool::ready`].
    ///
    /// Cost: O(waiters), and O(connections in use and pending) with the interrupt flag. Owes a
    /// `Wake` for each waiter and an `Interrupt` for each affected connection.
    /// Events: `PoolCleared`, `ConnectionClosed` of abandoned connections,
    /// `ConnectionCheckOutFailed` in the order of the queue.
    ///
    /// # Errors
    ///
    /// [`WrongMode`]: a load-balanced pool is cleared by service, any other pool as a whole.
    ///
    /// Source: CMAP, "Clearing a Connection Pool".
    pub fn clear(
        &mut self,
        now: Instant,
        clear: Clear,
        cause: Option<Cause>,
        observer: &mut impl Observer<PoolEvent>,
    ) -> Result<(), WrongMode> {
        if !self.is_mode_of(clear) {
            return Err(WrongMode);
        }
        let now = self.begin(now, observer);
        self.begin_clear(now, clear, cause, observer);
        self.finish_clear(now, clear, cause, observer);
        Ok(())
    }

    /// Closes the pool permanently: available connections are closed, pending ones abandoned, and
    /// waiters fail.
    ///
    /// Connections in use are closed when they are checked in. Closing again does nothing.
    ///
    /// Cost: O(connections + waiters). Owes a `Close`, `Interrupt` or `Wake` for each.
    /// Events: `ConnectionClosed`, `ConnectionCheckOutFailed`, then `PoolClosed`.
    ///
    /// Source: CMAP, "Closing a Connection Pool".
    pub fn close(&mut self, now: Instant, observer: &mut impl Observer<PoolEvent>) {
        self.advance(now);
        if self.state == PoolState::Closed {
            return;
        }
        let now = self.begin(now, observer);
        self.state = PoolState::Closed;
        while let Some(index) = self.conns.front(conn::AVAILABLE) {
            self.close_conn(now, index, ClosedReason::PoolClosed, None, observer);
        }
        self.abandon_pending(now, ClosedReason::PoolClosed, None, observer);
        self.fail_waiters(now, CheckOutError::PoolClosed, observer);
        self.sweep_due = false;
        self.serve_due = false;
        self.populate_at = None;
        self.fill_target = 0;
        observer.on_event(now, &PoolEvent::PoolClosed { pool: self.id });
    }

    /// Abandons every connection in the child process of a fork, because all of them belong to the
    /// parent.
    ///
    /// Works like a clear that interrupts all connections, also in load-balanced pools, and closes
    /// available connections at once. The host must close the sockets without sending any byte,
    /// because the server would treat it as sent by the parent.
    ///
    /// Cost: O(connections + waiters).
    /// Events: `PoolCleared` if the pool was ready, `ConnectionClosed`, `ConnectionCheckOutFailed`.
    ///
    /// Source: CMAP, "Forking".
    pub fn reset_after_fork(&mut self, now: Instant, observer: &mut impl Observer<PoolEvent>) {
        self.advance(now);
        if self.state == PoolState::Closed {
            return;
        }
        let now = self.begin(now, observer);
        let cause = Some(Cause::Forked);
        let clear = Clear::All { interrupt_in_use_connections: true };
        let load_balanced = self.is_load_balanced();
        let state = self.state;
        let mut at = self.services.front(0);
        while let Some(index) = at {
            self.services.get_mut(index).generation.0 += 1;
            at = self.services.next(index);
        }
        self.begin_clear(now, clear, cause, observer);
        self.finish_clear(now, clear, cause, observer);
        while let Some(index) = self.conns.front(conn::AVAILABLE) {
            self.close_conn(now, index, ClosedReason::Stale, None, observer);
        }
        if load_balanced {
            // Load-balanced pools have no monitor that would mark the pool as ready again.
            self.state = state;
            self.cleared_by = None;
            self.serve(now, observer);
        }
    }

    /// Returns an empty pool of the next generation. It replaces a pool after
    /// [`Pool::reset_after_fork`], if no lease of that pool will be returned and no waiter claimed.
    #[doc(hidden)]
    pub fn start_over(&self) -> Self {
        let new = Self::new(self.now, self.id, self.config, &mut ());
        Self { generation: super::Generation(self.generation.0 + 1), ..new }
    }

    /// Whether this kind of clear belongs to the pool's mode.
    pub(super) fn is_mode_of(&self, clear: Clear) -> bool {
        matches!(clear, Clear::Service(_)) == self.is_load_balanced()
    }

    /// Raises the generation, pauses the pool, and emits `PoolCleared`.
    pub(super) fn begin_clear(
        &mut self,
        now: Instant,
        clear: Clear,
        cause: Option<Cause>,
        observer: &mut impl Observer<PoolEvent>,
    ) {
        if self.state == PoolState::Closed {
            return;
        }
        let (service_id, interrupt_in_use_connections) = match clear {
            Clear::All { interrupt_in_use_connections } => {
                self.generation.0 += 1;
                self.sweep_due = self.conns.len(conn::AVAILABLE) > 0;
                if self.state == PoolState::Paused {
                    return;
                }
                self.state = PoolState::Paused;
                self.cleared_by = cause;
                self.populate_at = None;
                self.backoff = super::BACKOFF_FIRST;
                (None, interrupt_in_use_connections)
            }
            Clear::Service(id) => {
                if let Some(index) = self.service(id) {
                    self.services.get_mut(index).generation.0 += 1;
                    self.sweep_due |= self.conns.len(conn::AVAILABLE) > 0;
                }
                if self.state == PoolState::Paused {
                    return;
                }
                (Some(id), false)
            }
        };
        let pool = self.id;
        observer.on_event(now, &PoolEvent::PoolCleared { pool, service_id, interrupt_in_use_connections, cause });
    }

    /// Interrupts connections if the flag is set, and fails the waiters.
    pub(super) fn finish_clear(
        &mut self,
        now: Instant,
        clear: Clear,
        cause: Option<Cause>,
        observer: &mut impl Observer<PoolEvent>,
    ) {
        let Clear::All { interrupt_in_use_connections } = clear else { return };
        if self.state == PoolState::Closed {
            return;
        }
        if interrupt_in_use_connections {
            self.abandon_pending(now, ClosedReason::Stale, cause, observer);
            self.interrupt_in_use();
        }
        let cause = self.cleared_by.or(cause);
        self.fail_waiters(now, CheckOutError::PoolCleared { cause }, observer);
    }

    /// Abandons every pending connection. The host is notified of those that it had begun to
    /// establish.
    fn abandon_pending(
        &mut self,
        now: Instant,
        reason: ClosedReason,
        cause: Option<Cause>,
        observer: &mut impl Observer<PoolEvent>,
    ) {
        for list in [conn::ESTABLISHING, conn::OWES_ESTABLISH] {
            while let Some(index) = self.conns.front(list) {
                // The waiter does not fail here: the caller fails all waiters in the order of the
                // queue.
                let waiting = self.forget_pending(index);
                self.emit_closed(now, index, reason, cause, observer);
                if list == conn::ESTABLISHING {
                    self.conns.move_to(index, conn::OWES_ABANDON);
                } else {
                    self.conns.remove(index);
                }
                debug_assert!(waiting.is_none_or(|waiting| self.waiters.list_of(waiting) == waiter::BOUND));
            }
        }
    }

    /// Interrupts each connection in use that has not been interrupted. All of them are of older
    /// generations.
    fn interrupt_in_use(&mut self) {
        let mut at = self.conns.front(conn::IN_USE);
        while let Some(index) = at {
            at = self.conns.next(index);
            let slot = self.conns.get_mut(index);
            if slot.fate != Fate::Interrupted {
                slot.fate = Fate::Interrupted;
                self.conns.move_to(index, conn::OWES_INTERRUPT);
            }
        }
    }

    /// Fails all waiters, in the order of the queue.
    fn fail_waiters(&mut self, now: Instant, error: CheckOutError, observer: &mut impl Observer<PoolEvent>) {
        // Connections that are still being established have no waiter from now on.
        for list in [conn::OWES_ESTABLISH, conn::ESTABLISHING] {
            let mut at = self.conns.front(list);
            while let Some(index) = at {
                at = self.conns.next(index);
                self.conns.get_mut(index).waiter = NIL;
            }
        }
        for list in [waiter::BOUND, waiter::UNBOUND] {
            while let Some(index) = self.waiters.front(list) {
                self.waiters.get_mut(index).conn = NIL;
                self.record_outcome(now, index, Verdict::Failed(error), observer);
            }
        }
    }
}
