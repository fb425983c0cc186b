//! Waiting requests when memory is exhausted, a connection is established slowly, or all ids are in
//! use.

use super::*;

/// Options with these limits for both distances.
fn of(host: HostOptions) -> MuxOptions {
    MuxOptions { local: host, remote: host, ..SMALL }
}

fn reconfigure<M: MuxMemory>(rig: &mut Rig<M>, options: MuxOptions) {
    rig.act(|mux, now, seen| mux.reconfigure(now, options.validate().expect("right"), seen));
}

#[test]
fn failed_connection_in_the_only_slot_is_replaced() {
    let one = of(HostOptions { max_connections: 1, ..SMALL.local });
    let mut rig = Rig::<MuxFixed<1, 3, { stream_words(8) }>>::new(one);
    rig.establish();
    let streams: Vec<_> = (0..4).map(|_| rig.stream()).collect();
    let waiter = rig.waiter();
    let conn = streams[0].conn();
    rig.act(|mux, now, seen| mux.handle_failed(now, conn, Cause::Network, seen)).expect("it is open");
    assert_eq!(rig.claim(waiter), MuxClaim::Waiting);
    assert_eq!(rig.mux.poll_timeout(), Some(rig.now.saturating_add(SECOND)), "there is a place");
    rig.wait(SECOND);
    rig.establish();
    assert!(matches!(rig.claim(waiter), MuxClaim::Granted(_)));
}

#[test]
fn options_beyond_the_fixed_memory_do_not_keep_a_failed_connection_from_being_replaced() {
    let mut rig = Rig::<MuxFixed<1, 3, { stream_words(8) }>>::new(SMALL);
    rig.establish();
    let streams: Vec<_> = (0..4).map(|_| rig.stream()).collect();
    for _ in 0..8 {
        let waiter = rig.waiter();
        rig.act(|mux, now, seen| mux.cancel(now, waiter, seen));
        rig.now = rig.now.saturating_add(SECOND * 60);
    }
    let conn = streams[0].conn();
    rig.act(|mux, now, seen| mux.handle_failed(now, conn, Cause::Network, seen)).expect("it is open");
    let waiter = rig.waiter();
    rig.wait(SECOND);
    assert_eq!(rig.establish.len(), 1);
    rig.establish();
    assert!(matches!(rig.claim(waiter), MuxClaim::Granted(_)));
}

#[test]
fn options_are_limited_to_the_stream_ids_of_connections() {
    let mut rig = rig(MuxOptions::DEFAULT_128);
    rig.establish();
    let wide = HostOptions { core_connections: 1, max_connections: 8, ..MuxOptions::DEFAULT.local };
    reconfigure(&mut rig, MuxOptions { local: wide, remote: wide, ..MuxOptions::DEFAULT });
    let options = *rig.mux.config().options();
    assert_eq!(options.streams_per_connection, 128);
    assert_eq!(options.validate().map(|config| *config.options()), Ok(options), "they fit each other");
    // This many requests need three connections, of which none is trashed and resurrected in turn.
    let mut streams = Vec::new();
    for _ in 0..300 {
        let acquired = rig.acquire().expect("there is room to wait");
        rig.establish();
        streams.push(match acquired {
            Acquire::Granted(stream) => stream,
            Acquire::Queued(waiter) => match rig.claim(waiter) {
                MuxClaim::Granted(stream) => stream,
                MuxClaim::Waiting | MuxClaim::Failed(_) | MuxClaim::Stale => panic!("not granted"),
            },
        });
    }
    rig.wait(SECOND * 25);
    assert_eq!(rig.count("ConnectionTrashed"), 0);
    for stream in streams {
        rig.answer(stream);
    }
}

#[test]
fn options_are_limited_to_the_memory_for_stream_ids() {
    let many = MuxOptions { streams_per_connection: 200, ..SMALL };
    let local = HostOptions { max_requests_per_connection: 150, new_connection_threshold: 100, ..SMALL.local };
    let rig = Rig::<MuxFixed<3, 1, { stream_words(64) }>>::new(MuxOptions { local, ..many });
    let options = *rig.mux.config().options();
    assert_eq!(options.streams_per_connection, 64);
    assert_eq!((options.local.max_requests_per_connection, options.local.new_connection_threshold), (64, 64));
    assert_eq!(options.remote, many.remote);
}

