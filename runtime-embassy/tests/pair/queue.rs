//! Documents that wait for a server: each has exactly one outcome, and none is inserted twice.

use super::net::{Net, run};
use super::support::{DropIt, Rig, Small, document, eventually, options, poll_times, refused, rig, server, small};
use bson::doc;
use core::time::Duration;
use poolhouse_embassy::{
    Client, Layout, OperationError, PushError, QueueCounts, RawDocument, Sizes, WhenFull, WriteQueue,
};
use poolhouse_tests::fake::{Cut, FailPoint, FailPointMode, Fault, FaultRule};

/// Eleven documents of [`push`].
type Queue = WriteQueue<512>;

/// Upper bound of the polls of a flush here.
const POLLS_MAX: usize = 200;

/// Stores a document of 45 bytes.
fn push(queue: &Queue, id: i32, when_full: WhenFull) -> Result<(), PushError> {
    push_document(queue, &doc! { "_id": id, "text": "a text of 20 bytes.." }, when_full)
}

fn push_document<const BYTES: usize>(
    queue: &WriteQueue<BYTES>,
    document: &bson::Document,
    when_full: WhenFull,
) -> Result<(), PushError> {
    queue.push(RawDocument::new(&document.to_vec().expect("it is encoded")).expect("a document"), when_full)
}

fn filled(when_full: WhenFull, ids: impl IntoIterator<Item = i32>) -> &'static Queue {
    let queue = Box::leak(Box::new(WriteQueue::new()));
    ids.into_iter().for_each(|id| push(queue, id, when_full).expect("there is room"));
    queue
}

async fn flush<L: Layout>(queue: &Queue, client: &Client<L>) -> Result<(), OperationError> {
    queue.flush(client, "db", "c").await
}

/// Starts [`WriteQueue::run`] in a task of its own.
fn start(net: &Net, queue: &'static Queue, client: Client<Small>) {
    net.spawn(async move {
        queue.run(&client, "db", "c").await;
    });
}

/// The ids of all stored documents, in the order of their insertion.
async fn stored<L: Layout>(client: &Client<L>) -> Vec<i32> {
    let mut reply = [0; 4096];
    let reply = client.run_command("db", |find| find.str("find", "c").map(drop), &mut reply).await.expect("a reply");
    let found = document(reply);
    let batch = found.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch")).expect("a batch");
    batch.iter().map(|it| it.as_document().expect("a document").get_i32("_id").expect("an id")).collect()
}

/// Nothing is sent while no server can be reached. Afterwards one command inserts all, and later ones
/// are inserted as they are pushed.
#[test]
fn documents_wait_for_the_server_and_are_inserted_in_order() {
    run(async |net| {
        let server = server();
        let rig: Rig<Small> = rig(net, options(&server));
        let queue = filled(WhenFull::Refuse, 0..10);
        start(net, queue, rig.client);
        net.idle().await;
        assert_eq!(queue.counts(), QueueCounts { queued: 10, ..QueueCounts::default() });
        net.open_to(&server);
        eventually("they are inserted", || queue.counts().queued == 0).await;
        assert_eq!(server.count_of("insert"), 1);
        for id in 10..30 {
            push(queue, id, WhenFull::Refuse).expect("there is room");
            eventually("it is inserted", || queue.counts().queued == 0).await;
        }
        assert_eq!(queue.counts(), QueueCounts { inserted: 30, ..QueueCounts::default() });
        assert_eq!(stored(&rig.client).await, Vec::from_iter(0..30));
        rig.end(&[&server]).await;
    });
}

/// The server has executed the command, but its reply is lost: the next attempt finds the documents.
#[test]
fn documents_whose_acknowledgement_is_lost_are_stored_once() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        let queue = filled(WhenFull::Refuse, 0..5);
        for round in 1..=3 {
            server.inject(FaultRule::once(Fault::TruncatedFrame { bytes: 4, by: Cut::Fin }).on_command("insert"));
            refused(flush(queue, &rig.client).await);
            assert_eq!(queue.counts().queued, 5, "attempt {round}");
        }
        push(queue, 5, WhenFull::Refuse).expect("there is room");
        flush(queue, &rig.client).await.expect("they are stored");
        assert_eq!(queue.counts(), QueueCounts { inserted: 6, ..QueueCounts::default() });
        assert_eq!(stored(&rig.client).await, Vec::from_iter(0..6));
        rig.end(&[&server]).await;
    });
}

