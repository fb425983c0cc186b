//! The application: operations on the client or session, their outcomes, and futures that are
//! dropped.

use super::cassandra::{KEYSPACES, NO_KEYSPACES, text_of};
use super::plain::{PlainPool, on_pool};
use super::plan::{MS, draw_mux, draw_pool, nanos};
use super::platform::Sim;
use super::state::{Command, MaxTime, State};
use super::truth::{Deployment, HOSTS};
use crate::choices::Choices;
use crate::kind::Kind;
use core::future::poll_fn;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};
use core::time::Duration;
use poolhouse_client::mux::{RequestError, RequestOptions, Session};
use poolhouse_client::{Client, ClientSessionOptions, CommandOptions, Error, TransactionOptions};
use poolhouse_core::Cause;
use poolhouse_core::mux::MuxOptions;
use poolhouse_core::pool::{CheckOutError, PoolOptions};
use poolhouse_core::selection::{ReadMode, ReadPreference};
use poolhouse_cql::{Consistency, Parameters, Request, Response, Token};
use poolhouse_driver::{OperationError, Subscription};

/// The tolerance for the end of an operation in a run with late timers.
const LATE_MAX: u64 = 4_000 * MS;
/// The time in which a server that was lost is checked again: the minimum interval of checks, and
/// some latency.
const CHECKED_AGAIN: u64 = 2_000 * MS;
/// The time limit of an operation that must succeed. Limits of the client then do not apply.
const AMPLE: Duration = Duration::from_secs(600);

/// An operation that has begun.
#[derive(Debug)]
pub(super) struct Operation {
    begun: u64,
    /// The end of the operation's time limit, on the client's clock.
    deadline: Option<u64>,
    /// The client's clock when it began.
    begun_clock: u64,
    must_succeed: bool,
    /// It has little time: it may end by its limit, but by no other error.
    is_hurried: bool,
    /// The tolerance for its end.
    late: u64,
    /// Its commands are not answered, so it ends only when it is dropped or times out.
    pub(super) hangs: bool,
    /// It needs a server.
    pub(super) is_remote: bool,
    /// It is a check-out, and commands on its connection.
    is_session: bool,
    /// It changes the keyspace, and establishes a connection for this.
    pub(super) changes_keyspace: bool,
    /// The command, and the token of its data.
    routed: Option<(i64, i64)>,
    /// The kinds of errors of which it must end with one, because the client is closed.
    closed_by: &'static [Kind],
    pub(super) text: String,
}

/// A command, and how it is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandPlan {
    number: i64,
    is_write: bool,
    is_idempotent: bool,
    mode: ReadMode,
    timeout: Option<Duration>,
    /// `maxTimeMS` that the application has set.
    max_time_ms: Option<i64>,
    concern: Concern,
}

/// The write concern of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Concern {
    /// That of the deployment.
    Default,
    /// `w: 0`.
    Unacknowledged,
    /// `w: 0` and `j: true`, which requires an acknowledgement.
    Journaled,
}

/// The work of an operation.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Command(CommandPlan),
    Session {
        timeout: Option<Duration>,
        mode: ReadMode,
        /// Each with the pause before it.
        commands: Vec<(u64, CommandPlan)>,
        /// The first command's future is dropped after this number of polls.
        gives_up: Option<u32>,
        /// The pause before the connection is returned.
        pause: u64,
    },
    WarmUp {
        timeout: Option<Duration>,
    },
    /// A write without an acknowledgement in an explicit session, which must be refused.
    InSession {
        command: CommandPlan,
        in_transaction: bool,
    },
    Query {
        number: i64,
        is_idempotent: bool,
        timeout: Option<Duration>,
        /// The keyspace and the partition of its data.
        location: Option<(&'static str, u32)>,
    },
    /// A change of the keyspace of a session.
    UseKeyspace {
        name: &'static str,
    },
    /// Of a pool of any connections.
    Use {
        /// Only a connection that is available now is taken.
        is_try: bool,
        /// Each with the pause before it.
        commands: Vec<(u64, i64)>,
        /// The pause before the connection is returned.
        pause: u64,
        /// The connection is removed from the pool.
        is_detached: bool,
    },
    Clear,
    Resize(u32),
    Reconfigure(PoolOptions),
    ReconfigureMux(MuxOptions),
    Subscribe(u64),
    Inspect,
}

