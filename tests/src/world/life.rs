//! A life: how it is drawn, how time goes on, and what must be true in the end.

use super::client::{Client, Op, Want};
use super::kind::{Counters, Kind};
use super::network::{Event, Network, Stream};
use super::truth::{Deployment, HOSTS, Reach, Snapshot, Truth};
use crate::choices::Choices;
use crate::rng::Rng;
use crate::sim::Trace;
use alloc::collections::BTreeMap;
use core::time::Duration;
use poolhouse_core::monitor::{HelloKind, MonitorOptions, ServerMonitoringMode};
use poolhouse_core::pool::{PoolOptions, PoolState};
use poolhouse_core::topology::{AppErrorKind, CommandError, ReplyError, TopologyOptions, TopologyType};
use poolhouse_core::{Cause, Instant, ServerType};

pub(super) const MS: u64 = 1_000_000;
const START: u64 = 1_000_000 * MS;
/// How far the client's clock may go back.
pub(super) const BACK_MAX: u64 = 2_000 * MS;

pub(super) struct World<'a> {
    pub(super) rng: Rng,
    pub(super) counters: &'a mut Counters,
    trace: Option<&'a Trace>,
    pub(super) now: u64,
    /// What the client's clock is ahead of the world's.
    pub(super) skew: i64,
    pub(super) truth: Truth,
    pub(super) net: Network,
    pub(super) client: Client,
    pub(super) ops: BTreeMap<u64, Op>,
    next_op: u64,
    /// What waits for a member that stands still.
    pub(super) backlog: Vec<Vec<Event>>,
    pub(super) peace: bool,
    direct: Option<usize>,
    /// The client was told the name of the set.
    named: bool,
    heartbeat: u64,
    connect: u64,
    exhaust: bool,
    /// In how many of a thousand messages something goes wrong.
    pub(super) trouble: u32,
    pub(super) faults_left: u32,
    pub(super) pause: u64,
}

impl<'a> World<'a> {
    pub(super) fn new(mut rng: Rng, counters: &'a mut Counters, trace: Option<&'a Trace>) -> Self {
        let deployment = match rng.below(8) {
            0 => Deployment::Standalone,
            1 | 2 => Deployment::Sharded,
            _ => Deployment::Set,
        };
        let config: Vec<usize> = match deployment {
            Deployment::Standalone => vec![0],
            Deployment::Sharded => (0..=rng.index(3)).collect(),
            Deployment::Set => (0..6).filter(|&member| member == 0 || !rng.one_in(2)).collect(),
        };
        let versioned = !rng.one_in(4);
        let truth = Truth::new(deployment, config, rng.one_of(&[16, 17, 21, 25]), versioned);
        let direct = rng.one_in(10).then(|| truth.config[rng.index(truth.config.len())]);
        let seeds: Vec<&str> = match (direct, deployment) {
            (Some(member), _) => vec![HOSTS[member]],
            // Of a set one is enough; it never leaves.
            (None, Deployment::Set) => {
                (0..6).filter(|&member| member == 0 || rng.one_in(3)).map(|member| HOSTS[member]).collect()
            }
            (None, Deployment::Sharded | Deployment::Standalone) => {
                truth.config.iter().map(|&member| HOSTS[member]).collect()
            }
        };
        let heartbeat = rng.one_of(&[500, 1_000, 10_000]);
        let connect = rng.one_of(&[200, 1_000, 10_000]);
        let modes = [ServerMonitoringMode::Auto, ServerMonitoringMode::Stream, ServerMonitoringMode::Poll];
        let monitor = MonitorOptions {
            heartbeat_frequency: Duration::from_millis(heartbeat),
            connect_timeout: Duration::from_millis(connect),
            server_monitoring_mode: rng.one_of(&modes),
            ..MonitorOptions::DEFAULT
        };
        let pool = PoolOptions {
            max_pool_size: rng.one_of(&[1, 2, 5, 100]),
            min_pool_size: rng.one_of(&[0, 0, 1]),
            max_idle_time: Duration::from_millis(rng.one_of(&[0, 0, 3_000])),
            max_connecting: rng.below(3) + 1,
            ..PoolOptions::DEFAULT
        };
        let replica_set = (deployment == Deployment::Set && rng.one_in(2)).then_some("rs");
        let options =
            TopologyOptions { seeds: &seeds, replica_set, direct_connection: direct.is_some(), load_balanced: false };
        let now = Instant::from_nanos(START);
        let (monitor, pool) = (monitor.validate().expect("in range"), pool.validate().expect("in range"));
        let mut client = Client::new(now, options, monitor, pool, trace.is_some());
        client.selecting = !rng.one_in(3);
        if let Some(trace) = trace {
            let of = &truth.config;
            trace
                .borrow_mut()
                .push(format!("{deployment:?} of {of:?}, {options:?}, {monitor:?}, versioned: {versioned}"));
        }
        let exhaust = !rng.one_in(4);
        let trouble = rng.one_of(&[0, 5, 30, 100]);
        let (faults_left, pause) = (rng.below(40), u64::from(rng.one_of(&[50_u32, 300, 2_000])) * MS);
        Self {
            rng,
            counters,
            trace,
            now: START,
            skew: 0,
            truth,
            net: Network::default(),
            client,
            ops: BTreeMap::new(),
            next_op: 0,
            backlog: (0..6).map(|_| Vec::new()).collect(),
            peace: false,
            direct,
            named: replica_set.is_some(),
            heartbeat: heartbeat * MS,
            connect: connect * MS,
            exhaust,
            trouble,
            faults_left,
            pause,
        }
    }

