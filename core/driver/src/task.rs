//! The tasks of one server: two monitor connections, the clock of its pool, and the workers that
//! establish connections.

use super::client_core::ClientCore;
use super::connection::{Connection, ExchangeError, Shaken, hold, yield_now};
#[cfg(feature = "alloc")]
use super::drain::LateReplies;
use super::driven::{ClockState, Drive, WorkerSlot, is_earlier};
use super::failure::{Finding, NotEstablished};
use super::login::ConnAuthentication;
use super::runtime::{ConnectError, Runtime};
use super::task_guard::TaskGuard;
use core::future::poll_fn;
use core::pin::{Pin, pin};
use core::task::Poll;
use core::time::Duration;
use poolhouse_core::monitor::{MonitorAction, MonitorConnId, MonitorConnKind};
use poolhouse_core::observe::{EventContext, Within};
use poolhouse_core::pool::{ConnId, PoolOptions, ServiceError};
use poolhouse_core::storage::Full;
use poolhouse_core::topology::TopologyType;
use poolhouse_core::{Cause, HostAddress, Instant, Reason, ServerId};
use poolhouse_wire::Phase;
use poolhouse_wire::handshake::{Established, Handshake, HandshakeError};
use poolhouse_wire::hello::{HandshakeHello, HelloKind, HelloReply, encode_hello};

/// One of the tasks of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerTask {
    /// The monitor's check loop.
    Check,
    /// The monitor's measurements of round-trip time.
    Rtt,
    /// The pool's deadlines and background work, and late replies.
    Clock,
    /// One of the workers that establish connections; there are as many as `maxConnecting`, and at
    /// most 128.
    Worker,
}

/// The largest number of workers of a server.
const WORKERS_MAX: u32 = 128;

/// The number of workers that can have work at the same time.
pub(super) fn workers_of(options: &PoolOptions) -> u32 {
    let conns_max = if options.max_pool_size == 0 { WORKERS_MAX } else { options.max_pool_size };
    options.max_connecting.min(conns_max).min(WORKERS_MAX)
}

impl<R: Runtime> ClientCore<R> {
    /// Runs one task of a server until the server leaves the topology or the client is closed.
    /// Dropping the future earlier closes the client, also if it is one of several workers: see
    /// [`TaskGuard`](super::TaskGuard).
    ///
    /// The future is as large as that of the largest task. A host with a fixed number of tasks can
    /// call the methods below instead.
    pub fn run_server_task(&self, server: &R::ServerHandle, task: ServerTask) -> impl Future<Output = ()> {
        TaskGuard::new(self, Some(server.id())).run(move |core| core.work(server, task))
    }

    /// [`ServerTask::Check`].
    pub fn run_check(&self, server: &R::ServerHandle) -> impl Future<Output = ()> {
        TaskGuard::new(self, Some(server.id())).run(|core| core.run_monitor_conn(server, MonitorConnKind::Check))
    }

    /// [`ServerTask::Rtt`].
    pub fn run_rtt(&self, server: &R::ServerHandle) -> impl Future<Output = ()> {
        TaskGuard::new(self, Some(server.id())).run(|core| core.run_monitor_conn(server, MonitorConnKind::Rtt))
    }

    /// [`ServerTask::Clock`]: calls the pool at its deadlines.
    pub fn run_pool_clock(&self, server: &R::ServerHandle) -> impl Future<Output = ()> {
        TaskGuard::new(self, Some(server.id())).run(|core| core.keep_pool_clock(server))
    }

    /// [`ServerTask::Worker`]: establishes connections, one after the other.
    pub fn run_worker(&self, server: &R::ServerHandle) -> impl Future<Output = ()> {
        TaskGuard::new(self, Some(server.id())).run(|core| core.keep_establishing(server))
    }

    /// [`ClientCore::run_server_task`] without its task guard.
    #[doc(hidden)]
    pub async fn work(&self, server: &R::ServerHandle, task: ServerTask) {
        match task {
            ServerTask::Check => self.run_monitor_conn(server, MonitorConnKind::Check).await,
            ServerTask::Rtt => self.run_monitor_conn(server, MonitorConnKind::Rtt).await,
            ServerTask::Clock => self.keep_pool_clock(server).await,
            ServerTask::Worker => self.keep_establishing(server).await,
        }
    }

