use super::*;
use crate::error::CqlErrorKind;
use alloc::vec;
use alloc::vec::Vec;

fn outcome(kind: OutcomeKind, body: &[u8]) -> Outcome<'_> {
    Outcome { kind, body }
}

fn string(text: &str) -> Vec<u8> {
    [&u16::try_from(text.len()).expect("short").to_be_bytes(), text.as_bytes()].concat()
}

fn long(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).expect("short").to_be_bytes(), bytes].concat()
}

fn ints(numbers: &[i32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

const VARCHAR: [u8; 2] = [0, 13];

/// Two rows of a text and of a set of texts.
fn two_rows() -> Vec<u8> {
    let set = [ints(&[2]), long(b"1"), long(b"2")].concat();
    [
        ints(&[1 | 2, 2]),
        long(b"more"),
        string("system"),
        string("local"),
        string("key"),
        VARCHAR.to_vec(),
        string("tokens"),
        vec![0, 0x22],
        VARCHAR.to_vec(),
        ints(&[2]),
        long(b"local"),
        long(&set),
        ints(&[-1]),
        long(b""),
    ]
    .concat()
}

#[test]
fn rows_are_decoded_with_their_columns() {
    let body = two_rows();
    let rows = outcome(OutcomeKind::Rows, &body).rows().expect("well-formed").expect("rows");
    assert_eq!((rows.len(), rows.column_count, rows.paging_state), (2, 2, Some(&b"more"[..])));
    let columns: Vec<Column<'_>> = rows.columns.collect();
    assert_eq!((columns[0].keyspace, columns[0].table, columns[0].name), ("system", "local", "key"));
    assert_eq!((columns[0].kind.id(), columns[0].kind.element()), (13, None));
    assert_eq!((columns[1].kind.id(), columns[1].kind.element().map(|one| one.id())), (Type::SET, Some(13)));
    assert_eq!((rows.columns.position("tokens"), rows.columns.position("none")), (Some(1), None));
    let rows: Vec<Vec<Option<&[u8]>>> = rows.map(Iterator::collect).collect();
    assert_eq!(rows[0][0], Some(&b"local"[..]));
    let tokens: Vec<_> = Elements::read(rows[0][1].expect("a set")).expect("well-formed").collect();
    assert_eq!(tokens, [Some(&b"1"[..]), Some(b"2")]);
    assert_eq!(rows[1], [None, Some(&b""[..])]);
}

#[test]
fn rows_without_description_have_cells() {
    let body = [ints(&[4, 2, 1]), long(b"a"), long(b"b")].concat();
    let rows = outcome(OutcomeKind::Rows, &body).rows().expect("well-formed").expect("rows");
    assert_eq!((rows.columns.len(), rows.column_count, rows.paging_state), (0, 2, None));
    assert_eq!(rows.flatten().collect::<Vec<_>>(), [Some(&b"a"[..]), Some(b"b")]);
    assert_eq!(outcome(OutcomeKind::Void, &[]).rows(), Ok(None));
    let changed = [ints(&[4 | 8, 1]), string("id"), ints(&[0])].concat();
    let rows = outcome(OutcomeKind::Rows, &changed).rows().expect("well-formed").expect("rows");
    assert_eq!((rows.new_metadata_id, rows.len()), (Some(&b"id"[..]), 0));
}

#[test]
fn every_truncation_is_an_error() {
    let body = two_rows();
    for end in 0..body.len() {
        let error = outcome(OutcomeKind::Rows, &body[..end]).rows().expect_err("truncated");
        assert!(matches!(error.kind(), CqlErrorKind::Truncated { .. }), "{end}: {error}");
    }
}

#[test]
fn lying_counts_are_errors() {
    for body in [
        ints(&[4, -1, 0]),
        ints(&[4, 1, -1]),
        ints(&[4, i32::MAX, i32::MAX]),
        // Rows without columns would be free.
        ints(&[4, 0, i32::MAX]),
        ints(&[1, i32::MAX]),
    ] {
        assert!(outcome(OutcomeKind::Rows, &body).rows().is_err(), "{body:?}");
    }
    for cell in [ints(&[-1]), ints(&[i32::MAX]), vec![], ints(&[1])] {
        assert!(Elements::read(&cell).is_err(), "{cell:?}");
        assert!(Pairs::read(&cell).is_err(), "{cell:?}");
    }
}

#[test]
fn pairs_of_a_map_are_counted() {
    let cell = ints(&[2, -1, -1, -1, -1]);
    let mut pairs = Pairs::read(&cell).expect("two pairs of nulls");
    let lengths = core::iter::from_fn(|| {
        let length = pairs.len();
        pairs.next().map(|_| length)
    });
    assert_eq!(lengths.collect::<Vec<_>>(), [2, 1]);
}

fn column_of(kind: &[u8]) -> Vec<u8> {
    [&ints(&[0, 1])[..], &string("k"), &string("t"), &string("c"), kind, &ints(&[0])].concat()
}

#[test]
fn types_contain_types_up_to_a_depth() {
    let udt = [&[0, 0x30][..], &string("k"), &string("pair"), &[0, 2], &string("a"), &VARCHAR, &string("b"), &[0, 9]];
    let tuple = [&[0, 0x31, 0, 2][..], &udt.concat(), &VARCHAR].concat();
    let custom = [&[0, 0][..], &string("org.example.Type")].concat();
    let map = [&[0, 0x21][..], &custom, &tuple].concat();
    let body = column_of(&map);
    let rows = outcome(OutcomeKind::Rows, &body).rows().expect("well-formed").expect("rows");
    let column = rows.columns.into_iter().next().expect("a column");
    assert_eq!(column.kind.id(), Type::MAP);
    assert_eq!(column.kind.element().and_then(|key| key.class()), Some("org.example.Type"));
    let nested = |depth: usize| column_of(&[&[0, 0x20].repeat(depth)[..], &VARCHAR].concat());
    assert!(outcome(OutcomeKind::Rows, &nested(TYPE_DEPTH_MAX as usize)).rows().is_ok());
    for depth in [TYPE_DEPTH_MAX as usize + 1, 100_000] {
        let body = nested(depth);
        let error = outcome(OutcomeKind::Rows, &body).rows().expect_err("too deep");
        assert!(matches!(error.kind(), CqlErrorKind::FieldValue { .. }), "{error}");
    }
}

#[test]
fn columns_are_equal_by_their_content() {
    fn columns(body: &[u8]) -> Columns<'_> {
        outcome(OutcomeKind::Rows, body).rows().expect("well-formed").expect("rows").columns
    }
    let two = |table: &str, flags: i32, names: [&str; 2], kind: &[u8], end: &[u8]| {
        let table = [string("k"), string(table)].concat();
        let (front, each) = if flags == 1 { (&table[..], &[][..]) } else { (&[][..], &table[..]) };
        let entries: Vec<u8> = names.iter().flat_map(|name| [each, &string(name), kind].concat()).collect();
        [&ints(&[flags, 2])[..], front, &entries, &ints(&[0]), end].concat()
    };
    let body = two("t", 1, ["a", "b"], &VARCHAR, &[]);
    // Bytes that follow, and where the names of the table are, are no part of a column.
    for same in [two("t", 1, ["a", "b"], &VARCHAR, b"more"), two("t", 0, ["a", "b"], &VARCHAR, &[])] {
        assert_eq!(columns(&body), columns(&same));
        assert!(columns(&body).zip(columns(&same)).all(|(one, two)| one == two));
        // Those that are left.
        let (mut one, mut two) = (columns(&body), columns(&same));
        assert!(one.next() == two.next() && one == two);
        assert_ne!(one, columns(&same));
    }
    for other in [
        two("u", 1, ["a", "b"], &VARCHAR, &[]),
        two("t", 1, ["b", "a"], &VARCHAR, &[]),
        two("t", 1, ["a", "b"], &[0, 9], &[]),
        column_of(&VARCHAR),
    ] {
        assert_ne!(columns(&body), columns(&other));
    }
    assert_eq!(Columns::EMPTY, columns(&ints(&[4, 2, 0])));
}

fn prepared_body(version: Version) -> Vec<u8> {
    let mut body = string("id");
    if version == Version::V5 {
        body.extend(string("result"));
    }
    body.extend(ints(&[1, 2]));
    if version != Version::V3 {
        body.extend(ints(&[2]));
        body.extend([0, 1, 0, 0]);
    }
    for text in ["shop", "tea"] {
        body.extend(string(text));
    }
    for text in ["a", "b"] {
        body.extend(string(text));
        body.extend(VARCHAR);
    }
    body.extend(ints(&[4, 0]));
    body
}

#[test]
fn prepared_statement_is_described() {
    for version in Version::ALL {
        let body = prepared_body(version);
        let prepared = outcome(OutcomeKind::Prepared, &body).prepared(version).expect("well-formed").expect("prepared");
        assert_eq!((prepared.id, prepared.variables.len(), prepared.columns.len()), (&b"id"[..], 2, 0));
        assert_eq!(prepared.metadata_id.is_some(), version == Version::V5);
        let key: &[usize] = if version == Version::V3 { &[] } else { &[1, 0] };
        assert_eq!(prepared.key_positions().collect::<Vec<_>>(), key);
        for end in 0..body.len() {
            assert!(outcome(OutcomeKind::Prepared, &body[..end]).prepared(version).is_err(), "{version}: {end}");
        }
    }
    let body = [string("id"), ints(&[0, 0, i32::MAX])].concat();
    assert!(outcome(OutcomeKind::Prepared, &body).prepared(Version::V4).is_err());
    assert_eq!(outcome(OutcomeKind::Void, &[]).prepared(Version::V4), Ok(None));
}

#[test]
fn key_of_other_variables_than_those_of_the_statement_is_an_error() {
    let body = prepared_body(Version::V4);
    // After the id, the flags and the number of variables.
    let at = string("id").len() + 8;
    let outcome = |key_count: u8, first: u8| {
        let mut body = body.clone();
        body[at + 3] = key_count;
        body[at + 5] = first;
        outcome(OutcomeKind::Prepared, &body).prepared(Version::V4).map(|_| ()).map_err(|error| error.kind())
    };
    assert_eq!(outcome(2, 1), Ok(()));
    assert_eq!(outcome(2, 2), Err(field("key position", 2)));
    assert_eq!(outcome(3, 1), Err(field("key count", 3)));
}

#[test]
fn inet_has_four_or_sixteen_bytes() {
    assert_eq!(read_inet(&[127, 0, 0, 1]), Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    assert_eq!(read_inet(&[0; 16]), Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)));
    for length in [0, 3, 5, 17] {
        assert_eq!(read_inet(&[1; 17][..length]), None);
    }
}

#[test]
fn rows_are_shown_without_content() {
    let body = two_rows();
    let rows = outcome(OutcomeKind::Rows, &body).rows().expect("well-formed").expect("rows");
    let shown = alloc::format!("{rows:?} {:?}", rows.collect::<Vec<_>>());
    assert!(shown.contains("tokens") && !shown.contains("more"), "{shown}");
    assert!(!shown.contains("108, 111"), "{shown}");
}
