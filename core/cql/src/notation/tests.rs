use alloc::vec::Vec;

use super::*;
use crate::tests::{hex, multimap, string};

fn reader(bytes: &[u8]) -> Reader<'_> {
    Reader::new(bytes, 9)
}

/// Checks that every truncated input is reported with its offset and the number of missing bytes.
fn assert_truncated(bytes: &[u8], read: impl Fn(&mut Reader<'_>) -> Result<(), CqlError>) {
    assert!(read(&mut reader(bytes)).is_ok());
    for end in 0..bytes.len() {
        let error = read(&mut reader(&bytes[..end])).expect_err("cut");
        let CqlErrorKind::Truncated { needed_bytes, found_bytes } = error.kind() else { panic!("{error} at {end}") };
        assert!(needed_bytes > found_bytes, "{error}");
        assert_eq!(error.offset() + found_bytes, 9 + saturate(end), "{error}");
    }
}

#[test]
fn every_incomplete_value_is_truncated() {
    let text = string("né");
    assert_truncated(&text, |reader| reader.string().map(drop));
    assert_truncated(&[0, 0, 0, 2, 7, 7], |reader| reader.bytes().map(drop));
    assert_truncated(&[0, 2, 7, 7], |reader| reader.short_bytes().map(drop));
    assert_truncated(&[&[0, 2][..], &text, &text].concat(), |reader| reader.strings().map(drop));
    assert_truncated(&multimap(&[("a", &["b", "c"]), ("d", &[])]), |reader| reader.multimap().map(drop));
    assert_truncated(&[&[0, 1][..], &text, &[0, 0, 0, 1, 9]].concat(), |reader| reader.bytes_map().map(drop));
    assert_truncated(&hex("047f00000100002352"), |reader| reader.inet().map(drop));
}

#[test]
fn text_that_is_not_utf_8_is_an_error_at_its_offset() {
    let bytes = [0, 2, 0, 1, b'a', 0, 2, 0xc3, 0x28];
    let error = reader(&bytes).strings().expect_err("not UTF-8");
    assert_eq!((error.kind(), error.offset()), (CqlErrorKind::Utf8, 9 + 7));
    assert_eq!(reader(&multimap(&[("a", &[])])).multimap().expect("good").values("a").count(), 0);
}

#[test]
fn negative_lengths_of_bytes_stand_for_null() {
    for length in [-1, -2, i32::MIN] {
        let bytes = [&length.to_be_bytes()[..], &[5]].concat();
        let mut reader = reader(&bytes);
        assert_eq!((reader.bytes(), reader.rest), (Ok(None), &[5][..]));
    }
    assert_eq!(reader(&[0; 4]).bytes(), Ok(Some(&[][..])));
    let huge = reader(&[0x7f, 0xff, 0xff, 0xff, 1]).bytes().expect_err("not there");
    assert_eq!(huge.kind(), CqlErrorKind::Truncated { needed_bytes: 0x7fff_ffff, found_bytes: 1 });
}

#[test]
fn lists_and_maps_are_iterated_in_order() {
    let bytes = multimap(&[("k", &["a", "b"]), ("other", &[]), ("k", &["c"])]);
    let map = reader(&bytes).multimap().expect("good");
    assert_eq!((map.len(), map.count()), (3, 3));
    assert_eq!(map.values("k").collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(map.map(|(key, values)| (key, values.count())).collect::<Vec<_>>(), [("k", 2), ("other", 0), ("k", 1)]);
    assert_eq!(alloc::format!("{map:?}"), r#"{"k": ["a", "b"], "other": [], "k": ["c"]}"#);

    let bytes = [&[0, 2][..], &string("x"), &[0, 0, 0, 1, 7], &string("y"), &[0xff; 4]].concat();
    let map = reader(&bytes).bytes_map().expect("good");
    assert_eq!(map.collect::<Vec<_>>(), [("x", Some(&[7][..])), ("y", None)]);
    assert_eq!(alloc::format!("{map:?}"), r#"{"x": Some(1), "y": None}"#);
    assert_eq!((Multimap::EMPTY.len(), BytesMap::EMPTY.len(), Strings::EMPTY.len()), (0, 0, 0));
}

/// Each list declares the largest length in the fewest bytes, many times over. Each entry takes
/// some bytes, so the work is bounded by the number of bytes.
#[test]
fn lists_in_lists_take_time_linear_in_their_bytes() {
    let mut bytes = [0xff, 0xff].to_vec();
    for _ in 0..u16::MAX {
        bytes.extend_from_slice(&[0, 0, 0xff, 0xff]);
    }
    assert!(reader(&bytes).multimap().is_err());
    let empty = [&[0xff, 0xff][..], &[0, 0, 0, 0].repeat(0xffff)].concat();
    assert_eq!(reader(&empty).multimap().expect("good").values("").count(), 0);
}

#[test]
fn addresses_are_of_four_bytes_or_of_sixteen() {
    let inet = |digits: &str| reader(&hex(digits)).inet().map_err(|error| (error.kind(), error.offset()));
    assert_eq!(inet("047f00000100002352"), Ok("127.0.0.1:9042".parse().expect("an address")));
    let v6 = "[2001:db8::1]:65535".parse().expect("an address");
    assert_eq!(inet("1020010db80000000000000000000000010000ffff"), Ok(v6));
    assert_eq!(inet("057f0000010100002352"), Err((field("address size", 5), 9)));
    assert_eq!(inet("0000002352"), Err((field("address size", 0), 9)));
    assert_eq!(inet("047f00000100010000"), Err((field("port", 65_536), 14)));
    assert_eq!(inet("047f000001ffffffff"), Err((field("port", -1), 14)));
}