    /// Executes the monitor's actions on one of its connections.
    async fn run_monitor_conn(&self, server: &R::ServerHandle, kind: MonitorConnKind) {
        let mut connection = None;
        let mut asked = None;
        loop {
            let action = match asked.take() {
                Some(action) => action,
                None => match poll_fn(|context| self.poll_conn(server.id(), kind, context.waker())).await {
                    Some(action) => action,
                    None => return,
                },
            };
            let mut waited = false;
            let mut performing = Performing { core: self, server: server.id(), conn: conn_of(action) };
            let outcome = {
                let mut work = pin!(self.perform(server, action, &mut connection));
                poll_fn(|context| {
                    if work.as_mut().poll(context).is_ready() {
                        return Poll::Ready(Interrupted::No);
                    }
                    waited = true;
                    // Only a hangup can be requested meanwhile: the work in progress is obsolete.
                    self.poll_conn(server.id(), kind, context.waker()).map(|asked| match asked {
                        Some(action) => Interrupted::By(action),
                        None => Interrupted::Ended,
                    })
                })
                .await
            };
            performing.conn = None;
            match outcome {
                // If the server's replies are always available, the task must not occupy the
                // thread.
                Interrupted::No if !waited => yield_now().await,
                Interrupted::No => {}
                Interrupted::By(next) => {
                    #[cfg(feature = "alloc")]
                    self.note_late_check(server, action);
                    connection = None;
                    asked = Some(next);
                }
                Interrupted::Ended => return,
            }
        }
    }

    async fn perform(&self, server: &R::ServerHandle, action: MonitorAction, connection: &mut Option<Connection<R>>) {
        let id = server.id();
        match action {
            MonitorAction::Hangup(_) => *connection = None,
            MonitorAction::Dial(conn) => {
                *connection = None;
                // The monitor itself bounds the time.
                match self.dial_monitor(server.address()).await {
                    Ok(fresh) => {
                        *connection = Some(fresh);
                        // Stale if the monitor has abandoned the connection meanwhile: a hangup
                        // follows.
                        let _ = self.step(|state, now, tap| state.control.handle_dialed(now, id, conn, tap));
                    }
                    Err(error) => self.check_failed(server, conn, error),
                }
            }
            MonitorAction::SendHello { conn, hello } => match connection {
                Some(connected) => {
                    let metadata = self.metadata();
                    let mut first = HandshakeHello::new(&metadata);
                    first.server_api = self.config().server_api;
                    let sent = connected.send(|sink, id, _| Ok(encode_hello(sink, id, hello, &first)?.1)).await;
                    let answered = match sent {
                        Ok(()) => self.receive_hello(connected, server, conn).await,
                        Err(error) => Err(error),
                    };
                    let is_first = matches!(hello, HelloKind::Handshake { .. });
                    self.note_failure(server, conn, answered, is_first.then_some(&*connected));
                }
                None => self.conn_failed(id, conn, Cause::Network, &Reason::NONE),
            },
            MonitorAction::ReadNext { conn } => match connection {
                Some(connected) => {
                    let answered = self.receive_hello(connected, server, conn).await;
                    self.note_failure(server, conn, answered, None);
                }
                None => self.conn_failed(id, conn, Cause::Network, &Reason::NONE),
            },
        }
    }

    async fn receive_hello(
        &self,
        connection: &mut Connection<R>,
        server: &R::ServerHandle,
        conn: MonitorConnId,
    ) -> Result<(), ExchangeError> {
        let matched = connection.receive().await?;
        let body = connection.reply()?;
        let hello = HelloReply::parse(body).map_err(ExchangeError::Wire)?;
        let id = server.id();
        // A stale reply changes nothing.
        let _ = self.step(|state, now, tap| {
            let mut tap = Within::new(tap, EventContext::NONE.with_reply(body));
            state.control.handle_reply(now, id, conn, &hello, matched, &mut tap)
        });
        #[cfg(feature = "alloc")]
        if hello.ok && conn.kind() == MonitorConnKind::Check {
            self.note_reply(server, &hello);
        }
        // The next hello may be a heartbeat interval away.
        connection.rest_at_start_size();
        Ok(())
    }

    /// - `first`: the connection, if it has never received a reply.
    fn note_failure(
        &self,
        server: &R::ServerHandle,
        conn: MonitorConnId,
        answered: Result<(), ExchangeError>,
        first: Option<&Connection<R>>,
    ) {
        let Err(error) = answered else { return };
        let cause = error.cause().unwrap_or(Cause::Resources);
        let failure = ConnectError::new(cause, error.into_reason());
        #[cfg(feature = "alloc")]
        let failure = match first {
            Some(connection) => connection.hinted(failure, self.runtime().is_encrypted(connection.stream())),
            None => failure,
        };
        #[cfg(not(feature = "alloc"))]
        let _ = first;
        self.check_failed(server, conn, failure);
    }

    /// Reports a failure of a monitor connection. A failure of a check is also stored as the reason
    /// why the server cannot be reached.
    fn check_failed(&self, server: &R::ServerHandle, conn: MonitorConnId, error: ConnectError) {
        if conn.kind() == MonitorConnKind::Check {
            server.note_failure(error.clone());
        }
        self.conn_failed(server.id(), conn, error.cause, &error.reason);
    }

