//! A run: its parts, and the advance of time.

use super::client::Client;
use super::kind::{Counters, Kind};
use super::links::{Event, Network};
use super::plan::{Draws, MS, Plan};
use super::tasks::Task;
use super::truth::{HOSTS, SET, Truth};
use super::{near, peace};
use crate::choices::Choices;
use crate::fake::FakeUser;
use crate::fake::auth::Auth;
use crate::oracle::pool::Bounded;
use crate::sim::Trace;
use alloc::collections::{BTreeMap, BTreeSet};
use poolhouse_core::topology::TopologyOptions;
use poolhouse_core::{Instant, ServerId};
use std::sync::LazyLock;

const START: u64 = 1_000_000 * MS;
/// The maximum jump back of the client's clock.
pub(super) const BACK_MAX: u64 = 2_000 * MS;
/// Upper bound of the steps of a run. More steps mean an endless loop.
const STEPS_MAX: u64 = 2_000_000;

/// The members' data of the user. They are the same in each run, because they are expensive to
/// derive.
static AUTH: LazyLock<Auth> = LazyLock::new(|| {
    let user = FakeUser::new(near::USER, near::PASSWORD).with_mechanisms(&["SCRAM-SHA-256"]);
    Auth::new(&[user.with_iterations(near::ITERATIONS)], true, None, || near::SALT_WORD)
});

pub(super) struct Simulation<'a, M: Bounded> {
    pub(super) plan: Plan,
    pub(super) draws: Draws,
    pub(super) counters: &'a mut Counters,
    pub(super) trace: Option<&'a Trace>,
    pub(super) now: u64,
    /// The client's clock minus the clock of the simulation.
    pub(super) skew: i64,
    pub(super) truth: Truth,
    pub(super) net: Network,
    pub(super) client: Client<M>,
    pub(super) auth: Auth,
    pub(super) tasks: BTreeMap<u64, Task>,
    pub(super) next_task: u64,
    pub(super) next_number: i64,
    /// Numbers of the commands that members have executed.
    pub(super) executed: BTreeSet<i64>,
    pub(super) peace: bool,
    pub(super) faults_left: u32,
    /// The last fault that occurs at its own time.
    pub(super) last_kind: Option<Kind>,
    /// The last fault of a message.
    pub(super) last_fault: Option<Kind>,
    /// No more tasks are begun.
    pub(super) starts_no_tasks: bool,
    /// The servers on which a probe has succeeded.
    pub(super) probed: BTreeSet<ServerId>,
    /// The time of the last failed operation that made its server unknown; 0 is never.
    pub(super) lost_at: u64,
    pub(super) hung: Option<peace::Hung>,
    pub(super) dead: peace::Dead,
    /// The interval between tasks after the faults stop.
    pub(super) peace_gap_ms: u32,
    /// The host does not process its timers before this time.
    asleep_until: u64,
    /// The deadline for which the host was already delayed.
    slept_for: Option<Instant>,
    is_settling: bool,
    steps: u64,
}

impl<'a, M: Bounded> Simulation<'a, M> {
    pub(super) fn new(plan: Plan, draws: Draws, counters: &'a mut Counters, trace: Option<&'a Trace>) -> Self {
        let truth = Truth::new(plan.deployment, plan.config.clone(), plan.wire, plan.versioned);
        let seeds: Vec<&str> = plan.seeds.iter().map(|&member| HOSTS[member]).collect();
        let options = TopologyOptions {
            seeds: &seeds,
            replica_set: plan.named.then_some(SET),
            direct_connection: plan.direct.is_some(),
            load_balanced: false,
        };
        let now = Instant::from_nanos(START);
        let (monitor, pool) = (plan.monitor.validate().expect("in range"), plan.pool.validate().expect("in range"));
        let mut client = Client::new(now, options, monitor, pool, trace.is_some());
        client.selecting = plan.selecting;
        if let Some(trace) = trace {
            trace.borrow_mut().push(format!("{plan:?}"));
        }
        Self {
            faults_left: plan.faults,
            plan,
            draws,
            counters,
            trace,
            now: START,
            skew: 0,
            truth,
            net: Network::default(),
            client,
            auth: AUTH.clone(),
            tasks: BTreeMap::new(),
            next_task: 0,
            next_number: 0,
            executed: BTreeSet::new(),
            peace: false,
            last_kind: None,
            last_fault: None,
            starts_no_tasks: false,
            probed: BTreeSet::new(),
            lost_at: 0,
            hung: None,
            dead: peace::Dead::default(),
            peace_gap_ms: 100,
            asleep_until: 0,
            slept_for: None,
            is_settling: false,
            steps: 0,
        }
    }

    /// Executes the complete run.
    pub(super) fn run(mut self) {
        self.settle();
        self.net.at(self.now + self.plan.pause, Event::Fault);
        self.net.at(self.now + 10 * MS, Event::Task);
        // A random point before the last fault.
        let early = self.draws.faults.below(self.plan.faults + 1);
        while !(self.peace || self.plan.closes_early && self.faults_left <= early) {
            self.step();
        }
        if self.peace {
            self.run_without_faults();
        } else {
            self.counters.count(Kind::ClosedEarly);
            self.trace_line(|| "== the client closes".to_owned());
        }
        self.end();
        self.tell();
        let checks = self.client.take_checks();
        self.counters.checks.merge(&checks);
        self.counters.steps += self.client.steps;
        self.counters.seconds += (self.now - START) / 1_000_000_000;
    }

