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
    assert_eq!(error.to_string(), "column it: a text that is not one of [\"paid\", \"sent\"]");
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
    assert_eq!(cell(&[0, 0x31, 0, 2, 0, 9, 0, 9], Some(&short)), Ok(vec![Some(1), None]));
    let lists = values(Some(1), &[&list]);
    assert_eq!(cell(&[0, 0x20, 0, 0x20, 0, 9], Some(&lists)), Ok(vec![vec![1, 2]]));
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
fn null_is_none_and_so_is_an_empty_value() {
    assert_eq!(cell(&[0, 9], None), Ok(None::<i32>));
    assert_eq!(cell(&[0, 9], Some(&[])), Ok(None::<i32>));
    assert_eq!(cell(&[0, 13], Some(&[])), Ok(Some(Text::new())));
    let list = [&int(2)[..], &value(None), &value(Some(&int(1)))].concat();
    assert_eq!(cell(&[0, 0x20, 0, 9], Some(&list)), Ok(vec![None, Some(1)]));
}

#[test]
fn error_names_the_column_and_no_value() {
    let columns: [(&str, &[u8]); 2] = [("id", &[0, 9]), ("customer", &[0, 13])];
    let good: &[Option<&[u8]>] = &[Some(&[0, 0, 0, 7]), Some(b"ann")];
    let bad: [(&[Option<&[u8]>], &str); 5] = [
        (&[None, Some(b"secret")], "column id: null, expected i32"),
        (&[Some(&[1, 2, 3]), Some(b"secret")], "column id: a value of 3 bytes, not 4"),
        (&[Some(&[0, 0, 0, 7]), None], "column customer: null, expected a string"),
        (&[Some(&[0, 0, 0, 7]), Some(&[0xff])], "column customer: a text that is not valid UTF-8"),
        (&[Some(&[]), Some(b"secret")], "column id: null, expected i32"),
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
    assert_eq!((error.column(), error.to_string().as_str()), ("it", "column it: a text, expected i32"));
    let error = cell::<u8>(&[0, 9], Some(&int(300))).expect_err("too large");
    assert_eq!(error.to_string(), "column it: an integer that is not u8");
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
    assert_eq!(error.to_string(), "column it: a field that is not one of []");
    let control = self::body(&[("a\n", &[0, 9])], &[&[None]]);
    let error = rows(&control).deserialize::<(i32,)>().next().expect("a row").expect_err("null");
    assert_eq!(error.to_string(), "column a\\n: null, expected i32");
    // The names are the server's texts.
    let long = "x".repeat(1000);
    let body = self::body(&[(&long, &[0, 9])], &[&[None]]);
    let error = rows(&body).deserialize::<(i32,)>().next().expect("a row").expect_err("null");
    assert_eq!(error.column(), "x".repeat(COLUMN_BYTES_MAX));
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
    assert!(cell::<(i32,)>(&[0, 0x20, 0, 9], Some(&values(Some(2), &[&int(1), &int(2)]))).is_err());
    let body = body(&[("one", &[0, 9]), ("two", &[0, 9])], &[&[Some(&int(1)), Some(&int(2))]]);
    assert!(rows(&body).deserialize::<(i32,)>().next().expect("a row").is_err());
}

#[test]
fn result_without_a_usable_description_is_one_error() {
    // Two columns that are not described, and two rows.
    let body = [&[0, 0, 0, 4][..], &int(2), &int(2), &[0xff; 16]].concat();
    let errors: Vec<_> = rows(&body).deserialize::<(i32, i32)>().collect();
    let [Err(error)] = &errors[..] else { panic!("one error: {errors:?}") };
    assert!(error.to_string().contains("skip_metadata"), "{error}");
    // Tuples of 65,535 fields: their types are few bytes each.
    let tuple = [&[0, 0x31, 0xff, 0xff][..], &[0, 9].repeat(0xffff)].concat();
    let body = self::body(&[("one", &tuple), ("two", &tuple)], &[&[None, None]]);
    let errors: Vec<_> = rows(&body).deserialize::<(Option<u8>, Option<u8>)>().collect();
    let [Err(error)] = &errors[..] else { panic!("one error: {errors:?}") };
    assert_eq!(error.to_string(), "more than 65,536 types in one result");
}
