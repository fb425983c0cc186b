//! Faults of the client's host: clocks, timers, stale reports, clear storms.

use super::kind::Kind;
use super::plan::MS;
use super::simulation::{BACK_MAX, Simulation};
use crate::choices::Choices;
use crate::oracle::pool::Bounded;
use poolhouse_core::Cause;
use poolhouse_wire::hello::HelloReply;
use poolhouse_wire::message::Matched;

impl<M: Bounded> Simulation<'_, M> {
    pub(super) fn jump_forward(&mut self) {
        let by = u64::from(self.draws.host.one_of(&[600_u32, 15_000, 3_600_000])) * MS;
        self.skew = self.skew.saturating_add_unsigned(by);
        self.note(Kind::ClockForward, by / MS);
    }

    pub(super) fn jump_back(&mut self) {
        if self.clock() < self.client.now {
            return;
        }
        let by = u64::from(self.draws.host.below(2_000)) * MS;
        assert!(by <= BACK_MAX, "the final bounds allow for BACK_MAX");
        self.skew = self.skew.saturating_sub_unsigned(by);
        self.note(Kind::ClockBack, by / MS);
    }

    /// Processes timers and waiters although nothing is due.
    pub(super) fn look(&mut self) {
        self.note(Kind::Spurious, 0);
        let clock = self.clock();
        self.client.advance(clock, true);
        self.settle();
        self.claim_without_outcome();
    }

    pub(super) fn request(&mut self) {
        self.note(Kind::Request, 0);
        self.client.request();
    }

    /// Sends stale reports, which must have no effect.
    pub(super) fn send_stale_reports(&mut self) {
        let lines: Vec<_> = self.net.gone_monitor_conns.iter().copied().collect();
        let conns: Vec<_> = self.net.gone_conns.iter().copied().collect();
        for (server, line) in lines {
            let late = match self.draws.host.below(3) {
                0 => self.client.dialed(server, line),
                1 => self.client.failed(server, line, Cause::NetworkTimeout),
                _ => self.client.replied(server, line, &HelloReply::OK, Matched::Last),
            };
            assert!(late.is_err(), "a stale report about #{server} was accepted");
            self.note(Kind::LateNews, u64::from(server.number()));
        }
        for (server, conn) in conns {
            let is_good = self.draws.host.one_in(2);
            let late = self.client.late_conn(server, conn, is_good);
            self.counters.checks.add("P41");
            assert!(late.is_err(), "P41: a stale report about {conn:?} was accepted");
            self.note(Kind::LateNews, u64::from(server.number()));
        }
        assert!(self.client.wants.is_empty(), "a stale report caused requests");
    }

    pub(super) fn storm(&mut self) {
        let pools: Vec<_> = self.client.pools().map(|at| at.0).collect();
        if pools.is_empty() {
            return;
        }
        let server = self.draws.host.one_of(&pools);
        let times = self.draws.host.below(8) + 1;
        let interrupt = self.draws.host.one_in(2);
        self.note(Kind::Storm, u64::from(server.number()));
        self.client.storm(server, times, interrupt);
        self.settle();
    }
}
