//! A server machine, its sockets and its peer, on virtual time.

use super::*;
use crate::ObjectId;
use crate::monitor::MonitorEvent;
use crate::topology::SdamEvent;
use alloc::string::String;
use core::mem;
use poolhouse_wire::command::CommandReply;
use poolhouse_wire::hello::{ClientMetadata, MetadataOptions};
use poolhouse_wire::message::{Decoded, Limits, decode_message, encode_message};

/// How the peer answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Answer {
    /// It answers as a standalone.
    Good,
    /// It answers as a standalone that streams; the counter of its topology version.
    Streams(i64),
    /// It answers as a service behind a load balancer.
    Service,
    /// It does not answer.
    Silent,
    /// It answers hellos as a standalone or a service, and commands by `ok: 0` and this code.
    Command(i32),
    /// It answers every request by `ok: 0` and this code.
    Refusal(i32),
    /// It answers every request by these bytes.
    Bytes(&'static [u8]),
    /// It answers as a standalone, with these bits of this byte of the message inverted.
    Spoiled(usize, u8),
    /// It closes the connection.
    Reset,
}

pub(super) struct Socket {
    pub(super) id: SocketId,
    pub(super) input: Vec<u8>,
    /// The id of the last message in either direction.
    last: i32,
    is_reset: bool,
}

pub(super) struct Rig<'a, P: pool::Memory, T: topology::Memory, A = Unauthenticated> {
    pub(super) server: ServerMachine<'a, P, T, A>,
    pub(super) now: Instant,
    pub(super) sockets: Vec<Socket>,
    pub(super) answer: Answer,
    /// Whether the peer refuses connections.
    pub(super) refuses: bool,
    pub(super) events: Events,
    /// Id, name, and whether it has the Stable API.
    pub(super) requests: Vec<(i32, String, bool)>,
    pub(super) woken: Vec<WaiterId>,
    pub(super) dials: u32,
    /// The outcome of the last command.
    reply: Option<Result<(), Cause>>,
    pub(super) errors: Vec<SocketError>,
}

/// The events, by name.
#[derive(Default)]
pub(super) struct Events(Vec<String>);

impl Observer<PoolEvent> for Events {
    fn on_event(&mut self, _: Instant, event: &PoolEvent) {
        self.0.push(event.to_string());
    }
}

impl Observer<MonitorEvent> for Events {
    fn on_event(&mut self, _: Instant, event: &MonitorEvent) {
        self.0.push(event.to_string());
    }
}

impl Observer<SdamEvent<'_>> for Events {
    fn on_event(&mut self, _: Instant, event: &SdamEvent<'_>) {
        self.0.push(event.to_string());
    }
}

pub(super) fn second(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(super) fn client() -> ClientMetadata {
    let options = MetadataOptions { driver_name: "test", driver_version: "1", os_type: "none", ..Default::default() };
    ClientMetadata::new(&options).expect("short")
}

pub(super) fn machine<P: pool::Memory, T: topology::Memory, A: Authenticator>(
    hello: HandshakeHello<'_>,
    pool: PoolOptions,
) -> ServerMachine<'_, P, T, A> {
    let load_balanced = pool.load_balanced;
    let topology = TopologyOptions {
        seeds: &["a:1"],
        direct_connection: !load_balanced,
        load_balanced,
        ..TopologyOptions::default()
    };
    let monitor = MonitorOptions { server_monitoring_mode: ServerMonitoringMode::Stream, ..MonitorOptions::DEFAULT };
    ServerMachine::new(
        Instant::ORIGIN,
        1,
        topology.validate().expect("valid"),
        pool.validate().expect("valid"),
        monitor.validate().expect("valid"),
        hello,
        &mut (),
    )
    .expect("room")
}

pub(super) fn heap(client: &ClientMetadata) -> Rig<'_, pool::OnHeap, topology::OnHeap> {
    Rig::new(machine(HandshakeHello::new(client), PoolOptions { max_pool_size: 4, ..PoolOptions::DEFAULT }))
}

pub(super) fn fixed(client: &ClientMetadata) -> Rig<'_, pool::Fixed<2, 4>, topology::Fixed<1, 8, 8, 512>> {
    Rig::new(machine(HandshakeHello::new(client), PoolOptions::DEFAULT))
}

impl<'a, P: pool::Memory, T: topology::Memory, A: Authenticator + Default> Rig<'a, P, T, A> {
    pub(super) fn new(server: ServerMachine<'a, P, T, A>) -> Self {
        Self {
            server,
            now: Instant::ORIGIN,
            sockets: Vec::new(),
            answer: Answer::Good,
            refuses: false,
            events: Events::default(),
            requests: Vec::new(),
            woken: Vec::new(),
            dials: 0,
            reply: None,
            errors: Vec::new(),
        }
    }

