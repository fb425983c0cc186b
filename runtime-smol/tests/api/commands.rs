//! Commands, as documents and as bytes, and the client options that they inherit.

use super::support::{client, options, refused, run, sent, server};
use bson::{Document, RawDocumentBuf, doc};
use core::time::Duration;
use poolhouse_smol::poolhouse_driver::OperationError;
use poolhouse_smol::{Client, ClientOptions, CommandOptions, Error, ReadMode, ReadPreference, ReadPreferenceOptions};
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions, MemberOptions};
use poolhouse_tests::fake::{FailPoint, FailPointMode};
use std::time::Instant;

/// Longer than any limit of these tests, and longer than any of them may take.
const BLOCKED: Duration = Duration::from_secs(60);

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).expect("a document")
}

/// The command without `lsid`, which it must have.
fn without_session(command: &Document) -> Document {
    let mut command = command.clone();
    let id = command.remove("lsid").and_then(|lsid| lsid.as_document()?.get("id").cloned());
    assert!(matches!(id, Some(bson::Bson::Binary(id)) if id.bytes.len() == 16), "a UUID");
    command
}

#[test]
fn database_sends_its_name_and_returns_the_reply() {
    run(async {
        let server = server();
        let client = client(options(&server));
        let shop = client.database("shop");
        assert_eq!(shop.name(), "shop");
        let reply = shop.run_command(doc! { "insert": "orders", "documents": [{ "_id": 1 }] }).await.expect("inserted");
        assert_eq!(reply.get_i32("n").ok(), Some(1));
        let [insert] = &sent(&server, "insert")[..] else { panic!("one command") };
        assert_eq!(insert.get_str("$db").ok(), Some("shop"));
        assert_eq!(insert.keys().collect::<Vec<_>>(), ["insert", "documents", "lsid", "$db"], "only these are added");
        // A clone is the same client, which exists as long as one of its handles.
        let again = shop.clone();
        drop((shop, client));
        let found = again.run_command(doc! { "find": "orders" }).await.expect("found");
        let batch = found.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch")).expect("a batch");
        assert_eq!(batch.len(), 1);
        again.client().close().await;
    });
}

/// Bytes are sent and received unchanged.
#[test]
fn raw_command_and_its_reply_are_not_decoded() {
    run(async {
        let server = server();
        let client = client(options(&server));
        let shop = client.database("shop");
        let insert = doc! { "insert": "orders", "documents": [{ "_id": 1, "text": "x" }], "ordered": false };
        let reply = shop.run_raw_command(&raw(&insert)).await.expect("inserted");
        assert_eq!(reply.get_i32("n").ok(), Some(1));
        let mut expected = insert;
        expected.insert("$db", "shop");
        assert_eq!(without_session(&sent(&server, "insert")[0]), expected);
        let one =
            shop.run_raw_command_with(&raw(&doc! { "find": "orders" }), CommandOptions::new().idempotent(true)).await;
        let other = shop.run_command(doc! { "find": "orders" }).await.expect("found");
        assert_eq!(Document::try_from(one.expect("found")).expect("a document"), other);
        let mut connection = client.check_out().await.expect("a connection");
        let reply = connection.run_raw_command("shop", &raw(&doc! { "find": "orders" })).await.expect("found");
        assert_eq!(Document::try_from(reply).expect("a document"), other);
    });
}

/// A refusal is the same in both forms, and contains the server's whole reply.
#[test]
fn refusal_contains_code_name_message_and_reply_in_both_forms() {
    run(async {
        let server = server();
        let client = client(options(&server));
        let command = doc! { "frobnicate": 1 };
        let database = client.database("shop");
        let by_document = refused(database.run_command(command.clone()).await);
        let by_bytes = refused(database.run_raw_command(&raw(&command)).await);
        for error in [by_document, by_bytes] {
            let Error::Command(error) = error else { panic!("no refusal: {error}") };
            assert_eq!((error.code, error.code_name.as_deref()), (59, Some("CommandNotFound")));
            assert_eq!(error.reply.get_f64("ok").ok(), Some(0.0));
            assert!(error.to_string().contains("59 (CommandNotFound): "), "{error}");
        }
    });
}

#[test]
fn empty_command_is_an_error_and_sends_nothing() {
    run(async {
        let server = server();
        let client = client(options(&server));
        let error = refused(client.database("shop").run_command(Document::new()).await);
        assert_eq!(error.to_string(), "BSON: a command must not be empty");
        client.run_command("admin", doc! { "ping": 1 }).await.expect("the connection is as good as before");
        assert_eq!(server.accepted_count(), 2, "one for the monitor, one for both commands");
    });
}

