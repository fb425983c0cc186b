//! Servers that are added and removed, and the close of the machine.

use super::*;

#[test]
#[doc(alias("LOG-02", "LOG-03", "LOG-04", "MON-09", "SDAM-08"))]
fn at_the_start_every_seed_is_announced_and_checked() {
    let mut rig: Rig = open_with(TopologyOptions { seeds: &["a", "b"], ..TopologyOptions::default() }, POLLING);
    assert_eq!(
        rig.lines(),
        [
            "TopologyOpening",
            "TopologyDescriptionChanged Unknown -> Unknown [a:27017: Unknown, b:27017: Unknown]",
            "ServerOpening a:27017",
            "ServerOpening b:27017",
            "#1 started",
            "#2 started",
        ]
    );
    let (a, b) = (rig.id("a"), rig.id("b"));
    let added = [ControlAction::ServerAdded(a), ControlAction::ServerAdded(b)];
    assert_eq!(rig.actions()[..2], added);
}

#[test]
#[doc(alias("LOG-07", "LOG-11", "SDAM-53", "SDAM-59"))]
fn added_servers_are_checked_and_monitors_of_removed_servers_end() {
    let mut rig: Rig = set_of_three();
    let (a, b, c) = (rig.id("a"), rig.id("b"), rig.id("c"));
    rig.at(10_000).timeout();
    let conn = rig.connect("b");
    rig.drain();
    rig.check("a", &primary(&["a", "c", "d"], 1));
    let d = rig.id("d");
    let lines = rig.lines();
    assert_eq!(lines[0], "#1 succeeded");
    let rest: Vec<&str> = lines[1..].iter().map(String::as_str).filter(|line| !line.contains("Changed")).collect();
    assert_eq!(rest, ["ServerClosed b:27017", "ServerOpening d:27017", "#2 failed: closed", "#4 started"]);
    assert!(rig.control.is_ended(b) && !rig.control.is_ended(c));
    // The late result is stale.
    assert_eq!(rig.reply(b, conn, &secondary(&["x"])), Err(Stale));
    assert_eq!(rig.control.handle_failed(rig.now, b, conn, Cause::Network, &mut rig.log), Err(Stale));
    assert_eq!(rig.control.handle_dialed(rig.now, b, conn, &mut rig.log), Err(Stale));
    rig.control.handle_app_hello(rig.now, b, &primary(&["b"], 9), &mut rig.log);
    let error = super::app::app_error(crate::topology::AppErrorKind::Network);
    assert_eq!(rig.control.handle_app_error(rig.now, b, &error, &mut rig.log), Verdict::default());
    assert_eq!(rig.lines(), Vec::<String>::new());
    let ready = ControlAction::Pool(a, PoolCommand::Ready);
    let (removed, added) = (ControlAction::ServerRemoved(b), ControlAction::ServerAdded(d));
    assert_eq!(rig.actions(), [ready, removed, added, ControlAction::WakeSelectors]);
    // Its only remaining action can be to hang up.
    assert!(matches!(rig.owed(b, MonitorConnKind::Check), Some(MonitorAction::Hangup(_)) | None));
    assert_eq!(rig.owed(b, MonitorConnKind::Check), None);
    assert_eq!(rig.owed(b, MonitorConnKind::Rtt), None);
}

/// A server that is removed by its own reply.
#[test]
fn reply_that_removes_its_own_server_ends_its_monitor() {
    let mut rig: Rig = set_of_three();
    let b = rig.id("b");
    rig.at(10_000).timeout();
    rig.lines();
    rig.check("b", &standalone());
    assert!(rig.control.is_ended(b));
    let lines = rig.lines();
    assert_eq!(lines[..2], ["#2 succeeded", "ServerClosed b:27017"]);
    assert!(!lines.iter().any(|line| line.starts_with("#2 f") || line == "#2 started"), "its check ended well");
    assert_eq!(rig.control.monitor(b).unwrap().state(), MonitorState::Closed);
}

