//! A run: the client under test, the advance of time, and the phases.

use super::cluster_events::ClusterTrace;
use super::links::Event;
use super::mux_events::{self, MuxTrace};
use super::nodes::{DATA_CENTER, address_of, member_of};
use super::operations::{DropPoint, Running, Subject, Work, execute};
use super::peace::is_usable;
use super::plain::Dialer;
use super::plan::{Draws, MS, Plan};
use super::platform::{Planned, Sim};
use super::selections::Selections;
use super::state::{PASSWORD, START, State, USER};
use super::truth::{Deployment, HOSTS, SET};
use crate::choices::Choices;
use crate::kind::{Counters, Kind};
use crate::machines::mux::Event as OwnedMuxEvent;
use crate::machines::pool::Event as OwnedPoolEvent;
use crate::oracle::log::Log;
use crate::oracle::trace::Trace;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use async_task::Task;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use poolhouse_auth::{Credential, Mechanism};
use poolhouse_client::mux::{HostStatus, Session, SessionOptions};
use poolhouse_client::{Client, ClientOptions, Pool, ServerStatus};
use poolhouse_core::Instant;
use poolhouse_core::observe::Observer;
use poolhouse_cql::Version;
use poolhouse_driver::{CommandStage, Event as OwnedEvent, EventKinds, EventRef, Notice, Subscribers, Subscription};
use std::panic;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// A command: its server, and the ids of its connection and request.
type CommandKey = (String, u64, i32);

/// Maximum number of events that one step emits.
const NOTICES_MAX: usize = 1 << 16;
/// Upper bound of the steps of a run. More steps mean an endless loop.
const STEPS_MAX: u64 = 2_000_000;
/// Maximum number of steps until a task wakes an operation.
const WOKEN_STEPS_MAX: u32 = 200;
/// Upper bound of the polls of tasks at one instant.
const POLLS_MAX: u64 = 20_000;
/// Upper bound of the polls of tasks in a virtual second without faults, in which operations are
/// few.
const POLLS_PER_SECOND_MAX: u64 = 20_000;

std::thread_local! {
    /// A run is in progress on this thread.
    static RUNNING: Cell<bool> = const { Cell::new(false) };
    /// The first panic of the run. The driver catches panics of its tasks, and continues.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Records panics on this thread while it exists.
struct PanicWatch;

impl PanicWatch {
    fn new() -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                if !RUNNING.get() {
                    return before(info);
                }
                if info.payload().is::<Planned>() {
                    return;
                }
                let place = info.location().map(|place| format!("{}:{}", place.file(), place.line()));
                let payload = info.payload();
                let text = payload.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
                let text = format!("{text} ({})", place.unwrap_or_default());
                PANIC.with_borrow_mut(|first| first.get_or_insert(text).len());
            }));
        });
        PANIC.take();
        RUNNING.set(true);
        Self
    }
}

impl Drop for PanicWatch {
    fn drop(&mut self) {
        RUNNING.set(false);
    }
}

