use super::*;

fn patient(timeout_ms: u64) -> ScanOptions {
    ScanOptions {
        server_selection_try_once: false,
        server_selection_timeout: Duration::from_millis(timeout_ms),
        ..ScanOptions::DEFAULT
    }
}

fn failure(world: &mut World) -> SelectionFailure {
    world.select(&WRITE).expect_err("nobody suits").failure()
}

/// MON-60: serverSelectionTryOnce, the default.
#[test]
fn an_operation_without_a_suitable_server_fails_after_one_scan() {
    let mut world = World::set(SET);
    assert_eq!(failure(&mut world), SelectionFailure::TriedOnce);
    assert_eq!(world.done().len(), 3, "each server was dialed once");
    assert_eq!(world.now, 0, "without any pause");
    // The next selection scans as well, but not sooner than 500 ms after the last scan.
    world.sleep(100);
    assert_eq!(failure(&mut world), SelectionFailure::TriedOnce);
    assert_eq!(world.done()[0], "wait 400");
}

/// MON-60: a topology that was scanned recently, and has no suitable server, is scanned before the
/// error.
#[test]
fn a_failed_selection_scans_even_after_a_recent_scan() {
    let mut world = World::set(SET).with("b:1", SECONDARY).with("c:1", SECONDARY);
    let secondary = SelectionCriteria::read(ReadPreference::of(ReadMode::Secondary));
    world.operate(&secondary);
    world.sleep(10_000);
    world.done();
    world.servers.insert("a:1", PRIMARY);
    assert_eq!(world.operate(&WRITE), "a:1");
    assert_eq!(world.asked().len(), 3);
}

/// MON-60: without serverSelectionTryOnce scans continue, 500 ms apart, until the timeout would
/// expire before the next.
#[test]
fn scans_are_repeated_until_the_timeout() {
    let mut world =
        World::new(&["a:1"], TopologyOptions { replica_set: Some("rs"), ..TopologyOptions::default() }, patient(1_700))
            .with("a:1", Is::Failing(1, false));
    let error = world.select(&WRITE).expect_err("nobody suits");
    assert!(matches!(error.failure(), SelectionFailure::TimedOut { .. }), "{error}");
    let waits = world.log.iter().filter(|done| done.starts_with("wait")).count();
    assert_eq!((waits, world.now), (3, 1_500));
    assert_eq!(world.asked().len(), 4);
}

#[test]
fn a_restarted_server_is_found_by_a_later_scan() {
    let mut world = World::new(
        &["a:1"],
        TopologyOptions { replica_set: Some("rs"), ..TopologyOptions::default() },
        patient(30_000),
    );
    let mut selecting = world.scan.begin(world.time());
    loop {
        let now = world.time();
        match world.scan.select(now, &mut selecting, &WRITE, &[], 0, &mut world.events).expect("there is time") {
            ScanStep::Selected(_) => break,
            ScanStep::Work => world.work(),
            ScanStep::Wait(until) => world.now = until.as_nanos() / 1_000_000,
        }
        if world.now >= 2_000 {
            world.servers.insert("a:1", Is::Good(ServerType::RsPrimary, &["a:1"], None));
        }
    }
    assert_eq!(world.now, 5_001, "when it has cooled down");
}

/// MON-64.
#[test]
fn a_connection_that_was_idle_for_five_seconds_is_checked_before_use() {
    let mut world = healthy();
    world.operate(&WRITE);
    world.done();
    world.sleep(4_999);
    world.operate(&WRITE);
    assert!(world.done().is_empty());
    world.sleep(5_000);
    assert_eq!(world.operate(&WRITE), "a:1");
    assert_eq!(world.done(), ["check a:1"]);
}

/// MON-64: a server that is no longer suitable is not used.
#[test]
fn a_server_that_changed_while_its_connection_was_idle_is_not_selected() {
    let mut world = healthy();
    world.operate(&WRITE);
    world.done();
    world.servers.insert("a:1", Is::Good(ServerType::RsSecondary, SET, Some("b:1")));
    world.servers.insert("b:1", PRIMARY);
    world.sleep(6_000);
    assert_eq!(world.operate(&WRITE), "b:1");
    assert_eq!(world.asked()[..2], ["a:1", "b:1"], "the possible primary is the first to be asked");
}

