use super::*;
use crate::response::{Outcome, OutcomeKind};
use alloc::collections::BTreeMap;
use alloc::string::{String as Text, ToString};
use alloc::vec;
use core::net::IpAddr;
use serde::Deserialize;

fn string(text: &str) -> Vec<u8> {
    [&u16::try_from(text.len()).expect("short").to_be_bytes(), text.as_bytes()].concat()
}

fn int(number: usize) -> [u8; 4] {
    i32::try_from(number).expect("small").to_be_bytes()
}

fn value(bytes: Option<&[u8]>) -> Vec<u8> {
    bytes.map_or_else(|| vec![0xff; 4], |bytes| [&int(bytes.len()), bytes].concat())
}

/// A list, a set, a tuple or a map: its count, if it has one, and its values.
fn values(count: Option<usize>, values: &[&[u8]]) -> Vec<u8> {
    let mut all = count.map(int).map_or_else(Vec::new, |count| count.to_vec());
    all.extend(values.iter().flat_map(|bytes| value(Some(bytes))));
    all
}

/// The body of a result with these columns, each a name and a type, and these rows.
fn body(columns: &[(&str, &[u8])], rows: &[&[Option<&[u8]>]]) -> Vec<u8> {
    let mut body = [int(1), int(columns.len())].concat();
    body.extend([string("shop"), string("orders")].concat());
    body.extend(columns.iter().flat_map(|(name, kind)| [&string(name), *kind].concat()));
    body.extend(int(rows.len()));
    body.extend(rows.iter().flat_map(|row| row.iter()).flat_map(|cell| value(*cell)));
    body
}

fn rows(body: &[u8]) -> Rows<'_> {
    Outcome { kind: OutcomeKind::Rows, body }.rows().expect("well-formed").expect("rows")
}

/// Reads the only column of the only row.
fn cell<T: for<'a> Deserialize<'a>>(kind: &[u8], bytes: Option<&[u8]>) -> Result<T, RowError> {
    let body = body(&[("it", kind)], &[&[bytes]]);
    let (one,) = rows(&body).deserialize::<(T,)>().next().expect("a row")?;
    Ok(one)
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Order<'a> {
    id: i32,
    customer: &'a str,
    note: Option<&'a str>,
}

#[test]
fn row_is_a_struct_a_map_or_a_tuple() {
    let columns: [(&str, &[u8]); 3] = [("id", &[0, 9]), ("customer", &[0, 13]), ("note", &[0, 13])];
    let body = body(&columns, &[&[Some(&int(7)), Some(b"ann"), None], &[Some(&int(8)), Some(b"bob"), Some(b"")]]);
    let rows = rows(&body);
    let orders: Result<Vec<Order<'_>>, _> = rows.deserialize().collect();
    let expected = [Order { id: 7, customer: "ann", note: None }, Order { id: 8, customer: "bob", note: Some("") }];
    assert_eq!(orders.expect("orders"), expected);
    let tuples: Vec<(i64, Text, Option<&str>)> = rows.deserialize().collect::<Result<_, _>>().expect("tuples");
    assert_eq!(tuples[0], (7, Text::from("ann"), None));
    #[derive(Deserialize)]
    struct Wide {
        customer: Text,
    }
    // The other columns are ignored.
    let wide: Vec<Wide> = rows.deserialize().collect::<Result<_, _>>().expect("fields");
    assert_eq!(wide[1].customer, "bob");
}

