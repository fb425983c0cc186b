use super::*;

/// The check connection of a rig that streams.
fn check_conn(rig: &Rig) -> MonitorConnId {
    rig.monitor.check.conn().expect("connected").id
}

/// MON-26.
#[test]
#[doc(alias("MON-26", "MON-28", "MON-29"))]
fn streaming_starts_when_a_reply_has_a_topology_version() {
    // MON-28, MON-29: the awaitable hello has both arguments, maxAwaitTimeMS is
    // heartbeatFrequencyMS.
    let mut rig = Rig::streaming();
    let conn = rig.connect();
    rig.reply(conn, &VERSIONED).expect("current");
    rig.settle();
    let hello = HelloKind::Awaitable {
        legacy: true,
        topology_version: version(1),
        max_await_time: MonitorOptions::DEFAULT.heartbeat_frequency,
    };
    let actions = rig.actions();
    assert_eq!(actions[0], MonitorAction::SendHello { conn, hello });
    assert!(matches!(actions[1..], [MonitorAction::Dial(rtt)] if rtt.kind() == MonitorConnKind::Rtt));
    assert_eq!(rig.seen()[..], [STARTED, Seen::Succeeded { awaited: false, ms: 0 }, STARTED_AWAITED]);
    assert!(rig.monitor.is_streaming());
}

/// MON-26.
#[test]
#[doc(alias = "MON-26")]
fn a_polled_reply_with_topology_version_starts_streaming_too() {
    let mut rig = Rig::streaming();
    let conn = rig.connect();
    rig.reply(conn, &OK).expect("current");
    rig.settle();
    assert!(!rig.monitor.is_streaming());
    rig.at(10_000).timeout();
    rig.actions();
    rig.reply(conn, &VERSIONED).expect("current");
    rig.settle();
    assert!(rig.monitor.is_streaming());
}

/// MON-03, MON-04, MON-27.
#[test]
#[doc(alias("MON-03", "MON-04", "MON-27", "MON-39"))]
fn poll_and_faas_never_stream() {
    // MON-39: and dial no connection for RTT.
    let poll = MonitorOptions { server_monitoring_mode: ServerMonitoringMode::Poll, ..MonitorOptions::DEFAULT };
    let faas = MonitorOptions { is_faas: true, ..MonitorOptions::DEFAULT };
    for options in [poll, faas] {
        let mut rig = Rig::new(options);
        let conn = rig.connect();
        for round in 1..4 {
            rig.reply(conn, &VERSIONED).expect("current");
            rig.settle();
            assert_eq!(rig.due(), Some(at(round * 10_000)));
            rig.at(round * 10_000).timeout();
            assert!(matches!(rig.actions()[..], [MonitorAction::SendHello { hello: HelloKind::Poll { .. }, .. }]));
        }
        assert!(rig.log.events.iter().all(|event| !event.awaited()));
    }
}

/// MON-02, MON-27.
#[test]
#[doc(alias("MON-02", "MON-27"))]
fn a_server_without_topology_version_is_polled() {
    let stream = MonitorOptions { server_monitoring_mode: ServerMonitoringMode::Stream, ..MonitorOptions::DEFAULT };
    let mut rig = Rig::new(stream);
    let conn = rig.connect();
    rig.reply(conn, &OK).expect("current");
    rig.settle();
    assert_eq!(rig.actions().len(), 0);
    assert_eq!(rig.due(), Some(at(10_000)));
}

/// MON-32, MON-36, MON-37.
#[test]
#[doc(alias("LOG-13", "MON-30", "MON-32", "MON-36", "MON-37"))]
fn more_to_come_is_read_at_once_without_a_hello() {
    // LOG-13: each further reply has its own Started event, awaited, before it is read. MON-30: in
    // the order of arrival.
    let mut rig = Rig::streaming_from_the_start();
    let conn = check_conn(&rig);
    for round in 1..=3 {
        rig.at(round * 50).reply(conn, &STREAMED).expect("current");
        assert_eq!(rig.settle(), Some(CheckOutcome::Succeeded { awaited: true, sample: None }));
        assert_eq!(rig.actions()[..], [MonitorAction::ReadNext { conn }]);
        assert_eq!(rig.seen()[..], [Seen::Succeeded { awaited: true, ms: 50 }, STARTED_AWAITED]);
    }
}

/// MON-32.
#[test]
#[doc(alias = "MON-32")]
fn more_to_come_is_read_even_without_topology_version() {
    let mut rig = Rig::streaming_from_the_start();
    let conn = check_conn(&rig);
    rig.reply(conn, &(OK.0, Matched::MoreComes)).expect("current");
    rig.settle();
    assert_eq!(rig.actions()[..], [MonitorAction::ReadNext { conn }]);
    rig.reply(conn, &OK).expect("current");
    rig.settle();
    assert!(!rig.monitor.is_streaming(), "and at the end of the stream there is nothing to wait for");
    assert!(rig.due().is_some());
}

/// MON-33.
#[test]
#[doc(alias = "MON-33")]
fn the_end_of_a_stream_is_followed_by_an_awaitable_hello_with_the_latest_version() {
    let mut rig = Rig::streaming_from_the_start();
    let conn = check_conn(&rig);
    rig.reply(conn, &(HelloReply { topology_version: Some(version(8)), ..OK.0 }, Matched::MoreComes)).expect("current");
    rig.settle();
    rig.actions();
    rig.reply(conn, &(HelloReply { topology_version: Some(version(9)), hello_ok: true, ..OK.0 }, OK.1))
        .expect("current");
    rig.settle();
    let max_await_time = ms(10_000);
    let hello = HelloKind::Awaitable { legacy: false, topology_version: version(9), max_await_time };
    assert_eq!(rig.actions()[..], [MonitorAction::SendHello { conn, hello }]);
}

