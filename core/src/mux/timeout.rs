//! Work that is due at a time: expired requests, heartbeats, surplus connections.

use super::memory::{Heartbeat, Verdict};
use super::{AcquireError, Mux, MuxAction, MuxConnId, MuxEvent, MuxMemory, conn, waiter};
use crate::machine::Observer;
use crate::storage::Store;
use crate::{Cause, Instant};

/// The lists of connections that are established.
const ESTABLISHED: [u8; 3] = [conn::OPEN, conn::TRASHED, conn::RETIRED];

impl<M: MuxMemory> Mux<M> {
    pub(super) fn expire(&mut self, now: Instant, observer: &mut impl Observer<MuxEvent>) {
        if self.closed {
            return;
        }
        // Close failed and expired connections before failing timed-out requests, so freed capacity
        // can serve them.
        self.check_heartbeats(now, observer);
        // Otherwise `has_failed` stays true if no other connection is needed.
        self.pause = self.pause.filter(|pause| !pause.is_lost || pause.until > now);
        while let Some(index) = self.expired_trashed(now) {
            self.drop_conn(now, index, super::MuxClosed::Idle, observer);
        }
        self.open_needed(now, false, observer);
        while self.deadlines.earliest().is_some_and(|at| at <= now) {
            let Some(index) = self.deadlines.first() else { break };
            let queued = self.waiters.len(waiter::WAITING);
            let error = AcquireError::TimedOut { in_flight: self.in_flight, queued };
            self.record_outcome(now, index, Verdict::Failed(error), observer);
        }
        if self.shrink_at.is_some_and(|at| at <= now) {
            self.shrink(now, observer);
        }
        self.fail_if_down(now, observer);
    }

    /// A trashed connection that has expired and has no requests in flight.
    fn expired_trashed(&self, now: Instant) -> Option<u32> {
        let mut found = None;
        self.for_each(conn::TRASHED, |index| {
            let slot = self.conns.get(index);
            if slot.until <= now && slot.in_flight == 0 {
                found = found.or(Some(index));
            }
        });
        found
    }

    /// Starts heartbeats that are due, and closes connections with unanswered heartbeats.
    fn check_heartbeats(&mut self, now: Instant, observer: &mut impl Observer<MuxEvent>) {
        while let Some((index, asked)) = self.heartbeat_is_due(now) {
            let (mux, conn) = (self.id, MuxConnId(self.conns.key(index)));
            if !asked {
                if let Some(stream) = self.take_id(index) {
                    let slot = self.conns.get_mut(index);
                    (slot.heartbeat_at, slot.heartbeat) = (now, Some(Heartbeat { stream, asked: now, polled: false }));
                    self.heartbeats_owed += 1;
                    observer.on_event(now, &MuxEvent::HeartbeatStarted { mux, conn });
                    continue;
                }
                // No stream id is free for a heartbeat, and nothing was received within the
                // timeout: the peer is treated as dead.
            }
            observer.on_event(now, &MuxEvent::HeartbeatFailed { mux, conn });
            self.fail(now, index, Cause::NetworkTimeout, observer);
        }
    }

    /// A connection that needs a heartbeat, or whose heartbeat timed out. The flag is true in the
    /// second case.
    fn heartbeat_is_due(&self, now: Instant) -> Option<(u32, bool)> {
        let mut found = None;
        for list in ESTABLISHED {
            self.for_each(list, |index| {
                if self.heartbeat_due(index).is_some_and(|at| at <= now) {
                    found = found.or(Some((index, self.conns.get(index).heartbeat.is_some())));
                }
            });
        }
        found
    }

    /// The time at which a heartbeat is due or times out.
    fn heartbeat_due(&self, index: u32) -> Option<Instant> {
        let slot = self.conns.get(index);
        let options = self.config.options();
        if options.heartbeat_interval.is_zero() {
            return None;
        }
        if let Some(heartbeat) = slot.heartbeat {
            return Some(heartbeat.asked.saturating_add(options.heartbeat_timeout));
        }
        let after = |at: Instant| at.saturating_add(options.heartbeat_interval);
        let has_id = self.streams.slots().get(index as usize).is_some_and(|streams| streams.free_count() > 0);
        Some(if has_id {
            // Not after the last bytes: a busy peer that stops is noticed one interval later then.
            after(slot.heartbeat_at).max(self.now)
        } else {
            // Without a free id no heartbeat can be sent. Any reply proves that the peer is alive, so
            // the connection has the heartbeat timeout in addition to receive one.
            after(slot.received_at).saturating_add(options.heartbeat_timeout)
        })
    }

    /// The next heartbeat that is owed to the driver.
    pub(super) fn owed_heartbeat(&mut self) -> Option<MuxAction> {
        if self.heartbeats_owed == 0 {
            return None;
        }
        let mut found = None;
        for list in ESTABLISHED {
            self.for_each(list, |index| {
                if self.conns.get(index).heartbeat.is_some_and(|heartbeat| !heartbeat.polled) {
                    found = found.or(Some(index));
                }
            });
        }
        let index = found?;
        self.heartbeats_owed -= 1;
        let heartbeat = self.conns.get_mut(index).heartbeat.as_mut()?;
        heartbeat.polled = true;
        let stream = heartbeat.stream;
        Some(MuxAction::Heartbeat(MuxConnId(self.conns.key(index)), stream))
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        if self.closed {
            return None;
        }
        let mut next = self.deadlines.earliest();
        let mut earlier = |at: Option<Instant>| {
            if let Some(at) = at {
                next = Some(next.map_or(at, |next: Instant| next.min(at)));
            }
        };
        earlier(self.shrink_at);
        for list in ESTABLISHED {
            self.for_each(list, |index| earlier(self.heartbeat_due(index)));
        }
        self.for_each(conn::TRASHED, |index| {
            let slot = self.conns.get(index);
            // A connection that is still busy at that time is closed when its last request
            // completes.
            if slot.in_flight == 0 || slot.until > self.now {
                earlier(Some(slot.until));
            }
        });
        // An attempt is due after the pause, or when a slot is free.
        if self.needs_growth(false) && self.conns.has_free_slot() {
            earlier(Some(self.pause.map_or(self.now, |pause| pause.until.max(self.now))));
        }
        // `Instant::MAX` means never.
        next.filter(|at| *at < Instant::MAX)
    }
}
