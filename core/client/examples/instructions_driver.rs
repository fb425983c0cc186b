//! Repeats one operation a given number of times; `tests/scripts/instructions` counts its
//! instructions.
//!
//! Usage: `instructions_driver <case> <times>`. In each case a connection is checked out through the
//! driver and dropped, without I/O. Panics if an allocation is made.
//!
//! - `pool`, `shell`, `client`: of a server, of the driver's core, of a client.
//! - `limited`: with a time limit.
//! - `observed1`, `observed10`, ..: with this number of subscribers to other events.
//! - `window1`, `window10`, ..: one of this number of servers is selected.
//! - `crowd`: the check-out waits until another task has dropped the connection.
#![allow(unsafe_code, reason = "a global allocator that counts cannot be written without; libraries forbid it")]

extern crate alloc;

#[path = "../benches/support/memory.rs"]
mod memory;

use core::alloc::{GlobalAlloc, Layout};
use core::hint::black_box;
use core::pin::pin;
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use memory::Memory;
use poolhouse_client::{Client, Net};
use poolhouse_driver::{EventKinds, Guard, SelectionRequest};
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
    let name = case.trim_end_matches(|digit: char| digit.is_ascii_digit());
    let size = case[name.len()..].parse().unwrap_or(1);
    let client = match name {
        "window" => memory::warm(size, 1),
        "crowd" => memory::warm(1, 1),
        _ => memory::warm(1, 2),
    };
    let subscribe = |_| client.subscribe_to(EventKinds::TOPOLOGY | EventKinds::POOLS);
    let _subscriptions: Vec<_> = (0..if name == "observed" { size } else { 0 }).map(subscribe).collect();
    let server = memory::now(client.core().select_server(&SelectionRequest::WRITE, None)).expect("a server");
    // The first cycles have extra costs that later cycles do not have.
    for _ in 0..2 {
        let mut held = memory::guard(&client);
        if name == "crowd" {
            held = hand_over(&client, held);
        }
        drop(black_box(held));
    }
    let before = ASKED.load(Ordering::Relaxed);
    match name {
        "pool" => {
            for _ in 0..times {
                let guard = memory::now(client.core().check_out_of(server.clone(), None, None)).expect("a connection");
                drop(black_box(guard));
            }
        }
        "shell" | "observed" | "window" => (0..times).for_each(|_| drop(black_box(memory::guard(&client)))),
        "client" => (0..times).for_each(|_| drop(black_box(memory::now(client.check_out()).expect("a connection")))),
        "limited" => {
            for _ in 0..times {
                let checking_out = client.check_out_timeout(Duration::from_secs(10));
                drop(black_box(memory::now(checking_out).expect("a connection")));
            }
        }
        "crowd" => {
            let mut held = memory::guard(&client);
            for _ in 0..times {
                held = hand_over(&client, held);
            }
        }
        other => panic!("unknown case {other}"),
    }
    assert_eq!(ASKED.load(Ordering::Relaxed), before, "a check-out that finds a connection allocates nothing");
}

/// Begins a check-out, which waits; drops the connection in use, and returns it to the check-out.
fn hand_over<'c>(client: &'c Client<Memory>, held: Guard<'c, Net<Memory>>) -> Guard<'c, Net<Memory>> {
    let mut context = Context::from_waker(Waker::noop());
    let server = held.server().clone();
    let mut next = pin!(client.core().check_out_of(server, None, None));
    assert!(next.as_mut().poll(&mut context).is_pending(), "the connection is in use");
    drop(black_box(held));
    match next.poll(&mut context) {
        Poll::Ready(guard) => guard.expect("a connection"),
        Poll::Pending => panic!("the connection was returned"),
    }
}