    /// The client's clock.
    pub(super) fn clock(&self) -> Instant {
        Instant::from_nanos(self.now.saturating_add_signed(self.skew))
    }

    pub(super) fn trace_line(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = self.trace {
            self.tell();
            trace.borrow_mut().push(format!("{:>9.3} {}", (self.now - START) as f64 / 1e9, text()));
        }
    }

    /// Takes over the counts and log lines of the client.
    fn tell(&mut self) {
        for kind in self.client.log.seen.drain(..) {
            self.counters.count(kind);
        }
        if let (Some(trace), Some(lines)) = (self.trace, &mut self.client.log.lines) {
            trace.borrow_mut().append(lines);
        }
    }

    /// The time at which the host processes its timers next.
    fn due(&mut self) -> Option<u64> {
        let at = self.client.poll_timeout()?;
        let due = at.as_nanos().saturating_add_signed(-self.skew).max(self.now);
        if self.peace {
            return Some(due);
        }
        if self.slept_for != Some(at) {
            self.slept_for = Some(at);
            self.asleep_until = 0;
            if self.plan.comes(Kind::LateTimer, &mut self.draws.host) {
                self.counters.count(Kind::LateTimer);
                self.asleep_until = due + u64::from(self.draws.host.below(800)) * MS;
            }
        }
        Some(due.max(self.asleep_until))
    }

    /// Advances to the next event.
    pub(super) fn step(&mut self) {
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "the run does not end");
        let due = self.due();
        let next = [due, self.net.next_time()].into_iter().flatten().min().expect("tasks never end");
        assert!(next >= self.now, "time advances");
        self.now = next;
        if due == Some(next) {
            let clock = self.clock();
            let did = self.client.advance(clock, false);
            self.counters.checks.add("P20");
            assert!(did || clock < self.client.now, "P20: work was due at poll_timeout");
            self.settle();
        } else {
            self.client.now = self.client.now.max(self.clock());
        }
        if let Some(event) = self.net.pop(next) {
            self.happen(event);
            self.settle();
        }
        self.tell();
    }

    /// The latency of a message.
    pub(super) fn delay(&mut self) -> u64 {
        if self.roll(&[Kind::Slow]).is_some() {
            return u64::from(self.draws.network.below(700)) * MS;
        }
        u64::from(self.draws.network.below(4_000)) * 1_000 + 100_000
    }

    /// Executes the requests of the client in order until there are none.
    pub(super) fn settle(&mut self) {
        // Requests that arise meanwhile are executed after the earlier ones.
        if core::mem::replace(&mut self.is_settling, true) {
            return;
        }
        loop {
            if let Some(want) = self.client.wants.pop_front() {
                self.trace_line(|| format!("{want:?}"));
                self.execute_request(&want);
            } else if !self.client.interrupted.is_empty() {
                let (server, conn) = self.client.interrupted.remove(0);
                self.interrupt(server, conn);
            } else if !self.client.woken.is_empty() {
                let (server, waiter) = self.client.woken.remove(0);
                self.wake(server, waiter);
            } else {
                break;
            }
        }
        self.is_settling = false;
        self.check();
    }

    /// Checks the invariants that hold when the client has no open requests.
    fn check(&mut self) {
        if !core::mem::take(&mut self.net.changed) {
            return;
        }
        for (server, counts) in self.client.counts() {
            let sockets = self.net.conn_count(server);
            assert_eq!(
                sockets,
                counts.total() as usize,
                "P1: the number of sockets of #{server} differs from its pool: {counts:?}"
            );
        }
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
            Event::ConnectFails(link, cause) => self.connect_failed(link, cause),
            Event::ToMember(id, bytes) => {
                if let Some(link) = self.net.links.get_mut(&id).filter(|link| !link.lost_there) {
                    link.far.input.extend(bytes);
                    self.process_input(id);
                }
            }
            Event::ToClient(link, sent, packet) => self.receive(link, sent, packet),
            Event::Flush(link) => self.flush(link),
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
            Event::Elect => self.elect(),
            Event::Fault => self.fault(),
            Event::Clog(member) => self.clog(member),
            Event::Unclog(member) => self.unclog(member),
            Event::Task => {
                if !self.starts_no_tasks {
                    // Sometimes several tasks are begun together.
                    let count = if self.draws.tasks.one_in(16) { self.draws.tasks.below(10) + 1 } else { 1 };
                    for _ in 0..count {
                        self.begin_task();
                    }
                    let gap_ms = if self.peace { self.peace_gap_ms } else { self.plan.task_gap_ms };
                    let gap = u64::from(self.draws.tasks.below(2 * gap_ms) + 1) * MS;
                    self.net.at(self.now + gap, Event::Task);
                }
            }
            Event::TaskLate(task, serial) => self.task_late(task, serial),
            Event::Cancel(task) => self.cancel(task),
            Event::Claim(task) => self.claim(task),
            Event::EstablishLate(server, conn) => self.establish_late(server, conn),
        }
    }
}
