use super::*;

type Small = Table<heapless::Vec<Slot<u32>, 3>, 2>;

#[test]
fn serials_start_at_one_and_a_freed_slots_key_is_stale() {
    let mut table = Small::new(Store::EMPTY);
    let first = table.insert(0, 10).expect("room");
    assert_eq!(first.serial.get(), 1);
    table.remove(first.index);
    assert_eq!(table.find(first), None);
    let second = table.insert(1, 20).expect("room");
    assert_eq!((second.index, second.serial.get()), (first.index, 2));
    assert_eq!(table.find(first), None);
    assert_eq!(table.find(second), Some(second.index));
    table.assert_invariants();
}

#[test]
fn a_full_table_refuses_and_stays_as_it_was() {
    let mut table = Small::new(Store::EMPTY);
    for value in 0..3 {
        table.insert(0, value).expect("room");
    }
    assert!(!table.has_place());
    assert_eq!(table.insert(0, 9), Err(Full));
    table.remove(0);
    let next = table.insert(0, 9).expect("a place became free");
    assert_eq!(next.serial.get(), 4, "a refused insertion uses no serial");
    table.assert_invariants();
}

#[test]
fn lists_keep_order_when_slots_move() {
    let mut table = Small::new(Store::EMPTY);
    for value in 0..3 {
        table.insert(0, value).expect("room");
    }
    table.move_to(1, 1);
    table.move_to(0, 0);
    assert_eq!((table.front(0), table.back(0), table.len(0)), (Some(2), Some(0), 2));
    assert_eq!((table.front(1), table.list_of(1)), (Some(1), 1));
    assert_eq!(table.next(2), Some(0));
    table.assert_invariants();
}