#[test]
fn connection_without_free_ids_has_the_heartbeat_timeout_in_addition() {
    let all =
        HostOptions { max_connections: 1, max_requests_per_connection: 8, new_connection_threshold: 8, ..SMALL.local };
    let mut rig = rig(of(all));
    rig.establish();
    let mut streams: Vec<_> = (0..8).map(|_| rig.stream()).collect();
    let begun = rig.now;
    rig.wait(SECOND * 41);
    assert_eq!(rig.state().open, 1);
    let stream = streams.pop().expect("eight");
    rig.answer(stream);
    let again = rig.stream();
    assert_eq!(rig.mux.poll_timeout(), Some(begun.saturating_add(SECOND * (41 + 42))));
    rig.wait(SECOND * 41);
    assert_eq!(rig.state().open, 1);
    rig.release(again, Written::No);
    assert_eq!(rig.mux.poll_timeout(), Some(rig.now), "now there is an id to ask by");
    rig.act(|mux, now, seen| mux.handle_timeout(now, seen));
    assert_eq!(core::mem::take(&mut rig.heartbeats).len(), 1);
    rig.wait(SECOND * 12);
    assert_eq!(rig.count("HeartbeatFailed"), 1);
}

#[test]
fn trashed_connection_is_resurrected_while_another_one_is_being_established() {
    let mut rig = rig(SMALL);
    rig.establish();
    let mut streams: Vec<_> = (0..4).map(|_| rig.stream()).collect();
    rig.establish();
    streams.extend((0..4).map(|_| rig.stream()));
    assert_eq!((rig.state().open, rig.state().establishing), (2, 1), "the third one does not come");
    for stream in streams.drain(..) {
        rig.answer(stream);
    }
    rig.wait(SECOND * 20);
    assert_eq!((rig.state().open, rig.state().trashed), (1, 1));
    streams.extend((0..5).map(|_| rig.stream()));
    assert_eq!((rig.state().open, rig.state().trashed, rig.state().establishing), (2, 0, 1));
    assert!(matches!(rig.acquire(), Ok(Acquire::Granted(_))));
}

#[test]
fn a_pool_must_connect_unless_a_connection_is_open_or_can_be_resurrected() {
    let mut rig = rig(SMALL);
    let must_connect = |rig: &mut Rig<_>| rig.act(|mux, now, seen| mux.must_connect(now, seen));
    assert!(must_connect(&mut rig), "the first connection is being established");
    rig.establish();
    assert!(!must_connect(&mut rig));
    let mut streams: Vec<_> = (0..4).map(|_| rig.stream()).collect();
    rig.establish();
    streams.extend((0..4).map(|_| rig.stream()));
    assert_eq!((rig.state().open, rig.state().establishing), (2, 1));
    for stream in streams.drain(..) {
        rig.answer(stream);
    }
    rig.wait(SECOND * 20);
    let mut open = None;
    rig.mux.for_each_conn(|conn, _, _| open = Some(conn));
    let open = open.expect("one is open");
    rig.act(|mux, now, seen| mux.handle_failed(now, open, Cause::Network, seen)).expect("it is open");
    assert!(!must_connect(&mut rig), "the trashed one is resurrected");
    assert_eq!((rig.state().open, rig.state().trashed), (1, 0));
    rig.act(|mux, now, seen| mux.close(now, seen));
    assert!(!must_connect(&mut rig), "it is closed");
}

#[test]
fn another_connection_is_opened_if_the_resurrected_one_is_full() {
    let wide = HostOptions { max_requests_per_connection: 8, new_connection_threshold: 8, ..SMALL.local };
    let mut rig = rig(of(wide));
    rig.establish();
    let mut first: Vec<_> = (0..8).map(|_| rig.stream()).collect();
    let waiter = rig.waiter();
    rig.establish();
    let MuxClaim::Granted(stream) = rig.claim(waiter) else { panic!("there is room") };
    let mut second = alloc::vec![stream];
    second.extend((0..7).map(|_| rig.stream()));
    // All are answered on the second one, but the replies are not taken.
    for stream in &second {
        assert_eq!(rig.reply(stream), Ok(Reply::Request));
    }
    for stream in first.drain(..2) {
        rig.answer(stream);
    }
    rig.wait(SECOND * 20);
    assert_eq!((rig.state().open, rig.state().trashed), (1, 1));
    first.extend((0..2).map(|_| rig.stream()));
    let _waiter = rig.waiter();
    assert_eq!((rig.state().open, rig.state().trashed, rig.state().establishing), (2, 0, 1));
}