#[test]
fn types_are_those_of_serde() {
    let ok = |text: &str| -> Result<Text, RowError> { Ok(text.into()) };
    assert_eq!(cell(&[0, 1], Some(b"tea")), ok("tea"));
    assert_eq!(cell(&[0, 2], Some(&(-3_i64).to_be_bytes())), Ok(-3_i64));
    assert_eq!(cell(&[0, 4], Some(&[1])), Ok(true));
    assert_eq!(cell(&[0, 5], Some(&5_u64.to_be_bytes())), Ok(5_u64));
    assert_eq!(cell(&[0, 7], Some(&1.5_f64.to_be_bytes())), Ok(1.5_f64));
    assert_eq!(cell(&[0, 8], Some(&1.5_f32.to_be_bytes())), Ok(1.5_f32));
    assert_eq!(cell(&[0, 0xb], Some(&9_i64.to_be_bytes())), Ok(9_i64));
    assert_eq!(cell(&[0, 0x11], Some(&0x8000_0001_u32.to_be_bytes())), Ok(1_i64));
    assert_eq!(cell(&[0, 0x11], Some(&0x7fff_ffff_u32.to_be_bytes())), Ok(-1_i32));
    assert_eq!(cell(&[0, 0x13], Some(&[0xff, 0xfe])), Ok(-2_i16));
    assert_eq!(cell(&[0, 0x14], Some(&[0xff])), Ok(-1_i8));
    assert_eq!(cell(&[0, 0xe], Some(&[0xff, 0x00])), Ok(-256_i32));
    assert_eq!(cell(&[0, 0xe], Some(&[0x00, 0xff])), Ok(255_i128));
    let wide = i128::MAX - 1;
    assert_eq!(cell(&[0, 0xe], Some(&wide.to_be_bytes())), Ok(wide));
    assert!(cell::<i128>(&[0, 0xe], Some(&[1; 17])).is_err());
    assert_eq!(cell(&[0, 0xe], Some(&[&[0][..], &[0xff; 8]].concat())), Ok(u64::MAX));
    let uuid: [u8; 16] = core::array::from_fn(|place| u8::try_from(place).expect("small") + 0x10);
    assert_eq!(cell(&[0, 0xc], Some(&uuid)), ok("10111213-1415-1617-1819-1a1b1c1d1e1f"));
    assert_eq!(cell(&[0, 0xf], Some(&uuid)), Ok(uuid));
    assert_eq!(cell(&[0, 0x10], Some(&[10, 0, 0, 1])), Ok(IpAddr::from([10, 0, 0, 1])));
    assert_eq!(cell(&[0, 0x10], Some(&[0xff; 16])), Ok(IpAddr::from([0xffff_u16; 8])));
    assert_eq!(cell(&[0, 3], Some(&[1, 2])), Ok(vec![1_u8, 2]));
    assert_eq!(cell(&[0, 3], Some(&[])), Ok(Vec::<u8>::new()));
    #[derive(Debug, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum State {
        Paid,
        Sent,
    }
    assert_eq!(cell(&[0, 13], Some(b"sent")), Ok(State::Sent));
    let error = cell::<State>(&[0, 13], Some(b"lost")).expect_err("no such state");
    assert_eq!(
        error.to_string(),
        "column it: varchar does not fit State: a text that is not one of [\"paid\", \"sent\"]"
    );
}

#[test]
fn collections_contain_values_of_their_types() {
    let list = values(Some(2), &[&int(1), &int(2)]);
    assert_eq!(cell(&[0, 0x20, 0, 9], Some(&list)), Ok(vec![1, 2]));
    assert_eq!(cell(&[0, 0x22, 0, 9], Some(&list)), Ok((1, 2)));
    let map = values(Some(2), &[b"a", &int(1), b"b", &int(2)]);
    let expected = BTreeMap::from([("a".to_string(), 1), ("b".to_string(), 2)]);
    assert_eq!(cell(&[0, 0x21, 0, 13, 0, 9], Some(&map)), Ok(expected));
    let tuple = values(None, &[b"a", &int(1)]);
    assert_eq!(cell(&[0, 0x31, 0, 2, 0, 13, 0, 9], Some(&tuple)), Ok(("a".to_string(), 1)));
    let short = values(None, &[&int(1)]);
    assert_eq!(cell(&[0, 0x31, 0, 2, 0, 9, 0, 9], Some(&short)), Ok((1, None::<i32>)));
    assert_eq!(cell(&[0, 0x31, 0, 2, 0, 9, 0, 9], Some(&short)), Ok(vec![Some(1)]));
    let lists = values(Some(1), &[&list]);
    assert_eq!(cell(&[0, 0x20, 0, 0x20, 0, 9], Some(&lists)), Ok(vec![vec![1, 2]]));
}

/// A target that reads one entry and no more.
#[derive(Debug, PartialEq, Eq)]
struct First(Text, i32);

