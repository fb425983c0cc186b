//! Probes an idle board: acquires a lease by DHCP, then counts the core's wake-ups for a number of
//! minutes.
//!
//! Arguments: [MINUTES (1) [MAXIMUM WAKE-UPS]]. Exit status 0 means that the lease was kept and the
//! core was not woken more often. Under QEMU's `-icount shift=0,sleep=off` a day takes less than a
//! second.
#![no_std]
#![no_main]

use embassy_executor::Spawner;
use embassy_futures::select::{Either, select};
use embassy_net::Stack;
use embassy_time::Timer;
use poolhouse_board::{executor, host, println, stack};

async fn idle(network: Stack<'static>, minutes: u32, wakeups_max: u32) -> Result<(), &'static str> {
    poolhouse_probe::lease(network).await?;
    let (wakeups, polls) = (executor::wakeups(), executor::polls());
    let sleep = Timer::after_secs(u64::from(minutes) * 60);
    if let Either::Second(()) = select(sleep, network.wait_config_down()).await {
        return Err("the lease was lost");
    }
    let (wakeups, polls) = (executor::wakeups().wrapping_sub(wakeups), executor::polls().wrapping_sub(polls));
    println!("{minutes} minutes: {wakeups} wake-ups, {polls} polls; {} bytes of stack", stack::used_bytes());
    if wakeups > wakeups_max {
        return Err("the core was woken too often");
    }
    Ok(())
}

#[embassy_executor::task]
async fn check(network: Stack<'static>, minutes: u32, wakeups_max: u32) {
    poolhouse_probe::end(idle(network, minutes, wakeups_max).await)
}

fn plan(mut arguments: impl Iterator<Item = &'static str>) -> Option<(u32, u32)> {
    let minutes = arguments.next().map_or(Ok(1), str::parse).ok()?;
    let wakeups_max = arguments.next().map_or(Ok(u32::MAX), str::parse).ok()?;
    Some((minutes, wakeups_max))
}

#[cortex_m_rt::entry]
fn main() -> ! {
    let Some((minutes, wakeups_max)) = plan(host::arguments()) else {
        poolhouse_probe::usage("idle [MINUTES [WAKE-UPS]]")
    };
    poolhouse_board::run(|spawner: Spawner| {
        let network = poolhouse_probe::start_network(spawner);
        spawner.spawn(check(network, minutes, wakeups_max).expect("spawned once"));
    })
}
