//! Stores, and one with an allocator that tests can make refuse.

use super::*;
use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt;
use core::hash::{BuildHasher, BuildHasherDefault};

std::thread_local! {
    /// The number of allocations that [`Scarce`] still grants on this thread.
    static LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
    /// The number of allocations that it has refused.
    static REFUSED: Cell<u32> = const { Cell::new(0) };
}

/// Checks that the formatter returns an error when the text does not fit, wherever it is cut.
pub(crate) fn assert_never_cut_silently(shown: &impl fmt::Display) {
    struct Room(usize);
    impl fmt::Write for Room {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 = self.0.checked_sub(text.len()).ok_or(fmt::Error)?;
            Ok(())
        }
    }
    let len = alloc::format!("{shown}").len();
    for room in 0..=len {
        let result = fmt::write(&mut Room(room), format_args!("{shown}"));
        assert_eq!(result.is_ok(), room == len, "{shown} in {room}");
    }
}

/// Slots on a heap that grows by exactly the requested size. [`with_memory_for`] makes its
/// allocator refuse.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scarce<T>(Vec<T>);

impl<T> Store<T> for Scarce<T> {
    fn empty() -> Self {
        Self(Vec::new())
    }

    fn slots(&self) -> &[T] {
        &self.0
    }

    fn slots_mut(&mut self) -> &mut [T] {
        &mut self.0
    }

    fn try_push(&mut self, slot: T) -> Result<(), Full> {
        let count = u32::try_from(self.0.len() + 1).map_err(|_| Full)?;
        self.reserve(count)?;
        self.0.push(slot);
        Ok(())
    }

    fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    fn reserve(&mut self, count: u32) -> Result<(), Full> {
        let count = count as usize;
        if count > self.0.capacity() {
            let Some(left) = LEFT.get().checked_sub(1) else {
                REFUSED.set(REFUSED.get() + 1);
                return Err(Full);
            };
            LEFT.set(left);
            self.0.reserve_exact(count - self.0.len());
        }
        Ok(())
    }

    fn limit(&self) -> u32 {
        LIMIT
    }
}

/// Makes memory available again when the test ends or panics.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        LEFT.set(u32::MAX);
    }
}

/// Calls `act` while the allocator grants `count` requests and refuses further ones. Also returns
/// whether a request was refused: once none was, every allocation was tested.
pub(crate) fn with_memory_for<R>(count: u32, act: impl FnOnce() -> R) -> (R, bool) {
    LEFT.set(count);
    REFUSED.set(0);
    let _restored = Restored;
    (act(), REFUSED.get() > 0)
}

/// Returns the hash of a value.
pub(crate) fn hash(of: &impl Hash) -> u64 {
    BuildHasherDefault::<std::hash::DefaultHasher>::default().hash_one(of)
}

#[test]
fn a_store_is_copied_compared_and_hashed_slot_by_slot() {
    fn check<S: Store<u8>>() {
        let mut one = Slots::<u8, S>::empty();
        one.try_push(3).expect("room");
        one.try_push(4).expect("room");
        let mut copy = one.clone();
        assert!(copy == one);
        assert_eq!(hash(&copy), hash(&one));
        copy.slots_mut()[1] = 5;
        assert!(copy != one, "slots differ");
        assert_ne!(hash(&copy), hash(&one));
        assert_eq!((one.slots(), copy.slots()), (&[3, 4][..], &[3, 5][..]), "a copy goes its own way");
        let mut longer = one.clone();
        assert_eq!(longer.try_push(0), Ok(()));
        assert!(longer != one, "their numbers differ");
    }
    check::<heapless::Vec<u8, 3>>();
    check::<Heap<u8>>();
}

#[test]
fn stores_refuse_slots_beyond_their_limits_and_stay_unchanged() {
    let mut fixed: heapless::Vec<u8, 2> = Store::empty();
    assert_eq!((Store::try_push(&mut fixed, 1), Store::try_push(&mut fixed, 2)), (Ok(()), Ok(())));
    assert_eq!((Store::try_push(&mut fixed, 3), fixed.slots()), (Err(Full), &[1, 2][..]));
    assert_eq!(Store::pop(&mut fixed), Some(2));
    assert_eq!(Store::<u8>::limit(&fixed), 2);

    // Values without a size need no memory, so only the limit applies.
    let mut heap = Heap(Vec::from([(); LIMIT as usize]));
    assert_eq!((heap.try_push(()), heap.slots().len()), (Err(Full), heap.limit() as usize));
    assert_eq!(heap.pop(), Some(()));
    assert_eq!((heap.try_push(()), heap.try_push(())), (Ok(()), Err(Full)));
    // The allocator refuses a size that exceeds the available memory.
    let mut vast = Heap::<[u64; 1 << 24]>::empty();
    assert_eq!((vast.reserve(u32::MAX), vast.slots().len()), (Err(Full), 0));

    let (refused, is_out) = with_memory_for(1, || {
        let mut scarce = Scarce::empty();
        (scarce.reserve(2), scarce.try_push('a'), scarce.try_push('b'), scarce.try_push('c'), scarce)
    });
    assert_eq!(refused, (Ok(()), Ok(()), Ok(()), Err(Full), Scarce(Vec::from(['a', 'b']))));
    assert!(is_out);
}
