//! The child of a fork: what it inherits is its parent's.
//!
//! Read first: CMAP, "Forking" (CMAP-30, CMAP-100).
//!
//! A runtime that can tell says so by [`Runtime::is_inherited`]. Then every operation of the hub fails at its next poll, before it touches a lock or
//! a socket, and what is dropped is forgotten: a lock may be held by a thread that is not there, a waker may take one. What an operation or a look
//! at the hub notices first is that the pools are not the child's: they are cleared.

use super::error::OperationError;
use super::hub::{Hub, State};
use super::runtime::{Locked, Runtime};
use poolhouse_core::storage::Store;
use poolhouse_core::topology;

/// What became of [`Hub::reset_after_fork`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForkReset {
    /// Nothing: this is the process that made it, or its runtime cannot tell.
    NotForked,
    /// All pools are empty.
    Cleared,
    /// Some pools were left alone: at the time of the fork a thread held a lock that nobody will release. They are told to be empty all the same.
    Locked,
}

/// The process that something was made in.
#[cfg(feature = "std")]
#[derive(Clone, Debug, Default)]
#[doc(hidden)]
pub struct Birth {
    #[cfg(feature = "std")]
    guard: forkguard::Guard,
}

#[cfg(feature = "std")]
impl Birth {
    /// Whether this process is a fork of it, or of a fork of it. Cost: a load and a comparison.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        #[cfg(feature = "std")]
        let inherited = self.guard.clone().detected_fork();
        #[cfg(not(feature = "std"))]
        let inherited = false;
        inherited
    }
}

impl<R: Runtime> Hub<R> {
    /// For the child of a fork: gives up all connections, so that the pools are empty, paused and of a new generation.
    ///
    /// Nothing is said to servers, sockets are not closed but left as they are, nobody who waits is woken, and no lock is waited for.
    /// What notices the fork does it by itself: the first operation that fails, the first look at the servers.
    ///
    /// Cost: O(servers + connections) the first time. Events: none, as whoever listens is the parent's.
    ///
    /// Source: CMAP, "Forking" (CMAP-30, CMAP-100).
    #[cold]
    pub fn reset_after_fork(&self) -> ForkReset {
        if !self.runtime().is_inherited() {
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

    /// Whether this process is a fork of the one that the hub was made in.
    #[inline]
    pub(super) fn is_inherited(&self) -> bool {
        self.runtime().is_inherited()
    }

    /// Whether there may be an operation. Asked at each poll, before anything else.
    #[inline]
    pub(super) fn check_fork(&self) -> Result<(), OperationError> {
        if self.is_inherited() { Err(self.notice_fork()) } else { Ok(()) }
    }

    #[cold]
    fn notice_fork(&self) -> OperationError {
        self.reset_after_fork();
        OperationError::Forked
    }

    /// Looks at the state. `None` in the child of a fork, if a thread that is not there holds its lock.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut State<R>) -> T) -> Option<T> {
        if self.is_inherited() {
            self.reset_after_fork();
            return self.state.try_with(look);
        }
        Some(self.state.with(look))
    }
}
