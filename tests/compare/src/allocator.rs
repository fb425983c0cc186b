//! The system's allocator, which counts when it is asked to.
//!
//! While it is not, all it costs is one load of a flag that nobody writes, so that times of peers that allocate much are not theirs to pay for.
#![allow(unsafe_code, reason = "a global allocator that counts cannot be written without")]

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::alloc::System;

struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicU64 = AtomicU64::new(0);
static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

/// What happened to memory, on all threads, while something was done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// How often memory was asked for.
    pub(crate) allocations: u64,
    /// Bytes that are held now and were not before.
    pub(crate) bytes: i64,
}

/// Does something and counts meanwhile.
pub(crate) fn counted<T>(work: impl FnOnce() -> T) -> (T, Counted) {
    let (asked, live) = (ASKED.load(Ordering::Relaxed), LIVE_BYTES.load(Ordering::Relaxed));
    COUNTS.store(true, Ordering::SeqCst);
    let result = work();
    COUNTS.store(false, Ordering::SeqCst);
    let allocations = ASKED.load(Ordering::Relaxed) - asked;
    (result, Counted { allocations, bytes: LIVE_BYTES.load(Ordering::Relaxed) - live })
}

fn note(calls: u64, taken: usize, given: usize) {
    if COUNTS.load(Ordering::Relaxed) {
        ASKED.fetch_add(calls, Ordering::Relaxed);
        // No block is as large as half of the address space.
        let change = taken as i64 - given as i64;
        LIVE_BYTES.fetch_add(change, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches atomics only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size(), 0);
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size(), 0);
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(1, size, layout.size());
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(0, 0, layout.size());
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
