//! Edge cases of options, fixed memory, time, and peers.

use super::*;

#[test]
fn reply_before_its_heartbeat_was_sent_is_unexpected() {
    let mut world = world(SMALL);
    world.establish();
    let conn = world.stream().conn();
    world.now = world.now.saturating_add(Duration::from_secs(30));
    world.mux.handle_timeout(world.now, &mut world.events);
    // The heartbeat has an id, but the host has not taken it yet.
    let refused: Vec<_> =
        (1..2).map(|id| world.mux.handle_reply(world.now, conn, id, &mut world.events).is_err()).collect();
    assert_eq!(refused, [true]);
    world.mux.assert_invariants();
    world.drain();
    assert_eq!((world.heartbeats.len(), world.closed.len()), (0, 1));
}

#[test]
fn heartbeats_that_are_switched_off_close_nothing() {
    let mut world = world(SMALL);
    world.establish();
    world.now = world.now.saturating_add(Duration::from_secs(30));
    world.act(|mux, now, seen| mux.handle_timeout(now, seen));
    let (conn, id) = world.heartbeats.pop().expect("the peer is asked");
    let off = MuxOptions { heartbeat_interval: Duration::ZERO, heartbeat_timeout: Duration::ZERO, ..SMALL };
    world.act(|mux, now, seen| mux.reconfigure(now, off.validate().expect("right"), seen));
    assert_eq!(world.mux.poll_timeout(), None);
    world.act(|mux, now, seen| mux.handle_timeout(now, seen));
    assert_eq!(world.count("HeartbeatFailed"), 0);
    let reply = world.act(|mux, now, seen| mux.handle_reply(now, conn, i32::from(id), seen));
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
    let mut world = world(options);
    let waiters: Vec<_> = (0..3).map(|_| world.waiter()).collect();
    assert_eq!(world.mux.poll_timeout(), None);
    world.establish();
    let _streams: Vec<_> = waiters.into_iter().map(|waiter| world.claim(waiter)).collect();
    drop(world.stream());
    world.establish();
    assert_eq!((world.state().open, world.mux.poll_timeout()), (2, None));
}

#[test]
fn newest_usable_trashed_connection_is_resurrected() {
    let mut world = world(SMALL);
    world.establish();
    let mut streams: Vec<_> = (0..9)
        .map(|_| {
            let stream = world.stream();
            world.establish();
            stream
        })
        .collect();
    assert_eq!(world.state().open, 3);
    let with_max = |max_connections, idle_timeout| {
        let local = HostOptions { max_connections, ..SMALL.local };
        MuxOptions { local, idle_timeout, ..SMALL }.validate().expect("right")
    };
    world.act(|mux, now, seen| mux.reconfigure(now, with_max(2, Duration::from_secs(120)), seen));
    let first = world.events.last().expect("some").1.conn().expect("a trashed one");
    world.act(|mux, now, seen| mux.reconfigure(now, with_max(1, Duration::ZERO), seen));
    assert_eq!(world.state().trashed, 2, "both are busy");
    world.act(|mux, now, seen| mux.reconfigure(now, with_max(3, Duration::ZERO), seen));
    assert_eq!(
        world.events.iter().rfind(|(_, event)| event.name() == "ConnectionResurrected").expect("one").1.conn(),
        Some(first)
    );
    streams.drain(..).for_each(|stream| world.answer(stream));
}

#[test]
fn hysteresis_of_a_small_threshold_is_at_least_one_request() {
    let mut world = world(SMALL);
    world.establish();
    let mut streams: Vec<_> = (0..4).map(|_| world.stream()).collect();
    world.establish();
    for _ in 0..10 {
        while streams.len() > 3 {
            let stream = streams.pop().expect("some");
            world.answer(stream);
        }
        world.wait(Duration::from_secs(200));
        streams.push(world.stream());
        world.establish();
    }
    assert_eq!((world.count("ConnectionTrashed"), world.count("ConnectionCreated")), (0, 2));
}

#[test]
fn slot_of_a_closed_connection_is_reused_at_once_in_fixed_memory() {
    let mut world = World::<MuxFixed<1, 2, { stream_words(8) }>>::new(SMALL);
    world.establish();
    let stream = world.stream();
    let conn = stream.conn();
    // The socket fails, and its slot is free only later.
    world.mux.handle_failed(world.now, conn, Cause::Network, &mut world.events).expect("it was there");
    world.mux.assert_invariants();
    let waiter = world.waiter();
    assert_eq!(world.mux.poll_timeout(), Some(world.now), "its place is free now");
    world.act(|mux, now, seen| mux.handle_timeout(now, seen));
    world.establish();
    assert!(matches!(world.claim(waiter), MuxClaim::Granted(_)));
    world.release(stream, Written::Perhaps);
}

#[test]
fn pool_without_connection_slots_rejects_requests() {
    let mut world = World::<MuxFixed<0, 1, 4>>::new(SMALL);
    assert_eq!(world.acquire(), Err(AcquireError::Down { cause: Cause::Resources }));
    assert_eq!(world.mux.poll_timeout(), None);
}

