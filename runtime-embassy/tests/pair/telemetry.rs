//! The typed layer of the example, which firmware uses too.

#[path = "../../examples/telemetry/typed.rs"]
mod typed;

use self::typed::{Hello, Reading, StoreError};
use super::net::run;
use super::support::{refused, server, small};
use core::time::Duration;
use poolhouse_embassy::OperationError;
use poolhouse_tests::fake::{Cut, FailPoint, FailPointMode, FakeServer, Fault, FaultRule};

const LIMIT: Duration = Duration::from_secs(5);

fn reading(number: i64) -> Reading<'static> {
    Reading { device: "thermometer", number, at_ms: 1_700_000_000_000 + number, millidegrees: -1500 }
}

/// The documents of the last insert, as the server received them.
fn sent(server: &FakeServer) -> Vec<bson::Document> {
    let last = server.log().into_iter().rfind(|it| it.name == "insert").and_then(|it| it.body).expect("an insert");
    let documents = last.get_array("documents").expect("documents");
    documents.iter().map(|it| it.as_document().expect("a document").clone()).collect()
}

#[test]
fn typed_layer_asks_and_stores() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        typed::ping(&rig.client).await.expect("a ping");
        let hello = typed::hello(&rig.client).await.expect("hello");
        let Hello { is_writable_primary, wire_version_max } = hello;
        assert!(is_writable_primary && wire_version_max > 6, "{hello:?}");
        typed::store(&rig.client, "telemetry", "readings", &reading(1), LIMIT).await.expect("it is stored");
        let expected = bson::doc! {
            "_id": { "device": "thermometer", "number": 1_i64 },
            "at": bson::DateTime::from_millis(1_700_000_000_001),
            "millidegrees": -1500,
        };
        assert_eq!(sent(&server), [expected]);
        rig.end(&[&server]).await;
    });
}

/// The first insert is executed and its reply lost: the second attempt finds the document.
#[test]
fn reading_whose_first_reply_is_lost_is_stored_once() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        typed::ping(&rig.client).await.expect("a ping");
        server.inject(FaultRule::once(Fault::TruncatedFrame { bytes: 3, by: Cut::Rst }).on_command("insert"));
        let reading = reading(1);
        let stored = typed::store(&rig.client, "telemetry", "readings", &reading, LIMIT);
        net.skipping(LIMIT, stored).await.expect("it is stored");
        assert_eq!(server.count_of("insert"), 2);
        let mut reply = [0; 1024];
        let found = rig.client.run_command("telemetry", |it| it.str("find", "readings").map(drop), &mut reply).await;
        let found = super::support::document(found.expect("a reply"));
        let batch = found.get_document("cursor").and_then(|it| it.get_array("firstBatch")).expect("a batch");
        assert_eq!(batch.len(), 1);
        rig.end(&[&server]).await;
    });
}

#[test]
fn reading_that_is_not_stored_is_an_error() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        server.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["insert"]).error(13));
        let refusal = refused(typed::store(&rig.client, "telemetry", "readings", &reading(1), LIMIT).await);
        assert!(matches!(refusal, StoreError::Operation(OperationError::Command { code: 13, .. })), "{refusal:?}");
        rig.end(&[&server]).await;
    });
}
