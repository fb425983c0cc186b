//! Probes link detection: waits until the cable is pulled, until it is plugged in, and then for a
//! lease; each step has 20 s.
//!
//! Takes no arguments and prints each step; an operator must pull and plug in the cable. Exit
//! status 0 means that all changes were detected.
#![no_std]
#![no_main]

use embassy_executor::Spawner;
use embassy_net::Stack;
use embassy_time::{Duration, with_timeout};
use poolhouse_board::println;

const STEP_MAX: Duration = Duration::from_secs(20);

async fn cable(network: Stack<'static>) -> Result<(), &'static str> {
    poolhouse_probe::lease(network).await?;
    println!("pull the cable");
    with_timeout(STEP_MAX, network.wait_link_down()).await.map_err(|_| "the cable was not pulled")?;
    println!("plug it in");
    with_timeout(STEP_MAX, network.wait_link_up()).await.map_err(|_| "the cable did not come back")?;
    poolhouse_probe::lease(network).await
}

#[embassy_executor::task]
async fn check(network: Stack<'static>) {
    poolhouse_probe::end(cable(network).await)
}

#[cortex_m_rt::entry]
fn main() -> ! {
    poolhouse_board::run(|spawner: Spawner| {
        let network = poolhouse_probe::start_network(spawner);
        spawner.spawn(check(network).expect("spawned once"));
    })
}
