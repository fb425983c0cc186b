//! The capacities of a client, and the shape of its memory. Depends on the trait of networks alone:
//! other modules define the values that are stored for each server and each connection.

use crate::network::Network;
use core::array::from_fn;
use core::fmt;
use core::marker::PhantomData;
use core::pin::{Pin, pin};
use embassy_futures::join::{join, join_array};
use embassy_futures::select::select_slice;
use embassy_net::Stack;
use poolhouse_core::{pool, topology};
use poolhouse_driver::Publish;

/// The longest address of a server, in bytes: its name, a colon and its port.
pub const ADDRESS_BYTES_MAX: usize = 80;

/// The sizes of a client, fixed at compile time. Sealed: [`Sizes`] is the only implementation.
pub trait Layout: sealed::Sealed + Sized + 'static {
    /// The maximum number of servers.
    const SERVERS: usize;
    /// The maximum number of connections: those of all pools and of all monitors.
    const SOCKETS: usize;
    /// The number of connections of all pools.
    #[doc(hidden)]
    const POOL_SOCKETS: usize;
    /// The number of connections of each monitor.
    const MONITOR_CONNS: usize;
    /// The maximum number of connections of a server that are established at the same time.
    const WORKERS: usize;
    /// The observer of events.
    type Events: Publish + Unpin + 'static;
    /// The network.
    type Network: Network;

    #[doc(hidden)]
    type Topology: topology::Memory;
    #[doc(hidden)]
    type Pool: pool::Memory;
    /// The buffers of all connections.
    #[doc(hidden)]
    type BufferMemory: BufferMemory;
    /// One slot for each server.
    #[doc(hidden)]
    type PerServer<T>: AsRef<[Option<T>]> + AsMut<[Option<T>]>;
    /// One value for each connection.
    #[doc(hidden)]
    type PerConnection<T: Zero>: PerConnection<T>;

    /// Creates empty slots of servers.
    #[doc(hidden)]
    fn per_server<T>() -> Self::PerServer<T>;

    /// Runs as many futures as there are servers, in one task. The futures must not end.
    #[doc(hidden)]
    fn run_per_server<F: Future>(run: impl FnMut() -> F) -> impl Future<Output = ()>;

    /// Runs as many futures as connections of a server are established at the same time, until all
    /// have ended.
    #[doc(hidden)]
    fn run_per_worker<F: Future>(run: impl FnMut() -> F) -> impl Future<Output = ()>;

    /// Runs as many futures as there are connections, in one task. The futures must not end.
    ///
    /// - `run`: receives the index of the connection, in the order of [`PerConnection`].
    #[doc(hidden)]
    fn run_per_connection<F: Future>(run: impl FnMut(usize) -> F) -> impl Future<Output = ()>;
}

