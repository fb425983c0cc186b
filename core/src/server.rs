//! One server as one machine: its pool, its monitor, and the bytes of all their connections.
//!
//! Read first: the guide [`embedding`](crate::guide::embedding); CMAP, "Checking Out a Connection";
//! Server Monitoring, "Monitoring"; SDAM, "Error handling".
//!
//! # Overview
//!
//! A [`ServerMachine`] is the smallest full embedding: its host has sockets and a clock, and
//! nothing else. The machine decides when a socket is connected, writes all requests, reads all
//! replies, and applies each failure to the server's description and to the pool by the
//! specification's rules.
//!
//! ```text
//! while let Some(action) = server.poll_action(now) {
//!     match action {
//!         ServerAction::Dial(id) => // connect, then handle_dialed or handle_failed
//!         ServerAction::Transmit(id) => // poll_transmit, and send the bytes
//!         ServerAction::Close(id) => // close the socket
//!         ServerAction::Wake(waiter) => // its task calls claim
//!         ServerAction::Checked => // a task that waits for the server reads the pool's state
//!     }
//! }
//! // Sleep until server.poll_timeout(), or until a socket is readable: handle_input.
//! server.handle_timeout(now, observer);
//! ```
//!
//! An operation calls [`check_out`](ServerMachine::check_out),
//! [`write_command`](ServerMachine::write_command) for each command, and
//! [`check_in`](ServerMachine::check_in). It need not report the state of the connection: at the
//! check-in, the machine closes a connection that has failed or has an outstanding reply.
//!
//! The machine composes these parts: a [`Control`] with a topology of a single server or a load
//! balancer; a [`Pool`]; and from `poolhouse-wire` a
//! [`Handshake`](poolhouse_wire::handshake::Handshake) for each connection of the pool and a
//! [`HelloExchange`](poolhouse_wire::hello::HelloExchange) for each connection of the monitor. A
//! deployment with several servers needs one [`Control`] for all of them: use the parts instead of
//! this machine.
//! # Time
//!
//! `connectTimeoutMS` of the [`MonitorOptions`] limits the dial together with the handshake of each
//! connection, those of the pool included. A command has the deadline that the host passes.
//!
//! # Settled where the specification is silent
//!
//! - A connection that fails between two commands is closed by the next check-out that finds it, or
//!   by its check-in. The server's description does not change, because no operation has failed.
//! - A command that is abandoned before its reply breaks its connection with [`Cause::Cancelled`].
//!   The server's description does not change.

mod action;
mod input;
#[cfg(test)]
mod tests;
mod types;

pub use types::{CommandNotSent, Received, ServerAction, SocketError, SocketId};

use crate::control::{Control, ControlAction, ControlObserver};
use crate::machine::Observer;
use crate::monitor::{MonitorConfig, MonitorOptions};
use crate::pool::{
    self, CheckOut, CheckOutError, Claim, Clear, ConnId, EstablishError, ForeignLease, Health, Lease, Pool, PoolConfig,
    PoolEvent, PoolId, WaiterId,
};
use crate::storage::deadlines::Deadlines;
use crate::storage::{Full, Slots, Store};
use crate::topology::{
    self, AppError, AppErrorKind, HandshakePhase, PoolCommand, ServerError, Topology, TopologyConfig, TopologyId,
    TopologyType,
};
use crate::{Cause, Instant, ServerId};
use core::fmt;
use core::time::Duration;
use poolhouse_wire::bson::DocumentWriter;
use poolhouse_wire::handshake::{Established, HandshakeError};
use poolhouse_wire::hello::HandshakeHello;
use poolhouse_wire::message::{Flags, Outgoing, encode_command};
use poolhouse_wire::{Authenticator, EncodeError, Labels, Sink, Unauthenticated};
use types::{MonitorConn, Owed, PoolConn, State};

/// An observer of a server machine: it receives the events of the pool, the monitor and the
/// topology. `()` ignores all events.
pub trait ServerObserver: Observer<PoolEvent> + ControlObserver {}

impl<O: Observer<PoolEvent> + ControlObserver + ?Sized> ServerObserver for O {}

/// A server machine on the heap.
#[cfg(feature = "alloc")]
pub type ServerOnHeap<'a, A = Unauthenticated> = ServerMachine<'a, pool::OnHeap, topology::OnHeap, A>;

