//! Events, errors and their texts.

use super::*;
use alloc::format;

/// The events of a connection from its creation to its close.
#[test]
fn every_event_contains_pool_and_connection_and_is_displayed_on_one_line() {
    let conn = {
        let mut rig = rig(SMALL);
        rig.establish.pop().expect("a core connection")
    };
    let mux = MuxId::new(7);
    let (config, duration) = (MuxConfig::DEFAULT, Duration::from_millis(1500));
    let error = AcquireError::Closed;
    let closed = |reason, in_flight| MuxEvent::ConnectionClosed { mux, conn, reason, in_flight };
    let lines = [
        (MuxEvent::PoolCreated { mux, config }, "PoolCreated", ""),
        (MuxEvent::PoolReconfigured { mux, config }, "PoolReconfigured", ""),
        (MuxEvent::PoolClosed { mux }, "PoolClosed", ""),
        (MuxEvent::ConnectionCreated { mux, conn }, "ConnectionCreated", " connection 1"),
        (MuxEvent::ConnectionReady { mux, conn, duration }, "ConnectionReady", " connection 1 after 1.5s"),
        (MuxEvent::ConnectionTrashed { mux, conn, in_flight: 2 }, "ConnectionTrashed", " connection 1, 2 in flight"),
        (MuxEvent::ConnectionResurrected { mux, conn }, "ConnectionResurrected", " connection 1"),
        (MuxEvent::ConnectionRetired { mux, conn, orphaned: 3 }, "ConnectionRetired", " connection 1, 3 orphaned"),
        (closed(MuxClosed::Idle, 0), "ConnectionClosed", " connection 1: idle"),
        (closed(MuxClosed::Worn, 0), "ConnectionClosed", " connection 1: worn"),
        (closed(MuxClosed::Replaced, 0), "ConnectionClosed", " connection 1: replaced"),
        (closed(MuxClosed::PoolClosed, 0), "ConnectionClosed", " connection 1: pool closed"),
        (closed(MuxClosed::Error(Cause::Network), 4), "ConnectionClosed", " connection 1: network error, 4 in flight"),
        (MuxEvent::HeartbeatStarted { mux, conn }, "HeartbeatStarted", " connection 1"),
        (MuxEvent::HeartbeatSucceeded { mux, conn, duration }, "HeartbeatSucceeded", " connection 1 after 1.5s"),
        (MuxEvent::HeartbeatFailed { mux, conn }, "HeartbeatFailed", " connection 1"),
        (
            MuxEvent::StreamAcquired { mux, conn, stream: 5, waited: Some(duration) },
            "StreamAcquired",
            " connection 1 stream 5 after 1.5s",
        ),
        (MuxEvent::RequestQueued { mux, queued: 6 }, "RequestQueued", ", 6 wait"),
        (
            MuxEvent::AcquireFailed { mux, error, waited: Some(duration) },
            "AcquireFailed",
            " after 1.5s: the pool is closed",
        ),
        (MuxEvent::ReplyReceived { mux, conn, stream: 5 }, "ReplyReceived", " connection 1 stream 5"),
        (
            MuxEvent::StreamOrphaned { mux, conn, stream: 5, orphaned: 1 },
            "StreamOrphaned",
            " connection 1 stream 5, 1 orphaned",
        ),
        (MuxEvent::LateReply { mux, conn, stream: 5 }, "LateReply", " connection 1 stream 5"),
        (MuxEvent::UnknownReply { mux, conn, stream: -9 }, "UnknownReply", " connection 1 stream -9"),
    ];
    for (event, name, rest) in lines {
        assert_eq!((event.mux(), event.name()), (mux, name));
        assert_eq!(event.to_string(), format!("{name}{rest}"));
        assert_eq!(event.conn(), rest.starts_with(" connection").then_some(conn), "{name}");
    }
}

