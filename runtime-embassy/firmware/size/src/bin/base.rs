//! The baseline: the board, its executor and the parts common to all these programs.
#![no_std]
#![no_main]

use core::hint::black_box;
use embassy_executor::Spawner;
use embassy_time::Timer;
use poolhouse_board::host;
use poolhouse_size::end;
use poolhouse_size::peer::{Asked, answer};

#[embassy_executor::task]
async fn work() {
    Timer::after_millis(1).await;
    let mut reply = [0; 512];
    for asked in [Asked::Hello, Asked::Begin, Asked::Finish, Asked::Command] {
        black_box(answer(black_box(asked), black_box(&[0; 16]), &mut reply));
        black_box(&reply);
    }
    let count = host::arguments().count();
    end(if count < 100 { Ok(()) } else { Err(1) })
}

#[cortex_m_rt::entry]
fn main() -> ! {
    poolhouse_board::run(|spawner: Spawner| match work() {
        Ok(token) => spawner.spawn(token),
        Err(_) => end(Err(2)),
    })
}
