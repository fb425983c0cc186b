use super::Token;
use alloc::vec::Vec;

/// Computed by `_murmur3` of `cassandra/murmur3.py` in PyPI's cassandra-driver 3.30.1; its module in C
/// returns the same.
#[test]
fn tokens_of_keys_are_those_of_the_python_driver() {
    let high: Vec<u8> = (240..=255).chain(128..143).collect();
    let all: Vec<u8> = (0..=255).collect();
    let vectors: [(&[u8], i64); 13] = [
        (b"\x00", 5_048_724_184_180_415_669),
        (b"a", -8_839_064_797_231_613_815),
        (b"123", -7_468_325_962_851_647_638),
        (b"\xff", -4_442_228_696_663_692_417),
        (b"\x80\x7f", -7_220_871_545_656_335_056),
        (b"poolhouse", -5_639_732_163_737_933_354),
        (b"0123456789abcde", -6_472_281_833_689_111_727),
        (b"0123456789abcdef", 5_467_490_433_528_156_583),
        (b"0123456789abcdef0", -1_502_884_478_548_852_619),
        (&high, -3_178_509_922_528_124_351),
        (&[0xfe; 15], 8_102_345_716_022_190_393),
        (&[0, 0, 0, 42], -7_160_136_740_246_525_330),
        (&all, 2_060_892_794_568_774_329),
    ];
    for (key, number) in vectors {
        assert_eq!(Token::of(key), Token::new(number), "{key:02x?}");
    }
}

#[test]
fn empty_key_is_at_the_beginning_of_the_ring() {
    assert_eq!(Token::of(b"").number(), i64::MIN);
}

#[test]
fn token_of_another_partitioner_is_not_read() {
    assert_eq!(Token::parse("-9223372036854775808"), Some(Token::new(i64::MIN)));
    assert_eq!(Token::parse("42"), Some(Token::new(42)));
    // RandomPartitioner, ByteOrderedPartitioner, and none.
    for text in ["85070591730234615865843651857942052864", "00ff", "", " 1"] {
        assert_eq!(Token::parse(text), None, "{text}");
    }
}
