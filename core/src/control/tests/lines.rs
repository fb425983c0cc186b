use super::*;
use crate::ServerType;
use crate::monitor::{MonitorOptions, ServerMonitoringMode};
use crate::topology::{AppErrorKind, Fixed, HandshakePhase, SdamEvent, TopologyOptions};
use core::time::Duration;

/// The fields of an event that tests compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Started,
    Succeeded,
    Failed(Cause),
    Server(ServerType),
    Closed,
}

#[derive(Default)]
struct Log(heapless::Vec<Seen, 64>);

impl Log {
    fn push(&mut self, seen: Seen) {
        self.0.push(seen).expect("the log is long enough");
    }
}

impl Observer<MonitorEvent> for Log {
    fn on_event(&mut self, _now: Instant, event: &MonitorEvent) {
        self.push(match event {
            MonitorEvent::HeartbeatStarted { .. } => Seen::Started,
            MonitorEvent::HeartbeatSucceeded { .. } => Seen::Succeeded,
            MonitorEvent::HeartbeatFailed { cause, .. } => Seen::Failed(*cause),
        });
    }
}

impl<'e> Observer<SdamEvent<'e>> for Log {
    fn on_event(&mut self, _now: Instant, event: &SdamEvent<'e>) {
        if let SdamEvent::ServerDescriptionChanged { new, .. } = event {
            self.push(Seen::Server(new.server_type()));
        } else if let SdamEvent::TopologyClosed { .. } = event {
            self.push(Seen::Closed);
        }
    }
}

type Machines = Control<Fixed<3, 8, 16, 512>>;

const GREETING: HelloReply<'_> =
    HelloReply { is_writable_primary: true, hello_ok: true, max_wire_version: 21, ..HelloReply::OK };

fn at(ms: u64) -> Instant {
    Instant::from_nanos((1000 + ms) * 1_000_000)
}

struct Rig {
    control: Machines,
    log: Log,
    server: ServerId,
}

impl Rig {
    /// One server that is polled.
    fn new() -> Self {
        let monitor = MonitorOptions { server_monitoring_mode: ServerMonitoringMode::Poll, ..MonitorOptions::DEFAULT };
        let options = TopologyOptions { seeds: &["a:1"], direct_connection: true, ..TopologyOptions::default() };
        let mut log = Log::default();
        let options = options.validate().expect("valid options");
        let monitor = monitor.validate().expect("valid options");
        let mut control = Machines::new(at(0), TopologyId::new(1), options, monitor, &mut log).expect("room");
        let Some(ControlAction::ServerAdded(server)) = control.poll_action() else { panic!("a server is added") };
        control.assert_invariants();
        Self { control, log, server }
    }

    fn conn(&mut self, now: Instant) -> Option<MonitorAction> {
        self.control.poll_conn(now, self.server, MonitorConnKind::Check)
    }

    /// Dials, and takes the hello.
    fn dial(&mut self, now: Instant) -> MonitorConnId {
        let Some(MonitorAction::Dial(conn)) = self.conn(now) else { panic!("a dial is owed") };
        self.control.handle_dialed(now, self.server, conn, &mut self.log).expect("current");
        assert!(matches!(self.conn(now), Some(MonitorAction::SendHello { .. })));
        conn
    }

    fn reply(&mut self, now: Instant, conn: MonitorConnId) {
        let result = self.control.handle_reply(now, self.server, conn, &GREETING, Matched::Last, &mut self.log);
        result.expect("current");
        self.control.assert_invariants();
    }

    fn app_error(&mut self, now: Instant, kind: AppErrorKind<'_>) -> Verdict {
        let error = AppError {
            generation: 0,
            pool_generation: 0,
            phase: HandshakePhase::After,
            kind,
            overloaded: false,
            service_id: None,
        };
        let verdict = self.control.handle_app_error(now, self.server, &error, &mut self.log);
        self.control.assert_invariants();
        verdict
    }