/// The subject of a run.
#[derive(Clone, Debug)]
pub(super) enum Subject {
    Client(Client<Sim>),
    Session(Session<Sim>),
    Pool(PlainPool),
}

impl Subject {
    pub(super) fn subscribe(&self) -> Subscription {
        match self {
            Self::Client(client) => client.subscribe(),
            Self::Session(session) => session.subscribe(),
            Self::Pool(pool) => pool.subscribe(),
        }
    }

    pub(super) async fn close(&self) {
        match self {
            Self::Client(client) => client.close().await,
            Self::Session(session) => session.close().await,
            Self::Pool(pool) => pool.close().await,
        }
    }
}

/// Why an operation has failed.
#[derive(Debug)]
pub(super) struct Failed {
    /// `None` if no operation may fail in this way.
    kind: Option<Kind>,
    text: String,
    /// The longest of the minimum round-trip times that the client knows. An operation with less
    /// time may end early.
    round_trip: u64,
}

impl Failed {
    pub(super) const fn new(kind: Kind, text: String) -> Self {
        Self { kind: Some(kind), text, round_trip: 0 }
    }

    /// No operation may fail in this way.
    pub(super) const fn unexpected(text: String) -> Self {
        Self { kind: None, text, round_trip: 0 }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        let kind = match error {
            Error::Command(_) => Kind::OpRefused,
            Error::Operation(error, _) => match error {
                OperationError::ServerSelection(_) => Kind::NotSelected,
                OperationError::CheckOut(failure) => match failure.error {
                    CheckOutError::WaitQueueTimeout { .. } => Kind::CheckOutTimeout,
                    CheckOutError::EstablishFailed { overloaded: true, .. } => Kind::Overloaded,
                    _ => Kind::CheckOutFailed,
                },
                OperationError::Authentication(_) => Kind::NotAuthenticated,
                OperationError::Exchange(error) if error.cause().is_some_and(Cause::is_network) => Kind::OpNetwork,
                OperationError::Exchange(_) => Kind::OpProtocol,
                OperationError::Timeout => Kind::OpTimeout,
                OperationError::Interrupted(_) => Kind::OpInterrupted,
                OperationError::Closed => Kind::OpClosed,
                OperationError::Abandoned => Kind::OpAbandoned,
                _ => return Self::unexpected(text),
            },
            _ => return Self::unexpected(text),
        };
        Self::new(kind, text)
    }
}

impl From<RequestError> for Failed {
    fn from(error: RequestError) -> Self {
        let kind = match &error {
            RequestError::NoHost(_) => Some(Kind::NoHost),
            RequestError::TimedOut { .. } => Some(Kind::OpTimeout),
            RequestError::Lost { cause, .. } if cause.is_network() => Some(Kind::OpNetwork),
            RequestError::Lost { .. } | RequestError::Reply(_) => Some(Kind::OpProtocol),
            RequestError::Server(_) => Some(Kind::OpRefused),
            RequestError::Closed => Some(Kind::OpClosed),
            RequestError::Abandoned => Some(Kind::OpAbandoned),
            _ => None,
        };
        Self { kind, text: error.to_string(), round_trip: 0 }
    }
}

/// When a future is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DropPoint {
    Never,
    /// Right after this poll.
    AfterPoll(u32),
    /// When it was woken after this poll, before it is polled again.
    WhenWoken(u32),
}

impl State {
    fn number(&mut self, executions_max: u32, hangs: bool, max_time: MaxTime) -> i64 {
        let number = i64::try_from(self.commands.len()).unwrap_or(i64::MAX);
        let command = Command {
            executed: 0,
            executions_max,
            hangs,
            max_time,
            is_unacknowledged: false,
            written: 0,
            keyspaces_from: 0,
            executed_by: None,
        };
        self.commands.insert(number, command);
        number
    }

    /// Gives a write the concern `w: 0`: it is never executed again.
    fn without_acknowledgement(&mut self, command: CommandPlan) -> CommandPlan {
        if let Some(known) = self.commands.get_mut(&command.number) {
            known.is_unacknowledged = true;
            known.executions_max = known.executions_max.min(1);
        }
        CommandPlan { concern: Concern::Unacknowledged, ..command }
    }