/// Slots of servers are reused for servers with other names.
#[test]
fn slot_is_reused_by_another_server_and_late_results_are_stale() {
    let mut rig: Rig = set_of_three();
    let b = rig.id("b");
    rig.at(10_000).timeout();
    let old = rig.connect("b");
    rig.check("a", &primary(&["a", "c"], 1));
    rig.drain();
    rig.check("c", &secondary(&["a", "c"]));
    rig.drain();
    rig.at(20_000).timeout();
    rig.check("a", &primary(&["a", "c", "e"], 1));
    let e = rig.id("e");
    assert_eq!(e.index(), b.index());
    assert!(e.number() > b.number());
    let new = rig.connect("e");
    assert_eq!(new.number(), old.number(), "connections are numbered anew");
    assert_eq!(rig.reply(b, old, &standalone()), Err(Stale));
    assert!(
        rig.control.monitor(b).is_none()
            && !rig.control.owes_conn(b, MonitorConnKind::Check)
            && rig.control.is_ended(b)
    );
    assert_eq!(rig.owed(b, MonitorConnKind::Check), None);
    rig.reply(e, new, &secondary(&["a", "c", "e"])).unwrap();
    assert_eq!(rig.server_type("e"), ServerType::RsSecondary);
}

/// An added and a removed server are detected although the number of servers stays the same, and so
/// is a removal alone.
#[test]
fn no_change_of_members_is_missed() {
    let mut rig = open(&["a"]);
    let all = ["b", "c", "d", "e"];
    let mut hosts = alloc::vec!["a"];
    rig.check("a", &primary(&hosts, 1));
    // Many transitions between subsets of the other members.
    for step in 1..=256_u32 {
        let bits = (step * 7) % 16;
        hosts.truncate(1);
        hosts.extend(all.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, host)| *host));
        rig.at(u64::from(step) * 10_000).timeout();
        rig.check("a", &primary(&hosts, 1));
        rig.actions();
        let checked = hosts.iter().filter(|host| {
            let monitor = rig.control.monitor(rig.id(host));
            monitor.is_some_and(|monitor| monitor.state() != MonitorState::Closed)
        });
        assert_eq!((checked.count(), rig.control.topology().server_count() as usize), (hosts.len(), hosts.len()));
    }
}

/// Advances the clock to `end`. Returns the times in milliseconds at which the monitor of this
/// server dialed its check connection.
fn dials(rig: &mut Rig, address: &str, end: u64) -> Vec<u64> {
    let mut dials = Vec::new();
    while let Some(due) = rig.control.poll_timeout().filter(|due| *due <= at(end)) {
        rig.now = due;
        rig.timeout();
        if let Some(MonitorAction::Dial(_)) = rig.owed(rig.id(address), MonitorConnKind::Check) {
            dials.push(due.as_nanos() / 1_000_000);
        }
    }
    dials
}

/// A hostile member lists the address of a victim in every other hello reply.
#[test]
fn check_interval_applies_to_an_address_that_is_removed_and_added_again() {
    let mut rig = open(&["a"]);
    let a = rig.id("a");
    let mut last = None;
    for step in 0..3_000_u64 {
        rig.at(step * 10);
        let hosts: &[&str] = if step % 2 == 0 { &["a", "Victim"] } else { &["a"] };
        rig.control.handle_app_hello(rig.now, a, &primary(hosts, 1), &mut rig.log);
        rig.timeout();
        rig.drain();
        let Some(victim) = rig.control.topology().find("victim") else { continue };
        if let Some(MonitorAction::Dial(_)) = rig.owed(victim, MonitorConnKind::Check) {
            let before = last.replace(rig.now);
            assert!(before.is_none_or(|before| rig.now.saturating_since(before) >= MIN_HEARTBEAT_FREQUENCY));
        }
    }
    assert!(last.is_some_and(|last| last > at(29_000)), "the address is checked until the end");
    assert_eq!(rig.control.departed.slots().len(), 1, "expired entries are removed");
}