/// The pool, the monitor and the bytes of one server. See the [module](self) for its use.
///
/// - `P`: the memory of the pool, and of the state of each connection.
/// - `T`: the memory of the server's description: one server, and the names in its replies.
/// - `A`: authenticates the connections of the pool. Monitors never authenticate.
pub struct ServerMachine<'a, P: pool::Memory, T: topology::Memory, A = Unauthenticated> {
    control: Control<T>,
    server: ServerId,
    pool: Pool<P>,
    hello: HandshakeHello<'a>,
    connect_timeout: Option<Duration>,
    /// The check connection and the RTT connection.
    lines: [Option<MonitorConn>; 2],
    conns: P::PerConn<Option<PoolConn<'a, A>>>,
    /// The deadlines of handshakes and commands, by the slot index of the connection.
    due: Due<P>,
    /// The number of connections that owe an action (see `Owed`).
    owing: u32,
    /// Whether `Checked` is owed.
    checked: bool,
}

type Due<P> = Deadlines<Slots<Instant, <P as pool::Memory>::PerConn<Instant>>>;

impl<'a, P: pool::Memory, T: topology::Memory, A: Authenticator> ServerMachine<'a, P, T, A> {
    /// Creates the machine. Its monitor begins the first check at once; the pool is paused until
    /// that succeeds. A load balancer has no monitor, and its pool is ready.
    ///
    /// - `id`: the number of the pool and of the topology in events.
    /// - `topology`: one seed, with `direct_connection` or `load_balanced`.
    /// - `monitor`: its `server_api` is replaced: it is true if `hello` has one.
    /// - `hello`: the client metadata and the Stable API. Its other fields are ignored: connections
    ///   are not compressed.
    ///
    /// Cost: O(length of the seed). Owes `Dial`. Events: those of [`Control::new`] and
    /// `PoolCreated`.
    ///
    /// # Errors
    ///
    /// [`Full`]: the memory of the topology has no room for the address.
    ///
    /// # Panics
    ///
    /// Panics if the topology has not exactly one seed, if it is neither a direct connection nor
    /// load balanced, if only one of pool and topology is load balanced, or if the pool is load
    /// balanced and its memory has no slots for services.
    ///
    /// Source: SDAM, "Initial TopologyType"; CMAP, "Creating a Connection Pool".
    pub fn new(
        now: Instant,
        id: u32,
        topology: TopologyConfig<'_>,
        pool: PoolConfig,
        monitor: MonitorConfig,
        hello: HandshakeHello<'a>,
        observer: &mut impl ServerObserver,
    ) -> Result<Self, Full> {
        let load_balanced = topology.topology_type() == TopologyType::LoadBalanced;
        assert!(load_balanced || topology.topology_type() == TopologyType::Single, "a server machine has one server");
        assert!(topology.options().seeds.len() == 1, "a server machine has one seed");
        assert!(load_balanced == pool.options().load_balanced, "pool and topology are both load balanced, or neither");
        let options = MonitorOptions { server_api: hello.server_api.is_some(), ..*monitor.options() };
        let control =
            Control::new(now, TopologyId::new(id), topology, options.validate().unwrap_or(monitor), observer)?;
        let server = control.topology().servers().next().ok_or(Full)?.server();
        let mut machine = Self {
            control,
            server,
            pool: Pool::new(now, PoolId::new(id.into()), pool, observer),
            hello: HandshakeHello { load_balanced, server_api: hello.server_api, ..HandshakeHello::new(hello.client) },
            connect_timeout: options.connect_timeout,
            lines: [None, None],
            conns: Store::empty(),
            due: Due::<P>::empty(),
            owing: 0,
            checked: false,
        };
        machine.route(now, observer);
        Ok(machine)
    }

