//! The client's end of connections: the sockets of its host, and the real codec that decodes the
//! received bytes.

use super::client::Want;
use super::kind::Kind;
use super::links::{Event, Network, Owner, Packet, Work};
use super::plan::MS;
use super::simulation::Simulation;
use crate::choices::Choices;
use crate::handshake;
use crate::oracle::pool::Bounded;
use core::time::Duration;
use poolhouse_auth::{
    Authentication, AuthenticationOptions, Credential, ENTROPY_BYTES, Mechanism, ScramKeys, ScramMechanism,
};
use poolhouse_core::monitor::{HelloKind, MonitorConnId};
use poolhouse_core::pool::ConnId;
use poolhouse_core::{Cause, CertificateFault, ServerId};
use poolhouse_wire::Phase;
use poolhouse_wire::handshake::{Handshake, HandshakeError, Next};
use poolhouse_wire::hello::{ClientMetadata, HandshakeHello, HelloReply, encode_hello};
use poolhouse_wire::message::{Decoded, Limits};
use std::sync::LazyLock;

/// The user name.
pub(super) const USER: &str = "user";
pub(super) const PASSWORD: &str = "password";
/// The salt of the server. It is the same in each run, so keys are derived only once.
pub(super) const SALT_WORD: u64 = 0x0102_0304_0506_0708;
const SALT_BYTES: usize = 28;
pub(super) const ITERATIONS: u32 = 4_096;

static METADATA: LazyLock<ClientMetadata> = LazyLock::new(handshake::client);
static KEYS: LazyLock<ScramKeys> = LazyLock::new(|| {
    let salt: Vec<u8> = SALT_WORD.to_le_bytes().into_iter().cycle().take(SALT_BYTES).collect();
    ScramKeys::derive(ScramMechanism::Sha256, USER, PASSWORD, &salt, ITERATIONS).expect("a good password")
});