#[test]
fn default_database_is_that_of_the_string_or_of_the_options() {
    run(async {
        let server = server();
        let address = server.address();
        let name = |uri: String| {
            let client = smol::block_on(Client::new(&uri)).expect("a right string");
            client.default_database().map(|database| database.name().to_owned())
        };
        assert_eq!(name(format!("mongodb://{address}")), None);
        assert_eq!(name(format!("mongodb://{address}/?maxPoolSize=1")), None);
        assert_eq!(name(format!("mongodb://{address}/shop")).as_deref(), Some("shop"));
        assert_eq!(name(format!("mongodb://{address}/shop.orders")).as_deref(), Some("shop"));
        let client = client(options(&server).default_database("till"));
        let database = client.default_database().expect("the options say it");
        database.run_command(doc! { "ping": 1 }).await.expect("a ping");
        assert_eq!(sent(&server, "ping")[0].get_str("$db").ok(), Some("till"));
    });
}

/// Run Command: a command does not inherit the client's read preference, nor its concerns.
#[test]
fn command_inherits_the_read_preference_only_on_request() {
    run(async {
        let tags = [doc! { "dc": "ny" }, doc! { "dc": "ny", "rack": "1" }, doc! { "dc": "sf" }];
        let mut set = FakeReplicaSetOptions::of(0).by_hand();
        set.members = tags.into_iter().map(|tags| MemberOptions::default().tags(tags)).collect();
        let set = FakeReplicaSet::start(set).expect("the set starts");
        let primary = set.primary().expect("a primary");
        let uri = set.uri()
            + "&readPreference=nearest&readPreferenceTags=dc:tokyo&readPreferenceTags=dc:ny,rack:1"
            + "&maxStalenessSeconds=120&readConcernLevel=majority&w=majority&retryWrites=false";
        let client = client(ClientOptions::parse(&uri).expect("a right string").timeout(BLOCKED / 3));
        let pings = || (0..3).map(|member| set.server(member).count_of("ping")).collect::<Vec<_>>();
        let ping = async |options| client.run_command_with("admin", doc! { "ping": 1 }, options).await.expect("a ping");

        for _ in 0..5 {
            ping(CommandOptions::new()).await;
        }
        assert_eq!(pings()[primary], 5);
        let mut plain = without_session(&sent(&set.server(primary), "ping")[0]);
        assert!(plain.remove("maxTimeMS").is_some(), "the client has a time limit");
        assert_eq!(plain, doc! { "ping": 1, "$db": "admin" });

        // The member of the second tag set, regardless of which member that is.
        let before = pings();
        for _ in 0..5 {
            ping(CommandOptions::new().client_read_preference(true)).await;
        }
        assert_eq!(pings()[1], before[1] + 5);
        assert_eq!(pings().iter().sum::<u64>(), 10);
        let told = sent(&set.server(1), "ping").pop().expect("a ping");
        let expected = doc! {
            "mode": "nearest",
            "tags": [{ "dc": "tokyo" }, { "dc": "ny", "rack": "1" }],
            "maxStalenessSeconds": 120_i64,
        };
        assert_eq!(told.get_document("$readPreference").ok(), Some(&expected));

        // A field of the command itself takes precedence.
        let sf = ReadPreferenceOptions {
            mode: ReadMode::Nearest,
            tag_sets: &[&[("dc", "sf")]],
            max_staleness_seconds: None,
        };
        let sf = sf.validate().expect("right");
        let before = pings()[2];
        ping(CommandOptions::new().client_read_preference(true).read_preference(sf)).await;
        assert_eq!(pings()[2], before + 1);
        client.close().await;
    });
}

/// The command's limit replaces the client's, and `Duration::MAX` means no limit.
#[test]
fn time_limit_of_a_command_replaces_that_of_the_client() {
    run(async {
        let server = server();
        let limit = Duration::from_millis(100);
        let client = client(options(&server).timeout(BLOCKED));
        client.run_command("admin", doc! { "ping": 1 }).await.expect("a connection is there");
        server.set_fail_point(FailPoint::new(FailPointMode::AlwaysOn, &["ping"]).block(BLOCKED));
        let begun = Instant::now();
        let options = CommandOptions::new().timeout(limit);
        let error = refused(client.run_command_with("admin", doc! { "ping": 1 }, options).await);
        assert!(error.is_timeout() && matches!(error, Error::Operation(OperationError::Timeout, _)), "{error}");
        assert!(begun.elapsed() >= limit);
    });
    run(async {
        let server = server();
        let limit = Duration::from_millis(100);
        let client = client(options(&server).timeout(limit));
        // Warms up without a limit.
        let unlimited = CommandOptions::new().timeout(Duration::MAX);
        client.run_command_with("admin", doc! { "ping": 1 }, unlimited).await.expect("a ping");
        server.set_fail_point(FailPoint::new(FailPointMode::AlwaysOn, &["ping"]).block(limit * 4));
        client.run_command_with("admin", doc! { "ping": 1 }, unlimited).await.expect("it has all the time");
        server.set_fail_point(FailPoint::new(FailPointMode::AlwaysOn, &["ping"]).block(BLOCKED));
        assert!(refused(client.run_command("admin", doc! { "ping": 1 }).await).is_timeout());
    });
}

