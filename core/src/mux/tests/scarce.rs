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
        let ((mut rig, outcomes), is_out) = with_memory_for(count, || {
            let mut rig = Rig::<OnScarce>::new(options);
            rig.establish();
            let outcomes = [(); 5].map(|()| rig.acquire());
            (rig, outcomes)
        });
        let is_open = rig.state().open == 1;
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
        assert_eq!(rig.count("AcquireFailed") + streams.len() + waiters.len(), 5);
        assert_eq!(rig.state().queued as usize, waiters.len(), "those who were refused have left");
        if !is_open {
            assert_eq!((rig.count("ConnectionCreated"), rig.state().establishing), (0, 0), "as if none had been begun");
            assert_eq!(rig.mux.poll_timeout(), Some(rig.now.saturating_add(SECOND)), "after a pause it is tried again");
        }

        // Memory is available again.
        rig.wait(SECOND);
        rig.establish();
        assert_eq!(rig.state().open, 1);
        while streams.len() < 4 {
            streams.push(rig.stream());
        }
        if waiters.is_empty() {
            waiters.push(rig.waiter());
        }
        rig.answer(streams.remove(0));
        assert!(matches!(rig.claim(waiters.remove(0)), MuxClaim::Granted(_)));
        if !is_out {
            assert!(busy > 2 && down > 10, "{busy} had no place to wait, {down} no connection");
            return;
        }
    }
}

#[test]
fn reserved_memory_suffices_for_waiting_requests() {
    let mut rig = Rig::<OnScarce>::new(SMALL);
    for count in 0..3 {
        let mut copy = rig.mux.clone();
        let (refused, is_out) = with_memory_for(count, || copy.reserve(3));
        assert_eq!((refused, is_out), (Err(Full), true), "{count}");
        copy.assert_invariants();
        assert_eq!(copy.reserve(3), Ok(()));
    }
    assert_eq!(rig.mux.reserve(3), Ok(()));
    let (waiters, is_out) = with_memory_for(0, || [(); 3].map(|()| rig.waiter()));
    assert_eq!((waiters.len(), is_out), (3, false));
    assert_eq!(rig.acquire(), Err(AcquireError::Busy { in_flight: 0, queued: 3, queue_max: 3 }));
}

/// With fewer words than even one id needs, the pool never has a connection, and returns an error.
#[test]
fn fixed_memory_without_stream_ids_has_no_connection() {
    let mut rig = Rig::<MuxFixed<2, 2, { stream_words(1) - 1 }>>::new(SMALL);
    assert_eq!(rig.mux.config().options().streams_per_connection, 8, "as they were");
    for _ in 0..3 {
        assert_eq!(rig.acquire(), Err(DOWN));
        assert_eq!((rig.state(), rig.count("ConnectionCreated")), (HostState::default(), 0));
        rig.wait(SECOND * 60);
    }
}

#[test]
fn closed_pool_opens_no_connection() {
    let mut rig = rig(SMALL);
    rig.establish();
    assert!(rig.mux.needs_growth(true) && !rig.mux.needs_growth(false));
    rig.act(|mux, now, seen| mux.close(now, seen));
    assert!(!rig.mux.needs_growth(true));
    assert_eq!(rig.acquire(), Err(AcquireError::Closed));
    assert_eq!((rig.mux.poll_timeout(), rig.state()), (None, HostState::default()));
}
