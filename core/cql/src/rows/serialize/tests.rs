mod values;

use super::*;
use crate::response::{Outcome, OutcomeKind};
use crate::rows::{Rows, TYPE_DEPTH_MAX};
use crate::{Consistency, Limits, Outgoing, Parameters, Request, Value, Version};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString as _};
use alloc::vec;
use core::fmt::Debug;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

fn string(text: &str) -> Vec<u8> {
    [&u16::try_from(text.len()).expect("short").to_be_bytes(), text.as_bytes()].concat()
}

fn int(number: usize) -> [u8; 4] {
    i32::try_from(number).expect("small").to_be_bytes()
}

/// The body of a result with these columns, each a name and a type, and the rows that follow.
fn described(columns: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = [int(1), int(columns.len())].concat();
    body.extend([string("shop"), string("orders")].concat());
    body.extend(columns.iter().flat_map(|(name, kind)| [&string(name), *kind].concat()));
    body
}

fn rows(body: &[u8]) -> Rows<'_> {
    Outcome { kind: OutcomeKind::Rows, body }.rows().expect("well-formed").expect("rows")
}

fn bind<T: Serialize + ?Sized>(columns: &[(&str, &[u8])], values: &T) -> Result<BoundValues, BindError> {
    let body = [&described(columns)[..], &int(0)].concat();
    BoundValues::new(rows(&body).columns, values)
}

/// Binds a value to one variable.
fn one<T: Serialize>(kind: &[u8], value: T) -> Result<Vec<u8>, BindError> {
    let bound = bind(&[("it", kind)], &(value,))?;
    let values = bound.values().iter().collect::<Vec<_>>();
    let [Value::Bytes(bytes)] = values[..] else { panic!("a value: {values:?}") };
    Ok(bytes.to_vec())
}

fn error<T: Serialize>(kind: &[u8], value: T) -> String {
    let error = one(kind, value).expect_err("refused");
    assert_eq!(error.variable(), "it");
    let text = error.to_string();
    text.strip_prefix("variable it: ").map(String::from).expect("the variable is named")
}

/// Writes values as a row and reads the row again.
fn returned<T: Serialize + DeserializeOwned>(columns: &[(&str, &[u8])], value: &T) -> T {
    let bound = bind(columns, value).expect("the values fit");
    let body = [&described(columns)[..], &int(1), &bound.bytes].concat();
    rows(&body).deserialize().next().expect("a row").expect("the row is the value")
}

