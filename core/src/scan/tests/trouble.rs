use super::*;

/// MON-58: 5000 ms after a network error, to the millisecond.
#[test]
fn a_server_that_failed_by_the_network_cools_down() {
    for failing in [Is::Refusing, Is::Resetting] {
        let mut world = World::set(&["a:1"]).with("a:1", failing);
        world.select(&WRITE).expect_err("nobody suits");
        assert!(!world.done().is_empty());
        world.now = 4_999;
        world.select(&WRITE).expect_err("nobody suits");
        assert!(world.done().iter().all(|done| done == "hangup"), "it is left alone");
        world.now = 5_000 + 500;
        world.select(&WRITE).expect_err("nobody suits");
        assert!(world.done().contains(&"dial a:1".into()));
    }
}

/// MON-58: an error reply is not a network error.
#[test]
fn a_server_that_answered_with_an_error_does_not_cool_down() {
    let mut world = World::set(&["a:1"]).with("a:1", Is::Failing(1, false));
    world.select(&WRITE).expect_err("nobody suits");
    assert_eq!(world.done(), ["dial a:1", "greet a:1", "hangup"]);
    world.sleep(1_000);
    world.select(&WRITE).expect_err("nobody suits");
    assert_eq!(world.done(), ["dial a:1", "greet a:1", "hangup"], "on a new connection (MON-53)");
}

/// MON-62: servers that are down cost their connectTimeoutMS once in five seconds, not with each
/// scan.
#[test]
fn servers_that_cool_down_are_skipped_by_the_scan() {
    let mut world = World::set(SET).with("b:1", SECONDARY).with("c:1", Is::Silent);
    world.select(&WRITE).expect_err("no primary");
    let after_first = world.now;
    assert!(after_first >= 10_000, "the silent one cost its time");
    world.done();
    world.select(&WRITE).expect_err("no primary");
    let asked = world.asked();
    assert!(asked.contains(&"b:1".into()), "{asked:?}");
    assert!(!asked.contains(&"c:1".into()), "{asked:?}");
}

/// MON-53, MON-54: the connection is closed, and the server becomes Unknown.
#[test]
fn a_check_without_answer_fails_at_the_deadline() {
    let mut world = World::set(&["a:1"]).with("a:1", Is::Silent);
    let error = world.select(&WRITE).expect_err("nobody suits");
    assert_eq!(world.now, 10_000);
    let text = error.describe(world.scan.topology().description()).to_string();
    assert!(text.ends_with("[a:1: Unknown (network timeout)]"), "{text}");
    let mut events = world.events.0.clone();
    events.retain(|event| !event.starts_with("Topology") && !event.starts_with("Server"));
    assert_eq!(events, ["started 1", "failed 1"]);
}