    /// Draws a write without an acknowledgement in a session or transaction.
    fn draw_in_session(&mut self, timeout: Option<Duration>) -> Work {
        let command = self.draw_command(true, ReadMode::Primary, timeout, timeout);
        let command = self.without_acknowledgement(command);
        if let Some(known) = self.commands.get_mut(&command.number) {
            known.executions_max = 0;
        }
        Work::InSession { command, in_transaction: self.draws.concerns.one_in(2) }
    }

    /// Draws a command.
    ///
    /// - `limit`: the time limit of its operation.
    fn draw_command(
        &mut self,
        is_write: bool,
        mode: ReadMode,
        timeout: Option<Duration>,
        limit: Option<Duration>,
    ) -> CommandPlan {
        let is_idempotent = self.draws.tasks.one_in(2);
        // An attempt that ends with an overload was not executed.
        let client = &self.plan.client;
        let executions_max = match timeout {
            Some(Duration::ZERO) => 0,
            // It is retried until its time limit, if that can be reached.
            _ if is_idempotent
                && client.retries
                && limit.or(client.timeout).is_some_and(|limit| limit < Duration::MAX) =>
            {
                u32::MAX
            }
            _ if is_idempotent && client.retries => client.max_adaptive_retries.max(2),
            _ => 1,
        };
        let max_time_ms = self.draws.tasks.one_in(4).then_some(7_000);
        let max_time = max_time_ms.map_or(MaxTime::AtMost(limit.or(client.timeout)), MaxTime::Own);
        let number = self.number(executions_max, false, max_time);
        CommandPlan { number, is_write, is_idempotent, mode, timeout, max_time_ms, concern: Concern::Default }
    }

    /// Draws the members that may run a command.
    fn draw_mode(&mut self) -> ReadMode {
        // After the faults, a primary may be missing, and so may a secondary.
        let modes: &[ReadMode] = match (self.peace, self.is_writable()) {
            (false, _) => &[
                ReadMode::Primary,
                ReadMode::PrimaryPreferred,
                ReadMode::Secondary,
                ReadMode::SecondaryPreferred,
                ReadMode::Nearest,
            ],
            (true, true) => &[ReadMode::Primary, ReadMode::PrimaryPreferred, ReadMode::SecondaryPreferred],
            (true, false) => &[ReadMode::Nearest, ReadMode::PrimaryPreferred, ReadMode::SecondaryPreferred],
        };
        self.draws.tasks.one_of(modes)
    }

    fn draw_timeout(&mut self) -> Option<Duration> {
        if self.peace {
            let hurried = self.draws.tasks.one_in(8).then(|| Duration::from_millis(self.draws.tasks.below(30).into()));
            return Some(hurried.unwrap_or(AMPLE));
        }
        self.draws.tasks.one_of(&[None, None, Some(0), Some(50), Some(1_000), Some(10_000)]).map(Duration::from_millis)
    }

