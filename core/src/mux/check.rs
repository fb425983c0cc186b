//! The invariants of a multiplexed pool. For tests, fuzzing and simulation.

use super::{Mux, MuxMemory, Verdict, conn, waiter};
use crate::storage::Store;

impl<M: MuxMemory> Mux<M> {
    /// Checks the invariants for `assert_invariants`.
    pub(super) fn check(&self) {
        self.conns.assert_invariants();
        self.waiters.assert_invariants();
        let mut in_flight = 0;
        let mut owed = 0;
        for list in 0..u8::try_from(conn::LISTS).expect("fewer than 256 lists") {
            self.for_each(list, |index| {
                let slot = self.conns.get(index);
                let is_established = matches!(list, conn::OPEN | conn::TRASHED | conn::RETIRED);
                in_flight += slot.in_flight;
                owed += u32::from(slot.heartbeat.is_some_and(|heartbeat| !heartbeat.polled));
                assert!(
                    is_established || (slot.in_flight == 0 && slot.heartbeat.is_none()),
                    "a closed connection has requests in flight"
                );
                if is_established {
                    let streams = &self.streams.slots()[index as usize];
                    streams.assert_invariants();
                    let waiting = slot.in_flight + u32::from(slot.heartbeat.is_some());
                    assert_eq!(streams.count_waiting(), waiting, "requests in flight equal stream ids in use");
                }
                assert!(list != conn::RETIRED || slot.in_flight > 0, "a retired connection without requests is kept");
            });
        }
        assert_eq!(in_flight, self.in_flight, "requests in flight on all connections");
        assert_eq!(owed, self.heartbeats_owed, "heartbeats owed");
        assert!(self.in_flight_max >= self.in_flight || self.shrink_at.is_none(), "in_flight_max is too low");
        let queued = self.waiters.len(waiter::WAITING);
        if let Some(host) = self.config.host() {
            let open = self.conns.len(conn::OPEN);
            assert!(self.closed || open + self.pending_count() <= host.max_connections, "more than maxConnections");
            assert!(
                open > host.core_connections || self.shrink_at.is_none(),
                "a shrink check is scheduled without surplus connections"
            );
            assert!(
                open <= host.core_connections || self.shrink_at.is_some(),
                "no shrink check is scheduled for surplus connections"
            );
        } else {
            assert!(self.conns.len(conn::OPEN) + self.pending_count() == 0, "an ignored host has connections");
        }
        if queued > 0 {
            assert!(self.least_busy().is_none(), "a request waits although a connection takes requests");
            assert!(self.down_cause().is_none(), "a request waits although no connection is open or pending");
        }
        if self.closed {
            assert!(queued == 0 && self.in_flight == 0, "a closed pool has requests");
        }
        for list in 0..u8::try_from(waiter::LISTS).expect("fewer than 256 lists") {
            let mut at = self.waiters.front(list);
            while let Some(index) = at {
                let waits = self.waiters.get(index).verdict == Verdict::Waiting;
                assert_eq!(waits, list == waiter::WAITING, "the verdict of a request contradicts its list");
                assert!(waits || self.deadlines.of(index).is_none(), "a request that does not wait has a deadline");
                at = self.waiters.next(index);
            }
        }
    }
}
