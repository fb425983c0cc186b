//! Probes the network: a lease by DHCP, a connection to an echo server, messages of 64 bytes in
//! both directions, an orderly end.
//!
//! Arguments: ADDRESS PORT [MESSAGES (100)]. Prints the duration of each step; exit status 0 means
//! that all steps succeeded.
#![no_std]
#![no_main]

use core::net::Ipv4Addr;

use embassy_executor::Spawner;
use embassy_net::{Stack, tcp::TcpSocket};
use embassy_time::{Duration, Instant, with_timeout};
use embedded_io_async::{Read, Write};
use poolhouse_board::{executor, host, println, stack};

const SILENCE_MAX: Duration = Duration::from_secs(10);
const MESSAGE_BYTES: usize = 64;

/// The parameters from the command line.
#[derive(Clone, Copy)]
struct Plan {
    address: Ipv4Addr,
    port: u16,
    messages: u32,
}

impl Plan {
    fn read(mut arguments: impl Iterator<Item = &'static str>) -> Option<Self> {
        let address = arguments.next()?.parse().ok()?;
        let port = arguments.next()?.parse().ok()?;
        let messages = arguments.next().map_or(Ok(100), str::parse).ok()?;
        Some(Self { address, port, messages })
    }
}

#[embassy_executor::task]
async fn check(network: Stack<'static>, plan: Plan) {
    let result = echo(network, plan).await;
    println!("{} wake-ups, {} bytes of stack", executor::wakeups(), stack::used_bytes());
    poolhouse_probe::end(result)
}

async fn echo(network: Stack<'static>, plan: Plan) -> Result<(), &'static str> {
    let start = Instant::now();
    poolhouse_probe::lease(network).await?;
    let config = network.config_v4().ok_or("the lease is gone")?;
    println!("DHCP: {} after {} us", config.address, start.elapsed().as_micros());

    let (mut received, mut to_send) = ([0; 1024], [0; 1024]);
    let mut socket = TcpSocket::new(network, &mut received, &mut to_send);
    socket.set_nagle_enabled(false);
    socket.set_timeout(Some(SILENCE_MAX));
    let start = Instant::now();
    socket.connect((plan.address, plan.port)).await.map_err(|_| "no connection")?;
    println!("connected to {}:{} in {} us", plan.address, plan.port, start.elapsed().as_micros());

    let (mut least, mut most, mut sum) = (u64::MAX, 0, 0);
    for number in 0..plan.messages {
        let message = [number.to_le_bytes()[0]; MESSAGE_BYTES];
        let mut reply = [0; MESSAGE_BYTES];
        let start = Instant::now();
        socket.write_all(&message).await.map_err(|_| "a message was not sent")?;
        socket.read_exact(&mut reply).await.map_err(|_| "a message did not come back")?;
        if reply != message {
            return Err("another message came back");
        }
        let took_us = start.elapsed().as_micros();
        (least, most, sum) = (least.min(took_us), most.max(took_us), sum + took_us);
    }
    let mean = sum / u64::from(plan.messages.max(1));
    println!("{} round trips of {MESSAGE_BYTES} bytes: least {least}, mean {mean}, most {most} us", plan.messages);

    // Close, flush, and only then drop: without the flush the FIN would not be sent.
    socket.close();
    with_timeout(SILENCE_MAX, socket.flush())
        .await
        .map_err(|_| "the end was not heard")?
        .map_err(|_| "no orderly end")?;
    match with_timeout(SILENCE_MAX, socket.read(&mut [0; 1])).await {
        Ok(Ok(0)) => Ok(()),
        Ok(_) => Err("the server sent on"),
        Err(_) => Err("the server did not end"),
    }
}

#[cortex_m_rt::entry]
fn main() -> ! {
    let Some(plan) = Plan::read(host::arguments()) else { poolhouse_probe::usage("echo ADDRESS PORT [MESSAGES]") };
    poolhouse_board::run(|spawner: Spawner| {
        let network = poolhouse_probe::start_network(spawner);
        spawner.spawn(check(network, plan).expect("spawned once"));
    })
}
