//! Tests of the fake replica set through a blocking client.

mod configuration;
mod elections;
mod faults;
mod greeting;
mod random;

use core::time::Duration;

use bson::{Bson, Document, doc, oid::ObjectId};

use super::super::tests::is_silent;
use super::super::wire::EXHAUST_ALLOWED;
use super::super::{BlockingClient, Role};
use super::{FakeReplicaSet, FakeReplicaSetOptions, MemberOptions};

/// Much longer than any step of these tests; expires only in failing tests.
const PATIENCE: Duration = Duration::from_secs(20);

/// A set whose events are processed only on request.
fn by_hand(count: usize) -> FakeReplicaSet {
    FakeReplicaSet::start(FakeReplicaSetOptions::of(count).by_hand()).unwrap()
}

fn start_with(members: Vec<MemberOptions>) -> FakeReplicaSet {
    FakeReplicaSet::start(FakeReplicaSetOptions { members, ..FakeReplicaSetOptions::default().by_hand() }).unwrap()
}

fn connect(set: &FakeReplicaSet, member: usize) -> BlockingClient {
    BlockingClient::connect(set.address(member), PATIENCE).unwrap()
}

/// Returns the reply to a hello on a separate connection.
fn hello(set: &FakeReplicaSet, member: usize) -> Document {
    connect(set, member).hello("test").unwrap()
}

fn primary(set: &FakeReplicaSet) -> usize {
    set.primary().unwrap()
}

fn secondaries(set: &FakeReplicaSet) -> Vec<usize> {
    (0..set.servers_count()).filter(|&member| set.look(|view| view.role(member)) == Role::Secondary).collect()
}

fn name(set: &FakeReplicaSet, member: usize) -> String {
    set.address(member).to_string()
}

fn names(set: &FakeReplicaSet, members: impl IntoIterator<Item = usize>) -> Vec<Bson> {
    members.into_iter().map(|member| Bson::String(name(set, member))).collect()
}

fn counter(reply: &Document) -> i64 {
    reply.get_document("topologyVersion").unwrap().get_i64("counter").unwrap()
}

fn is(reply: &Document, field: &str) -> bool {
    reply.get_bool(field).unwrap_or(false)
}

fn election_id(reply: &Document) -> ObjectId {
    reply.get_object_id("electionId").unwrap()
}

fn code(reply: &Document) -> i32 {
    assert_eq!(reply.get_f64("ok").unwrap(), 0.0, "{reply}");
    reply.get_i32("code").unwrap()
}

fn insert(id: i32) -> Document {
    doc! { "insert": "c", "documents": [{ "_id": id }] }
}

fn find(mode: &str) -> Document {
    doc! { "find": "c", "$readPreference": { "mode": mode } }
}

fn found(reply: &Document) -> usize {
    reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len()
}

/// Sends an awaitable hello with the topologyVersion of `reply` on `client`; returns when it waits.
fn wait_for_change(set: &FakeReplicaSet, member: usize, client: &mut BlockingClient, reply: &Document, flags: u32) {
    let before = set.server(member).look(|view| view.awaiting_count());
    let version = reply.get_document("topologyVersion").unwrap().clone();
    let hello = doc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 3_600_000_i64, "$db": "admin" };
    client.send(flags, hello).unwrap();
    set.server(member).wait_until(PATIENCE, |view| view.awaiting_count() == before + 1).unwrap();
}
