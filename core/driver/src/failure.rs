//! Why a server cannot be reached: the reasons that the driver adds to the errors of sockets, and
//! their storage.

#[cfg(feature = "std")]
#[cfg(test)]
mod tests;

use super::client_core::ClientCore;
#[cfg(feature = "alloc")]
use super::runtime::Locked;
use super::runtime::{ConnectError, Runtime};
use super::server::Server;
use core::fmt;
use poolhouse_core::{Cause, Reason};
#[cfg(feature = "alloc")]
use poolhouse_core::{
    ServerType,
    monitor::{MonitorAction, MonitorConnKind},
    pool::{CheckOutError, PoolCounts},
    selection::DetailedSelectionError,
    topology::{ServerError, TopologyDescription},
};
use poolhouse_wire::Phase;
use poolhouse_wire::handshake::HandshakeError;
#[cfg(feature = "alloc")]
use poolhouse_wire::{hello::HelloReply, peer_text::one_line};

/// A failure that the driver itself detects, without an error of the runtime.
#[derive(Clone, Copy, Debug)]
pub(super) enum Finding {
    /// A read returned no bytes.
    Closed,
    /// The time ran out in this phase.
    TimedOut(Phase),
    /// The pool had no connection in time.
    #[cfg(feature = "alloc")]
    Exhausted { in_use: u32, pending: u32, max_pool_size: u32, waiting: u32 },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the server closed the connection",
            // A runtime performs these three phases in one call.
            Self::TimedOut(Phase::Connect | Phase::Proxy | Phase::Tls) => {
                "the connection (name lookup, TCP, TLS) was not established in time"
            }
            Self::TimedOut(Phase::Hello) => "the server did not reply to hello in time",
            Self::TimedOut(Phase::Authentication) => "the server did not reply to the authentication in time",
            #[cfg(feature = "alloc")]
            Self::Exhausted { in_use, pending, max_pool_size, waiting } => {
                if *max_pool_size > 0 {
                    write!(f, "maxPoolSize {max_pool_size}, ")?;
                }
                return write!(f, "{in_use} in use, {pending} being established, {waiting} others waiting");
            }
        })
    }
}

impl core::error::Error for Finding {}

impl From<Finding> for Reason {
    fn from(finding: Finding) -> Self {
        Self::new(finding)
    }
}

/// Why a connection was not established: the error of the handshake, and the underlying error.
pub(super) struct NotEstablished {
    pub(super) error: HandshakeError,
    pub(super) reason: Reason,
}

impl From<HandshakeError> for NotEstablished {
    fn from(error: HandshakeError) -> Self {
        Self { error, reason: error.wire.map_or(Reason::NONE, Reason::new) }
    }
}

impl NotEstablished {
    /// The time ran out.
    pub(super) fn timed_out(error: HandshakeError) -> Self {
        Self { error, reason: Finding::TimedOut(error.phase).into() }
    }
}

/// A guess why a server's first bytes are not of the protocol, or do not arrive.
#[cfg(feature = "alloc")]
#[derive(Clone, Copy, Debug)]
enum Guess {
    Http,
    Tls,
    /// No byte has arrived.
    PerhapsTls,
}

/// A reason with a guess.
#[cfg(feature = "alloc")]
#[derive(Debug)]
struct Guessed {
    reason: Reason,
    guess: Guess,
}

#[cfg(feature = "alloc")]
impl fmt::Display for Guessed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.guess {
            Guess::Http => f.write_str("the bytes are not MongoDB's protocol; the server replies in HTTP"),
            Guess::Tls => f.write_str("the server replies in TLS; does it require TLS? (tls=true)"),
            Guess::PerhapsTls => write!(f, "{}; does the server require TLS? (tls=true)", self.reason),
        }
    }
}

#[cfg(feature = "alloc")]
impl core::error::Error for Guessed {
    /// Returns the reason even if the text contains it, because it may be the operating system's
    /// error.
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        self.reason.source()
    }
}

