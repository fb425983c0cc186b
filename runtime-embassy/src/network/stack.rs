//! The network of embassy-net.

use super::Network;
use crate::close::{LINGER, close};
use core::fmt;
use core::net::IpAddr;
use embassy_net::tcp::{Error, TcpSocket};
use embassy_net::{IpAddress, Stack};
use embassy_time::Instant;
use embedded_io_async::{ErrorType, Read, Write};
use poolhouse_core::Cause;

/// A socket of embassy-net, which stays in its stack.
pub struct StackSocket(TcpSocket<'static>);

impl Network for Stack<'static> {
    type Socket = StackSocket;
    type Address = IpAddress;
    /// Without a TCP window nothing is received.
    const SOCKET_MIN: usize = 1;

    fn socket(&self, receive: &'static mut [u8], send: &'static mut [u8]) -> StackSocket {
        let mut socket = TcpSocket::new(*self, receive, send);
        // Requests are written as a whole before their reply is awaited, so delaying small segments
        // has no benefit.
        socket.set_nagle_enabled(false);
        StackSocket(socket)
    }

    async fn resolve(&self, host: &str) -> Result<IpAddress, Cause> {
        match host.parse() {
            Ok(IpAddr::V4(address)) => Ok(address.into()),
            #[cfg(feature = "ipv6")]
            Ok(IpAddr::V6(address)) => Ok(address.into()),
            #[cfg(not(feature = "ipv6"))]
            Ok(IpAddr::V6(_)) => Err(Cause::Dns),
            Err(_) => look_up(*self, host).await,
        }
    }

    /// Without a cable or a lease this fails at once, and monitors retry at their usual interval.
    /// It cannot wait for the network: embassy-net wakes only one task when that changes, and that
    /// task belongs to the application.
    async fn connect(&self, socket: &mut StackSocket, address: IpAddress, port: u16) -> Result<(), Cause> {
        socket.0.connect((address, port)).await.map_err(|_| Cause::Network)
    }

    /// The network stack sends FIN even if the runner, which completes the close, was dropped.
    fn begin_close(socket: &mut StackSocket) {
        socket.0.close();
    }

    async fn close(socket: &mut StackSocket) {
        close(&mut socket.0, Instant::now() + LINGER).await;
    }
}

/// With feature `ipv6`, a network without an IPv4 address asks for IPv6 addresses only.
#[cfg(feature = "dns")]
async fn look_up(stack: Stack<'static>, host: &str) -> Result<IpAddress, Cause> {
    use embassy_net::dns::DnsQueryType;
    let query = async |kind| stack.dns_query(host, kind).await.ok().and_then(|found| found.first().copied());
    #[cfg(feature = "ipv6")]
    let found = match stack.config_v4() {
        Some(_) => match query(DnsQueryType::A).await {
            None => query(DnsQueryType::Aaaa).await,
            found => found,
        },
        None => query(DnsQueryType::Aaaa).await,
    };
    #[cfg(not(feature = "ipv6"))]
    let found = query(DnsQueryType::A).await;
    found.ok_or(Cause::Dns)
}

#[cfg(not(feature = "dns"))]
#[expect(clippy::unused_async, reason = "stands in for one that waits")]
async fn look_up(_stack: Stack<'static>, _host: &str) -> Result<IpAddress, Cause> {
    Err(Cause::Dns)
}

impl ErrorType for StackSocket {
    type Error = Error;
}

impl Read for StackSocket {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, Error> {
        self.0.read(buf).await
    }
}

impl Write for StackSocket {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, Error> {
        self.0.write(buf).await
    }

    /// The network stack sends without a flush; that of its sockets waits for the peer's
    /// acknowledgement. The peer's reply shows that it has received the data.
    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

impl fmt::Debug for StackSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StackSocket").field(&self.0.state()).finish()
    }
}