pub(super) struct Simulation {
    pub(super) sim: Sim,
    /// `None` once its last handle was dropped.
    pub(super) subject: Option<Subject>,
    log: Option<Arc<Mutex<Log>>>,
    /// A subscription whose events are read after each poll of a task.
    prompt: Option<Subscription>,
    /// The commands of each connection, by their request ids, that have begun and not ended.
    pub(super) commands: BTreeMap<CommandKey, u32>,
    /// The selections of servers, if they are observed.
    pub(super) selections: Option<Selections>,
    /// The sessions of those commands, by their ids.
    sessions: BTreeMap<Vec<u8>, CommandKey>,
    /// A subscription to other events than those of check-outs, which is never read.
    _unread: Option<Subscription>,
    /// The events of pools, if they are judged.
    trace: Option<Trace>,
    /// The events of multiplexed pools.
    mux_trace: MuxTrace,
    /// The events of a cluster.
    pub(super) cluster_trace: ClusterTrace,
    _subscription: Option<Subscription>,
    /// Reads a subscription to its end, in some runs.
    pub(super) reader: Option<Task<()>>,
    pub(super) operations: BTreeMap<u64, Task<()>>,
    /// Connections of members that have left, which may be in use when they join again.
    former: BTreeSet<u64>,
    next_operation: u64,
    /// No more operations are begun.
    pub(super) is_idle: bool,
    /// Operations must succeed.
    pub(super) is_judged: bool,
    /// The interval between operations after the faults stop.
    pub(super) peace_gap_ms: u32,
    steps: u64,
    polls: u64,
    /// The start of the current virtual second, and the polls until then.
    second: (u64, u64),
    _watch: PanicWatch,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The options of the client.
fn options(plan: &Plan) -> ClientOptions {
    let mut options = ClientOptions::new("");
    options.hosts = plan.seeds.iter().map(|&member| HOSTS[member].to_owned()).collect();
    options.replica_set = plan.named.then(|| SET.to_owned());
    options.direct_connection = plan.direct.is_some();
    (options.pool, options.monitor) = (plan.pool, plan.monitor);
    let client = plan.client;
    (options.timeout, options.socket_timeout) = (client.timeout, client.socket_timeout);
    options.server_selection_timeout = client.server_selection_timeout;
    (options.drain_timeout, options.local_threshold) = (client.drain_timeout, client.local_threshold);
    (options.retry_reads, options.retry_writes) = (client.retries, client.retries);
    options.max_adaptive_retries = client.max_adaptive_retries;
    options.enable_overload_retargeting = client.enable_overload_retargeting;
    if plan.login {
        let credential = Credential::new(USER, PASSWORD).mechanism(Mechanism::SCRAM_SHA_256);
        options.credential = Some(credential.into());
    }
    options
}

/// The options of a session.
fn session_options(plan: &Plan) -> SessionOptions {
    let cluster = plan.cluster;
    let hosts = plan.seeds.iter().map(|&member| match cluster.discovers && cluster.has_addresses {
        true => address_of(member).to_string(),
        false => HOSTS[member].to_owned(),
    });
    let mut options =
        if cluster.discovers { SessionOptions::contact_points(hosts) } else { SessionOptions::new(hosts) };
    options.cluster = cluster.options;
    options.local_data_center = cluster.is_local.then(|| DATA_CENTER.to_owned());
    options.mux = plan.mux;
    options.version = Version::V4;
    options.connect_timeout = Some(Duration::from_nanos(plan.connect));
    options.request_timeout = plan.client.timeout;
    options.keyspace = cluster.keyspace.map(str::to_owned);
    options
}

impl Simulation {
    pub(super) fn new(plan: Plan, draws: Draws, is_traced: bool) -> Self {
        let watch = PanicWatch::new();
        let session = (plan.deployment == Deployment::Cluster).then(|| session_options(&plan));
        let (options, is_observed, reconfigures) = (options(&plan), plan.is_observed, plan.reconfigures);
        let (deployment, pool_options, is_read) = (plan.deployment, plan.options, plan.is_read);
        let sim = Sim::new(State::new(plan, draws, is_traced));
        let events = Subscribers::default();
        let log = is_observed.then(Arc::<Mutex<Log>>::default);
        let subscription = log.as_ref().map(|log| {
            if is_traced {
                lock(log).lines = Some(Vec::new());
            }
            let (log, sim) = (Arc::clone(log), sim.clone());
            events.subscribe(EventKinds::ALL, 1, move |event| {
                record(&sim, &log, event);
                false
            })
        });
        // The end of a lifetime is no event.
        let is_recorded = is_observed && !reconfigures && pool_options.max_lifetime.is_none();
        let observes_selections = sim.with(|state| state.plan.observes_selections);
        let mut all = EventKinds::ALL | EventKinds::COMMANDS;
        if observes_selections {
            all = all | EventKinds::SELECTIONS | EventKinds::SELECTION_WAITS;
        }
        let mut prompt = is_observed.then(|| events.subscribe(all, NOTICES_MAX, |_| true));
        let others = EventKinds::POOLS | EventKinds::TOPOLOGY;
        let unread = (!is_observed && is_read).then(|| events.subscribe(others, 16, |_| true));
        let subject = match (deployment, session) {
            (Deployment::Plain, _) => {
                let builder = Pool::builder_on(sim.clone(), Dialer(sim.clone())).options(pool_options);
                prompt = is_observed.then(|| builder.subscribe());
                builder.build().map(Subject::Pool)
            }
            (_, Some(options)) => Session::with_platform(sim.clone(), options, events).map(Subject::Session),
            (_, None) => Client::with_platform(sim.clone(), options, events).map(Subject::Client),
        };
        let subject = subject.expect("valid options");
        let reader = (is_observed && is_read).then(|| {
            let (sim, mut subscription) = (sim.clone(), subject.subscribe());
            let reading = sim.clone();
            let work = async move {
                while subscription.next().await.is_some() {
                    reading.with(|state| state.affect(|| "a subscription is read".to_owned()));
                }
            };
            sim.start_as(work, true)
        });
        Self {
            sim,
            prompt,
            commands: BTreeMap::new(),
            selections: observes_selections.then(Selections::default),
            sessions: BTreeMap::new(),
            _unread: unread,
            trace: is_recorded.then(Trace::default),
            mux_trace: MuxTrace::new(),
            cluster_trace: ClusterTrace::default(),
            reader,
            subject: Some(subject),
            log,
            _subscription: subscription,
            operations: BTreeMap::new(),
            former: BTreeSet::new(),
            next_operation: 0,
            is_idle: false,
            is_judged: false,
            peace_gap_ms: 100,
            steps: 0,
            polls: 0,
            second: (START, 0),
            _watch: watch,
        }
    }

