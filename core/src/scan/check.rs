//! The check in flight, and the order of the checks in a scan.
//!
//! Read first: Server Monitoring, "Scanning order", "cooldownMS", "Network or command error during
//! server check".

use super::action::SocketId;
use super::link::{Socket, Step};
use super::{CHECKS_PER_SERVER_MAX, COOLDOWN, Link, Running, Scan};
use crate::control::ControlObserver;
use crate::machine::Stale;
use crate::monitor::{HeartbeatId, MonitorEvent};
use crate::observe::EventContext;
use crate::topology::{Memory, RoundTrip};
use crate::{Cause, Instant, ServerId, ServerType};
use core::num::NonZeroU64;
use poolhouse_wire::hello::HelloReply;

/// One check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Check {
    pub(super) server: ServerId,
    socket: SocketId,
    server_connection: Option<i64>,
    /// The time at which the host polled the hello; before that, the time at which the check began.
    pub(super) since: Instant,
    pub(super) deadline: Option<Instant>,
    /// Whether it retries a failed check.
    is_retry: bool,
    /// Whether the server's type was known when it began.
    was_known: bool,
}

impl Check {
    /// Whether `now` is at or after the deadline.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

impl<M: Memory> Scan<M> {
    /// Returns the check in flight, if it uses this connection.
    pub(super) fn check_of(&self, socket: SocketId) -> Result<Check, Stale> {
        self.check.filter(|check| check.socket == socket).ok_or(Stale)
    }

    /// Begins a scan. The scan ends at once if no server can be checked.
    pub(super) fn start_scan(&mut self, now: Instant, entropy: u32, observer: &mut impl ControlObserver) {
        assert!(self.running.is_none(), "one scan at a time");
        assert!(self.check.is_none(), "a scan begins while a check is in flight");
        self.scan_last = self.scan_last.wrapping_add(1).max(1);
        self.running = Some(Running { started: now, checks: 0, servers_max: 0, entropy });
        self.begin_next(now, observer);
    }

    /// Begins the next check of the scan in progress, or ends the scan.
    fn begin_next(&mut self, now: Instant, observer: &mut impl ControlObserver) {
        let Some(running) = &mut self.running else { return };
        assert!(self.check.is_none(), "one check at a time");
        running.servers_max = running.servers_max.max(self.topology.server_count());
        let may = running.checks < CHECKS_PER_SERVER_MAX.saturating_mul(running.servers_max.saturating_add(2));
        running.checks += 1;
        let running = *running;
        match self.next_to_check(&running).filter(|_| may) {
            Some(server) => {
                let number = self.scan_last;
                if let Some(link) = self.link_mut(server) {
                    link.scanned = number;
                }
                self.begin_check(now, server, false, observer);
            }
            None => {
                self.running = None;
                self.scan_ended = Some(now);
                self.ends = self.ends.wrapping_add(1);
                self.stale = false;
            }
        }
    }

    /// The next server to check, in this order: the primary, a possible primary, the server of a
    /// known type that was updated longest ago, the server of an unknown type that was updated
    /// longest ago; ties are broken at random.
    fn next_to_check(&self, running: &Running) -> Option<ServerId> {
        let servers = self.topology.servers().filter(|server| {
            let cools = |link: &Link| {
                !server.server_type().is_known() && link.cooldown.is_some_and(|until| until > running.started)
            };
            self.link(server.server()).is_some_and(|link| link.scanned != self.scan_last && !cools(link))
        });
        let first = servers.min_by_key(|server| {
            let rank: u8 = match server.server_type() {
                ServerType::RsPrimary => 0,
                ServerType::PossiblePrimary => 1,
                ServerType::Standalone
                | ServerType::Mongos
                | ServerType::RsSecondary
                | ServerType::RsArbiter
                | ServerType::RsOther
                | ServerType::LoadBalancer => 2,
                ServerType::Unknown | ServerType::RsGhost => 3,
            };
            (rank, server.last_update_time(), scattered(running.entropy, server.server().number()))
        });
        first.map(|server| server.server())
    }

    /// Allows one more check of a deposed primary before the scan ends.
    pub(super) fn check_again(&mut self, server: ServerId) {
        if self.running.is_none() {
            return;
        }
        let number = self.scan_last;
        if let Some(link) = self.link_mut(server).filter(|link| link.rescanned != number) {
            link.rescanned = number;
            link.scanned = 0;
        }
    }

