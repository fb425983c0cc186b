//! The capacities of a client.

use crate::Embassy;
use crate::place::Place;
use crate::run;
use crate::slot::{Slot, SlotMemory, Slots};
use core::array::from_fn;
use core::fmt;
use core::marker::PhantomData;
use core::pin::{Pin, pin};
use core::task::Waker;
use embassy_futures::join::{join, join_array, join3};
use embassy_futures::select::select_slice;
use embassy_net::Stack;
use poolhouse_core::{pool, topology};
use poolhouse_driver::{Hub, Publish};

/// The sizes of a client, fixed at compile time. Sealed: [`Sizes`] is the only implementation.
pub trait Layout: sealed::Sealed + Sized + 'static {
    /// The maximum number of connections: those of all pools, and two for each monitor.
    const SOCKETS: usize;
    /// The observer of events.
    type Events: Publish + Unpin + 'static;

    #[doc(hidden)]
    type Topology: topology::Memory;
    #[doc(hidden)]
    type Pool: pool::Memory;
    #[doc(hidden)]
    type Places: AsRef<[Option<Place<Self>>]> + AsMut<[Option<Place<Self>>]>;
    #[doc(hidden)]
    type Slots;
    #[doc(hidden)]
    type Dialers: AsMut<[Option<Waker>]>;
    /// The buffers of all connections.
    #[doc(hidden)]
    type Memory: Send;
    /// One value for each connection.
    #[cfg(feature = "tls")]
    #[doc(hidden)]
    type Each<T: Zero + 'static>: Each<T>;

    #[doc(hidden)]
    fn places() -> Self::Places;
    #[doc(hidden)]
    fn bare_slots() -> Self::Slots;
    #[doc(hidden)]
    fn nobody() -> Self::Dialers;
    #[doc(hidden)]
    const NO_MEMORY: Self::Memory;

    /// All connection slots.
    #[doc(hidden)]
    fn slots(slots: &'static Self::Slots) -> Slots;

    /// Initializes each slot with a socket and buffers.
    #[doc(hidden)]
    fn furnish(slots: Slots, memory: &'static mut Self::Memory, stack: Stack<'static>);

    /// Runs all background work of a client.
    #[doc(hidden)]
    fn run(hub: &'static Hub<Embassy<Self>>) -> impl Future<Output = ()>;

    /// Runs the background work that belongs to no single server.
    #[doc(hidden)]
    fn run_hub(hub: &'static Hub<Embassy<Self>>) -> impl Future<Output = ()>;
}

/// The sizes of a client.
///
/// - `SERVERS`: members of the deployment, including those that are added and removed while its
///   configuration changes: one or two more than the largest expected number. 1 for a standalone
///   server.
/// - `CONNS`: connections of each server's pool. A larger `maxPoolSize` is limited to it.
/// - `WAITERS`: the maximum number of tasks that wait for a connection of one server, and of tasks
///   that wait for a server; further tasks receive
///   [`Busy`](poolhouse_core::pool::CheckOutError::Busy).
/// - `RECEIVE`, `SEND`: the largest message in either direction, in bytes, for each connection. The
///   reply to hello must fit: 2,048 hold that of a replica set of seven.
/// - `SOCKET`: bytes of the TCP receive window, and of the TCP send buffer, of each connection.
/// - `E`: the observer of events.
///
/// [`Buffers`](crate::Buffers) take `(CONNS + 2) * SERVERS * (RECEIVE + SEND + 2 * SOCKET)` bytes.
///
/// The description of a deployment also has fixed capacities: 16 hosts, tag names and tag values in
/// the hello reply of one server (three hosts and six tags make 15); and in total 24 different
/// addresses, set names, tag names and tag values, with a total of 512 bytes including 4 bytes for
/// each. A server whose reply exceeds one of them is Unknown, and
/// [`ServerError::Beyond`](poolhouse_core::topology::ServerError::Beyond) in its events names the
/// limit.
///
/// Unusable sizes fail the build: less than one server, connection or waiter; less than 512 bytes
/// for a message (a hello needs them); no TCP window.
///
/// ```compile_fail,E0080
/// use poolhouse_embassy::{Resources, Sizes};
///
/// let _ = Resources::<Sizes<1, 0, 8>>::new();
/// ```
pub struct Sizes<
    const SERVERS: usize,
    const CONNS: usize,
    const WAITERS: usize,
    const RECEIVE: usize = 4096,
    const SEND: usize = 1024,
    const SOCKET: usize = 1024,
    E = (),
>(PhantomData<E>);

impl<
    const SERVERS: usize,
    const CONNS: usize,
    const WAITERS: usize,
    const RECEIVE: usize,
    const SEND: usize,
    const SOCKET: usize,
    E,
> fmt::Debug for Sizes<SERVERS, CONNS, WAITERS, RECEIVE, SEND, SOCKET, E>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sizes<{SERVERS}, {CONNS}, {WAITERS}, {RECEIVE}, {SEND}, {SOCKET}>")
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
> Layout for Sizes<SERVERS, CONNS, WAITERS, RECEIVE, SEND, SOCKET, E>
{
    const SOCKETS: usize = {
        assert!(SERVERS > 0, "there is a server");
        assert!(CONNS > 0, "a pool has a connection");
        assert!(WAITERS > 0, "whoever asks before there is a connection waits");
        assert!(RECEIVE >= MESSAGE_BYTES_MIN, "hello's reply can be received");
        assert!(SEND >= MESSAGE_BYTES_MIN, "hello can be sent");
        assert!(SOCKET > 0, "there is a TCP window");
        SERVERS * (CONNS + MONITORING)
    };
    type Topology = topology::Fixed<SERVERS, NAMES, TEXTS, TEXT_BYTES>;
    type Pool = pool::Fixed<CONNS, WAITERS>;
    type Events = E;
    type Places = [Option<Place<Self>>; SERVERS];
    type Slots = PerConnection<Slot, SERVERS, CONNS>;
    type Dialers = [Option<Waker>; SERVERS];
    type Memory = PerConnection<SlotMemory<RECEIVE, SEND, SOCKET>, SERVERS, CONNS>;
    #[cfg(feature = "tls")]
    type Each<T: Zero + 'static> = PerConnection<T, SERVERS, CONNS>;

    const NO_MEMORY: Self::Memory = PerConnection {
        pools: [[SlotMemory::ZERO; CONNS]; SERVERS],
        monitors: [[SlotMemory::ZERO; MONITORING]; SERVERS],
    };

    fn places() -> Self::Places {
        [const { None }; SERVERS]
    }

    fn nobody() -> Self::Dialers {
        [const { None }; SERVERS]
    }

    fn bare_slots() -> Self::Slots {
        PerConnection {
            pools: from_fn(|_| from_fn(|_| Slot::bare())),
            monitors: from_fn(|_| from_fn(|_| Slot::bare())),
        }
    }

    fn slots(slots: &'static Self::Slots) -> Slots {
        Slots { pools: slots.pools.as_flattened(), monitors: slots.monitors.as_flattened() }
    }

    fn furnish(slots: Slots, memory: &'static mut Self::Memory, stack: Stack<'static>) {
        let memory = memory.pools.as_flattened_mut().iter_mut().chain(memory.monitors.as_flattened_mut());
        for (slot, memory) in slots.iter().zip(memory) {
            slot.furnish(memory, stack);
        }
    }

    async fn run(hub: &'static Hub<Embassy<Self>>) {
        // None of these futures ends. They are pinned where they are created: moving them would
        // double the stack use.
        let servers: Pin<&mut [_]> = pin!(from_fn::<_, SERVERS, _>(|_| run::serve(hub)));
        join(select_slice(servers), Self::run_hub(hub)).await;
    }

    async fn run_hub(hub: &'static Hub<Embassy<Self>>) {
        let Slots { pools, monitors } = hub.runtime().slots();
        // One future for each connection slot, in the same arrays as the slots.
        let hang_up = |slots: &'static [Slot], index| run::hang_up(hub.runtime(), slots.get(index));
        let of_pools: Pin<&mut [_]> = pin!(from_fn::<_, SERVERS, _>(|server| {
            join_array(from_fn::<_, CONNS, _>(|conn| hang_up(pools, server * CONNS + conn)))
        }));
        let of_monitors: Pin<&mut [_]> = pin!(from_fn::<_, SERVERS, _>(|server| {
            join_array(from_fn::<_, MONITORING, _>(|line| hang_up(monitors, server * MONITORING + line)))
        }));
        let clock = pin!(hub.run_clock());
        join3(clock, select_slice(of_pools), select_slice(of_monitors)).await;
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
> sealed::Sealed for Sizes<SERVERS, CONNS, WAITERS, RECEIVE, SEND, SOCKET, E>
{
}

/// The size of hello, or of its reply, with few elements.
const MESSAGE_BYTES_MIN: usize = 512;
/// Connections of a monitor: one for checks, one for round-trip times.
const MONITORING: usize = 2;
/// Hosts, passives, arbiters and tags in the reply of one server.
const NAMES: usize = 16;
/// Different addresses, set names and tags in the whole topology.
const TEXTS: usize = 24;
/// Total bytes of these texts.
const TEXT_BYTES: usize = 512;

/// One value for each connection of a client.
#[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
#[derive(Debug)]
pub struct PerConnection<T, const SERVERS: usize, const CONNS: usize> {
    pools: [[T; CONNS]; SERVERS],
    monitors: [[T; MONITORING]; SERVERS],
}

/// Memory that is initialized with zeros.
#[cfg(feature = "tls")]
#[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
pub trait Zero {
    /// The value before its first use.
    const ZERO: Self;
}

/// Memory of each connection, in the order of [`Slots`].
#[cfg(feature = "tls")]
#[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
pub trait Each<T: Zero + 'static>: 'static {
    /// The value before its first use.
    const ZERO: Self;

    /// Iterates over all connections.
    fn each(&'static mut self) -> impl Iterator<Item = &'static mut T> + use<T, Self>;

    /// Runs one future for each connection.
    fn join_all<F: Future<Output = ()>>(
        &'static mut self,
        run: impl FnMut(&'static mut T) -> F,
    ) -> impl Future<Output = ()>;
}

#[cfg(feature = "tls")]
impl<T: Zero + 'static, const SERVERS: usize, const CONNS: usize> Each<T> for PerConnection<T, SERVERS, CONNS> {
    const ZERO: Self = Self {
        pools: [const { [const { T::ZERO }; CONNS] }; SERVERS],
        monitors: [const { [const { T::ZERO }; MONITORING] }; SERVERS],
    };

    fn each(&'static mut self) -> impl Iterator<Item = &'static mut T> + use<T, SERVERS, CONNS> {
        self.pools.as_flattened_mut().iter_mut().chain(self.monitors.as_flattened_mut())
    }

    /// All futures are created before the first one is polled.
    fn join_all<F: Future<Output = ()>>(
        &'static mut self,
        mut run: impl FnMut(&'static mut T) -> F,
    ) -> impl Future<Output = ()> {
        let pools = self.pools.each_mut().map(|server| join_array(server.each_mut().map(&mut run)));
        let monitors = self.monitors.each_mut().map(|server| join_array(server.each_mut().map(&mut run)));
        async {
            join(join_array(pools), join_array(monitors)).await;
        }
    }
}

mod sealed {
    #[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
    pub trait Sealed {}
}
