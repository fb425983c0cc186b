use super::*;
use poolhouse_wire::message::{Decoded, Limits, decode_message};

/// Changes each 32-bit number that may be a length to a wrong one.
fn spoiled(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[0] ^= 0x55;
    bytes
}

#[test]
fn lengths_of_documents_are_repaired() {
    let scope = bson::doc! { "a": 1 };
    let code = bson::JavaScriptCodeWithScope { code: "f()".to_owned(), scope };
    let binary = bson::Binary { subtype: bson::spec::BinarySubtype::BinaryOld, bytes: vec![1, 2, 3] };
    let document =
        bson::doc! { "s": "text", "d": { "e": { "f": [1, 2_i64, "three"] } }, "b": binary, "c": code, "n": 1.5 };
    let right = document.to_vec().expect("it can be written");
    let after = |name: &[u8]| right.windows(3).position(|part| part == name).expect("it is there") + 3;
    for at in [after(b"\x02s\0"), after(b"\x03d\0"), after(b"\x03e\0"), after(b"\x04f\0"), after(b"\x0fc\0")] {
        let mut bytes = right.clone();
        bytes[at] = bytes[at].wrapping_add(9);
        repair(&mut bytes, 2);
        assert_eq!(bytes, right, "the length at {at}");
    }
    let mut bytes = spoiled(&right);
    repair(&mut bytes, 0);
    assert_ne!(bytes, right, "some inputs stay unrepaired");
    repair(&mut bytes, 2);
    assert_eq!(bytes, right);
}

#[test]
fn lengths_of_messages_are_repaired() {
    for seed in crate::fuzz::wire::seeds() {
        let Ok(Decoded::Done { rest: [], .. }) = decode_message(&seed, &Limits::DEFAULT) else { continue };
        // Checksums are not repaired.
        if seed[16] & 1 == 0 {
            let mut bytes = spoiled(&seed);
            repair(&mut bytes, 1);
            assert_eq!(bytes, seed);
        }
    }
}

#[test]
fn any_bytes_are_repaired_without_a_panic() {
    crate::seeds::each_seed(300, |seed| {
        let mut rng = crate::rng::Rng::new(seed);
        let mut bytes: Vec<u8> = (0..rng.next_u64() % 80).map(|_| rng.next_u64().to_le_bytes()[0] % 20).collect();
        let length = bytes.len();
        for kind in 0..4 {
            repair(&mut bytes, kind);
            repair_envelopes(&mut bytes, kind);
        }
        assert_eq!(bytes.len(), length);
    });
}

#[test]
fn lengths_of_envelopes_are_repaired() {
    let mut bytes = [&[0, 0x84, 0, 0, 1, 6, 0, 0, 0, 2, 7, 7][..], &[0x84, 0, 0, 2, 2, 0x7f, 0, 0, 9, 1, 2]].concat();
    repair_envelopes(&mut bytes, 1);
    assert_eq!(bytes[17..21], [0, 0, 0, 2][..]);
    assert_eq!(bytes[6..10], [0, 0, 0, 2][..]);
}
