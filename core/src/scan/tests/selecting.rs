use super::*;

fn patient(timeout_ms: u64) -> ScanOptions {
    ScanOptions {
        server_selection_try_once: false,
        server_selection_timeout: Duration::from_millis(timeout_ms),
        ..ScanOptions::DEFAULT
    }
}

fn failure(rig: &mut Rig) -> SelectionFailure {
    rig.select(&WRITE).expect_err("nobody suits").failure()
}

/// ServerSelectionTryOnce, the default.
#[test]
#[doc(alias = "MON-60")]
fn an_operation_without_a_suitable_server_fails_after_one_scan() {
    let mut rig = Rig::set(SET);
    assert_eq!(failure(&mut rig), SelectionFailure::TriedOnce);
    assert_eq!(rig.done().len(), 3, "each server was dialed once");
    assert_eq!(rig.now, 0, "without any pause");
    // The next selection scans as well, but not sooner than 500 ms after the last scan.
    rig.sleep(100);
    assert_eq!(failure(&mut rig), SelectionFailure::TriedOnce);
    assert_eq!(rig.done()[0], "wait 400");
}

/// A topology that was scanned recently, and has no suitable server, is scanned before the
/// error.
#[test]
#[doc(alias = "MON-60")]
fn a_failed_selection_scans_even_after_a_recent_scan() {
    let mut rig = Rig::set(SET).with("b:1", SECONDARY).with("c:1", SECONDARY);
    let secondary = SelectionCriteria::read(ReadPreference::of(ReadMode::Secondary));
    rig.operate(&secondary);
    rig.sleep(10_000);
    rig.done();
    rig.servers.insert("a:1", PRIMARY);
    assert_eq!(rig.operate(&WRITE), "a:1");
    assert_eq!(rig.asked().len(), 3);
}

/// Without serverSelectionTryOnce scans continue, 500 ms apart, until the timeout would
/// expire before the next.
#[test]
#[doc(alias = "MON-60")]
fn scans_are_repeated_until_the_timeout() {
    let mut rig =
        Rig::new(&["a:1"], TopologyOptions { replica_set: Some("rs"), ..TopologyOptions::default() }, patient(1_700))
            .with("a:1", Is::Failing(1, false));
    let error = rig.select(&WRITE).expect_err("nobody suits");
    assert!(matches!(error.failure(), SelectionFailure::TimedOut { .. }), "{error}");
    let waits = rig.log.iter().filter(|done| done.starts_with("wait")).count();
    assert_eq!((waits, rig.now), (3, 1_500));
    assert_eq!(rig.asked().len(), 4);
}

#[test]
fn a_restarted_server_is_found_by_a_later_scan() {
    let mut rig =
        Rig::new(&["a:1"], TopologyOptions { replica_set: Some("rs"), ..TopologyOptions::default() }, patient(30_000));
    let mut selecting = rig.scan.begin(rig.time());
    loop {
        let now = rig.time();
        match rig.scan.select(now, &mut selecting, &WRITE, &[], 0, &mut rig.events).expect("there is time") {
            ScanStep::Selected(_) => break,
            ScanStep::Work => rig.work(),
            ScanStep::Wait(until) => rig.now = until.as_nanos() / 1_000_000,
        }
        if rig.now >= 2_000 {
            rig.servers.insert("a:1", Is::Good(ServerType::RsPrimary, &["a:1"], None));
        }
    }
    assert_eq!(rig.now, 5_001, "when it has cooled down");
}

/// MON-64.
#[test]
#[doc(alias = "MON-64")]
fn a_connection_that_was_idle_for_five_seconds_is_checked_before_use() {
    let mut rig = healthy();
    rig.operate(&WRITE);
    rig.done();
    rig.sleep(4_999);
    rig.operate(&WRITE);
    assert!(rig.done().is_empty());
    rig.sleep(5_000);
    assert_eq!(rig.operate(&WRITE), "a:1");
    assert_eq!(rig.done(), ["check a:1"]);
}

/// A server that is no longer suitable is not used.
#[test]
#[doc(alias = "MON-64")]
fn a_server_that_changed_while_its_connection_was_idle_is_not_selected() {
    let mut rig = healthy();
    rig.operate(&WRITE);
    rig.done();
    rig.servers.insert("a:1", Is::Good(ServerType::RsSecondary, SET, Some("b:1")));
    rig.servers.insert("b:1", PRIMARY);
    rig.sleep(6_000);
    assert_eq!(rig.operate(&WRITE), "b:1");
    assert_eq!(rig.asked()[..2], ["a:1", "b:1"], "the possible primary is the first to be asked");
}

