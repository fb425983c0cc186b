//! The phase without faults: results that are required within a bound in virtual time, and the
//! state that must be left after the client has ended.

use super::cassandra::{IS_BOOTSTRAPPING, KEYSPACES, OVERLOADED};
use super::links::{Event, Link, Purpose};
use super::nodes::{address_of, member_of};
use super::operations::{DropPoint, ESTABLISHED, Operation, Subject};
use super::plan::{Closing, MS, MUX_IN_PEACE, nanos};
use super::platform::Sim;
use super::simulation::Simulation;
use super::state::State;
use super::truth::{Deployment, HOSTS, SET};
use crate::choices::Choices;
use crate::kind::Kind;
use alloc::collections::BTreeMap;
use async_task::Task;
use core::net::SocketAddr;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use poolhouse_client::mux::Session;
use poolhouse_core::ServerType;
use poolhouse_core::monitor::ServerMonitoringMode;
use poolhouse_core::mux::HostState;
use poolhouse_core::pool::PoolState;
use poolhouse_core::topology::TopologyType;

/// Number of operations in each part of this phase.
const OPERATIONS_IN_PEACE: u64 = 20;
/// The time in which a client without faults and operations is at rest.
const REST: u64 = 3_000 * MS;

impl Simulation {
    /// Runs from the end of the faults until the client is at rest.
    pub(super) fn run_without_faults(&mut self) {
        let (heartbeat, connect, pool) =
            self.sim.with(|state| (state.plan.heartbeat, state.plan.connect, state.plan.pool));
        self.reset_options();
        // The bound allows for detection of lost connections, and discovery of the servers one
        // after the other. A session connects to a failed host again after a minute at most.
        let pause = if matches!(self.subject(), Subject::Session(_)) { 70_000 * MS } else { 0 };
        let discovery = self.sim.with(|state| state.plan.discovery_time());
        let time = 4 * (heartbeat + connect) + 5_000 * MS + pause + discovery;
        self.peace_gap_ms = u32::try_from(time / MS / OPERATIONS_IN_PEACE).unwrap_or(u32::MAX);
        self.step_until(self.now() + time);
        self.heal();
        self.converged();
        // An operation that began during the faults may have changed them again.
        self.reset_options();
        self.is_judged = true;
        self.peace_gap_ms = 100;
        let (judged_from, generations, mut is_awaited) = (self.now(), self.generations(), false);
        self.sim.with(|state| {
            state.dead_dials.clear();
            let calls = state.operations.values().filter(|operation| operation.changes_keyspace).count();
            state.keyspace_calls = u32::try_from(calls).unwrap_or(u32::MAX);
            // They may wait for a server that is dead, and request checks of it.
            is_awaited = state.operations.values().any(|operation| operation.is_remote);
            // They would begin after the long interval of before.
            state.net.begin_at(state.now);
            state.shedding = state.draw_shedding();
            if state.shedding.is_some() {
                state.note(Kind::Shedding, 0);
            }
            state.begin_shut_down_in_peace();
        });
        // One operation hangs, forever or until it times out. The others must not be affected
        // (P54).
        let is_shared = match self.subject() {
            Subject::Client(_) => pool.max_pool_size != 1,
            Subject::Session(_) => true,
            Subject::Pool(_) => self.sim.with(|state| state.plan.options.max_size > 1),
        };
        let hangs = is_shared && self.sim.with(|state| is_usable(state) && state.draws.tasks.one_in(4));
        let hung = hangs.then(|| {
            self.note(Kind::OpHangs);
            let work = self.sim.with(State::hanging_work);
            self.begin_operation(work, DropPoint::Never, false)
        });
        self.step_until(self.now() + OPERATIONS_IN_PEACE * 100 * MS);
        self.is_idle = true;
        self.sim.with(|state| {
            state.shedding = None;
            state.truth.members.iter_mut().for_each(|member| member.refusal = None);
        });
        self.step_until(self.now() + heartbeat + connect + REST);
        // Selections that began during the faults may wait for a server that stays dead, twice.
        // Those of a pool of any connections may wait for one connection, one after the other.
        let bound = self.sim.with(|state| {
            let wait = match state.truth.deployment {
                Deployment::Plain => state.operations.len() as u64 * 2_000 * MS,
                _ => 2 * nanos(state.plan.client.server_selection_timeout),
            };
            state.net.at(state.now + wait, Event::Flush(0));
            state.now + wait
        });
        let is_over = |state: &mut State| state.operations.values().all(|operation| operation.hangs);
        while self.now() < bound && !self.sim.with(is_over) {
            self.step();
        }
        self.sim.with(|state| {
            let left: Vec<_> = state.operations.values().filter(|operation| !operation.hangs).collect();
            state.counters.checks.add("P51");
            assert!(left.is_empty(), "P51: {} operations do not end, the first of them: {}", left.len(), left[0].text);
        });
        if self.sim.with(|state| state.broken_closed_at < judged_from) {
            self.sim.with(|state| state.counters.checks.add("S12"));
            assert_eq!(self.generations(), generations, "S12: a pool was cleared without a fault");
        }
        if let Some(hung) = hung {
            self.sim.with(|state| {
                state.counters.checks.add("P54");
                let is_late = state.operations.get(&hung).is_some_and(Operation::has_deadline);
                assert!(!is_late, "P19: an operation without a reply does not end at its limit");
            });
            // The application drops it. Its connection waits for the late reply for a short time.
            self.operations.remove(&hung);
            self.step_until(self.now() + REST);
        }
        self.settle();
        self.disturb();
        self.at_rest(hung.is_some());
        self.filled();
        let is_observed = self.sim.with(|state| state.plan.is_observed);
        if is_observed && matches!(self.subject(), Subject::Client(_)) {
            self.sim.with(|state| state.counters.checks.add("P56"));
            assert!(self.commands.is_empty(), "P56: commands have a start and no end: {:?}", self.commands);
            if let Some(selections) = &self.selections {
                selections.assert_over();
            }
        }
        let (elapsed, is_session) = (self.now() - judged_from, matches!(self.subject(), Subject::Session(_)));
        self.sim.with(|state| {
            state.counters.checks.add("P53");
            let each = if state.plan.dual { 2 } else { 1 };
            // Checks of a server that is not required are a heartbeat apart. Those of an operation
            // that finds no server are 500 ms apart. The longest pause of a session is 500 ms, less a
            // quarter at most.
            let interval = match state.broken_closed_at < judged_from && !is_awaited {
                _ if is_session => 375 * MS,
                true => heartbeat,
                false => 500 * MS,
            };
            // A change of the keyspace connects once itself, and the pools connect again.
            let most = each * (elapsed / interval + 1 + 2 * u64::from(state.keyspace_calls));
            for (member, &dials) in &state.dead_dials {
                assert!(u64::from(dials) <= most, "P53: {dials} connections to n{member}, which is dead");
            }
        });
    }

