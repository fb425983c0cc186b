use super::*;

/// 5000 ms after a network error, to the millisecond.
#[test]
#[doc(alias = "MON-58")]
fn a_server_that_failed_by_the_network_cools_down() {
    for failing in [Is::Refusing, Is::Resetting] {
        let mut rig = Rig::set(&["a:1"]).with("a:1", failing);
        rig.select(&WRITE).expect_err("nobody suits");
        assert!(!rig.done().is_empty());
        rig.now = 4_999;
        rig.select(&WRITE).expect_err("nobody suits");
        assert!(rig.done().iter().all(|done| done == "hangup"), "it is left alone");
        rig.now = 5_000 + 500;
        rig.select(&WRITE).expect_err("nobody suits");
        assert!(rig.done().contains(&"dial a:1".into()));
    }
}

/// An error reply is not a network error.
#[test]
#[doc(alias("MON-53", "MON-58"))]
fn a_server_that_answered_with_an_error_does_not_cool_down() {
    let mut rig = Rig::set(&["a:1"]).with("a:1", Is::Failing(1, false));
    rig.select(&WRITE).expect_err("nobody suits");
    assert_eq!(rig.done(), ["dial a:1", "greet a:1", "hangup"]);
    rig.sleep(1_000);
    rig.select(&WRITE).expect_err("nobody suits");
    assert_eq!(rig.done(), ["dial a:1", "greet a:1", "hangup"], "on a new connection (MON-53)");
}

/// Servers that are down cost their connectTimeoutMS once in five seconds, not with each
/// scan.
#[test]
#[doc(alias = "MON-62")]
fn servers_that_cool_down_are_skipped_by_the_scan() {
    let mut rig = Rig::set(SET).with("b:1", SECONDARY).with("c:1", Is::Silent);
    rig.select(&WRITE).expect_err("no primary");
    let after_first = rig.now;
    assert!(after_first >= 10_000, "the silent one cost its time");
    rig.done();
    rig.select(&WRITE).expect_err("no primary");
    let asked = rig.asked();
    assert!(asked.contains(&"b:1".into()), "{asked:?}");
    assert!(!asked.contains(&"c:1".into()), "{asked:?}");
}

/// The connection is closed, and the server becomes Unknown.
#[test]
#[doc(alias("MON-53", "MON-54"))]
fn a_check_without_answer_fails_at_the_deadline() {
    let mut rig = Rig::set(&["a:1"]).with("a:1", Is::Silent);
    let error = rig.select(&WRITE).expect_err("nobody suits");
    assert_eq!(rig.now, 10_000);
    let text = error.describe(rig.scan.topology().description()).to_string();
    assert!(text.ends_with("[a:1: Unknown (network timeout)]"), "{text}");
    let mut events = rig.events.0.clone();
    events.retain(|event| !event.starts_with("Topology") && !event.starts_with("Server"));
    assert_eq!(events, ["started 1", "failed 1"]);
}

/// The cooldown begins only after the retry.
#[test]
#[doc(alias = "MON-55")]
fn a_known_server_is_checked_again_once_after_a_network_error() {
    let options = TopologyOptions { direct_connection: true, ..TopologyOptions::default() };
    let mut direct = Rig::new(&["a:1"], options, ScanOptions::DEFAULT).with("a:1", MONGOS);
    direct.operate(&WRITE);
    direct.servers.insert("a:1", Is::Resetting);
    direct.done();
    direct.sleep(60_000);
    direct.select(&WRITE).expect_err("it is gone");
    assert_eq!(direct.done()[..4], ["check a:1", "hangup", "dial a:1", "greet a:1"]);
    direct.done();
    direct.sleep(1_000);
    direct.select(&WRITE).expect_err("it cools down");
    assert!(direct.asked().is_empty());
}

