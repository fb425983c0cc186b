//! Reconfigurations: members that are added, removed and changed.

use std::io::ErrorKind;

use super::super::MemberConfig;
use super::*;

#[test]
fn removed_member_has_no_valid_configuration() {
    let set = by_hand(3);
    let gone = secondaries(&set)[0];
    let mut client = connect(&set, gone);
    let before = client.hello("test").unwrap();
    let mut waiting = connect(&set, gone);
    wait_for_change(&set, gone, &mut waiting, &before, 0);
    let mut streamed = connect(&set, gone);
    wait_for_change(&set, gone, &mut streamed, &before, EXHAUST_ALLOWED);
    set.remove(gone);
    // It closes its connections, as a real member does.
    for client in [&mut waiting, &mut streamed] {
        assert!(is(&client.read().unwrap().body, "isreplicaset"));
    }
    for ended in [&mut client, &mut waiting, &mut streamed] {
        assert_eq!(ended.read().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
    let mut client = connect(&set, gone);
    let reply = client.hello("test").unwrap();
    assert!(is(&reply, "isreplicaset"));
    assert!(!is(&reply, "secondary") && !is(&reply, "isWritablePrimary"));
    for field in ["setName", "hosts", "me", "primary", "lastWrite"] {
        assert!(!reply.contains_key(field), "{reply}");
    }
    assert_eq!(code(&client.run("db", insert(1)).unwrap()), 10107);
    for member in (0..3).filter(|&member| member != gone) {
        let reply = hello(&set, member);
        assert_eq!(reply.get_i32("setVersion").unwrap(), 2);
        assert_eq!(*reply.get_array("hosts").unwrap(), names(&set, (0..3).filter(|&member| member != gone)));
    }
    set.restart(gone).unwrap();
    set.settle();
    assert!(is(&hello(&set, gone), "isreplicaset"));

    set.reconfigure(|members| members.push(MemberConfig::new(gone, MemberOptions::default())));
    assert!(is(&hello(&set, gone), "secondary"));
    assert_eq!(set.look(|view| view.set_version()), 3);
}

#[test]
fn added_member_joins_and_is_named_by_the_others() {
    let set = by_hand(3);
    let new = set.add(MemberOptions::default().tags(doc! { "dc": "la" })).unwrap();
    assert_eq!(new, 3);
    let reply = hello(&set, new);
    assert!(is(&reply, "secondary"));
    assert_eq!(reply.get_document("tags").unwrap(), &doc! { "dc": "la" });
    for member in 0..4 {
        let reply = hello(&set, member);
        assert_eq!(*reply.get_array("hosts").unwrap(), names(&set, 0..4));
        assert_eq!(reply.get_i32("setVersion").unwrap(), 2);
    }
}

#[test]
fn outsider_reports_no_set_until_it_is_added() {
    let set = by_hand(1);
    let outsider = set.start_outsider().unwrap();
    let reply = hello(&set, outsider);
    assert!(is(&reply, "isreplicaset") && !reply.contains_key("setName"));
    assert_eq!(set.config().len(), 1);
}

#[test]
fn removed_primary_is_replaced() {
    let set = by_hand(3);
    let old = primary(&set);
    set.remove(old);
    assert_eq!(set.primary(), None);
    assert!(is(&hello(&set, old), "isreplicaset"));
    set.settle();
    assert!(set.primary().is_some_and(|new| new != old));
}

#[test]
fn higher_priority_takes_over() {
    let set = by_hand(3);
    let old = primary(&set);
    let next = secondaries(&set)[1];
    set.reconfigure_member(next, |options| options.priority = 10);
    assert_eq!(set.primary(), Some(old));
    set.settle();
    assert_eq!(set.primary(), Some(next));
    assert_eq!(set.reigns()[1].set_version, 2);
    assert!(election_id(&hello(&set, next)) > set.reigns()[0].election_id);
}

#[test]
fn primary_that_becomes_hidden_steps_down() {
    let set = by_hand(3);
    let old = primary(&set);
    set.reconfigure_member(old, |options| *options = MemberOptions::default().hidden());
    let reply = hello(&set, old);
    assert!(is(&reply, "hidden") && is(&reply, "secondary"));
    assert!(!set.uri().contains(&name(&set, old)));
    assert_eq!(reply.get_array("hosts").unwrap().len(), 2);
    set.settle();
    assert!(set.primary().is_some_and(|new| new != old));
}

#[test]
fn tags_change_with_the_configuration() {
    let set = by_hand(2);
    let member = secondaries(&set)[0];
    let before = hello(&set, member);
    set.reconfigure_member(member, |options| options.tags = doc! { "use": "reports" });
    let after = hello(&set, member);
    assert_eq!(after.get_document("tags").unwrap(), &doc! { "use": "reports" });
    assert_eq!(counter(&after), counter(&before) + 1);
}

#[test]
fn disconnected_member_keeps_the_old_configuration() {
    let set = by_hand(4);
    let away = secondaries(&set);
    set.partition(&[&[away[0]]]);
    set.freeze(away[1]);
    set.kill(away[2]).unwrap();
    set.partition(&[&[away[0]]]);
    set.remove(away[0]);
    assert_eq!(hello(&set, away[0]).get_i32("setVersion").unwrap(), 1);
    set.heal();
    assert!(is(&hello(&set, away[0]), "isreplicaset"));
    set.thaw(away[1]);
    assert_eq!(hello(&set, away[1]).get_i32("setVersion").unwrap(), 1);
    set.restart(away[2]).unwrap();
    assert_eq!(hello(&set, away[2]).get_i32("setVersion").unwrap(), 1);
    set.settle();
    for member in [away[1], away[2]] {
        assert_eq!(hello(&set, member).get_i32("setVersion").unwrap(), 2);
    }
}

#[test]
#[should_panic(expected = "at most 7 voting members")]
fn eighth_voting_member_is_refused() {
    start_with(vec![MemberOptions::default(); 8]);
}

#[test]
#[should_panic(expected = "priority must be 0")]
fn hidden_member_with_a_priority_is_refused() {
    by_hand(2).reconfigure_member(0, |options| options.hidden = true);
}