    /// The generations of the pools of known servers. A failed check of another clears its pool.
    fn generations(&self) -> Vec<(String, u64)> {
        let Subject::Client(client) = self.subject() else { return Vec::new() };
        let known = client.servers().into_iter().filter(|server| server.server_type.is_known());
        known.map(|server| (server.address, server.pool.generation)).collect()
    }

    /// Undoes the changes of options.
    fn reset_options(&self) {
        let pool = self.sim.with(|state| state.plan.pool);
        let reset = match self.subject() {
            Subject::Client(client) => client.set_pool_options(pool),
            Subject::Session(session) => session.set_mux_options(MUX_IN_PEACE),
            Subject::Pool(pool) => {
                let max_size = self.sim.with(|state| state.plan.options.max_size);
                return pool.resize(max_size).expect("a valid size");
            }
        };
        reset.expect("valid options");
    }

    /// An operation that began during the faults detects a connection that broke then, or repeats a
    /// write that a secondary refuses. Its server is then unknown until the next check (S19). A check
    /// waits for a lookup that is slow. This waits for the check after them.
    fn heal(&mut self) {
        loop {
            let bound = self.sim.with(|state| {
                let last = state.broken_closed_at.max(state.write_refused_at).max(state.lookup_ends_at);
                last + state.plan.heartbeat + state.plan.connect + REST
            });
            if self.now() >= bound {
                return;
            }
            self.step();
        }
    }