/// Adds a guess, if there is one, to the error of a connection without a first reply.
///
/// - `received`: the bytes that have arrived.
/// - `is_encrypted`: whether they arrived through TLS or a Unix domain socket.
#[cfg(feature = "alloc")]
pub(super) fn hinted(failure: ConnectError, received: &[u8], is_encrypted: bool) -> ConnectError {
    if !matches!(failure.cause, Cause::Network | Cause::Protocol) {
        return failure;
    }
    let guess = match received {
        [b'H', b'T', b'T', b'P', ..] => Guess::Http,
        // The type of a TLS record, and versions 1.0 to 1.3.
        [0x14..=0x17, 3, 1..=4, ..] if !is_encrypted => Guess::Tls,
        [] if !is_encrypted => Guess::PerhapsTls,
        _ => return failure,
    };
    ConnectError { cause: failure.cause, reason: Reason::new(Guessed { reason: failure.reason, guess }) }
}

impl<R: Runtime> Server<R> {
    /// Stores why the server could not be reached, until a connection for an operation is
    /// established or until the next failure.
    pub(super) fn note_failure(&self, failure: ConnectError) {
        #[cfg(feature = "alloc")]
        let _before = self.state.with(|state| state.failure.replace(failure));
        #[cfg(not(feature = "alloc"))]
        let _ = failure;
    }

    /// Discards the stored failure: a connection for an operation is established.
    pub(super) fn forget_failure(&self) {
        #[cfg(feature = "alloc")]
        let _before = self.state.with(|state| state.failure.take());
    }

    /// The reason of the last failure, if it was of this cause.
    #[cfg(feature = "alloc")]
    pub(super) fn reason_of(&self, cause: Cause) -> Reason {
        self.state
            .with(|state| state.failure.as_ref().filter(|failure| failure.cause == cause).cloned())
            .map_or(Reason::NONE, |ConnectError { reason, .. }| reason)
    }

    /// No reason is kept without a heap.
    #[cfg(not(feature = "alloc"))]
    pub(super) const fn reason_of(&self, _: Cause) -> Reason {
        Reason::NONE
    }

    /// The reason of a check-out's error.
    #[cfg(feature = "alloc")]
    pub(super) fn reason_of_check_out(&self, error: CheckOutError) -> Reason {
        if let CheckOutError::EstablishFailed { cause, .. } | CheckOutError::PoolCleared { cause: Some(cause) } = error
        {
            return self.reason_of(cause);
        }
        if error != (CheckOutError::WaitQueueTimeout { usage: None }) {
            return Reason::NONE;
        }
        self.state.with(|state| {
            let PoolCounts { in_use, pending, waiting, .. } = state.driven.pool.counts();
            let max_pool_size = state.driven.pool.config().options().max_pool_size;
            Finding::Exhausted { in_use, pending, max_pool_size, waiting }.into()
        })
    }
}

impl<R: Runtime> ClientCore<R> {
    /// Stores why a connection could not be dialed, and converts the error.
    pub(super) fn not_dialed(&self, server: &R::ServerHandle, error: ConnectError) -> HandshakeError {
        let failed = HandshakeError::new(Phase::Connect, error.cause);
        server.note_failure(error);
        failed
    }

    /// Stores the phase in which a monitor's check timed out, if it did.
    ///
    /// - `abandoned`: the action that was in progress.
    #[cfg(feature = "alloc")]
    pub(super) fn note_late_check(&self, server: &R::ServerHandle, abandoned: MonitorAction) {
        let (conn, phase) = match abandoned {
            MonitorAction::Dial(conn) => (conn, Phase::Connect),
            MonitorAction::SendHello { conn, .. } | MonitorAction::ReadNext { conn } => (conn, Phase::Hello),
            MonitorAction::Hangup(_) => return,
        };
        let cause = Cause::NetworkTimeout;
        let is_late = self.state.with(|state| {
            let description = state.control.topology().server(server.id());
            description.is_some_and(|description| description.error() == Some(ServerError::Failed(cause)))
        });
        if is_late && conn.kind() == MonitorConnKind::Check {
            server.note_failure(ConnectError::new(cause, Finding::TimedOut(phase).into()));
        }
    }

