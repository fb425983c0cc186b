//! The number of connections: growth, trashing, resurrection, retirement.

use super::memory::MuxConnSlot;
use super::streams::Streams;
use super::{
    BACKOFF_UP, Mux, MuxClosed, MuxConnId, MuxEvent, MuxMemory, MuxOptions, Pause, conn, stream_words, waiter,
};
use crate::machine::Observer;
use crate::storage::{Full, Store};
use crate::time::Past;
use crate::{Cause, Instant};
use core::time::Duration;

impl<M: MuxMemory> Mux<M> {
    /// The number of connections that are being established, or are about to be.
    pub(super) const fn pending_count(&self) -> u32 {
        self.conns.len(conn::OWES_ESTABLISH) + self.conns.len(conn::ESTABLISHING)
    }

    /// Whether the load requires one more connection.
    ///
    /// - `pressed`: the call was made because no connection took a request.
    #[inline]
    pub(super) fn needs_growth(&self, pressed: bool) -> bool {
        let Some(host) = self.config.host() else { return false };
        let pending = self.pending_count();
        let count = self.conns.len(conn::OPEN) + pending;
        if self.closed || count >= host.max_connections {
            return false;
        }
        if count < host.core_connections {
            return true;
        }
        // A pending connection must be established first, but a trashed one can be resurrected at
        // once.
        if pending > 0 && self.resurrectable().is_none() {
            return false;
        }
        let full = match count.checked_sub(1) {
            Some(others) => {
                let capacity = u64::from(others) * u64::from(host.max_requests_per_connection);
                u64::from(self.in_flight) > capacity + u64::from(host.new_connection_threshold)
            }
            None => false,
        };
        full || pressed || self.waiters.len(waiter::WAITING) > 0
    }

    /// Opens connections up to `core_connections`, and one more when the load requires it. Waiting
    /// requests use resurrected connections at once.
    pub(super) fn open_needed(&mut self, now: Instant, pressed: bool, observer: &mut impl Observer<MuxEvent>) {
        let mut pressed = pressed;
        while self.needs_growth(pressed) {
            if self.resurrect(now, observer) {
                self.serve(now, observer);
                pressed = pressed && self.least_busy().is_none();
            } else if self.is_paused(now) {
                break;
            } else if !self.conns.has_free_slot() && self.conns.has_any() {
                // A slot becomes free when the driver polls a `Close`; `poll_timeout` then returns
                // a time that is due.
                break;
            } else if self.create(now, observer).is_err() {
                self.note_failure(now, Cause::Resources, false);
                self.fail_if_down(now, observer);
                break;
            }
        }
    }

    fn is_paused(&self, now: Instant) -> bool {
        self.pause.is_some_and(|pause| pause.until > now)
    }

    /// Delays the next attempt. Failures during a pause count as one, except that an attempt that fails
    /// ends the pause after a lost connection.
    ///
    /// - `is_lost`: whether an established connection failed, not an attempt.
    pub(super) fn note_failure(&mut self, now: Instant, cause: Cause, is_lost: bool) {
        let is_up = !is_lost && core::mem::take(&mut self.is_reported_up);
        if self.is_paused(now) && self.pause.is_some_and(|pause| is_lost || !pause.is_lost) {
            return;
        }
        let MuxOptions { backoff_min, backoff_max, .. } = *self.config.options();
        // Requests wait during the pause after a lost connection.
        let longest = if is_lost { backoff_max } else { self.config.backoff_after(cause) };
        let length = self.backoff.clamp(backoff_min, longest);
        self.backoff = length.saturating_mul(2);
        let length = if is_up { length.min(BACKOFF_UP) } else { length };
        let length = length - self.random_part(length / 4);
        self.pause = Some(Pause { cause, is_lost, at: now, until: now.saturating_add(length) });
    }

    /// A random part of a duration.
    ///
    /// Source: Marsaglia, "Xorshift RNGs", the 32-bit generator with the shifts 13, 17 and 5. It
    /// needs no quality beyond pools that do not return in step.
    fn random_part(&mut self, of: Duration) -> Duration {
        self.entropy ^= self.entropy << 13;
        self.entropy ^= self.entropy >> 17;
        self.entropy ^= self.entropy << 5;
        let nanos = (of.as_nanos() * u128::from(self.entropy)) >> 32;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(of)
    }

