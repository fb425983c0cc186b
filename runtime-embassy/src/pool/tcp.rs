//! TCP sockets for the connections of a pool.

use crate::close::{LINGER, close};
use core::cell::{RefCell, RefMut};
use core::fmt;
use core::ops::{Deref, DerefMut};
use embassy_net::tcp::{ConnectError, State, TcpSocket};
use embassy_net::{IpEndpoint, Stack};
use embassy_time::{Duration, Instant, Timer, with_timeout};

/// The interval at which [`TcpSockets::closed`] looks at a borrowed socket.
const PAUSE: Duration = Duration::from_millis(20);

/// The memory of [`TcpSockets`]: a receive and a send buffer for each.
///
/// - `RECEIVE`: the TCP window, in bytes. `SEND`: the bytes that are not acknowledged yet.
pub struct TcpBuffers<const N: usize, const RECEIVE: usize = 1024, const SEND: usize = 1024> {
    buffers: [([u8; RECEIVE], [u8; SEND]); N],
}

impl<const N: usize, const RECEIVE: usize, const SEND: usize> TcpBuffers<N, RECEIVE, SEND> {
    /// Zeros, so a static of it takes no flash.
    #[must_use]
    pub const fn new() -> Self {
        Self { buffers: [([0; RECEIVE], [0; SEND]); N] }
    }
}

impl<const N: usize, const RECEIVE: usize, const SEND: usize> Default for TcpBuffers<N, RECEIVE, SEND> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize, const RECEIVE: usize, const SEND: usize> fmt::Debug for TcpBuffers<N, RECEIVE, SEND> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The bytes may be secrets: only the sizes are shown.
        write!(f, "TcpBuffers<{N}, {RECEIVE}, {SEND}>")
    }
}

/// The sockets that the connections of a pool borrow, for its [`Manager`](super::Manager).
///
/// Dropping a `TcpSocket` of embassy-net removes it from the network stack, so its peer is never
/// notified. These sockets stay in the stack: a connection borrows one, and its drop closes the
/// socket, so the stack sends FIN. [`TcpSockets::connect`] completes the close before it connects
/// the socket again.
///
/// - `N`: the number of sockets, at least the pool's number of connections. With one more, a
///   connection that replaces another one need not wait until that has ended.
pub struct TcpSockets<const N: usize> {
    sockets: [RefCell<Socket>; N],
}

/// A socket, and the time at which its last connection is reset if it has not ended.
struct Socket {
    tcp: TcpSocket<'static>,
    ends_at: Instant,
}

impl<const N: usize> TcpSockets<N> {
    /// Creates the sockets. Small segments are sent without delay.
    ///
    /// # Panics
    ///
    /// If the `embassy_net::StackResources` have no space for `N` more sockets.
    pub fn new<const RECEIVE: usize, const SEND: usize>(
        stack: Stack<'static>,
        memory: &'static mut TcpBuffers<N, RECEIVE, SEND>,
    ) -> Self {
        let sockets = memory.buffers.each_mut().map(|(receive, send)| {
            let mut socket = TcpSocket::new(stack, receive, send);
            socket.set_nagle_enabled(false);
            RefCell::new(Socket { tcp: socket, ends_at: Instant::MIN })
        });
        Self { sockets }
    }

    /// Connects a free socket. If its last connection has not ended, waits for the peer until 1 s after
    /// its drop, and then resets that connection.
    ///
    /// Has no time limit of its own for connecting: that of the pool applies. Cancel-safe.
    ///
    /// # Errors
    ///
    /// - [`ConnectError::InvalidState`]: all sockets are borrowed, because the pool has more
    ///   connections than there are sockets or a connection was detached.
    /// - [`ConnectError::NoRoute`]: the network has no address, or `server` is not valid.
    /// - [`ConnectError::ConnectionReset`]: the server refuses the connection.
    pub async fn connect(&'static self, server: impl Into<IpEndpoint>) -> Result<TcpConnection, ConnectError> {
        let has_ended = |it: &TcpConnection| matches!(it.state(), State::Closed | State::TimeWait);
        let free = self.free().find(has_ended).or_else(|| self.free().next());
        let mut connection = free.ok_or(ConnectError::InvalidState)?;
        connection.end().await;
        connection.socket.tcp.connect(server).await?;
        Ok(connection)
    }

    /// Waits until the connections that were dropped have ended, before the program ends or the
    /// network is turned off: after [`Pool::drained`](super::Pool::drained). A connection whose
    /// peer has not ended it 1 s after its drop is reset. A socket that is still borrowed, such as by a
    /// worker whose attempt to connect the pool has just abandoned, is awaited for at most 1 s.
    /// Cancel-safe.
    pub async fn closed(&'static self) {
        for socket in &self.sockets {
            let is_returned = async {
                while socket.try_borrow_mut().is_err() {
                    Timer::after(PAUSE).await;
                }
            };
            let _ = with_timeout(LINGER, is_returned).await;
            if let Ok(socket) = socket.try_borrow_mut() {
                TcpConnection { socket }.end().await;
            }
        }
    }

    /// The sockets that are not borrowed, all closed or being closed.
    fn free(&'static self) -> impl Iterator<Item = TcpConnection> {
        self.sockets.iter().filter_map(|socket| Some(TcpConnection { socket: socket.try_borrow_mut().ok()? }))
    }
}

impl<const N: usize> fmt::Debug for TcpSockets<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let free = self.sockets.iter().filter(|socket| socket.try_borrow_mut().is_ok()).count();
        f.debug_struct("TcpSockets").field("sockets", &N).field("free", &free).finish()
    }
}

/// A connection over one of [`TcpSockets`]. Dropping it closes the socket and returns it: the peer
/// receives all data and FIN.
///
/// Options that are set on the socket, such as its timeout, remain for the next connection.
pub struct TcpConnection {
    socket: RefMut<'static, Socket>,
}

impl TcpConnection {
    /// Whether both sides are open and no received byte waits. After a reply, a connection for which
    /// this is false must not be used for the next request. It stays true if the peer has lost its power:
    /// give each request a time limit.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.may_send() && self.may_recv() && !self.can_recv()
    }

    /// Completes the close of the socket's last connection.
    async fn end(&mut self) {
        let Socket { tcp, ends_at } = &mut *self.socket;
        close(tcp, *ends_at).await;
    }
}

impl Deref for TcpConnection {
    type Target = TcpSocket<'static>;

    fn deref(&self) -> &TcpSocket<'static> {
        &self.socket.tcp
    }
}

impl DerefMut for TcpConnection {
    fn deref_mut(&mut self) -> &mut TcpSocket<'static> {
        &mut self.socket.tcp
    }
}

impl Drop for TcpConnection {
    fn drop(&mut self) {
        // Only once: a connection that is closing was dropped before.
        if matches!(self.state(), State::SynReceived | State::Established | State::CloseWait) {
            self.socket.ends_at = Instant::now() + LINGER;
        }
        self.socket.tcp.close();
    }
}

impl fmt::Debug for TcpConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TcpConnection").field(&self.state()).finish()
    }
}