    pub(super) fn subject(&self) -> &Subject {
        self.subject.as_ref().expect("it was not dropped")
    }

    /// Executes the complete run.
    pub(super) fn run(&mut self) {
        let (closes_early, early) = self.sim.with(|state| {
            state.net.at(state.now + state.plan.pause, Event::Fault);
            state.net.at(state.now + 10 * MS, Event::Begin);
            if !state.plan.is_observed {
                state.counters.count(Kind::Unobserved);
            }
            if state.plan.cluster.discovers {
                state.counters.count(Kind::Discovers);
            }
            if state.truth.deployment == Deployment::Cluster
                && (state.plan.cluster.forgets || state.plan.cluster.shuts_down)
            {
                state.net.at(state.now + state.plan.pause, Event::Habit);
            }
            // A random point before the last fault.
            (state.plan.closes_early, state.draws.faults.below(state.plan.faults + 1))
        });
        while !self.sim.with(|state| state.peace || closes_early && state.faults_left <= early) {
            self.step();
        }
        if self.sim.with(|state| state.peace) {
            self.run_without_faults();
        } else {
            self.note(Kind::ClosedEarly);
            // Not always right after a fault.
            for _ in 0..self.sim.with(|state| state.draws.tasks.below(32)) {
                if self.sim.with(|state| state.faults_left > 0) {
                    self.step();
                }
            }
        }
        self.end();
        self.judge();
    }

    pub(super) fn note(&self, kind: Kind) {
        self.sim.with(|state| state.note(kind, 0));
    }

    pub(super) fn now(&self) -> u64 {
        self.sim.with(|state| state.now)
    }

    /// Takes the counters and the trace.
    pub(super) fn take(&self, counters: &mut Counters, trace: &mut Vec<String>) {
        let steps = self.polls;
        self.sim.with(|state| {
            state.counters.steps = steps;
            state.counters.seconds = (state.now - START) / 1_000_000_000;
            counters.add(&state.counters);
            trace.append(state.lines.as_mut().unwrap_or(&mut Vec::new()));
        });
    }

    /// Drops the client, and ends all tasks.
    pub(super) fn stop(&mut self) {
        self.subject = None;
        self.operations.clear();
        self.sim.release(u64::MAX);
        let before = self.polls;
        while let Some(runnable) = self.sim.next_ready() {
            self.polls += 1;
            assert!(self.polls - before < POLLS_MAX, "tasks are ready again and again at one instant");
            runnable.run();
        }
        self.check();
    }

    /// Fails if the last poll or event was wrong.
    fn check(&self) {
        let violation = self.sim.with(|state| {
            let cut =
                state.cut_write.take().map(|id| format!("P51: connection {id}: the rest of a message is not written"));
            state.violation.take().or(cut)
        });
        if let Some(text) = PANIC.take().or(violation) {
            panic!("{text}");
        }
    }

    /// Polls ready tasks until there are none, or until the host is busy.
    pub(super) fn settle(&mut self) {
        let before = self.polls;
        while let Some(runnable) = self.sim.next_ready() {
            self.polls += 1;
            assert!(self.polls - before < POLLS_MAX, "tasks are ready again and again at one instant");
            runnable.run();
            self.check();
            // A subscription keeps a limited number of events.
            self.record();
            self.note_former();
            if self.sim.is_ready() && self.sim.with(|state| state.is_event_near() && state.comes(Kind::Busy)) {
                return;
            }
        }
        if self.sim.with(|state| core::mem::take(&mut state.is_disturbed) && !state.is_timer_late())
            && !self.sim.is_client_starved()
        {
            self.disturb();
        }
        self.record();
        self.check_counts();
        self.check_wakers();
    }

