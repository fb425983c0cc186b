//! The output of a server machine: actions, bytes and the next timeout.

use super::ServerMachine;
use super::types::{MonitorConn, Owed, PoolConn, ServerAction, SocketId, State};
use crate::monitor::{MonitorAction, MonitorConnId, MonitorConnKind};
use crate::pool::{self, ConnId, PoolAction};
use crate::storage::{Full, Store};
use crate::topology;
use crate::{Cause, Instant};
use poolhouse_wire::hello::HelloExchange;
use poolhouse_wire::{Authenticator, EncodeError, Sink};

impl<'a, P: pool::Memory, T: topology::Memory, A: Authenticator> ServerMachine<'a, P, T, A> {
    /// Returns the next action owed to the host, or `None`.
    ///
    /// Cost: O(1); O(connections) while handshakes have bytes to send or deadlines have passed.
    pub fn poll_action(&mut self, now: Instant) -> Option<ServerAction> {
        if let Some(id) = self.take_owed(Owed::Close) {
            if self.pool.conn_generation(id).is_none() {
                self.vacate(id);
            }
            return Some(ServerAction::Close(SocketId::Pool(id)));
        }
        for conn in [MonitorConnKind::Check, MonitorConnKind::Rtt] {
            while let Some(action) = self.control.poll_conn(now, self.server, conn) {
                match action {
                    MonitorAction::Dial(id) => {
                        self.lines[conn_index(conn)] =
                            Some(MonitorConn { id, exchange: HelloExchange::new(), hello: None });
                        return Some(ServerAction::Dial(SocketId::Monitor(id)));
                    }
                    MonitorAction::SendHello { conn: id, hello } => {
                        if let Some(conn) = self.monitor_conn_mut(id) {
                            conn.hello = Some(hello);
                        }
                        return Some(ServerAction::Transmit(SocketId::Monitor(id)));
                    }
                    MonitorAction::Hangup(id) => {
                        self.lines[conn_index(conn)].take_if(|conn| conn.id == id);
                        return Some(ServerAction::Close(SocketId::Monitor(id)));
                    }
                    // No action: the host passes all received bytes to `handle_input`.
                    MonitorAction::ReadNext { .. } => {}
                }
            }
        }
        if let Some(action) = self.pool.poll_action(now) {
            return Some(match action {
                PoolAction::Wake(waiter) => ServerAction::Wake(waiter),
                PoolAction::Establish(id) => {
                    // If no memory is left, `handle_dialed` fails the connection.
                    let _ = self.occupy(now, id);
                    ServerAction::Dial(SocketId::Pool(id))
                }
                PoolAction::Interrupt(id) if self.pool.conn_generation(id).is_some() => {
                    self.set_due(id, None);
                    if let Some(conn) = self.conn_mut(id) {
                        conn.state = State::Failed(Cause::Interrupted);
                    }
                    ServerAction::Close(SocketId::Pool(id))
                }
                PoolAction::Interrupt(id) | PoolAction::Close(id) => {
                    self.vacate(id);
                    ServerAction::Close(SocketId::Pool(id))
                }
            });
        }
        if let Some(id) = self.take_owed(Owed::Transmit) {
            return Some(ServerAction::Transmit(SocketId::Pool(id)));
        }
        core::mem::take(&mut self.checked).then_some(ServerAction::Checked)
    }

    /// Writes the bytes that are due on a socket at the end of `sink`. Returns `false` if no bytes
    /// are due.
    ///
    /// The bytes of a command are written by [`write_command`](Self::write_command).
    ///
    /// # Errors
    ///
    /// [`EncodeError`]: the sink has no room; the bytes remain due. A host that cannot send them
    /// calls [`handle_failed`](Self::handle_failed) with [`Cause::Resources`].
    ///
    /// Source: CMAP, "Establishing a Connection"; Server Monitoring, "hello or legacy hello".
    pub fn poll_transmit(&mut self, socket: SocketId, sink: &mut impl Sink) -> Result<bool, EncodeError> {
        match socket {
            SocketId::Pool(id) => match self.conn_mut(id).map(|conn| &mut conn.state) {
                Some(State::Greeting(handshake)) => {
                    handshake.poll_transmit(sink).map_err(|error| error.encode.unwrap_or(EncodeError::Full))
                }
                Some(State::Dialing | State::Ready { .. } | State::Failed(_)) | None => Ok(false),
            },
            SocketId::Monitor(id) => {
                let hello = self.hello;
                let Some(conn) = self.monitor_conn_mut(id) else { return Ok(false) };
                let Some(kind) = conn.hello else { return Ok(false) };
                conn.exchange.send_hello(kind, &hello, sink)?;
                conn.hello = None;
                Ok(true)
            }
        }
    }

    /// The earliest instant at which work is due; `None` if and only if no work is due. Cost: O(1).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.due.earliest(), self.control.poll_timeout(), self.pool.poll_timeout()].into_iter().flatten().min()
    }

    pub(super) fn monitor_conn_mut(&mut self, id: MonitorConnId) -> Option<&mut MonitorConn> {
        self.lines[conn_index(id.kind())].as_mut().filter(|conn| conn.id == id)
    }

    /// Takes the first owed action of this kind.
    fn take_owed(&mut self, owed: Owed) -> Option<ConnId> {
        if self.owing == 0 {
            return None;
        }
        let id = self.conns.slots().iter().flatten().find(|conn| conn.owed == owed)?.id;
        self.owe(id, Owed::Nothing);
        Some(id)
    }

    /// Initializes the slot of a connection that is about to be established. May allocate.
    fn occupy(&mut self, now: Instant, id: ConnId) -> Result<(), Full> {
        let index = id.index() as usize;
        self.due.grow(index + 1)?;
        while self.conns.slots().len() <= index {
            self.conns.try_push(None)?;
        }
        let slot = &mut self.conns.slots_mut()[index];
        assert!(slot.is_none(), "the previous connection of the slot was not closed before the dial");
        *slot = Some(PoolConn { id, owed: Owed::Nothing, state: State::Dialing });
        let deadline = self.connect_timeout.map(|limit| now.saturating_add(limit));
        self.set_due(id, deadline);
        Ok(())
    }
}

/// The slot of a connection of the monitor.
const fn conn_index(kind: MonitorConnKind) -> usize {
    match kind {
        MonitorConnKind::Check => 0,
        MonitorConnKind::Rtt => 1,
    }
}
