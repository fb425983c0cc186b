//! Tasks that sleep until another task advances the time.

use super::model::Turnstile;
use alloc::collections::BTreeMap;
use core::future::poll_fn;
use core::task::{Poll, Waker};
use poolhouse_driver::{Lock, Locked};

/// The sleeping tasks, and the task that advances the time.
pub(crate) struct Sleepers(Turnstile<State>);

#[derive(Default)]
struct State {
    /// Wakers by deadline and a unique number.
    asleep: BTreeMap<(u64, u64), Waker>,
    last: u64,
    mover: Option<Waker>,
    stopped: bool,
}

impl Default for Sleepers {
    fn default() -> Self {
        Self(Lock::new(State::default()))
    }
}

impl Sleepers {
    /// - `now`: the time, which does not change during the call.
    pub(crate) async fn sleep_until(&self, at: u64, now: impl Fn() -> u64) {
        let mut place = Place { sleepers: self, taken: None };
        poll_fn(|context| place.poll(at, &now, context.waker())).await;
    }

    /// The earliest deadline; `None` once the time is stopped.
    pub(crate) fn poll_first(&self, waker: &Waker) -> Poll<Option<u64>> {
        self.0.with(|state| {
            if state.stopped {
                return Poll::Ready(None);
            }
            if let Some((&(at, _), _)) = state.asleep.first_key_value() {
                return Poll::Ready(Some(at));
            }
            state.mover = Some(waker.clone());
            Poll::Pending
        })
    }

    /// Advances the time, and then wakes the tasks with deadlines up to `at`.
    pub(crate) fn wake_until<T>(&self, at: u64, move_on: impl FnOnce() -> T) {
        let woken = self.0.with(|state| {
            move_on();
            let later = state.asleep.split_off(&(at + 1, 0));
            core::mem::replace(&mut state.asleep, later)
        });
        woken.into_values().for_each(Waker::wake);
    }

    pub(crate) fn stop(&self) {
        let mover = self.0.with(|state| {
            state.stopped = true;
            state.mover.take()
        });
        if let Some(mover) = mover {
            mover.wake();
        }
    }
}

/// The entry of a sleeping task, removed on drop.
struct Place<'s> {
    sleepers: &'s Sleepers,
    taken: Option<(u64, u64)>,
}

impl Place<'_> {
    fn poll(&mut self, at: u64, now: impl Fn() -> u64, waker: &Waker) -> Poll<()> {
        let mover = self.sleepers.0.with(|state| {
            if now() >= at {
                return Err(());
            }
            let key = *self.taken.get_or_insert_with(|| {
                state.last += 1;
                (at, state.last)
            });
            state.asleep.insert(key, waker.clone());
            Ok(state.mover.take())
        });
        match mover {
            Err(()) => Poll::Ready(()),
            Ok(mover) => {
                if let Some(mover) = mover {
                    mover.wake();
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.taken {
            drop(self.sleepers.0.with(|state| state.asleep.remove(&key)));
        }
    }
}
