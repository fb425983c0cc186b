//! The SMSC LAN9118 Ethernet controller of the MPS2 boards, as a driver for embassy-net.
//!
//! The chip has two FIFOs. A received frame is a word in the status FIFO and its bytes, as words,
//! in the data FIFO. To send a frame, write two command words and then its bytes to the transmit
//! FIFO. Registers have the names of the data sheet. Every wait for the chip is limited.
use core::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    task::Context,
};

use embassy_net_driver::{Capabilities, Driver, HardwareAddress, LinkState, RxToken, TxToken};
use embassy_sync::waitqueue::AtomicWaker;
use static_cell::ConstStaticCell;

use crate::{interrupt, register::Register};

const fn register(offset: usize) -> Register {
    // SAFETY: the callers, all in this file, pass offsets of the chip's registers; the chip has no
    // DMA.
    unsafe { Register::at(0x4020_0000 + offset) }
}
const RX_DATA: Register = register(0x00);
const TX_DATA: Register = register(0x20);
const RX_STATUS: Register = register(0x40);
const TX_STATUS: Register = register(0x48);
const IRQ_CFG: Register = register(0x54);
const INT_STS: Register = register(0x58);
const INT_EN: Register = register(0x5c);
const BYTE_TEST: Register = register(0x64);
const FIFO_INT: Register = register(0x68);
const RX_CFG: Register = register(0x6c);
const TX_CFG: Register = register(0x70);
const HW_CFG: Register = register(0x74);
const RX_FIFO_INF: Register = register(0x7c);
const TX_FIFO_INF: Register = register(0x80);
const GPT_CFG: Register = register(0x8c);
const MAC_CSR_CMD: Register = register(0xa4);
const MAC_CSR_DATA: Register = register(0xa8);
const AFC_CFG: Register = register(0xac);

// Registers of the MAC, accessed by MAC_CSR_CMD, and of the PHY, accessed by MII_ACC.
const MAC_CR: u32 = 1;
const ADDRH: u32 = 2;
const ADDRL: u32 = 3;
const MII_ACC: u32 = 6;
const MII_DATA: u32 = 7;
const PHY_CONTROL: u32 = 0;
const PHY_STATUS: u32 = 1;
const PHY_INTERRUPT_SOURCE: u32 = 29;
const PHY_INTERRUPT_MASK: u32 = 30;

const BUSY: u32 = 1 << 31;
const MAC_READ: u32 = 1 << 30;
const MII_BUSY: u32 = 1;
const MII_WRITE: u32 = 1 << 1;
const PHY_ADDRESS: u32 = 1 << 11;
const SOFT_RESET: u32 = 1;
const PHY_RESET: u16 = 1 << 15;
const PHY_NEGOTIATE: u16 = 1 << 12 | 1 << 9;
const PHY_LINK_UP: u16 = 1 << 2;
/// The interrupt sources of a link change: energy detected, negotiation complete, link down.
const PHY_LINK_CHANGES: u16 = 1 << 7 | 1 << 6 | 1 << 4;

/// The receive status FIFO contains more frames than the level in FIFO_INT, which is 0.
const INT_RX: u32 = 1 << 3;
/// The transmit FIFO has more free space than the level in FIFO_INT, which is one frame.
const INT_TX: u32 = 1 << 9;
const INT_PHY: u32 = 1 << 18;

/// The maximum length of a frame without its check sequence.
const FRAME_BYTES: usize = 1514;
/// The maximum length of a frame with its check sequence, in whole words, plus a reserve.
const BUFFER_BYTES: usize = 1536;
const CHECK_BYTES: usize = 4;
/// The capacity of the receive FIFO in frames of maximum length: 10,560 bytes when the transmit
/// FIFO has 5 KiB.
const RX_FRAMES: usize = 6;
/// The maximum number of consecutive damaged frames that are discarded before other tasks run.
const DAMAGED_MAX: u32 = 16;
/// The maximum number of reads while waiting for a register to become ready. The real chip needs
/// some; the emulated chip is ready at once.
const READS_MAX: u32 = 100_000;

/// One frame for each direction. Static, because the driver is moved on the stack and should be
/// small.
static BUFFERS: ConstStaticCell<[[u8; BUFFER_BYTES]; 2]> = ConstStaticCell::new([[0; BUFFER_BYTES]; 2]);
static RX_WAKER: AtomicWaker = AtomicWaker::new();
static TX_WAKER: AtomicWaker = AtomicWaker::new();
static LINK_WAKER: AtomicWaker = AtomicWaker::new();
static LINK_CHANGED: AtomicBool = AtomicBool::new(true);

/// The error of starting Ethernet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The controller was already taken.
    Taken,
    /// No LAN9118 was found: its test register has this value.
    NoChip(u32),
    /// The chip did not become ready.
    Timeout,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken => f.write_str("Ethernet was taken before"),
            Self::NoChip(test) => write!(f, "no LAN9118: its test register reads {test:#010x}"),
            Self::Timeout => f.write_str("the LAN9118 did not become ready"),
        }
    }
}

