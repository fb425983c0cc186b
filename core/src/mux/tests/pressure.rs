//! Waiting requests when memory is exhausted, a connection is established slowly, or all ids are in
//! use.

use super::*;

/// Options with these limits for both distances.
fn of(host: HostOptions) -> MuxOptions {
    MuxOptions { local: host, remote: host, ..SMALL }
}

fn reconfigure<M: MuxMemory>(world: &mut World<M>, options: MuxOptions) {
    world.act(|mux, now, seen| mux.reconfigure(now, options.validate().expect("right"), seen));
}

#[test]
fn failed_connection_in_the_only_slot_is_replaced_at_once() {
    let one = of(HostOptions { max_connections: 1, ..SMALL.local });
    let mut world = World::<MuxFixed<1, 3, { stream_words(8) }>>::new(one);
    world.establish();
    let streams: Vec<_> = (0..4).map(|_| world.stream()).collect();
    let waiter = world.waiter();
    let conn = streams[0].conn();
    world.act(|mux, now, seen| mux.handle_failed(now, conn, Cause::Network, seen)).expect("it is open");
    assert_eq!(world.claim(waiter), MuxClaim::Waiting);
    assert_eq!(world.mux.poll_timeout(), Some(world.now), "there is a place");
    world.act(|mux, now, seen| mux.handle_timeout(now, seen));
    assert_ne!(world.mux.poll_timeout(), Some(world.now));
    world.establish();
    assert!(matches!(world.claim(waiter), MuxClaim::Granted(_)));
}

#[test]
fn options_beyond_the_fixed_memory_do_not_keep_a_failed_connection_from_being_replaced() {
    let mut world = World::<MuxFixed<1, 3, { stream_words(8) }>>::new(SMALL);
    world.establish();
    let streams: Vec<_> = (0..4).map(|_| world.stream()).collect();
    for _ in 0..8 {
        let waiter = world.waiter();
        world.act(|mux, now, seen| mux.cancel(now, waiter, seen));
        world.now = world.now.saturating_add(SECOND * 60);
    }
    let conn = streams[0].conn();
    world.act(|mux, now, seen| mux.handle_failed(now, conn, Cause::Network, seen)).expect("it is open");
    let waiter = world.waiter();
    world.act(|mux, now, seen| mux.handle_timeout(now, seen));
    assert_eq!(world.establish.len(), 1);
    world.establish();
    assert!(matches!(world.claim(waiter), MuxClaim::Granted(_)));
}

#[test]
fn options_are_limited_to_the_stream_ids_of_connections() {
    let mut world = world(MuxOptions::DEFAULT_128);
    world.establish();
    let wide = HostOptions { core_connections: 1, max_connections: 8, ..MuxOptions::DEFAULT.local };
    reconfigure(&mut world, MuxOptions { local: wide, remote: wide, ..MuxOptions::DEFAULT });
    let options = *world.mux.config().options();
    assert_eq!(options.streams_per_connection, 128);
    assert_eq!(options.validate().map(|config| *config.options()), Ok(options), "they fit each other");
    // This many requests need three connections, of which none is trashed and resurrected in turn.
    let mut streams = Vec::new();
    for _ in 0..300 {
        let acquired = world.acquire().expect("there is room to wait");
        world.establish();
        streams.push(match acquired {
            Acquire::Granted(stream) => stream,
            Acquire::Queued(waiter) => match world.claim(waiter) {
                MuxClaim::Granted(stream) => stream,
                MuxClaim::Waiting | MuxClaim::Failed(_) | MuxClaim::Stale => panic!("not granted"),
            },
        });
    }
    world.wait(SECOND * 25);
    assert_eq!(world.count("ConnectionTrashed"), 0);
    for stream in streams {
        world.answer(stream);
    }
}

#[test]
fn options_are_limited_to_the_memory_for_stream_ids() {
    let many = MuxOptions { streams_per_connection: 200, ..SMALL };
    let local = HostOptions { max_requests_per_connection: 150, new_connection_threshold: 100, ..SMALL.local };
    let world = World::<MuxFixed<3, 1, { stream_words(64) }>>::new(MuxOptions { local, ..many });
    let options = *world.mux.config().options();
    assert_eq!(options.streams_per_connection, 64);
    assert_eq!((options.local.max_requests_per_connection, options.local.new_connection_threshold), (64, 64));
    assert_eq!(options.remote, many.remote);
}

#[test]
fn connection_without_free_ids_has_the_heartbeat_timeout_in_addition() {
    let all =
        HostOptions { max_connections: 1, max_requests_per_connection: 8, new_connection_threshold: 8, ..SMALL.local };
    let mut world = world(of(all));
    world.establish();
    let mut streams: Vec<_> = (0..8).map(|_| world.stream()).collect();
    let begun = world.now;
    world.wait(SECOND * 41);
    assert_eq!(world.state().open, 1);
    let stream = streams.pop().expect("eight");
    world.answer(stream);
    let again = world.stream();
    assert_eq!(world.mux.poll_timeout(), Some(begun.saturating_add(SECOND * (41 + 42))));
    world.wait(SECOND * 41);
    assert_eq!(world.state().open, 1);
    world.release(again, Written::No);
    assert_eq!(world.mux.poll_timeout(), Some(world.now), "now there is an id to ask by");
    world.act(|mux, now, seen| mux.handle_timeout(now, seen));
    assert_eq!(core::mem::take(&mut world.heartbeats).len(), 1);
    world.wait(SECOND * 12);
    assert_eq!(world.count("HeartbeatFailed"), 1);
}

