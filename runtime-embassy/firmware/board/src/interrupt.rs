//! The interrupt lines of the board's devices. The handlers are in [`vectors`](crate::vectors).
use cortex_m::{interrupt::InterruptNumber, peripheral::NVIC};

/// An interrupt line with a handler.
#[derive(Clone, Copy)]
#[repr(u16)]
pub(crate) enum Line {
    #[cfg(feature = "uart")]
    UartRx = 0,
    #[cfg(feature = "uart")]
    UartTx = 1,
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
    // exist from the start.
    unsafe { NVIC::unmask(line) }
}
