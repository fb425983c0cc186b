//! A connection that is checked out.

#[cfg(feature = "alloc")]
mod command;

use super::client_core::ClientCore;
use super::connection::{ExchangeError, Held};
#[cfg(feature = "alloc")]
use super::drain::Drain;
use super::driven::{Begun, Claimed, Drive, Watch};
use super::error::{OperationError, ServerAddress};
#[cfg(feature = "alloc")]
use super::event::{CommandStage, EventKinds, Publish as _};
use super::runtime::{ConnectError, Runtime, is_unwinding};

use core::fmt;
use core::future::poll_fn;
#[cfg(feature = "alloc")]
use core::ops::Range;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};
#[cfg(feature = "alloc")]
use core::time::Duration;
#[cfg(feature = "alloc")]
use poolhouse_core::pool::ConnId;
use poolhouse_core::pool::{CheckOutError, Health, Lease, Pinned, WaiterId};
#[cfg(feature = "std")]
use poolhouse_core::topology::TopologyType;
use poolhouse_core::{Cause, Instant};
use poolhouse_wire::EncodeError;
#[cfg(feature = "alloc")]
use poolhouse_wire::Sink as _;
use poolhouse_wire::bson::{DocumentWriter, RawDocument};
use poolhouse_wire::command::CommandReply;
use poolhouse_wire::handshake::Established;
use poolhouse_wire::message::{Flags, Matched, Outgoing, encode_command};

/// A connection that is checked out, for the exclusive use of its owner. Dropping it returns it to
/// its pool.
///
/// A connection that is dropped after an error, or because its owner panics, is closed and not reused.
/// If it is dropped while a reply is outstanding, or after a timeout, it is reused if the reply arrives
/// soon: see [`CoreConfig::drain_timeout`](super::CoreConfig::drain_timeout).
pub struct Guard<'h, R: Runtime> {
    core: &'h ClientCore<R>,
    server: R::ServerHandle,
    lease: Option<Lease>,
    connection: Option<Held<R>>,
    broken: Option<Cause>,
    deadline: Option<Instant>,
}

