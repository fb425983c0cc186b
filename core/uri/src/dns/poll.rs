//! The hosts of a sharded cluster, looked up again and again.
//!
//! Read first: Polling SRV Records for mongos Discovery.

use super::answer::SrvAnswer;
use super::error::{LookupError, SeedlistError};
use super::seedlist::{SrvQuestion, choose};
use crate::Host;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::topology::TopologyType;

/// The hosts are not looked up more often than this, as long as lookups succeed.
pub const SRV_POLL_INTERVAL_MIN: Duration = Duration::from_secs(60);

/// The hosts are looked up at least this often, however long the records' time to live is: one forged answer does not end the lookups.
pub const SRV_POLL_INTERVAL_MAX: Duration = Duration::from_secs(86_400);

/// So many hosts that do not count are kept, for the log.
const FOREIGN_MAX: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The next lookup is due at this instant.
    Rests(Instant),
    /// A lookup is under way.
    Asks,
    /// The hosts are nobody's business but the deployment's own.
    Stopped,
}

/// When the hosts of a `mongodb+srv://` string are looked up again, and what that changes: a machine without I/O.
///
/// It goes on while the topology is sharded or not known yet. The TXT record is not looked up again.
#[derive(Clone, Debug)]
pub struct SrvPoll {
    question: SrvQuestion,
    heartbeat_frequency: Duration,
    state: State,
    foreign_count: usize,
    /// The first of them.
    foreign: Vec<String>,
}

impl SrvPoll {
    /// Starts from the first lookup, which has just succeeded.
    ///
    /// - `ttl`: the time to live of its records.
    /// - `heartbeat_frequency`: how long to wait after a lookup that failed.
    #[must_use]
    pub fn new(now: Instant, question: SrvQuestion, ttl: Duration, heartbeat_frequency: Duration) -> Self {
        Self { question, heartbeat_frequency, state: rest(now, ttl), foreign_count: 0, foreign: Vec::new() }
    }

    /// Takes note of what the topology has turned out to be.
    ///
    /// `-> Stopped`, for good, unless it is sharded or unknown.
    ///
    /// Source: Polling SRV Records for mongos Discovery, "Implementation".
    pub const fn handle_topology(&mut self, topology: TopologyType) {
        if !matches!(topology, TopologyType::Sharded | TopologyType::Unknown) {
            self.state = State::Stopped;
        }
    }

    /// Takes note of what a lookup has found, and gives the hosts that the topology must have from now on, all of them, if any changes.
    ///
    /// `Asks -> Rests`: for the records' time to live, but at least 60 s and at most a day; after a lookup that failed, or that has no host
    /// in the domain, for heartbeatFrequencyMS, and the hosts stay as they are. Hosts outside the domain do not count.
    ///
    /// - `current`: the hosts that the topology has, each with its port.
    /// - `entropy`: random bits for the choice of new hosts.
    ///
    /// Cost: O(hosts x records); allocates.
    ///
    /// # Errors
    ///
    /// The lookup's own, or [`SeedlistError::NoHosts`]. They are for the log, as [`SrvPoll::foreign_hosts`] are.
    ///
    /// Source: Polling SRV Records for mongos Discovery, "Implementation".
    pub fn handle_answer<'a>(
        &mut self,
        now: Instant,
        answer: Result<&SrvAnswer, LookupError>,
        current: impl Iterator<Item = &'a str> + Clone,
        entropy: u64,
    ) -> Result<Option<Vec<Host>>, SeedlistError> {
        self.foreign_count = 0;
        self.foreign.clear();
        if self.state != State::Asks {
            return Ok(None);
        }
        self.state = State::Rests(now.saturating_add(self.heartbeat_frequency));
        let name = self.question.srv_name();
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return Err(SeedlistError::Srv { name, error }),
        };
        let mut hosts: Vec<Host> = Vec::new();
        for record in &answer.records {
            match self.question.check(record) {
                Some(host) if hosts.contains(&host) => {}
                Some(host) => hosts.push(host),
                None => {
                    self.foreign_count += 1;
                    if self.foreign.len() < FOREIGN_MAX {
                        self.foreign.push(record.target.clone());
                    }
                }
            }
        }
        if hosts.is_empty() {
            return Err(SeedlistError::NoHosts { name });
        }
        self.state = rest(now, answer.ttl);
        // Hosts that are there already stay, in their order; new ones follow, as many as there is room for.
        let is_new = |host: &Host| !current.clone().any(|known| known == host.as_str());
        let (mut new, mut kept): (Vec<Host>, Vec<Host>) = hosts.into_iter().partition(is_new);
        let room = self.question.hosts_max().map_or(usize::MAX, |max| max.saturating_sub(kept.len()));
        if room < new.len() {
            choose(&mut new, room, entropy);
        }
        if new.is_empty() && kept.len() == current.clone().count() {
            return Ok(None);
        }
        kept.sort_by_key(|host| current.clone().position(|known| known == host.as_str()));
        kept.append(&mut new);
        Ok(Some(kept))
    }

    /// The question to look up, once it is due: `Rests -> Asks`.
    pub fn poll_question(&mut self, now: Instant) -> Option<&SrvQuestion> {
        match self.state {
            State::Rests(due) if due <= now => {
                self.state = State::Asks;
                Some(&self.question)
            }
            State::Rests(_) | State::Asks | State::Stopped => None,
        }
    }

    /// When the next lookup is due; `None` while one is under way, and once it has stopped.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Rests(due) => Some(due),
            State::Asks | State::Stopped => None,
        }
    }

    /// Whether it has stopped for good.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.state == State::Stopped
    }

    /// How many hosts of the last answer did not count because they were outside the domain.
    #[must_use]
    pub const fn foreign_count(&self) -> usize {
        self.foreign_count
    }

    /// The first eight of them, as the DNS has them.
    #[must_use]
    pub fn foreign_hosts(&self) -> &[String] {
        &self.foreign
    }
}

fn rest(now: Instant, ttl: Duration) -> State {
    State::Rests(now.saturating_add(ttl.clamp(SRV_POLL_INTERVAL_MIN, SRV_POLL_INTERVAL_MAX)))
}
