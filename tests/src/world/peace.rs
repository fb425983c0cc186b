//! When faults have stopped: what must come about within a bound in virtual time, and what must be left when the client is closed.

use super::kind::Kind;
use super::life::{BACK_MAX, World};
use super::plan::{MS, Store};
use super::tasks::{Stage, Task};
use super::truth::{Deployment, HOSTS, SET};
use crate::choices::Choices;
use crate::oracle::pool::Bounded;
use alloc::collections::BTreeMap;
use poolhouse_core::pool::{Health, PoolState};
use poolhouse_core::topology::TopologyType;
use poolhouse_core::{Cause, ServerId, ServerType};

/// So many times in a row nobody is refused a place to wait.
const REFUSALS_MAX: usize = 32;

/// A task that is never answered, and never given up.
#[derive(Debug)]
pub(super) struct Hung {
    pub(super) task: u64,
    pub(super) server: ServerId,
    /// How many others on its server have succeeded since.
    pub(super) others: u32,
}

/// What is spent on members that stay dead.
#[derive(Debug, Default)]
pub(super) struct Dead {
    /// Connections asked for, by member.
    dials: BTreeMap<usize, u32>,
    /// Check-outs begun, by member.
    check_outs: BTreeMap<usize, u32>,
}

impl<M: Bounded> World<'_, M> {
    /// From the end of all faults to the evening, when nothing begins any more.
    pub(super) fn dawn(&mut self) {
        for task in self.tasks.values() {
            if let Some((_, member, _)) = self.client.pools().find(|(server, ..)| *server == task.server) {
                *self.dead.check_outs.entry(member).or_default() += 1;
            }
        }
        let (heartbeat, connect) = (self.plan.heartbeat, self.plan.connect);
        // A link that is lost is noticed, then each server is found, one after the other at worst.
        let bound = self.now + 4 * (heartbeat + connect) + BACK_MAX + 5_000 * MS;
        // One connection hangs for ever; the others of its pool do not mind (P54).
        let hangs = self.plan.store == Store::Heap && self.plan.pool.max_pool_size != 1 && self.draws.tasks.one_in(4);
        // Some dozens of tasks until then.
        self.peace_gap_ms = u32::try_from((bound - self.now) / MS / 40).unwrap_or(u32::MAX);
        let hang_at = self.now + (bound - self.now) / 2;
        let mut is_to_hang = hangs;
        while self.now < bound {
            if is_to_hang && self.now >= hang_at {
                is_to_hang = !self.hang();
            }
            self.step();
        }
        let broken = self.net.links.len();
        for _ in 0..broken {
            self.heal();
        }
        self.converged();
        self.is_evening = true;
        // Establishing, three commands, and those who queue before.
        let bound = self.now + connect + 4 * self.plan.op_timeout + 2_000 * MS;
        while self.now < bound && self.has_time_left() {
            self.step();
        }
        let left: Vec<&Task> = self.tasks.values().filter(|task| !task.hangs).collect();
        assert!(left.is_empty(), "P51: tasks have no end: {left:?}");
        self.client.assert_peace();
        self.probe();
        // Those who were probed are others, if it hangs still: a pool that is cleared may have interrupted it.
        let is_busy = |task: &Task| task.hangs && matches!(task.stage, Stage::Busy(_));
        if self.hung.as_ref().is_some_and(|hung| hung.others > 0 && self.tasks.get(&hung.task).is_some_and(is_busy)) {
            self.counters.checks.add("P54");
        }
        for (member, dials) in &self.dead.dials {
            let check_outs = self.dead.check_outs.get(member).copied().unwrap_or(0);
            // Besides, what the background does before the first check fails: it waits twice as long each time.
            self.counters.checks.add("P53");
            assert!(*dials <= check_outs + 16, "P53: {dials} connections to n{member} for {check_outs} check-outs");
        }
    }

    /// A connection that broke before peace is found broken by whoever uses it, whenever that is, and its server is unknown until it is checked again
    /// (S19): waits for that.
    fn heal(&mut self) {
        let bound = self.lost_at + self.plan.heartbeat + self.plan.connect + BACK_MAX + 1_000 * MS;
        while self.lost_at > 0 && self.now < bound {
            self.step();
        }
    }

    fn has_time_left(&self) -> bool {
        self.tasks.values().any(|task| !task.hangs)
    }

    /// One task that is begun now never hears of its server again. Whether there is one.
    fn hang(&mut self) -> bool {
        let Some((server, ..)) = self.client.pools().find(|at| at.2 == PoolState::Ready) else { return false };
        self.begin_task_on(server, 0, 1, false);
        let id = self.next_task;
        let Some(task) = self.tasks.get_mut(&id) else { return false };
        task.hangs = true;
        self.hung = Some(Hung { task: id, server, others: 0 });
        let Stage::Busy(op) = &task.stage else { return true };
        let link = self.net.conn(server, op.lease.conn());
        if let Some(link) = self.net.links.get_mut(&link) {
            (link.lost_there, link.lost_back) = (true, true);
        }
        self.counters.count(Kind::OpHangs);
        true
    }

    /// Every pool that is ready gives a connection that works (P51), once those that broke before peace are found.
    fn probe(&mut self) {
        let mut left: Vec<ServerId> =
            self.client.pools().filter(|at| at.2 == PoolState::Ready).map(|at| at.0).collect();
        let broken = self.net.links.len();
        self.probed.clear();
        for _ in 0..=broken {
            self.probe_each(&left);
            left.retain(|server| !self.probed.contains(server));
            if left.is_empty() {
                break;
            }
            self.heal();
        }
        self.counters.checks.add("P51");
        assert!(left.is_empty(), "P51: pools that were ready give no connection that works: {left:?}");
    }

    /// A task for each of these, to its end.
    fn probe_each(&mut self, servers: &[ServerId]) {
        for &server in servers {
            // A place to wait is refused now and then, though there is one.
            let tasks = self.tasks.len();
            for _ in 0..REFUSALS_MAX {
                self.begin_task_on(server, 0, 1, true);
                if self.tasks.len() > tasks {
                    break;
                }
            }
        }
        let bound = self.now + self.plan.connect + self.plan.op_timeout;
        while self.now < bound && self.tasks.values().any(|task| task.is_probe) {
            self.step();
        }
    }

    /// A connection is asked for.
    pub(super) fn dialed_in_peace(&mut self, member: usize) {
        if self.peace && !self.truth.members[member].up {
            *self.dead.dials.entry(member).or_default() += 1;
        }
    }

    /// A check-out begins.
    pub(super) fn note_task(&mut self, server: ServerId) {
        if !self.peace {
            return;
        }
        if let Some((_, member, _)) = self.client.pools().find(|at| at.0 == server) {
            *self.dead.check_outs.entry(member).or_default() += 1;
        }
    }

    /// The client closes, and everything that it had comes back.
    pub(super) fn end(&mut self) {
        self.is_evening = true;
        self.client.close();
        self.settle();
        // Who hangs is given up by its caller.
        let is_hung = |task: &Task| task.hangs && matches!(task.stage, Stage::Busy(_));
        let hung: Vec<u64> = self.tasks.iter().filter(|(_, task)| is_hung(task)).map(|(id, _)| *id).collect();
        for id in hung {
            if let Some(Stage::Busy(op)) = self.tasks.remove(&id).map(|task| task.stage) {
                self.client.check_in(op, Health::Broken(Cause::Cancelled));
            }
        }
        self.settle();
        let bound = self.now + self.plan.connect + 4 * self.plan.op_timeout + 10_000 * MS;
        while !self.tasks.is_empty() {
            assert!(self.now < bound, "P43: {:?} never end", self.tasks);
            self.step();
        }
        self.client.assert_over();
        self.counters.checks.add("S18");
        self.counters.checks.add("P43");
        let sockets = self.net.links.len();
        assert_eq!(sockets, 0, "P43: sockets are left");
    }

    /// The client sees what there is, and its pools work (S19, P51).
    fn converged(&mut self) {
        self.counters.checks.add("S19");
        let topology = self.client.control.topology();
        let description = topology.description();
        let see = format!("{description}");
        let truth = &self.truth;
        let seen: BTreeMap<usize, ServerType> = description
            .servers()
            .map(|server| {
                let member = HOSTS.iter().position(|host| *host == server.address()).expect("one of the hosts");
                (member, server.server_type())
            })
            .collect();
        for (&member, &server_type) in &seen {
            let known = &truth.members[member];
            // A direct connection to somebody of another set, or of none, is not what was wanted (SDAM-34).
            let is_direct = self.plan.direct.is_some();
            let is_stranger = self.plan.named && is_direct && known.view.server_type == ServerType::RsGhost;
            let right = if known.up && !is_stranger { known.view.server_type } else { ServerType::Unknown };
            let is_right = server_type == right || (!server_type.is_known() && !right.is_known());
            assert!(is_right, "S19: n{member} is {right}, and the client sees {see}");
        }
        let members: Vec<usize> = seen.keys().copied().collect();
        let right_type = match (self.plan.direct, truth.deployment) {
            (Some(_), _) | (None, Deployment::Standalone) => TopologyType::Single,
            (None, Deployment::Sharded) => TopologyType::Sharded,
            (None, Deployment::Set) if truth.primary.is_some() => TopologyType::ReplicaSetWithPrimary,
            (None, Deployment::Set) => TopologyType::ReplicaSetNoPrimary,
        };
        assert_eq!(description.topology_type(), right_type, "S19: the client sees {see}");
        if right_type == TopologyType::ReplicaSetWithPrimary {
            assert_eq!(members, truth.config, "S19: the client sees {see}");
            assert_eq!(description.set_name(), Some(SET));
        }
        for server in topology.servers().filter(|server| server.server_type().is_data_bearing()) {
            assert_eq!(self.client.pool_state(server.server()), Some(PoolState::Ready), "P51: {see}");
        }
    }
}
