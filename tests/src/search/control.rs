//! A control plane of two polled servers: elections, failures, members that are removed and added
//! again.

use super::{Figures, Limits, Scope, Stopped, search};
use crate::canon::Canon;
use crate::machines::control::Pools;
use crate::oracle::Checks;
use crate::reply::Lists;
use alloc::collections::BTreeMap;
use core::hash::Hash;
use core::time::Duration;
use poolhouse_core::control::{Control, ControlAction};
use poolhouse_core::monitor::{
    MonitorAction, MonitorConnId, MonitorConnKind, MonitorOptions, MonitorState, ServerMonitoringMode,
};
use poolhouse_core::sim::begin_near_end;
use poolhouse_core::topology::{
    AppError, AppErrorKind, Fixed, HandshakePhase, PoolCommand, ServerError, TopologyId, TopologyOptions, TopologyType,
};
use poolhouse_core::{Cause, Instant, ObjectId, ServerId, ServerType};
use poolhouse_wire::hello::HelloReply;
use poolhouse_wire::message::Matched;

/// Capacity for two servers and one that is being replaced.
type Memory = Fixed<3, 4, 10, 96>;

/// A tick: minHeartbeatFrequencyMS, which is also the interval of checks.
const TICK: Duration = Duration::from_millis(500);

/// Two ticks, in nanoseconds: older times count as equal.
const HORIZON: u64 = 1_000_000_000;

/// A scope of the control plane.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Its name.
    pub name: &'static str,
    /// Largest number of steps: servers that are added again have new ids, so the search is
    /// infinite without a limit.
    pub depth: u32,
    /// Largest number of states; exceeding it is an error.
    pub states: usize,
    /// Whether server ids start near the end of their range.
    pub near_end: bool,
}

/// The scopes.
#[must_use]
pub fn scopes() -> Vec<Shape> {
    let shape = Shape { name: "two servers, 8 steps", depth: 8, states: 1_000_000, near_end: false };
    vec![shape, Shape { name: "two servers, ids at the end of their range, 8 steps", near_end: true, ..shape }]
}

/// Scopes that take minutes.
#[must_use]
pub fn bigger() -> Vec<Shape> {
    vec![Shape { name: "two servers, 9 steps", depth: 9, states: 20_000_000, near_end: false }]
}

mod mark {
    pub(super) const PRIMARY: u64 = 1;
    pub(super) const DEPOSED: u64 = 1 << 1;
    pub(super) const CLEARED: u64 = 1 << 2;
    pub(super) const REMOVED: u64 = 1 << 3;
    pub(super) const NAMES: [&str; 4] = ["a primary", "a primary deposed", "a pool cleared", "a server removed"];
}

/// The role that a server reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Primary of the set of both servers, since this election.
    Primary(u8),
    /// Primary of a set without other members.
    Alone,
    /// Secondary of the set of both servers.
    Secondary,
    /// Member without a configuration.
    Ghost,
}

/// An input; the number is the server's index among the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Its monitor connection is established.
    Dialed(u8),
    /// It replies.
    Reply(u8, Role),
    /// It replies with an error.
    NotOk(u8),
    /// Its monitor connection fails.
    Failed(u8),
    /// An application's connection fails.
    AppError(u8),
    /// A selection request waits for a server.
    Request,
    /// A tick.
    Tick,
    /// The client is closed.
    Close,
}

/// The monitor connection of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Line {
    conn: Option<MonitorConnId>,
    /// It waits for a reply; else for the end of a dial.
    waits: bool,
}

/// A control plane and the state of the simulated driver.
#[derive(Clone, Debug)]
pub struct State {
    control: Control<Memory>,
    now: Instant,
    pools: Pools,
    lines: BTreeMap<ServerId, Line>,
    /// The newest election reported by a primary.
    newest: u8,
    marks: u64,
}

fn lists(role: Role, address: &str) -> Lists {
    Lists::of_hosts(match (role, address) {
        (Role::Alone, "a:1") => &["a:1"],
        (Role::Alone, _) => &["b:1"],
        _ => &["a:1", "b:1"],
    })
}

