//! Arbitrary descriptions of a type and cells of it: read as values of several types, bound again, and
//! read again.

use super::string;
use alloc::collections::BTreeMap;
use core::fmt::Debug;
use core::net::IpAddr;
use poolhouse_cql::{
    BoundValues, CustomValue, Date, Decimal, Duration, MaybeEmpty, Outcome, OutcomeKind, Rows, Time, Timestamp, Type,
    Uuid, Value, Varint,
};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value as Json;

/// The maximum depth of a generated type.
const DEPTH_MAX: usize = 4;

/// Classes of the server, in the order of [`NUMBERS`], then some that are unknown.
const CLASSES: [&str; 23] = [
    "AsciiType",
    "LongType",
    "BytesType",
    "BooleanType",
    "CounterColumnType",
    "DecimalType",
    "DoubleType",
    "FloatType",
    "Int32Type",
    "TimestampType",
    "UUIDType",
    "UTF8Type",
    "IntegerType",
    "TimeUUIDType",
    "InetAddressType",
    "SimpleDateType",
    "TimeType",
    "ShortType",
    "ByteType",
    "DurationType",
    "org.apache.cassandra.db.marshal.DateType",
    "of.some.Class",
    "of.some.Class(a=>b,())",
];

/// The numbers of types that contain no others.
const NUMBERS: [u16; 20] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 0xb, 0xc, 0xd, 0xe, 0xf, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15];

/// The lengths of values of these types; 0 if they differ.
const LENGTHS: [u8; 20] = [0, 8, 0, 1, 8, 0, 8, 4, 4, 8, 16, 0, 0, 16, 4, 4, 8, 2, 1, 3];

/// The bytes that choose, one after another; at their end zeros.
struct Choices<'a>(core::slice::Iter<'a, u8>);

impl Choices<'_> {
    fn next(&mut self) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0))
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let head = self.0.as_slice();
        let (head, tail) = head.split_at(count.min(head.len()));
        self.0 = tail.iter();
        [head, &vec![0; count - head.len()]].concat()
    }
}

/// A type, from which both forms of its description are made.
enum Kind {
    Simple(usize),
    List(Box<Self>, bool),
    Map(Box<(Self, Self)>),
    Tuple(Vec<Self>),
    Udt(Vec<Self>),
    Vector(Box<Self>, usize),
}

impl Kind {
    fn choose(choices: &mut Choices<'_>, depth: usize) -> Self {
        let one = choices.next();
        let mut inner = || Self::choose(choices, depth + 1);
        match one % 32 {
            23 | 24 if depth < DEPTH_MAX => Self::List(Box::new(inner()), one.is_multiple_of(2)),
            25 if depth < DEPTH_MAX => Self::Map(Box::new((inner(), inner()))),
            26 if depth < DEPTH_MAX => Self::Tuple((0..=one / 64).map(|_| inner()).collect()),
            27 if depth < DEPTH_MAX => Self::Udt((0..=one / 64).map(|_| inner()).collect()),
            28.. if depth < DEPTH_MAX => Self::Vector(Box::new(inner()), one / 32 + 1),
            simple => Self::Simple(simple % CLASSES.len()),
        }
    }

    fn class(&self) -> String {
        let all = |kinds: &[Self]| kinds.iter().map(Self::class).collect::<Vec<_>>();
        match self {
            Self::Simple(one) => CLASSES[*one].to_owned(),
            Self::List(kind, true) => format!("FrozenType(ListType({}))", kind.class()),
            Self::List(kind, false) => format!("SetType({})", kind.class()),
            Self::Map(kinds) => format!("MapType({},{})", kinds.0.class(), kinds.1.class()),
            Self::Tuple(kinds) => format!("TupleType({})", all(kinds).join(",")),
            Self::Udt(kinds) => {
                let fields = all(kinds).into_iter().enumerate().map(|(place, kind)| format!(",6{place}:{kind}"));
                format!("UserType(k,75{})", fields.collect::<String>())
            }
            Self::Vector(kind, dimension) => format!("VectorType({}, {dimension})", kind.class()),
        }
    }