#[test]
fn ids_of_a_connection_are_limited_by_fixed_memory() {
    for (ids, expected) in [(200, 64), (64, 64), (63, 63), (65, 64), (1, 1), (32_768, 64)] {
        let local = HostOptions { max_requests_per_connection: 1, new_connection_threshold: 1, ..SMALL.local };
        let options = MuxOptions { streams_per_connection: ids, local, remote: local, ..SMALL };
        let mut world = World::<MuxFixed<1, 1, { stream_words(64) }>>::new(options);
        world.establish();
        let given_up = (0..expected)
            .take_while(|_| {
                let stream = world.stream();
                world.release(stream, Written::Perhaps);
                world.state().open > 0
            })
            .count();
        // A connection is replaced when more than a quarter of its ids are orphaned.
        assert_eq!(given_up, (expected / 4).min(expected - 1), "{ids} ids");
    }
}

#[test]
fn closed_connection_has_no_requests_in_flight() {
    let mut world = world(SMALL);
    world.establish();
    let conn = world.stream().conn();
    assert_eq!(world.mux.conn_in_flight(conn), Some(1));
    world.mux.handle_failed(world.now, conn, Cause::Network, &mut world.events).expect("it was there");
    assert_eq!(world.mux.conn_in_flight(conn), None, "also before the host was told");
    world.drain();
    assert_eq!(world.mux.conn_in_flight(conn), None);
}

#[test]
fn options_stay_valid_after_every_change() {
    let mut world = world(SMALL);
    world.establish();
    world.act(|mux, now, seen| mux.reconfigure(now, MuxConfig::DEFAULT, seen));
    let options = *world.mux.config().options();
    assert_eq!(options.validate(), Ok(*world.mux.config()));
    assert_eq!((options.streams_per_connection, options.local.max_requests_per_connection), (8, 8));
    assert_eq!(options.local.new_connection_threshold, 8);
}

#[test]
fn peer_that_sends_a_long_reply_is_alive() {
    let mut world = world(SMALL);
    world.establish();
    let stream = world.stream();
    let conn = stream.conn();
    let options = *world.mux.config().options();
    // Each piece arrives just in time: first to postpone the heartbeat, then while its answer is
    // awaited.
    for _ in 0..3 {
        world.now = world.now.saturating_add(options.heartbeat_interval - SECOND);
        world.act(|mux, now, seen| mux.handle_timeout(now, seen));
        world.act(|mux, now, _| mux.handle_received(now, conn)).expect("it is open");
    }
    assert!(world.heartbeats.is_empty());
    world.now = world.now.saturating_add(options.heartbeat_interval);
    world.act(|mux, now, seen| mux.handle_timeout(now, seen));
    let (asked, id) = world.heartbeats.pop().expect("it is asked");
    for _ in 0..3 {
        world.now = world.now.saturating_add(options.heartbeat_timeout - SECOND);
        world.act(|mux, now, seen| mux.handle_timeout(now, seen));
        world.act(|mux, now, _| mux.handle_received(now, asked)).expect("it is open");
    }
    assert_eq!(world.count("HeartbeatFailed"), 0);
    let reply = world.act(|mux, now, seen| mux.handle_reply(now, asked, i32::from(id), seen));
    assert_eq!(reply, Ok(Reply::Heartbeat));
    let gone = stream.conn();
    world.act(|mux, now, seen| mux.handle_failed(now, gone, Cause::Network, seen)).expect("it is open");
    assert_eq!(world.act(|mux, now, _| mux.handle_received(now, gone)), Err(Stale));
}

#[test]
fn expired_request_does_not_wait() {
    let mut world = world(SMALL);
    let now = world.now;
    let late = world.act(|mux, _, seen| mux.acquire(now, Some(now), seen));
    assert_eq!(late, Err(AcquireError::TimedOut { in_flight: 0, queued: 1 }));
    world.establish();
    let granted = world.act(|mux, _, seen| mux.acquire(now, Some(now), seen));
    assert!(matches!(granted, Ok(Acquire::Granted(_))), "one that is there is taken all the same");
}

#[test]
fn unclaimed_outcome_can_be_cancelled_once() {
    let mut world = world(SMALL);
    let deadline = world.now.saturating_add(SECOND);
    let Ok(Acquire::Queued(waiter)) = world.act(|mux, now, seen| mux.acquire(now, Some(deadline), seen)) else {
        panic!("not queued")
    };
    world.wait(SECOND);
    assert_eq!(world.count("AcquireFailed"), 1);
    for _ in 0..2 {
        world.act(|mux, now, seen| mux.cancel(now, waiter, seen));
        assert_eq!(world.claim(waiter), MuxClaim::Stale);
    }
    assert_eq!(world.count("AcquireFailed"), 1, "it had failed before");
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
    let mut world = world(SMALL);
    assert_eq!(world.act(|mux, _, _| mux.reserve(64)), Ok(()));
    world.establish();
    assert!(matches!(world.acquire(), Ok(Acquire::Granted(_))));
}

#[test]
fn ignored_host_needs_no_connection_under_any_load() {
    let mut world = world(SMALL);
    assert_eq!([0, 4, 9].map(|load| world.mux.needed(load)), [1, 2, 3]);
    let ignored = MuxOptions { distance: Distance::Ignored, ..SMALL };
    world.act(|mux, now, seen| mux.reconfigure(now, ignored.validate().expect("right"), seen));
    assert_eq!([0, 4, 9].map(|load| world.mux.needed(load)), [0; 3]);
    assert_eq!((world.state(), world.mux.poll_timeout()), (HostState::default(), None));
}
