//! Prepared statements on nodes that do not have them: because they are new, or have forgotten them.

use super::execute;
use core::time::Duration;
use poolhouse_smol::mux::cql::Consistency;
use poolhouse_smol::mux::{Batch, RequestError, Session, Speculation, Statement};
use poolhouse_tests::cassandra::Cassandra;
use poolhouse_tests::patience::{eventually, run};

const INSERT: &str = "INSERT INTO forgotten.teas (id, what) VALUES (?, ?)";
const SELECT: &str = "SELECT what FROM forgotten.teas WHERE id = ?";

/// Runs on a session with three nodes. Each kind of call is prepared again where it is missing, and none
/// fails.
pub(super) fn statements_are_prepared_again_where_they_are_missing(session: &Session, node: &mut Cassandra) {
    let (insert, select) = run(async {
        let replication = "{'class': 'SimpleStrategy', 'replication_factor': 3}";
        execute(session, &format!("CREATE KEYSPACE forgotten WITH replication = {replication}")).await;
        execute(session, "CREATE TABLE forgotten.teas (id int PRIMARY KEY, what text)").await;
        let insert = session.prepare(INSERT).await.expect("prepared");
        let select = session.prepare(SELECT).await.expect("prepared");
        assert_eq!(holders(session, INSERT).await, 1, "one node has prepared it, and two are new to it");
        (insert, select)
    });
    run(all_kinds_succeed(session, &insert, &select));
    assert_eq!(run(holders(session, INSERT)), 3);
    node.forget_statements().expect("it starts again");
    run(async {
        eventually("it is used again", || session.hosts().iter().all(|host| host.state.open == 1)).await;
        assert_eq!(holders(session, INSERT).await, 2, "it has forgotten the statement");
        all_kinds_succeed(session, &insert, &select).await;
        assert_eq!(holders(session, INSERT).await, 3);
        execute(session, "DROP TABLE forgotten.teas").await;
        execute(session, "CREATE TABLE forgotten.teas (id int PRIMARY KEY, what text)").await;
        assert_eq!(holders(session, INSERT).await, 0, "all forget the statements of a table that is dropped");
        all_kinds_succeed(session, &insert, &select).await;
        // The same text has other variables now: the values would be wrong.
        execute(session, "DROP TABLE forgotten.teas").await;
        execute(session, "CREATE TABLE forgotten.teas (id int PRIMARY KEY, what blob)").await;
        let error = session.execute(&insert, &(1, "tea")).send().await.expect_err("a text is no blob");
        assert!(matches!(error, RequestError::Outdated), "{error}");
        // Nor is it accepted later: no node has prepared it again.
        let calls: Vec<_> = (0..30).map(|id| session.execute(&insert, &(id, "tea"))).collect();
        let results = session.request_all(&calls).await;
        assert!(results.iter().all(|result| matches!(result, Err(RequestError::Outdated))), "{results:?}");
        let count = session.query("SELECT count(*) FROM forgotten.teas").send().await.expect("a count");
        assert_eq!(count.one::<(i64,)>().expect("a count"), Some((0,)), "no value of the old type was written");
        // A text with values is prepared anew.
        session.query(INSERT).values((1, [1_u8, 2])).send().await.expect("a blob");
    });
}

/// The number of nodes that have prepared a statement.
async fn holders(session: &Session, text: &str) -> usize {
    let mut count = 0;
    for host in session.hosts() {
        let ids = [host.id];
        let call = session.query("SELECT query_string FROM system.prepared_statements").hosts(&ids);
        let known: Vec<(String,)> =
            call.consistency(Consistency::One).send().await.expect("rows").all().expect("texts");
        count += usize::from(known.iter().any(|(known,)| known == text));
    }
    count
}

async fn all_kinds_succeed(session: &Session, insert: &Statement, select: &Statement) {
    let mut failed = Vec::new();
    let mut note = |kind: &str, error: RequestError| failed.push(format!("{kind}: {error}"));
    for number in 0..100 {
        let mut batch = Batch::unlogged();
        let id = number % 7;
        batch.execute(insert, &(id, "batch")).query_with(INSERT, (id, "text with values"));
        batch.query("INSERT INTO forgotten.teas (id, what) VALUES (0, 'text')");
        batch.execute(insert, &(id, "tea"));
        let sent = session.batch(&batch).idempotent(true).send().await;
        sent.err().into_iter().for_each(|error| note("batch", error));
    }
    let calls: Vec<_> = (0..200).map(|id| session.execute(insert, &(id % 40, "tea")).idempotent(true)).collect();
    session.request_all(&calls).await.into_iter().filter_map(Result::err).for_each(|error| note("at once", error));
    let speculation = Speculation { delay: Duration::from_millis(5), hosts_max: 3 };
    for id in 0..200 {
        let call = session.execute(select, &(id % 40,)).speculation(speculation);
        match call.send().await.and_then(|reply| reply.one::<(String,)>()) {
            Ok(found) => assert_eq!(found, Some(("tea".into(),))),
            Err(error) => note("speculative", error),
        }
    }
    let pages = session.execute(select, &(0,)).page_size(1).rows::<(String,)>().next_row().await;
    assert_eq!(pages.transpose().expect("a page"), Some(("tea".into(),)));
    assert!(failed.is_empty(), "{} failed: {failed:?}", failed.len());
}
