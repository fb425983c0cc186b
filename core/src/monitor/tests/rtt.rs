use super::*;

/// The RTT connection that a rig from `streaming_from_the_start` is dialing.
fn rtt_conn(rig: &Rig) -> MonitorConnId {
    rig.monitor.ping.conn().expect("dialing").id
}

/// MON-47.
#[test]
#[doc(alias = "MON-47")]
fn the_first_sample_is_the_average_and_later_ones_weigh_a_fifth() {
    let mut rtt = Rtt::new();
    assert_eq!(rtt.average(), None);
    rtt.add_sample(ms(0));
    assert_eq!(rtt.average(), Some(ms(0)), "zero is an average like any other");
    rtt.add_sample(ms(5));
    assert_eq!(rtt.average(), Some(ms(1)));
    rtt.add_sample(Duration::from_nanos(1));
    assert_eq!(rtt.average_femtos(), Some(800_000_200_000));
    assert_eq!(rtt.average(), Some(Duration::from_nanos(800_000)));
    rtt.reset();
    assert_eq!((rtt.average(), rtt.minimum(), rtt.sample_count()), (None, ms(0), 0));
    assert_eq!(rtt, Rtt::default());
}

/// MON-44.
#[test]
#[doc(alias = "MON-44")]
fn the_minimum_is_zero_until_two_samples_and_covers_ten() {
    let mut rtt = Rtt::new();
    assert_eq!(rtt.minimum(), ms(0));
    rtt.add_sample(ms(2));
    assert_eq!(rtt.minimum(), ms(0));
    rtt.add_sample(ms(9));
    assert_eq!(rtt.minimum(), ms(2));
    for sample in 11..19 {
        rtt.add_sample(ms(sample));
        rtt.assert_invariants();
    }
    assert_eq!((rtt.sample_count(), rtt.minimum()), (10, ms(2)));
    rtt.add_sample(ms(20));
    assert_eq!((rtt.sample_count(), rtt.minimum()), (10, ms(9)));
    rtt.add_sample(ms(20));
    assert_eq!(rtt.minimum(), ms(11));
}

/// MON-48.
#[test]
#[doc(alias = "MON-48")]
fn no_sample_is_negative_or_too_long() {
    // The type has no negative values; if the clock goes back, the time is zero.
    let mut rtt = Rtt::new();
    rtt.add_sample(Duration::MAX);
    rtt.add_sample(Duration::MAX);
    rtt.assert_invariants();
    assert_eq!(rtt.average(), Some(Duration::from_secs(3_600)));
    assert_eq!(at(3).saturating_since(at(5)), ms(0));
}

/// MON-47.
#[test]
#[doc(alias = "MON-47")]
fn rounding_errors_do_not_accumulate() {
    let mut rtt = Rtt::new();
    let sample = Duration::from_nanos(9_120_001);
    for _ in 0..10_000 {
        rtt.add_sample(sample);
    }
    assert_eq!(rtt.average_femtos(), Some(9_120_001_000_000));
}