    /// Steps until a task wakes an operation, which is not polled yet.
    pub(super) fn step_until_woken(&mut self) {
        for _ in 0..WOKEN_STEPS_MAX {
            while let Some(runnable) = self.sim.next_ready() {
                let before = self.sim.ready_operations();
                runnable.run();
                self.check();
                if self.sim.ready_operations() > before {
                    return;
                }
            }
            if self.sim.with(|state| state.faults_left == 0) {
                return;
            }
            self.step();
        }
    }

    /// Polls the task that was woken last.
    pub(super) fn poll_newest(&self) {
        if let Some(runnable) = self.sim.newest_ready() {
            runnable.run();
        }
        self.check();
    }

    /// Polls all tasks although nothing has happened. If one makes progress, it was not woken
    /// before.
    pub(super) fn disturb(&mut self) {
        let polls = self.polls;
        self.sim.with(|state| {
            state.note(Kind::Spurious, 0);
            state.is_disturbing = true;
        });
        self.sim.wake_all();
        while let Some(runnable) = self.sim.next_ready() {
            self.polls += 1;
            assert!(self.polls - polls < POLLS_MAX, "tasks are ready again and again at one instant");
            runnable.run();
            self.check();
        }
        let effect = self.sim.with(|state| {
            state.is_disturbing = false;
            state.counters.checks.add("P8");
            state.effect.take()
        });
        if let Some(effect) = effect {
            panic!("P8: a task that could continue was not woken: {effect}");
        }
    }

    /// Records the events since the last call. They are of the current time (LOG-01).
    fn record(&mut self) {
        let Some(prompt) = &mut self.prompt else { return };
        let now = self.sim.with(|state| state.clock());
        while let Some(notice) = prompt.try_next() {
            let Notice::Event { at, event } = notice else { panic!("an event is lost: {notice:?}") };
            assert_eq!(at, now, "LOG-01: an event has another time than the clock: {event:?}");
            match event {
                OwnedEvent::Pool(event) => {
                    if let Some(Trace(events)) = &mut self.trace {
                        events.push((at, event.pool().get(), OwnedPoolEvent::of(&event)));
                    }
                }
                OwnedEvent::Mux(event) => self.mux_trace.push((at, event.mux().get(), OwnedMuxEvent::of(&event))),
                OwnedEvent::Selection(event) => {
                    if let Some(selections) = &mut self.selections {
                        self.sim.with(|state| {
                            let limit = state.plan.client.server_selection_timeout;
                            selections.on_event(&event.get(), limit, &mut state.counters);
                        });
                    }
                }
                OwnedEvent::Command(event) => {
                    let event = event.get();
                    let key = (event.address.to_owned(), event.connection_id, event.request_id);
                    // A server that comes back counts its connections from the start.
                    match event.stage {
                        CommandStage::Started => {
                            if let Some(selections) = &self.selections {
                                selections.on_command(&event);
                            }
                            if let Ok(Some(session)) = event.document.get("lsid") {
                                let session = session.as_document().map(|id| id.as_bytes().to_vec());
                                let session = session.unwrap_or_else(|| panic!("P57: lsid is no document: {event}"));
                                self.sim.with(|state| state.counters.checks.add("P57"));
                                let other = self.sessions.insert(session, key.clone());
                                assert_eq!(other, None, "P57: two commands use one session at the same time: {event}");
                            }
                            *self.commands.entry(key).or_default() += 1;
                        }
                        CommandStage::Succeeded { .. } | CommandStage::Failed { .. } => {
                            self.sessions.retain(|_, command| *command != key);
                            let begun = self.commands.get_mut(&key);
                            let begun = begun.unwrap_or_else(|| panic!("P56: a command ends twice: {event}"));
                            *begun -= 1;
                            if *begun == 0 {
                                self.commands.remove(&key);
                            }
                        }
                    }
                    let expected = if event.name == "ping" || event.name == "insert" { "test" } else { "admin" };
                    assert_eq!(event.database, expected, "{event}");
                }
                OwnedEvent::Cluster(event) => self.sim.with(|state| {
                    let judged = self.cluster_trace.event(&event, &mut state.counters.checks);
                    judged.unwrap_or_else(|violation| panic!("{violation}"));
                }),
                _ => {}
            }
        }
    }

