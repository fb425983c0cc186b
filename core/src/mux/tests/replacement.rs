//! The replacement of all connections.

use super::*;

fn replace<M: MuxMemory>(rig: &mut Rig<M>) {
    rig.act(|mux, now, seen| mux.replace_connections(now, seen));
}

#[test]
#[doc(alias = "M3")]
fn replaced_connections_answer_their_requests_and_take_no_more() {
    let mut rig = rig(SMALL);
    rig.establish();
    let mut streams: Vec<_> = (0..4).map(|_| rig.stream()).collect();
    rig.establish();
    let old: Vec<_> = streams.iter().map(Stream::conn).collect();
    replace(&mut rig);
    // The second connection had no request.
    assert_eq!((rig.count("ConnectionRetired"), rig.closed.len()), (2, 1));
    let HostState { open, establishing, retired, in_flight, .. } = rig.state();
    assert_eq!((open, establishing, retired, in_flight), (0, 1, 1, 4));
    let waiter = rig.waiter();
    rig.establish();
    let MuxClaim::Granted(stream) = rig.claim(waiter) else { panic!("it is granted") };
    assert!(!old.contains(&stream.conn()), "it is on another connection");
    rig.answer(stream);
    streams.drain(..).for_each(|stream| rig.answer(stream));
    assert_eq!((rig.closed.len(), rig.state().retired), (2, 0));
    let reasons: Vec<_> = rig.events.iter().filter(|(_, event)| event.name() == "ConnectionClosed").collect();
    for (_, event) in reasons {
        assert!(matches!(event, MuxEvent::ConnectionClosed { reason: MuxClosed::Replaced, in_flight: 0, .. }));
    }
}

#[test]
#[doc(alias = "M3")]
fn trashed_connection_is_replaced_and_not_resurrected() {
    let mut rig = rig(SMALL);
    rig.establish();
    let _streams: Vec<_> = (0..4).map(|_| rig.stream()).collect();
    rig.establish();
    let one = MuxOptions { local: HostOptions { max_connections: 1, ..SMALL.local }, ..SMALL };
    rig.act(|mux, now, seen| mux.reconfigure(now, one.validate().expect("right"), seen));
    assert_eq!((rig.state().open, rig.state().trashed), (1, 1));
    replace(&mut rig);
    assert_eq!((rig.state().trashed, rig.state().retired, rig.closed.len()), (0, 1, 1));
    rig.act(|mux, now, seen| mux.reconfigure(now, SMALL.validate().expect("right"), seen));
    rig.establish();
    assert_eq!((rig.state().open, rig.count("ConnectionCreated"), rig.count("ConnectionResurrected")), (2, 4, 0));
}

#[test]
fn connection_that_the_driver_is_establishing_is_abandoned() {
    let mut rig = rig(SMALL);
    let waiter = rig.waiter();
    let old = rig.establish.pop().expect("it is being established");
    replace(&mut rig);
    assert_eq!(rig.closed, [old]);
    let established = rig.act(|mux, now, seen| mux.handle_established(now, old, seen));
    assert_eq!(established, Err(Stale));
    rig.establish();
    assert!(matches!(rig.claim(waiter), MuxClaim::Granted(_)));
    // This one was replaced before the driver began it.
    let mut fresh = Vec::new();
    let mut mux: Mux<MuxOnHeap> = Mux::new(rig.now, MuxId::new(7), SMALL.validate().expect("right"), &mut fresh);
    mux.replace_connections(rig.now, &mut fresh);
    mux.assert_invariants();
    assert!(matches!(mux.poll_action(rig.now), Some(MuxAction::Establish(conn)) if conn.number().get() == 1));
    assert_eq!(mux.poll_action(rig.now), None);
}

#[test]
fn request_that_was_granted_a_stream_before_the_replacement_is_sent_on_it() {
    let mut rig = rig(SMALL);
    let waiter = rig.waiter();
    rig.establish();
    replace(&mut rig);
    let MuxClaim::Granted(stream) = rig.claim(waiter) else { panic!("it is granted") };
    assert_eq!(rig.mux.conn_in_flight(stream.conn()), Some(1));
    assert_eq!(rig.reply(&stream), Ok(Reply::Request));
    assert_eq!(rig.closed, [stream.conn()]);
    rig.release(stream, Written::Perhaps);
}

#[test]
fn replacement_in_full_memory_follows_the_close_of_the_old_connection() {
    let mut rig = Rig::<MuxFixed<1, 2, { stream_words(8) }>>::new(SMALL);
    rig.establish();
    let stream = rig.stream();
    replace(&mut rig);
    assert_eq!((rig.state().retired, rig.establish.len()), (1, 0));
    let waiter = rig.waiter();
    rig.answer(stream);
    assert_eq!(rig.mux.poll_timeout(), Some(rig.now), "its place is free now");
    rig.act(|mux, now, seen| mux.handle_timeout(now, seen));
    rig.establish();
    assert!(matches!(rig.claim(waiter), MuxClaim::Granted(_)));
}

#[test]
fn replacement_ends_the_pause_after_a_failure() {
    let mut rig = rig(SMALL);
    let conn = rig.establish.pop().expect("it is being established");
    let refused = Cause::Authentication;
    rig.act(|mux, now, seen| mux.handle_establish_failed(now, conn, refused, seen)).expect("it is awaited");
    assert_eq!(rig.acquire(), Err(AcquireError::Down { cause: refused }));
    replace(&mut rig);
    let waiter = rig.waiter();
    rig.establish();
    assert!(matches!(rig.claim(waiter), MuxClaim::Granted(_)));
}

#[test]
fn ignored_or_closed_pool_replaces_nothing() {
    let mut rig = rig(SMALL);
    rig.establish();
    let ignored = MuxOptions { distance: Distance::Ignored, ..SMALL }.validate().expect("right");
    rig.act(|mux, now, seen| mux.reconfigure(now, ignored, seen));
    let before = rig.events.len();
    replace(&mut rig);
    assert_eq!(rig.events.len(), before);
    rig.act(|mux, now, seen| mux.close(now, seen));
    let before = rig.events.len();
    replace(&mut rig);
    assert_eq!((rig.events.len(), rig.mux.poll_timeout()), (before, None));
}