/// MON-63.
#[test]
#[doc(alias("MON-53", "MON-63"))]
fn a_labelled_reply_does_not_close_the_connection() {
    let mut rig = healthy();
    rig.operate(&WRITE);
    rig.done();
    let open = rig.open.clone();
    rig.servers.insert("a:1", Is::Failing(462, true));
    rig.sleep(60_000);
    assert_eq!(rig.operate(&WRITE), "a:1", "it is still known as the primary");
    assert_eq!(rig.open, open);
    assert!(!rig.done().contains(&"hangup".into()));
    let last = rig.events.0.iter().filter(|event| event.starts_with("failed")).count();
    assert_eq!(last, 1, "the heartbeat has failed all the same");
    // Without the label it does (MON-53).
    rig.servers.insert("a:1", Is::Failing(462, false));
    rig.sleep(60_000);
    rig.select(&WRITE).expect_err("the primary is Unknown");
    assert!(rig.done().contains(&"hangup".into()));
}

/// A connection with an incomplete handshake cannot be used yet.
#[test]
#[doc(alias = "MON-63")]
fn a_new_connection_repeats_a_hello_that_overload_answered() {
    let mut rig = Rig::set(&["a:1"]).with("a:1", Is::Failing(462, true));
    rig.select(&WRITE).expect_err("nothing is known of it");
    assert_eq!(rig.done(), ["dial a:1", "greet a:1"]);
    rig.servers.insert("a:1", Is::Good(ServerType::RsPrimary, &["a:1"], None));
    rig.sleep(1_000);
    rig.operate(&WRITE);
    assert_eq!(rig.done(), ["greet a:1"], "on the same connection");
}

/// 10107 not writable primary; 91 shutting down, which closes the connection too;
/// 13436 only recovers.
#[test]
#[doc(alias("SDAM-82", "SDAM-83"))]
fn the_topology_is_stale_after_some_state_changes_only() {
    for (code, stale, closes) in [(10_107, true, false), (10_058, true, false), (91, true, true), (11_600, true, true)]
    {
        let mut rig = healthy();
        let socket = rig.select(&WRITE).expect("a primary");
        let verdict = fail_command(&mut rig, socket, code);
        assert!(verdict.marked_unknown, "{code}");
        assert_eq!(rig.scan.is_stale(), stale, "{code}");
        assert_eq!(rig.scan.check_in(rig.time(), socket, Health::Healthy).is_err(), closes, "{code}");
        rig.done();
        rig.sleep(1_000);
        let secondary = SelectionCriteria::read(ReadPreference::of(ReadMode::Secondary));
        rig.operate(&secondary);
        assert_eq!(rig.asked().len(), 3, "the next operation scans, though it needs no primary: {code}");
    }
    for code in [13_436, 11_602, 189] {
        let mut rig = healthy();
        let socket = rig.select(&WRITE).expect("a primary");
        assert!(fail_command(&mut rig, socket, code).marked_unknown, "{code}");
        assert!(!rig.scan.is_stale(), "{code}");
        rig.scan.check_in(rig.time(), socket, Health::Healthy).expect("it stays open");
        rig.done();
        rig.sleep(1_000);
        let secondary = SelectionCriteria::read(ReadPreference::of(ReadMode::Secondary));
        rig.operate(&secondary);
        assert!(rig.asked().is_empty(), "a secondary is there without a scan: {code}");
        assert_eq!(rig.operate(&WRITE), "a:1", "and whoever needs the primary scans at once: {code}");
    }
}

/// The error does not begin the cooldown of five seconds.
#[test]
#[doc(alias = "SDAM-72")]
fn a_network_error_of_an_operation_marks_the_server_and_the_next_one_scans() {
    let mut rig = healthy();
    let socket = rig.select(&WRITE).expect("a primary");
    let now = rig.time();
    let phase = HandshakePhase::After;
    let verdict = rig.scan.handle_app_error(now, socket, phase, AppErrorKind::Network, false, &mut rig.events);
    assert!(verdict.expect("checked out").marked_unknown);
    assert_eq!(rig.scan.check_in(now, socket, Health::Broken(Cause::Network)), Err(Stale));
    rig.done();
    assert_eq!(rig.operate(&WRITE), "a:1");
    assert!(rig.done().contains(&"dial a:1".into()));
}