    /// Checks out a connection, or enters the wait queue. See [`Pool::check_out`].
    ///
    /// Connections that failed while they were available are closed first.
    ///
    /// Cost: that of [`Pool::check_out`]. Events: those of it and, for each failed connection,
    /// those of its check-out and check-in.
    ///
    /// # Errors
    ///
    /// [`CheckOutError`]. It is [`CheckOutError::PoolCleared`] with the cause of the last failed
    /// check until the server is known: then call [`request_check`](Self::request_check), and try
    /// again at [`ServerAction::Checked`].
    ///
    /// Source: CMAP, "Checking Out a Connection".
    pub fn check_out(
        &mut self,
        now: Instant,
        deadline: Option<Instant>,
        observer: &mut impl ServerObserver,
    ) -> Result<CheckOut, CheckOutError> {
        loop {
            let lease = match self.pool.check_out(now, deadline, observer) {
                Ok(CheckOut::Granted(lease)) => lease,
                Err(CheckOutError::PoolCleared { cause: None }) => {
                    let cause = self.topology().servers().find_map(|server| match server.error() {
                        Some(ServerError::Failed(cause)) => Some(cause),
                        _ => None,
                    });
                    return Err(CheckOutError::PoolCleared { cause });
                }
                outcome => return outcome,
            };
            if self.failure(&lease).is_none() {
                return Ok(CheckOut::Granted(lease));
            }
            // The lease is of this pool, so the check-in cannot fail.
            let _ = self.check_in(now, lease, observer);
        }
    }

    /// Takes the outcome of a check-out that waited. See [`Pool::claim`].
    pub fn claim(&mut self, now: Instant, waiter: WaiterId) -> Claim {
        self.pool.claim(now, waiter)
    }

    /// Cancels a check-out that waited, whatever its outcome. See [`Pool::cancel`].
    pub fn cancel(&mut self, now: Instant, waiter: WaiterId, observer: &mut impl ServerObserver) {
        self.pool.cancel(now, waiter, observer);
    }