/// MON-55, MON-64: an idle connection that the peer has closed costs one dial.
#[test]
fn an_idle_connection_that_the_peer_closed_is_replaced_at_once() {
    let mut world = healthy();
    let socket = world.select(&WRITE).expect("a primary");
    world.scan.check_in(world.time(), socket, Health::Healthy).expect("checked out");
    world.done();
    world.sleep(6_000);
    let mut selecting = world.scan.begin(world.time());
    let now = world.time();
    let step = world.scan.select(now, &mut selecting, &WRITE, &[], 0, &mut world.events).expect("work");
    assert_eq!(step, ScanStep::Work);
    let Some(ScanAction::SendHello { socket: checked, .. }) = world.scan.poll_action(now) else {
        panic!("a check");
    };
    assert_eq!(checked, socket);
    world.scan.handle_failed(now, checked, Cause::Network, &mut world.events).expect("asked");
    world.work();
    let step = world.scan.select(world.time(), &mut selecting, &WRITE, &[], 0, &mut world.events);
    let Ok(ScanStep::Selected(fresh)) = step else { panic!("selected: {step:?}") };
    assert_ne!(fresh, socket);
    assert_eq!(world.done(), ["hangup", "dial a:1", "greet a:1"], "no scan");
}

#[test]
fn a_load_balancer_is_dialed_when_it_is_needed_and_never_scanned() {
    let options = TopologyOptions { load_balanced: true, ..TopologyOptions::default() };
    let mut world = World::new(&["lb:1"], options, ScanOptions::DEFAULT).with("lb:1", MONGOS);
    assert_eq!(world.operate(&WRITE), "lb:1");
    assert_eq!(world.done(), ["dial lb:1", "greet lb:1"]);
    world.sleep(4_000);
    world.operate(&WRITE);
    assert!(world.done().is_empty());
    world.servers.insert("lb:1", Is::Refusing);
    world.sleep(120_000);
    assert_eq!(failure(&mut world), SelectionFailure::TriedOnce);
    assert!(world.done().len() <= 4);

    let mut world = World::new(&["lb:1"], options, patient(1_200));
    assert!(matches!(failure(&mut world), SelectionFailure::TimedOut { .. }));
    assert_eq!(world.now, 1_200);
}

/// SDAM-35.
#[test]
fn an_incompatible_server_is_an_error_at_once() {
    let mut world = World::new(&["a:1"], TopologyOptions::default(), ScanOptions::DEFAULT);
    let mut selecting = world.scan.begin(world.time());
    world.scan.select(at_ms(0), &mut selecting, &WRITE, &[], 0, &mut ()).expect("work");
    let Some(ScanAction::Dial { socket, .. }) = world.scan.poll_action(at_ms(0)) else { panic!("a dial") };
    world.scan.handle_dialed(at_ms(0), socket, &mut ()).expect("dialing");
    world.scan.poll_action(at_ms(0)).expect("a hello");
    let old = HelloReply { max_wire_version: 6, ..hello(ServerType::Standalone, Lists::default()) };
    world.scan.handle_reply(at_ms(0), socket, &old, &mut ()).expect("asked");
    let error = world.scan.select(at_ms(0), &mut selecting, &WRITE, &[], 0, &mut ()).expect_err("too old");
    assert!(matches!(error.failure(), SelectionFailure::Incompatible(_)));
}

#[test]
fn a_connection_that_was_not_checked_in_is_closed_by_the_next_selection() {
    let mut world = healthy();
    let first = world.select(&WRITE).expect("a primary");
    let second = world.select(&WRITE).expect("a primary");
    assert_ne!(first, second);
    assert_eq!(world.scan.check_in(world.time(), first, Health::Healthy), Err(Stale));
    assert_eq!(world.scan.check_in(world.time(), second, Health::Healthy), Ok(()));
    assert_eq!(world.scan.check_in(world.time(), second, Health::Healthy), Err(Stale), "once is enough");
}

/// SDAM-10, LOG-08, LOG-11.
#[test]
fn closing_ends_the_check_in_flight_and_every_connection() {
    let mut world = healthy();
    world.operate(&WRITE);
    world.sleep(60_000);
    let mut selecting = world.scan.begin(world.time());
    let now = world.time();
    world.scan.select(now, &mut selecting, &WRITE, &[], 0, &mut world.events).expect("work");
    world.scan.close(now, &mut world.events);
    world.work();
    assert!(world.open.is_empty());
    let last: Vec<&str> = world.events.0.iter().rev().take(2).map(String::as_str).collect();
    assert_eq!(last, ["TopologyClosed", "TopologyDescriptionChanged"]);
    let count = |what: &str| world.events.0.iter().filter(|event| event.starts_with(what)).count();
    assert_eq!(count("started"), count("succeeded") + count("failed"));
    let error = world.scan.select(now, &mut selecting, &WRITE, &[], 0, &mut world.events).expect_err("closed");
    assert_eq!(error.failure(), SelectionFailure::Closed);
    world.scan.close(now, &mut world.events);
    world.scan.assert_invariants();
}
