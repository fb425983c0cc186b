use super::*;

/// An index of 16 bits must represent each text or name, and "none".
#[test]
fn fixed_memory_is_limited_by_the_range_of_its_indices() {
    let limits = [(0, 0), (5, 5), (0xfffe, 0xfffe), (0xffff, 0xfffe), (0x1_0000, 0xfffe), (usize::MAX, 0xfffe)];
    for (count, limit) in limits {
        assert_eq!(at_most_u16(count), limit, "{count}");
    }
    assert_eq!(truncated(0x7fff_ffff), 0x7fff_ffff);
    type Large = Fixed<0x1_0005, 7, 0xffff, 0x9000_0000>;
    assert_eq!(
        (Large::SERVERS_MAX, Large::NAMES_MAX, Large::TEXTS_MAX, Large::BYTES_MAX),
        (0xfffe, 7, 0xfffe, 0x7fff_ffff)
    );
}