/// An idle connection that the peer has closed costs one dial.
#[test]
#[doc(alias("MON-55", "MON-64"))]
fn an_idle_connection_that_the_peer_closed_is_replaced_at_once() {
    let mut rig = healthy();
    let socket = rig.select(&WRITE).expect("a primary");
    rig.scan.check_in(rig.time(), socket, Health::Healthy).expect("checked out");
    rig.done();
    rig.sleep(6_000);
    let mut selecting = rig.scan.begin(rig.time());
    let now = rig.time();
    let step = rig.scan.select(now, &mut selecting, &WRITE, &[], 0, &mut rig.events).expect("work");
    assert_eq!(step, ScanStep::Work);
    let Some(ScanAction::SendHello { socket: checked, .. }) = rig.scan.poll_action(now) else {
        panic!("a check");
    };
    assert_eq!(checked, socket);
    rig.scan.handle_failed(now, checked, Cause::Network, &mut rig.events).expect("asked");
    rig.work();
    let step = rig.scan.select(rig.time(), &mut selecting, &WRITE, &[], 0, &mut rig.events);
    let Ok(ScanStep::Selected(fresh)) = step else { panic!("selected: {step:?}") };
    assert_ne!(fresh, socket);
    assert_eq!(rig.done(), ["hangup", "dial a:1", "greet a:1"], "no scan");
}

#[test]
fn a_load_balancer_is_dialed_when_it_is_needed_and_never_scanned() {
    let options = TopologyOptions { load_balanced: true, ..TopologyOptions::default() };
    let mut rig = Rig::new(&["lb:1"], options, ScanOptions::DEFAULT).with("lb:1", MONGOS);
    assert_eq!(rig.operate(&WRITE), "lb:1");
    assert_eq!(rig.done(), ["dial lb:1", "greet lb:1"]);
    rig.sleep(4_000);
    rig.operate(&WRITE);
    assert!(rig.done().is_empty());
    rig.servers.insert("lb:1", Is::Refusing);
    rig.sleep(120_000);
    assert_eq!(failure(&mut rig), SelectionFailure::TriedOnce);
    assert!(rig.done().len() <= 4);

    let mut rig = Rig::new(&["lb:1"], options, patient(1_200));
    assert!(matches!(failure(&mut rig), SelectionFailure::TimedOut { .. }));
    assert_eq!(rig.now, 1_200);
}

/// SDAM-35.
#[test]
#[doc(alias = "SDAM-35")]
fn an_incompatible_server_is_an_error_at_once() {
    let mut rig = Rig::new(&["a:1"], TopologyOptions::default(), ScanOptions::DEFAULT);
    let mut selecting = rig.scan.begin(rig.time());
    rig.scan.select(at_ms(0), &mut selecting, &WRITE, &[], 0, &mut ()).expect("work");
    let Some(ScanAction::Dial { socket, .. }) = rig.scan.poll_action(at_ms(0)) else { panic!("a dial") };
    rig.scan.handle_dialed(at_ms(0), socket, &mut ()).expect("dialing");
    rig.scan.poll_action(at_ms(0)).expect("a hello");
    let old = HelloReply { max_wire_version: 6, ..hello(ServerType::Standalone, Lists::default()) };
    rig.scan.handle_reply(at_ms(0), socket, &old, &mut ()).expect("asked");
    let error = rig.scan.select(at_ms(0), &mut selecting, &WRITE, &[], 0, &mut ()).expect_err("too old");
    assert!(matches!(error.failure(), SelectionFailure::Incompatible(_)));
}

#[test]
fn a_connection_that_was_not_checked_in_is_closed_by_the_next_selection() {
    let mut rig = healthy();
    let first = rig.select(&WRITE).expect("a primary");
    let second = rig.select(&WRITE).expect("a primary");
    assert_ne!(first, second);
    assert_eq!(rig.scan.check_in(rig.time(), first, Health::Healthy), Err(Stale));
    assert_eq!(rig.scan.check_in(rig.time(), second, Health::Healthy), Ok(()));
    assert_eq!(rig.scan.check_in(rig.time(), second, Health::Healthy), Err(Stale), "once is enough");
}

/// SDAM-10, LOG-08, LOG-11.
#[test]
#[doc(alias("LOG-08", "LOG-11", "SDAM-10"))]
fn closing_ends_the_check_in_flight_and_every_connection() {
    let mut rig = healthy();
    rig.operate(&WRITE);
    rig.sleep(60_000);
    let mut selecting = rig.scan.begin(rig.time());
    let now = rig.time();
    rig.scan.select(now, &mut selecting, &WRITE, &[], 0, &mut rig.events).expect("work");
    rig.scan.close(now, &mut rig.events);
    rig.work();
    assert!(rig.open.is_empty());
    let last: Vec<&str> = rig.events.0.iter().rev().take(2).map(String::as_str).collect();
    assert_eq!(last, ["TopologyClosed", "TopologyDescriptionChanged"]);
    let count = |what: &str| rig.events.0.iter().filter(|event| event.starts_with(what)).count();
    assert_eq!(count("started"), count("succeeded") + count("failed"));
    let error = rig.scan.select(now, &mut selecting, &WRITE, &[], 0, &mut rig.events).expect_err("closed");
    assert_eq!(error.failure(), SelectionFailure::Closed);
    rig.scan.close(now, &mut rig.events);
    rig.scan.assert_invariants();
}
