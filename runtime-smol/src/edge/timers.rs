//! Timers of the reactor.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::task::Waker;
use core::time::Duration;
use poolhouse_client::poolhouse_core::Instant;

/// A deadline, and a number that is unique in the process.
pub(super) type Key = (Instant, u64);

/// The tasks that sleep, by deadline.
pub(super) struct Timers {
    asleep: BTreeMap<Key, Waker>,
    last: u64,
    /// When the reactor wakes up by itself; [`Instant::MAX`] for never. It moves to a later time only once it
    /// has passed, so that a timer that is created and dropped for each operation does not wake the
    /// reactor each time.
    wakes_at: Instant,
}

impl Timers {
    pub(super) const fn new() -> Self {
        Self { asleep: BTreeMap::new(), last: 0, wakes_at: Instant::MAX }
    }

    /// Returns the key of a new timer.
    pub(super) const fn key(&mut self, at: Instant) -> Key {
        self.last += 1;
        (at, self.last)
    }

    /// Sets the waker of a timer. Returns the last one, and whether the reactor must be woken,
    /// because it would wake up too late.
    pub(super) fn set(&mut self, key: Key, waker: Waker) -> (Option<Waker>, bool) {
        let is_earlier = key.0 < self.wakes_at;
        self.wakes_at = self.wakes_at.min(key.0);
        (self.asleep.insert(key, waker), is_earlier)
    }

    /// Removes a timer; returns its waker if it has not fired.
    pub(super) fn remove(&mut self, key: Key) -> Option<Waker> {
        self.asleep.remove(&key)
    }

    /// Moves the wakers of the timers that are due to `due`, in their order. Returns how long the
    /// reactor may wait; `None` for ever.
    pub(super) fn advance(&mut self, now: Instant, due: &mut Vec<Waker>) -> Option<Duration> {
        while let Some(first) = self.asleep.first_entry().filter(|first| first.key().0 <= now) {
            due.push(first.remove());
        }
        let earliest = self.asleep.first_key_value().map_or(Instant::MAX, |(key, _)| key.0);
        self.wakes_at = if self.wakes_at <= now { earliest } else { self.wakes_at.min(earliest) };
        (self.wakes_at != Instant::MAX).then(|| self.wakes_at.saturating_since(now))
    }
}
