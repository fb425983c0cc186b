//! What a client does by itself: monitors, establishing, hanging up.

use crate::slot::Slot;
#[cfg(feature = "tls")]
use crate::slot::Slots;
use crate::{Embassy, Layout};
use core::fmt;
use core::future::{pending, poll_fn};
use core::pin::pin;
use embassy_futures::join::join5;
use embassy_net::tcp::{State, TcpSocket};
use embassy_time::{Duration, Timer, with_timeout};
use poolhouse_driver::{Attendance, Hub};

/// How many connections of a server are established at once, at most: `maxConnecting` cannot be more.
pub(crate) const WORKERS: u32 = 2;

/// How long a server may take to answer the end of a connection, before it is told by a reset.
const LINGER: Duration = Duration::from_secs(1);
/// How long the network stack may keep back its last acknowledgement, and some more. A socket that is lent again before sends none.
const ACKNOWLEDGED: Duration = Duration::from_millis(20);
/// How long a reset may take to be sent. Nobody waits for it where there is no link.
const RESET: Duration = Duration::from_millis(200);

/// Everything that a client does in the background. It runs in a task of its own, and not in that of the network stack.
///
/// Dropping it, or the future of [`Runner::run`], closes the client: whoever waits, and whoever comes later, is told at once with
/// [`OperationError::Abandoned`](crate::OperationError::Abandoned). Connections in use go on. Those that are given back are
/// closed by the network stack alone: nobody waits for their servers any more.
#[must_use = "without it a client is closed"]
pub struct Runner<L: Layout> {
    attendance: Attendance<Embassy<L>, &'static Hub<Embassy<L>>>,
}

impl<L: Layout> Runner<L> {
    pub(crate) const fn new(hub: &'static Hub<Embassy<L>>) -> Self {
        Self { attendance: Attendance::new(hub, None) }
    }

    #[cfg(feature = "tls")]
    pub(crate) fn slots(&self) -> Slots {
        self.attendance.hub().runtime().slots()
    }

    /// Monitors servers, establishes and closes connections. Sleeps while nothing is due. Goes on when the client is closed, as
    /// its last connections are still to be closed.
    ///
    /// One task that does all is simplest where there is one server. With more of them it takes a large stack to begin: see [`Runner::split`].
    pub async fn run(self) -> ! {
        L::run(self.attendance.hub()).await;
        forever().await
    }

    /// The same in several tasks: the rest, and one to be run for each server that there is room for, which may be copied for that.
    ///
    /// ```text
    /// #[embassy_executor::task]
    /// async fn housekeeping(runner: HubRunner<Db>) -> ! {
    ///     runner.run().await
    /// }
    ///
    /// #[embassy_executor::task(pool_size = 5)]
    /// async fn server(runner: ServerRunner<Db>) -> ! {
    ///     runner.run().await
    /// }
    /// ```
    pub fn split(self) -> (HubRunner<L>, ServerRunner<L>) {
        let Self { attendance } = self;
        let server = ServerRunner { hub: attendance.hub() };
        (HubRunner { attendance }, server)
    }
}

impl<L: Layout> fmt::Debug for Runner<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("hub", self.attendance.hub()).finish()
    }
}

/// What a client does in the background that is of no one server: see [`Runner::split`]. Dropping it, or the future of its [`run`](Self::run), closes the client as
/// that of [`Runner`] does.
#[must_use = "without it a client is closed"]
pub struct HubRunner<L: Layout> {
    attendance: Attendance<Embassy<L>, &'static Hub<Embassy<L>>>,
}

impl<L: Layout> HubRunner<L> {
    /// Keeps the time of monitors, and closes connections.
    pub async fn run(self) -> ! {
        L::run_hub(self.attendance.hub()).await;
        forever().await
    }
}

impl<L: Layout> fmt::Debug for HubRunner<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubRunner").field("hub", self.attendance.hub()).finish()
    }
}

/// What a client does in the background for a server, and when that has gone for another: see [`Runner::split`]. It may be copied; one that is never run is
/// not missed.
#[must_use = "without it a client does nothing"]
pub struct ServerRunner<L: Layout> {
    hub: &'static Hub<Embassy<L>>,
}

impl<L: Layout> Clone for ServerRunner<L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L: Layout> Copy for ServerRunner<L> {}

impl<L: Layout> ServerRunner<L> {
    /// Monitors a server, and establishes connections to it. Once this has begun, dropping it closes the client as that of [`Runner`] does, even while there is
    /// no server for it: nobody else takes over what it has, or would have.
    pub async fn run(self) -> ! {
        serve(self.hub).await;
        forever().await
    }
}

impl<L: Layout> fmt::Debug for ServerRunner<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerRunner").field("hub", self.hub).finish()
    }
}

async fn forever() -> ! {
    loop {
        pending::<()>().await;
    }
}

/// Runs the tasks of one server, then those of another in its place.
pub(crate) async fn serve<L: Layout>(hub: &'static Hub<Embassy<L>>) {
    let _attendance = Attendance::new(hub, None);
    while let Some(server) = hub.next_server().await {
        // Each is pinned where it is made: a future that is moved into another is on the stack, and large.
        let check = pin!(hub.run_check(&server));
        let rtt = pin!(hub.run_rtt(&server));
        let clock = pin!(hub.run_pool_clock(&server));
        let (worker, other) = (pin!(hub.run_worker(&server)), pin!(hub.run_worker(&server)));
        join5(check, rtt, clock, worker, other).await;
    }
    // The client is closed.
    forever().await
}

/// Closes what connections give back, for as long as the client lives.
pub(crate) async fn hang_up<L: Layout>(runtime: &'static Embassy<L>, slot: Option<&'static Slot>) {
    // Every index is one of a slot.
    let Some(slot) = slot else { return pending().await };
    loop {
        let mut socket = poll_fn(|context| slot.poll_returned(context.waker())).await;
        if let Some(socket) = socket.as_mut() {
            close(socket).await;
        }
        slot.put_back(socket);
        runtime.call_dialers();
    }
}

/// Closes a socket so that its peer sees it: by the end of what was sent, else by a reset.
async fn close(socket: &mut TcpSocket<'static>) {
    socket.close();
    let ended = with_timeout(LINGER, async {
        socket.flush().await?;
        // What the peer still sends is of no interest, but that it ends.
        while socket.read_with(|bytes| (bytes.len(), ())).await.is_ok() {}
        Ok::<(), embassy_net::tcp::Error>(())
    });
    let _ = ended.await;
    match socket.state() {
        State::Closed => {}
        State::TimeWait => Timer::after(ACKNOWLEDGED).await,
        State::Listen
        | State::SynSent
        | State::SynReceived
        | State::Established
        | State::FinWait1
        | State::FinWait2
        | State::CloseWait
        | State::Closing
        | State::LastAck => {
            socket.abort();
            let _ = with_timeout(RESET, socket.flush()).await;
        }
    }
}
