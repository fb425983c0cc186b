//! The network alone: embassy-net with DHCP, and the TCP sockets of a client of one server and 4
//! connections, so that these are not part of a difference.

use core::net::Ipv4Addr;
use embassy_executor::Spawner;
use embassy_net::tcp::TcpSocket;
use embassy_net::{DhcpConfig, Runner, Stack, StackResources};
use embassy_time::{Duration, with_timeout};
use embedded_io_async::Write;
use poolhouse_board::ethernet::Ethernet;
use poolhouse_board::host;
use static_cell::{ConstStaticCell, StaticCell};

use crate::{end, peer};

/// The number of sockets of a client: those of a pool, and two of a monitor.
pub const CLIENT_SOCKETS: usize = 4 + 2;

// A separate task: joined with users of its sockets in one task it would spin.
#[embassy_executor::task]
async fn run(mut runner: Runner<'static, Ethernet>) -> ! {
    runner.run().await
}

/// Starts the network.
pub fn start(spawner: Spawner) -> Stack<'static> {
    // One more socket for DHCP.
    static NETWORK: StaticCell<StackResources<{ CLIENT_SOCKETS + 1 }>> = StaticCell::new();
    let Ok(ethernet) = Ethernet::new([0x52, 0x54, 0, 0x12, 0x34, 0x56]) else { end(Err(50)) };
    let config = embassy_net::Config::dhcpv4(DhcpConfig::default());
    let (stack, runner) =
        embassy_net::new(ethernet, config, NETWORK.init_with(StackResources::new), host::random_u64());
    match run(runner) {
        Ok(token) => spawner.spawn(token),
        Err(_) => end(Err(51)),
    }
    stack
}

/// Returns the server's address: the first argument, `ADDRESS:PORT`.
#[must_use]
pub fn server(text: &str) -> Option<(Ipv4Addr, u16)> {
    let (address, port) = text.split_once(':')?;
    Some((address.parse().ok()?, port.parse().ok()?))
}

/// The size of a socket's buffer in each direction, in bytes.
const SOCKET_BYTES: usize = 1024;

/// Waits for a lease, connects, sends a message and receives the reply.
///
/// # Errors
///
/// The number of the step that failed.
pub async fn exchange(stack: Stack<'static>, server: (Ipv4Addr, u16)) -> Result<(), u8> {
    static SOCKET_BUFFERS: ConstStaticCell<[[u8; SOCKET_BYTES]; 2]> = ConstStaticCell::new([[0; SOCKET_BYTES]; 2]);
    stack.wait_config_up().await;
    let [received, to_send] = SOCKET_BUFFERS.take();
    let mut socket = TcpSocket::new(stack, received, to_send);
    socket.set_nagle_enabled(false);
    socket.connect(server).await.map_err(|_| 52)?;
    socket.write_all(&peer::ENTROPY).await.map_err(|_| 53)?;
    let mut reply = [0; 64];
    let _ = with_timeout(Duration::from_secs(1), socket.read(&mut reply)).await;
    core::hint::black_box(&reply);
    socket.close();
    let _ = with_timeout(Duration::from_secs(1), socket.flush()).await;
    socket.abort();
    let _ = with_timeout(Duration::from_secs(1), socket.flush()).await;
    Ok(())
}
