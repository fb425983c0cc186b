//! Repeated lookups of the hosts of a sharded cluster.
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

/// Minimum interval between lookups, while they succeed.
pub const SRV_POLL_INTERVAL_MIN: Duration = Duration::from_secs(60);

/// Maximum interval between lookups, whatever the records' time to live. The limit prevents a
/// single forged reply from ending the lookups.
pub const SRV_POLL_INTERVAL_MAX: Duration = Duration::from_secs(86_400);

/// Maximum number of rejected hosts that are kept for the log.
const FOREIGN_MAX: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The next lookup is due at this time.
    Waiting(Instant),
    /// A lookup is in progress.
    LookingUp,
    /// No more lookups: the topology type does not allow them.
    Stopped,
}

/// Schedules repeated lookups of the hosts of a `mongodb+srv://` string, and computes the changes.
/// A state machine without I/O.
///
/// It continues while the topology is sharded or unknown. The TXT record is not looked up again.
#[derive(Clone, Debug)]
pub struct SrvPoll {
    question: SrvQuestion,
    heartbeat_frequency: Duration,
    state: State,
    foreign_count: usize,
    /// The first rejected hosts.
    foreign: Vec<String>,
}

impl SrvPoll {
    /// Starts after the first lookup, which must have succeeded just now.
    ///
    /// - `ttl`: the time to live of its records.
    /// - `heartbeat_frequency`: the delay after a failed lookup.
    #[must_use]
    pub fn new(now: Instant, question: SrvQuestion, ttl: Duration, heartbeat_frequency: Duration) -> Self {
        Self { question, heartbeat_frequency, state: rest(now, ttl), foreign_count: 0, foreign: Vec::new() }
    }

    /// Handles a change of the topology type.
    ///
    /// `-> Stopped`, permanently, unless the topology is sharded or unknown.
    ///
    /// Source: Polling SRV Records for mongos Discovery, "Implementation".
    pub const fn handle_topology(&mut self, topology: TopologyType) {
        if !matches!(topology, TopologyType::Sharded | TopologyType::Unknown) {
            self.state = State::Stopped;
        }
    }

    /// Handles the result of a lookup, and returns the complete list of hosts that the topology
    /// must have from now on, if it changes.
    ///
    /// `LookingUp -> Waiting`: for the records' time to live, but at least 60 s and at most a day;
    /// after a lookup that failed, or that has no host in the domain, for heartbeatFrequencyMS, and
    /// the hosts are unchanged. Hosts outside the domain are ignored.
    ///
    /// - `current`: the hosts of the topology, each with its port.
    /// - `entropy`: random bits for the selection of new hosts.
    ///
    /// Cost: O(hosts x records); allocates.
    ///
    /// # Errors
    ///
    /// The error of the lookup, or [`SeedlistError::NoHosts`]. They are intended for the log, as
    /// [`SrvPoll::foreign_hosts`] are.
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
        if self.state != State::LookingUp {
            return Ok(None);
        }
        self.state = State::Waiting(now.saturating_add(self.heartbeat_frequency));
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
        // Hosts that the topology already has are kept, in their order; new ones follow, up to the
        // maximum.
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

    /// The name to look up, if a lookup is due: `Waiting -> LookingUp`.
    pub fn poll_question(&mut self, now: Instant) -> Option<&SrvQuestion> {
        match self.state {
            State::Waiting(due) if due <= now => {
                self.state = State::LookingUp;
                Some(&self.question)
            }
            State::Waiting(_) | State::LookingUp | State::Stopped => None,
        }
    }

    /// When the next lookup is due; `None` while one is in progress, and after the end.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Waiting(due) => Some(due),
            State::LookingUp | State::Stopped => None,
        }
    }

    /// Whether lookups have ended permanently.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.state == State::Stopped
    }

    /// Number of hosts of the last reply that were ignored because they are outside the domain.
    #[must_use]
    pub const fn foreign_count(&self) -> usize {
        self.foreign_count
    }

    /// The first eight of these hosts, as in the DNS records.
    #[must_use]
    pub fn foreign_hosts(&self) -> &[String] {
        &self.foreign
    }
}

fn rest(now: Instant, ttl: Duration) -> State {
    State::Waiting(now.saturating_add(ttl.clamp(SRV_POLL_INTERVAL_MIN, SRV_POLL_INTERVAL_MAX)))
}
