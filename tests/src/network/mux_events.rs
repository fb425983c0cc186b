//! Checks of the events of a session, for each of its pools: a connection takes the steps of its
//! life in order (M6), a stream id is free when it is acquired and ends once (M1, M4), a late reply
//! belongs to an abandoned request (M2, M3); counts, numbers and durations are those of the events
//! before (P1, P2, P6, P32).
//!
//! The calls are unknown. A request that is dropped after it was granted a stream id, and before it
//! is written, ends without an event: the caller knows when those can have ended.

use crate::machines::mux::Event;
use crate::oracle::{Checks, Violation};
use alloc::collections::{BTreeMap, BTreeSet};
use poolhouse_core::Instant;
use poolhouse_core::mux::{MuxClosed, MuxOptions};

type Judged = Result<(), Violation>;

/// Events of pools in order: time, pool, event.
pub(super) type MuxTrace = Vec<(Instant, u64, Event)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Establishing,
    Open,
    Trashed,
    Retired,
}

#[derive(Clone, Debug)]
struct Conn {
    stage: Stage,
    created: Instant,
    /// Stream ids of requests without a reply.
    in_flight: BTreeSet<u64>,
    /// Stream ids that wait for late replies.
    late: BTreeSet<u64>,
    /// The start of the heartbeat in progress.
    heartbeat: Option<Instant>,
    /// It must be closed next: a reply answers no request, or its heartbeat has failed.
    must_close: bool,
}

/// The events of one pool so far.
#[derive(Debug, Default)]
struct Judge<'s> {
    options: Option<MuxOptions>,
    /// The largest number of requests of a connection, of all options so far.
    requests_max: u32,
    is_closed: bool,
    newest: u64,
    conns: BTreeMap<u64, Conn>,
    /// Number of requests that have ended without an event.
    silent: usize,
    /// When requests have ended, of all pools, that may have had no event.
    ends: &'s [Instant],
}

/// Checks the events of all pools. They must be closed at the end.
///
/// - `ends`: when requests have ended that may have no event of their end, in order.
pub(super) fn judge(trace: &MuxTrace, ends: &[Instant], checks: &mut Checks) -> Judged {
    let mut pools: BTreeMap<u64, Judge<'_>> = BTreeMap::new();
    for (place, (at, pool, event)) in trace.iter().enumerate() {
        let judge = pools.entry(*pool).or_insert_with(|| Judge { ends, ..Judge::default() });
        judge.event(*at, event, checks).map_err(|found| Violation {
            what: format!("{} (pool {pool}, event {place}: {event:?})", found.what),
            ..found
        })?;
    }
    for judge in pools.values() {
        let is_over = judge.is_closed && judge.conns.is_empty();
        checks.check("M6", is_over, || format!("connections are left at the end: {:?}", judge.conns))?;
    }
    let silent: usize = pools.values().map(|judge| judge.silent).sum();
    checks.check("M4", silent <= ends.len(), || {
        format!("{silent} requests end without an event, but only {} were dropped or failed", ends.len())
    })
}

