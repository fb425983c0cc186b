use super::{Bytes, Choices};

#[test]
fn bytes_stay_below_the_bound_and_end() {
    let data: Vec<u8> = (0..=255).collect();
    let mut source = Bytes::new(&data);
    while !source.is_over() {
        assert!(source.below(7) < 7);
        assert!(source.below(1_000) < 1_000);
        assert!(source.below(100_000) < 100_000);
    }
    assert_eq!(source.below(9), 0, "a source without bytes returns the first option");
}