/// A timeout of an operation does not change the server's description, but its connection
/// is closed.
#[test]
#[doc(alias = "SDAM-70")]
fn a_timeout_of_an_operation_costs_the_connection_only() {
    let mut rig = healthy();
    let socket = rig.select(&WRITE).expect("a primary");
    let (now, phase) = (rig.time(), HandshakePhase::After);
    let kind = AppErrorKind::NetworkTimeout;
    let verdict = rig.scan.handle_app_error(now, socket, phase, kind, false, &mut rig.events);
    assert!(!verdict.expect("checked out").marked_unknown);
    rig.done();
    assert_eq!(rig.operate(&WRITE), "a:1");
    assert_eq!(rig.done(), ["hangup", "dial a:1", "greet a:1"]);
}

/// Late results of connections that were closed change nothing.
#[test]
fn results_of_closed_connections_are_stale() {
    let mut rig = Rig::set(&["a:1"]).with("a:1", Is::Good(ServerType::RsPrimary, &["a:1"], None));
    let mut selecting = rig.scan.begin(at_ms(0));
    rig.scan.select(at_ms(0), &mut selecting, &WRITE, &[], 0, &mut ()).expect("work");
    let Some(ScanAction::Dial { socket, .. }) = rig.scan.poll_action(at_ms(0)) else { panic!("a dial") };
    rig.scan.handle_timeout(at_ms(9_999), &mut ());
    assert!(rig.scan.is_busy());
    rig.scan.handle_timeout(at_ms(10_000), &mut ());
    assert!(!rig.scan.is_busy(), "connectTimeoutMS has passed");
    assert_eq!(rig.scan.handle_dialed(at_ms(10_001), socket, &mut ()), Err(Stale));
    assert_eq!(rig.scan.handle_failed(at_ms(10_001), socket, Cause::Network, &mut ()), Err(Stale));
    let reply = rig.scan.handle_reply(at_ms(10_001), socket, &HelloReply::OK, &mut ());
    assert_eq!(reply, Err(Stale));
    assert_eq!(rig.scan.poll_action(at_ms(10_001)), Some(ScanAction::Hangup(socket)));
    rig.scan.assert_invariants();
}

#[test]
fn a_reply_before_the_hello_was_sent_is_a_protocol_error() {
    let mut rig = Rig::set(&["a:1"]);
    let mut selecting = rig.scan.begin(at_ms(0));
    rig.scan.select(at_ms(0), &mut selecting, &WRITE, &[], 0, &mut ()).expect("work");
    let Some(ScanAction::Dial { socket, .. }) = rig.scan.poll_action(at_ms(0)) else { panic!("a dial") };
    rig.scan.handle_dialed(at_ms(0), socket, &mut ()).expect("dialing");
    let info = hello(ServerType::RsPrimary, Lists { hosts: &["a:1"], tags: &[], ..Lists::default() });
    rig.scan.handle_reply(at_ms(0), socket, &info, &mut ()).expect("current");
    assert_eq!(rig.scan.poll_action(at_ms(0)), Some(ScanAction::Hangup(socket)));
    let server = rig.scan.topology().server(socket.server()).expect("a member");
    assert_eq!(server.error(), Some(Cause::Protocol.into()));
}

/// A scan with a dial that the host has taken.
fn dialing(options: ScanOptions) -> (Rig, SocketId) {
    let set = TopologyOptions { replica_set: Some("rs"), ..TopologyOptions::default() };
    let mut rig = Rig::new(&["a:1"], set, options);
    let mut selecting = rig.scan.begin(at_ms(0));
    rig.scan.select(at_ms(0), &mut selecting, &WRITE, &[], 0, &mut ()).expect("work");
    let Some(ScanAction::Dial { socket, .. }) = rig.scan.poll_action(at_ms(0)) else { panic!("a dial") };
    (rig, socket)
}