/// A value is the same after it was written and read.
fn kept<T: Serialize + DeserializeOwned + PartialEq + Debug + Clone>(kind: &[u8], value: T) {
    let (back,) = returned(&[("it", kind)], &(value.clone(),));
    assert_eq!(back, value);
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Order {
    id: i32,
    customer: String,
    note: Option<String>,
}

const ORDER: [(&str, &[u8]); 3] = [("id", &[0, 9]), ("customer", &[0, 13]), ("note", &[0, 13])];

fn order() -> Order {
    Order { id: 7, customer: "ann".into(), note: None }
}

#[test]
fn variables_take_their_values_by_name_or_in_their_order() {
    let expected = [Value::Bytes(&[0, 0, 0, 7]), Value::Bytes(b"ann"), Value::Null];
    assert_eq!(bind(&ORDER, &order()).expect("a struct").values().iter().collect::<Vec<_>>(), expected);
    assert_eq!(bind(&ORDER, &(7, "ann", None::<i32>)).expect("a tuple").values().iter().collect::<Vec<_>>(), expected);
    let turned = [ORDER[2], ORDER[1], ORDER[0]];
    let bound = bind(&turned, &order()).expect("names");
    assert_eq!(
        bound.values().iter().collect::<Vec<_>>(),
        [Value::Null, Value::Bytes(b"ann"), Value::Bytes(&[0, 0, 0, 7])]
    );
    assert_eq!(returned(&turned, &order()), order());
    let map = BTreeMap::from([("id", 1_i64), ("total", 2)]);
    let bound = bind(&[("total", &[0, 2]), ("id", &[0, 9])], &map).expect("a map");
    assert_eq!(
        bound.values().iter().collect::<Vec<_>>(),
        [Value::Bytes(&[0, 0, 0, 0, 0, 0, 0, 2]), Value::Bytes(&[0, 0, 0, 1])]
    );
    assert_eq!(
        bind(&[("a", &[0, 9]), ("b", &[0, 9])], &[1, 2][..]).expect("a list").values().iter().collect::<Vec<_>>().len(),
        2
    );
    // SELECT .. WHERE id > ? AND id < ?
    let both = bind(&[("id", &[0, 9]), ("id", &[0, 2])], &BTreeMap::from([("id", 5)])).expect("both");
    assert_eq!(
        both.values().iter().collect::<Vec<_>>(),
        [Value::Bytes(&[0, 0, 0, 5]), Value::Bytes(&[0, 0, 0, 0, 0, 0, 0, 5])]
    );
    for empty in [bind(&[], &()), bind(&[], &BTreeMap::<u8, u8>::new()), bind(&[], &[0_u8; 0])] {
        assert_eq!(empty.expect("no variables").values().iter().collect::<Vec<_>>(), []);
    }
}

/// A request cannot have more bytes than a body, whatever a description makes of a few values. Bytes that
/// were written before take the place of large values.
#[test]
fn values_beyond_the_limit_of_a_body_are_refused() {
    #[derive(Serialize)]
    struct A {
        a: Option<&'static str>,
    }
    type Values = dyn Fn(Writer<'_, '_>) -> Result<(), BindError>;
    let max = usize::try_from(Limits::DEFAULT.body_bytes_max).expect("32 bits");
    // Writes the values behind so many bytes below the limit; returns how many they take.
    let bind = |columns: &[(&str, &[u8])], left: usize, values: &Values| {
        let body = [&described(columns)[..], &int(0)].concat();
        let variables = shape::fields(rows(&body).columns).expect("few types");
        let mut out = vec![0; max - left];
        values(Writer::new(Target::Row(&variables), &mut out)).map(|()| out.len() - (max - left))
    };
    // One value for variables of the same name.
    let names = [("a", &[0, 13][..]); 100];
    let text = |writer: Writer<'_, '_>| A { a: Some("tea") }.serialize(writer);
    // Fields without a value, in each element of a list.
    let fields = (0..100).flat_map(|place| [&string(&alloc::format!("f{place}"))[..], &[0, 13]].concat());
    let fields = [&string("a")[..], &[0, 13], &fields.collect::<Vec<_>>()].concat();
    let udt = [&[0, 0x30][..], &string("k"), &string("u"), &[0, 101], &fields].concat();
    let list = [&[0, 0x20][..], &udt].concat();
    let list = [("it", &list[..])];
    let items = |writer: Writer<'_, '_>| ([A { a: None }, A { a: Some("") }],).serialize(writer);
    let elements = |writer: Writer<'_, '_>| (vec!["tea"; 100],).serialize(writer);
    let texts = [("it", &[0, 0x20, 0, 13][..])];
    let entries = |writer: Writer<'_, '_>| (BTreeMap::from([("k", "tea"); 1]),).serialize(writer);
    let map = [("it", &[0, 0x21, 0, 13, 0, 13][..])];
    let cases: [(&[_], &Values, usize); 4] = [
        (&names, &text, 100 * 7),
        (&list, &items, 4 + 4 + 2 * (4 + 101 * 4)),
        (&texts, &elements, 4 + 4 + 100 * 7),
        (&map, &entries, 4 + 4 + 5 + 7),
    ];
    for (columns, values, bytes) in cases {
        assert_eq!(bind(columns, bytes, values), Ok(bytes));
        let error = bind(columns, bytes - 1, values).expect_err("one byte more than a body");
        assert!(error.to_string().ends_with(": more than 256 MiB of values"), "{error}");
        assert_eq!(error.variable(), columns[0].0);
    }
}

#[test]
fn values_that_do_not_match_the_variables_are_refused_by_name() {
    let text = |columns: &[(&str, &[u8])], error: Result<BoundValues, BindError>| {
        let error = error.expect_err("refused");
        assert!(!error.to_string().contains("secret"), "{columns:?}");
        error.to_string()
    };
    let secret = Order { customer: "secret".into(), ..order() };
    let more = [&ORDER[..], &[("total", &[0, 9])]].concat();
    assert_eq!(text(&more, bind(&more, &secret)), "variable total: no value");
    assert_eq!(text(&ORDER[..2], bind(&ORDER[..2], &secret)), "field note: the statement has no such variable");
    assert_eq!(text(&ORDER, bind(&ORDER, &(1, "secret"))), "2 values, expected 3");
    assert_eq!(text(&ORDER[..1], bind(&ORDER[..1], &(1, "secret"))), "2 values, expected 1");
    assert_eq!(text(&ORDER[..1], bind(&ORDER[..1], &[1; 5][..])), "5 values, expected 1");
    assert_eq!(text(&ORDER[..2], bind(&ORDER[..2], &[1; 1][..])), "1 values, expected 2");
    let expected = "expected a struct, a map or a tuple of the variables";
    assert_eq!(text(&ORDER, bind(&ORDER, "secret")), format_args!("a text, {expected}").to_string());
    assert_eq!(text(&ORDER, bind(&ORDER, &7)), format_args!("an integer, {expected}").to_string());
    assert_eq!(text(&ORDER, bind(&ORDER, &None::<Order>)), format_args!("null, {expected}").to_string());
    assert_eq!(text(&ORDER, bind(&ORDER, &())), format_args!("null, {expected}").to_string());
    let by_number = BTreeMap::from([(1, "secret")]);
    assert_eq!(text(&ORDER, bind(&ORDER, &by_number)), "an integer, expected the name of a field");
    // The names are the server's texts.
    let control = [("a\n", &[0, 9][..])];
    assert_eq!(text(&control, bind(&control, &("secret",))), "variable a\\n: &str does not fit int");
    let long = "x".repeat(1000);
    let error = bind(&[(&long, &[0, 9])], &("secret",)).expect_err("a text");
    assert_eq!(error.variable().len(), 48);
    struct Failing;
    impl Serialize for Failing {
        fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(ser::Error::custom("x".repeat(1000)))
        }
    }
    assert_eq!(
        bind(&ORDER[..1], &(Failing,)).expect_err("its own error").to_string().len(),
        "variable id: Failing does not fit int: ".len() + 128
    );
    assert_eq!(text(&ORDER[..1], bind(&ORDER[..1], &Twice("id"))), "variable id: two values");
}

