//! The executor of embassy tasks on the bare core, which sleeps by WFI.
//!
//! embassy-executor's own for Cortex-M sleeps by WFE, which QEMU carries out as nothing: the emulated core would keep a core of the host busy.
use core::{
    ptr,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

use cortex_m::{asm, interrupt};
use embassy_executor::{Spawner, raw};
use static_cell::StaticCell;

use crate::clock;

static EXECUTOR: StaticCell<raw::Executor> = StaticCell::new();
/// Whether a task was woken since the executor was last polled.
static WOKEN: AtomicBool = AtomicBool::new(false);
static WAKEUPS: AtomicU32 = AtomicU32::new(0);
static POLLS: AtomicU32 = AtomicU32::new(0);

#[unsafe(export_name = "__pender")]
fn pend(_context: *mut ()) {
    WOKEN.store(true, Ordering::SeqCst);
}

/// Starts the clock, spawns what `init` spawns, and runs tasks for ever; the core sleeps while none is woken.
///
/// # Panics
///
/// Called a second time (from an interrupt: it never returns).
pub fn run(init: impl FnOnce(Spawner)) -> ! {
    clock::start();
    let executor = EXECUTOR.init(raw::Executor::new(ptr::null_mut()));
    init(executor.spawner());
    loop {
        count(&POLLS);
        // SAFETY: here alone, and not from within itself.
        unsafe { executor.poll() };
        while !take_woken_or_sleep() {
            count(&WAKEUPS);
        }
    }
}

/// Whether a task was woken; if none was, sleeps until an interrupt has been served.
fn take_woken_or_sleep() -> bool {
    interrupt::disable();
    let woken = WOKEN.swap(false, Ordering::SeqCst);
    if !woken {
        // A pending interrupt ends the sleep although it is masked, so none is missed between the look and the sleep.
        asm::wfi();
    }
    // SAFETY: no critical section is open here.
    unsafe { interrupt::enable() };
    woken
}

/// How many times the core has left its sleep (each interrupt on an idle board is one).
pub fn wakeups() -> u32 {
    WAKEUPS.load(Ordering::Relaxed)
}

/// How many times woken tasks were run: at most once per wake-up, and once more for each time that tasks woke tasks.
pub fn polls() -> u32 {
    POLLS.load(Ordering::Relaxed)
}

fn count(counter: &AtomicU32) {
    // Written by the thread alone.
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}
