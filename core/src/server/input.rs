//! Reports of sockets (connected, received, failed) and of elapsed time.

use super::types::{Owed, PoolConn, Received, SocketError, SocketId, State};
use super::{ServerMachine, ServerObserver};
use crate::machine::Stale;
use crate::monitor::MonitorConnId;
use crate::pool::{self, ConnId};
use crate::storage::Store;
use crate::topology::{self, AppErrorKind, CommandError, ReplyError};
use crate::{Cause, Instant};
use poolhouse_wire::command::CommandReply;
use poolhouse_wire::handshake::{Established, Handled, Handshake, HandshakeError, Next};
use poolhouse_wire::message::{Decoded, Exchange, HEADER_BYTES, Matched, Message};
use poolhouse_wire::{Authenticator, Phase, Unauthenticated, WireError};

impl<P: pool::Memory, T: topology::Memory> ServerMachine<'_, P, T> {
    /// Handles a connected socket of a server that requires no authentication. See
    /// [`handle_dialed_with`](Self::handle_dialed_with).
    ///
    /// # Errors
    ///
    /// [`Stale`]: close the socket.
    pub fn handle_dialed(
        &mut self,
        now: Instant,
        socket: SocketId,
        observer: &mut impl ServerObserver,
    ) -> Result<(), Stale> {
        self.handle_dialed_with(now, socket, Unauthenticated, observer)
    }
}