/// MON-38, MON-42.
#[test]
#[doc(alias("LOG-17", "MON-38", "MON-42", "MON-46"))]
fn the_rtt_connection_sends_hello_each_heartbeat_frequency_and_only_the_time_is_used() {
    let mut rig = Rig::streaming_from_the_start();
    let check = rig.monitor.check.conn().expect("connected").id;
    let conn = rtt_conn(&rig);
    rig.at(10).dialed(conn).expect("current");
    let hello = HelloKind::Handshake { legacy: true };
    assert_eq!(rig.actions()[..], [MonitorAction::SendHello { conn, hello }]);
    rig.at(14).reply(conn, &(HelloReply { hello_ok: true, ..VERSIONED.0 }, VERSIONED.1)).expect("current");
    assert_eq!(rig.outcome, None);
    assert_eq!(rig.monitor.rtt().sample_count(), 2, "the handshakes of both connections");
    assert_eq!(rig.due(), Some(at(10_014)));
    rig.at(10_000).reply(check, &STREAMED).expect("current");
    rig.settle();
    assert_eq!(rig.actions().len(), 1);
    rig.seen();
    rig.at(10_014).timeout();
    let hello = HelloKind::Poll { legacy: false };
    assert_eq!(rig.actions()[..], [MonitorAction::SendHello { conn, hello }]);
    rig.at(10_020).reply(conn, &OK).expect("current");
    assert!(rig.monitor.is_streaming(), "a reply without topologyVersion is ignored");
    assert_eq!(rig.due(), Some(at(20_020)));
    assert_eq!(rig.monitor.rtt().average(), Some(Duration::from_micros(1_840)), "of 0, 4 and 6 ms");
    assert_eq!(rig.seen().len(), 0, "MON-46, LOG-17: without events");
}

/// MON-41, MON-45.
#[test]
#[doc(alias("MON-41", "MON-45"))]
fn streamed_replies_leave_the_round_trip_time_to_the_rtt_line() {
    let mut rig = Rig::streaming_from_the_start();
    let check = rig.monitor.check.conn().expect("connected").id;
    let conn = rtt_conn(&rig);
    rig.at(10).dialed(conn).expect("current");
    rig.actions();
    rig.at(15).reply(conn, &OK).expect("current");
    let before = *rig.monitor.rtt();
    for round in 1..5 {
        rig.at(15 + round * 1_000).reply(check, &STREAMED).expect("current");
        assert_eq!(rig.settle(), Some(CheckOutcome::Succeeded { awaited: true, sample: None }));
        rig.actions();
    }
    assert_eq!(*rig.monitor.rtt(), before);
    assert_eq!(rig.monitor.rtt().average(), Some(ms(1)));
}

/// MON-43.
#[test]
#[doc(alias = "MON-43")]
fn errors_of_the_rtt_line_only_drop_its_connection() {
    for fault in 0..4 {
        let mut rig = Rig::streaming_from_the_start();
        let conn = rtt_conn(&rig);
        rig.at(10);
        if fault > 0 {
            rig.dialed(conn).expect("current");
            rig.actions();
        }
        let before = *rig.monitor.rtt();
        match fault {
            0 | 1 => rig.fail(conn, Cause::Network).expect("current"),
            2 => rig.reply(conn, &REFUSED).expect("current"),
            _ => rig.reply(conn, &STREAMED).expect("current"),
        }
        assert_eq!(rig.outcome, None);
        assert_eq!(*rig.monitor.rtt(), before);
        assert_eq!(rig.seen().len(), 0);
        let hangup = [MonitorAction::Hangup(conn)];
        assert_eq!(&rig.actions()[..], if fault == 0 { &[][..] } else { &hangup[..] });
        assert_eq!(rig.due(), Some(at(10_010)));
        rig.at(10_010).timeout();
        let second = rig.only_dial();
        assert_eq!(second.kind(), MonitorConnKind::Rtt);
        assert!(rig.monitor.is_streaming());
    }
}

/// MON-43.
#[test]
#[doc(alias = "MON-43")]
fn a_dial_of_the_rtt_connection_that_takes_too_long_is_abandoned() {
    let mut rig = Rig::streaming_from_the_start();
    let conn = rtt_conn(&rig);
    assert_eq!(rig.due(), Some(at(10_000)));
    rig.at(10_000).timeout();
    assert_eq!(rig.actions()[..], [MonitorAction::Hangup(conn)]);
    assert_eq!(rig.outcome, None);
    assert_eq!(rig.dialed(conn), Err(Stale));
    assert_eq!(rig.due(), Some(at(20_000)));
}

