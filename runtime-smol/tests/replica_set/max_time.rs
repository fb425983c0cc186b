//! `maxTimeMS`: servers end the work of an operation when its time is over.

use super::support::{client, eventually, known, options, refused, run, sent, still_set};
use bson::doc;
use core::time::Duration;
use poolhouse_smol::{Client, ClientSessionOptions, CommandOptions, Cursor, CursorOptions, Error, TransactionOptions};
use poolhouse_tests::fake::{FailPoint, FailPointMode, FakeServer, Received};

fn max_time(received: &Received) -> Option<i64> {
    received.body.as_ref().expect("the command is short").get_i64("maxTimeMS").ok()
}

#[test]
fn command_with_a_time_limit_has_the_rest_of_it() {
    run(async {
        let set = still_set();
        let primary = set.server(set.primary().expect("a primary"));
        let mut without = options(&set.uri());
        without.timeout = None;
        let client = client(without);
        known(&client, &set).await;
        let limited = CommandOptions::new().timeout(Duration::from_secs(20));
        client.run_command("db", doc! { "ping": 1 }).await.expect("a ping");
        client.run_command_with("db", doc! { "ping": 1 }, limited).await.expect("a ping");
        client.run_command_with("db", doc! { "ping": 1, "maxTimeMS": 7_i64 }, limited).await.expect("a ping");
        let endless = CommandOptions::new().timeout(Duration::MAX);
        client.run_command_with("db", doc! { "ping": 1 }, endless).await.expect("a ping");
        let mut connection = client.check_out_timeout(Duration::from_secs(20)).await.expect("a connection");
        connection.run_command("db", doc! { "ping": 1 }).await.expect("a ping");
        drop(connection);
        let pings: Vec<_> = sent(&primary, "ping").iter().map(max_time).collect();
        let is_rest = |time: Option<i64>| time.is_some_and(|time| (1..20_000).contains(&time));
        assert!(is_rest(pings[1]) && is_rest(pings[4]), "{pings:?}");
        assert_eq!([pings[0], pings[2], pings[3]], [None, Some(7), None]);

        // The limit of a cursor applies to each batch. On the server, that of the first command would
        // apply to the whole cursor, and that of getMore to the wait for documents.
        let documents = vec![doc! {}; 4];
        client.run_command("db", doc! { "insert": "c", "documents": documents }).await.expect("a reply");
        let find = doc! { "find": "c", "batchSize": 2 };
        let cursor = client.run_cursor_command("db", find, limited, CursorOptions::new()).await;
        let mut cursor: Cursor = cursor.expect("a cursor");
        while cursor.next_raw().await.expect("a document").is_some() {}
        assert_eq!(max_time(&sent(&primary, "find")[0]), None);
        assert_eq!(max_time(&sent(&primary, "getMore")[0]), None);

        // Without a time limit of the operation, the end of a transaction has its own.
        let mut session = client.start_session(ClientSessionOptions::new());
        let own = TransactionOptions::new().max_commit_time(Duration::from_secs(3));
        for options in [TransactionOptions::new(), own] {
            session.start_transaction(options).expect("it starts");
            session.run_command("db", doc! { "insert": "c", "documents": [{}] }).await.expect("a reply");
            session.commit_transaction().await.expect("a commit");
        }
        drop(session);
        let commits: Vec<_> = sent(&primary, "commitTransaction").iter().map(max_time).collect();
        assert_eq!(commits, [None, Some(3_000)]);
        client.close().await;
    });
}

/// The reply would be late, so the command is not sent.
#[test]
fn time_limit_that_is_shorter_than_the_round_trip_is_an_error_at_once() {
    run(async {
        let server = FakeServer::start(Default::default()).expect("it starts");
        let slow = Duration::from_millis(200);
        server.set_fail_point(FailPoint::new(FailPointMode::AlwaysOn, &["hello", "isMaster", "ismaster"]).block(slow));
        let client: Client = client(options(&server.uri()));
        let is_slow = || client.servers()[0].round_trip_minimum.is_some_and(|minimum| minimum >= slow);
        eventually("the round-trip time is known", is_slow).await;
        // A connection for it.
        client.run_command("db", doc! { "ping": 1 }).await.expect("a ping");
        let hurried = CommandOptions::new().timeout(slow / 2);
        let error = refused(client.run_command_with("db", doc! { "ping": 1 }, hurried).await);
        assert!(error.is_timeout() && matches!(error, Error::Operation(..)), "{error:?}");
        assert_eq!(server.count_of("ping"), 1);
        // The connection is kept.
        client.run_command("db", doc! { "ping": 1 }).await.expect("a ping");
        assert_eq!(client.servers()[0].pool.counts.available, 1);
        client.close().await;
    });
}

/// The server has ended its work because its time was over.
#[test]
fn error_of_max_time_is_a_timeout_and_names_the_server() {
    run(async {
        let server = FakeServer::start(Default::default()).expect("it starts");
        let client: Client = client(options(&server.uri()));
        server.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["ping"]).error(50));
        let error = refused(client.run_command("db", doc! { "ping": 1 }).await);
        assert!(error.is_timeout() && error.code() == Some(50), "{error:?}");
        let address = &client.servers()[0].address;
        assert!(error.to_string().starts_with(&format!("{address}: the command failed with code 50")), "{error}");
        client.close().await;
    });
}
