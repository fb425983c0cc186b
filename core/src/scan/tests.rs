use super::*;
use crate::monitor::MonitorEvent;
use crate::replies::Lists;
use crate::selection::tests::hello;
use crate::selection::{ReadMode, ReadPreference, SelectionCriteria, SelectionError, SelectionFailure};
use crate::topology::{CommandError, Fixed, ReplyError, SdamEvent, TopologyOptions};
use crate::{Observer, ServerType};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;
use poolhouse_wire::hello::HelloKind;

type Memory = Fixed<8, 16, 64, 2048>;

/// How a server behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Is {
    /// It refuses connections.
    Refusing,
    /// It accepts connections, and resets them at the first hello.
    Resetting,
    /// It accepts connections and sends nothing.
    Silent,
    /// It answers every hello with `ok: 0`, this code, and the label or not.
    Failing(i32, bool),
    /// It has this type, and its reply lists these hosts and this primary.
    Good(ServerType, &'static [&'static str], Option<&'static str>),
}

fn at_ms(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// The events, as text without times.
#[derive(Default)]
struct Seen(Vec<String>);

impl Observer<MonitorEvent> for Seen {
    fn on_event(&mut self, _now: Instant, event: &MonitorEvent) {
        let name = match event {
            MonitorEvent::HeartbeatStarted { .. } => "started",
            MonitorEvent::HeartbeatSucceeded { .. } => "succeeded",
            MonitorEvent::HeartbeatFailed { .. } => "failed",
        };
        assert!(!event.awaited(), "a scan never waits for news");
        self.0.push(alloc::format!("{name} {}", event.id().connection));
    }
}

impl Observer<SdamEvent<'_>> for Seen {
    fn on_event(&mut self, _now: Instant, event: &SdamEvent<'_>) {
        self.0.push(event.name().to_string());
    }
}

/// A scan with its servers, on virtual time.
struct Rig {
    scan: Scan<Memory>,
    servers: BTreeMap<&'static str, Is>,
    now: u64,
    /// The actions, such as `dial a:1`.
    log: Vec<String>,
    open: Vec<SocketId>,
    events: Seen,
    entropy: u32,
}

const WRITE: SelectionCriteria<'_> = SelectionCriteria::write();

impl Rig {
    fn new(seeds: &[&str], options: TopologyOptions<'_>, scan: ScanOptions) -> Self {
        let topology = TopologyOptions { seeds, ..options }.validate().expect("valid");
        let mut events = Seen::default();
        let config = scan.validate().expect("valid");
        let scan = Scan::new(Instant::ORIGIN, TopologyId::new(1), topology, config, &mut events).expect("room");
        Self { scan, servers: BTreeMap::new(), now: 0, log: Vec::new(), open: Vec::new(), events, entropy: 1 }
    }

    fn set(seeds: &[&str]) -> Self {
        let options = TopologyOptions { replica_set: Some("rs"), ..TopologyOptions::default() };
        Self::new(seeds, options, ScanOptions::DEFAULT)
    }

    fn with(mut self, address: &'static str, is: Is) -> Self {
        self.servers.insert(address, is);
        self
    }

    fn time(&self) -> Instant {
        at_ms(self.now)
    }

    /// Carries out every pending action.
    fn work(&mut self) {
        while let Some(action) = self.scan.poll_action(self.time()) {
            self.scan.assert_invariants();
            match action {
                ScanAction::Hangup(socket) => {
                    let place = self.open.iter().position(|open| *open == socket).expect("it is open");
                    self.open.remove(place);
                    self.log.push("hangup".into());
                }
                ScanAction::Dial { socket, deadline } => self.dial(socket, deadline),
                ScanAction::SendHello { socket, hello, deadline } => self.send(socket, hello, deadline),
            }
            self.scan.assert_invariants();
        }
    }

    fn address(&self, server: ServerId) -> String {
        self.scan.topology().address(server).expect("a member").into()
    }

    fn is(&self, server: ServerId) -> Is {
        self.servers.get(self.address(server).as_str()).copied().unwrap_or(Is::Refusing)
    }

    fn dial(&mut self, socket: SocketId, deadline: Option<Instant>) {
        assert_eq!(deadline, Some(self.time().saturating_add(Duration::from_secs(10))));
        self.log.push(alloc::format!("dial {}", self.address(socket.server())));
        if self.is(socket.server()) == Is::Refusing {
            self.scan.handle_failed(self.time(), socket, Cause::Network, &mut self.events).expect("dialing");
        } else {
            self.open.push(socket);
            self.scan.handle_dialed(self.time(), socket, &mut self.events).expect("dialing");
        }
    }

