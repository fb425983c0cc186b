//! The emulator's host, accessed by semihosting: console, arguments, wall clock, entropy, exit.
//!
//! Each call stops the emulated core until the host has replied; the virtual time stops only under
//! icount.
use core::{
    fmt::{self, Write as _},
    panic::PanicInfo,
    time::Duration,
};

use semihosting::{
    experimental::{env, random, time::SystemTime},
    io::{self, Write as _},
    process,
};
use static_cell::StaticCell;

/// The exit status after a panic.
pub const STATUS_PANIC: u8 = 101;
/// The exit status after a fault of the core or an unexpected interrupt.
pub const STATUS_FAULT: u8 = 102;

/// The longest command line, in bytes.
const ARGUMENTS_BYTES: usize = 1024;

/// Prints a line to the standard output of the emulator, as `println!` does.
#[macro_export]
macro_rules! println {
    ($($argument:tt)*) => { $crate::host::print_line(::core::format_args!($($argument)*)) };
}

/// Prints a line, in one piece if it has at most 255 bytes. Output that the host refuses is lost.
pub fn print_line(text: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; 256], used: 0 };
    let _ = line.write_fmt(text);
    let _ = line.write_str("\n");
    line.flush();
}

/// Prints a text without formatting, which saves the flash for it. Output that the host refuses is
/// lost.
pub fn print_text(text: &str) {
    if let Ok(mut stdout) = io::stdout() {
        let _ = stdout.write_all(text.as_bytes());
    }
}

/// A buffer of a line for the host: each write stops the core, whatever its length.
struct Line {
    bytes: [u8; 256],
    used: usize,
}

impl Line {
    fn flush(&mut self) {
        if let Ok(mut stdout) = io::stdout() {
            let _ = stdout.write_all(&self.bytes[..self.used]);
        }
        self.used = 0;
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.used == self.bytes.len() {
                self.flush();
            }
            self.bytes[self.used] = byte;
            self.used += 1;
        }
        Ok(())
    }
}

/// The arguments of the command line after the program's name. Invalid UTF-8 is replaced by U+FFFD;
/// without a command line the iterator is empty.
///
/// # Panics
///
/// When called a second time.
pub fn arguments() -> impl Iterator<Item = &'static str> {
    static ARGUMENTS: StaticCell<Option<env::Args<ARGUMENTS_BYTES>>> = StaticCell::new();
    let arguments: &'static _ = ARGUMENTS.init_with(|| env::args().ok());
    arguments.iter().flatten().map(|argument| argument.unwrap_or("\u{fffd}")).skip(1)
}

/// The host's wall clock: time since 1970, in whole seconds.
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Fills `bytes` with entropy of the host.
///
/// # Panics
///
/// If the host has none: a program that needs it cannot continue.
pub fn fill_random(bytes: &mut [u8]) {
    assert!(random::fill_bytes(bytes).is_ok(), "the host gives no random bytes");
}

/// A random number, for seeds.
///
/// # Panics
///
/// As [`fill_random`].
pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    fill_random(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Ends the emulator with this exit status.
pub fn exit(status: u8) -> ! {
    process::exit(i32::from(status))
}

/// Ends the emulator after a fault.
pub(crate) fn die(what: fmt::Arguments<'_>) -> ! {
    if cfg!(feature = "messages") {
        print_line(what);
    }
    exit(STATUS_FAULT)
}

#[panic_handler]
fn on_panic(info: &PanicInfo<'_>) -> ! {
    if cfg!(feature = "messages") {
        print_line(format_args!("{info}"));
    }
    exit(STATUS_PANIC)
}
