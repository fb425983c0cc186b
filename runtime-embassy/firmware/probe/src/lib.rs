//! Common parts of the probes: a network for one or two sockets, with a lease by DHCP.
#![no_std]

use embassy_executor::Spawner;
use embassy_net::{DhcpConfig, Runner, Stack, StackResources};
use embassy_time::{Duration, with_timeout};
use poolhouse_board::{ethernet::Ethernet, host, println};
use static_cell::StaticCell;

/// The time limit of a lease.
const LEASE_MAX: Duration = Duration::from_secs(20);

// A separate task: joined with users of its sockets in one task it would spin.
#[embassy_executor::task]
async fn run(mut runner: Runner<'static, Ethernet>) -> ! {
    runner.run().await
}

/// Starts the network in a separate task; ends the program if there is no Ethernet.
///
/// # Panics
///
/// When called a second time.
pub fn start_network(spawner: Spawner) -> Stack<'static> {
    // One socket for DHCP and two for the probe.
    static RESOURCES: StaticCell<StackResources<3>> = StaticCell::new();

    let ethernet = match Ethernet::new([0x52, 0x54, 0, 0x12, 0x34, 0x56]) {
        Ok(ethernet) => ethernet,
        Err(error) => {
            println!("failed: {error}");
            host::exit(1)
        }
    };
    let config = embassy_net::Config::dhcpv4(DhcpConfig::default());
    let resources = RESOURCES.init(StackResources::new());
    let (stack, runner) = embassy_net::new(ethernet, config, resources, host::random_u64());
    spawner.spawn(run(runner).expect("spawned once"));
    stack
}

/// Waits for a lease.
///
/// # Errors
///
/// If there is none after 20 s.
pub async fn lease(network: Stack<'_>) -> Result<(), &'static str> {
    with_timeout(LEASE_MAX, network.wait_config_up()).await.map_err(|_| "no DHCP lease")
}

/// Ends the program with status 0, or with 1 and the reason.
pub fn end(result: Result<(), &'static str>) -> ! {
    if let Err(why) = result {
        println!("failed: {why}");
    }
    host::exit(u8::from(result.is_err()))
}

/// Ends the program because its command line is invalid.
pub fn usage(text: &str) -> ! {
    println!("usage: {text}");
    host::exit(1)
}