    /// The form with numbers, as far as there is one.
    fn numbered(&self) -> Vec<u8> {
        let class = || [&[0, 0][..], &string(&self.class())].concat();
        let count = |kinds: &[Self]| [0, u8::try_from(kinds.len()).expect("few")];
        match self {
            Self::Simple(one) => NUMBERS.get(*one).map_or_else(class, |number| number.to_be_bytes().to_vec()),
            Self::List(kind, true) => [&[0, 0x20][..], &kind.numbered()].concat(),
            Self::List(kind, false) => [&[0, 0x22][..], &kind.numbered()].concat(),
            Self::Map(kinds) => [&[0, 0x21][..], &kinds.0.numbered(), &kinds.1.numbered()].concat(),
            Self::Tuple(kinds) => {
                let all: Vec<u8> = kinds.iter().flat_map(Self::numbered).collect();
                [&[0, 0x31][..], &count(kinds), &all].concat()
            }
            Self::Udt(kinds) => {
                let fields = kinds.iter().enumerate();
                let fields: Vec<u8> =
                    fields.flat_map(|(place, kind)| [string(&digit(place)), kind.numbered()].concat()).collect();
                [&[0, 0x30][..], &string("k"), &string("u"), &count(kinds), &fields].concat()
            }
            Self::Vector(..) => class(),
        }
    }

    /// A value of the type, or nearly one: its lengths are mostly right.
    fn cell(&self, choices: &mut Choices<'_>) -> Vec<u8> {
        let framed = |kind: &Self, choices: &mut Choices<'_>| {
            let bytes = kind.cell(choices);
            [&u32::try_from(bytes.len()).expect("short").to_be_bytes(), &bytes[..]].concat()
        };
        match self {
            Self::Simple(one) => {
                let length = LENGTHS.get(*one).copied().unwrap_or(0);
                let length = if length == 0 { choices.next() % 24 } else { length.into() };
                let mut bytes = choices.take(length);
                // Most times of day and durations of random bytes would be out of range.
                match CLASSES[*one] {
                    "TimeType" => bytes[..3].fill(0),
                    "DurationType" => bytes.iter_mut().for_each(|byte| *byte &= 0x7e),
                    "AsciiType" | "UTF8Type" => bytes.iter_mut().for_each(|byte| *byte &= 0x7f),
                    _ => {}
                }
                bytes
            }
            Self::List(kind, _) => {
                let count = choices.next() % 4;
                let all: Vec<u8> = (0..count).flat_map(|_| framed(kind, choices)).collect();
                [&[0, 0, 0, u8::try_from(count).expect("few")][..], &all].concat()
            }
            Self::Map(kinds) => {
                let count = choices.next() % 4;
                let mut pair = || [framed(&kinds.0, choices), framed(&kinds.1, choices)].concat();
                let all: Vec<u8> = (0..count).flat_map(|_| pair()).collect();
                [&[0, 0, 0, u8::try_from(count).expect("few")][..], &all].concat()
            }
            Self::Tuple(kinds) | Self::Udt(kinds) => {
                // Some fields are null, and some values end early.
                let mut field = |kind| if choices.next() % 8 == 7 { vec![0xff; 4] } else { framed(kind, choices) };
                kinds.iter().flat_map(&mut field).collect()
            }
            Self::Vector(kind, dimension) => {
                let each = |choices: &mut Choices<'_>| {
                    let bytes = kind.cell(choices);
                    // Lengths below 128 are one byte.
                    if kind.is_fixed() {
                        bytes
                    } else {
                        [&[u8::try_from(bytes.len()).unwrap_or(255)], &bytes[..]].concat()
                    }
                };
                (0..*dimension).flat_map(|_| each(choices)).collect()
            }
        }
    }

    fn is_fixed(&self) -> bool {
        match self {
            Self::Simple(one) => matches!(NUMBERS.get(*one), Some(2 | 4 | 7 | 8 | 9 | 0xb | 0xc | 0xf)) || *one == 20,
            Self::Vector(kind, _) => kind.is_fixed(),
            Self::List(..) | Self::Map(_) | Self::Tuple(_) | Self::Udt(_) => false,
        }
    }
}

/// The name of a field: that of the hexadecimal digits `60` and so on.
fn digit(place: usize) -> String {
    char::from(b'`' + u8::try_from(place).expect("few")).to_string()
}

/// Bytes in the form that serde calls bytes.
#[derive(Debug, PartialEq, Deserialize)]
struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// The body of a result with one row of one column.
fn body(kind: &[u8], cell: Option<&[u8]>) -> Vec<u8> {
    let names = ["k", "t", "c"].map(string).concat();
    let length = cell.map_or(-1, |cell| i32::try_from(cell.len()).expect("short"));
    let front = [&[0, 0, 0, 1, 0, 0, 0, 1][..], &names, kind, &[0, 0, 0, 1], &length.to_be_bytes()].concat();
    [&front[..], cell.unwrap_or_default()].concat()
}