    fn actions(&mut self) -> heapless::Vec<ControlAction, 16> {
        core::iter::from_fn(|| self.control.poll_action()).collect()
    }

    fn seen(&mut self) -> heapless::Vec<Seen, 64> {
        core::mem::take(&mut self.log.0)
    }
}

/// The description, then the pool, then waiting selectors, all within one step.
#[test]
#[doc(alias("MON-52", "SDAM-64"))]
fn successful_check_updates_the_topology_and_then_the_pool() {
    let mut rig = Rig::new();
    let conn = rig.dial(at(0));
    assert_eq!(rig.actions()[..], []);
    rig.reply(at(5), conn);
    assert_eq!(rig.seen()[..], [Seen::Started, Seen::Succeeded, Seen::Server(ServerType::Standalone)]);
    let ready = ControlAction::Pool(rig.server, PoolCommand::Ready);
    assert_eq!(rig.actions()[..], [ready, ControlAction::WakeSelectors]);
    // The next check is due ten seconds later.
    assert_eq!(rig.control.poll_timeout(), Some(at(10_005)));
    assert!(!rig.control.owes_conn(rig.server, MonitorConnKind::Check));
}

/// A failure on a known server clears the pool and is retried at once.
#[test]
#[doc(alias("MON-53", "MON-54", "MON-55"))]
fn failed_check_clears_the_pool_and_is_retried() {
    for (cause, interrupt) in [(Cause::Network, false), (Cause::NetworkTimeout, true)] {
        let mut rig = Rig::new();
        let conn = rig.dial(at(0));
        rig.reply(at(5), conn);
        rig.actions();
        rig.seen();
        rig.control.handle_timeout(at(10_005), &mut rig.log);
        assert!(matches!(rig.conn(at(10_005)), Some(MonitorAction::SendHello { .. })));
        rig.control.handle_failed(at(10_010), rig.server, conn, cause, &mut rig.log).expect("current");
        rig.control.assert_invariants();
        let seen = [Seen::Started, Seen::Failed(cause), Seen::Server(ServerType::Unknown), Seen::Started];
        assert_eq!(rig.seen()[..], seen);
        let clear = PoolCommand::Clear { interrupt_in_use_connections: interrupt, cause };
        assert_eq!(rig.actions().first(), Some(&ControlAction::Pool(rig.server, clear)));
        assert_eq!(rig.conn(at(10_010)), Some(MonitorAction::Hangup(conn)));
        assert!(matches!(rig.conn(at(10_010)), Some(MonitorAction::Dial(_))));
        // A late reply on the old connection changes nothing.
        let late = rig.control.handle_reply(at(10_011), rig.server, conn, &GREETING, Matched::Last, &mut rig.log);
        assert_eq!(late, Err(Stale));
    }
}

/// A check without any response ends at its deadline.
#[test]
fn check_without_an_answer_ends_at_its_deadline() {
    let mut rig = Rig::new();
    let conn = rig.dial(at(0));
    assert_eq!(rig.control.poll_timeout(), Some(at(10_000)));
    rig.control.handle_timeout(at(9_999), &mut rig.log);
    assert_eq!(rig.seen()[..], [Seen::Started]);
    rig.control.handle_timeout(at(10_000), &mut rig.log);
    rig.control.assert_invariants();
    // The server's description is Unknown before and after.
    assert_eq!(rig.seen().first(), Some(&Seen::Failed(Cause::NetworkTimeout)));
    assert_eq!(rig.conn(at(10_000)), Some(MonitorAction::Hangup(conn)));
}

