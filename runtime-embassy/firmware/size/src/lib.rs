//! Common parts of the programs whose sizes are compared. Each program contains [`end`] and the
//! replies of [`peer`], so neither is part of a difference; none of them formats text.
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

/// Ends the program: prints the stack use and exits with status 0, or with the number of the failed
/// step.
#[inline(never)]
pub fn end(result: Result<(), u8>) -> ! {
    report("stack", u32::try_from(stack::used_bytes()).unwrap_or(u32::MAX));
    report("wakeups", executor::wakeups());
    host::exit(result.err().unwrap_or(0))
}
