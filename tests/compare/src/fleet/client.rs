//! One client of the fleet: its machines, and the tasks that run operations.

use super::MAX_POOL_SIZE;
use super::simulation::{MEMBERS, Net, News, OPERATION, ROUND_TRIP, TASKS};
use core::time::Duration;
use poolhouse_core::control::{Control, ControlAction};
use poolhouse_core::monitor::{HelloKind, MonitorAction, MonitorConnId, MonitorConnKind, MonitorOptions};
use poolhouse_core::pool::{
    CheckOut, Claim, EstablishError, Health, Lease, OnHeap, Pool, PoolAction, PoolId, PoolOptions,
};
use poolhouse_core::topology::{
    self, AppError, AppErrorKind, HandshakePhase, PoolCommand, TopologyId, TopologyOptions,
};
use poolhouse_core::{Cause, ObjectId, ServerId, ServerType, TopologyVersion};
use poolhouse_tests::reply::Lists;
use poolhouse_wire::hello::HelloReply;
use poolhouse_wire::message::Matched;

const NAMES: [&str; MEMBERS] = ["a.example:27017", "b.example:27017", "c.example:27017"];

/// The client's state of a server; one for each member.
struct Server {
    id: ServerId,
    pool: Pool<OnHeap>,
    /// The monitor connections, each with the number of its outstanding hello.
    lines: [Option<(MonitorConnId, u64)>; 2],
    /// The task of each waiter of the pool, by the index of the waiter.
    waiters: Vec<usize>,
}

/// The state of a task.
enum Doing {
    Nothing,
    /// The task waits for a primary.
    Selects,
    /// The task waits for a connection; `Server::waiters` has its entry.
    Waits,
    /// The operation of the task is in progress on this member.
    Works(usize, Lease),
}

struct Task {
    doing: Doing,
    /// The time at which its current or last operation was requested.
    wanted_at: u64,
}

pub(super) struct Client {
    place: u32,
    control: Control<topology::OnHeap>,
    servers: Vec<Server>,
    tasks: Vec<Task>,
    questions: u64,
    /// The time of the scheduled clock event.
    armed: u64,
}

const fn place_of(kind: MonitorConnKind) -> usize {
    match kind {
        MonitorConnKind::Check => 0,
        MonitorConnKind::Rtt => 1,
    }
}

impl Client {
    pub(super) fn new(place: u32, net: &mut Net) -> Self {
        let now = net.instant();
        let options = TopologyOptions { seeds: &NAMES, replica_set: Some("rs"), ..TopologyOptions::default() };
        let topology = options.validate().expect("valid");
        let monitor = MonitorOptions::DEFAULT.validate().expect("valid");
        let control = Control::new(now, TopologyId::new(1), topology, monitor, &mut ()).expect("room");
        let tasks = (0..TASKS).map(|_| Task { doing: Doing::Nothing, wanted_at: 0 }).collect();
        let mut client = Self { place, control, servers: Vec::new(), tasks, questions: 0, armed: u64::MAX };
        for task in 0..TASKS {
            let pause = net.pause();
            net.after(pause, place, News::Wants(task));
        }
        client.settle(net);
        client
    }

    pub(super) const fn place(&self) -> u32 {
        self.place
    }

    /// The request times of operations that have no connection yet.
    pub(super) fn waiting(&self) -> impl Iterator<Item = u64> {
        let waits = |task: &&Task| matches!(task.doing, Doing::Selects | Doing::Waits);
        self.tasks.iter().filter(waits).map(|task| task.wanted_at)
    }

    /// The monitor connections to a member.
    pub(super) fn conns_to(&self, member: usize) -> impl Iterator<Item = MonitorConnId> {
        self.servers.get(member).into_iter().flat_map(|server| server.lines.into_iter().flatten().map(|(conn, _)| conn))
    }

