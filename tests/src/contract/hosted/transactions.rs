//! Transactions: a fake router checks the fields of their commands.

use super::{Hosted, HostedClient, Probe, options};
use crate::contract::{Shape, run_case};
use crate::fake::mongoses::FakeMongoses;
use crate::fake::{FailPoint, FailPointMode};
use crate::patience::PATIENCE;
use crate::suite::Suite;
use poolhouse_client::{ClientSession, ClientSessionOptions, Error, Platform, TransactionOptions};
use poolhouse_driver::Subscribers;

pub(super) fn add<P: Platform + Default>(suite: Suite) -> Suite {
    suite.case("hosted::transactions::each_is_executed_once", || run_case(each_is_executed_once::<P>))
}

/// Inserts three documents, each by one command.
async fn insert<P: Platform>(session: &mut ClientSession<Probe<P>>) -> Result<(), Error> {
    for _ in 0..3 {
        session.run_command("db", bson::doc! { "insert": "c", "documents": [{}] }).await?;
    }
    Ok(())
}

/// The first attempt of a commit, and then of a whole transaction, fails in each way that allows
/// another one.
async fn each_is_executed_once<P: Platform + Default>(_: &Hosted<P>) {
    let routers = FakeMongoses::start(1).expect("it starts");
    let router = routers.server(0);
    let mut options = options(&Shape::of(router.address()));
    options.timeout = Some(PATIENCE);
    let client = HostedClient::<P>::new(options, Subscribers::default());
    let mut session = client.client().start_session(ClientSessionOptions::new());
    let once = |name| FailPoint::new(FailPointMode::Times(1), &[name]);
    let commits = [
        FailPoint::new(FailPointMode::Off, &[]),
        once("commitTransaction").close(),
        once("commitTransaction").error(91).labels(&["RetryableWriteError"]),
    ];
    let transient = ["TransientTransactionError"];
    let transactions = [
        once("commitTransaction").error(251).labels(&transient),
        once("insert").close(),
        once("insert").error(112).labels(&transient),
    ];
    let mut count = 0;
    for (point, is_commit) in
        commits.map(|point| (point, true)).into_iter().chain(transactions.map(|point| (point, false)))
    {
        router.set_fail_point(point.clone());
        if is_commit {
            session.start_transaction(TransactionOptions::new()).expect("no transaction is open");
            let inserted = insert(&mut session).await;
            inserted.unwrap_or_else(|error| panic!("P55: a command of the transaction failed: {error}"));
            let committed = session.commit_transaction().await;
            committed.unwrap_or_else(|error| panic!("P55: the commit failed after {point:?}: {error}"));
        } else {
            let outcome = session.with_transaction(TransactionOptions::new(), insert).await;
            outcome.unwrap_or_else(|error| panic!("P55: the transaction failed after {point:?}: {error}"));
        }
        count += 3;
        let found = client.client().run_command("db", bson::doc! { "find": "c" }).await.expect("a reply");
        let batch = found.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch")).expect("a batch");
        assert_eq!(batch.len(), count, "P55: {point:?}");
    }
    drop(session);
    client.client().close().await;
}
