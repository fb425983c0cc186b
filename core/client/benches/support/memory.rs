//! A client whose server is a stream in memory, and whose tasks run only in `turn`. So only the
//! cost of the driver and its locks is measured.

use alloc::sync::Arc;
use core::future::{Future, pending};
use core::net::SocketAddr;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};
use futures_io::{AsyncRead, AsyncWrite};
use poolhouse_client::{Client, ClientOptions, Net, Platform};
use poolhouse_core::Instant;
use poolhouse_driver::{Guard, SelectionRequest};
use poolhouse_wire::message::{Decoded, Limits, Outgoing, decode_message, encode_message};
use std::io;
use std::path::Path;
use std::sync::Mutex;

/// A task.
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A platform without sockets, timers and threads.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    tasks: Arc<Mutex<Vec<Work>>>,
}

/// A peer that replies to every message at once with the hello reply of a mongos.
#[derive(Default)]
pub(crate) struct Peer {
    unread: Vec<u8>,
}

impl AsyncRead for Peer {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.unread.is_empty() {
            return Poll::Pending;
        }
        let count = buf.len().min(self.unread.len());
        buf[..count].copy_from_slice(&self.unread[..count]);
        self.unread.drain(..count);
        Poll::Ready(Ok(count))
    }
}

impl AsyncWrite for Peer {
    /// Accepts exactly one complete message.
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let Ok(Decoded::Done { value: message, .. }) = decode_message(buf, &Limits::DEFAULT) else {
            panic!("no whole message")
        };
        let outgoing = Outgoing::reply(1, message.header().request_id);
        encode_message(&mut self.unread, outgoing, &Limits::DEFAULT, |message| {
            message.body(|body| {
                body.boolean("ismaster", true)?
                    .str("msg", "isdbgrid")?
                    .int32("maxWireVersion", 21)?
                    .int32("minWireVersion", 6)?;
                body.double("ok", 1.0).map(drop)
            })
        })
        .expect("it fits");
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Platform for Memory {
    const DRIVER_NAME: &'static str = "memory";
    const DRIVER_VERSION: &'static str = "0";
    const PLATFORM_NAME: &'static str = "memory";

    type Tcp = Peer;
    type Unix = Peer;
    type Udp = ();
    type Task = ();

    async fn sleep_until(&self, _: Instant) {
        pending().await
    }

    async fn resolve(&self, _: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        Err(io::ErrorKind::NotFound.into())
    }

    async fn connect_tcp(&self, _: SocketAddr) -> io::Result<Peer> {
        Ok(Peer::default())
    }

    async fn connect_unix(&self, _: &Path) -> io::Result<Peer> {
        Ok(Peer::default())
    }

    async fn connect_udp(&self, _: SocketAddr) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn send_udp(&self, (): &(), _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn receive_udp(&self, (): &(), _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn spawn<F>(&self, work: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.lock().expect("not poisoned").push(Box::pin(work));
    }
}

impl Memory {
    /// Polls every task once, and drops the tasks that have ended.
    fn turn(&self) {
        let mut tasks = core::mem::take(&mut *self.tasks.lock().expect("not poisoned"));
        tasks.retain_mut(|task| task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        self.tasks.lock().expect("not poisoned").append(&mut tasks);
    }
}

/// A client of this number of servers, with this number of idle connections to each at least, and
/// without pending background work.
pub(crate) fn warm(servers: u16, connections: u32) -> Client<Memory> {
    let platform = Memory::default();
    let hosts: Vec<String> = (0..servers).map(|server| format!("127.0.0.1:{}", 27017 + server)).collect();
    let mut options = ClientOptions::new("").min_pool_size(connections).max_pool_size(connections);
    options.hosts = hosts;
    let client = Client::with_platform(platform.clone(), options, Default::default());
    let client = client.expect("good options");
    let is_filled = || client.servers().iter().all(|server| server.pool.counts.available == connections);
    while !is_filled() {
        platform.turn();
    }
    for _ in 0..10 {
        platform.turn();
    }
    client
}

/// Returns the output of a future that is ready at its first poll.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("a connection is available"),
    }
}

/// Checks out a connection through the driver: server selection and the pool's check-out.
pub(crate) fn guard(client: &Client<Memory>) -> Guard<'_, Net<Memory>> {
    now(client.core().check_out(&SelectionRequest::WRITE, None)).expect("a connection")
}