impl<'de> Deserialize<'de> for First {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reads;
        impl<'de> Visitor<'de> for Reads {
            type Value = First;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an entry")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<First, A::Error> {
                let (name, number) = entries.next_entry()?.expect("an entry");
                Ok(First(name, number))
            }
        }
        deserializer.deserialize_map(Reads)
    }
}

#[test]
fn entries_and_fields_that_are_left_are_an_error() {
    let map = [0, 0x21, 0, 13, 0, 9];
    let fields = [string("a"), vec![0, 9], string("b"), vec![0, 9]].concat();
    let udt = [&[0, 0x30][..], &string("k"), &string("u"), &[0, 2], &fields].concat();
    let (one, two) = (int(1), int(2));
    let entries = [&b"a"[..], &one, b"b", &two];
    assert_eq!(cell(&map, Some(&values(Some(1), &entries[..2]))), Ok(First("a".into(), 1)));
    // Fields that are missing are not left.
    assert_eq!(cell(&udt, Some(&values(None, &[&one]))), Ok(First("a".into(), 1)));
    for (kind, bytes) in [(&map[..], values(Some(2), &entries)), (&udt, values(None, &[&one, &two]))] {
        let error = cell::<First>(kind, Some(&bytes)).expect_err("two");
        assert!(error.to_string().ends_with(" does not fit First: 2 values, expected 1"), "{error}");
    }
    let columns: [(&str, &[u8]); 2] = [("a", &[0, 9]), ("b", &[0, 9])];
    for (count, expected) in [(1, Ok(First("a".into(), 1))), (2, Err("2 values, expected 1".into()))] {
        let body = body(&columns[..count], &[&[Some(&one[..]), Some(&two)][..count]]);
        let first = rows(&body).deserialize::<First>().next().expect("a row");
        assert_eq!(first.map_err(|error| error.to_string()), expected);
    }
}

#[test]
fn last_value_of_a_repeated_key_is_kept() {
    let map = values(Some(3), &[b"a", &int(1), b"b", &int(2), b"a", &int(3)]);
    let kept = BTreeMap::from([("a".to_string(), 3), ("b".to_string(), 2)]);
    assert_eq!(cell(&[0, 0x21, 0, 13, 0, 9], Some(&map)), Ok(kept.clone()));
    let columns: [(&str, &[u8]); 3] = [("a", &[0, 9]), ("b", &[0, 9]), ("a", &[0, 9])];
    let body = body(&columns, &[&[Some(&int(1)), Some(&int(2)), Some(&int(3))]]);
    assert_eq!(rows(&body).deserialize().next().expect("a row"), Ok(kept));
    #[derive(Debug, Deserialize)]
    struct A {
        #[serde(rename = "a")]
        _a: i32,
    }
    let error = rows(&body).deserialize::<A>().next().expect("a row").expect_err("two");
    assert_eq!(error.to_string(), "duplicate field `a`");
}

#[test]
fn fields_that_were_added_later_are_missing() {
    #[derive(Debug, PartialEq, Eq, Deserialize)]
    struct Address {
        city: Text,
        zip: Option<i32>,
    }
    let fields = [string("city"), vec![0, 13], string("zip"), vec![0, 9]].concat();
    let kind = [&[0, 0x30][..], &string("shop"), &string("address"), &[0, 2], &fields].concat();
    let older = values(None, &[b"Rome"]);
    assert_eq!(cell(&kind, Some(&older)), Ok(Address { city: "Rome".into(), zip: None }));
    let whole = values(None, &[b"Rome", &int(184)]);
    assert_eq!(cell(&kind, Some(&whole)), Ok(Address { city: "Rome".into(), zip: Some(184) }));
    assert_eq!(cell(&kind, Some(&whole)), Ok(("Rome".to_string(), 184)));
    assert_eq!(cell(&kind, Some(&older)), Ok(("Rome".to_string(), None::<i32>)));
    assert!(cell::<(Text,)>(&kind, Some(&whole)).is_err());
}

