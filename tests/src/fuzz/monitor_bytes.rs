//! Arbitrary bytes as the output of a server to its monitor. The pieces in which they arrive must
//! not affect the result.

use core::fmt::Write;
use core::time::Duration;

use poolhouse_core::control::Control;
use poolhouse_core::monitor::{
    HelloKind, MonitorAction, MonitorConnId, MonitorConnKind, MonitorOptions, ServerMonitoringMode,
};
use poolhouse_core::topology::{Fixed, TopologyId, TopologyOptions};
use poolhouse_core::{Cause, Instant, ServerId};
use poolhouse_wire::bson::RawDocument;
use poolhouse_wire::hello::{HandshakeHello, HelloReply, encode_hello};
use poolhouse_wire::message::{
    Decoded, Exchange, Flags, HEADER_BYTES, Header, Limits, Matched, OP_MSG, RequestIds, decode_message,
};
use poolhouse_wire::{WireError, WireErrorKind};

use super::wire::framed;
use crate::oracle::log::Log;

#[cfg(test)]
mod tests;

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// All events and actions, as text.
    pub lines: Vec<String>,
    /// Number of accepted replies.
    pub replies: u32,
    /// Number of streamed replies.
    pub streamed: u32,
    /// Bytes followed the last reply. They are detected with it only if they have already arrived.
    pub unsolicited: bool,
}

/// The first byte chooses the options of the monitor. The rest is the output of the server: split
/// at each 0xfd into connections, and at each 0xfe into messages. The first byte of a message
/// chooses its fault.
///
/// Runs the monitor with the bytes unchanged, byte by byte, and in pieces. The results must be
/// equal.
pub fn monitor_bytes(data: &[u8]) {
    let whole = watch(data, usize::MAX);
    for piece in [1, 7] {
        let cut = watch(data, piece);
        if !whole.unsolicited && !cut.unsolicited {
            assert_eq!(cut, whole, "in pieces of {piece}");
        }
    }
}

/// Runs the monitor with bytes in pieces of this length.
pub fn watch(data: &[u8], piece: usize) -> Watched {
    let (choice, rest) = data.split_first().map_or((0, data), |(first, rest)| (*first, rest));
    let modes = [ServerMonitoringMode::Auto, ServerMonitoringMode::Stream, ServerMonitoringMode::Poll];
    let options = MonitorOptions {
        heartbeat_frequency: Duration::from_millis([500, 10_000][usize::from(choice / 3 % 2)]),
        server_monitoring_mode: modes[usize::from(choice) % 3],
        ..MonitorOptions::DEFAULT
    };
    let seeds = &["a:27017"];
    let topology = TopologyOptions { seeds, direct_connection: choice & 0x80 == 0, ..TopologyOptions::default() };
    let (topology, options) = (topology.validate().expect("a seed"), options.validate().expect("in range"));
    let mut log = Log::default();
    log.lines = Some(Vec::new());
    let now = Instant::from_nanos(1_000_000_000);
    let control = Control::new(now, TopologyId::new(1), topology, options, &mut log).expect("room for a seed");
    let server = control.topology().servers().next().expect("the seed").server();
    let connections = rest.split(|byte| *byte == 0xfd);
    let check = Connection::new(&[]);
    // Each byte causes only a few steps.
    let steps_max = 100 + 10 * data.len();
    Run { control, log, now, server, check, connections, piece, steps_max, watched: Watched::default() }.run()
}

struct Run<'a, I> {
    control: Control<Fixed<3, 4, 10, 96>>,
    log: Log,
    now: Instant,
    server: ServerId,
    check: Connection<'a>,
    /// The output of the server on the next connections.
    connections: I,
    piece: usize,
    steps_max: usize,
    watched: Watched,
}

/// A connection with both ends.
struct Connection<'a> {
    parts: Vec<&'a [u8]>,
    exchange: Exchange,
    ids: RequestIds,
    /// Sent and not received.
    under_way: Vec<u8>,
    /// Received and not read.
    received: Vec<u8>,
}

