//! The network of a client. Implemented for embassy-net and for the traits of embedded-nal-async. Depends
//! on no other module except `close`.

mod nal;
mod stack;

use embedded_io_async::{Read, Write};
pub use nal::{Nal, NalSocket};
use poolhouse_core::Cause;
pub use stack::StackSocket;

/// A network: opens the connections of a client; the parameter `N` of [`Sizes`](crate::Sizes).
///
/// Implemented for the `Stack` of embassy-net, and by [`Nal`] for stacks and modems with the traits of
/// embedded-nal-async. Implement it for another one, such as a serial line: five functions over the byte
/// stream of embedded-io-async.
///
/// A client opens at most [`Layout::SOCKETS`](crate::Layout::SOCKETS) connections at the same time, each over a
/// separate socket, which it uses for one connection after the other.
pub trait Network: Copy + 'static {
    /// A socket: the bytes of its present connection. A read that returns 0 bytes is the end of the
    /// connection. After `write`, `flush` sends the bytes; it need not wait for the peer.
    type Socket: Read + Write + 'static;
    /// The address of a host.
    type Address;
    /// The least `SOCKET` of [`Sizes`](crate::Sizes) with which its sockets work.
    const SOCKET_MIN: usize = 0;

    /// Creates a socket without a connection.
    ///
    /// - `receive`, `send`: `SOCKET` bytes each, for a network that has no memory for sockets.
    fn socket(&self, receive: &'static mut [u8], send: &'static mut [u8]) -> Self::Socket;

    /// Finds the address of a host, which is a name or an IP address.
    ///
    /// # Errors
    ///
    /// [`Cause::Dns`]: there is no such host, or the network has no names.
    fn resolve(&self, host: &str) -> impl Future<Output = Result<Self::Address, Cause>>;

    /// Connects a socket that has no connection. The future may be dropped at any await.
    ///
    /// # Errors
    ///
    /// [`Cause::Network`].
    fn connect(
        &self,
        socket: &mut Self::Socket,
        address: Self::Address,
        port: u16,
    ) -> impl Future<Output = Result<(), Cause>>;

    /// Begins to close the connection, without waiting. Called after each attempt to connect, successful or
    /// not; again if `close` is dropped.
    fn begin_close(socket: &mut Self::Socket);

    /// Completes the close. Must return within a bounded time, whether or not the peer responds. Not called after a
    /// runner of the client was dropped.
    fn close(socket: &mut Self::Socket) -> impl Future<Output = ()>;
}