#[test]
fn errors_have_their_texts() {
    let texts = [
        (
            AcquireError::TimedOut { in_flight: 4, queued: 2 }.to_string(),
            "the host was busy for too long: 4 requests are in flight, and 2 waited",
        ),
        (
            AcquireError::Down { cause: Cause::Dns }.to_string(),
            "no connection to the host is open: host name not resolved",
        ),
        (AcquireError::Ignored.to_string(), "the host is ignored"),
        (AcquireError::Closed.to_string(), "the pool is closed"),
        (AcquireError::Cancelled.to_string(), "cancelled by the caller"),
        (ReplyError::Stale.to_string(), "a reply arrived on a connection that has left the pool"),
        (ReplyError::Unknown { stream: -3 }.to_string(), "a reply has stream id -3, which no request uses"),
    ];
    for (said, text) in texts {
        assert_eq!(said, text);
    }
    let (mut here, mut there) = (rig(SMALL), rig(SMALL));
    there.mux = Mux::new(there.now, MuxId::new(8), SMALL.validate().expect("right"), &mut ());
    here.establish();
    let stream = here.stream();
    let refused = there.mux.release(there.now, stream, Written::No, &mut ()).expect_err("of another pool");
    assert_eq!(refused.to_string(), "another pool issued the stream");
}

#[test]
fn debug_of_a_pool_shows_its_number_and_state() {
    let mut rig = rig(SMALL);
    rig.establish();
    assert_eq!(rig.mux.id(), MuxId::new(7));
    let shown = format!("{:?}", rig.mux);
    assert!(shown.starts_with("Mux { id: MuxId(7), state: HostState { open: 1,"), "{shown}");
    assert!(!rig.mux.is_closed());
    rig.act(|mux, now, seen| mux.close(now, seen));
    rig.act(|mux, now, seen| mux.close(now, seen));
    assert!(rig.mux.is_closed());
    assert_eq!(rig.count("PoolClosed"), 1, "closed is final");
}

#[test]
fn options_that_contradict_each_other_are_refused_by_name() {
    let of = |options: MuxOptions| options.validate().expect_err("refused").to_string();
    let none = HostOptions { max_requests_per_connection: 0, new_connection_threshold: 0, ..SMALL.local };
    let many = HostOptions { max_requests_per_connection: 9, ..SMALL.local };
    assert!(of(MuxOptions { local: none, ..SMALL }).contains("maxRequestsPerConnection"));
    assert!(of(MuxOptions { remote: many, ..SMALL }).contains("maxRequestsPerConnection"));
    let mute = MuxOptions { heartbeat_timeout: Duration::ZERO, ..SMALL };
    assert!(of(mute).contains("heartbeatTimeoutMS"));
    let silent = MuxOptions { heartbeat_interval: Duration::ZERO, ..mute };
    assert!(silent.validate().is_ok(), "no heartbeats, no timeout");
    assert_eq!(MuxOptions::default(), MuxOptions::DEFAULT);
    assert_eq!(MuxConfig::default().options(), MuxConfig::DEFAULT.options());
}

/// The formatter returns an error when an event does not fit, wherever it is cut.
#[test]
fn events_that_do_not_fit_are_not_cut_silently() {
    struct Short(usize);
    impl core::fmt::Write for Short {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            self.0 = self.0.checked_sub(text.len()).ok_or(core::fmt::Error)?;
            Ok(())
        }
    }
    let conn = rig(SMALL).establish.pop().expect("a core connection");
    let mux = MuxId::new(7);
    let closed = |reason| MuxEvent::ConnectionClosed { mux, conn, reason, in_flight: 4 };
    let events = [
        closed(MuxClosed::Idle),
        closed(MuxClosed::Error(Cause::Network)),
        MuxEvent::StreamOrphaned { mux, conn, stream: 5, orphaned: 1 },
        MuxEvent::AcquireFailed { mux, error: AcquireError::Closed, waited: None },
    ];
    for event in events {
        let len = event.to_string().len();
        for room in 0..=len {
            let result = core::fmt::write(&mut Short(room), format_args!("{event}"));
            assert_eq!(result.is_ok(), room == len, "{event} in {room}");
        }
    }
}
