//! Whether an operation may end as it does.

use super::{AMPLE, CHECKED_AGAIN, CommandPlan, ESTABLISHED, Failed, LATE_MAX, Operation, Work};
use crate::kind::Kind;
use crate::network::cassandra::KEYSPACES;
use crate::network::plan::{MS, nanos};
use crate::network::state::{Command, State};
use crate::network::truth::Deployment;
use core::time::Duration;
use poolhouse_cql::Token;

impl State {
    /// - `must_succeed`: no fault can affect it, except connections that were broken before.
    pub(in crate::network) fn begin_operation(&mut self, id: u64, work: &Work, must_succeed: bool) {
        let timeout = match work {
            Work::Command(CommandPlan { timeout, .. }) | Work::Query { timeout, .. } => {
                timeout.or(self.plan.client.timeout)
            }
            Work::WarmUp { timeout } => *timeout,
            Work::UseKeyspace { .. } => self.plan.client.timeout,
            _ => None,
        };
        let limit = if let Work::Session { timeout, .. } = work { *timeout } else { timeout };
        let is_hurried = self.peace && limit.is_some_and(|limit| limit < AMPLE);
        if is_hurried && must_succeed {
            self.counters.count(Kind::Hurried);
        }
        let (is_judged, must_succeed) = (must_succeed, must_succeed && !is_hurried);
        let late = self.late_max();
        let (begun, begun_clock) = (self.now, self.clock_ns());
        let deadline = timeout.and_then(|timeout| begun_clock.checked_add(u64::try_from(timeout.as_nanos()).ok()?));
        let number = match work {
            Work::Command(command) => Some(command.number),
            Work::Query { number, .. } => Some(*number),
            Work::Use { commands, .. } => commands.first().map(|(_, number)| *number),
            _ => None,
        };
        let hangs = number.is_some_and(|number| self.commands[&number].hangs);
        let is_remote = !matches!(
            work,
            Work::Reconfigure(_)
                | Work::ReconfigureMux(_)
                | Work::Subscribe(_)
                | Work::Inspect
                | Work::InSession { .. }
                | Work::Clear
                | Work::Resize(_)
        );
        self.keyspace_calls += u32::from(matches!(work, Work::UseKeyspace { .. }));
        self.trace_line(|| format!("operation {id}: {work:?}"));
        let text = format!("{work:?}");
        let closed_by = if is_remote { self.closed_by } else { &[] };
        let operation = Operation {
            begun,
            deadline,
            begun_clock,
            must_succeed,
            is_hurried: is_hurried && is_judged,
            late,
            hangs,
            is_remote,
            is_session: matches!(work, Work::Session { .. }),
            changes_keyspace: matches!(work, Work::UseKeyspace { .. }),
            query: match work {
                Work::Query { number, is_idempotent, .. } => Some((*number, *is_idempotent)),
                _ => None,
            },
            routed: match work {
                Work::Query { number, location: Some((_, key)), .. } => {
                    Some((*number, Token::of(&key.to_be_bytes()).number()))
                }
                _ => None,
            },
            closed_by,
            text,
        };
        self.operations.insert(id, operation);
    }

