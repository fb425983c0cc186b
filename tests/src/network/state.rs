//! The state of a simulated network: the deployment, the network, the clock, and what the
//! application has done.

use super::links::{Event, Network, Packet};
use super::member::MESSAGE_BYTES_MAX;
use super::operations::Operation;
use super::plain::Attempts;
use super::plan::{Draws, MS, Plan};
use super::truth::{Deployment, HOSTS, Truth};
use crate::choices::Choices;
use crate::fake::FakeUser;
use crate::fake::auth::Auth;
use crate::fake::wire::{self, MORE_TO_COME, Message};
use crate::kind::{Counters, Kind};
use alloc::collections::{BTreeMap, BTreeSet};
use bson::Document;
use core::net::IpAddr;
use core::task::Waker;
use core::time::Duration;
use poolhouse_core::Instant;
use std::io::ErrorKind;
use std::sync::LazyLock;

/// The time at which each run begins.
pub(super) const START: u64 = 1_000_000 * MS;
/// The time for which ready tasks may wait for a busy host.
const BUSY_MAX: u64 = 20 * MS;
/// The user name and the password.
pub(super) const USER: &str = "user";
pub(super) const PASSWORD: &str = "password";

/// The members' data of the user. They are the same in each run, because they are expensive to
/// derive.
static AUTH: LazyLock<Auth> = LazyLock::new(|| {
    let user = FakeUser::new(USER, PASSWORD).with_mechanisms(&["SCRAM-SHA-256"]).with_iterations(4_096);
    Auth::new(&[user], true, None, || 0x0102_0304_0506_0708)
});

/// A command of an operation.
#[derive(Debug)]
pub(super) struct Command {
    /// Number of times that members have executed it.
    pub(super) executed: u32,
    /// Maximum number of executions.
    pub(super) executions_max: u32,
    /// Members do not reply to it.
    pub(super) hangs: bool,
    /// `maxTimeMS` that it has to arrive with.
    pub(super) max_time: MaxTime,
    /// Members must not reply to it.
    pub(super) is_unacknowledged: bool,
    /// Number of times that the client has written it completely. Counted without an acknowledgement
    /// only.
    pub(super) written: u32,
    /// The index of the session's keyspace when it began.
    pub(super) keyspaces_from: usize,
    /// The member that has executed it last.
    pub(super) executed_by: Option<usize>,
    /// A member has answered it with an error.
    pub(super) is_refused: bool,
}

/// `maxTimeMS` of a command.
#[derive(Clone, Copy, Debug)]
pub(super) enum MaxTime {
    /// The command's own, in milliseconds.
    Own(i64),
    /// At most this time; `None` is no limit.
    AtMost(Option<Duration>),
}

impl MaxTime {
    /// The longest time that is sent: servers accept 32 bits.
    const LONGEST_MS: u128 = 0x7fff_ffff;

    fn allows(self, sent: Option<i64>) -> bool {
        match (self, sent) {
            (Self::Own(own), sent) => sent == Some(own),
            (Self::AtMost(limit), None) => limit.is_none_or(|limit| limit.as_millis() > Self::LONGEST_MS),
            // At least 1: zero is no limit.
            (Self::AtMost(limit), Some(sent)) => {
                let sent = u128::try_from(sent).unwrap_or(0);
                limit.is_some_and(|limit| (1..=limit.as_millis().max(1)).contains(&sent))
            }
        }
    }
}