    /// A whole life.
    pub(super) fn live(mut self) {
        self.settle();
        self.net.at(self.now + self.pause, Event::Fault);
        self.net.at(self.now + 10 * MS, Event::Op);
        while !self.peace {
            self.step();
        }
        // A link that is lost is noticed, then each server is found, one after the other at worst.
        let bound = self.now + 4 * (self.heartbeat + self.connect) + BACK_MAX + 5_000 * MS;
        while self.now < bound {
            self.step();
        }
        self.converged();
        self.client.close();
        self.settle();
        while !self.ops.is_empty() {
            self.step();
        }
        self.client.assert_over();
        self.tell();
        self.counters.steps += self.client.steps;
        self.counters.seconds += (self.now - START) / 1_000_000_000;
    }

    /// The client's clock.
    pub(super) fn clock(&self) -> Instant {
        Instant::from_nanos(self.now.saturating_add_signed(self.skew))
    }

    pub(super) fn say(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = self.trace {
            self.tell();
            trace.borrow_mut().push(format!("{:>9.3} {}", (self.now - START) as f64 / 1e9, text()));
        }
    }

    /// Takes over what the client has told.
    fn tell(&mut self) {
        for kind in self.client.log.seen.drain(..) {
            self.counters.count(kind);
        }
        if let (Some(trace), Some(lines)) = (self.trace, &mut self.client.log.lines) {
            trace.borrow_mut().append(lines);
        }
    }

    /// To the next thing that happens.
    fn step(&mut self) {
        let due = self.client.poll_timeout().map(|at| at.as_nanos().saturating_add_signed(-self.skew).max(self.now));
        let next = [due, self.net.next_time()].into_iter().flatten().min().expect("operations never end");
        assert!(next >= self.now);
        self.now = next;
        let clock = self.clock();
        let is_due = due == Some(next);
        let did = self.client.advance(clock);
        assert!(did || !is_due || clock < self.client.now, "poll_timeout says what is due (S21)");
        self.settle();
        if let Some(event) = self.net.pop(next) {
            self.happen(event);
            self.settle();
        }
        self.tell();
    }

    /// A time that messages take.
    pub(super) fn delay(&mut self) -> u64 {
        if !self.peace && self.rng.below(1_000) < self.trouble {
            self.counters.count(Kind::Slow);
            return u64::from(self.rng.below(700)) * MS;
        }
        u64::from(self.rng.below(4_000)) * 1_000 + 100_000
    }

