//! A platform whose timers fire too early, which breaks its contract but must not keep a thread
//! busy.

use super::*;
use alloc::sync::Arc;
use core::future::pending;
use core::net::SocketAddr;
use core::pin::Pin;
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::{Context, Waker};
use core::time::Duration;
use futures_io::{AsyncRead, AsyncWrite};

/// Virtual time: each sleep takes half of the remaining time, and a millisecond.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hasty {
    now_ms: Arc<AtomicU64>,
    looks: Arc<AtomicU64>,
    /// Whether the system has no random bits.
    is_plain: bool,
}

/// A stream type without values.
pub(crate) enum Socket {}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut [u8]) -> Poll<io::Result<usize>> {
        match *self {}
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        match *self {}
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }
}

impl Platform for Hasty {
    const DRIVER_NAME: &'static str = "hasty";
    const DRIVER_VERSION: &'static str = "0";
    const PLATFORM_NAME: &'static str = "hasty";

    type Tcp = Socket;
    type Unix = Socket;
    type Udp = ();
    type Task = ();

    fn now(&self) -> Instant {
        assert!(self.looks.fetch_add(1, Ordering::Relaxed) < 1_000, "it goes on without waiting");
        Instant::from_nanos(self.now_ms.load(Ordering::Relaxed) * 1_000_000)
    }

    fn fill_secret(&self, bytes: &mut [u8]) -> io::Result<()> {
        if self.is_plain {
            Err(io::ErrorKind::Unsupported.into())
        } else {
            getrandom::fill(bytes).map_err(io::Error::from)
        }
    }

    async fn sleep_until(&self, at: Instant) {
        let now = self.now_ms.load(Ordering::Relaxed);
        let left = (at.as_nanos() / 1_000_000).saturating_sub(now);
        self.now_ms.store(now + left / 2 + 1, Ordering::Relaxed);
    }

    async fn resolve(&self, _: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn connect_tcp(&self, _: SocketAddr) -> io::Result<Socket> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn connect_unix(&self, _: &Path) -> io::Result<Socket> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn connect_udp(&self, _: SocketAddr) -> io::Result<()> {
        Ok(())
    }

    async fn send_udp(&self, (): &(), datagram: &[u8]) -> io::Result<usize> {
        Ok(datagram.len())
    }

    async fn receive_udp(&self, (): &(), _: &mut [u8]) -> io::Result<usize> {
        pending().await
    }

    fn spawn<F>(&self, _: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
    }
}

#[test]
fn early_timer_is_set_again() {
    let platform = Hasty::default();
    let config = ResolverConfig::new(vec![([10, 0, 0, 1], 53).into(), ([10, 0, 0, 2], 53).into()]);
    let resolver = DnsResolver::with_config(platform.clone(), config.clone());
    let lookup = pin!(resolver.lookup_srv("_mongodb._tcp.a.test"));
    let result = lookup.poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(result, Poll::Ready(Err(LookupError::Timeout)));
    let all = config.timeout * 2 * config.attempts;
    assert!(Duration::from_millis(platform.now_ms.load(Ordering::Relaxed)) >= all, "every server has had its time");
}

/// An attacker that can guess the id of a question can answer it.
#[test]
fn without_random_bytes_no_query_is_sent() {
    let platform = Hasty { is_plain: true, ..Hasty::default() };
    let resolver = DnsResolver::with_config(platform, ResolverConfig::new(vec![([10, 0, 0, 1], 53).into()]));
    let lookup = pin!(resolver.lookup_srv("_mongodb._tcp.a.test"));
    let result = lookup.poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(result, Poll::Ready(Err(LookupError::Other("the operating system supplied no random bytes".into()))));
}
