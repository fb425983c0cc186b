//! The application: tasks that check connections out, send commands on them and return them, or are
//! cancelled.

use super::client::Op;
use super::kind::Kind;
use super::links::{Event, Owner, Work};
use super::plan::MS;
use super::simulation::Simulation;
use crate::choices::Choices;
use crate::oracle::pool::Bounded;
use poolhouse_core::pool::{CheckOut, CheckOutError, Claim, ConnId, Health, Lease, PoolState, WaiterId};
use poolhouse_core::topology::{AppErrorKind, CommandError, ReplyError};
use poolhouse_core::{Cause, ServerId};
use poolhouse_wire::command::CommandReply;
use poolhouse_wire::message::{Decoded, Flags, Limits, Outgoing, encode_command, encode_message};

#[derive(Debug)]
pub(super) struct Task {
    pub(super) server: ServerId,
    pub(super) stage: Stage,
    /// Number of commands to send.
    left: u32,
    /// Number of sent commands.
    serial: u32,
    /// The number of its last command.
    number: i64,
    /// It waits for its reply forever.
    pub(super) hangs: bool,
    /// It must succeed.
    pub(super) is_probe: bool,
}

#[derive(Debug)]
pub(super) enum Stage {
    Waiting(WaiterId),
    /// Woken, and the outcome is not claimed.
    Woken(WaiterId),
    Busy(Op),
    /// It will be removed.
    Over,
}

/// The result of a reply.
enum Outcome {
    Done,
    Refused,
    Failed(Cause),
}