impl<'h, R: Runtime> Guard<'h, R> {
    /// Sends one command and waits for its reply.
    ///
    /// - `db`: the database.
    /// - `body`: writes the command's elements; `$db` is added.
    ///
    /// The reply borrows from the connection's buffer. The operation ends at the guard's deadline,
    /// or when the server's monitor cannot reach the server and interrupts the connections in use.
    ///
    /// Cost: no allocation, unless a message is larger than any before it on this connection.
    ///
    /// # Errors
    ///
    /// [`OperationError`]. After [`OperationError::Command`], [`ExchangeError::Encode`] and an
    /// [`OperationError::Timeout`] before the command was sent, the connection remains usable.
    /// After any other error, and if this future is dropped before it is done, every further
    /// command fails and the connection is closed when the guard is dropped (except after an
    /// [`OperationError::Timeout`] or a drop of this future, if the reply arrives soon).
    pub async fn run_command<F>(&mut self, db: &str, body: F) -> Result<RawDocument<'_>, OperationError>
    where
        F: FnOnce(&mut DocumentWriter<'_, R::Buffer>) -> Result<(), EncodeError>,
    {
        self.run(db, Flags::NONE, body).await?;
        self.reply().ok_or(OperationError::Broken(Cause::Closed))
    }

    /// Sends one command with the flag `moreToCome`, so the server sends no reply: a write with the
    /// write concern `w: 0`. The future ends when the message is written to the socket; the
    /// connection is usable then. [`Guard::reply`] returns `{ ok: 1 }`, which is also the reply of the
    /// event.
    ///
    /// - `db`, `body`: as in [`Guard::run_command`]. The body must have `writeConcern: { w: 0 }`.
    ///
    /// The application does not learn whether the server has executed the command. A server that is
    /// not the primary closes the connection; then the next command on it fails. If a server replies
    /// nevertheless, the next command fails as one that violates the protocol, and the connection is
    /// closed.
    ///
    /// Cost: as [`Guard::run_command`], without the wait.
    ///
    /// # Errors
    ///
    /// [`OperationError`], as [`Guard::run_command`] except [`OperationError::Command`]. If the future
    /// is dropped while the message is written, the connection is closed.
    ///
    /// Source: OP_MSG, "moreToCome On Requests".
    pub async fn send_command<F>(&mut self, db: &str, body: F) -> Result<(), OperationError>
    where
        F: FnOnce(&mut DocumentWriter<'_, R::Buffer>) -> Result<(), EncodeError>,
    {
        self.run(db, Flags::MORE_TO_COME, body).await
    }

    /// Sends one command, and receives and evaluates its reply, unless it has none by its flags.
    async fn run<F>(&mut self, db: &str, flags: Flags, body: F) -> Result<(), OperationError>
    where
        F: FnOnce(&mut DocumentWriter<'_, R::Buffer>) -> Result<(), EncodeError>,
    {
        self.check_usable()?;
        let outcome = match self.exchange(db, flags, body).await {
            Ok(()) => self.judge(),
            Err(error) => Err(error),
        };
        #[cfg(feature = "alloc")]
        if let Some(lease) = &self.lease {
            self.observe_end(lease.conn(), outcome.as_ref().err());
        }
        if let Err(error) = outcome {
            // A command that timed out before it was sent leaves the connection usable.
            let unsent = error == OperationError::Timeout
                && self.connection.as_ref().is_some_and(|connection| connection.is_idle());
            if let Some(cause) = error.connection_cause().filter(|_| !unsent) {
                self.broken = Some(cause);
                if let OperationError::Exchange(ExchangeError::Network(reason)) = &error {
                    self.server.note_failure(ConnectError::new(cause, reason.clone()));
                }
                if let Some(lease) = &self.lease {
                    self.core.report_failure(&self.server, lease.conn(), cause);
                }
            }
            return Err(error);
        }
        Ok(())
    }

    /// Checks that the connection is usable for a command.
    fn check_usable(&mut self) -> Result<(), OperationError> {
        let busy = self.connection.as_ref().is_some_and(|connection| !connection.is_idle());
        if busy || self.broken.is_some() {
            self.core.check_fork()?;
        }
        if self.broken.is_none() && busy {
            // The previous command was cancelled: the next bytes belong to its reply.
            self.broken = Some(Cause::Cancelled);
        }
        if let Some(cause) = self.broken {
            return Err(OperationError::Broken(cause));
        }
        Ok(())
    }

    async fn exchange<F>(&mut self, db: &str, flags: Flags, body: F) -> Result<(), OperationError>
    where
        F: FnOnce(&mut DocumentWriter<'_, R::Buffer>) -> Result<(), EncodeError>,
    {
        let (Some(lease), Some(connection)) = (&self.lease, &mut self.connection) else {
            return Err(OperationError::Broken(Cause::Closed));
        };
        let conn = lease.conn();
        let (core, server, deadline) = (self.core, &self.server, self.deadline);
        #[cfg(feature = "alloc")]
        let is_observed = core.events().kinds().intersects(EventKinds::COMMANDS);
        let talk = async {
            #[cfg(feature = "alloc")]
            let (operation_id, observed) = {
                connection.observed = is_observed.then(|| core.now());
                (connection.operation_id, connection.observed)
            };
            connection
                .send(|sink, id, limits| {
                    encode_command(sink, Outgoing::request(id).with_flags(flags), limits, db, body)?;
                    #[cfg(feature = "alloc")]
                    if let Some(now) = observed {
                        let origin = (now, conn, operation_id);
                        command::publish(core, server, origin, sink.written(), CommandStage::Started, None);
                    }
                    Ok(flags)
                })
                .await?;
            if flags.contains(Flags::MORE_TO_COME) {
                return Ok(());
            }
            // Reply matching rejects a further reply.
            connection.receive().await.map(|_: Matched| ())
        };
        let mut talk = pin!(talk);
        let mut expiry = pin!(core.sleep_until(deadline));
        let mut begun = false;
        poll_fn(|context| {
            core.check_fork()?;
            // The conditions that end a command are checked before it is sent, and then whenever
            // the reply is not complete.
            if begun {
                if let Poll::Ready(result) = talk.as_mut().poll(context) {
                    return Poll::Ready(result.map_err(OperationError::Exchange));
                }
            } else if deadline.is_some_and(|at| at <= core.now()) {
                return Poll::Ready(Err(OperationError::Timeout));
            }
            let end = match server.watch(conn, deadline, context.waker()) {
                Watch::Going => Poll::Pending,
                Watch::WithoutClock => expiry.as_mut().poll(context).map(|()| Err(OperationError::Timeout)),
                Watch::Interrupted if !begun => {
                    // Nothing was sent, as if the pool had been cleared before the check-out: the
                    // command may be run on another server (CMAP-84).
                    let cause = Some(Cause::NetworkTimeout);
                    let error = CheckOutError::PoolCleared { cause };
                    Poll::Ready(Err(OperationError::check_out_of(server.address(), error)))
                }
                Watch::Interrupted => {
                    Poll::Ready(Err(OperationError::Interrupted(ServerAddress::new(server.address()))))
                }
                Watch::TimedOut => Poll::Ready(Err(OperationError::Timeout)),
            };
            if end.is_ready() || core::mem::replace(&mut begun, true) {
                return end;
            }
            talk.as_mut().poll(context).map_err(OperationError::Exchange)
        })
        .await
    }

    /// Publishes the event of the end of a command, if that of its start was published.
    #[cfg(feature = "alloc")]
    #[inline]
    fn observe_end(&mut self, conn: ConnId, error: Option<&OperationError>) {
        let begun = self.connection.as_mut().and_then(|connection| connection.observed.take());
        // The child of a fork must await no lock: a thread of the parent may have held it.
        if let Some(begun) = begun.filter(|_| !self.core.is_forked()) {
            self.publish_end(begun, conn, error);
        }
    }

    #[cfg(feature = "alloc")]
    #[cold]
    fn publish_end(&self, begun: Instant, conn: ConnId, error: Option<&OperationError>) {
        let Some(connection) = &self.connection else { return };
        let now = self.core.now();
        let duration = now.saturating_since(begun);
        let stage = match error {
            None => CommandStage::Succeeded { duration },
            Some(error) => CommandStage::Failed { duration, error },
        };
        let has_reply = matches!(error, None | Some(OperationError::Command { .. }));
        let reply = self.reply().filter(|_| has_reply);
        let origin = (now, conn, connection.operation_id);
        command::publish(self.core, &self.server, origin, connection.request(), stage, reply);
    }

    /// Sets the id of the operation of the next commands, for their events, until the connection is
    /// returned.
    #[cfg(feature = "alloc")]
    pub fn set_operation_id(&mut self, id: i64) {
        if let Some(connection) = &mut self.connection {
            connection.operation_id = id;
        }
    }

    /// Evaluates the reply: `ok: 0` is an error, and is reported to the topology.
    fn judge(&mut self) -> Result<(), OperationError> {
        let (Some(lease), Some(connection)) = (&self.lease, &mut self.connection) else {
            return Err(OperationError::Broken(Cause::Closed));
        };
        let reply = connection.reply()?;
        if CommandReply::is_plain_success(reply) {
            return Ok(());
        }
        let reply = CommandReply::parse(reply).map_err(ExchangeError::Wire)?;
        if !reply.ok || reply.write_concern_error.is_some() {
            self.core.report_reply(&self.server, lease.conn(), &reply);
        }
        if reply.cause().is_some() {
            return Err(OperationError::Command { code: reply.code.unwrap_or(0), labels: reply.labels() });
        }
        let write_errors = reply.has_write_errors();
        connection.note_write_errors(write_errors);
        Ok(())
    }

    /// Passes a connection with an outstanding reply to the clock task, which waits for the reply.
    /// Returns the lease if that is not possible.
    #[cfg(feature = "alloc")]
    fn drain(&mut self, lease: Lease) -> Option<Lease> {
        if !self.connection.as_ref().is_some_and(|connection| connection.owes_reply()) {
            return Some(lease);
        }
        let Some((cause, deadline)) = self.may_drain() else { return Some(lease) };
        let Some(connection) = self.connection.take() else { return Some(lease) };
        match self.server.drain(Drain { lease, connection, cause, deadline }) {
            Ok(()) => None,
            Err(Drain { lease, connection, .. }) => {
                self.connection = Some(connection);
                Some(lease)
            }
        }
    }

    /// The cause of closing if an outstanding reply does not arrive in time, and the end of that
    /// time. `None` if the reply is not awaited.
    #[cfg(feature = "alloc")]
    fn may_drain(&self) -> Option<(Cause, Instant)> {
        let limit = self.core.config().drain_timeout;
        let cause = self.broken.unwrap_or(Cause::Cancelled);
        let patient = matches!(cause, Cause::Cancelled | Cause::NetworkTimeout);
        (patient && !limit.is_zero()).then(|| (cause, self.core.now().saturating_add(limit)))
    }

    /// Returns the reply to the last command, also when it failed with [`OperationError::Command`]; `{
    /// ok: 1 }` after [`Guard::send_command`].
    #[must_use]
    pub fn reply(&self) -> Option<RawDocument<'_>> {
        self.connection.as_ref()?.reply().ok()
    }

    /// Exchanges the connection's receive buffer with `buffer`, so that the reply to the next command is
    /// received into memory of the caller, which need not grow. The connection has no last reply then.
    /// Returns whether that was done: not if the connection is not usable, or its last reply was
    /// compressed.
    ///
    /// Cost: constant time, no allocation.
    #[cfg(feature = "alloc")]
    pub fn lend_buffer(&mut self, buffer: &mut R::Buffer) -> bool {
        self.connection.as_mut().is_some_and(|connection| connection.swap_input(buffer, true).is_some())
    }

    /// Exchanges the connection's receive buffer with `buffer`, and returns the range of the last reply's
    /// document in `buffer`: the reply becomes the caller's without a copy. The connection has no last
    /// reply then.
    ///
    /// `None` if that is not possible, and nothing is exchanged: there is no reply or it was compressed,
    /// or the connection is not usable. [`Guard::reply`] returns the reply then, if there is one.
    ///
    /// Cost: constant time, no allocation.
    #[cfg(feature = "alloc")]
    pub fn take_reply(&mut self, buffer: &mut R::Buffer) -> Option<Range<usize>> {
        self.reply().filter(|reply| !reply.is_empty())?;
        self.connection.as_mut()?.swap_input(buffer, false)
    }

    /// Whether the last reply had `ok: 1`, but statements of the write failed (`writeErrors`) or its
    /// write concern was not satisfied (`writeConcernError`). [`Guard::run_command`] does not fail
    /// then: the reply has the details.
    #[must_use]
    pub fn has_write_errors(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.has_write_errors())
    }

    /// Declares what the connection is pinned to, until it is returned: in load-balanced mode, the
    /// error of a check-out that timed out has the number of connections in use for each purpose.
    /// The connection stays with its service for its lifetime in any case.
    ///
    /// Source: CMAP, "Load Balancer Mode".
    pub fn pin(&mut self, pinned: Pinned) {
        if let Some(lease) = self.lease.as_ref().filter(|_| !self.core.is_forked()) {
            self.server.pin(lease, pinned);
        }
    }

    /// Gives up the borrow of the client core until [`Parked::resume`]. `None` if the guard has no
    /// usable connection, or a reply is outstanding: it is dropped then.
    pub fn park(mut self) -> Option<Parked<R>> {
        if !self.is_usable() {
            return None;
        }
        let lease = self.lease.take()?;
        Some(Parked { server: self.server.clone(), lease, connection: self.connection.take() })
    }

    /// Whether the connection is usable for a command: it has not failed, and no reply is
    /// outstanding.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.broken.is_none() && self.connection.as_ref().is_some_and(|connection| connection.is_idle())
    }

    /// Sets the deadline of operations; `None` is no deadline.
    pub const fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Returns how long the server may work on a command that is sent now, so that its reply arrives
    /// before the deadline: the rest of the time less the server's minimum round-trip time. `None`
    /// without a deadline, and on a connection that is not usable.
    ///
    /// # Errors
    ///
    /// [`OperationError::Timeout`]: no time is left for the server.
    ///
    /// Source: Client Side Operations Timeout, "Command Execution".
    #[cfg(feature = "alloc")]
    pub fn time_for_server(&self) -> Result<Option<Duration>, OperationError> {
        // The error of an unusable connection is that of the command.
        let is_usable = self.is_usable() && !self.core.is_forked();
        let Some(deadline) = self.deadline.filter(|_| is_usable) else { return Ok(None) };
        let rest = deadline.saturating_since(self.core.now());
        match rest.saturating_sub(self.server.round_trip_minimum()) {
            Duration::ZERO => Err(OperationError::Timeout),
            time => Ok(Some(time)),
        }
    }

    /// Returns the server of the connection.
    pub const fn server(&self) -> &R::ServerHandle {
        &self.server
    }

    /// Whether the client is connected to this one server directly.
    #[doc(hidden)]
    #[cfg(feature = "std")]
    pub fn is_direct(&self) -> bool {
        self.core.topology_type() == TopologyType::Single
    }

    /// Returns the specification's id of the connection.
    #[must_use]
    pub fn connection_id(&self) -> u64 {
        self.lease.as_ref().map_or(0, |lease| lease.conn().connection_id().get())
    }

    /// Returns the server's hello when the connection was established; `None` in the child of a
    /// fork.
    #[must_use]
    pub fn established(&self) -> Option<Established> {
        if self.core.is_forked() {
            return None;
        }
        self.server.known(self.lease.as_ref()?.conn())
    }
}

impl<R: Runtime> Drop for Guard<'_, R> {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        if self.core.is_forked() {
            // In the child of a fork nothing is returned, and the server is leaked with its state.
            return core::mem::forget(self.server.clone());
        }
        let panics = is_unwinding();
        if panics {
            self.broken.get_or_insert(Cause::Panicked);
        }
        let lease = match &mut self.connection {
            Some(connection) if connection.is_idle() => {
                connection.rest();
                lease
            }
            _ => {
                #[cfg(feature = "alloc")]
                self.observe_end(lease.conn(), Some(&OperationError::Broken(Cause::Cancelled)));
                #[cfg(feature = "alloc")]
                let Some(lease) = (if panics { Some(lease) } else { self.drain(lease) }) else { return };
                self.broken.get_or_insert(Cause::Cancelled);
                lease
            }
        };
        let health = self.broken.map_or(Health::Healthy, Health::Broken);
        self.server.check_in(|| self.core.now(), lease, &mut self.connection, health);
    }
}