/// The sizes of a client, in this order:
///
/// - `SERVERS`: members of the deployment, including those that are added and removed while its
///   configuration changes: one or two more than the largest expected number. 1 for a standalone
///   server.
/// - `CONNS`: connections of each server's pool. A larger `maxPoolSize` is limited to it.
/// - `WAITERS`: the maximum number of tasks that wait for a connection of one server, and of tasks
///   that wait for a server; further tasks receive
///   [`Busy`](poolhouse_core::pool::CheckOutError::Busy).
/// - `RECEIVE`, `SEND`: the largest message in either direction, in bytes, for each connection of a pool.
///   The reply to hello must fit, which with authentication is some 250 bytes longer (estimated) than that to a monitor.
/// - `SOCKET`: bytes of the TCP receive window, and of the TCP send buffer, of each connection. 0 for a
///   network whose sockets have their own memory.
/// - `E`: the observer of events, a [`Publish`].
/// - `WORKERS`: connections of one server that are established at the same time; the default is 1,
///   not the 2 of the specification. A larger `maxConnecting` is limited to it. A server that
///   accepts connections and does not answer delays all others for the connect timeout. Each worker
///   takes 3 KiB with authentication: the state of a handshake.
/// - `N`: the [`Network`], by default that of embassy-net.
/// - `MONITOR_RECEIVE`: the largest hello reply, in bytes: 2,048 hold that of a replica set of seven, 512
///   that of a standalone server.
/// - `MONITOR_CONNS`: connections of each monitor: 2, one for checks and one for round-trip times, or 1 if
///   [`ServerMonitoringMode`](poolhouse_core::monitor::ServerMonitoringMode) is `Poll`: then checks measure the times. With 1, a monitor connects again only after its connection is
///   closed: at most 1.2 s later, if the server is silent.
/// - `D`: the memory of the description of the deployment, a [`topology::Memory`] of `SERVERS` servers, by
///   default [`Fixed<SERVERS, 16, 24, 512>`](topology::Fixed) of `poolhouse_core::topology`.
///   [`Direct<BYTES>`](topology::Direct) is that of one server with
///   [`directConnection`](crate::Options::direct_connection), which also saves flash.
///
/// [`Buffers`](crate::Buffers) take `RECEIVE + SEND + 2 * SOCKET` bytes for each connection of a pool, and
/// `MONITOR_RECEIVE + 512 + 2 * SOCKET` for each of a monitor.
///
/// The description of a deployment also has fixed capacities, by default 16 hosts and tags in the hello reply
/// of one server, and in total 24 different addresses, set names and tags, with a total of 512 bytes
/// including 4 bytes for each. A server whose reply exceeds one of them is Unknown, and
/// [`ServerError::Beyond`](poolhouse_core::topology::ServerError::Beyond) in its events names the
/// limit.
///
/// Unusable sizes fail the build: less than one server, connection, waiter or worker; less than 512
/// bytes for a message (a hello needs them); no TCP window; a `D` for another number of servers.
///
/// ```compile_fail,E0080
/// use poolhouse_embassy::{Resources, Sizes};
///
/// let _ = Resources::<Sizes<1, 0, 8>>::new();
/// ```
///
/// ```compile_fail,E0080
/// use embassy_net::Stack;
/// use poolhouse_embassy::{Direct, Resources, Sizes};
///
/// let _ = Resources::<Sizes<2, 1, 8, 1024, 512, 512, (), 1, Stack<'static>, 2048, 2, Direct<128>>>::new();
/// ```
pub struct Sizes<
    const SERVERS: usize,
    const CONNS: usize,
    const WAITERS: usize,
    const RECEIVE: usize = 4096,
    const SEND: usize = 1024,
    const SOCKET: usize = 1024,
    E = (),
    const WORKERS: usize = 1,
    N = Stack<'static>,
    const MONITOR_RECEIVE: usize = 2048,
    const MONITOR_CONNS: usize = 2,
    D = topology::Fixed<SERVERS, 16, 24, 512>,
>(PhantomData<(E, N, D)>);

impl<
    const SERVERS: usize,
    const CONNS: usize,
    const WAITERS: usize,
    const RECEIVE: usize,
    const SEND: usize,
    const SOCKET: usize,
    E,
    const WORKERS: usize,
    N,
    const MONITOR_RECEIVE: usize,
    const MONITOR_CONNS: usize,
    D,
> fmt::Debug
    for Sizes<SERVERS, CONNS, WAITERS, RECEIVE, SEND, SOCKET, E, WORKERS, N, MONITOR_RECEIVE, MONITOR_CONNS, D>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Sizes<{SERVERS}, {CONNS}, {WAITERS}, {RECEIVE}, {SEND}, {SOCKET}, _, {WORKERS}, _, {MONITOR_RECEIVE}, {MONITOR_CONNS}, _>",
        )
    }
}

impl<
    const SERVERS: usize,
    const CONNS: usize,
    const WAITERS: usize,
    const RECEIVE: usize,
    const SEND: usize,
    const SOCKET: usize,
    E: Publish + Unpin + 'static,
    const WORKERS: usize,
    N: Network,
    const MONITOR_RECEIVE: usize,
    const MONITOR_CONNS: usize,
    D: topology::Memory + 'static,
