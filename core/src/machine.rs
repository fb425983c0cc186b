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

pub use crate::observe::Observer;
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
