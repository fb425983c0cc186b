//! The requests of `http` by one task over one connection, with reqwless in place of the pool: its size is
//! compared with that of `http`. A connection that the server closes is not replaced.
#![no_std]
#![no_main]

use core::convert::Infallible;
use core::net::{IpAddr, SocketAddr};
use embassy_executor::Spawner;
use embassy_net::Stack;
use embassy_net::tcp::client::{TcpClient, TcpClientState};
use embedded_io_async::{Read, Write};
use embedded_nal_async::{AddrType, Dns, TcpConnect};
use poolhouse_pool_examples::{Failure, Run, lease, start};
use reqwless::client::{HttpClient, HttpResource};
use static_cell::StaticCell;

/// One server, for every name and port.
struct Server {
    tcp: TcpClient<'static, 1>,
    address: SocketAddr,
}

impl TcpConnect for Server {
    type Error = embassy_net::tcp::Error;
    type Connection<'a> = <TcpClient<'static, 1> as TcpConnect>::Connection<'a>;

    async fn connect(&self, _: SocketAddr) -> Result<Self::Connection<'_>, Self::Error> {
        self.tcp.connect(self.address).await
    }
}

impl Dns for Server {
    type Error = Infallible;

    async fn get_host_by_name(&self, _: &str, _: AddrType) -> Result<IpAddr, Infallible> {
        Ok(self.address.ip())
    }

    async fn get_host_by_address(&self, _: IpAddr, _: &mut [u8]) -> Result<usize, Infallible> {
        Ok(0)
    }
}

async fn get<'r, C: Read + Write>(
    server: &mut HttpResource<'_, C>,
    path: &str,
    reply: &'r mut [u8],
) -> Result<(u16, &'r [u8]), Failure> {
    let response = server.get(path).send(reply).await.map_err(|_| Failure::Cut)?;
    let status = response.status.0;
    let body = response.body().read_to_end().await.map_err(|_| Failure::Cut)?;
    Ok((status, body))
}

#[embassy_executor::task]
async fn begin(_spawner: Spawner, network: Stack<'static>, run: &'static Run) {
    static SOCKET_BUFFERS: StaticCell<TcpClientState<1, 1024, 1024>> = StaticCell::new();
    lease(network).await;
    let tcp = TcpClient::new(network, SOCKET_BUFFERS.init_with(TcpClientState::new));
    let server = Server { tcp, address: SocketAddr::new(run.server.addr.into(), run.server.port) };
    let mut client = HttpClient::new(&server, &server);
    let Ok(mut resource) = client.resource("http://plant").await else { poolhouse_probe::end(Err("no connection")) };
    let mut reply = [0; 1024];
    for request in 0..run.requests {
        run.request(0, request, get(&mut resource, "/", &mut reply)).await;
    }
    poolhouse_probe::end(Ok(()))
}

#[cortex_m_rt::entry]
fn main() -> ! {
    start(begin)
}
