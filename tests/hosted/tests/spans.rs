//! The spans of operations and commands (OpenTelemetry), as a subscriber of the thread receives
//! them. The suite `unified` has the official tests, which compare the attributes.
#![forbid(unsafe_code)]

extern crate alloc;

#[path = "capture/spans.rs"]
mod captured;
#[path = "capture/fields.rs"]
mod fields;

use alloc::sync::Arc;
use bson::{Document, doc};
use captured::{Captured, Spans};
use core::pin::pin;
use core::task::{Context, Waker};
use core::time::Duration;
use poolhouse_smol::mux::{Session, SessionOptions};
use poolhouse_smol::poolhouse_cql::Consistency;
use poolhouse_smol::{
    Client, ClientOptions, ClientSession, ClientSessionOptions, CommandOptions, Cursor, CursorOptions, Error,
    TracingOptions, TransactionOptions, W, WriteConcern,
};
use poolhouse_tests::cql_server::{CqlServer, CqlServerOptions};
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};
use poolhouse_tests::fake::{FailPoint, FailPointMode, FakeServer};
use poolhouse_tests::patience::{PATIENCE, refused, run};

const ON: TracingOptions = TracingOptions::DEFAULT.enabled(true);

/// A set and a client that knows its primary.
async fn connected(tracing: TracingOptions) -> (FakeReplicaSet, Arc<FakeServer>, Client) {
    let set = FakeReplicaSet::start(FakeReplicaSetOptions::of(1).by_hand()).expect("the set starts");
    let options = ClientOptions::parse(&set.uri()).expect("the string is right").timeout(PATIENCE).tracing(tracing);
    let client = Client::with_options(options).expect("the options are right");
    drop(client.check_out().await.expect("a connection"));
    let primary = set.server(set.primary().expect("a primary"));
    (set, primary, client)
}

/// Runs the operations of a test, and returns the spans of this thread.
fn spans_of<F: Future<Output = ()>>(
    tracing: TracingOptions,
    act: impl FnOnce(Arc<FakeServer>, Client) -> F,
) -> Vec<Captured> {
    let spans = Spans::default();
    run(async {
        let (set, primary, client) = connected(tracing).await;
        let _default = spans.subscribe(|_| true);
        act(primary, client.clone()).await;
        client.close().await;
        drop(set);
    });
    let seen = spans.taken();
    assert!(seen.iter().all(|span| span.is_closed), "{seen:#?}");
    assert!(spans.entered().is_empty());
    seen
}

fn names(spans: &[Captured]) -> Vec<(&str, &str)> {
    spans.iter().map(|span| (span.name, span.text("otel.name").unwrap_or_default())).collect()
}

async fn run_command(client: &Client, command: Document) -> Result<Document, Error> {
    client.run_command("shop", command).await
}

#[test]
fn operation_is_a_span_within_that_of_its_caller() {
    let mut address = None;
    let spans = spans_of(ON, |primary, client| {
        address = Some(primary.address());
        async move {
            let caller = tracing::info_span!("caller");
            let insert = doc! { "insert": "orders", "documents": [{ "_id": 7 }] };
            tracing::Instrument::instrument(run_command(&client, insert), caller).await.expect("a reply");
        }
    });
    let address = address.expect("the test ran");
    assert_eq!(names(&spans), [("caller", ""), ("operation", "insert shop.orders"), ("command", "insert")]);
    assert_eq!((spans[1].parent, spans[2].parent), (Some(spans[0].id), Some(spans[1].id)));
    assert!(spans[1..].iter().all(|span| span.text("otel.kind") == Some("client")));
    let [host, port] = ["server.address", "server.port"].map(|name| spans[2].fields.get(name).cloned());
    assert_eq!((host, port), (Some(address.ip().to_string().into()), Some(i64::from(address.port()).into())));
}

