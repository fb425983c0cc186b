//! A fake replica set: members with separate ports on loopback, elections, and the incidents of a
//! real set.
//!
//! Each member is a [`FakeServer`] with its fail points and faults; the members share their
//! documents, so that a write on the primary is visible on all other members at once. There is no
//! protocol between members: members that are connected to each other share their state, and
//! priorities, the order of step-downs and the seed determine the elected member. Two delays are
//! simulated: that before an election, and that before a disconnected member detects its situation
//! ([`FakeReplicaSetOptions::by_hand`] leaves both to the test).
//!
//! ```
//! use core::time::Duration;
//! use poolhouse_fake::mongo::BlockingClient;
//! use poolhouse_fake::mongo::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};
//!
//! # fn main() -> std::io::Result<()> {
//! let set = FakeReplicaSet::start(FakeReplicaSetOptions::of(3))?;
//! let old = set.primary().expect("a set starts with a primary");
//! let mut client = BlockingClient::connect(set.address(old), Duration::from_secs(5))?;
//! set.step_down();
//! // The connection stays open, and the member reports that it is no longer primary.
//! let refused = client.run("db", bson::doc! { "insert": "c", "documents": [{}] })?;
//! assert!(refused.get_i32("code").is_ok_and(|code| code == 10107));
//! let new = set.wait_for_primary(Duration::from_secs(5)).expect("another is elected");
//! assert_ne!(new, old);
//! # Ok(())
//! # }
//! ```
//!
//! Sections to read first: Server Discovery and Monitoring, "Parsing a hello or legacy hello
//! response" and "Network error or command error"; Server Monitoring, "Streaming Protocol".

mod config;
mod set_state;

#[cfg(test)]
mod tests;

use alloc::sync::Arc;
use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use bson::Document;

pub use self::config::{FakeReplicaSetOptions, MemberConfig, MemberOptions};
pub use self::set_state::Reign;

use self::set_state::{Clock, Member, SetState};
use super::store::Documents;
use super::{FakeOptions, FakeServer, Role, ServerState, TimedOut};

/// The lock, and the signal for the thread and for waiting callers.
#[derive(Debug)]
struct Shared {
    state: Mutex<SetState>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, SetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Processes due events until the set is stopped.
    fn run(&self) {
        let mut state = self.lock();
        while !state.stop {
            let now = Instant::now();
            state = match state.next_due() {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(due) if due > now => {
                    self.changed.wait_timeout(state, due - now).unwrap_or_else(PoisonError::into_inner).0
                }
                Some(_) => {
                    state.propagate(Clock { now, all: false });
                    self.changed.notify_all();
                    state
                }
            };
        }
    }
}

/// A running fake replica set. Dropping it ends its members.
///
/// A member is identified by its index: that in [`FakeReplicaSetOptions::members`]; added members
/// get the next index. Methods panic for an invalid index. All methods may be called from any
/// thread. When a method returns, its change is visible on every affected member, waiting hellos
/// are answered, and open connections stay open unless the method's documentation specifies
/// otherwise.
#[derive(Debug)]
pub struct FakeReplicaSet {
    shared: Arc<Shared>,
    template: FakeOptions,
    thread: Option<JoinHandle<()>>,
}

