//! The executor of embassy tasks on the core, which sleeps with WFI.
//!
//! embassy-executor's executor for Cortex-M sleeps with WFE, which QEMU implements as a no-op: the
//! emulated core would use a whole core of the host.
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

/// Starts the clock, calls `init` to spawn tasks, and runs tasks for ever; the core sleeps while no
/// task is woken.
///
/// # Panics
///
/// When called a second time (which only an interrupt can do, as the first call never returns).
pub fn run(init: impl FnOnce(Spawner)) -> ! {
    clock::start();
    let executor = EXECUTOR.init(raw::Executor::new(ptr::null_mut()));
    init(executor.spawner());
    loop {
        count(&POLLS);
        // SAFETY: the only call, and not from within a task.
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
        // A pending interrupt ends the sleep although it is masked, so no interrupt between the
        // check and the sleep is missed.
        asm::wfi();
    }
    // SAFETY: no critical section is open here.
    unsafe { interrupt::enable() };
    woken
}

/// The number of times that the core has left its sleep (on an idle board, the number of
/// interrupts).
pub fn wakeups() -> u32 {
    WAKEUPS.load(Ordering::Relaxed)
}

/// The number of executor polls: at most one per wake-up, and one more each time that tasks wake
/// tasks.
pub fn polls() -> u32 {
    POLLS.load(Ordering::Relaxed)
}

fn count(counter: &AtomicU32) {
    // Only the main thread writes it.
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}
