//! The phase without faults: results that are required within a bound in virtual time, and the
//! state that must be left after the client is closed.

use super::kind::Kind;
use super::plan::{MS, Store};
use super::simulation::{BACK_MAX, Simulation};
use super::tasks::{Stage, Task};
use super::truth::{Deployment, HOSTS, SET};
use crate::choices::Choices;
use crate::oracle::pool::Bounded;
use alloc::collections::BTreeMap;
use poolhouse_core::pool::{Health, PoolState};
use poolhouse_core::topology::TopologyType;
use poolhouse_core::{Cause, ServerId, ServerType};

/// Maximum number of consecutive refusals of a waiter.
const REFUSALS_MAX: usize = 32;

/// A task that is never answered and never cancelled.
#[derive(Debug)]
pub(super) struct Hung {
    pub(super) task: u64,
    pub(super) server: ServerId,
    /// Number of other tasks on its server that have succeeded since.
    pub(super) others: u32,
}

/// Attempts on members that stay dead.
#[derive(Debug, Default)]
pub(super) struct Dead {
    /// Connection attempts, by member.
    dials: BTreeMap<usize, u32>,
    /// Check-outs, by member.
    check_outs: BTreeMap<usize, u32>,
}

impl<M: Bounded> Simulation<'_, M> {
    /// Runs from the end of the faults until no more tasks are begun.
    pub(super) fn run_without_faults(&mut self) {
        for task in self.tasks.values() {
            if let Some((_, member, _)) = self.client.pools().find(|(server, ..)| *server == task.server) {
                *self.dead.check_outs.entry(member).or_default() += 1;
            }
        }
        let (heartbeat, connect) = (self.plan.heartbeat, self.plan.connect);
        // The bound allows for detection of lost connections, and discovery of the servers one
        // after the other.
        let bound = self.now + 4 * (heartbeat + connect) + BACK_MAX + 5_000 * MS;
        // One connection hangs forever. The other connections of its pool must not be affected
        // (P54).
        let hangs = self.plan.store == Store::Heap && self.plan.pool.max_pool_size != 1 && self.draws.tasks.one_in(4);
        // About 40 tasks until the bound.
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
        self.starts_no_tasks = true;
        // Time for an establishment, three commands, and the waiters ahead in the queue.
        let bound = self.now + connect + 4 * self.plan.op_timeout + 2_000 * MS;
        while self.now < bound && self.has_time_left() {
            self.step();
        }
        let left: Vec<&Task> = self.tasks.values().filter(|task| !task.hangs).collect();
        assert!(left.is_empty(), "P51: tasks do not end: {left:?}");
        self.client.assert_peace();
        self.probe();
        // If the hung task is still busy, the probes used other connections. A clear of the pool
        // may have interrupted it.
        let is_busy = |task: &Task| task.hangs && matches!(task.stage, Stage::Busy(_));
        if self.hung.as_ref().is_some_and(|hung| hung.others > 0 && self.tasks.get(&hung.task).is_some_and(is_busy)) {
            self.counters.checks.add("P54");
        }
        for (member, dials) in &self.dead.dials {
            let check_outs = self.dead.check_outs.get(member).copied().unwrap_or(0);
            // The margin is for background attempts before the first check fails, with a doubled
            // pause after each.
            self.counters.checks.add("P53");
            assert!(*dials <= check_outs + 16, "P53: {dials} connections to n{member} for {check_outs} check-outs");
        }
    }

    /// An operation detects a connection that broke before the faults stopped, and its server is
    /// then unknown until the next check (S19). This waits for that check.
    fn heal(&mut self) {
        let bound = self.lost_at + self.plan.heartbeat + self.plan.connect + BACK_MAX + 1_000 * MS;
        while self.lost_at > 0 && self.now < bound {
            self.step();
        }
    }

    fn has_time_left(&self) -> bool {
        self.tasks.values().any(|task| !task.hangs)
    }

    /// Begins a task that never receives a reply. Returns whether it was begun.
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

    /// Checks that each ready pool provides a working connection (P51), after broken connections
    /// were detected.
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
        assert!(left.is_empty(), "P51: ready pools provide no working connection: {left:?}");
    }

    /// Runs one task for each of these servers to its end.
    fn probe_each(&mut self, servers: &[ServerId]) {
        for &server in servers {
            // A waiter may be refused although there is capacity.
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

    /// Counts a connection attempt.
    pub(super) fn dialed_in_peace(&mut self, member: usize) {
        if self.peace && !self.truth.members[member].up {
            *self.dead.dials.entry(member).or_default() += 1;
        }
    }

    /// Counts a check-out.
    pub(super) fn note_task(&mut self, server: ServerId) {
        if !self.peace {
            return;
        }
        if let Some((_, member, _)) = self.client.pools().find(|at| at.0 == server) {
            *self.dead.check_outs.entry(member).or_default() += 1;
        }
    }

    /// Closes the client, and returns all of its connections.
    pub(super) fn end(&mut self) {
        self.starts_no_tasks = true;
        self.client.close();
        self.settle();
        // The caller of the hung task cancels it.
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

    /// Checks that the client's view matches the deployment, and that its pools work (S19, P51).
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
            // A direct connection to a member of another set, or of no set, is rejected (SDAM-34).
            let is_direct = self.plan.direct.is_some();
            let is_stranger = self.plan.named && is_direct && known.view.server_type == ServerType::RsGhost;
            let right = if known.up && !is_stranger { known.view.server_type } else { ServerType::Unknown };
            let is_right = server_type == right || (!server_type.is_known() && !right.is_known());
            assert!(is_right, "S19: the client sees {see}, but n{member} is {right}");
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
