//! Do sleeps end in order, and when they should? Beside them a ticker runs, whose alarms come in between.
//!
//! Arguments: how many seconds the longest sleep lasts (2). Exit status 0 means yes.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU32, Ordering};

use embassy_executor::Spawner;
use embassy_futures::join::join3;
use embassy_time::{Duration, Instant, Ticker, Timer};
use poolhouse_board::{executor, host, println, stack};

const TICK: Duration = Duration::from_millis(250);
/// How late a sleep may end: the emulator shares its host.
const LATE_MAX: Duration = Duration::from_millis(500);

static TICKS: AtomicU32 = AtomicU32::new(0);

#[embassy_executor::task]
async fn tick() {
    let mut ticker = Ticker::every(TICK);
    loop {
        ticker.next().await;
        TICKS.store(TICKS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// Sleeps, and says when it woke.
async fn sleep(length: Duration) -> Instant {
    Timer::after(length).await;
    Instant::now()
}

#[embassy_executor::task]
async fn check(seconds: u64) {
    poolhouse_probe::end(sleeps(seconds).await)
}

async fn sleeps(seconds: u64) -> Result<(), &'static str> {
    let longest = Duration::from_secs(seconds);
    let start = Instant::now();
    let (wakeups, host_start) = (executor::wakeups(), host::unix_time());
    let lengths = [Duration::from_millis(20), Duration::from_millis(10), longest];
    let (second, first, last) = join3(sleep(lengths[0]), sleep(lengths[1]), sleep(lengths[2])).await;
    let mut good = first < second && second < last;
    for (length, end) in lengths.into_iter().zip([second, first, last]) {
        let slept = end - start;
        good &= slept >= length && slept <= length + LATE_MAX;
        println!("a sleep of {} us took {} us", length.as_micros(), slept.as_micros());
    }
    let ticks = TICKS.load(Ordering::Relaxed);
    // Every tick that was due, and no more.
    let due = (Instant::now() - start).as_ticks() / TICK.as_ticks();
    good &= u64::from(ticks).abs_diff(due) <= 1;
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