/// A map with two values for one name.
struct Twice(&'static str);

impl Serialize for Twice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(self.0, 1), (self.0, 2)])
    }
}

#[test]
fn types_are_those_of_serde() {
    assert_eq!(one(&[0, 1], "tea"), Ok(b"tea".to_vec()));
    assert_eq!(one(&[0, 13], 'ä'), Ok("ä".as_bytes().to_vec()));
    assert_eq!(one(&[0, 13], ""), Ok(vec![]));
    assert_eq!(one(&[0, 4], true), Ok(vec![1]));
    assert_eq!(one(&[0, 0x11], 1), Ok(vec![0x80, 0, 0, 1]));
    assert_eq!(one(&[0, 0x11], -1), Ok(vec![0x7f, 0xff, 0xff, 0xff]));
    for (number, bytes) in [(0, &[0][..]), (127, &[0x7f]), (128, &[0, 0x80]), (-1, &[0xff]), (-128, &[0x80])] {
        assert_eq!(one(&[0, 0xe], number), Ok(bytes.to_vec()), "{number}");
    }
    assert_eq!(one(&[0, 0xe], -129), Ok(vec![0xff, 0x7f]));
    assert_eq!(one(&[0, 0xe], u64::MAX), Ok([&[0][..], &[0xff; 8]].concat()));
    let uuid: [u8; 16] = core::array::from_fn(|place| u8::try_from(place).expect("small") + 0x10);
    for text in ["10111213-1415-1617-1819-1a1b1c1d1e1f", "101112131415161718191A1B1C1D1E1F"] {
        assert_eq!(one(&[0, 0xc], text), Ok(uuid.to_vec()));
    }
    assert_eq!(one(&[0, 0xf], uuid), Ok(uuid.to_vec()));
    assert_eq!(one(&[0, 0x10], IpAddr::from([10, 0, 0, 1])), Ok(vec![10, 0, 0, 1]));
    assert_eq!(one(&[0, 0x10], IpAddr::from([1_u16; 8])), Ok([0, 1].repeat(8)));
    assert_eq!(one(&[0, 0x10], [10_u8, 0, 0, 1]), Ok(vec![10, 0, 0, 1]));
    assert_eq!(one(&[0, 3], vec![1_u8, 255]), Ok(vec![1, 255]));
    let custom = [&[0, 0][..], &string("of.some.Class")].concat();
    for kind in [&[0, 3], &[0, 1], &[0, 13], &custom[..], &[0, 0x7f]] {
        assert_eq!(one(kind, Bytes(&[1, 2])), Ok(vec![1, 2]));
    }
    #[derive(Serialize)]
    #[serde(rename_all = "lowercase")]
    enum State {
        Sent,
        Lost(u8),
        At { day: u8 },
    }
    #[derive(Serialize)]
    struct Wrapped(State);
    assert_eq!(one(&[0, 13], Some(Wrapped(State::Sent))), Ok(b"sent".to_vec()));
    assert_eq!(error(&[0, 13], State::Lost(1)), "State does not fit varchar");
    assert_eq!(error(&[0, 13], State::At { day: 1 }), "State does not fit varchar");
    assert_eq!(error(&[0, 9], State::Sent), "State does not fit int");
}