impl<M: Bounded> Simulation<'_, M> {
    /// Begins a task on a random server of the client's view.
    pub(super) fn begin_task(&mut self) {
        let anywhere = self.draws.tasks.one_in(8);
        let pools: Vec<ServerId> =
            self.client.pools().filter(|(_, _, state)| anywhere || *state == PoolState::Ready).map(|at| at.0).collect();
        if pools.is_empty() {
            return;
        }
        let server = self.draws.tasks.one_of(&pools);
        let wait = self.draws.tasks.one_of(&[0_u64, 0, 50, 1_000, 10_000]);
        let left = self.draws.tasks.below(3) + 1;
        self.begin_task_on(server, wait, left, false);
    }

    /// - `wait_ms`: maximum wait for a connection; 0 is no limit.
    pub(super) fn begin_task_on(&mut self, server: ServerId, wait_ms: u64, left: u32, is_probe: bool) {
        let deadline = (wait_ms > 0).then(|| self.client.now.saturating_add(Self::duration(wait_ms * MS)));
        let is_ready = self.client.pool_state(server) == Some(PoolState::Ready);
        self.note_task(server);
        let result = self.client.check_out(server, deadline);
        self.next_task += 1;
        let id = self.next_task;
        self.trace_line(|| format!("task {id} on #{server}: {result:?}"));
        let stage = match result {
            Ok(CheckOut::Granted(lease)) => Stage::Busy(Op { server, lease }),
            Ok(CheckOut::Queued(waiter)) => Stage::Waiting(waiter),
            Err(error) => {
                assert!(!is_ready || matches!(error, CheckOutError::Busy { .. }), "a ready pool refuses: {error}");
                let is_full = matches!(error, CheckOutError::Busy { .. });
                self.counters.count(if is_full { Kind::MemoryFull } else { Kind::CheckOutFailed });
                return self.settle();
            }
        };
        let is_busy = matches!(stage, Stage::Busy(_));
        let task = Task { server, stage, left, serial: 0, number: 0, hangs: false, is_probe };
        self.tasks.insert(id, task);
        let cancels = [Kind::CancelQueued, Kind::CancelBusy, Kind::CancelGranted];
        if !self.peace && cancels.iter().any(|kind| self.plan.comes(*kind, &mut self.draws.tasks)) {
            let at = self.now + u64::from(self.draws.tasks.below(200)) * MS / 10;
            self.net.at(at, Event::Cancel(id));
        }
        if is_busy {
            self.send_command(id);
        }
        self.settle();
    }

    /// Wakes a waiter.
    pub(super) fn wake(&mut self, server: ServerId, waiter: WaiterId) {
        let mut tasks = self.tasks.iter_mut();
        let found = tasks
            .find(|(_, task)| task.server == server && matches!(task.stage, Stage::Waiting(waits) if waits == waiter));
        let (&id, task) = found.expect("P8: a task is woken that does not wait");
        task.stage = Stage::Woken(waiter);
        if !self.peace && self.plan.comes(Kind::CancelGranted, &mut self.draws.tasks) {
            return self.cancel(id);
        }
        if !self.peace && self.plan.comes(Kind::LateClaim, &mut self.draws.host) {
            self.counters.count(Kind::LateClaim);
            let at = self.now + u64::from(self.draws.host.below(300)) * MS;
            return self.net.at(at, Event::Claim(id));
        }
        self.claim(id);
    }

    /// A woken waiter claims its outcome.
    pub(super) fn claim(&mut self, id: u64) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let Stage::Woken(waiter) = task.stage else { return };
        let server = task.server;
        let claim = self.client.claim(server, waiter);
        self.trace_line(|| format!("task {id}: {claim:?}"));
        match claim {
            Claim::Granted(lease) => self.begin_commands(id, lease),
            Claim::Failed(error) => {
                let is_timeout = matches!(error, CheckOutError::WaitQueueTimeout { .. });
                self.counters.count(if is_timeout { Kind::CheckOutTimeout } else { Kind::CheckOutFailed });
                let task = self.tasks.remove(&id);
                let is_probe = task.is_some_and(|task| task.is_probe);
                assert!(!is_probe, "P51: a check-out fails without a fault: {error}");
            }
            Claim::Waiting | Claim::Stale => panic!("P8: a wake without an outcome: {claim:?}"),
        }
    }

    fn begin_commands(&mut self, id: u64, lease: Lease) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.stage = Stage::Busy(Op { server: task.server, lease });
        self.send_command(id);
    }

    /// A waiter claims its outcome without a wake. None is available yet.
    pub(super) fn claim_without_outcome(&mut self) {
        let waiting = |task: &Task| match task.stage {
            Stage::Waiting(waiter) => Some((task.server, waiter)),
            Stage::Woken(_) | Stage::Busy(_) | Stage::Over => None,
        };
        let waiting: Vec<_> = self.tasks.values().filter_map(waiting).collect();
        for (server, waiter) in waiting {
            // The call may process a deadline of this instant, and thereby return an outcome.
            let claim = self.client.claim(server, waiter);
            assert_eq!(claim, Claim::Waiting, "an outcome is available without a wake");
        }
        self.settle();
    }

    /// The caller cancels the task in any stage.
    pub(super) fn cancel(&mut self, id: u64) {
        let Some(task) = self.tasks.remove(&id) else { return };
        self.trace_line(|| format!("task {id} is cancelled: {task:?}"));
        match task.stage {
            Stage::Waiting(waiter) => {
                self.counters.count(Kind::CancelQueued);
                self.client.cancel(task.server, waiter);
            }
            Stage::Woken(waiter) => {
                self.counters.count(Kind::CancelGranted);
                self.client.cancel(task.server, waiter);
            }
            Stage::Busy(op) => {
                self.counters.count(Kind::CancelBusy);
                self.check_in(op, Health::Broken(Cause::Cancelled));
            }
            Stage::Over => {}
        }
        self.settle();
    }

    /// Sends the next command of a task, or ends it.
    fn send_command(&mut self, id: u64) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let Stage::Busy(op) = &task.stage else { return };
        let (server, conn) = (op.server, op.lease.conn());
        let link_id = self.net.conn(server, conn);
        let link = self.net.links.get_mut(&link_id).expect("found");
        assert!(matches!(link.near.work, Work::Idle), "P5: a connection with two owners");
        if task.left == 0 {
            return self.end_task(id, Outcome::Done);
        }
        task.left -= 1;
        task.serial += 1;
        self.next_number += 1;
        task.number = self.next_number;
        let (number, serial, hangs) = (task.number, task.serial, task.hangs);
        let is_writable = self.truth.members[link.member].is_writable();
        let kinds = match self.peace {
            true if !is_writable => 1,
            // A write without a reply cannot show success.
            true if task.is_probe => 2,
            _ => 3,
        };
        let kind = self.draws.tasks.below(kinds);
        let near = &mut link.near;
        let request = near.ids.next_id();
        let mut bytes = Vec::new();
        let flags = if kind == 2 { Flags::MORE_TO_COME } else { Flags::NONE };
        let written = match kind {
            0 => encode_command(&mut bytes, Outgoing::request(request), &near.limits, "admin", |body| {
                body.int32("ping", 1)?.int64("n", number).map(drop)
            }),
            _ => insert(&mut bytes, Outgoing::request(request).with_flags(flags), &near.limits, number),
        };
        written.expect("a command is short");
        near.exchange.begin(request, flags);
        if hangs {
            link.lost_there = true;
        }
        if kind == 2 {
            self.send(link_id, bytes);
            return self.send_command(id);
        }
        near.work = Work::Task(id);
        near.reads = true;
        if !hangs {
            self.net.at(self.now + self.plan.op_timeout, Event::TaskLate(id, serial));
        }
        self.send(link_id, bytes);
        // Unsolicited bytes are read now.
        self.pump(link_id);
    }

    /// Reads the reply of a task if it has arrived.
    pub(super) fn read_task(&mut self, link_id: u64, id: u64) {
        let Self { net, client, tasks, executed, .. } = self;
        let Some(link) = net.links.get_mut(&link_id) else { return };
        let Some(task) = tasks.get_mut(&id) else { return };
        let Stage::Busy(op) = &task.stage else { return };
        let near = &mut link.near;
        let outcome = match near.exchange.decode_reply(&near.input, &near.limits) {
            Ok(Decoded::NeedMore { .. }) if near.has_ended => Outcome::Failed(Cause::Network),
            Ok(Decoded::NeedMore { .. }) => return,
            Err(_) => Outcome::Failed(Cause::Protocol),
            Ok(Decoded::Done { value: (message, _), rest }) => {
                assert!(rest.is_empty(), "bytes after a reply must be an error");
                let body = message.body();
                let outcome = match CommandReply::parse(body) {
                    Err(_) => Outcome::Failed(Cause::Protocol),
                    Ok(reply) if !reply.ok => {
                        let text = reply.message.unwrap_or_default();
                        let command = Some(ReplyError { code: reply.code, message: text });
                        let topology_version = reply.topology_version;
                        let error = CommandError { command, write_concern: None, topology_version };
                        client.report(op, AppErrorKind::Command(error));
                        Outcome::Refused
                    }
                    Ok(_) => {
                        let found = body.get("n").ok().flatten().and_then(|value| value.as_integer());
                        assert_eq!(found, Some(task.number), "the reply to another command was taken");
                        assert!(executed.contains(&task.number), "a command succeeded that was never executed");
                        Outcome::Done
                    }
                };
                near.input.clear();
                near.work = Work::Idle;
                near.reads = false;
                outcome
            }
        };
        if matches!(outcome, Outcome::Done) {
            return self.send_command(id);
        }
        self.end_task(id, outcome);
    }

    /// A command has timed out.
    pub(super) fn task_late(&mut self, id: u64, serial: u32) {
        let Some(task) = self.tasks.get(&id) else { return };
        if task.serial == serial && !task.hangs && matches!(task.stage, Stage::Busy(_)) {
            self.end_task(id, Outcome::Failed(Cause::NetworkTimeout));
        }
    }

    /// The pool interrupts a connection.
    pub(super) fn interrupt(&mut self, server: ServerId, conn: ConnId) {
        let is_it = |task: &Task| match &task.stage {
            Stage::Busy(op) => op.server == server && op.lease.conn() == conn,
            Stage::Waiting(_) | Stage::Woken(_) | Stage::Over => false,
        };
        if let Some(id) = self.tasks.iter().find(|(_, task)| is_it(task)).map(|(id, _)| *id) {
            return self.end_task(id, Outcome::Failed(Cause::Interrupted));
        }
        // A pending connection. A connection in use has already been returned.
        let Some(id) = self.net.find(server, Owner::Conn(conn)) else { return };
        if matches!(self.net.links[&id].near.work, Work::Connect | Work::Shake(_)) {
            self.net.drop_link(id);
        }
    }

    fn end_task(&mut self, id: u64, outcome: Outcome) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let stage = core::mem::replace(&mut task.stage, Stage::Over);
        let Stage::Busy(op) = stage else { return task.stage = stage };
        let is_probe = task.is_probe;
        self.tasks.remove(&id);
        let kind = match outcome {
            Outcome::Done => Kind::OpDone,
            Outcome::Refused => Kind::OpRefused,
            Outcome::Failed(Cause::Network) => Kind::OpNetwork,
            Outcome::Failed(Cause::NetworkTimeout) => Kind::OpTimeout,
            Outcome::Failed(Cause::Interrupted) => Kind::OpInterrupted,
            Outcome::Failed(_) => Kind::OpProtocol,
        };
        self.counters.count(kind);
        self.trace_line(|| format!("task {id} ends: {kind:?}"));
        if is_probe && kind == Kind::OpDone {
            self.probed.insert(op.server);
        }
        let others = self.hung.as_mut().filter(|hung| hung.task != id && hung.server == op.server);
        if let Some(hung) = others.filter(|_| kind == Kind::OpDone) {
            hung.others += 1;
        }
        match outcome {
            Outcome::Failed(cause) => {
                if cause.is_network() {
                    let kind = match cause {
                        Cause::NetworkTimeout => AppErrorKind::NetworkTimeout,
                        _ => AppErrorKind::Network,
                    };
                    if self.client.report(&op, kind) {
                        self.lost_at = self.now;
                    }
                }
                self.check_in(op, Health::Broken(cause));
            }
            Outcome::Done | Outcome::Refused => self.check_in(op, Health::Healthy),
        }
        self.settle();
    }

    fn check_in(&mut self, mut op: Op, health: Health) {
        if matches!(health, Health::Broken(_)) {
            self.counters.count(Kind::ErroredCheckIn);
        }
        if !self.peace && self.plan.comes(Kind::ForeignCheckIn, &mut self.draws.tasks) {
            let (kept, was_tried) = self.client.check_in_elsewhere(op);
            op = kept;
            if was_tried {
                self.counters.count(Kind::ForeignCheckIn);
            }
        }
        self.client.check_in(op, health);
    }
}

/// An insert of one document, in a document sequence.
fn insert(
    bytes: &mut Vec<u8>,
    outgoing: Outgoing,
    limits: &Limits,
    number: i64,
) -> Result<usize, poolhouse_wire::EncodeError> {
    let is_acknowledged = !outgoing.flags.contains(Flags::MORE_TO_COME);
    encode_message(bytes, outgoing, limits, |message| {
        message.body(|body| {
            body.str("insert", "things")?;
            if !is_acknowledged {
                body.document("writeConcern", |concern| concern.int32("w", 0).map(drop))?;
            }
            body.str("$db", "test").map(drop)
        })?;
        message.sequence("documents", |documents| documents.document(|document| document.int64("n", number).map(drop)))
    })
}