impl<P: pool::Memory, T: topology::Memory, A: Authenticator> ServerMachine<'_, P, T, A> {
    /// Handles a connected socket, TLS included. Its handshake, or its first check, follows.
    ///
    /// - `authenticator`: new for each connection. Dropped if the socket is the monitor's.
    ///
    /// Cost: O(1). Owes `Transmit`. Events: none, or those of
    /// [`handle_failed`](Self::handle_failed) if the machine is out of memory.
    ///
    /// # Errors
    ///
    /// [`Stale`]: the machine has abandoned the socket: close it.
    ///
    /// Source: CMAP, "Establishing a Connection"; Server Monitoring, "Monitoring".
    pub fn handle_dialed_with(
        &mut self,
        now: Instant,
        socket: SocketId,
        authenticator: A,
        observer: &mut impl ServerObserver,
    ) -> Result<(), Stale> {
        let id = match socket {
            SocketId::Pool(id) => id,
            SocketId::Monitor(conn) => {
                let result = self.control.handle_dialed(now, self.server, conn, observer);
                self.route(now, observer);
                return result;
            }
        };
        let hello = self.hello;
        match self.conn_mut(id) {
            Some(PoolConn { state: state @ State::Dialing, .. }) => {
                *state = State::Greeting(Handshake::with_authenticator(hello, authenticator));
                self.owe(id, Owed::Transmit);
                Ok(())
            }
            Some(_) => Err(Stale),
            None => {
                // No memory was left for the state of the connection.
                let error = HandshakeError::new(Phase::Hello, Cause::Resources);
                self.fail_establish(now, id, &error, observer);
                Err(Stale)
            }
        }
    }

    /// Handles all bytes that a socket has received and that were not consumed yet. Call it until
    /// it returns [`Received::NeedMore`] or an error.
    ///
    /// - `input`: may end anywhere; unconsumed bytes must be passed in again, followed by further
    ///   bytes.
    ///
    /// Cost: linear in `input` once a message is complete, O(1) before; in addition that of the
    /// changes that follow. Owes `Transmit` of a handshake, `Wake`s, and the monitor's next step.
    /// Events: those of [`Control`](crate::control::Control) and of the pool.
    ///
    /// # Errors
    ///
    /// [`SocketError`]: close the socket. If its connection is checked out, check it in.
    ///
    /// Source: CMAP, "Establishing a Connection"; Server Monitoring, "Monitor thread"; SDAM, "Error
    /// handling".
    pub fn handle_input<'b>(
        &mut self,
        now: Instant,
        socket: SocketId,
        input: &'b [u8],
        observer: &mut impl ServerObserver,
    ) -> Result<Received<'b>, SocketError> {
        let id = match socket {
            SocketId::Pool(id) => id,
            SocketId::Monitor(conn) => return self.handle_check_input(now, conn, input, observer),
        };
        match &mut self.conn_mut(id).ok_or(Stale)?.state {
            State::Dialing => Err(SocketError::Stale),
            State::Failed(cause) => Err(SocketError::Failed(*cause)),
            State::Greeting(handshake) => {
                let handled = handshake.handle_input(input);
                self.greet(now, id, handled, observer)
            }
            State::Ready { established, exchange } => {
                let decoded = exchange.decode_reply(input, &established.sizes.limits());
                self.take_reply(now, id, input.len(), decoded, observer)
            }
        }
    }

    /// Handles a socket that could not be connected, written or read, or was closed by the peer.
    ///
    /// - `cause`: the failure.
    ///
    /// If a check or an establishment was in progress on the socket, it fails, with the
    /// consequences that the specification requires. A connection in use fails: check it in. Cost:
    /// that of [`Topology::handle_app_error`](crate::topology::Topology::handle_app_error),
    /// O(waiters) if the pool is cleared. Events: those of [`Control`](crate::control::Control) and
    /// of the pool.
    ///
    /// # Errors
    ///
    /// [`Stale`]: the machine has already abandoned the socket; nothing changed.
    ///
    /// Source: SDAM, "Network error when reading or writing", "Authentication and handshake
    /// errors"; Server Monitoring, "Network or command error during server check".
    pub fn handle_failed(
        &mut self,
        now: Instant,
        socket: SocketId,
        cause: Cause,
        observer: &mut impl ServerObserver,
    ) -> Result<(), Stale> {
        let id = match socket {
            SocketId::Pool(id) => id,
            SocketId::Monitor(conn) => {
                let result = self.control.handle_failed(now, self.server, conn, cause, observer);
                self.route(now, observer);
                return result;
            }
        };
        let error = match self.conn(id).map(|conn| &conn.state) {
            Some(State::Failed(_)) => return Err(Stale),
            Some(State::Ready { .. }) => {
                self.fail_established(now, id, cause, observer);
                return Ok(());
            }
            Some(State::Greeting(handshake)) => handshake.failed(cause),
            Some(State::Dialing) | None => HandshakeError::new(Phase::Connect, cause),
        };
        self.vacate(id);
        self.fail_establish(now, id, &error, observer).ok_or(Stale)
    }

    /// Fails the handshakes and commands whose deadline has passed, and does the work of monitor
    /// and pool that is due. A call before [`poll_timeout`](Self::poll_timeout) changes nothing.
    ///
    /// Cost: O(log n) for each affected connection or waiter, in addition to the consequences. Owes
    /// a `Close` for each failed connection. Events: those of
    /// [`Control::handle_timeout`](crate::control::Control::handle_timeout) and of the pool.
    pub fn handle_timeout(&mut self, now: Instant, observer: &mut impl ServerObserver) {
        while self.due.earliest().is_some_and(|at| at <= now) {
            let Some(index) = self.due.first() else { break };
            self.due.remove(index);
            self.expire(now, index, observer);
        }
        self.control.handle_timeout(now, observer);
        self.route(now, observer);
        self.pool.handle_timeout(now, observer);
    }

    /// Fails the connection in this slot, because its deadline has passed.
    fn expire(&mut self, now: Instant, index: u32, observer: &mut impl ServerObserver) {
        let cause = Cause::NetworkTimeout;
        let Some(Some(conn)) = self.conns.slots_mut().get_mut(index as usize) else { return };
        let id = conn.id;
        let error = match &conn.state {
            State::Dialing => Some(HandshakeError::new(Phase::Connect, cause)),
            State::Greeting(handshake) => Some(handshake.failed(cause)),
            State::Ready { .. } | State::Failed(_) => None,
        };
        match error {
            // The slot is kept until the host has closed the socket. The pool reuses it only by an
            // action that the host polls later.
            Some(error) => {
                conn.state = State::Failed(cause);
                self.owe(id, Owed::Close);
                self.fail_establish(now, id, &error, observer);
            }
            None => {
                self.owe(id, Owed::Close);
                self.fail_established(now, id, cause, observer);
            }
        }
    }

    /// Continues a handshake after its input.
    fn greet<'b>(
        &mut self,
        now: Instant,
        id: ConnId,
        handled: Result<Handled<'b>, HandshakeError>,
        observer: &mut impl ServerObserver,
    ) -> Result<Received<'b>, SocketError> {
        let handled = handled.and_then(|handled| {
            self.take_hello(now, id, &handled, observer)?;
            Ok(handled)
        });
        let Handled { consumed_bytes, next, .. } = match handled {
            Ok(handled) => handled,
            Err(error) => {
                self.vacate(id);
                self.fail_establish(now, id, &error, observer).ok_or(Stale)?;
                return Err(SocketError::Handshake(error));
            }
        };
        match next {
            Next::Receive { bytes_min } if consumed_bytes == 0 => return Ok(Received::NeedMore { bytes_min }),
            Next::Receive { .. } | Next::Work => {}
            Next::Transmit => {
                self.owe(id, Owed::Transmit);
                if consumed_bytes == 0 {
                    return Ok(Received::NeedMore { bytes_min: HEADER_BYTES });
                }
            }
            Next::Established(established) => self.establish(now, id, established, observer)?,
        }
        Ok(Received::Handled { consumed_bytes })
    }

    /// Applies the server's hello: to its description or, behind a load balancer, to the
    /// connection's generation.
    ///
    /// A hello of a connection that was created before the last clear is ignored: only a check can
    /// show that the server is available again.
    fn take_hello(
        &mut self,
        now: Instant,
        id: ConnId,
        handled: &Handled<'_>,
        observer: &mut impl ServerObserver,
    ) -> Result<(), HandshakeError> {
        let Some(hello) = &handled.hello else { return Ok(()) };
        match hello.service_id.filter(|_| self.hello.load_balanced) {
            Some(service_id) => match self.pool.handle_service(id, service_id) {
                Ok(_) | Err(pool::ServiceError::Stale | pool::ServiceError::WrongMode) => {}
                Err(pool::ServiceError::Full) => return Err(HandshakeError::new(Phase::Hello, Cause::Resources)),
            },
            None if self.pool.conn_generation(id) == Some(self.pool.generation()) => {
                self.control.handle_app_hello(now, self.server, hello, observer);
                self.route(now, observer);
            }
            None => {}
        }
        Ok(())
    }

    fn establish(
        &mut self,
        now: Instant,
        id: ConnId,
        established: Established,
        observer: &mut impl ServerObserver,
    ) -> Result<(), Stale> {
        self.set_due(id, None);
        if let Some(conn) = self.conn_mut(id) {
            conn.state = State::Ready { established, exchange: Exchange::IDLE };
        }
        let taken = self.pool.handle_established(now, id, observer);
        if taken.is_err() {
            self.vacate(id);
        }
        taken
    }

    /// Handles a decoded reply to a command, and the errors in it.
    fn take_reply<'b>(
        &mut self,
        now: Instant,
        id: ConnId,
        received: usize,
        decoded: Result<Decoded<'b, (Message<'b>, Matched)>, WireError>,
        observer: &mut impl ServerObserver,
    ) -> Result<Received<'b>, SocketError> {
        let parsed = decoded.and_then(|decoded| match decoded {
            Decoded::Done { value: (message, _), .. } if !CommandReply::is_plain_success(message.body()) => {
                Ok((decoded, Some(CommandReply::parse(message.body())?)))
            }
            Decoded::Done { .. } | Decoded::NeedMore { .. } => Ok((decoded, None)),
        });
        let (decoded, reply) = match parsed {
            Ok(parsed) => parsed,
            Err(wire) => {
                self.fail_established(now, id, Cause::Protocol, observer);
                return Err(SocketError::Wire(wire));
            }
        };
        let (message, matched, rest) = match decoded {
            Decoded::NeedMore { bytes_min } => return Ok(Received::NeedMore { bytes_min }),
            Decoded::Done { value: (message, matched), rest } => (message, matched, rest),
        };
        if matched == Matched::Last {
            self.set_due(id, None);
        }
        if let Some(reply) = reply {
            let error = |code, message: Option<&'b str>| ReplyError { code, message: message.unwrap_or_default() };
            let command = (!reply.ok).then(|| error(reply.code, reply.message));
            let write_concern = reply.write_concern_error.map(|it| error(it.code, it.message));
            let topology_version = reply.topology_version;
            let kind = AppErrorKind::Command(CommandError { command, write_concern, topology_version });
            self.judge(now, id, kind, observer);
        }
        Ok(Received::Reply { message, matched, consumed_bytes: received.saturating_sub(rest.len()) })
    }

    /// Handles the bytes of a connection of the monitor.
    fn handle_check_input<'b>(
        &mut self,
        now: Instant,
        id: MonitorConnId,
        input: &'b [u8],
        observer: &mut impl ServerObserver,
    ) -> Result<Received<'b>, SocketError> {
        let conn = self.monitor_conn_mut(id).ok_or(Stale)?;
        let (result, received) = match conn.exchange.handle_input(input) {
            Ok(Decoded::NeedMore { bytes_min }) => return Ok(Received::NeedMore { bytes_min }),
            Ok(Decoded::Done { value: (reply, matched), rest }) => {
                // The next reply of a stream may have arrived together with the previous one.
                self.control.take_read(self.server, id);
                let result = self.control.handle_reply(now, self.server, id, &reply, matched, observer);
                (result, Ok(Received::Handled { consumed_bytes: input.len().saturating_sub(rest.len()) }))
            }
            Err(wire) => {
                let result = self.control.handle_failed(now, self.server, id, Cause::Protocol, observer);
                (result, Err(SocketError::Wire(wire)))
            }
        };
        self.route(now, observer);
        result?;
        received
    }
}