/// A timer of the client.
#[derive(Debug)]
struct Timer {
    /// The time for which it was set, on the client's clock.
    at: u64,
    /// How much later it fires.
    late: u64,
    waker: Waker,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) plan: Plan,
    pub(super) draws: Draws,
    pub(super) counters: Counters,
    /// The trace, if it is requested.
    pub(super) lines: Option<Vec<String>>,
    pub(super) now: u64,
    /// The client's clock minus the clock of the simulation.
    pub(super) skew: u64,
    /// The time of the last jump of the client's clock.
    pub(super) jumped_at: Option<u64>,
    pub(super) truth: Truth,
    pub(super) net: Network,
    pub(super) auth: Auth,
    pub(super) peace: bool,
    pub(super) faults_left: u32,
    /// The last fault that occurs at its own time.
    pub(super) last_kind: Option<Kind>,
    /// The last fault of a message.
    pub(super) last_fault: Option<Kind>,
    /// All tasks are polled when no other work is left.
    pub(super) is_disturbed: bool,
    /// All tasks are being polled although nothing has happened.
    pub(super) is_disturbing: bool,
    /// Timers by the time at which they fire on the client's clock, which is not earlier than that
    /// for which they were set.
    timers: BTreeMap<u64, Timer>,
    timers_set: u64,
    /// Tasks to wake when the state is unlocked.
    wakes: Vec<Waker>,
    /// The first effect of the client while all tasks are being polled although nothing has
    /// happened: bytes, connections, results.
    pub(super) effect: Option<String>,
    pub(super) operations: BTreeMap<u64, Operation>,
    pub(super) commands: BTreeMap<i64, Command>,
    /// The keyspaces of a session in order. The last one is in force.
    pub(super) keyspaces: Vec<Option<&'static str>>,
    /// The statements that each member of a Cassandra cluster has prepared. It keeps them when it restarts.
    pub(super) prepared: BTreeSet<(usize, String)>,
    /// Number of calls that change the keyspace, since operations must succeed.
    pub(super) keyspace_calls: u32,
    /// The command of each transaction number of a session. All members have it: they replicate.
    numbered: BTreeMap<(Vec<u8>, i64), i64>,
    /// Background tasks that have not ended, and whether the executor drops them.
    pub(super) background: BTreeMap<u64, bool>,
    pub(super) next_task: u64,
    /// The application has begun to close the client.
    pub(super) is_closed: bool,
    /// The ends of operations that begin now, if the client is closed.
    pub(super) closed_by: &'static [Kind],
    /// The executor has dropped a background task.
    pub(super) is_abandoned: bool,
    /// When requests to a cluster were dropped or have failed: they may end without an event of
    /// their pool.
    pub(super) silent_ends: Vec<Instant>,
    /// When the faults have stopped.
    pub(super) peace_from: Option<u64>,
    /// A router that refuses new connections because it is overloaded.
    pub(super) shedding: Option<usize>,
    /// The attempts of a pool's manager to connect.
    pub(super) attempts: Attempts,
    /// The last time at which the client closed a connection that a fault had broken.
    pub(super) broken_closed_at: u64,
    /// When the last slow lookup of a name ends, which outlives the attempt that began it.
    pub(super) lookup_ends_at: u64,
    /// The last time at which a session has replaced its connections, because its keyspace changed.
    pub(super) replaced_at: u64,
    /// The last time at which a node that shuts down has refused a request.
    pub(super) refused_at: u64,
    /// A node that shuts down after the faults refuses requests with an error after which only those that may
    /// be repeated are sent to another node.
    pub(super) is_final_refusal: bool,
    /// The time at which a member has refused a write last, because it is not the primary.
    pub(super) write_refused_at: u64,
    /// Connection attempts to members that stay dead.
    pub(super) dead_dials: BTreeMap<usize, u32>,
    /// The connection whose last write was short. The rest is written in the same poll of the task.
    pub(super) cut_write: Option<u64>,
    /// A violation that was found in a call of the client, which must return.
    pub(super) violation: Option<String>,
}