/// Serializes as bytes, which slices do not.
struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

#[test]
fn value_that_does_not_fit_is_refused_with_the_type() {
    for (id, name, largest) in [
        (0x14, "tinyint", i128::from(i8::MAX)),
        (0x13, "smallint", i16::MAX.into()),
        (9, "int", i32::MAX.into()),
        (2, "bigint", i64::MAX.into()),
        (5, "counter", i64::MAX.into()),
        (0xb, "timestamp", i64::MAX.into()),
        (0x11, "date", i32::MAX.into()),
    ] {
        for number in [largest, -largest - 1] {
            assert!(one(&[0, id], number).is_ok(), "{name}");
        }
        for number in [largest + 1, -largest - 2, i128::MAX, i128::MIN] {
            assert_eq!(error(&[0, id], number), std::format!("i128 does not fit {name}: out of range"));
        }
    }
    assert!(one(&[0, 0x12], 86_399_999_999_999_i64).is_ok());
    for number in [-1, 86_400_000_000_000_i64] {
        assert_eq!(error(&[0, 0x12], number), "i64 does not fit time: out of range");
    }
    assert_eq!(one(&[0, 0xe], u128::MAX), Ok([&[0][..], &[0xff; 16]].concat()));
    assert_eq!(error(&[0, 2], u128::MAX), "u128 does not fit bigint: out of range");
    assert_eq!(error(&[0, 13], u128::MAX), "u128 does not fit varchar");
    assert_eq!(error(&[0, 8], 0.1_f64), "f64 does not fit float: out of range");
    assert_eq!(error(&[0, 8], f64::MAX), "f64 does not fit float: out of range");
    assert_eq!(one(&[0, 8], 0.5_f64), Ok(0.5_f32.to_be_bytes().to_vec()));
    assert_eq!(one(&[0, 8], f64::NEG_INFINITY), Ok(f32::NEG_INFINITY.to_be_bytes().to_vec()));
    assert!(one(&[0, 8], f64::NAN).is_ok());
    assert_eq!(one(&[0, 7], 0.1_f32), Ok(f64::from(0.1_f32).to_be_bytes().to_vec()));
    assert_eq!(error(&[0, 9], 1.0), "f64 does not fit int");
    assert_eq!(error(&[0, 7], 1), "i32 does not fit double");
    assert_eq!(error(&[0, 9], true), "bool does not fit int");
    assert_eq!(error(&[0, 4], 1), "i32 does not fit boolean");
    assert_eq!(error(&[0, 1], "ä"), "&str does not fit ascii: a text that is not ASCII");
    assert_eq!(error(&[0, 3], "secret"), "&str does not fit blob");
    for text in ["", "10111213-1415-1617-1819-1a1b1c1d1e1", "+0111213141516171819101112131415", "1".repeat(33).as_str()]
    {
        assert_eq!(error(&[0, 0xc], text), "&str does not fit uuid: no UUID of 32 hexadecimal digits");
    }
    let text = "10111213141516171819-1a1b1c1d1e1f---";
    assert_eq!(error(&[0, 0xf], text), "&str does not fit timeuuid: no UUID of 32 hexadecimal digits");
    assert_eq!(error(&[0, 0x10], "localhost"), "&str does not fit inet: a text that is no address");
    assert_eq!(error(&[0, 0x10], [1_u8; 5]), "[u8; 5] does not fit inet: bytes of another length");
    assert_eq!(error(&[0, 0xc], Bytes(&[1; 15])), "Bytes does not fit uuid: bytes of another length");
    assert_eq!(error(&[0, 13], Bytes(&[0xff])), "Bytes does not fit varchar: bytes that are not UTF-8");
    assert_eq!(error(&[0, 1], Bytes("ä".as_bytes())), "Bytes does not fit ascii: a text that is not ASCII");
    assert_eq!(error(&[0, 3], [256]), "[i32; 1] does not fit blob: an integer, expected u8");
    assert_eq!(error(&[0, 3], [1]), "[i32; 1] does not fit blob: an integer, expected u8");
    assert_eq!(error(&[0, 0xc], ["a"]), "[&str; 1] does not fit uuid: a text, expected u8");
    for (id, name) in [(9, "int"), (6, "decimal"), (0x15, "duration"), (0xe, "varint"), (0xb, "timestamp")] {
        assert_eq!(error(&[0, id], Bytes(&[0; 8])), std::format!("Bytes does not fit {name}"));
        assert_eq!(error(&[0, id], vec![0_u8; 8]), std::format!("Vec<u8> does not fit {name}"));
    }
    let custom = [&[0, 0][..], &string("of.some.Class")].concat();
    assert_eq!(error(&custom, vec![1_u8]), "Vec<u8> does not fit of.some.Class");
    assert_eq!(error(&[0, 9], [1]), "[i32; 1] does not fit int");
    assert_eq!(error(&[0, 9], vec![1]), "Vec<i32> does not fit int");
    assert_eq!(error(&[0, 0x20, 0, 9], BTreeMap::from([(1, 1)])), "BTreeMap<i32, i32> does not fit list<int>");
    assert_eq!(error(&[0, 0x20, 0, 9], vec!["a"]), "Vec<&str> does not fit list<int>: a text, expected int");
    assert_eq!(
        error(&[0, 0x20, 0, 0x14], [500]),
        "[i32; 1] does not fit list<tinyint>: out of range, expected tinyint"
    );
    assert_eq!(error(&[0, 13], order()), "Order does not fit varchar");
    assert_eq!(error(&[0, 0x7f], 1), "i32 does not fit type 0x007f");
}

