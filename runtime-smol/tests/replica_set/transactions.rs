//! Transactions, snapshot reads and cursors in explicit sessions: the commands that the servers
//! receive.

use super::support::{
    PATIENCE, client, eventually, known, options, ping, ping_with, refused, run, sent, server_type, still_set,
};
use alloc::sync::Arc;
use bson::{Bson, Document, doc};
use core::future::Future;
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use poolhouse_smol::poolhouse_core::ServerType;
use poolhouse_smol::{
    Client, ClientOptions, ClientSession, ClientSessionOptions, CommandOptions, CursorOptions, Error, ReadMode,
    ReadPreference, SessionCursor, TransactionOptions, W, WriteConcern,
};
use poolhouse_tests::fake::balancer::FakeBalancer;
use poolhouse_tests::fake::mongoses::FakeMongoses;
use poolhouse_tests::fake::replica_set::FakeReplicaSet;
use poolhouse_tests::fake::{FailPoint, FailPointMode, FakeServer, Received};
use poolhouse_tests::patience::Stopwatch;
use smol::future::FutureExt as _;

const UNKNOWN: &str = "UnknownTransactionCommitResult";
const TRANSIENT: &str = "TransientTransactionError";

pub(crate) fn field(received: &Received, name: &str) -> Option<Bson> {
    received.body.as_ref().expect("the command is short").get(name).cloned()
}

