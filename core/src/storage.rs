//! Memory for the slots of a machine: in place with a fixed capacity, or on the heap.

#[doc(hidden)]
pub mod deadlines;
pub(crate) mod table;
#[cfg(test)]
pub(crate) mod tests;

use core::fmt;

pub use poolhouse_wire::Full;

use core::hash::{Hash, Hasher};
use core::marker::PhantomData;

/// A growing slice of slots. It never shrinks, and the index of a slot never changes.
///
/// Implemented by [`heapless::Vec`] and, with `alloc`, by `Heap`.
pub trait Store<T> {
    /// Creates an empty store in place. This is a function because a constant would embed the whole
    /// uninitialized array in the binary.
    fn empty() -> Self;

    /// All slots created so far.
    fn slots(&self) -> &[T];

    /// All slots created so far, mutable.
    fn slots_mut(&mut self) -> &mut [T];

    /// Adds a slot. Cold: the only call that may allocate.
    ///
    /// # Errors
    ///
    /// [`Full`] at the limit, or when the allocator refuses.
    fn try_push(&mut self, slot: T) -> Result<(), Full>;

    /// Removes the last slot, for stores that are used as a stack.
    fn pop(&mut self) -> Option<T>;

    /// Reserves memory for `count` slots in total, or up to the limit if that is lower.
    ///
    /// # Errors
    ///
    /// [`Full`] when the allocator refuses.
    fn reserve(&mut self, count: u32) -> Result<(), Full>;

    /// The maximum number of slots.
    fn limit(&self) -> u32;
}

/// A store that is cloned, compared and hashed slot by slot, whatever its kind of memory.
pub(crate) struct Slots<T, S>(S, PhantomData<T>);

impl<T, S: Store<T>> Store<T> for Slots<T, S> {
    #[inline]
    fn empty() -> Self {
        Self(S::empty(), PhantomData)
    }

    #[inline]
    fn slots(&self) -> &[T] {
        self.0.slots()
    }

    #[inline]
    fn slots_mut(&mut self) -> &mut [T] {
        self.0.slots_mut()
    }

    fn try_push(&mut self, slot: T) -> Result<(), Full> {
        self.0.try_push(slot)
    }

    fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    fn reserve(&mut self, count: u32) -> Result<(), Full> {
        self.0.reserve(count)
    }

    #[inline]
    fn limit(&self) -> u32 {
        self.0.limit()
    }
}

impl<T: fmt::Debug, S: Store<T>> fmt::Debug for Slots<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.slots().fmt(f)
    }
}

impl<T: Clone, S: Store<T>> Clone for Slots<T, S> {
    /// # Panics
    ///
    /// Panics when the allocator refuses, as the clone of any collection does.
    fn clone(&self) -> Self {
        let mut copy = Self::empty();
        for slot in self.slots() {
            assert!(copy.try_push(slot.clone()).is_ok(), "a copy fits where its original does");
        }
        copy
    }
}

impl<T: PartialEq, S: Store<T>> PartialEq for Slots<T, S> {
    fn eq(&self, other: &Self) -> bool {
        self.slots() == other.slots()
    }
}

impl<T: Eq, S: Store<T>> Eq for Slots<T, S> {}

impl<T: Hash, S: Store<T>> Hash for Slots<T, S> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.slots().hash(state);
    }
}

/// The maximum number of slots with a 32-bit index, of which one value means "none".
const LIMIT: u32 = u32::MAX - 1;

impl<T, const N: usize> Store<T> for heapless::Vec<T, N> {
    #[inline]
    fn empty() -> Self {
        Self::new()
    }

    #[inline]
    fn slots(&self) -> &[T] {
        self
    }

    #[inline]
    fn slots_mut(&mut self) -> &mut [T] {
        self
    }

    fn try_push(&mut self, slot: T) -> Result<(), Full> {
        self.push(slot).map_err(|_| Full)
    }

    fn pop(&mut self) -> Option<T> {
        self.pop()
    }

    fn reserve(&mut self, _count: u32) -> Result<(), Full> {
        Ok(())
    }

    #[inline]
    fn limit(&self) -> u32 {
        u32::try_from(N).unwrap_or(LIMIT).min(LIMIT)
    }
}

/// Slots on the heap. Grows by doubling.
#[cfg(feature = "alloc")]
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Heap<T>(alloc::vec::Vec<T>);

#[cfg(feature = "alloc")]
impl<T> Store<T> for Heap<T> {
    #[inline]
    fn empty() -> Self {
        Self(alloc::vec::Vec::new())
    }

    #[inline]
    fn slots(&self) -> &[T] {
        &self.0
    }

    #[inline]
    fn slots_mut(&mut self) -> &mut [T] {
        &mut self.0
    }

    fn try_push(&mut self, slot: T) -> Result<(), Full> {
        if self.0.len() >= LIMIT as usize || self.0.try_reserve(1).is_err() {
            return Err(Full);
        }
        self.0.push(slot);
        Ok(())
    }

    fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    fn reserve(&mut self, count: u32) -> Result<(), Full> {
        let more = (count as usize).saturating_sub(self.0.len());
        self.0.try_reserve(more).map_err(|_| Full)
    }

    #[inline]
    fn limit(&self) -> u32 {
        LIMIT
    }
}
