//! The child of a fork: connections, locks and tasks that it inherits belong to its parent.
//!
//! Read first: CMAP, "Forking".
//!
//! A runtime that can detect a fork reports it in [`BaseRuntime::is_forked`]. Then each operation
//! of the client core fails at its next poll, before it accesses a lock or a socket. The values
//! that it drops are leaked, because a lock may be held by a thread that does not exist in the
//! child, and dropping a waker may take a lock. The first operation or snapshot that detects the
//! fork clears the pools.

use super::client_core::{ClientCore, State};
use super::error::OperationError;
use super::runtime::{Locked, Runtime};
use poolhouse_core::storage::Store;
use poolhouse_core::topology;

/// The result of [`ClientCore::reset_after_fork`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForkReset {
    /// Nothing was changed: this process created the client core, or its runtime cannot detect
    /// forks.
    NotForked,
    /// All pools are empty.
    Cleared,
    /// Some pools were not cleared: at the time of the fork a thread held a lock, which is never
    /// released in the child. Snapshots report them as empty.
    Locked,
}

/// Detects whether the process was forked since this was created.
#[cfg(feature = "std")]
#[derive(Clone, Debug, Default)]
#[doc(hidden)]
pub struct ForkGuard {
    guard: forkguard::Guard,
}

#[cfg(feature = "std")]
impl ForkGuard {
    /// Whether this process is a descendant of the creating process by forks. Cost: a load and a
    /// comparison.
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.guard.clone().detected_fork()
    }
}

impl<R: Runtime> ClientCore<R> {
    /// For the child of a fork: abandons all connections. The pools then are empty, paused and of a
    /// new generation.
    ///
    /// Nothing is sent to servers, sockets are not closed, no waiter is woken, and a held lock is
    /// not awaited. Calling this is optional: the first operation that fails in the child and the
    /// first snapshot do it.
    ///
    /// Cost: O(servers + connections) the first time. Events: none, because the subscribers belong
    /// to the parent.
    ///
    /// Source: CMAP, "Forking".
    #[cold]
    pub fn reset_after_fork(&self) -> ForkReset {
        if !self.runtime().is_forked() {
            return ForkReset::NotForked;
        }
        let mut servers: <R::Topology as topology::Memory>::PerServer<Option<R::ServerHandle>> = Store::empty();
        let listed = self.state.try_with(|state| {
            let entries = state.servers.slots().iter().flatten().filter(|_| !state.forked);
            for entry in entries {
                if servers.try_push(Some(entry.server.clone())).is_err() {
                    return false;
                }
            }
            true
        });
        let mut all = listed == Some(true);
        for server in servers.slots().iter().flatten() {
            all &= server.reset_after_fork();
        }
        if all && self.state.try_with(|state| state.forked = true).is_some() {
            ForkReset::Cleared
        } else {
            ForkReset::Locked
        }
    }

    /// Whether this process was forked from the one that created the client core.
    #[inline]
    pub(super) fn is_forked(&self) -> bool {
        self.runtime().is_forked()
    }

    /// Fails in the child of a fork. Called at each poll, before anything else.
    #[inline]
    pub(super) fn check_fork(&self) -> Result<(), OperationError> {
        if self.is_forked() { Err(self.notice_fork()) } else { Ok(()) }
    }

    #[cold]
    fn notice_fork(&self) -> OperationError {
        self.reset_after_fork();
        OperationError::Forked
    }

    /// Calls `look` with the state. `None` in the child of a fork, if the lock is held.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut State<R>) -> T) -> Option<T> {
        if self.is_forked() {
            self.reset_after_fork();
            return self.state.try_with(look);
        }
        Some(self.state.with(look))
    }
}