> Layout for Sizes<SERVERS, CONNS, WAITERS, RECEIVE, SEND, SOCKET, E, WORKERS, N, MONITOR_RECEIVE, MONITOR_CONNS, D>
{
    const SOCKETS: usize = {
        assert!(SERVERS > 0, "there is a server");
        assert!(CONNS > 0, "a pool has a connection");
        assert!(WAITERS > 0, "a check-out may wait for the first connection");
        assert!(RECEIVE >= MESSAGE_BYTES_MIN, "hello's reply can be received");
        assert!(SEND >= MESSAGE_BYTES_MIN, "hello can be sent");
        assert!(SOCKET >= N::SOCKET_MIN, "there is a TCP window");
        assert!(WORKERS > 0, "a connection can be established");
        assert!(MONITOR_RECEIVE >= MESSAGE_BYTES_MIN, "hello's reply can be received");
        assert!(MONITOR_CONNS == 1 || MONITOR_CONNS == 2, "a monitor has one connection or two");
        assert!(D::SERVERS_MAX as usize == SERVERS, "the topology has as many servers");
        SERVERS * (CONNS + MONITOR_CONNS)
    };
    const POOL_SOCKETS: usize = SERVERS * CONNS;
    const MONITOR_CONNS: usize = MONITOR_CONNS;
    const SERVERS: usize = SERVERS;
    const WORKERS: usize = WORKERS;
    type Topology = D;
    type Pool = pool::Fixed<CONNS, WAITERS>;
    type Events = E;
    type Network = N;
    type BufferMemory = Connections<
        ConnectionMemory<RECEIVE, SEND, SOCKET>,
        ConnectionMemory<MONITOR_RECEIVE, MESSAGE_BYTES_MIN, SOCKET>,
        SERVERS,
        CONNS,
        MONITOR_CONNS,
    >;
    type PerServer<T> = [Option<T>; SERVERS];
    type PerConnection<T: Zero> = Connections<T, T, SERVERS, CONNS, MONITOR_CONNS>;

    fn per_server<T>() -> Self::PerServer<T> {
        [const { None }; SERVERS]
    }

    // The futures of servers are pinned where they are created: a move would double their stack use.
    // `join_array` moves the smaller ones of workers and connections.

    async fn run_per_server<F: Future>(mut run: impl FnMut() -> F) {
        let servers: Pin<&mut [_]> = pin!(from_fn::<_, SERVERS, _>(|_| run()));
        select_slice(servers).await;
    }

    async fn run_per_worker<F: Future>(mut run: impl FnMut() -> F) {
        join_array(from_fn::<_, WORKERS, _>(|_| run())).await;
    }

    async fn run_per_connection<F: Future>(mut run: impl FnMut(usize) -> F) {
        let of_pools: Pin<&mut [_]> = pin!(from_fn::<_, SERVERS, _>(|server| {
            join_array(from_fn::<_, CONNS, _>(|conn| run(server * CONNS + conn)))
        }));
        let of_monitors: Pin<&mut [_]> = pin!(from_fn::<_, SERVERS, _>(|server| {
            join_array(from_fn::<_, MONITOR_CONNS, _>(|conn| run(Self::POOL_SOCKETS + server * MONITOR_CONNS + conn)))
        }));
        join(select_slice(of_pools), select_slice(of_monitors)).await;
    }
}

impl<
    const SERVERS: usize,
    const CONNS: usize,
    const WAITERS: usize,
    const RECEIVE: usize,
    const SEND: usize,
    const SOCKET: usize,
    E,
    const WORKERS: usize,
    N,
    const MONITOR_RECEIVE: usize,
    const MONITOR_CONNS: usize,
    D,
> sealed::Sealed
    for Sizes<SERVERS, CONNS, WAITERS, RECEIVE, SEND, SOCKET, E, WORKERS, N, MONITOR_RECEIVE, MONITOR_CONNS, D>
{
}

/// The size of hello, or of its reply, with few elements.
const MESSAGE_BYTES_MIN: usize = 512;

/// Memory that is initialized with zeros.
#[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
pub trait Zero: Sized + 'static {
    /// The value before its first use. Its bytes must be zero, or a static of it takes flash.
    const ZERO: Self;
}

/// The memory of one connection's buffers.
#[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
pub struct ConnectionMemory<const RECEIVE: usize, const SEND: usize, const SOCKET: usize> {
    receive: [u8; RECEIVE],
    send: [u8; SEND],
    socket_receive: [u8; SOCKET],
    socket_send: [u8; SOCKET],
}

impl<const RECEIVE: usize, const SEND: usize, const SOCKET: usize> ConnectionMemory<RECEIVE, SEND, SOCKET> {
    fn split(&'static mut self) -> ConnectionBuffers {
        let Self { receive, send, socket_receive, socket_send } = self;
        ConnectionBuffers { receive, send, socket_receive, socket_send }
    }
}

