//! Sessions on smol against a real Cassandra node, whose jars `CASSANDRA` names.
//!
//! All cases share a node, one case at a time. That with passwords and TLS has its own.

extern crate alloc;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicI32, Ordering};
use core::time::Duration;
use futures_lite::future::poll_fn;
use poolhouse_smol::TlsOptions;
use poolhouse_smol::mux::cql::{
    Compression, Consistency, ErrorCode, OutcomeKind, Parameters, Request, Response, Value, Version,
};
use poolhouse_smol::mux::{HostOptions, MuxOptions, Reply, RequestError, RequestOptions, Session, SessionOptions};
use poolhouse_tests::cassandra::{self, Cassandra, CassandraOptions};
use poolhouse_tests::patience::{PATIENCE, eventually, run};
use poolhouse_tests::suite::{Suite, as_one};
use poolhouse_tests::tls::{CertificateRequest, Folder, Holder};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The shared node, started by the first case.
static NODE: Mutex<Option<Cassandra>> = Mutex::new(None);

fn main() -> ExitCode {
    as_one(|| {
        let code = Suite::new("cassandra")
            .skip_if(cassandra::available().err())
            .case("all_versions_and_compressions_are_accepted", || on_node(all_versions_and_compressions_are_accepted))
            .case("large_values_are_stored_and_read", || on_node(large_values_are_stored_and_read))
            .case("result_is_read_in_pages", || on_node(result_is_read_in_pages))
            .case("prepared_statement_is_executed", || on_node(prepared_statement_is_executed))
            .case("batch_is_applied", || on_node(batch_is_applied))
            .case("connection_has_32768_requests_in_flight", || on_node(connection_has_32768_requests_in_flight))
            .case("errors_of_the_server_have_code_and_text", || on_node(errors_of_the_server_have_code_and_text))
            .case("late_replies_of_a_stopped_node_are_dropped", || on_node(late_replies_of_a_stopped_node_are_dropped))
            .case("killed_node_is_used_again", || on_node(killed_node_is_used_again))
            .case("acknowledged_writes_survive_a_shutdown", || on_node(acknowledged_writes_survive_a_shutdown))
            .case("password_and_tls_are_required", password_and_tls_are_required)
            .run();
        // A static is not dropped: without this, the node would run on.
        drop(NODE.lock().unwrap_or_else(PoisonError::into_inner).take());
        code
    })
}

fn on_node(case: impl AsyncFnOnce(&mut Cassandra)) -> Result<(), String> {
    let mut slot = NODE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut node = match slot.take() {
        Some(node) => node,
        None => Cassandra::start(CassandraOptions::default())?,
    };
    run(case(&mut node));
    // After a panic, the next case starts another node.
    *slot = Some(node);
    Ok(())
}

fn options(node: &Cassandra) -> SessionOptions {
    SessionOptions::new([node.address().to_string()]).request_timeout(PATIENCE * 3).connect_timeout(PATIENCE)
}

fn session(node: &Cassandra) -> Session {
    Session::new(options(node)).expect("valid options")
}

async fn execute(session: &Session, text: &str) {
    session.query(text, Consistency::One).await.unwrap_or_else(|error| panic!("{text}: {error}"));
}

/// Creates an empty table with a text for each number.
async fn create_table(session: &Session, name: &str) {
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    execute(session, &format!("CREATE KEYSPACE IF NOT EXISTS shop WITH replication = {replication}")).await;
    execute(session, &format!("DROP TABLE IF EXISTS shop.{name}")).await;
    execute(session, &format!("CREATE TABLE shop.{name} (id int PRIMARY KEY, what text)")).await;
}

/// A page of a result whose columns are not described.
struct Page {
    cells: Vec<Vec<u8>>,
    paging_state: Option<Vec<u8>>,
}

/// Takes an integer from the front of some bytes.
fn take_int(bytes: &mut &[u8]) -> i32 {
    let (number, rest) = bytes.split_first_chunk().expect("an integer");
    *bytes = rest;
    i32::from_be_bytes(*number)
}

fn take_bytes<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let length = usize::try_from(take_int(bytes)).expect("no null");
    let (value, rest) = bytes.split_at(length);
    *bytes = rest;
    value
}