#[test]
fn variables_have_a_limited_number_of_types() {
    let bound = |count: usize| bind(&vec![("a", &[0, 9][..]); count], &BTreeMap::from([("a", 1)]));
    assert_eq!(bound(8192).expect("few enough").values().len(), 8192);
    for count in [8193, 100_000] {
        assert_eq!(
            bound(count).expect_err("too many").to_string(),
            "more than 8,192 types or 1 MiB in one description"
        );
    }
}

#[test]
fn null_and_unset_are_values_of_variables() {
    let columns: [(&str, &[u8]); 2] = [("a", &[0, 9]), ("b", &[0, 0x20, 0, 9])];
    let bound = bind(&columns, &(None::<i32>, MaybeUnset::<Vec<i32>>::Unset)).expect("null and unset");
    assert_eq!(bound.values().iter().collect::<Vec<_>>(), [Value::Null, Value::Unset]);
    let bound = bind(&columns, &(MaybeUnset::Set(1), Some(MaybeUnset::Set(vec![2])))).expect("values");
    assert_eq!(bound.values().iter().collect::<Vec<_>>().len(), 2);
    assert_eq!(
        bind(&columns, &((), None::<u8>)).expect("null").values().iter().collect::<Vec<_>>(),
        [Value::Null, Value::Null]
    );
    #[derive(Serialize)]
    struct Patch {
        b: MaybeUnset<Vec<i32>>,
        a: MaybeUnset<Option<i32>>,
    }
    let bound = bind(&columns, &Patch { b: MaybeUnset::default(), a: MaybeUnset::Set(None) }).expect("a patch");
    assert_eq!(bound.values().iter().collect::<Vec<_>>(), [Value::Null, Value::Unset]);
    assert_eq!(
        error(&[0, 0x20, 0, 9], [Some(1), None]),
        "[Option<i32>; 2] does not fit list<int>: null in a collection"
    );
    let unset = ": a value that is not set, expected int";
    assert!(error(&[0, 0x20, 0, 9], [MaybeUnset::<i32>::Unset]).ends_with(unset));
    assert!(error(&[0, 0x31, 0, 1, 0, 9], (MaybeUnset::<i32>::Unset,)).ends_with(unset));
    // Version 3 has no such values.
    let values = bind(&columns, &(1, MaybeUnset::<Vec<i32>>::Unset)).expect("unset");
    let values = values.values();
    let query = Request::Query { text: "", parameters: Parameters { values, ..Parameters::new(Consistency::One) } };
    for (version, is_accepted) in [(Version::V3, false), (Version::V4, true), (Version::V5, true)] {
        let encoded = query.encode(&mut Vec::new(), Outgoing::new(version, 1), &Limits::DEFAULT);
        assert_eq!(encoded.is_ok(), is_accepted, "{version}");
    }
}