impl FakeReplicaSet {
    /// Starts the members and elects the first primary; returns when it is elected.
    ///
    /// # Errors
    /// Those of the sockets.
    ///
    /// # Panics
    /// If the configuration is invalid for a real set.
    pub fn start(options: FakeReplicaSetOptions) -> io::Result<Self> {
        let FakeReplicaSetOptions { set_name, members, election_delay, notice_delay, seed, server } = options;
        let documents = Documents::new(server.store_bytes_max);
        let mut state = SetState::new(set_name, server.state.clone(), documents, seed);
        let entries: Vec<MemberConfig> =
            members.into_iter().enumerate().map(|(index, options)| MemberConfig::new(index, options)).collect();
        for _ in &entries {
            add_server(&mut state, &server)?;
        }
        state.install(entries);
        state.propagate(Clock { now: Instant::now(), all: true });
        state.election_delay = election_delay;
        state.notice_delay = notice_delay;
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let thread = std::thread::Builder::new().name("poolhouse-fake-set".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.run()
        })?;
        Ok(Self { shared, template: server, thread: Some(thread) })
    }

    /// Returns the set's name.
    pub fn set_name(&self) -> String {
        self.shared.lock().set_name.clone()
    }

    /// Returns the number of servers ever started, including those that left the set.
    pub fn servers_count(&self) -> usize {
        self.shared.lock().members.len()
    }

    /// Returns a member's server, for its fail points, its faults and observation. Kill, freeze and
    /// describe it only through the set, which does not track changes made directly.
    pub fn server(&self, member: usize) -> Arc<FakeServer> {
        Arc::clone(&self.shared.lock().members[member].server)
    }

    /// Returns a member's address, which is also its name within the set.
    pub fn address(&self, member: usize) -> SocketAddr {
        self.server(member).address()
    }

    /// Returns the connection string with all members that are visible to clients.
    pub fn uri(&self) -> String {
        let members = self.config();
        let shown = members.iter().filter(|entry| !entry.options.hidden).map(|entry| entry.member);
        self.uri_of(&shown.collect::<Vec<_>>())
    }

    /// Returns the connection string with these members as seeds.
    pub fn uri_of(&self, members: &[usize]) -> String {
        let seeds: Vec<String> = members.iter().map(|&member| self.address(member).to_string()).collect();
        format!("mongodb://{}/?replicaSet={}", seeds.join(","), self.set_name())
    }

    // Elections.

    /// Returns the primary; of several that of the latest election; `None` = no running primary.
    pub fn primary(&self) -> Option<usize> {
        self.look(|view| view.primary())
    }

    /// Makes the primary step down; as a secondary it has the lowest rank in elections. Returns it.
    /// The next election follows after the election delay.
    ///
    /// # Panics
    /// Without a primary.
    pub fn step_down(&self) -> usize {
        self.change(|state, _| {
            let primary = state.primary().expect("step_down needs a primary");
            state.step_down(primary);
            primary
        })
    }

    /// Calls [`step_down`](Self::step_down), then waits for the election (holds it at once if its
    /// delay is [`Duration::MAX`]); returns the new primary.
    ///
    /// # Errors
    /// [`TimedOut`]: no member was elected within ten seconds after the election delay, for example
    /// without a majority.
    ///
    /// # Panics
    /// Without a primary.
    pub fn fail_over(&self) -> Result<usize, TimedOut> {
        self.step_down();
        let delay = self.shared.lock().election_delay;
        if delay == Duration::MAX {
            self.settle();
        }
        self.wait_for_primary(delay.saturating_add(super::PATIENCE))
    }

    /// Makes a member primary in a separate election, now. The old primary becomes a secondary if
    /// it is connected to the new one.
    ///
    /// # Panics
    /// If the member does not run, is disconnected (frozen, just started), or has priority 0.
    pub fn elect(&self, member: usize) {
        self.change(|state, now| state.elect(member, now));
    }

    /// Creates two primaries: elects `member` while the old primary is disconnected, until
    /// [`settle`](Self::settle) or [`heal`](Self::heal).
    ///
    /// # Panics
    /// Without a primary, or as [`elect`](Self::elect).
    pub fn split_brain(&self, member: usize) {
        self.change(|state, now| {
            let old = state.primary().expect("a split needs an old primary");
            assert!(old != member, "member {member} is primary already");
            state.hold_back(old);
            state.elect(member, now);
        });
    }

    /// Processes all pending events now, regardless of their delays: members detect changes,
    /// primaries without a majority step down, elections are held.
    pub fn settle(&self) {
        let mut state = self.shared.lock();
        state.propagate(Clock { now: Instant::now(), all: true });
        drop(state);
        self.shared.changed.notify_all();
    }

    // Processes and the network.

    /// Ends a member's process as `kill -9` does: connections are reset, new ones are refused.
    /// No-op if it does not run.
    ///
    /// # Errors
    /// Those of the sockets.
    pub fn kill(&self, member: usize) -> io::Result<()> {
        self.change(|state, _| {
            if state.members[member].alive {
                state.members[member].server.kill()?;
                state.killed(member);
            }
            Ok(())
        })
    }

    /// Starts a new process for a member on the same port, after killing the old one if it runs. It
    /// is neither primary nor secondary until it has detected the other members. A member that left
    /// the set starts without a valid configuration.
    ///
    /// # Errors
    /// Those of the sockets.
    pub fn restart(&self, member: usize) -> io::Result<()> {
        self.kill(member)?;
        self.change(|state, now| {
            state.started(member, now);
            let started = &state.members[member];
            if !started.reachable {
                started.server.freeze();
            }
            started.server.restart()
        })
    }

    /// Stops a member's process as SIGSTOP does: connecting succeeds, but no bytes arrive. If it
    /// was primary, the others elect another primary. No-op if it does not run.
    pub fn freeze(&self, member: usize) {
        self.change(|state, _| {
            let member = &mut state.members[member];
            if member.alive && !member.frozen {
                member.frozen = true;
                member.server.freeze();
            }
        });
    }

    /// Continues a frozen process. It keeps its role, even that of primary, until it detects the
    /// other members after the notice delay.
    pub fn thaw(&self, member: usize) {
        self.change(|state, now| {
            state.thawed(member, now);
            let member = &state.members[member];
            if member.alive && member.reachable {
                member.server.thaw();
            }
        });
    }

    /// Sets whether clients can reach a member. The other members reach it in any case, so that it
    /// may be elected although no client can use it. An unreachable member accepts connections but
    /// sends no bytes.
    pub fn set_reachable(&self, member: usize, reachable: bool) {
        self.change(|state, _| {
            let member = &mut state.members[member];
            if member.alive && !reachable && member.reachable {
                member.server.freeze();
            }
            if member.alive && reachable && !member.frozen {
                member.server.thaw();
            }
            member.reachable = reachable;
        });
    }

    /// Divides the members into groups without connections between them; all members not named form
    /// one more group. A group without a majority of the votes elects no primary, and a primary in
    /// it steps down after the notice delay. Clients still reach all members: see
    /// [`set_reachable`](Self::set_reachable).
    ///
    /// # Panics
    /// If a member is named twice.
    pub fn partition(&self, groups: &[&[usize]]) {
        self.change(|state, _| {
            for member in &mut state.members {
                member.group = usize::MAX;
            }
            for (number, members) in groups.iter().enumerate() {
                for &index in *members {
                    let member = &mut state.members[index];
                    assert!(member.group == usize::MAX, "member {index} is in one group");
                    member.group = number;
                }
            }
        });
    }

    /// Ends partitions and a split of primaries: all members are connected.
    pub fn heal(&self) {
        self.change(|state, _| {
            for member in &mut state.members {
                member.group = 0;
                member.connect_due = set_state::Due::No;
            }
        });
    }

    // Configuration.

    /// Returns the configuration: that of the primary; without a primary the newest of any running
    /// member.
    pub fn config(&self) -> Vec<MemberConfig> {
        self.look(|view| view.config())
    }

    /// Changes the configuration: `setVersion` is incremented, and every member that is connected
    /// to the primary receives it at once (the others when they are connected). Members that are
    /// left out report that they have no valid configuration; a primary that is no longer eligible
    /// steps down; a member with a higher priority takes over after the election delay.
    ///
    /// # Panics
    /// If the result is invalid for a real set, or if none of its members runs.
    pub fn reconfigure(&self, change: impl FnOnce(&mut Vec<MemberConfig>)) {
        self.change(|state, _| {
            let mut members = state.config().map(|config| config.members.clone()).unwrap_or_default();
            change(&mut members);
            state.install(members);
        });
    }

    /// Changes the options of one member; otherwise as [`reconfigure`](Self::reconfigure).
    ///
    /// # Panics
    /// As [`reconfigure`](Self::reconfigure), and if the member has left the set.
    pub fn reconfigure_member(&self, member: usize, change: impl FnOnce(&mut MemberOptions)) {
        self.reconfigure(|members| {
            let entry = members.iter_mut().find(|entry| entry.member == member).expect("a member of the set");
            change(&mut entry.options);
        });
    }

    /// Starts a server that is not yet a member of the set, and returns its index.
    ///
    /// # Errors
    /// Those of the sockets.
    pub fn start_outsider(&self) -> io::Result<usize> {
        self.change(|state, _| add_server(state, &self.template))
    }

    /// Starts a server, makes it a member, and returns its index.
    ///
    /// # Errors
    /// Those of the sockets.
    ///
    /// # Panics
    /// As [`reconfigure`](Self::reconfigure).
    pub fn add(&self, options: MemberOptions) -> io::Result<usize> {
        let member = self.start_outsider()?;
        self.reconfigure(|members| members.push(MemberConfig::new(member, options)));
        Ok(member)
    }

    /// Removes a member from the configuration; it continues to run, and reports that it has no
    /// valid configuration.
    ///
    /// # Panics
    /// As [`reconfigure`](Self::reconfigure), and if it is not a member.
    pub fn remove(&self, member: usize) {
        self.reconfigure(|members| {
            let count = members.len();
            members.retain(|entry| entry.member != member);
            assert!(members.len() < count, "member {member} is not in the configuration");
        });
    }

    // State of a member.

    /// Sets fields that replace those of the same name in a member's hello replies, for members
    /// that report wrong values.
    pub fn set_fields(&self, member: usize, fields: Document) {
        self.change(|state, _| state.set_fields(member, fields));
    }

    // Observation.

    /// Calls `look` with the current state; the set is locked during the call, so its own methods
    /// must not be called.
    pub fn look<R>(&self, look: impl FnOnce(SetView<'_>) -> R) -> R {
        let state = self.shared.lock();
        look(SetView { state: &state })
    }

    /// Waits until the condition holds, checked after every change of the set, at most `limit`.
    ///
    /// # Errors
    /// [`TimedOut`]: the condition was false at every check.
    pub fn wait_until(&self, limit: Duration, mut condition: impl FnMut(SetView<'_>) -> bool) -> Result<(), TimedOut> {
        let start = Instant::now();
        let mut state = self.shared.lock();
        loop {
            if condition(SetView { state: &state }) {
                return Ok(());
            }
            let after = start.elapsed();
            if after >= limit {
                return Err(TimedOut { after });
            }
            state = self.shared.changed.wait_timeout(state, limit - after).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until there is a primary; returns it.
    ///
    /// # Errors
    /// [`TimedOut`]: no primary was elected.
    pub fn wait_for_primary(&self, limit: Duration) -> Result<usize, TimedOut> {
        let mut primary = None;
        self.wait_until(limit, |view| {
            primary = view.primary();
            primary.is_some()
        })?;
        primary.ok_or(TimedOut { after: limit })
    }

    /// Returns the terms of all primaries since the start, oldest first.
    pub fn reigns(&self) -> Vec<Reign> {
        self.look(|view| view.reigns().to_vec())
    }

    /// Changes the set, propagates the consequences, and wakes waiting callers.
    fn change<R>(&self, change: impl FnOnce(&mut SetState, Instant) -> R) -> R {
        let now = Instant::now();
        let mut state = self.shared.lock();
        let result = change(&mut state, now);
        state.propagate(Clock { now, all: false });
        drop(state);
        self.shared.changed.notify_all();
        result
    }
}

impl Drop for FakeReplicaSet {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed; dropping must not panic again.
            let _ = thread.join();
        }
    }
}

fn add_server(state: &mut SetState, template: &FakeOptions) -> io::Result<usize> {
    let index = state.members.len();
    let seed = template.seed.wrapping_add(u64::try_from(index).unwrap_or(0));
    let described = ServerState { role: Role::Ghost, ..template.state.clone() };
    let options = FakeOptions { port: 0, unix_path: None, state: described, seed, ..template.clone() };
    let server = FakeServer::start_on(options, state.documents.clone())?;
    state.members.push(Member::new(server));
    Ok(index)
}

/// The set at one instant, as passed to the predicates of [`FakeReplicaSet::wait_until`].
#[derive(Debug, Clone, Copy)]
pub struct SetView<'a> {
    state: &'a SetState,
}

impl<'a> SetView<'a> {
    /// As [`FakeReplicaSet::primary`].
    pub fn primary(self) -> Option<usize> {
        self.state.primary()
    }

    /// Returns all running members that consider themselves primary.
    pub fn primaries(self) -> Vec<usize> {
        self.state.primaries().collect()
    }

    /// Returns the role of a member, or its last role if it does not run.
    pub fn role(self, member: usize) -> Role {
        self.state.members[member].role
    }

    /// Returns whether a member's process exists, running or frozen.
    pub fn is_alive(self, member: usize) -> bool {
        self.state.members[member].alive
    }

    /// Returns whether an election is pending.
    pub fn election_pending(self) -> bool {
        self.state.election_pending()
    }

    /// Returns the `setVersion` of the configuration.
    pub fn set_version(self) -> i32 {
        self.state.config().map_or(0, |config| config.version)
    }

    /// As [`FakeReplicaSet::config`].
    pub fn config(self) -> Vec<MemberConfig> {
        self.state.config().map(|config| config.members.clone()).unwrap_or_default()
    }

    /// As [`FakeReplicaSet::reigns`].
    pub fn reigns(self) -> &'a [Reign] {
        &self.state.reigns
    }
}
