//! Interrupt handlers, and the handling of faults.
//!
//! Without the feature `device` of cortex-m-rt, every vector calls `DefaultHandler` with the number
//! of the interrupt line.
use cortex_m::{interrupt::InterruptNumber, peripheral::NVIC};
use cortex_m_rt::{ExceptionFrame, exception};

use crate::{clock, ethernet, host};

/// An interrupt line with a handler in this file.
#[derive(Clone, Copy)]
#[repr(u16)]
pub(crate) enum Line {
    Timer0 = 8,
    Ethernet = 13,
}

// SAFETY: the numbers are those of the board's lines, and all differ.
unsafe impl InterruptNumber for Line {
    fn number(self) -> u16 {
        self as u16
    }
}

pub(crate) fn enable(line: Line) {
    // SAFETY: no critical section depends on a masked line (they all set PRIMASK), and the handlers
    // below exist from the start.
    unsafe { NVIC::unmask(line) }
}

#[exception]
unsafe fn DefaultHandler(line: i16) {
    match line {
        8 => clock::on_interrupt(),
        13 => ethernet::on_interrupt(),
        // No other line is enabled.
        _ => host::die(format_args!("unexpected interrupt {line}")),
    }
}

#[exception]
unsafe fn HardFault(frame: &ExceptionFrame) -> ! {
    host::die(format_args!("hard fault at {:#010x}, called from {:#010x}", frame.pc(), frame.lr()))
}
