use super::*;

#[test]
fn numbers_of_the_machine_are_the_documented_ones() {
    assert_eq!(of_machine(), DOCUMENTED);
}
