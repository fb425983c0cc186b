//! The network alone. Argument: `ADDRESS:PORT`.
#![no_std]
#![no_main]

use core::net::Ipv4Addr;
use embassy_executor::Spawner;
use embassy_net::Stack;
use poolhouse_board::host;
use poolhouse_size::{end, network};

#[embassy_executor::task]
async fn work(stack: Stack<'static>, server: (Ipv4Addr, u16)) {
    end(network::exchange(stack, server).await)
}

#[cortex_m_rt::entry]
fn main() -> ! {
    let Some(server) = host::arguments().next().and_then(network::server) else { end(Err(1)) };
    poolhouse_board::run(|spawner: Spawner| {
        let stack = network::start(spawner);
        match work(stack, server) {
            Ok(token) => spawner.spawn(token),
            Err(_) => end(Err(2)),
        }
    })
}