    /// Begins a check of a server, on its existing connection or on a new one.
    pub(super) fn begin_check(
        &mut self,
        now: Instant,
        server: ServerId,
        is_retry: bool,
        observer: &mut impl ControlObserver,
    ) {
        let was_known = self.is_known(server);
        let deadline = self.config.options().connect_timeout.map(|limit| now.saturating_add(limit));
        let number = self.socket_last.saturating_add(1);
        let hello_ok = self.config.options().server_api;
        let link = self.link_mut(server).expect("a checked server has a slot");
        let is_new = link.socket.is_none();
        let socket = link.socket.get_or_insert(Socket {
            id: SocketId { server, number: NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN) },
            step: Step::Dial { owed: true },
            greeted: false,
            hello_ok,
            server_connection: None,
        });
        if !is_new {
            assert!(matches!(socket.step, Step::Idle { .. }), "only an idle connection is checked");
            socket.step = Step::Hello { hello: socket.hello(), owed: true };
        }
        let (socket, id) = (socket.id, socket.heartbeat_id());
        if is_new {
            self.socket_last = number;
        }
        let server_connection = id.server_connection;
        self.check = Some(Check { server, socket, server_connection, since: now, deadline, is_retry, was_known });
        observer.on_event_in(now, &MonitorEvent::HeartbeatStarted { id, awaited: false }, &self.context(server));
    }

    /// Ends the check in flight after a successful reply.
    pub(super) fn succeed(
        &mut self,
        now: Instant,
        check: &Check,
        reply: &HelloReply<'_>,
        observer: &mut impl ControlObserver,
    ) {
        let duration = now.saturating_since(check.since);
        let link = self.link_mut(check.server).expect("a checked server has a slot");
        link.rtt.add_sample(duration);
        link.cooldown = None;
        let round_trip = link.rtt.average().map(|average| RoundTrip { average, minimum: link.rtt.minimum() });
        let socket = link.socket.as_mut().expect("the connection stays open");
        socket.answered(now, reply);
        let id = socket.heartbeat_id();
        self.check = None;
        observer.on_event_in(
            now,
            &MonitorEvent::HeartbeatSucceeded { id, awaited: false, duration },
            &self.context(check.server),
        );
        self.topology.handle_hello(now, check.server, reply, round_trip, observer);
        self.route();
        self.begin_next(now, observer);
    }

    /// Ends the check in flight after the server reported that it is overloaded: the server's
    /// description does not change.
    pub(super) fn pass_over(&mut self, now: Instant, check: &Check, code: i32, observer: &mut impl ControlObserver) {
        if let Some(socket) = self.link_mut(check.server).and_then(|link| link.socket.as_mut()) {
            socket.step = Step::Idle { since: now };
        }
        self.check = None;
        self.emit_failed(now, check, Cause::Command { code }, observer);
        self.begin_next(now, observer);
    }

    /// Ends the check in flight after a failure.
    pub(super) fn fail(&mut self, now: Instant, cause: Cause, observer: &mut impl ControlObserver) {
        let Some(check) = self.check.take() else { return };
        self.hang_up(check.server);
        self.emit_failed(now, &check, cause, observer);
        if let Some(link) = self.link_mut(check.server) {
            link.rtt.reset();
        }
        self.topology.handle_failed(now, check.server, cause, observer);
        self.route();
        if check.was_known && !check.is_retry && cause.is_network() && self.link(check.server).is_some() {
            self.begin_check(now, check.server, true, observer);
            return;
        }
        if let Some(link) = self.link_mut(check.server).filter(|_| !matches!(cause, Cause::Command { .. })) {
            link.cooldown = Some(now.saturating_add(COOLDOWN));
        }
        self.begin_next(now, observer);
    }

    pub(super) fn emit_failed(&self, now: Instant, check: &Check, cause: Cause, observer: &mut impl ControlObserver) {
        let Check { server, socket, server_connection, since, .. } = *check;
        let id = HeartbeatId { server, connection: socket.number(), server_connection };
        let duration = now.saturating_since(since);
        observer.on_event_in(
            now,
            &MonitorEvent::HeartbeatFailed { id, awaited: false, duration, cause },
            &self.context(server),
        );
    }

    /// The topology and address that accompany a heartbeat event.
    fn context(&self, server: ServerId) -> EventContext<'_> {
        EventContext {
            topology: Some(self.topology.id()),
            address: self.topology.address(server),
            ..EventContext::NONE
        }
    }

    pub(super) fn is_known(&self, server: ServerId) -> bool {
        self.topology.server(server).is_some_and(|server| server.server_type().is_known())
    }
}

/// A pseudo-random number for a server. It differs in each scan.
fn scattered(entropy: u32, number: u32) -> u32 {
    // The finalizer of a 32-bit mixing function: a bijection, so different servers never tie.
    let mut value = entropy ^ number.wrapping_mul(0x9e37_79b9);
    value = (value ^ (value >> 16)).wrapping_mul(0x85eb_ca6b);
    value = (value ^ (value >> 13)).wrapping_mul(0xc2b2_ae35);
    value ^ (value >> 16)
}

const _: () = assert!(size_of::<Check>() <= 96);
