//! The invariants of a pool. For tests, fuzzing and simulation.

use super::memory::Fate;
use super::{Lease, Memory, Pinned, Pool, PoolState, Verdict, conn, waiter};
use crate::Instant;
use crate::storage::table::NIL;

impl<M: Memory> Pool<M> {
    /// Checks the invariants for `assert_invariants`.
    pub(super) fn check(&self) {
        self.conns.assert_invariants();
        self.waiters.assert_invariants();
        self.services.assert_invariants();
        let options = &self.config.options;
        let counts = self.counts();
        let max = options.max_pool_size;
        let (is_beyond, is_busy) = self.excess();
        assert!(!is_beyond || self.shrunk, "more than maxPoolSize connections");
        assert!(!is_beyond || counts.available == 0, "an available connection exceeds maxPoolSize");
        assert!(!is_busy || self.shrunk, "more than maxConnecting connections are pending");
        self.deadlines.assert_invariants(|index| self.deadline_of(index));
        self.check_bindings();
        if self.state == PoolState::Ready && self.waiters.len(waiter::UNBOUND) > 0 && !self.serve_due {
            assert!(counts.available == 0, "a check-out waits although a connection is available");
            let blocked = (max > 0 && counts.total() >= max) || counts.pending >= options.max_connecting;
            assert!(blocked || !self.conns.has_free_slot(), "a check-out waits although the limits allow a connection");
        }
        if self.state != PoolState::Ready {
            assert!(counts.waiting == 0, "a check-out waits in a pool that is not ready");
        }
        assert!(self.fill_target == 0 || !self.is_filled(self.fill_target), "a reached fill target is kept");
        if self.state == PoolState::Closed {
            assert!(self.fill_target == 0, "a closed pool has a fill target");
            assert!(counts.pending == 0 && counts.available == 0, "a closed pool has pending or available connections");
        }
        if self.background != NIL {
            let list = self.conns.list_of(self.background);
            assert!(list == conn::OWES_ESTABLISH || list == conn::ESTABLISHING);
        }
        self.check_services();
    }

    /// The deadline that applies to the waiter in this slot, computed independently.
    fn deadline_of(&self, index: u32) -> Option<Instant> {
        let slot = self.waiters.get(index);
        let at = match self.waiters.list_of(index) {
            waiter::UNBOUND | waiter::BOUND if slot.deadline.is_some() => slot.deadline,
            // `waitQueueTimeoutMS` may have changed since the waiter started, so only a lower bound
            // is checked.
            waiter::BOUND if !self.config.options.limits_establishing => None,
            waiter::UNBOUND | waiter::BOUND => self.deadlines.of(index).inspect(|at| assert!(*at > slot.started.0)),
            _ => None,
        };
        at.filter(|at| *at < Instant::MAX)
    }

    fn check_bindings(&self) {
        let mut at = self.conns.front(conn::AVAILABLE);
        while let Some(index) = at {
            assert!(self.conns.get(index).fate == Fate::Reusable, "a connection that must be closed is available");
            at = self.conns.next(index);
        }
        let mut bound = 0;
        for list in [conn::OWES_ESTABLISH, conn::ESTABLISHING, conn::AVAILABLE, conn::IN_USE, conn::OWES_INTERRUPT] {
            let pending = list == conn::OWES_ESTABLISH || list == conn::ESTABLISHING;
            let mut at = self.conns.front(list);
            while let Some(index) = at {
                let waiting = self.conns.get(index).waiter;
                if waiting != NIL {
                    assert!(pending, "only a pending connection is bound");
                    assert_eq!(self.waiters.get(waiting).conn, index, "a binding is mutual");
                    assert_eq!(self.waiters.list_of(waiting), waiter::BOUND);
                    bound += 1;
                } else if pending && index != self.background && !self.is_stale(self.conns.get(index)) {
                    assert!(
                        self.waiters.len(waiter::UNBOUND) == 0,
                        "a pending connection has no waiter although an unbound waiter exists"
                    );
                }
                at = self.conns.next(index);
            }
        }
        assert_eq!(bound, self.waiters.len(waiter::BOUND), "a bound waiter has no connection");
        let newest_bound = self.waiters.back(waiter::BOUND).map(|index| self.waiters.key(index).serial);
        let oldest_unbound = self.waiters.front(waiter::UNBOUND).map(|index| self.waiters.key(index).serial);
        if let (Some(bound), Some(unbound)) = (newest_bound, oldest_unbound) {
            assert!(bound < unbound, "an unbound waiter is older than a bound one");
        }
        for list in [waiter::OWES_WAKE, waiter::SETTLED] {
            let mut at = self.waiters.front(list);
            while let Some(index) = at {
                let slot = self.waiters.get(index);
                assert!(slot.verdict != Verdict::Waiting && slot.conn == NIL);
                if let Verdict::Granted(granted) = slot.verdict {
                    assert!(
                        self.leased(&Lease { conn: granted, pool: self.id }).is_some(),
                        "a granted connection is in use"
                    );
                }
                at = self.waiters.next(index);
            }
        }
    }

    fn check_services(&self) {
        let mut total = 0;
        let mut at = self.services.front(0);
        while let Some(index) = at {
            assert!(self.services.get(index).count > 0, "a service without connections is kept");
            total += self.services.get(index).count;
            at = self.services.next(index);
        }
        let mut seen = 0;
        let mut pinned = [0, 0];
        for list in 0..7 {
            let mut at = self.conns.front(list);
            while let Some(index) = at {
                let slot = self.conns.get(index);
                if slot.service != NIL {
                    seen += 1;
                }
                match slot.pinned {
                    Pinned::No => {}
                    Pinned::Cursor => pinned[0] += 1,
                    Pinned::Transaction => pinned[1] += 1,
                }
                at = self.conns.next(index);
            }
        }
        assert_eq!(total, seen, "the connections of services are counted wrong");
        assert_eq!(pinned, self.pinned);
    }
}