/// The board's Ethernet controller; pass it to `embassy_net::new`.
pub struct Ethernet {
    address: [u8; 6],
    link: LinkState,
    received: &'static mut [u8; BUFFER_BYTES],
    to_send: &'static mut [u8; BUFFER_BYTES],
}

impl fmt::Debug for Ethernet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ethernet").finish_non_exhaustive()
    }
}

impl Ethernet {
    /// Resets the chip and starts it with this hardware address. The only controller can be taken
    /// once.
    ///
    /// # Errors
    ///
    /// [`Error`]: it was already taken, the chip was not found, or it does not become ready. After
    /// an error it stays taken.
    pub fn new(address: [u8; 6]) -> Result<Self, Error> {
        let [received, to_send] = BUFFERS.try_take().ok_or(Error::Taken)?;
        let test = BYTE_TEST.read();
        if test != 0x8765_4321 {
            return Err(Error::NoChip(test));
        }
        HW_CFG.write(SOFT_RESET);
        wait_clear(HW_CFG, SOFT_RESET)?;
        HW_CFG.write(1 << 20 | 5 << 16); // a bit that must be set; 5 KiB of the FIFOs for transmission
        AFC_CFG.write(0x006e_3740); // flow control thresholds, as the data sheet proposes
        INT_EN.write(0);
        INT_STS.write(!0);
        IRQ_CFG.write(1 << 8 | 1 << 4 | 1); // on, active high, push-pull
        FIFO_INT.write(25 << 24); // transmission: above 25 * 64 bytes; reception: above 0 frames
        RX_CFG.write(0);

        phy_write(PHY_CONTROL, PHY_RESET)?;
        wait_until(|| Ok(phy_read(PHY_CONTROL)? & PHY_RESET == 0))?;
        phy_write(PHY_CONTROL, PHY_NEGOTIATE)?;
        phy_write(PHY_INTERRUPT_MASK, PHY_LINK_CHANGES)?;

        let [a, b, c, d, e, f] = address;
        mac_write(ADDRH, u32::from_le_bytes([e, f, 0, 0]))?;
        mac_write(ADDRL, u32::from_le_bytes([a, b, c, d]))?;
        mac_write(MAC_CR, 1 << 20 | 1 << 3 | 1 << 2)?; // full duplex, transmitter on, receiver on
        TX_CFG.write(1 << 1); // on
        interrupt::enable(interrupt::Line::Ethernet);
        Ok(Self { address, link: LinkState::Down, received, to_send })
    }

    /// Reads the next frame from the chip. Returns its length, or `None` if it is damaged or too
    /// long.
    fn take_frame(&mut self) -> Option<usize> {
        let status = RX_STATUS.read();
        let bytes = (status >> 16 & 0x3fff) as usize;
        let damaged = status & 1 << 15 != 0;
        let fits = (CHECK_BYTES..=FRAME_BYTES + CHECK_BYTES).contains(&bytes);
        // Every word must be read, otherwise the next frame would start in the middle of this one.
        for index in 0..bytes.div_ceil(4) {
            let word = RX_DATA.read().to_le_bytes();
            if let Some(place) = self.received.get_mut(index * 4..index * 4 + 4) {
                place.copy_from_slice(&word);
            }
        }
        (fits && !damaged).then(|| bytes - CHECK_BYTES)
    }
}

/// A received frame.
#[derive(Debug)]
pub struct Received<'a>(&'a mut [u8]);

/// Free space for a frame to send.
#[derive(Debug)]
pub struct Room<'a>(&'a mut [u8; BUFFER_BYTES]);

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

impl TxToken for Room<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, bytes: usize, fill: F) -> R {
        let result = fill(&mut self.0[..bytes]);
        let length = u32::try_from(bytes).unwrap_or(0);
        TX_DATA.write(1 << 13 | 1 << 12 | length); // the first segment and the last
        TX_DATA.write(length);
        for word in self.0[..bytes.next_multiple_of(4)].chunks_exact(4) {
            TX_DATA.write(u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        }
        nudge_emulator();
        result
    }
}

impl Driver for Ethernet {
    type RxToken<'a> = Received<'a>;
    type TxToken<'a> = Room<'a>;

    fn receive(&mut self, cx: &mut Context<'_>) -> Option<(Received<'_>, Room<'_>)> {
        if !has_room(cx) {
            return None;
        }
        for _ in 0..DAMAGED_MAX {
            if !has_frame(cx) {
                return None;
            }
            if let Some(bytes) = self.take_frame() {
                return Some((Received(&mut self.received[..bytes]), Room(self.to_send)));
            }
        }
        cx.waker().wake_by_ref();
        None
    }

