//! The crate `scylla`, another driver, accepts the server as a cluster. It uses version 4.

use alloc::sync::Arc;
use core::future::Future;
use poolhouse_cql::ErrorCode;
use poolhouse_tests::cql_server::{Act, CqlServer, CqlServerOptions, Order, RequestKind, Rule};
use scylla::client::Compression;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;

use poolhouse_tests::patience::PATIENCE;

/// Number of replies that are sent together. The number of held requests is a multiple of it.
const HELD: usize = 24;

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let limit = tokio::time::timeout(PATIENCE * 4, test);
        limit.await.expect("the test exceeded its time limit")
    })
}

fn builder(server: &CqlServer) -> SessionBuilder {
    SessionBuilder::new().known_node_addr(server.address()).connection_timeout(PATIENCE)
}

async fn text(session: &Session, query: String) -> String {
    let result = session.query_unpaged(query, ()).await.expect("an answer").into_rows_result().expect("rows");
    result.single_row::<(String,)>().expect("one varchar").0
}

async fn works(session: Session) {
    assert_eq!(text(&session, "echo Grüße".into()).await, "Grüße");
    let long = "x".repeat(300_000);
    assert_eq!(text(&session, format!("echo {long}")).await, long);
    let result = session.query_unpaged("bytes 500000 ab", ()).await.expect("an answer");
    let rows = result.into_rows_result().expect("rows");
    assert_eq!(rows.single_row::<(Vec<u8>,)>().expect("one blob").0, b"ab".repeat(250_000));
    assert!(!session.query_unpaged("void", ()).await.expect("an answer").is_rows());
    assert!(session.query_unpaged("sing a song", ()).await.is_err());

    let prepared = Arc::new(session.prepare("echo ? of ?").await.expect("it has two variables"));
    let session = Arc::new(session);
    let tasks: Vec<_> = (0..1_000)
        .map(|number| {
            let (session, prepared) = (Arc::clone(&session), Arc::clone(&prepared));
            tokio::spawn(async move {
                if number % 2 == 0 {
                    // Replies overtake each other.
                    let query = format!("delay {} echo {number} of 1000", number % 7);
                    return (number, text(&session, query).await);
                }
                let values = (number.to_string(), "1000");
                let result = session.execute_unpaged(&prepared, values).await.expect("an answer");
                let rows = result.into_rows_result().expect("rows");
                (number, rows.single_row::<(String,)>().expect("one varchar").0)
            })
        })
        .collect();
    for task in tasks {
        let (number, reply) = task.await.expect("no panic");
        assert_eq!(reply, format!("{number} of 1000"), "each reply answers its request");
    }
}

#[test]
fn scylla_works_with_each_compression_and_a_password() {
    for compression in [None, Some(Compression::Lz4), Some(Compression::Snappy)] {
        let options = CqlServerOptions::default().with_credentials("ada", "pencil");
        let server = CqlServer::start(options).expect("loopback");
        // None of the 72 is answered before `HELD` requests have arrived, however slowly.
        server.add(Rule::on(RequestKind::Query, Act::Hold { count: HELD, order: Order::Shuffled(7) }).text("delay 0 "));
        run(async {
            let session = builder(&server).user("ada", "pencil").compression(compression).build().await;
            works(session.expect("the server accepts the session")).await;
        });
        assert!(server.log().iter().all(|received| received.version == 4));
        assert!(server.counts().waiting_max >= HELD as u64, "{:?}", server.counts());
    }
}

#[test]
fn scylla_is_refused_with_a_wrong_password() {
    let server = CqlServer::start(CqlServerOptions::default().with_credentials("ada", "pencil")).expect("loopback");
    run(async {
        assert!(builder(&server).user("ada", "pen").build().await.is_err());
    });
}

#[test]
fn scylla_assigns_replies_out_of_order_and_reconnects_after_a_break() {
    let server = CqlServer::start(CqlServerOptions::default()).expect("loopback");
    run(async {
        let session = Arc::new(builder(&server).build().await.expect("the server accepts the session"));
        let rule =
            server.add(Rule::on(RequestKind::Query, Act::Hold { count: 50, order: Order::Shuffled(7) }).text("echo "));
        let ask_all = |count: usize| {
            let tasks: Vec<_> = (0..count)
                .map(|number| {
                    let session = Arc::clone(&session);
                    tokio::spawn(async move { (number, text(&session, format!("echo {number}")).await) })
                })
                .collect();
            async {
                for task in tasks {
                    let (number, reply) = task.await.expect("no panic");
                    assert_eq!(reply, number.to_string());
                }
            }
        };
        // All requests use one connection: one exists for the single shard, and one for the events
        // of the cluster.
        ask_all(200).await;
        server.remove(rule);
        let rule = server.add(Rule::statements(Act::Error(ErrorCode::INVALID.number(), "no".into())).times(1));
        assert!(session.query_unpaged("echo me", ()).await.is_err());
        assert_eq!(server.struck(rule), 1);
        assert_eq!(text(&session, "echo me".into()).await, "me");
        let accepted = server.counts().accepted;
        server.kill().expect("a socket");
        assert!(session.query_unpaged("echo me", ()).await.is_err());
        server.resume().expect("the port is reserved");
        let begun = std::time::Instant::now();
        while session.query_unpaged("echo me", ()).await.is_err() {
            assert!(begun.elapsed() < PATIENCE * 3, "the session does not reconnect");
            tokio::time::sleep(core::time::Duration::from_millis(20)).await;
        }
        assert!(server.counts().accepted > accepted);
    });
}
