use super::*;

/// MON-09.
#[test]
#[doc(alias("LOG-12", "MON-09"))]
fn start_begins_the_first_check_before_there_is_a_socket() {
    // LOG-12: the event precedes the dial.
    let mut rig = Rig::polling();
    assert_eq!(rig.actions().len(), 0);
    rig.start();
    assert_eq!(rig.seen()[..], [STARTED]);
    let conn = rig.only_dial();
    assert_eq!((conn.kind(), conn.number()), (MonitorConnKind::Check, 1));
    rig.start();
    assert_eq!(rig.actions().len(), 0, "a second start is nothing");
    assert_eq!(rig.seen().len(), 0);
}

/// MON-19.
#[test]
#[doc(alias("MON-18", "MON-19", "MON-52"))]
fn the_handshakes_reply_is_the_check() {
    let mut rig = Rig::polling();
    let conn = rig.connect();
    rig.at(30).reply(conn, &OK).expect("current");
    let outcome = Some(CheckOutcome::Succeeded { awaited: false, sample: Some(ms(30)) });
    assert_eq!(rig.outcome, outcome, "MON-18: each check ends in an outcome, MON-52: a good one too");
    assert_eq!(rig.settle(), outcome);
    assert_eq!(rig.seen()[..], [STARTED, Seen::Succeeded { awaited: false, ms: 30 }]);
    assert_eq!(rig.actions().len(), 0);
}

/// LOG-15.
#[test]
#[doc(alias("LOG-15", "MON-40"))]
fn duration_is_from_sending_the_hello_and_is_the_rtt_sample() {
    // MON-40: the duration excludes the time of the dial.
    let mut rig = Rig::polling();
    rig.start();
    let conn = rig.only_dial();
    rig.at(100).dialed(conn).expect("current");
    rig.at(120);
    assert_eq!(rig.actions().len(), 1, "the host writes the hello 20 ms after the dial");
    rig.at(127).reply(conn, &OK).expect("current");
    assert_eq!(rig.settle(), Some(CheckOutcome::Succeeded { awaited: false, sample: Some(ms(7)) }));
    assert_eq!(rig.seen()[1], Seen::Succeeded { awaited: false, ms: 7 });
    assert_eq!(rig.monitor.rtt().average(), Some(ms(7)));
}

/// MON-05.
#[test]
#[doc(alias("MON-05", "MON-06"))]
fn legacy_hello_is_used_on_each_connection_until_hello_ok() {
    let hello_ok = (HelloReply { hello_ok: true, ..OK.0 }, OK.1);
    let mut rig = Rig::polling();
    rig.start();
    let conn = rig.only_dial();
    rig.dialed(conn).expect("current");
    let handshake = |conn| MonitorAction::SendHello { conn, hello: HelloKind::Handshake { legacy: true } };
    assert_eq!(rig.actions()[..], [handshake(conn)]);
    rig.reply(conn, &hello_ok).expect("current");
    rig.settle();
    rig.at(10_000).timeout();
    let hello = HelloKind::Poll { legacy: false };
    assert_eq!(rig.actions()[..], [MonitorAction::SendHello { conn, hello }], "MON-06: no second handshake");
    rig.fail(conn, Cause::Network).expect("current");
    rig.settle();
    let [MonitorAction::Hangup(_), MonitorAction::Dial(second)] = rig.actions()[..] else { panic!("a new connection") };
    rig.dialed(second).expect("current");
    assert_eq!(rig.actions()[..], [handshake(second)]);
}

/// MON-05.
#[test]
#[doc(alias = "MON-05")]
fn legacy_hello_stays_without_hello_ok() {
    let mut rig = Rig::polling();
    let conn = rig.connect();
    rig.reply(conn, &OK).expect("current");
    rig.settle();
    rig.at(10_000).timeout();
    assert_eq!(rig.actions()[..], [MonitorAction::SendHello { conn, hello: HelloKind::Poll { legacy: true } }]);
}

/// MON-05.
#[test]
#[doc(alias = "MON-05")]
fn stable_api_uses_hello_from_the_start() {
    let mut rig = Rig::new(MonitorOptions { server_api: true, ..MonitorOptions::DEFAULT });
    rig.start();
    let conn = rig.only_dial();
    rig.dialed(conn).expect("current");
    let hello = HelloKind::Handshake { legacy: false };
    assert_eq!(rig.actions()[..], [MonitorAction::SendHello { conn, hello }]);
    rig.reply(conn, &VERSIONED).expect("current");
    rig.settle();
    let MonitorAction::SendHello { hello: HelloKind::Awaitable { legacy, .. }, .. } = rig.actions()[0] else {
        panic!("an awaitable hello")
    };
    assert!(!legacy, "and later, though the reply had no helloOk");
}