fn hello(role: Role, lists: &Lists) -> HelloReply<'_> {
    let election = |number: u8| Some(ObjectId([number; 12]));
    let is_member = role != Role::Ghost;
    lists.of(HelloReply {
        is_writable_primary: matches!(role, Role::Primary(_) | Role::Alone),
        secondary: role == Role::Secondary,
        is_replica_set: !is_member,
        set_name: is_member.then_some("rs"),
        set_version: is_member.then_some(1),
        election_id: match role {
            Role::Primary(number) => election(number),
            Role::Alone => election(2),
            Role::Secondary | Role::Ghost => None,
        },
        max_wire_version: 21,
        ..HelloReply::OK
    })
}

impl Shape {
    /// Runs the search.
    pub fn run(&self) -> Result<Figures, Stopped> {
        begin_near_end(self.near_end);
        let figures = search(self, Limits { states: self.states, depth: Some(self.depth), end_every: 8 });
        begin_near_end(false);
        figures
    }
}

impl Scope for Shape {
    type State = State;
    type Input = Input;

    fn start(&self) -> State {
        let seeds = ["a:1", "b:1"];
        let options =
            TopologyOptions { seeds: &seeds, replica_set: Some("rs"), direct_connection: false, load_balanced: false };
        let monitor = MonitorOptions {
            heartbeat_frequency: TICK,
            connect_timeout: Some(TICK * 2),
            server_monitoring_mode: ServerMonitoringMode::Poll,
            ..MonitorOptions::DEFAULT
        };
        let now = Instant::from_nanos(1_000_000_000);
        let (topology, monitor) = (options.validate().expect("valid"), monitor.validate().expect("valid"));
        let control = Control::new(now, TopologyId::new(1), topology, monitor, &mut ()).expect("there is room");
        let mut state = State { control, now, pools: Pools::default(), lines: BTreeMap::new(), newest: 0, marks: 0 };
        state.settle();
        state
    }

    fn inputs(&self, state: &State, inputs: &mut Vec<Input>) {
        if state.control.is_closed() {
            return;
        }
        for (place, (server, line)) in (0..).zip(&state.lines) {
            if line.conn.is_some() {
                inputs.push(Input::Failed(place));
                if line.waits {
                    let roles = [Role::Primary(1), Role::Primary(2), Role::Alone, Role::Secondary, Role::Ghost];
                    inputs.extend(roles.map(|role| Input::Reply(place, role)));
                    inputs.push(Input::NotOk(place));
                } else {
                    inputs.push(Input::Dialed(place));
                }
            }
            if state.control.topology().server(*server).is_some_and(|server| server.server_type().is_known()) {
                inputs.push(Input::AppError(place));
            }
        }
        inputs.extend([Input::Request, Input::Tick, Input::Close]);
    }

    fn step(&self, state: &mut State, input: Input) {
        state.marks = 0;
        let now = state.now;
        match input {
            Input::Dialed(place) => {
                let (server, conn) = state.conn(place);
                state.control.handle_dialed(now, server, conn, &mut ()).expect("the monitor waits for it");
            }
            Input::Reply(place, role) => {
                let (server, conn) = state.conn(place);
                let address = state.control.topology().server(server).expect("a member").address().to_owned();
                let lists = lists(role, &address);
                let hello = hello(role, &lists);
                let monitor = state.control.monitor(server).expect("a member");
                let is_awaited = monitor.state() == MonitorState::Checking;
                let reported = state.control.handle_reply(now, server, conn, &hello, Matched::Last, &mut ());
                reported.expect("the monitor waits for it");
                if is_awaited {
                    state.elected(server, role);
                }
            }
            Input::NotOk(place) => {
                let (server, conn) = state.conn(place);
                let reply = HelloReply { ok: false, code: 91, ..HelloReply::OK };
                let reported = state.control.handle_reply(now, server, conn, &reply, Matched::Last, &mut ());
                reported.expect("the monitor waits for it");
            }
            Input::Failed(place) => {
                let (server, conn) = state.conn(place);
                state
                    .control
                    .handle_failed(now, server, conn, Cause::Network, &mut ())
                    .expect("the monitor has this connection");
                let line = state.lines.entry(server).or_default();
                line.conn = line.conn.filter(|_| line.waits);
            }
            Input::AppError(place) => state.app_error(place),
            Input::Request => state.control.request_check(now),
            Input::Tick => {
                state.now = now.saturating_add(TICK);
                state.control.handle_timeout(state.now, &mut ());
                let left = state.control.poll_timeout();
                assert!(left.is_none_or(|at| at > state.now), "due work was not done");
            }
            Input::Close => state.control.close(now, &mut ()),
        }
        state.settle();
    }