    /// An operation has ended; without a result, its future was dropped.
    pub(in crate::network) fn end_operation(&mut self, id: u64, result: Option<&Result<(), Failed>>) {
        let work = self.operations.get(&id).map(|operation| operation.text.clone()).unwrap_or_default();
        self.affect(|| match result {
            Some(Ok(())) => format!("an operation succeeds: {work}"),
            Some(Err(error)) => format!("an operation fails: {work}: {}", error.text),
            None => format!("an operation is dropped: {work}"),
        });
        self.trace_line(|| match result {
            Some(Ok(())) => format!("operation {id} succeeds"),
            Some(Err(error)) => format!("operation {id} fails: {}", error.text),
            None => format!("operation {id} is dropped"),
        });
        let Some(operation) = self.operations.remove(&id) else {
            return self.violate(|| format!("operation {id} ends twice"));
        };
        // The time limit of a queued request ends it without an event, too.
        if self.truth.deployment == Deployment::Cluster && operation.is_remote && !matches!(result, Some(Ok(()))) {
            self.silent_ends.push(self.clock());
        }
        let Some(result) = result else { return };
        let clock = self.clock_ns();
        let jumped = self.jumped_at.is_some_and(|at| at >= operation.begun);
        if let Some(deadline) = operation.deadline.filter(|_| !jumped) {
            self.counters.checks.add("P19");
            let late = operation.late;
            if clock > deadline + late {
                self.violate(|| format!("P19: an operation ends late: {}", operation.text));
            }
        }
        if !operation.closed_by.is_empty() {
            let is_right = matches!(result, Err(Failed { kind: Some(kind), .. }) if operation.closed_by.contains(kind));
            self.counters.checks.add("P42");
            if !is_right {
                self.violate(|| {
                    format!("P42: an operation on a closed client ends with {result:?}: {}", operation.text)
                });
            }
        }
        match result {
            Ok(()) => {
                self.counters.count(Kind::OpDone);
                self.check_place(&operation);
            }
            Err(Failed { kind, text: error, round_trip }) => {
                let Some(kind) = *kind else {
                    return self.violate(|| format!("no operation may fail in this way: {error}"));
                };
                self.counters.count(kind);
                let has_cause = match kind {
                    Kind::OpClosed => self.is_closed,
                    Kind::OpAbandoned => self.is_abandoned,
                    Kind::OpRefused => operation.query.is_none_or(|(number, _)| self.commands[&number].is_refused),
                    _ => true,
                };
                self.counters.checks.add("P31");
                if !has_cause {
                    self.violate(|| format!("P31: an operation fails for a reason that is not its own: {error}"));
                }
                let is_early = kind == Kind::OpTimeout
                    && operation.deadline.is_some_and(|deadline| clock + round_trip < deadline)
                    && (self.plan.client.socket_timeout.is_none() || self.truth.deployment == Deployment::Cluster);
                if is_early {
                    let after = clock - operation.begun_clock;
                    self.violate(|| format!("P19: an operation times out early, after {after} ns: {}", operation.text));
                }
                // The pause before the retry of an overload is longer than most of these limits.
                let has_cause = self.is_excused(&operation, kind)
                    || operation.is_hurried
                        && matches!(
                            kind,
                            Kind::OpTimeout | Kind::NotSelected | Kind::CheckOutTimeout | Kind::Overloaded
                        );
                if (operation.must_succeed || operation.is_hurried) && !has_cause {
                    self.violate(|| {
                        format!("P51: an operation fails without a fault: {kind:?}: {}: {error}", operation.text)
                    });
                }
            }
        }
    }

    /// The tolerance for the end of a wait.
    pub(in crate::network) const fn late_max(&self) -> u64 {
        // A task that was ready when the faults stopped may wait for the host.
        match self.peace_from {
            Some(from) if self.now >= from + 1_000 * MS => MS,
            Some(_) | None => LATE_MAX,
        }
    }

    /// The time limits of a check-out and of commands on its connection, on the client's clock: the
    /// end of all of them, the end of the check-out, and the time of each command.
    pub(super) fn session_limits(&self, timeout: Option<Duration>) -> (Option<u64>, Option<u64>, Option<u64>) {
        let (now, client) = (self.clock_ns(), &self.plan.client);
        let after = |limit: Duration| now.checked_add(u64::try_from(limit.as_nanos()).ok()?);
        let deadline = timeout.or(client.timeout).and_then(after);
        // The options of pools may change while it waits.
        let wait = self.plan.pool.wait_queue_timeout.filter(|_| !self.plan.reconfigures);
        // It does not limit the time in which a connection is established.
        let connect = Duration::from_nanos(self.plan.connect);
        let check_out = wait.and_then(|wait| after(client.server_selection_timeout + wait + connect));
        let pace = client.socket_timeout.filter(|_| timeout.is_none()).map(nanos);
        (deadline, check_out, pace)
    }