impl<R: Runtime> fmt::Debug for Guard<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("server", &self.server.address())
            .field("connection_id", &self.connection_id())
            .finish_non_exhaustive()
    }
}

/// A connection that is checked out, without the borrow of its client core, for an owner that keeps
/// the client core alive in another way. If it is dropped, its place in the pool is lost.
#[must_use = "only `resume` returns the connection to its pool"]
pub struct Parked<R: Runtime> {
    server: R::ServerHandle,
    lease: Lease,
    connection: Option<Held<R>>,
}

impl<R: Runtime> Parked<R> {
    /// Returns the guard again.
    ///
    /// - `core`: the client core of the guard.
    /// - `deadline`: of the operations under the guard.
    pub fn resume(self, core: &ClientCore<R>, deadline: Option<Instant>) -> Guard<'_, R> {
        let Self { server, lease, connection } = self;
        Guard { core, server, lease: Some(lease), connection, broken: None, deadline }
    }
}

impl<R: Runtime> fmt::Debug for Parked<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parked").field("server", &self.server.address()).finish_non_exhaustive()
    }
}

/// A check-out in progress. Dropping it cancels the check-out, also if a connection was granted.
#[must_use = "futures do nothing unless polled"]
pub struct CheckingOut<'h, R: Runtime> {
    core: &'h ClientCore<R>,
    /// `None` once the guard has it.
    server: Option<R::ServerHandle>,
    /// The time limit of the check-out.
    pub(super) limit: Option<Instant>,
    /// The deadline of the operations under the guard.
    deadline: Option<Instant>,
    waiter: Option<WaiterId>,
}

