//! Edge cases of options, fixed memory, time, and peers.

use super::*;

#[test]
fn reply_before_its_heartbeat_was_sent_is_unexpected() {
    let mut rig = rig(SMALL);
    rig.establish();
    let conn = rig.stream().conn();
    rig.now = rig.now.saturating_add(Duration::from_secs(30));
    rig.mux.handle_timeout(rig.now, &mut rig.events);
    // The heartbeat has an id, but the host has not taken it yet.
    let refused: Vec<_> = (1..2).map(|id| rig.mux.handle_reply(rig.now, conn, id, &mut rig.events).is_err()).collect();
    assert_eq!(refused, [true]);
    rig.mux.assert_invariants();
    rig.drain();
    assert_eq!((rig.heartbeats.len(), rig.closed.len()), (0, 1));
}

#[test]
fn heartbeats_that_are_switched_off_close_nothing() {
    let mut rig = rig(SMALL);
    rig.establish();
    rig.now = rig.now.saturating_add(Duration::from_secs(30));
    rig.act(|mux, now, seen| mux.handle_timeout(now, seen));
    let (conn, id) = rig.heartbeats.pop().expect("the peer is asked");
    let off = MuxOptions { heartbeat_interval: Duration::ZERO, heartbeat_timeout: Duration::ZERO, ..SMALL };
    rig.act(|mux, now, seen| mux.reconfigure(now, off.validate().expect("right"), seen));
    assert_eq!(rig.mux.poll_timeout(), None);
    rig.act(|mux, now, seen| mux.handle_timeout(now, seen));
    assert_eq!(rig.count("HeartbeatFailed"), 0);
    let reply = rig.act(|mux, now, seen| mux.handle_reply(now, conn, i32::from(id), seen));
    assert_eq!(reply, Ok(Reply::Heartbeat));
}

#[test]
fn end_of_time_is_never_due() {
    let options = MuxOptions {
        heartbeat_interval: Duration::MAX,
        heartbeat_timeout: Duration::MAX,
        shrink_interval: Duration::MAX,
        pool_timeout: Duration::MAX,
        idle_timeout: Duration::MAX,
        ..SMALL
    };
    let mut rig = rig(options);
    let waiters: Vec<_> = (0..3).map(|_| rig.waiter()).collect();
    assert_eq!(rig.mux.poll_timeout(), None);
    rig.establish();
    let _streams: Vec<_> = waiters.into_iter().map(|waiter| rig.claim(waiter)).collect();
    drop(rig.stream());
    rig.establish();
    assert_eq!((rig.state().open, rig.mux.poll_timeout()), (2, None));
}

#[test]
fn newest_usable_trashed_connection_is_resurrected() {
    let mut rig = rig(SMALL);
    rig.establish();
    let mut streams: Vec<_> = (0..9)
        .map(|_| {
            let stream = rig.stream();
            rig.establish();
            stream
        })
        .collect();
    assert_eq!(rig.state().open, 3);
    let with_max = |max_connections, idle_timeout| {
        let local = HostOptions { max_connections, ..SMALL.local };
        MuxOptions { local, idle_timeout, ..SMALL }.validate().expect("right")
    };
    rig.act(|mux, now, seen| mux.reconfigure(now, with_max(2, Duration::from_secs(120)), seen));
    let first = rig.events.last().expect("some").1.conn().expect("a trashed one");
    rig.act(|mux, now, seen| mux.reconfigure(now, with_max(1, Duration::ZERO), seen));
    assert_eq!(rig.state().trashed, 2, "both are busy");
    rig.act(|mux, now, seen| mux.reconfigure(now, with_max(3, Duration::ZERO), seen));
    assert_eq!(
        rig.events.iter().rfind(|(_, event)| event.name() == "ConnectionResurrected").expect("one").1.conn(),
        Some(first)
    );
    streams.drain(..).for_each(|stream| rig.answer(stream));
}

#[test]
fn hysteresis_of_a_small_threshold_is_at_least_one_request() {
    let mut rig = rig(SMALL);
    rig.establish();
    let mut streams: Vec<_> = (0..4).map(|_| rig.stream()).collect();
    rig.establish();
    for _ in 0..10 {
        while streams.len() > 3 {
            let stream = streams.pop().expect("some");
            rig.answer(stream);
        }
        rig.wait(Duration::from_secs(200));
        streams.push(rig.stream());
        rig.establish();
    }
    assert_eq!((rig.count("ConnectionTrashed"), rig.count("ConnectionCreated")), (0, 2));
}

#[test]
fn slot_of_a_closed_connection_is_reused_in_fixed_memory_when_it_is_free() {
    let mut rig = Rig::<MuxFixed<1, 2, { stream_words(8) }>>::new(SMALL);
    rig.establish();
    let stream = rig.stream();
    let conn = stream.conn();
    // The socket fails, and its slot is free only after the pause.
    rig.mux.handle_failed(rig.now, conn, Cause::Network, &mut rig.events).expect("it was there");
    rig.mux.assert_invariants();
    rig.now = rig.now.saturating_add(SECOND);
    let waiter = rig.waiter();
    assert_eq!(rig.mux.poll_timeout(), Some(rig.now), "its place is free now");
    rig.act(|mux, now, seen| mux.handle_timeout(now, seen));
    rig.establish();
    assert!(matches!(rig.claim(waiter), MuxClaim::Granted(_)));
    rig.release(stream, Written::Perhaps);
}

