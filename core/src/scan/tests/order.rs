use super::*;
use alloc::collections::BTreeSet;

/// SDAM-08, SDAM-09, MON-59.
#[test]
#[doc(alias("MON-59", "SDAM-08", "SDAM-09"))]
fn the_first_operation_makes_the_first_scan() {
    let mut rig = healthy();
    rig.work();
    assert!(rig.done().is_empty(), "nothing is done before");
    assert_eq!(rig.operate(&WRITE), "a:1");
    let asked: BTreeSet<_> = rig.asked().into_iter().collect();
    assert_eq!(asked.len(), 3, "all servers were checked");
    assert_eq!(rig.operate(&WRITE), "a:1");
    assert!(rig.done().is_empty(), "the next operation needs no scan");
}

/// HeartbeatFrequencyMS counts from the end of the last scan, 60 s by default.
#[test]
#[doc(alias = "MON-59")]
fn a_scan_is_due_heartbeat_frequency_after_the_last_one() {
    let mut rig = healthy();
    rig.operate(&WRITE);
    let ended = rig.scan.last_scan().expect("a scan");
    rig.done();
    rig.now = ended.as_nanos() / 1_000_000 + 4_999;
    rig.operate(&WRITE);
    for _ in 0..11 {
        rig.sleep(4_999);
        rig.operate(&WRITE);
    }
    assert!(rig.done().is_empty());
    rig.now = ended.as_nanos() / 1_000_000 + 60_000;
    rig.operate(&WRITE);
    assert_eq!(rig.asked().len(), 3);
}

/// A seed leads to a possible primary, and its reply to the remaining members.
#[test]
#[doc(alias("MON-61", "MON-62"))]
fn discovered_servers_are_checked_in_the_same_scan() {
    let mut rig = Rig::set(&["b:1"]).with("a:1", PRIMARY).with("b:1", SECONDARY).with("c:1", SECONDARY);
    rig.operate(&WRITE);
    assert_eq!(rig.asked(), ["b:1", "a:1", "c:1"]);
}

/// The primary, then known servers from the one checked longest ago, then unknown ones.
#[test]
#[doc(alias = "MON-62")]
fn known_servers_are_checked_oldest_first_and_unknown_ones_last() {
    let mut rig = healthy();
    rig.operate(&WRITE);
    let order = rig.asked();
    let others: Vec<_> = order.iter().filter(|address| *address != "a:1").cloned().collect();
    rig.sleep(60_000);
    rig.operate(&WRITE);
    assert_eq!(rig.asked(), [&["a:1".to_string()][..], &others].concat());

    // An unknown server is last, although only the primary's description is older.
    rig.servers.insert("b:1", Is::Failing(1, false));
    rig.sleep(60_000);
    rig.operate(&WRITE);
    rig.servers.insert("b:1", SECONDARY);
    rig.done();
    rig.sleep(60_000);
    rig.operate(&WRITE);
    assert_eq!(rig.asked(), ["a:1", "c:1", "b:1"]);
}

/// All seeds have the same age, so the order is random.
#[test]
#[doc(alias = "MON-62")]
fn ties_are_broken_by_the_entropy() {
    let mut orders = BTreeSet::new();
    for entropy in 0..64 {
        let mut rig = Rig::new(SET, TopologyOptions::default(), ScanOptions::DEFAULT)
            .with("a:1", MONGOS)
            .with("b:1", MONGOS)
            .with("c:1", MONGOS);
        rig.entropy = entropy;
        rig.operate(&WRITE);
        orders.insert(rig.asked());
    }
    assert_eq!(orders.len(), 6, "all orders of three servers come up");
}

/// A member that the primary does not list is removed, and not checked.
#[test]
#[doc(alias = "MON-61")]
fn a_server_that_is_removed_during_the_scan_is_not_checked() {
    let mut rig = Rig::set(&["a:1", "x:1"]).with("a:1", Is::Good(ServerType::RsPrimary, &["a:1"], None));
    rig.servers.insert("x:1", Is::Good(ServerType::RsSecondary, &["a:1"], Some("a:1")));
    for entropy in 0..16 {
        rig.entropy = entropy;
        rig.operate(&WRITE);
        assert_eq!(rig.scan.topology().server_count(), 1);
    }
    assert!(rig.open.len() == 1, "the connection to a removed server is closed");
}

/// The former primary is checked once more in that scan.
#[test]
#[doc(alias = "SDAM-55")]
fn a_deposed_primary_is_checked_a_second_time_in_the_scan() {
    let mut rig = Rig::set(&["a:1", "b:1"]);
    let both: &'static [&'static str] = &["a:1", "b:1"];
    rig.servers.insert("a:1", Is::Good(ServerType::RsPrimary, both, None));
    rig.servers.insert("b:1", Is::Good(ServerType::RsPrimary, both, None));
    rig.operate(&WRITE);
    let asked = rig.asked();
    assert!(asked.len() <= 4, "two that both claim to be primary do not keep it busy: {asked:?}");
    assert!(asked.len() >= 3, "{asked:?}");
}

/// A scan ends, whatever names a server invents.
#[test]
fn a_scan_of_servers_with_invented_names_ends() {
    let config = TopologyOptions { seeds: &["h0:1"], ..TopologyOptions::default() }.validate().expect("valid");
    let options = ScanOptions::DEFAULT.validate().expect("valid");
    let mut scan: Scan<Memory> =
        Scan::new(Instant::ORIGIN, TopologyId::new(1), config, options, &mut ()).expect("room");
    let mut selecting = scan.begin(Instant::ORIGIN);
    let step = scan.select(Instant::ORIGIN, &mut selecting, &WRITE, &[], 0, &mut ()).expect("work");
    assert_eq!(step, ScanStep::Work);
    let (mut checks, mut ms) = (0_u32, 0);
    while let Some(action) = scan.poll_action(at_ms(ms)) {
        match action {
            ScanAction::Hangup(_) => {}
            ScanAction::Dial { socket, .. } => scan.handle_dialed(at_ms(ms), socket, &mut ()).expect("dialing"),
            ScanAction::SendHello { socket, .. } => {
                checks += 1;
                ms += 1;
                let me = scan.topology().address(socket.server()).expect("a member").to_string();
                let next = alloc::format!("h{checks}:1");
                let hosts = [me.as_str(), next.as_str()];
                // Each is the primary of a newer election than the previous, and its set has one
                // more new member.
                let mut election = [0; 12];
                election[8..].copy_from_slice(&checks.to_be_bytes());
                let mut info = hello(ServerType::RsPrimary, Lists { hosts: &hosts, tags: &[], ..Lists::default() });
                info.election_id = Some(crate::ObjectId(election));
                scan.handle_reply(at_ms(ms), socket, &info, &mut ()).expect("asked");
                scan.assert_invariants();
            }
        }
    }
    assert!(!scan.is_busy());
    assert!((8..=CHECKS_PER_SERVER_MAX * 5).contains(&checks), "{checks} checks for three servers");
}