    pub(super) fn hear(&mut self, news: News, net: &mut Net) {
        let now = net.instant();
        match news {
            News::Begin => {}
            News::Clock => self.turn_clock(net),
            // The server went down before the dial or the reply completed.
            News::Dialed(member, conn) | News::Reply(member, conn, _) if !net.members[member].is_up => {
                self.fail_conn(member, conn, net);
            }
            News::Dialed(member, conn) => {
                let server = self.servers[member].id;
                // A dial that was cancelled meanwhile is dropped.
                let _ = self.control.handle_dialed(now, server, conn, &mut ());
            }
            News::Reply(member, conn, question) => self.hear_hello(member, conn, question, net),
            News::LineFailed(member, conn) => self.fail_conn(member, conn, net),
            News::Established(member, conn) if net.members[member].is_up => {
                let _ = self.servers[member].pool.handle_established(now, conn, &mut ());
            }
            News::Established(member, conn) => self.fail_establish(member, conn, false, net),
            News::NotEstablished(member, conn, late) => self.fail_establish(member, conn, late, net),
            News::Done(task) => self.end(task, net),
            News::Wants(task) => {
                self.tasks[task].wanted_at = net.now;
                self.tasks[task].doing = Doing::Selects;
                self.go_on(task, net);
            }
        }
        self.settle(net);
    }

    fn turn_clock(&mut self, net: &Net) {
        let now = net.instant();
        self.armed = u64::MAX;
        if self.control.poll_timeout().is_some_and(|at| at <= now) {
            self.control.handle_timeout(now, &mut ());
        }
        for server in &mut self.servers {
            if server.pool.poll_timeout().is_some_and(|at| at <= now) {
                server.pool.handle_timeout(now, &mut ());
            }
        }
    }

    fn fail_conn(&mut self, member: usize, conn: MonitorConnId, net: &Net) {
        let server = &mut self.servers[member];
        let own = &mut server.lines[place_of(conn.kind())];
        if own.is_some_and(|(own, _)| own == conn) {
            *own = None;
        }
        // A monitor connection that was closed meanwhile is stale.
        let _ = self.control.handle_failed(net.instant(), server.id, conn, Cause::Network, &mut ());
    }

    fn hear_hello(&mut self, place: usize, conn: MonitorConnId, question: u64, net: &Net) {
        let server = &mut self.servers[place];
        // The hello was answered already, or another one was sent since.
        if server.lines[place_of(conn.kind())] != Some((conn, question)) {
            return;
        }
        server.lines[place_of(conn.kind())] = Some((conn, 0));
        let member = &net.members[place];
        let mut process = [0; 12];
        process[11] = u8::try_from(place).expect("three");
        let mut term = [0; 12];
        term[11] = member.term;
        let version = TopologyVersion { process_id: ObjectId(process), counter: member.counter };
        let lists = Lists::of_hosts(&NAMES);
        let hello = lists.of(HelloReply {
            is_writable_primary: member.is_primary,
            secondary: !member.is_primary,
            set_name: Some("rs"),
            set_version: Some(1),
            election_id: member.is_primary.then_some(ObjectId(term)),
            me: Some(NAMES[place]),
            max_wire_version: 21,
            topology_version: Some(version),
            ..HelloReply::OK
        });
        // Each awaitable hello is answered by an unlimited stream of replies.
        let matched = if question % 2 == 1 { Matched::MoreComes } else { Matched::Last };
        let _ = self.control.handle_reply(net.instant(), server.id, conn, &hello, matched, &mut ());
    }

    fn fail_establish(&mut self, member: usize, conn: poolhouse_core::pool::ConnId, late: bool, net: &mut Net) {
        let now = net.instant();
        let server = &mut self.servers[member];
        let Some(generation) = server.pool.conn_generation(conn) else { return };
        net.note_failure();
        // A server that delays handshakes beyond the timeout is overloaded.
        let (kind, cause) = if late {
            (AppErrorKind::NetworkTimeout, Cause::NetworkTimeout)
        } else {
            (AppErrorKind::Network, Cause::Network)
        };
        let error = AppError {
            generation: generation.get(),
            pool_generation: server.pool.generation().get(),
            phase: HandshakePhase::Before,
            kind,
            overloaded: late,
            service_id: None,
        };
        let clear = self.control.handle_app_error(now, server.id, &error, &mut ()).clear;
        let failed = EstablishError { cause, overloaded: late, clear };
        let _ = server.pool.handle_establish_failed(now, conn, failed, &mut ());
    }

