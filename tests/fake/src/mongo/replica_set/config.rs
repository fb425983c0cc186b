//! Options of a fake replica set and its configuration.

use core::time::Duration;

use bson::Document;

use super::super::FakeOptions;

/// Largest number of members of a set.
pub(super) const MEMBERS_MAX: usize = 50;
/// Largest number of voting members.
pub(super) const VOTERS_MAX: usize = 7;

/// The options of one member in the configuration. By default it votes and can become primary, with
/// priority 1.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct MemberOptions {
    /// The member with the highest priority becomes primary; 0 = never (a passive member).
    pub priority: u32,
    /// Whether it has a vote; without a vote its priority is 0.
    pub votes: bool,
    /// Whether it is hidden from clients; then its priority is 0.
    pub hidden: bool,
    /// Whether it stores no data.
    pub arbiter: bool,
    /// `tags` in its hello replies; left out when empty.
    pub tags: Document,
}

impl Default for MemberOptions {
    fn default() -> Self {
        Self { priority: 1, votes: true, hidden: false, arbiter: false, tags: Document::new() }
    }
}

impl MemberOptions {
    /// Sets the priority; 0 makes the member passive.
    #[must_use]
    pub fn priority(mut self, priority: u32) -> Self {
        self.priority = priority;
        self
    }

    /// Makes it hidden, with priority 0.
    #[must_use]
    pub fn hidden(mut self) -> Self {
        self.hidden = true;
        self.priority = 0;
        self
    }

    /// Makes it an arbiter, with priority 0.
    #[must_use]
    pub fn arbiter(mut self) -> Self {
        self.arbiter = true;
        self.priority = 0;
        self
    }

    /// Removes its vote and sets its priority to 0.
    #[must_use]
    pub fn without_vote(mut self) -> Self {
        self.votes = false;
        self.priority = 0;
        self
    }

    /// Sets its tags.
    #[must_use]
    pub fn tags(mut self, tags: Document) -> Self {
        self.tags = tags;
        self
    }
}

/// Options of a fake replica set. The default has three equal members.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FakeReplicaSetOptions {
    /// The set's name.
    pub set_name: String,
    /// The members; the index of each in this list identifies it permanently.
    pub members: Vec<MemberOptions>,
    /// Time from the loss of a primary to the next one; [`Duration::MAX`] = not before
    /// [`settle`](super::FakeReplicaSet::settle) or [`elect`](super::FakeReplicaSet::elect).
    pub election_delay: Duration,
    /// Time until a started or thawed member detects the other members, and until a primary without
    /// a majority steps down; [`Duration::MAX`] as above.
    pub notice_delay: Duration,
    /// Seed of the choice among equal candidates in elections.
    pub seed: u64,
    /// Options of each server; its `state` is the common state of the members (release, wire
    /// versions, ...). Port and unix path are not used.
    pub server: FakeOptions,
}

impl Default for FakeReplicaSetOptions {
    fn default() -> Self {
        Self::of(3)
    }
}

impl FakeReplicaSetOptions {
    /// A set of `count` members; those beyond the first seven have no vote, as a real set requires.
    pub fn of(count: usize) -> Self {
        let member = |index| {
            if index < VOTERS_MAX { MemberOptions::default() } else { MemberOptions::default().without_vote() }
        };
        Self {
            set_name: "rs0".to_owned(),
            members: (0..count).map(member).collect(),
            election_delay: Duration::from_millis(50),
            notice_delay: Duration::from_millis(20),
            seed: 1,
            server: FakeOptions::default(),
        }
    }

    /// The same options with infinite delays: events are processed only by
    /// [`settle`](super::FakeReplicaSet::settle) and [`elect`](super::FakeReplicaSet::elect).
    #[must_use]
    pub fn by_hand(mut self) -> Self {
        self.election_delay = Duration::MAX;
        self.notice_delay = Duration::MAX;
        self
    }
}

/// An entry of the configuration.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct MemberConfig {
    /// The member's index.
    pub member: usize,
    /// Its options.
    pub options: MemberOptions,
}

impl MemberConfig {
    /// Creates the entry of this member.
    pub fn new(member: usize, options: MemberOptions) -> Self {
        Self { member, options }
    }
}

/// A configuration as stored by the members.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Config {
    pub(super) version: i32,
    pub(super) members: Vec<MemberConfig>,
}

impl Config {
    pub(super) fn find(&self, member: usize) -> Option<&MemberOptions> {
        self.members.iter().find(|entry| entry.member == member).map(|entry| &entry.options)
    }

    pub(super) fn voters(&self) -> impl Iterator<Item = usize> {
        self.members.iter().filter(|entry| entry.options.votes).map(|entry| entry.member)
    }

    /// Returns whether the configuration allows the member to become primary.
    pub(super) fn electable(&self, member: usize) -> bool {
        self.find(member).is_some_and(|options| options.priority > 0)
    }

    /// Panics if the configuration is invalid for a real set. `count` is the number of servers.
    pub(super) fn check(&self, count: usize) {
        assert!(!self.members.is_empty(), "a set has members");
        assert!(self.members.len() <= MEMBERS_MAX, "a set has at most {MEMBERS_MAX} members");
        assert!(self.voters().count() <= VOTERS_MAX, "a set has at most {VOTERS_MAX} voting members");
        assert!(self.voters().count() > 0, "a set has a voting member");
        for (index, MemberConfig { member, options }) in self.members.iter().enumerate() {
            assert!(*member < count, "there is no member {member}");
            let twice = self.members[..index].iter().any(|other| other.member == *member);
            assert!(!twice, "member {member} is listed twice");
            let passive = options.hidden || options.arbiter || !options.votes;
            assert!(
                !passive || options.priority == 0,
                "member {member} is hidden, an arbiter or without a vote, so its priority must be 0"
            );
        }
    }
}