/// A request of Cassandra is one span, with the host that has answered, or the error.
#[test]
fn request_of_a_session_is_a_span() {
    let node = CqlServer::start(CqlServerOptions::default()).expect("the node starts");
    let spans = Spans::default();
    run(async {
        let options = SessionOptions::new([node.address().to_string()]);
        let session = Session::new(options.clone().tracing(ON)).expect("good options");
        let silent = Session::new(options).expect("good options");
        let local = "SELECT key FROM system.local";
        session.query(local).send().await.expect("an answer");
        let _default = spans.subscribe(|_| true);
        silent.query(local).send().await.expect("an answer");
        session.query(local).consistency(Consistency::One).idempotent(true).send().await.expect("an answer");
        session.query("SELECT a FROM nowhere.b").send().await.expect_err("there is no such table");
        silent.close().await;
        session.close().await;
    });
    let seen = spans.taken();
    assert_eq!(names(&seen), [("operation", "QUERY"), ("operation", "QUERY")]);
    let of = |index: usize, name| seen[index].text(name).map(str::to_owned);
    assert_eq!(of(0, "db.system.name").as_deref(), Some("cassandra"));
    assert_eq!(of(0, "cassandra.consistency.level").as_deref(), Some("one"));
    assert_eq!(of(0, "server.address"), Some(node.address().ip().to_string()));
    assert_eq!(seen[0].fields.get("server.port"), Some(&i64::from(node.address().port()).into()));
    assert_eq!((of(0, "otel.status_code"), of(0, "exception.message")), (None, None));
    assert_eq!(of(1, "otel.status_code").as_deref(), Some("ERROR"));
    assert_eq!(
        (of(1, "db.response.status_code").as_deref(), of(1, "exception.type").as_deref()),
        (Some("0x2200"), Some("0x2200"))
    );
    assert!(of(1, "exception.message").is_some_and(|text| text.contains("0x2200")));
    assert!(seen.iter().all(|span| span.is_closed));
}

#[test]
fn each_attempt_is_a_span_within_one_operation() {
    let spans = spans_of(ON, |primary, client| async move {
        primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["find"]).error(134));
        run_command(&client, doc! { "find": "orders" }).await.expect("the second attempt succeeds");
    });
    assert_eq!(names(&spans), [("operation", "find shop.orders"), ("command", "find"), ("command", "find")]);
    assert!(spans[1..].iter().all(|span| span.parent == Some(spans[0].id)));
    let codes = spans.iter().map(|span| span.text("db.response.status_code")).collect::<Vec<_>>();
    assert_eq!(codes, [None, Some("134"), None]);
    assert_eq!((spans[0].text("otel.status_code"), spans[1].text("otel.status_code")), (None, Some("ERROR")));
}

#[test]
fn error_is_recorded_in_both_spans() {
    let mut text = String::new();
    let spans = spans_of(ON, |primary, client| {
        let text = &mut text;
        async move {
            primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["ping"]).error(59));
            *text = refused(run_command(&client, doc! { "ping": 1 }).await).to_string();
        }
    });
    assert_eq!(names(&spans), [("operation", "ping shop"), ("command", "ping")]);
    for span in &spans {
        assert_eq!(span.text("db.response.status_code"), Some("59"));
        assert_eq!(span.text("exception.type"), Some("Error::Command"));
        assert_eq!(span.text("exception.message"), Some(text.as_str()));
        assert_eq!((span.text("otel.status_code"), span.text("db.collection.name")), (Some("ERROR"), None));
    }
    // An operation that sends no command.
    let spans = spans_of(ON, |_, client| async move {
        let late = CommandOptions::new().timeout(Duration::from_nanos(1));
        refused(client.run_command_with("shop", doc! { "ping": 1 }, late).await);
    });
    assert_eq!(names(&spans)[0], ("operation", "ping shop"));
    assert_eq!(spans[0].text("exception.type"), Some("Error::Operation"));
}

#[test]
fn error_of_a_write_is_recorded_in_both_spans() {
    let mut text = String::new();
    let spans = spans_of(ON, |_, client| {
        let text = &mut text;
        async move {
            let insert = doc! { "insert": "c", "documents": [{ "_id": 7 }] };
            run_command(&client, insert.clone()).await.expect("a reply");
            let error = refused(run_command(&client, insert).await);
            assert!(matches!(error, Error::Write(_)), "{error:?}");
            *text = error.to_string();
        }
    });
    assert_eq!(names(&spans)[2..], [("operation", "insert shop.c"), ("command", "insert")]);
    assert!(spans[..2].iter().all(|span| span.text("otel.status_code").is_none()));
    for span in &spans[2..] {
        assert_eq!(span.text("db.response.status_code"), Some("11000"));
        assert_eq!(span.text("exception.type"), Some("Error::Write"));
        assert_eq!(span.text("exception.message"), Some(text.as_str()));
        assert_eq!(span.text("otel.status_code"), Some("ERROR"));
    }
}