    /// Writes a command at the end of `sink`, for a connection that is checked out. The host sends
    /// the bytes, and then passes received bytes to [`handle_input`](Self::handle_input) until it
    /// returns the reply.
    ///
    /// - `deadline`: of the reply. When it passes, the connection fails with
    ///   [`Cause::NetworkTimeout`], and a `Close` is owed.
    /// - `database`: `$db`. `body`: writes the other fields; those of the Stable API are added.
    ///
    /// Cost: linear in the bytes written; O(log n) in the number of connections for the deadline.
    ///
    /// # Errors
    ///
    /// [`CommandNotSent`]: nothing was written.
    ///
    /// Source: OP_MSG, "Command Arguments"; Stable API, "Sending of API parameters".
    pub fn write_command<S: Sink>(
        &mut self,
        lease: &Lease,
        deadline: Option<Instant>,
        database: &str,
        sink: &mut S,
        body: impl FnOnce(&mut DocumentWriter<'_, S>) -> Result<(), EncodeError>,
    ) -> Result<(), CommandNotSent> {
        let api = self.hello.server_api;
        let conn = self.conn_mut(lease.conn()).ok_or(CommandNotSent::Failed(Cause::Closed))?;
        let (established, exchange) = match &mut conn.state {
            State::Ready { exchange, .. } if !exchange.is_idle() => return Err(CommandNotSent::Busy),
            State::Ready { established, exchange } => (established, exchange),
            State::Failed(cause) => return Err(CommandNotSent::Failed(*cause)),
            State::Dialing | State::Greeting(_) => return Err(CommandNotSent::Failed(Cause::Closed)),
        };
        let mut ids = established.request_ids;
        let id = ids.next_id();
        encode_command(sink, Outgoing::request(id), &established.sizes.limits(), database, |command| {
            body(command)?;
            api.map_or(Ok(()), |api| api.write(command))
        })
        .map_err(CommandNotSent::Encode)?;
        established.request_ids = ids;
        exchange.begin(id, Flags::NONE);
        self.set_due(lease.conn(), deadline);
        Ok(())
    }

    /// Returns a connection to the pool. See [`Pool::check_in`].
    ///
    /// A connection that has failed, or whose reply is outstanding, is closed.
    ///
    /// Cost and events: those of [`Pool::check_in`].
    ///
    /// # Errors
    ///
    /// [`ForeignLease`]: another machine issued the lease. Nothing changed.
    ///
    /// Source: CMAP, "Checking In a Connection".
    pub fn check_in(
        &mut self,
        now: Instant,
        lease: Lease,
        observer: &mut impl ServerObserver,
    ) -> Result<(), ForeignLease> {
        let conn = lease.conn();
        let is_busy = matches!(self.conn(conn), Some(PoolConn { state: State::Ready { exchange, .. }, .. }) if !exchange.is_idle());
        let failure = self.failure(&lease).or(is_busy.then_some(Cause::Cancelled));
        self.pool.check_in(now, lease, failure.map_or(Health::Healthy, Health::Broken), observer)?;
        if let Some(cause) = failure {
            self.set_due(conn, None);
            if let Some(conn) = self.conn_mut(conn) {
                conn.state = State::Failed(cause);
            }
        }
        Ok(())
    }

    /// Requests a check of the server as soon as the minimum interval allows. See
    /// [`Control::request_check`].
    pub fn request_check(&mut self, now: Instant) {
        self.control.request_check(now);
    }

    /// Closes monitor, topology and pool: waiting check-outs fail. A connection in use is closed
    /// when it is checked in, all others at once. Closing again is a no-op.
    ///
    /// Cost: O(connections + waiters). Owes a `Close` for each socket that is not in use. Events:
    /// those of [`Control::close`] and [`Pool::close`].
    ///
    /// Source: SDAM, "Client closing"; CMAP, "Closing a Connection Pool".
    pub fn close(&mut self, now: Instant, observer: &mut impl ServerObserver) {
        self.control.close(now, observer);
        self.route(now, observer);
    }

    /// The pool: its state, counts and options.
    #[must_use]
    pub const fn pool(&self) -> &Pool<P> {
        &self.pool
    }

    /// The topology with the server's description.
    #[must_use]
    pub const fn topology(&self) -> &Topology<T> {
        self.control.topology()
    }

    /// The properties of a connection that is checked out; `None` if it has failed.
    #[must_use]
    pub fn established(&self, lease: &Lease) -> Option<&Established> {
        match &self.conn(lease.conn())?.state {
            State::Ready { established, .. } => Some(established),
            State::Dialing | State::Greeting(_) | State::Failed(_) => None,
        }
    }

    /// The cause of the failure of a connection that is checked out; `None` if it has not failed.
    #[must_use]
    pub fn failure(&self, lease: &Lease) -> Option<Cause> {
        match self.conn(lease.conn()).map(|conn| &conn.state) {
            Some(State::Ready { .. }) => None,
            Some(State::Failed(cause)) => Some(*cause),
            Some(State::Dialing | State::Greeting(_)) | None => Some(Cause::Closed),
        }
    }

    /// Checks every internal invariant, O(n). For tests, fuzzing and simulation.
    ///
    /// # Panics
    ///
    /// Panics when an invariant is broken, which is a bug in this crate.
    pub fn assert_invariants(&self) {
        self.control.assert_invariants();
        self.pool.assert_invariants();
        let mut owing = 0;
        for (index, conn) in self.conns.slots().iter().enumerate() {
            let Some(conn) = conn else { continue };
            assert_eq!(conn.id.index() as usize, index, "a connection is in its slot");
            owing += u32::from(conn.owed != Owed::Nothing);
            let is_member = self.pool.conn_generation(conn.id).is_some();
            assert!(is_member || conn.owed == Owed::Close, "a slot belongs to a connection of the pool");
            let is_failed = matches!(conn.state, State::Failed(_));
            assert!(conn.owed != Owed::Close || is_failed, "only failed connections are closed");
            assert!(!is_failed || self.due.of(conn.id.index()).is_none(), "a failed connection has no deadline");
        }
        assert_eq!(owing, self.owing, "owed actions are counted");
        for (index, leaf) in (0..).zip(self.conns.slots()) {
            assert!(leaf.is_some() || self.due.of(index).is_none(), "a free slot has no deadline");
        }
    }

    fn conn(&self, id: ConnId) -> Option<&PoolConn<'a, A>> {
        self.conns.slots().get(id.index() as usize)?.as_ref().filter(|conn| conn.id == id)
    }