#[test]
fn debug_shows_lengths_only() {
    let bound = bind(&ORDER, &Order { customer: "secret".into(), ..order() }).expect("values");
    assert_eq!(std::format!("{bound:?}"), "[Bytes(4), Bytes(6), Null]");
}

const UDT: &[u8] = b"\x00\x30\x00\x04shop\x00\x07address\x00\x02\x00\x04city\x00\x0d\x00\x03zip\x00\x09";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Address {
    zip: Option<i32>,
    city: String,
}

#[test]
fn collections_and_composites_return_as_they_were() {
    let text = |text: &str| String::from(text);
    kept(&[0, 0x20, 0, 9], vec![1, 2]);
    kept(&[0, 0x20, 0, 9], Vec::<i32>::new());
    kept(&[0, 0x20, 0, 9], (1, 2));
    kept(&[0, 0x22, 0, 13], BTreeSet::from([text("a"), text("b")]));
    kept(&[0, 0x21, 0, 13, 0, 9], BTreeMap::from([(text("a"), 1), (text("b"), 2)]));
    kept(&[0, 0x21, 0, 9, 0, 0x20, 0, 13], BTreeMap::from([(1, vec![text("a")]), (2, vec![])]));
    kept(&[0, 0x31, 0, 2, 0, 13, 0, 9], (text("a"), None::<i32>));
    kept(&[0, 0x31, 0, 2, 0, 9, 0, 9], vec![Some(1), None]);
    kept(&[0, 0x20, 0, 0x20, 0, 9], vec![vec![1], vec![2, 3]]);
    let address = Address { city: text("Rome"), zip: Some(184) };
    kept(UDT, address.clone());
    kept(UDT, Address { zip: None, ..address.clone() });
    kept(UDT, (text("Rome"), 184));
    // Fields that a map does not have are null, and written as other clients write them: the type may be part
    // of a partition key.
    let bytes = one(UDT, BTreeMap::from([("city", "Rome")])).expect("a city");
    assert_eq!(bytes, [&int(4)[..], b"Rome", &[0xff; 4]].concat());
    assert_eq!(one(UDT, Address { zip: None, city: text("Rome") }), Ok(bytes));
    let bytes = one(UDT, BTreeMap::from([("zip", 1)])).expect("a number");
    assert_eq!(bytes, [&[0xff; 4][..], &int(4), &int(1)].concat());
    assert_eq!(one(UDT, BTreeMap::<String, i32>::new()), Ok(vec![0xff; 8]));
    kept(&[&[0, 0x20][..], UDT].concat(), vec![address.clone(), Address { city: text(""), zip: None }]);
    // Keys may be composites.
    let lengths = one(&[&[0, 0x21][..], UDT, &[0, 9]].concat(), BTreeMap::from([(address, 1)])).expect("a map");
    assert_eq!(lengths.len(), 4 + 4 + (4 + 4 + 4 + 4) + 4 + 4);
    assert_eq!(error(&[0, 0x31, 0, 2, 0, 9, 0, 9], (1,)), "(i32,) does not fit tuple<int, int>: 1 values, expected 2");
    assert_eq!(error(&[0, 0x31, 0, 1, 0, 9], (1, 2)), "(i32, i32) does not fit tuple<int>: 2 values, expected 1");
    assert_eq!(error(&[0, 0x31, 0, 1, 0, 9], vec![1; 3]), "Vec<i32> does not fit tuple<int>: 3 values, expected 1");
    assert_eq!(
        error(&[0, 0x31, 0, 2, 0, 9, 0, 9], vec![1]),
        "Vec<i32> does not fit tuple<int, int>: 1 values, expected 2"
    );
    let fits = "BTreeMap<&str, &str> does not fit shop.address";
    let text = error(UDT, BTreeMap::from([("street", "secret")]));
    assert_eq!(text, std::format!("{fits}: field street: the type has no such field"));
    assert_eq!(
        error(UDT, BTreeMap::from([("zip", "secret")])),
        std::format!("{fits}: field zip: a text, expected int")
    );
    assert_eq!(
        error(UDT, ("Rome", "secret")),
        "(&str, &str) does not fit shop.address: field zip: a text, expected int"
    );
    assert_eq!(error(UDT, Twice("zip")), "Twice does not fit shop.address: field zip: two values");
}