    /// Creates a connection, which will be established.
    fn create(&mut self, now: Instant, observer: &mut impl Observer<MuxEvent>) -> Result<(), Full> {
        let slot = MuxConnSlot {
            created: Past(now),
            until: Instant::MAX,
            received_at: now,
            heartbeat_at: now,
            in_flight: 0,
            answered: false,
            is_replaced: false,
            heartbeat: None,
        };
        let key = self.conns.insert(conn::OWES_ESTABLISH, slot)?;
        if self.prepare_streams(key.index()).is_err() {
            self.conns.remove(key.index());
            return Err(Full);
        }
        observer.on_event(now, &MuxEvent::ConnectionCreated { mux: self.id, conn: MuxConnId(key) });
        Ok(())
    }

    /// The number of stream ids that the memory can hold, at most `ids`.
    pub(super) fn ids_with_room(ids: u32) -> u32 {
        let room = <M::Words as Store<u64>>::empty().limit() as usize;
        let mut fit = ids;
        while stream_words(fit) > room {
            fit = fit.saturating_sub(1) / 64 * 64;
        }
        fit
    }

    /// Frees all stream ids of a connection slot.
    pub(super) fn prepare_streams(&mut self, index: u32) -> Result<(), Full> {
        while self.streams.slots().len() <= index as usize {
            self.streams.try_push(Streams::empty())?;
        }
        let ids = self.config.options().streams_per_connection;
        self.streams.slots_mut().get_mut(index as usize).ok_or(Full)?.reset(ids, self.keeps_first)
    }

    /// The newest trashed connection that has not expired.
    fn resurrectable(&self) -> Option<u32> {
        let mut newest = None;
        self.for_each(conn::TRASHED, |index| {
            if self.conns.get(index).until > self.now {
                newest = Some(index);
            }
        });
        newest
    }

    /// Moves the newest trashed connection back to the open ones, if any.
    fn resurrect(&mut self, now: Instant, observer: &mut impl Observer<MuxEvent>) -> bool {
        let Some(index) = self.resurrectable() else { return false };
        self.conns.move_to(index, conn::OPEN);
        let conn = MuxConnId(self.conns.key(index));
        observer.on_event(now, &MuxEvent::ConnectionResurrected { mux: self.id, conn });
        self.arm_shrinking(now);
        true
    }

    /// Schedules the next shrink check if more than `core_connections` are open.
    pub(super) fn arm_shrinking(&mut self, now: Instant) {
        let core = self.config.host().map_or(0, |host| host.core_connections);
        if self.conns.len(conn::OPEN) <= core {
            self.shrink_at = None;
        } else if self.shrink_at.is_none() {
            self.shrink_at = Some(now.saturating_add(self.config.options().shrink_interval));
            self.in_flight_max = self.in_flight;
        }
    }

    /// The number of connections that a load needs. The threshold is a quarter lower than for
    /// growth, by at least one request: otherwise a load near the threshold would open and trash a
    /// connection again and again.
    pub(super) fn needed(&self, load: u32) -> u32 {
        let Some(host) = self.config.host() else { return 0 };
        let requests = host.max_requests_per_connection;
        let kept = host.new_connection_threshold - host.new_connection_threshold.div_ceil(4);
        let more = u32::from(load % requests > kept);
        (load / requests + 1 + more).max(host.core_connections)
    }

    /// Trashes the connections that even the highest number of requests in flight since the last
    /// check did not need.
    pub(super) fn shrink(&mut self, now: Instant, observer: &mut impl Observer<MuxEvent>) {
        let needed = self.needed(self.in_flight_max);
        // Waiting requests need all connections.
        if self.waiters.len(waiter::WAITING) == 0 {
            self.trash_beyond(now, needed, observer);
        }
        self.shrink_at = None;
        self.arm_shrinking(now);
    }

    /// Trashes open connections beyond this number, the least busy first; of equally busy ones, the
    /// newest.
    fn trash_beyond(&mut self, now: Instant, count: u32, observer: &mut impl Observer<MuxEvent>) {
        while self.conns.len(conn::OPEN) > count {
            let mut least = u32::MAX;
            let mut found = None;
            self.for_each(conn::OPEN, |index| {
                let in_flight = self.conns.get(index).in_flight;
                if in_flight <= least {
                    least = in_flight;
                    found = Some(index);
                }
            });
            let Some(index) = found else { return };
            self.conns.move_to(index, conn::TRASHED);
            self.conns.get_mut(index).until = now.saturating_add(self.config.options().idle_timeout);
            let (mux, conn) = (self.id, MuxConnId(self.conns.key(index)));
            observer.on_event(now, &MuxEvent::ConnectionTrashed { mux, conn, in_flight: least });
            self.close_if_empty(now, index, observer);
        }
    }

