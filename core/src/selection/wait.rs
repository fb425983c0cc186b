//! The wait of an operation that finds no suitable server.
//!
//! Read first: Server Selection, "Multi-threaded or asynchronous server selection" and
//! "serverSelectionTimeoutMS".

use super::candidate::Candidates;
use super::error::{SelectionError, SelectionFailure};
use crate::Instant;
use core::time::Duration;

/// The default serverSelectionTimeoutMS.
pub const SERVER_SELECTION_TIMEOUT: Duration = Duration::from_secs(30);

/// One operation's selection, in a client whose servers are monitored in the background.
///
/// ```text
/// let selector = Selector::new(now, Some(SERVER_SELECTION_TIMEOUT));
/// loop {
///     if let Some(server) = select(topology.description(), ..)? {
///         break server; // also at the deadline
///     }
///     selector.expire(now, topology.description())?;
///     // Check all servers now; sleep until the topology has changed, for 500 ms or until the deadline.
///     control.request_check(now);
/// }
/// ```
///
/// Every wake-up repeats the attempt, whatever its cause. A host registers for the topology's next
/// change under the same lock as the attempt, so no change between the two is missed. A server with
/// a check in flight drops the request, so the loop repeats it after
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    started: Instant,
    deadline: Option<Instant>,
}

impl Selector {
    /// Creates a selection that begins now.
    ///
    /// - `timeout`: serverSelectionTimeoutMS, or the operation's remaining time if that is less;
    ///   zero is one attempt, `None` waits without limit.
    #[must_use]
    pub const fn new(now: Instant, timeout: Option<Duration>) -> Self {
        let deadline = match timeout {
            Some(timeout) => Some(now.saturating_add(timeout)),
            None => None,
        };
        Self { started: now, deadline }
    }

    /// The deadline; `None` = without limit.
    #[must_use]
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Fails at the deadline.
    ///
    /// # Errors
    ///
    /// [`SelectionFailure::TimedOut`] at the deadline.
    ///
    /// Source: Server Selection, "Server Selection Algorithm".
    pub fn expire<T: Candidates>(&self, now: Instant, topology: T) -> Result<(), SelectionError> {
        match self.deadline {
            Some(deadline) if deadline <= now => {
                let waited = now.saturating_since(self.started);
                Err(SelectionError::new(SelectionFailure::TimedOut { waited }, topology))
            }
            _ => Ok(()),
        }
    }
}