    /// Draws the next operation.
    pub(super) fn draw_work(&mut self) -> Work {
        let timeout = self.draw_timeout();
        match self.truth.deployment {
            Deployment::Cluster => return self.draw_request(timeout),
            Deployment::Plain => return self.draw_use(),
            Deployment::Set | Deployment::Sharded | Deployment::Standalone => {}
        }
        let mode = self.draw_mode();
        let writes = !self.peace || self.is_writable();
        let (kind, work) = match self.draws.tasks.below(if self.peace { 8 } else { 12 }) {
            0..=2 if writes => {
                let command = self.draw_command(true, ReadMode::Primary, timeout, timeout);
                match self.draws.concerns.below(8) {
                    0 | 1 => (Kind::Unacknowledged, Work::Command(self.without_acknowledgement(command))),
                    2 => (Kind::Journaled, Work::Command(CommandPlan { concern: Concern::Journaled, ..command })),
                    _ if command.is_idempotent => (Kind::IdempotentWrite, Work::Command(command)),
                    _ => (Kind::Write, Work::Command(command)),
                }
            }
            // A check-out with a time limit is for writes.
            5..=7 if writes => {
                let longest = if self.peace { 20 } else { 400 };
                let pause = |state: &mut Self| match state.draws.tasks.one_in(2) {
                    true => 0,
                    false => u64::from(state.draws.tasks.below(longest)) * MS,
                };
                let count = self.draws.tasks.below(4);
                let of_command = timeout.filter(Duration::is_zero);
                let is_of_primary = timeout.is_some() || mode == ReadMode::Primary;
                let mut draw = || {
                    let (pause, is_write) = (pause(self), is_of_primary && self.draws.concerns.one_in(4));
                    let command = self.draw_command(is_write, mode, of_command, timeout);
                    if !is_write {
                        return (pause, command);
                    }
                    self.counters.count(Kind::UnacknowledgedOnConnection);
                    (pause, self.without_acknowledgement(command))
                };
                let commands = (0..count).map(|_| draw()).collect();
                let gives_up = (!self.peace && self.draws.tasks.one_in(4)).then(|| self.draws.tasks.below(6));
                (Kind::Session, Work::Session { timeout, mode, commands, gives_up, pause: pause(self) })
            }
            0..=7 => (Kind::Read, Work::Command(self.draw_command(false, mode, timeout, timeout))),
            // Without a time limit, it waits for a server that stays dead.
            8 => (Kind::WarmUp, Work::WarmUp { timeout: timeout.or(Some(Duration::from_secs(10))) }),
            9 if self.plan.reconfigures => {
                let options = draw_pool(&mut self.draws.tasks);
                (Kind::Reconfigure, Work::Reconfigure(options))
            }
            10 => (Kind::Subscribe, Work::Subscribe(u64::from(self.draws.tasks.below(500)) * MS)),
            _ if self.draws.concerns.one_in(2) => {
                let work = self.draw_in_session(timeout);
                let in_transaction = matches!(work, Work::InSession { in_transaction: true, .. });
                (if in_transaction { Kind::RefusedInTransaction } else { Kind::RefusedInSession }, work)
            }
            _ => (Kind::Inspect, Work::Inspect),
        };
        self.counters.count(kind);
        work
    }

    /// Draws an operation on a pool of any connections.
    fn draw_use(&mut self) -> Work {
        let (kind, work) = match self.draws.tasks.below(if self.peace { 8 } else { 12 }) {
            0..=7 => {
                let longest = if self.peace { 20 } else { 400 };
                let pause = |state: &mut Self| match state.draws.tasks.one_in(2) {
                    true => 0,
                    false => u64::from(state.draws.tasks.below(longest)) * MS,
                };
                let count = self.draws.tasks.below(3);
                let commands =
                    (0..count).map(|_| (pause(self), self.number(1, false, MaxTime::AtMost(None)))).collect();
                let (is_try, is_detached) = (!self.peace && self.draws.tasks.one_in(6), self.draws.tasks.one_in(8));
                (Kind::Use, Work::Use { is_try, commands, pause: pause(self), is_detached })
            }
            8 => (Kind::Clear, Work::Clear),
            9 if self.plan.reconfigures => {
                let max_size = self.draws.tasks.one_of(&[1, 2, 3, 8]).max(self.plan.options.min_size);
                (Kind::Reconfigure, Work::Resize(max_size))
            }
            10 => (Kind::Subscribe, Work::Subscribe(u64::from(self.draws.tasks.below(500)) * MS)),
            _ => (Kind::Inspect, Work::Inspect),
        };
        self.counters.count(kind);
        work
    }