impl<const RECEIVE: usize, const SEND: usize, const SOCKET: usize> Zero for ConnectionMemory<RECEIVE, SEND, SOCKET> {
    const ZERO: Self =
        Self { receive: [0; RECEIVE], send: [0; SEND], socket_receive: [0; SOCKET], socket_send: [0; SOCKET] };
}

impl<const RECEIVE: usize, const SEND: usize, const SOCKET: usize> fmt::Debug
    for ConnectionMemory<RECEIVE, SEND, SOCKET>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The bytes may be secrets: only the sizes are shown.
        write!(f, "ConnectionMemory<{RECEIVE}, {SEND}, {SOCKET}>")
    }
}

/// The buffers of one connection: those of its messages and those of its TCP socket.
#[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
pub struct ConnectionBuffers {
    pub(crate) receive: &'static mut [u8],
    pub(crate) send: &'static mut [u8],
    pub(crate) socket_receive: &'static mut [u8],
    pub(crate) socket_send: &'static mut [u8],
}

impl fmt::Debug for ConnectionBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The bytes may be secrets.
        f.write_str("ConnectionBuffers(..)")
    }
}

/// The memory of the buffers of all connections.
#[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
pub trait BufferMemory: Zero {
    /// Splits it into the buffers of each connection, in the order of [`PerConnection`].
    fn split(&'static mut self) -> impl Iterator<Item = ConnectionBuffers>;
}

/// One value for each connection: first those of the pools, then those of the monitors.
#[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
pub trait PerConnection<T: 'static>: Zero {
    /// Iterates over all connections.
    fn iter(&'static self) -> impl Iterator<Item = &'static T> + use<T, Self>;

    /// Iterates over all connections.
    fn iter_mut(&'static mut self) -> impl Iterator<Item = &'static mut T> + use<T, Self>;
}

/// One value for each connection of a client: `P` for those of pools, `M` for those of monitors.
#[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
#[derive(Debug)]
pub struct Connections<P, M, const SERVERS: usize, const CONNS: usize, const MONITOR_CONNS: usize> {
    pools: [[P; CONNS]; SERVERS],
    monitors: [[M; MONITOR_CONNS]; SERVERS],
}

impl<P: Zero, M: Zero, const SERVERS: usize, const CONNS: usize, const MONITOR_CONNS: usize> Zero
    for Connections<P, M, SERVERS, CONNS, MONITOR_CONNS>
{
    const ZERO: Self = Self {
        pools: [const { [const { P::ZERO }; CONNS] }; SERVERS],
        monitors: [const { [const { M::ZERO }; MONITOR_CONNS] }; SERVERS],
    };
}

impl<T: Zero, const SERVERS: usize, const CONNS: usize, const MONITOR_CONNS: usize> PerConnection<T>
    for Connections<T, T, SERVERS, CONNS, MONITOR_CONNS>
{
    fn iter(&'static self) -> impl Iterator<Item = &'static T> + use<T, SERVERS, CONNS, MONITOR_CONNS> {
        self.pools.as_flattened().iter().chain(self.monitors.as_flattened())
    }

    fn iter_mut(&'static mut self) -> impl Iterator<Item = &'static mut T> + use<T, SERVERS, CONNS, MONITOR_CONNS> {
        self.pools.as_flattened_mut().iter_mut().chain(self.monitors.as_flattened_mut())
    }
}

impl<
    const RECEIVE: usize,
    const SEND: usize,
    const SOCKET: usize,
    const MONITOR_RECEIVE: usize,
    const MONITOR_SEND: usize,
    const SERVERS: usize,
    const CONNS: usize,
    const MONITOR_CONNS: usize,
> BufferMemory
    for Connections<
        ConnectionMemory<RECEIVE, SEND, SOCKET>,
        ConnectionMemory<MONITOR_RECEIVE, MONITOR_SEND, SOCKET>,
        SERVERS,
        CONNS,
        MONITOR_CONNS,
    >
{
    fn split(&'static mut self) -> impl Iterator<Item = ConnectionBuffers> {
        let pools = self.pools.as_flattened_mut().iter_mut().map(ConnectionMemory::split);
        pools.chain(self.monitors.as_flattened_mut().iter_mut().map(ConnectionMemory::split))
    }
}

mod sealed {
    #[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
    pub trait Sealed {}
}