    /// The number of events with this name.
    pub(super) fn count(&self, name: &str) -> usize {
        self.events.0.iter().filter(|event| event.starts_with(name)).count()
    }

    /// Carries out actions and delivers bytes until nothing is left to do at this instant.
    pub(super) fn run(&mut self) {
        for _ in 0..1000 {
            let mut is_done = true;
            while let Some(action) = self.server.poll_action(self.now) {
                self.server.assert_invariants();
                self.perform(action);
                self.server.assert_invariants();
                is_done = false;
            }
            for id in self.sockets.iter().map(|socket| socket.id).collect::<Vec<_>>() {
                is_done &= !self.receive(id);
            }
            if is_done {
                return;
            }
        }
        panic!("the machine is never done");
    }

    /// Lets time pass, with every timeout in between.
    pub(super) fn advance(&mut self, time: Duration) {
        let end = self.now.saturating_add(time);
        self.run();
        while let Some(at) = self.server.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.server.handle_timeout(self.now, &mut self.events);
            self.server.assert_invariants();
            assert!(self.server.poll_timeout().is_none_or(|at| at > self.now), "what was due is done");
            self.run();
        }
        self.now = end;
    }

    fn perform(&mut self, action: ServerAction) {
        match action {
            ServerAction::Dial(id) => {
                self.dials += 1;
                assert!(self.sockets.iter().all(|socket| socket.id != id), "a socket is dialed once");
                let dialed = if self.refuses {
                    self.server.handle_failed(self.now, id, Cause::Network, &mut self.events)
                } else {
                    self.sockets.push(Socket { id, input: Vec::new(), last: 0, is_reset: false });
                    self.server.handle_dialed_with(self.now, id, A::default(), &mut self.events)
                };
                dialed.expect("the machine has just asked for it");
            }
            ServerAction::Transmit(id) => {
                let mut full = heapless::Vec::<u8, 20>::new();
                assert_eq!(self.server.poll_transmit(id, &mut full), Err(EncodeError::Full));
                let mut bytes = Vec::new();
                assert_eq!(self.server.poll_transmit(id, &mut bytes), Ok(true), "the bytes remain due");
                assert_eq!(self.server.poll_transmit(id, &mut bytes), Ok(false));
                self.send(id, &bytes);
            }
            ServerAction::Close(id) => self.sockets.retain(|socket| socket.id != id),
            ServerAction::Wake(waiter) => self.woken.push(waiter),
            ServerAction::Checked => {}
        }
    }

    /// Sends a request; its answer arrives at once, in two pieces.
    pub(super) fn send(&mut self, id: SocketId, bytes: &[u8]) {
        let Ok(Decoded::Done { value: request, rest: [] }) = decode_message(bytes, &Limits::DEFAULT) else {
            panic!("requests are whole and valid");
        };
        let mut keys = request.body().into_iter().map(|element| element.expect("valid").key);
        let name = keys.next().expect("a command");
        self.requests.push((request.header().request_id, name.into(), keys.any(|key| key == "apiVersion")));
        let is_hello = matches!(name, "hello" | "isMaster");
        let socket = self.sockets.iter_mut().find(|socket| socket.id == id).expect("open");
        socket.last = request.header().request_id;
        let answer = match self.answer {
            Answer::Silent => return,
            Answer::Reset => {
                socket.is_reset = true;
                return;
            }
            Answer::Bytes(bytes) => return socket.input.extend(bytes),
            Answer::Command(_) if is_hello => Answer::Good,
            // A server answers an awaitable hello when its state changes: see `stream`.
            Answer::Streams(_)
                if request.body().into_iter().any(|one| one.is_ok_and(|one| one.key == "maxAwaitTimeMS")) =>
            {
                return;
            }
            Answer::Good
            | Answer::Streams(_)
            | Answer::Service
            | Answer::Command(_)
            | Answer::Refusal(_)
            | Answer::Spoiled(..) => self.answer,
        };
        let start = socket.input.len();
        write_reply(socket, answer, false);
        if let Answer::Spoiled(place, bits) = answer {
            let reply = &mut socket.input[start..];
            let length = reply.len();
            reply[place % length] ^= bits;
        }
    }

    /// Sends this many replies of a stream together.
    pub(super) fn stream(&mut self, count: u32) {
        for number in 1..=count {
            let socket = self.sockets.iter_mut().find(
                |socket| matches!(socket.id, SocketId::Monitor(conn) if conn.kind() == crate::monitor::MonitorConnKind::Check),
            );
            write_reply(socket.expect("open"), Answer::Streams(1 + i64::from(number)), true);
        }
        self.run();
    }

    /// Passes the received bytes to the machine. Returns whether there was anything to do.
    fn receive(&mut self, id: SocketId) -> bool {
        let Some(place) = self.sockets.iter().position(|socket| socket.id == id) else { return false };
        if self.sockets[place].is_reset {
            let _ = self.server.handle_failed(self.now, id, Cause::Network, &mut self.events);
            self.sockets.remove(place);
            return true;
        }
        let input = mem::take(&mut self.sockets[place].input);
        if input.is_empty() {
            return false;
        }
        let mut rest = input.as_slice();
        // First a prefix, which is no message.
        let mut length = rest.len().min(5);
        let result = loop {
            let handled = self.server.handle_input(self.now, id, &rest[..length], &mut self.events);
            self.server.assert_invariants();
            match handled {
                Ok(Received::NeedMore { bytes_min }) => {
                    assert!(bytes_min > 0, "bytes are missing");
                    if length == rest.len() {
                        break Ok(());
                    }
                }
                Ok(Received::Handled { consumed_bytes }) => rest = &rest[consumed_bytes..],
                Ok(Received::Reply { message, matched: _, consumed_bytes }) => {
                    rest = &rest[consumed_bytes..];
                    let reply = CommandReply::parse(message.body()).expect("was parsed");
                    self.reply = Some(reply.cause().map_or(Ok(()), Err));
                }
                Err(error) => break Err(error),
            }
            length = rest.len();
        };
        match result {
            Ok(()) => {
                // An incomplete message waits for the rest.
                let is_changed = rest.len() < input.len();
                self.sockets[place].input = rest.into();
                return is_changed;
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                self.errors.push(error);
                self.sockets.retain(|socket| socket.id != id);
            }
        }
        true
    }

    pub(super) fn check_out(&mut self) -> Result<Lease, CheckOutError> {
        match self.server.check_out(self.now, None, &mut self.events)? {
            CheckOut::Granted(lease) => Ok(lease),
            CheckOut::Queued(waiter) => {
                self.run();
                if self.server.pool().counts().waiting > 0 {
                    self.advance(second(10));
                }
                match self.server.claim(self.now, waiter) {
                    Claim::Granted(lease) => Ok(lease),
                    Claim::Failed(error) => Err(error),
                    Claim::Waiting | Claim::Stale => panic!("the time of a connection is limited"),
                }
            }
        }
    }

    /// Sends a command with a time limit of 60 s.
    pub(super) fn begin(&mut self, lease: &Lease) -> Result<(), CommandNotSent> {
        self.reply = None;
        let mut bytes = Vec::new();
        let deadline = Some(self.now.saturating_add(second(60)));
        self.server.write_command(lease, deadline, "admin", &mut bytes, |body| body.int32("ping", 1).map(drop))?;
        self.send(SocketId::Pool(lease.conn()), &bytes);
        Ok(())
    }

    pub(super) fn ping(&mut self, lease: &Lease) -> Result<(), Cause> {
        self.begin(lease).map_err(|error| match error {
            CommandNotSent::Failed(cause) => cause,
            CommandNotSent::Busy | CommandNotSent::Encode(_) => Cause::Resources,
        })?;
        self.run();
        if self.reply.is_none() && self.server.failure(lease).is_none() {
            self.advance(second(60));
        }
        self.reply.take().unwrap_or_else(|| Err(self.server.failure(lease).expect("no reply, so it has failed")))
    }

    pub(super) fn check_in(&mut self, lease: Lease) {
        self.server.check_in(self.now, lease, &mut self.events).expect("its own");
        self.server.assert_invariants();
        self.run();
    }
}

