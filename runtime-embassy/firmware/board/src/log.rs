//! The logger of defmt: frames are written unchanged to the standard output of the emulator, for
//! `defmt-print`.
use core::cell::RefCell;

use critical_section::{Mutex, RestoreState};
use defmt::{Encoder, global_logger};
use semihosting::io::{self, Write as _};

#[global_logger]
struct Logger;

/// The state while a frame is written: the encoder, and the interrupt state to restore.
struct Frame {
    encoder: Encoder,
    open: Option<RestoreState>,
}

static FRAME: Mutex<RefCell<Frame>> = Mutex::new(RefCell::new(Frame { encoder: Encoder::new(), open: None }));

/// Output that the host refuses is lost.
fn write(bytes: &[u8]) {
    if let Ok(mut stdout) = io::stdout() {
        let _ = stdout.write_all(bytes);
    }
}

// SAFETY: interrupts are disabled between `acquire` and `release`, so frames do not mix.
unsafe impl defmt::Logger for Logger {
    fn acquire() {
        // SAFETY: `release` ends the section with the same state.
        let state = unsafe { critical_section::acquire() };
        critical_section::with(|cs| {
            let mut frame = FRAME.borrow_ref_mut(cs);
            frame.open = Some(state);
            frame.encoder.start_frame(write);
        });
    }

    unsafe fn flush() {}

    unsafe fn release() {
        let state = critical_section::with(|cs| {
            let mut frame = FRAME.borrow_ref_mut(cs);
            frame.encoder.end_frame(write);
            frame.open.take()
        });
        if let Some(state) = state {
            // SAFETY: the state is that of the section that `acquire` has entered.
            unsafe { critical_section::release(state) };
        }
    }

    unsafe fn write(bytes: &[u8]) {
        critical_section::with(|cs| FRAME.borrow_ref_mut(cs).encoder.write(bytes, write));
    }
}

defmt::timestamp!("{=u64}", embassy_time::Instant::now().as_millis());
