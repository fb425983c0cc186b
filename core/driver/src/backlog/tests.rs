use super::*;

fn push(backlog: &mut Backlog<u32>, entry: u32, bytes: usize) {
    backlog.push(3, 10, || (entry, bytes));
}

fn read(backlog: &mut Backlog<u32>) -> [Result<u32, u64>; 2] {
    [(); 2].map(|()| match backlog.pop().expect("an entry or a gap") {
        Next::Entry(entry) => Ok(entry),
        Next::Lagged(count) => Err(count),
    })
}

#[test]
fn entries_beyond_the_limit_of_bytes_are_dropped_and_counted() {
    let mut backlog = Backlog::default();
    for (entry, bytes) in [(1, 10), (2, 1), (3, 0)] {
        push(&mut backlog, entry, bytes);
    }
    assert_eq!(backlog.counts(), (1, 2), "no entry is kept after a dropped one");
    assert_eq!(read(&mut backlog), [Ok(1), Err(2)]);
    assert!(backlog.is_empty() && backlog.pop().is_none());
    // Reading an entry releases its bytes.
    push(&mut backlog, 4, 10);
    assert!(matches!(backlog.pop(), Some(Next::Entry(4))));
    push(&mut backlog, 5, 11);
    assert!(!backlog.is_empty());
    assert!(matches!(backlog.pop(), Some(Next::Lagged(1))), "a single entry is larger than the limit");
}

#[test]
fn entries_beyond_the_limit_are_not_created() {
    let mut backlog = Backlog::default();
    (0..3).for_each(|entry| push(&mut backlog, entry, 0));
    backlog.push(3, 10, || panic!("the backlog is full"));
    assert_eq!(backlog.counts(), (3, 1));
}