    /// Does what the client wants.
    pub(super) fn settle(&mut self) {
        loop {
            let wants = core::mem::take(&mut self.client.wants);
            let granted = core::mem::take(&mut self.client.granted);
            let interrupted = core::mem::take(&mut self.client.interrupted);
            if wants.is_empty() && granted.is_empty() && interrupted.is_empty() {
                return;
            }
            for want in wants {
                self.say(|| format!("{want:?}"));
                self.fulfil(want);
            }
            for op in granted {
                let end = self.now + self.delay();
                let is_cut = self.is_cut(op.member);
                self.next_op += 1;
                self.ops.insert(self.next_op, op);
                // Who hears nothing gives up after a second.
                self.net.at(if is_cut { self.now + 1_000 * MS } else { end }, Event::OpEnds(self.next_op));
            }
            for (server, conn) in interrupted {
                let key = self.ops.iter().find(|(_, op)| Client::is_op(op, server, conn)).map(|(key, _)| *key);
                if let Some(op) = key.and_then(|key| self.ops.remove(&key)) {
                    self.counters.count(Kind::OpInterrupted);
                    self.client.end(op, None, Some(Cause::Interrupted));
                }
            }
        }
    }

    fn fulfil(&mut self, want: Want) {
        match want {
            Want::Dial { server, line, member } => {
                let link = self.net.connect(server, line, member);
                let at = self.now + self.delay();
                let known = &self.truth.members[member];
                match known.reach {
                    Reach::Lost => {}
                    Reach::Open if known.up => self.net.at(at, Event::Dialed(link)),
                    Reach::Open | Reach::Refused => self.net.at(at, Event::Refused(link)),
                }
            }
            Want::Hello { server, line, hello } => {
                let link = self.net.find(server, line);
                let at = self.now + self.delay();
                let link_of = self.net.links.get_mut(&link).expect("found");
                assert!(link_of.up && !link_of.reading && link_of.stream.is_none(), "one exchange at a time (S15)");
                link_of.reading = true;
                if self.truth.members[link_of.member].reach != Reach::Open {
                    link_of.lost = true;
                }
                link_of.last_out = link_of.last_out.max(at) + 1;
                let at = link_of.last_out;
                self.net.at(at, Event::AtMember(link, hello));
            }
            Want::Read { server, line } => {
                let link = self.net.find(server, line);
                let link_of = self.net.links.get_mut(&link).expect("found");
                assert!(link_of.up && !link_of.reading, "one read at a time (S15)");
                link_of.reading = true;
                self.net.at(self.now, Event::Deliver(link));
            }
            Want::Hangup { server, line } => self.net.hang_up(server, line),
            Want::Gone { server } => self.net.forget(server),
            Want::Establish { server, conn, member } => {
                let at = self.now + self.delay();
                self.net.at(at, Event::Established(server, conn, member));
            }
        }
    }

