//! The events of the client, checked as they are received (S2, S3, S6; LOG-01, LOG-02, LOG-11).

use crate::kind::Kind;
use crate::oracle::monitor::Oracle;
use alloc::collections::{BTreeMap, BTreeSet};
use poolhouse_core::monitor::MonitorEvent;
use poolhouse_core::mux::MuxEvent;
use poolhouse_core::pool::PoolEvent;
use poolhouse_core::topology::SdamEvent;
use poolhouse_core::{Cause, Instant, Observer, ServerType};

#[derive(Default)]
pub(crate) struct Log {
    beats: BTreeMap<u32, Oracle>,
    open: BTreeSet<u32>,
    types: BTreeMap<u32, ServerType>,
    latest: Option<Instant>,
    opened: bool,
    changed: bool,
    pub(crate) closed: bool,
    pub(crate) seen: Vec<Kind>,
    /// Number of events.
    pub(crate) count: u64,
    /// Servers with a check that has failed.
    pub(crate) failed: Vec<u32>,
    /// Log lines, if they are requested.
    pub(crate) lines: Option<Vec<String>>,
}

impl Log {
    fn note(&mut self, now: Instant, line: impl FnOnce() -> String) {
        assert!(self.latest <= Some(now), "events are ordered by time (LOG-01)");
        self.latest = Some(now);
        self.count += 1;
        if let Some(lines) = &mut self.lines {
            lines.push(line());
        }
    }

    /// The instant of the last event.
    pub(crate) const fn latest(&self) -> Option<Instant> {
        self.latest
    }

    /// Checks, after one call, that servers with a failed check have become Unknown.
    pub(crate) fn assert_failed_are_unknown(&mut self) {
        for server in self.failed.drain(..) {
            let known = self.types.get(&server).filter(|known| known.is_known());
            assert_eq!(known, None, "S7: a check of server {server} failed");
        }
    }

    /// Checks that each check has ended (LOG-11).
    pub(crate) fn assert_over(&self) {
        self.beats.values().for_each(Oracle::assert_ended);
        assert!(self.closed && self.open.is_empty());
    }
}

impl Observer<PoolEvent> for Log {
    fn on_event(&mut self, now: Instant, event: &PoolEvent) {
        self.note(now, || format!("    {event}"));
        match event {
            PoolEvent::PoolReady { .. } => self.seen.push(Kind::Readied),
            PoolEvent::PoolCleared { .. } => self.seen.push(Kind::Cleared),
            PoolEvent::ConnectionReady { .. } => self.seen.push(Kind::Established),
            _ => {}
        }
    }
}

impl Observer<MuxEvent> for Log {
    fn on_event(&mut self, now: Instant, event: &MuxEvent) {
        self.note(now, || format!("    {event}"));
    }
}

impl Observer<MonitorEvent> for Log {
    fn on_event(&mut self, now: Instant, event: &MonitorEvent) {
        let server = event.id().server.number();
        self.note(now, || format!("    #{server} {event}"));
        let is_known = self.types.get(&server).is_some_and(|known| known.is_known());
        let beats = self.beats.entry(server).or_default();
        let retries = beats.seen.retries;
        beats.event(now, event, is_known);
        match *event {
            MonitorEvent::HeartbeatStarted { .. } => {
                assert!(self.open.contains(&server), "a check of a server that is not a member");
                if beats.seen.retries > retries {
                    self.seen.push(Kind::Retried);
                }
            }
            MonitorEvent::HeartbeatSucceeded { awaited, .. } => {
                self.seen.push(if awaited { Kind::Streamed } else { Kind::Polled });
            }
            MonitorEvent::HeartbeatFailed { cause, .. } => {
                let is_given_up = matches!(cause, Cause::Cancelled | Cause::Closed);
                self.seen.push(if is_given_up { Kind::CheckCancelled } else { Kind::CheckFailed });
                self.failed.extend((!is_given_up).then_some(server));
            }
            _ => unreachable!("an unknown event"),
        }
    }
}

impl Observer<SdamEvent<'_>> for Log {
    fn on_event(&mut self, now: Instant, event: &SdamEvent<'_>) {
        self.note(now, || format!("    {event}"));
        assert!(!self.closed, "an event after the last one (LOG-02)");
        match event {
            SdamEvent::TopologyOpening { .. } => assert!(!core::mem::replace(&mut self.opened, true)),
            SdamEvent::ServerOpening { server, .. } => {
                assert!(self.opened && self.open.insert(server.number()), "a server opens twice");
                self.types.insert(server.number(), ServerType::Unknown);
                self.seen.push(Kind::Added);
            }
            SdamEvent::ServerClosed { server, .. } => {
                assert!(self.open.remove(&server.number()), "a server closes that was not opened");
                self.types.remove(&server.number());
                self.seen.push(Kind::Removed);
            }
            SdamEvent::ServerDescriptionChanged { server, previous, new, .. } => {
                let known = self.types.insert(server.number(), new.server_type()).expect("it is open");
                // Unknown and PossiblePrimary are equal.
                assert_eq!(known.is_known(), previous.server_type().is_known());
                if previous.server_type() == ServerType::RsPrimary
                    && matches!(new.error(), Some(poolhouse_core::topology::ServerError::NewerPrimary))
                {
                    self.seen.push(Kind::Deposed);
                }
            }
            SdamEvent::TopologyDescriptionChanged { new, .. } => {
                // The first change is emitted before the servers open.
                let is_first = !core::mem::replace(&mut self.changed, true);
                assert!(
                    is_first || new.servers().count() == self.open.len(),
                    "the number of members differs from that of open servers"
                );
            }
            SdamEvent::TopologyClosed { .. } => self.closed = true,
            SdamEvent::NoServers { .. } => {}
            _ => unreachable!("an unknown event"),
        }
    }
}