    /// Checks that the client keeps no waker of a task that has ended: it may take the place of the
    /// waker of a task that waits.
    fn check_wakers(&self) {
        let (of_operations, of_client) = self.sim.left_wakers();
        self.sim.with(|state| state.counters.checks.add("P11"));
        assert!(of_operations == 0, "P11: {of_operations} wakers of operations that have ended are left");
        assert!(of_client == 0, "P11: {of_client} wakers of tasks of the client that have ended are left");
    }

    /// Records the connections to members that the client does not know now. It may find the members
    /// again at the same instant, while the connections are in use.
    fn note_former(&mut self) {
        let known: BTreeSet<usize> = match &self.subject {
            Some(Subject::Client(client)) => client.servers().iter().map(|server| member_of(&server.address)).collect(),
            Some(Subject::Session(session)) => session.hosts().iter().map(|host| member_of(&host.address)).collect(),
            Some(Subject::Pool(_)) | None => return,
        };
        let Self { sim, former, .. } = self;
        sim.with(|state| {
            let is_known = |member: usize| known.contains(&member);
            let links = state.net.links.iter().filter(|(_, link)| !is_known(link.member));
            former.extend(links.map(|(id, _)| *id));
        });
    }

    /// Checks that pools count the sockets that the network has (P1).
    fn check_counts(&mut self) {
        // For each server the connections that are established, and the maximum of others.
        let counts: Vec<(String, (usize, usize))> = match &self.subject {
            Some(Subject::Client(client)) => {
                let of = |server: ServerStatus| {
                    let counts = server.pool.counts;
                    // A monitor has up to two connections.
                    (server.address, ((counts.available + counts.in_use) as usize, counts.pending as usize + 2))
                };
                client.servers().into_iter().map(of).collect()
            }
            Some(Subject::Session(session)) => {
                let most = |host: &HostStatus| host.state.establishing as usize;
                let hosts = session.hosts().into_iter();
                hosts.map(|host| (host.address.clone(), (host.connections.len(), most(&host)))).collect()
            }
            Some(Subject::Pool(pool)) => {
                let counts = pool.status().counts;
                let is_starved = self.sim.is_client_starved();
                self.sim.with(|state| {
                    if !state.is_timer_late() && !is_starved {
                        state.check_attempts(counts.pending);
                    }
                });
                self.check();
                let held = (counts.available + counts.in_use) as usize;
                vec![(HOSTS[0].to_owned(), (held, counts.pending as usize))]
            }
            None => return,
        };
        // A contact point and its node are two hosts of a session.
        let mut of_members: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
        for (address, (held, others)) in counts {
            let sum = of_members.entry(member_of(&address)).or_default();
            *sum = (sum.0 + held, sum.1 + others);
        }
        let Self { sim, former, .. } = self;
        // A task that must close its connection may wait for the host.
        let is_starved = sim.is_client_starved();
        sim.with(|state| {
            for member in 0..HOSTS.len() {
                let links = state.net.links.iter().filter(|(_, link)| link.member == member).map(|(id, _)| *id);
                let Some(&(held, others)) = of_members.get(&member) else {
                    former.extend(links);
                    continue;
                };
                let sockets = links.filter(|link| !former.contains(link)).count();
                // A change of the keyspace has a connection to one of the hosts, and so has the discovery.
                let calls = state.operations.values().filter(|operation| operation.changes_keyspace).count();
                let single = calls + usize::from(state.plan.cluster.discovers);
                let most = held + (others + single) * if state.plan.dual { 2 } else { 1 };
                state.counters.checks.add("P1");
                assert!(sockets >= held, "P1: n{member} has {held} connections, but only {sockets} sockets");
                let surplus = if is_starved { 0 } else { sockets.saturating_sub(most) };
                assert!(surplus == 0, "P1: n{member} has {surplus} more sockets than connections: {sockets}");
            }
        });
    }