impl State {
    pub(super) fn new(plan: Plan, draws: Draws, is_traced: bool) -> Self {
        let mut truth = Truth::new(plan.deployment, plan.config.clone(), plan.wire, plan.versioned);
        if plan.cluster.discovers {
            // The others have not joined yet.
            for (member, known) in truth.members.iter_mut().enumerate() {
                known.up = plan.config.contains(&member);
            }
        }
        Self {
            faults_left: plan.faults,
            keyspaces: vec![plan.cluster.keyspace],
            prepared: BTreeSet::new(),
            keyspace_calls: 0,
            lines: is_traced.then(|| vec![format!("{plan:?}")]),
            plan,
            draws,
            counters: Counters::default(),
            now: START,
            skew: 0,
            jumped_at: None,
            truth,
            net: Network::default(),
            auth: AUTH.clone(),
            peace: false,
            last_kind: None,
            last_fault: None,
            is_disturbed: false,
            is_disturbing: false,
            timers: BTreeMap::new(),
            timers_set: 0,
            wakes: Vec::new(),
            effect: None,
            operations: BTreeMap::new(),
            commands: BTreeMap::new(),
            numbered: BTreeMap::new(),
            background: BTreeMap::new(),
            next_task: 0,
            is_closed: false,
            closed_by: &[],
            is_abandoned: false,
            silent_ends: Vec::new(),
            peace_from: None,
            shedding: None,
            attempts: Attempts::default(),
            broken_closed_at: 0,
            lookup_ends_at: 0,
            replaced_at: 0,
            refused_at: 0,
            is_final_refusal: false,
            write_refused_at: 0,
            dead_dials: BTreeMap::new(),
            cut_write: None,
            violation: None,
        }
    }

    /// The client's clock, in nanoseconds.
    pub(super) const fn clock_ns(&self) -> u64 {
        self.now + self.skew
    }

    /// The client's clock.
    pub(super) fn clock(&self) -> Instant {
        Instant::from_nanos(self.clock_ns())
    }