    /// Whether nothing passes between the client and a member.
    fn is_cut(&self, member: usize) -> bool {
        let known = &self.truth.members[member];
        known.frozen || known.reach == Reach::Lost
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Dialed(link) => {
                let Some(of) = self.net.links.get_mut(&link) else { return };
                let known = &self.truth.members[of.member];
                if !known.up {
                    return self.happen(Event::Refused(link));
                }
                (of.up, of.process) = (true, known.process);
                let (server, line) = (of.server, of.line);
                self.client.dialed(server, line).expect("the line was not given up");
            }
            Event::Refused(link) | Event::ResetAtClient(link) => {
                let Some(of) = self.net.links.get(&link) else { return };
                let (server, line) = (of.server, of.line);
                self.say(|| format!("#{server} is reset"));
                self.net.drop_link(link);
                self.client.failed(server, line, Cause::Network).expect("the line was not given up");
            }
            Event::AtMember(link, hello) => self.hear(link, hello),
            Event::AtClient(link, snapshot) => {
                if let Some(of) = self.net.links.get_mut(&link).filter(|of| !of.lost) {
                    of.inbox.push_back(*snapshot);
                    self.deliver(link);
                }
            }
            Event::Deliver(link) => self.deliver(link),
            Event::StreamDue(link, serial) => {
                let of = self.net.links.get(&link);
                if of.is_some_and(|of| of.stream.as_ref().is_some_and(|stream| stream.serial == serial)) {
                    self.stream(link);
                }
            }
            Event::Sync(member) => {
                if self.truth.sync(member) {
                    self.changed(member);
                }
            }
            Event::Elect => self.elect(),
            Event::Fault => self.fault(),
            Event::Op => {
                let pick = self.rng.index(6);
                self.client.check_out(pick);
                let next = self.now + u64::from(self.rng.below(400)) * MS;
                self.net.at(next, Event::Op);
            }
            Event::OpEnds(op) => {
                if let Some(op) = self.ops.remove(&op) {
                    self.end(op);
                }
            }
            Event::Established(server, conn, member) => self.establish(server, conn, member),
            Event::HelloOfEstablished(server, conn, snapshot) => {
                if self.client.established(server, conn, &snapshot) {
                    self.counters.count(Kind::Established);
                }
            }
            Event::EstablishTimedOut(server, conn) => {
                let overloaded = self.rng.one_in(2);
                self.client.not_established(server, conn, Cause::NetworkTimeout, overloaded);
            }
        }
    }

    /// A hello has arrived.
    fn hear(&mut self, link: u64, hello: HelloKind) {
        let Some(of) = self.net.links.get(&link).filter(|of| !of.lost) else { return };
        let member = of.member;
        let known = &self.truth.members[member];
        if !known.up || known.process != of.process {
            return;
        }
        if known.frozen {
            self.backlog[member].push(Event::AtMember(link, hello));
            return;
        }
        let now = self.truth.topology_version(member);
        match hello {
            HelloKind::Handshake { .. } | HelloKind::Poll { .. } => self.answer(link, false),
            HelloKind::Awaitable { topology_version, max_await_time, .. } => {
                assert!(now.is_some(), "only who says its version is asked to wait (S15)");
                let await_ns = u64::try_from(max_await_time.as_nanos()).expect("short");
                assert_eq!(await_ns, self.heartbeat, "(S15)");
                let of = self.net.links.get_mut(&link).expect("found");
                of.stream = Some(Stream { known: topology_version, await_ns, serial: 0 });
                if now == Some(topology_version) {
                    self.net.at(self.now + await_ns, Event::StreamDue(link, 0));
                } else {
                    self.stream(link);
                }
            }
        }
    }

    /// Sends the next reply of a stream.
    fn stream(&mut self, link: u64) {
        let Some(of) = self.net.links.get_mut(&link) else { return };
        let known = &self.truth.members[of.member];
        if !known.up || known.process != of.process {
            return;
        }
        let Some(stream) = &mut of.stream else { return };
        if known.frozen {
            let event = Event::StreamDue(link, stream.serial);
            self.backlog[of.member].push(event);
            return;
        }
        stream.known = self.truth.topology_version(of.member).expect("it streams");
        stream.serial += 1;
        let (serial, await_ns) = (stream.serial, stream.await_ns);
        if self.exhaust {
            self.net.at(self.now + await_ns, Event::StreamDue(link, serial));
        } else {
            of.stream = None;
        }
        self.answer(link, self.exhaust);
    }

    /// A member says how it is.
    fn answer(&mut self, link: u64, more_to_come: bool) {
        let is_trouble = !self.peace && self.rng.below(1_000) < self.trouble;
        let (is_lost, is_error) = (is_trouble && self.rng.one_in(2), is_trouble);
        let delay = self.delay();
        let of = self.net.links.get_mut(&link).expect("somebody is answered");
        let mut snapshot = self.truth.snapshot(of.member);
        snapshot.more_to_come = more_to_come;
        if is_lost || of.lost || self.truth.members[of.member].reach != Reach::Open {
            if is_lost {
                self.counters.count(Kind::LostReply);
            }
            of.lost = true;
            return;
        }
        if is_error {
            self.counters.count(Kind::HelloError);
            snapshot.ok = false;
            snapshot.more_to_come = false;
            of.stream = None;
        }
        of.last_in = of.last_in.max(self.now + delay) + 1;
        let at = of.last_in;
        self.net.at(at, Event::AtClient(link, Box::new(snapshot)));
    }

    /// Tells the client what has arrived, if it reads.
    fn deliver(&mut self, link: u64) {
        let Some(of) = self.net.links.get_mut(&link).filter(|of| of.reading) else { return };
        let Some(snapshot) = of.inbox.pop_front() else { return };
        of.reading = false;
        let (server, line) = (of.server, of.line);
        self.say(|| {
            let Snapshot { member, view, ok, topology_version, .. } = &snapshot;
            format!("#{server} n{member} says {view:?} {:?} ok: {ok}", topology_version.map(|version| version.counter))
        });
        self.client.replied(server, line, &snapshot).expect("the line was not given up");
    }

    /// A member has something to say to those who wait for it.
    pub(super) fn changed(&mut self, member: usize) {
        for link in self.net.of_member(member) {
            self.stream(link);
        }
    }

    fn establish(&mut self, server: poolhouse_core::ServerId, conn: poolhouse_core::pool::ConnId, member: usize) {
        let known = &self.truth.members[member];
        if self.is_cut(member) {
            let at = self.now + self.connect;
            self.net.at(at, Event::EstablishTimedOut(server, conn));
        } else if !known.up || known.reach == Reach::Refused || (!self.peace && self.rng.one_in(20)) {
            let overloaded = self.rng.one_in(2);
            self.counters.count(if overloaded { Kind::Overloaded } else { Kind::NotEstablished });
            let cause =
                if overloaded { Cause::Network } else { self.rng.one_of(&[Cause::Network, Cause::Authentication]) };
            self.client.not_established(server, conn, cause, overloaded);
        } else {
            let snapshot = Box::new(self.truth.snapshot(member));
            let at = self.now + self.delay();
            self.net.at(at, Event::HelloOfEstablished(server, conn, snapshot));
        }
    }

    fn end(&mut self, op: Op) {
        let known = &self.truth.members[op.member];
        let topology_version = self.truth.topology_version(op.member);
        let reply = |code| {
            let command = Some(ReplyError { code: Some(code), message: "" });
            AppErrorKind::Command(CommandError { command, write_concern: None, topology_version })
        };
        let (kind, error, broken) = if self.is_cut(op.member) {
            (Kind::OpTimeout, Some(AppErrorKind::NetworkTimeout), Some(Cause::NetworkTimeout))
        } else if !known.up || known.reach == Reach::Refused {
            (Kind::OpNetwork, Some(AppErrorKind::Network), Some(Cause::Network))
        } else if !self.peace
            && known.view.server_type == ServerType::RsSecondary
            && self.rng.one_in(2)
            && self.direct.is_none()
        {
            (Kind::OpStateChange, Some(reply(10_107)), None)
        } else if !self.peace && self.rng.one_in(20) {
            (Kind::OpShutdown, Some(reply(91)), None)
        } else if !self.peace && self.rng.one_in(20) {
            (Kind::OpNetwork, Some(AppErrorKind::Network), Some(Cause::Network))
        } else {
            (Kind::OpDone, None, None)
        };
        self.counters.count(kind);
        self.say(|| format!("operation on n{} ends: {kind:?}", op.member));
        self.client.end(op, error, broken);
    }

    /// The client sees what there is, and its pools work (S19, P51).
    fn converged(&self) {
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
            // A direct connection to somebody of another set, or of none, is not what was wanted (SDAM-34).
            let is_stranger = self.named && self.direct.is_some() && known.view.server_type == ServerType::RsGhost;
            let right = if known.up && !is_stranger { known.view.server_type } else { ServerType::Unknown };
            let is_right = server_type == right || (!server_type.is_known() && !right.is_known());
            assert!(is_right, "n{member} is {right}, and the client sees {see}");
        }
        let members: Vec<usize> = seen.keys().copied().collect();
        let right_type = match (self.direct, truth.deployment) {
            (Some(_), _) | (None, Deployment::Standalone) => TopologyType::Single,
            (None, Deployment::Sharded) => TopologyType::Sharded,
            (None, Deployment::Set) if truth.primary.is_some() => TopologyType::ReplicaSetWithPrimary,
            (None, Deployment::Set) => TopologyType::ReplicaSetNoPrimary,
        };
        assert_eq!(description.topology_type(), right_type, "the client sees {see}");
        if right_type == TopologyType::ReplicaSetWithPrimary {
            assert_eq!(members, truth.config, "the client sees {see}");
            assert_eq!(description.set_name(), Some("rs"));
        }
        for server in topology.servers().filter(|server| server.server_type().is_data_bearing()) {
            assert_eq!(self.client.pool_state(server.server()), Some(PoolState::Ready), "{see}");
        }
    }
}
