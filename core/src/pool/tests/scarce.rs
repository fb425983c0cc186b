//! Memory that is exhausted, at each allocation in turn.

use super::*;
use crate::storage::tests::{Scarce, with_memory_for};

/// Heap memory with an allocator that refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OnScarce;

impl Memory for OnScarce {
    type PerConn<T> = Scarce<T>;
    type PerWaiter<T> = Scarce<T>;
    type PerService<T> = Scarce<T>;
}

const NO_CONN: CheckOutError = CheckOutError::EstablishFailed { cause: Cause::Resources, overloaded: false };

/// Three check-outs. Memory is exhausted for a waiter, for its deadline, or for a connection. No
/// check-out waits without need. When memory is available again, the pool works as if nothing had
/// happened.
#[test]
fn check_out_without_memory_fails_at_once_and_the_next_succeeds() {
    let (mut busy, mut without_conn) = (0, 0);
    for count in 0.. {
        let options = PoolOptions { max_pool_size: 2, wait_queue_timeout: Some(ms(5)), ..DEFAULT };
        let mut rig = Rig::<OnScarce>::new(options);
        rig.ready();
        rig.events();
        let (outcomes, is_out) = with_memory_for(count, || [(); 3].map(|()| (rig.counts(), rig.check_out(None))));
        let mut waiting = Vec::new();
        let mut expected = Vec::new();
        for (before, outcome) in outcomes {
            match outcome {
                Ok(CheckOut::Queued(waiter)) => match rig.claim(waiter) {
                    Claim::Waiting => waiting.push(waiter),
                    claim => {
                        assert_eq!(claim, Claim::Failed(NO_CONN));
                        expected.push((NO_CONN, "connectionError"));
                        without_conn += 1;
                    }
                },
                outcome => {
                    let error = CheckOutError::Busy { waiting: before[3] };
                    assert_eq!(outcome, Err(error));
                    expected.push((error, "connectionError"));
                    busy += 1;
                }
            }
        }
        assert_eq!(failures(&rig.events()), expected);
        assert_eq!(rig.counts()[3] as usize, waiting.len(), "those who were refused have left");

        // Memory is available again.
        while waiting.len() < 3 {
            waiting.push(rig.queue());
        }
        let [one, two, three] = waiting[..] else { panic!("three wait") };
        assert_eq!(rig.counts(), [2, 0, 0, 3]);
        rig.establish();
        rig.establish();
        let lease = rig.granted(one);
        let _second = rig.granted(two);
        rig.give_back(lease);
        let _third = rig.granted(three);
        if !is_out {
            assert!(busy > 2 && without_conn > 1, "{busy} had no place to wait, {without_conn} no connection");
            return;
        }
    }
}

#[test]
fn population_without_memory_is_delayed_and_reserved_memory_suffices() {
    let options = PoolOptions { min_pool_size: 1, wait_queue_timeout: Some(ms(500)), ..DEFAULT };
    let mut rig = Rig::<OnScarce>::new(options);
    let ((), is_out) = with_memory_for(0, || rig.ready());
    assert!(is_out);
    assert_eq!((rig.counts(), rig.pool.poll_timeout()), ([0; 4], Some(at(100))));
    let ((), is_out) = with_memory_for(0, || rig.tick(100));
    assert!(is_out);
    assert_eq!((rig.counts(), rig.pool.poll_timeout()), ([0; 4], Some(at(300))), "each pause is longer");
    for count in 0..4 {
        let mut copy = rig.pool.clone();
        let (refused, is_out) = with_memory_for(count, || copy.reserve(3, 20));
        assert_eq!((refused, is_out), (Err(Full), true), "{count}");
        copy.assert_invariants();
        assert_eq!(copy.reserve(3, 20), Ok(()));
    }
    assert_eq!(rig.pool.reserve(3, 20), Ok(()));
    let ((), is_out) = with_memory_for(0, || rig.tick(300));
    assert_eq!((is_out, rig.counts()), (false, [1, 0, 0, 0]));
}