/// MON-35.
#[test]
#[doc(alias = "MON-35")]
fn awaited_replies_have_connect_timeout_and_heartbeat_frequency() {
    let options =
        MonitorOptions { connect_timeout: Some(ms(300)), heartbeat_frequency: ms(500), ..MonitorOptions::DEFAULT };
    let mut rig = Rig::new(options);
    let conn = rig.connect();
    rig.reply(conn, &VERSIONED).expect("current");
    rig.settle();
    rig.actions();
    assert_eq!(rig.monitor.check.deadline(), Some(at(800)));
    rig.at(799).reply(conn, &STREAMED).expect("current");
    rig.settle();
    rig.actions();
    assert_eq!(rig.monitor.check.deadline(), Some(at(1_599)), "each reply anew");
    rig.at(1_599).timeout();
    assert_eq!(rig.outcome, failed(Cause::NetworkTimeout));
}

/// MON-34.
#[test]
#[doc(alias = "MON-34")]
fn zero_connect_timeout_stays_unlimited_for_awaited_replies() {
    let options = MonitorOptions { connect_timeout: None, ..MonitorOptions::DEFAULT };
    let mut rig = Rig::new(options);
    let conn = rig.connect();
    rig.reply(conn, &VERSIONED).expect("current");
    rig.settle();
    rig.actions();
    assert_eq!(rig.due(), None);
}

/// MON-31.
#[test]
#[doc(alias("MON-31", "MON-39", "MON-56"))]
fn every_failure_of_a_stream_closes_the_connection_and_dials_a_new_one() {
    for (fault, retried) in [
        (Ok(REFUSED), false),
        (Ok((REFUSED.0, Matched::MoreComes)), false),
        (Err(Cause::Network), true),
        (Err(Cause::NetworkTimeout), true),
        (Err(Cause::Protocol), false),
    ] {
        let mut rig = Rig::streaming_from_the_start();
        let conn = check_conn(&rig);
        rig.at(50);
        let cause = match fault {
            Ok(reply) => {
                rig.reply(conn, &reply).expect("current");
                Cause::Command { code: reply.0.code }
            }
            Err(cause) => {
                rig.fail(conn, cause).expect("current");
                cause
            }
        };
        assert_eq!(rig.settle(), failed(cause));
        let actions = rig.actions();
        assert_eq!(actions[0], MonitorAction::Hangup(conn));
        assert!(matches!(actions[1], MonitorAction::Hangup(rtt) if rtt.kind() == MonitorConnKind::Rtt), "MON-39");
        assert_eq!(actions.len(), if retried { 3 } else { 2 });
        if !retried {
            assert_eq!(rig.due(), Some(at(10_050)), "MON-56: even while streaming");
            rig.at(10_050).timeout();
            let MonitorAction::Dial(second) = rig.actions()[0] else { panic!("a new connection") };
            assert_eq!(second.kind(), MonitorConnKind::Check);
        }
        assert_eq!(rig.seen()[0], Seen::Failed { awaited: true, ms: 50, cause });
    }
}

#[test]
fn a_handshake_reply_that_announces_another_is_a_protocol_error() {
    let mut rig = Rig::streaming();
    let conn = rig.connect();
    rig.reply(conn, &STREAMED).expect("current");
    assert_eq!(rig.settle(), failed(Cause::Protocol));
    assert_eq!(rig.actions()[..], [MonitorAction::Hangup(conn)]);
}

#[test]
fn an_unsolicited_reply_closes_the_connection() {
    let mut rig = Rig::streaming();
    let conn = rig.connect();
    rig.reply(conn, &OK).expect("current");
    rig.settle();
    rig.seen();
    rig.reply(conn, &OK).expect("the connection was idle");
    assert_eq!(rig.settle(), None, "no check was in flight");
    assert_eq!(rig.seen().len(), 0);
    assert_eq!(rig.actions()[..], [MonitorAction::Hangup(conn)]);
    assert_eq!(rig.due(), Some(at(10_000)), "and the next check comes in its time");
    rig.at(10_000).timeout();
    rig.only_dial();
}

#[test]
fn stream_whose_connection_fails_before_it_continues_is_checked_once_per_min_heartbeat_frequency() {
    // Input after a check has ended and before the host calls `handle_timeout`.
    for is_reply in [true, false] {
        let mut rig = Rig::streaming();
        let conn = rig.connect();
        rig.reply(conn, &VERSIONED).expect("current");
        let outcome = rig.outcome.take();
        assert!(matches!(outcome, Some(CheckOutcome::Succeeded { .. })));
        if is_reply {
            rig.reply(conn, &VERSIONED).expect("the connection is idle");
        } else {
            rig.fail(conn, Cause::Network).expect("current");
        }
        assert_eq!(rig.outcome, None, "no check was in flight");
        rig.settle_as(true);
        assert_eq!(rig.actions()[0], MonitorAction::Hangup(conn));
        assert_eq!(rig.due(), Some(at(500)));
        rig.at(500).timeout();
        assert!(rig.actions().iter().any(|action| matches!(action, MonitorAction::Dial(_))));
    }
}
