//! The system's allocator, for programs that count its calls.
#![allow(unsafe_code, reason = "a global allocator cannot be written without; libraries forbid it")]

use core::alloc::{GlobalAlloc, Layout};
use std::alloc::System;

/// Before each call, the function is told the bytes that are taken, and those that are given back; 0 for none. It must
/// not allocate.
#[derive(Debug)]
pub struct Counting(pub fn(taken: usize, given: usize));

// SAFETY: every call is passed to the system's allocator unchanged, so the caller's promises are those that it needs.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        (self.0)(layout.size(), 0);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        (self.0)(layout.size(), 0);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        (self.0)(size, layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        (self.0)(0, layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}
