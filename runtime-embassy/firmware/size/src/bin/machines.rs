//! The state machines of core alone: pool, monitor and wire.
#![no_std]
#![no_main]

use embassy_executor::Spawner;
use embassy_time::Timer;
use poolhouse_board::host;
use poolhouse_size::end;
use poolhouse_size::machines::run;
use poolhouse_size::peer::Asked;
use poolhouse_wire::Unauthenticated;

#[embassy_executor::task]
async fn work() {
    Timer::after_millis(1).await;
    let count = host::arguments().count();
    end(if count < 100 { run(|| None::<Unauthenticated>, Asked::Hello, Asked::Command) } else { Err(1) })
}

#[cortex_m_rt::entry]
fn main() -> ! {
    poolhouse_board::run(|spawner: Spawner| match work() {
        Ok(token) => spawner.spawn(token),
        Err(_) => end(Err(2)),
    })
}
