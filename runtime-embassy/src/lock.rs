//! A lock for the tasks of one executor. Depends on no other module.

use core::cell::RefCell;
use poolhouse_driver::{Lock, Locked};

/// A lock without waiting: every task of a client runs on one executor, and no task awaits while it
/// holds the value. Interrupts stay enabled.
///
/// Not `Sync`, so its owner stays on its executor, like the network stack itself.
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
    /// If `f` locks the same lock again: an event observer that calls the client whose event it
    /// receives.
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        match self.0.try_borrow_mut() {
            Ok(mut value) => f(&mut value),
            Err(_) => reentered(),
        }
    }
}

/// The only panic of this crate in a running client.
#[cold]
fn reentered() -> ! {
    panic!("a lock is taken again by its holder")
}