#[test]
fn fields_that_are_missing_are_made_for_targets_of_a_fixed_length_only() {
    #[derive(Debug, PartialEq, Eq, Deserialize)]
    struct Pair(Option<i32>, Option<i32>);
    #[derive(Debug, PartialEq, Eq, Deserialize)]
    struct Lists {
        a: Vec<i32>,
        b: Option<i32>,
    }
    let tuple = [0, 0x31, 0, 2, 0, 9, 0, 9];
    let wide = [&[0, 0x31, 0x1f, 0xf0][..], &[0, 9].repeat(0x1ff0)].concat();
    assert_eq!(cell(&wide, Some(&[])), Ok(Vec::<Option<i32>>::new()));
    assert_eq!(cell(&wide, Some(&value(None))), Ok(vec![None::<i32>]));
    assert_eq!(cell(&wide, Some(&[])), Ok(serde_json::json!([])));
    assert_eq!(cell(&tuple, Some(&[])), Ok(Pair(None, None)));
    assert_eq!(cell(&tuple, Some(&value(Some(&int(1))))), Ok([Some(1), None]));
    // A tuple of another length than the type is an error nevertheless.
    for bytes in [vec![], value(None), [value(None), value(None)].concat()] {
        let error = cell::<(Option<i32>,)>(&tuple, Some(&bytes)).expect_err("one field of two");
        assert!(error.to_string().ends_with(": 2 values, expected 1"), "{error}");
        assert!(cell::<[Option<i32>; 3]>(&tuple, Some(&bytes)).is_err());
    }
    // Lists that are missing are empty in a struct only.
    let fields = [string("a"), vec![0, 0x20, 0, 9], string("b"), vec![0, 9]].concat();
    let kind = [&[0, 0x30][..], &string("k"), &string("u"), &[0, 2], &fields].concat();
    assert_eq!(cell(&kind, Some(&[])), Ok(Lists { a: vec![], b: None }));
    assert_eq!(cell(&kind, Some(&[])), Ok(BTreeMap::<Text, Option<Vec<i32>>>::new()));
    assert_eq!(cell(&kind, Some(&[])), Ok(serde_json::json!({})));
}

/// A target with these fields, which counts the names that it is given.
struct Names<const COUNT: usize>(&'static [&'static str; COUNT]);

impl<'de, const COUNT: usize> DeserializeSeed<'de> for Names<COUNT> {
    type Value = Vec<Text>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<Text>, D::Error> {
        deserializer.deserialize_struct("Names", self.0, self)
    }
}

impl<'de, const COUNT: usize> Visitor<'de> for Names<COUNT> {
    type Value = Vec<Text>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Vec<Text>, A::Error> {
        let mut names = Vec::new();
        while let Some((name, de::IgnoredAny)) = entries.next_entry()? {
            names.push(name);
        }
        Ok(names)
    }
}

#[test]
fn fields_that_are_missing_are_looked_for_by_the_names_of_the_target() {
    // Fields a (int), l0 to l9 (lists), m (a map), z (int).
    let field = |name: &str, kind: &[u8]| [&string(name)[..], kind].concat();
    let lists = (0..10).flat_map(|place| field(&alloc::format!("l{place}"), &[0, 0x20, 0, 9]));
    let fields = [field("a", &[0, 9]), lists.collect(), field("m", &[0, 0x21, 0, 9, 0, 9]), field("z", &[0, 9])];
    let kind = [&[0, 0x30][..], &string("k"), &string("u"), &[0, 13], &fields.concat()].concat();
    let (one, list) = (int(1), values(Some(0), &[]));
    let names = |bytes: &[u8], seed: Names<_>| {
        let body = body(&[("it", &kind)], &[&[Some(bytes)]]);
        let columns = rows(&body).described().expect("few types");
        let value = Value { shape: &columns[0].1, bytes: Some(bytes) };
        seed.deserialize(value).expect("well-formed")
    };
    let target = &["z", "m", "none", "l0", "l9", "a"];
    // Lists and maps that are missing are empty, and other fields are missing in the target too.
    assert_eq!(names(&[], Names(target)), ["m", "l0", "l9"]);
    assert_eq!(names(&values(None, &[&one]), Names(target)), ["a", "m", "l0", "l9"]);
    // Fields that are there are given in their order, known or not, and no other list for them.
    assert_eq!(names(&values(None, &[&one, &list]), Names(target)), ["a", "l0", "m", "l9"]);
    assert_eq!(names(&values(None, &[&one, &list, &list]), Names(target)), ["a", "l0", "l1", "m", "l9"]);
}