fn write_reply(socket: &mut Socket, answer: Answer, more: bool) {
    let id = socket.last.wrapping_add(1000);
    let flags = if more { poolhouse_wire::message::Flags::MORE_TO_COME } else { Flags::NONE };
    let outgoing = Outgoing::reply(id, socket.last).with_flags(flags);
    let written = encode_message(&mut socket.input, outgoing, &Limits::DEFAULT, |message| {
        message.body(|body| match answer {
            Answer::Command(code) | Answer::Refusal(code) => {
                body.double("ok", 0.0)?.int32("code", code)?.str("errmsg", "no").map(drop)
            }
            Answer::Good
            | Answer::Streams(_)
            | Answer::Service
            | Answer::Silent
            | Answer::Reset
            | Answer::Bytes(_)
            | Answer::Spoiled(..) => {
                body.double("ok", 1.0)?.boolean("helloOk", true)?.boolean("isWritablePrimary", true)?;
                body.int32("minWireVersion", 8)?.int32("maxWireVersion", 25)?;
                if answer == Answer::Service {
                    body.str("msg", "isdbgrid")?.object_id("serviceId", ObjectId([7; 12]))?;
                }
                if let Answer::Streams(counter) = answer {
                    body.document("topologyVersion", |version| {
                        version.object_id("processId", ObjectId([1; 12]))?.int64("counter", counter).map(drop)
                    })?;
                }
                Ok(())
            }
        })
    });
    written.expect("memory");
    socket.last = id;
}
