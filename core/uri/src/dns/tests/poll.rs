use super::*;

const CURRENT: [&str; 2] = ["a.test.com:1", "b.test.com:1"];
const HEARTBEAT: Duration = Duration::from_secs(10);

fn poll(options: &str, ttl: u64) -> SrvPoll {
    let question = question(&alloc::format!("mongodb+srv://x.test.com/{options}"));
    SrvPoll::new(at(0), question, Duration::from_secs(ttl), HEARTBEAT)
}

/// Returns the changed hosts, if any, after the next lookup finds these hosts.
fn change(poll: &mut SrvPoll, hosts: &[&str], entropy: u64) -> Option<Vec<String>> {
    let now = poll.poll_timeout().unwrap();
    assert!(poll.poll_question(now).is_some());
    let hosts = poll.handle_answer(now, Ok(&answer(hosts, 60)), CURRENT.into_iter(), entropy).unwrap();
    hosts.map(|hosts| hosts.iter().map(ToString::to_string).collect())
}

#[test]
fn lookup_is_due_after_a_minute_or_the_time_to_live() {
    for (ttl, seconds) in [(0, 60), (59, 60), (61, 61), (86_400, 86_400)] {
        let mut poll = poll("", ttl);
        let due = at(seconds * 1_000);
        assert_eq!(poll.poll_timeout(), Some(due), "{ttl}");
        assert_eq!(poll.poll_question(at(seconds * 1_000 - 1)), None);
        assert_eq!(poll.poll_question(due).unwrap().srv_name(), "_mongodb._tcp.x.test.com");
        assert_eq!((poll.poll_question(due).is_some(), poll.poll_timeout()), (false, None), "one at a time");
        // The next lookup is due an interval after the end of this one.
        let later = at(seconds * 1_000 + 500);
        poll.handle_answer(later, Ok(&answer(&CURRENT, 100)), CURRENT.into_iter(), 0).unwrap();
        assert_eq!(poll.poll_timeout(), Some(later.saturating_add(Duration::from_secs(100))));
    }
}

/// The field for a time to live has 31 bits of seconds, which is up to 68 years.
#[test]
fn time_to_live_of_records_is_limited_to_a_day() {
    let day = Duration::from_secs(86_400);
    for ttl in [86_401, 604_800, 2_147_483_647, u64::MAX] {
        let mut poll = poll("", ttl);
        assert_eq!(poll.poll_timeout(), Some(at(86_400_000)), "{ttl}");
        assert!(poll.poll_question(at(86_400_000)).is_some(), "{ttl}");
        let answer = answer(&CURRENT, ttl);
        poll.handle_answer(at(86_400_000), Ok(&answer), CURRENT.into_iter(), 0).unwrap();
        assert_eq!(poll.poll_timeout(), Some(at(86_400_000).saturating_add(day)), "{ttl}");
    }
}

#[test]
fn hosts_are_added_and_removed() {
    let mut poll = poll("", 60);
    assert_eq!(change(&mut poll, &["b.test.com:1", "a.test.com:1"], 0), None, "the order makes no difference");
    let three = ["c.test.com:1", "b.test.com:1", "a.test.com:1"];
    assert_eq!(change(&mut poll, &three, 0).unwrap(), ["a.test.com:1", "b.test.com:1", "c.test.com:1"]);
    assert_eq!(change(&mut poll, &["b.test.com:1"], 0).unwrap(), ["b.test.com:1"]);
    assert_eq!(change(&mut poll, &["a.test.com:1", "c.test.com:1"], 0).unwrap(), ["a.test.com:1", "c.test.com:1"]);
    assert_eq!(change(&mut poll, &["c.test.com:1"], 0).unwrap(), ["c.test.com:1"]);
    assert_eq!(change(&mut poll, &["c.test.com:1", "d.test.com:2"], 0).unwrap(), ["c.test.com:1", "d.test.com:2"]);
    // Another port is another host.
    assert_eq!(change(&mut poll, &["A.test.com:2", "a.test.com:2"], 0).unwrap(), ["a.test.com:2"]);
}

