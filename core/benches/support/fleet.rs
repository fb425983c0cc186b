//! Deployments that always reply, to count and time the steps of the control machine.

use core::hint::black_box;
use core::time::Duration;
use poolhouse_core::control::Control;
use poolhouse_core::monitor::{
    HelloKind, MonitorAction, MonitorConnId, MonitorConnKind, MonitorOptions, ServerMonitoringMode,
};
use poolhouse_core::topology::{OnHeap, TopologyId, TopologyOptions};
use poolhouse_core::{Instant, ObjectId, ServerId, TopologyVersion};
use poolhouse_wire::bson::{DocumentWriter, RawArray, RawDocument};
use poolhouse_wire::hello::HelloReply;
use poolhouse_wire::message::Matched;

fn control(seeds: &[&str], mode: ServerMonitoringMode) -> Control<OnHeap> {
    let config = TopologyOptions { seeds, ..TopologyOptions::default() }.validate().expect("valid");
    let monitor = MonitorOptions {
        heartbeat_frequency: Duration::from_millis(500),
        server_monitoring_mode: mode,
        ..MonitorOptions::DEFAULT
    };
    let monitor = monitor.validate().expect("valid");
    Control::new(Instant::ORIGIN, TopologyId::new(1), config, monitor, &mut ()).expect("room")
}

/// A topology version with this counter.
const fn version(counter: i64) -> Option<TopologyVersion> {
    Some(TopologyVersion { process_id: ObjectId([7; 12]), counter })
}

/// Routers with heartbeatFrequencyMS 500, which are checked in turn.
pub(crate) struct Fleet {
    control: Control<OnHeap>,
    now: Instant,
    servers: Vec<ServerId>,
    /// The monitor connections that wait for an awaitable hello.
    awaited: Vec<Option<MonitorConnId>>,
    next: usize,
    streaming: bool,
}

impl Fleet {
    /// Creates a fleet of known servers, each checked at its own instant.
    pub(crate) fn new(count: u64, mode: ServerMonitoringMode) -> Self {
        let names: Vec<String> = (0..count).map(|number| format!("router{number}.example.net:27017")).collect();
        let seeds: Vec<&str> = names.iter().map(String::as_str).collect();
        let control = control(&seeds, mode);
        let servers: Vec<ServerId> = control.topology().servers().map(|server| server.server()).collect();
        let (awaited, streaming) = (vec![None; servers.len()], mode == ServerMonitoringMode::Stream);
        let mut fleet = Self { control, now: Instant::ORIGIN, servers, awaited, next: 0, streaming };
        for place in 0..fleet.servers.len() {
            fleet.now = Instant::from_nanos(place as u64 * 500_000);
            while fleet.act(place) {}
        }
        fleet
    }

    /// Performs an action of a server's check connection; returns whether there was one. An
    /// awaitable hello gets no reply yet.
    fn act(&mut self, place: usize) -> bool {
        let server = self.servers[place];
        match self.control.poll_conn(self.now, server, MonitorConnKind::Check) {
            Some(MonitorAction::Dial(conn)) => {
                self.control.handle_dialed(self.now, server, conn, &mut ()).expect("it is dialed");
            }
            Some(MonitorAction::SendHello { conn, hello: HelloKind::Awaitable { .. } }) => {
                self.awaited[place] = Some(conn);
            }
            Some(MonitorAction::SendHello { conn, .. }) => self.answer(server, conn),
            Some(MonitorAction::ReadNext { .. } | MonitorAction::Hangup(_)) => unreachable!("every server is well"),
            None => return false,
        }
        true
    }

    fn answer(&mut self, server: ServerId, conn: MonitorConnId) {
        let topology_version = if self.streaming { version(1) } else { None };
        let hello = HelloReply { is_db_grid: true, max_wire_version: 21, topology_version, ..HelloReply::OK };
        self.control.handle_reply(self.now, server, conn, &hello, Matched::Last, &mut ()).expect("it was asked");
        while let Some(action) = self.control.poll_action() {
            black_box(action);
        }
    }

    /// Checks one server after the other. Includes all calls that a driver makes to the machine for
    /// a check.
    pub(crate) fn check(&mut self, times: u64) {
        for _ in 0..times {
            let place = self.next;
            self.next = (place + 1) % self.servers.len();
            if self.streaming {
                // The awaitable hello times out without a change, and is sent again.
                self.now = self.now.saturating_add(Duration::from_micros(500));
                let conn = self.awaited[place].expect("it streams");
                self.answer(self.servers[place], conn);
            } else {
                self.now = self.control.poll_timeout().expect("checks are due");
                self.control.handle_timeout(self.now, &mut ());
            }
            assert!(self.act(place), "servers are checked in turn");
            black_box(self.control.poll_timeout());
        }
    }
}

/// A replica set of fifty members.
pub(crate) struct Set {
    control: Control<OnHeap>,
    names: Vec<String>,
    /// `hosts` of a reply, as BSON: the set whose last member is the 50th name, and the one whose
    /// last member is the 51st.
    lists: [Vec<u8>; 2],
    now: Instant,
    counter: i64,
}

impl Set {
    /// Creates a set of known members.
    pub(crate) fn new() -> Self {
        // One name more than the set has members at a time.
        let names: Vec<String> = (0..51).map(|number| format!("member{number}.example.net:27017")).collect();
        let control = control(&[&names[0]], ServerMonitoringMode::Poll);
        let lists = [49, 50].map(|last| {
            let mut bytes = Vec::new();
            let mut hosts = names[..49].iter().chain([&names[last]]);
            let written =
                DocumentWriter::write(&mut bytes, |list| hosts.try_for_each(|host| list.str("", host).map(drop)));
            written.expect("memory");
            bytes
        });
        let mut set = Self { control, names, lists, now: Instant::ORIGIN, counter: 0 };
        for member in 0..50 {
            set.hello(member, 50);
        }
        set
    }

    /// Handles a hello reply of a member with a new topology version. `last` is the number of the
    /// set's last name.
    fn hello(&mut self, member: usize, last: usize) {
        self.counter += 1;
        self.now = self.now.saturating_add(Duration::from_micros(1));
        let me = &self.names[if member < 49 { member } else { last - 1 }];
        let server = self.control.topology().find(me).expect("a member");
        let hosts = RawDocument::new(&self.lists[last - 50]).expect("it was written");
        let hello = HelloReply {
            is_writable_primary: member == 0,
            secondary: member > 0,
            set_name: Some("rs"),
            set_version: Some(self.counter),
            me: Some(me),
            primary: Some(&self.names[0]),
            max_wire_version: 21,
            topology_version: version(self.counter),
            hosts: RawArray::from_document(hosts),
            ..HelloReply::OK
        };
        self.control.handle_app_hello(self.now, server, &hello, &mut ());
        while let Some(action) = self.control.poll_action() {
            black_box(action);
        }
    }

    /// Hello replies of the primary with a new topology version and the same members.
    pub(crate) fn update(&mut self, times: u64) {
        for _ in 0..times {
            self.hello(0, 50);
        }
    }

    /// Hello replies of the primary that replace one member.
    pub(crate) fn replace(&mut self, times: u64) {
        for time in 0..times {
            self.hello(0, if time % 2 == 0 { 51 } else { 50 });
        }
    }
}