/// Other addresses are checked at once, and this one as soon as the interval has passed. A
/// requested check does not shorten the interval.
#[test]
fn only_a_removed_address_waits_and_only_for_the_interval() {
    let mut rig = open(&["a"]);
    let a = rig.id("a");
    let name = |rig: &mut Rig, ms, hosts: &[&str]| {
        rig.at(ms);
        rig.control.handle_app_hello(rig.now, a, &primary(hosts, 1), &mut rig.log);
        rig.control.assert_invariants();
        rig.actions();
    };
    name(&mut rig, 1_000, &["a", "b", "c"]);
    assert!(matches!(rig.conn("b", MonitorConnKind::Check), MonitorAction::Dial(_)));
    name(&mut rig, 1_100, &["a"]);
    name(&mut rig, 1_200, &["a", "b", "d"]);
    assert!(matches!(rig.conn("d", MonitorConnKind::Check), MonitorAction::Dial(_)), "at once");
    rig.control.request_check(rig.now);
    rig.control.assert_invariants();
    assert!(!rig.control.owes_conn(rig.id("b"), MonitorConnKind::Check));
    assert_eq!(dials(&mut rig, "b", 1_600), [1_500]);
    // The last dial of this address is longer ago than the interval, so it does not wait.
    name(&mut rig, 3_000, &["a"]);
    name(&mut rig, 3_001, &["a", "b"]);
    assert!(matches!(rig.conn("b", MonitorConnKind::Check), MonitorAction::Dial(_)));
}

/// If more addresses were removed than the table of removed addresses can hold, every new address
/// waits.
#[test]
fn every_new_address_waits_if_the_table_of_removed_ones_is_full() {
    let mut rig = open(&["a"]);
    let a = rig.id("a");
    let names: Vec<String> = (0..DEPARTED_MAX + 1).map(|number| format!("victim{number}")).collect();
    let mut hosts: Vec<&str> = names.iter().map(String::as_str).collect();
    hosts.push("a");
    for (ms, hosts) in [(1_000, &hosts[..]), (1_100, &["a"]), (1_200, &[hosts[DEPARTED_MAX], "other", "a"])] {
        rig.at(ms);
        rig.control.handle_app_hello(rig.now, a, &primary(hosts, 1), &mut rig.log);
        rig.control.assert_invariants();
        rig.actions();
    }
    assert_eq!(rig.control.departed.slots().len(), DEPARTED_MAX);
    for host in [hosts[DEPARTED_MAX], "other"] {
        assert!(!rig.control.owes_conn(rig.id(host), MonitorConnKind::Check), "{host}");
    }
    rig.at(1_500).timeout();
    for host in [hosts[DEPARTED_MAX], "other"] {
        assert!(matches!(rig.conn(host, MonitorConnKind::Check), MonitorAction::Dial(_)), "{host}");
    }
}

#[test]
#[doc(alias("LOG-02", "LOG-08", "LOG-11", "MON-49", "SDAM-10"))]
fn close_ends_every_check_then_the_topology() {
    let (mut rig, conn) = streaming(MonitorOptions::DEFAULT);
    let a = rig.id("a");
    rig.now = at(77);
    rig.control.close(rig.now, &mut rig.log);
    rig.control.assert_invariants();
    assert_eq!(
        rig.lines(),
        [
            "#1 failed: closed",
            "ServerClosed a:27017",
            "TopologyDescriptionChanged Single -> Unknown []",
            "TopologyClosed",
        ]
    );
    assert_eq!(rig.actions(), [ControlAction::ServerRemoved(a), ControlAction::WakeSelectors]);
    assert_eq!(rig.control.poll_timeout(), None);
    assert!(rig.control.is_closed() && rig.control.is_ended(a));
    // No event is emitted after that.
    rig.control.close(at(78), &mut rig.log);
    rig.control.request_check(at(79));
    rig.control.handle_timeout(at(100_000), &mut rig.log);
    assert_eq!(rig.reply(a, conn, &standalone()), Err(Stale));
    rig.control.handle_app_hello(at(100_001), a, &standalone(), &mut rig.log);
    assert_eq!((rig.actions(), rig.lines()), (Vec::new(), Vec::new()));
    assert_eq!(rig.control.poll_timeout(), None);
}