impl Page {
    fn of(reply: &Reply) -> Self {
        let Ok(Response::Result(outcome)) = reply.response() else { panic!("no result: {reply:?}") };
        assert_eq!(outcome.kind, OutcomeKind::Rows);
        let mut rest = outcome.body;
        let (flags, columns) = (take_int(&mut rest), take_int(&mut rest));
        assert_eq!(flags & 4, 4, "no description of the columns");
        let paging_state = (flags & 2 != 0).then(|| take_bytes(&mut rest).to_vec());
        let cells = (0..take_int(&mut rest) * columns).map(|_| take_bytes(&mut rest).to_vec()).collect();
        assert!(rest.is_empty());
        Self { cells, paging_state }
    }
}

fn plain() -> Parameters<'static> {
    Parameters { skip_metadata: true, ..Parameters::new(Consistency::One) }
}

async fn select(session: &Session, text: &str, parameters: Parameters<'_>) -> Page {
    let request = Request::Query { text, parameters };
    Page::of(&session.request(&request).await.unwrap_or_else(|error| panic!("{text}: {error}")))
}

async fn all_versions_and_compressions_are_accepted(node: &mut Cassandra) {
    for version in Version::ALL {
        for compression in [None, Some(Compression::Lz4), Some(Compression::Snappy)] {
            let compressions: Vec<_> = compression.into_iter().collect();
            let session = Session::new(options(node).version(version).compressions(compressions)).expect("valid");
            let page = select(&session, "SELECT release_version FROM system.local", plain()).await;
            assert!(page.cells[0].starts_with(b"5."), "{version} {compression:?}: {:?}", page.cells);
            let [host] = &session.hosts()[..] else { panic!("one host") };
            assert_eq!((host.version, host.state.open, host.state.in_flight), (version, 1, 0));
            session.close().await;
        }
    }
}

async fn large_values_are_stored_and_read(node: &mut Cassandra) {
    for (version, compression) in [
        (Version::V3, None),
        (Version::V4, Some(Compression::Snappy)),
        (Version::V5, None),
        (Version::V5, Some(Compression::Lz4)),
    ] {
        let compressions: Vec<_> = compression.into_iter().collect();
        let session = Session::new(options(node).version(version).compressions(compressions)).expect("valid");
        create_table(&session, "large").await;
        let value: Vec<u8> =
            (0..8_000_000_u32).map(|place| b'a' + (place.wrapping_mul(2_654_435_761) >> 28) as u8).collect();
        let values = [Value::Bytes(&[0, 0, 0, 1]), Value::Bytes(&value)];
        let parameters = Parameters { values: &values, ..plain() };
        let request = Request::Query { text: "INSERT INTO shop.large (id, what) VALUES (?, ?)", parameters };
        session.request(&request).await.expect("it is inserted");
        let page = select(&session, "SELECT what FROM shop.large", plain()).await;
        assert!(page.cells == [value], "{version} {compression:?}: another value");
    }
}

async fn result_is_read_in_pages(node: &mut Cassandra) {
    let session = session(node);
    create_table(&session, "pages").await;
    let ids: Vec<_> = (0..1_000_i32).map(i32::to_be_bytes).collect();
    let values: Vec<_> = ids.iter().map(|id| [Value::Bytes(id), Value::Bytes(b"tea")]).collect();
    let text = "INSERT INTO shop.pages (id, what) VALUES (?, ?)";
    let insert = |values| Request::Query { text, parameters: Parameters { values, ..plain() } };
    let requests: Vec<_> = values.iter().map(|values| insert(values)).collect();
    for result in session.request_all(&requests).await {
        result.expect("it is inserted");
    }
    let (mut found, mut paging_state, mut pages) = (Vec::new(), None, 0);
    loop {
        let parameters = Parameters { page_size: Some(300), paging_state: paging_state.as_deref(), ..plain() };
        let page = select(&session, "SELECT id FROM shop.pages", parameters).await;
        found.extend(page.cells);
        pages += 1;
        paging_state = page.paging_state;
        if paging_state.is_none() {
            break;
        }
    }
    found.sort();
    assert_eq!(pages, 4);
    assert_eq!(found, ids);
}

/// Bytes with their length in two bytes.
fn short_bytes(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).expect("short").to_be_bytes(), bytes].concat()
}

/// Bytes with their length in four bytes.
fn long_bytes(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).expect("not huge").to_be_bytes(), bytes].concat()
}