#[test]
fn briefly_ignored_host_keeps_its_owed_actions_and_opens_connections_again() {
    let mut rig = rig(SMALL);
    rig.establish();
    let old = rig.stream();
    let waiting: Vec<_> = (0..3).map(|_| rig.stream()).collect();
    let waiter = rig.waiter();
    reconfigure(&mut rig, MuxOptions { distance: Distance::Ignored, ..SMALL });
    assert_eq!(rig.claim(waiter), MuxClaim::Failed(AcquireError::Ignored));
    assert_eq!(rig.establish.len(), 1, "the one that was on the way was given up");
    let given_up = rig.establish.pop().expect("one");
    assert_eq!(rig.act(|mux, now, seen| mux.handle_established(now, given_up, seen)), Err(Stale));
    reconfigure(&mut rig, SMALL);
    rig.establish();
    let new = rig.stream();
    assert_ne!(new.conn(), old.conn());
    for stream in waiting {
        rig.answer(stream);
    }
    assert_eq!(rig.state().retired, 1);
    let conn = old.conn();
    rig.answer(old);
    assert_eq!(rig.closed, [given_up, conn]);
    rig.answer(new);
}

/// A peer that completes handshakes and then closes the connection.
#[test]
fn host_that_answers_nothing_is_retried_after_growing_pauses() {
    let mut rig = rig(of(HostOptions { max_connections: 1, ..SMALL.local }));
    let mut pauses = Vec::new();
    for _ in 0..5 {
        let conn = rig.establish[0];
        rig.establish();
        rig.act(|mux, now, seen| mux.handle_failed(now, conn, Cause::Network, seen)).expect("it is open");
        let before = rig.now;
        while rig.establish.is_empty() {
            rig.now = rig.mux.poll_timeout().expect("it is tried again");
            rig.act(|mux, now, seen| mux.handle_timeout(now, seen));
        }
        pauses.push(rig.now.saturating_since(before).as_secs());
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16]);
    // A reply resets the pause.
    let conn = rig.establish[0];
    rig.establish();
    let stream = rig.stream();
    rig.answer(stream);
    rig.act(|mux, now, seen| mux.handle_failed(now, conn, Cause::Network, seen)).expect("it is open");
    assert_eq!(rig.mux.poll_timeout(), Some(rig.now.saturating_add(SECOND)));
}

/// A peer that shuts down closes its connections. It accepts a connection that is opened at once, does
/// not close that one, and refuses the requests on it.
#[test]
fn lost_connection_is_replaced_after_a_pause_and_requests_wait_for_it() {
    for (reported_up, pause) in [(false, SECOND), (true, Duration::from_millis(250))] {
        let mut rig = rig(of(HostOptions { max_connections: 1, ..SMALL.local }));
        let conn = rig.establish[0];
        rig.establish();
        let stream = rig.stream();
        rig.answer(stream);
        rig.act(|mux, now, seen| mux.handle_failed(now, conn, Cause::Network, seen)).expect("it is open");
        let lost_at = rig.now;
        assert!(rig.act(|mux, now, seen| mux.must_connect(now, seen)), "another host is asked first");
        let waiter = rig.waiter();
        if reported_up {
            rig.act(|mux, now, seen| mux.handle_host_up(now, seen));
        }
        assert!(rig.establish.is_empty(), "not at once");
        assert_eq!(rig.mux.poll_timeout(), Some(lost_at.saturating_add(pause)));
        rig.wait(pause);
        rig.establish();
        let MuxClaim::Granted(stream) = rig.claim(waiter) else { panic!("not granted") };
        rig.answer(stream);
    }
}