    /// Waits until a pool of any connections has its minimum: connections that are closed are replaced at
    /// a limited rate (P4, P53).
    fn filled(&mut self) {
        let Subject::Pool(_) = self.subject() else { return };
        let (bound, min_size) = self.sim.with(|state| {
            let bound = state.now + 2_000 * MS;
            state.net.at(bound, Event::Flush(0));
            (bound, state.plan.options.min_size)
        });
        loop {
            let Subject::Pool(pool) = self.subject() else { return };
            let counts = pool.status().counts;
            if counts.total() >= min_size {
                return;
            }
            assert!(self.now() < bound, "P4: {counts:?}, but min_size is {min_size}");
            self.step();
        }
    }

    /// Checks the counts of a client without operations (P1, P43).
    fn at_rest(&self, has_hung: bool) {
        let servers = match self.subject() {
            Subject::Client(client) => client.servers(),
            Subject::Pool(pool) => {
                let counts = pool.status().counts;
                let sockets = self.sim.with(|state| state.net.links.len());
                let held = (counts.available + counts.in_use) as usize;
                let is_right = (held..=held + counts.pending as usize).contains(&sockets);
                assert!(is_right, "P1: {counts:?}, but {sockets} connections");
                assert_eq!((counts.in_use, counts.waiting), (0, 0), "P43: operations have ended, but {counts:?}");
                return;
            }
            Subject::Session(session) => {
                let hosts = session.hosts();
                let in_flight: u32 = hosts.iter().flat_map(|host| &host.connections).map(|open| open.in_flight).sum();
                // The stream of a request that is never answered is never free.
                assert!(in_flight <= u32::from(has_hung), "P43: requests stay in flight: {hosts:?}");
                self.sim.with(|state| {
                    let each = if state.plan.dual { 2 } else { 1 };
                    for host in &hosts {
                        let member = member_of(&host.address);
                        let is_of_pool = |link: &&Link| link.member == member && !link.far.is_registered;
                        let sockets = state.net.links.values().filter(is_of_pool).count();
                        let HostState { open, trashed, retired, establishing, queued, .. } = host.state;
                        let held = (open + trashed + retired) as usize;
                        let most = if state.truth.members[member].up { 0 } else { establishing as usize * each };
                        let is_right = (held..=held + most).contains(&sockets) && held == host.connections.len();
                        assert!(is_right, "P1: {sockets} sockets of n{member} are open, but {host:?}");
                        assert_eq!(queued, 0, "P43: requests stay in the queue: {host:?}");
                    }
                    let links = state.net.links.values();
                    let controls = links.clone().filter(|link| link.far.is_registered).count();
                    let discovers = usize::from(state.plan.cluster.discovers);
                    assert_eq!(controls, discovers, "P1: control connections");
                    let is_of_host = |member: usize| hosts.iter().any(|host| member_of(&host.address) == member);
                    let stray = links.filter(|link| !link.far.is_registered && !is_of_host(link.member)).count();
                    assert_eq!(stray, 0, "P1: connections to members that are no hosts");
                });
                return;
            }
        };
        for (member, host) in HOSTS.iter().enumerate() {
            let counts = servers.iter().find(|server| server.address == *host).map(|server| server.pool.counts);
            let (pool, unknown, monitors) = self.sim.with(|state| {
                let count = |purpose| {
                    let links = state.net.links.values();
                    links.filter(|link| link.member == member && link.purpose == purpose).count()
                };
                (count(Purpose::Pool), count(Purpose::Unknown), count(Purpose::Monitor))
            });
            let Some(counts) = counts else {
                assert_eq!(pool + unknown + monitors, 0, "P43: n{member} is no server, but has connections");
                continue;
            };
            let held = (counts.available + counts.in_use) as usize;
            // A server that streams has a second connection for round-trip times.
            let (is_up, monitored) = self.sim.with(|state| {
                let streams =
                    state.plan.versioned && state.plan.monitor.server_monitoring_mode != ServerMonitoringMode::Poll;
                (state.truth.members[member].up, if streams { 2 } else { 1 })
            });
            let (sockets, pending) = (pool + unknown + monitors, counts.pending as usize);
            let is_right = match is_up {
                true => (held + monitored..=held + pending + monitored).contains(&sockets) && monitors <= monitored,
                false => sockets <= held + pending + 2 && monitors == 0,
            };
            assert!(
                is_right && pool <= held + pending,
                "P1: {counts:?} of n{member}, but {pool} connections of the pool, {monitors} of the monitor, {unknown} of either"
            );
            assert_eq!(counts.in_use, 0, "P43: connections of n{member} stay in use: {counts:?}");
            assert_eq!(counts.waiting, 0, "P43: check-outs of n{member} stay: {counts:?}");
        }
    }