    /// Handles a server's reply to a check. If the server does not belong to the deployment that
    /// the client is configured for, its type and its set are stored.
    #[cfg(feature = "alloc")]
    pub(super) fn note_reply(&self, server: &R::ServerHandle, hello: &HelloReply<'_>) {
        let is_fit = self.state.with(|state| {
            let found = state.control.topology().server(server.id());
            found.is_some_and(|server| server.error() != Some(ServerError::WrongSetName))
        });
        self.note_fitness(server, hello, is_fit);
    }

    /// [`Self::note_reply`], after the topology has judged the reply.
    ///
    /// - `is_fit`: whether the server is still a member, and not of another set.
    #[cfg(feature = "alloc")]
    pub(super) fn note_fitness(&self, server: &R::ServerHandle, hello: &HelloReply<'_>, is_fit: bool) {
        if !is_fit {
            let misfit = Misfit {
                address: server.address().into(),
                server_type: hello.server_type(),
                set_name: hello.set_name.map(|name| one_line(name).collect()),
            };
            let _before = self.state.with(|state| state.misfit.replace(misfit));
        } else if hello.server_type().is_known() {
            // A member was found, so an earlier misfit does not explain a later failure to find
            // one.
            let _before = self.state.with(|state| state.misfit.take());
        }
    }
}

/// The last server that does not belong to the deployment, for the error of a selection that finds
/// no server.
#[cfg(feature = "alloc")]
pub(super) struct Misfit {
    address: alloc::boxed::Box<str>,
    server_type: ServerType,
    set_name: Option<alloc::string::String>,
}

#[cfg(feature = "alloc")]
impl Misfit {
    /// The hint for a failed selection, while the type of no server is known.
    pub(super) fn hint(&self, topology: &TopologyDescription<'_>) -> Option<alloc::string::String> {
        use alloc::format;
        let Self { address, server_type, set_name } = self;
        if topology.servers().any(|server| server.server_type().is_known()) {
            return None;
        }
        let asked = topology.set_name()?;
        match set_name {
            Some(name) if name != asked => {
                Some(format!("the client looks for replica set {asked:?}; {address} is a member of {name:?}"))
            }
            None => Some(format!(
                "the client looks for replica set {asked:?}; {address} is not a member of one (its type is {server_type})"
            )),
            Some(_) => {
                let mut servers = topology.servers();
                let unresolved = Some(ServerError::Failed(Cause::Dns));
                let is_unresolved =
                    topology.servers().next().is_some() && servers.all(|server| server.error() == unresolved);
                is_unresolved.then(|| {
                    format!(
                        "the configuration of the replica set, which {address} is a member of, names its members by these hosts; \
                         this machine must be able to resolve them, or use directConnection=true"
                    )
                })
            }
        }
    }
}

/// Adds notes on the servers, and a hint, to the error of a selection.
#[cfg(feature = "alloc")]
pub(super) fn explain_selection<R: Runtime>(
    mut detail: DetailedSelectionError,
    now: poolhouse_core::Instant,
    state: &super::client_core::State<R>,
) -> DetailedSelectionError {
    use poolhouse_core::monitor::Monitor;
    use poolhouse_core::selection::ServerNote;
    use poolhouse_core::storage::Store as _;
    let topology = state.control.topology();
    for entry in state.servers.slots().iter().flatten() {
        let Some(description) = topology.server(entry.id) else { continue };
        let note = match description.error() {
            Some(ServerError::Failed(cause)) => {
                Some(entry.server.reason_of(cause)).filter(|reason| !reason.is_none()).map(ServerNote::Failed)
            }
            None if !description.server_type().is_known() => {
                state.control.monitor(entry.id).and_then(Monitor::check_in_flight).map(|check| {
                    let time = now.saturating_since(check.since);
                    if check.is_dialing { ServerNote::Connecting(time) } else { ServerNote::Awaiting(time) }
                })
            }
            Some(_) | None => None,
        };
        if let Some(note) = note {
            detail.add_note(entry.id, note);
        }
    }
    let hint = state.misfit.as_ref().and_then(|misfit| misfit.hint(&topology.description()));
    if let Some(hint) = hint {
        detail.add_hint(hint);
    }
    detail
}
