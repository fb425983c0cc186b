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
//! After any command or `handle_*` the host drains `poll_action` and re-reads `poll_timeout`.
//! Actions are stored in the slots they belong to and not in a queue, so an action that was revoked
//! in the meantime is never returned.

pub use crate::observe::Observer;
use core::fmt;

/// A report about an object that no longer exists, which is normal in a race. If the report has a
/// socket, drop it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stale;

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stale id: the object no longer exists")
    }
}

impl core::error::Error for Stale {}