    /// Checks that the client's view matches the deployment, and that its pools work (S19, P51).
    fn converged(&self) {
        let client = match self.subject() {
            Subject::Client(client) => client,
            Subject::Pool(pool) => return assert_eq!(pool.status().state, PoolState::Ready, "P51: the pool"),
            Subject::Session(session) => return self.session_converged(session),
        };
        let topology = client.topology();
        let description = topology.get();
        let see = format!("{description}");
        let seen: BTreeMap<usize, ServerType> = description
            .servers()
            .map(|server| {
                let member = HOSTS.iter().position(|host| *host == server.address()).expect("one of the hosts");
                (member, server.server_type())
            })
            .collect();
        let ready: Vec<_> = client.servers();
        self.sim.with(|state| {
            state.counters.checks.add("S19");
            let (plan, truth) = (&state.plan, &state.truth);
            for (&member, &server_type) in &seen {
                let right = if is_stranger(state, member) || !truth.members[member].up {
                    ServerType::Unknown
                } else {
                    truth.members[member].view.server_type
                };
                let is_right = server_type == right || (!server_type.is_known() && !right.is_known());
                assert!(is_right, "S19: the client sees {see}, but n{member} is {right}");
            }
            let right_type = match (plan.direct, truth.deployment) {
                (Some(_), _) | (None, Deployment::Standalone) => TopologyType::Single,
                (None, Deployment::Sharded) => TopologyType::Sharded,
                (None, Deployment::Set) if truth.primary.is_some() => TopologyType::ReplicaSetWithPrimary,
                (None, Deployment::Set | Deployment::Cluster | Deployment::Plain) => TopologyType::ReplicaSetNoPrimary,
            };
            assert_eq!(description.topology_type(), right_type, "S19: the client sees {see}");
            if right_type == TopologyType::ReplicaSetWithPrimary {
                let members: Vec<usize> = seen.keys().copied().collect();
                assert_eq!(members, truth.config, "S19: the client sees {see}");
                assert_eq!(description.set_name(), Some(SET));
            }
        });
        for server in ready.iter().filter(|server| server.server_type.is_data_bearing()) {
            assert_eq!(server.pool.state, PoolState::Ready, "P51: {see}");
        }
    }

    /// Checks that a session has the hosts of its cluster, and connections to those that are up (P51, P62).
    fn session_converged(&self, session: &Session<Sim>) {
        let (hosts, cluster) = (session.hosts(), session.cluster());
        let members: Vec<usize> = hosts.iter().map(|host| member_of(&host.address)).collect();
        self.sim.with(|state| {
            let config = &state.truth.config;
            let has_all = hosts.len() == config.len() && config.iter().all(|member| members.contains(member));
            assert!(has_all, "P51, P62: the members are {config:?}, but the session has {hosts:?} of {cluster:?}");
            for (member, host) in members.iter().zip(&hosts) {
                let is_up = state.truth.members[*member].up;
                // A change of the keyspace replaces the connections.
                let is_replaced = state.replaced_at >= state.now.saturating_sub(ESTABLISHED) && state.replaced_at > 0;
                let is_right = host.connections.is_empty() != is_up || is_replaced && is_up;
                assert!(is_right, "P51: the node is up: {is_up}, but the session has {host:?}");
            }
        });
        let Some(cluster) = cluster else { return };
        self.sim.with(|state| {
            state.counters.checks.add("P62");
            let right: Vec<SocketAddr> = state.truth.config.iter().map(|&member| address_of(member)).collect();
            let nodes: Vec<SocketAddr> = cluster.nodes.iter().map(|node| node.address).collect();
            assert_eq!(nodes, right, "P62: the nodes, by their address");
            let is_whole = cluster.is_connected && cluster.routed_keyspaces == KEYSPACES.len();
            assert!(is_whole, "P62: the session is connected to its cluster: {cluster:?}");
            if state.plan.is_observed {
                let seen: Vec<SocketAddr> = self.cluster_trace.nodes.keys().copied().collect();
                assert_eq!(seen, right, "P62: the nodes, by their events");
            }
        });
    }