fn rows(body: &[u8]) -> Option<Rows<'_>> {
    Outcome { kind: OutcomeKind::Rows, body }.rows().ok().flatten()
}

fn read<'a, T: Deserialize<'a>>(rows: Rows<'a>) -> Option<T> {
    let row: Result<(T,), _> = rows.deserialize().next()?;
    row.map(|(value,)| value).map_err(|error| assert!(error.to_string().len() < 1024, "{error}")).ok()
}

/// Binds a value, and returns the cell.
fn bind<T: Serialize>(rows: Rows<'_>, value: T) -> Option<Option<Vec<u8>>> {
    let bound = BoundValues::new(rows.columns, &(value,));
    let bound = bound.map_err(|error| assert!(error.to_string().len() < 1024, "{error}")).ok()?;
    match bound.values().iter().collect::<Vec<_>>()[..] {
        [Value::Bytes(bytes)] => Some(Some(bytes.to_vec())),
        [Value::Null] => Some(None),
        _ => panic!("one value: {bound:?}"),
    }
}

/// Whether the type is, or contains, a tuple or a user-defined type. A value of it may lack its last fields, and
/// is a shorter list then, which cannot be bound.
fn has_fields(kind: Type<'_>) -> bool {
    kind.fields().next().is_some() || kind.element().into_iter().chain(kind.map_value()).any(has_fields)
}

/// A value that is read as this type can be bound, and reads back equal.
fn kept<T: Serialize + DeserializeOwned + PartialEq + Debug>(kind: &[u8], rows: Rows<'_>) {
    let Some(value) = read::<T>(rows) else { return };
    let Some(cell) = bind(rows, &value) else {
        assert!(rows.columns.map(|column| column.kind).any(has_fields), "{value:?} was read and cannot be bound");
        return;
    };
    let again = body(kind, cell.as_deref());
    assert_eq!(read::<T>(self::rows(&again).expect("well-formed")), Some(value));
}

/// The fields that are null, as those that are missing, are left out.
fn without_nulls(value: Json) -> Json {
    match value {
        Json::Array(all) => all.into_iter().map(without_nulls).collect(),
        Json::Object(all) => {
            let fields = all.into_iter().filter(|(_, value)| !value.is_null());
            fields.map(|(name, value)| (name, without_nulls(value))).collect()
        }
        other @ (Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_)) => other,
    }
}

/// Reads the cell as values of many types, and binds them again.
fn check(kind: &[u8], cell: Option<&[u8]>) {
    let whole = body(kind, cell);
    let Some(rows) = rows(&whole) else { return };
    let column = rows.columns.into_iter().next().expect("a column");
    walk(column.kind, 0);
    kept::<i64>(kind, rows);
    kept::<u64>(kind, rows);
    kept::<i128>(kind, rows);
    kept::<u128>(kind, rows);
    kept::<Option<i8>>(kind, rows);
    kept::<bool>(kind, rows);
    kept::<Timestamp>(kind, rows);
    kept::<Date>(kind, rows);
    kept::<Time>(kind, rows);
    kept::<Duration>(kind, rows);
    kept::<Varint>(kind, rows);
    kept::<Option<Decimal>>(kind, rows);
    kept::<Uuid>(kind, rows);
    kept::<IpAddr>(kind, rows);
    kept::<CustomValue>(kind, rows);
    kept::<Vec<u8>>(kind, rows);
    kept::<Vec<i64>>(kind, rows);
    kept::<Vec<Vec<Uuid>>>(kind, rows);
    kept::<Vec<MaybeEmpty<i64>>>(kind, rows);
    kept::<Option<MaybeEmpty<Varint>>>(kind, rows);
    if column.kind.id() == Type::MAP {
        kept::<BTreeMap<i64, Vec<Duration>>>(kind, rows);
    }
    // Servers do not check what these are.
    let is_ascii = cell.is_none_or(<[u8]>::is_ascii);
    if is_ascii {
        kept::<String>(kind, rows);
        kept::<Vec<String>>(kind, rows);
        kept::<(String, Option<String>)>(kind, rows);
    }
    // Floats are compared by their bits: not a number is not equal to itself.
    for again in [
        read::<f64>(rows).map(|number| (bind(rows, number), number.is_nan())),
        read::<f32>(rows).map(|number| (bind(rows, number), number.is_nan())),
    ] {
        assert!(again.is_none_or(|(again, is_nan)| is_nan || again == Some(cell.map(<[u8]>::to_vec))));
    }
    if let Some(bytes) = read::<Bytes<'_>>(rows) {
        assert_eq!(Some(bytes.0), cell);
        assert!(!is_ascii || bind(rows, &bytes) == Some(cell.map(<[u8]>::to_vec)));
    }
    // Each element has a byte or more.
    let count = read::<Vec<IgnoredAny>>(rows).map_or(0, |all| all.len());
    let fields = column.kind.fields().count();
    assert!(count <= cell.map_or(0, <[u8]>::len).max(fields), "{count} elements");
    let Some(json) = read::<Json>(rows) else { return };
    // Null in a list cannot be bound, nor can a field whose name another one has.
    let Some(bound) = bind(rows, &json) else { return };
    let again = body(kind, bound.as_deref());
    let again: Json = read(self::rows(&again).expect("well-formed")).expect("what was bound is read");
    assert_eq!(without_nulls(again), without_nulls(json));
}

