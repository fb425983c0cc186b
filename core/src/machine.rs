//! The interface that all state machines of this crate share.
//!
//! A machine is driven by four kinds of call:
//!
//! - **commands** (bare verbs: `check_out`, `clear`): requests of the application or of another
//!   machine; their immediate outcome is returned;
//! - **`handle_*`**: reports of I/O or of elapsed time;
//! - **`poll_*`**: output for the host: the next action owed, the next instant to call the machine
//!   at;
//! - **getters** (nouns).
//!
//! After any command or `handle_*` the host drains [`Machine::poll_action`] and re-reads
//! [`Machine::poll_timeout`]. Actions are stored in the slots they belong to and not in a queue, so
//! an action that was revoked in the meantime is never returned.

pub use crate::observe::Observer;
use crate::time::Instant;
use core::fmt;

/// A state machine: events in, actions out. Its inputs are inherent methods.
pub trait Machine {
    /// The actions for the host. Deliberately exhaustive: a new kind must break the build of every
    /// host.
    type Action;
    /// The events for observers.
    type Event;

    /// Does all work that is due at `now`. A call before any work is due changes nothing.
    fn handle_timeout(&mut self, now: Instant, observer: &mut impl Observer<Self::Event>);

    /// The next action that the machine owes its host, or `None` if it owes none.
    fn poll_action(&mut self, now: Instant) -> Option<Self::Action>;

    /// The earliest instant at which work is due; `None` if and only if no work is due at any time.
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

/// A report about an object that no longer exists, which is normal in a race. Drop its socket, if
/// any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stale;

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("late news of a connection that is given up")
    }
}

impl core::error::Error for Stale {}
