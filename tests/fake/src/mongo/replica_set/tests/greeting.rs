//! Hello replies of members.

use super::super::super::mongoses::FakeMongoses;
use super::super::super::{FakeOptions, ServerState};
use super::*;

#[test]
fn members_name_each_other_and_one_primary() {
    let set = by_hand(3);
    let first = primary(&set);
    for member in 0..3 {
        let reply = hello(&set, member);
        assert_eq!(reply.get_str("setName").unwrap(), "rs0");
        assert_eq!(reply.get_i32("setVersion").unwrap(), 1);
        assert_eq!(*reply.get_array("hosts").unwrap(), names(&set, 0..3));
        assert_eq!(reply.get_str("me").unwrap(), name(&set, member));
        assert_eq!(reply.get_str("primary").unwrap(), name(&set, first));
        assert_eq!(is(&reply, "isWritablePrimary"), member == first);
        assert_eq!(is(&reply, "secondary"), member != first);
        assert_eq!(reply.contains_key("electionId"), member == first);
        assert!(!reply.contains_key("passives") && !reply.contains_key("arbiters"), "{reply}");
    }
    let seeds: Vec<String> = (0..3).map(|member| name(&set, member)).collect();
    assert_eq!(set.uri(), format!("mongodb://{}/?replicaSet=rs0", seeds.join(",")));
}

#[test]
fn hidden_passive_and_arbiter_members_report_it() {
    let member = MemberOptions::default;
    let tags = doc! { "dc": "ny", "rack": "1" };
    let set = start_with(vec![
        member().tags(tags.clone()),
        member().priority(0),
        member().hidden(),
        member().arbiter(),
        member().without_vote(),
    ]);
    assert_eq!(set.primary(), Some(0));
    for index in 0..5 {
        let reply = hello(&set, index);
        assert_eq!(*reply.get_array("hosts").unwrap(), names(&set, [0]));
        assert_eq!(*reply.get_array("passives").unwrap(), names(&set, [1, 4]));
        assert_eq!(*reply.get_array("arbiters").unwrap(), names(&set, [3]));
        assert_eq!(is(&reply, "hidden"), index == 2);
        assert_eq!(is(&reply, "passive"), matches!(index, 1 | 2 | 4));
        assert_eq!(is(&reply, "arbiterOnly"), index == 3);
        assert_eq!(is(&reply, "secondary"), matches!(index, 1 | 2 | 4));
        assert_eq!(reply.get_document("tags").ok(), (index == 0).then_some(&tags));
    }
    assert!(!set.uri().contains(&name(&set, 2)));
}

#[test]
fn write_goes_to_the_primary_and_is_read_everywhere() {
    let set = by_hand(3);
    let first = primary(&set);
    assert_eq!(connect(&set, first).run("db", insert(1)).unwrap().get_i32("n").unwrap(), 1);
    for member in 0..3 {
        let mut client = connect(&set, member);
        assert_eq!(found(&client.run("db", find("secondaryPreferred")).unwrap()), 1);
        if member != first {
            let version = hello(&set, member).get_document("topologyVersion").unwrap().clone();
            let refused = client.run("db", insert(2)).unwrap();
            assert_eq!((code(&refused), refused.get_str("codeName").unwrap()), (10107, "NotWritablePrimary"));
            assert_eq!(*refused.get_document("topologyVersion").unwrap(), version);
            assert_eq!(code(&client.run("db", find("primary")).unwrap()), 13435);
        }
    }
    assert_eq!(found(&connect(&set, first).run("db", find("primary")).unwrap()), 1);
}

#[test]
fn refused_write_with_a_transaction_number_is_labelled_as_retryable() {
    let set = by_hand(2);
    let mut client = connect(&set, secondaries(&set)[0]);
    let mut write = insert(1);
    assert!(!client.run("db", write.clone()).unwrap().contains_key("errorLabels"));
    write.insert("txnNumber", 1_i64);
    let refused = client.run("db", write).unwrap();
    assert_eq!(*refused.get_array("errorLabels").unwrap(), [Bson::String("RetryableWriteError".to_owned())]);
}

