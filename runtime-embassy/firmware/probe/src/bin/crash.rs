//! Probes whether a crash ends the emulator with the right exit status.
//!
//! Arguments: `panic` (status 101), `fault` (an undefined instruction: 102) or `overflow` (of the
//! stack: QEMU aborts because the core locks up).
#![no_std]
#![no_main]
#![allow(unsafe_code, reason = "a fault is what it is for")]

use core::{arch::asm, hint::black_box};

use poolhouse_board::{host, println};

#[inline(never)]
#[allow(unconditional_recursion, reason = "that is the point")]
fn overflow(depth: u32) -> u32 {
    let frame = black_box([depth; 64]);
    overflow(depth + 1) + frame[0]
}

#[cortex_m_rt::entry]
fn main() -> ! {
    match host::arguments().next() {
        Some("panic") => panic!("as asked"),
        Some("fault") => {
            // SAFETY: an undefined instruction, which always causes a fault and never returns.
            unsafe { asm!("udf #0", options(noreturn)) }
        }
        Some("overflow") => println!("failed: {} without an end", overflow(0)),
        _ => poolhouse_probe::usage("crash panic|fault|overflow"),
    }
    host::exit(1)
}