#[test]
fn pool_without_connection_slots_rejects_requests() {
    let mut rig = Rig::<MuxFixed<0, 1, 4>>::new(SMALL);
    assert_eq!(rig.acquire(), Err(AcquireError::Down { cause: Cause::Resources }));
    assert_eq!(rig.mux.poll_timeout(), None);
}

#[test]
fn ids_of_a_connection_are_limited_by_fixed_memory() {
    for (ids, expected) in [(200, 64), (64, 64), (63, 63), (65, 64), (1, 1), (32_768, 64)] {
        let local = HostOptions { max_requests_per_connection: 1, new_connection_threshold: 1, ..SMALL.local };
        let options = MuxOptions { streams_per_connection: ids, local, remote: local, ..SMALL };
        let mut rig = Rig::<MuxFixed<1, 1, { stream_words(64) }>>::new(options);
        rig.establish();
        let given_up = (0..expected)
            .take_while(|_| {
                let stream = rig.stream();
                rig.release(stream, Written::Perhaps);
                rig.state().open > 0
            })
            .count();
        // A connection is replaced when more than a quarter of its ids are orphaned.
        assert_eq!(given_up, (expected / 4).min(expected - 1), "{ids} ids");
    }
}

#[test]
fn closed_connection_has_no_requests_in_flight() {
    let mut rig = rig(SMALL);
    rig.establish();
    let conn = rig.stream().conn();
    assert_eq!(rig.mux.conn_in_flight(conn), Some(1));
    rig.mux.handle_failed(rig.now, conn, Cause::Network, &mut rig.events).expect("it was there");
    assert_eq!(rig.mux.conn_in_flight(conn), None, "also before the host was told");
    rig.drain();
    assert_eq!(rig.mux.conn_in_flight(conn), None);
}

#[test]
fn options_stay_valid_after_every_change() {
    let mut rig = rig(SMALL);
    rig.establish();
    rig.act(|mux, now, seen| mux.reconfigure(now, MuxConfig::DEFAULT, seen));
    let options = *rig.mux.config().options();
    assert_eq!(options.validate(), Ok(*rig.mux.config()));
    assert_eq!((options.streams_per_connection, options.local.max_requests_per_connection), (8, 8));
    assert_eq!(options.local.new_connection_threshold, 8);
}

#[test]
fn peer_that_sends_a_long_reply_is_alive() {
    let mut rig = rig(SMALL);
    rig.establish();
    let stream = rig.stream();
    let conn = stream.conn();
    let options = *rig.mux.config().options();
    rig.now = rig.now.saturating_add(options.heartbeat_interval);
    rig.act(|mux, now, seen| mux.handle_timeout(now, seen));
    let (asked, id) = rig.heartbeats.pop().expect("it is asked");
    assert_eq!(asked, conn);
    // Each piece arrives just in time while the answer is awaited.
    for _ in 0..3 {
        rig.now = rig.now.saturating_add(options.heartbeat_timeout - SECOND);
        rig.act(|mux, now, seen| mux.handle_timeout(now, seen));
        rig.act(|mux, now, _| mux.handle_received(now, asked)).expect("it is open");
    }
    assert_eq!(rig.count("HeartbeatFailed"), 0);
    let reply = rig.act(|mux, now, seen| mux.handle_reply(now, asked, i32::from(id), seen));
    assert_eq!(reply, Ok(Reply::Heartbeat));
    let took = 3 * (options.heartbeat_timeout - SECOND);
    let is_it = |event: &MuxEvent| matches!(event, MuxEvent::HeartbeatSucceeded { duration, .. } if *duration == took);
    assert!(rig.events.iter().any(|(_, event)| is_it(event)), "the time since it was started");
    let gone = stream.conn();
    rig.act(|mux, now, seen| mux.handle_failed(now, gone, Cause::Network, seen)).expect("it is open");
    assert_eq!(rig.act(|mux, now, _| mux.handle_received(now, gone)), Err(Stale));
}

/// Else a peer that stops while it is busy has the whole interval after its last bytes, before it is asked.
#[test]
fn busy_peer_that_stops_is_noticed_within_the_interval_and_the_timeout() {
    let mut rig = rig(SMALL);
    rig.establish();
    let options = *rig.mux.config().options();
    let stops_at = rig.now.saturating_add(options.heartbeat_interval * 3 - SECOND);
    while rig.now < stops_at {
        let stream = rig.stream();
        rig.wait(SECOND);
        rig.answer(stream);
    }
    assert_eq!(rig.count("HeartbeatSucceeded"), 2, "at each interval");
    let stream = rig.stream();
    rig.now = stops_at.saturating_add(SECOND);
    rig.act(|mux, now, seen| mux.handle_timeout(now, seen));
    assert_eq!(rig.heartbeats.len(), 1, "it is asked one second after its last bytes");
    assert_eq!(rig.mux.poll_timeout(), Some(rig.now.saturating_add(options.heartbeat_timeout)));
    rig.now = rig.now.saturating_add(options.heartbeat_timeout);
    rig.act(|mux, now, seen| mux.handle_timeout(now, seen));
    assert_eq!(rig.closed, [stream.conn()]);
    rig.release(stream, Written::Perhaps);
}