#[test]
fn bytes_after_the_last_element_are_an_error() {
    let refused = |kind: &[u8], bytes: &[u8], expected: &str| {
        for error in [
            cell::<serde_json::Value>(kind, Some(bytes)).expect_err(expected),
            match kind[1] {
                0x21 => cell::<BTreeMap<Text, i32>>(kind, Some(bytes)).expect_err(expected),
                0x31 => cell::<(i32, i32)>(kind, Some(bytes)).expect_err(expected),
                _ => cell::<Vec<i32>>(kind, Some(bytes)).expect_err(expected),
            },
        ] {
            assert!(error.to_string().ends_with(expected), "{error}");
        }
    };
    for kind in [&[0, 0x20, 0, 9][..], &[0, 0x22, 0, 9]] {
        refused(kind, &[&values(Some(1), &[&int(1)])[..], &[0]].concat(), ": 1 bytes after the last element");
        refused(kind, &[&values(Some(0), &[])[..], &value(None)].concat(), ": 4 bytes after the last element");
    }
    let map = [&values(Some(1), &[b"a", &int(1)])[..], &[1, 2]].concat();
    refused(&[0, 0x21, 0, 13, 0, 9], &map, ": 2 bytes after the last element");
    let tuple = [0, 0x31, 0, 2, 0, 9, 0, 9];
    refused(&tuple, &values(None, &[&int(1), &int(2), &int(3)]), ": 8 bytes after the last field");
    let list = [&int(2)[..], &value(Some(&values(Some(0), &[]))), &value(Some(&[0; 7]))].concat();
    let error = cell::<Vec<Vec<i32>>>(&[0, 0x20, 0, 0x20, 0, 9], Some(&list)).expect_err("inside");
    assert!(error.to_string().contains(": 3 bytes after the last element"), "{error}");
    // Values of a user-defined type may have fields that were added since its description.
    let kind = [&[0, 0x30][..], &string("k"), &string("u"), &[0, 1], &string("a"), &[0, 9]].concat();
    let newer = values(None, &[&int(1), b"Rome"]);
    assert_eq!(cell(&kind, Some(&newer)), Ok(BTreeMap::from([("a".to_string(), 1)])));
    assert_eq!(cell(&kind, Some(&newer)), Ok((1,)));
    assert_eq!(cell(&kind, Some(&newer)), Ok(vec![1]));
    assert_eq!(cell(&kind, Some(&newer)), Ok(serde_json::json!({"a": 1})));
}

#[test]
fn null_and_empty_values_are_different() {
    assert_eq!(cell(&[0, 9], None), Ok(None::<i32>));
    assert!(cell::<Option<i32>>(&[0, 9], Some(&[])).is_err());
    assert_eq!(cell(&[0, 13], Some(&[])), Ok(Some(Text::new())));
    let list = [&int(2)[..], &value(None), &value(Some(&int(1)))].concat();
    assert_eq!(cell(&[0, 0x20, 0, 9], Some(&list)), Ok(vec![None, Some(1)]));
}

