//! The client: the control machine, a pool for each server, and what a host keeps beside them.

use super::kind::Kind;
use super::log::Log;
use super::truth::{HOSTS, Snapshot};
use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;
use poolhouse_core::control::{Control, ControlAction};
use poolhouse_core::monitor::{CheckReply, HelloKind, Line, LineId, MonitorAction, MonitorConfig};
use poolhouse_core::pool::{
    self, CheckOut, Claim, Clear, ConnId, EstablishError, Health, Lease, Pool, PoolAction, PoolConfig, PoolId,
    PoolState, WaiterId,
};
use poolhouse_core::topology::{
    AppError, AppErrorKind, HandshakePhase, OnHeap, PoolCommand, ServerError, TopologyId, TopologyOptions, TopologyType,
};
use poolhouse_core::{Cause, Instant, Machine, ServerId, Stale};

/// What the client wants of the network.
#[derive(Debug)]
pub(super) enum Want {
    Dial {
        server: ServerId,
        line: LineId,
        member: usize,
    },
    Hello {
        server: ServerId,
        line: LineId,
        hello: HelloKind,
    },
    Read {
        server: ServerId,
        line: LineId,
    },
    Hangup {
        server: ServerId,
        line: LineId,
    },
    Establish {
        server: ServerId,
        conn: ConnId,
        member: usize,
    },
    /// Connections of this server are nobody's.
    Gone {
        server: ServerId,
    },
}

/// An operation on a connection.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) server: ServerId,
    pub(super) member: usize,
    lease: Lease,
    generation: u64,
}

struct Server {
    pool: Pool<pool::OnHeap>,
    member: usize,
    waiters: Vec<WaiterId>,
    dials: VecDeque<Instant>,
}

pub(super) struct Client {
    pub(super) control: Control<OnHeap>,
    pub(super) log: Log,
    servers: BTreeMap<ServerId, Server>,
    pub(super) wants: Vec<Want>,
    pub(super) granted: Vec<Op>,
    pub(super) interrupted: Vec<(ServerId, ConnId)>,
    pub(super) now: Instant,
    pool: PoolConfig,
    next_pool: u32,
    /// Pools of servers that are gone, until all is returned.
    leaving: BTreeMap<ServerId, Server>,
    /// Somebody waits for a primary, or for any server.
    pub(super) selecting: bool,
    /// How often something was carried out.
    pub(super) steps: u64,
}