    /// Advances to the next event.
    pub(super) fn step(&mut self) {
        self.settle();
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "the run does not end");
        let next = self.sim.with(|state| state.next_time());
        let next = [next, self.sim.next_starved()].into_iter().flatten().min();
        let next = next.expect("no task is ready and no timer is set, but operations wait");
        if next - self.second.0 >= 1_000 * MS {
            let polls = self.polls - self.second.1;
            let is_quiet = self.sim.with(|state| state.peace);
            assert!(!is_quiet || polls < POLLS_PER_SECOND_MAX, "tasks were polled {polls} times in a second");
            self.second = (next, self.polls);
        }
        self.sim.release(next);
        let event = self.sim.with(|state| {
            state.now = next;
            if state.fire() { None } else { state.net.pop(next) }
        });
        match event {
            None => {}
            Some(Event::Begin) => self.begin(),
            Some(Event::DropOperation(id)) => {
                let task = self.operations.remove(&id);
                if task.is_some_and(|task| !task.is_finished()) {
                    self.note(Kind::DropLater);
                }
            }
            Some(event) => self.sim.with(|state| state.happen(event)),
        }
        self.check();
    }

    /// Steps until this time.
    pub(super) fn step_until(&mut self, bound: u64) {
        self.sim.with(|state| state.net.at(bound, Event::Flush(0)));
        while self.now() < bound {
            self.step();
        }
        self.settle();
    }

    /// Begins some operations.
    fn begin(&mut self) {
        if self.is_idle {
            return;
        }
        let (is_judged, peace_gap_ms) = (self.is_judged, self.peace_gap_ms);
        let count = self.sim.with(|state| {
            let gap_ms = if state.peace { peace_gap_ms } else { state.plan.gap_ms };
            let gap = u64::from(state.draws.tasks.below(2 * gap_ms) + 1) * MS;
            state.net.at(state.now + gap, Event::Begin);
            // Sometimes several operations are begun together.
            if state.draws.tasks.one_in(16) { state.draws.tasks.below(10) + 1 } else { 1 }
        });
        for _ in 0..count {
            let (work, drop_point) = self.sim.with(|state| {
                if state.peace && !is_usable(state) {
                    return (Work::Inspect, DropPoint::Never);
                }
                (state.draw_work(), state.draw_drop_point())
            });
            self.begin_operation(work, drop_point, is_judged);
        }
    }

    pub(super) fn begin_operation(&mut self, work: Work, drop_point: DropPoint, must_succeed: bool) -> u64 {
        self.operations.retain(|_, task| !task.is_finished());
        self.next_operation += 1;
        let id = self.next_operation;
        self.sim.with(|state| {
            state.begin_operation(id, &work, must_succeed);
            if !state.peace && state.plan.comes(Kind::DropLater, &mut state.draws.tasks) {
                let at = state.now + u64::from(state.draws.tasks.below(20_000)) * MS / 10;
                state.net.at(at, Event::DropOperation(id));
            }
        });
        let (sim, subject) = (self.sim.clone(), self.subject().clone());
        let work = Box::pin(async move { execute(&sim, &subject, work).await });
        let running = Running { sim: self.sim.clone(), id, work: Some(work), drop_point, polls: 0 };
        self.operations.insert(id, self.sim.start(running));
        id
    }

    /// Checks the recorded events.
    fn judge(&mut self) {
        let is_client =
            self.sim.with(|state| !matches!(state.plan.deployment, Deployment::Cluster | Deployment::Plain));
        if let Some(log) = &self.log {
            let mut log = lock(log);
            if is_client {
                log.assert_over();
            }
            self.sim.with(|state| log.seen.drain(..).for_each(|kind| state.counters.count(kind)));
        }
        let (mux_trace, trace) = (core::mem::take(&mut self.mux_trace), self.trace.take());
        let judged = self.sim.with(|state| {
            let State { counters, silent_ends, .. } = state;
            if let Some(trace) = trace {
                trace.judge(&mut counters.checks)?;
            }
            mux_events::judge(&mux_trace, silent_ends, &mut counters.checks)
        });
        judged.unwrap_or_else(|violation| panic!("{violation}"));
    }
}

/// Passes an event to the log, and adds the lines of the log to the trace.
fn record(sim: &Sim, log: &Mutex<Log>, event: &EventRef<'_>) {
    let now: Instant = sim.with(|state| state.clock());
    let mut log = lock(log);
    match event {
        EventRef::Pool(event) => log.on_event(now, *event),
        EventRef::Heartbeat(event) => log.on_event(now, *event),
        EventRef::Sdam(event) => log.on_event(now, *event),
        EventRef::Mux(event) => log.on_event(now, *event),
        // Read by the other subscription.
        EventRef::Cluster(_) => {}
        EventRef::Command(_) | _ => panic!("an unexpected event: {event:?}"),
    }
    if let Some(lines) = &mut log.lines {
        sim.with(|state| state.lines.get_or_insert_default().append(lines));
    }
}
