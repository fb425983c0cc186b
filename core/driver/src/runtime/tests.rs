use super::*;

#[cfg(feature = "alloc")]
#[test]
fn heap_buffer_grows_and_shrinks_as_requested() {
    let mut buffer = alloc::vec::Vec::new();
    Buffer::resize(&mut buffer, 5000).expect("memory");
    assert_eq!(buffer.len(), 5000);
    Buffer::resize(&mut buffer, 10).expect("memory");
    assert_eq!((buffer.len(), Buffer::capacity(&buffer) >= 5000), (10, true));
    Buffer::shrink(&mut buffer, 100);
    assert!(Buffer::capacity(&buffer) < 5000);
    assert_eq!(Buffer::resize(&mut buffer, usize::MAX), Err(Full));
    assert_eq!(buffer.len(), 10);
}

/// The default `try_with`, for a runtime without fork detection: it never reports the lock as held.
#[test]
fn lock_without_a_try_method_is_never_reported_as_held() {
    struct Own(core::cell::RefCell<u32>);
    impl Locked<u32> for Own {
        fn with<R>(&self, f: impl FnOnce(&mut u32) -> R) -> R {
            f(&mut self.0.borrow_mut())
        }
    }
    let own = Own(7.into());
    assert_eq!(own.try_with(|value| core::mem::replace(value, 8)), Some(7));
    assert_eq!(own.with(|value| *value), 8);
}

#[cfg(feature = "std")]
#[test]
fn mutex_is_usable_after_a_panic_and_not_while_it_is_held() {
    use core::panic::AssertUnwindSafe;
    use std::panic::catch_unwind;
    let mutex = std::sync::Mutex::new(1);
    let held = mutex.lock().expect("free");
    assert_eq!(mutex.try_with(|value| *value), None);
    drop(held);
    assert_eq!(mutex.try_with(|value| *value), Some(1));
    let panicked = catch_unwind(AssertUnwindSafe(|| mutex.with(|value| *value = 1 / (*value - 1))));
    assert!(panicked.is_err() && mutex.is_poisoned());
    assert_eq!((mutex.try_with(|value| *value), mutex.with(|value| *value)), (Some(1), 1));
}
