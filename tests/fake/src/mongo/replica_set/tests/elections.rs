//! Step-downs and elections.

use std::time::Instant;

use super::*;

#[test]
fn step_down_answers_waiting_hellos_and_keeps_connections_open() {
    let set = by_hand(3);
    let old = primary(&set);
    let mut client = connect(&set, old);
    let before = client.hello("test").unwrap();
    let mut awaited = connect(&set, old);
    wait_for_change(&set, old, &mut awaited, &before, 0);
    let mut streamed = connect(&set, old);
    wait_for_change(&set, old, &mut streamed, &before, EXHAUST_ALLOWED);

    assert_eq!(set.step_down(), old);
    for waiting in [&mut awaited, &mut streamed] {
        let reply = waiting.read().unwrap().body;
        assert!(is(&reply, "secondary") && !is(&reply, "isWritablePrimary"), "{reply}");
        assert_eq!(counter(&reply), counter(&before) + 1);
        assert!(!reply.contains_key("primary") && !reply.contains_key("electionId"));
    }
    assert_eq!(set.primary(), None);
    let refused = client.run("db", insert(1)).unwrap();
    assert_eq!((code(&refused), counter(&refused)), (10107, counter(&before) + 1));
    let refused = client.run("db", doc! { "find": "c" }).unwrap();
    assert_eq!((code(&refused), counter(&refused)), (13435, counter(&before) + 1));
    for member in 0..3 {
        assert!(!hello(&set, member).contains_key("primary"));
    }

    set.settle();
    let new = primary(&set);
    assert_ne!(new, old);
    let reply = streamed.read().unwrap();
    assert!(reply.more_to_come());
    assert_eq!(reply.body.get_str("primary").unwrap(), name(&set, new));
    assert_eq!(connect(&set, new).run("db", insert(1)).unwrap().get_i32("n").unwrap(), 1);
    // Only the connection of `hello` ends.
    set.server(old).wait_until(PATIENCE, |view| view.closed().count() == 1).unwrap();
    assert_eq!(set.server(old).open_count(), 3);
}

#[test]
fn each_election_has_a_greater_id_and_is_remembered() {
    let set = by_hand(3);
    let mut ids = vec![election_id(&hello(&set, primary(&set)))];
    for _ in 0..6 {
        let new = set.fail_over().unwrap();
        let reply = hello(&set, new);
        ids.push(election_id(&reply));
        assert_eq!(reply.get_i32("setVersion").unwrap(), 1);
    }
    assert!(ids.is_sorted_by(|one, other| one < other), "{ids:?}");
    let reigns = set.reigns();
    assert_eq!(reigns.iter().map(|reign| reign.election_id).collect::<Vec<_>>(), ids);
    for pair in reigns.windows(2) {
        assert_ne!(pair[0].member, pair[1].member);
        assert!(pair[0].until.is_some_and(|until| until <= pair[1].from));
        assert_eq!(pair[0].set_version, 1);
    }
    assert_eq!(reigns.last().unwrap().until, None);
    // A member that stepped down is elected last, so each member was primary once.
    let mut members: Vec<usize> = reigns[..3].iter().map(|reign| reign.member).collect();
    members.sort_unstable();
    assert_eq!(members, [0, 1, 2]);
}

#[test]
fn same_seed_elects_the_same_members() {
    let history = |seed| {
        let set =
            FakeReplicaSet::start(FakeReplicaSetOptions { seed, ..FakeReplicaSetOptions::of(7).by_hand() }).unwrap();
        for _ in 0..5 {
            set.fail_over().unwrap();
        }
        set.reigns().iter().map(|reign| reign.member).collect::<Vec<_>>()
    };
    assert_eq!(history(7), history(7));
    assert!((0..20).any(|seed| history(seed) != history(7)));
}

#[test]
fn election_is_held_after_its_delay_without_a_call() {
    let delay = Duration::from_millis(30);
    let options = FakeReplicaSetOptions { election_delay: delay, ..FakeReplicaSetOptions::of(3) };
    let set = FakeReplicaSet::start(options).unwrap();
    let old = set.step_down();
    set.wait_until(PATIENCE, |view| view.primary().is_some_and(|new| new != old)).unwrap();
    let reigns = set.reigns();
    assert!(reigns[1].from - reigns[0].until.unwrap() >= delay);
    let new = primary(&set);
    assert_ne!(set.fail_over().unwrap(), new);
    assert_eq!(set.reigns().len(), 3);
}

#[test]
fn highest_priority_is_elected_and_takes_over_after_its_restart() {
    let member = MemberOptions::default;
    let set = start_with(vec![member(), member().priority(5), member().priority(3)]);
    assert_eq!(set.primary(), Some(1));
    set.kill(1).unwrap();
    set.settle();
    assert_eq!(set.primary(), Some(2));
    set.restart(1).unwrap();
    assert_eq!(set.primary(), Some(2));
    set.settle();
    assert_eq!(set.primary(), Some(1));
    // Except after a requested step-down.
    assert_eq!(set.fail_over().unwrap(), 2);
    set.settle();
    assert_eq!(set.primary(), Some(2));
}

#[test]
fn member_of_lower_rank_can_be_elected() {
    let set = by_hand(3);
    let old = primary(&set);
    let new = secondaries(&set)[1];
    set.elect(new);
    assert_eq!(set.look(|view| view.primaries()), [new]);
    assert!(is(&hello(&set, old), "secondary"));
    assert_eq!(hello(&set, old).get_str("primary").unwrap(), name(&set, new));
}

#[test]
fn old_primary_reports_its_step_down_before_the_new_one_reports_its_election() {
    let set = by_hand(3);
    let old = primary(&set);
    for new in secondaries(&set) {
        let mut state = set.shared.lock();
        state.step_down(old);
        state.elect(new, Instant::now());
        assert_eq!(state.publish_order()[..2], [old, new]);
        drop(state);
        set.settle();
        set.elect(old);
    }
}

#[test]
fn split_brain_has_two_primaries_until_it_ends() {
    let set = by_hand(3);
    let old = primary(&set);
    let new = secondaries(&set)[0];
    set.split_brain(new);
    assert_eq!(set.look(|view| view.primaries()).len(), 2);
    assert_eq!(set.primary(), Some(new));
    let (one, other) = (hello(&set, old), hello(&set, new));
    assert!(is(&one, "isWritablePrimary") && is(&other, "isWritablePrimary"));
    assert!(election_id(&one) < election_id(&other));
    assert_eq!(one.get_i32("setVersion").unwrap(), other.get_i32("setVersion").unwrap());
    assert_eq!(set.reigns()[0].until, None);
    set.heal();
    assert_eq!(set.look(|view| view.primaries()), [new]);
    assert!(is(&hello(&set, old), "secondary"));
    assert!(set.reigns()[0].until.is_some());
}

#[test]
fn single_member_is_elected_again() {
    let set = by_hand(1);
    assert_eq!(set.fail_over().unwrap(), 0);
    assert_eq!(set.reigns().len(), 2);
}

#[test]
fn waiting_for_a_primary_ends_at_the_limit() {
    let set = by_hand(3);
    set.step_down();
    assert!(set.look(|view| view.election_pending()));
    let limit = Duration::from_millis(20);
    assert!(set.wait_for_primary(limit).unwrap_err().after >= limit);
}

#[test]
#[should_panic(expected = "may not be elected")]
fn arbiter_is_not_elected() {
    let member = MemberOptions::default;
    start_with(vec![member(), member(), member().arbiter()]).elect(2);
}
