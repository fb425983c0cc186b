use super::*;

type Small = Table<u32, heapless::Vec<Slot<u32>, 3>, 2>;

#[test]
fn serials_start_at_one_and_a_freed_slots_key_is_stale() {
    let mut table = Small::empty();
    let first = table.insert(0, 10).expect("room");
    assert_eq!(first.serial.get(), 1);
    table.remove(first.index());
    assert_eq!(table.find(first), None);
    let second = table.insert(1, 20).expect("room");
    assert_eq!((second.index, second.serial.get()), (first.index, 2));
    assert_eq!(table.find(first), None);
    assert_eq!(table.find(second), Some(second.index()));
    table.assert_invariants();
}

#[test]
fn a_full_table_refuses_and_stays_as_it_was() {
    let mut table = Small::empty();
    for value in 0..3 {
        table.insert(0, value).expect("room");
    }
    assert!(!table.has_free_slot());
    assert_eq!(table.insert(0, 9), Err(Full));
    table.remove(0);
    let next = table.insert(0, 9).expect("a place became free");
    assert_eq!(next.serial.get(), 4, "a refused insertion uses no serial");
    table.assert_invariants();
}

#[test]
fn lists_keep_order_when_slots_move() {
    let mut table = Small::empty();
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

#[test]
fn a_slot_that_never_existed_is_moved_and_removed_without_effect() {
    let mut table = Small::empty();
    table.insert(0, 10).expect("room");
    let before = table.clone();
    table.move_to(7, 1);
    table.move_to(NIL, 0);
    table.remove(7);
    assert!(table == before, "an index that no slot has changes nothing");
    assert_eq!((table.list_of(7), table.at(7), table.next(7)), (FREE, None, None));
    table.assert_invariants();

    let (mut slots, mut list) = ([] as [Slot<u32>; 0], List::EMPTY);
    unlink(&mut slots, &mut list, 0);
    push_back(&mut slots, &mut list, 0, 1);
    push_front(&mut slots, &mut list, NIL);
    assert_eq!(list, List::EMPTY, "what is not there is on no list");
}

#[test]
fn hashes_distinguish_tables_but_omit_the_contents_of_free_slots() {
    use crate::storage::tests::hash;
    let mut table = Small::empty();
    let first = table.insert(0, 10).expect("room");
    let second = table.insert(0, 20).expect("room");
    let keys = [first, second, Key::new(first.serial, 1), Key::new(second.serial, 0)];
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(hash(key), hash(&key.clone()));
        assert!(keys[..at].iter().all(|other| hash(other) != hash(key)), "{key:?}");
    }
    let mut copy = table.clone();
    assert_eq!(hash(&copy), hash(&table));
    *copy.get_mut(1) = 21;
    assert_ne!(hash(&copy), hash(&table), "a value in use counts");
    table.remove(1);
    copy.remove(1);
    assert!(copy != table);
    assert_eq!(hash(&copy), hash(&table), "what it was is history");
}