#[test]
fn a_dial_ends_once() {
    let (mut rig, socket) = dialing(ScanOptions::DEFAULT);
    assert_eq!(rig.scan.handle_dialed(at_ms(1), socket, &mut ()), Ok(()));
    assert_eq!(rig.scan.handle_dialed(at_ms(2), socket, &mut ()), Err(Stale));
    assert!(matches!(rig.scan.poll_action(at_ms(2)), Some(ScanAction::SendHello { .. })), "nothing is lost by it");
    rig.scan.assert_invariants();
}

/// Every result at or after the deadline is a timeout, whether or not `handle_timeout` was
/// called.
#[test]
#[doc(alias = "MON-53")]
fn late_results_are_timeouts() {
    let late = at_ms(10_000);
    let error = |rig: &Rig, socket: SocketId| {
        rig.scan.assert_invariants();
        rig.scan.topology().server(socket.server()).expect("a member").error()
    };
    let timeout = Some(Cause::NetworkTimeout.into());

    let (mut rig, socket) = dialing(ScanOptions::DEFAULT);
    rig.scan.handle_dialed(late, socket, &mut ()).expect("dialing");
    assert_eq!(error(&rig, socket), timeout);
    assert_eq!(rig.scan.poll_action(late), Some(ScanAction::Hangup(socket)));

    let (mut rig, socket) = dialing(ScanOptions::DEFAULT);
    rig.scan.handle_failed(late, socket, Cause::Network, &mut ()).expect("dialing");
    assert_eq!(error(&rig, socket), timeout);
    assert_eq!(rig.scan.poll_action(late), None, "there is no socket to close");
}

#[test]
fn without_a_limit_nothing_is_late() {
    let options = ScanOptions { connect_timeout: None, ..ScanOptions::DEFAULT };
    let (mut rig, socket) = dialing(options);
    assert_eq!(rig.scan.config().options().connect_timeout, None);
    assert_eq!(rig.scan.poll_timeout(), None);
    let days = at_ms(1_000_000_000);
    rig.scan.handle_dialed(days, socket, &mut ()).expect("dialing");
    assert_eq!(
        rig.scan.poll_action(days),
        Some(ScanAction::SendHello { socket, hello: HelloKind::Handshake { legacy: true }, deadline: None })
    );
    let info = hello(ServerType::RsPrimary, Lists { hosts: &["a:1"], tags: &[], ..Lists::default() });
    rig.scan.handle_reply(days, socket, &info, &mut ()).expect("asked");
    let shown = alloc::format!("{:?}", rig.scan);
    assert!(shown.starts_with("Scan { topology: TopologyDescription") && shown.contains("busy: false"), "{shown}");
    assert!(shown.contains("RsPrimary"), "{shown}");
}

#[test]
fn a_reply_after_the_deadline_is_a_failed_check() {
    let mut rig = Rig::set(&["a:1"]).with("a:1", PRIMARY);
    let mut selecting = rig.scan.begin(rig.time());
    let step = rig.scan.select(rig.time(), &mut selecting, &WRITE, &[], 1, &mut rig.events);
    assert_eq!(step, Ok(ScanStep::Work));
    let Some(ScanAction::Dial { socket, .. }) = rig.scan.poll_action(rig.time()) else { panic!("a dial is owed") };
    rig.scan.handle_dialed(rig.time(), socket, &mut rig.events).expect("dialing");
    let Some(ScanAction::SendHello { deadline, .. }) = rig.scan.poll_action(rig.time()) else {
        panic!("a hello is owed")
    };
    let late = deadline.expect("a limit");
    assert_eq!(rig.scan.poll_timeout(), Some(late));
    let hello = hello(ServerType::RsPrimary, Lists { hosts: &["a:1"], tags: &[], ..Lists::default() });
    rig.scan.handle_reply(late, socket, &hello, &mut rig.events).expect("asked");
    assert_eq!(rig.events.0.iter().filter(|event| event.starts_with("failed")).count(), 1);
    assert!(!rig.events.0.iter().any(|event| event.starts_with("succeeded")));
    let error = rig.scan.topology().server(socket.server()).expect("a member").error();
    assert_eq!(error, Some(Cause::NetworkTimeout.into()));
    assert_eq!(rig.scan.poll_timeout(), None);
    rig.scan.assert_invariants();
}