/// The names of the fields of a transaction, with their values, in their order.
pub(crate) fn fields(received: &Received) -> Document {
    let names = ["txnNumber", "startTransaction", "autocommit", "readConcern", "writeConcern"];
    let body = received.body.as_ref().expect("the command is short");
    body.iter()
        .filter(|(key, _)| names.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn one() -> Document {
    doc! { "insert": "c", "documents": [{}] }
}

pub(crate) async fn insert(session: &mut ClientSession) -> Result<(), Error> {
    session.run_command("db", one()).await.map(drop)
}

pub(crate) async fn count(client: &Client) -> usize {
    let reply = client.run_command("db", doc! { "find": "c" }).await.expect("a reply");
    reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch")).expect("a batch").len()
}

/// A set with its primary, and a client with these options that knows it.
pub(crate) async fn set_with(change: impl FnOnce(&mut ClientOptions)) -> (FakeReplicaSet, Arc<FakeServer>, Client) {
    let set = still_set();
    let primary = set.server(set.primary().expect("a primary"));
    let mut options = options(&set.uri());
    change(&mut options);
    let client = client(options);
    known(&client, &set).await;
    (set, primary, client)
}

pub(crate) fn session(client: &Client) -> ClientSession {
    client.start_session(ClientSessionOptions::new())
}

pub(crate) fn started(client: &Client) -> ClientSession {
    let mut session = session(client);
    session.start_transaction(TransactionOptions::new()).expect("no transaction is open");
    session
}

pub(crate) fn once(commands: &[&str]) -> FailPoint {
    FailPoint::new(FailPointMode::Times(1), commands)
}

#[test]
fn commands_of_a_transaction_have_its_fields_and_are_visible_after_the_commit() {
    run(async {
        let (set, primary, client) = set_with(|_| {}).await;
        let mut session = session(&client);
        let concern = WriteConcern { w: Some(W::Name("majority".into())), journal: Some(true), w_timeout: None };
        let options = TransactionOptions::new()
            .read_concern_level("snapshot")
            .write_concern(concern)
            .max_commit_time(Duration::from_secs(3));
        session.start_transaction(options).expect("no transaction is open");
        for _ in 0..3 {
            insert(&mut session).await.expect("a reply");
        }
        assert!(session.in_transaction());
        assert_eq!(count(&client).await, 0);
        session.commit_transaction().await.expect("it is committed");
        assert_eq!(count(&client).await, 3);
        let inserts = sent(&primary, "insert");
        let first = doc! { "readConcern": { "level": "snapshot" }, "txnNumber": 1_i64, "startTransaction": true, "autocommit": false };
        let further = doc! { "txnNumber": 1_i64, "autocommit": false };
        assert_eq!(inserts.iter().map(fields).collect::<Vec<_>>(), [first, further.clone(), further]);
        let commit = &sent(&primary, "commitTransaction")[0];
        let concern = doc! { "w": "majority", "j": true };
        let expected = doc! { "writeConcern": concern, "txnNumber": 1_i64, "autocommit": false };
        assert_eq!(fields(commit), expected);
        assert_eq!(field(commit, "maxTimeMS"), Some(3_000_i64.into()));
        assert_eq!(field(commit, "$db"), Some("admin".into()));
        assert!(inserts.iter().all(|insert| field(insert, "lsid") == field(commit, "lsid")));
        // A later write has the next number, and belongs to no transaction.
        insert(&mut session).await.expect("a reply");
        assert_eq!(fields(&sent(&primary, "insert")[3]), doc! { "txnNumber": 2_i64 });
        drop((session, set));
        client.close().await;
    });
}

#[test]
fn concerns_of_the_client_apply_to_transactions_only() {
    run(async {
        let (_set, primary, client) = set_with(|options| {
            options.read_concern_level = Some("majority".into());
            options.write_concern = WriteConcern { w: Some(W::Nodes(2)), ..WriteConcern::default() };
        })
        .await;
        let mut session = started(&client);
        insert(&mut session).await.expect("a reply");
        session.abort_transaction().await.expect("it is open");
        insert(&mut session).await.expect("a reply");
        let inserts = sent(&primary, "insert");
        assert_eq!(field(&inserts[0], "readConcern"), Some(doc! { "level": "majority" }.into()));
        assert_eq!(field(&inserts[1], "readConcern"), None);
        assert_eq!(field(&inserts[1], "writeConcern"), None);
        let abort = &sent(&primary, "abortTransaction")[0];
        assert_eq!(field(abort, "writeConcern"), Some(doc! { "w": 2_i64 }.into()));
        assert_eq!(count(&client).await, 1);
        drop(session);
        client.close().await;
    });
}

#[test]
fn first_command_follows_the_earlier_operations_of_its_session() {
    run(async {
        let (_set, primary, client) = set_with(|_| {}).await;
        let mut state = primary.state();
        state.cluster_time = Some((70, 2));
        primary.set_state(state);
        let mut session = session(&client);
        session.run_command("db", doc! { "ping": 1 }).await.expect("a ping");
        session.start_transaction(TransactionOptions::new()).expect("no transaction is open");
        for _ in 0..2 {
            insert(&mut session).await.expect("a reply");
        }
        session.commit_transaction().await.expect("it is committed");
        let inserts = sent(&primary, "insert");
        let after = bson::Timestamp { time: 70, increment: 2 };
        assert_eq!(field(&inserts[0], "readConcern"), Some(doc! { "afterClusterTime": after }.into()));
        assert_eq!(field(&inserts[1], "readConcern"), None);
        drop(session);
        client.close().await;
    });
}

/// Nothing is sent.
#[test]
fn misuse_is_an_error_of_the_session() {
    run(async {
        let (_set, primary, client) = set_with(|_| {}).await;
        fn refused_by_session<T: core::fmt::Debug>(outcome: Result<T, Error>, text: &str) {
            let error = refused(outcome);
            assert!(matches!(error, Error::Session(_)) && error.to_string().contains(text), "{error}");
        }
        let mut session = session(&client);
        refused_by_session(session.commit_transaction().await, "No transaction started");
        refused_by_session(session.abort_transaction().await, "No transaction started");
        let zero = WriteConcern { w: Some(W::Nodes(0)), ..WriteConcern::default() };
        let outcome = session.start_transaction(TransactionOptions::new().write_concern(zero));
        refused_by_session(outcome, "transactions do not support unacknowledged write concerns");
        session.start_transaction(TransactionOptions::new()).expect("no transaction is open");
        refused_by_session(session.start_transaction(TransactionOptions::new()), "Transaction already in progress");
        let concern = doc! { "insert": "c", "documents": [{}], "writeConcern": { "w": 1 } };
        refused_by_session(session.run_command("db", concern).await, "Cannot set write concern after");
        let concern = doc! { "find": "c", "readConcern": { "level": "local" } };
        refused_by_session(session.run_command("db", concern).await, "Cannot set read concern after");
        let secondary = CommandOptions::new().read_preference(ReadPreference::of(ReadMode::Secondary));
        let text = "read preference in a transaction must be primary";
        refused_by_session(session.run_command_with("db", doc! { "find": "c" }, secondary).await, text);
        session.commit_transaction().await.expect("an empty transaction");
        session.commit_transaction().await.expect("once more");
        refused_by_session(
            session.abort_transaction().await,
            "Cannot call abortTransaction after calling commitTransaction",
        );
        session.start_transaction(TransactionOptions::new()).expect("no transaction is open");
        session.abort_transaction().await.expect("an empty transaction");
        refused_by_session(session.abort_transaction().await, "Cannot call abortTransaction twice");
        refused_by_session(
            session.commit_transaction().await,
            "Cannot call commitTransaction after calling abortTransaction",
        );
        let mut snapshot = client.start_session(ClientSessionOptions::new().snapshot(true));
        let text = "Transactions are not supported in snapshot sessions";
        refused_by_session(snapshot.start_transaction(TransactionOptions::new()), text);
        for name in ["insert", "find", "commitTransaction", "abortTransaction"] {
            assert_eq!(primary.count_of(name), 0, "{name}");
        }
        drop((session, snapshot));
        client.close().await;
    });
}

#[test]
fn commit_is_retried_with_a_majority_whatever_the_options_are() {
    run(async {
        let (set, primary, client) = set_with(|options| {
            (options.retry_reads, options.retry_writes) = (false, false);
            options.write_concern.w_timeout = Some(Duration::from_millis(700));
        })
        .await;
        let mut options = client.options().clone();
        options.timeout = None;
        let unlimited = self::client(options);
        known(&unlimited, &set).await;
        let mut written = 0;
        for (client, point, has_timeout, w_timeout) in [
            (&unlimited, once(&["commitTransaction"]).close(), true, Some(700_i64)),
            (&unlimited, once(&["commitTransaction"]).error(91), false, Some(10_000)),
            // The limit of the operation replaces all others.
            (&client, once(&["commitTransaction"]).close(), true, None),
            (&client, once(&["commitTransaction"]).error(91), false, None),
        ] {
            let mut session = session(client);
            let options = match has_timeout {
                true => TransactionOptions::new(),
                false => TransactionOptions::new().write_concern(WriteConcern::default()),
            };
            session.start_transaction(options).expect("no transaction is open");
            insert(&mut session).await.expect("a reply");
            let before = sent(&primary, "commitTransaction").len();
            primary.set_fail_point(point.clone());
            session.commit_transaction().await.expect("the second attempt succeeds");
            written += 1;
            let commits = sent(&primary, "commitTransaction").split_off(before);
            assert_eq!(commits.len(), 2, "{point:?}");
            assert_eq!(field(&commits[0], "txnNumber"), field(&commits[1], "txnNumber"));
            let mut repeated = doc! { "w": "majority" };
            repeated.extend(w_timeout.map(|limit_ms| ("wtimeout".to_owned(), limit_ms.into())));
            assert_eq!(field(&commits[1], "writeConcern"), Some(repeated.into()), "{point:?}");
            assert_eq!(count(client).await, written);
            known(client, &set).await;
        }
        client.close().await;
        unlimited.close().await;
    });
}

#[test]
fn limits_of_a_commit_are_sent_as_servers_accept_them() {
    run(async {
        // With a time limit of the operation, the shorter one would be sent.
        let (_set, primary, client) = set_with(|options| options.timeout = None).await;
        let mut session = session(&client);
        let day = Duration::from_secs(24 * 60 * 60);
        let cases = [
            (Duration::from_micros(10), Some(1_i64)),
            (Duration::from_micros(2_500), Some(2)),
            (day, Some(86_400_000)),
            (100 * day, None),
        ];
        for (limit, expected) in cases {
            let concern = WriteConcern { w: Some(W::Nodes(1)), w_timeout: Some(limit), ..WriteConcern::default() };
            let options = TransactionOptions::new().write_concern(concern).max_commit_time(limit);
            session.start_transaction(options).expect("no transaction is open");
            insert(&mut session).await.expect("a reply");
            session.commit_transaction().await.expect("it is committed");
            let commit = sent(&primary, "commitTransaction").pop().expect("a commit");
            assert_eq!(field(&commit, "maxTimeMS"), expected.map(Bson::from), "{limit:?}");
            let mut concern = doc! { "w": 1_i64 };
            concern.extend(expected.map(|limit_ms| ("wtimeout".to_owned(), limit_ms.into())));
            assert_eq!(field(&commit, "writeConcern"), Some(concern.into()), "{limit:?}");
        }
        drop(session);
        client.close().await;
    });
}

/// The fake server receives commands of 48 MB at most.
#[test]
fn first_command_that_was_not_sent_is_repeated_as_the_first() {
    run(async {
        let (_set, primary, client) = set_with(|_| {}).await;
        let mut session = started(&client);
        let huge = doc! { "insert": "c", "documents": [{ "text": "x".repeat(49_000_000) }] };
        let error = refused(session.run_command("db", huge).await);
        assert!(matches!(error, Error::Operation(..)), "{error:?}");
        assert!(session.in_transaction());
        insert(&mut session).await.expect("a reply");
        session.commit_transaction().await.expect("it is committed");
        let inserts = sent(&primary, "insert");
        assert_eq!(inserts.len(), 1);
        assert_eq!(field(&inserts[0], "startTransaction"), Some(true.into()));
        drop(session);
        client.close().await;
    });
}

#[test]
fn failed_commits_have_the_label_of_an_unknown_result() {
    run(async {
        // One retry, not as many as the limit permits.
        let (set, primary, client) = set_with(|options| options.timeout = None).await;
        let concern = |code: i32| doc! { "code": code, "errmsg": "late" };
        let always = || FailPoint::new(FailPointMode::AlwaysOn, &["commitTransaction"]);
        let cases = [
            (always().close(), true),
            (always().error(91), true),
            (always().error(50), true),
            (always().error(251), false),
            (always().write_concern_error(concern(64)), true),
            (always().write_concern_error(concern(79)), false),
            (always().write_concern_error(concern(100)), false),
        ];
        for (point, is_unknown) in cases {
            known(&client, &set).await;
            let mut session = started(&client);
            insert(&mut session).await.expect("a reply");
            primary.set_fail_point(point.clone());
            let error = refused(session.commit_transaction().await);
            assert_eq!(error.has_label(UNKNOWN), is_unknown, "{point:?}: {error:?}");
            // NoSuchTransaction: the server's label.
            assert_eq!(error.has_label(TRANSIENT), error.code() == Some(251), "{point:?}: {error:?}");
            primary.set_fail_point(FailPoint::new(FailPointMode::Off, &[]));
            known(&client, &set).await;
            session.commit_transaction().await.expect("it can be repeated");
        }
        client.close().await;
    });
}

#[test]
fn direct_connection_adds_no_read_preference_in_a_transaction() {
    run(async {
        let (set, primary, other) = set_with(|_| {}).await;
        other.close().await;
        let client = client(options(&format!("mongodb://{}/?directConnection=true", primary.address())));
        let mut session = session(&client);
        insert(&mut session).await.expect("a reply");
        session.start_transaction(TransactionOptions::new()).expect("no transaction is open");
        insert(&mut session).await.expect("a reply");
        session.commit_transaction().await.expect("it is committed");
        let mode = doc! { "mode": "primaryPreferred" };
        let sent: Vec<_> = sent(&primary, "insert").iter().map(|it| field(it, "$readPreference")).collect();
        assert_eq!(sent, [Some(mode.into()), None]);
        drop((session, set));
        client.close().await;
    });
}

/// The refusal of a repeated commit does not state the outcome of the first one.
#[test]
fn refusal_of_a_repeated_commit_has_the_label_of_an_unknown_result() {
    run(async {
        let change = |options: &mut ClientOptions| (options.max_adaptive_retries, options.timeout) = (0, None);
        let (set, primary, client) = set_with(change).await;
        let mut session = started(&client);
        insert(&mut session).await.expect("a reply");
        primary.set_fail_point(overloaded("commitTransaction"));
        assert!(!refused(session.commit_transaction().await).has_label(UNKNOWN), "no commit was executed");
        primary.set_fail_point(FailPoint::new(FailPointMode::Times(2), &["commitTransaction"]).close());
        assert!(refused(session.commit_transaction().await).has_label(UNKNOWN));
        known(&client, &set).await;
        primary.set_fail_point(overloaded("commitTransaction"));
        let error = refused(session.commit_transaction().await);
        assert!(error.is_overload() && error.has_label(UNKNOWN), "{error:?}");
        session.commit_transaction().await.expect("it can be repeated");
        drop(session);
        client.close().await;
    });
}

/// A command is not retried, although it would be outside of a transaction.
#[test]
fn commands_that_get_no_reply_have_the_label_of_a_transient_error() {
    run(async {
        let (set, primary, client) = set_with(|_| {}).await;
        for command in [one(), doc! { "find": "c" }] {
            known(&client, &set).await;
            let name = command.keys().next().expect("a command").as_str();
            let before = sent(&primary, name).len();
            let mut session = started(&client);
            primary.set_fail_point(once(&[name]).close());
            let idempotent = CommandOptions::new().idempotent(true);
            let error = refused(session.run_command_with("db", command.clone(), idempotent).await);
            assert!(matches!(error, Error::Operation(..)) && error.has_label(TRANSIENT), "{error:?}");
            assert_eq!(sent(&primary, name).len() - before, 1, "{command}");
            known(&client, &set).await;
            session.abort_transaction().await.expect("it is open");
        }
        primary.set_fail_point(once(&["insert"]).error(11_000));
        let mut session = started(&client);
        let error = refused(insert(&mut session).await);
        assert!(matches!(error, Error::Command(_)) && !error.has_label(TRANSIENT), "{error:?}");
        drop(session);
        client.close().await;
    });
}

#[test]
fn errors_of_an_abort_are_ignored_after_one_retry() {
    run(async {
        let (set, primary, client) = set_with(|options| options.timeout = None).await;
        for (point, attempts) in [(91, 2), (11_601, 1)] {
            known(&client, &set).await;
            let before = sent(&primary, "abortTransaction").len();
            let mut session = started(&client);
            insert(&mut session).await.expect("a reply");
            primary.set_fail_point(FailPoint::new(FailPointMode::AlwaysOn, &["abortTransaction"]).error(point));
            session.abort_transaction().await.expect("errors are ignored");
            primary.set_fail_point(FailPoint::new(FailPointMode::Off, &[]));
            assert_eq!(sent(&primary, "abortTransaction").len() - before, attempts, "{point}");
            assert!(!session.in_transaction());
        }
        client.close().await;
    });
}

#[test]
fn dropped_session_aborts_its_transaction_in_the_background() {
    run(async {
        let (_set, primary, client) = set_with(|_| {}).await;
        let empty = started(&client);
        drop(empty);
        let mut session = started(&client);
        insert(&mut session).await.expect("a reply");
        drop(session);
        eventually("it is aborted", || primary.count_of("abortTransaction") == 1).await;
        assert_eq!(count(&client).await, 0);
        client.close().await;
    });
}

/// Polls a future once, and drops it.
pub(crate) async fn poll_once(future: impl Future) {
    let mut future = pin!(future);
    core::future::poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

/// The only connection is in use, so the abort is not sent before its future is dropped.
#[test]
fn dropped_abort_is_sent_when_its_session_is_dropped() {
    run(async {
        let (_set, primary, client) = set_with(|options| options.pool.max_pool_size = 1).await;
        let mut session = started(&client);
        insert(&mut session).await.expect("a reply");
        let connection = client.check_out().await.expect("a connection");
        poll_once(session.abort_transaction()).await;
        drop(session);
        assert_eq!(primary.count_of("abortTransaction"), 0);
        drop(connection);
        eventually("it is aborted", || primary.count_of("abortTransaction") == 1).await;
        client.close().await;
    });
}

#[test]
fn with_transaction_repeats_it_after_a_transient_error() {
    run(async {
        let (set, primary, client) = set_with(|_| {}).await;
        let transient = || once(&["insert"]).error(112).labels(&[TRANSIENT]);
        for point in
            [transient(), once(&["insert"]).close(), once(&["commitTransaction"]).error(251).labels(&[TRANSIENT])]
        {
            known(&client, &set).await;
            let before = count(&client).await;
            let mut session = session(&client);
            primary.set_fail_point(point.clone());
            let mut calls = 0;
            let work = async |session: &mut ClientSession| {
                calls += 1;
                insert(session).await?;
                if calls == 1 {
                    known(&client, &set).await;
                }
                insert(session).await?;
                Ok::<_, Error>(7)
            };
            let value = session.with_transaction(TransactionOptions::new(), work).await.expect("the second succeeds");
            assert_eq!((value, calls), (7, 2), "{point:?}");
            assert_eq!(count(&client).await - before, 2, "{point:?}");
        }
        client.close().await;
    });
}

#[test]
fn with_transaction_repeats_a_commit_with_an_unknown_result() {
    run(async {
        let (_set, primary, client) = set_with(|_| {}).await;
        let late = doc! { "code": 64, "errmsg": "late" };
        let point = FailPoint::new(FailPointMode::Times(3), &["commitTransaction"]).write_concern_error(late);
        primary.set_fail_point(point);
        let mut calls = 0;
        let work = async |session: &mut ClientSession| {
            calls += 1;
            insert(session).await
        };
        session(&client).with_transaction(TransactionOptions::new(), work).await.expect("the fourth succeeds");
        assert_eq!((calls, primary.count_of("commitTransaction")), (1, 4));
        assert_eq!(count(&client).await, 1);

        // The server was slower than `maxTimeMS`: another attempt would be too.
        primary.set_fail_point(once(&["commitTransaction"]).error(50));
        let outcome = session(&client).with_transaction(TransactionOptions::new(), insert).await;
        assert_eq!(refused(outcome).code(), Some(50));
        assert_eq!(primary.count_of("commitTransaction"), 5);
        client.close().await;
    });
}

/// A commit that fails at once is not repeated at once.
#[test]
fn with_transaction_pauses_before_it_repeats_a_commit() {
    run(async {
        let limit = Duration::from_millis(500);
        let (_set, primary, client) = set_with(|options| options.timeout = Some(limit)).await;
        let late = doc! { "code": 64, "errmsg": "late" };
        let point = FailPoint::new(FailPointMode::AlwaysOn, &["commitTransaction"]).write_concern_error(late);
        primary.set_fail_point(point);
        let (mut commits, mut before) = (0, 0);
        // On a machine that stalls, the limit may pass before the second commit.
        while commits < 2 {
            let outcome = session(&client).with_transaction(TransactionOptions::new(), insert).await;
            let error = refused(outcome);
            commits = primary.count_of("commitTransaction") - before;
            before += commits;
            assert!(commits < 2 || error.has_label(UNKNOWN), "{error:?}");
        }
        // The limits of the pauses are 5, 7.5, 11.25 ms and so on: about twelve fit into half a second.
        assert!(commits < 60, "{commits} commits");
        client.close().await;
    });
}

#[derive(Debug, PartialEq)]
enum Failure {
    Mine,
    Other,
}

impl From<Error> for Failure {
    fn from(_: Error) -> Self {
        Self::Other
    }
}

#[test]
fn with_transaction_returns_other_errors_and_accepts_an_own_end() {
    run(async {
        let (_set, primary, client) = set_with(|_| {}).await;
        let mut session = session(&client);
        let mut calls = 0;
        let work = async |session: &mut ClientSession| {
            calls += 1;
            insert(session).await?;
            Err::<(), _>(Failure::Mine)
        };
        assert_eq!(session.with_transaction(TransactionOptions::new(), work).await, Err(Failure::Mine));
        assert_eq!((calls, primary.count_of("abortTransaction")), (1, 1));
        let work = async |session: &mut ClientSession| {
            insert(session).await?;
            session.abort_transaction().await
        };
        session.with_transaction(TransactionOptions::new(), work).await.expect("an own end");
        assert_eq!((primary.count_of("abortTransaction"), primary.count_of("commitTransaction")), (2, 0));
        assert_eq!(count(&client).await, 0);
        drop(session);
        client.close().await;
    });
}

/// The error of an earlier command is no reason to repeat a transaction that was committed, or a
/// failure after further commands.
#[test]
fn with_transaction_repeats_it_only_if_its_last_command_was_transient() {
    run(async {
        let (_set, primary, client) = set_with(|_| {}).await;
        let transient = || once(&["insert"]).error(112).labels(&[TRANSIENT]);
        let mut calls = 0;
        let work = async |session: &mut ClientSession| {
            calls += 1;
            insert(session).await?;
            primary.set_fail_point(transient());
            refused(insert(session).await);
            session.run_command("db", doc! { "find": "c" }).await?;
            Err::<(), _>(Failure::Mine)
        };
        assert_eq!(session(&client).with_transaction(TransactionOptions::new(), work).await, Err(Failure::Mine));
        let work = async |session: &mut ClientSession| {
            calls += 1;
            insert(session).await?;
            primary.set_fail_point(transient());
            refused(insert(session).await);
            session.commit_transaction().await?;
            Err::<(), _>(Failure::Mine)
        };
        let outcome = session(&client).with_transaction(TransactionOptions::new(), work).await;
        assert_eq!(outcome, Err(Failure::Mine));
        // The connection of the abort fails.
        let work = async |session: &mut ClientSession| {
            calls += 1;
            insert(session).await?;
            primary.set_fail_point(FailPoint::new(FailPointMode::Times(2), &["abortTransaction"]).close());
            session.abort_transaction().await?;
            Err::<(), _>(Failure::Mine)
        };
        assert_eq!(session(&client).with_transaction(TransactionOptions::new(), work).await, Err(Failure::Mine));
        assert_eq!(calls, 3);
        client.close().await;
    });
}

#[test]
fn with_transaction_ends_at_the_time_limit_of_the_client() {
    run(async {
        let limit = Duration::from_millis(300);
        let (_set, primary, client) = set_with(|options| options.timeout = Some(limit)).await;
        let labels = [TRANSIENT];
        primary.set_fail_point(FailPoint::new(FailPointMode::AlwaysOn, &["insert"]).error(112).labels(&labels));
        let (mut inserts, mut before) = (0, 0);
        // On a machine that stalls, the limit may pass before the third attempt.
        while inserts < 3 {
            let begun = Stopwatch::start();
            let outcome = session(&client).with_transaction(TransactionOptions::new(), insert).await;
            assert!(refused(outcome).has_label(TRANSIENT));
            begun.assert_below(Duration::from_secs(10));
            inserts = primary.count_of("insert") - before;
            before += inserts;
        }
        client.close().await;
    });
}

/// Nothing is sent. Without a time limit of the client, a command may have one of its own.
#[test]
fn command_in_with_transaction_has_no_time_limit_of_its_own() {
    run(async {
        let own = CommandOptions::new().timeout(PATIENCE);
        let mut with_own =
            async |session: &mut ClientSession| session.run_command_with("db", one(), own).await.map(drop);
        let (_set, primary, client) = set_with(|options| options.timeout = Some(PATIENCE)).await;
        let error = refused(session(&client).with_transaction(TransactionOptions::new(), &mut with_own).await);
        assert!(matches!(&error, Error::Session(what) if what.contains("time limit")), "{error:?}");
        assert_eq!(primary.count_of("insert"), 0);
        client.close().await;
        let (_set, _primary, client) = set_with(|options| options.timeout = None).await;
        session(&client).with_transaction(TransactionOptions::new(), with_own).await.expect("it commits");
        assert_eq!(count(&client).await, 1);
        client.close().await;
    });
}

#[test]
fn nested_with_transaction_leaves_the_time_limit_of_the_outer_one() {
    run(async {
        let limit = Duration::from_secs(60);
        let (_set, primary, client) = set_with(|options| options.timeout = Some(limit)).await;
        let work = async |session: &mut ClientSession| {
            smol::Timer::after(Duration::from_secs(1)).await;
            let nested = session.with_transaction(TransactionOptions::new(), insert).await;
            assert!(matches!(refused(nested), Error::Session(_)));
            insert(session).await
        };
        session(&client).with_transaction(TransactionOptions::new(), work).await.expect("it commits");
        for name in ["insert", "commitTransaction"] {
            let [command] = &sent(&primary, name)[..] else { panic!("one {name}") };
            let rest_ms = field(command, "maxTimeMS").and_then(|time| time.as_i64());
            assert!(rest_ms.is_some_and(|rest_ms| rest_ms <= 59_000), "{name}: {rest_ms:?}");
        }
        client.close().await;
    });
}

/// Client Side Operations Timeout, "Retryability": with the last error as its cause.
#[test]
fn with_transaction_without_time_for_a_repetition_ends_with_a_timeout() {
    run(async {
        let limit = Duration::from_secs(1);
        let (_set, primary, client) = set_with(|options| options.timeout = Some(limit)).await;
        for (command, code, label) in [("insert", 112, TRANSIENT), ("commitTransaction", 64, UNKNOWN)] {
            primary.set_fail_point(FailPoint::new(FailPointMode::AlwaysOn, &[command]).error(code).labels(&[label]));
            let error = refused(session(&client).with_transaction(TransactionOptions::new(), insert).await);
            assert!(error.is_timeout() && error.has_label(label), "{error:?}");
            // The end of the limit itself has no code.
            assert!(error.code().is_none_or(|found| found == code), "{error:?}");
            assert!(primary.count_of(command) > 1, "{command}");
            primary.clear_fail_points();
        }
        client.close().await;
    });
}

#[test]
fn cursor_has_the_time_limit_of_with_transaction() {
    run(async {
        let limit = Duration::from_secs(3);
        let (_set, primary, client) = set_with(|options| options.timeout = Some(limit)).await;
        filled(&client).await;
        primary.set_fail_point(once(&["getMore"]).block(Duration::from_secs(20)));
        let begun = Stopwatch::start();
        let work = async |session: &mut ClientSession| {
            smol::Timer::after(Duration::from_secs(2)).await;
            let find = doc! { "find": "c", "batchSize": 3 };
            let (options, of_cursor) = (CommandOptions::new(), CursorOptions::new());
            let mut cursor: SessionCursor = session.run_cursor_command("db", find, options, of_cursor).await?;
            while cursor.try_next(session).await?.is_some() {}
            panic!("the request for a batch ended after the limit");
        };
        let outcome: Result<(), Error> = session(&client).with_transaction(TransactionOptions::new(), work).await;
        let error = refused(outcome);
        // A limit of the cursor would end after 5 s.
        begun.assert_below(Duration::from_millis(4_900));
        assert!(error.is_timeout(), "{error:?}");
        client.close().await;
    });
}

#[test]
fn dropped_with_transaction_leaves_no_time_limit() {
    run(async {
        let limit = Duration::from_millis(1_500);
        let (_set, _primary, client) = set_with(|options| options.timeout = Some(limit)).await;
        let mut session = session(&client);
        let begun = std::time::Instant::now();
        let work = async |session: &mut ClientSession| {
            insert(session).await?;
            smol::future::pending::<Result<(), Error>>().await
        };
        let end = async {
            smol::Timer::at(begun + limit).await;
            Ok(())
        };
        session.with_transaction(TransactionOptions::new(), work).or(end).await.expect("it is dropped");
        assert!(session.in_transaction());
        session.commit_transaction().await.expect("it has a limit of its own");
        assert_eq!(count(&client).await, 1);
        drop(session);
        client.close().await;
    });
}

/// The whole call may run on an executor with several threads.
#[test]
fn with_transaction_can_be_spawned() {
    run(async {
        let (_set, _primary, client) = set_with(|_| {}).await;
        let task = smol::spawn({
            let client = client.clone();
            async move {
                let mut session = client.start_session(ClientSessionOptions::new());
                session.with_transaction(TransactionOptions::new(), insert).await
            }
        });
        task.await.expect("it is committed");
        assert_eq!(count(&client).await, 1);
        client.close().await;
    });
}

/// A closure with captures too, if it owns them.
#[test]
fn with_transaction_of_a_closure_that_owns_its_captures_can_be_spawned() {
    async fn insert_both(client: &Client, ids: &[i32]) -> Result<usize, Error> {
        let ids = ids.to_vec();
        let work = async move |session: &mut ClientSession| {
            for id in &ids {
                session.run_command("db", doc! { "insert": "c", "documents": [{ "_id": id }] }).await?;
            }
            Ok::<_, Error>(ids.len())
        };
        session(client).with_transaction(TransactionOptions::new(), work).await
    }

    run(async {
        let (_set, primary, client) = set_with(|_| {}).await;
        // The whole is repeated after a transient error, so the closure is called twice.
        primary.set_fail_point(once(&["commitTransaction"]).error(251).labels(&["TransientTransactionError"]));
        let task = smol::spawn({
            let client = client.clone();
            async move { insert_both(&client, &[1, 2]).await }
        });
        assert_eq!(task.await.expect("it is committed"), 2);
        assert_eq!(count(&client).await, 2);
        assert_eq!(sent(&primary, "insert").len(), 4);
        client.close().await;
    });
}

/// A loop may borrow in a task that is spawned, where the compiler refuses a closure that does.
#[test]
fn attempts_that_borrow_can_be_spawned() {
    async fn add(session: &mut ClientSession, name: &str, documents: &[Document]) -> Result<usize, Error> {
        for document in documents {
            let named = doc! { "_id": document.get_i32("_id").expect("an id"), "name": name };
            session.run_command("db", doc! { "insert": "c", "documents": [named] }).await?;
        }
        Ok(documents.len())
    }

    async fn add_all(client: &Client, name: &str, documents: &[Document]) -> Result<usize, Error> {
        let mut session = session(client);
        let mut attempts = session.transaction_attempts(TransactionOptions::new());
        loop {
            let outcome = add(attempts.begin()?, name, documents).await;
            if let Some(value) = attempts.end(outcome).await? {
                return Ok(value);
            }
        }
    }

    run(async {
        let (_set, primary, client) = set_with(|_| {}).await;
        primary.set_fail_point(once(&["commitTransaction"]).error(251).labels(&[TRANSIENT]));
        let task = smol::spawn({
            let client = client.clone();
            async move {
                let (name, documents) = (String::from("tea"), vec![doc! { "_id": 1 }, doc! { "_id": 2 }]);
                add_all(&client, &name, &documents).await
            }
        });
        assert_eq!(task.await.expect("it is committed"), 2);
        assert_eq!(count(&client).await, 2);
        assert_eq!(sent(&primary, "insert").len(), 4, "the whole was repeated");
        client.close().await;
    });
}

#[test]
fn attempt_that_was_not_ended_is_left_open_without_its_limit() {
    run(async {
        let (_set, primary, client) = set_with(|_| {}).await;
        let mut session = session(&client);
        let limited = TransactionOptions::new().timeout(PATIENCE);
        let mut attempts = session.transaction_attempts(limited.clone());
        insert(attempts.begin().expect("no transaction is open")).await.expect("a reply");
        assert!(matches!(refused(attempts.begin().map(drop)), Error::Session(_)));
        drop(attempts);
        assert!(session.in_transaction());
        let own = CommandOptions::new().timeout(PATIENCE);
        session.run_command_with("db", one(), own).await.expect("it may have a limit of its own");
        session.abort_transaction().await.expect("it is open");

        let mut attempts = session.transaction_attempts(limited);
        insert(attempts.begin().expect("no transaction is open")).await.expect("a reply");
        assert_eq!(attempts.end(Err::<(), _>(Failure::Mine)).await, Err(Failure::Mine));
        assert_eq!(primary.count_of("abortTransaction"), 2);
        drop(attempts);
        drop(session);
        client.close().await;
    });
}

#[test]
fn end_without_an_attempt_ends_no_transaction() {
    run(async {
        let (_set, primary, client) = set_with(|_| {}).await;
        let mut session = started(&client);
        insert(&mut session).await.expect("a reply");
        let mut attempts = session.transaction_attempts(TransactionOptions::new());
        let error = refused(attempts.begin().map(drop));
        assert!(matches!(refused(attempts.end(Err::<(), _>(error)).await), Error::Session(_)));
        assert!(matches!(refused(attempts.end(Ok::<_, Error>(7)).await), Error::Session(_)));
        drop(attempts);
        assert!(session.in_transaction());
        assert_eq!((primary.count_of("commitTransaction"), primary.count_of("abortTransaction")), (0, 0));
        session.commit_transaction().await.expect("it is committed");

        // Nor does it repeat one that has failed before.
        primary.set_fail_point(once(&["insert"]).error(112));
        session.start_transaction(TransactionOptions::new()).expect("no transaction is open");
        assert!(refused(insert(&mut session).await).has_label(TRANSIENT));
        session.abort_transaction().await.expect("it is open");
        let mut attempts = session.transaction_attempts(TransactionOptions::new());
        assert_eq!(attempts.end(Err::<(), _>(Failure::Mine)).await, Err(Failure::Mine));
        drop(attempts);
        drop(session);
        client.close().await;
    });
}

/// Client Side Operations Timeout, "Sessions".
#[test]
fn limit_of_a_commit_or_an_abort_replaces_that_of_the_transaction() {
    run(async {
        let short = Duration::from_millis(300);
        let (_set, primary, client) = set_with(|_| {}).await;
        let mut session = session(&client);
        let limited = TransactionOptions::new().timeout(short);
        for own in [PATIENCE, Duration::ZERO, Duration::MAX] {
            for name in ["commitTransaction", "abortTransaction"] {
                session.start_transaction(limited.clone()).expect("the previous one has ended");
                insert(&mut session).await.expect("a reply");
                primary.set_fail_point(once(&[name]).block(short * 2));
                let begun = std::time::Instant::now();
                if name == "commitTransaction" {
                    session.commit_transaction_within(own).await.expect("it is committed in time");
                } else {
                    session.abort_transaction_within(own).await.expect("it is open");
                }
                assert!(begun.elapsed() >= short * 2, "{name} within {own:?}: {:?}", begun.elapsed());
                let rest_ms = field(sent(&primary, name).last().expect("a command"), "maxTimeMS");
                let rest_ms = rest_ms.and_then(|rest_ms| rest_ms.as_i64());
                assert_eq!(rest_ms.is_some_and(|rest_ms| rest_ms > 300), own == PATIENCE, "{name}: {rest_ms:?}");
                assert!(own == PATIENCE || rest_ms.is_none(), "{name}: {rest_ms:?}");
            }
        }
        // It replaces `wtimeout`, and an empty write concern is not sent.
        let concern = WriteConcern { w: None, journal: None, w_timeout: Some(short) };
        session.start_transaction(limited.write_concern(concern)).expect("the previous one has ended");
        insert(&mut session).await.expect("a reply");
        session.commit_transaction_within(PATIENCE).await.expect("it is committed");
        assert_eq!(field(sent(&primary, "commitTransaction").last().expect("a command"), "writeConcern"), None);
        session.start_transaction(TransactionOptions::new()).expect("the previous one has ended");
        insert(&mut session).await.expect("a reply");
        primary.set_fail_point(once(&["commitTransaction"]).block(short));
        let error = refused(session.commit_transaction_within(short / 3).await);
        assert!(error.is_timeout() && error.has_label(UNKNOWN), "{error:?}");
        session.commit_transaction_within(PATIENCE).await.expect("it is repeated");

        // In `with_transaction`, the limit of the whole applies. Nothing is sent.
        let counts = || (primary.count_of("commitTransaction"), primary.count_of("abortTransaction"));
        let before = counts();
        let work = async |session: &mut ClientSession| {
            let refusals = [
                refused(session.commit_transaction_within(PATIENCE).await),
                refused(session.abort_transaction_within(PATIENCE).await),
            ];
            for error in refusals {
                assert!(matches!(&error, Error::Session(what) if what.contains("time limit")), "{error:?}");
            }
            assert!(session.in_transaction());
            insert(session).await
        };
        session.with_transaction(TransactionOptions::new().timeout(PATIENCE), work).await.expect("it commits");
        assert_eq!(counts(), (before.0 + 1, before.1));
        drop(session);
        client.close().await;
    });
}

/// Routers of a cluster, and a client that uses all of them.
async fn cluster(count: usize) -> (FakeMongoses, Client) {
    let routers = FakeMongoses::start(count).expect("they start");
    let mut options = options(&routers.uri());
    options.local_threshold = Duration::from_secs(5);
    let client = client(options);
    eventually("all routers are known", || {
        routers.servers().iter().all(|router| server_type(&client, router) == ServerType::Mongos)
    })
    .await;
    (routers, client)
}

fn counts(routers: &FakeMongoses, name: &str) -> Vec<u64> {
    routers.servers().iter().map(|router| router.count_of(name)).collect()
}

#[test]
fn transaction_is_pinned_to_its_router_until_another_one_starts() {
    run(async {
        let (routers, client) = cluster(3).await;
        let mut used = [false; 3];
        let mut session = session(&client);
        for _ in 0..30 {
            let before = (counts(&routers, "insert"), counts(&routers, "commitTransaction"));
            session.start_transaction(TransactionOptions::new()).expect("the previous one is committed");
            for _ in 0..5 {
                insert(&mut session).await.expect("a reply");
            }
            session.commit_transaction().await.expect("it is committed");
            session.commit_transaction().await.expect("once more");
            let after = (counts(&routers, "insert"), counts(&routers, "commitTransaction"));
            let router = (0..3).find(|router| after.0[*router] > before.0[*router]).expect("one of them");
            assert_eq!((after.0[router] - before.0[router], after.1[router] - before.1[router]), (5, 2));
            used[router] = true;
        }
        assert_eq!(used, [true; 3], "each transaction selects its router");
        let commits: Vec<_> = routers.servers().iter().flat_map(|router| sent(router, "commitTransaction")).collect();
        let token = Some(doc! { "recoveryShardId": "shard0" }.into());
        assert!(commits.iter().all(|commit| field(commit, "recoveryToken") == token), "{commits:?}");
        drop(session);
        client.close().await;
    });
}

#[test]
fn commit_whose_router_fails_is_repeated_on_another_router_with_the_token() {
    run(async {
        let (routers, client) = cluster(2).await;
        for _ in 0..10 {
            let before = counts(&routers, "insert");
            let mut session = started(&client);
            insert(&mut session).await.expect("a reply");
            let after = counts(&routers, "insert");
            let router = usize::from(after[1] > before[1]);
            let commits = counts(&routers, "commitTransaction");
            routers.server(router).set_fail_point(once(&["commitTransaction"]).close());
            session.commit_transaction().await.expect("the other router has the token");
            let found = counts(&routers, "commitTransaction");
            assert_eq!([found[0] - commits[0], found[1] - commits[1]], [1, 1]);
            let last = sent(routers.server(1 - router), "commitTransaction").pop().expect("a commit");
            assert!(field(&last, "recoveryToken").is_some());
            eventually("both are known", || {
                routers.servers().iter().all(|router| server_type(&client, router) == ServerType::Mongos)
            })
            .await;
        }
        client.close().await;
    });
}

#[test]
fn transaction_leaves_its_router_after_a_transient_error() {
    run(async {
        let (routers, client) = cluster(2).await;
        let mut elsewhere = 0;
        for _ in 0..20 {
            let before = counts(&routers, "insert");
            let mut session = started(&client);
            insert(&mut session).await.expect("a reply");
            let router = usize::from(counts(&routers, "insert")[1] > before[1]);
            routers.server(router).set_fail_point(once(&["insert"]).error(112).labels(&[TRANSIENT]));
            assert!(refused(insert(&mut session).await).has_label(TRANSIENT));
            let before = counts(&routers, "abortTransaction");
            session.abort_transaction().await.expect("it is open");
            let after = counts(&routers, "abortTransaction");
            elsewhere += u32::from(after[1 - router] > before[1 - router]);
        }
        assert!(elsewhere > 0, "the abort selects a router");
        client.close().await;
    });
}

/// A balancer with two services, of which each connection reaches the next one.
pub(crate) fn balanced(max_pool_size: u32) -> (FakeBalancer, Client) {
    let balancer = FakeBalancer::start(2).expect("it starts");
    let mut options = options(&balancer.uri());
    options.pool.max_pool_size = max_pool_size;
    (balancer, client(options))
}

pub(crate) fn in_use(client: &Client) -> u32 {
    client.servers()[0].pool.counts.in_use
}

#[test]
fn transaction_behind_a_load_balancer_keeps_its_connection() {
    run(async {
        let (balancer, client) = balanced(10);
        let mut session = started(&client);
        insert(&mut session).await.expect("a reply");
        assert_eq!(in_use(&client), 1);
        for _ in 0..5 {
            ping(&client).await.expect("a ping on another connection");
            insert(&mut session).await.expect("a reply");
        }
        session.commit_transaction().await.expect("it is committed");
        assert_eq!(in_use(&client), 1, "the commit may be repeated");
        session.commit_transaction().await.expect("once more");
        let each: Vec<_> =
            balancer.backends().iter().map(|it| (it.count_of("insert"), it.count_of("commitTransaction"))).collect();
        assert!(each.contains(&(6, 2)) && each.contains(&(0, 0)), "{each:?}");
        session.run_command("db", doc! { "ping": 1 }).await.expect("outside of the transaction");
        assert_eq!(in_use(&client), 0);

        session.start_transaction(TransactionOptions::new()).expect("no transaction is open");
        insert(&mut session).await.expect("a reply");
        session.abort_transaction().await.expect("it is open");
        assert_eq!(in_use(&client), 0);
        session.start_transaction(TransactionOptions::new()).expect("no transaction is open");
        insert(&mut session).await.expect("a reply");
        drop(session);
        eventually("the connection is returned", || in_use(&client) == 0).await;
        client.close().await;
    });
}

/// Load Balancers, "Behaviour With Transactions".
#[test]
fn connection_of_a_commit_that_was_repeated_after_a_network_error_is_returned() {
    run(async {
        let (balancer, client) = balanced(10);
        let mut session = started(&client);
        insert(&mut session).await.expect("a reply");
        for backend in balancer.backends() {
            backend.set_fail_point(once(&["commitTransaction"]).close());
        }
        // The next attempt may be the first on the other backend.
        session.commit_transaction().await.expect("a later attempt succeeds");
        let commits: u64 = balancer.backends().iter().map(|it| it.count_of("commitTransaction")).sum();
        assert!((2..=3).contains(&commits), "{commits}");
        assert_eq!(in_use(&client), 0);
        session.commit_transaction().await.expect("once more");
        assert_eq!(in_use(&client), 0);
        drop(session);
        client.close().await;
    });
}

/// With a pool of one connection, a command outside of the transaction can have no other.
#[test]
fn connection_of_a_committed_transaction_is_returned_before_the_next_command() {
    run(async {
        let (_balancer, client) = balanced(1);
        let mut session = started(&client);
        insert(&mut session).await.expect("a reply");
        session.commit_transaction().await.expect("it is committed");
        session.run_command("db", doc! { "ping": 1 }).await.expect("a ping");
        for _ in 0..2 {
            session.start_transaction(TransactionOptions::new()).expect("the previous one is committed");
            insert(&mut session).await.expect("a reply");
            session.commit_transaction().await.expect("it is committed");
        }
        drop(session);
        client.close().await;
    });
}

fn overloaded(command: &str) -> FailPoint {
    once(&[command]).error(462).labels(&["SystemOverloadedError", "RetryableError"])
}

#[test]
fn error_of_the_client_leaves_its_connection_to_the_transaction() {
    run(async {
        let (balancer, client) = balanced(10);
        let mut session = started(&client);
        insert(&mut session).await.expect("a reply");
        let own = doc! { "ping": 1, "lsid": {} };
        assert!(matches!(refused(session.run_command("db", own).await), Error::Session(_)));
        assert_eq!(in_use(&client), 1);
        for backend in balancer.backends() {
            backend.set_fail_point(once(&["find"]).reply(doc! { "ok": 1 }));
        }
        let (find, options) = (doc! { "find": "c" }, CommandOptions::new());
        let outcome = session.run_cursor_command::<Document>("db", find, options, CursorOptions::new()).await;
        assert!(matches!(refused(outcome), Error::Cursor(_)));
        assert_eq!(in_use(&client), 1);
        session.commit_transaction().await.expect("it is committed");
        drop(session);
        client.close().await;
    });
}

/// A command that is dropped after 20 ms is in the pause before its second attempt, or was not
/// answered yet: then its connection is lost.
#[test]
fn command_that_is_dropped_in_a_pause_leaves_its_connection_to_the_transaction() {
    run(async {
        let (balancer, client) = balanced(1);
        let mut is_kept = false;
        for _ in 0..20 {
            let mut session = started(&client);
            insert(&mut session).await.expect("a reply");
            for backend in balancer.backends() {
                backend.set_fail_point(overloaded("insert"));
            }
            let limit = async {
                smol::Timer::after(Duration::from_millis(20)).await;
                true
            };
            let is_dropped = async { insert(&mut session).await.is_err() }.or(limit).await;
            for backend in balancer.backends() {
                backend.set_fail_point(FailPoint::new(FailPointMode::Off, &[]));
            }
            let other = ping_with(&client, CommandOptions::new().timeout(Duration::from_millis(100))).await;
            is_kept |= is_dropped && other.is_err();
            drop(session);
            eventually("the connection is returned", || in_use(&client) == 0).await;
            if is_kept {
                break;
            }
        }
        assert!(is_kept, "no other command has its connection");
        client.close().await;
    });
}

pub(crate) async fn filled(client: &Client) {
    let documents: Vec<_> = (0..10).map(|id| doc! { "_id": id }).collect();
    client.run_command("db", doc! { "insert": "c", "documents": documents }).await.expect("a reply");
}

#[test]
fn cursors_behind_a_load_balancer_keep_their_connections() {
    run(async {
        let (balancer, client) = balanced(10);
        filled(&client).await;
        let find = || doc! { "find": "c", "batchSize": 3 };
        let database = client.database("db");
        let mut one: poolhouse_smol::Cursor = database.run_cursor_command(find()).await.expect("a cursor");
        let mut other: poolhouse_smol::Cursor = database.run_cursor_command(find()).await.expect("a cursor");
        assert_eq!(in_use(&client), 2);
        for id in 0..10 {
            for cursor in [&mut one, &mut other] {
                ping(&client).await.expect("a ping");
                let document = cursor.try_next().await.expect("no error").expect("a document");
                assert_eq!(document.get_i32("_id").ok(), Some(id));
            }
        }
        assert!(
            one.try_next().await.expect("no error").is_none() && other.try_next().await.expect("no error").is_none()
        );
        eventually("both are returned", || in_use(&client) == 0).await;
        let dropped: poolhouse_smol::Cursor = database.run_cursor_command(find()).await.expect("a cursor");
        drop(dropped);
        let killed = || balancer.backends().iter().map(|it| it.count_of("killCursors")).sum::<u64>();
        eventually("it is closed on its connection", || killed() == 1 && in_use(&client) == 0).await;
        client.close().await;
    });
}

#[test]
fn reads_of_a_snapshot_session_have_the_time_of_the_first() {
    run(async {
        let (_set, primary, client) = set_with(|_| {}).await;
        let at = |seconds| {
            let mut state = primary.state();
            state.cluster_time = Some((seconds, 1));
            primary.set_state(state);
        };
        let mut session = client.start_session(ClientSessionOptions::new().snapshot(true));
        at(80);
        // By the server, which would execute them without the read concern.
        let level = doc! { "level": "snapshot" };
        for command in [one(), doc! { "ping": 1 }, doc! { "listDatabases": 1 }] {
            let name = command.keys().next().expect("a command").clone();
            assert_eq!(refused(session.run_command("db", command).await).code(), Some(72), "{name}");
            assert_eq!(field(&sent(&primary, &name)[0], "readConcern"), Some(level.clone().into()), "{name}");
        }
        for seconds in [81, 90] {
            at(seconds);
            session.run_command("db", doc! { "find": "c" }).await.expect("a reply");
        }
        let finds = sent(&primary, "find");
        let time = bson::Timestamp { time: 81, increment: 1 };
        assert_eq!(field(&finds[0], "readConcern"), Some(level.into()));
        let second = doc! { "level": "snapshot", "atClusterTime": time };
        assert_eq!(field(&finds[1], "readConcern"), Some(second.into()));
        let own = doc! { "find": "c", "readConcern": { "level": "local" } };
        assert!(matches!(refused(session.run_command("db", own).await), Error::Session(_)));
        // Another session reads the same data, from its first read.
        assert_eq!(session.snapshot_time(), Some(time));
        let mut same = client.start_session(ClientSessionOptions::new().snapshot_time(time));
        assert_eq!(same.snapshot_time(), Some(time));
        same.run_command("db", doc! { "find": "c" }).await.expect("a reply");
        let third = field(&sent(&primary, "find")[2], "readConcern");
        assert_eq!(third, Some(doc! { "level": "snapshot", "atClusterTime": time }.into()));
        assert_eq!(client.start_session(ClientSessionOptions::new().snapshot(true)).snapshot_time(), None);
        drop((session, same));
        client.close().await;
    });
}
