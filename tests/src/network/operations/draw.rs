//! What the application does: operations are drawn, with their options and the end of their futures.

use super::{AMPLE, CommandPlan, Concern, DropPoint, Work};
use crate::choices::Choices as _;
use crate::kind::Kind;
use crate::network::cassandra::{KEYSPACES, NO_KEYSPACES};
use crate::network::plan::{MS, draw_mux, draw_pool};
use crate::network::state::{Command, MaxTime, State};
use crate::network::truth::{Deployment, HOSTS};
use core::time::Duration;
use poolhouse_core::selection::ReadMode;

impl State {
    pub(in crate::network) fn number(&mut self, executions_max: u32, hangs: bool, max_time: MaxTime) -> i64 {
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
            is_refused: false,
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
        // Without end, it may be repeated for ever while there are faults, and the run would not end.
        let is_endless = |limit: Duration| is_idempotent && limit == Duration::MAX;
        let ends = |limit: Duration| if is_endless(limit) { Duration::from_secs(10) } else { limit };
        let (timeout, limit) = (timeout.map(ends), limit.map(ends));
        let client = &self.plan.client;
        let is_limited = limit.or(client.timeout).is_some();
        // An attempt that ends with an overload was not executed. An idempotent command is retried until
        // its time limit.
        let executions_max = match (is_idempotent && client.retries, is_limited) {
            _ if limit.is_some_and(|limit| limit.is_zero()) => 0,
            (true, true) => u32::MAX,
            (true, false) => client.max_adaptive_retries.max(2),
            (false, _) => 1,
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
    pub(in crate::network) fn draw_work(&mut self) -> Work {
        let timeout = self.draw_timeout();
        match self.truth.deployment {
            Deployment::Cluster => return self.draw_request(timeout),
            Deployment::Plain => return self.draw_use(),
            Deployment::Set | Deployment::Sharded | Deployment::Standalone => {}
        }
        // Zero is no limit for a command, and no time at all for a check-out.
        let limit = timeout.map(|timeout| if timeout.is_zero() { Duration::MAX } else { timeout });
        let mode = self.draw_mode();
        let writes = !self.peace || self.is_writable();
        let (kind, work) = match self.draws.tasks.below(if self.peace { 8 } else { 12 }) {
            0..=2 if writes => {
                let command = self.draw_command(true, ReadMode::Primary, limit, limit);
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
                let is_of_primary = timeout.is_some() || mode == ReadMode::Primary;
                let mut draw = || {
                    let (pause, is_write) = (pause(self), is_of_primary && self.draws.concerns.one_in(4));
                    let command = self.draw_command(is_write, mode, None, timeout);
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
            0..=7 => (Kind::Read, Work::Command(self.draw_command(false, mode, limit, limit))),
            // Without a time limit, it waits for a server that stays dead.
            8 => (Kind::WarmUp, Work::WarmUp { timeout: timeout.or(Some(Duration::from_secs(10))) }),
            9 if self.plan.reconfigures => {
                let options = draw_pool(&mut self.draws.tasks);
                (Kind::Reconfigure, Work::Reconfigure(options))
            }
            10 => (Kind::Subscribe, Work::Subscribe(u64::from(self.draws.tasks.below(500)) * MS)),
            _ if self.draws.concerns.one_in(2) => {
                let work = self.draw_in_session(limit);
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
    pub(in crate::network) fn hanging_work(&mut self) -> Work {
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
    pub(in crate::network) fn draw_drop_point(&mut self) -> DropPoint {
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
}