    /// Whether an operation after the faults may fail in this way.
    fn is_excused(&self, operation: &Operation, kind: Kind) -> bool {
        // A connection that a fault had broken was closed meanwhile.
        let is_broken = self.broken_closed_at >= operation.begun;
        // Another operation has closed a broken connection: the pool was cleared, and the server is
        // checked again.
        let is_cleared = self.broken_closed_at >= operation.begun.saturating_sub(CHECKED_AGAIN);
        match (kind, self.truth.deployment) {
            (Kind::OpNetwork, _) => is_broken,
            (Kind::NoHost, Deployment::Cluster) => is_cleared,
            // By a node that shuts down, while no other one takes it, or it may not be repeated.
            (Kind::OpRefused, Deployment::Cluster) => {
                let is_idempotent = operation.query.is_some_and(|(_, is_idempotent)| is_idempotent);
                self.refused_at >= operation.begun && (is_cleared || self.is_final_refusal && !is_idempotent)
            }
            // It tries the hosts one after the other, and one that is dead may not answer.
            (Kind::OpTimeout, Deployment::Cluster) => {
                let is_silent = |&member: &usize| !self.truth.members[member].up && self.truth.members[member].silent;
                operation.changes_keyspace && self.truth.config.iter().any(is_silent)
            }
            // Other operations keep the connections for longer.
            (Kind::PoolFull, Deployment::Plain) => {
                self.plan.options.wait_timeout.is_some_and(|limit| limit < Duration::from_secs(1))
            }
            (
                Kind::CheckOutFailed | Kind::NotSelected,
                Deployment::Set | Deployment::Sharded | Deployment::Standalone,
            ) => is_cleared,
            // A check-out is not retried.
            (Kind::Overloaded, _) => self.shedding.is_some() && operation.is_session,
            _ => false,
        }
    }

    /// Checks that a request after the faults was executed by the node that has its data, if that is up
    /// and no connection to it was closed shortly before.
    fn check_place(&mut self, operation: &Operation) {
        let Some((number, token)) = operation.routed.filter(|_| operation.must_succeed) else { return };
        let (replica, executed_by) = (self.truth.replica(token), self.commands[&number].executed_by);
        // A connection that a fault had broken was closed shortly before.
        let is_cleared = self.broken_closed_at >= operation.begun.saturating_sub(CHECKED_AGAIN);
        let is_replaced = self.replaced_at >= operation.begun.saturating_sub(ESTABLISHED);
        let is_shutting_down = self.refused_at >= operation.begun;
        if !self.truth.members[replica].up || is_cleared || is_replaced || is_shutting_down {
            return;
        }
        self.counters.count(Kind::Routed);
        self.counters.checks.add("P62");
        if executed_by != Some(replica) {
            self.violate(|| format!("P62: command {number} is executed by {executed_by:?} instead of n{replica}"));
        }
    }

    /// A command on a session begins.
    pub(super) fn begin_in_keyspace(&mut self, number: i64) {
        let from = self.keyspaces.len() - 1;
        if let Some(command) = self.commands.get_mut(&number) {
            command.keyspaces_from = from;
        }
    }

    /// A call that changes the keyspace has ended: it has succeeded, or the name was refused.
    ///
    /// - `shown`: the keyspace that the session returns.
    pub(super) fn end_of_keyspace_call(&mut self, name: &'static str, is_refused: bool, shown: Option<&str>) {
        self.counters.checks.add("P61");
        if is_refused == KEYSPACES.contains(&name) {
            self.violate(|| format!("P61: the keyspace {name:?} is refused: {is_refused}"));
        }
        if is_refused {
            self.counters.count(Kind::KeyspaceRefused);
        } else {
            self.counters.count(Kind::KeyspaceUsed);
            self.keyspaces.push(Some(name));
            self.replaced_at = self.now;
        }
        self.check_shown_keyspace(shown);
    }

    pub(super) fn check_shown_keyspace(&mut self, shown: Option<&str>) {
        let right = self.keyspaces.last().copied().flatten();
        if shown != right {
            self.violate(|| format!("P61: the keyspace is {right:?}, but the session returns {shown:?}"));
        }
    }

    /// A command has succeeded. Checks that its reply is its own.
    pub(in crate::network) fn replied(&mut self, number: i64, is_own: bool) {
        let Command { executed, is_unacknowledged, written, .. } = self.commands[&number];
        if !is_own {
            self.violate(|| format!("command {number} received the reply to another"));
        } else if is_unacknowledged {
            self.counters.checks.add("P60");
            if written != 1 {
                self.violate(|| format!("P60: write {number} succeeds, but it was written {written} times"));
            }
        } else if executed == 0 {
            self.violate(|| format!("command {number} succeeds, but no member has executed it"));
        }
    }
}