/// The client sends a command again if a server cannot verify its cluster time. That is no other
/// attempt of the operation.
#[test]
fn command_that_is_sent_again_without_cluster_time_has_two_spans() {
    let spans = spans_of(ON, |primary, client| async move {
        let mut state = primary.state();
        state.cluster_time = Some((50, 3));
        primary.set_state(state);
        run_command(&client, doc! { "ping": 1 }).await.expect("a reply with the time");
        primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["ping"]).error(211));
        run_command(&client, doc! { "ping": 1 }).await.expect("the command without the time");
    });
    assert_eq!(names(&spans)[2..], [("operation", "ping shop"), ("command", "ping"), ("command", "ping")]);
    assert!(spans[3..].iter().all(|span| span.parent == Some(spans[2].id)));
    let codes = spans[2..].iter().map(|span| span.text("db.response.status_code")).collect::<Vec<_>>();
    assert_eq!(codes, [None, Some("211"), None]);
}

/// A span is current only while its future is polled: between the polls, other futures run.
#[test]
fn dropped_operation_closes_its_spans() {
    let spans = Spans::default();
    run(async {
        let (_set, primary, client) = connected(ON).await;
        let _default = spans.subscribe(|_| true);
        let never = Duration::from_secs(60);
        primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["ping"]).block(never));
        {
            let mut pinging = pin!(run_command(&client, doc! { "ping": 1 }));
            assert!(pinging.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert!(spans.entered().is_empty());
            let seen = spans.taken();
            assert_eq!(names(&seen), [("operation", "ping shop"), ("command", "ping")]);
            assert!(seen.iter().all(|span| !span.is_closed), "{seen:?}");
        }
        assert!(spans.taken().iter().all(|span| span.is_closed));
        client.close().await;
    });
}

#[test]
fn without_the_option_or_a_subscriber_there_is_no_span() {
    let act = |_, client: Client| async move {
        run_command(&client, doc! { "ping": 1 }).await.expect("a ping");
    };
    assert!(spans_of(TracingOptions::DEFAULT, act).is_empty());
    assert_eq!(spans_of(ON, act).len(), 2);
    let spans = Spans::default();
    run(async {
        let (_set, primary, client) = connected(ON).await;
        let _default = spans.subscribe(|metadata| *metadata.level() < tracing::Level::INFO);
        act(primary, client.clone()).await;
        client.close().await;
    });
    assert!(spans.taken().is_empty());
}