    fn send(&mut self, socket: SocketId, sent: HelloKind, deadline: Option<Instant>) {
        let (kind, legacy) = match sent {
            HelloKind::Handshake { legacy } => ("greet", legacy),
            HelloKind::Awaitable { .. } => unreachable!("a scan polls"),
            HelloKind::Poll { legacy } => ("check", legacy),
        };
        // The servers here send helloOk with each valid reply, after which the legacy hello is not
        // used on that connection.
        assert_eq!(legacy, kind == "greet");
        assert_eq!(self.scan.poll_action(self.time()), None, "each action once");
        self.log.push(alloc::format!("{kind} {}", self.address(socket.server())));
        let now = self.time();
        match self.is(socket.server()) {
            Is::Refusing | Is::Resetting => {
                self.scan.handle_failed(now, socket, Cause::Network, &mut self.events).expect("asked");
            }
            Is::Silent => {
                self.now = deadline.expect("a limit").as_nanos() / 1_000_000;
                self.scan.handle_timeout(self.time(), &mut self.events);
            }
            Is::Failing(code, overloaded) => {
                let labels = if overloaded { Labels::SYSTEM_OVERLOADED_ERROR } else { Labels::NONE };
                let reply = HelloReply { ok: false, code, labels, ..HelloReply::OK };
                self.scan.handle_reply(now, socket, &reply, &mut self.events).expect("asked");
            }
            Is::Good(server_type, hosts, primary) => {
                self.now += 1;
                let hello = HelloReply {
                    primary,
                    hello_ok: true,
                    ..hello(server_type, Lists { hosts, tags: &[], ..Lists::default() })
                };
                self.scan.handle_reply(self.time(), socket, &hello, &mut self.events).expect("asked");
            }
        }
    }

    /// Selects a server. Sleeps and works as the steps require.
    fn select(&mut self, criteria: &SelectionCriteria<'_>) -> Result<SocketId, SelectionError> {
        let mut selecting = self.scan.begin(self.time());
        for _ in 0..1_000 {
            self.entropy = self.entropy.wrapping_mul(0x9e37_79b9).wrapping_add(1);
            let (now, entropy) = (self.time(), self.entropy);
            let step = self.scan.select(now, &mut selecting, criteria, &[], entropy, &mut self.events);
            self.scan.assert_invariants();
            match step? {
                ScanStep::Selected(socket) => {
                    assert!(self.open.contains(&socket), "a connection that is there");
                    return Ok(socket);
                }
                ScanStep::Work => self.work(),
                ScanStep::Wait(until) => {
                    assert!(until > now, "a wait has a length");
                    self.log.push(alloc::format!("wait {}", until.as_nanos() / 1_000_000 - self.now));
                    self.now = until.as_nanos() / 1_000_000;
                }
            }
        }
        panic!("the selection goes round in a circle: {:?}", self.log);
    }

    /// Runs an operation that succeeds. Returns the address of its server.
    fn operate(&mut self, criteria: &SelectionCriteria<'_>) -> String {
        let socket = self.select(criteria).expect("a server suits");
        self.scan.check_in(self.time(), socket, Health::Healthy).expect("it was checked out");
        self.address(socket.server())
    }

    /// Returns the actions since the last call.
    fn done(&mut self) -> Vec<String> {
        core::mem::take(&mut self.log)
    }

    /// Returns the addresses that were checked since the last call, in order.
    fn asked(&mut self) -> Vec<String> {
        let asked = self.done().into_iter().filter_map(|done| match done.split_once(' ') {
            Some(("greet" | "check", address)) => Some(address.into()),
            _ => None,
        });
        asked.collect()
    }

    fn sleep(&mut self, ms: u64) {
        self.now += ms;
    }
}

const SET: &[&str] = &["a:1", "b:1", "c:1"];
const PRIMARY: Is = Is::Good(ServerType::RsPrimary, SET, None);
const SECONDARY: Is = Is::Good(ServerType::RsSecondary, SET, Some("a:1"));
const MONGOS: Is = Is::Good(ServerType::Mongos, &[], None);

fn healthy() -> Rig {
    Rig::set(SET).with("a:1", PRIMARY).with("b:1", SECONDARY).with("c:1", SECONDARY)
}

/// An error reply with this code, on the connection that was checked out.
fn fail_command(rig: &mut Rig, socket: SocketId, code: i32) -> Verdict {
    let error = ReplyError { code: Some(code), message: "" };
    let command = CommandError { command: Some(error), write_concern: None, topology_version: None };
    let (now, kind) = (rig.time(), AppErrorKind::Command(command));
    rig.scan.handle_app_error(now, socket, HandshakePhase::After, kind, false, &mut rig.events).expect("checked out")
}

mod options;
mod order;
mod random;
mod scarce;
mod selecting;
mod trouble;