#[test]
fn trashed_connection_is_resurrected_while_another_one_is_being_established() {
    let mut world = world(SMALL);
    world.establish();
    let mut streams: Vec<_> = (0..4).map(|_| world.stream()).collect();
    world.establish();
    streams.extend((0..4).map(|_| world.stream()));
    assert_eq!((world.state().open, world.state().establishing), (2, 1), "the third one does not come");
    for stream in streams.drain(..) {
        world.answer(stream);
    }
    world.wait(SECOND * 20);
    assert_eq!((world.state().open, world.state().trashed), (1, 1));
    streams.extend((0..5).map(|_| world.stream()));
    assert_eq!((world.state().open, world.state().trashed, world.state().establishing), (2, 0, 1));
    assert!(matches!(world.acquire(), Ok(Acquire::Granted(_))));
}

#[test]
fn another_connection_is_opened_if_the_resurrected_one_is_full() {
    let wide = HostOptions { max_requests_per_connection: 8, new_connection_threshold: 8, ..SMALL.local };
    let mut world = world(of(wide));
    world.establish();
    let mut first: Vec<_> = (0..8).map(|_| world.stream()).collect();
    let waiter = world.waiter();
    world.establish();
    let MuxClaim::Granted(stream) = world.claim(waiter) else { panic!("there is room") };
    let mut second = alloc::vec![stream];
    second.extend((0..7).map(|_| world.stream()));
    // All are answered on the second one, but the replies are not taken.
    for stream in &second {
        assert_eq!(world.reply(stream), Ok(Reply::Request));
    }
    for stream in first.drain(..2) {
        world.answer(stream);
    }
    world.wait(SECOND * 20);
    assert_eq!((world.state().open, world.state().trashed), (1, 1));
    first.extend((0..2).map(|_| world.stream()));
    let _waiter = world.waiter();
    assert_eq!((world.state().open, world.state().trashed, world.state().establishing), (2, 0, 1));
}

#[test]
fn briefly_ignored_host_keeps_its_owed_actions_and_opens_connections_again() {
    let mut world = world(SMALL);
    world.establish();
    let old = world.stream();
    let waiting: Vec<_> = (0..3).map(|_| world.stream()).collect();
    let waiter = world.waiter();
    reconfigure(&mut world, MuxOptions { distance: Distance::Ignored, ..SMALL });
    assert_eq!(world.claim(waiter), MuxClaim::Failed(AcquireError::Ignored));
    assert_eq!(world.establish.len(), 1, "the one that was on the way was given up");
    let given_up = world.establish.pop().expect("one");
    assert_eq!(world.act(|mux, now, seen| mux.handle_established(now, given_up, seen)), Err(Stale));
    reconfigure(&mut world, SMALL);
    world.establish();
    let new = world.stream();
    assert_ne!(new.conn(), old.conn());
    for stream in waiting {
        world.answer(stream);
    }
    assert_eq!(world.state().retired, 1);
    let conn = old.conn();
    world.answer(old);
    assert_eq!(world.closed, [given_up, conn]);
    world.answer(new);
}

/// A peer that completes handshakes and then closes the connection.
#[test]
fn host_that_answers_nothing_is_retried_after_growing_pauses() {
    let mut world = world(of(HostOptions { max_connections: 1, ..SMALL.local }));
    let mut pauses = Vec::new();
    for _ in 0..5 {
        let conn = world.establish[0];
        world.establish();
        world.act(|mux, now, seen| mux.handle_failed(now, conn, Cause::Network, seen)).expect("it is open");
        let before = world.now;
        while world.establish.is_empty() {
            world.now = world.mux.poll_timeout().expect("it is tried again");
            world.act(|mux, now, seen| mux.handle_timeout(now, seen));
        }
        pauses.push(world.now.saturating_since(before).as_secs());
    }
    assert_eq!(pauses, [0, 1, 2, 4, 8]);
    // A reply resets the pause.
    let conn = world.establish[0];
    world.establish();
    let stream = world.stream();
    let id = i32::from(stream.id());
    assert_eq!(world.act(|mux, now, seen| mux.handle_reply(now, conn, id, seen)), Ok(Reply::Request));
    world.act(|mux, now, seen| mux.release(now, stream, Written::Perhaps, seen)).expect("its own");
    world.act(|mux, now, seen| mux.handle_failed(now, conn, Cause::Network, seen)).expect("it is open");
    assert_eq!(world.establish.len(), 1, "at once");
    let conn = world.establish[0];
    world.establish();
    world.act(|mux, now, seen| mux.handle_failed(now, conn, Cause::Network, seen)).expect("it is open");
    assert_eq!(world.establish.len(), 1, "at once, as it is the first");
    let conn = world.establish[0];
    world.establish();
    world.act(|mux, now, seen| mux.handle_failed(now, conn, Cause::Network, seen)).expect("it is open");
    assert!(world.establish.is_empty());
    assert_eq!(world.mux.poll_timeout(), Some(world.now.saturating_add(SECOND)));
}