impl<M: Bounded> Simulation<'_, M> {
    /// Executes a network request of the client.
    pub(super) fn execute_request(&mut self, want: &Want) {
        match *want {
            Want::Dial { server, conn, member } => {
                let link = self.net.connect(server, Owner::Monitor(conn), member);
                self.start_connect(link, member);
            }
            Want::Hello { server, conn, hello } => self.send_hello(server, conn, hello),
            Want::Read { server, conn } => {
                let link = self.net.find(server, Owner::Monitor(conn)).expect("the monitor connection exists");
                let of = self.net.links.get_mut(&link).expect("found");
                assert!(of.up && !of.near.reads, "S15: one read at a time");
                of.near.reads = true;
                self.pump(link);
            }
            Want::Hangup { server, conn } => self.net.hang_up(server, Owner::Monitor(conn)),
            Want::Gone { server } => self.net.forget_conns(server),
            Want::Close { server, conn } => self.net.hang_up(server, Owner::Conn(conn)),
            Want::Establish { server, conn, member } => {
                let link = self.net.connect(server, Owner::Conn(conn), member);
                self.dialed_in_peace(member);
                self.net.at(self.now + self.plan.connect, Event::EstablishLate(server, conn));
                self.start_connect(link, member);
            }
        }
    }

    /// Starts a connection attempt. Its result is decided when the request arrives at the member,
    /// unless the request is lost.
    fn start_connect(&mut self, link: u64, member: usize) {
        const FAULTS: [Kind; 5] =
            [Kind::ConnectRefused, Kind::ConnectBlackHole, Kind::ConnectSlow, Kind::TlsFailure, Kind::DnsFailure];
        let mut at = self.now + self.delay();
        match self.roll(&FAULTS) {
            Some(Kind::ConnectRefused) => return self.net.at(at, Event::ConnectFails(link, Cause::Network)),
            Some(Kind::ConnectBlackHole) => return,
            Some(Kind::ConnectSlow) => at += u64::from(self.draws.network.below(12_000)) * MS,
            Some(Kind::TlsFailure) => {
                let cause = self.tls_cause();
                return self.net.at(at, Event::ConnectFails(link, cause));
            }
            Some(Kind::DnsFailure) => return self.net.at(at, Event::ConnectFails(link, Cause::Dns)),
            _ => {}
        }
        let way = self.truth.members[member].way;
        if !way.lost_there && !way.lost_back {
            self.net.at(at, Event::Arrives(link));
        }
    }

    /// The cause of a failed TLS handshake: a certificate, or the network.
    fn tls_cause(&mut self) -> Cause {
        self.draws.network.one_of(&[
            Cause::Certificate(CertificateFault::Expired),
            Cause::Certificate(CertificateFault::UnknownIssuer),
            Cause::Certificate(CertificateFault::WrongName),
            Cause::Network,
        ])
    }

    /// A connection request arrives at its member, or at its host.
    pub(super) fn arrive(&mut self, id: u64) {
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let known = &self.truth.members[link.member];
        if known.silent && !known.up {
            return;
        }
        if !known.up || known.way.refused {
            return self.connect_failed(id, Cause::Network);
        }
        if known.way.tls_broken {
            let cause = self.tls_cause();
            return self.connect_failed(id, cause);
        }
        (link.up, link.process) = (true, known.process);
        let server = link.server;
        match link.owner {
            Owner::Monitor(conn) => {
                link.near.work = Work::MonitorConnKind;
                self.client.dialed(server, conn).expect("the monitor connection was not abandoned");
            }
            Owner::Conn(_) => {
                let authentication = self.plan.login.then(|| self.authentication());
                // Arbiters must also know the user, whatever type they report, except on a direct
                // connection.
                let is_direct = self.plan.direct.is_some();
                let handshake = Handshake::with_authenticator(HandshakeHello::new(&METADATA), authentication)
                    .with_arbiters_exempt(is_direct);
                let link = self.net.links.get_mut(&id).expect("it stands");
                link.near.work = Work::Shake(Box::new(handshake));
                self.continue_handshake(id);
            }
        }
    }

    fn authentication(&mut self) -> Authentication<'static> {
        let entropy = &mut self.draws.entropy;
        let bytes: [u8; ENTROPY_BYTES] = core::array::from_fn(|_| u8::try_from(entropy.below(256)).unwrap_or(0));
        let credential = Credential::new(USER, PASSWORD).mechanism(Mechanism::SCRAM_SHA_256);
        let options = AuthenticationOptions { keys: Some(KEYS.clone()), ..AuthenticationOptions::new(bytes) };
        Authentication::new(credential, options).expect("a good password")
    }

    /// A connection attempt has failed.
    pub(super) fn connect_failed(&mut self, id: u64, cause: Cause) {
        let Some(link) = self.net.links.get(&id) else { return };
        let (server, owner) = (link.server, link.owner);
        self.trace_line(|| format!("#{server} {owner:?}: no connection, {cause}"));
        self.net.drop_link(id);
        match owner {
            Owner::Monitor(conn) => {
                self.client.failed(server, conn, cause).expect("the monitor connection was not abandoned")
            }
            Owner::Conn(conn) => {
                let phase = if matches!(cause, Cause::Certificate(_)) { Phase::Tls } else { Phase::Connect };
                self.not_established(server, conn, &HandshakeError::new(phase, cause));
            }
        }
    }

    /// The client sends bytes.
    pub(super) fn send(&mut self, id: u64, bytes: Vec<u8>) {
        let at = self.now + self.delay();
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let member = link.member;
        if self.truth.members[member].way.lost_there {
            link.lost_there = true;
        }
        self.counters.bytes += bytes.len() as u64;
        if self.trace.is_some() {
            let digest = fnv(&bytes);
            self.trace_line(|| format!("{id} -> n{member}: {} bytes, {digest:016x}", bytes.len()));
        }
        self.net.send_there(id, at, bytes);
    }

    fn send_hello(&mut self, server: ServerId, conn: MonitorConnId, hello: HelloKind) {
        let id = self.net.find(server, Owner::Monitor(conn)).expect("the monitor connection exists");
        let link = self.net.links.get_mut(&id).expect("found");
        assert!(link.up && !link.near.reads, "S15: one exchange at a time");
        let request = link.near.ids.next_id();
        let mut bytes = Vec::new();
        let (_, flags) =
            encode_hello(&mut bytes, request, hello, &HandshakeHello::new(&METADATA)).expect("a hello is short");
        link.near.exchange.begin(request, flags);
        link.near.reads = true;
        self.send(id, bytes);
        // Unsolicited bytes are read now.
        self.pump(id);
    }

    /// A packet arrives at the client.
    pub(super) fn receive(&mut self, id: u64, sent: u64, packet: Packet) {
        if self.net.is_reordered(sent) {
            self.counters.count(Kind::Reordered);
        }
        let Some(link) = self.net.links.get_mut(&id).filter(|link| !link.lost_back) else { return };
        let near = &mut link.near;
        match packet {
            Packet::Bytes(bytes) => {
                near.input.append(&mut near.held);
                near.input.extend(bytes);
            }
            Packet::Held(bytes) => return near.held.extend(bytes),
            Packet::Split(bytes) => {
                near.input.append(&mut near.held);
                for byte in bytes {
                    if let Some(link) = self.net.links.get_mut(&id) {
                        link.near.input.push(byte);
                        self.pump(id);
                    }
                }
                return;
            }
            Packet::End | Packet::Reset => {
                near.input.append(&mut near.held);
                near.has_ended = true;
            }
        }
        self.pump(id);
    }

    /// Releases the bytes that were held back for more.
    pub(super) fn flush(&mut self, id: u64) {
        if let Some(link) = self.net.links.get_mut(&id) {
            link.near.input.append(&mut link.near.held);
            self.pump(id);
        }
    }

    /// Reads the received bytes, if the connection expects any.
    pub(super) fn pump(&mut self, id: u64) {
        let Some(link) = self.net.links.get(&id) else { return };
        match link.near.work {
            Work::Connect | Work::Idle => {}
            Work::MonitorConnKind => self.read_line(id),
            Work::Shake(_) => self.continue_handshake(id),
            Work::Task(task) => self.read_task(id, task),
        }
    }

    fn read_line(&mut self, id: u64) {
        let Self { net, client, .. } = self;
        let Some(link) = net.links.get_mut(&id).filter(|link| link.near.reads) else { return };
        let Owner::Monitor(conn) = link.owner else { return };
        let (server, near) = (link.server, &mut link.near);
        let input = &near.input;
        let failed = match near.exchange.decode_reply(input, &Limits::DEFAULT) {
            Ok(Decoded::NeedMore { .. }) if near.has_ended => Cause::Network,
            Ok(Decoded::NeedMore { .. }) => return,
            Err(_) => Cause::Protocol,
            Ok(Decoded::Done { value: (message, matched), rest }) => {
                let consumed = input.len() - rest.len();
                let body = message.body();
                match HelloReply::parse(body) {
                    Err(_) => Cause::Protocol,
                    Ok(hello) => {
                        near.reads = false;
                        client
                            .replied(server, conn, &hello, matched)
                            .expect("the monitor connection was not abandoned");
                        near.input.drain(..consumed);
                        return self.settle();
                    }
                }
            }
        };
        self.trace_line(|| format!("#{server} {conn:?}: {failed}"));
        self.net.drop_link(id);
        self.client.failed(server, conn, failed).expect("the monitor connection was not abandoned");
        self.settle();
    }

    /// Continues a handshake until it needs more bytes.
    fn continue_handshake(&mut self, id: u64) {
        loop {
            let Self { net, client, .. } = self;
            let Some(link) = net.links.get_mut(&id) else { return };
            let (server, Owner::Conn(conn)) = (link.server, link.owner) else { return };
            let near = &mut link.near;
            let Work::Shake(handshake) = &mut near.work else { return };
            let mut bytes = Vec::new();
            if handshake.poll_transmit(&mut bytes).expect("memory") {
                self.send(id, bytes);
                continue;
            }
            let handled = match handshake.handle_input(&near.input) {
                Ok(handled) => handled,
                Err(error) => {
                    net.drop_link(id);
                    return self.not_established(server, conn, &error);
                }
            };
            let (consumed, next) = (handled.consumed_bytes, handled.next);
            if let Some(hello) = &handled.hello {
                client.app_hello(server, conn, hello);
            }
            near.input.drain(..consumed);
            let ended = near.has_ended.then(|| handshake.failed(Cause::Network));
            if let Next::Established(established) = next {
                (near.ids, near.limits) = (established.request_ids, established.sizes.limits());
                near.work = Work::Idle;
            }
            match next {
                Next::Transmit | Next::Work => {}
                Next::Receive { .. } => {
                    if let Some(error) = ended {
                        self.net.drop_link(id);
                        self.not_established(server, conn, &error);
                    }
                    return;
                }
                Next::Established(_) => return self.established(server, conn),
            }
            // The processing of the hello may have abandoned the connection.
            self.settle();
        }
    }

    fn established(&mut self, server: ServerId, conn: ConnId) {
        // The effects of the hello are processed first.
        self.settle();
        let is_wanted = self.client.established(server, conn);
        self.trace_line(|| format!("#{server} {conn:?} is established: {is_wanted}"));
        self.counters.count(if is_wanted { Kind::Established } else { Kind::EstablishedLate });
        if !is_wanted {
            self.net.hang_up(server, Owner::Conn(conn));
        } else if self.plan.login {
            self.counters.count(Kind::Authenticated);
        }
        self.settle();
    }

    pub(super) fn not_established(&mut self, server: ServerId, conn: ConnId, error: &HandshakeError) {
        self.trace_line(|| format!("#{server} {conn:?} is not established: {error}"));
        if let Some(overloaded) = self.client.not_established(server, conn, error) {
            self.counters.count(if overloaded { Kind::Overloaded } else { Kind::NotEstablished });
        }
        self.settle();
    }

    /// The establishment of a connection has timed out.
    pub(super) fn establish_late(&mut self, server: ServerId, conn: ConnId) {
        let Some(id) = self.net.find(server, Owner::Conn(conn)) else { return };
        let link = &self.net.links[&id];
        let error = match &link.near.work {
            Work::Connect => HandshakeError::new(Phase::Connect, Cause::NetworkTimeout),
            Work::Shake(handshake) => handshake.failed(Cause::NetworkTimeout),
            Work::MonitorConnKind | Work::Idle | Work::Task(_) => return,
        };
        self.net.drop_link(id);
        self.not_established(server, conn, &error);
    }

    /// A duration of the client's host, from nanoseconds.
    pub(super) const fn duration(nanos: u64) -> Duration {
        Duration::from_nanos(nanos)
    }
}

/// FNV-1a.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

impl Network {
    /// The socket of an established pool connection.
    pub(super) fn conn(&mut self, server: ServerId, conn: ConnId) -> u64 {
        self.find(server, Owner::Conn(conn)).expect("a connection has a socket")
    }
}
