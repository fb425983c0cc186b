//! Evaluation of an application's error: its effect on the description and the pool of its server.
//!
//! Read first: SDAM, "Error handling": "Which errors are stale", "Network error when reading or
//! writing", "Not writable primary and node is recovering", "Authentication and handshake errors".

use super::action::{AppError, AppErrorKind, CommandError, HandshakePhase, ReplyError, Verdict};
use super::error::{ServerError, StateChange};
use super::event::SdamObserver;
use super::memory::Memory;
use super::{Topology, TopologyType};
use crate::pool::Clear;
use crate::storage::Store;
use crate::{Cause, Instant, ServerId, TopologyVersion};

/// The consequences of an error that is not stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Judgement {
    error: ServerError,
    topology_version: Option<TopologyVersion>,
    clear: bool,
    check: bool,
    cancel: bool,
    scan: bool,
}

impl<M: Memory> Topology<M> {
    /// Handles an error of an application's operation, or of the establishment of a connection for
    /// it.
    ///
    /// The error is ignored when it is stale: its generation differs from the pool's, its
    /// topologyVersion is not newer than the server's, or its server is not a member. Also ignored
    /// are: an error that reports an overloaded server, a network timeout on an established
    /// connection, and an error that concerns only one operation.
    ///
    /// - `now`: must be from the same clock in all calls. `error`: contains the generations of its
    ///   connection and of its pool.
    ///
    /// Returns the consequences. If `clear` is set, the caller clears the pool in the same step,
    /// before any other task accesses the pool or the topology. In a load-balanced topology only
    /// the service's connections are cleared, and the description stays unchanged.
    ///
    /// Cost: O(members), no allocation. Owes `RequestCheck` or `CancelCheck` according to the
    /// verdict, and `WakeSelectors`.
    /// Events: `ServerDescriptionChanged` and `TopologyDescriptionChanged`, for changes that
    /// occurred.
    ///
    /// Source: SDAM, "Error handling".
    pub fn handle_app_error(
        &mut self,
        now: Instant,
        server: ServerId,
        error: &AppError<'_>,
        observer: &mut impl SdamObserver,
    ) -> Verdict {
        let now = self.advance(now);
        let Some(index) = self.slot_of(server) else { return Verdict::default() };
        if error.generation != error.pool_generation {
            return Verdict::default();
        }
        let Some(judgement) = judge(error) else { return Verdict::default() };
        let is_balanced = self.meta.topology_type == TopologyType::LoadBalanced;
        if is_balanced {
            let clear = error.service_id.filter(|_| judgement.clear).map(Clear::Service);
            return Verdict { clear, ..Verdict::default() };
        }
        let known = self.servers.slots()[index].description.data.topology_version;
        if is_not_newer(judgement.topology_version, known) {
            return Verdict::default();
        }
        self.mark_unknown(now, index, judgement.error, judgement.topology_version, observer);
        self.owe(index, |owed| {
            owed.check |= judgement.check;
            owed.cancel |= judgement.cancel;
        });
        Verdict {
            clear: judgement.clear.then_some(Clear::All { interrupt_in_use_connections: false }),
            marked_unknown: true,
            request_check: judgement.check,
            cancel_check: judgement.cancel,
            scan_stale: judgement.scan,
        }
    }
}

/// Whether an error's topologyVersion is not newer than the stored one.
fn is_not_newer(error: Option<TopologyVersion>, known: Option<TopologyVersion>) -> bool {
    match (error, known) {
        (Some(error), Some(known)) => error.process_id == known.process_id && error.counter <= known.counter,
        (None, _) | (_, None) => false,
    }
}

/// The consequences of an error that is not stale; `None` if it is unrelated to its server's state.
fn judge(error: &AppError<'_>) -> Option<Judgement> {
    let before = error.phase == HandshakePhase::Before;
    if before && error.overloaded {
        return None;
    }
    let failed = |cause| Judgement {
        error: ServerError::Failed(cause),
        topology_version: None,
        clear: true,
        check: false,
        // The check in flight may wait for heartbeatFrequencyMS. A new check, on a new connection,
        // detects sooner whether the server is available again.
        cancel: before || cause == Cause::Network,
        scan: false,
    };
    match error.kind {
        AppErrorKind::Command(reply) => match state_change(&reply) {
            Some((change, code)) => Some(Judgement {
                error: ServerError::StateChange { change, code },
                topology_version: reply.topology_version,
                clear: before || change == StateChange::ShuttingDown,
                check: true,
                cancel: before,
                scan: change != StateChange::Recovering,
            }),
            None => {
                let command = reply.command.filter(|_| before)?;
                let code = command.code.unwrap_or(0);
                let topology_version = reply.topology_version;
                Some(Judgement { topology_version, ..failed(Cause::Command { code }) })
            }
        },
        AppErrorKind::Network => (!error.overloaded).then_some(failed(Cause::Network)),
        AppErrorKind::NetworkTimeout => before.then_some(failed(Cause::NetworkTimeout)),
        AppErrorKind::Other(cause) => (before && !is_own(cause)).then_some(failed(cause)),
    }
}

/// Whether a failure originates in this client and is unrelated to the server's state.
const fn is_own(cause: Cause) -> bool {
    matches!(cause, Cause::Cancelled | Cause::Closed | Cause::Forked | Cause::Interrupted | Cause::Resources)
}

/// The state change in a reply, and its code: from the reply's own error, or else from its write
/// concern error.
fn state_change(reply: &CommandError<'_>) -> Option<(StateChange, i32)> {
    let errors = [reply.command, reply.write_concern];
    errors.into_iter().flatten().find_map(|error| state_change_of(&error))
}

/// Derived from the code, if there is one, otherwise from the message.
fn state_change_of(error: &ReplyError<'_>) -> Option<(StateChange, i32)> {
    let change = match error.code {
        Some(code) => StateChange::of_code(code)?,
        None if error.message.contains("not master or secondary") => StateChange::Recovering,
        None if error.message.contains("node is recovering") => StateChange::Recovering,
        None if error.message.contains("not master") => StateChange::NotWritablePrimary,
        None => return None,
    };
    Some((change, error.code.unwrap_or(0)))
}
