//! The rule for changes of the number of connections, checked at each event.

use super::{HOUR, HOURS, Report};
use core::time::Duration;
use poolhouse_core::mux::{HostOptions, HostState, MuxClosed, MuxEvent, MuxOptions};
use poolhouse_core::{Instant, Observer};

/// Independent counts, derived only from the events.
pub(super) struct Rule {
    host: HostOptions,
    options: MuxOptions,
    now: u64,
    open: u32,
    pending: u32,
    /// Connection number and end of the trash period, the newest last.
    trash: Vec<(u64, u64)>,
    in_flight: u32,
    /// The end of the shrink window, and the maximum number of requests in flight in it.
    window: Option<(u64, u32)>,
    /// Integral of open connections over time, in connection-seconds.
    area: f64,
    pub(super) report: Report,
}

impl Rule {
    pub(super) fn new(options: MuxOptions) -> Self {
        Self {
            host: options.local,
            options,
            now: 0,
            open: 0,
            pending: 0,
            trash: Vec::new(),
            in_flight: 0,
            window: None,
            area: 0.0,
            report: Report::default(),
        }
    }

    fn count(&self) -> u32 {
        self.open + self.pending
    }

    /// Whether the load requires one more connection.
    fn wants_more(&self) -> bool {
        let HostOptions { max_connections, max_requests_per_connection, new_connection_threshold, .. } = self.host;
        let others = self.count().saturating_sub(1);
        self.count() < max_connections
            && self.in_flight > others * max_requests_per_connection + new_connection_threshold
    }

    pub(super) fn time_passes(&mut self, from: u64, to: u64) {
        self.area += f64::from(self.open) * Duration::from_nanos(to - from).as_secs_f64();
    }

    /// Opens the shrink window if there are more connections than the core number, else closes it.
    fn arm(&mut self) {
        if self.open <= self.host.core_connections {
            self.window = None;
        } else if self.window.is_none() {
            let interval = u64::try_from(self.options.shrink_interval.as_nanos()).expect("some seconds");
            self.window = Some((self.now + interval, self.in_flight));
        }
    }

    /// Required number of connections after `handle_timeout`; `None` if the shrink window has not
    /// ended.
    pub(super) fn look(&self, now: u64) -> Option<u32> {
        let (_, most) = self.window.filter(|(at, _)| *at <= now)?;
        // The maximum load that they would carry without requiring one more, with the threshold
        // reduced by a quarter.
        let HostOptions { max_requests_per_connection, new_connection_threshold, core_connections, .. } = self.host;
        let kept = new_connection_threshold - new_connection_threshold.div_ceil(4);
        let carry = |count: u32| (count - 1) * max_requests_per_connection + kept;
        let enough = (1..=self.open).find(|count| most <= carry(*count));
        Some(enough.unwrap_or(self.open).max(core_connections))
    }

    pub(super) fn looked(&mut self, now: u64, expected: Option<u32>) {
        let Some(expected) = expected else { return };
        assert_eq!(self.open, expected, "after the shrink window at {now}, with the maximum load {:?}", self.window);
        self.now = now;
        self.window = None;
        self.arm();
    }

    /// After a step, checks the number of connections and the state that the pool reports.
    pub(super) fn settled(&self, state: &HostState) {
        let counts = (state.open, state.establishing, state.in_flight, state.trashed as usize);
        assert_eq!(counts, (self.open, self.pending, self.in_flight, self.trash.len()), "the pool's counts");
        assert!(self.count() <= self.host.max_connections, "more connections than max_connections");
        assert!(self.pending <= 1, "one establishment at a time");
        assert!(!self.wants_more() || self.pending == 1, "the load requires one more connection");
        assert!(
            state.queued == 0 || self.pending == 1 || self.count() == self.host.max_connections,
            "a request waits without reason"
        );
    }

    pub(super) fn finished(mut self, end: u64) -> Report {
        self.report.mean = self.area / Duration::from_nanos(end).as_secs_f64();
        self.report
    }

    fn add(&self, what: &MuxEvent) {
        assert!(self.count() < self.host.core_connections || self.wants_more(), "{what} without demand");
    }
}

impl Observer<MuxEvent> for Rule {
    fn on_event(&mut self, now: Instant, event: &MuxEvent) {
        self.now = now.as_nanos();
        #[allow(clippy::wildcard_enum_match_arm, reason = "other events do not affect this state")]
        let resize = match *event {
            MuxEvent::ConnectionCreated { .. } => {
                self.add(event);
                assert!(
                    self.trash.iter().all(|(_, until)| *until <= self.now),
                    "a trashed connection should have been resurrected"
                );
                self.pending += 1;
                let hour = usize::try_from(self.now / HOUR).expect("an hour").min(HOURS - 1);
                self.report.opened[hour] += 1;
                true
            }
            MuxEvent::ConnectionReady { .. } => {
                self.pending -= 1;
                self.open += 1;
                self.arm();
                true
            }
            MuxEvent::ConnectionTrashed { conn, .. } => {
                self.open -= 1;
                self.report.trashed += 1;
                let kept = u64::try_from(self.options.idle_timeout.as_nanos()).expect("some minutes");
                self.trash.push((conn.number().get(), self.now + kept));
                true
            }
            MuxEvent::ConnectionResurrected { conn, .. } => {
                self.add(event);
                let (number, until) = self.trash.pop().expect("one in the trash");
                assert_eq!(number, conn.number().get(), "the newest");
                assert!(until > self.now, "its timeout has expired");
                self.open += 1;
                self.report.resurrected += 1;
                self.arm();
                true
            }
            MuxEvent::ConnectionClosed { conn, reason, in_flight, .. } => {
                assert_eq!((reason, in_flight), (MuxClosed::Idle, 0), "connections close only as idle");
                let place = self.trash.iter().position(|(number, _)| *number == conn.number().get());
                let (_, until) = self.trash.remove(place.expect("it was in the trash"));
                assert!(until <= self.now, "closed before its time");
                true
            }
            MuxEvent::StreamAcquired { .. } => {
                self.in_flight += 1;
                if let Some((_, most)) = &mut self.window {
                    *most = self.in_flight.max(*most);
                }
                false
            }
            MuxEvent::ReplyReceived { .. } => {
                self.in_flight -= 1;
                false
            }
            _ => false,
        };
        if resize {
            self.report.most = self.report.most.max(self.open);
        }
    }
}