impl Client {
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
        let control = Control::new(now, TopologyId::new(1), config, monitor, &mut log).expect("memory");
        let mut client = Self {
            control,
            log,
            servers: BTreeMap::new(),
            wants: Vec::new(),
            granted: Vec::new(),
            interrupted: Vec::new(),
            now,
            pool,
            next_pool: 0,
            leaving: BTreeMap::new(),
            selecting: false,
            steps: 0,
        };
        client.settle();
        client
    }

    /// Time goes on, or back for the caller: then it is held.
    pub(super) fn advance(&mut self, now: Instant) -> bool {
        self.now = self.now.max(now);
        let mut did = false;
        if self.control.poll_timeout().is_some_and(|at| at <= self.now) {
            // Told as the caller has it.
            self.control.handle_timeout(now, &mut self.log);
            self.settle();
            did = true;
        }
        for server in self.servers.values_mut() {
            if server.pool.poll_timeout().is_some_and(|at| at <= self.now) {
                server.pool.handle_timeout(now, &mut ());
                did = true;
            }
        }
        if did {
            self.settle();
        }
        did
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let pools = self.servers.values().filter_map(|server| server.pool.poll_timeout());
        pools.chain(self.control.poll_timeout()).min()
    }

    pub(super) fn dialed(&mut self, server: ServerId, line: LineId) -> Result<(), Stale> {
        let result = self.control.handle_dialed(self.now, server, line, &mut self.log);
        self.settle();
        result
    }

    pub(super) fn replied(&mut self, server: ServerId, line: LineId, snapshot: &Snapshot) -> Result<(), Stale> {
        let info = snapshot.info();
        let reply = CheckReply {
            ok: snapshot.ok,
            code: if snapshot.ok { 0 } else { 6 },
            hello_ok: true,
            more_to_come: snapshot.more_to_come,
            topology_version: snapshot.topology_version,
            server_connection: None,
        };
        let hello = snapshot.ok.then_some(&info);
        let result = self.control.handle_reply(self.now, server, line, &reply, hello, &mut self.log);
        self.settle();
        result
    }

    pub(super) fn failed(&mut self, server: ServerId, line: LineId, cause: Cause) -> Result<(), Stale> {
        let result = self.control.handle_failed(self.now, server, line, cause, &mut self.log);
        self.settle();
        result
    }

    pub(super) fn request(&mut self) {
        self.control.request_check(self.now);
        self.settle();
    }

    /// The hello of a connection that is being established, and then whether it is.
    pub(super) fn established(&mut self, server: ServerId, conn: ConnId, snapshot: &Snapshot) -> bool {
        if self.servers.get(&server).is_none_or(|at| at.pool.conn_generation(conn).is_none()) {
            return false;
        }
        self.control.handle_app_hello(self.now, server, &snapshot.info(), &mut self.log);
        self.settle();
        let Some(at) = self.servers.get_mut(&server) else { return false };
        let is_there = at.pool.handle_established(self.now, conn, &mut ()).is_ok();
        self.settle();
        is_there
    }

    pub(super) fn not_established(&mut self, server: ServerId, conn: ConnId, cause: Cause, overloaded: bool) {
        let Some(at) = self.servers.get_mut(&server) else { return };
        let Some(generation) = at.pool.conn_generation(conn) else { return };
        let kind = if cause == Cause::Network {
            AppErrorKind::Network
        } else if cause == Cause::NetworkTimeout {
            AppErrorKind::NetworkTimeout
        } else {
            AppErrorKind::Other(cause)
        };
        let error = AppError {
            generation: generation.get(),
            pool_generation: at.pool.generation().get(),
            phase: HandshakePhase::Before,
            kind,
            overloaded,
            service_id: None,
        };
        let verdict = self.control.handle_app_error(self.now, server, &error, &mut self.log);
        let failed = EstablishError { cause, overloaded, clear: verdict.clear };
        at.pool.handle_establish_failed(self.now, conn, failed, &mut ()).expect("it was pending");
        self.settle();
    }

    /// Begins an operation on a server of the client's view.
    pub(super) fn check_out(&mut self, pick: usize) {
        let ready: Vec<ServerId> =
            self.servers.iter().filter(|(_, at)| at.pool.state() == PoolState::Ready).map(|(id, _)| *id).collect();
        let Some(&server) = ready.get(pick % ready.len().max(1)) else { return };
        let at = self.servers.get_mut(&server).expect("it is ready");
        match at.pool.check_out(self.now, None, &mut ()) {
            Ok(CheckOut::Granted(lease)) => {
                let generation = at.pool.conn_generation(lease.conn()).expect("it is there").get();
                self.granted.push(Op { server, member: at.member, lease, generation });
            }
            Ok(CheckOut::Queued(waiter)) => at.waiters.push(waiter),
            Err(error) => panic!("a ready pool refuses: {error:?}"),
        }
        self.settle();
    }

    /// Ends an operation, by an error or well.
    pub(super) fn end(&mut self, op: Op, error: Option<AppErrorKind<'_>>, broken: Option<Cause>) {
        let Op { server, lease, generation, .. } = op;
        let is_member = self.servers.contains_key(&server);
        let servers = if is_member { &mut self.servers } else { &mut self.leaving };
        let at = servers.get_mut(&server).expect("a pool stays until all is returned");
        if let Some(kind) = error {
            let error = AppError {
                generation,
                pool_generation: at.pool.generation().get(),
                phase: HandshakePhase::After,
                kind,
                overloaded: false,
                service_id: None,
            };
            let verdict = self.control.handle_app_error(self.now, server, &error, &mut self.log);
            assert!(!verdict.marked_unknown || generation == at.pool.generation().get(), "a stale error (S10)");
            let timeout = kind == AppErrorKind::NetworkTimeout;
            assert!(!(timeout && verdict.marked_unknown), "an operation that times out says nothing (S12)");
            if let Some(clear) = verdict.clear {
                at.pool.clear(self.now, clear, Some(Cause::Network), &mut ()).expect("the mode");
            }
        }
        let health = broken.map_or(Health::Healthy, Health::Broken);
        at.pool.check_in(self.now, lease, health, &mut ()).expect("ours");
        self.settle();
    }

    pub(super) fn close(&mut self) {
        self.control.close(self.now, &mut self.log);
        self.settle();
    }

    /// Nothing is left after the end (S18, P43).
    pub(super) fn assert_over(&self) {
        assert_eq!(self.control.poll_timeout(), None);
        assert!(self.servers.is_empty());
        for server in self.leaving.values() {
            assert_eq!((server.pool.counts().total(), server.pool.counts().waiting), (0, 0));
            assert_eq!(server.pool.poll_timeout(), None);
        }
        self.log.assert_over();
    }

    pub(super) fn is_op(op: &Op, server: ServerId, conn: ConnId) -> bool {
        op.server == server && op.lease.conn() == conn
    }

    pub(super) fn pool_state(&self, server: ServerId) -> Option<PoolState> {
        self.servers.get(&server).map(|at| at.pool.state())
    }

    /// Whether the client finds whom it waits for.
    fn finds(&self) -> bool {
        self.control.topology().description().has_writable_server()
    }

    /// Carries out everything that is owed, as one step, and then looks at everything.
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
                    at.pool.close(self.now, &mut ());
                    self.leaving.insert(server, at);
                    self.wants.push(Want::Gone { server });
                }
                ControlAction::WakeSelectors => woken = true,
            }
        }
        self.settle_pools();
        if woken && self.selecting && !self.finds() {
            self.control.request_check(self.now);
            assert_eq!(self.control.poll_action(), None, "a request changes nothing yet");
        }
        self.settle_lines();
        self.check();
    }

    fn add(&mut self, server: ServerId) {
        self.log.seen.push(Kind::Added);
        let address = self.control.topology().address(server).expect("it was added");
        let member = HOSTS.iter().position(|host| *host == address).expect("one of the hosts");
        self.next_pool += 1;
        let pool = Pool::new(self.now, PoolId::new(self.next_pool), self.pool, &mut ());
        let at = Server { pool, member, waiters: Vec::new(), dials: VecDeque::new() };
        assert!(self.servers.insert(server, at).is_none(), "a server is added twice");
    }

    fn command(&mut self, server: ServerId, command: PoolCommand) {
        let at = self.servers.get_mut(&server).expect("it was added");
        let description = self.control.topology().server(server).expect("commands are for members");
        let server_type = description.server_type();
        match command {
            PoolCommand::Ready => {
                let single = self.control.topology().description().topology_type() == TopologyType::Single;
                assert!(server_type.is_data_bearing() || (single && server_type.is_known()), "not for it (S8)");
                if at.pool.state() == PoolState::Paused {
                    self.log.seen.push(Kind::Readied);
                }
                at.pool.ready(self.now, &mut ());
            }
            PoolCommand::Clear { interrupt_in_use_connections, cause } => {
                assert!(!server_type.is_known(), "the description comes first (S7)");
                assert_eq!(interrupt_in_use_connections, cause == Cause::NetworkTimeout, "(MON-54)");
                let clear = Clear::All { interrupt_in_use_connections };
                at.pool.clear(self.now, clear, Some(cause), &mut ()).expect("the mode");
                self.log.seen.push(Kind::Cleared);
            }
        }
    }

    fn settle_pools(&mut self) {
        let now = self.now;
        for (&server, at) in self.servers.iter_mut().chain(&mut self.leaving) {
            while let Some(action) = at.pool.poll_action(now) {
                match action {
                    PoolAction::Establish(conn) => {
                        self.wants.push(Want::Establish { server, conn, member: at.member });
                    }
                    PoolAction::Interrupt(conn) => self.interrupted.push((server, conn)),
                    PoolAction::Close(_) => {}
                    PoolAction::Wake(waiter) => {
                        at.waiters.retain(|other| *other != waiter);
                        match at.pool.claim(now, waiter) {
                            Claim::Granted(lease) => {
                                let generation = at.pool.conn_generation(lease.conn()).expect("it is there").get();
                                self.granted.push(Op { server, member: at.member, lease, generation });
                            }
                            Claim::Failed(_) => {}
                            Claim::Waiting | Claim::Stale => panic!("a wake without an outcome"),
                        }
                    }
                }
            }
            at.pool.assert_invariants();
        }
    }

    fn settle_lines(&mut self) {
        let now = self.now;
        for (&server, at) in &mut self.servers {
            for line in [Line::Check, Line::Rtt] {
                while let Some(action) = self.control.poll_line(now, server, line) {
                    self.wants.push(match action {
                        MonitorAction::Dial(id) => {
                            if line == Line::Check {
                                at.dials.push_back(now);
                                if at.dials.len() == 3 {
                                    let first = at.dials.pop_front().expect("three");
                                    let span = now.saturating_since(first);
                                    assert!(span >= Duration::from_millis(500), "three dials in {span:?} (S20)");
                                }
                            }
                            Want::Dial { server, line: id, member: at.member }
                        }
                        MonitorAction::SendHello { line, hello } => Want::Hello { server, line, hello },
                        MonitorAction::ReadNext { line } => Want::Read { server, line },
                        MonitorAction::Hangup(line) => Want::Hangup { server, line },
                    });
                }
            }
        }
        for &server in self.leaving.keys() {
            for line in [Line::Check, Line::Rtt] {
                let owed = self.control.poll_line(now, server, line);
                assert!(matches!(owed, None | Some(MonitorAction::Hangup(_))), "a server that is gone owes {owed:?}");
                assert!(self.control.is_ended(server));
            }
        }
    }

    /// Everything that must hold between any two steps.
    fn check(&mut self) {
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
                assert!(is_ready, "{server} is known, and its pool is {:?} (S8)", at.pool.state());
            }
            if matches!(server.error(), Some(ServerError::Failed(_))) {
                assert!(!is_ready, "{server} failed, and its pool is ready (S7)");
            }
            assert_eq!(
                self.log.is_checking(id.number()),
                self.control
                    .monitor(id)
                    .is_some_and(|monitor| { monitor.state() == poolhouse_core::monitor::MonitorState::Checking }),
                "the events say whether {server} is being checked"
            );
            // S14: the connection for round-trip times is there only while it streams.
            let monitor = self.control.monitor(id).expect("a member is checked");
            assert!(monitor.is_streaming() || !monitor.owes_line(Line::Rtt));
            if !server_type.is_known() {
                assert_eq!(server.round_trip_time(), None, "(S13)");
            }
        }
        self.leaving.retain(|_, at| at.pool.counts().total() > 0 || !at.waiters.is_empty());
    }
}
