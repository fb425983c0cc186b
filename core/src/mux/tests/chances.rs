//! Fault points: their effects stay within the documented behavior.
#![cfg(feature = "sim")]

use super::*;
use crate::sim::chance::tests::with;
use crate::sim::chance::{Point, fired};

#[test]
fn the_newest_of_equally_busy_connections_takes_a_request() {
    with(Point::NewestOfEqual, || {
        let mut rig = rig(MuxOptions::DEFAULT_128);
        rig.establish();
        let mut conns = Vec::new();
        rig.mux.for_each_conn(|conn, _, _| conns.push(conn));
        let before = fired()[Point::NewestOfEqual as usize];
        let first = rig.stream();
        let has_fired = fired()[Point::NewestOfEqual as usize] > before;
        assert_eq!(first.conn(), conns[usize::from(has_fired)]);
        let mut streams = Vec::from([first]);
        for _ in 0..20 {
            streams.push(rig.stream());
            let mut seen = Vec::new();
            rig.mux.for_each_conn(|_, in_flight, _| seen.push(in_flight));
            assert_eq!(seen.iter().sum::<u32>() as usize, streams.len());
            assert!(seen[0].abs_diff(seen[1]) <= 1, "of two one takes {seen:?}");
        }
        for stream in streams {
            rig.answer(stream);
        }
        assert_eq!(rig.state().in_flight, 0);
    });
}

#[test]
fn a_request_without_a_waiter_slot_is_rejected() {
    with(Point::RefuseRequest, || {
        let mut rig = rig(SMALL);
        let outcome = rig.acquire();
        let busy = AcquireError::Busy { in_flight: 0, queued: 0, queue_max: 3 };
        let is_queued = match outcome {
            Ok(Acquire::Queued(waiter)) => {
                assert_eq!(rig.count("RequestQueued"), 1);
                rig.act(|mux, now, seen| mux.cancel(now, waiter, seen));
                true
            }
            other => {
                assert_eq!(other, Err(busy));
                assert_eq!((rig.count("RequestQueued"), rig.count("AcquireFailed")), (0, 1));
                false
            }
        };
        assert_eq!((rig.state().queued, rig.mux.poll_timeout()), (0, None), "queued: {is_queued}");
        // A request that need not wait is served.
        rig.establish();
        let stream = rig.stream();
        rig.answer(stream);
    });
}