#[test]
fn requests_wait_also_if_a_connection_without_a_reply_is_lost() {
    let two = of(HostOptions { core_connections: 2, max_connections: 2, ..SMALL.local });
    for unused_first in [false, true] {
        let mut rig = rig(two);
        let mut conns = rig.establish.clone();
        rig.establish();
        let stream = rig.stream();
        conns.sort_by_key(|conn| (*conn == stream.conn()) == unused_first);
        rig.answer(stream);
        for conn in conns {
            rig.act(|mux, now, seen| mux.handle_failed(now, conn, Cause::Network, seen)).expect("it is open");
        }
        let waiter = rig.waiter();
        assert_eq!(rig.mux.poll_timeout(), Some(rig.now.saturating_add(SECOND)), "both losses count as one");
        rig.wait(SECOND);
        rig.establish();
        assert!(matches!(rig.claim(waiter), MuxClaim::Granted(_)));
    }
}

#[test]
fn pause_after_a_loss_goes_on_when_an_older_attempt_succeeds() {
    let mut rig = rig(of(HostOptions { core_connections: 2, max_connections: 2, ..SMALL.local }));
    let second = rig.establish.pop().expect("two are opened");
    let first = rig.establish[0];
    rig.establish();
    rig.act(|mux, now, seen| mux.handle_failed(now, first, Cause::Network, seen)).expect("it is open");
    rig.act(|mux, now, seen| mux.handle_established(now, second, seen)).expect("it is awaited");
    assert_eq!((rig.state().open, rig.establish.len()), (1, 0));
    assert_eq!(rig.mux.poll_timeout(), Some(rig.now.saturating_add(SECOND)));
    rig.wait(SECOND);
    assert_eq!(rig.establish.len(), 1);
}

#[test]
fn pauses_in_which_requests_wait_are_no_longer_than_backoff_max_for_any_cause() {
    let short = MuxOptions { backoff_max: SECOND * 2, ..of(HostOptions { max_connections: 1, ..SMALL.local }) };
    let mut rig = rig(short);
    for pause in [1, 2, 2, 2] {
        let conn = rig.establish[0];
        rig.establish();
        rig.act(|mux, now, seen| mux.handle_failed(now, conn, Cause::Protocol, seen)).expect("it is open");
        assert_eq!(rig.mux.poll_timeout(), Some(rig.now.saturating_add(SECOND * pause)));
        rig.wait(SECOND * pause);
    }
}

#[test]
fn pause_is_forgotten_if_no_other_connection_is_needed() {
    let mut rig = rig(of(HostOptions { core_connections: 0, ..SMALL.local }));
    let waiter = rig.waiter();
    let conn = rig.establish[0];
    rig.establish();
    let MuxClaim::Granted(stream) = rig.claim(waiter) else { panic!("not granted") };
    rig.answer(stream);
    rig.act(|mux, now, seen| mux.handle_failed(now, conn, Cause::Network, seen)).expect("it is open");
    assert_eq!((rig.mux.has_failed(), rig.mux.poll_timeout()), (true, None));
    let early = rig.waiter();
    assert_eq!(rig.mux.poll_timeout(), Some(rig.now.saturating_add(SECOND)), "it is needed now");
    rig.act(|mux, now, seen| mux.cancel(now, early, seen));
    rig.now = rig.now.saturating_add(SECOND);
    rig.act(|mux, now, seen| mux.handle_timeout(now, seen));
    assert!(!rig.mux.has_failed());
    let _late = rig.waiter();
    assert_eq!(rig.establish.len(), 1, "at once");
}

#[test]
fn attempt_that_fails_in_the_pause_after_a_loss_has_a_pause_of_its_own() {
    let mut rig = rig(of(HostOptions { core_connections: 2, max_connections: 2, ..SMALL.local }));
    let second = rig.establish.pop().expect("two are opened");
    let first = rig.establish[0];
    rig.establish();
    let stream = rig.stream();
    rig.answer(stream);
    rig.act(|mux, now, seen| mux.handle_failed(now, first, Cause::Network, seen)).expect("it is open");
    let waiter = rig.waiter();
    rig.now = rig.now.saturating_add(SECOND / 2);
    rig.act(|mux, now, seen| mux.handle_establish_failed(now, second, Cause::Network, seen)).expect("it is awaited");
    assert_eq!(rig.claim(waiter), MuxClaim::Failed(AcquireError::Down { cause: Cause::Network }));
    assert_eq!(rig.mux.poll_timeout(), Some(rig.now.saturating_add(SECOND * 2)));
}