    pub(super) fn trace_line(&mut self, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>9.3} {}", (self.now - START) as f64 / 1e9, text()));
        }
    }

    /// Records an effect of the client.
    pub(super) fn affect(&mut self, text: impl FnOnce() -> String) {
        if self.is_disturbing {
            self.effect.get_or_insert_with(text);
        }
    }

    /// Remembers the first violation in a call of the client.
    pub(super) fn violate(&mut self, text: impl FnOnce() -> String) {
        self.violation.get_or_insert_with(text);
    }

    pub(super) fn take_wakes(&mut self) -> Vec<Waker> {
        core::mem::take(&mut self.wakes)
    }

    /// Sets a timer. Returns its key.
    pub(super) fn set_timer(&mut self, at: Instant, waker: Waker) -> u64 {
        let mut late = 0;
        if !self.peace && self.plan.comes(Kind::LateTimer, &mut self.draws.host) {
            self.counters.count(Kind::LateTimer);
            late = u64::from(self.draws.host.below(800)) * MS;
        }
        self.timers_set += 1;
        self.timers.insert(self.timers_set, Timer { at: at.as_nanos(), late, waker });
        self.timers_set
    }

    /// The next timer that fires: its time, and its key. After the faults, none is late.
    fn next_timer(&self) -> Option<(u64, u64)> {
        let due = |timer: &Timer| timer.at.saturating_add(if self.peace { 0 } else { timer.late });
        self.timers.iter().map(|(key, timer)| (due(timer), *key)).min()
    }

    /// Whether a timer has not fired. Its waker is replaced.
    pub(super) fn is_set(&mut self, key: u64, waker: &Waker) -> bool {
        let timer = self.timers.get_mut(&key);
        let is_set = timer.is_some();
        if let Some(timer) = timer {
            timer.waker.clone_from(waker);
        }
        is_set
    }

    pub(super) fn clear_timer(&mut self, key: u64) {
        self.timers.remove(&key);
    }

    /// The wakers that the platform keeps.
    pub(super) fn wakers(&self) -> impl Iterator<Item = &Waker> {
        let near = self.net.links.values().map(|link| &link.near);
        let of_links = near.flat_map(|near| near.reader.iter().chain(&near.writer));
        of_links.chain(self.timers.values().map(|timer| &timer.waker))
    }

    pub(super) fn timers_count(&self) -> usize {
        self.timers.len()
    }

    /// Whether a timer is due that fires late.
    pub(super) fn is_timer_late(&self) -> bool {
        self.timers.values().any(|timer| timer.at <= self.clock_ns())
    }

    /// The time of the next event or timer.
    pub(super) fn next_time(&self) -> Option<u64> {
        let timer = self.next_timer().map(|(at, _)| at.saturating_sub(self.skew).max(self.now));
        [timer, self.net.next_time()].into_iter().flatten().min()
    }

    /// Whether the next event or timer is so near that a busy host may miss it.
    pub(super) fn is_event_near(&self) -> bool {
        self.next_time().is_some_and(|next| next - self.now <= BUSY_MAX)
    }

    /// Fires the next timer, if it is due.
    pub(super) fn fire(&mut self) -> bool {
        let clock = self.clock_ns();
        let key = self.next_timer().filter(|(at, _)| *at <= clock).map(|(_, key)| key);
        let timer = key.and_then(|key| self.timers.remove(&key));
        let fires = timer.is_some();
        self.wakes.extend(timer.map(|timer| timer.waker));
        fires
    }

    /// The latency of a message.
    pub(super) fn delay(&mut self) -> u64 {
        if self.roll(&[Kind::Slow]).is_some() {
            return u64::from(self.draws.network.below(700)) * MS;
        }
        u64::from(self.draws.network.below(4_000)) * 1_000 + 100_000
    }

    /// Draws how long a task that is ready waits for the host; `None`: it does not wait.
    pub(super) fn draw_wait(&mut self) -> Option<u64> {
        if self.peace || self.is_disturbing || !self.plan.comes(Kind::Starved, &mut self.draws.schedule) {
            return None;
        }
        let waits = self.draws.schedule.one_in(8);
        waits.then(|| {
            self.counters.count(Kind::Starved);
            u64::from(self.draws.schedule.below(500)) * MS + 1
        })
    }

    /// Whether a fault of the host occurs now.
    pub(super) fn comes(&mut self, kind: Kind) -> bool {
        let comes = !self.peace && self.plan.comes(kind, &mut self.draws.host);
        if comes {
            self.counters.count(kind);
        }
        comes
    }

    /// The member with this address.
    pub(super) fn member_at(address: IpAddr) -> Option<usize> {
        let last = match address {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(address) => address.octets()[15],
        };
        usize::from(last).checked_sub(1).filter(|member| *member < HOSTS.len())
    }

    /// Starts a connection attempt. Its result is decided when the request arrives at the member,
    /// unless the request is lost.
    pub(super) fn dial(&mut self, member: usize) -> u64 {
        let id = self.net.connect(member);
        self.affect(|| format!("a connection to n{member} is begun"));
        self.trace_line(|| format!("{id} connects to n{member}"));
        if self.peace && !self.truth.members[member].up {
            *self.dead_dials.entry(member).or_default() += 1;
        }
        let mut at = self.now + self.delay();
        match self.roll(&[Kind::ConnectRefused, Kind::ConnectBlackHole, Kind::ConnectSlow]) {
            Some(Kind::ConnectRefused) => {
                self.net.at(at, Event::ConnectFails(id, ErrorKind::ConnectionRefused));
                return id;
            }
            Some(Kind::ConnectBlackHole) => return id,
            Some(Kind::ConnectSlow) => at += u64::from(self.draws.network.below(12_000)) * MS,
            _ => {}
        }
        let way = self.truth.members[member].way;
        if !way.lost_there && !way.lost_back {
            self.net.at(at, Event::Arrives(id));
        }
        id
    }

    /// A connection request arrives at its member, or at its host.
    fn arrive(&mut self, id: u64) {
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let known = &self.truth.members[link.member];
        if known.silent && !known.up {
            return;
        }
        if !known.up || known.way.refused || self.shedding == Some(link.member) {
            return self.connected(id, Err(ErrorKind::ConnectionRefused));
        }
        (link.up, link.process) = (true, known.process);
        self.connected(id, Ok(()));
    }

    fn connected(&mut self, id: u64, result: Result<(), ErrorKind>) {
        self.trace_line(|| format!("{id} is connected: {result:?}"));
        let Some(link) = self.net.links.get_mut(&id) else { return };
        link.near.connected = Some(result);
        self.wakes.extend(link.near.reader.take());
    }

    /// The client closes its socket, or abandons a connection attempt.
    pub(super) fn close_link(&mut self, id: u64) {
        let Some(gone) = self.net.links.remove(&id) else { return };
        self.affect(|| format!("connection {id} is closed"));
        self.cut_write.take_if(|cut| *cut == id);
        self.trace_line(|| format!("{id} is closed"));
        if gone.is_broken {
            self.broken_closed_at = self.now;
        }
        self.auth.end(id);
    }

    /// The client sends bytes.
    pub(super) fn send(&mut self, id: u64, bytes: &[u8]) {
        let at = self.now + self.delay();
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let member = link.member;
        if self.truth.members[member].way.lost_there {
            (link.lost_there, link.is_broken) = (true, true);
        }
        self.affect(|| format!("connection {id} writes"));
        self.counters.bytes += bytes.len() as u64;
        self.trace_line(|| format!("{id} -> n{member}: {} bytes, {:08x}", bytes.len(), crc32c::crc32c(bytes)));
        self.net.send_there(id, at, bytes.to_vec());
        if !matches!(self.truth.deployment, Deployment::Cluster | Deployment::Plain) {
            self.note_written(id, bytes);
        }
    }

    /// Counts the messages without a reply that the client has written completely.
    fn note_written(&mut self, id: u64, bytes: &[u8]) {
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let output = &mut link.near.output;
        output.extend_from_slice(bytes);
        // The member reports malformed bytes.
        while let Ok(Some(header)) = wire::header(output, MESSAGE_BYTES_MAX) {
            if header.length > output.len() {
                return;
            }
            let frame: Vec<u8> = output.drain(..header.length).collect();
            let message = wire::decode(&frame).ok().filter(|message| message.has(MORE_TO_COME));
            let number = message.and_then(|message| message.body.get_i64("n").ok());
            if let Some(command) = number.and_then(|number| self.commands.get_mut(&number)) {
                command.written += 1;
            }
        }
    }

    /// A packet arrives at the client.
    fn receive(&mut self, id: u64, sent: u64, packet: Packet) {
        if self.net.is_reordered(sent) {
            self.counters.count(Kind::Reordered);
        }
        let Some(link) = self.net.links.get_mut(&id) else { return };
        link.flying -= 1;
        if link.lost_back {
            return;
        }
        let near = &mut link.near;
        if let Packet::Held(bytes) = packet {
            return near.held.extend(bytes);
        }
        near.input.extend(near.held.drain(..));
        match packet {
            Packet::Bytes(bytes) => near.input.extend(bytes),
            Packet::Split(bytes) => {
                near.input.extend(bytes);
                near.single = near.input.len();
            }
            Packet::End => near.has_ended = true,
            Packet::Reset => near.is_reset = true,
            Packet::Held(_) => {}
        }
        if near.is_reset {
            near.is_full = false;
            self.wakes.extend(near.writer.take());
        }
        self.wakes.extend(near.reader.take());
    }

    pub(super) fn happen(&mut self, event: Event) {
        let member = match &event {
            Event::Arrives(link) | Event::ToMember(link, _) | Event::ToClient(link, ..) => {
                self.net.links.get(link).map(|link| link.member)
            }
            _ => None,
        };
        if let Some(member) = member.filter(|&member| self.truth.members[member].way.clogged) {
            return self.net.clogged.entry(member).or_default().push(event);
        }
        match event {
            Event::Arrives(link) => self.arrive(link),
            Event::ConnectFails(link, error) => self.connected(link, Err(error)),
            Event::ToMember(id, bytes) => {
                if let Some(link) = self.net.links.get_mut(&id).filter(|link| !link.lost_there) {
                    link.far.input.extend(bytes);
                    self.process_input(id);
                }
            }
            Event::ToClient(link, sent, packet) => self.receive(link, sent, packet),
            Event::Flush(id) => {
                if let Some(link) = self.net.links.get_mut(&id).filter(|link| !link.near.held.is_empty()) {
                    link.near.input.extend(link.near.held.drain(..));
                    self.wakes.extend(link.near.reader.take());
                }
            }
            Event::Writable(id) => {
                if let Some(link) = self.net.links.get_mut(&id) {
                    link.near.is_full = false;
                    self.wakes.extend(link.near.writer.take());
                }
            }
            Event::Answer(id, stream, bytes) => self.send_answer(id, stream, bytes),
            Event::StreamDue(id, serial) => {
                let link = self.net.links.get(&id);
                if link.is_some_and(|link| link.far.stream.as_ref().is_some_and(|stream| stream.serial == serial)) {
                    self.stream(id);
                }
            }
            Event::Sync(member) => {
                if self.truth.sync(member) {
                    self.changed(member);
                }
            }
            Event::NodeChange(sender, about, change) => self.send_node_event(sender, about, change),
            Event::Elect => self.elect(),
            Event::Fault => self.fault(),
            Event::Habit => self.habit(),
            Event::ShutDown(member, process) => self.end_of_shut_down(member, process),
            Event::Clog(member) => self.clog(member),
            Event::Unclog(member) => self.unclog(member),
            Event::Begin | Event::DropOperation(_) => unreachable!("these are of the application"),
        }
    }

    /// A member executes a command. Returns whether it replies.
    pub(super) fn is_executed(&mut self, number: i64) -> bool {
        let command = self.commands.get_mut(&number).expect("a command of the application");
        command.executed += 1;
        let (executed, max) = (command.executed, command.executions_max);
        assert!(executed <= max, "command {number} was executed {executed} times, but at most {max} is allowed");
        let (is_first, hangs) = (command.executed == 1, command.hangs);
        self.counters.count(if is_first { Kind::Executed } else { Kind::ExecutedAgain });
        !hangs
    }

    /// Checks `maxTimeMS` of a command of the application.
    pub(super) fn check_max_time(&mut self, body: &Document, number: i64) {
        self.counters.checks.add("P19");
        let (allowed, sent) = (self.commands[&number].max_time, body.get_i64("maxTimeMS").ok());
        assert!(allowed.allows(sent), "P19: a command has the maxTimeMS {sent:?} instead of {allowed:?}: {body}");
    }

    /// Checks that a command has a reply exactly if its write concern requires one, and that it has no
    /// session otherwise. Returns whether it has none.
    pub(super) fn is_unacknowledged(&mut self, message: &Message, number: i64) -> bool {
        let (body, is_silent) = (&message.body, message.has(MORE_TO_COME));
        self.counters.checks.add("P60");
        assert_eq!(is_silent, self.commands[&number].is_unacknowledged, "P60: the flag moreToCome of {body}");
        if is_silent {
            let has_session = body.contains_key("lsid") || body.contains_key("txnNumber");
            assert!(!has_session, "P60: a write without an acknowledgement has a session: {body}");
            let concern = body.get_document("writeConcern");
            assert!(
                concern.is_ok_and(|concern| concern.get_i32("w").is_ok_and(|w| w == 0)),
                "P60: the write concern of {body}"
            );
        }
        is_silent
    }

    /// Whether a member has executed this write before, by its session and transaction number.
    pub(super) fn is_repeated(&mut self, body: &Document) -> bool {
        let Ok(transaction) = body.get_i64("txnNumber") else { return false };
        let session = body.get_document("lsid").expect("a transaction number belongs to a session");
        let key = (session.to_vec().expect("it was decoded"), transaction);
        let number = body.get_i64("n").expect("each command has its number");
        self.counters.checks.add("P55");
        let Some(first) = self.numbered.insert(key, number) else { return false };
        assert_eq!(first, number, "P55: two commands have the same session and transaction number");
        true
    }

    /// Whether the deployment has a member that accepts writes, for a client that has found it.
    pub(super) fn is_writable(&self) -> bool {
        match (self.plan.direct, self.truth.deployment) {
            (Some(member), _) => self.truth.members[member].up && self.truth.members[member].is_writable(),
            (None, Deployment::Standalone | Deployment::Plain) => self.truth.members[0].up,
            (None, Deployment::Sharded | Deployment::Cluster) => {
                self.truth.config.iter().any(|&member| self.truth.members[member].up)
            }
            (None, Deployment::Set) => self.truth.primary.is_some(),
        }
    }
}
