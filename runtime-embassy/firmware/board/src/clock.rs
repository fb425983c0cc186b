//! The clock of embassy-time. FPGAIO's free-running counter, divided down to microseconds, is the
//! time. CMSDK timer 0 (25 MHz, 32 bits, counting down) interrupts once when the next timer is due.
//! It can count 171 s; when no timer is due earlier, it interrupts every 170 s and no task is
//! woken. The counter must be read at least once per overflow period (71 minutes), so an alarm
//! is always set.
use core::{cell::RefCell, task::Waker};

use critical_section::{CriticalSection, Mutex};
use embassy_time_driver::Driver;
use embassy_time_queue_utils::Queue;

use crate::{interrupt, register::Register};

// SAFETY: the addresses of these constants are registers of the board's FPGAIO and of its first
// timer.
const COUNTER: Register = unsafe { Register::at(0x4002_8018) };
// SAFETY: as above.
const COUNTER_PRESCALE: Register = unsafe { Register::at(0x4002_801c) };
// SAFETY: as above.
const TIMER_CONTROL: Register = unsafe { Register::at(0x4000_0000) };
// SAFETY: as above.
const TIMER_VALUE: Register = unsafe { Register::at(0x4000_0004) };
// SAFETY: as above.
const TIMER_RELOAD: Register = unsafe { Register::at(0x4000_0008) };
// SAFETY: as above.
const TIMER_CLEAR: Register = unsafe { Register::at(0x4000_000c) };

/// The clock frequency of the core and of its timers, in Hz.
pub const CLOCK_HZ: u32 = 25_000_000;

const CONTROL_ENABLE: u32 = 1;
const CONTROL_INTERRUPT: u32 = 1 << 3;

const TICKS_PER_US: u32 = CLOCK_HZ / 1_000_000;
const ALARM_US_MAX: u32 = 170_000_000;

const _: () = assert!(ALARM_US_MAX.checked_mul(TICKS_PER_US).is_some(), "the timer holds the longest alarm");

struct State {
    /// The counter when it was last read; `high` counts its overflows.
    low: u32,
    high: u32,
    queue: Queue,
}

struct Clock {
    state: Mutex<RefCell<State>>,
}

embassy_time_driver::time_driver_impl!(static CLOCK: Clock = Clock {
    state: Mutex::new(RefCell::new(State { low: 0, high: 0, queue: Queue::new() })),
});

impl Clock {
    fn with<R>(&self, section: CriticalSection<'_>, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.state.borrow_ref_mut(section))
    }
}

impl Driver for Clock {
    fn now(&self) -> u64 {
        critical_section::with(|section| self.with(section, State::now_us))
    }

    fn schedule_wake(&self, at: u64, waker: &Waker) {
        critical_section::with(|section| {
            self.with(section, |state| {
                if state.queue.schedule_wake(at, waker) {
                    state.set_alarm();
                }
            });
        });
    }
}

impl State {
    fn now_us(&mut self) -> u64 {
        let low = COUNTER.read();
        if low < self.low {
            self.high += 1;
        }
        self.low = low;
        u64::from(self.high) << 32 | u64::from(low)
    }

    /// Wakes all tasks whose timers are due, and sets the hardware timer for the next one.
    fn set_alarm(&mut self) {
        let now = self.now_us();
        let wait_us = self.queue.next_expiration(now).saturating_sub(now);
        let wait_us = u32::try_from(wait_us).map_or(ALARM_US_MAX, |wait| wait.clamp(1, ALARM_US_MAX));
        TIMER_CONTROL.write(0);
        // One shot: the reload value is 0, which stops the timer. (A reloading timer would also run
        // at double speed under QEMU's icount.)
        TIMER_RELOAD.write(0);
        TIMER_VALUE.write(wait_us * TICKS_PER_US);
        TIMER_CLEAR.write(1);
        TIMER_CONTROL.write(CONTROL_ENABLE | CONTROL_INTERRUPT);
    }
}

/// Starts the clock near 0.
pub(crate) fn start() {
    COUNTER_PRESCALE.write(TICKS_PER_US - 1);
    critical_section::with(|section| {
        CLOCK.with(section, |state| {
            COUNTER.write(0);
            state.low = COUNTER.read();
            state.set_alarm();
        });
    });
    interrupt::enable(interrupt::Line::Timer0);
}

pub(crate) fn on_interrupt() {
    critical_section::with(|section| CLOCK.with(section, State::set_alarm));
}
