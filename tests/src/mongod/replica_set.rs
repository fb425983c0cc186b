//! A real replica set: members of the harness, elections, and incidents.

use core::time::Duration;
use std::thread;
use std::time::Instant;

use bson::{Bson, Document, doc};

use super::{COMMAND_TIMEOUT, INITIATE_TIMEOUT, Mongod, MongodError, MongodOptions, POLL_PAUSE};

/// Time limit for the first election, and for any other that a method waits for.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// Time limit for a reconfiguration that the set refuses because it is busy.
const RECONFIG_TIMEOUT: Duration = Duration::from_secs(30);

/// Codes of temporary refusals: ConfigurationInProgress, CurrentConfigNotCommittedYet,
/// NewReplicaSetConfigurationIncompatible (an automatic reconfiguration was first),
/// NotWritablePrimary, PrimarySteppedDown, InterruptedDueToReplStateChange.
const BUSY: [i32; 6] = [109, 308, 103, 10107, 189, 11602];

/// The options of a replica set.
#[derive(Clone, Debug)]
pub struct MongodReplicaSetOptions {
    /// Number of members.
    pub members: usize,
    /// The set's name.
    pub set_name: String,
    /// `electionTimeoutMillis`: time after which an unreachable primary is replaced.
    pub election_timeout: Duration,
    /// `heartbeatIntervalMillis`: interval of the members' heartbeats.
    pub heartbeat_interval: Duration,
    /// `heartbeatTimeoutSecs`, whole seconds: time limit for a silent member's heartbeat. A new
    /// primary waits this long before it accepts writes.
    pub heartbeat_timeout: Duration,
    /// Options of each member; its `repl_set` is replaced.
    pub server: MongodOptions,
}

impl Default for MongodReplicaSetOptions {
    fn default() -> Self {
        Self {
            members: 3,
            set_name: "rs0".to_owned(),
            election_timeout: Duration::from_secs(2),
            heartbeat_interval: Duration::from_millis(500),
            heartbeat_timeout: Duration::from_secs(2),
            server: MongodOptions::default(),
        }
    }
}

/// A replica set used by one test; dropping it, also by a panic, ends its members and removes their
/// folders.
///
/// A member is identified by its index. Methods panic for an invalid index.
#[derive(Debug)]
pub struct MongodReplicaSet {
    members: Vec<Member>,
    set_name: String,
}

#[derive(Debug)]
struct Member {
    mongod: Mongod,
    /// Whether it answers: neither killed nor stopped.
    answers: bool,
}

impl MongodReplicaSet {
    /// Starts `count` members with default options; see [`Self::start_with`].
    pub fn start(count: usize) -> Result<Self, MongodError> {
        Self::start_with(MongodReplicaSetOptions { members: count, ..MongodReplicaSetOptions::default() })
    }