impl<'a> Connection<'a> {
    fn new(said: &'a [u8]) -> Self {
        let mut parts: Vec<&[u8]> = said.split(|byte| *byte == 0xfe).collect();
        parts.reverse();
        Self { parts, exchange: Exchange::IDLE, ids: RequestIds::new(), under_way: Vec::new(), received: Vec::new() }
    }

    /// The server answers a request with one message, and with the streamed ones that follow it.
    fn answer(&mut self, request_id: i32, exhaust: bool) {
        let mut response_to = request_id;
        while let Some((choice, said)) = self.parts.pop().and_then(<[u8]>::split_first) {
            if choice & 0x0f == 0x0f {
                self.under_way.extend_from_slice(said);
                return;
            }
            let more = choice & 1 == 1;
            let flags =
                if more { Flags::MORE_TO_COME } else { Flags::NONE }.bits() ^ u32::from(choice & 0x40 != 0) << 6;
            let own = response_to.wrapping_add(100);
            let answers = if choice & 0x80 == 0 { response_to } else { response_to.wrapping_sub(1) };
            self.under_way.extend_from_slice(&reply(own, answers, flags, said));
            response_to = own;
            if !more || !exhaust {
                return;
            }
        }
    }

    /// Reads the next reply like a host. Returns `None` when the server has no more output.
    fn read(&mut self, piece: usize) -> Option<Result<(Vec<u8>, Matched), WireError>> {
        loop {
            let (error, bytes_min) = match self.exchange.decode_reply(&self.received, &Limits::DEFAULT) {
                Ok(Decoded::Done { value: (message, matched), rest }) => {
                    let body = message.body().as_bytes().to_vec();
                    let consumed = self.received.len() - rest.len();
                    self.received.drain(..consumed);
                    return Some(Ok((body, matched)));
                }
                Ok(Decoded::NeedMore { bytes_min }) => (None, bytes_min),
                Err(error) => (Some(error), 0),
            };
            if let Some(error) = error {
                return Some(Err(error));
            }
            assert!(bytes_min > 0);
            if self.under_way.is_empty() {
                return None;
            }
            let count = piece.min(self.under_way.len());
            self.received.extend(self.under_way.drain(..count));
        }
    }
}

/// A message with these body elements, and the elements that make it a hello reply if they are
/// missing.
fn reply(request_id: i32, response_to: i32, flags: u32, said: &[u8]) -> Vec<u8> {
    // The first byte chooses the short elements of a correct reply. The fuzzer chooses the rest.
    let (choice, rest) = said.split_first().map_or((0, said), |(first, rest)| (*first, rest));
    let mut elements = Vec::new();
    if choice & 1 == 0 {
        elements.extend_from_slice(b"\x10ok\0\x01\0\0\0\x10maxWireVersion\0\x19\0\0\0\x08helloOk\0\x01");
    }
    if choice & 2 == 0 {
        elements.extend_from_slice(b"\x08isWritablePrimary\0\x01\x02setName\0\x03\0\0\0rs\0\x04hosts\0");
        elements.extend_from_slice(b"\x14\0\0\0\x020\0\x08\0\0\0a:27017\0\0");
    }
    if choice & 4 == 0 {
        elements.extend_from_slice(b"\x03topologyVersion\0\x2d\0\0\0\x07processId\x00111111111111\x12counter\0");
        elements.extend_from_slice(&u64::from(choice >> 3).to_le_bytes());
        elements.push(0);
    }
    elements.extend_from_slice(rest);
    let document = framed(&elements);
    let length_bytes = u32::try_from(HEADER_BYTES + 5 + document.len()).unwrap_or(u32::MAX);
    let header = Header { length_bytes, request_id, response_to, opcode: OP_MSG };
    [&header.to_bytes()[..], &flags.to_le_bytes(), &[0], &document].concat()
}

