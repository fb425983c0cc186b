//! The logger of defmt: frames go to the standard output of the emulator as they are, for `defmt-print`.
use core::cell::RefCell;

use critical_section::{Mutex, RestoreState};
use defmt::{Encoder, global_logger};
use semihosting::io::{self, Write as _};

#[global_logger]
struct Logger;

/// A frame that is being written, and what interrupts were before.
struct Frame {
    encoder: Encoder,
    open: Option<RestoreState>,
}

static FRAME: Mutex<RefCell<Frame>> = Mutex::new(RefCell::new(Frame { encoder: Encoder::new(), open: None }));

/// Nobody reads a log of the emulator's that is not there: what the host does not take is lost.
fn write(bytes: &[u8]) {
    if let Ok(mut stdout) = io::stdout() {
        let _ = stdout.write_all(bytes);
    }
}

// SAFETY: between `acquire` and `release` interrupts are off, so frames do not mix.
unsafe impl defmt::Logger for Logger {
    fn acquire() {
        // SAFETY: `release` ends it, with this very state.
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
            // SAFETY: it is what `acquire` began.
            unsafe { critical_section::release(state) };
        }
    }

    unsafe fn write(bytes: &[u8]) {
        critical_section::with(|cs| FRAME.borrow_ref_mut(cs).encoder.write(bytes, write));
    }
}

defmt::timestamp!("{=u64}", embassy_time::Instant::now().as_millis());
