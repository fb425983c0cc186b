//! What goes wrong, and how it stops.

use super::kind::Kind;
use super::life::{BACK_MAX, MS, World};
use super::network::Event;
use super::truth::{Deployment, Reach};
use crate::choices::Choices;
use poolhouse_core::Cause;

impl World<'_> {
    /// One more fault, or the end of all.
    pub(super) fn fault(&mut self) {
        if self.faults_left == 0 {
            return self.make_peace();
        }
        self.faults_left -= 1;
        let pause = self.pause * u64::from(self.rng.below(8) + 1) / 4;
        self.net.at(self.now + pause, Event::Fault);
        let member = self.truth.config[self.rng.index(self.truth.config.len())];
        match self.rng.below(16) {
            0 => self.kill(member, true),
            1 => self.kill(member, false),
            2 | 3 => self.restart(member),
            4 => self.freeze(member),
            5 | 6 => self.thaw(member),
            7 => self.reach(member, Reach::Lost),
            8 => self.reach(member, Reach::Refused),
            9 => self.reach(member, Reach::Open),
            10 => self.step_down(),
            11 => self.elect_another(),
            12 => self.join_or_leave(),
            13 => self.reset_link(),
            14 => self.jump(),
            _ => self.misbehave(),
        }
    }

    fn note(&mut self, kind: Kind, member: usize) {
        self.counters.count(kind);
        self.say(|| format!("== {kind:?} n{member}"));
    }

    fn kill(&mut self, member: usize, with_reset: bool) {
        if !self.truth.members[member].up {
            return;
        }
        self.note(if with_reset { Kind::Kill } else { Kind::Vanish }, member);
        self.truth.members[member].up = false;
        self.truth.members[member].frozen = false;
        self.backlog[member].clear();
        for link in self.net.of_member(member) {
            if with_reset {
                let at = self.now + self.delay();
                self.net.at(at, Event::ResetAtClient(link));
            } else if let Some(link) = self.net.links.get_mut(&link) {
                link.lost = true;
            }
        }
        self.lose_primary(member);
    }

    /// The others miss a primary.
    fn lose_primary(&mut self, member: usize) {
        if self.truth.primary != Some(member) {
            return;
        }
        self.truth.primary = None;
        for other in 0..6 {
            if other != member {
                self.sync_later(other);
            }
        }
        let at = self.now + u64::from(self.rng.below(2_000)) * MS;
        self.net.at(at, Event::Elect);
    }

    fn sync_later(&mut self, member: usize) {
        let at = self.now + u64::from(self.rng.below(600)) * MS;
        self.net.at(at, Event::Sync(member));
    }

    fn restart(&mut self, member: usize) {
        if self.truth.members[member].up {
            return;
        }
        self.note(Kind::Restart, member);
        self.truth.restart(member);
        self.sync_later(member);
    }

    fn freeze(&mut self, member: usize) {
        if !self.truth.members[member].is_running() {
            return;
        }
        self.note(Kind::Freeze, member);
        self.truth.members[member].frozen = true;
        self.lose_primary(member);
    }

    fn thaw(&mut self, member: usize) {
        if !self.truth.members[member].frozen {
            return;
        }
        self.note(Kind::Thaw, member);
        self.truth.members[member].frozen = false;
        for event in core::mem::take(&mut self.backlog[member]) {
            self.net.at(self.now, event);
        }
        self.sync_later(member);
    }

    fn reach(&mut self, member: usize, reach: Reach) {
        if self.truth.members[member].reach == reach {
            return;
        }
        let kind = match reach {
            Reach::Open => Kind::Heal,
            Reach::Lost => Kind::Partition,
            Reach::Refused => Kind::Refuse,
        };
        self.note(kind, member);
        self.truth.members[member].reach = reach;
        if reach == Reach::Refused {
            for link in self.net.of_member(member) {
                self.net.at(self.now, Event::ResetAtClient(link));
            }
        }
    }

    fn step_down(&mut self) {
        let Some(primary) = self.truth.primary else { return };
        self.note(Kind::StepDown, primary);
        self.truth.primary = None;
        if self.truth.sync(primary) {
            self.changed(primary);
        }
        for member in 0..6 {
            self.sync_later(member);
        }
        let at = self.now + u64::from(self.rng.below(1_000)) * MS;
        self.net.at(at, Event::Elect);
    }

    /// Somebody becomes primary, if nobody is.
    pub(super) fn elect(&mut self) {
        let candidates = self.truth.candidates();
        if self.truth.primary.is_some() || candidates.is_empty() || self.truth.deployment != Deployment::Set {
            return;
        }
        let chosen = candidates[self.rng.index(candidates.len())];
        self.note(Kind::Election, chosen);
        self.install(chosen);
    }

    /// Another one becomes primary, and the old one does not know yet.
    fn elect_another(&mut self) {
        let mut candidates = self.truth.candidates();
        candidates.retain(|&member| self.truth.primary != Some(member));
        if candidates.is_empty() || self.truth.deployment != Deployment::Set {
            return;
        }
        let chosen = candidates[self.rng.index(candidates.len())];
        self.note(Kind::TwoPrimaries, chosen);
        self.install(chosen);
    }

    fn install(&mut self, chosen: usize) {
        if self.truth.elect(chosen) {
            self.changed(chosen);
        }
        for member in 0..6 {
            self.sync_later(member);
        }
    }

    /// Somebody comes or goes, or both at once; never the first member, nor the primary.
    fn join_or_leave(&mut self) {
        let Some(primary) = self.truth.primary.filter(|&primary| self.truth.members[primary].is_running()) else {
            return;
        };
        let mut config = self.truth.config.clone();
        for _ in 0..=self.rng.below(2) {
            let member = self.rng.index(5) + 1;
            if !config.contains(&member) {
                config.push(member);
                config.sort_unstable();
                self.note(Kind::Join, member);
            } else if member != primary {
                config.retain(|&other| other != member);
                self.note(Kind::Leave, member);
            }
        }
        if config != self.truth.config && self.truth.reconfigure(config) {
            self.changed(primary);
        }
        for member in 0..6 {
            self.sync_later(member);
        }
    }

    fn reset_link(&mut self) {
        let links: Vec<u64> = self.net.links.iter().filter(|(_, link)| link.up).map(|(id, _)| *id).collect();
        if links.is_empty() {
            return;
        }
        let link = links[self.rng.index(links.len())];
        self.note(Kind::Reset, self.net.links[&link].member);
        self.net.at(self.now, Event::ResetAtClient(link));
    }

    fn jump(&mut self) {
        if self.rng.one_in(2) {
            self.counters.count(Kind::ClockForward);
            let by = u64::from(self.rng.one_of(&[600_u32, 15_000, 3_600_000])) * MS;
            self.skew = self.skew.saturating_add_unsigned(by);
            self.say(|| format!("== the client's clock jumps {} ms", by / MS));
        } else if self.clock() >= self.client.now {
            self.counters.count(Kind::ClockBack);
            let by = u64::from(self.rng.below(2_000)) * MS;
            assert!(by <= BACK_MAX);
            self.skew = self.skew.saturating_sub_unsigned(by);
            self.say(|| format!("== the client's clock goes back {} ms", by / MS));
        }
    }

    /// The host tells old news, or somebody asks for a check.
    fn misbehave(&mut self) {
        if self.rng.one_in(2) || self.net.given_up.is_empty() {
            self.counters.count(Kind::Request);
            return self.client.request();
        }
        self.counters.count(Kind::LateNews);
        let given_up: Vec<_> = self.net.given_up.iter().copied().collect();
        for (server, line) in given_up {
            let snapshot = self.truth.snapshot(0);
            let late = match self.rng.below(3) {
                0 => self.client.dialed(server, line),
                1 => self.client.failed(server, line, Cause::NetworkTimeout),
                _ => self.client.replied(server, line, &snapshot),
            };
            assert!(late.is_err(), "late news of #{server} was taken");
            assert!(self.client.wants.is_empty(), "late news has consequences");
        }
    }

    /// Faults stop: whoever is not to stay dead comes back, and all know how things are.
    fn make_peace(&mut self) {
        self.peace = true;
        self.say(|| "== peace".to_owned());
        for member in 0..6 {
            self.reach(member, Reach::Open);
            self.thaw(member);
            // The first member comes back; of the others some never do.
            if member == 0 || self.rng.one_in(2) {
                self.restart(member);
            }
        }
        let has_primary = self.truth.primary.is_some_and(|primary| self.truth.members[primary].is_running());
        if self.truth.deployment == Deployment::Set && !has_primary {
            self.truth.primary = None;
            if !self.rng.one_in(8) {
                self.elect();
            }
        }
        for member in 0..6 {
            if self.truth.sync(member) {
                self.changed(member);
            }
        }
    }
}