impl<'h, R: Runtime> CheckingOut<'h, R> {
    pub(super) const fn new(
        core: &'h ClientCore<R>,
        server: R::ServerHandle,
        limit: Option<Instant>,
        deadline: Option<Instant>,
    ) -> Self {
        Self { core, server: Some(server), limit, deadline, waiter: None }
    }
}

impl<'h, R: Runtime> CheckingOut<'h, R> {
    /// Begins the check-out. Returns its outcome, or `None` if it must be polled.
    ///
    /// - `limit`: returns its time limit for the current time.
    #[inline(always)]
    pub(super) fn begin(
        &mut self,
        limit: impl FnOnce(Instant) -> Option<Instant>,
    ) -> Option<Result<Guard<'h, R>, OperationError>> {
        let core = self.core;
        let server = self.server.as_ref()?;
        if server.last_waited().get() {
            return None;
        }
        let claimed = match server.check_out(|| core.now(), limit, &mut None) {
            Ok(Begun::Queued(id)) => {
                server.last_waited().set(true);
                self.waiter = Some(id);
                return None;
            }
            Ok(Begun::Granted(connection, lease)) => Ok((connection, lease)),
            Err(error) => Err(error),
        };
        Some(self.finish(claimed))
    }

    /// Converts the outcome of the check-out, which is complete.
    #[inline(always)]
    fn finish(&mut self, claimed: Claimed<Held<R>>) -> Result<Guard<'h, R>, OperationError> {
        let Some(server) = self.server.take() else {
            return Err(OperationError::check_out_of("", CheckOutError::Cancelled));
        };
        match claimed {
            Ok((connection, lease)) => {
                debug_assert!(connection.is_some(), "a granted connection has a socket");
                let Self { core, deadline, .. } = *self;
                Ok(Guard { core, server, lease: Some(lease), connection, broken: None, deadline })
            }
            Err(error) => Err(self.core.explain(&server, error)),
        }
    }
}

