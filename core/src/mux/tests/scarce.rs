//! Memory that is exhausted, at each allocation in turn.

use super::*;
use crate::storage::tests::{Scarce, with_memory_for};

/// Heap memory with an allocator that refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OnScarce;

impl MuxMemory for OnScarce {
    type PerConn<T> = Scarce<T>;
    type PerWaiter<T> = Scarce<T>;
    type Words = Scarce<u64>;
}

const DOWN: AcquireError = AcquireError::Down { cause: Cause::Resources };

/// Five requests, of which a connection takes four. If memory is exhausted for the connection, its
/// ids, a waiter or its deadline, the caller receives an error at once. When memory is available
/// again, the pool works as if nothing had happened.
#[test]
fn request_without_memory_fails_at_once_and_the_next_succeeds() {
    let one = HostOptions { max_connections: 1, ..SMALL.local };
    let options = MuxOptions { local: one, ..SMALL };
    let (mut busy, mut down) = (0, 0);
    for count in 0.. {
        let ((mut world, outcomes), is_out) = with_memory_for(count, || {
            let mut world = World::<OnScarce>::new(options);
            world.establish();
            let outcomes = [(); 5].map(|()| world.acquire());
            (world, outcomes)
        });
        let is_open = world.state().open == 1;
        let mut streams = Vec::new();
        let mut waiters = Vec::new();
        for outcome in outcomes {
            match outcome {
                Ok(Acquire::Granted(stream)) => streams.push(stream),
                Ok(Acquire::Queued(waiter)) => waiters.push(waiter),
                Err(error) if is_open => {
                    assert_eq!(error, AcquireError::Busy { in_flight: 4, queued: 0, queue_max: 3 });
                    busy += 1;
                }
                Err(error) => {
                    assert_eq!(error, DOWN);
                    down += 1;
                }
            }
        }
        assert_eq!(world.count("AcquireFailed") + streams.len() + waiters.len(), 5);
        assert_eq!(world.state().queued as usize, waiters.len(), "those who were refused have left");
        if !is_open {
            assert_eq!(
                (world.count("ConnectionCreated"), world.state().establishing),
                (0, 0),
                "as if none had been begun"
            );
            assert_eq!(
                world.mux.poll_timeout(),
                Some(world.now.saturating_add(SECOND)),
                "after a pause it is tried again"
            );
        }

        // Memory is available again.
        world.wait(SECOND);
        world.establish();
        assert_eq!(world.state().open, 1);
        while streams.len() < 4 {
            streams.push(world.stream());
        }
        if waiters.is_empty() {
            waiters.push(world.waiter());
        }
        world.answer(streams.remove(0));
        assert!(matches!(world.claim(waiters.remove(0)), MuxClaim::Granted(_)));
        if !is_out {
            assert!(busy > 2 && down > 10, "{busy} had no place to wait, {down} no connection");
            return;
        }
    }
}

#[test]
fn reserved_memory_suffices_for_waiting_requests() {
    let mut world = World::<OnScarce>::new(SMALL);
    for count in 0..3 {
        let mut copy = world.mux.clone();
        let (refused, is_out) = with_memory_for(count, || copy.reserve(3));
        assert_eq!((refused, is_out), (Err(Full), true), "{count}");
        copy.assert_invariants();
        assert_eq!(copy.reserve(3), Ok(()));
    }
    assert_eq!(world.mux.reserve(3), Ok(()));
    let (waiters, is_out) = with_memory_for(0, || [(); 3].map(|()| world.waiter()));
    assert_eq!((waiters.len(), is_out), (3, false));
    assert_eq!(world.acquire(), Err(AcquireError::Busy { in_flight: 0, queued: 3, queue_max: 3 }));
}

/// With fewer words than even one id needs, the pool never has a connection, and returns an error.
#[test]
fn fixed_memory_without_stream_ids_has_no_connection() {
    let mut world = World::<MuxFixed<2, 2, { stream_words(1) - 1 }>>::new(SMALL);
    assert_eq!(world.mux.config().options().streams_per_connection, 8, "as they were");
    for _ in 0..3 {
        assert_eq!(world.acquire(), Err(DOWN));
        assert_eq!((world.state(), world.count("ConnectionCreated")), (HostState::default(), 0));
        world.wait(SECOND * 60);
    }
}

#[test]
fn closed_pool_opens_no_connection() {
    let mut world = world(SMALL);
    world.establish();
    assert!(world.mux.needs_growth(true) && !world.mux.needs_growth(false));
    world.act(|mux, now, seen| mux.close(now, seen));
    assert!(!world.mux.needs_growth(true));
    assert_eq!(world.acquire(), Err(AcquireError::Closed));
    assert_eq!((world.mux.poll_timeout(), world.state()), (None, HostState::default()));
}