#[test]
fn cursor_is_known_only_to_its_member() {
    let set = by_hand(2);
    let first = primary(&set);
    let mut client = connect(&set, first);
    client.run("db", doc! { "insert": "c", "documents": [{}, {}, {}] }).unwrap();
    let reply = client.run("db", doc! { "find": "c", "batchSize": 1 }).unwrap();
    let id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
    let more = doc! { "getMore": id, "collection": "c" };
    assert_eq!(code(&connect(&set, 1 - first).run("db", more.clone()).unwrap()), 43);
    let reply = client.run("db", more).unwrap();
    assert_eq!(reply.get_document("cursor").unwrap().get_array("nextBatch").unwrap().len(), 2);
}

#[test]
fn last_write_of_a_disconnected_member_does_not_change() {
    let set = by_hand(3);
    let cut_off = secondaries(&set)[0];
    set.partition(&[&[cut_off]]);
    let before = hello(&set, cut_off);
    connect(&set, primary(&set)).run("db", insert(1)).unwrap();
    let after = hello(&set, cut_off);
    assert_eq!(before.get("lastWrite"), after.get("lastWrite"));
    assert!(!before.contains_key("primary"));
}

#[test]
fn set_has_up_to_fifty_members() {
    let set = by_hand(50);
    let first = primary(&set);
    assert!(first < 7, "only voting members of priority 1 are elected");
    let mut waiting: Vec<BlockingClient> = (0..50).map(|member| connect(&set, member)).collect();
    for (member, client) in waiting.iter_mut().enumerate() {
        let reply = client.hello("test").unwrap();
        assert_eq!(reply.get_array("hosts").unwrap().len() + reply.get_array("passives").unwrap().len(), 50);
        assert_eq!(reply.get_str("primary").unwrap(), name(&set, first));
        wait_for_change(&set, member, client, &reply, 0);
    }
    let second = set.fail_over().unwrap();
    assert_ne!(first, second);
    for client in &mut waiting {
        // The reply to the step-down, or already the reply to the election.
        let reply = client.read().unwrap().body;
        assert_ne!(reply.get_str("primary").ok(), Some(name(&set, first).as_str()));
    }
    for member in 0..50 {
        assert_eq!(hello(&set, member).get_str("primary").unwrap(), name(&set, second));
    }
}

#[test]
fn members_may_be_of_an_older_release() {
    let server = FakeOptions::with_state(ServerState::without_topology_version());
    let set =
        FakeReplicaSet::start(FakeReplicaSetOptions { server, ..FakeReplicaSetOptions::of(2).by_hand() }).unwrap();
    for member in 0..2 {
        let reply = hello(&set, member);
        assert_eq!(reply.get_i32("maxWireVersion").unwrap(), 8);
        assert!(!reply.contains_key("topologyVersion"));
        assert_eq!(reply.get_str("setName").unwrap(), "rs0");
    }
}

#[test]
fn member_can_report_wrong_values() {
    let set = by_hand(2);
    let member = secondaries(&set)[0];
    let before = hello(&set, member);
    set.set_fields(member, doc! { "setName": "other", "setVersion": -1 });
    let reply = hello(&set, member);
    assert_eq!((reply.get_str("setName").unwrap(), reply.get_i32("setVersion").unwrap()), ("other", -1));
    assert_eq!(counter(&reply), counter(&before) + 1);
    set.set_fields(member, Document::new());
    assert_eq!(hello(&set, member).get_str("setName").unwrap(), "rs0");
}

#[test]
fn routers_share_their_documents() {
    let routers = FakeMongoses::start(2).unwrap();
    let connect = |index: usize| BlockingClient::connect(routers.server(index).address(), PATIENCE).unwrap();
    assert_eq!(connect(0).hello("test").unwrap().get_str("msg").unwrap(), "isdbgrid");
    assert_eq!(connect(0).run("db", insert(1)).unwrap().get_i32("n").unwrap(), 1);
    assert_eq!(found(&connect(1).run("db", find("primary")).unwrap()), 1);
    let addresses: Vec<String> = routers.servers().iter().map(|server| server.address().to_string()).collect();
    assert_eq!(routers.uri(), format!("mongodb://{}/", addresses.join(",")));
}