#[test]
fn error_names_the_column_and_no_value() {
    let columns: [(&str, &[u8]); 2] = [("id", &[0, 9]), ("customer", &[0, 13])];
    let good: &[Option<&[u8]>] = &[Some(&[0, 0, 0, 7]), Some(b"ann")];
    let bad: [(&[Option<&[u8]>], &str); 5] = [
        (&[None, Some(b"secret")], "column id: int does not fit i32: null"),
        (&[Some(&[1, 2, 3]), Some(b"secret")], "column id: int does not fit i32: a value of 3 bytes, not 4"),
        (&[Some(&[0, 0, 0, 7]), None], "column customer: varchar does not fit String: null"),
        (
            &[Some(&[0, 0, 0, 7]), Some(&[0xff])],
            "column customer: varchar does not fit String: a text that is not valid UTF-8",
        ),
        (&[Some(&[]), Some(b"secret")], "column id: int does not fit i32: an empty value: read it as MaybeEmpty"),
    ];
    for (row, expected) in bad {
        let body = body(&columns, &[row, good]);
        let mut orders = rows(&body).deserialize::<(i32, Text)>();
        let error = orders.next().expect("a row").expect_err(expected);
        assert_eq!(error.to_string(), expected);
        assert!(orders.next().expect("the next row").is_ok());
        assert!(orders.next().is_none());
    }
    let error = cell::<i32>(&[0, 13], Some(b"secret")).expect_err("a text");
    assert_eq!((error.column(), error.to_string().as_str()), ("it", "column it: varchar does not fit i32"));
    let error = cell::<u8>(&[0, 9], Some(&int(300))).expect_err("too large");
    assert_eq!(error.to_string(), "column it: int does not fit u8: out of range");
    let body = body(&columns, &[good]);
    #[derive(Debug, Deserialize)]
    struct Other {
        #[serde(rename = "total")]
        _total: i32,
    }
    let error = rows(&body).deserialize::<Other>().next().expect("a row").expect_err("no such column");
    assert_eq!(error.to_string(), "missing field `total`");
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Strict {}
    let map = values(Some(1), &[b"secret", &int(1)]);
    let error = cell::<Strict>(&[0, 0x21, 0, 13, 0, 9], Some(&map)).expect_err("a field");
    assert_eq!(error.to_string(), "column it: map<varchar, int> does not fit Strict: a field that is not one of []");
    let control = self::body(&[("a\n", &[0, 9])], &[&[None]]);
    let error = rows(&control).deserialize::<(i32,)>().next().expect("a row").expect_err("null");
    assert_eq!(error.to_string(), "column a\\n: int does not fit i32: null");
    // The names are the server's texts.
    let long = "x".repeat(1000);
    let body = self::body(&[(&long, &[0, 9])], &[&[None]]);
    let error = rows(&body).deserialize::<(i32,)>().next().expect("a row").expect_err("null");
    assert_eq!(error.column(), "x".repeat(48));
}

#[test]
fn error_names_the_innermost_field() {
    #[derive(Debug, Deserialize)]
    struct A<T> {
        #[serde(rename = "a")]
        _a: T,
    }
    let udt = |name: &str, kind: &[u8]| {
        [&[0, 0x30][..], &string("k"), &string("u"), &[0, 2], &string(name), kind, &string("b"), &[0, 9]].concat()
    };
    let error = |result: Result<A<i32>, RowError>| result.expect_err("refused").to_string();
    let start = "column it: k.u does not fit A<i32>: field a: ";
    let short = values(None, &[&[1, 2]]);
    assert_eq!(error(cell(&udt("a", &[0, 9]), Some(&short))), [start, "a value of 2 bytes, not 4"].concat());
    assert_eq!(error(cell(&udt("a", &[0, 13]), Some(&short))), [start, "varchar, expected i32"].concat());
    assert_eq!(error(cell(&udt("a", &[0, 9]), Some(&value(None)))), [start, "null, expected i32"].concat());
    // Values inside the field.
    let kind = udt("a", &[0, 0x20, 0, 0x31, 0, 2, 0, 9, 0, 9]);
    let lists = values(None, &[&values(Some(1), &[&short])]);
    let list = cell::<A<Vec<(i32, i32)>>>(&kind, Some(&lists)).expect_err("refused").to_string();
    assert!(list.ends_with(" does not fit A<Vec<(i32, i32)>>: field a: a value of 2 bytes, not 4"), "{list}");
    let inner = udt("a", &udt("inner\n", &[0, 9]));
    let inner =
        cell::<A<BTreeMap<Text, i32>>>(&inner, Some(&values(None, &[&short]))).expect_err("refused").to_string();
    assert!(inner.ends_with(": field inner\\n: a value of 2 bytes, not 4"), "{inner}");
    let tuple = cell::<(i32, i32)>(&udt(&"x".repeat(1_000), &[0, 9]), Some(&short)).expect_err("refused").to_string();
    assert!(tuple.ends_with(&[": field ", &"x".repeat(48), ": a value of 2 bytes, not 4"].concat()), "{tuple}");
}

