//! Sessions on smol against a real Cassandra node, whose jars `CASSANDRA` names.
//!
//! Cases share a node, one case at a time. That with passwords and TLS has its own, and that of a
//! cluster has three.

extern crate alloc;

#[path = "cassandra/changes.rs"]
mod changes;
#[path = "cassandra/forgotten.rs"]
mod forgotten;
/// The database of the example `readings`.
#[path = "../../../runtime-smol/examples/readings/readings.rs"]
mod readings;
#[path = "cassandra/recording.rs"]
mod recording;
#[path = "cassandra/types.rs"]
mod types;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use core::net::{IpAddr, Ipv4Addr};
use core::slice;
use core::sync::atomic::{AtomicI32, Ordering};
use core::time::Duration;
use futures_lite::future::poll_fn;
use poolhouse_smol::mux::cql::{Compression, Consistency, ErrorCode, MaybeUnset, OutcomeKind, Response, Version};
use poolhouse_smol::mux::{
    Batch, Call, ClusterEvent, HostOptions, MuxEvent, MuxOptions, Reply, RequestError, Session, SessionOptions,
};
use poolhouse_smol::poolhouse_driver::Subscribers;
use poolhouse_smol::{Event, EventKinds, EventRef, Notice, Smol, Subscription, TlsOptions};
use poolhouse_tests::cassandra::{self, Cassandra, CassandraOptions, other_driver};
use poolhouse_tests::patience::{self, PATIENCE, Stopwatch, eventually, run};
use poolhouse_tests::suite::{Suite, as_one};
use poolhouse_tests::tls::{CertificateRequest, Folder, Holder};
use readings::{Reading, Readings};
use serde::{Deserialize, Serialize};
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// The shared node, started by the first case.
static NODE: Mutex<Option<Cassandra>> = Mutex::new(None);

