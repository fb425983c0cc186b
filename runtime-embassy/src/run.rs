//! The background work of a client: monitoring, establishing and closing connections. Depends on
//! the runtime, not on the client.

use crate::embassy::Embassy;
use crate::layout::Layout;
use crate::network::Network as _;
#[cfg(feature = "tls")]
use crate::slot::Slot;
use core::fmt;
use core::future::{pending, poll_fn};
use core::pin::pin;
use embassy_futures::join::{join, join4};
use poolhouse_driver::{ClientCore, TaskGuard};

/// All background work of a client. Runs in its own task, which must not be that of the network
/// stack.
///
/// Dropping it, or the future of [`Runner::run`], closes the client: waiting and later operations
/// fail at once with [`OperationError::Abandoned`](crate::OperationError::Abandoned). Connections
/// in use remain usable. When they are returned, only the network closes them: nothing waits for the
/// acknowledgement of their servers.
#[must_use = "without it a client is closed"]
pub struct Runner<L: Layout> {
    guard: TaskGuard<&'static ClientCore<Embassy<L>>>,
}

impl<L: Layout> Runner<L> {
    pub(crate) const fn new(core: &'static ClientCore<Embassy<L>>) -> Self {
        Self { guard: TaskGuard::new(core, None) }
    }

    #[cfg(feature = "tls")]
    pub(crate) fn slots(&self) -> impl Iterator<Item = &'static Slot<L::Network>> + use<L> {
        self.guard.owner().runtime().slots()
    }

    /// Monitors servers, establishes and closes connections. Sleeps while no work is due. Continues
    /// after the client is closed, to close its last connections.
    ///
    /// One task for everything is the simplest choice for one server, but its start needs a larger stack than
    /// the tasks of [`Runner::split`], and more with each further server.
    pub async fn run(self) -> ! {
        let core = self.guard.owner();
        // Pinned where they are created: moving them would double the stack use.
        let servers = pin!(L::run_per_server(|| serve(core)));
        let rest = pin!(run_core(core));
        join(servers, rest).await;
        forever().await
    }

    /// Splits the work into several tasks: the first runner is for the work of the client core. The
    /// second is copied and run once for each server slot.
    ///
    /// ```text
    /// #[embassy_executor::task]
    /// async fn housekeeping(runner: CoreRunner<Db>) -> ! {
    ///     runner.run().await
    /// }
    ///
    /// #[embassy_executor::task(pool_size = 5)]
    /// async fn server(runner: ServerRunner<Db>) -> ! {
    ///     runner.run().await
    /// }
    /// ```
    pub fn split(self) -> (CoreRunner<L>, ServerRunner<L>) {
        let Self { guard } = self;
        let server = ServerRunner { core: guard.owner() };
        (CoreRunner { guard }, server)
    }
}

impl<L: Layout> fmt::Debug for Runner<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("core", self.guard.owner()).finish()
    }
}

/// The background work of a client that belongs to no single server: see [`Runner::split`].
/// Dropping it, or the future of its [`run`](Self::run), closes the client as dropping [`Runner`]
/// does.
#[must_use = "without it a client is closed"]
pub struct CoreRunner<L: Layout> {
    guard: TaskGuard<&'static ClientCore<Embassy<L>>>,
}

impl<L: Layout> CoreRunner<L> {
    /// Runs the timers of monitors and closes connections.
    pub async fn run(self) -> ! {
        run_core(self.guard.owner()).await;
        forever().await
    }
}

impl<L: Layout> fmt::Debug for CoreRunner<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoreRunner").field("core", self.guard.owner()).finish()
    }
}

/// The background work of a client for one server, and after its removal for another: see
/// [`Runner::split`]. May be copied; a copy that is never run is not required.
#[must_use = "without it a client does nothing"]
pub struct ServerRunner<L: Layout> {
    core: &'static ClientCore<Embassy<L>>,
}

impl<L: Layout> Clone for ServerRunner<L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L: Layout> Copy for ServerRunner<L> {}

impl<L: Layout> ServerRunner<L> {
    /// Monitors a server and establishes connections to it. Once this has started, dropping it
    /// closes the client as dropping [`Runner`] does, even while it has no server: no other runner
    /// takes over its present or future server.
    pub async fn run(self) -> ! {
        serve(self.core).await;
        forever().await
    }
}

impl<L: Layout> fmt::Debug for ServerRunner<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerRunner").field("core", self.core).finish()
    }
}

async fn forever() -> ! {
    loop {
        pending::<()>().await;
    }
}

/// Runs the work that belongs to no single server.
async fn run_core<L: Layout>(core: &'static ClientCore<Embassy<L>>) {
    let runtime = core.runtime();
    let clock = pin!(core.run_clock());
    let closing = pin!(L::run_per_connection(|index| close_returned(runtime, index)));
    join(clock, closing).await;
}

/// Runs the tasks of one server until it is removed, then those of the next one.
async fn serve<L: Layout>(core: &'static ClientCore<Embassy<L>>) {
    let _guard = TaskGuard::new(core, None);
    while let Some(server) = core.next_server().await {
        // Each future is pinned where it is created: a future that is moved into another one is on
        // the stack, and it is large.
        let check = pin!(core.run_check(&server));
        let rtt = pin!(core.run_rtt(&server));
        let clock = pin!(core.run_pool_clock(&server));
        let workers = pin!(L::run_per_worker(|| core.run_worker(&server)));
        join4(check, rtt, clock, workers).await;
    }
    // Not reached: this runtime opens clients again.
    forever().await
}

/// Closes the sockets that connections return to the slot. Never ends.
async fn close_returned<L: Layout>(runtime: &'static Embassy<L>, index: usize) {
    // Not reached: there are as many slots as connections.
    let Some(slot) = runtime.slots().nth(index) else { return pending().await };
    loop {
        let mut socket = poll_fn(|context| slot.poll_returned(context.waker())).await;
        if let Some(socket) = socket.as_mut() {
            L::Network::close(socket).await;
        }
        slot.put_back(socket);
        runtime.wake_dialers();
    }
}