/// MON-39.
#[test]
#[doc(alias = "MON-39")]
fn the_rtt_connection_is_closed_when_the_server_stops_streaming() {
    let mut rig = Rig::streaming_from_the_start();
    let check = rig.monitor.check.conn().expect("connected").id;
    let conn = rtt_conn(&rig);
    rig.reply(check, &OK).expect("current");
    rig.settle();
    assert_eq!(rig.actions()[..], [MonitorAction::Hangup(conn)]);
    assert_eq!(rig.dialed(conn), Err(Stale));
    assert_eq!(rig.due(), Some(at(10_000)), "only the next poll");
}

/// MON-47.
#[test]
#[doc(alias = "MON-47")]
fn a_failed_check_discards_the_samples() {
    let mut rig = Rig::polling();
    let conn = rig.connect();
    rig.at(5).reply(conn, &OK).expect("current");
    rig.settle();
    assert_eq!(rig.monitor.rtt().sample_count(), 1);
    rig.at(10_005).timeout();
    rig.actions();
    rig.reply(conn, &REFUSED).expect("current");
    assert_eq!(rig.monitor.rtt().average(), None);
}

#[test]
fn the_rtt_line_is_not_dialed_twice_within_500_ms() {
    let mut rig = Rig::streaming_from_the_start();
    let check = rig.monitor.check.conn().expect("connected").id;
    rig.at(100).fail(check, Cause::Network).expect("current");
    rig.settle();
    let second = rig.dial();
    rig.reply(second, &VERSIONED).expect("current");
    rig.settle();
    assert!(rig.monitor.is_streaming());
    assert_eq!(rig.actions().len(), 1, "the awaitable hello only");
    assert_eq!(rig.due(), Some(at(500)));
    rig.at(500).timeout();
    assert_eq!(rig.only_dial().kind(), MonitorConnKind::Rtt);
}

/// MON-47.
#[test]
#[doc(alias = "MON-47")]
fn the_average_is_rounded_to_the_nearest_femtosecond() {
    let mut rtt = Rtt::new();
    rtt.add_sample(Duration::from_nanos(1));
    for _ in 0..9 {
        rtt.add_sample(ms(0));
    }
    assert_eq!(rtt.average_femtos(), Some(134_218), "of 134,217.6 or a little more");
}

/// MON-38, MON-43.
#[test]
#[doc(alias("MON-38", "MON-43"))]
fn an_idle_rtt_line_that_breaks_is_dialed_when_the_next_measurement_is_due() {
    let mut rig = Rig::streaming_from_the_start();
    let conn = rtt_conn(&rig);
    rig.dialed(conn).expect("current");
    rig.actions();
    rig.at(5).reply(conn, &OK).expect("current");
    rig.at(3_000).fail(conn, Cause::Network).expect("current");
    assert_eq!(rig.actions()[..], [MonitorAction::Hangup(conn)]);
    assert_eq!(rig.due(), Some(at(10_005)));
    rig.at(10_005).timeout();
    assert_eq!(rig.only_dial().kind(), MonitorConnKind::Rtt);
}

/// Two monitors with equal future behavior have equal hashes, whatever times they have measured.
#[test]
fn hashes_distinguish_connections_and_omit_round_trip_times() {
    use crate::storage::tests::hash;
    let mut rtt = Rtt::new();
    rtt.add_sample(ms(3));
    assert!(rtt != Rtt::new() && hash(&rtt) == hash(&Rtt::new()));
    rtt.reset();
    assert_eq!(rtt, Rtt::new());

    let rig = Rig::streaming_from_the_start();
    let check = rig.monitor.check.conn().expect("connected").id;
    let rtt = rtt_conn(&rig);
    let other = MonitorConnId { serial: rtt.serial, ..check };
    assert_eq!(hash(&check), hash(&MonitorConnId { ..check }));
    assert!(check.number() != rtt.number() && hash(&check) != hash(&rtt));
    assert!(hash(&other) != hash(&check), "another number");
    assert!(hash(&other) != hash(&rtt), "another line");
}