async fn prepared_statement_is_executed(node: &mut Cassandra) {
    let session = Session::new(options(node).version(Version::V4)).expect("valid options");
    create_table(&session, "prepared").await;
    let body = long_bytes(b"INSERT INTO shop.prepared (id, what) VALUES (?, ?)");
    let reply = session.request(&Request::Prepare(&body)).await.expect("it is prepared");
    let Ok(Response::Result(outcome)) = reply.response() else { panic!("no result: {reply:?}") };
    let id = outcome.prepared_id().expect("valid").expect("an id");
    // Consistency ONE, the flag of values, two values.
    let values = [&[0, 1, 1, 0, 2][..], &long_bytes(&[0, 0, 0, 9]), &long_bytes(b"tea")].concat();
    let body = [short_bytes(id), values.clone()].concat();
    session.request(&Request::Execute(&body)).await.expect("it is executed");
    assert_eq!(select(&session, "SELECT what FROM shop.prepared", plain()).await.cells, [b"tea"]);
    let body = [short_bytes(b"another id"), values].concat();
    let error = session.request(&Request::Execute(&body)).await.expect_err("the id is unknown");
    let RequestError::Server(error) = error else { panic!("{error:?}") };
    assert_eq!(error.code, ErrorCode::UNPREPARED);
}

async fn batch_is_applied(node: &mut Cassandra) {
    let session = Session::new(options(node).version(Version::V4)).expect("valid options");
    create_table(&session, "batches").await;
    let mut body = vec![0, 0, 2];
    for id in [1, 2] {
        body.push(0);
        body.extend(long_bytes(format!("INSERT INTO shop.batches (id, what) VALUES ({id}, 'tea')").as_bytes()));
        body.extend([0, 0]);
    }
    // Consistency ONE, no flags.
    body.extend([0, 1, 0]);
    session.request(&Request::Batch(&body)).await.expect("it is applied");
    let page = select(&session, "SELECT what FROM shop.batches", plain()).await;
    assert_eq!(page.cells, [b"tea", b"tea"]);
}

async fn connection_has_32768_requests_in_flight(node: &mut Cassandra) {
    const COUNT: u32 = 32_768;
    let local = HostOptions {
        max_requests_per_connection: COUNT,
        new_connection_threshold: COUNT,
        ..MuxOptions::DEFAULT.local
    };
    let session = Session::new(options(node).mux(MuxOptions { local, ..MuxOptions::DEFAULT })).expect("valid options");
    execute(&session, "SELECT key FROM system.local").await;
    // The node sends no reply before all requests are in flight.
    node.stop().expect("it is stopped");
    let request = Request::Query { text: "SELECT key FROM system.local", parameters: plain() };
    let requests = vec![request; COUNT as usize];
    let mut replies = core::pin::pin!(session.request_all(&requests));
    let pending = poll_fn(|context| core::task::Poll::Ready(replies.as_mut().poll(context).is_pending())).await;
    assert!(pending);
    let status = &session.hosts()[0];
    assert_eq!((status.state.open, status.state.in_flight, status.state.queued), (1, COUNT, 0));
    node.cont().expect("it continues");
    // A node with 512 MB of heap may refuse some as overload; each has its own outcome.
    let (mut rows, mut overloaded) = (0, 0);
    for reply in replies.await {
        match reply {
            Ok(reply) => {
                assert_eq!(Page::of(&reply).cells, [b"local"]);
                rows += 1;
            }
            Err(error) => {
                assert!(
                    format!("{error}").contains("overload"),
                    "{error:?}; {:?}; {}",
                    session.hosts(),
                    node.log_tail()
                );
                overloaded += 1;
            }
        }
    }
    assert_eq!((rows + overloaded, session.hosts()[0].state.in_flight), (COUNT, 0));
    assert!(rows > 0);
}

async fn errors_of_the_server_have_code_and_text(node: &mut Cassandra) {
    let session = session(node);
    for (text, code, part) in [
        ("SELEKT 1", ErrorCode::SYNTAX_ERROR, "SELEKT"),
        ("SELECT * FROM nowhere.nothing", ErrorCode::INVALID, "nowhere"),
        ("DROP KEYSPACE system", ErrorCode::UNAUTHORIZED, "system"),
    ] {
        let error = session.query(text, Consistency::One).await.expect_err(text);
        let RequestError::Server(error) = error else { panic!("{text}: {error:?}") };
        assert_eq!(error.code, code, "{text}: {error:?}");
        assert!(error.message.contains(part), "{text}: {error:?}");
    }
}