    /// Draws an operation on a Cassandra session.
    fn draw_request(&mut self, timeout: Option<Duration>) -> Work {
        if self.plan.cluster.changes_keyspace && self.draws.keyspaces.below(8) == 7 {
            let [refused, invalid] = NO_KEYSPACES;
            let [first, second, third] = KEYSPACES;
            let names = [first, second, third, refused, invalid];
            // An invalid name is refused by a closed session, too.
            let names = if self.closed_by.is_empty() { &names[..] } else { &names[..4] };
            return Work::UseKeyspace { name: self.draws.keyspaces.one_of(names) };
        }
        let (kind, work) = match self.draws.tasks.below(if self.peace { 8 } else { 11 }) {
            0..=7 => {
                let is_idempotent = self.draws.tasks.one_in(2);
                // One on each host. A contact point is another host than its node.
                let hosts = if self.plan.cluster.discovers { 2 * HOSTS.len() } else { self.truth.config.len() };
                let hosts = u32::try_from(hosts).unwrap_or(u32::MAX);
                let executions_max = match timeout {
                    Some(Duration::ZERO) => 0,
                    _ if is_idempotent => hosts,
                    _ => 1,
                };
                let number = self.number(executions_max, false, MaxTime::AtMost(None));
                (Kind::Query, Work::Query { number, is_idempotent, timeout, location: self.draw_location() })
            }
            8 if self.plan.reconfigures => (Kind::Reconfigure, Work::ReconfigureMux(draw_mux(&mut self.draws.tasks))),
            9 => (Kind::Subscribe, Work::Subscribe(u64::from(self.draws.tasks.below(500)) * MS)),
            _ => (Kind::Inspect, Work::Inspect),
        };
        self.counters.count(kind);
        work
    }

    /// Draws where the data of a request is.
    fn draw_location(&mut self) -> Option<(&'static str, u32)> {
        let nodes = &mut self.draws.nodes;
        let is_known = self.plan.cluster.discovers && nodes.below(2) == 1;
        is_known.then(|| (nodes.one_of(&KEYSPACES), nodes.below(1_000)))
    }

    /// A command that is never answered.
    pub(super) fn hanging_work(&mut self) -> Work {
        let timeout = Some(if self.draws.tasks.one_in(2) { Duration::MAX } else { Duration::from_secs(1) });
        let number = self.number(1, true, MaxTime::AtMost(timeout));
        match self.truth.deployment {
            Deployment::Cluster => {
                let timeout = Some(Duration::MAX);
                return Work::Query { number, is_idempotent: false, timeout, location: None };
            }
            Deployment::Plain => {
                return Work::Use { is_try: false, commands: vec![(0, number)], pause: 0, is_detached: false };
            }
            Deployment::Set | Deployment::Sharded | Deployment::Standalone => {}
        }
        let mode = if self.is_writable() { ReadMode::Primary } else { ReadMode::Nearest };
        let is_write = false;
        let (is_idempotent, max_time_ms, concern) = (false, None, Concern::Default);
        Work::Command(CommandPlan { number, is_write, is_idempotent, mode, timeout, max_time_ms, concern })
    }

    /// Draws when the future of the next operation is dropped.
    pub(super) fn draw_drop_point(&mut self) -> DropPoint {
        if self.peace {
            return DropPoint::Never;
        }
        let polls = self.draws.tasks.below(8);
        if self.plan.comes(Kind::DropAfterPoll, &mut self.draws.tasks) {
            DropPoint::AfterPoll(polls + 1)
        } else if self.plan.comes(Kind::DropWhenWoken, &mut self.draws.tasks) {
            DropPoint::WhenWoken(polls)
        } else {
            DropPoint::Never
        }
    }