#[test]
fn malformed_values_are_errors() {
    // Counts and lengths that exceed the value.
    for bytes in [&[0, 0, 0, 9][..], &[0xff, 0xff, 0xff, 0xfe], &[0, 0], &[0, 0, 0, 1, 0, 0, 0, 9, 1]] {
        assert!(cell::<Vec<i32>>(&[0, 0x20, 0, 9], Some(bytes)).is_err(), "{bytes:?}");
        assert!(cell::<BTreeMap<i32, i32>>(&[0, 0x21, 0, 9, 0, 9], Some(bytes)).is_err(), "{bytes:?}");
    }
    assert!(cell::<(i32, i32)>(&[0, 0x31, 0, 2, 0, 9, 0, 9], Some(&[0, 0, 0, 9])).is_err());
    assert!(cell::<IpAddr>(&[0, 0x10], Some(&[1; 5])).is_err());
    // Arrays and tuples that are shorter than the value.
    assert!(cell::<[u8; 4]>(&[0, 0x10], Some(&[1; 16])).is_err());
    assert!(cell::<[u8; 1]>(&[0, 3], Some(&[1, 2])).is_err());
    let error = cell::<(i32,)>(&[0, 0x20, 0, 9], Some(&values(Some(2), &[&int(1), &int(2)]))).expect_err("two");
    assert_eq!(error.to_string(), "column it: list<int> does not fit (i32,): 2 values, expected 1");
    let body = body(&[("one", &[0, 9]), ("two", &[0, 9])], &[&[Some(&int(1)), Some(&int(2))]]);
    let error = rows(&body).deserialize::<(i32,)>().next().expect("a row").expect_err("two");
    assert_eq!(error.to_string(), "2 values, expected 1");
}

#[test]
fn result_without_a_usable_description_is_one_error() {
    // Two columns that are not described, and two rows.
    let body = [&[0, 0, 0, 4][..], &int(2), &int(2), &[0xff; 16]].concat();
    let errors: Vec<_> = rows(&body).deserialize::<(i32, i32)>().collect();
    let [Err(error)] = &errors[..] else { panic!("one error: {errors:?}") };
    assert!(error.to_string().contains("skip_metadata"), "{error}");
    // Types are few bytes each: in tuples, and of columns.
    let tuple = |count: u16| [&[0, 0x31][..], &count.to_be_bytes(), &[0, 9].repeat(count.into())].concat();
    let (half, more, most) = (tuple(4095), tuple(4096), tuple(0xffff));
    for (one, two, is_allowed) in [(&half, &half, true), (&half, &more, false), (&most, &most, false)] {
        let body = self::body(&[("one", one), ("two", two)], &[&[None, None]]);
        let pairs: Vec<_> = rows(&body).deserialize::<(Option<u8>, Option<u8>)>().collect();
        let expected = if is_allowed { Ok((None, None)) } else { Err(RowError::new(TOO_LONG)) };
        assert_eq!(pairs, [expected]);
    }
    assert_eq!(TOO_LONG, "more than 8,192 types or 1 MiB in one description");
    for (count, is_allowed) in [(8192, true), (8193, false), (100_000, false)] {
        let body = self::body(&vec![("", &[0, 9][..]); count], &[]);
        assert_eq!(rows(&body).described().is_ok(), is_allowed, "{count}");
    }
    // Of bytes: those of names, and those that are not read as types.
    let name = "n".repeat(30);
    let column = [string(&name), string(&name), string(&name), vec![0, 9]].concat();
    let body = [int(0), int(8192)].concat().into_iter().chain(column.repeat(8192)).chain(int(0)).collect::<Vec<_>>();
    assert_eq!(rows(&body).described().map(|columns| columns.len()), Ok(8192));
    let class = |bytes: usize| [&[0, 0][..], &string(&"c".repeat(bytes))].concat();
    // 16 columns have 1 MiB, with lengths and numbers of types.
    for (bytes, is_allowed) in [(65_536 - 6, true), (65_536 - 5, false)] {
        let mut columns = vec![("", class(65_536 - 6)); 15];
        columns.push(("", class(bytes)));
        let columns: Vec<_> = columns.iter().map(|(name, kind)| (*name, &kind[..])).collect();
        assert_eq!(rows(&self::body(&columns, &[])).described().is_ok(), is_allowed, "{bytes}");
    }
}
