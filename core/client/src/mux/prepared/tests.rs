use super::*;
use alloc::vec;

#[test]
fn partition_key_of_several_columns_has_lengths() {
    let values = [Value::Bytes(b"tea"), Value::Null, Value::Bytes(b""), Value::Unset];
    let key = |positions: &[usize]| partition_key(positions, &values).map(Cow::into_owned);
    assert_eq!(key(&[0]), Some(b"tea".to_vec()));
    assert_eq!(key(&[2, 0]), Some(vec![0, 0, 0, 0, 3, b't', b'e', b'a', 0]));
    for incomplete in [&[][..], &[1], &[3], &[9], &[0, 1], &[0, 9]] {
        assert_eq!(key(incomplete), None, "{incomplete:?}");
    }
    let long = vec![0; 65_536];
    assert_eq!(partition_key(&[0, 1], &[Value::Bytes(&long), Value::Bytes(b"")]), None);
}
