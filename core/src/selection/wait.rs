//! The wait of an operation that finds no suitable server.
//!
//! Read first: Server Selection, "Multi-threaded or asynchronous server selection" and "serverSelectionTimeoutMS".

use super::candidate::{Candidate, Candidates};
use super::choice::select;
use super::criteria::SelectionCriteria;
use super::error::{SelectionError, SelectionFailure};
use crate::Instant;
use crate::monitor::MIN_HEARTBEAT_FREQUENCY;
use core::time::Duration;

/// The default serverSelectionTimeoutMS.
pub const SERVER_SELECTION_TIMEOUT: Duration = Duration::from_secs(30);

/// One operation's selection, in a client whose servers are monitored in the background.
///
/// ```text
/// let mut selector = Selector::new(now, Some(SERVER_SELECTION_TIMEOUT));
/// loop {
///     match selector.attempt(now, topology.description(), ..)? {
///         Attempt::Selected(server) => break server,
///         // Check all servers now; sleep until the topology has changed, or until then.
///         Attempt::Wait { until } => { control.request_check(now); .. }
///     }
/// }
/// ```
///
/// The attempt is the same however it was woken. A host registers for the topology's next change under the lock under which it
/// attempts, so that no change falls between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    started: Instant,
    deadline: Option<Instant>,
}

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attempt<I> {
    /// This server.
    Selected(I),
    /// None now: ask every monitor for a check, then attempt again when the topology changed, and at the latest then.
    Wait {
        /// minHeartbeatFrequencyMS from now, or the deadline: a request that falls into a running check is dropped, so
        /// it is made again and again (SDAM-85).
        until: Instant,
    },
}

impl Selector {
    /// A selection that begins now.
    ///
    /// - `timeout`: serverSelectionTimeoutMS, or what is left of the operation's time if that is less; zero is one attempt,
    ///   `None` waits without end.
    #[must_use]
    pub const fn new(now: Instant, timeout: Option<Duration>) -> Self {
        let deadline = match timeout {
            Some(timeout) => Some(now.saturating_add(timeout)),
            None => None,
        };
        Self { started: now, deadline }
    }

    /// When it gives up.
    #[must_use]
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Looks for a server. One that suits is taken even at the deadline.
    ///
    /// Cost: that of [`select`], no allocation.
    ///
    /// # Errors
    ///
    /// [`SelectionError`]: those of [`select`], at once; else [`SelectionFailure::TimedOut`] at the deadline.
    ///
    /// Source: Server Selection, "Server Selection Algorithm" (SDAM-85, MON-18).
    pub fn attempt<T: Candidates>(
        &self,
        now: Instant,
        topology: T,
        criteria: &SelectionCriteria<'_>,
        deprioritized: &[<T::Server as Candidate>::Id],
        operation_count: impl FnMut(<T::Server as Candidate>::Id) -> u32,
        entropy: u32,
    ) -> Result<Attempt<<T::Server as Candidate>::Id>, SelectionError> {
        if let Some(server) = select(topology, criteria, deprioritized, operation_count, entropy)? {
            return Ok(Attempt::Selected(server));
        }
        self.expire(now, topology)?;
        let again = now.saturating_add(MIN_HEARTBEAT_FREQUENCY);
        Ok(Attempt::Wait { until: self.deadline.map_or(again, |deadline| again.min(deadline)) })
    }

    /// Gives up at the deadline: the second half of [`Selector::attempt`], for hosts that select by themselves.
    ///
    /// # Errors
    ///
    /// [`SelectionFailure::TimedOut`] at the deadline.
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
