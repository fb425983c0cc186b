//! The client: the control machine, a pool for each server, and the state that a host keeps for
//! them.

use super::kind::Kind;
use super::log::Log;
use super::monitors::{Call, Monitors};
use super::truth::HOSTS;
use crate::oracle::pool::{Bounded, Watched};
use crate::oracle::{Checks, control};
use crate::reply::CheckReply;
use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;
use poolhouse_core::control::ControlAction;
use poolhouse_core::monitor::{HelloKind, MonitorAction, MonitorConfig, MonitorConnId, MonitorConnKind};
use poolhouse_core::pool::{
    CheckOut, CheckOutError, Claim, Clear, ConnId, EstablishError, ForeignLease, Health, Lease, PoolAction, PoolConfig,
    PoolCounts, PoolId, PoolState, WaiterId,
};
use poolhouse_core::topology::{
    AppError, AppErrorKind, HandshakePhase, OnHeap, PoolCommand, ServerError, TopologyId, TopologyOptions, TopologyType,
};
use poolhouse_core::{Cause, Instant, ServerId, Stale};
use poolhouse_wire::Labels;
use poolhouse_wire::handshake::HandshakeError;
use poolhouse_wire::hello::HelloReply;
use poolhouse_wire::message::Matched;

/// A request of the client to the network.
#[derive(Debug)]
pub(super) enum Want {
    Dial {
        server: ServerId,
        conn: MonitorConnId,
        member: usize,
    },
    Hello {
        server: ServerId,
        conn: MonitorConnId,
        hello: HelloKind,
    },
    Read {
        server: ServerId,
        conn: MonitorConnId,
    },
    Hangup {
        server: ServerId,
        conn: MonitorConnId,
    },
    Establish {
        server: ServerId,
        conn: ConnId,
        member: usize,
    },
    /// Close the socket of a connection.
    Close {
        server: ServerId,
        conn: ConnId,
    },
    /// The server was removed: its monitor connections have no owner.
    Gone {
        server: ServerId,
    },
}

/// A leased connection.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) server: ServerId,
    pub(super) lease: Lease,
}

struct Server<M: Bounded> {
    pool: Watched<M>,
    member: usize,
    dials: VecDeque<Instant>,
    /// It may owe actions.
    touched: bool,
}

impl<M: Bounded> Server<M> {
    const fn pool_mut(&mut self) -> &mut Watched<M> {
        self.touched = true;
        &mut self.pool
    }
}

pub(super) struct Client<M: Bounded> {
    pub(super) control: control::Watched<OnHeap>,
    monitors: Monitors,
    /// The control machine may owe actions.
    touched: bool,
    pub(super) log: Log,
    servers: BTreeMap<ServerId, Server<M>>,
    pub(super) wants: VecDeque<Want>,
    pub(super) woken: Vec<(ServerId, WaiterId)>,
    pub(super) interrupted: Vec<(ServerId, ConnId)>,
    pub(super) now: Instant,
    pool: PoolConfig,
    next_pool: u32,
    /// Pools of removed servers, until all connections are returned.
    leaving: BTreeMap<ServerId, Server<M>>,
    /// A selection waits for a primary, or for any server.
    pub(super) selecting: bool,
    /// Number of executions of owed actions.
    pub(super) steps: u64,
}

impl<M: Bounded> Client<M> {
    pub(super) fn new(
        now: Instant,
        options: TopologyOptions<'_>,
        monitor: MonitorConfig,
        pool: PoolConfig,
        traced: bool,
    ) -> Self {
        let mut log = Log::default();
        log.lines = traced.then(Vec::new);
        let config = options.validate().expect("hosts are hosts");
        let control = control::Watched::new(now, TopologyId::new(1), config, monitor, &mut log).expect("memory");
        let mut client = Self {
            control,
            monitors: Monitors::new(monitor),
            touched: true,
            log,
            servers: BTreeMap::new(),
            wants: VecDeque::new(),
            woken: Vec::new(),
            interrupted: Vec::new(),
            now,
            pool,
            next_pool: 0,
            leaving: BTreeMap::new(),
            selecting: false,
            steps: 0,
        };
        client.follow(now, None, None);
        client.settle();
        client
    }