/// A generator of test values (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// An integer of any length in bits.
    fn wide(&mut self) -> i128 {
        let bits = u128::from(self.next()) << 64 | u128::from(self.next());
        i128::from_be_bytes(bits.to_be_bytes()) >> self.below(128)
    }

    fn text(&mut self) -> String {
        (0..self.below(5)).filter_map(|_| char::from_u32(u32::try_from(self.below(0x3000)).expect("small"))).collect()
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(3) > 0).then(|| make(self))
    }

    fn many<T>(&mut self, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(4)).map(|_| make(self)).collect()
    }
}

macro_rules! narrowed {
    ($random:expr, $type:ty) => {{
        let width = i128::BITS - <$type>::BITS;
        <$type>::try_from(($random.wide() << width) >> width).expect("of its width")
    }};
}

type Tuples = Vec<(String, Option<i64>)>;

/// A field for each type that rows and variables have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct All {
    ascii: Option<String>,
    bigint: Option<i64>,
    blob: Option<Vec<u8>>,
    boolean: Option<bool>,
    double: Option<f64>,
    float: Option<f32>,
    int: Option<i32>,
    timestamp: Option<i64>,
    uuid: Option<[u8; 16]>,
    varchar: Option<String>,
    varint: Option<i128>,
    inet: Option<IpAddr>,
    date: Option<i32>,
    time: Option<i64>,
    smallint: Option<i16>,
    tinyint: Option<i8>,
    list: Option<Vec<i32>>,
    set: Option<BTreeSet<String>>,
    map: Option<BTreeMap<i16, Tuples>>,
    tuple: Option<(i8, Option<bool>)>,
    udt: Option<Address>,
    udts: Option<Vec<Address>>,
}

const ALL: [(&str, &[u8]); 22] = [
    ("ascii", &[0, 1]),
    ("bigint", &[0, 2]),
    ("blob", &[0, 3]),
    ("boolean", &[0, 4]),
    ("double", &[0, 7]),
    ("float", &[0, 8]),
    ("int", &[0, 9]),
    ("timestamp", &[0, 0xb]),
    ("uuid", &[0, 0xc]),
    ("varchar", &[0, 13]),
    ("varint", &[0, 0xe]),
    ("inet", &[0, 0x10]),
    ("date", &[0, 0x11]),
    ("time", &[0, 0x12]),
    ("smallint", &[0, 0x13]),
    ("tinyint", &[0, 0x14]),
    ("list", &[0, 0x20, 0, 9]),
    ("set", &[0, 0x22, 0, 13]),
    ("map", &[0, 0x21, 0, 0x13, 0, 0x20, 0, 0x31, 0, 2, 0, 13, 0, 2]),
    ("tuple", &[0, 0x31, 0, 2, 0, 0x14, 0, 4]),
    ("udt", UDT),
    ("udts", &UDTS),
];

const UDTS: [u8; UDT.len() + 2] = {
    let mut kind = [0; UDT.len() + 2];
    kind[1] = 0x20;
    let mut at = 0;
    while at < UDT.len() {
        kind[at + 2] = UDT[at];
        at += 1;
    }
    kind
};

