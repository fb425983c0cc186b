//! Faults, and the end of faults.

use super::cassandra::{IS_BOOTSTRAPPING, OVERLOADED, SERVER_ERROR};
use super::links::{Event, Packet};
use super::nodes::NodeChange;
use super::plan::{ClusterPlan, MS};
use super::state::State;
use super::truth::{Deployment, HOSTS, Way};
use crate::choices::Choices;
use crate::kind::Kind;

/// Faults of members, of connections and of the host, at drawn times.
const FAULTS: [Kind; 21] = [
    Kind::Kill,
    Kind::Vanish,
    Kind::Restart,
    Kind::Restart,
    Kind::Freeze,
    Kind::Thaw,
    Kind::Thaw,
    Kind::Partition,
    Kind::PartitionThere,
    Kind::PartitionBack,
    Kind::Refuse,
    Kind::Heal,
    Kind::Swizzle,
    Kind::StepDown,
    Kind::TwoPrimaries,
    Kind::Join,
    Kind::Reset,
    Kind::HalfOpen,
    Kind::Unsolicited,
    Kind::ClockForward,
    Kind::Spurious,
];

/// The errors with which a node that shuts down refuses requests.
const REFUSALS: [u32; 3] = [OVERLOADED, IS_BOOTSTRAPPING, SERVER_ERROR];

impl State {
    /// A node of a cluster shows a bad habit. After the faults, only one that each request must bear, and
    /// not so often that it happens again while a request is repaired.
    pub(super) fn habit(&mut self) {
        let ClusterPlan { shuts_down, forgets, .. } = self.plan.cluster;
        let pause = if self.peace { 1_000 * MS } else { self.plan.pause };
        let pause = pause * u64::from(self.draws.habits.below(8) + 4) / 4;
        self.net.at(self.now + pause, Event::Habit);
        let member = self.truth.config[self.draws.habits.index(self.truth.config.len())];
        if self.draws.habits.one_in(2) {
            if forgets {
                self.forget(member);
            }
        } else if shuts_down && !self.peace {
            self.shut_down(member);
        }
    }

    fn forget(&mut self, member: usize) {
        let before = self.prepared.len();
        self.prepared.retain(|(other, _)| *other != member);
        if self.prepared.len() < before {
            self.note(Kind::Forgets, member as u64);
        }
    }

    /// A node begins to shut down: it accepts connections, and refuses requests on them, until its process
    /// ends. It may close the connections that it has.
    fn shut_down(&mut self, member: usize) {
        let known = &mut self.truth.members[member];
        if !known.is_running() || known.refusal.is_some() {
            return;
        }
        known.refusal = Some(self.draws.habits.one_of(&REFUSALS));
        let process = known.process;
        self.note(Kind::ShutsDown, member as u64);
        if self.draws.habits.one_in(2) {
            for id in self.net.of_member(member) {
                let at = self.now + self.delay();
                self.net.send_back(id, at, Packet::End);
            }
        }
        let at = self.now + u64::from(self.draws.habits.below(5_000)) * MS;
        self.net.at(at, Event::ShutDown(member, process));
    }

    pub(super) fn end_of_shut_down(&mut self, member: usize, process: u32) {
        let known = &self.truth.members[member];
        if known.process == process && known.refusal.is_some() {
            self.kill(member, true);
        }
    }

