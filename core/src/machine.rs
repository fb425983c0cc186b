//! What every state machine of this crate has in common.
//!
//! A machine is driven by four kinds of call:
//!
//! - **commands** (bare verbs: `check_out`, `clear`): what the application or a peer machine wants;
//!   their immediate outcome is returned;
//! - **`handle_*`**: news from I/O or from time;
//! - **`poll_*`**: what the machine wants of its host: the next action owed, the next instant to be called at;
//! - **getters** (nouns).
//!
//! After any command or `handle_*` the host drains [`Machine::poll_action`] and re-reads
//! [`Machine::poll_timeout`]. Actions are kept in the slots they concern and not in a queue, so one that was
//! revoked meanwhile is never seen.

#[cfg(test)]
mod tests;

use crate::observe::EventContext;
use crate::time::Instant;
use core::fmt;

/// A state machine: events in, actions out. Its inputs are inherent methods.
pub trait Machine {
    /// What the host must do. Exhaustive on purpose: a new kind must break every adapter.
    type Action;
    /// What an observer may watch.
    type Event;

    /// Does everything that is due at `now`. A call before anything is due changes nothing.
    fn handle_timeout(&mut self, now: Instant, observer: &mut impl Observer<Self::Event>);

    /// The next action that the machine owes its host, or `None` when it owes nothing.
    fn poll_action(&mut self, now: Instant) -> Option<Self::Action>;

    /// The earliest instant at which something is due; `None` exactly when nothing is.
    ///
    /// After `handle_timeout(t)` it is later than `t`, or `None`.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Checks every internal invariant, O(n). For tests, fuzzing and simulation.
    ///
    /// # Panics
    ///
    /// Panics when an invariant is broken, which is a bug in this crate.
    fn assert_invariants(&self);
}

/// News of something that is no longer there: normal when two things race. Drop the socket, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stale;

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("late news of a connection that is given up")
    }
}

impl core::error::Error for Stale {}

/// Watches the events of a machine as they happen.
///
/// Called while the machine is being changed, so it should only note the event down. `()` observes
/// nothing and compiles away.
pub trait Observer<E> {
    /// Called once for each event, in the order in which the changes were made.
    fn on_event(&mut self, now: Instant, event: &E);

    /// Whether events are of use. A disabled observer receives events that a machine emits anyway,
    /// but a machine need not read the clock for it. By default an observer is enabled.
    #[inline]
    fn is_enabled(&self) -> bool {
        true
    }

    /// [`Observer::on_event`] with what the event does not say itself, where whoever emits it knows more.
    #[inline]
    fn on_event_in(&mut self, now: Instant, event: &E, context: &EventContext<'_>) {
        let _ = context;
        self.on_event(now, event);
    }
}

impl<E> Observer<E> for () {
    #[inline]
    fn on_event(&mut self, _now: Instant, _event: &E) {}

    #[inline]
    fn is_enabled(&self) -> bool {
        false
    }
}

impl<E, O: Observer<E>> Observer<E> for Option<O> {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &E) {
        if let Some(observer) = self {
            observer.on_event(now, event);
        }
    }

    #[inline]
    fn is_enabled(&self) -> bool {
        self.as_ref().is_some_and(Observer::is_enabled)
    }

    #[inline]
    fn on_event_in(&mut self, now: Instant, event: &E, context: &EventContext<'_>) {
        if let Some(observer) = self {
            observer.on_event_in(now, event, context);
        }
    }
}

impl<E, O: Observer<E> + ?Sized> Observer<E> for &mut O {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &E) {
        (**self).on_event(now, event);
    }

    #[inline]
    fn is_enabled(&self) -> bool {
        (**self).is_enabled()
    }

    #[inline]
    fn on_event_in(&mut self, now: Instant, event: &E, context: &EventContext<'_>) {
        (**self).on_event_in(now, event, context);
    }
}

#[cfg(feature = "alloc")]
impl<E: Clone> Observer<E> for alloc::vec::Vec<(Instant, E)> {
    fn on_event(&mut self, now: Instant, event: &E) {
        self.push((now, event.clone()));
    }
}