/// During the handshake every kind of error makes a connection unusable; later an error of a
/// command does not.
#[test]
fn a_command_error_closes_a_connection_that_is_not_ready() {
    for (phase, spoiled) in [(HandshakePhase::Before, true), (HandshakePhase::After, false)] {
        let mut rig = healthy();
        let socket = rig.select(&WRITE).expect("a primary");
        let error = ReplyError { code: Some(18), message: "" };
        let command = CommandError { command: Some(error), write_concern: None, topology_version: None };
        let (now, kind) = (rig.time(), AppErrorKind::Command(command));
        let before = rig.open.len();
        let verdict = rig.scan.handle_app_error(now, socket, phase, kind, false, &mut rig.events);
        assert_eq!(verdict.expect("checked out").clear.is_some(), spoiled);
        rig.work();
        assert_eq!(before - rig.open.len(), usize::from(spoiled));
    }
}

/// Events of heartbeats carry a context: their topology and the address of their server.
#[test]
fn heartbeats_have_server_and_topology_as_context() {
    struct Contexts(Vec<(Option<TopologyId>, Option<String>)>);
    impl Observer<MonitorEvent> for Contexts {
        fn on_event(&mut self, _now: Instant, _event: &MonitorEvent) {}

        fn on_event_in(&mut self, _now: Instant, _event: &MonitorEvent, context: &crate::observe::EventContext<'_>) {
            self.0.push((context.topology, context.address.map(Into::into)));
        }
    }
    impl Observer<SdamEvent<'_>> for Contexts {
        fn on_event(&mut self, _now: Instant, _event: &SdamEvent<'_>) {}
    }
    let mut rig = Rig::set(&["a:1"]);
    let mut contexts = Contexts(Vec::new());
    let mut selecting = rig.scan.begin(rig.time());
    let step = rig.scan.select(rig.time(), &mut selecting, &WRITE, &[], 1, &mut contexts);
    assert_eq!(step, Ok(ScanStep::Work));
    let Some(ScanAction::Dial { socket, .. }) = rig.scan.poll_action(rig.time()) else { panic!("a dial is owed") };
    assert_eq!((socket.number(), rig.address(socket.server())), (1, "a:1".into()));
    rig.scan.handle_failed(rig.time(), socket, Cause::Network, &mut contexts).expect("dialing");
    assert!(!contexts.0.is_empty());
    let expected = (Some(TopologyId::new(1)), Some("a:1".into()));
    assert!(contexts.0.iter().all(|context| *context == expected), "{:?}", contexts.0);
    // Connection numbers are never reused.
    rig.sleep(10_000);
    let mut selecting = rig.scan.begin(rig.time());
    let step = rig.scan.select(rig.time(), &mut selecting, &WRITE, &[], 1, &mut contexts);
    assert_eq!(step, Ok(ScanStep::Work));
    let again = core::iter::from_fn(|| rig.scan.poll_action(at_ms(10_000))).find_map(|action| match action {
        ScanAction::Dial { socket, .. } => Some(socket.number()),
        ScanAction::Hangup(_) | ScanAction::SendHello { .. } => None,
    });
    assert_eq!(again, Some(2));
}
