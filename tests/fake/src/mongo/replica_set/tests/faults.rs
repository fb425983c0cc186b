//! Members that are killed, frozen, or unreachable.

use super::*;

#[test]
fn killed_primary_is_replaced_and_restarts_as_a_secondary() {
    let set = by_hand(3);
    let old = primary(&set);
    let mut client = connect(&set, old);
    let before = client.hello("test").unwrap();
    set.kill(old).unwrap();
    set.kill(old).unwrap();
    assert!(client.read().is_err());
    assert!(BlockingClient::connect(set.address(old), PATIENCE).is_err());
    assert!(!set.look(|view| view.is_alive(old)));
    assert_eq!(set.primary(), None);
    set.settle();
    let new = primary(&set);
    assert_ne!(new, old);
    assert!(set.reigns()[0].until.is_some());

    set.restart(old).unwrap();
    let reply = hello(&set, old);
    assert!(!is(&reply, "isWritablePrimary") && !is(&reply, "secondary"), "{reply}");
    assert_eq!(reply.get_array("hosts").unwrap().len(), 3);
    assert_eq!(counter(&reply), 0);
    let process = |reply: &Document| reply.get_document("topologyVersion").unwrap().get_object_id("processId").unwrap();
    assert_ne!(process(&reply), process(&before));
    let mut waiting = connect(&set, old);
    wait_for_change(&set, old, &mut waiting, &reply, 0);
    set.settle();
    let reply = waiting.read().unwrap().body;
    assert!(is(&reply, "secondary"));
    assert_eq!(reply.get_str("primary").unwrap(), name(&set, new));
}

#[test]
fn running_member_is_restarted_as_another_process() {
    let set = by_hand(3);
    let member = secondaries(&set)[0];
    let mut client = connect(&set, member);
    client.hello("test").unwrap();
    set.restart(member).unwrap();
    assert!(client.read().is_err());
    set.settle();
    assert!(is(&hello(&set, member), "secondary"));
}

#[test]
fn set_without_majority_has_no_primary() {
    let set = by_hand(3);
    let old = primary(&set);
    let others = secondaries(&set);
    set.kill(others[0]).unwrap();
    assert_eq!(set.primary(), Some(old));
    set.kill(others[1]).unwrap();
    assert_eq!(set.primary(), Some(old), "the primary has not yet detected the loss of its majority");
    set.settle();
    assert_eq!(set.primary(), None);
    assert!(is(&hello(&set, old), "secondary"));
    assert!(!set.look(|view| view.election_pending()));
    set.restart(others[0]).unwrap();
    set.settle();
    assert!(set.primary().is_some());
}

#[test]
fn thawed_primary_keeps_its_role_until_it_detects_the_others() {
    let set = by_hand(3);
    let old = primary(&set);
    let mut client = connect(&set, old);
    let before = client.hello("test").unwrap();
    set.freeze(old);
    set.freeze(old);
    let request = doc! { "hello": 1, "$db": "admin" };
    client.send(0, request).unwrap();
    assert!(is_silent(&mut client));
    assert_eq!(set.primary(), None);
    set.settle();
    let new = primary(&set);
    assert_ne!(new, old);

    set.thaw(old);
    let stale = client.read().unwrap().body;
    assert!(is(&stale, "isWritablePrimary"));
    assert_eq!(counter(&stale), counter(&before));
    assert!(election_id(&stale) < election_id(&hello(&set, new)));
    set.settle();
    let reply = client.run("admin", doc! { "hello": 1 }).unwrap();
    assert!(is(&reply, "secondary"));
    assert_eq!(counter(&reply), counter(&before) + 1);
}

#[test]
fn thawed_primary_steps_down_without_a_call() {
    let set = FakeReplicaSet::start(FakeReplicaSetOptions::of(3)).unwrap();
    let old = primary(&set);
    set.freeze(old);
    set.wait_until(PATIENCE, |view| view.primary().is_some_and(|new| new != old)).unwrap();
    set.thaw(old);
    set.wait_until(PATIENCE, |view| view.role(old) == Role::Secondary).unwrap();
    assert!(is(&hello(&set, old), "secondary"));
}

#[test]
fn minority_has_no_primary() {
    let set = by_hand(5);
    let old = primary(&set);
    let companion = secondaries(&set)[0];
    set.partition(&[&[old, companion]]);
    assert_eq!(hello(&set, companion).get_str("primary").unwrap(), name(&set, old));
    set.settle();
    let new = primary(&set);
    assert!(new != old && new != companion);
    for member in [old, companion] {
        let reply = hello(&set, member);
        assert!(is(&reply, "secondary") && !reply.contains_key("primary"), "{reply}");
    }
    let reigns = set.reigns();
    assert!(reigns[0].until.is_some());
    set.heal();
    for member in [old, companion] {
        assert_eq!(hello(&set, member).get_str("primary").unwrap(), name(&set, new));
    }
    assert_eq!(set.reigns().len(), 2);
}

#[test]
fn majority_keeps_its_primary() {
    let set = by_hand(3);
    let old = primary(&set);
    let others = secondaries(&set);
    set.partition(&[&[others[0]], &[old, others[1]]]);
    set.settle();
    assert_eq!(set.primary(), Some(old));
    assert!(!hello(&set, others[0]).contains_key("primary"));
}

#[test]
fn partition_into_single_members_has_no_primary() {
    let set = by_hand(3);
    set.partition(&[&[0], &[1], &[2]]);
    set.settle();
    assert_eq!(set.primary(), None);
    set.heal();
    set.settle();
    assert!(set.primary().is_some());
}

#[test]
fn unreachable_member_stays_in_the_set() {
    let set = by_hand(3);
    let old = primary(&set);
    let mut client = connect(&set, old);
    client.hello("test").unwrap();
    set.set_reachable(old, false);
    client.send(0, doc! { "ping": 1, "$db": "admin" }).unwrap();
    assert!(is_silent(&mut client));
    assert_eq!(set.primary(), Some(old));
    let new = set.fail_over().unwrap();
    assert!(is_silent(&mut client));
    // It stays unreachable after a restart, and after a freeze and thaw.
    set.freeze(old);
    set.thaw(old);
    assert!(is_silent(&mut client));
    set.restart(old).unwrap();
    let mut client = connect(&set, old);
    client.send(0, doc! { "hello": 1, "$db": "admin" }).unwrap();
    assert!(is_silent(&mut client));
    set.settle();
    set.set_reachable(old, true);
    assert_eq!(client.read().unwrap().body.get_str("primary").unwrap(), name(&set, new));
}

#[test]
fn failed_commands_are_injected_through_the_server() {
    use super::super::super::{FailPoint, FailPointMode};

    let set = by_hand(3);
    let first = primary(&set);
    set.server(first).set_fail_point(FailPoint::new(FailPointMode::Times(1), &["insert"]).error(189));
    let mut client = connect(&set, first);
    let before = client.hello("test").unwrap();
    let refused = client.run("db", insert(1)).unwrap();
    assert_eq!((code(&refused), counter(&refused)), (189, counter(&before)));
    assert_eq!(client.run("db", insert(1)).unwrap().get_i32("n").unwrap(), 1);
}
