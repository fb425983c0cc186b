//! Does the board notice its cable? Waits until it is pulled and until it is back, and then for a lease again; each step has 20 s.
//!
//! Takes no arguments and says when it waits for what: somebody has to pull. Exit status 0 means that all of it was noticed.
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
