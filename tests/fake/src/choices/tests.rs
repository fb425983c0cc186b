use super::{Bytes, Choices, Exhaustive};

#[test]
fn exhaustive_enumerates_every_sequence_once() {
    let mut source = Exhaustive::new();
    let mut seen = Vec::new();
    loop {
        // An uneven tree: the number of options of the second choice depends on the first.
        let first = source.below(3);
        let second = source.below(first + 1);
        seen.push((first, second));
        if !source.advance() {
            break;
        }
    }
    assert_eq!(seen, [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]);
}

#[test]
fn exhaustive_takes_each_weight_that_is_not_zero() {
    let mut source = Exhaustive::new();
    let mut seen = Vec::new();
    loop {
        seen.push(source.weighted(&[5, 0, 100, 1]));
        if !source.advance() {
            break;
        }
    }
    assert_eq!(seen, [0, 2, 3]);
}

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
