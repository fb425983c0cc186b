//! embassy-time's clock: the host's time, plus the time by which the test has advanced it. Every
//! thread, and so every test, has a separate clock.

use core::cell::{Cell, RefCell};
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Poll, Waker};
use core::time::Duration;
use embassy_time::Instant;
use embassy_time_driver::Driver;

struct Local {
    origin: std::time::Instant,
    /// Ticks by which the test has advanced the clock.
    skipped: Cell<u64>,
    /// Tasks, each by its earliest time. The length is not bounded: tasks of dropped clients stay
    /// until then.
    queue: RefCell<Vec<(u64, Waker)>>,
    /// Waker of the task that calls the queue when its next timer is due.
    caller: RefCell<Option<Waker>>,
}

thread_local! {
    static LOCAL: Local = Local {
        origin: std::time::Instant::now(),
        skipped: Cell::new(0),
        queue: RefCell::new(Vec::new()),
        caller: RefCell::new(None),
    };
}

impl Local {
    fn now(&self) -> u64 {
        let elapsed = Instant::MIN + embassy_time::Duration::from_micros(micros(self.origin.elapsed()));
        elapsed.as_ticks() + self.skipped.get()
    }

    /// Wakes the tasks with timers that are due at `now`, and returns the time of the next timer.
    fn wake_until(&self, now: u64) -> u64 {
        let mut queue = self.queue.borrow_mut();
        for (_, waker) in queue.extract_if(.., |(at, _)| *at <= now) {
            waker.wake();
        }
        queue.iter().map(|(at, _)| *at).min().unwrap_or(u64::MAX)
    }

    fn call(&self) {
        if let Some(caller) = self.caller.take() {
            caller.wake();
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("a test is shorter")
}

struct Clock;

impl Driver for Clock {
    fn now(&self) -> u64 {
        LOCAL.with(Local::now)
    }

    fn schedule_wake(&self, at: u64, waker: &Waker) {
        LOCAL.with(|local| {
            let mut queue = local.queue.borrow_mut();
            match queue.iter_mut().find(|(_, kept)| kept.will_wake(waker)) {
                Some((kept, _)) if *kept <= at => return,
                Some((kept, _)) => *kept = at,
                None => queue.push((at, waker.clone())),
            }
            drop(queue);
            local.call();
        });
    }
}

embassy_time_driver::time_driver_impl!(static CLOCK: Clock = Clock);

/// The time since the test began, by its clock.
pub(crate) fn now() -> Duration {
    Duration::from_micros(Instant::now().as_micros())
}

/// The time by which the test has advanced the clock. Between two moments, it is less than the time by the clock,
/// which also has that of the host.
pub(crate) fn skipped() -> Duration {
    LOCAL.with(|local| Duration::from_micros(embassy_time::Duration::from_ticks(local.skipped.get()).as_micros()))
}

/// Wakes the tasks that wait for the clock.
pub(super) async fn run() {
    loop {
        let mut timer = None;
        poll_fn(|context| {
            LOCAL.with(|local| {
                let now = local.now();
                let next = local.wake_until(now);
                local.caller.replace(Some(context.waker().clone()));
                let ticks = embassy_time::Duration::from_ticks(next.saturating_sub(now));
                timer = (next != u64::MAX).then(|| async_io::Timer::after(Duration::from_micros(ticks.as_micros())));
            });
            // Until that time, or until an earlier timer is queued.
            timer.as_mut().map_or(Poll::Pending, |timer| Pin::new(timer).poll(context).map(drop))
        })
        .await;
    }
}

/// Advances the clock to the next timer, at most to `end`. Returns whether it was before `end`.
pub(super) fn step(end: Duration) -> bool {
    LOCAL.with(|local| {
        let now = local.now();
        let end = Instant::from_micros(micros(end)).as_ticks();
        if now >= end {
            return false;
        }
        // Timers that are already due are woken before the clock advances.
        let next = local.wake_until(0).min(end);
        local.skipped.set(local.skipped.get() + next.saturating_sub(now));
        local.call();
        true
    })
}
