//! A lock for tasks of one executor.

use core::cell::RefCell;
use poolhouse_driver::{Lock, Locked};

/// A lock that nobody ever waits for: every task of a client runs on one executor, and none awaits while it holds the value. Interrupts stay enabled.
///
/// Like the network stack itself, what holds one stays on its executor: it is not `Sync`.
#[derive(Debug)]
pub struct ExecutorLock<T>(RefCell<T>);

impl<T> ExecutorLock<T> {
    pub(crate) const fn holding(value: T) -> Self {
        Self(RefCell::new(value))
    }
}

impl<T> Lock<T> for ExecutorLock<T> {
    fn new(value: T) -> Self {
        Self::holding(value)
    }
}

impl<T> Locked<T> for ExecutorLock<T> {
    /// # Panics
    ///
    /// When `f` comes back to the same lock: an event's receiver that calls the client that it hears from.
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        match self.0.try_borrow_mut() {
            Ok(mut value) => f(&mut value),
            Err(_) => reentered(),
        }
    }
}

/// The one place of this crate that panics once a client runs.
#[cold]
fn reentered() -> ! {
    panic!("a lock is taken again by whoever holds it")
}