/// Calls all getters of a type.
fn walk(kind: Type<'_>, depth: usize) {
    assert!(depth <= 80, "the depth is bounded");
    let (shown, debug) = (kind.to_string(), format!("{kind:?} {:?}", kind.udt_name()));
    assert!(shown.len() <= 98 && debug.len() <= 1 << 18, "{shown}");
    assert!(!shown.contains(char::is_control));
    assert_eq!(kind.class().is_some(), kind.id() == Type::CUSTOM);
    assert!(kind.dimension().is_none_or(|count| count > 0 && kind.element().is_some()));
    for (name, inner) in kind.fields() {
        // Its own characters are equal to it, whichever form it has.
        let text: String = name.chars().collect();
        assert_eq!(name, *text.as_str());
        walk(inner, depth + 1);
    }
    kind.element().into_iter().chain(kind.map_value()).for_each(|inner| walk(inner, depth + 1));
}

/// The first byte of `data` chooses the form of the description, the next ones a type, and those after
/// them a value. Also reads all of the rest as a description, as the text of a class, and as a cell.
pub fn values(data: &[u8]) {
    let (form, rest) = data.split_first().map_or((0, data), |(first, rest)| (*first, rest));
    let mut choices = Choices(rest.iter());
    let kind = Kind::choose(&mut choices, 0);
    let text = if form % 2 == 0 { [&[0, 0][..], &string(&kind.class())].concat() } else { kind.numbered() };
    let left = choices.0.as_slice();
    let cell = kind.cell(&mut choices);
    for cell in [None, Some(&[][..]), Some(&cell), Some(left), cell.get(1..)] {
        check(&text, cell);
    }
    let short = &rest[..rest.len().min(usize::from(form))];
    // The bytes after the end of a description would be read as the number of rows, so they are cut off.
    let is_whole = |end: &usize| {
        let body = body(&short[..*end], Some(left));
        rows(&body).and_then(|mut rows| rows.next()?.next()) == Some(Some(left))
    };
    if let Some(end) = (0..=short.len()).find(is_whole) {
        check(&short[..end], Some(left));
    }
    if let Ok(class) = str::from_utf8(short) {
        check(&[&[0, 0][..], &string(class)].concat(), Some(left));
    }
}

/// Inputs for each kind of type, and texts of classes.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for one in 0..32 {
        for form in [0, 1] {
            // The type, the types that it contains if it does, and a value.
            let inner = [8, 11, 5, 19];
            seeds.push(
                [&[form, one, inner[usize::from(one % 4)], 11][..], &[3, 1, 0, 2, 1, 0, 0, 5].repeat(6)].concat(),
            );
            seeds.push([&[form, one | 0x60, 28, 28, one, 9][..], &[1, 2, 0x61, 3].repeat(8)].concat());
        }
    }
    for text in
        ["VectorType(FloatType,3)", "UserType(k,61,61:MapType(UTF8Type,ListType(Int32Type)))", "TupleType(x(()),y)"]
    {
        seeds.push([&[u8::try_from(text.len()).expect("short")][..], text.as_bytes()].concat());
    }
    seeds
}