#[test]
fn failed_lookup_leaves_the_hosts_and_is_repeated_after_a_heartbeat() {
    let mut poll = poll("", 60);
    for error in [LookupError::Timeout, LookupError::NoRecords] {
        let wanted = SeedlistError::Srv { name: "_mongodb._tcp.x.test.com".into(), error: error.clone() };
        let due = poll.poll_timeout().unwrap();
        poll.poll_question(due).unwrap();
        let later = due.saturating_add(Duration::from_secs(5));
        assert_eq!(poll.handle_answer(later, Err(error), CURRENT.into_iter(), 0), Err(wanted));
        assert_eq!(poll.poll_timeout(), Some(later.saturating_add(HEARTBEAT)));
    }
    // Once there is a host again, the interval is the usual one.
    let due = poll.poll_timeout().unwrap();
    change(&mut poll, &CURRENT, 0);
    assert_eq!(poll.poll_timeout(), Some(due.saturating_add(SRV_POLL_INTERVAL_MIN)));
}

#[test]
fn hosts_outside_the_domain_are_ignored() {
    let mut poll = poll("", 60);
    let mixed = ["evil.com:1", "a.test.com:1", "c.test.com:1", "test.com:1"];
    assert_eq!(change(&mut poll, &mixed, 0).unwrap(), ["a.test.com:1", "c.test.com:1"]);
    assert_eq!((poll.foreign_count(), poll.foreign_hosts()), (2, &["evil.com".into(), "test.com".into()][..]));
    let due = poll.poll_timeout().unwrap();
    poll.poll_question(due).unwrap();
    let foreign = answer(&["evil.com:1"], 600);
    let none = SeedlistError::NoHosts { name: "_mongodb._tcp.x.test.com".into() };
    assert_eq!(poll.handle_answer(due, Ok(&foreign), CURRENT.into_iter(), 0), Err(none));
    assert_eq!(poll.foreign_hosts(), ["evil.com"]);
    assert_eq!((poll.foreign_count(), poll.poll_timeout()), (1, Some(due.saturating_add(HEARTBEAT))));
    // Of many hosts, the first few are kept.
    let many: Vec<String> = (0..20).map(|place| alloc::format!("evil{place}.com:1")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).chain(CURRENT).collect();
    assert_eq!(change(&mut poll, &many, 0), None);
    assert_eq!((poll.foreign_count(), poll.foreign_hosts().len()), (20, 8));
    assert_eq!(change(&mut poll, &CURRENT, 0), None);
    assert_eq!((poll.foreign_count(), poll.foreign_hosts().len()), (0, 0));
}

#[test]
fn topology_that_discovers_its_hosts_ends_the_lookups() {
    for topology in [
        TopologyType::Single,
        TopologyType::ReplicaSetNoPrimary,
        TopologyType::ReplicaSetWithPrimary,
        TopologyType::LoadBalanced,
    ] {
        let mut poll = poll("", 60);
        poll.handle_topology(TopologyType::Unknown);
        poll.handle_topology(TopologyType::Sharded);
        assert!(poll.poll_timeout().is_some() && !poll.is_stopped());
        // Also while a lookup is under way. Its answer is then ignored.
        poll.poll_question(at(60_000)).unwrap();
        poll.handle_topology(topology);
        assert!(poll.is_stopped());
        let late = poll.handle_answer(at(60_001), Ok(&answer(&["c.test.com:1"], 1)), CURRENT.into_iter(), 0);
        assert_eq!(late, Ok(None));
        poll.handle_topology(TopologyType::Sharded);
        assert_eq!((poll.poll_timeout(), poll.poll_question(at(1_000_000))), (None, None), "for good");
    }
}

#[test]
fn hosts_are_kept_up_to_the_maximum_and_new_ones_chosen_at_random() {
    let three = ["a.test.com:1", "c.test.com:1", "d.test.com:1"];
    let mut seen = alloc::collections::BTreeSet::new();
    for entropy in 0..64 {
        let mut poll = poll("?srvMaxHosts=2", 60);
        let hosts = change(&mut poll, &three, entropy).unwrap();
        assert_eq!((hosts.len(), hosts[0].as_str()), (2, "a.test.com:1"), "what is there stays");
        seen.insert(hosts[1].clone());
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["c.test.com:1", "d.test.com:1"]);
    // A new host has no room while no old one is removed.
    let four = ["c.test.com:1", "d.test.com:1", "a.test.com:1", "b.test.com:1"];
    assert_eq!(change(&mut poll("?srvMaxHosts=2", 60), &four, 7), None);
    // All of them have room.
    assert_eq!(change(&mut poll("?srvMaxHosts=4", 60), &four, 7).unwrap().len(), 4);
    assert_eq!(change(&mut poll("?srvMaxHosts=0", 60), &four, 7).unwrap().len(), 4);
}
