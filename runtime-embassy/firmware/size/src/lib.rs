//! What the programs share whose sizes are compared. Each begins with [`end`]'s way out and the [`peer`]'s replies, so that
//! neither is in a difference; none of them formats a text.
#![no_std]

pub mod client;
pub mod machines;
pub mod network;
pub mod peer;

use poolhouse_board::{executor, host, stack};

/// Prints a name and a number on a line.
#[inline(never)]
pub fn report(name: &str, number: u32) {
    let mut digits = [b' '; 12];
    let mut left = number;
    let mut places = digits.iter_mut().rev();
    if let Some(end) = places.next() {
        *end = b'\n';
    }
    for place in places.take(10) {
        *place = b'0' + (left % 10).to_le_bytes()[0];
        left /= 10;
        if left == 0 {
            break;
        }
    }
    host::print_text(name);
    host::print_text(core::str::from_utf8(&digits).unwrap_or_default());
}

/// Ends the program: with what it took of the stack, and status 0, or the number of the step that failed.
#[inline(never)]
pub fn end(result: Result<(), u8>) -> ! {
    report("stack", u32::try_from(stack::used_bytes()).unwrap_or(u32::MAX));
    report("wakeups", executor::wakeups());
    host::exit(result.err().unwrap_or(0))
}
