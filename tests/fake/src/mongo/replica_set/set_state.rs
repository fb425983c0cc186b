//! The state of a fake replica set: running members, connections between them, roles, and the
//! consequences of changes.
//!
//! There is no protocol between the members: connected members share their state at once. Delayed
//! events are stored as [`Due`].

use alloc::sync::Arc;
use core::time::Duration;
use std::time::Instant;

use bson::{DateTime, Document, doc, oid::ObjectId};

use super::super::shared::splitmix64;
use super::super::store::Documents;
use super::super::{FakeServer, LastWrite, Role, ServerState};
use super::config::{Config, MemberConfig, MemberOptions};

/// Limit of the steps in which the consequences of one change must be propagated.
const STEPS_MAX: usize = 1000;

/// The term of one primary.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reign {
    /// The primary.
    pub member: usize,
    /// The `electionId` of its greeting.
    pub election_id: ObjectId,
    /// The `setVersion` at its election.
    pub set_version: i32,
    /// When it was elected.
    pub from: Instant,
    /// When it stepped down or was killed; `None` while it is primary.
    pub until: Option<Instant>,
}

/// The due time of an automatic event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    No,
    At(Instant),
    /// Only on request of the set's owner.
    Held,
}

impl Due {
    fn after(now: Instant, delay: Duration) -> Self {
        // A time that cannot be represented means never.
        now.checked_add(delay).map_or(Self::Held, Self::At)
    }

    fn is_wanted(self) -> bool {
        self != Self::No
    }

    fn is_due(self, clock: Clock) -> bool {
        match self {
            Self::No => false,
            Self::At(at) => clock.all || at <= clock.now,
            Self::Held => clock.all,
        }
    }

    fn at(self) -> Option<Instant> {
        if let Self::At(at) = self { Some(at) } else { None }
    }
}

/// The current time; with `all`, every pending event counts as due.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    pub(super) now: Instant,
    pub(super) all: bool,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) server: Arc<FakeServer>,
    address: String,
    pub(super) alive: bool,
    pub(super) frozen: bool,
    /// Whether clients can reach it; the other members reach it in any case.
    pub(super) reachable: bool,
    /// Members with the same number are connected.
    pub(super) group: usize,
    /// When it will be connected to the others (again); until then its state does not change.
    pub(super) connect_due: Due,
    /// When it will step down because it has no majority.
    step_down_due: Due,
    /// 0, or the sequence number of its requested step-down: it is elected last.
    step_down_number: u64,
    // The member's view of the set.
    config: Option<Arc<Config>>,
    pub(super) role: Role,
    term: i64,
    elected: i64,
    primary: Option<usize>,
    stopped: Option<DateTime>,
    fields: Document,
    shown: Option<ServerState>,
}

impl Member {
    pub(super) fn new(server: FakeServer) -> Self {
        Self {
            address: server.address().to_string(),
            server: Arc::new(server),
            alive: true,
            frozen: false,
            reachable: true,
            group: 0,
            connect_due: Due::No,
            step_down_due: Due::No,
            step_down_number: 0,
            config: None,
            role: Role::Ghost,
            term: 0,
            elected: 0,
            primary: None,
            stopped: None,
            fields: Document::new(),
            shown: None,
        }
    }

    /// Returns whether it answers other members.
    fn responds(&self) -> bool {
        self.alive && !self.frozen
    }

    /// Returns whether it exchanges state with other members.
    fn is_connected(&self) -> bool {
        self.responds() && self.connect_due == Due::No
    }

    fn options(&self, index: usize) -> Option<&MemberOptions> {
        self.config.as_ref().and_then(|config| config.find(index))
    }
}

#[derive(Debug)]
pub(super) struct SetState {
    pub(super) set_name: String,
    pub(super) base: ServerState,
    pub(super) election_delay: Duration,
    pub(super) notice_delay: Duration,
    pub(super) members: Vec<Member>,
    pub(super) documents: Documents,
    pub(super) reigns: Vec<Reign>,
    pub(super) config_version: i32,
    pub(super) stop: bool,
    random: u64,
    term: i64,
    election: Due,
    step_downs_count: u64,
}

impl SetState {
    pub(super) fn new(set_name: String, base: ServerState, documents: Documents, seed: u64) -> Self {
        Self {
            set_name,
            base,
            election_delay: Duration::MAX,
            notice_delay: Duration::MAX,
            members: Vec::new(),
            documents,
            reigns: Vec::new(),
            config_version: 0,
            stop: false,
            random: seed,
            term: 0,
            election: Due::No,
            step_downs_count: 0,
        }
    }

    // Queries.