    /// Executes the next fault, or ends the faults.
    pub(super) fn fault(&mut self) {
        if self.faults_left == 0 {
            return self.end_faults();
        }
        self.faults_left -= 1;
        let pause = self.plan.pause * u64::from(self.draws.faults.below(8) + 1) / 4;
        self.net.at(self.now + pause, Event::Fault);
        let member = self.truth.config[self.draws.faults.index(self.truth.config.len())];
        let Some(kind) = self.plan.pick(&FAULTS, self.last_kind, &mut self.draws.faults) else { return };
        self.last_kind = Some(kind);
        let way = self.truth.members[member].way;
        match kind {
            Kind::Kill => self.kill(member, true),
            Kind::Vanish => self.kill(member, false),
            Kind::Restart => self.restart(member),
            Kind::Freeze => self.freeze(member),
            Kind::Thaw => self.thaw(member),
            Kind::Partition => self.lead(kind, member, Way { lost_there: true, lost_back: true, ..way }),
            Kind::PartitionThere => self.lead(kind, member, Way { lost_there: true, ..way }),
            Kind::PartitionBack => self.lead(kind, member, Way { lost_back: true, ..way }),
            Kind::Refuse => self.lead(kind, member, Way { refused: true, ..way }),
            Kind::Heal => self.lead(kind, member, Way { clogged: way.clogged, ..Way::default() }),
            Kind::Swizzle => self.swizzle(),
            Kind::StepDown => self.step_down(),
            Kind::TwoPrimaries => self.elect_another(),
            Kind::Join if self.plan.cluster.discovers => self.join_or_leave_cluster(),
            Kind::Join => self.join_or_leave(),
            Kind::Reset | Kind::HalfOpen | Kind::Unsolicited => self.harm_link(kind),
            Kind::ClockForward => self.jump_forward(),
            _ => self.is_disturbed = true,
        }
    }

    pub(super) fn note(&mut self, kind: Kind, what: u64) {
        self.counters.count(kind);
        self.trace_line(|| format!("== {kind:?} {what}"));
    }

    /// Changes that the end of faults causes were not drawn, and are not counted.
    fn note_member(&mut self, kind: Kind, member: usize) {
        if !self.peace || matches!(kind, Kind::DeadForGood | Kind::Election) {
            self.counters.count(kind);
        }
        self.trace_line(|| format!("== {kind:?} n{member}"));
    }

    fn kill(&mut self, member: usize, with_reset: bool) {
        if !self.truth.members[member].up {
            return;
        }
        self.note_member(if with_reset { Kind::Kill } else { Kind::Vanish }, member);
        let is_silent = !with_reset && self.draws.faults.one_in(2);
        let known = &mut self.truth.members[member];
        (known.up, known.frozen, known.silent, known.refusal) = (false, false, is_silent, None);
        for id in self.net.of_member(member) {
            if with_reset {
                let at = self.now + self.delay();
                self.cut(id, at);
            } else if let Some(link) = self.net.links.get_mut(&id) {
                (link.lost_there, link.lost_back, link.is_broken) = (true, true, true);
            }
        }
        self.lose_primary(member);
        self.schedule_node_events(member, NodeChange::Down);
    }

    /// The primary is lost, and the other members notice it.
    fn lose_primary(&mut self, member: usize) {
        if self.truth.primary != Some(member) {
            return;
        }
        self.truth.primary = None;
        for other in 0..HOSTS.len() {
            if other != member {
                self.sync_later(other);
            }
        }
        let at = self.now + u64::from(self.draws.faults.below(2_000)) * MS;
        self.net.at(at, Event::Elect);
    }

    fn sync_later(&mut self, member: usize) {
        let at = self.now + u64::from(self.draws.faults.below(600)) * MS;
        self.net.at(at, Event::Sync(member));
    }

    fn restart(&mut self, member: usize) {
        if self.truth.members[member].up {
            return;
        }
        self.note_member(Kind::Restart, member);
        self.truth.restart(member);
        self.sync_later(member);
        self.schedule_node_events(member, NodeChange::Up);
    }

    pub(super) fn freeze(&mut self, member: usize) {
        if !self.truth.members[member].is_running() {
            return;
        }
        self.note_member(Kind::Freeze, member);
        self.truth.members[member].frozen = true;
        self.lose_primary(member);
    }