    /// Closes the client. The task ends when the close is complete.
    fn begin_close(&self) -> Task<()> {
        let (sim, subject) = (self.sim.clone(), self.subject().clone());
        self.sim.with(|state| state.is_closed = true);
        self.sim.start(async move {
            subject.close().await;
            sim.with(|state| {
                if !state.background.is_empty() {
                    state.violate(|| "S18: the close ends before the background tasks".to_owned());
                }
            });
        })
    }

    /// The executor drops one of the client's tasks. The client must be closed then.
    fn drop_task(&mut self) {
        self.settle();
        self.note(Kind::TaskDropped);
        let has_peace = self.sim.with(|state| {
            let tasks: Vec<u64> = state.background.keys().copied().collect();
            let task = tasks[state.draws.tasks.index(tasks.len())];
            state.background.insert(task, true);
            state.is_abandoned = true;
            // During the faults it may be a task of a server that was removed.
            state.closed_by = if state.peace { &[Kind::OpAbandoned] } else { &[Kind::OpAbandoned, Kind::OpClosed] };
            state.peace
        });
        self.sim.wake_all();
        self.settle();
        if has_peace {
            let work = self.sim.with(State::draw_work);
            let id = self.begin_operation(work, DropPoint::Never, false);
            self.settle();
            let is_left = self.sim.with(|state| state.operations.contains_key(&id));
            assert!(!is_left, "P42: an operation waits although a task of the client was dropped");
        }
    }

    /// Ends the client.
    pub(super) fn end(&mut self) {
        self.is_idle = true;
        // During the faults, the application may close the client and drop its operations when one
        // of them has been woken.
        let is_hasty = self.sim.with(|state| !state.peace && state.draws.tasks.one_in(2));
        if is_hasty {
            self.step_until_woken();
        }
        let closing = if is_hasty { Closing::Close } else { self.sim.with(|state| state.plan.closing) };
        let subject = self.subject().clone();
        let mut close = None;
        if closing != Closing::TaskDropped {
            self.sim.with(|state| state.closed_by = &[Kind::OpClosed]);
        }
        match closing {
            Closing::Close => {
                close = Some(self.begin_close());
                if is_hasty {
                    self.poll_newest();
                    self.operations.clear();
                }
            }
            Closing::CloseDropped => {
                self.note(Kind::CloseDropped);
                let mut subscription = subject.subscribe();
                self.sim.with(|state| state.is_closed = true);
                let mut context = Context::from_waker(Waker::noop());
                let _ = pin!(subject.close()).poll(&mut context);
                while subscription.try_next().is_some() {}
                // The subscriptions of a pool of any connections end with its tasks.
                let has_ended = matches!(subject, Subject::Pool(_)) || subscription.poll_next(&mut context).is_ready();
                assert!(has_ended, "P43: a close was dropped, and a subscription has not ended");
                // Another one is dropped later.
                let second = self.begin_close();
                self.settle();
                drop(second);
                close = Some(self.begin_close());
            }
            Closing::TaskDropped => {
                self.drop_task();
                close = Some(self.begin_close());
            }
            Closing::Drop => {
                self.sim.with(|state| state.is_closed = true);
                self.subject = None;
                self.note(Kind::ClientDropped);
            }
        }
        drop(subject);
        // Commands that were sent may still be answered. The application drops the others.
        self.step_until(self.now() + 1_000 * MS);
        if closing != Closing::Drop {
            self.sim.with(|state| {
                let left: Vec<_> = state.operations.values().filter(|operation| operation.is_remote).collect();
                let links = state.net.links.len();
                // A connection of a session has many requests.
                let may_wait =
                    if state.truth.deployment == Deployment::Cluster { links > 0 } else { left.len() <= links };
                assert!(
                    left.is_empty() || may_wait,
                    "P43: operations wait for a closed client: {left:?}, {links} connections"
                );
            });
        }
        self.operations.clear();
        // The host is no longer busy, and its timers are in time.
        self.sim.with(|state| state.peace = true);
        self.step_until(self.now() + REST);
        assert!(close.is_none_or(|close| close.is_finished()), "P43: the close does not end");
        self.sim.with(|state| {
            state.counters.checks.add("P43");
            state.counters.checks.add("S18");
            let links: Vec<_> = state.net.links.keys().collect();
            assert!(links.is_empty(), "P43: sockets are left: {links:?}");
            assert_eq!(state.background.len(), 0, "P43: background tasks are left");
            assert!(state.operations.is_empty(), "P43: operations are left: {:?}", state.operations);
        });
        let is_read = self.reader.as_ref().is_none_or(Task::is_finished);
        assert!(is_read, "P43: a subscription does not end with the client");
        if closing != Closing::Drop {
            self.begin_operation(self.sim.with(|state| state.draw_work()), DropPoint::Never, false);
            self.step_until(self.now() + REST);
            let left = self.sim.with(|state| format!("{:?}", state.operations));
            assert_eq!(left, "{}", "P42: an operation on a closed client does not end");
            self.operations.clear();
            let mut late = self.subject().subscribe();
            let polled = late.poll_next(&mut Context::from_waker(Waker::noop()));
            assert!(
                matches!(polled, Poll::Ready(None)),
                "P43: a subscription after the close does not end: {polled:?}"
            );
            self.subject = None;
        }
        self.settle();
        assert_eq!(self.sim.with(|state| state.timers_count()), 0, "P43: timers are left");
    }
}

