//! The events of a monitor alone: pairs of starts and ends, and the intervals between checks.

use core::time::Duration;

use poolhouse_core::monitor::{HeartbeatId, MonitorEvent};
use poolhouse_core::{Cause, Instant};

/// minHeartbeatFrequencyMS.
const PAUSE_MIN: Duration = Duration::from_millis(500);

/// Checks the events of one monitor.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    in_flight: Option<(HeartbeatId, bool)>,
    /// The end of the last check, its failure, and whether the server was known before that.
    ended: Option<(Instant, Option<Cause>, bool)>,
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

impl Oracle {
    /// Checks one event: pairs (S1, S2) and intervals (S3, S6, S15, S20).
    ///
    /// - `is_known`: whether the server is known before the event.
    pub fn event(&mut self, now: Instant, event: &MonitorEvent, is_known: bool) {
        match *event {
            MonitorEvent::HeartbeatStarted { id, awaited } => {
                assert_eq!(self.in_flight, None, "S1: one check at a time");
                self.in_flight = Some((id, awaited));
                self.seen.starts += 1;
                self.started(now, awaited);
            }
            MonitorEvent::HeartbeatSucceeded { id, awaited, .. } => {
                self.seen.streamed += u64::from(awaited);
                self.end(id, awaited);
                self.ended = Some((now, None, is_known));
            }
            MonitorEvent::HeartbeatFailed { id, awaited, cause, .. } => {
                let by_itself = cause != Cause::Cancelled && cause != Cause::Closed;
                self.seen.cancelled += u64::from(cause == Cause::Cancelled);
                self.seen.closed += u64::from(cause == Cause::Closed);
                self.seen.failed += u64::from(by_itself);
                self.seen.timeouts += u64::from(cause == Cause::NetworkTimeout);
                self.end(id, awaited);
                self.ended = Some((now, Some(cause), is_known));
            }
            _ => panic!("an event that the oracle does not handle: {event:?}"),
        }
    }

    /// Checks that each start has an end.
    pub fn assert_ended(&self) {
        assert_eq!(self.in_flight, None, "S2, S18: the last check has ended");
    }

    fn started(&mut self, now: Instant, awaited: bool) {
        let Some((ended, cause, was_known)) = self.ended else {
            assert!(!awaited, "S15: a stream continues only after a successful reply");
            return;
        };
        if awaited {
            assert_eq!(cause, None, "S15: a stream continues only after a successful reply");
            assert_eq!(now, ended, "S15: a stream continues at once");
        } else if now.saturating_since(ended) < PAUSE_MIN {
            let network = cause.is_some_and(Cause::is_network);
            assert!(network, "S3, S6: an immediate check requires a network error, not {cause:?}");
            assert!(was_known, "S6: a retry, but the server was Unknown before");
            assert_eq!(now, ended, "S6: a retry is immediate or waits at least 500 ms");
            let before = self.retried.replace(now);
            let is_paced = before.is_none_or(|before| now.saturating_since(before) >= PAUSE_MIN);
            assert!(is_paced, "S20: retries are paced");
            self.seen.retries += 1;
        }
    }

    fn end(&mut self, id: HeartbeatId, awaited: bool) {
        let (begun, begun_awaited) = self.in_flight.take().expect("S2: a check that ends has started");
        assert_eq!((begun.server, begun.connection), (id.server, id.connection), "S2: on the same connection");
        assert_eq!(begun_awaited, awaited, "S2: awaited is the same at both ends");
        self.seen.ends += 1;
    }
}
