//! Sockets that are registered for their whole life.

use super::reactor::{Reactor, Source};
use super::readiness::{News, Readiness};
use alloc::sync::Arc;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use smol::io::{AsyncRead, AsyncWrite};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

/// A socket of the platform [`Edge`](super::Edge). Dropping it closes it. One task at a time may read
/// or receive, and one may write or send: of several that wait, only the last is woken.
pub struct Socket<S: AsFd> {
    io: S,
    source: Arc<Source>,
}

impl<S: AsFd> Socket<S> {
    /// - `io`: a socket in non-blocking mode.
    pub(super) fn new(io: S) -> io::Result<Self> {
        let source = Reactor::get().register(&io)?;
        Ok(Self { io, source })
    }

    /// Returns the socket, for access to its options. It must stay in non-blocking mode, and only
    /// the `Socket` may read it or write to it.
    pub const fn get_ref(&self) -> &S {
        &self.io
    }

    #[cfg(test)]
    pub(super) fn source(&self) -> alloc::sync::Weak<Source> {
        Arc::downgrade(&self.source)
    }

    /// Runs an operation that reads, when the socket is readable.
    pub(super) fn poll_read_with<'s, T>(
        &'s self,
        context: &Context<'_>,
        operation: impl FnMut(&'s S) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        self.poll_with(&self.source.read, context, operation, |_, _| false)
    }

    /// Runs an operation that writes, when the socket is writable.
    pub(super) fn poll_write_with<'s, T>(
        &'s self,
        context: &Context<'_>,
        operation: impl FnMut(&'s S) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        self.poll_with(&self.source.write, context, operation, |_, _| false)
    }

    /// - `is_last`: whether the next operation would block, after this news and this result.
    fn poll_with<'s, T>(
        &'s self,
        direction: &Readiness,
        context: &Context<'_>,
        mut operation: impl FnMut(&'s S) -> io::Result<T>,
        is_last: impl Fn(News, &T) -> bool,
    ) -> Poll<io::Result<T>> {
        loop {
            let news = ready!(direction.poll_take(context));
            let result = operation(&self.io);
            match &result {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Ok(value) if is_last(news, value) => {}
                Ok(_) | Err(_) => direction.add(news),
            }
            return Poll::Ready(result);
        }
    }
}

impl<S: AsFd> Drop for Socket<S> {
    fn drop(&mut self) {
        Reactor::get().deregister(&self.io, &self.source);
    }
}

impl<S: AsFd + Unpin> AsyncRead for Socket<S>
where
    for<'s> &'s S: Read,
{
    /// A read that does not fill the buffer has emptied the socket, so the next one waits without a
    /// system call.
    ///
    /// Source: epoll(7), "Questions and answers", on the end of the data of a stream.
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let room = buffer.len();
        // After an end, the system reports nothing more, but the end itself is still to be read.
        let is_last = |news, length: &usize| news == News::Ready && (1..room).contains(length);
        self.poll_with(&self.source.read, context, |mut io| io.read(buffer), is_last)
    }
}

impl<S: AsFd + Unpin> AsyncWrite for Socket<S>
where
    for<'s> &'s S: Write,
{
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_with(context, |mut io| io.write(bytes))
    }

    /// Does nothing, because writes are not buffered.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Does nothing: dropping the socket closes it.
    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl<S: AsFd + fmt::Debug> fmt::Debug for Socket<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Socket").field(&self.io).finish()
    }
}