/// A direct connection to a member of another set, or of no set, is rejected (SDAM-34).
fn is_stranger(state: &State, member: usize) -> bool {
    let known = &state.truth.members[member];
    state.plan.named && state.plan.direct.is_some() && known.view.server_type == ServerType::RsGhost
}

impl State {
    /// Draws a router that refuses new connections. The retries of an operation find another one.
    fn draw_shedding(&mut self) -> Option<usize> {
        let up: Vec<usize> =
            self.truth.config.iter().copied().filter(|&member| self.truth.members[member].up).collect();
        let client = &self.plan.client;
        let is_possible = self.truth.deployment == Deployment::Sharded
            && self.plan.direct.is_none()
            && up.len() > 1
            && client.retries
            && client.max_adaptive_retries > 0;
        is_possible.then(|| up[self.draws.tasks.index(up.len())])
    }
}

impl State {
    /// Draws a node that refuses the requests on its connections, which stay open. Another one takes them,
    /// except those that may not be repeated and were not refused as by a node that is starting.
    fn begin_shut_down_in_peace(&mut self) {
        let up: Vec<usize> =
            self.truth.config.iter().copied().filter(|&member| self.truth.members[member].up).collect();
        let is_cluster = self.truth.deployment == Deployment::Cluster;
        if !is_cluster || !self.plan.cluster.shuts_down || up.len() < 2 || self.draws.habits.one_in(2) {
            return;
        }
        let member = up[self.draws.habits.index(up.len())];
        self.is_final_refusal = self.draws.habits.one_in(2);
        let code = if self.is_final_refusal { OVERLOADED } else { IS_BOOTSTRAPPING };
        self.truth.members[member].refusal = Some(code);
        self.note(Kind::ShutsDown, member as u64);
    }
}

/// Whether the client can run a command after the faults.
pub(super) fn is_usable(state: &State) -> bool {
    match state.plan.direct {
        Some(member) => state.truth.members[member].up && !is_stranger(state, member),
        None => {
            let truth = &state.truth;
            let is_data = |&member: &usize| truth.members[member].view.server_type.is_data_bearing();
            truth.config.iter().any(|member| truth.members[*member].up && is_data(member))
        }
    }
}