/// An application's network error marks the server and cancels the check in
/// flight.
#[test]
#[doc(alias("MON-15", "MON-50", "SDAM-71"))]
fn network_error_of_an_application_cancels_the_check() {
    let mut rig = Rig::new();
    let conn = rig.dial(at(0));
    rig.reply(at(5), conn);
    rig.control.handle_timeout(at(10_005), &mut rig.log);
    assert!(matches!(rig.conn(at(10_005)), Some(MonitorAction::SendHello { .. })));
    rig.actions();
    rig.seen();
    let verdict = rig.app_error(at(10_006), AppErrorKind::Network);
    assert!(verdict.clear.is_some() && verdict.marked_unknown && verdict.cancel_check);
    assert_eq!(rig.seen()[..], [Seen::Server(ServerType::Unknown), Seen::Failed(Cause::Cancelled)]);
    assert_eq!(rig.conn(at(10_006)), Some(MonitorAction::Hangup(conn)));
    assert_eq!(rig.conn(at(10_006)), None);
    // A selector that finds no server requests a check, which begins minHeartbeatFrequencyMS after
    // the end of the last one (MON-15).
    rig.control.request_check(at(10_007));
    assert_eq!(rig.control.poll_timeout(), Some(at(10_506)));
}

/// The hello of an application's connection makes a server known, as a check does.
#[test]
#[doc(alias = "MON-20")]
fn hello_of_an_application_makes_the_pool_ready() {
    let mut rig = Rig::new();
    rig.control.handle_app_hello(at(1), rig.server, &GREETING, &mut rig.log);
    rig.control.assert_invariants();
    assert_eq!(rig.actions().first(), Some(&ControlAction::Pool(rig.server, PoolCommand::Ready)));
    assert_eq!(rig.seen()[..], [Seen::Started, Seen::Server(ServerType::Standalone)]);
}

/// Everything ends at once, and late results are stale.
#[test]
#[doc(alias("MON-49", "SDAM-10"))]
fn close_ends_everything_and_is_final() {
    let mut rig = Rig::new();
    let conn = rig.dial(at(0));
    rig.control.close(at(1), &mut rig.log);
    rig.control.assert_invariants();
    assert!(rig.control.is_closed() && rig.control.is_ended(rig.server));
    assert!(rig.actions().contains(&ControlAction::ServerRemoved(rig.server)));
    let seen = rig.seen();
    assert_eq!((seen[1], seen.last()), (Seen::Failed(Cause::Closed), Some(&Seen::Closed)));
    assert_eq!(rig.conn(at(1)), Some(MonitorAction::Hangup(conn)));
    assert_eq!(rig.control.poll_timeout(), None);
    let late = rig.control.handle_reply(at(2), rig.server, conn, &GREETING, Matched::Last, &mut rig.log);
    assert_eq!(late, Err(Stale));
    assert_eq!(rig.control.handle_dialed(at(2), rig.server, conn, &mut rig.log), Err(Stale));
    assert_eq!(rig.control.handle_failed(at(2), rig.server, conn, Cause::Network, &mut rig.log), Err(Stale));
    rig.control.handle_app_hello(at(2), rig.server, &GREETING, &mut rig.log);
    assert_eq!(rig.app_error(at(2), AppErrorKind::Network), Verdict::default());
    rig.control.request_check(at(3));
    rig.control.handle_timeout(at(60_000), &mut rig.log);
    rig.control.close(at(60_000), &mut rig.log);
    assert_eq!(rig.actions()[..], []);
    assert_eq!(rig.seen()[..], []);
    rig.control.assert_invariants();
}

#[test]
fn timeout_is_the_instant_of_the_next_step() {
    let mut rig = Rig::new();
    let conn = rig.dial(at(0));
    rig.reply(at(5), conn);
    let due = rig.control.poll_timeout().expect("a check is due");
    assert_eq!(due, at(5).saturating_add(Duration::from_secs(10)));
    rig.seen();
    rig.control.handle_timeout(at(10_004), &mut rig.log);
    assert_eq!(rig.seen()[..], []);
    rig.control.handle_timeout(due, &mut rig.log);
    assert_eq!(rig.seen()[..], [Seen::Started]);
}