#[test]
fn text_of_a_command_is_limited_and_has_no_secret() {
    let insert = doc! { "insert": "c", "documents": [{ "_id": 7 }] };
    let text = |length| {
        let insert = insert.clone();
        let spans = spans_of(ON.query_text_length_max(length), |_, client| async move {
            run_command(&client, insert).await.expect("a reply");
        });
        assert_eq!(spans[0].text("db.query.text"), None);
        spans[1].text("db.query.text").map(str::to_owned)
    };
    assert_eq!(text(0), None);
    // With the fields that the client adds.
    let all = text(1000).expect("a text");
    assert!(all.starts_with(r#"{"insert":"c","documents":[{"_id":7}],"maxTimeMS":"#), "{all}");
    assert!(all.ends_with(r#","txnNumber":1}"#), "{all}");
    assert_eq!(text(9).as_deref(), Some(r#"{"insert"..."#));

    let spans = spans_of(ON.query_text_length_max(1000), |_, client| async move {
        let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] };
        run_command(&client, doc! { "ping": 1, "lsid": { "id": id }, "comment": "c" }).await.expect("a ping");
    });
    let text = spans[1].text("db.query.text").expect("a text");
    assert!(text.starts_with(r#"{"ping":1,"comment":"c","maxTimeMS":"#) && !text.contains("lsid"), "{text}");
    assert_eq!(spans[1].text("db.mongodb.lsid"), Some("07070707-0707-0707-0707-070707070707"));

    let spans = spans_of(ON.query_text_length_max(1000), |primary, client| async move {
        primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["createUser"]).error(59));
        let secret = doc! { "createUser": "ada", "pwd": "secret", "roles": [] };
        refused(client.run_command("shop", secret).await);
    });
    assert_eq!(names(&spans), [("operation", "createUser shop")], "the command has no span");
    assert_eq!(spans[0].text("exception.type"), Some("Error::Command"));
    assert_eq!(spans[0].text("exception.message"), None);
    assert!(!format!("{spans:?}").contains("secret") && !format!("{spans:?}").contains("ada"), "{spans:?}");
}

#[test]
fn batches_of_a_cursor_are_operations_with_its_id() {
    let spans = spans_of(ON, |_, client| async move {
        run_command(&client, doc! { "insert": "c", "documents": vec![doc! {}; 3] }).await.expect("a reply");
        let find = doc! { "find": "c", "batchSize": 2 };
        let cursor = client.run_cursor_command("shop", find, CommandOptions::new(), CursorOptions::new()).await;
        let mut cursor: Cursor = cursor.expect("a cursor");
        while cursor.next_raw().await.expect("a document").is_some() {}
        let find = doc! { "find": "c", "batchSize": 2 };
        let cursor = client.run_cursor_command("shop", find, CommandOptions::new(), CursorOptions::new()).await;
        let cursor: Cursor = cursor.expect("a cursor");
        cursor.close().await.expect("it is closed");
    });
    let expected = [
        ("operation", "find shop.c"),
        ("command", "find"),
        ("operation", "getMore shop.c"),
        ("command", "getMore"),
        ("operation", "find shop.c"),
        ("command", "find"),
        ("operation", "killCursors shop.c"),
        ("command", "killCursors"),
    ];
    assert_eq!(names(&spans)[2..], expected);
    let id = |place: usize| spans[place].fields.get("db.mongodb.cursor_id");
    assert!(id(3).is_some() && id(3) == id(5), "{:?}", [id(3), id(5)]);
    assert!(id(7).is_some() && id(7) == id(9), "{:?}", [id(7), id(9)]);
    assert_eq!([id(1), id(2), id(4), id(8)], [None; 4], "operations have none");
}

#[test]
fn spans_of_a_batch_end_with_it_or_with_the_cursor() {
    let spans = Spans::default();
    run(async {
        let (_set, primary, client) = connected(ON).await;
        run_command(&client, doc! { "insert": "c", "documents": vec![doc! {}; 3] }).await.expect("a reply");
        let _default = spans.subscribe(|_| true);
        let batch = || {
            let seen = spans.taken().into_iter().filter(|span| {
                [span.text("db.operation.name"), span.text("db.command.name")].contains(&Some("getMore"))
            });
            seen.map(|span| (span.name, span.is_closed)).collect::<Vec<_>>()
        };
        let at_batch = async |reply: FailPoint| {
            let find = doc! { "find": "c", "batchSize": 2 };
            let cursor = client.run_cursor_command("shop", find, CommandOptions::new(), CursorOptions::new()).await;
            let mut cursor: Cursor = cursor.expect("a cursor");
            for _ in 0..2 {
                assert!(cursor.try_next().await.expect("a document").is_some());
            }
            primary.set_fail_point(reply);
            {
                let mut next = pin!(cursor.try_next());
                assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
            cursor
        };
        let late = |delay| FailPoint::new(FailPointMode::Times(1), &["getMore"]).block(delay);

        let mut cursor = at_batch(late(Duration::from_millis(300))).await;
        assert_eq!(batch(), [("operation", false), ("command", false)], "only the future of `try_next` has ended");
        assert!(cursor.try_next().await.expect("a document").is_some());
        assert_eq!(batch(), [("operation", true), ("command", true)]);

        let cursor = at_batch(late(Duration::from_secs(60))).await;
        assert_eq!(batch()[2..], [("operation", false), ("command", false)]);
        drop(cursor);
        assert_eq!(batch()[2..], [("operation", true), ("command", true)]);
        client.close().await;
    });
    assert!(spans.entered().is_empty());
}

fn unacknowledged() -> WriteConcern {
    WriteConcern { w: Some(W::Nodes(0)), ..WriteConcern::default() }
}

async fn insert(session: &mut ClientSession) -> Result<(), Error> {
    session.run_command("shop", doc! { "insert": "c", "documents": [{}] }).await.map(drop)
}

/// Returns the name of each span with that of its parent.
fn families(spans: &[Captured]) -> Vec<(&str, Option<&str>)> {
    let name = |span: &Captured| spans.iter().find(|it| it.id == span.id).and_then(|it| it.text("otel.name"));
    let of = |span: &Captured| spans.iter().find(|it| Some(it.id) == span.parent).and_then(name);
    spans.iter().map(|span| (name(span).unwrap_or_default(), of(span))).collect()
}

const COMMITTED: [(&str, Option<&str>); 5] = [
    ("transaction", None),
    ("insert shop.c", Some("transaction")),
    ("insert", Some("insert shop.c")),
    ("commitTransaction admin", Some("transaction")),
    ("commitTransaction", Some("commitTransaction admin")),
];
const PING: [(&str, Option<&str>); 2] = [("ping shop", None), ("ping", Some("ping shop"))];

#[test]
fn operations_of_a_transaction_are_spans_within_its_span() {
    let spans = spans_of(ON, |_, client| async move {
        let mut session = client.start_session(ClientSessionOptions::new());
        session.start_transaction(TransactionOptions::new()).expect("none is open");
        insert(&mut session).await.expect("a reply");
        // An operation of another session, and one of a connection.
        run_command(&client, doc! { "ping": 1 }).await.expect("a ping");
        session.commit_transaction().await.expect("committed");
        let mut connection = client.check_out().await.expect("a connection");
        connection.run_command("shop", doc! { "ping": 1 }).await.expect("a ping");
    });
    let [begin, end] = [&COMMITTED[..3], &COMMITTED[3..]];
    assert_eq!(families(&spans), [begin, &PING, end, &PING].concat());
}

#[test]
fn span_of_a_transaction_ends_when_its_outcome_is_known() {
    let spans = Spans::default();
    run(async {
        let (_set, primary, client) = connected(ON).await;
        let _default = spans.subscribe(|_| true);
        let is_open = || spans.taken().iter().rfind(|span| span.name == "transaction").is_some_and(|it| !it.is_closed);
        let mut session = client.start_session(ClientSessionOptions::new());
        // The outcomes of a commit and of an abort without commands are known.
        session.start_transaction(TransactionOptions::new()).expect("none is open");
        assert!(is_open());
        session.commit_transaction().await.expect("nothing is sent");
        assert!(!is_open());
        session.start_transaction(TransactionOptions::new()).expect("none is open");
        session.abort_transaction().await.expect("nothing is sent");
        assert!(!is_open());
        // A commit without a reply is repeated within the same span.
        session.start_transaction(TransactionOptions::new()).expect("none is open");
        insert(&mut session).await.expect("a reply");
        primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["commitTransaction"]).error(50));
        let error = refused(session.commit_transaction().await);
        assert!(error.has_label("UnknownTransactionCommitResult") && is_open(), "{error:?}");
        session.commit_transaction().await.expect("committed");
        assert!(!is_open());
        session.start_transaction(TransactionOptions::new()).expect("none is open");
        insert(&mut session).await.expect("a reply");
        session.abort_transaction().await.expect("aborted");
        assert!(!is_open());
        // The application gives up, and uses the session for another command.
        session.start_transaction(TransactionOptions::new()).expect("none is open");
        insert(&mut session).await.expect("a reply");
        primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["commitTransaction"]).error(50));
        refused(session.commit_transaction().await);
        assert!(is_open());
        session.run_command("shop", doc! { "ping": 1 }).await.expect("a ping");
        assert!(!is_open());
        // A transaction that is refused has no span.
        let count = spans.taken().len();
        refused(session.start_transaction(TransactionOptions::new().write_concern(unacknowledged())));
        assert_eq!(spans.taken().len(), count);
        // A session that is dropped aborts its transaction on another thread.
        session.start_transaction(TransactionOptions::new()).expect("none is open");
        insert(&mut session).await.expect("a reply");
        drop(session);
        client.close().await;
        assert!(!is_open());
    });
    let spans = spans.taken();
    let ends = families(&spans);
    let of_end = |name| ends.iter().filter(|(it, _)| *it == name).map(|(_, of)| *of).collect::<Vec<_>>();
    assert_eq!(of_end("commitTransaction admin"), [Some("transaction"); 3]);
    assert_eq!(of_end("abortTransaction admin"), [Some("transaction")]);
    assert!(spans.iter().all(|span| span.is_closed), "{spans:#?}");
}

#[test]
fn call_of_with_transaction_is_one_span_with_all_attempts() {
    let spans = spans_of(ON, |primary, client| async move {
        let once = FailPoint::new(FailPointMode::Times(1), &["commitTransaction"]);
        primary.set_fail_point(once.clone().error(251).labels(&["TransientTransactionError"]));
        let mut session = client.start_session(ClientSessionOptions::new());
        session.with_transaction(TransactionOptions::new(), insert).await.expect("the second attempt succeeds");
        // The limit of the server has passed: the commit is not repeated, and the span ends with the call.
        primary.set_fail_point(once.error(50));
        refused(session.with_transaction(TransactionOptions::new(), insert).await);
        run_command(&client, doc! { "ping": 1 }).await.expect("a ping");
    });
    let attempt = &COMMITTED[1..];
    assert_eq!(families(&spans), [&COMMITTED[..], attempt, &COMMITTED, &PING].concat());
}
