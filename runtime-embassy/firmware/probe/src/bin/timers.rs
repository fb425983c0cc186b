//! Probes whether sleeps end in order and in time, while a ticker sets alarms in between.
//!
//! Arguments: the longest sleep in seconds (2). Exit status 0 means success.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU32, Ordering};

use embassy_executor::Spawner;
use embassy_futures::join::{join, join3};
use embassy_futures::yield_now;
use embassy_time::{Duration, Instant, Ticker, Timer};
use poolhouse_board::{executor, host, println, stack};

const TICK: Duration = Duration::from_millis(250);
/// The maximum delay of a sleep's end: the emulator's host may stop it for seconds.
const LATE_MAX: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_millis(10);
const LONGER: Duration = Duration::from_millis(20);
/// The maximum number of attempts until the short sleep ends in time.
const TRIES: u32 = 100;

static TICKS: AtomicU32 = AtomicU32::new(0);

#[embassy_executor::task]
async fn tick() {
    let mut ticker = Ticker::every(TICK);
    loop {
        ticker.next().await;
        TICKS.store(TICKS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// Sleeps and returns the time of its end.
async fn sleep(length: Duration) -> Instant {
    Timer::after(length).await;
    Instant::now()
}

#[embassy_executor::task]
async fn check(seconds: u64) {
    poolhouse_probe::end(sleeps(seconds).await)
}

/// The number of attempts until the short sleep ended before a longer concurrent sleep was due,
/// without a tick in between; `None` if that never happened. The emulator is sometimes late, but a
/// sleep that only the next alarm ends would be late in every attempt.
async fn tries_until_prompt() -> Option<u32> {
    for tries in 1..=TRIES {
        let (start, ticks) = (Instant::now(), TICKS.load(Ordering::Relaxed));
        let (short, _) = join(sleep(SHORT), sleep(LONGER)).await;
        // A tick that was due at the same time as the sleeps runs now.
        yield_now().await;
        if short - start < LONGER && TICKS.load(Ordering::Relaxed) == ticks {
            return Some(tries);
        }
    }
    None
}

async fn sleeps(seconds: u64) -> Result<(), &'static str> {
    let longest = Duration::from_secs(seconds);
    // Starts the ticker before the sleeps.
    yield_now().await;
    let start = Instant::now();
    let (wakeups, host_start) = (executor::wakeups(), host::unix_time());
    let lengths = [SHORT, LONGER, longest];
    // Sleeps that are due at the same time end in the order in which they are polled: this order.
    let (first, second, last) = join3(sleep(lengths[0]), sleep(lengths[1]), sleep(lengths[2])).await;
    let mut good = first <= second && second <= last;
    for (length, end) in lengths.into_iter().zip([first, second, last]) {
        let slept = end - start;
        good &= slept >= length && slept <= length + LATE_MAX;
        println!("a sleep of {} us took {} us", length.as_micros(), slept.as_micros());
    }
    // The interrupt that woke the longest sleep also woke the ticker for all ticks due by then. The
    // upper limit is the number of periods since the clock's start.
    yield_now().await;
    let ticks = TICKS.load(Ordering::Relaxed);
    let due = longest.as_ticks() / TICK.as_ticks();
    good &= (due..=Instant::now().as_ticks() / TICK.as_ticks()).contains(&u64::from(ticks));
    let tries = tries_until_prompt().await;
    good &= tries.is_some();
    println!("prompt at try {}", tries.unwrap_or(0));
    println!(
        "{ticks} ticks of {due}, {} wake-ups, {} s of the host, {} bytes of stack",
        executor::wakeups().wrapping_sub(wakeups),
        host::unix_time().saturating_sub(host_start).as_secs(),
        stack::used_bytes(),
    );
    if good { Ok(()) } else { Err("sleeps out of order or of a wrong length") }
}

#[cortex_m_rt::entry]
fn main() -> ! {
    let seconds = host::arguments().next().map_or(Ok(2), str::parse);
    let Ok(seconds) = seconds else { poolhouse_probe::usage("timers [SECONDS]") };
    poolhouse_board::run(|spawner: Spawner| {
        spawner.spawn(tick().expect("spawned once"));
        spawner.spawn(check(seconds).expect("spawned once"));
    })
}