/// A link that often fails is used again soon: the pause grows only while nothing is stored.
#[test]
fn pause_does_not_grow_while_documents_are_stored() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        // At least four commands.
        let queue: &'static WriteQueue<4096> = Box::leak(Box::new(WriteQueue::new()));
        for id in 0..80 {
            push_document(queue, &doc! { "_id": id, "text": "a text of 20 bytes.." }, WhenFull::Refuse)
                .expect("there is room");
        }
        let cut_second = || {
            let cut = Fault::TruncatedFrame { bytes: 4, by: Cut::Fin };
            server.inject(FaultRule::once(cut).on_command("insert").skip(1));
        };
        cut_second();
        let client = rig.client;
        net.spawn(async move {
            queue.run(&client, "db", "c").await;
        });
        let pause_max = Duration::from_millis(900);
        for failure in 1..=3 {
            net.skip_until("the second command fails", pause_max, || rig.log.closed().len() == failure).await;
            cut_second();
        }
        server.clear_faults();
        net.skip_until("all are stored", pause_max, || queue.counts().queued == 0).await;
        assert_eq!(queue.counts(), QueueCounts { inserted: 80, ..QueueCounts::default() });
        rig.end(&[&server]).await;
    });
}

/// Every other run delays the frames.
#[test]
fn flush_dropped_at_any_poll_loses_no_document_and_inserts_none_twice() {
    for drop_it in [DropIt::AtOnce, DropIt::WhenWoken] {
        let mut finished = false;
        for times in 1..=POLLS_MAX {
            run(async |net| {
                let server = server();
                let rig = small(net, &server);
                if times % 2 == 0 {
                    net.cable.delay.set(Duration::from_micros(100));
                }
                let queue = filled(WhenFull::Refuse, 0..8);
                finished = poll_times(flush(queue, &rig.client), times, drop_it).await.is_some();
                flush(queue, &rig.client).await.expect("the rest is stored");
                assert_eq!(queue.counts(), QueueCounts { inserted: 8, ..QueueCounts::default() });
                assert_eq!(stored(&rig.client).await, Vec::from_iter(0..8));
                rig.end(&[&server]).await;
            });
            if finished {
                break;
            }
        }
        assert!(finished, "{drop_it:?}: not done after {POLLS_MAX} polls");
    }
}

#[test]
fn several_flushes_at_once_count_each_document_once() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        let queue = filled(WhenFull::Refuse, 0..11);
        let client = rig.client;
        let tasks: Vec<_> = (0..4).map(|_| net.spawn_task(async move { flush(queue, &client).await })).collect();
        for task in tasks {
            task.await.expect("they are stored");
        }
        assert_eq!(queue.counts(), QueueCounts { inserted: 11, ..QueueCounts::default() });
        assert_eq!(stored(&client).await, Vec::from_iter(0..11));
        rig.end(&[&server]).await;
    });
}

#[test]
fn full_queue_refuses_the_new_document_or_discards_the_oldest() {
    let refusing = filled(WhenFull::Refuse, 0..11);
    assert_eq!(push(refusing, 11, WhenFull::Refuse), Err(PushError::Full));
    assert_eq!(refusing.counts(), QueueCounts { queued: 11, refused: 1, ..QueueCounts::default() });
    let discarding = filled(WhenFull::DiscardOldest, 0..20);
    assert_eq!(discarding.counts(), QueueCounts { queued: 11, discarded: 9, ..QueueCounts::default() });
    // Not even an empty queue has room for it.
    let huge = doc! { "_id": 1, "x": "x".repeat(600) };
    let (len, before) = (huge.to_vec().expect("it is encoded").len(), discarding.counts());
    assert_eq!((len > 512, push_document(discarding, &huge, WhenFull::DiscardOldest)), (true, Err(PushError::Full)));
    assert_eq!(discarding.counts(), QueueCounts { refused: 1, ..before });
    // As many as the new one needs, and no more: 17 bytes were free.
    push_document(discarding, &doc! { "_id": 1, "x": "x".repeat(80) }, WhenFull::DiscardOldest)
        .expect("the oldest are discarded");
    assert_eq!(discarding.counts().discarded, 9 + 2);
}

#[test]
fn documents_without_an_id_are_errors_and_leave_the_queue_unchanged() {
    let queue = filled(WhenFull::DiscardOldest, 0..11);
    assert_eq!(push_document(queue, &doc! { "id": 1 }, WhenFull::DiscardOldest), Err(PushError::NoId));
    assert_eq!(queue.counts(), QueueCounts { queued: 11, ..QueueCounts::default() });
}

