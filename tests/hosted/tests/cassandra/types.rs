//! Values of all CQL types, written by us and read by PyPI's `cassandra-driver`, and the reverse, on a real
//! node. Both have the same rows, of usual values, nulls, empty values and extremes.

use super::{execute, session};
use alloc::collections::{BTreeMap, BTreeSet};
use core::net::IpAddr;
use poolhouse_smol::mux::Session;
use poolhouse_smol::mux::cql::{Date, Decimal, Duration, MaybeEmpty, MaybeUnset, Time, Timestamp, Uuid, Varint};
use poolhouse_tests::cassandra::{Cassandra, other_driver, script_of_other_driver};
use serde::{Deserialize, Serialize};

/// A value as plain text: see `plain` in `cassandra_types.py`.
trait Plain {
    fn plain(&self) -> String;
}

macro_rules! by_display {
    ($($type:ty),+) => {$(
        impl Plain for $type {
            fn plain(&self) -> String {
                self.to_string()
            }
        }
    )+};
}

by_display!(bool, i8, i16, i32, i64, Varint, Uuid);

impl Plain for f64 {
    fn plain(&self) -> String {
        format!("{:016x}", self.to_bits())
    }
}

impl Plain for f32 {
    fn plain(&self) -> String {
        f64::from(*self).plain()
    }
}