/// MON-13, MON-51.
#[test]
#[doc(alias("MON-13", "MON-51"))]
fn the_next_check_is_exactly_one_heartbeat_frequency_after_the_end() {
    let mut rig = Rig::polling();
    let conn = rig.connect();
    rig.at(300).reply(conn, &OK).expect("current");
    rig.settle();
    assert_eq!(rig.due(), Some(at(10_300)));
    rig.seen();
    rig.at(10_299).timeout();
    assert_eq!((rig.seen().len(), rig.actions().len()), (0, 0), "an early call is nothing");
    rig.at(10_300).timeout();
    assert_eq!(rig.seen()[..], [STARTED]);
    assert!(matches!(rig.actions()[..], [MonitorAction::SendHello { hello: HelloKind::Poll { .. }, .. }]));
    rig.at(10_400).reply(conn, &OK).expect("current");
    rig.settle();
    assert_eq!(rig.due(), Some(at(20_400)));
}

/// MON-15, MON-17.
#[test]
#[doc(alias("MON-15", "MON-17", "MON-22"))]
fn a_request_wakes_the_monitor_500_ms_after_the_end() {
    // MON-22: for any value of heartbeatFrequencyMS.
    let mut rig = Rig::polling();
    let conn = rig.connect();
    rig.at(300).reply(conn, &OK).expect("current");
    rig.settle();
    rig.monitor.request_check(at(310));
    assert_eq!(rig.due(), Some(at(800)));
    rig.at(799).timeout();
    assert_eq!(rig.actions().len(), 0);
    rig.at(800).timeout();
    assert_eq!(rig.actions().len(), 1);
}

/// MON-15.
#[test]
#[doc(alias = "MON-15")]
fn a_late_request_is_due_at_once_and_does_not_put_off_a_check() {
    let mut rig = Rig::polling();
    let conn = rig.connect();
    rig.reply(conn, &OK).expect("current");
    rig.settle();
    rig.monitor.request_check(at(4_000));
    assert_eq!(rig.due(), Some(at(4_000)));
    rig.monitor.request_check(at(5_000));
    assert_eq!(rig.due(), Some(at(4_000)));
}

/// MON-14, MON-16.
#[test]
#[doc(alias("MON-14", "MON-16"))]
fn requests_during_a_check_are_dropped_and_a_thousand_make_one_check() {
    let mut rig = Rig::polling();
    let conn = rig.connect();
    for _ in 0..1_000 {
        rig.monitor.request_check(at(5));
    }
    assert_eq!(rig.actions().len(), 0);
    rig.at(10).reply(conn, &OK).expect("current");
    rig.monitor.request_check(at(10));
    rig.settle();
    assert_eq!(rig.due(), Some(at(10_010)), "not remembered");
    for _ in 0..1_000 {
        rig.monitor.request_check(at(20));
    }
    rig.at(510).timeout();
    assert_eq!(rig.actions().len(), 1);
    rig.reply(conn, &OK).expect("current");
    rig.settle();
    assert_eq!(rig.due(), Some(at(10_510)));
}

/// MON-07, MON-34.
#[test]
#[doc(alias("MON-07", "MON-08", "MON-25", "MON-34"))]
fn dial_and_handshake_share_connect_timeout() {
    // MON-08, MON-25: only connectTimeoutMS limits a check.
    let options = MonitorOptions { connect_timeout: Some(ms(800)), ..MonitorOptions::DEFAULT };
    let mut rig = Rig::new(options);
    rig.start();
    let conn = rig.only_dial();
    assert_eq!(rig.due(), Some(at(800)));
    rig.at(700).dialed(conn).expect("current");
    rig.actions();
    assert_eq!(rig.due(), Some(at(800)));
    rig.at(799).timeout();
    assert_eq!(rig.settle(), None);
    rig.at(800).timeout();
    assert_eq!(rig.settle(), failed(Cause::NetworkTimeout));
    assert_eq!(rig.actions()[..], [MonitorAction::Hangup(conn)]);
    let late = Seen::Failed { awaited: false, ms: 100, cause: Cause::NetworkTimeout };
    assert_eq!(rig.seen()[..], [STARTED, late]);
}

/// MON-08.
#[test]
#[doc(alias = "MON-08")]
fn a_later_hello_has_the_whole_connect_timeout() {
    let options = MonitorOptions { connect_timeout: Some(ms(800)), ..MonitorOptions::DEFAULT };
    let mut rig = Rig::new(options);
    let conn = rig.connect();
    rig.reply(conn, &OK).expect("current");
    rig.settle();
    rig.at(10_000).timeout();
    assert_eq!(rig.due(), Some(at(10_800)));
}

