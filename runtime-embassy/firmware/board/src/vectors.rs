//! The handlers of the vector table: interrupts are passed to their devices, faults end the
//! program.
//!
//! Without the feature `device` of cortex-m-rt, every vector of a device calls `DefaultHandler`
//! with the number of the interrupt line.
use cortex_m_rt::{ExceptionFrame, exception};

#[cfg(feature = "uart")]
use crate::uart;
use crate::{clock, ethernet, host, interrupt::Line};

#[cfg(feature = "uart")]
const UART_RX: i16 = Line::UartRx as i16;
#[cfg(feature = "uart")]
const UART_TX: i16 = Line::UartTx as i16;
const TIMER0: i16 = Line::Timer0 as i16;
const ETHERNET: i16 = Line::Ethernet as i16;

#[exception]
unsafe fn DefaultHandler(number: i16) {
    match number {
        #[cfg(feature = "uart")]
        UART_RX => uart::on_receive_interrupt(),
        #[cfg(feature = "uart")]
        UART_TX => uart::on_transmit_interrupt(),
        TIMER0 => clock::on_interrupt(),
        ETHERNET => ethernet::on_interrupt(),
        // No other line is enabled.
        _ => host::die(format_args!("unexpected interrupt {number}")),
    }
}

#[exception]
unsafe fn HardFault(frame: &ExceptionFrame) -> ! {
    host::die(format_args!("hard fault at {:#010x}, called from {:#010x}", frame.pc(), frame.lr()))
}