#[test]
#[doc(alias("LOG-19", "LOG-20", "SDAM-38"))]
fn load_balancer_is_known_at_once_and_never_checked() {
    let options = TopologyOptions { seeds: &["lb"], load_balanced: true, ..TopologyOptions::default() };
    let mut rig: Rig = open_with(options, MonitorOptions::DEFAULT);
    let lb = rig.id("lb");
    let ready = ControlAction::Pool(lb, PoolCommand::Ready);
    assert_eq!(rig.actions(), [ControlAction::ServerAdded(lb), ready, ControlAction::WakeSelectors]);
    assert!(!rig.lines().iter().any(|line| line.starts_with('#')));
    assert!(rig.control.monitor(lb).is_none() && rig.control.poll_timeout().is_none());
    rig.control.request_check(rig.now);
    rig.timeout();
    assert_eq!((rig.owed(lb, MonitorConnKind::Check), rig.owed(lb, MonitorConnKind::Rtt)), (None, None));
    rig.control.handle_app_hello(rig.now, lb, &mongos(), &mut rig.log);
    assert_eq!(rig.server_type("lb"), ServerType::LoadBalancer);
    rig.control.close(rig.now, &mut rig.log);
    rig.control.assert_invariants();
    assert_eq!(rig.actions(), [ControlAction::ServerRemoved(lb), ControlAction::WakeSelectors]);
}

/// Fixed memory behaves the same until it is full.
#[test]
fn fixed_memory_does_the_same_until_it_is_full() {
    let mut rig: Rig<Fixed<4, 8, 16, 256>> = set_of_three();
    rig.at(10_000).timeout();
    rig.check("a", &primary(&["a", "b", "c", "d"], 1));
    rig.check("d", &secondary(&["a", "b", "c", "d"]));
    assert_eq!(rig.server_type("d"), ServerType::RsSecondary);
    let b = rig.id("b");
    rig.drain();
    // "b" is removed and "e" is added, but the slot of "b" is free only after the host has taken
    // the removal, which is before the next check of "a".
    rig.at(20_000).timeout();
    rig.check("a", &primary(&["a", "c", "d", "e"], 1));
    assert_eq!(rig.server_type("a"), ServerType::Unknown);
    assert!(rig.control.is_ended(b));
    rig.drain();
    rig.at(30_000).timeout();
    rig.check("a", &primary(&["a", "c", "d", "e"], 1));
    rig.check("e", &secondary(&["a", "c", "d", "e"]));
    assert_eq!((rig.id("e").index(), rig.server_type("e")), (b.index(), ServerType::RsSecondary));
    rig.control.close(rig.now, &mut rig.log);
    rig.control.assert_invariants();
}

/// A closed machine is opened again in the same memory, which does not fill up: each time the set has
/// other members. Servers of the closed deployment stay ended.
#[test]
fn closed_machine_is_opened_again() {
    let mut rig: Rig<Fixed<4, 8, 16, 256>> = set_of_three();
    for round in 0..50_u8 {
        let a = rig.id("a");
        rig.at(1_000 * u64::from(round));
        rig.control.close(rig.now, &mut rig.log);
        rig.control.assert_invariants();
        assert_eq!(rig.control.poll_timeout(), None);
        rig.drain();
        let options = TopologyOptions { seeds: &["a"], ..TopologyOptions::default() }.validate().unwrap();
        rig.control.open(rig.now, TopologyId::new(7), options, &mut rig.log).unwrap();
        rig.control.assert_invariants();
        let again = rig.id("a");
        assert_ne!(again, a, "round {round}");
        assert!(rig.control.is_ended(a) && !rig.control.is_ended(again), "round {round}");
        assert_eq!(rig.server_type("a"), ServerType::Unknown);
        assert_eq!(rig.actions(), [ControlAction::ServerAdded(again)]);
        let names: [String; 2] = core::array::from_fn(|each| format!("x{round}-{each}"));
        let hosts = ["a", names[0].as_str(), names[1].as_str()];
        // From the second round on, an election before that of the closed deployment.
        rig.check("a", &primary(&hosts, 100 - round));
        rig.check(hosts[1], &secondary(&hosts));
        assert_eq!((rig.server_type("a"), rig.server_type(hosts[1])), (ServerType::RsPrimary, ServerType::RsSecondary));
        rig.drain();
    }
}