/// MON-55: the cooldown begins only after the retry.
#[test]
fn a_known_server_is_checked_again_once_after_a_network_error() {
    let options = TopologyOptions { direct_connection: true, ..TopologyOptions::default() };
    let mut direct = World::new(&["a:1"], options, ScanOptions::DEFAULT).with("a:1", MONGOS);
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
fn a_labelled_reply_does_not_close_the_connection() {
    let mut world = healthy();
    world.operate(&WRITE);
    world.done();
    let open = world.open.clone();
    world.servers.insert("a:1", Is::Failing(462, true));
    world.sleep(60_000);
    assert_eq!(world.operate(&WRITE), "a:1", "it is still known as the primary");
    assert_eq!(world.open, open);
    assert!(!world.done().contains(&"hangup".into()));
    let last = world.events.0.iter().filter(|event| event.starts_with("failed")).count();
    assert_eq!(last, 1, "the heartbeat has failed all the same");
    // Without the label it does (MON-53).
    world.servers.insert("a:1", Is::Failing(462, false));
    world.sleep(60_000);
    world.select(&WRITE).expect_err("the primary is Unknown");
    assert!(world.done().contains(&"hangup".into()));
}

/// MON-63: a connection with an incomplete handshake cannot be used yet.
#[test]
fn a_new_connection_repeats_a_hello_that_overload_answered() {
    let mut world = World::set(&["a:1"]).with("a:1", Is::Failing(462, true));
    world.select(&WRITE).expect_err("nothing is known of it");
    assert_eq!(world.done(), ["dial a:1", "greet a:1"]);
    world.servers.insert("a:1", Is::Good(ServerType::RsPrimary, &["a:1"], None));
    world.sleep(1_000);
    world.operate(&WRITE);
    assert_eq!(world.done(), ["greet a:1"], "on the same connection");
}

/// SDAM-82: 10107 not writable primary; 91 shutting down, which closes the connection too
/// (SDAM-83); 13436 only recovers.
#[test]
fn the_topology_is_stale_after_some_state_changes_only() {
    for (code, stale, closes) in [(10_107, true, false), (10_058, true, false), (91, true, true), (11_600, true, true)]
    {
        let mut world = healthy();
        let socket = world.select(&WRITE).expect("a primary");
        let verdict = fail_command(&mut world, socket, code);
        assert!(verdict.marked_unknown, "{code}");
        assert_eq!(world.scan.is_stale(), stale, "{code}");
        assert_eq!(world.scan.check_in(world.time(), socket, Health::Healthy).is_err(), closes, "{code}");
        world.done();
        world.sleep(1_000);
        let secondary = SelectionCriteria::read(ReadPreference::of(ReadMode::Secondary));
        world.operate(&secondary);
        assert_eq!(world.asked().len(), 3, "the next operation scans, though it needs no primary: {code}");
    }
    for code in [13_436, 11_602, 189] {
        let mut world = healthy();
        let socket = world.select(&WRITE).expect("a primary");
        assert!(fail_command(&mut world, socket, code).marked_unknown, "{code}");
        assert!(!world.scan.is_stale(), "{code}");
        world.scan.check_in(world.time(), socket, Health::Healthy).expect("it stays open");
        world.done();
        world.sleep(1_000);
        let secondary = SelectionCriteria::read(ReadPreference::of(ReadMode::Secondary));
        world.operate(&secondary);
        assert!(world.asked().is_empty(), "a secondary is there without a scan: {code}");
        assert_eq!(world.operate(&WRITE), "a:1", "and whoever needs the primary scans at once: {code}");
    }
}

/// SDAM-72: the error does not begin the cooldown of five seconds.
#[test]
fn a_network_error_of_an_operation_marks_the_server_and_the_next_one_scans() {
    let mut world = healthy();
    let socket = world.select(&WRITE).expect("a primary");
    let now = world.time();
    let phase = HandshakePhase::After;
    let verdict = world.scan.handle_app_error(now, socket, phase, AppErrorKind::Network, false, &mut world.events);
    assert!(verdict.expect("checked out").marked_unknown);
    assert_eq!(world.scan.check_in(now, socket, Health::Broken(Cause::Network)), Err(Stale));
    world.done();
    assert_eq!(world.operate(&WRITE), "a:1");
    assert!(world.done().contains(&"dial a:1".into()));
}

/// SDAM-70: a timeout of an operation does not change the server's description, but its connection
/// is closed.
#[test]
fn a_timeout_of_an_operation_costs_the_connection_only() {
    let mut world = healthy();
    let socket = world.select(&WRITE).expect("a primary");
    let (now, phase) = (world.time(), HandshakePhase::After);
    let kind = AppErrorKind::NetworkTimeout;
    let verdict = world.scan.handle_app_error(now, socket, phase, kind, false, &mut world.events);
    assert!(!verdict.expect("checked out").marked_unknown);
    world.done();
    assert_eq!(world.operate(&WRITE), "a:1");
    assert_eq!(world.done(), ["hangup", "dial a:1", "greet a:1"]);
}

/// Late results of connections that were closed change nothing.
#[test]
fn results_of_closed_connections_are_stale() {
    let mut world = World::set(&["a:1"]).with("a:1", Is::Good(ServerType::RsPrimary, &["a:1"], None));
    let mut selecting = world.scan.begin(at_ms(0));
    world.scan.select(at_ms(0), &mut selecting, &WRITE, &[], 0, &mut ()).expect("work");
    let Some(ScanAction::Dial { socket, .. }) = world.scan.poll_action(at_ms(0)) else { panic!("a dial") };
    world.scan.handle_timeout(at_ms(9_999), &mut ());
    assert!(world.scan.is_busy());
    world.scan.handle_timeout(at_ms(10_000), &mut ());
    assert!(!world.scan.is_busy(), "connectTimeoutMS has passed");
    assert_eq!(world.scan.handle_dialed(at_ms(10_001), socket, &mut ()), Err(Stale));
    assert_eq!(world.scan.handle_failed(at_ms(10_001), socket, Cause::Network, &mut ()), Err(Stale));
    let reply = world.scan.handle_reply(at_ms(10_001), socket, &HelloReply::OK, &mut ());
    assert_eq!(reply, Err(Stale));
    assert_eq!(world.scan.poll_action(at_ms(10_001)), Some(ScanAction::Hangup(socket)));
    world.scan.assert_invariants();
}

#[test]
fn a_reply_before_the_hello_was_sent_is_a_protocol_error() {
    let mut world = World::set(&["a:1"]);
    let mut selecting = world.scan.begin(at_ms(0));
    world.scan.select(at_ms(0), &mut selecting, &WRITE, &[], 0, &mut ()).expect("work");
    let Some(ScanAction::Dial { socket, .. }) = world.scan.poll_action(at_ms(0)) else { panic!("a dial") };
    world.scan.handle_dialed(at_ms(0), socket, &mut ()).expect("dialing");
    let info = hello(ServerType::RsPrimary, Lists { hosts: &["a:1"], tags: &[], ..Lists::default() });
    world.scan.handle_reply(at_ms(0), socket, &info, &mut ()).expect("current");
    assert_eq!(world.scan.poll_action(at_ms(0)), Some(ScanAction::Hangup(socket)));
    let server = world.scan.topology().server(socket.server()).expect("a member");
    assert_eq!(server.error(), Some(Cause::Protocol.into()));
}

/// A scan with a dial that the host has taken.
fn dialing(options: ScanOptions) -> (World, SocketId) {
    let set = TopologyOptions { replica_set: Some("rs"), ..TopologyOptions::default() };
    let mut world = World::new(&["a:1"], set, options);
    let mut selecting = world.scan.begin(at_ms(0));
    world.scan.select(at_ms(0), &mut selecting, &WRITE, &[], 0, &mut ()).expect("work");
    let Some(ScanAction::Dial { socket, .. }) = world.scan.poll_action(at_ms(0)) else { panic!("a dial") };
    (world, socket)
}

#[test]
fn a_dial_ends_once() {
    let (mut world, socket) = dialing(ScanOptions::DEFAULT);
    assert_eq!(world.scan.handle_dialed(at_ms(1), socket, &mut ()), Ok(()));
    assert_eq!(world.scan.handle_dialed(at_ms(2), socket, &mut ()), Err(Stale));
    assert!(matches!(world.scan.poll_action(at_ms(2)), Some(ScanAction::SendHello { .. })), "nothing is lost by it");
    world.scan.assert_invariants();
}

/// MON-53: every result at or after the deadline is a timeout, whether or not `handle_timeout` was
/// called.
#[test]
fn late_results_are_timeouts() {
    let late = at_ms(10_000);
    let error = |world: &World, socket: SocketId| {
        world.scan.assert_invariants();
        world.scan.topology().server(socket.server()).expect("a member").error()
    };
    let timeout = Some(Cause::NetworkTimeout.into());

    let (mut world, socket) = dialing(ScanOptions::DEFAULT);
    world.scan.handle_dialed(late, socket, &mut ()).expect("dialing");
    assert_eq!(error(&world, socket), timeout);
    assert_eq!(world.scan.poll_action(late), Some(ScanAction::Hangup(socket)));

    let (mut world, socket) = dialing(ScanOptions::DEFAULT);
    world.scan.handle_failed(late, socket, Cause::Network, &mut ()).expect("dialing");
    assert_eq!(error(&world, socket), timeout);
    assert_eq!(world.scan.poll_action(late), None, "there is no socket to close");
}

#[test]
fn without_a_limit_nothing_is_late() {
    let options = ScanOptions { connect_timeout: None, ..ScanOptions::DEFAULT };
    let (mut world, socket) = dialing(options);
    assert_eq!(world.scan.config().options().connect_timeout, None);
    assert_eq!(world.scan.poll_timeout(), None);
    let days = at_ms(1_000_000_000);
    world.scan.handle_dialed(days, socket, &mut ()).expect("dialing");
    assert_eq!(
        world.scan.poll_action(days),
        Some(ScanAction::SendHello { socket, hello: HelloKind::Handshake { legacy: true }, deadline: None })
    );
    let info = hello(ServerType::RsPrimary, Lists { hosts: &["a:1"], tags: &[], ..Lists::default() });
    world.scan.handle_reply(days, socket, &info, &mut ()).expect("asked");
    let shown = alloc::format!("{:?}", world.scan);
    assert!(shown.starts_with("Scan { topology: TopologyDescription") && shown.contains("busy: false"), "{shown}");
    assert!(shown.contains("RsPrimary"), "{shown}");
}

#[test]
fn a_reply_after_the_deadline_is_a_failed_check() {
    let mut world = World::set(&["a:1"]).with("a:1", PRIMARY);
    let mut selecting = world.scan.begin(world.time());
    let step = world.scan.select(world.time(), &mut selecting, &WRITE, &[], 1, &mut world.events);
    assert_eq!(step, Ok(ScanStep::Work));
    let Some(ScanAction::Dial { socket, .. }) = world.scan.poll_action(world.time()) else { panic!("a dial is owed") };
    world.scan.handle_dialed(world.time(), socket, &mut world.events).expect("dialing");
    let Some(ScanAction::SendHello { deadline, .. }) = world.scan.poll_action(world.time()) else {
        panic!("a hello is owed")
    };
    let late = deadline.expect("a limit");
    assert_eq!(world.scan.poll_timeout(), Some(late));
    let hello = hello(ServerType::RsPrimary, Lists { hosts: &["a:1"], tags: &[], ..Lists::default() });
    world.scan.handle_reply(late, socket, &hello, &mut world.events).expect("asked");
    assert_eq!(world.events.0.iter().filter(|event| event.starts_with("failed")).count(), 1);
    assert!(!world.events.0.iter().any(|event| event.starts_with("succeeded")));
    let error = world.scan.topology().server(socket.server()).expect("a member").error();
    assert_eq!(error, Some(Cause::NetworkTimeout.into()));
    assert_eq!(world.scan.poll_timeout(), None);
    world.scan.assert_invariants();
}

/// During the handshake every kind of error makes a connection unusable; later an error of a
/// command does not.
#[test]
fn a_command_error_closes_a_connection_that_is_not_ready() {
    for (phase, spoiled) in [(HandshakePhase::Before, true), (HandshakePhase::After, false)] {
        let mut world = healthy();
        let socket = world.select(&WRITE).expect("a primary");
        let error = ReplyError { code: Some(18), message: "" };
        let command = CommandError { command: Some(error), write_concern: None, topology_version: None };
        let (now, kind) = (world.time(), AppErrorKind::Command(command));
        let before = world.open.len();
        let verdict = world.scan.handle_app_error(now, socket, phase, kind, false, &mut world.events);
        assert_eq!(verdict.expect("checked out").clear.is_some(), spoiled);
        world.work();
        assert_eq!(before - world.open.len(), usize::from(spoiled));
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
    let mut world = World::set(&["a:1"]);
    let mut contexts = Contexts(Vec::new());
    let mut selecting = world.scan.begin(world.time());
    let step = world.scan.select(world.time(), &mut selecting, &WRITE, &[], 1, &mut contexts);
    assert_eq!(step, Ok(ScanStep::Work));
    let Some(ScanAction::Dial { socket, .. }) = world.scan.poll_action(world.time()) else { panic!("a dial is owed") };
    assert_eq!((socket.number(), world.address(socket.server())), (1, "a:1".into()));
    world.scan.handle_failed(world.time(), socket, Cause::Network, &mut contexts).expect("dialing");
    assert!(!contexts.0.is_empty());
    let expected = (Some(TopologyId::new(1)), Some("a:1".into()));
    assert!(contexts.0.iter().all(|context| *context == expected), "{:?}", contexts.0);
    // Connection numbers are never reused.
    world.sleep(10_000);
    let mut selecting = world.scan.begin(world.time());
    let step = world.scan.select(world.time(), &mut selecting, &WRITE, &[], 1, &mut contexts);
    assert_eq!(step, Ok(ScanStep::Work));
    let again = core::iter::from_fn(|| world.scan.poll_action(at_ms(10_000))).find_map(|action| match action {
        ScanAction::Dial { socket, .. } => Some(socket.number()),
        ScanAction::Hangup(_) | ScanAction::SendHello { .. } => None,
    });
    assert_eq!(again, Some(2));
}
