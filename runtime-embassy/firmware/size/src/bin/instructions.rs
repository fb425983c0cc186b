//! The number of instructions of check-out and check-in, with the pool of the other programs in
//! fixed memory. Argument: the number of repetitions.
//!
//! Under `-icount shift=0` an instruction takes a nanosecond, so a thousandth of a printed unit
//! (µs) is one instruction.
#![no_std]
#![no_main]

use core::hint::black_box;
use embassy_time::Instant as Moment;
use poolhouse_board::host;
use poolhouse_core::Instant;
use poolhouse_core::pool::{CheckOut, Claim, Health, Lease, Pool, PoolAction, PoolId};
use poolhouse_size::machines::{POOL, SmallPool};
use poolhouse_size::{end, report};
use static_cell::StaticCell;

fn queue(pool: &mut SmallPool, now: Instant) -> Result<(), u8> {
    match pool.check_out(now, Some(Instant::MAX), &mut ()) {
        Ok(CheckOut::Queued(waiter)) => {
            black_box(waiter);
            Ok(())
        }
        Ok(CheckOut::Granted(_)) | Err(_) => Err(10),
    }
}

fn take(pool: &mut SmallPool, now: Instant) -> Result<Lease, u8> {
    match pool.check_out(now, None, &mut ()) {
        Ok(CheckOut::Granted(lease)) => Ok(lease),
        Ok(CheckOut::Queued(_)) | Err(_) => Err(11),
    }
}

fn establish(pool: &mut SmallPool, now: Instant) -> Result<Lease, u8> {
    let Ok(CheckOut::Queued(waiter)) = pool.check_out(now, None, &mut ()) else { return Err(12) };
    let conn = pool.poll_establish().ok_or(13)?;
    pool.handle_established(now, conn, &mut ()).map_err(|_| 14)?;
    match pool.claim(now, waiter) {
        Claim::Granted(lease) => Ok(lease),
        Claim::Failed(_) | Claim::Stale | Claim::Waiting => Err(15),
    }
}

/// Returns the microseconds since `begun`.
fn since(begun: Moment) -> u32 {
    u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX)
}

fn measure(pool: &mut SmallPool, times: u64) -> Result<(), u8> {
    let now = Instant::ORIGIN;
    let mut leases = [const { None }; 4];
    for lease in &mut leases {
        *lease = Some(establish(pool, now)?);
    }
    for lease in leases.into_iter().flatten() {
        pool.check_in(now, lease, Health::Healthy, &mut ()).map_err(|_| 16)?;
    }

    let begun = Moment::now();
    for time in 0..times {
        black_box(Instant::from_nanos(time));
    }
    report("loop_us", since(begun));

    let begun = Moment::now();
    for time in 0..times {
        let now = Instant::from_nanos(time);
        let lease = black_box(take(pool, now)?);
        pool.check_in(now, lease, Health::Healthy, &mut ()).map_err(|_| 17)?;
    }
    report("pool_us", since(begun));

    // A waiter is queued, and receives the connection that is checked in.
    let now = Instant::from_nanos(times);
    let mut lease = take(pool, now)?;
    let others = [take(pool, now)?, take(pool, now)?, take(pool, now)?];
    let begun = Moment::now();
    for time in times..times.saturating_mul(2) {
        let now = Instant::from_nanos(time);
        queue(pool, now)?;
        pool.check_in(now, lease, Health::Healthy, &mut ()).map_err(|_| 18)?;
        let Some(PoolAction::Wake(waiter)) = pool.poll_prompt() else { return Err(19) };
        let Claim::Granted(next) = pool.claim(now, waiter) else { return Err(20) };
        lease = next;
    }
    report("handoff_us", since(begun));
    for lease in others.into_iter().chain([lease]) {
        pool.check_in(Instant::MAX, lease, Health::Healthy, &mut ()).map_err(|_| 21)?;
    }
    Ok(())
}

#[cortex_m_rt::entry]
fn main() -> ! {
    static SMALL_POOL: StaticCell<SmallPool> = StaticCell::new();
    let times = host::arguments().next().and_then(|times| times.parse().ok()).unwrap_or(1000);
    poolhouse_board::run(|_| {
        let pool = black_box(SMALL_POOL.init(Pool::new(Instant::ORIGIN, PoolId::new(1), POOL, &mut ())));
        pool.ready(Instant::ORIGIN, &mut ());
        end(measure(pool, times))
    })
}
