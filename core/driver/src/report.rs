//! Reports about servers to the topology: from monitor connections, failed operations, and the
//! establishment of connections.
//!
//! Each report is evaluated and its consequences, pools included, are applied in one step of the
//! client core.

use super::client_core::ClientCore;
use super::runtime::{Locked, Runtime, register};
use core::task::{Poll, Waker};
use poolhouse_core::monitor::{MonitorAction, MonitorConnKind};
use poolhouse_core::observe::{EventContext, Within};
use poolhouse_core::pool::{ConnId, EstablishError};
use poolhouse_core::topology::{AppError, AppErrorKind, CommandError, HandshakePhase, ReplyError};
use poolhouse_core::{Cause, ServerId};
use poolhouse_wire::Labels;
use poolhouse_wire::command::CommandReply;
use poolhouse_wire::handshake::HandshakeError;
use poolhouse_wire::hello::HelloReply;

impl<R: Runtime> ClientCore<R> {
    /// Reports that an operation failed on a connection. If the topology decides so, the pool is
    /// cleared before the connection is returned.
    pub(super) fn report_failure(&self, server: &R::ServerHandle, conn: ConnId, cause: Cause) {
        if !cause.is_network() {
            return;
        }
        let kind = if cause == Cause::NetworkTimeout { AppErrorKind::NetworkTimeout } else { AppErrorKind::Network };
        self.report(server, conn, kind);
    }

    /// Reports an operation's reply that contains an error.
    pub(super) fn report_reply(&self, server: &R::ServerHandle, conn: ConnId, reply: &CommandReply<'_>) {
        let command = (!reply.ok).then(|| ReplyError { code: reply.code, message: reply.message.unwrap_or_default() });
        let write_concern = reply
            .write_concern_error
            .map(|error| ReplyError { code: error.code, message: error.message.unwrap_or_default() });
        let topology_version = reply.topology_version;
        self.report(server, conn, AppErrorKind::Command(CommandError { command, write_concern, topology_version }));
    }

    fn report(&self, server: &R::ServerHandle, conn: ConnId, kind: AppErrorKind<'_>) {
        let reason = server.reason_of(kind.cause());
        self.step(|state, now, tap| {
            let Some(origin) = server.origin(conn) else { return };
            let error = AppError {
                generation: origin.generation,
                pool_generation: origin.pool_generation,
                phase: HandshakePhase::After,
                kind,
                overloaded: false,
                service_id: origin.service_id,
            };
            let mut tap = Within::new(tap, EventContext::NONE.with_reason(&reason));
            let verdict = state.control.handle_app_error(now, server.id(), &error, &mut tap);
            if let Some(clear) = verdict.clear {
                state.command(server.id(), |server| server.clear(now, clear, kind.cause()));
            }
        });
    }

    /// Reports that a connection could not be established, to the topology and to the pool in one
    /// step.
    pub(super) fn report_establish_failed(&self, server: &R::ServerHandle, conn: ConnId, error: &HandshakeError) {
        let reason = server.reason_of(error.cause);
        let _waker = self.step(|state, now, tap| {
            let origin = server.origin(conn)?;
            let overloaded = error.labels.contains(Labels::SYSTEM_OVERLOADED_ERROR);
            let kind = AppErrorKind::from(error);
            let report = AppError {
                generation: origin.generation,
                pool_generation: origin.pool_generation,
                phase: HandshakePhase::Before,
                kind,
                overloaded,
                service_id: origin.service_id,
            };
            let mut tap = Within::new(tap, EventContext::NONE.with_reason(&reason));
            let verdict = state.control.handle_app_error(now, server.id(), &report, &mut tap);
            let failed = EstablishError { cause: error.cause, overloaded, clear: verdict.clear };
            let mut waker = None;
            state.command(server.id(), |server| waker = server.fail_establish(now, conn, failed, &reason));
            waker
        });
    }

    /// Reports the hello of an application's connection.
    ///
    /// Ignored if the pool was cleared since the connection was created: the server was marked as
    /// unknown after that, and only a check can show that it is available again.
    pub(super) fn report_hello(&self, server: &R::ServerHandle, conn: ConnId, hello: &HelloReply<'_>) {
        self.step(|state, now, tap| {
            if server.origin(conn).is_some_and(|origin| origin.generation == origin.pool_generation) {
                state.control.handle_app_hello(now, server.id(), hello, tap);
            }
        });
    }

    /// The next action of a monitor connection; `None` once it has ended.
    pub(super) fn poll_conn(
        &self,
        server: ServerId,
        kind: MonitorConnKind,
        waker: &Waker,
    ) -> Poll<Option<MonitorAction>> {
        let mut waker = Some(waker.clone());
        self.state.with(|state| {
            let now = self.now();
            if let Some(action) = state.control.poll_conn(now, server, kind) {
                return Poll::Ready(Some(action));
            }
            if state.control.is_ended(server) {
                return Poll::Ready(None);
            }
            if let Some(entry) = state.entry(server) {
                register(if kind == MonitorConnKind::Check { &mut entry.check } else { &mut entry.rtt }, &mut waker);
            }
            Poll::Pending
        })
    }
}