#[test]
fn stream_0_that_is_kept_is_never_assigned_and_a_reply_on_it_closes_the_connection() {
    let mut rig = rig(SMALL);
    rig.mux.keep_first_stream();
    rig.establish();
    for _ in 0..20 {
        let stream = rig.stream();
        assert_ne!(stream.id(), 0);
        rig.answer(stream);
    }
    let stream = rig.stream();
    let conn = stream.conn();
    let reply = rig.act(|mux, now, seen| mux.handle_reply(now, conn, 0, seen));
    assert_eq!(reply, Err(ReplyError::Unknown { stream: 0 }));
    assert_eq!(rig.closed, [conn]);
    rig.release(stream, Written::Perhaps);
    // Those after it have the same ids.
    rig.wait(SECOND);
    rig.establish();
    let ids: Vec<_> = (0..3).map(|_| rig.stream().id()).collect();
    assert_eq!(ids, [1, 2, 3]);
    let all = HostOptions { max_connections: 1, max_requests_per_connection: 8, ..SMALL.local };
    rig.act(|mux, now, seen| mux.reconfigure(now, MuxOptions { local: all, ..SMALL }.validate().expect("right"), seen));
    assert_eq!(rig.state().capacity, 7);
    let _others: Vec<_> = (3..7).map(|_| rig.stream()).collect();
    rig.waiter();
}

#[test]
fn only_stream_of_a_connection_is_assigned_also_if_it_is_kept() {
    let one = HostOptions { max_requests_per_connection: 1, new_connection_threshold: 0, ..SMALL.local };
    let mut rig = rig(MuxOptions { streams_per_connection: 1, local: one, remote: one, ..SMALL });
    rig.mux.keep_first_stream();
    rig.establish();
    assert_eq!(rig.stream().id(), 0);
}

#[test]
fn expired_request_does_not_wait() {
    let mut rig = rig(SMALL);
    let now = rig.now;
    let late = rig.act(|mux, _, seen| mux.acquire(now, Some(now), seen));
    assert_eq!(late, Err(AcquireError::TimedOut { in_flight: 0, queued: 1 }));
    rig.establish();
    let granted = rig.act(|mux, _, seen| mux.acquire(now, Some(now), seen));
    assert!(matches!(granted, Ok(Acquire::Granted(_))), "one that is there is taken all the same");
}

#[test]
fn unclaimed_outcome_can_be_cancelled_once() {
    let mut rig = rig(SMALL);
    let deadline = rig.now.saturating_add(SECOND);
    let Ok(Acquire::Queued(waiter)) = rig.act(|mux, now, seen| mux.acquire(now, Some(deadline), seen)) else {
        panic!("not queued")
    };
    rig.wait(SECOND);
    assert_eq!(rig.count("AcquireFailed"), 1);
    for _ in 0..2 {
        rig.act(|mux, now, seen| mux.cancel(now, waiter, seen));
        assert_eq!(rig.claim(waiter), MuxClaim::Stale);
    }
    assert_eq!(rig.count("AcquireFailed"), 1, "it had failed before");
}

#[test]
fn connection_that_was_not_polled_needs_no_close() {
    let now = Instant::from_nanos(1_000);
    let mut mux = Mux::<MuxOnHeap>::new(now, MuxId::new(7), SMALL.validate().expect("right"), &mut ());
    mux.close(now, &mut ());
    mux.assert_invariants();
    assert_eq!(mux.poll_action(now), None);
    let mut events = Vec::new();
    mux.reconfigure(now, MuxConfig::DEFAULT, &mut events);
    assert_eq!(events, [], "what is closed has no use for options");
}

#[test]
fn reserved_memory_is_available() {
    let mut rig = rig(SMALL);
    assert_eq!(rig.act(|mux, _, _| mux.reserve(64)), Ok(()));
    rig.establish();
    assert!(matches!(rig.acquire(), Ok(Acquire::Granted(_))));
}

#[test]
fn ignored_host_needs_no_connection_under_any_load() {
    let mut rig = rig(SMALL);
    assert_eq!([0, 4, 9].map(|load| rig.mux.needed(load)), [1, 2, 3]);
    let ignored = MuxOptions { distance: Distance::Ignored, ..SMALL };
    rig.act(|mux, now, seen| mux.reconfigure(now, ignored.validate().expect("right"), seen));
    assert_eq!([0, 4, 9].map(|load| rig.mux.needed(load)), [0; 3]);
    assert_eq!((rig.state(), rig.mux.poll_timeout()), (HostState::default(), None));
}