impl<'a, I: Iterator<Item = &'a [u8]>> Run<'a, I> {
    fn run(mut self) -> Watched {
        let mut over = false;
        for step in 0.. {
            assert!(step < self.steps_max, "the run does not end");
            self.settle();
            let kind = [MonitorConnKind::Check, MonitorConnKind::Rtt]
                .into_iter()
                .find(|kind| self.control.owes_conn(self.server, *kind));
            match kind {
                Some(conn) => {
                    let action = self.control.poll_conn(self.now, self.server, conn).expect("it is owed");
                    self.say(|| format!("{action:?}"));
                    over = !self.perform(action) || over;
                }
                None if over || self.control.is_ended(self.server) => break,
                None => {
                    let due = self.control.poll_timeout().expect("a monitor always has a deadline");
                    assert!(due > self.now, "no due timer is left");
                    self.now = due;
                    self.control.handle_timeout(self.now, &mut self.log);
                }
            }
            self.control.assert_invariants();
        }
        let mut shown = String::new();
        let _ = write!(shown, "{}", self.control.topology().description());
        self.say(|| shown.clone());
        self.control.close(self.now, &mut self.log);
        self.settle();
        self.log.assert_over();
        self.watched.lines = self.log.lines.take().unwrap_or_default();
        self.watched
    }

    fn say(&mut self, conn: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.log.lines {
            lines.push(conn());
        }
    }

    fn settle(&mut self) {
        while let Some(action) = self.control.poll_action() {
            self.say(|| format!("{action:?}"));
        }
        self.log.seen.clear();
    }

    /// Executes an action of the monitor. Returns false when the server accepts no more
    /// connections.
    fn perform(&mut self, action: MonitorAction) -> bool {
        self.now = self.now.saturating_add(Duration::from_millis(1));
        match action {
            MonitorAction::Hangup(_) => true,
            MonitorAction::Dial(conn) if conn.kind() == MonitorConnKind::Rtt => self.failed(conn, Cause::Network),
            MonitorAction::Dial(conn) => {
                let Some(said) = self.connections.next() else {
                    self.failed(conn, Cause::Network);
                    return false;
                };
                self.check = Connection::new(said);
                let _ = self.control.handle_dialed(self.now, self.server, conn, &mut self.log);
                true
            }
            MonitorAction::SendHello { conn, hello } => {
                self.send(hello);
                self.receive(conn)
            }
            MonitorAction::ReadNext { conn } => {
                self.watched.streamed += 1;
                self.receive(conn)
            }
        }
    }

    fn send(&mut self, hello: HelloKind) {
        let id = self.check.ids.next_id();
        let (client, mut sent) = (crate::handshake::client(), Vec::new());
        let (length, flags) = encode_hello(&mut sent, id, hello, &HandshakeHello::new(&client)).expect("it grows");
        assert_eq!(length, sent.len());
        assert!(matches!(decode_message(&sent, &Limits::DEFAULT), Ok(Decoded::Done { rest: [], .. })));
        self.check.exchange.begin(id, flags);
        self.check.answer(id, matches!(hello, HelloKind::Awaitable { .. }));
    }

    /// Reads a reply and reports it to the monitor, or reports that there is none, or that it
    /// cannot be decoded.
    fn receive(&mut self, conn: MonitorConnId) -> bool {
        let (body, matched) = match self.check.read(self.piece) {
            Some(Ok(read)) => read,
            Some(Err(error)) => {
                self.watched.unsolicited |= matches!(error.kind(), WireErrorKind::Unsolicited { .. });
                return self.failed(conn, Cause::Protocol);
            }
            None => return self.failed(conn, Cause::Network),
        };
        let document = RawDocument::new(&body).expect("it was read");
        let Ok(hello) = HelloReply::parse(document) else { return self.failed(conn, Cause::Protocol) };
        self.watched.replies += 1;
        let _ = self.control.handle_reply(self.now, self.server, conn, &hello, matched, &mut self.log);
        true
    }

    fn failed(&mut self, conn: MonitorConnId, cause: Cause) -> bool {
        let _ = self.control.handle_failed(self.now, self.server, conn, cause, &mut self.log);
        true
    }
}