    fn conn_failed(&self, server: ServerId, conn: MonitorConnId, cause: Cause, reason: &Reason) {
        // A stale report changes nothing.
        let _ = self.step(|state, now, tap| {
            let mut tap = Within::new(tap, EventContext::NONE.with_reason(reason));
            state.control.handle_failed(now, server, conn, cause, &mut tap)
        });
    }

    /// Connects, and allocates the buffers of the socket.
    async fn dial(&self, address: &str, deadline: Option<Instant>) -> Result<Connection<R>, ConnectError> {
        let address = HostAddress::parse(address).ok_or(Cause::Dns)?;
        self.with_buffers(self.runtime().connect(&address, deadline).await?)
    }

    async fn dial_monitor(&self, address: &str) -> Result<Connection<R>, ConnectError> {
        let address = HostAddress::parse(address).ok_or(Cause::Dns)?;
        self.with_buffers(self.runtime().connect_monitor(&address).await?)
    }

    fn with_buffers(&self, stream: R::Stream) -> Result<Connection<R>, ConnectError> {
        let (input, output) = self.runtime().buffers(&stream).map_err(|Full| Cause::Resources)?;
        Ok(Connection::new(stream, input, output))
    }

    async fn keep_pool_clock(&self, server: &R::ServerHandle) {
        #[cfg(feature = "alloc")]
        let mut late = LateReplies::attend(self, server);
        loop {
            let state = poll_fn(|context| Poll::Ready(server.poll_clock(self.now(), context.waker()))).await;
            let ClockState::Armed(at) = state else { return };
            #[cfg(feature = "alloc")]
            let at = late.earliest(at);
            let mut expiry = pin!(self.sleep_until(at));
            poll_fn(|context| {
                let due = server.clock_is_late(context.waker());
                #[cfg(feature = "alloc")]
                let due = late.poll(context, at) || due;
                if due { Poll::Ready(()) } else { expiry.as_mut().poll(context) }
            })
            .await;
        }
    }

    pub(super) async fn keep_establishing(&self, server: &R::ServerHandle) {
        // There is no work for more workers than connections.
        let Some(index) = server.join_workers() else { return };
        let place = WorkerSlot { pool: &**server, index };
        while let Some(conn) = poll_fn(|context| server.poll_establish(self.now(), place.index, context.waker())).await
        {
            let mut establishing = Establishing { core: self, server, conn: Some(conn) };
            let deadline = self.time_limit(self.config().connect_timeout);
            let established = self.establish_by(server, conn, deadline).await;
            match established {
                Some(Ok((connection, known))) => drop(server.established(self.now(), conn, hold(connection), known)),
                Some(Err(error)) => self.report_establish_failed(server, conn, &error),
                // The pool has abandoned the connection: nothing is reported.
                None => {}
            }
            establishing.conn = None;
        }
    }

    /// The deadline of an action that begins now.
    fn time_limit(&self, limit: Option<Duration>) -> Option<Instant> {
        limit.map(|limit| self.now().saturating_add(limit))
    }