    /// Starts the members concurrently, initiates the set, and waits, at most a minute, until one
    /// is primary and the others are secondaries.
    ///
    /// # Errors
    /// [`MongodError::Unavailable`] if there is no binary; else the reason why a member did not
    /// start or the set was not initiated.
    pub fn start_with(options: MongodReplicaSetOptions) -> Result<Self, MongodError> {
        let MongodReplicaSetOptions { members: count, set_name, server, .. } = options;
        assert!(count > 0, "a set has members");
        let server = MongodOptions { repl_set: Some(set_name.clone()), ..server };
        let started: Vec<Result<Mongod, MongodError>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..count).map(|_| scope.spawn(|| Mongod::start(server.clone()))).collect();
            let panicked = |_| Err(MongodError::Malformed("a starting thread panicked".to_owned()));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
        });
        let member = |mongod| Member { mongod, answers: true };
        let members = started.into_iter().map(|mongod| mongod.map(member)).collect::<Result<Vec<_>, _>>()?;
        let set = Self { members, set_name };
        let entries: Vec<Document> = (0..count).map(|index| set.entry(index)).collect();
        let settings = doc! {
            "electionTimeoutMillis": millis(options.election_timeout),
            "heartbeatIntervalMillis": millis(options.heartbeat_interval),
            "heartbeatTimeoutSecs": millis(options.heartbeat_timeout) / 1000,
        };
        let config = doc! { "_id": set.set_name.as_str(), "members": entries, "settings": settings };
        set.member(0).run_command_within(INITIATE_TIMEOUT, "admin", doc! { "replSetInitiate": config })?;
        set.wait_until("all members to be primary or secondary", ELECTION_TIMEOUT, || {
            // A member that does not answer now may answer in the next iteration.
            let greetings: Vec<Document> = (0..count).filter_map(|index| set.hello(index).ok()).collect();
            let of = |field| greetings.iter().filter(|reply| is(reply, field)).count();
            Ok(of("isWritablePrimary") == 1 && of("secondary") == count - 1)
        })?;
        Ok(set)
    }

    /// Returns the set's name.
    #[must_use]
    pub fn set_name(&self) -> &str {
        &self.set_name
    }

    /// Returns the number of servers, including those that left the set.
    #[must_use]
    pub fn members_count(&self) -> usize {
        self.members.len()
    }

    /// Returns a member, for its commands, its fail points and its counts. Kill and stop it only
    /// through the set.
    #[must_use]
    pub fn member(&self, member: usize) -> &Mongod {
        &self.members[member].mongod
    }

    /// Returns the connection string with all members.
    #[must_use]
    pub fn uri(&self) -> String {
        let seeds: Vec<String> = self.members.iter().map(|member| member.mongod.address().to_string()).collect();
        format!("mongodb://{}/?replicaSet={}", seeds.join(","), self.set_name)
    }

    /// Returns a member's hello reply.
    pub fn hello(&self, member: usize) -> Result<Document, MongodError> {
        self.member(member).run_command(doc! { "hello": 1 })
    }

    /// Returns the current primary; of two, that of the later election. Killed and stopped members
    /// are not queried.
    #[must_use]
    pub fn primary(&self) -> Option<usize> {
        let answering = self.members.iter().enumerate().filter(|(_, member)| member.answers);
        let primaries = answering.filter_map(|(index, _)| {
            let reply = self.hello(index).ok()?;
            let writable = is(&reply, "isWritablePrimary") && reply.contains_key("setName");
            writable.then(|| (reply.get_object_id("electionId").ok(), index))
        });
        primaries.max().map(|(_, index)| index)
    }

    /// Waits until there is a primary; returns it.
    pub fn wait_for_primary(&self, limit: Duration) -> Result<usize, MongodError> {
        self.wait_for_primary_but(None, limit)
    }

    /// Waits until there is a primary other than `old`; returns it.
    pub fn wait_for_other_primary(&self, old: usize, limit: Duration) -> Result<usize, MongodError> {
        self.wait_for_primary_but(Some(old), limit)
    }

    /// Waits until the set has recovered: one member of the configuration is primary, all others
    /// are secondaries that have its last write, and each is eligible again, including one that has
    /// just stepped down. Without this the next election may take seconds longer, or be lost by a
    /// member that has not caught up.
    ///
    /// Returns the primary.
    ///
    /// # Errors
    /// [`MongodError::Timeout`]: for example while a member of the configuration is killed or
    /// stopped.
    pub fn settle(&self, limit: Duration) -> Result<usize, MongodError> {
        let mut settled = None;
        self.wait_until("the set to settle", limit, || {
            settled = self.primary().filter(|&primary| self.is_settled(primary).unwrap_or(false));
            Ok(settled.is_some())
        })?;
        settled.ok_or(MongodError::NotRunning)
    }

    fn is_settled(&self, primary: usize) -> Result<bool, MongodError> {
        let reply = self.hello(primary)?;
        let hosts: Vec<&str> = reply.get_array("hosts").into_iter().flatten().filter_map(Bson::as_str).collect();
        for index in (0..self.members.len()).filter(|&index| index != primary) {
            let host = self.member(index).address().to_string();
            if !hosts.contains(&host.as_str()) {
                continue;
            }
            if !self.members[index].answers || !is(&self.hello(index)?, "secondary") {
                return Ok(false);
            }
            self.member(index).run_command(doc! { "replSetFreeze": 0 })?;
        }
        let everywhere = doc! { "w": i32::try_from(hosts.len()).unwrap_or(i32::MAX), "wtimeout": 5_000 };
        let note = doc! { "appendOplogNote": 1, "data": { "poolhouse": "settle" }, "writeConcern": everywhere };
        let reply = self.member(primary).run_command(note)?;
        Ok(!reply.contains_key("writeConcernError"))
    }

    /// Makes the primary step down (`replSetStepDown`); it is not eligible for this many seconds.
    /// Returns it. The others have one second less to catch up, at most ten.
    ///
    /// # Errors
    /// [`MongodError::Timeout`] without a primary; [`MongodError::Command`] if it is refused, for
    /// example because no secondary has caught up.
    pub fn step_down(&self, seconds: u32) -> Result<usize, MongodError> {
        let primary = self.wait_for_primary(ELECTION_TIMEOUT)?;
        let catch_up = seconds.saturating_sub(1).min(10);
        let limit = COMMAND_TIMEOUT + Duration::from_secs(catch_up.into());
        let command = doc! {
            "replSetStepDown": i64::from(seconds), "secondaryCatchUpPeriodSecs": i64::from(catch_up),
        };
        self.member(primary).run_command_within(limit, "admin", command)?;
        Ok(primary)
    }

    /// Ends a member's process at once and waits for its end. No-op if it does not run.
    pub fn kill9(&mut self, member: usize) -> Result<(), MongodError> {
        let member = &mut self.members[member];
        member.answers = false;
        member.mongod.kill9()
    }

    /// Starts a member again on the same port and data and waits until it answers; shuts it down
    /// first if it runs.
    pub fn restart(&mut self, member: usize) -> Result<(), MongodError> {
        let member = &mut self.members[member];
        member.answers = false;
        member.mongod.restart()?;
        member.answers = true;
        Ok(())
    }

    /// Stops a member's process (SIGSTOP): connecting succeeds, but no bytes arrive.
    pub fn stop(&mut self, member: usize) -> Result<(), MongodError> {
        let member = &mut self.members[member];
        member.answers = false;
        member.mongod.stop()
    }

    /// Continues a stopped process (SIGCONT).
    pub fn cont(&mut self, member: usize) -> Result<(), MongodError> {
        let member = &mut self.members[member];
        member.mongod.cont()?;
        member.answers = true;
        Ok(())
    }

    /// Removes a member from the configuration; its process continues to run. A primary must step
    /// down first.
    ///
    /// # Errors
    /// [`MongodError::Timeout`] without a primary; [`MongodError::Command`] if the set refuses.
    pub fn reconfig_remove(&self, member: usize) -> Result<(), MongodError> {
        let host = self.member(member).address().to_string();
        self.reconfig(|members| {
            members.retain(|entry| entry.as_document().and_then(|entry| entry.get_str("host").ok()) != Some(&host));
        })
    }

    /// Adds a member to the configuration again.
    pub fn reconfig_add(&self, member: usize) -> Result<(), MongodError> {
        let entry = self.entry(member);
        self.reconfig(|members| members.push(Bson::Document(entry.clone())))
    }

    /// Changes the members of the configuration.
    fn reconfig(&self, change: impl Fn(&mut Vec<Bson>)) -> Result<(), MongodError> {
        let deadline = Instant::now() + RECONFIG_TIMEOUT;
        loop {
            match self.try_reconfig(&change) {
                Err(MongodError::Command { code, .. }) if BUSY.contains(&code) && Instant::now() < deadline => {
                    thread::sleep(POLL_PAUSE);
                }
                outcome => return outcome,
            }
        }
    }

    fn try_reconfig(&self, change: impl Fn(&mut Vec<Bson>)) -> Result<(), MongodError> {
        let primary = self.member(self.wait_for_primary(ELECTION_TIMEOUT)?);
        let reply = primary.run_command(doc! { "replSetGetConfig": 1 })?;
        let malformed = || MongodError::Malformed("replSetGetConfig has no configuration".to_owned());
        let mut config = reply.get_document("config").map_err(|_| malformed())?.clone();
        let version = config.get_i32("version").map_err(|_| malformed())?;
        change(config.get_array_mut("members").map_err(|_| malformed())?);
        config.insert("version", version + 1);
        primary.run_command(doc! { "replSetReconfig": config }).map(drop)
    }

    fn entry(&self, member: usize) -> Document {
        let id = i32::try_from(member).unwrap_or(i32::MAX);
        doc! { "_id": id, "host": self.member(member).address().to_string() }
    }

    fn wait_for_primary_but(&self, old: Option<usize>, limit: Duration) -> Result<usize, MongodError> {
        let mut primary = None;
        self.wait_until("a primary", limit, || {
            primary = self.primary().filter(|&found| Some(found) != old);
            Ok(primary.is_some())
        })?;
        primary.ok_or(MongodError::NotRunning)
    }

    fn wait_until(
        &self,
        what: &str,
        limit: Duration,
        mut holds: impl FnMut() -> Result<bool, MongodError>,
    ) -> Result<(), MongodError> {
        let deadline = Instant::now() + limit;
        while !holds()? {
            if Instant::now() >= deadline {
                let logs: Vec<String> = self.members.iter().map(|member| member.mongod.log_tail()).collect();
                return Err(MongodError::Timeout {
                    doing: format!("waiting for {what}; logs: {}", logs.join("\n")),
                    limit,
                });
            }
            thread::sleep(POLL_PAUSE);
        }
        Ok(())
    }
}

fn is(reply: &Document, field: &str) -> bool {
    reply.get_bool(field).unwrap_or(false)
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