    fn print(&self, state: &State) -> u128 {
        let mut canon = Canon::new(state.now.as_nanos(), HORIZON, None);
        state.control.hash(&mut canon);
        (&state.pools, &state.lines, state.newest).hash(&mut canon);
        canon.print()
    }

    fn marks(&self, state: &State) -> u64 {
        state.marks
    }

    fn take_checks(&self, _state: &mut State) -> Option<Checks> {
        None
    }

    fn reaches(&self) -> Vec<(u64, &'static str)> {
        (0..).map(|bit| 1 << bit).zip(mark::NAMES).collect()
    }

    fn end(&self, mut state: State) {
        state.control.close(state.now, &mut ());
        state.settle();
        assert_eq!(state.control.poll_timeout(), None, "a closed machine has no deadline");
        assert_eq!(state.pools, Pools::default(), "every pool is closed");
    }
}

impl State {
    fn conn(&self, place: u8) -> (ServerId, MonitorConnId) {
        let (server, line) = self.lines.iter().nth(place.into()).expect("a member");
        (*server, line.conn.expect("its monitor has a connection"))
    }

    /// Checks the result of a server's reply.
    fn elected(&mut self, server: ServerId, role: Role) {
        let topology = self.control.topology();
        let is_primary = topology.server(server).is_some_and(|it| it.server_type() == ServerType::RsPrimary);
        let election = match role {
            Role::Primary(number) => number,
            Role::Alone => 2,
            Role::Secondary | Role::Ghost => 0,
        };
        assert!(!is_primary || election >= self.newest, "S9: the primary of an older election");
        if is_primary {
            self.newest = election;
            assert!(role != Role::Alone || topology.server_count() == 1, "S8: members that the primary does not know");
        }
    }

    fn app_error(&mut self, place: u8) {
        let server = *self.lines.keys().nth(place.into()).expect("a member");
        let error = AppError {
            generation: 0,
            pool_generation: 0,
            phase: HandshakePhase::After,
            kind: AppErrorKind::Network,
            overloaded: false,
            service_id: None,
        };
        let verdict = self.control.handle_app_error(self.now, server, &error, &mut ());
        assert!(verdict.marked_unknown && verdict.clear.is_some(), "S12: it makes the server Unknown");
        self.pools.clear(server);
    }

    /// Executes all effects, and checks that the pools agree with the descriptions.
    fn settle(&mut self) {
        for action in self.pools.drain(&mut self.control, true) {
            self.marks |= match action {
                ControlAction::Pool(_, PoolCommand::Clear { .. }) => mark::CLEARED,
                ControlAction::ServerRemoved(_) => mark::REMOVED,
                ControlAction::ServerAdded(_)
                | ControlAction::Pool(_, PoolCommand::Ready)
                | ControlAction::WakeSelectors => 0,
            };
        }
        for server in self.pools.servers() {
            self.lines.entry(server).or_default();
        }
        let Self { control, lines, pools, now, .. } = self;
        lines.retain(|server, line| {
            while let Some(action) = control.poll_conn(*now, *server, MonitorConnKind::Check) {
                (line.conn, line.waits) = match action {
                    MonitorAction::Dial(conn) => (Some(conn), false),
                    MonitorAction::SendHello { conn, .. } | MonitorAction::ReadNext { conn } => (Some(conn), true),
                    MonitorAction::Hangup(conn) => {
                        assert_eq!(line.conn, Some(conn), "the closed connection is not that of the host");
                        (None, false)
                    }
                };
            }
            let is_kept = pools.contains(*server);
            assert!(is_kept || line.conn.is_none(), "S18: the monitor of a removed server has a connection");
            is_kept
        });
        self.check();
    }

    fn check(&mut self) {
        let topology = self.control.topology();
        let mut primaries = 0;
        for server in topology.servers() {
            if matches!(server.error(), Some(ServerError::NewerPrimary)) {
                self.marks |= mark::DEPOSED;
            }
            primaries += usize::from(server.server_type() == ServerType::RsPrimary);
        }
        assert!(primaries <= 1, "SDAM: two primaries");
        let has_primary = topology.description().topology_type() == TopologyType::ReplicaSetWithPrimary;
        assert_eq!(primaries == 1, has_primary, "SDAM: the topology's type must match its primary");
        if has_primary {
            self.marks |= mark::PRIMARY;
        }
    }
}