    /// Continues a task that requests an operation: it selects the primary, then checks out a
    /// connection.
    fn go_on(&mut self, task: usize, net: &mut Net) {
        let now = net.instant();
        let primary = |server: &Server| {
            let known = self.control.topology().server(server.id);
            known.is_some_and(|server| server.server_type() == ServerType::RsPrimary)
        };
        let Some(member) = self.servers.iter().position(primary) else {
            self.control.request_check(now);
            return;
        };
        let server = &mut self.servers[member];
        match server.pool.check_out(now, None, &mut ()) {
            Ok(CheckOut::Granted(lease)) => self.work(task, member, lease, net),
            Ok(CheckOut::Queued(id)) => {
                let place = id.index() as usize;
                if server.waiters.len() <= place {
                    server.waiters.resize(place + 1, 0);
                }
                server.waiters[place] = task;
                self.tasks[task].doing = Doing::Waits;
            }
            // The pool was cleared; the next check marks it ready.
            Err(_) => self.control.request_check(now),
        }
    }

    fn work(&mut self, task: usize, member: usize, lease: Lease, net: &mut Net) {
        self.tasks[task].doing = Doing::Works(member, lease);
        net.after(OPERATION + ROUND_TRIP, self.place, News::Done(task));
    }

    /// Ends an operation, possibly because its server went down.
    fn end(&mut self, task: usize, net: &mut Net) {
        let now = net.instant();
        let Doing::Works(member, lease) = core::mem::replace(&mut self.tasks[task].doing, Doing::Nothing) else {
            unreachable!("only operations end")
        };
        let server = &mut self.servers[member];
        if net.members[member].is_up {
            server.pool.check_in(now, lease, Health::Healthy, &mut ()).expect("a lease of this pool");
            net.note_done(self.tasks[task].wanted_at);
            let pause = net.pause();
            net.after(pause, self.place, News::Wants(task));
            return;
        }
        let error = AppError {
            generation: server.pool.conn_generation(lease.conn()).expect("it is leased").get(),
            pool_generation: server.pool.generation().get(),
            phase: HandshakePhase::After,
            kind: AppErrorKind::Network,
            overloaded: false,
            service_id: None,
        };
        let verdict = self.control.handle_app_error(now, server.id, &error, &mut ());
        if let Some(clear) = verdict.clear {
            server.pool.clear(now, clear, Some(Cause::Network), &mut ()).expect("the mode");
        }
        server.pool.check_in(now, lease, Health::Broken(Cause::Network), &mut ()).expect("a lease of this pool");
        // The operation is retried.
        self.tasks[task].doing = Doing::Selects;
        self.go_on(task, net);
    }

    /// Executes the actions of the machines until none is left.
    fn settle(&mut self, net: &mut Net) {
        let mut busy = true;
        while busy {
            busy = self.act(net);
            for member in 0..self.servers.len() {
                busy |= self.drive_conns(member, net);
                busy |= self.drive_pool(member, net);
            }
        }
        let pools = self.servers.iter().filter_map(|server| server.pool.poll_timeout());
        let due = pools.chain(self.control.poll_timeout()).min().map_or(u64::MAX, |at| at.as_nanos());
        if due < self.armed {
            self.armed = due;
            net.at(due, self.place, News::Clock);
        }
    }

