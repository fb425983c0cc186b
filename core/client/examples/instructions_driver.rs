//! Repeats one operation a given number of times; `tests/scripts/instructions` counts its
//! instructions.
//!
//! Usage: `instructions_driver <case> <times>`, with the cases `pool`, `shell`, `client`: a
//! connection is checked out through the driver and dropped, without subscribers and without I/O.
//! Panics if an allocation is made.
#![allow(unsafe_code, reason = "a global allocator that counts cannot be written without; libraries forbid it")]

extern crate alloc;

#[path = "../benches/support/memory.rs"]
mod memory;

use core::alloc::{GlobalAlloc, Layout};
use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};
use poolhouse_driver::SelectionRequest;
use std::alloc::System;

/// The system's allocator with a count of the calls that allocate.
struct Counting;

static ASKED: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is forwarded unchanged to the system's allocator; counting changes an atomic
// and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller fulfils the contract of the system allocator, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller fulfils the contract of the system allocator, which is the same.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let mut args = std::env::args().skip(1);
    let case = args.next().expect("a case");
    let times: u64 = args.next().expect("a number of times").parse().expect("a number");
    let client = memory::warm(2);
    let server = memory::now(client.core().select_server(&SelectionRequest::WRITE, None)).expect("a server");
    // The first cycle has extra costs that later cycles do not have.
    drop(black_box(memory::guard(&client)));
    let before = ASKED.load(Ordering::Relaxed);
    match case.as_str() {
        "pool" => {
            for _ in 0..times {
                let guard = memory::now(client.core().check_out_of(server.clone(), None, None)).expect("a connection");
                drop(black_box(guard));
            }
        }
        "shell" => (0..times).for_each(|_| drop(black_box(memory::guard(&client)))),
        "client" => (0..times).for_each(|_| drop(black_box(memory::now(client.check_out()).expect("a connection")))),
        other => panic!("unknown case {other}"),
    }
    assert_eq!(ASKED.load(Ordering::Relaxed), before, "a check-out that finds a connection allocates nothing");
}
