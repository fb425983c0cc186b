//! The times at which the machine must be called.

use super::*;

/// The earliest of all, and only work that is due.
#[test]
#[doc(alias("MON-14", "S1", "S21"))]
fn poll_timeout_is_exact_for_many_servers() {
    let names: Vec<String> = (0..40).map(|number| format!("s{number}")).collect();
    let seeds: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut rig: Rig = open_with(TopologyOptions { seeds: &seeds, ..TopologyOptions::default() }, POLLING);
    // Each server is checked at a different instant, and in an order that differs from theirs.
    for step in 0..40 {
        let name = names[step * 17 % 40].clone();
        rig.at(step as u64 * 10).check(&name, &mongos());
    }
    rig.drain();
    for round in 1..=3_u64 {
        for step in 0..40 {
            let due = at(round * 10_000 + step as u64 * 10);
            assert_eq!(rig.control.poll_timeout(), Some(due));
            rig.now = Instant::from_nanos(due.as_nanos() - 1);
            rig.timeout();
            assert_eq!(rig.lines(), Vec::<String>::new());
            rig.now = due;
            rig.timeout();
            let name = names[step * 17 % 40].clone();
            assert_eq!(rig.lines(), [format!("#{} started", rig.id(&name))]);
            rig.check(&name, &mongos());
            rig.drain();
        }
    }
}

/// One call does all work that is due, the earliest first.
#[test]
fn one_call_handles_all_due_work() {
    let mut rig = open(&["a", "b", "c"]);
    rig.at(20).check("a", &mongos());
    rig.at(10).check("b", &mongos());
    rig.connect("c");
    rig.drain();
    rig.at(60_000).timeout();
    let lines = rig.lines();
    let beats: Vec<&str> = lines.iter().map(String::as_str).filter(|line| line.starts_with('#')).collect();
    assert_eq!(beats, ["#3 failed: network timeout", "#1 started", "#2 started"]);
    assert_eq!(rig.actions().len(), 2);
}

/// While a selector waits and requests a check at each wake-up, a server is
/// checked every 500 ms.
#[test]
#[doc(alias("MON-17", "SDAM-85"))]
fn server_is_checked_every_500_ms_while_a_selector_waits() {
    let mut rig = open(&["a"]);
    let mut starts = Vec::new();
    rig.control.request_check(rig.now);
    for _ in 0..5 {
        let conn = rig.connect("a");
        starts.push(rig.now);
        let a = rig.id("a");
        // The answer takes 20 ms, and reports no primary.
        rig.now = rig.now.saturating_add(Duration::from_millis(20));
        rig.reply(a, conn, &member(&["a"])).unwrap();
        assert_eq!(rig.actions(), [ControlAction::WakeSelectors]);
        rig.control.request_check(rig.now);
        rig.now = rig.control.poll_timeout().unwrap();
        rig.timeout();
    }
    assert_eq!(starts, [at(0), at(520), at(1_040), at(1_560), at(2_080)]);
}

/// If the clock goes back, the latest time holds for all monitors.
#[test]
fn clock_that_goes_back_keeps_the_latest_time() {
    let mut rig = open(&["a", "b"]);
    rig.at(5_000).check("a", &mongos());
    rig.at(100).check("b", &mongos());
    assert_eq!(rig.control.poll_timeout(), Some(at(15_000)));
    let times: Vec<Instant> = rig.control.topology().servers().map(|server| server.last_update_time()).collect();
    assert_eq!(times, [at(5_000), at(5_000)]);
    rig.at(15_000).timeout();
    rig.at(3).fail("a", Cause::Network);
    rig.control.close(at(1), &mut rig.log);
    rig.control.assert_invariants();
}

/// A call before anything is due changes nothing, and a call at the end of time ends.
#[test]
fn early_and_very_late_calls_return() {
    let mut rig = open(&["a"]);
    let before = (rig.control.poll_timeout(), rig.lines());
    rig.timeout();
    assert_eq!((rig.control.poll_timeout(), rig.lines()), before);
    rig.now = Instant::MAX;
    rig.timeout();
    assert_eq!(rig.server_type("a"), ServerType::Unknown);
    assert_eq!(rig.control.poll_timeout(), None, "the next check is beyond the end of time");
    rig.control.request_check(rig.now);
    rig.timeout();
    assert_eq!(
        rig.lines().last().unwrap(),
        "TopologyDescriptionChanged Unknown -> Unknown [a:27017: Unknown (network timeout)]"
    );
}

#[test]
fn debug_of_a_control_machine_shows_the_number_of_servers() {
    let rig: Rig = open_with(TopologyOptions { seeds: &["a", "b"], ..TopologyOptions::default() }, POLLING);
    assert_eq!(format!("{:?}", rig.control), "Control { servers: 2, .. }");
}
