use super::*;

/// Lengths are signed numbers of 32 bits.
#[test]
fn length_beyond_four_bytes_is_refused_and_nothing_is_written() {
    let max_bytes = i32::MAX.unsigned_abs();
    let most = usize::try_from(max_bytes).expect("32 bits at least");
    let mut sink = alloc::vec![7_u8; 6];
    for (len, length_bytes) in [(most + 1, max_bytes + 1), (u32::MAX as usize, u32::MAX), (usize::MAX, u32::MAX)] {
        let error = EncodeError::DocumentTooLarge { length_bytes, max_bytes };
        assert_eq!((length(len), patch_len(&mut sink, 1, len)), (Err(error), Err(error)));
        assert_eq!(sink, [7; 6]);
    }
    assert_eq!(length(most), Ok([0xff, 0xff, 0xff, 0x7f]));
    assert_eq!(patch_len(&mut sink, 1, most), Ok(()));
    assert_eq!(sink, [7, 0xff, 0xff, 0xff, 0x7f, 7]);
    for at in [3, 6, 7, usize::MAX] {
        assert_eq!(patch_len(&mut sink, at, 5), Err(EncodeError::Full), "four bytes at {at}");
    }
}

#[test]
fn array_indices_are_written_in_decimal() {
    for value in [0, 1, 9, 10, 99, 100, 4_294_967_295] {
        assert_eq!(decimal(value, &mut [0; 10]), alloc::format!("{value}"));
    }
}