/// `socketTimeoutMS` applies to each command, from when it is sent, and only if no other limit
/// exists.
#[test]
fn socket_timeout_limits_each_command_without_another_limit() {
    run(async {
        let server = server();
        let limit = Duration::from_millis(1500);
        let paced = client(options(&server).socket_timeout(limit));
        let ping = || doc! { "ping": 1 };
        let mut connection = paced.check_out().await.expect("a connection");
        // Longer than the limit in total, each command within it.
        server.set_fail_point(FailPoint::new(FailPointMode::AlwaysOn, &["ping"]).block(limit / 3));
        let begun = Instant::now();
        while begun.elapsed() < limit * 2 {
            connection.run_command("admin", ping()).await.expect("in time");
        }
        drop(connection);
        server.set_fail_point(FailPoint::new(FailPointMode::AlwaysOn, &["ping"]).block(limit * 3));
        let begun = Instant::now();
        assert!(refused(paced.run_command("admin", ping()).await).is_timeout());
        assert!(begun.elapsed() >= limit);
        let unhurried = CommandOptions::new().timeout(BLOCKED);
        paced.run_command_with("admin", ping(), unhurried).await.expect("timeoutMS replaces it");
        paced.close().await;
    });
}

#[test]
fn check_out_by_read_preference_selects_a_matching_member() {
    run(async {
        let set = FakeReplicaSet::start(FakeReplicaSetOptions::of(3).by_hand()).expect("the set starts");
        let primary = set.primary().expect("a primary");
        let client = client(ClientOptions::parse(&set.uri()).expect("a right string").timeout(BLOCKED / 3));
        let mut connection = client.check_out_preferring(ReadPreference::of(ReadMode::Secondary)).await.expect("one");
        connection.run_command("admin", doc! { "ping": 1 }).await.expect("a ping");
        assert_eq!(set.server(primary).count_of("ping"), 0);
        let id = client
            .with_connection(async |connection| Ok::<_, Error>(connection.connection_id()))
            .await
            .expect("a connection");
        assert_eq!(id, 1, "the primary's first");
    });
}

/// An invalid command fails before server selection.
#[test]
fn invalid_command_waits_for_no_server() {
    run(async {
        let nobody = ClientOptions::new("127.0.0.1:1").server_selection_timeout(Duration::from_secs(2));
        let client = client(nobody);
        let error = refused(client.run_command("admin", doc! {}).await);
        assert!(!error.is_timeout() && error.to_string().contains("empty"), "{error}");
        let raw = bson::RawDocumentBuf::new();
        let error = refused(client.run_raw_command("admin", &raw).await);
        assert!(!error.is_timeout() && error.to_string().contains("empty"), "{error}");
    });
}

/// `timeoutMS=0` in a string and `Duration::MAX` are an infinite limit: `socketTimeoutMS` does not
/// apply in addition to it.
#[test]
fn infinite_timeout_disables_the_socket_timeout() {
    run(async {
        let server = server();
        let limit = Duration::from_millis(150);
        let ping = || doc! { "ping": 1 };
        let unlimited = CommandOptions::new().timeout(Duration::MAX);
        let paced = client(options(&server).socket_timeout(limit));
        let unhurried = client(options(&server).socket_timeout(limit).timeout(Duration::MAX));
        let uri = format!("mongodb://{}/?socketTimeoutMS=150&timeoutMS=0", server.address());
        let by_string = client(ClientOptions::parse(&uri).expect("a right string"));
        for client in [&paced, &unhurried, &by_string] {
            client.run_command_with("admin", ping(), unlimited).await.expect("a connection is there");
        }
        server.set_fail_point(FailPoint::new(FailPointMode::AlwaysOn, &["ping"]).block(limit * 4));
        paced.run_command_with("admin", ping(), unlimited).await.expect("the command says it");
        for client in [&unhurried, &by_string] {
            client.run_command("admin", ping()).await.expect("the client says it");
            let mut connection = client.check_out().await.expect("a connection");
            connection.run_command("admin", ping()).await.expect("the client says it");
        }
        let mut connection = paced.check_out_timeout(None).await.expect("a connection");
        connection.run_command("admin", ping()).await.expect("the check-out says it");
        drop(connection);
        // The reply does not arrive before the limit, even if the machine stalls.
        server.set_fail_point(FailPoint::new(FailPointMode::AlwaysOn, &["ping"]).block(BLOCKED));
        assert!(refused(paced.run_command("admin", ping()).await).is_timeout(), "nothing was said of its time");
    });
}
