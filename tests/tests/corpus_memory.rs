//! Whatever a peer says: reading it allocates nothing, and what is made room for is bounded by what has come. On every file of the corpora.
#![allow(unsafe_code, reason = "a global allocator that counts cannot be written without; libraries forbid it")]

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use poolhouse_core::wire::bson::RawDocument;
use poolhouse_core::wire::command::CommandReply;
use poolhouse_core::wire::compress::{Compressor, Compressors, Packer};
use poolhouse_core::wire::cql::{Decoder, Direction, Limits as CqlLimits, Version};
use poolhouse_core::wire::hello::HelloReply;
use poolhouse_core::wire::message::{Decoded, Exchange, Flags, Limits, decode_message};
use poolhouse_tests::fuzz::TARGETS;
use poolhouse_tests::hunt::files;
use std::alloc::System;
use std::path::Path;

/// The system's allocator, counting what each thread holds and how much that was at most.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn hold(change: isize) {
    // A thread that is ending has no cell any more, and is not being measured.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches cells of the thread that
// need no initialisation and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        hold(layout.size().cast_signed());
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        hold(-layout.size().cast_signed());
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many bytes more than before were held at most while `act` ran.
fn most<R>(act: impl FnOnce() -> R) -> usize {
    let before = HELD.get();
    MOST.set(before);
    let result = act();
    let most = MOST.get() - before;
    drop(result);
    usize::try_from(most).unwrap_or(0)
}

fn corpora() -> impl Iterator<Item = Vec<u8>> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus"));
    TARGETS.iter().flat_map(move |(name, _)| files(&folder.join(name)))
}

#[test]
fn reading_allocates_nothing() {
    let mut count = 0;
    for data in corpora() {
        let held = most(|| {
            let _ = decode_message(&data, &Limits::DEFAULT).map(|decoded| match decoded {
                Decoded::Done { value, .. } => value.validate().is_ok(),
                Decoded::NeedMore { .. } => false,
            });
            let mut exchange = Exchange::IDLE;
            exchange.begin(1, Flags::EXHAUST_ALLOWED);
            let _ = exchange.decode_reply(&data, &Limits::DEFAULT);
            if let Ok(document) = RawDocument::new(&data) {
                let _ = (document.validate(), HelloReply::parse(document), CommandReply::parse(document));
            }
        });
        assert_eq!(held, 0, "{data:02x?}");
        count += 1;
    }
    assert!(count > 500, "{count} files are no corpus");
}

#[test]
fn inflating_holds_what_was_declared_and_allowed() {
    let limits = Limits { message_bytes_max: 64 * 1024, document_bytes_max: 64 * 1024 };
    let all: Compressors = Compressor::ALL.into_iter().collect();
    for data in corpora() {
        let mut packer = Packer::new(all, None);
        packer.agree(all);
        let first = most(|| packer.unpack(&data, &limits).is_ok());
        // Contexts of the decompressors, which are made at their first use: a quarter of a megabyte for the largest.
        assert!(first <= 2 * limits.message_bytes_max as usize + 512 * 1024, "{first} bytes for {data:02x?}");
        assert!(packer.buffer_bytes() <= limits.message_bytes_max as usize);
    }
}

#[test]
fn envelopes_hold_what_has_come() {
    let limits = CqlLimits { body_bytes_max: 256 * 1024 * 1024 };
    for data in corpora() {
        for version in Version::ALL {
            let mut decoder = Decoder::new(version, Direction::Response, limits, Vec::new(), Vec::new());
            let held = most(|| {
                let mut at = 0;
                while let Ok(step) = decoder.decode(&data[at..]) {
                    let over = step.envelope.is_none();
                    at += step.consumed_bytes;
                    if over {
                        break;
                    }
                }
            });
            assert!(held <= 4 * data.len() + 256, "{held} bytes for {} of {version:?}", data.len());
        }
    }
}
