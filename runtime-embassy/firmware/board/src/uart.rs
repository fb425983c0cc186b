//! The first UART of the MPS2 boards, a CMSDK APB UART, as a byte stream of embedded-io-async.
//!
//! The device holds one byte for each direction. Its interrupts move received bytes into a buffer. When that
//! is full, the next byte stays in the device: the emulator then keeps further ones, and a real line needs
//! flow control. Registers have the names of the data sheet.
use core::{
    convert::Infallible,
    future::poll_fn,
    task::{Context, Poll},
};

use embassy_sync::{blocking_mutex::raw::CriticalSectionRawMutex, pipe::Pipe, waitqueue::AtomicWaker};
use embedded_io_async::{ErrorType, Read, Write};
use static_cell::ConstStaticCell;

use crate::{CLOCK_HZ, interrupt, register::Register};

const fn register(offset: usize) -> Register {
    // SAFETY: the callers, all in this file, pass offsets of the device's registers; it has no DMA.
    unsafe { Register::at(0x4000_4000 + offset) }
}
const DATA: Register = register(0x0);
const STATE: Register = register(0x4);
const CTRL: Register = register(0x8);
const INTCLEAR: Register = register(0xc);
const BAUDDIV: Register = register(0x10);

const STATE_TX_FULL: u32 = 1;
const STATE_RX_FULL: u32 = 1 << 1;
const CTRL_ON: u32 = 0b1111; // transmitter, receiver, and the interrupts of both
const INT_TX: u32 = 1;
const INT_RX: u32 = 1 << 1;
/// The least divider of the device.
const BAUDDIV_MIN: u32 = 16;

const BUFFER_BYTES: usize = 128;

static TAKEN: ConstStaticCell<()> = ConstStaticCell::new(());
static RECEIVED: Pipe<CriticalSectionRawMutex, BUFFER_BYTES> = Pipe::new();
static TX_WAKER: AtomicWaker = AtomicWaker::new();

/// The board's first UART: 8 bits, no parity, 1 stop bit.
#[derive(Debug)]
pub struct Uart(());

impl Uart {
    /// Starts the UART. `None` if it was already taken.
    ///
    /// - `baud`: bits per second; the nearest that the device has is used. The emulator ignores it.
    #[must_use]
    pub fn new(baud: u32) -> Option<Self> {
        TAKEN.try_take()?;
        BAUDDIV.write((CLOCK_HZ / baud.max(1)).max(BAUDDIV_MIN));
        INTCLEAR.write(INT_TX | INT_RX);
        CTRL.write(CTRL_ON);
        interrupt::enable(interrupt::Line::UartRx);
        interrupt::enable(interrupt::Line::UartTx);
        Some(Self(()))
    }
}

impl ErrorType for Uart {
    type Error = Infallible;
}

impl Read for Uart {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, Infallible> {
        if buf.is_empty() {
            return Ok(0);
        }
        let count = RECEIVED.read(buf).await;
        // The device has no interrupt for a byte that it has already reported.
        take_received();
        Ok(count)
    }
}

impl Write for Uart {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, Infallible> {
        if !buf.is_empty() {
            poll_fn(poll_sendable).await;
        }
        let mut sent = 0;
        for &byte in buf {
            if STATE.read() & STATE_TX_FULL != 0 {
                break;
            }
            DATA.write(u32::from(byte));
            sent += 1;
        }
        Ok(sent)
    }

    async fn flush(&mut self) -> Result<(), Infallible> {
        poll_fn(poll_sendable).await;
        Ok(())
    }
}

fn poll_sendable(cx: &mut Context<'_>) -> Poll<()> {
    TX_WAKER.register(cx.waker());
    if STATE.read() & STATE_TX_FULL == 0 { Poll::Ready(()) } else { Poll::Pending }
}

/// Moves received bytes into the buffer, as long as it has room.
fn take_received() {
    critical_section::with(|_| {
        while STATE.read() & STATE_RX_FULL != 0 && !RECEIVED.is_full() {
            // The byte is below 256, and there is room.
            let _ = RECEIVED.try_write(&[(DATA.read() & 0xff) as u8]);
        }
    });
}

pub(crate) fn on_receive_interrupt() {
    INTCLEAR.write(INT_RX);
    take_received();
}

pub(crate) fn on_transmit_interrupt() {
    INTCLEAR.write(INT_TX);
    TX_WAKER.wake();
}