    fn act(&mut self, net: &mut Net) -> bool {
        let now = net.instant();
        let mut did = false;
        while let Some(action) = self.control.poll_action() {
            did = true;
            match action {
                ControlAction::ServerAdded(id) => {
                    let options = PoolOptions {
                        max_pool_size: MAX_POOL_SIZE,
                        max_connecting: net.max_connecting,
                        ..PoolOptions::DEFAULT
                    };
                    let config = options.validate().expect("valid");
                    let pool = Pool::new(now, PoolId::new(id.index().into()), config, &mut ());
                    assert_eq!(id.index() as usize, self.servers.len(), "servers are the seeds, in their order");
                    self.servers.push(Server { id, pool, lines: [None; 2], waiters: Vec::new() });
                }
                ControlAction::Pool(id, PoolCommand::Ready) => {
                    self.servers[id.index() as usize].pool.ready(now, &mut ());
                }
                ControlAction::Pool(id, PoolCommand::Clear { interrupt_in_use_connections, cause }) => {
                    let clear = poolhouse_core::pool::Clear::All { interrupt_in_use_connections };
                    let pool = &mut self.servers[id.index() as usize].pool;
                    pool.clear(now, clear, Some(cause), &mut ()).expect("the mode");
                }
                ControlAction::ServerRemoved(_) => unreachable!("every hello names all members"),
                ControlAction::WakeSelectors => {
                    for task in 0..TASKS {
                        if matches!(self.tasks[task].doing, Doing::Selects) {
                            self.go_on(task, net);
                        }
                    }
                }
            }
        }
        did
    }

    fn drive_conns(&mut self, member: usize, net: &mut Net) -> bool {
        let now = net.instant();
        let id = self.servers[member].id;
        let mut did = false;
        for conn in [MonitorConnKind::Check, MonitorConnKind::Rtt] {
            while let Some(action) = self.control.poll_conn(now, id, conn) {
                did = true;
                // Odd numbers are awaitable hellos.
                self.questions += 2;
                let place = &mut self.servers[member].lines[place_of(conn)];
                match action {
                    MonitorAction::Dial(conn) => {
                        *place = Some((conn, 0));
                        let is_up = net.members[member].is_up;
                        let news = if is_up { News::Dialed(member, conn) } else { News::LineFailed(member, conn) };
                        net.after_a_round_trip(self.place, news);
                    }
                    MonitorAction::SendHello { conn, hello: HelloKind::Handshake { .. } | HelloKind::Poll { .. } } => {
                        *place = Some((conn, self.questions));
                        net.after_a_round_trip(self.place, News::Reply(member, conn, self.questions));
                    }
                    MonitorAction::SendHello { conn, hello: HelloKind::Awaitable { topology_version, .. } } => {
                        *place = Some((conn, self.questions + 1));
                        // The reply is immediate when the client's topology version is outdated.
                        let known = topology_version.counter == net.members[member].counter;
                        let at_most = if known { Duration::from_secs(10) } else { ROUND_TRIP };
                        net.watch(member, self.place, conn, self.questions + 1, at_most);
                    }
                    MonitorAction::ReadNext { conn } => {
                        *place = Some((conn, self.questions + 1));
                        net.watch(member, self.place, conn, self.questions + 1, Duration::from_secs(10));
                    }
                    MonitorAction::Hangup(_) => *place = None,
                }
            }
        }
        did
    }

    fn drive_pool(&mut self, member: usize, net: &mut Net) -> bool {
        let now = net.instant();
        let mut did = false;
        while let Some(action) = self.servers[member].pool.poll_action(now) {
            did = true;
            match action {
                PoolAction::Establish(conn) => net.establish(member, self.place, conn),
                // Events of the connection that arrive later are stale.
                PoolAction::Interrupt(_) | PoolAction::Close(_) => {}
                PoolAction::Wake(id) => {
                    let server = &mut self.servers[member];
                    let task = server.waiters[id.index() as usize];
                    match server.pool.claim(now, id) {
                        Claim::Granted(lease) => self.work(task, member, lease, net),
                        Claim::Failed(_) => {
                            self.tasks[task].doing = Doing::Selects;
                            self.go_on(task, net);
                        }
                        Claim::Waiting | Claim::Stale => unreachable!("a woken waiter has an outcome"),
                    }
                }
            }
        }
        did
    }
}
