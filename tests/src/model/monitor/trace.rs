//! Checks of a monitor's events that need no model.

use core::time::Duration;

use poolhouse_core::monitor::{HeartbeatId, MonitorEvent};
use poolhouse_core::{Cause, Instant};

/// Checks events, dials and their instants without a model.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    in_flight: Option<(HeartbeatId, bool)>,
    ended: Option<(Instant, Option<Cause>)>,
    retried: Option<Instant>,
    /// Counts so far.
    pub seen: Counts,
}

/// Number of occurrences, so a run can prove that it covered each case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Checks that began.
    pub starts: u64,
    /// Checks that ended.
    pub ends: u64,
    /// Streamed replies.
    pub streamed: u64,
    /// Checks that failed, without those that were cancelled or closed.
    pub failed: u64,
    /// Failed checks that were caused by a timeout.
    pub timeouts: u64,
    /// Checks that were cancelled.
    pub cancelled: u64,
    /// Checks that were in flight at the close.
    pub closed: u64,
    /// Immediate retries.
    pub retries: u64,
    /// Stale reports.
    pub stale: u64,
    /// Samples of the RTT connection.
    pub measured: u64,
}

impl Counts {
    /// Adds the counts of another run.
    pub const fn add(&mut self, other: &Self) {
        self.starts += other.starts;
        self.ends += other.ends;
        self.streamed += other.streamed;
        self.failed += other.failed;
        self.timeouts += other.timeouts;
        self.cancelled += other.cancelled;
        self.closed += other.closed;
        self.retries += other.retries;
        self.stale += other.stale;
        self.measured += other.measured;
    }
}

impl Trace {
    /// Checks one event: pairs (S1, S2) and intervals (S3, S6).
    ///
    /// # Panics
    ///
    /// When the event is not allowed.
    pub fn event(&mut self, now: Instant, event: &MonitorEvent) {
        match *event {
            MonitorEvent::HeartbeatStarted { id, awaited } => {
                assert_eq!(self.in_flight, None, "S1: one check at a time");
                self.in_flight = Some((id, awaited));
                self.seen.starts += 1;
                let Some((ended, cause)) = self.ended else { return };
                if awaited {
                    assert_eq!(cause, None, "S15: a stream continues only after a successful reply");
                    assert_eq!(now, ended, "S15: a stream continues at once");
                } else if now.saturating_since(ended) < Duration::from_millis(500) {
                    let network = cause.is_some_and(|cause| cause.is_network());
                    assert!(network, "S3, S6: an immediate check requires a network error, not {cause:?}");
                    assert_eq!(now, ended, "S6: a retry is immediate or waits at least 500 ms");
                    if let Some(before) = self.retried {
                        assert!(now.saturating_since(before) >= Duration::from_millis(500), "S20: retries are paced");
                    }
                    self.retried = Some(now);
                    self.seen.retries += 1;
                }
            }
            MonitorEvent::HeartbeatSucceeded { id, awaited, .. } => {
                self.seen.streamed += u64::from(awaited);
                self.end(now, id, awaited, None);
            }
            MonitorEvent::HeartbeatFailed { id, awaited, cause, .. } => {
                let by_itself = cause != Cause::Cancelled && cause != Cause::Closed;
                self.seen.cancelled += u64::from(cause == Cause::Cancelled);
                self.seen.closed += u64::from(cause == Cause::Closed);
                self.seen.failed += u64::from(by_itself);
                self.seen.timeouts += u64::from(cause == Cause::NetworkTimeout);
                self.end(now, id, awaited, Some(cause));
            }
            _ => panic!("an event that the trace does not handle: {event:?}"),
        }
    }

    /// Checks that each start has an end.
    ///
    /// # Panics
    ///
    /// When a check is in flight.
    pub fn assert_ended(&self) {
        assert_eq!(self.in_flight, None, "S2, S18: the last check has ended");
        assert_eq!(self.seen.starts, self.seen.ends, "S2: the number of ends equals that of starts");
    }

    fn end(&mut self, now: Instant, id: HeartbeatId, awaited: bool, cause: Option<Cause>) {
        let (begun, begun_awaited) = self.in_flight.take().expect("S2: a check that ends has started");
        assert_eq!((begun.server, begun.connection), (id.server, id.connection), "S2: on the same connection");
        assert_eq!(begun_awaited, awaited, "S2: awaited is the same at both ends");
        self.ended = Some((now, cause));
        self.seen.ends += 1;
    }
}

#[cfg(test)]
mod tests;