/// MON-34.
#[test]
#[doc(alias = "MON-34")]
fn zero_connect_timeout_is_unlimited() {
    let options = MonitorOptions { connect_timeout: None, ..MonitorOptions::DEFAULT };
    let mut rig = Rig::new(options);
    rig.start();
    assert_eq!(rig.due(), None);
    let conn = rig.dial();
    assert_eq!(rig.due(), None);
    rig.at(u64::from(u32::MAX)).timeout();
    assert_eq!(rig.settle(), None);
    rig.reply(conn, &OK).expect("current");
    assert!(matches!(rig.settle(), Some(CheckOutcome::Succeeded { .. })));
}

#[test]
fn results_at_the_instant_of_the_deadline_are_too_late() {
    let mut rig = Rig::polling();
    rig.start();
    let conn = rig.only_dial();
    rig.at(10_000).dialed(conn).expect("current");
    assert_eq!(rig.settle(), failed(Cause::NetworkTimeout));
    assert_eq!(rig.actions()[..], [MonitorAction::Hangup(conn)], "the socket that came too late");

    let mut rig = Rig::polling();
    let conn = rig.connect();
    rig.at(10_000).reply(conn, &OK).expect("current");
    assert_eq!(rig.settle(), failed(Cause::NetworkTimeout));

    let mut rig = Rig::polling();
    let conn = rig.connect();
    rig.at(10_000).fail(conn, Cause::Network).expect("current");
    assert_eq!(rig.settle(), failed(Cause::NetworkTimeout));
}

/// MON-10.
#[test]
#[doc(alias = "MON-10")]
fn a_silent_server_does_not_delay_another() {
    let mut hung = Rig::polling();
    let mut other = Rig::polling();
    hung.connect();
    let conn = other.connect();
    other.reply(conn, &OK).expect("current");
    other.settle();
    other.at(10_000).timeout();
    assert_eq!(other.actions().len(), 1);
}

/// MON-11, MON-12.
#[test]
#[doc(alias("MON-11", "MON-12"))]
fn monitors_connections_are_their_own_and_no_hello_carries_credentials() {
    // The monitor numbers its connections itself, and the kinds of hello have no field for a user
    // name.
    let mut rig = Rig::streaming_from_the_start();
    let ids: heapless::Vec<u64, 4> =
        [rig.monitor.check.conn(), rig.monitor.ping.conn()].iter().flatten().map(|conn| conn.id.number()).collect();
    assert_eq!(ids[..], [1, 2]);
    rig.close();
}

/// LOG-16.
#[test]
#[doc(alias = "LOG-16")]
fn events_name_server_and_connection() {
    let mut rig = Rig::polling();
    let conn = rig.connect();
    rig.reply(conn, &(HelloReply { connection_id: Some(42), ..OK.0 }, OK.1)).expect("current");
    rig.settle();
    rig.at(10_000).timeout();
    rig.actions();
    rig.reply(conn, &OK).expect("current");
    let told: heapless::Vec<_, 4> = rig.log.events.iter().map(|event| (*event.id(), event.awaited())).collect();
    let id = |server_connection| HeartbeatId { server: ServerId::new(7), connection: 1, server_connection };
    let known = (id(Some(42)), false);
    assert_eq!(told[..], [(id(None), false), known, known, known], "the server says its number once");
}

#[test]
fn a_clock_that_goes_back_keeps_the_latest_time() {
    let mut rig = Rig::polling();
    let conn = rig.at(5_000).connect();
    rig.at(1_000).reply(conn, &OK).expect("current");
    rig.settle();
    assert_eq!(rig.due(), Some(at(15_000)));
    assert_eq!(rig.seen()[1], Seen::Succeeded { awaited: false, ms: 0 });
    rig.at(2_000).timeout();
    assert_eq!(rig.actions().len(), 0);
    rig.monitor.request_check(at(1));
    assert_eq!(rig.due(), Some(at(5_500)));
}

#[test]
fn an_instant_beyond_the_clock_never_expires() {
    let mut rig = Rig::polling();
    rig.now = Instant::MAX;
    let conn = rig.connect();
    assert_eq!(rig.due(), None);
    rig.reply(conn, &OK).expect("current");
    rig.settle();
    assert_eq!(rig.due(), None);
    rig.monitor.request_check(Instant::MAX);
    rig.timeout();
    assert_eq!(rig.actions().len(), 0);
    rig.close();
}