impl Judge<'_> {
    fn event(&mut self, at: Instant, event: &Event, checks: &mut Checks) -> Judged {
        let is_first = matches!(event, Event::PoolCreated(_));
        checks.check("M6", is_first == self.options.is_none(), || "the first event is PoolCreated".to_owned())?;
        let is_refusal = matches!(event, Event::Failed(..));
        checks.check("M6", !self.is_closed || is_refusal, || "an event after PoolClosed".to_owned())?;
        match *event {
            Event::PoolCreated(options) | Event::Reconfigured(options) => {
                self.options = Some(options);
                self.requests_max = self.requests_max.max(options.local.max_requests_per_connection);
            }
            Event::PoolClosed => {
                self.is_closed = true;
                checks.check("M6", self.conns.is_empty(), || format!("connections are left: {:?}", self.conns))?;
            }
            Event::Created(number) => {
                checks.check("P6", number == self.newest + 1, || format!("{number} follows {}", self.newest))?;
                self.newest = number;
                let conn = Conn {
                    stage: Stage::Establishing,
                    created: at,
                    in_flight: BTreeSet::new(),
                    late: BTreeSet::new(),
                    heartbeat: None,
                    must_close: false,
                };
                self.conns.insert(number, conn);
                let max = self.options.map_or(0, |options| options.local.max_connections as usize);
                let takes = |conn: &&Conn| matches!(conn.stage, Stage::Establishing | Stage::Open);
                let count = self.conns.values().filter(takes).count();
                checks.check("P2", count <= max, || format!("{count} connections, but the maximum is {max}"))?;
            }
            Event::Queued(queued) => {
                let max = self.options.map_or(0, |options| options.max_queue_size);
                checks.check("P2", queued <= max, || format!("{queued} requests wait, but the maximum is {max}"))?;
            }
            Event::Failed(..) => {}
            Event::Ready(number, duration) => {
                let conn = self.conn(number, &[Stage::Establishing], checks)?;
                conn.stage = Stage::Open;
                checks.check("P32", at.saturating_since(conn.created) == duration, || {
                    "another duration of the establishment".to_owned()
                })?;
            }
            Event::Trashed(number, in_flight) => {
                self.conn(number, &[Stage::Open], checks)?.stage = Stage::Trashed;
                self.has_in_flight(number, in_flight, checks)?;
            }
            Event::Resurrected(number) => self.conn(number, &[Stage::Trashed], checks)?.stage = Stage::Open,
            Event::Retired(number, late) => {
                let conn = self.conn(number, &[Stage::Open, Stage::Trashed], checks)?;
                conn.stage = Stage::Retired;
                has_late(conn, late, checks)?;
            }
            Event::Closed(number, reason, in_flight) => {
                let stages = [Stage::Establishing, Stage::Open, Stage::Trashed, Stage::Retired];
                let conn = self.conn(number, &stages, checks)?;
                let is_failed = matches!(reason, MuxClosed::Error(_));
                checks.check("M2", !conn.must_close || is_failed, || format!("the reason is {reason:?}"))?;
                self.has_in_flight(number, in_flight, checks)?;
                self.silent += self.conns.remove(&number).map_or(0, |conn| conn.in_flight.len()) - in_flight as usize;
            }
            Event::HeartbeatStarted(number) => {
                let before = self.established(number, checks)?.heartbeat.replace(at);
                checks.check("M1", before.is_none(), || "two heartbeats at once".to_owned())?;
            }
            Event::HeartbeatSucceeded(number, duration) => {
                let begun = self.established(number, checks)?.heartbeat.take();
                let took = begun.map(|begun| at.saturating_since(begun));
                checks.check("P32", took == Some(duration), || format!("the heartbeat took {took:?}"))?;
            }
            Event::HeartbeatFailed(number) => self.established(number, checks)?.must_close = true,
            Event::Acquired(number, stream, _) => {
                // Requests that have ended without an event still count here.
                let max = self.requests_max as usize + self.ends.partition_point(|end| *end <= at);
                let conn = self.conn(number, &[Stage::Open], checks)?;
                checks.check("M2", !conn.must_close, || format!("{number} must be closed"))?;
                checks.check("M3", !conn.late.contains(&stream), || "the id waits for a late reply".to_owned())?;
                let is_new = conn.in_flight.insert(stream);
                let count = conn.in_flight.len();
                self.silent += usize::from(!is_new);
                checks.check("M1", count <= max, || format!("{count} requests, but the maximum is {max}"))?;
            }
            Event::Reply(number, stream) => {
                let is_known = self.established(number, checks)?.in_flight.remove(&stream.into());
                checks.check("M2", is_known, || "no request has this id".to_owned())?;
            }
            Event::Orphaned(number, stream, late) => {
                let conn = self.established(number, checks)?;
                let is_known = conn.in_flight.remove(&stream.into()) && conn.late.insert(stream.into());
                checks.check("M4", is_known, || "no request has this id".to_owned())?;
                has_late(conn, late, checks)?;
            }
            Event::Late(number, stream) => {
                let is_known = self.established(number, checks)?.late.remove(&stream.into());
                checks.check("M3", is_known, || "no abandoned request has this id".to_owned())?;
            }
            Event::Unknown(number, stream) => {
                let conn = self.established(number, checks)?;
                let stream = u64::try_from(stream).unwrap_or(u64::MAX);
                // A heartbeat's id is in neither list.
                let is_unknown = !conn.in_flight.contains(&stream) && !conn.late.contains(&stream);
                conn.must_close = true;
                checks.check("M2", is_unknown, || "a request has this id".to_owned())?;
            }
        }
        Ok(())
    }

    /// The connection, which must be in one of these stages.
    fn conn(&mut self, number: u64, stages: &[Stage], checks: &mut Checks) -> Result<&mut Conn, Violation> {
        let stage = self.conns.get(&number).map(|conn| conn.stage);
        let is_right = stage.is_some_and(|stage| stages.contains(&stage));
        checks.check("M6", is_right, || format!("{number} is {stage:?}"))?;
        Ok(self.conns.get_mut(&number).expect("it was checked"))
    }

    fn established(&mut self, number: u64, checks: &mut Checks) -> Result<&mut Conn, Violation> {
        self.conn(number, &[Stage::Open, Stage::Trashed, Stage::Retired], checks)
    }

    /// A connection has no more requests in flight than their events say.
    fn has_in_flight(&self, number: u64, count: u32, checks: &mut Checks) -> Judged {
        let most = self.conns.get(&number).map_or(0, |conn| conn.in_flight.len());
        checks.check("P1", count as usize <= most, || format!("{count} are in flight, but {most} were acquired"))
    }
}

fn has_late(conn: &Conn, count: u32, checks: &mut Checks) -> Judged {
    let known = conn.late.len();
    checks.check("P1", count as usize == known, || format!("{count} wait for late replies, not {known}"))
}
