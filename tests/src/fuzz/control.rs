//! Arbitrary inputs to a control machine, in any order and at any time: hellos of all roles and of
//! none, failures, errors of applications, stale reports, jumps of time. The host takes owed
//! actions immediately or at random times.

use crate::choices::{Bytes, Choices};
use crate::kind::Kind;
use crate::machines::control::Pools;
use crate::oracle::log::Log;
use crate::reply::Lists;
use core::time::Duration;
use poolhouse_core::control::{Control, ControlAction};
use poolhouse_core::monitor::{
    MIN_HEARTBEAT_FREQUENCY, MonitorAction, MonitorConnId, MonitorConnKind, MonitorOptions, MonitorState,
    ServerMonitoringMode,
};
use poolhouse_core::pool::Clear;
use poolhouse_core::topology::{
    AppError, AppErrorKind, CommandError, Fixed, HandshakePhase, Memory, OnHeap, ReplyError, TopologyId,
    TopologyOptions, Verdict,
};
use poolhouse_core::{Cause, Instant, ObjectId, ServerId, TopologyVersion};
use poolhouse_wire::hello::HelloReply;
use poolhouse_wire::message::Matched;

/// Hosts that can be named, and invalid names.
const HOSTS: [&str; 8] = ["a:1", "b:1", "C:1", "d:27017", "e", "/tmp/f.sock", "bad:0", ""];
/// Number of these that can be a seed.
const SEEDS: usize = 6;

/// Executes the run that the bytes describe.
pub fn control(data: &[u8]) {
    let mut choices = Bytes::new(data);
    match choices.below(3) {
        0 => Run::<Fixed<3, 4, 10, 96>>::begin(&mut choices),
        1 => Run::<Fixed<8, 8, 32, 512>>::begin(&mut choices),
        _ => Run::<OnHeap>::begin(&mut choices),
    }
}

struct Run<M: Memory> {
    control: Control<M>,
    log: Log,
    now: u64,
    /// The latest time so far.
    latest: u64,
    /// Whether the host takes all owed actions after each input.
    eager: bool,
    pools: Pools,
    /// All servers and monitor connections that were ever named, including removed ones.
    servers: Vec<ServerId>,
    lines: Vec<(ServerId, MonitorConnId)>,
}

impl<M: Memory> Run<M> {
    fn begin(choices: &mut Bytes<'_>) {
        let seeds: Vec<&str> = (0..choices.below(4)).map(|_| HOSTS[choices.index(SEEDS)]).collect();
        let options = TopologyOptions {
            seeds: &seeds,
            replica_set: choices.one_in(3).then_some("rs"),
            direct_connection: choices.one_in(6),
            load_balanced: choices.one_in(12),
        };
        let Ok(topology) = options.validate() else { return };
        let modes = [ServerMonitoringMode::Auto, ServerMonitoringMode::Stream, ServerMonitoringMode::Poll];
        let monitor = MonitorOptions {
            heartbeat_frequency: Duration::from_millis(choices.one_of(&[500, 501, 10_000])),
            connect_timeout: choices.one_of(&[None, Some(1), Some(300), Some(10_000)]).map(Duration::from_millis),
            server_monitoring_mode: choices.one_of(&modes),
            ..MonitorOptions::DEFAULT
        };
        let monitor = monitor.validate().expect("in range");
        let now = u64::from(choices.below(2)) * 1_000_000_000;
        let mut log = Log::default();
        let id = TopologyId::new(3);
        let Ok(control) = Control::new(Instant::from_nanos(now), id, topology, monitor, &mut log) else { return };
        let eager = !choices.one_in(3);
        let mut run = Self {
            control,
            log,
            now,
            latest: now,
            eager,
            pools: Pools::default(),
            servers: vec![ServerId::new(0), ServerId::new(77)],
            lines: Vec::new(),
        };
        run.drain();
        while !choices.is_over() {
            run.step(choices);
        }
        run.control.close(run.clock(), &mut run.log);
        run.drain();
        assert_eq!(run.control.poll_timeout(), None, "S18: a closed machine has no deadline");
        assert_eq!(run.pools, Pools::default(), "every pool is closed");
        run.log.assert_over();
    }

