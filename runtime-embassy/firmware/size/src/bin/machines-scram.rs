//! The state machines alone, with SCRAM-SHA-256.
#![no_std]
#![no_main]

use core::hint::black_box;
use embassy_executor::Spawner;
use embassy_time::Timer;
use poolhouse_auth::{Authentication, AuthenticationOptions, Credential, Mechanism};
use poolhouse_board::host;
use poolhouse_size::end;
use poolhouse_size::machines::run;
use poolhouse_size::peer::{Asked, ENTROPY, PASSWORD, USER};

fn authentication() -> Option<Authentication<'static>> {
    let credential = Credential::new(black_box(USER), black_box(PASSWORD)).mechanism(Mechanism::SCRAM_SHA_256);
    Authentication::new(credential, AuthenticationOptions::new(black_box(ENTROPY))).ok()
}

#[embassy_executor::task]
async fn work() {
    Timer::after_millis(1).await;
    let count = host::arguments().count();
    end(if count < 100 { run(authentication, Asked::Begin, Asked::Finish) } else { Err(1) })
}

#[cortex_m_rt::entry]
fn main() -> ! {
    poolhouse_board::run(|spawner: Spawner| match work() {
        Ok(token) => spawner.spawn(token),
        Err(_) => end(Err(2)),
    })
}