async fn late_replies_of_a_stopped_node_are_dropped(node: &mut Cassandra) {
    let session = session(node);
    execute(&session, "SELECT key FROM system.local").await;
    node.stop().expect("it is stopped");
    let short = RequestOptions { timeout: Some(Duration::from_millis(300)), ..RequestOptions::default() };
    let request = Request::Query { text: "SELECT cluster_name FROM system.local", parameters: plain() };
    for _ in 0..5 {
        let error = session.request_with(&request, short).await.expect_err("no reply is sent");
        assert!(matches!(error, RequestError::TimedOut { sent: true, .. }), "{error:?}");
    }
    assert_eq!(session.hosts()[0].state.orphaned, 5);
    node.cont().expect("it continues");
    // A late reply would be another cell.
    assert_eq!(select(&session, "SELECT key FROM system.local", plain()).await.cells, [b"local"]);
    eventually("the late replies have arrived", || session.hosts()[0].state.orphaned == 0).await;
    assert_eq!(session.hosts()[0].state.open, 1);
}

/// Waits until the node, which has returned, takes requests. No event announces that.
async fn used_again(session: &Session) {
    let begun = Instant::now();
    while session.query("SELECT key FROM system.local", Consistency::One).await.is_err() {
        assert!(begun.elapsed() < PATIENCE, "the node is not used again");
        smol::Timer::after(Duration::from_millis(10)).await;
    }
    println!("a node is used {:?} after its return", begun.elapsed());
}

async fn killed_node_is_used_again(node: &mut Cassandra) {
    let session = session(node);
    create_table(&session, "killed").await;
    node.kill();
    let error = session.query("SELECT key FROM system.local", Consistency::One).await.expect_err("no node");
    assert!(error.to_string().contains(&node.address().to_string()), "{error}");
    node.restart().expect("it starts again");
    used_again(&session).await;
    execute(&session, "INSERT INTO shop.killed (id, what) VALUES (1, 'tea')").await;
}

async fn acknowledged_writes_survive_a_shutdown(node: &mut Cassandra) {
    let session = Arc::new(session(node));
    create_table(&session, "shutdown").await;
    let acknowledged = Arc::new(AtomicI32::new(0));
    let writer = smol::spawn({
        let (session, acknowledged) = (Arc::clone(&session), Arc::clone(&acknowledged));
        async move {
            for id in 0.. {
                let text = format!("INSERT INTO shop.shutdown (id, what) VALUES ({id}, 'tea')");
                if session.query(&text, Consistency::One).await.is_err() {
                    return;
                }
                acknowledged.store(id + 1, Ordering::Release);
            }
        }
    });
    eventually("writes are acknowledged", || acknowledged.load(Ordering::Acquire) > 100).await;
    node.shutdown().expect("it ends");
    writer.await;
    eventually("the connection is closed", || session.hosts()[0].state.open == 0).await;
    node.restart().expect("it starts again");
    used_again(&session).await;
    let found = select(&session, "SELECT id FROM shop.shutdown", plain()).await.cells;
    let lost = (0..acknowledged.load(Ordering::Acquire)).find(|id| !found.contains(&id.to_be_bytes().to_vec()));
    assert_eq!(lost, None, "an acknowledged write is lost");
}

fn password_and_tls_are_required() -> Result<(), String> {
    let (root, folder) = (Holder::root("root"), Folder::new());
    let authority = folder.write("ca.pem", root.certificate());
    let identity = folder.write("node.pem", root.issue(&CertificateRequest::server(&["127.0.0.1"])).identity().pem());
    let other = folder.write("other.pem", Holder::root("other").certificate());
    let more = format!(
        "client_encryption_options:
  enabled: true
  optional: false
  keystore: {}
  truststore: {}
  ssl_context_factory:
    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory",
        identity.display(),
        authority.display()
    );
    let node = Cassandra::start(CassandraOptions { requires_password: true, more: &more })?;
    let with = |password: &str, ca_file: &std::path::Path| {
        let mut tls = TlsOptions::default();
        tls.ca_file = Some(ca_file.to_owned());
        Session::new(options(&node).tls(tls).credential("cassandra", password)).expect("valid options")
    };
    run(async {
        let page = select(&with("cassandra", &authority), "SELECT key FROM system.local", plain()).await;
        assert_eq!(page.cells, [b"local"]);
        for (password, ca_file, reason) in [("tea", &authority, "password"), ("cassandra", &other, "certificate")] {
            let error = with(password, ca_file).query("SELECT key FROM system.local", Consistency::One).await;
            let text = error.expect_err("it is refused").to_string();
            assert!(text.contains(reason) && text.contains(&node.address().to_string()), "{text}");
        }
    });
    Ok(())
}