    fn conn_mut(&mut self, id: ConnId) -> Option<&mut PoolConn<'a, A>> {
        self.conns.slots_mut().get_mut(id.index() as usize)?.as_mut().filter(|conn| conn.id == id)
    }

    /// Takes all actions of the control machine and applies them to the pool.
    fn route(&mut self, now: Instant, observer: &mut impl ServerObserver) {
        while let Some(action) = self.control.poll_action() {
            match action {
                ControlAction::Pool(_, PoolCommand::Ready) => self.pool.ready(now, observer),
                ControlAction::Pool(_, PoolCommand::Clear { interrupt_in_use_connections, cause }) => {
                    self.clear(now, Clear::All { interrupt_in_use_connections }, cause, observer);
                }
                ControlAction::ServerRemoved(_) => self.pool.close(now, observer),
                ControlAction::WakeSelectors => self.checked = true,
                ControlAction::ServerAdded(_) => {}
            }
        }
    }

    fn clear(&mut self, now: Instant, clear: Clear, cause: Cause, observer: &mut impl ServerObserver) {
        let cleared = self.pool.clear(now, clear, Some(cause), observer);
        debug_assert!(cleared.is_ok(), "the topology decides by the mode of the pool");
    }

    /// An error on a connection of the pool, with the generations that decide whether it is stale.
    /// `None` if the connection has left the pool.
    fn app_error<'e>(&self, conn: ConnId, phase: HandshakePhase, kind: AppErrorKind<'e>) -> Option<AppError<'e>> {
        let service_id = self.pool.conn_service(conn);
        let pool_generation = match service_id {
            Some(service_id) => self.pool.service_generation(service_id),
            None => self.pool.generation(),
        };
        let (generation, pool_generation) = (self.pool.conn_generation(conn)?.get(), pool_generation.get());
        Some(AppError { generation, pool_generation, phase, kind, overloaded: false, service_id })
    }

    /// Applies an error of a command to the topology and to the pool.
    fn judge(&mut self, now: Instant, conn: ConnId, kind: AppErrorKind<'_>, observer: &mut impl ServerObserver) {
        let Some(error) = self.app_error(conn, HandshakePhase::After, kind) else { return };
        let verdict = self.control.handle_app_error(now, self.server, &error, observer);
        if let Some(clear) = verdict.clear {
            self.clear(now, clear, kind.cause(), observer);
        }
        self.route(now, observer);
    }

    /// Reports to topology and pool that a connection was not established. `None` if the connection
    /// has left the pool.
    fn fail_establish(
        &mut self,
        now: Instant,
        conn: ConnId,
        error: &HandshakeError,
        observer: &mut impl ServerObserver,
    ) -> Option<()> {
        let report = self.app_error(conn, HandshakePhase::Before, AppErrorKind::from(error))?;
        let overloaded = error.labels.contains(Labels::SYSTEM_OVERLOADED_ERROR);
        let report = AppError { overloaded, ..report };
        let verdict = self.control.handle_app_error(now, self.server, &report, observer);
        let failed = EstablishError { cause: error.cause, overloaded, clear: verdict.clear };
        let taken = self.pool.handle_establish_failed(now, conn, failed, observer);
        self.route(now, observer);
        taken.ok()
    }

    /// Fails an established connection. Without a command in progress this is no evidence against
    /// the server.
    fn fail_established(&mut self, now: Instant, id: ConnId, cause: Cause, observer: &mut impl ServerObserver) {
        self.set_due(id, None);
        let Some(conn) = self.conn_mut(id) else { return };
        let was_busy = matches!(&conn.state, State::Ready { exchange, .. } if !exchange.is_idle());
        conn.state = State::Failed(cause);
        if was_busy && cause == Cause::NetworkTimeout {
            self.judge(now, id, AppErrorKind::NetworkTimeout, observer);
        } else if was_busy && cause == Cause::Network {
            self.judge(now, id, AppErrorKind::Network, observer);
        }
    }

    /// Sets or removes the deadline of a connection.
    fn set_due(&mut self, conn: ConnId, at: Option<Instant>) {
        self.due.remove(conn.index());
        if let Some(at) = at {
            let set = self.due.insert(conn.index(), at);
            assert!(set.is_ok(), "a connection with a slot has a deadline slot");
        }
    }

    /// Sets the owed action of a connection, and updates the counter.
    fn owe(&mut self, id: ConnId, owed: Owed) {
        if let Some(conn) = self.conn_mut(id) {
            let before = core::mem::replace(&mut conn.owed, owed);
            self.owing += u32::from(owed != Owed::Nothing);
            self.owing -= u32::from(before != Owed::Nothing);
        }
    }

    /// Frees the slot of a connection that has left the pool.
    fn vacate(&mut self, id: ConnId) {
        if self.conn(id).is_some() {
            self.owe(id, Owed::Nothing);
            self.set_due(id, None);
            self.conns.slots_mut()[id.index() as usize] = None;
        }
    }
}

impl<P: pool::Memory, T: topology::Memory, A> fmt::Debug for ServerMachine<'_, P, T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerMachine").field("server", &self.server).field("pool", &self.pool).finish_non_exhaustive()
    }
}