impl Plain for String {
    fn plain(&self) -> String {
        self.bytes().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The other driver has addresses as texts.
impl Plain for IpAddr {
    fn plain(&self) -> String {
        self.to_string().plain()
    }
}

impl Plain for Decimal {
    fn plain(&self) -> String {
        format!("{}e{}", self.unscaled(), -i64::from(self.scale()))
    }
}

impl Plain for Timestamp {
    fn plain(&self) -> String {
        self.ms().to_string()
    }
}

impl Plain for Date {
    fn plain(&self) -> String {
        self.days().to_string()
    }
}

impl Plain for Time {
    fn plain(&self) -> String {
        self.ns().to_string()
    }
}

impl Plain for Duration {
    fn plain(&self) -> String {
        format!("{}/{}/{}", self.months(), self.days(), self.nanoseconds())
    }
}

/// A blob: bytes in hexadecimal digits, unlike a list of numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Blob(Vec<u8>);

impl Plain for Blob {
    fn plain(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl<T: Plain> Plain for Option<T> {
    fn plain(&self) -> String {
        self.as_ref().map_or("null".into(), T::plain)
    }
}

fn listed(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(" "))
}

impl<T: Plain> Plain for Vec<T> {
    fn plain(&self) -> String {
        listed(self.iter().map(T::plain))
    }
}

impl<T: Plain, const N: usize> Plain for [T; N] {
    fn plain(&self) -> String {
        listed(self.iter().map(T::plain))
    }
}

impl<T: Plain> Plain for BTreeSet<T> {
    fn plain(&self) -> String {
        let mut all: Vec<_> = self.iter().map(T::plain).collect();
        all.sort();
        listed(all.into_iter())
    }
}

impl<K: Plain, V: Plain> Plain for BTreeMap<K, V> {
    fn plain(&self) -> String {
        let mut all: Vec<_> = self.iter().map(|(key, value)| format!("{}={}", key.plain(), value.plain())).collect();
        all.sort();
        listed(all.into_iter())
    }
}

impl<A: Plain, B: Plain, C: Plain> Plain for (A, B, C) {
    fn plain(&self) -> String {
        listed([self.0.plain(), self.1.plain(), self.2.plain()].into_iter())
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Place {
    name: Option<String>,
    spot: Option<[f32; 2]>,
    notes: Option<BTreeMap<String, i32>>,
}

impl Plain for Place {
    fn plain(&self) -> String {
        listed([self.name.plain(), self.spot.plain(), self.notes.plain()].into_iter())
    }
}

fn place(name: Option<&str>, spot: Option<[f32; 2]>, notes: Option<&[(&str, i32)]>) -> Place {
    let notes = notes.map(|notes| notes.iter().map(|(name, number)| ((*name).into(), *number)).collect());
    Place { name: name.map(String::from), spot, notes }
}

macro_rules! table {
    ($($column:ident $cql:literal: $type:ty,)+) => {
        /// The columns, and the Rust type of each.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        struct Row {
            id: String,
            $($column: $type,)+
        }

        const COLUMNS: &[(&str, &str)] = &[$((stringify!($column), $cql)),+];

        impl Row {
            fn lines(&self) -> Vec<String> {
                vec![$(format!("{}\t{}\t{}", self.id, stringify!($column), self.$column.plain())),+]
            }
        }
    };
}

table! {
    ascii "ascii": Option<String>,
    bigint "bigint": Option<i64>,
    blob "blob": Option<Blob>,
    boolean "boolean": Option<bool>,
    date "date": Option<Date>,
    decimal "decimal": Option<Decimal>,
    double "double": Option<f64>,
    duration "duration": Option<Duration>,
    float "float": Option<f32>,
    inet "inet": Option<IpAddr>,
    int "int": Option<i32>,
    l_vector "list<frozen<vector<float, 2>>>": Option<Vec<[f32; 2]>>,
    list "list<int>": Option<Vec<i32>>,
    lists "list<frozen<list<int>>>": Option<Vec<Vec<i32>>>,
    map "map<text, decimal>": Option<BTreeMap<String, Decimal>>,
    s "set<text>": Option<BTreeSet<String>>,
    smallint "smallint": Option<i16>,
    text "text": Option<String>,
    time "time": Option<Time>,
    timestamp "timestamp": Option<Timestamp>,
    timeuuid "timeuuid": Option<Uuid>,
    tinyint "tinyint": Option<i8>,
    tuple "tuple<int, text, vector<float, 2>>": Option<(Option<i32>, Option<String>, Option<Vec<f32>>)>,
    udt "frozen<place>": Option<Place>,
    udts "list<frozen<place>>": Option<Vec<Place>>,
    uuid "uuid": Option<Uuid>,
    v_decimal "vector<decimal, 2>": Option<Vec<Decimal>>,
    v_float "vector<float, 3>": Option<Vec<f32>>,
    v_list "vector<frozen<list<int>>, 2>": Option<Vec<Vec<i32>>>,
    v_smallint "vector<smallint, 3>": Option<Vec<i16>>,
    v_text "vector<text, 2>": Option<Vec<String>>,
    v_udt "vector<frozen<place>, 2>": Option<Vec<Place>>,
    v_varint "vector<varint, 2>": Option<Vec<Varint>>,
    v_vector "vector<vector<int, 2>, 2>": Option<[[i32; 2]; 2]>,
    varint "varint": Option<Varint>,
}

fn decimal(unscaled: &str, scale: i32) -> Decimal {
    Decimal::new(unscaled.parse::<Varint>().expect("a number"), scale)
}

fn rows() -> Vec<Row> {
    let long: Varint = format!("1{}", "0".repeat(50)).parse().expect("a number");
    let nines = "9".repeat(40);
    let at = |text: &str| Some(text.parse::<Timestamp>().expect("a time"));
    vec![
        Row {
            id: "usual".into(),
            ascii: Some("tea".into()),
            bigint: Some(7),
            blob: Some(Blob(vec![1, 255])),
            boolean: Some(true),
            date: Some(Date::from_days(20_000)),
            decimal: Some(decimal("-1250", 2)),
            double: Some(0.1),
            duration: Duration::new(14, 3, 5_000_000_001),
            float: Some(-2.5),
            inet: Some(IpAddr::from([10, 0, 0, 1])),
            int: Some(8),
            l_vector: Some(vec![[1.5, 2.5], [3.5, 4.5]]),
            list: Some(vec![1, 2, -3]),
            lists: Some(vec![vec![1], vec![], vec![2, 3]]),
            map: Some(BTreeMap::from([("x".into(), decimal("15", 1)), ("y".into(), decimal("-2", 0))])),
            s: Some(BTreeSet::from(["a".into(), "b".into()])),
            smallint: Some(-300),
            text: Some("Grüße 茶".into()),
            time: Time::from_ns(37_000_000_009),
            timestamp: Some(Timestamp::from_ms(1_790_000_000_123)),
            timeuuid: "fe2b4360-28c6-11e2-81c1-0800200c9a66".parse().ok(),
            tinyint: Some(-5),
            tuple: Some((Some(1), None, Some(vec![1.5, -2.5]))),
            udt: Some(place(Some("a"), Some([1.5, 2.5]), None)),
            udts: Some(vec![place(None, None, Some(&[("n", 1)]))]),
            uuid: Some(Uuid::from_bytes(77_u128.to_be_bytes())),
            v_decimal: Some(vec![decimal("1", 3), decimal("7", 0)]),
            v_float: Some(vec![1.0, 2.5, -3.0]),
            v_list: Some(vec![vec![1, 2], vec![]]),
            v_smallint: Some(vec![1, -2, 300]),
            v_text: Some(vec![String::new(), "long ".repeat(40)]),
            v_udt: Some(vec![place(Some("b"), None, None), place(None, Some([0.5, 0.25]), Some(&[]))]),
            v_varint: Some(vec![Varint::from(-1), long.clone()]),
            v_vector: Some([[7, 258], [-1, 0]]),
            varint: Some(Varint::from(-129)),
        },
        Row { id: "nulls".into(), ..Row::default() },
        Row {
            id: "empties".into(),
            ascii: Some(String::new()),
            blob: Some(Blob(Vec::new())),
            text: Some(String::new()),
            tuple: Some((None, Some(String::new()), None)),
            lists: Some(Vec::new()),
            list: Some(Vec::new()),
            s: Some(BTreeSet::new()),
            map: Some(BTreeMap::new()),
            udts: Some(Vec::new()),
            ..Row::default()
        },
        Row {
            id: "least".into(),
            bigint: Some(i64::MIN),
            boolean: Some(false),
            date: Some(Date::from_days(i32::MIN)),
            decimal: Some(decimal(&format!("-{nines}"), -300)),
            double: Some(f64::NEG_INFINITY),
            duration: Duration::new(-i32::MAX, -i32::MAX, -i64::MAX),
            float: Some(f32::MIN),
            inet: Some(IpAddr::from([0; 4])),
            int: Some(i32::MIN),
            smallint: Some(i16::MIN),
            time: Time::from_ns(0),
            timestamp: at("0001-01-01T00:00:00Z"),
            tinyint: Some(i8::MIN),
            uuid: Some(Uuid::from_bytes([0; 16])),
            v_float: Some(vec![-0.0, f32::NEG_INFINITY, f32::from_bits(1)]),
            varint: format!("-{long}").parse().ok(),
            ..Row::default()
        },
        Row {
            id: "greatest".into(),
            bigint: Some(i64::MAX),
            date: Some(Date::from_days(i32::MAX)),
            decimal: Some(decimal(&nines, 300)),
            double: Some(f64::INFINITY),
            duration: Duration::new(i32::MAX, i32::MAX, i64::MAX),
            float: Some(f32::MAX),
            inet: Some(IpAddr::from([0xff; 16])),
            int: Some(i32::MAX),
            smallint: Some(i16::MAX),
            time: Time::from_ns(86_399_999_999_999),
            timestamp: at("9999-12-31T23:59:59Z"),
            tinyint: Some(i8::MAX),
            uuid: Some(Uuid::from_bytes([0xff; 16])),
            varint: Some(long),
            ..Row::default()
        },
    ]
}

/// The lines of rows, sorted. Collections that are not frozen are null if they are empty: Cassandra keeps
/// no empty ones.
fn stored(rows: &[Row]) -> Vec<String> {
    let mut lines: Vec<String> = rows.iter().flat_map(Row::lines).collect();
    for line in lines.iter_mut().filter(|line| line.ends_with("\t[]")) {
        line.truncate(line.len() - 2);
        line.push_str("null");
    }
    lines.sort();
    lines
}

/// Runs the script of the other driver, and returns its lines.
fn python(node: &Cassandra, what: &str, table: &str) -> Vec<String> {
    let program = other_driver().expect("checked before");
    let done = script_of_other_driver(&program, "cassandra_types.py", node.address())
        .args(["types", what, table])
        .output()
        .expect("the program timeout is installed");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{what} {table}: {said}{}", String::from_utf8_lossy(&done.stderr));
    let mut lines: Vec<String> = said.lines().map(String::from).collect();
    lines.sort();
    lines
}

async fn create(session: &Session) {
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    execute(session, "DROP KEYSPACE IF EXISTS types").await;
    execute(session, &format!("CREATE KEYSPACE types WITH replication = {replication}")).await;
    let place = "CREATE TYPE types.place (name text, spot frozen<vector<float, 2>>, notes frozen<map<text, int>>)";
    execute(session, place).await;
    for table in ["by_rust", "by_python"] {
        let columns: String = COLUMNS.iter().map(|(name, kind)| format!("{name} {kind}, ")).collect();
        execute(
            session,
            &format!("CREATE TABLE types.{table} (id text PRIMARY KEY, {})", columns.trim_end_matches(", ")),
        )
        .await;
    }
}

pub(super) async fn types_are_those_of_another_driver(node: &mut Cassandra) {
    let session = session(node);
    create(&session).await;
    let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    let marks = vec!["?"; names.len()].join(", ");
    let insert = format!("INSERT INTO types.by_rust (id, {}) VALUES (?, {marks})", names.join(", "));
    for row in rows() {
        session.query(&insert).values(&row).send().await.unwrap_or_else(|error| panic!("{}: {error}", row.id));
    }
    let expected = stored(&rows());
    assert_lines("written by us", &python(node, "read", "by_rust"), &expected);
    let written = python(node, "write", "by_python");
    let (as_written, read): (Vec<_>, Vec<_>) = written.into_iter().partition(|line| line.starts_with("as written: "));
    assert_lines("written and read by the other driver", &read, &expected);
    // The other driver has the same rows as we have: only null columns are left out.
    let with_values = rows().iter().flat_map(Row::lines).filter(|line| !line.ends_with("\tnull")).count();
    assert_eq!(as_written.len(), with_values, "{as_written:?}");
    for table in ["by_python", "by_rust"] {
        let found: Vec<Row> =
            session.query(&format!("SELECT * FROM types.{table}")).send().await.expect(table).all().expect(table);
        assert_lines(table, &stored(&found), &expected);
    }
    // Each row can be skipped, whatever it contains.
    let reply = session.query("SELECT * FROM types.by_python").send().await.expect("read");
    let natural: Vec<BTreeMap<String, serde::de::IgnoredAny>> = reply.all().expect("any value");
    assert_eq!(natural.len(), rows().len());
    null_empty_and_unset_are_three_things(&session).await;
    session.close().await;
}

/// An empty number is what other clients have written by `blobAsInt(0x)`, or by Thrift.
async fn null_empty_and_unset_are_three_things(session: &Session) {
    let insert =
        session.prepare("INSERT INTO types.by_rust (id, int, ascii) VALUES (?, ?, ?)").await.expect("prepared");
    let read = async |id: &str| {
        let select = "SELECT int, ascii, intAsBlob(int) FROM types.by_rust WHERE id = ?";
        session.query(select).values((id,)).send().await.expect("read")
    };
    type Found = (Option<MaybeEmpty<i32>>, Option<String>, Option<Blob>);
    execute(session, "INSERT INTO types.by_rust (id, int) VALUES ('theirs', blobAsInt(0x))").await;
    let ours = ("ours", MaybeEmpty::<i32>::Empty, MaybeUnset::<&str>::Unset);
    session.execute(&insert, &ours).send().await.expect("an empty number");
    for id in ["theirs", "ours"] {
        let reply = read(id).await;
        let empty = (Some(MaybeEmpty::Empty), None, Some(Blob(Vec::new())));
        assert_eq!(reply.one::<Found>().expect("three values"), Some(empty), "{id}");
        let error = reply.one::<(Option<i32>, Option<String>, Option<Blob>)>().expect_err("no number");
        assert!(error.to_string().contains("int") && error.to_string().contains("MaybeEmpty"), "{error}");
    }
    let both = ("ours", 5, Some("tea"));
    session.execute(&insert, &both).send().await.expect("both");
    session.execute(&insert, &("ours", None::<i32>, MaybeUnset::<&str>::Unset)).send().await.expect("null and unset");
    let found = read("ours").await.one::<Found>().expect("three values");
    assert_eq!(found, Some((None, Some("tea".into()), None)), "null is written, what is unset stays");
}

fn assert_lines(what: &str, found: &[String], expected: &[String]) {
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected, "{what}");
    }
    assert_eq!(found.len(), expected.len(), "{what}");
}