impl<'h, R: Runtime> Future for CheckingOut<'h, R> {
    type Output = Result<Guard<'h, R>, OperationError>;

    /// After it has returned an outcome, it returns [`CheckOutError::Cancelled`] without a server.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.core.check_fork()?;
        let limit = self.limit;
        if self.waiter.is_none() {
            if let Some(outcome) = self.begin(|_| limit) {
                return Poll::Ready(outcome);
            }
        }
        let Self { core, server, waiter, .. } = &mut *self;
        let Some(server) = server else {
            return Poll::Ready(Err(OperationError::check_out_of("", CheckOutError::Cancelled)));
        };
        match server.poll_check_out(waiter, || core.now(), |_| limit, context.waker()) {
            Poll::Ready(claimed) => Poll::Ready(self.finish(claimed)),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<R: Runtime> Drop for CheckingOut<'_, R> {
    fn drop(&mut self) {
        let Some(server) = &self.server else { return };
        if self.core.is_forked() {
            core::mem::forget(server.clone());
        } else if let Some(id) = self.waiter.take() {
            server.cancel(self.core.now(), id);
        }
    }
}

impl<R: Runtime> fmt::Debug for CheckingOut<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.server.as_ref().map(|server| server.address());
        f.debug_struct("CheckingOut").field("server", &address).finish_non_exhaustive()
    }
}