    /// Establishes a connection, unless its deadline passes, a command times out, or the pool
    /// abandons the connection (`None`).
    async fn establish_by(
        &self,
        server: &R::ServerHandle,
        conn: ConnId,
        deadline: Option<Instant>,
    ) -> Option<Result<(Connection<R>, Established), HandshakeError>> {
        let dialed = {
            let dial = pin!(self.dial(server.address(), deadline));
            self.within(server, conn, deadline, dial).await?
        };
        let mut connection = match dialed {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return Some(Err(self.not_dialed(server, error))),
            Err(cause) => {
                let reason = Finding::TimedOut(Phase::Connect).into();
                return Some(Err(self.not_dialed(server, ConnectError::new(cause, reason))));
            }
        };
        let metadata = self.metadata();
        let mut hello = HandshakeHello::new(&metadata);
        hello.server_api = self.config().server_api;
        hello.compressors = self.config().compressors.available();
        connection.offer_compression(hello.compressors, self.config().zlib_compression_level);
        hello.load_balanced = self.config().pool.options().load_balanced;
        let load_balanced = hello.load_balanced;
        let mut on_hello = |reply: &HelloReply<'_>| {
            if !load_balanced {
                self.report_hello(server, conn, reply);
                return Ok(());
            }
            let service_id = reply.service_id.ok_or(Cause::MissingServiceId)?;
            match server.note_service(conn, service_id) {
                Ok(_) | Err(ServiceError::Stale | ServiceError::WrongMode) => Ok(()),
                Err(_) => Err(Cause::Resources),
            }
        };
        let mut authentication = ConnAuthentication::default();
        if let Err(error) = self.begin_authentication(connection.stream(), &mut authentication) {
            return Some(Err(self.note_refusal(server, &connection, &authentication, error.into())));
        }
        if let Some(login) = &self.config().login {
            connection.expect_secrets(login.secret_bytes());
        }
        // Arbiters are exempt from authentication only on a direct connection.
        let is_direct = self.topology_type() == TopologyType::Single;
        let mut handshake = Handshake::with_authenticator(hello, &mut authentication).with_arbiters_exempt(is_direct);
        let mut next = Shaken::Command;
        let failed = loop {
            let shaken = match next {
                Shaken::Established(known) => {
                    self.store_keys(handshake.authenticator());
                    connection.rest_at_start_size();
                    return Some(Ok((connection, known)));
                }
                Shaken::Command => {
                    // The time limit for a command of the handshake is that of the client's options
                    // (CMAP-60), or the deadline of the operation that waits for the connection, if
                    // that is later (CMAP-28). An earlier deadline ends the operation, but not the
                    // connection: the next operation can use it, and the server did not fail.
                    let limit = self.time_limit(self.config().command_timeout);
                    let limit_of = |waiter: Option<Instant>| {
                        let limit = if waiter.is_some() && is_earlier(limit, waiter) { waiter } else { limit };
                        if is_earlier(limit, deadline) { limit } else { deadline }
                    };
                    let mut command = pin!(connection.perform_handshake(&mut handshake, &mut on_hello));
                    let mut passed = Some(Instant::ORIGIN);
                    loop {
                        // Another operation may wait for the connection now, with a later deadline.
                        let at = limit_of(server.waiter_deadline(self.now(), conn));
                        if !is_earlier(passed, at) {
                            break Err(Cause::NetworkTimeout);
                        }
                        if let Ok(shaken) = self.within(server, conn, at, command.as_mut()).await? {
                            break Ok(shaken);
                        }
                        passed = at;
                    }
                }
                Shaken::Work => {
                    let work = pin!(connection.work(&mut handshake, |authentication| self.reuse_keys(authentication)));
                    self.within(server, conn, deadline, work).await?
                }
            };
            next = match shaken {
                Ok(Ok(next)) => next,
                Ok(Err(failed)) => break failed,
                Err(cause) => break NotEstablished::timed_out(handshake.failed(cause)),
            };
        };
        Some(Err(self.note_refusal(server, &connection, handshake.authenticator(), failed)))
    }

    /// Polls a step of establishing until it is done: `None` if the pool abandons the connection,
    /// an error at the deadline. The step is pinned by the caller, because moving it would double
    /// the size of this future.
    async fn within<T>(
        &self,
        server: &R::ServerHandle,
        conn: ConnId,
        deadline: Option<Instant>,
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> Option<Result<T, Cause>> {
        let mut expiry = pin!(self.sleep_until(deadline));
        poll_fn(|context| {
            if let Poll::Ready(result) = work.as_mut().poll(context) {
                return Poll::Ready(Some(Ok(result)));
            }
            if server.poll_interrupted(conn, context.waker()).is_ready() {
                return Poll::Ready(None);
            }
            expiry.as_mut().poll(context).map(|()| Some(Err(Cause::NetworkTimeout)))
        })
        .await
    }
}

/// A connection that is being established. Reports to the pool that it failed if the worker is
/// dropped or panics.
struct Establishing<'s, R: Runtime> {
    core: &'s ClientCore<R>,
    server: &'s R::ServerHandle,
    /// `None` once the worker has reported the outcome.
    conn: Option<ConnId>,
}

impl<R: Runtime> Drop for Establishing<'_, R> {
    fn drop(&mut self) {
        if let Some(conn) = self.conn {
            let error = HandshakeError::new(Phase::Connect, Cause::Cancelled);
            let _ = R::contain(|| self.core.report_establish_failed(self.server, conn, &error));
        }
    }
}

/// The monitor connection that must have a report after this action.
const fn conn_of(action: MonitorAction) -> Option<MonitorConnId> {
    match action {
        MonitorAction::Dial(conn) | MonitorAction::SendHello { conn, .. } | MonitorAction::ReadNext { conn } => {
            Some(conn)
        }
        MonitorAction::Hangup(_) => None,
    }
}

/// An action on a monitor connection. Reports to the monitor that it failed if the task is dropped
/// or panics.
struct Performing<'h, R: Runtime> {
    core: &'h ClientCore<R>,
    server: ServerId,
    /// `None` if no report is needed, or no longer.
    conn: Option<MonitorConnId>,
}

impl<R: Runtime> Drop for Performing<'_, R> {
    fn drop(&mut self) {
        if let Some(conn) = self.conn {
            let _ = R::contain(|| self.core.conn_failed(self.server, conn, Cause::Cancelled, &Reason::NONE));
        }
    }
}

/// The reason why work on a monitor connection ended.
enum Interrupted {
    No,
    By(MonitorAction),
    Ended,
}
