//! Cursors on a member of a fake set that is not the one for writes.

use super::{Hosted, HostedClient, Probe, options};
use crate::contract::{Shape, run_case};
use crate::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};
use crate::fake::{FailPoint, FailPointMode, FakeServer};
use crate::patience::{PATIENCE, eventually};
use crate::suite::Suite;
use alloc::sync::Arc;
use core::time::Duration;
use poolhouse_client::{CommandOptions, Cursor, CursorOptions, Platform};
use poolhouse_core::selection::{ReadMode, ReadPreference};
use poolhouse_driver::Subscribers;
use std::time::Instant;

pub(super) fn add<P: Platform + Default>(suite: Suite) -> Suite {
    let name = "hosted::cursors::commands_are_sent_to_the_server_of_their_cursor";
    let suite = suite.case(name, || run_case(commands_are_sent_to_the_server_of_their_cursor::<P>));
    suite.case("hosted::cursors::dropped_ones_end_before_their_client", || {
        run_case(dropped_ones_end_before_their_client::<P>)
    })
}

/// The time for which a client that is closed waits for cursors that were dropped.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// A client that is closed kills the cursors that were dropped before, and then ends their sessions. A
/// slow machine may exceed its limit for that; then the case is repeated.
async fn dropped_ones_end_before_their_client<P: Platform + Default>(_: &Hosted<P>) {
    let set = FakeReplicaSet::start(FakeReplicaSetOptions::of(1).by_hand()).expect("it starts");
    let primary = set.server(0);
    let first = Instant::now();
    loop {
        let mut options = options(&Shape::of(set.address(0)));
        (options.replica_set, options.timeout) = (Some(set.set_name()), Some(PATIENCE));
        let client = HostedClient::<P>::new(options, Subscribers::default());
        let documents: Vec<_> = (0..4).map(|_| bson::doc! {}).collect();
        client.client().run_command("db", bson::doc! { "insert": "c", "documents": documents }).await.expect("a reply");
        let (find, options) = (bson::doc! { "find": "c", "batchSize": 2 }, CommandOptions::new());
        let cursor = client.client().run_cursor_command("db", find, options, CursorOptions::new().batch_size(2)).await;
        let cursor: Cursor<Probe<P>> = cursor.expect("a cursor");
        // Its session is in use until it is killed.
        let slow = FailPoint::new(FailPointMode::Times(1), &["killCursors"]).block(Duration::from_millis(50));
        primary.set_fail_point(slow);
        let counts = || ["killCursors", "endSessions"].map(|name| primary.count_of(name));
        let (begun, before) = (Instant::now(), counts());
        drop(cursor);
        client.client().close().await;
        if begun.elapsed() < END_TIMEOUT {
            assert_eq!(counts(), before.map(|count| count + 1), "P58: a client is closed before its cursor is killed");
            return;
        }
        assert!(first.elapsed() < PATIENCE, "closing always exceeds its limit");
    }
}

/// Cursors that are dropped and closed after a further batch.
async fn commands_are_sent_to_the_server_of_their_cursor<P: Platform + Default>(_: &Hosted<P>) {
    let set = FakeReplicaSet::start(FakeReplicaSetOptions::of(2).by_hand()).expect("it starts");
    let primary = set.primary().expect("a primary");
    let (primary, secondary) = (set.server(primary), set.server(1 - primary));
    let mut options = options(&Shape::of(set.address(0)));
    options.hosts.push(set.address(1).to_string());
    (options.replica_set, options.timeout) = (Some(set.set_name()), Some(PATIENCE));
    let client = HostedClient::<P>::new(options, Subscribers::default());
    let documents: Vec<_> = (0..8).map(|id| bson::doc! { "_id": id }).collect();
    let insert = bson::doc! { "insert": "c", "documents": documents };
    client.client().run_command("db", insert).await.expect("a reply");
    for is_closed in [false, true] {
        let options = CommandOptions::new().read_preference(ReadPreference::of(ReadMode::Secondary));
        let (find, further) = (bson::doc! { "find": "c", "batchSize": 2 }, CursorOptions::new().batch_size(2));
        let cursor = client.client().run_cursor_command("db", find, options, further).await;
        let mut cursor: Cursor<Probe<P>> = cursor.expect("a cursor");
        for _ in 0..3 {
            let document = cursor.try_next().await;
            document.unwrap_or_else(|error| panic!("P58: a batch is refused: {error}")).expect("a document");
        }
        if is_closed {
            cursor.close().await.expect("a reply");
        } else {
            drop(cursor);
        }
    }
    let kills = |server: &Arc<FakeServer>| server.count_of("killCursors");
    eventually("both cursors are killed", || kills(&primary) + kills(&secondary) == 2).await;
    assert_eq!(kills(&primary), 0, "P58: a cursor is killed on another server than its own");
    assert_eq!((primary.count_of("getMore"), secondary.count_of("getMore")), (0, 2), "P58: batches");
    client.client().close().await;
}
