//! The events of the client, checked as they are received (S2, S3, S6; LOG-01, LOG-02, LOG-11).

use super::kind::Kind;
use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;
use poolhouse_core::monitor::MonitorEvent;
use poolhouse_core::mux::MuxEvent;
use poolhouse_core::pool::PoolEvent;
use poolhouse_core::topology::SdamEvent;
use poolhouse_core::{Cause, Instant, Observer, ServerType};

const MIN_PAUSE: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Beats {
    /// The check in flight, and whether it is awaitable.
    started: Option<bool>,
    ended: Option<(Instant, Option<Cause>)>,
    retried: Option<Instant>,
    /// Whether the server was known when its last check failed.
    was_known: bool,
}

#[derive(Default)]
pub(crate) struct Log {
    beats: BTreeMap<u32, Beats>,
    open: BTreeSet<u32>,
    types: BTreeMap<u32, ServerType>,
    latest: Option<Instant>,
    opened: bool,
    changed: bool,
    pub(crate) closed: bool,
    pub(crate) seen: Vec<Kind>,
    /// Log lines, if they are requested.
    pub(crate) lines: Option<Vec<String>>,
}

impl Log {
    fn note(&mut self, now: Instant, line: impl FnOnce() -> String) {
        assert!(self.latest <= Some(now), "events are ordered by time (LOG-01)");
        self.latest = Some(now);
        if let Some(lines) = &mut self.lines {
            lines.push(line());
        }
    }

    /// The instant of the last event.
    pub(crate) const fn latest(&self) -> Option<Instant> {
        self.latest
    }

    /// Checks that each check has ended (LOG-11).
    pub(crate) fn assert_over(&self) {
        for (server, beats) in &self.beats {
            assert_eq!(beats.started, None, "a check of server {server} never ended");
        }
        assert!(self.closed && self.open.is_empty());
    }

    fn end(&mut self, now: Instant, server: u32, awaited: bool, cause: Option<Cause>) {
        let beats = self.beats.entry(server).or_default();
        assert_eq!(beats.started.take(), Some(awaited), "an end without its start (S2)");
        beats.ended = Some((now, cause));
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
        match *event {
            MonitorEvent::HeartbeatStarted { awaited, .. } => {
                assert!(self.open.contains(&server), "a check of a server that is not a member");
                let beats = self.beats.entry(server).or_default();
                assert_eq!(beats.started, None, "two checks at once (S1)");
                beats.started = Some(awaited);
                match beats.ended {
                    None => assert!(!awaited, "the first check is not awaited"),
                    Some((ended, None)) if awaited => assert_eq!(ended, now, "a stream continues at once"),
                    Some((_, Some(_))) if awaited => panic!("a stream continues after a failure"),
                    Some((ended, cause)) if now.saturating_since(ended) < MIN_PAUSE => {
                        assert!(cause.is_some_and(Cause::is_network), "a check too soon after {cause:?} (S3)");
                        let last = beats.retried.replace(now);
                        let soon = last.is_some_and(|last| now.saturating_since(last) < MIN_PAUSE);
                        assert!(!soon, "a second retry at once");
                        assert!(beats.was_known, "a retry although the server was Unknown before (S6)");
                        self.seen.push(Kind::Retried);
                    }
                    Some(_) => {}
                }
            }
            MonitorEvent::HeartbeatSucceeded { awaited, .. } => {
                self.end(now, server, awaited, None);
                self.seen.push(if awaited { Kind::Streamed } else { Kind::Polled });
            }
            MonitorEvent::HeartbeatFailed { awaited, cause, .. } => {
                self.end(now, server, awaited, Some(cause));
                let known = self.types.get(&server).is_some_and(|known| known.is_known());
                self.beats.entry(server).or_default().was_known = known;
                let is_given_up = matches!(cause, Cause::Cancelled | Cause::Closed);
                self.seen.push(if is_given_up { Kind::CheckCancelled } else { Kind::CheckFailed });
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
