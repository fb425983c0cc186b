use super::*;
use crate::hooks::origin;

#[test]
fn counters_begin_near_their_end_on_the_thread_that_set_it() {
    assert_eq!(origin(), 0);
    begin_near_end(true);
    assert_eq!(origin(), u32::MAX - LEFT);
    assert_eq!(std::thread::spawn(origin).join().expect("no panic"), 0);
    begin_near_end(false);
    assert_eq!(origin(), 0);
}