    /// - `must_succeed`: no fault can affect it, except connections that were broken before.
    pub(super) fn begin_operation(&mut self, id: u64, work: &Work, must_succeed: bool) {
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
    pub(super) fn end_operation(&mut self, id: u64, result: Option<&Result<(), Failed>>) {
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
    pub(super) const fn late_max(&self) -> u64 {
        // A task that was ready when the faults stopped may wait for the host.
        match self.peace_from {
            Some(from) if self.now >= from + 1_000 * MS => MS,
            Some(_) | None => LATE_MAX,
        }
    }

    /// The time limits of a check-out and of commands on its connection, on the client's clock: the
    /// end of all of them, the end of the check-out, and the time of each command.
    fn session_limits(&self, timeout: Option<Duration>) -> (Option<u64>, Option<u64>, Option<u64>) {
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

    /// Checks that a request after the faults was executed by the node that has its data, if that is up.
    fn check_place(&mut self, operation: &Operation) {
        let Some((number, token)) = operation.routed.filter(|_| operation.must_succeed) else { return };
        let (replica, executed_by) = (self.truth.replica(token), self.commands[&number].executed_by);
        // A connection that a fault had broken was closed shortly before.
        let is_cleared = self.broken_closed_at >= operation.begun.saturating_sub(CHECKED_AGAIN);
        if !self.truth.members[replica].up || is_cleared {
            return;
        }
        self.counters.count(Kind::Routed);
        self.counters.checks.add("P62");
        if executed_by != Some(replica) {
            self.violate(|| format!("P62: command {number} is executed by {executed_by:?} instead of n{replica}"));
        }
    }

    /// A command on a session begins.
    fn begin_in_keyspace(&mut self, number: i64) {
        let from = self.keyspaces.len() - 1;
        if let Some(command) = self.commands.get_mut(&number) {
            command.keyspaces_from = from;
        }
    }

    /// A call that changes the keyspace has ended: it has succeeded, or the name was refused.
    ///
    /// - `shown`: the keyspace that the session returns.
    fn end_of_keyspace_call(&mut self, name: &'static str, is_refused: bool, shown: Option<&str>) {
        self.counters.checks.add("P61");
        if is_refused == KEYSPACES.contains(&name) {
            self.violate(|| format!("P61: the keyspace {name:?} is refused: {is_refused}"));
        }
        if is_refused {
            self.counters.count(Kind::KeyspaceRefused);
        } else {
            self.counters.count(Kind::KeyspaceUsed);
            self.keyspaces.push(Some(name));
        }
        self.check_shown_keyspace(shown);
    }

    fn check_shown_keyspace(&mut self, shown: Option<&str>) {
        let right = self.keyspaces.last().copied().flatten();
        if shown != right {
            self.violate(|| format!("P61: the keyspace is {right:?}, but the session returns {shown:?}"));
        }
    }

    /// A command has succeeded. Checks that its reply is its own.
    pub(super) fn replied(&mut self, number: i64, is_own: bool) {
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

impl Operation {
    pub(super) const fn has_deadline(&self) -> bool {
        self.deadline.is_some()
    }
}

impl CommandPlan {
    fn document(&self) -> bson::Document {
        let mut document = if self.is_write {
            bson::doc! { "insert": "things", "documents": [{ "_id": self.number }], "n": self.number }
        } else {
            bson::doc! { "ping": 1, "n": self.number }
        };
        document.extend(self.max_time_ms.map(|time| ("maxTimeMS".to_owned(), time.into())));
        match self.concern {
            Concern::Default => {}
            Concern::Unacknowledged => drop(document.insert("writeConcern", bson::doc! { "w": 0 })),
            Concern::Journaled => drop(document.insert("writeConcern", bson::doc! { "w": 0, "j": true })),
        }
        document
    }

    fn is_answered_by(&self, reply: &bson::Document) -> bool {
        if self.concern == Concern::Unacknowledged {
            return *reply == bson::doc! { "ok": 1 };
        }
        reply.get_i64("n").is_ok_and(|number| number == self.number)
    }
}

/// Executes the work of an operation.
pub(super) async fn execute(sim: &Sim, subject: &Subject, work: Work) -> Result<(), Failed> {
    match subject {
        Subject::Client(client) => on_client(sim, client, work).await.map_err(|error| {
            let known = client.servers().into_iter().filter_map(|server| server.round_trip_minimum);
            Failed { round_trip: known.max().map_or(0, nanos), ..error.into() }
        }),
        Subject::Session(session) => on_session(sim, session, work).await,
        Subject::Pool(pool) => on_pool(sim, pool, work).await,
    }
}

async fn on_session(sim: &Sim, session: &Session<Sim>, work: Work) -> Result<(), Failed> {
    match work {
        Work::Query { number, is_idempotent, timeout, location } => {
            let (text, key) = (text_of(number), location.map(|(_, key)| key.to_be_bytes()));
            let parameters = Parameters::new(Consistency::One);
            let mut options = RequestOptions::default();
            (options.timeout, options.idempotent) = (timeout, is_idempotent);
            if let (Some((keyspace, _)), Some(key)) = (location, &key) {
                options = options.routing(keyspace, key);
            }
            let query = Request::Query { text: &text, parameters };
            sim.with(|state| state.begin_in_keyspace(number));
            // Both kinds of future follow the same rules.
            let reply = if number % 2 == 0 {
                session.request_with(&query, options).await?
            } else {
                let Some(result) = session.request_all_with(&[query], options).await.pop() else {
                    unreachable!("one result for one request")
                };
                result?
            };
            let keyspace = match reply.response() {
                Ok(Response::Result(outcome)) => outcome.keyspace().ok().flatten(),
                _ => None,
            };
            sim.with(|state| state.replied(number, keyspace == Some(&*text)));
        }
        Work::UseKeyspace { name } => {
            let is_refused = match session.use_keyspace(name).await {
                Ok(()) => false,
                Err(RequestError::Keyspace(_)) => true,
                Err(error) => return Err(error.into()),
            };
            let shown = session.keyspace();
            sim.with(|state| state.end_of_keyspace_call(name, is_refused, shown.as_deref()));
        }
        Work::ReconfigureMux(options) => session.set_mux_options(options)?,
        Work::Subscribe(time) => {
            let _subscription = session.subscribe();
            sim.sleep(time).await;
        }
        _ => {
            let (_, shown) = (format!("{session:?}"), session.keyspace());
            sim.with(|state| state.check_shown_keyspace(shown.as_deref()));
        }
    }
    Ok(())
}

async fn on_client(sim: &Sim, client: &Client<Sim>, work: Work) -> Result<(), Error> {
    match work {
        Work::Command(command) => {
            let mut options = CommandOptions::new().idempotent(command.is_idempotent);
            options.timeout = command.timeout;
            if !command.is_write {
                options = options.read_preference(ReadPreference::of(command.mode));
            }
            let reply = client.run_command_with("test", command.document(), options).await?;
            sim.with(|state| state.replied(command.number, command.is_answered_by(&reply)));
        }
        Work::Session { timeout, mode, commands, gives_up, pause } => {
            let (deadline, check_out, pace) = sim.with(|state| state.session_limits(timeout));
            let check_out_text = "the check-out of a connection";
            let mut connection = match timeout {
                None => {
                    let work = client.check_out_preferring(ReadPreference::of(mode));
                    timed(sim, check_out_text, deadline.or(check_out), work).await?
                }
                Some(timeout) => timed(sim, check_out_text, deadline, client.check_out_timeout(timeout)).await?,
            };
            let mut commands = commands.into_iter();
            if let (Some(polls), Some((_, command))) = (gives_up, commands.next()) {
                if let Some(result) =
                    polled_at_most(sim, polls, connection.run_command("test", command.document())).await
                {
                    let reply = result?;
                    sim.with(|state| state.replied(command.number, command.is_answered_by(&reply)));
                } else {
                    sim.with(|state| state.counters.count(Kind::GivenUp));
                    let Some((_, command)) = commands.next() else { return Ok(()) };
                    // The connection is still usable only if nothing was sent.
                    let again = connection.run_command("test", command.document()).await;
                    return match again {
                        Ok(reply) => {
                            sim.with(|state| state.replied(command.number, command.is_answered_by(&reply)));
                            Ok(())
                        }
                        Err(Error::Operation(OperationError::Broken(_), _)) => {
                            sim.with(|state| state.counters.count(Kind::OpBroken));
                            Ok(())
                        }
                        Err(error) => Err(error),
                    };
                }
            }
            for (pause, command) in commands {
                if pause > 0 {
                    sim.sleep(pause).await;
                }
                let end = deadline.or_else(|| Some(sim.with(|state| state.clock_ns()).saturating_add(pace?)));
                let text = "a command on a connection that is checked out";
                match timed(sim, text, end, connection.run_command("test", command.document())).await {
                    Ok(reply) => sim.with(|state| state.replied(command.number, command.is_answered_by(&reply))),
                    Err(error) => {
                        // The connection is still usable only if the command was not executed.
                        let again = connection.run_command("test", command.document()).await;
                        if let Ok(reply) = &again {
                            sim.with(|state| state.replied(command.number, command.is_answered_by(reply)));
                        }
                        if matches!(again, Err(Error::Operation(OperationError::Broken(_), _))) {
                            sim.with(|state| state.counters.count(Kind::OpBroken));
                        }
                        return Err(error);
                    }
                }
            }
            if pause > 0 {
                sim.sleep(pause).await;
            }
        }
        Work::WarmUp { timeout } => client.warm_up(timeout).await?,
        Work::InSession { command, in_transaction } => {
            let mut session = client.start_session(ClientSessionOptions::new());
            if in_transaction {
                session.start_transaction(TransactionOptions::new())?;
            }
            let outcome = session.run_command("test", command.document()).await;
            sim.with(|state| {
                state.counters.checks.add("P60");
                if !matches!(outcome, Err(Error::Session(_))) {
                    let what = if in_transaction { "transaction" } else { "session" };
                    state.violate(|| format!("P60: a write without an acknowledgement in a {what}: {outcome:?}"));
                }
            });
        }
        Work::Reconfigure(options) => client.set_pool_options(options)?,
        Work::Subscribe(time) => {
            let _subscription = client.subscribe();
            sim.sleep(time).await;
        }
        Work::Query { .. }
        | Work::UseKeyspace { .. }
        | Work::ReconfigureMux(_)
        | Work::Use { .. }
        | Work::Clear
        | Work::Resize(_) => unreachable!("these are for others"),
        Work::Inspect => {
            let _ = (format!("{client:?} {:?}", client.topology()), client.pool_options());
        }
    }
    Ok(())
}

/// Runs a part of an operation, and checks that it ends in time.
///
/// - `end`: on the client's clock. A part that begins later ends at once.
async fn timed<F: Future>(sim: &Sim, what: &str, end: Option<u64>, work: F) -> F::Output {
    let (begun, begun_clock, late) = sim.with(|state| (state.now, state.clock_ns(), state.late_max()));
    let result = work.await;
    sim.with(|state| {
        let jumped = state.jumped_at.is_some_and(|at| at >= begun);
        let Some(end) = end.map(|end| end.max(begun_clock)).filter(|_| !jumped) else { return };
        state.counters.checks.add("P19");
        let clock = state.clock_ns();
        if clock > end + late {
            state.violate(|| format!("P19: {what} ends {} ns late", clock - end));
        }
    });
    result
}

/// Polls a future at most this many times. `None`: it was dropped.
async fn polled_at_most<F: Future>(sim: &Sim, polls: u32, work: F) -> Option<F::Output> {
    let mut work = pin!(work);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        // A poll without a reason is not counted.
        left -= u32::from(!sim.with(|state| state.is_disturbing));
        match work.as_mut().poll(context) {
            Poll::Pending if left > 0 => Poll::Pending,
            Poll::Pending => Poll::Ready(None),
            Poll::Ready(result) => Poll::Ready(Some(result)),
        }
    })
    .await
}

/// An operation, and when its future is dropped. Its end is recorded in the state.
pub(super) struct Running<F> {
    pub(super) sim: Sim,
    pub(super) id: u64,
    /// `None` once it was dropped.
    pub(super) work: Option<Pin<Box<F>>>,
    pub(super) drop_point: DropPoint,
    pub(super) polls: u32,
}

impl<F: Future<Output = Result<(), Failed>>> Future for Running<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // A poll without a reason is not counted.
        let is_disturbing = self.sim.with(|state| state.is_disturbing);
        let drop_point = if is_disturbing { DropPoint::Never } else { self.drop_point };
        if drop_point == DropPoint::WhenWoken(self.polls) {
            self.sim.with(|state| state.counters.count(Kind::DropWhenWoken));
            return Poll::Ready(());
        }
        self.polls += u32::from(!is_disturbing);
        let Some(work) = &mut self.work else { return Poll::Ready(()) };
        if let Poll::Ready(result) = work.as_mut().poll(context) {
            self.work = None;
            let (sim, id) = (self.sim.clone(), self.id);
            sim.with(|state| state.end_operation(id, Some(&result)));
            return Poll::Ready(());
        }
        if drop_point == DropPoint::AfterPoll(self.polls) {
            self.sim.with(|state| state.counters.count(Kind::DropAfterPoll));
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl<F> Drop for Running<F> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            drop(work);
            let id = self.id;
            self.sim.with(|state| state.end_operation(id, None));
        }
    }
}