    fn thaw(&mut self, member: usize) {
        if !self.truth.members[member].frozen {
            return;
        }
        self.note_member(Kind::Thaw, member);
        self.truth.members[member].frozen = false;
        for id in self.net.of_member(member) {
            self.process_input(id);
        }
        // Streams that became due in the meantime continue.
        self.changed(member);
        self.sync_later(member);
    }

    /// Changes the faults of the path between the client and a member.
    fn lead(&mut self, kind: Kind, member: usize, way: Way) {
        if self.truth.members[member].way == way {
            return;
        }
        self.note_member(kind, member);
        let was_refused = self.truth.members[member].way.refused;
        self.truth.members[member].way = way;
        if way.refused && !was_refused {
            for id in self.net.of_member(member) {
                self.cut(id, self.now);
            }
        }
    }

    /// Holds back some members one after the other, and releases them in another order.
    fn swizzle(&mut self) {
        let members: Vec<usize> = (0..HOSTS.len()).filter(|_| self.draws.faults.one_in(2)).collect();
        let last = self.now + u64::from(self.draws.faults.below(1_500)) * MS;
        for &member in &members {
            let clog = self.now + u64::from(self.draws.faults.below(500)) * MS;
            let unclog = last.max(clog) + u64::from(self.draws.faults.below(500)) * MS + 1;
            self.net.at(clog, Event::Clog(member));
            self.net.at(unclog, Event::Unclog(member));
        }
    }

    pub(super) fn clog(&mut self, member: usize) {
        if !self.peace && !self.truth.members[member].way.clogged {
            self.truth.members[member].way.clogged = true;
            self.note_member(Kind::Swizzle, member);
        }
    }

    /// Delivers the held messages of a member in order.
    pub(super) fn unclog(&mut self, member: usize) {
        self.truth.members[member].way.clogged = false;
        let held = self.net.clogged.remove(&member).unwrap_or_default();
        if !held.is_empty() {
            self.note_member(Kind::Unclog, member);
        }
        for event in held {
            self.happen(event);
        }
    }

    fn step_down(&mut self) {
        let Some(primary) = self.truth.primary else { return };
        self.note_member(Kind::StepDown, primary);
        self.truth.primary = None;
        if self.truth.sync(primary) {
            self.changed(primary);
        }
        for member in 0..HOSTS.len() {
            self.sync_later(member);
        }
        let at = self.now + u64::from(self.draws.faults.below(1_000)) * MS;
        self.net.at(at, Event::Elect);
    }

    /// Elects a primary if there is none.
    pub(super) fn elect(&mut self) {
        let candidates = self.truth.candidates();
        if self.truth.primary.is_some() || candidates.is_empty() || self.truth.deployment != Deployment::Set {
            return;
        }
        let chosen = candidates[self.draws.faults.index(candidates.len())];
        self.note_member(Kind::Election, chosen);
        self.install(chosen);
    }

    /// Elects another primary. The old one is not notified immediately.
    fn elect_another(&mut self) {
        let mut candidates = self.truth.candidates();
        candidates.retain(|&member| self.truth.primary != Some(member));
        if candidates.is_empty() || self.truth.deployment != Deployment::Set {
            return;
        }
        let chosen = candidates[self.draws.faults.index(candidates.len())];
        self.note_member(Kind::TwoPrimaries, chosen);
        self.install(chosen);
    }

    fn install(&mut self, chosen: usize) {
        if self.truth.elect(chosen) {
            self.changed(chosen);
        }
        for member in 0..HOSTS.len() {
            self.sync_later(member);
        }
    }

    /// Adds a member, removes one, or both; never the first member, nor the primary.
    fn join_or_leave(&mut self) {
        let Some(primary) = self.truth.primary.filter(|&primary| self.truth.members[primary].is_running()) else {
            return;
        };
        let mut config = self.truth.config.clone();
        for _ in 0..=self.draws.faults.below(2) {
            let member = self.draws.faults.index(5) + 1;
            if !config.contains(&member) {
                config.push(member);
                config.sort_unstable();
                self.note_member(Kind::Join, member);
            } else if member != primary {
                config.retain(|&other| other != member);
                self.note_member(Kind::Leave, member);
            }
        }
        if config != self.truth.config && self.truth.reconfigure(config) {
            self.changed(primary);
        }
        for member in 0..HOSTS.len() {
            self.sync_later(member);
        }
    }