    /// Advances the time. A time before the current one is passed to the machines, but not stored.
    /// Returns whether anything was due.
    ///
    /// - `anyway`: call the machines even if nothing is due.
    pub(super) fn advance(&mut self, now: Instant, anyway: bool) -> bool {
        self.now = self.now.max(now);
        let limit = self.now;
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= limit);
        let mut did = false;
        let control_is_due = is_due(self.control.poll_timeout());
        if control_is_due || anyway {
            // The machine receives the time as passed by the caller.
            self.touched = true;
            self.control.handle_timeout(now, &mut self.log);
            self.follow(now, None, Some(Call::Timeout));
            did |= control_is_due;
            self.settle();
        }
        for server in self.servers.values_mut().chain(self.leaving.values_mut()) {
            let pool_is_due = is_due(server.pool.poll_timeout());
            if pool_is_due || anyway {
                server.pool_mut().handle_timeout(now, &mut self.log);
                did |= pool_is_due;
            }
        }
        if did || anyway {
            self.settle();
        }
        did
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let pools = self.servers.values().chain(self.leaving.values());
        let pools = pools.filter_map(|server| server.pool.poll_timeout());
        pools.chain(self.control.poll_timeout()).min()
    }

    pub(super) fn dialed(&mut self, server: ServerId, conn: MonitorConnId) -> Result<(), Stale> {
        self.touched = true;
        let result = self.control.handle_dialed(self.now, server, conn, &mut self.log);
        self.follow(self.now, Some(server), Some(Call::Dialed(conn)));
        self.settle();
        result
    }

    pub(super) fn replied(
        &mut self,
        server: ServerId,
        conn: MonitorConnId,
        reply: &HelloReply<'_>,
        matched: Matched,
    ) -> Result<(), Stale> {
        self.touched = true;
        let result = self.control.handle_reply(self.now, server, conn, reply, matched, &mut self.log);
        self.follow(self.now, Some(server), Some(Call::Reply(conn, CheckReply::of(reply, matched))));
        self.settle();
        result
    }

    pub(super) fn failed(&mut self, server: ServerId, conn: MonitorConnId, cause: Cause) -> Result<(), Stale> {
        self.touched = true;
        let result = self.control.handle_failed(self.now, server, conn, cause, &mut self.log);
        self.follow(self.now, Some(server), Some(Call::Failed(conn, cause)));
        self.settle();
        result
    }

    pub(super) fn request(&mut self) {
        self.touched = true;
        self.control.request_check(self.now);
        self.follow(self.now, None, Some(Call::Request));
        self.settle();
    }

    /// The hello of a connection that is being established. It updates the server, unless its pool
    /// was cleared since.
    pub(super) fn app_hello(&mut self, server: ServerId, conn: ConnId, hello: &HelloReply<'_>) {
        let Some(at) = self.servers.get(&server) else { return };
        if at.pool.conn_generation(conn).is_some_and(|generation| generation == at.pool.generation()) {
            self.touched = true;
            self.control.handle_app_hello(self.now, server, hello, &mut self.log);
            self.follow(self.now, None, None);
            self.settle();
        }
    }

    /// A connection was established. Returns whether the pool still needs it.
    pub(super) fn established(&mut self, server: ServerId, conn: ConnId) -> bool {
        let Some(at) = self.servers.get_mut(&server).or_else(|| self.leaving.get_mut(&server)) else { return false };
        let is_there = at.pool_mut().handle_established(self.now, conn, &mut self.log).is_ok();
        self.settle();
        is_there
    }

    /// A connection could not be established. Returns whether the cause is overload; `None` when
    /// the pool has already abandoned it.
    pub(super) fn not_established(&mut self, server: ServerId, conn: ConnId, error: &HandshakeError) -> Option<bool> {
        let (at, is_member) = match self.servers.get_mut(&server) {
            Some(at) => (at, true),
            None => (self.leaving.get_mut(&server)?, false),
        };
        let generation = at.pool.conn_generation(conn)?;
        let overloaded = error.labels.contains(Labels::SYSTEM_OVERLOADED_ERROR);
        let mut clear = None;
        if is_member {
            let report = AppError {
                generation: generation.get(),
                pool_generation: at.pool.generation().get(),
                phase: HandshakePhase::Before,
                kind: error.into(),
                overloaded,
                service_id: None,
            };
            self.touched = true;
            clear = self.control.handle_app_error(self.now, server, &report, &mut self.log).clear;
            self.monitors.follow(&self.control, self.now, None, None);
        }
        let failed = EstablishError { cause: error.cause, overloaded, clear };
        at.pool_mut().handle_establish_failed(self.now, conn, failed, &mut self.log).expect("it was pending");
        self.settle();
        Some(overloaded)
    }

    /// Reports the result of the establishment of a closed connection.
    pub(super) fn late_conn(&mut self, server: ServerId, conn: ConnId, is_good: bool) -> Result<(), Stale> {
        let Some(at) = self.servers.get_mut(&server).or_else(|| self.leaving.get_mut(&server)) else {
            return Err(Stale);
        };
        if is_good {
            return at.pool_mut().handle_established(self.now, conn, &mut self.log);
        }
        let error = EstablishError { cause: Cause::Network, overloaded: false, clear: None };
        at.pool_mut().handle_establish_failed(self.now, conn, error, &mut self.log)
    }

    /// The servers of the client's view, with the states of their pools.
    pub(super) fn pools(&self) -> impl Iterator<Item = (ServerId, usize, PoolState)> {
        self.servers.iter().map(|(id, at)| (*id, at.member, at.pool.state()))
    }

    /// The counts of all pools, including those that are closing.
    pub(super) fn counts(&self) -> impl Iterator<Item = (ServerId, PoolCounts)> {
        self.servers.iter().chain(&self.leaving).map(|(id, at)| (*id, at.pool.counts()))
    }

    /// Checks a connection out.
    pub(super) fn check_out(&mut self, server: ServerId, deadline: Option<Instant>) -> Result<CheckOut, CheckOutError> {
        let at = self.servers.get_mut(&server).expect("a server of the view");
        let result = at.pool_mut().check_out(self.now, deadline, &mut self.log);
        self.settle();
        result
    }

    /// Takes the outcome of a waiter.
    pub(super) fn claim(&mut self, server: ServerId, waiter: WaiterId) -> Claim {
        let now = self.now;
        let claim = self.pool(server).pool_mut().claim(now, waiter);
        self.settle();
        claim
    }

    pub(super) fn cancel(&mut self, server: ServerId, waiter: WaiterId) {
        let now = self.now;
        let at = self.servers.get_mut(&server).or_else(|| self.leaving.get_mut(&server));
        at.expect("a pool exists until all its connections are returned").pool_mut().cancel(now, waiter, &mut self.log);
        self.settle();
    }

    fn pool(&mut self, server: ServerId) -> &mut Server<M> {
        let at = self.servers.get_mut(&server).or_else(|| self.leaving.get_mut(&server));
        at.expect("a pool exists until all its connections are returned")
    }

    /// Reports a failed operation. The server is updated, and its pool cleared if required. Returns
    /// whether the server became unknown.
    pub(super) fn report(&mut self, op: &Op, kind: AppErrorKind<'_>) -> bool {
        let Some(at) = self.servers.get_mut(&op.server) else { return false };
        let generation = at.pool.conn_generation(op.lease.conn()).expect("it is leased").get();
        let pool_generation = at.pool.generation().get();
        let error = AppError {
            generation,
            pool_generation,
            phase: HandshakePhase::After,
            kind,
            overloaded: false,
            service_id: None,
        };
        self.touched = true;
        let verdict = self.control.handle_app_error(self.now, op.server, &error, &mut self.log);
        self.monitors.follow(&self.control, self.now, None, None);
        assert!(!verdict.marked_unknown || generation == pool_generation, "S10: a stale error");
        let timeout = kind == AppErrorKind::NetworkTimeout;
        assert!(
            !(timeout && verdict.marked_unknown),
            "S12: a timeout of an operation must not mark the server Unknown"
        );
        if let Some(clear) = verdict.clear {
            at.pool_mut().clear(self.now, clear, Some(kind.cause()), &mut self.log).expect("the mode");
        }
        self.settle();
        verdict.marked_unknown
    }

    /// Returns a connection.
    pub(super) fn check_in(&mut self, op: Op, health: Health) {
        let now = self.now;
        let at = self.servers.get_mut(&op.server).or_else(|| self.leaving.get_mut(&op.server));
        let at = at.expect("a pool exists until all its connections are returned");
        at.pool_mut().check_in(now, op.lease, health, &mut self.log).expect("ours");
        self.settle();
    }

    /// Returns a connection to another pool, if there is one. That pool must reject it.
    pub(super) fn check_in_elsewhere(&mut self, op: Op) -> (Op, bool) {
        let Op { server, lease } = op;
        let Some(at) = self.servers.iter_mut().find(|(id, _)| **id != server).map(|(_, at)| at) else {
            return (Op { server, lease }, false);
        };
        let refused = at.pool_mut().check_in(self.now, lease, Health::Healthy, &mut self.log);
        let ForeignLease(lease) = refused.expect_err("P7: a pool accepted the lease of another pool");
        self.settle();
        (Op { server, lease }, true)
    }

    /// Clears a pool and marks it ready again, many times. Its final state is the initial one.
    pub(super) fn storm(&mut self, server: ServerId, times: u32, interrupt: bool) {
        let Some(at) = self.servers.get_mut(&server) else { return };
        let was_ready = at.pool.state() == PoolState::Ready;
        for _ in 0..times {
            let clear = Clear::All { interrupt_in_use_connections: interrupt };
            at.pool_mut().clear(self.now, clear, Some(Cause::Network), &mut self.log).expect("the mode");
            if was_ready {
                at.pool_mut().ready(self.now, &mut self.log);
                at.pool_mut().ready(self.now, &mut self.log);
            }
        }
        self.settle();
    }

    pub(super) fn close(&mut self) {
        self.touched = true;
        self.control.close(self.now, &mut self.log);
        self.follow(self.now, None, None);
        self.settle();
    }

    /// Checks that nothing is left after the close (S18, P43).
    pub(super) fn assert_over(&mut self) {
        assert_eq!(self.control.poll_timeout(), None);
        assert!(self.servers.is_empty());
        for server in self.leaving.values_mut() {
            server.pool.assert_over();
            assert_eq!((server.pool.counts().total(), server.pool.counts().waiting), (0, 0), "P43");
            assert_eq!(server.pool.poll_timeout(), None, "P43");
        }
        self.log.assert_over();
    }

    /// Checks that no check-out waits (P51).
    pub(super) fn assert_peace(&mut self) {
        for server in self.servers.values_mut().chain(self.leaving.values_mut()) {
            server.pool.assert_peace(false);
        }
    }

    /// Takes the check counts of the oracles.
    pub(super) fn take_checks(&mut self) -> Checks {
        let mut checks = self.control.checks().clone();
        checks.merge(&self.monitors.checks());
        for server in self.servers.values_mut().chain(self.leaving.values_mut()) {
            checks.merge(&server.pool.take_checks());
        }
        checks
    }

    pub(super) fn pool_state(&self, server: ServerId) -> Option<PoolState> {
        self.servers.get(&server).map(|at| at.pool.state())
    }

    /// Whether the selection of the client succeeds.
    fn finds(&self) -> bool {
        self.control.topology().description().has_writable_server()
    }

    fn follow(&mut self, now: Instant, about: Option<ServerId>, call: Option<Call>) {
        self.monitors.follow(&self.control, now, about, call);
    }

    /// Executes all owed actions as one step, and then checks the state.
    fn settle(&mut self) {
        self.steps += 1;
        let mut woken = false;
        while let Some(action) = self.control.poll_action() {
            assert!(!woken, "selectors wake last (S8)");
            match action {
                ControlAction::ServerAdded(server) => self.add(server),
                ControlAction::Pool(server, command) => self.command(server, command),
                ControlAction::ServerRemoved(server) => {
                    self.log.seen.push(Kind::Removed);
                    let mut at = self.servers.remove(&server).expect("it was added");
                    at.pool_mut().close(self.now, &mut self.log);
                    self.leaving.insert(server, at);
                    self.wants.push_back(Want::Gone { server });
                }
                ControlAction::WakeSelectors => woken = true,
            }
        }
        self.settle_pools();
        if woken && self.selecting && !self.finds() {
            self.control.request_check(self.now);
            self.follow(self.now, None, Some(Call::Request));
            assert_eq!(self.control.poll_action(), None, "a request for a check owes no action");
        }
        // Calls that concern only pools do not affect the control machine.
        if core::mem::take(&mut self.touched) {
            self.settle_conns();
            self.check();
        }
    }

    fn add(&mut self, server: ServerId) {
        self.log.seen.push(Kind::Added);
        let address = self.control.topology().address(server).expect("it was added");
        let member = HOSTS.iter().position(|host| *host == address).expect("one of the hosts");
        self.next_pool += 1;
        let pool = Watched::new(self.now, PoolId::new(self.next_pool.into()), self.pool, &mut self.log);
        let at = Server { pool, member, dials: VecDeque::new(), touched: true };
        assert!(self.servers.insert(server, at).is_none(), "a server is added twice");
    }

    fn command(&mut self, server: ServerId, command: PoolCommand) {
        let at = self.servers.get_mut(&server).expect("it was added");
        let description = self.control.topology().server(server).expect("commands are for members");
        let server_type = description.server_type();
        match command {
            PoolCommand::Ready => {
                let single = self.control.topology().description().topology_type() == TopologyType::Single;
                assert!(
                    server_type.is_data_bearing() || (single && server_type.is_known()),
                    "a pool of this type must not be marked ready (S8)"
                );
                if at.pool.state() == PoolState::Paused {
                    self.log.seen.push(Kind::Readied);
                }
                at.pool_mut().ready(self.now, &mut self.log);
            }
            PoolCommand::Clear { interrupt_in_use_connections, cause } => {
                assert!(!server_type.is_known(), "the description must change first (S7)");
                assert_eq!(interrupt_in_use_connections, cause == Cause::NetworkTimeout, "(MON-54)");
                let clear = Clear::All { interrupt_in_use_connections };
                at.pool_mut().clear(self.now, clear, Some(cause), &mut self.log).expect("the mode");
                self.log.seen.push(Kind::Cleared);
            }
        }
    }

    fn settle_pools(&mut self) {
        let now = self.now;
        for (&server, at) in self.servers.iter_mut().chain(&mut self.leaving) {
            if !core::mem::take(&mut at.touched) {
                continue;
            }
            while let Some(action) = at.pool.poll_action(now) {
                match action {
                    PoolAction::Establish(conn) => {
                        self.wants.push_back(Want::Establish { server, conn, member: at.member });
                    }
                    PoolAction::Interrupt(conn) => self.interrupted.push((server, conn)),
                    PoolAction::Close(conn) => self.wants.push_back(Want::Close { server, conn }),
                    PoolAction::Wake(waiter) => self.woken.push((server, waiter)),
                }
            }
            at.pool.assert_invariants();
        }
    }

    fn settle_conns(&mut self) {
        let now = self.now;
        for (&server, at) in &mut self.servers {
            for conn in [MonitorConnKind::Check, MonitorConnKind::Rtt] {
                loop {
                    let action = self.control.poll_conn(now, server, conn);
                    self.monitors.polled(now, server, conn, action.as_ref());
                    let Some(action) = action else { break };
                    self.wants.push_back(match action {
                        MonitorAction::Dial(id) => {
                            if conn == MonitorConnKind::Check {
                                at.dials.push_back(now);
                                if at.dials.len() == 3 {
                                    let first = at.dials.pop_front().expect("three");
                                    let span = now.saturating_since(first);
                                    assert!(span >= Duration::from_millis(500), "three dials in {span:?} (S20)");
                                }
                            }
                            Want::Dial { server, conn: id, member: at.member }
                        }
                        MonitorAction::SendHello { conn, hello } => Want::Hello { server, conn, hello },
                        MonitorAction::ReadNext { conn } => Want::Read { server, conn },
                        MonitorAction::Hangup(conn) => Want::Hangup { server, conn },
                    });
                }
            }
        }
        for &server in self.leaving.keys() {
            for conn in [MonitorConnKind::Check, MonitorConnKind::Rtt] {
                let owed = self.control.poll_conn(now, server, conn);
                self.monitors.polled(now, server, conn, owed.as_ref());
                assert!(matches!(owed, None | Some(MonitorAction::Hangup(_))), "a removed server owes {owed:?}");
                assert!(self.control.is_ended(server));
            }
        }
    }

    /// Checks the invariants that hold between any two steps.
    fn check(&self) {
        self.control.assert_invariants();
        let topology = self.control.topology();
        assert!(topology.servers().all(|server| self.servers.contains_key(&server.server())));
        assert_eq!(topology.server_count() as usize, self.servers.len(), "a pool for each member");
        let single = topology.description().topology_type() == TopologyType::Single;
        for server in topology.servers() {
            let id = server.server();
            let at = &self.servers[&id];
            let is_ready = at.pool.state() == PoolState::Ready;
            let server_type = server.server_type();
            if server_type.is_data_bearing() || (single && server_type.is_known()) {
                assert!(is_ready, "{server} is known, but its pool is {:?} (S8)", at.pool.state());
            }
            if matches!(server.error(), Some(ServerError::Failed(_))) {
                assert!(!is_ready, "{server} failed, but its pool is ready (S7)");
            }
            assert_eq!(
                self.log.is_checking(id.number()),
                self.control
                    .monitor(id)
                    .is_some_and(|monitor| { monitor.state() == poolhouse_core::monitor::MonitorState::Checking }),
                "the events and the monitor of {server} disagree"
            );
            // S14: the RTT connection exists only during streaming.
            let monitor = self.control.monitor(id).expect("a member is checked");
            assert!(monitor.is_streaming() || !monitor.owes_conn(MonitorConnKind::Rtt));
            if !server_type.is_known() {
                assert_eq!(server.round_trip_time(), None, "(S13)");
            }
        }
    }
}
