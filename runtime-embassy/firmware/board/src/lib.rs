//! Board support for QEMU's MPS2 machines `mps2-an385` (Cortex-M3) and `mps2-an386` (Cortex-M4F):
//! embassy-net over the emulated LAN9118, a UART, and the host's console, arguments and exit status by
//! semihosting.
//!
//! A program passes its first tasks to [`run`], which starts the clock and never returns:
//!
//! ```ignore
//! #[cortex_m_rt::entry]
//! fn main() -> ! {
//!     poolhouse_board::run(|spawner| {
//!         let ethernet = Ethernet::new([0x52, 0x54, 0, 0x12, 0x34, 0x56]).unwrap();
//!         let (stack, runner) = embassy_net::new(ethernet, config, resources, host::random_u64());
//!         spawner.spawn(network(runner).unwrap()); // separate task: joined with users of its sockets it spins
//!         spawner.spawn(application(stack).unwrap());
//!     })
//! }
//! ```
//!
//! Programs link with `-Tlink.x` (the script of cortex-m-rt; this crate provides `memory.x`). The
//! exit status is the argument of [`host::exit`], [`host::STATUS_PANIC`] after a panic, or
//! [`host::STATUS_FAULT`] after a fault of the core.
#![no_std]
#![allow(unsafe_code, reason = "device registers, the vector table and the executor's poll; each with its reason")]

pub mod ethernet;
pub mod executor;
pub mod host;
pub mod stack;
#[cfg(feature = "uart")]
pub mod uart;

mod clock;
mod interrupt;
#[cfg(feature = "defmt")]
mod log;
mod register;
mod vectors;

pub use clock::CLOCK_HZ;
pub use executor::run;