impl All {
    fn random(random: &mut Random) -> Self {
        let address = |random: &mut Random| Address { zip: random.maybe(|it| narrowed!(it, i32)), city: random.text() };
        Self {
            ascii: random.maybe(|it| it.text().chars().filter(char::is_ascii).collect()),
            bigint: random.maybe(|it| narrowed!(it, i64)),
            blob: random.maybe(|it| it.many(|it| narrowed!(it, i8).to_be_bytes()[0])),
            boolean: random.maybe(|it| it.below(2) == 0),
            double: random.maybe(|it| f64::from(narrowed!(it, i32)) / 3.0),
            float: random.maybe(|it| f32::from(narrowed!(it, i16)) / 3.0),
            int: random.maybe(|it| narrowed!(it, i32)),
            timestamp: random.maybe(|it| narrowed!(it, i64)),
            uuid: random.maybe(|it| it.wide().to_be_bytes()),
            varchar: random.maybe(Random::text),
            varint: random.maybe(Random::wide),
            inet: random.maybe(|it| {
                let number = it.wide();
                if it.below(2) == 0 {
                    IpAddr::from(number.to_be_bytes())
                } else {
                    IpAddr::from(narrowed!(it, i32).to_be_bytes())
                }
            }),
            date: random.maybe(|it| narrowed!(it, i32)),
            time: random.maybe(|it| i64::try_from(it.below(86_400_000_000_000)).expect("below a day")),
            smallint: random.maybe(|it| narrowed!(it, i16)),
            tinyint: random.maybe(|it| narrowed!(it, i8)),
            list: random.maybe(|it| it.many(|it| narrowed!(it, i32))),
            set: random.maybe(|it| it.many(Random::text).into_iter().collect()),
            map: random.maybe(|it| {
                let tuples = |it: &mut Random| it.many(|it| (it.text(), it.maybe(|it| narrowed!(it, i64))));
                it.many(|it| (narrowed!(it, i16), tuples(it))).into_iter().collect()
            }),
            tuple: random.maybe(|it| (narrowed!(it, i8), it.maybe(|it| it.below(2) == 0))),
            udt: random.maybe(address),
            udts: random.maybe(|it| it.many(address)),
        }
    }
}

#[test]
fn values_return_as_they_were() {
    let mut random = Random(1);
    for round in 0..2_000 {
        let all = All::random(&mut random);
        assert_eq!(returned(&ALL, &all), all, "round {round}");
        // The variables of another statement have another order.
        let mut columns = ALL;
        columns.rotate_left(usize::try_from(random.below(22)).expect("small"));
        let place = usize::try_from(random.below(22)).expect("small");
        columns.swap(0, place);
        assert_eq!(returned(&columns, &all), all, "round {round}");
    }
}

/// Descriptions are bytes of a server.
#[test]
fn any_type_takes_or_refuses_a_value_without_a_panic() {
    let mut random = Random(2);
    let mut outcomes = [0, 0];
    for _ in 0..20_000 {
        let kind: Vec<u8> = (0..random.below(12))
            .flat_map(|_| {
                [0, [1, 3, 9, 13, 0xe, 0x10, 0x20, 0x21, 0x22, 0x31][usize::try_from(random.below(10)).expect("small")]]
            })
            .collect();
        let body = [&described(&[("it", &kind)])[..], &int(0)].concat();
        let Ok(Some(rows)) = (Outcome { kind: OutcomeKind::Rows, body: &body }).rows() else { continue };
        let all = All::random(&mut random);
        let results = [
            BoundValues::new(rows.columns, &(all.list,)),
            BoundValues::new(rows.columns, &(all.map,)),
            BoundValues::new(rows.columns, &(all.varchar,)),
            BoundValues::new(rows.columns, &(all.varint,)),
            BoundValues::new(rows.columns, &(all.tuple,)),
        ];
        for result in results {
            outcomes[usize::from(result.is_ok())] += 1;
            assert!(result.is_err() || result.is_ok_and(|bound| bound.values().iter().collect::<Vec<_>>().len() == 1));
        }
    }
    assert!(outcomes.iter().all(|count| *count > 1_000), "{outcomes:?}");
    let deep = [&[0, 0x20].repeat(usize::try_from(TYPE_DEPTH_MAX).expect("small"))[..], &[0, 9]].concat();
    assert!(error(&deep, [[1]]).starts_with("[[i32; 1]; 1] does not fit list<list<"));
}