    fn transmit(&mut self, cx: &mut Context<'_>) -> Option<Room<'_>> {
        has_room(cx).then_some(Room(self.to_send))
    }

    fn link_state(&mut self, cx: &mut Context<'_>) -> LinkState {
        LINK_WAKER.register(cx.waker());
        if critical_section::with(|_| LINK_CHANGED.swap(false, Ordering::SeqCst)) {
            self.link = if read_link() == Ok(true) { LinkState::Up } else { LinkState::Down };
        }
        self.link
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.max_transmission_unit = FRAME_BYTES;
        // Limits the receive window of a socket to the frames that the chip can hold while the
        // driver is not polled.
        capabilities.max_burst_size = Some(RX_FRAMES);
        capabilities
    }

    fn hardware_address(&self) -> HardwareAddress {
        HardwareAddress::Ethernet(self.address)
    }
}

/// Whether a frame was received; if not, the next frame wakes the task.
fn has_frame(cx: &Context<'_>) -> bool {
    let waits = || RX_FIFO_INF.read() >> 16 & 0xff != 0;
    waits() || {
        RX_WAKER.register(cx.waker());
        listen(INT_RX);
        // A frame may have arrived before the interrupt was enabled.
        waits()
    }
}

/// Whether a frame of any length can be sent; if not, the task is woken when that is possible.
fn has_room(cx: &Context<'_>) -> bool {
    // Discards the status words of sent frames: when their FIFO is full, no frame can be sent. It
    // holds 512; more may arrive during the loop.
    for _ in 0..512 {
        if TX_FIFO_INF.read() >> 16 & 0xff == 0 {
            break;
        }
        TX_STATUS.read();
    }
    let room = || (TX_FIFO_INF.read() & 0xffff) as usize >= BUFFER_BYTES + 8;
    room() || {
        TX_WAKER.register(cx.waker());
        listen(INT_TX);
        room()
    }
}

/// QEMU's user network connects to a server at the next iteration of QEMU's main loop: on an idle
/// guest up to a second after the SYN. Setting a timer starts an iteration at once. The chip has a
/// timer; its interrupt is disabled, so the guest is not woken.
fn nudge_emulator() {
    GPT_CFG.write(0);
    GPT_CFG.write(1 << 29 | 1);
}

/// Whether the PHY has a link. Enables the interrupt first, so no change is missed.
fn read_link() -> Result<bool, Error> {
    phy_read(PHY_INTERRUPT_SOURCE)?; // reading acknowledges
    listen(INT_PHY);
    phy_read(PHY_STATUS)?; // discards the latched value: a lost link is reported until it is read
    Ok(phy_read(PHY_STATUS)? & PHY_LINK_UP != 0)
}

/// Clears a pending interrupt and enables it once.
fn listen(source: u32) {
    critical_section::with(|_| {
        INT_STS.write(source);
        INT_EN.write(INT_EN.read() | source);
    });
}

pub(crate) fn on_interrupt() {
    let due = critical_section::with(|_| {
        let due = INT_STS.read() & INT_EN.read();
        INT_EN.write(INT_EN.read() & !due);
        INT_STS.write(due);
        due
    });
    if due & INT_RX != 0 {
        RX_WAKER.wake();
    }
    if due & INT_TX != 0 {
        TX_WAKER.wake();
    }
    if due & INT_PHY != 0 {
        LINK_CHANGED.store(true, Ordering::SeqCst);
        LINK_WAKER.wake();
    }
}

fn wait_until(mut ready: impl FnMut() -> Result<bool, Error>) -> Result<(), Error> {
    for _ in 0..READS_MAX {
        if ready()? {
            return Ok(());
        }
    }
    Err(Error::Timeout)
}

fn wait_clear(register: Register, bits: u32) -> Result<(), Error> {
    wait_until(|| Ok(register.read() & bits == 0))
}

fn mac_read(register: u32) -> Result<u32, Error> {
    wait_clear(MAC_CSR_CMD, BUSY)?;
    MAC_CSR_CMD.write(BUSY | MAC_READ | register);
    wait_clear(MAC_CSR_CMD, BUSY)?;
    Ok(MAC_CSR_DATA.read())
}

fn mac_write(register: u32, value: u32) -> Result<(), Error> {
    wait_clear(MAC_CSR_CMD, BUSY)?;
    MAC_CSR_DATA.write(value);
    MAC_CSR_CMD.write(BUSY | register);
    wait_clear(MAC_CSR_CMD, BUSY)
}

fn phy_read(register: u32) -> Result<u16, Error> {
    mac_write(MII_ACC, PHY_ADDRESS | register << 6 | MII_BUSY)?;
    wait_until(|| Ok(mac_read(MII_ACC)? & MII_BUSY == 0))?;
    Ok((mac_read(MII_DATA)? & 0xffff) as u16)
}

fn phy_write(register: u32, value: u16) -> Result<(), Error> {
    mac_write(MII_DATA, u32::from(value))?;
    mac_write(MII_ACC, PHY_ADDRESS | register << 6 | MII_WRITE | MII_BUSY)?;
    wait_until(|| Ok(mac_read(MII_ACC)? & MII_BUSY == 0))
}