    /// Retires a connection: it takes no more requests.
    pub(super) fn retire(&mut self, now: Instant, index: u32, observer: &mut impl Observer<MuxEvent>) {
        self.conns.move_to(index, conn::RETIRED);
        let orphaned = self.streams.slots().get(index as usize).map_or(0, Streams::late_count);
        let (mux, conn) = (self.id, MuxConnId(self.conns.key(index)));
        observer.on_event(now, &MuxEvent::ConnectionRetired { mux, conn, orphaned });
        self.arm_shrinking(now);
        self.close_if_empty(now, index, observer);
    }

    /// Retires all established connections, and abandons those that the driver is establishing.
    pub(super) fn retire_all(&mut self, now: Instant, observer: &mut impl Observer<MuxEvent>) {
        while let Some(index) = self.conns.front(conn::ESTABLISHING) {
            self.drop_conn(now, index, MuxClosed::Replaced, observer);
        }
        for list in [conn::OPEN, conn::TRASHED] {
            while let Some(index) = self.conns.front(list) {
                self.conns.get_mut(index).is_replaced = true;
                self.retire(now, index, observer);
            }
        }
    }

    /// Closes a retired or expired connection that has no requests.
    pub(super) fn close_if_empty(&mut self, now: Instant, index: u32, observer: &mut impl Observer<MuxEvent>) {
        let slot = self.conns.get(index);
        if slot.in_flight > 0 {
            return;
        }
        match self.conns.list_of(index) {
            conn::RETIRED => {
                let reason = match self.config.host() {
                    None => MuxClosed::PoolClosed,
                    Some(_) if slot.is_replaced => MuxClosed::Replaced,
                    Some(_) => MuxClosed::Worn,
                };
                self.drop_conn(now, index, reason, observer);
            }
            conn::TRASHED if slot.until <= now => self.drop_conn(now, index, MuxClosed::Idle, observer),
            _ => {}
        }
    }

    /// Removes a connection, with the requests on it.
    pub(super) fn drop_conn(
        &mut self,
        now: Instant,
        index: u32,
        reason: MuxClosed,
        observer: &mut impl Observer<MuxEvent>,
    ) {
        let slot = self.conns.get_mut(index);
        let in_flight = core::mem::take(&mut slot.in_flight);
        if slot.heartbeat.take().is_some_and(|heartbeat| !heartbeat.polled) {
            self.heartbeats_owed -= 1;
        }
        self.in_flight -= in_flight;
        // A connection whose `Establish` was not polled needs no `Close`.
        let conn = MuxConnId(self.conns.key(index));
        if self.conns.list_of(index) == conn::OWES_ESTABLISH {
            self.conns.remove(index);
        } else {
            self.conns.move_to(index, conn::OWES_CLOSE);
        }
        observer.on_event(now, &MuxEvent::ConnectionClosed { mux: self.id, conn, reason, in_flight });
        self.arm_shrinking(now);
    }

    /// Applies the limits of changed options.
    pub(super) fn apply_limits(&mut self, now: Instant, observer: &mut impl Observer<MuxEvent>) {
        let Some(host) = self.config.host() else {
            self.fail_waiters(now, super::AcquireError::Ignored, observer);
            self.abandon_pending(now, 0, observer);
            for list in [conn::OPEN, conn::TRASHED] {
                while let Some(index) = self.conns.front(list) {
                    self.retire(now, index, observer);
                }
            }
            return;
        };
        let max = host.max_connections;
        if let Some(pause) = &mut self.pause {
            pause.until = pause.until.min(pause.at.saturating_add(self.config.backoff_after(pause.cause)));
        }
        self.abandon_pending(now, max.saturating_sub(self.conns.len(conn::OPEN)), observer);
        self.trash_beyond(now, max, observer);
        self.shrink_at = None;
        self.arm_shrinking(now);
        self.serve(now, observer);
        self.open_needed(now, false, observer);
        self.fail_if_down(now, observer);
    }

    /// Abandons pending connections beyond this number, first those whose establishment the driver
    /// has not begun.
    fn abandon_pending(&mut self, now: Instant, count: u32, observer: &mut impl Observer<MuxEvent>) {
        for list in [conn::OWES_ESTABLISH, conn::ESTABLISHING] {
            while self.pending_count() > count {
                let Some(index) = self.conns.back(list) else { break };
                self.drop_conn(now, index, MuxClosed::PoolClosed, observer);
            }
        }
    }
}
