//! A platform that connects through proxies and counts the client's tasks.

use alloc::sync::Arc;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicUsize, Ordering};
use poolhouse_smol::Smol;
use poolhouse_smol::poolhouse_client::Platform;
use poolhouse_smol::poolhouse_core::Instant;
use std::io;
use std::path::Path;

/// The driver name in the metadata of the client.
pub(crate) const DRIVER_NAME: &str = "poolhouse-soak";

/// A client on this platform discovers the servers by the addresses that they report, and connects to
/// each through its proxy.
#[derive(Clone, Debug)]
pub(crate) struct Detour {
    ways: Arc<Vec<(SocketAddr, SocketAddr)>>,
    tasks: Arc<AtomicUsize>,
}

impl Detour {
    /// - `ways`: pairs of a server's address and its proxy's address.
    pub(crate) fn new(ways: Vec<(SocketAddr, SocketAddr)>) -> Self {
        Self { ways: Arc::new(ways), tasks: Arc::default() }
    }

    /// Number of tasks of its clients that have not ended.
    pub(crate) fn tasks(&self) -> usize {
        self.tasks.load(Ordering::SeqCst)
    }
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Platform for Detour {
    const DRIVER_NAME: &'static str = DRIVER_NAME;
    const DRIVER_VERSION: &'static str = Smol::DRIVER_VERSION;
    const PLATFORM_NAME: &'static str = Smol::PLATFORM_NAME;

    type Tcp = <Smol as Platform>::Tcp;
    type Unix = <Smol as Platform>::Unix;
    type Udp = <Smol as Platform>::Udp;
    type Task = <Smol as Platform>::Task;

    async fn sleep_until(&self, at: Instant) {
        Smol.sleep_until(at).await;
    }

    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Smol.resolve(host, port).await
    }

    async fn connect_tcp(&self, address: SocketAddr) -> io::Result<Self::Tcp> {
        let proxy = self.ways.iter().find(|(server, _)| *server == address).map(|(_, proxy)| *proxy);
        // An address without a proxy is an error: faults would not reach its connections.
        Smol.connect_tcp(proxy.ok_or(io::ErrorKind::AddrNotAvailable)?).await
    }

    async fn connect_unix(&self, path: &Path) -> io::Result<Self::Unix> {
        Smol.connect_unix(path).await
    }

    async fn connect_udp(&self, peer: SocketAddr) -> io::Result<Self::Udp> {
        Smol.connect_udp(peer).await
    }

    async fn send_udp(&self, socket: &Self::Udp, datagram: &[u8]) -> io::Result<usize> {
        Smol.send_udp(socket, datagram).await
    }

    async fn receive_udp(&self, socket: &Self::Udp, buffer: &mut [u8]) -> io::Result<usize> {
        Smol.receive_udp(socket, buffer).await
    }

    fn spawn<F>(&self, work: F) -> Self::Task
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.fetch_add(1, Ordering::SeqCst);
        let counted = Counted(Arc::clone(&self.tasks));
        Smol.spawn(async move {
            let _counted = counted;
            work.await;
        })
    }
}