    /// Adds a node to a cluster, or removes one and stops it; never the first node.
    fn join_or_leave_cluster(&mut self) {
        let member = self.draws.faults.index(HOSTS.len() - 1) + 1;
        let mut config = self.truth.config.clone();
        let joins = !config.contains(&member);
        if joins {
            config.push(member);
            config.sort_unstable();
        } else {
            config.retain(|&other| other != member);
        }
        self.note_member(if joins { Kind::Join } else { Kind::Leave }, member);
        self.truth.reconfigure(config);
        if joins {
            self.restart(member);
        } else {
            let with_reset = self.draws.faults.one_in(2);
            self.kill(member, with_reset);
        }
        for member in 0..HOSTS.len() {
            self.sync_later(member);
        }
        self.schedule_node_events(member, if joins { NodeChange::New } else { NodeChange::Removed });
    }

    fn harm_link(&mut self, kind: Kind) {
        let links = self.net.standing();
        if links.is_empty() {
            return;
        }
        let id = links[self.draws.faults.index(links.len())];
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let member = link.member;
        // Without delivery, the fault has no effect.
        let is_lost = if kind == Kind::HalfOpen { link.lost_there } else { link.lost_back };
        match kind {
            _ if is_lost => return,
            Kind::HalfOpen => (link.lost_there, link.is_broken) = (true, true),
            Kind::Unsolicited => self.send_unsolicited(id),
            _ => {
                self.net.send_back(id, self.now, Packet::Reset);
            }
        }
        self.note_member(kind, member);
    }

    fn jump_forward(&mut self) {
        let by = u64::from(self.draws.host.one_of(&[600_u32, 15_000, 3_600_000])) * MS;
        self.skew += by;
        self.jumped_at = Some(self.now);
        self.note(Kind::ClockForward, by / MS);
    }

    /// Stops the faults. Connections that the faults broke are reset. Members that are not to stay
    /// dead are restarted, and all members learn the state of the set.
    fn end_faults(&mut self) {
        self.peace = true;
        self.peace_from = Some(self.now);
        self.trace_line(|| "== peace".to_owned());
        for member in 0..HOSTS.len() {
            self.unclog(member);
            self.lead(Kind::Heal, member, Way::default());
            self.thaw(member);
            self.truth.members[member].refusal = None;
            // A node that has left a cluster does not return.
            if self.plan.cluster.discovers && !self.truth.config.contains(&member) {
                continue;
            }
            // The first member is always restarted; some of the others stay dead.
            if member == 0 || self.draws.faults.one_in(2) {
                self.restart(member);
            }
            if !self.truth.members[member].up {
                self.note_member(Kind::DeadForGood, member);
            }
        }
        let has_primary = self.truth.primary.is_some_and(|primary| self.truth.members[primary].is_running());
        if self.truth.deployment == Deployment::Set && !has_primary {
            self.truth.primary = None;
            if !self.draws.faults.one_in(8) {
                self.elect();
            }
        }
        for member in 0..HOSTS.len() {
            if self.truth.sync(member) {
                self.changed(member);
            }
        }
        self.reset_broken_links();
    }

    /// Resets the connections that a fault broke. A member that is dead and silent resets none.
    fn reset_broken_links(&mut self) {
        for id in self.net.standing() {
            let Some(link) = self.net.links.get_mut(&id) else { continue };
            let known = &self.truth.members[link.member];
            if link.is_broken && (known.up || !known.silent) {
                (link.lost_there, link.lost_back) = (false, false);
                self.cut(id, self.now);
            }
        }
    }
}