    /// Returns the primary of the highest term among running members.
    pub(super) fn primary(&self) -> Option<usize> {
        self.primaries().max_by_key(|&index| self.members[index].elected)
    }

    /// Returns every running member that considers itself primary.
    pub(super) fn primaries(&self) -> impl Iterator<Item = usize> {
        let members = self.members.iter().enumerate();
        members.filter(|(_, member)| member.responds() && member.role == Role::Primary).map(|(index, _)| index)
    }

    pub(super) fn election_pending(&self) -> bool {
        self.election.is_wanted()
    }

    /// Returns the configuration of the newest primary, else the newest one of connected members.
    pub(super) fn config(&self) -> Option<&Arc<Config>> {
        match self.primary() {
            Some(primary) => self.members[primary].config.as_ref(),
            None => {
                let connected = self.members.iter().filter(|member| member.is_connected());
                connected.filter_map(|member| member.config.as_ref()).max_by_key(|config| config.version)
            }
        }
    }

    /// Returns the due time of the earliest automatic event.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let dues = self.members.iter().flat_map(|member| [member.connect_due.at(), member.step_down_due.at()]);
        dues.chain([self.election.at()]).flatten().min()
    }

    fn electable(&self, index: usize) -> bool {
        let member = &self.members[index];
        let configured = member.config.as_ref().is_some_and(|config| config.electable(index));
        configured && member.is_connected()
    }

    // Changes; each must be followed by a `propagate`.

    /// Installs a configuration at the primary, or at a connected member if there is no primary.
    pub(super) fn install(&mut self, members: Vec<MemberConfig>) {
        let config = Config { version: self.config_version + 1, members };
        config.check(self.members.len());
        let at = self.primary().filter(|&index| self.members[index].is_connected()).or_else(|| {
            let mut connected = config.members.iter().map(|entry| entry.member);
            connected.find(|&index| self.members[index].is_connected())
        });
        let at = at.expect("a running member is connected");
        self.config_version = config.version;
        self.members[at].config = Some(Arc::new(config));
        for member in &mut self.members {
            member.step_down_number = 0;
        }
        self.documents.touch();
    }

    /// Makes the primary a secondary that is elected last.
    pub(super) fn step_down(&mut self, index: usize) {
        self.step_downs_count += 1;
        let member = &mut self.members[index];
        member.role = Role::Secondary;
        member.step_down_due = Due::No;
        member.step_down_number = self.step_downs_count;
    }

    /// Makes a member the primary of a new term; the others are updated in the next `propagate`.
    ///
    /// Panics if it cannot be elected.
    pub(super) fn elect(&mut self, index: usize, now: Instant) {
        assert!(self.electable(index), "member {index} does not run, is disconnected or may not be elected");
        self.term += 1;
        let term = self.term;
        let member = &mut self.members[index];
        member.role = Role::Primary;
        (member.term, member.elected) = (term, term);
        member.step_down_due = Due::No;
        member.step_down_number = 0;
        let set_version = member.config.as_ref().map_or(0, |config| config.version);
        self.election = Due::No;
        self.documents.touch();
        let election_id = election_id(term);
        self.reigns.push(Reign { member: index, election_id, set_version, from: now, until: None });
    }

    pub(super) fn hold_back(&mut self, index: usize) {
        self.members[index].connect_due = Due::Held;
    }

    pub(super) fn killed(&mut self, index: usize) {
        let member = &mut self.members[index];
        member.alive = false;
        member.frozen = false;
        member.role = Role::Other;
        member.step_down_due = Due::No;
        member.connect_due = Due::No;
    }

    /// Initializes the state of a started member; it is connected to the others after the notice
    /// delay.
    pub(super) fn started(&mut self, index: usize, now: Instant) {
        let news = Due::after(now, self.notice_delay);
        let stopped = self.documents.written();
        let member = &mut self.members[index];
        assert!(!member.alive, "the member already runs");
        member.alive = true;
        member.role = if member.options(index).is_some() { Role::Other } else { Role::Ghost };
        member.connect_due = news;
        member.step_down_number = 0;
        member.primary = None;
        member.stopped.get_or_insert(stopped);
        self.publish_one(index);
    }

    pub(super) fn thawed(&mut self, index: usize, now: Instant) {
        let member = &mut self.members[index];
        if member.frozen {
            member.frozen = false;
            member.connect_due = Due::after(now, self.notice_delay);
        }
    }

    pub(super) fn set_fields(&mut self, index: usize, fields: Document) {
        self.members[index].fields = fields;
    }

    // Consequences of changes.

    /// Propagates changes, processes due events, and publishes the result to the servers.
    pub(super) fn propagate(&mut self, clock: Clock) {
        let mut steps = 0;
        loop {
            self.exchange();
            if !self.act(clock) {
                break;
            }
            steps += 1;
            assert!(steps < STEPS_MAX, "the consequences of a change do not end");
        }
        self.end_reigns(clock.now);
        self.publish();
    }

    fn groups(&self) -> Vec<usize> {
        let mut groups: Vec<usize> = self.members.iter().map(|member| member.group).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    fn connected(&self, group: usize) -> Vec<usize> {
        let members = self.members.iter().enumerate();
        members.filter(|(_, member)| member.group == group && member.is_connected()).map(|(index, _)| index).collect()
    }

    /// Unifies configuration, term and primary of connected members.
    fn exchange(&mut self) {
        for group in self.groups() {
            let connected = self.connected(group);
            let configs = connected.iter().filter_map(|&index| self.members[index].config.as_ref());
            let config = configs.max_by_key(|config| config.version).cloned();
            let term = connected.iter().map(|&index| self.members[index].term).max().unwrap_or(0);
            for &index in &connected {
                let member = &mut self.members[index];
                member.config.clone_from(&config);
                member.term = term;
                member.role = role_of(member, index);
            }
            let primary = connected.iter().copied().find(|&index| self.members[index].role == Role::Primary);
            let written = self.documents.written();
            for &index in &connected {
                let member = &mut self.members[index];
                member.primary = primary.filter(|_| member.role != Role::Ghost);
                member.stopped = if member.primary.is_some() { None } else { member.stopped.or(Some(written)) };
            }
        }
    }

    /// Processes one due event; returns true if there was one.
    fn act(&mut self, clock: Clock) -> bool {
        for member in &mut self.members {
            if member.connect_due.is_due(clock) {
                member.connect_due = Due::No;
                return true;
            }
        }
        for index in 0..self.members.len() {
            let member = &self.members[index];
            let alone = member.is_connected() && member.role == Role::Primary && !self.has_majority(index);
            let due = match (alone, member.step_down_due) {
                (false, _) => Due::No,
                (true, Due::No) => Due::after(clock.now, self.notice_delay),
                (true, due) => due,
            };
            let member = &mut self.members[index];
            member.step_down_due = due;
            if due.is_due(clock) {
                member.step_down_due = Due::No;
                member.role = Role::Secondary;
                return true;
            }
        }
        let candidates = self.candidates();
        self.election = match (candidates.is_empty(), self.election) {
            (true, _) => Due::No,
            (false, Due::No) => Due::after(clock.now, self.election_delay),
            (false, due) => due,
        };
        if self.election.is_due(clock) {
            let count = u64::try_from(candidates.len()).unwrap_or(1);
            let choice = usize::try_from(splitmix64(&mut self.random) % count).unwrap_or(0);
            self.elect(candidates[choice], clock.now);
            return true;
        }
        false
    }

    /// Returns whether the member is connected to a majority of the voters of its configuration.
    fn has_majority(&self, index: usize) -> bool {
        let Some(config) = &self.members[index].config else { return false };
        let group = self.members[index].group;
        let reached = config.voters().filter(|&voter| {
            let voter = &self.members[voter];
            voter.responds() && voter.group == group
        });
        reached.count() > config.voters().count() / 2
    }

    /// Returns the candidates of a pending election; empty = no election is pending.
    fn candidates(&self) -> Vec<usize> {
        for group in self.groups() {
            let connected = self.connected(group);
            let primary = connected.iter().copied().find(|&index| self.members[index].role == Role::Primary);
            let fit = |&index: &usize| self.electable(index) && self.has_majority(index);
            let fit: Vec<usize> = connected.into_iter().filter(fit).collect();
            let best = self.best_of(&fit);
            let Some(&first) = best.first() else { continue };
            let wanted = match primary {
                None => true,
                // A member of higher priority takes over, except after a requested step-down: then
                // the primary ranks higher.
                Some(primary) => self.priority(first) > self.priority(primary),
            };
            if wanted {
                return best;
            }
        }
        Vec::new()
    }

    /// Returns the members of the highest priority, except those that stepped down on request; if
    /// all did, the member that stepped down first.
    fn best_of(&self, members: &[usize]) -> Vec<usize> {
        let fresh: Vec<usize> =
            members.iter().copied().filter(|&index| self.members[index].step_down_number == 0).collect();
        if fresh.is_empty() {
            return members
                .iter()
                .copied()
                .min_by_key(|&index| self.members[index].step_down_number)
                .into_iter()
                .collect();
        }
        let highest = fresh.iter().map(|&index| self.priority(index)).max();
        fresh.into_iter().filter(|&index| Some(self.priority(index)) == highest).collect()
    }

    fn priority(&self, index: usize) -> u32 {
        self.members[index].options(index).map_or(0, |options| options.priority)
    }

    fn end_reigns(&mut self, now: Instant) {
        for reign in self.reigns.iter_mut().filter(|reign| reign.until.is_none()) {
            let member = &self.members[reign.member];
            if member.role != Role::Primary || election_id(member.elected) != reign.election_id {
                reign.until = Some(now);
            }
        }
    }

    // Publication to the servers.

    fn publish(&mut self) {
        for index in self.publish_order() {
            if self.members[index].alive {
                self.publish_one(index);
            }
        }
    }

    /// Former primaries first, then a new primary, then the other members: clients never
    /// observe two primaries unless there are two.
    pub(super) fn publish_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        order.sort_by_key(|&index| {
            let member = &self.members[index];
            let was = member.shown.as_ref().is_some_and(|shown| shown.role == Role::Primary);
            match (was, member.role == Role::Primary) {
                (true, false) => 0,
                (_, true) => 1,
                (false, false) => 2,
            }
        });
        order
    }

    fn publish_one(&mut self, index: usize) {
        let state = self.state_of(index);
        let member = &mut self.members[index];
        let last_write = state.last_write;
        let alike = member.shown.as_ref().is_some_and(|shown| {
            let shown = ServerState { last_write, ..shown.clone() };
            shown == state
        });
        if !alike {
            let removed = state.role == Role::Ghost && member.shown.as_ref().is_some_and(|was| was.role != Role::Ghost);
            if removed {
                // A real member also does this, and still answers some of the waiting hellos.
                member.server.set_state_and_close(state.clone());
            } else {
                member.server.set_state(state.clone());
            }
        } else if member.shown.as_ref().is_some_and(|shown| shown.last_write != last_write) {
            member.server.amend_state(|shown| shown.last_write = last_write);
        }
        member.shown = Some(state);
    }

    fn state_of(&self, index: usize) -> ServerState {
        let member = &self.members[index];
        let mut state = self.base.clone();
        match &member.config {
            Some(config) if config.find(index).is_some() => {
                state.role = member.role;
                state.last_write = Some(LastWrite { term: member.term, stopped: member.stopped });
                state.fields.extend(self.set_fields_of(index, config));
            }
            _ => {
                state.role = Role::Ghost;
                state.fields.insert("info", "Does not have a valid replica set config");
            }
        }
        state.fields.extend(member.fields.clone());
        state
    }

    fn set_fields_of(&self, index: usize, config: &Config) -> Document {
        let member = &self.members[index];
        let addresses = |chosen: &dyn Fn(&MemberOptions) -> bool| -> Vec<String> {
            let entries = config.members.iter().filter(|entry| !entry.options.hidden && chosen(&entry.options));
            entries.map(|entry| self.members[entry.member].address.clone()).collect()
        };
        let mut fields = doc! {
            "setName": self.set_name.as_str(),
            "setVersion": config.version,
            "hosts": addresses(&|options| !options.arbiter && options.priority > 0),
        };
        let lists = [
            ("passives", addresses(&|options| !options.arbiter && options.priority == 0)),
            ("arbiters", addresses(&|options| options.arbiter)),
        ];
        for (name, list) in lists {
            if !list.is_empty() {
                fields.insert(name, list);
            }
        }
        if let Some(primary) = member.primary {
            fields.insert("primary", self.members[primary].address.as_str());
        }
        fields.insert("me", member.address.as_str());
        if member.role == Role::Primary {
            fields.insert("electionId", election_id(member.elected));
        }
        if let Some(options) = config.find(index) {
            if options.hidden {
                fields.insert("hidden", true);
            }
            if options.priority == 0 && !options.arbiter {
                fields.insert("passive", true);
            }
            if !options.tags.is_empty() {
                fields.insert("tags", options.tags.clone());
            }
        }
        fields
    }
}

/// Returns the role of a member that has the current configuration and the highest term.
fn role_of(member: &Member, index: usize) -> Role {
    let Some(options) = member.options(index) else { return Role::Ghost };
    if options.arbiter {
        Role::Arbiter
    } else if member.role == Role::Primary && member.elected == member.term && options.priority > 0 {
        Role::Primary
    } else {
        Role::Secondary
    }
}

/// Returns the `electionId` of a term, greater for a later term.
fn election_id(term: i64) -> ObjectId {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff]);
    bytes[4..].copy_from_slice(&term.to_be_bytes());
    ObjectId::from_bytes(bytes)
}
