//! Protection of a client's sockets and futures in the child of a fork.
//!
//! Read first: CMAP, "Forking".
//!
//! A reactor such as async-io's is a singleton of the process. Its copy in the child still uses the
//! parent's epoll or kqueue descriptor, so even a drop of a socket in the child would affect the
//! parent. Each socket and future of a platform is therefore wrapped in a type that detects a fork:
//! [`Socket`] or [`ProcessFuture`]. In a child, the wrapped value is not polled, and dropping the
//! wrapper leaks it.

use super::{Error, Platform, SetupError};
use alloc::boxed::Box;
use core::fmt;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll};
use embedded_io_async::{ErrorType, Read, Write};
use futures_io::{AsyncRead, AsyncWrite};
use poolhouse_driver::ForkGuard;
use std::io;
use std::sync::OnceLock;

/// The fork guard of the first process that used a platform which does not survive a fork. All
/// platforms share it, because they may share a reactor.
static FIRST: OnceLock<ForkGuard> = OnceLock::new();

/// Checks that the platform can be used in this process.
///
/// # Errors
///
/// [`SetupError::Forked`].
pub(super) fn check<P: Platform>() -> Result<(), Error> {
    let forked = !P::SURVIVES_FORK && FIRST.get().is_some_and(ForkGuard::is_forked);
    if forked { Err(SetupError::Forked.into()) } else { Ok(()) }
}

/// Checks that the platform can be used in this process, and records its first use.
///
/// # Errors
///
/// [`SetupError::Forked`].
pub(super) fn begin<P: Platform>() -> Result<(), Error> {
    if !P::SURVIVES_FORK {
        FIRST.get_or_init(ForkGuard::default);
    }
    check::<P>()
}

/// A socket of a platform, as the driver and TLS read and write it. In the child of a fork, I/O
/// fails with `NotConnected`, and dropping it does not close the socket.
pub struct Socket<S> {
    /// `None` only after the drop in the child of a fork, where the socket is leaked.
    io: Option<S>,
    birth: ForkGuard,
}

impl<S> Socket<S> {
    pub(super) fn new(io: S) -> Self {
        Self { io: Some(io), birth: ForkGuard::default() }
    }

    /// Returns the socket, for access to its options; `None` in the child of a fork.
    #[must_use]
    pub fn get_ref(&self) -> Option<&S> {
        self.io.as_ref().filter(|_| !self.birth.is_forked())
    }

    fn get_mut(&mut self) -> io::Result<&mut S> {
        let Self { io, birth } = self;
        io.as_mut().filter(|_| !birth.is_forked()).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl<S> Drop for Socket<S> {
    fn drop(&mut self) {
        if self.birth.is_forked() {
            core::mem::forget(self.io.take());
        }
    }
}

impl<S> ErrorType for Socket<S> {
    type Error = io::Error;
}

impl<S: AsyncRead + Unpin> Read for Socket<S> {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, io::Error> {
        poll_fn(|context| Pin::new(self.get_mut()?).poll_read(context, buf)).await
    }
}

impl<S: AsyncWrite + Unpin> Write for Socket<S> {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, io::Error> {
        poll_fn(|context| Pin::new(self.get_mut()?).poll_write(context, buf)).await
    }

    /// Does nothing, because writes are not buffered.
    async fn flush(&mut self) -> Result<(), io::Error> {
        Ok(())
    }
}

impl<S> fmt::Debug for Socket<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Socket(..)")
    }
}

/// A future that runs only in the process that created it. In a child, it returns `None` at once,
/// and dropping it leaks the inner future. Costs an allocation.
pub(super) struct ProcessFuture<F> {
    /// `None` only after the drop in the child of a fork, where the future is leaked.
    work: Option<Pin<Box<F>>>,
    birth: ForkGuard,
}

impl<F: Future> ProcessFuture<F> {
    pub(super) fn new(work: F) -> Self {
        Self { work: Some(Box::pin(work)), birth: ForkGuard::default() }
    }
}

impl<F: Future> Future for ProcessFuture<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.birth.is_forked() {
            return Poll::Ready(None);
        }
        match &mut self.work {
            Some(work) => work.as_mut().poll(context).map(Some),
            None => Poll::Ready(None),
        }
    }
}

impl<F> Drop for ProcessFuture<F> {
    fn drop(&mut self) {
        if self.birth.is_forked() {
            core::mem::forget(self.work.take());
        }
    }
}