/// The names of the closed deployment take no room from the seeds.
#[test]
fn closed_machine_that_was_full_is_opened_again() {
    let options = TopologyOptions { seeds: &["a"], ..TopologyOptions::default() };
    let mut rig: Rig<Fixed<4, 8, 5, 64>> = open_with(options, POLLING);
    rig.check("a", &primary(&["b", "c", "d"], 1));
    rig.drain();
    // The monitors of new servers begin half a second after the last dial of the removed one.
    rig.at(500).timeout();
    rig.check("b", &primary(&["b", "c", "d", "e"], 2));
    rig.drain();
    assert_eq!(rig.server_type("b"), ServerType::RsPrimary);
    rig.control.close(rig.now, &mut rig.log);
    rig.drain();
    rig.control.open(rig.now, TopologyId::new(7), options.validate().unwrap(), &mut rig.log).unwrap();
    rig.control.assert_invariants();
    rig.check("a", &primary(&["a"], 1));
    assert_eq!(rig.server_type("a"), ServerType::RsPrimary);
}

#[test]
fn seeds_that_do_not_fit_are_refused() {
    let options = TopologyOptions { seeds: &["a", "b"], ..TopologyOptions::default() };
    let config = POLLING.validate().unwrap();
    let id = TopologyId::new(1);
    let full = Control::<Fixed<1, 4, 8, 64>>::new(at(0), id, options.validate().unwrap(), config, &mut ());
    assert_eq!(full.err(), Some(Full));
}

/// A slot is reused only after the removal of its previous server was reported, however many
/// servers are added and removed in a step. A host that carries out a step's actions before the
/// next step never has two servers in one slot.
#[test]
fn slot_of_a_removed_server_is_not_reused_in_the_same_step() {
    let mut rig: Rig = set_of_three();
    let mut election = 1;
    for round in 0..20_u64 {
        rig.at(10_000 * (round + 1)).timeout();
        // The primary stays, all other members are replaced.
        let names: [String; 2] = core::array::from_fn(|each| format!("x{round}-{each}"));
        let hosts = ["a", names[0].as_str(), names[1].as_str()];
        election += 1;
        rig.check("a", &primary(&hosts, election));
        let actions = rig.actions();
        let places = |wanted: fn(&ControlAction) -> Option<ServerId>| -> Vec<u32> {
            actions.iter().filter_map(wanted).map(ServerId::index).collect()
        };
        let removed = places(|action| if let ControlAction::ServerRemoved(id) = action { Some(*id) } else { None });
        let added = places(|action| if let ControlAction::ServerAdded(id) = action { Some(*id) } else { None });
        assert_eq!((removed.len(), added.len()), (2, 2), "round {round}");
        assert!(added.iter().all(|place| !removed.contains(place)), "round {round}: {removed:?} and {added:?}");
        rig.drain();
    }
}

/// The touched slots include every server with a pending action, and every server that ended.
#[test]
fn every_slot_with_a_new_action_is_in_the_touched_range() {
    let mut rig: Rig = open_with(TopologyOptions { seeds: &["a", "b", "c"], ..TopologyOptions::default() }, POLLING);
    let owing = |rig: &Rig| -> Vec<usize> {
        let servers = rig.control.topology().servers().map(|description| description.server());
        servers.filter(|id| rig.control.owes_conn(*id, MonitorConnKind::Check)).map(|id| id.index() as usize).collect()
    };
    assert_eq!((owing(&rig), rig.control.take_touched()), (alloc::vec![0, 1, 2], 0..3));
    let conn = rig.connect("b");
    let b = rig.id("b");
    rig.reply(b, conn, &secondary(&["a", "b", "c"])).unwrap();
    assert!(rig.control.take_touched().contains(&1));
    let conn = rig.connect("a");
    rig.control.take_touched();
    // "c" is removed, "d" is added.
    let a = rig.id("a");
    let c = rig.id("c");
    rig.reply(a, conn, &primary(&["a", "b", "d"], 1)).unwrap();
    let touched = rig.control.take_touched();
    assert!(rig.control.is_ended(c) && touched.contains(&(c.index() as usize)), "{touched:?}");
    assert!(touched.contains(&(rig.id("d").index() as usize)), "{touched:?}");
    rig.drain();
    rig.control.request_check(rig.now);
    assert_eq!(rig.control.take_touched(), 0..0, "a check that is asked for is not owed yet");
    rig.at(60_000).timeout();
    let touched = rig.control.take_touched();
    let owing = owing(&rig);
    assert!(!owing.is_empty() && owing.iter().all(|place| touched.contains(place)), "{owing:?} in {touched:?}");
}