    const fn clock(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    fn step(&mut self, choices: &mut Bytes<'_>) {
        self.log.seen.clear();
        self.log.count = 0;
        let now = self.clock();
        let server = self.server(choices);
        match choices.below(17) {
            16 => {
                let seeds: Vec<&str> = (0..choices.below(4)).map(|_| HOSTS[choices.index(HOSTS.len())]).collect();
                // With fixed memory the capacity may be exhausted.
                let _ = self.control.handle_seeds(now, seeds.into_iter(), &mut self.log);
            }
            0..=4 => self.poll_conns(choices),
            5 | 6 => {
                if let Some((server, conn)) = self.conn(choices) {
                    let stale = self.control.handle_dialed(now, server, conn, &mut self.log).is_err();
                    self.assert_quiet(stale);
                }
            }
            7..=9 => {
                if let Some((server, conn)) = self.conn(choices) {
                    self.reply(choices, server, conn);
                }
            }
            10 => {
                if let Some((server, conn)) = self.conn(choices) {
                    let causes = [Cause::Network, Cause::NetworkTimeout, Cause::Protocol, Cause::Dns, Cause::Resources];
                    let cause = choices.one_of(&causes);
                    let stale = self.control.handle_failed(now, server, conn, cause, &mut self.log).is_err();
                    self.assert_quiet(stale);
                }
            }
            11 => with_hello(
                choices,
                |hello, log, control: &mut Control<M>| {
                    control.handle_app_hello(now, server, hello, log);
                },
                &mut self.log,
                &mut self.control,
            ),
            12 => self.app_error(choices, server),
            13 => self.control.request_check(now),
            14 if choices.one_in(40) => self.control.close(now, &mut self.log),
            _ => self.pass(choices),
        }
        self.control.assert_invariants();
        self.log.assert_failed_are_unknown();
        assert!(self.log.latest() <= Some(Instant::from_nanos(self.latest)), "S21: an event of a later time");
        if self.eager || choices.one_in(4) {
            let ended =
                self.log.seen.iter().any(|kind| matches!(kind, Kind::Polled | Kind::Streamed | Kind::CheckFailed));
            let woken = self.drain();
            assert!(woken || !ended, "S8: a check that ends wakes selectors");
        } else if choices.one_in(4) {
            // A host that takes only a part of the actions is wrong, but must not break the
            // machine.
            if let Some(action) = self.control.poll_action() {
                self.pools.apply(&self.control, action, self.eager);
                self.note(action);
            }
            self.control.assert_invariants();
        }
    }

    /// A current, a removed or an unknown server.
    fn server(&self, choices: &mut Bytes<'_>) -> ServerId {
        let members: Vec<ServerId> = self.control.topology().servers().map(|server| server.server()).collect();
        if members.is_empty() || choices.one_in(8) {
            return self.servers[choices.index(self.servers.len())];
        }
        members[choices.index(members.len())]
    }

    /// A recent or old monitor connection, perhaps of another server.
    fn conn(&self, choices: &mut Bytes<'_>) -> Option<(ServerId, MonitorConnId)> {
        if self.lines.is_empty() {
            return None;
        }
        let back =
            if choices.one_in(8) { choices.index(self.lines.len()) } else { choices.index(self.lines.len().min(6)) };
        let (server, conn) = self.lines[self.lines.len() - 1 - back];
        Some((if choices.one_in(16) { self.server(choices) } else { server }, conn))
    }

    fn poll_conns(&mut self, choices: &mut Bytes<'_>) {
        let server = self.server(choices);
        let conn = choices.one_of(&[MonitorConnKind::Check, MonitorConnKind::Check, MonitorConnKind::Rtt]);
        let owes = self.control.owes_conn(server, conn);
        let action = self.control.poll_conn(self.clock(), server, conn);
        assert_eq!(action.is_some(), owes);
        match action {
            None => {}
            Some(MonitorAction::Hangup(conn)) => {
                let stale = self.control.handle_failed(self.clock(), server, conn, Cause::Network, &mut self.log);
                assert!(stale.is_err(), "a report about a closed monitor connection is stale");
            }
            Some(
                MonitorAction::Dial(conn) | MonitorAction::SendHello { conn, .. } | MonitorAction::ReadNext { conn },
            ) => {
                assert!(!self.control.is_ended(server), "a monitor of a removed server only closes its connections");
                self.lines.push((server, conn));
            }
        }
    }

    fn reply(&mut self, choices: &mut Bytes<'_>, server: ServerId, conn: MonitorConnId) {
        let now = self.clock();
        let mut stale = false;
        let (ok, more_to_come, hello_ok) = (!choices.one_in(8), choices.one_in(3), choices.one_in(2));
        with_hello(
            choices,
            |hello, log, control: &mut Control<M>| {
                let reply = HelloReply { ok, code: 91, hello_ok, ..*hello };
                let matched = if more_to_come { Matched::MoreComes } else { Matched::Last };
                stale = control.handle_reply(now, server, conn, &reply, matched, log).is_err();
            },
            &mut self.log,
            &mut self.control,
        );
        self.assert_quiet(stale);
    }

    /// A stale report causes no events.
    fn assert_quiet(&self, stale: bool) {
        assert!(!stale || self.log.count == 0, "S21: a stale report caused {} events", self.log.count);
    }

    fn app_error(&mut self, choices: &mut Bytes<'_>, server: ServerId) {
        let kind = match choices.below(5) {
            0 => AppErrorKind::Network,
            1 => AppErrorKind::NetworkTimeout,
            2 => AppErrorKind::Other(choices.one_of(&[Cause::Authentication, Cause::Dns, Cause::Cancelled])),
            _ => {
                let code = choices.one_of(&[None, Some(91), Some(189), Some(10_107), Some(1)]);
                let error =
                    Some(ReplyError { code, message: choices.one_of(&["", "not master", "node is recovering"]) });
                let (command, write_concern) = if choices.one_in(3) { (None, error) } else { (error, None) };
                AppErrorKind::Command(CommandError { command, write_concern, topology_version: version(choices) })
            }
        };
        let error = AppError {
            generation: u64::from(choices.below(8) / 7),
            pool_generation: 0,
            phase: choices.one_of(&[HandshakePhase::Before, HandshakePhase::After]),
            kind,
            overloaded: choices.one_in(6),
            service_id: choices.one_in(4).then_some(ObjectId([1; 12])),
        };
        let known = self.control.topology().server(server).is_some();
        let verdict = self.control.handle_app_error(self.clock(), server, &error, &mut self.log);
        let is_nothing = verdict == Verdict::default() && self.log.count == 0;
        assert!(error.generation == 0 || is_nothing, "S10: a stale error: {verdict:?}");
        if let Some(clear) = verdict.clear {
            assert!(known && (verdict.marked_unknown || matches!(clear, Clear::Service(_))), "S12: {verdict:?}");
            assert_ne!(clear, Clear::All { interrupt_in_use_connections: true }, "S12: no error interrupts");
            if let Clear::All { .. } = clear {
                self.pools.clear(server);
            }
        }
        if verdict.marked_unknown {
            let server = self.control.topology().server(server).expect("a member");
            assert!(!server.server_type().is_known(), "S11, S12: {verdict:?}, but {server}");
        }
        let Some(monitor) = self.control.monitor(server) else { return };
        let is_checking = monitor.state() == MonitorState::Checking;
        assert!(!(verdict.cancel_check && is_checking), "S12: the check was not cancelled");
        if verdict.request_check && !is_checking {
            let soon = Instant::from_nanos(self.latest).saturating_add(MIN_HEARTBEAT_FREQUENCY);
            let due = monitor.poll_timeout();
            assert!(due.is_some_and(|due| due <= soon), "S11: no check was requested: due at {due:?}");
        }
    }

    fn pass(&mut self, choices: &mut Bytes<'_>) {
        let due = self.control.poll_timeout();
        self.now = match (choices.below(8), due) {
            (0..=3, Some(at)) => at.as_nanos(),
            (4, Some(at)) => at.as_nanos().saturating_sub(1),
            (5, _) => self.now.saturating_sub(u64::from(choices.below(3_000)) * 1_000_000),
            _ => self.now.saturating_add(u64::from(choices.below(20_000)) * 1_000_000),
        };
        self.latest = self.latest.max(self.now);
        self.control.handle_timeout(self.clock(), &mut self.log);
        let left = self.control.poll_timeout();
        assert!(left.is_none_or(|at| at > self.clock()), "no due timer is left");
        if due.is_none_or(|at| at > self.clock()) {
            assert!(self.log.seen.is_empty() && left == due || self.log.latest() > Some(self.clock()), "an early call");
        }
    }

    /// Takes all owed actions. Returns whether selectors were woken.
    fn drain(&mut self) -> bool {
        let done = self.pools.drain(&mut self.control, self.eager);
        done.iter().for_each(|action| self.note(*action));
        done.last() == Some(&ControlAction::WakeSelectors)
    }

    fn note(&mut self, action: ControlAction) {
        if let ControlAction::ServerAdded(server) = action {
            self.servers.push(server);
        }
    }
}

fn version(choices: &mut Bytes<'_>) -> Option<TopologyVersion> {
    let process_id = ObjectId([choices.one_of(&[1, 1, 1, 2]); 12]);
    let counter = choices.one_of(&[1, 2, 3, 4, i64::MAX, i64::MIN]);
    (!choices.one_in(3)).then_some(TopologyVersion { process_id, counter })
}

/// Draws a hello, and calls a function with it.
fn with_hello<M: Memory>(
    choices: &mut Bytes<'_>,
    act: impl FnOnce(&HelloReply<'_>, &mut Log, &mut Control<M>),
    log: &mut Log,
    control: &mut Control<M>,
) {
    let name = |choices: &mut Bytes<'_>| if choices.one_in(16) { choices.index(HOSTS.len()) } else { choices.index(5) };
    let hosts: Vec<_> = (0..choices.below(5)).map(|_| HOSTS[name(choices)]).collect();
    let arbiters: Vec<_> = (0..choices.below(2)).map(|_| HOSTS[name(choices)]).collect();
    let tags: Vec<_> = (0..choices.below(2)).map(|_| ("dc", choices.one_of(&["x", "y"]))).collect();
    let lists = Lists::new(&hosts, &[""; 0], &arbiters, &tags);
    let role = choices.below(10);
    let odd = choices.one_in(16);
    let hello = lists.of(HelloReply {
        is_writable_primary: role < 4 || odd,
        secondary: (4..6).contains(&role) || odd,
        arbiter_only: role == 6 || odd,
        hidden: choices.one_in(16),
        is_replica_set: role == 7,
        is_db_grid: role == 8,
        set_name: (role < 7).then_some(choices.one_of(&["rs", "rs", "rs", "rs", "other"])),
        set_version: choices.one_of(&[None, Some(1), Some(2), Some(2), Some(-1), Some(i64::MAX)]),
        election_id: choices.one_of(&[None, Some(ObjectId([1; 12])), Some(ObjectId([2; 12]))]),
        me: choices.one_in(6).then(|| HOSTS[name(choices)]),
        primary: choices.one_in(3).then(|| HOSTS[name(choices)]),
        min_wire_version: choices.one_of(&[0, 0, 0, 99]),
        max_wire_version: choices.one_of(&[21, 21, 16, 2]),
        logical_session_timeout_minutes: choices.one_of(&[None, Some(30)]),
        topology_version: version(choices),
        ..HelloReply::OK
    });
    act(&hello, log, control);
}