/// Documents that are discarded while they are being sent do not count for the later ones.
#[test]
fn documents_discarded_while_they_are_sent_leave_the_others() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        rig.ping().await.expect("its reply");
        let queue = filled(WhenFull::DiscardOldest, 0..11);
        server.freeze();
        let client = rig.client;
        let flushing = net.spawn_task(async move { flush(queue, &client).await });
        eventually("they are sent", || rig.pool().counts.in_use == 1).await;
        for id in 11..15 {
            push(queue, id, WhenFull::DiscardOldest).expect("the oldest are discarded");
        }
        server.thaw();
        flushing.await.expect("they are stored");
        assert_eq!(queue.counts(), QueueCounts { inserted: 11, discarded: 4, ..QueueCounts::default() });
        assert_eq!(stored(&client).await, Vec::from_iter(0..15), "those that were being sent were stored too");
        rig.end(&[&server]).await;
    });
}

/// A document that the server refuses does not delay the others.
#[test]
fn documents_that_the_server_refuses_are_counted_and_removed() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        let queue = filled(WhenFull::Refuse, 0..6);
        let failure = doc! { "index": 2, "code": 121, "errmsg": "Document failed validation" };
        let point = FailPoint::new(FailPointMode::Times(1), &["insert"]);
        server.set_fail_point(point.reply(doc! { "n": 2, "writeErrors": [failure], "ok": 1.0 }));
        flush(queue, &rig.client).await.expect("all have an outcome");
        assert_eq!(queue.counts(), QueueCounts { inserted: 5, rejected: 1, ..QueueCounts::default() });
        assert_eq!(stored(&rig.client).await, [0, 1, 2, 3, 4, 5], "the fail point replaces only the reply");
        rig.end(&[&server]).await;
    });
}

/// A document that violates another unique index than that of `_id` is not stored, so it does not count as stored.
#[test]
fn duplicates_of_another_key_are_rejected() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        for (pattern, inserted) in
            [(doc! { "_id": 1 }, 3), (doc! { "seq": 1 }, 2), (doc! { "_id": 1, "seq": 1 }, 2), (doc! {}, 2)]
        {
            let queue = filled(WhenFull::Refuse, 0..3);
            let failure = doc! { "index": 0, "code": 11000, "keyPattern": pattern.clone() };
            let point = FailPoint::new(FailPointMode::Times(1), &["insert"]);
            server.set_fail_point(point.reply(doc! { "n": 0, "writeErrors": [failure], "ok": 1.0 }));
            flush(queue, &rig.client).await.expect("all have an outcome");
            let expected = QueueCounts { inserted, rejected: 3 - inserted, ..QueueCounts::default() };
            assert_eq!(queue.counts(), expected, "{pattern}");
        }
        rig.end(&[&server]).await;
    });
}

/// A full disk, or an election: the documents are inserted later.
#[test]
fn errors_that_are_not_of_the_document_leave_it_in_the_queue() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        for code in [14031, 189, 10107, 0] {
            let queue = filled(WhenFull::Refuse, 0..3);
            let failure = doc! { "index": 1, "code": code };
            let point = FailPoint::new(FailPointMode::Times(1), &["insert"]);
            server.set_fail_point(point.reply(doc! { "n": 1, "writeErrors": [failure], "ok": 1.0 }));
            let failed = refused(flush(queue, &rig.client).await);
            assert!(matches!(failed, OperationError::Command { code: found, .. } if found == code), "{failed}");
            assert_eq!(queue.counts(), QueueCounts { queued: 2, inserted: 1, ..QueueCounts::default() });
            flush(queue, &rig.client).await.expect("they are stored");
        }
        rig.end(&[&server]).await;
    });
}

/// A reply that contradicts the command removes no document.
#[test]
fn hostile_replies_are_errors_and_remove_nothing() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        let queue = filled(WhenFull::Refuse, 0..3);
        let replies = [
            doc! { "ok": 1.0 },
            doc! { "n": 2, "ok": 1.0 },
            doc! { "n": 4, "ok": 1.0 },
            doc! { "n": "3", "ok": 1.0 },
            doc! { "n": 3, "writeErrors": [], "ok": 1.0 },
            doc! { "n": 3, "writeErrors": 7, "ok": 1.0 },
            doc! { "writeErrors": [7], "ok": 1.0 },
            doc! { "writeErrors": [{ "code": 121 }], "ok": 1.0 },
            doc! { "writeErrors": [{ "index": 3, "code": 121 }], "ok": 1.0 },
            doc! { "writeErrors": [{ "index": -1, "code": 11000 }], "ok": 1.0 },
            doc! { "writeErrors": [{ "index": i64::MAX, "code": 11000 }], "ok": 1.0 },
        ];
        for reply in replies {
            server.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["insert"]).reply(reply.clone()));
            refused(flush(queue, &rig.client).await);
            assert_eq!(queue.counts(), QueueCounts { queued: 3, ..QueueCounts::default() }, "{reply}");
        }
        flush(queue, &rig.client).await.expect("they are stored");
        assert_eq!(stored(&rig.client).await, [0, 1, 2]);
        rig.end(&[&server]).await;
    });
}