fn main() -> ExitCode {
    as_one(|| {
        let types = "types_are_those_of_another_driver";
        let suite = Suite::new("cassandra");
        let suite = match other_driver() {
            Ok(_) => suite.case(types, || on_node(types::types_are_those_of_another_driver)),
            Err(reason) => suite.missing(types, reason),
        };
        let code = suite
            .skip_if(cassandra::available().err())
            .case("all_versions_and_compressions_are_accepted", || on_node(all_versions_and_compressions_are_accepted))
            .case("statements_use_the_keyspace_of_the_session", || on_node(statements_use_the_keyspace_of_the_session))
            .case("changed_keyspace_is_that_of_all_connections", || {
                on_node(changed_keyspace_is_that_of_all_connections)
            })
            .case("large_values_are_stored_and_read", || on_node(large_values_are_stored_and_read))
            .case("result_is_read_in_pages", || on_node(result_is_read_in_pages))
            .case("prepared_statement_is_executed", || on_node(prepared_statement_is_executed))
            .case("rows_are_values_of_a_type", || on_node(rows_are_values_of_a_type))
            .case("values_are_bound_from_a_type", || on_node(values_are_bound_from_a_type))
            .case("example_stores_and_lists_readings", || on_node(example_stores_and_lists_readings))
            .case("batch_is_applied", || on_node(batch_is_applied))
            .case("connection_has_32767_requests_in_flight", || on_node(connection_has_32767_requests_in_flight))
            .case("fake_node_replies_as_the_real_one", || {
                on_node(async |node: &mut Cassandra| recording::fake_node_replies_as_the_real_one(node))
            })
            .case("rows_are_right_while_the_columns_change", || {
                on_node(changes::rows_are_right_while_the_columns_change)
            })
            .case("errors_of_the_server_have_code_and_text", || on_node(errors_of_the_server_have_code_and_text))
            .case("late_replies_of_a_stopped_node_are_dropped", || on_node(late_replies_of_a_stopped_node_are_dropped))
            .case("killed_node_is_used_again", || on_node(killed_node_is_used_again))
            .case("acknowledged_writes_survive_a_shutdown", || on_node(acknowledged_writes_survive_a_shutdown))
            .case("password_and_tls_are_required", password_and_tls_are_required)
            .case("session_finds_a_cluster_and_routes_by_token", session_finds_a_cluster_and_routes_by_token)
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
    session.query(text).consistency(Consistency::One).send().await.unwrap_or_else(|error| panic!("{text}: {error}"));
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

/// A call whose answer does not describe its columns.
fn plain<'a>(session: &'a Session, text: &'a str) -> Call<'a, Smol> {
    session.query(text).consistency(Consistency::One).skip_metadata(true)
}

async fn select(session: &Session, text: &str) -> Page {
    Page::of(&plain(session, text).send().await.unwrap_or_else(|error| panic!("{text}: {error}")))
}

async fn all_versions_and_compressions_are_accepted(node: &mut Cassandra) {
    for version in Version::ALL {
        for compression in [None, Some(Compression::Lz4), Some(Compression::Snappy)] {
            let compressions: Vec<_> = compression.into_iter().collect();
            let session = Session::new(options(node).version(version).compressions(compressions)).expect("valid");
            let page = select(&session, "SELECT release_version FROM system.local").await;
            assert!(page.cells[0].starts_with(b"5."), "{version} {compression:?}: {:?}", page.cells);
            let [host] = &session.hosts()[..] else { panic!("one host") };
            assert_eq!((host.version, host.state.open, host.state.in_flight), (version, 1, 0));
            session.close().await;
        }
    }
}

async fn statements_use_the_keyspace_of_the_session(node: &mut Cassandra) {
    for version in Version::ALL {
        let session = Session::new(options(node).version(version).keyspace("system")).expect("valid");
        assert_eq!(select(&session, "SELECT key FROM local").await.cells, [b"local"]);
        session.close().await;
    }
    let session = Session::new(options(node).keyspace("absent")).expect("valid");
    let error = session
        .query("SELECT key FROM local")
        .consistency(Consistency::One)
        .send()
        .await
        .expect_err("there is no keyspace");
    assert!(error.to_string().contains("absent"), "{error}");
    assert!(Session::new(options(node).keyspace("sys tem")).is_err());
}

async fn changed_keyspace_is_that_of_all_connections(node: &mut Cassandra) {
    const COUNT: usize = 64;
    let first = session(node);
    create_table(&first, "moved").await;
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    execute(&first, &format!("CREATE KEYSPACE IF NOT EXISTS \"Other\" WITH replication = {replication}")).await;
    execute(&first, "CREATE TABLE IF NOT EXISTS \"Other\".moved (id int PRIMARY KEY, what text)").await;
    execute(&first, "INSERT INTO shop.moved (id, what) VALUES (1, 'of shop')").await;
    execute(&first, "INSERT INTO \"Other\".moved (id, what) VALUES (1, 'of Other')").await;
    let local = HostOptions {
        core_connections: 2,
        max_connections: 4,
        max_requests_per_connection: 4,
        new_connection_threshold: 3,
    };
    let options = options(node).mux(MuxOptions { local, ..MuxOptions::DEFAULT }).keyspace("shop");
    let session = Session::new(options).expect("valid options");
    eventually("two connections are open", || session.hosts()[0].state.open == 2).await;
    let text = "SELECT what FROM moved WHERE id = 1";
    let read = async |expected: &[u8]| {
        let calls = vec![plain(&session, text); COUNT];
        for reply in session.request_all(&calls).await {
            assert_eq!(Page::of(&reply.expect("the table is in the keyspace")).cells, [expected]);
        }
    };
    // A text with values is prepared again in the new keyspace.
    let read_by_value = async |expected: &str| {
        let call = session.query("SELECT what FROM moved WHERE id = ?").values((1,)).consistency(Consistency::One);
        let found = call.send().await.expect("the table is in the keyspace").one::<(String,)>().expect("a text");
        assert_eq!(found, Some((expected.into(),)));
    };
    read_by_value("of shop").await;
    let statement = session.prepare(text).await.expect("it is prepared");
    let unpolled =
        session.query("SELECT what FROM moved WHERE id = ?").values((1,)).consistency(Consistency::One).send();
    session.use_keyspace("Other").await.expect("it exists");
    read_by_value("of Other").await;
    let found = unpolled.await.expect("it begins now").one::<(String,)>().expect("a text");
    assert_eq!(found, Some(("of Other".into(),)));
    assert_eq!(session.keyspace().as_deref(), Some("Other"));
    // The load of these requests requires more connections.
    read(b"of Other").await;
    eventually("the pool has grown", || session.hosts()[0].state.open == 4).await;
    read(b"of Other").await;
    // The keyspace of a statement is that in which it was prepared. It is part of its id.
    assert_ne!(session.prepare(text).await.expect("it is prepared").id(), statement.id());
    let call = session.execute(&statement, &()).consistency(Consistency::One).skip_metadata(true);
    assert_eq!(Page::of(&call.send().await.expect("it is executed")).cells, [b"of shop"]);
    let before = session.hosts()[0].connections.clone();
    for name in ["absent", "other"] {
        let error = session.use_keyspace(name).await.expect_err("there is no such keyspace");
        let RequestError::Keyspace(error) = error else { panic!("{error:?}") };
        assert_eq!((&*error.keyspace, error.address), (name, Some(node.address().to_string())));
        assert!(error.message.contains(name), "{}", error.message);
    }
    assert_eq!(session.hosts()[0].connections, before);
    read(b"of Other").await;
    node.shutdown().expect("it ends");
    eventually("the connections are closed", || session.hosts()[0].state.open == 0).await;
    node.restart().expect("it starts again");
    used_again(&session).await;
    read(b"of Other").await;
    session.use_keyspace("shop").await.expect("it exists");
    read(b"of shop").await;
    read_by_value("of shop").await;
    // A reserved word.
    execute(&session, &format!("CREATE KEYSPACE IF NOT EXISTS \"select\" WITH replication = {replication}")).await;
    execute(&session, "CREATE TABLE IF NOT EXISTS \"select\".\"table\" (\"from\" int PRIMARY KEY)").await;
    session.use_keyspace("select").await.expect("it exists");
    let insert = session.query("INSERT INTO \"table\" (\"from\") VALUES (?)").values((1,));
    insert.consistency(Consistency::One).send().await.expect("it is inserted");
    session.close().await;
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
        let letter = |place: u32| char::from(b'a' + (place.wrapping_mul(2_654_435_761) >> 28) as u8);
        let value: String = (0..8_000_000).map(letter).collect();
        let insert = plain(&session, "INSERT INTO shop.large (id, what) VALUES (?, ?)");
        insert.values((1, &value)).send().await.expect("it is inserted");
        let page = select(&session, "SELECT what FROM shop.large").await;
        assert!(page.cells == [value.into_bytes()], "{version} {compression:?}: another value");
    }
}

async fn result_is_read_in_pages(node: &mut Cassandra) {
    let session = session(node);
    create_table(&session, "pages").await;
    let ids: Vec<_> = (0..1_000_i32).map(i32::to_be_bytes).collect();
    let rows: Vec<_> = (0..1_000_i32).map(|id| (id, "tea")).collect();
    let insert = plain(&session, "INSERT INTO shop.pages (id, what) VALUES (?, ?)");
    let calls: Vec<_> = rows.iter().map(|row| insert.clone().values(row)).collect();
    for result in session.request_all(&calls).await {
        result.expect("it is inserted");
    }
    let (mut found, mut paging_state, mut pages) = (Vec::new(), None, 0);
    loop {
        let call = plain(&session, "SELECT id FROM shop.pages").page_size(300).paging_state(paging_state);
        let reply = call.send().await.expect("a page");
        let page = Page::of(&reply);
        assert_eq!(reply.paging_state().expect("rows"), page.paging_state);
        found.extend(page.cells);
        pages += 1;
        paging_state = page.paging_state;
        if paging_state.is_none() {
            break;
        }
    }
    let statement = session.prepare("SELECT id FROM shop.pages").await.expect("prepared");
    for call in [session.query("SELECT id FROM shop.pages"), session.execute(&statement, &())] {
        let call = call.consistency(Consistency::One).page_size(300);
        let (mut read, mut rows) = (Vec::new(), call.clone().rows::<(i32,)>());
        while let Some(row) = rows.next_row().await {
            read.push(row.expect("an id").0.to_be_bytes().to_vec());
        }
        assert_eq!(read, found);
        let mut read = Vec::new();
        let mut stream = call.skip_metadata(true).pages();
        while let Some(page) = stream.next_page().await {
            read.push(Page::of(&page.expect("a page")).cells);
        }
        assert_eq!((read.len(), read.concat()), (pages, found.clone()));
    }
    found.sort();
    assert_eq!(pages, 4);
    assert_eq!(found, ids);
}

/// A table that is dropped takes its statements with it: the node does not know them any more.
async fn prepared_statement_is_executed(node: &mut Cassandra) {
    for version in Version::ALL {
        let session = Session::new(options(node).version(version)).expect("valid options");
        create_table(&session, "prepared").await;
        let text = "INSERT INTO shop.prepared (id, what) VALUES (?, ?)";
        let statement = session.prepare(text).await.expect("it is prepared");
        let insert = || session.execute(&statement, &(9, "tea")).consistency(Consistency::One);
        insert().send().await.expect("it is executed");
        assert_eq!(select(&session, "SELECT what FROM shop.prepared").await.cells, [b"tea"]);
        create_table(&session, "prepared").await;
        insert().send().await.expect("it is prepared again");
        let calls = [insert(), insert()];
        for result in session.request_all(&calls).await {
            result.expect("it is executed");
        }
        assert_eq!(select(&session, "SELECT what FROM shop.prepared").await.cells, [b"tea"]);
        execute(&session, "DROP TABLE shop.prepared").await;
        execute(&session, "CREATE TABLE shop.prepared (id int PRIMARY KEY, what int)").await;
        let error = insert().send().await.expect_err("a variable has another type");
        assert!(matches!(error, RequestError::Outdated), "{error:?}");
        assert!(select(&session, "SELECT what FROM shop.prepared").await.cells.is_empty(), "nothing was executed");
    }
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
struct Address {
    city: String,
    zip: Option<i32>,
}

/// A row with a column of each kind that is no number.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
struct Typed {
    id: i32,
    key: String,
    at: i64,
    day: i32,
    from: IpAddr,
    large: i128,
    data: Vec<u8>,
    tags: BTreeSet<String>,
    counts: BTreeMap<String, i16>,
    pair: (i8, Option<bool>),
    address: Address,
    addresses: Vec<Address>,
    none: Option<f64>,
}

async fn rows_are_values_of_a_type(node: &mut Cassandra) {
    let session = session(node);
    create_table(&session, "typed").await;
    execute(&session, "CREATE TYPE IF NOT EXISTS shop.address (city text, zip int)").await;
    let columns = "key uuid, at timestamp, day date, from_ inet, large varint, data blob, tags set<text>, \
        counts map<text, smallint>, pair tuple<tinyint, boolean>, address frozen<address>, \
        addresses list<frozen<address>>, none double";
    execute(&session, &format!("ALTER TABLE shop.typed ADD ({columns})")).await;
    let values = "1, 123e4567-e89b-12d3-a456-426614174000, 1500, '1970-01-03', '10.0.0.1', 18446744073709551616, \
        0x0102, {'b', 'a'}, {'x': -7}, (5, true), {city: 'Rome', zip: 184}, [{city: 'Oslo'}]";
    let names = "id, key, at, day, from_, large, data, tags, counts, pair, address, addresses";
    execute(&session, &format!("INSERT INTO shop.typed ({names}) VALUES ({values})")).await;
    let text = "SELECT id, key, at, day, from_ AS \"from\", large, data, tags, counts, pair, address, addresses, none \
        FROM shop.typed";
    let reply = session.query(text).consistency(Consistency::One).send().await.expect("the row is read");
    let expected = Typed {
        id: 1,
        key: "123e4567-e89b-12d3-a456-426614174000".into(),
        at: 1500,
        day: 2,
        from: [10, 0, 0, 1].into(),
        large: 1 << 64,
        data: vec![1, 2],
        tags: ["a".into(), "b".into()].into(),
        counts: [("x".into(), -7)].into(),
        pair: (5, Some(true)),
        address: Address { city: "Rome".into(), zip: Some(184) },
        addresses: vec![Address { city: "Oslo".into(), zip: None }],
        none: None,
    };
    assert_eq!(reply.all::<Typed>().expect("a row of this type"), [expected]);
    let error = reply.all::<(String,)>().expect_err("a number");
    assert_eq!(error.to_string(), "column id: int does not fit String");
}

/// The values of [`Typed`] and of the other types, from Rust to the node and back.
async fn values_are_bound_from_a_type(node: &mut Cassandra) {
    #[derive(Debug, PartialEq, Deserialize, Serialize)]
    struct Others {
        id: i32,
        a: String,
        b: bool,
        f: f32,
        t: i64,
        tu: [u8; 16],
        s: BTreeSet<i64>,
        n: Vec<BTreeMap<i32, (i32, String)>>,
    }
    let session = session(node);
    create_table(&session, "bound").await;
    execute(&session, "CREATE TYPE IF NOT EXISTS shop.address (city text, zip int)").await;
    let columns = "key uuid, at timestamp, day date, \"from\" inet, large varint, data blob, tags set<text>, \
        counts map<text, smallint>, pair tuple<tinyint, boolean>, address frozen<address>, \
        addresses list<frozen<address>>, none double, a ascii, b boolean, f float, t time, tu timeuuid, \
        s set<bigint>, n list<frozen<map<int, frozen<tuple<int, text>>>>>";
    execute(&session, &format!("ALTER TABLE shop.bound ADD ({columns})")).await;
    // Not in the order of the struct's fields.
    let names = "key, id, at, day, \"from\", large, data, tags, counts, pair, address, addresses, none";
    let marks = "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?";
    let insert = session.prepare(&format!("INSERT INTO shop.bound ({names}) VALUES ({marks})")).await.expect("valid");
    let mut typed = Typed {
        id: 1,
        key: "123e4567-e89b-12d3-a456-426614174000".into(),
        at: -1500,
        day: -2,
        from: [0, 0, 0, 0, 0, 0, 0, 1].into(),
        large: i128::MIN,
        data: vec![0, 255],
        tags: ["a".into(), "b".into()].into(),
        counts: [("x".into(), i16::MIN)].into(),
        pair: (-5, None),
        address: Address { city: "Rome".into(), zip: Some(184) },
        addresses: vec![Address { city: "Oslo".into(), zip: None }],
        none: None,
    };
    session.execute(&insert, &typed).consistency(Consistency::One).send().await.expect("inserted");
    let select = session.prepare(&format!("SELECT {names} FROM shop.bound WHERE id = ?")).await.expect("valid");
    let read = async || session.execute(&select, &(1,)).consistency(Consistency::One).send().await;
    assert_eq!(read().await.expect("read").all::<Typed>().expect("typed"), slice::from_ref(&typed));
    // A value that is not set stays, and null removes one.
    let update = session.prepare("UPDATE shop.bound SET at = ?, day = ? WHERE id = ?").await.expect("valid");
    let values = (MaybeUnset::<i64>::Unset, MaybeUnset::Set(7), 1);
    session.execute(&update, &values).consistency(Consistency::One).send().await.expect("updated");
    typed.day = 7;
    assert_eq!(read().await.expect("read").all::<Typed>().expect("typed"), [typed]);
    let others = Others {
        id: 2,
        a: "tea".into(),
        b: true,
        f: -0.5,
        t: 86_399_999_999_999,
        tu: *b"\x00\x00\x00\x00\x00\x00\x10\x00\x80\x00\x00\x00\x00\x00\x00\x01",
        s: [i64::MIN, 3].into(),
        n: vec![[(1, (2, "three".into()))].into()],
    };
    let names = "id, a, b, f, t, tu, s, n";
    let text = format!("INSERT INTO shop.bound ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
    let insert = session.prepare(&text).await.expect("valid");
    session.execute(&insert, &others).consistency(Consistency::One).send().await.expect("inserted");
    let text = format!("SELECT {names} FROM shop.bound WHERE id = 2");
    let reply = session.query(&text).consistency(Consistency::One).send().await.expect("read");
    assert_eq!(reply.all::<Others>().expect("others"), [others]);
    let values = (1_i64 << 31, "", true, 0.5, 0, [0_u8; 16], [0; 0], [(); 0]);
    let error = session.execute(&insert, &values).send().await.expect_err("too large");
    assert_eq!(error.to_string(), "variable id: i64 does not fit int: out of range");
}

async fn example_stores_and_lists_readings(node: &mut Cassandra) {
    const COUNT: i64 = 250;
    let readings = {
        let open = || Readings::open(vec![node.address().to_string()], "dc1".to_owned());
        // The second start finds the keyspace and the table.
        open().await.expect("it starts").close().await;
        open().await.expect("it starts again")
    };
    assert_eq!(readings.latest("kitchen").await.expect("read"), None);
    let reading = |at_ms| Reading { sensor: "kitchen".to_owned(), at_ms, celsius: 21.5 + at_ms as f64 };
    for at_ms in 0..COUNT {
        readings.insert(&reading(at_ms)).await.expect("inserted");
    }
    // The same row.
    readings.insert(&reading(0)).await.expect("inserted");
    readings.insert(&Reading { sensor: "cellar".to_owned(), ..reading(COUNT) }).await.expect("inserted");
    assert_eq!(readings.latest("kitchen").await.expect("read"), Some(reading(COUNT - 1)));
    let mut listed = Vec::new();
    readings.for_each("kitchen", |reading| listed.push(reading)).await.expect("listed");
    assert_eq!(listed, (0..COUNT).rev().map(reading).collect::<Vec<_>>());
    readings.close().await;
    assert!(readings.insert(&reading(0)).await.is_err(), "the session is closed");
}

async fn batch_is_applied(node: &mut Cassandra) {
    for version in Version::ALL {
        let session = Session::new(options(node).version(version)).expect("valid options");
        create_table(&session, "batches").await;
        let insert = "INSERT INTO shop.batches (id, what) VALUES (?, ?)";
        let statement = session.prepare(insert).await.expect("it is prepared");
        for (kind, first) in [(Batch::logged as fn() -> _, 1), (Batch::unlogged, 4)] {
            let text = format!("INSERT INTO shop.batches (id, what) VALUES ({first}, 'tea')");
            let mut batch = kind();
            batch.query(&text).query_with(insert, (first + 1, "tea")).execute(&statement, &(first + 2, "tea"));
            let reply = session.batch(&batch).consistency(Consistency::One).send().await.expect("it is applied");
            assert!(matches!(reply.response(), Ok(Response::Result(outcome)) if outcome.kind == OutcomeKind::Void));
        }
        let page = select(&session, "SELECT what FROM shop.batches").await;
        assert_eq!(page.cells, [b"tea"; 6]);
        // Of one partition, with a condition that does not hold.
        let mut batch = Batch::logged();
        batch.query_with("INSERT INTO shop.batches (id, what) VALUES (?, ?) IF NOT EXISTS", (1, "coffee"));
        let reply = session.batch(&batch).consistency(Consistency::One).send().await.expect("an answer");
        assert!(!reply.applied().expect("it has a condition"));
        let found = reply.one::<Stored>().expect("a row of this type");
        assert_eq!(found, Some(Stored { id: 1, what: "tea".into() }));
        execute(&session, "CREATE TABLE IF NOT EXISTS shop.counted (id int PRIMARY KEY, count counter)").await;
        let mut batch = Batch::counter();
        batch.query_with("UPDATE shop.counted SET count = count + ? WHERE id = ?", (2_i64, 1));
        session.batch(&batch).consistency(Consistency::One).send().await.expect("it is applied");
        execute(&session, "DROP TABLE shop.counted").await;
    }
}

/// A row of a table of [`create_table`].
#[derive(Debug, PartialEq, Deserialize)]
struct Stored {
    id: i32,
    what: String,
}

async fn connection_has_32767_requests_in_flight(node: &mut Cassandra) {
    // All stream ids but 0, on which Cassandra answers to others.
    const COUNT: u32 = 32_767;
    let local = HostOptions {
        max_requests_per_connection: COUNT,
        new_connection_threshold: COUNT,
        ..MuxOptions::DEFAULT.local
    };
    let session = Session::new(options(node).mux(MuxOptions { local, ..MuxOptions::DEFAULT })).expect("valid options");
    execute(&session, "SELECT key FROM system.local").await;
    // Why a connection is closed, if it is.
    let mut closing = session.subscribe_where(|event| {
        matches!(event, EventRef::Mux(MuxEvent::UnknownReply { .. } | MuxEvent::ConnectionClosed { .. }))
    });
    // The node sends no reply before all requests are in flight.
    node.stop().expect("it is stopped");
    let calls = vec![plain(&session, "SELECT key FROM system.local"); COUNT as usize];
    let mut replies = core::pin::pin!(session.request_all(&calls));
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
                    "{error:?}; {:?}; {:?}; {}",
                    closing.try_next(),
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
        let error = session.query(text).consistency(Consistency::One).send().await.expect_err(text);
        let RequestError::Server(error) = error else { panic!("{text}: {error:?}") };
        assert_eq!(error.code, code, "{text}: {error:?}");
        assert!(error.message.contains(part), "{text}: {error:?}");
    }
}

async fn late_replies_of_a_stopped_node_are_dropped(node: &mut Cassandra) {
    let session = session(node);
    execute(&session, "SELECT key FROM system.local").await;
    node.stop().expect("it is stopped");
    let call = plain(&session, "SELECT cluster_name FROM system.local").timeout(Duration::from_millis(300));
    for _ in 0..5 {
        let error = call.clone().send().await.expect_err("no reply is sent");
        assert!(matches!(error, RequestError::TimedOut { sent: true, .. }), "{error:?}");
    }
    assert_eq!(session.hosts()[0].state.orphaned, 5);
    node.cont().expect("it continues");
    // A late reply would be another cell.
    assert_eq!(select(&session, "SELECT key FROM system.local").await.cells, [b"local"]);
    eventually("the late replies have arrived", || session.hosts()[0].state.orphaned == 0).await;
    assert_eq!(session.hosts()[0].state.open, 1);
}

/// Waits until the node, which has returned, takes requests. No event announces that.
async fn used_again(session: &Session) {
    let begun = Instant::now();
    while session.query("SELECT key FROM system.local").consistency(Consistency::One).send().await.is_err() {
        assert!(begun.elapsed() < PATIENCE, "the node is not used again");
        smol::Timer::after(Duration::from_millis(10)).await;
    }
    println!("a node is used {:?} after its return", begun.elapsed());
}

async fn killed_node_is_used_again(node: &mut Cassandra) {
    let session = session(node);
    create_table(&session, "killed").await;
    node.kill();
    // Started when the node listens again, which is earlier than the end of `restart`.
    let listening = Arc::new(OnceLock::new());
    let listener = std::thread::spawn({
        let (address, listening) = (node.address(), Arc::clone(&listening));
        move || {
            while TcpStream::connect(address).is_err() {
                std::thread::sleep(Duration::from_millis(5));
            }
            listening.get_or_init(Stopwatch::start);
        }
    });
    // The time from then until the attempt begins that establishes a connection.
    let mut events = session.subscribe();
    let took = smol::spawn(async move {
        loop {
            let Notice::Event { event: Event::Mux(event), .. } = events.next().await.expect("the session is open")
            else {
                continue;
            };
            if let MuxEvent::ConnectionReady { duration, .. } = event {
                return listening.get().map_or(Duration::ZERO, Stopwatch::elapsed).saturating_sub(duration);
            }
        }
    });
    let error =
        session.query("SELECT key FROM system.local").consistency(Consistency::One).send().await.expect_err("no node");
    assert!(error.to_string().contains(&node.address().to_string()), "{error}");
    node.restart().expect("it starts again");
    used_again(&session).await;
    listener.join().expect("no panic");
    let took = took.await;
    println!("the attempt that establishes a connection begins {took:?} after the node listens again");
    // The pause between two attempts is at most half a second.
    assert!(took < Duration::from_millis(750), "{took:?}");
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
                if session.query(&text).consistency(Consistency::One).send().await.is_err() {
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
    let found = select(&session, "SELECT id FROM shop.shutdown").await.cells;
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
    let node = Cassandra::start(CassandraOptions { requires_password: true, more: &more, join: None })?;
    let with = |password: &str, ca_file: &std::path::Path| {
        let mut tls = TlsOptions::default();
        tls.ca_file = Some(ca_file.to_owned());
        Session::new(options(&node).tls(tls).credential("cassandra", password)).expect("valid options")
    };
    run(async {
        let page = select(&with("cassandra", &authority), "SELECT key FROM system.local").await;
        assert_eq!(page.cells, [b"local"]);
        for (password, ca_file, reason) in [("tea", &authority, "password"), ("cassandra", &other, "certificate")] {
            let error = with(password, ca_file)
                .query("SELECT key FROM system.local")
                .consistency(Consistency::One)
                .send()
                .await;
            let text = error.expect_err("it is refused").to_string();
            assert!(text.contains(reason) && text.contains(&node.address().to_string()), "{text}");
        }
    });
    Ok(())
}

/// Waits for an event of the cluster.
async fn cluster_event(events: &mut Subscription, wanted: impl Fn(ClusterEvent) -> bool) {
    let shown = |event| {
        println!("{event}");
        wanted(event)
    };
    patience::cluster_event(events, PATIENCE * 3, "the event", shown).await;
}

/// The number of requests whose coordinator did not have the data, according to their traces.
async fn foreign_count(session: &Session, traces: &[[u8; 16]]) -> usize {
    let mut count = 0;
    for trace in traces {
        // A trace is written after the reply.
        let begun = Instant::now();
        let text = "SELECT duration FROM system_traces.sessions WHERE session_id = ?";
        while select_maybe(session, text, *trace).await.concat().is_empty() {
            assert!(begun.elapsed() < PATIENCE, "a trace is not complete");
            smol::Timer::after(Duration::from_millis(10)).await;
        }
        let text = "SELECT source FROM system_traces.events WHERE session_id = ?";
        let mut sources = select_maybe(session, text, *trace).await;
        sources.sort();
        sources.dedup();
        count += usize::from(sources.len() > 1);
    }
    count
}

/// The cells of a result about a trace, which may be null; then they are empty.
async fn select_maybe(session: &Session, text: &str, trace: [u8; 16]) -> Vec<Vec<u8>> {
    let reply = plain(session, text).values((trace,)).send().await;
    let reply = reply.unwrap_or_else(|error| panic!("{text}: {error}"));
    let rows = reply.rows().expect("rows");
    rows.flatten().map(|cell| cell.unwrap_or_default().to_vec()).collect()
}

/// Executes reads of single rows with traces. Returns the ids of the traces.
async fn traced_reads(session: &Session, ids: core::ops::Range<i32>, is_routed: bool) -> Vec<[u8; 16]> {
    let mut traces = Vec::new();
    for id in ids {
        let text = format!("SELECT what FROM shop.routed WHERE id = {id}");
        let mut call = plain(session, &text).tracing(true);
        if is_routed {
            call = call.routing("shop", &id.to_be_bytes());
        }
        let reply = call.send().await.expect("it is read");
        traces.push(reply.tracing_id().expect("well-formed").expect("a trace"));
    }
    traces
}

fn session_finds_a_cluster_and_routes_by_token() -> Result<(), String> {
    let first = Cassandra::start(CassandraOptions::default())?;
    let join =
        |last| CassandraOptions { join: Some((&first, Ipv4Addr::new(127, 0, 0, last))), ..CassandraOptions::default() };
    let second = Cassandra::start(join(2))?;
    // Each node listens on a port of its own.
    let options = SessionOptions::contact_points([first.address().to_string()])
        .node_ports(true)
        .request_timeout(PATIENCE * 3)
        .local_data_center("dc1");
    let subscribers = Subscribers::default();
    let mut events = subscribers.subscribe(EventKinds::CLUSTER, 256, |_| true);
    let session = Session::with_platform(Smol, options, subscribers).expect("valid options");
    let addresses = |session: &Session| -> Vec<_> {
        session.cluster().expect("it finds its hosts").nodes.iter().map(|node| node.address).collect()
    };
    run(async {
        cluster_event(&mut events, |event| event == ClusterEvent::NodeAdded { node: second.address() }).await;
        eventually("the hosts are known", || session.hosts().len() == 2).await;
        assert_eq!(addresses(&session), [first.address(), second.address()]);
    });
    // A node that joins is found by its event.
    let mut third = Cassandra::start(join(3))?;
    run(async {
        cluster_event(&mut events, |event| event == ClusterEvent::NodeAdded { node: third.address() }).await;
        assert_eq!(addresses(&session), [first.address(), second.address(), third.address()]);
        let status = session.cluster().expect("it finds its hosts");
        assert_eq!((status.name.as_deref(), status.is_connected), (Some("poolhouse"), true));
        for node in &status.nodes {
            assert_eq!((node.data_center.as_str(), node.rack.as_str(), node.token_count), ("dc1", "rack1", 16));
        }
        eventually("all hosts are connected", || {
            let hosts = session.hosts();
            hosts.len() == 3 && hosts.iter().all(|host| host.state.open == 1)
        })
        .await;
        let routed = status.routed_keyspaces;
        create_table(&session, "routed").await;
        for host in session.hosts() {
            let call = plain(&session, "SELECT what FROM shop.routed");
            call.hosts(&[host.id]).send().await.expect("each node has the table");
        }
        eventually("the keyspace is known", || {
            session.cluster().is_some_and(|status| status.routed_keyspaces == routed + 1)
        })
        .await;
        for id in 0..300_i32 {
            let insert = plain(&session, "INSERT INTO shop.routed (id, what) VALUES (?, ?)");
            insert.values((id, "tea")).send().await.expect("it is inserted");
        }
        let routed = traced_reads(&session, 0..300, true).await;
        let foreign = foreign_count(&session, &routed).await;
        println!("{foreign} of {} routed requests went to a node without the data", routed.len());
        assert!(foreign * 100 <= routed.len(), "{foreign}");
        let statement = session.prepare("SELECT what FROM shop.routed WHERE id = ?").await.expect("prepared");
        assert_eq!(statement.key_positions(), [0]);
        let mut executed = Vec::new();
        for id in 0..100_i32 {
            let call = session.execute(&statement, &(id,)).consistency(Consistency::One);
            let reply = call.skip_metadata(true).tracing(true).send().await.expect("it is executed");
            assert_eq!(Page::of(&reply).cells, [b"tea"]);
            executed.push(reply.tracing_id().expect("well-formed").expect("a trace"));
        }
        let foreign = foreign_count(&session, &executed).await;
        println!("{foreign} of {} executions", executed.len());
        assert!(foreign * 100 <= executed.len(), "{foreign}");
        let other = traced_reads(&session, 0..60, false).await;
        let foreign = foreign_count(&session, &other).await;
        println!("{foreign} of {} other requests", other.len());
        // On average two of three.
        assert!(foreign > 20, "without routing most requests go to other nodes: {foreign}");
    });
    third.kill();
    run(async {
        cluster_event(&mut events, |event| event == ClusterEvent::NodeDown { node: third.address() }).await;
        let down: Vec<_> = session.cluster().expect("it finds its hosts").nodes.iter().map(|node| node.is_up).collect();
        assert_eq!(down, [true, true, false]);
        for _ in 0..10 {
            execute(&session, "SELECT key FROM system.local").await;
        }
    });
    third.restart()?;
    run(async {
        cluster_event(&mut events, |event| event == ClusterEvent::NodeUp { node: third.address() }).await;
        // The event ends the pause before the next attempt to connect, which has grown meanwhile.
        let returned = Instant::now();
        eventually("it is used again", || session.hosts().iter().all(|host| host.state.open == 1)).await;
        println!("the node is used {:?} after the event", returned.elapsed());
    });
    forgotten::statements_are_prepared_again_where_they_are_missing(&session, &mut third);
    changes::drained_node_is_left_and_used_again(second, &Arc::new(session), &mut events)
}
