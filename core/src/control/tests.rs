//! A control machine, a host that the test drives, and a log of events in the order of their
//! emission. The invariants S are listed in `tests/src/invariants.rs`.

mod app;
mod lines;
mod members;
mod scarce;
mod step;
mod time;

use super::*;
use crate::monitor::{MonitorOptions, ServerMonitoringMode};
use crate::replies::texts;
use crate::topology::{Fixed, OnHeap, SdamEvent, TopologyOptions};
use crate::{ObjectId, ServerType, TopologyVersion};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

type Hello<'a> = HelloReply<'a>;

fn standalone<'a>() -> Hello<'a> {
    HelloReply { max_wire_version: 21, ..HelloReply::OK }
}

fn mongos<'a>() -> Hello<'a> {
    HelloReply { is_db_grid: true, ..standalone() }
}

fn member<'a>(hosts: &'a [&'a str]) -> Hello<'a> {
    HelloReply { set_name: Some("rs"), hosts: texts(hosts), ..standalone() }
}

fn secondary<'a>(hosts: &'a [&'a str]) -> Hello<'a> {
    HelloReply { secondary: true, ..member(hosts) }
}

fn primary<'a>(hosts: &'a [&'a str], election: u8) -> Hello<'a> {
    let election_id = Some(ObjectId([election; 12]));
    HelloReply { is_writable_primary: true, election_id, set_version: Some(1), ..member(hosts) }
}

fn versioned(hello: Hello<'_>, counter: i64) -> Hello<'_> {
    let topology_version = Some(TopologyVersion { process_id: ObjectId([7; 12]), counter });
    HelloReply { topology_version, ..hello }
}

/// Events as text, and their instants.
#[derive(Default)]
struct Log {
    lines: Vec<String>,
    latest: Option<Instant>,
}

impl Log {
    fn add(&mut self, now: Instant, line: String) {
        assert!(self.latest <= Some(now), "events come in the order of time");
        self.latest = Some(now);
        self.lines.push(line);
    }
}

impl Observer<MonitorEvent> for Log {
    fn on_event(&mut self, now: Instant, event: &MonitorEvent) {
        let server = event.id().server;
        let line = match event {
            MonitorEvent::HeartbeatStarted { .. } => format!("#{server} started"),
            MonitorEvent::HeartbeatSucceeded { .. } => format!("#{server} succeeded"),
            MonitorEvent::HeartbeatFailed { cause, .. } => format!("#{server} failed: {cause}"),
        };
        self.add(now, line);
    }
}

impl Observer<SdamEvent<'_>> for Log {
    fn on_event(&mut self, now: Instant, event: &SdamEvent<'_>) {
        self.add(now, event.to_string());
    }
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

const POLLING: MonitorOptions =
    MonitorOptions { server_monitoring_mode: ServerMonitoringMode::Poll, ..MonitorOptions::DEFAULT };

/// A control machine with its host.
struct Rig<M: Memory = OnHeap> {
    control: Control<M>,
    log: Log,
    now: Instant,
}

fn open_with<M: Memory>(options: TopologyOptions<'_>, monitor: MonitorOptions) -> Rig<M> {
    let mut log = Log::default();
    let config = monitor.validate().unwrap();
    let control = Control::new(at(0), TopologyId::new(7), options.validate().unwrap(), config, &mut log).unwrap();
    control.assert_invariants();
    Rig { control, log, now: at(0) }
}

/// A polling control machine without pending actions and logged events.
fn open(seeds: &[&str]) -> Rig {
    let mut rig = open_with(TopologyOptions { seeds, ..TopologyOptions::default() }, POLLING);
    rig.drain();
    rig
}

/// A direct connection that streams, with a known server and its awaitable hello sent at 0 ms. Also
/// returns the server's check connection.
fn streaming(options: MonitorOptions) -> (Rig, MonitorConnId) {
    let mut rig: Rig = open_with(TopologyOptions { seeds: &["a"], ..TopologyOptions::default() }, options);
    rig.check("a", &versioned(standalone(), 5));
    let MonitorAction::SendHello { conn, .. } = rig.conn("a", MonitorConnKind::Check) else { panic!("it streams") };
    rig.drain();
    (rig, conn)
}

impl<M: Memory> Rig<M> {
    fn id(&self, address: &str) -> ServerId {
        self.control.topology().find(address).unwrap()
    }

    fn at(&mut self, ms: u64) -> &mut Self {
        self.now = at(ms);
        self
    }

    fn server_type(&self, address: &str) -> ServerType {
        self.control.topology().server(self.id(address)).unwrap().server_type()
    }

    /// Returns the pending action of a monitor connection.
    fn conn(&mut self, address: &str, kind: MonitorConnKind) -> MonitorAction {
        let server = self.id(address);
        self.owed(server, kind).expect("something is owed")
    }

    fn owed(&mut self, server: ServerId, kind: MonitorConnKind) -> Option<MonitorAction> {
        let owes = self.control.owes_conn(server, kind);
        let action = self.control.poll_conn(self.now, server, kind);
        assert_eq!(action.is_some(), owes);
        self.control.assert_invariants();
        action
    }

    /// Advances the check connection of a server to the point where a hello is sent.
    fn connect(&mut self, address: &str) -> MonitorConnId {
        let server = self.id(address);
        loop {
            match self.conn(address, MonitorConnKind::Check) {
                MonitorAction::Hangup(_) => {}
                MonitorAction::Dial(conn) => {
                    self.control.handle_dialed(self.now, server, conn, &mut self.log).unwrap();
                }
                MonitorAction::SendHello { conn, .. } | MonitorAction::ReadNext { conn } => return conn,
            }
            self.control.assert_invariants();
        }
    }

    fn reply(&mut self, server: ServerId, conn: MonitorConnId, hello: &Hello<'_>) -> Result<(), Stale> {
        let result = self.control.handle_reply(self.now, server, conn, hello, Matched::Last, &mut self.log);
        self.control.assert_invariants();
        result
    }

    /// Runs the whole pending check with this reply.
    fn check(&mut self, address: &str, hello: &Hello<'_>) {
        let conn = self.connect(address);
        let server = self.id(address);
        self.reply(server, conn, hello).unwrap();
    }

    /// Runs the whole pending check, which fails with this cause.
    fn fail(&mut self, address: &str, cause: Cause) {
        let conn = self.connect(address);
        let server = self.id(address);
        self.control.handle_failed(self.now, server, conn, cause, &mut self.log).unwrap();
        self.control.assert_invariants();
    }

    fn timeout(&mut self) {
        self.control.handle_timeout(self.now, &mut self.log);
        self.control.assert_invariants();
        assert!(self.control.poll_timeout().is_none_or(|due| due > self.now), "nothing due is left over");
    }

    fn actions(&mut self) -> Vec<ControlAction> {
        let actions = core::iter::from_fn(|| self.control.poll_action()).collect();
        self.control.assert_invariants();
        actions
    }

    fn lines(&mut self) -> Vec<String> {
        core::mem::take(&mut self.log.lines)
    }

    fn drain(&mut self) {
        self.actions();
        self.lines();
    }
}

/// A set of three with "a" as its primary, polling, all checked at 0 ms.
fn set_of_three<M: Memory>() -> Rig<M> {
    let hosts = ["a", "b", "c"];
    let mut rig = open_with(TopologyOptions { seeds: &["a"], ..TopologyOptions::default() }, POLLING);
    rig.check("a", &primary(&hosts, 1));
    rig.check("b", &secondary(&hosts));
    rig.check("c", &secondary(&hosts));
    rig.drain();
    rig
}