/// The text of a refusal can be longer than the receive buffer: only its document is given up.
#[test]
fn refusal_that_is_too_long_for_the_buffer_does_not_block_the_queue() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let rig: Rig<Sizes<1, 4, 8, 512, 1024, 1024, super::support::Log>> = rig(net, options(&server));
        let queue = filled(WhenFull::Refuse, 0..5);
        let failure = doc! { "index": 0, "code": 121, "errInfo": "x".repeat(600) };
        // For all five, for two, and for one.
        let point = FailPoint::new(FailPointMode::Times(3), &["insert"]);
        server.set_fail_point(point.reply(doc! { "n": 0, "writeErrors": [failure], "ok": 1.0 }));
        queue.flush(&rig.client, "db", "c").await.expect("all have an outcome");
        assert_eq!(queue.counts(), QueueCounts { inserted: 4, rejected: 1, ..QueueCounts::default() });
        rig.end(&[&server]).await;
    });
}

/// The write concern is not reached, so the documents may be lost in a fail-over: they stay.
#[test]
fn documents_without_their_write_concern_stay() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        let queue = filled(WhenFull::Refuse, 0..3);
        let error = doc! { "code": 91, "errmsg": "Replication is being shut down" };
        server.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["insert"]).write_concern_error(error));
        let failed = refused(flush(queue, &rig.client).await);
        assert!(matches!(failed, OperationError::Command { code: 91, .. }), "{failed}");
        assert_eq!(queue.counts(), QueueCounts { queued: 3, ..QueueCounts::default() });
        flush(queue, &rig.client).await.expect("they are stored");
        assert_eq!(stored(&rig.client).await, [0, 1, 2]);
        rig.end(&[&server]).await;
    });
}

/// As many documents as fit are sent with one command. One that is larger than the send buffer can never be sent.
#[test]
fn batches_have_the_size_of_the_send_buffer() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let rig: Rig<Sizes<1, 4, 8, 4096, 512, 1024, super::support::Log>> = rig(net, options(&server));
        let queue: &'static WriteQueue<4096> = Box::leak(Box::new(WriteQueue::new()));
        let long = "x".repeat(500);
        for id in 0..40 {
            let text = if id == 20 { long.as_str() } else { "a text of 20 bytes.." };
            push_document(queue, &doc! { "_id": id, "text": text }, WhenFull::Refuse).expect("there is room");
        }
        queue.flush(&rig.client, "db", "c").await.expect("all have an outcome");
        assert_eq!(queue.counts(), QueueCounts { inserted: 39, rejected: 1, ..QueueCounts::default() });
        assert_eq!(stored(&rig.client).await, Vec::from_iter((0..40).filter(|id| *id != 20)));
        let inserts = server.count_of("insert");
        assert!((5..=7).contains(&inserts), "{inserts} commands; eight documents and some 90 bytes fill the buffer");
        rig.end(&[&server]).await;
    });
}

/// A device sleeps, measures, wakes up and sends.
#[test]
fn queue_is_emptied_after_each_opening_of_the_client() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        let client = rig.client;
        let queue = filled(WhenFull::Refuse, 0..2);
        let running = net.spawn_task(async move { queue.run(&client, "db", "c").await });
        eventually("they are inserted", || queue.counts().queued == 0).await;
        client.close();
        push(queue, 2, WhenFull::Refuse).expect("there is room");
        assert_eq!(running.await, OperationError::Closed);
        for id in 3..10 {
            client.closed().await;
            push(queue, id, WhenFull::Refuse).expect("there is room");
            assert_eq!(refused(flush(queue, &client).await), OperationError::Closed);
            client.open().expect("it is closed");
            flush(queue, &client).await.expect("they are stored");
            client.close();
        }
        client.closed().await;
        client.open().expect("it is closed");
        assert_eq!(stored(&client).await, Vec::from_iter(0..10));
        rig.end(&[&server]).await;
    });
}
