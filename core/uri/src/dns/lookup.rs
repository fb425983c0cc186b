//! One question to the name servers.
//!
//! Read first: RFC 1035, 4.2 (transports) and 7 (resolvers); RFC 5452, 9 (forged answers); RFC 7766, 5 and 8 (TCP).

use super::answer::{Answer, RecordKind};
use super::config::ResolverConfig;
use super::error::LookupError;
use super::message::{self, Reply};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;
use poolhouse_core::{Instant, Reason};

/// How many aliases are followed from a name to its records.
const ALIASES_MAX: u32 = 8;
/// The bytes before a message on a stream.
const PREFIX: usize = 2;

/// What a lookup wants of its host. Each is a new attempt: the socket of the one before is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupAction {
    /// Send [`Lookup::request`] to this server from a socket with a port of its own, and report what is received.
    Datagram(SocketAddr),
    /// Connect to this server, send [`Lookup::stream_request`], and report what is read.
    Stream(SocketAddr),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Datagram,
    Stream,
}

#[derive(Debug)]
enum State {
    /// The next attempt is to be made.
    Owes(Transport),
    /// An attempt is under way.
    Waits {
        over: Transport,
        until: Instant,
    },
    Done,
}

/// A question to the name servers of a configuration, asked until one answers: a machine without I/O.
///
/// It lasts no longer than the time of one server, times their number, times the attempts, counted from the first action. Aliases, answers
/// that are cut off and refusals to understand, each of which makes for another question, share that time.
///
/// Take [`Lookup::poll_action`] and do it; report what is received by [`Lookup::handle_datagram`] or [`Lookup::handle_stream`], a
/// socket that failed by [`Lookup::handle_failed`], and the time by [`Lookup::handle_timeout`]; until [`Lookup::into_result`] is due, as
/// [`Lookup::is_done`] says.
#[derive(Debug)]
pub struct Lookup {
    name: String,
    kind: RecordKind,
    servers: Vec<SocketAddr>,
    timeout: Duration,
    /// When all is over, whatever is under way; from the first action on.
    deadline: Option<Instant>,
    transport: Transport,
    /// Attempts that are left after this one.
    left: u32,
    /// The server that is asked.
    at: usize,
    /// Whether to say how large a datagram may be.
    edns: bool,
    aliases_left: u32,
    /// The request, with the prefix that a stream has.
    request: Vec<u8>,
    id: u16,
    /// What has been read of a stream.
    received: Vec<u8>,
    state: State,
    result: Result<Answer, LookupError>,
}

impl Lookup {
    /// Asks what there is of this kind under this name, which is complete: no domain is added to it.
    ///
    /// - `entropy`: which server is the first, if they take turns.
    ///
    /// # Errors
    ///
    /// [`LookupError::Name`]; [`LookupError::Unreachable`] if there is no server to ask.
    pub fn new(config: &ResolverConfig, name: &str, kind: RecordKind, entropy: u32) -> Result<Self, LookupError> {
        let name = name.strip_suffix('.').unwrap_or(name);
        if !message::is_name(name) {
            return Err(LookupError::Name);
        }
        let servers = config.servers();
        let count = u32::try_from(servers.len()).unwrap_or(u32::MAX);
        let attempts = count.saturating_mul(config.attempts.max(1));
        let left = attempts.checked_sub(1).ok_or(LookupError::Unreachable(Reason::NONE))?;
        let first = if config.rotate { entropy as usize % servers.len() } else { 0 };
        let transport = if config.tcp { Transport::Stream } else { Transport::Datagram };
        Ok(Self {
            name: name.into(),
            kind,
            servers: servers.into(),
            timeout: config.timeout,
            deadline: None,
            transport,
            left,
            at: first,
            edns: true,
            aliases_left: ALIASES_MAX,
            request: Vec::new(),
            id: 0,
            received: Vec::new(),
            state: State::Owes(transport),
            result: Err(LookupError::Timeout),
        })
    }

    /// Takes note of a datagram. One that is not the answer of the server that was asked changes nothing.
    ///
    /// Cost: linear in the datagram.
    pub fn handle_datagram(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) {
        self.handle_timeout(now);
        if !matches!(self.state, State::Waits { over: Transport::Datagram, .. }) || !self.is_from(from) {
            return;
        }
        self.settle(Transport::Datagram, self.decode(bytes));
    }

    /// Takes note of bytes that were read from the stream, in whatever pieces; none at all is its end.
    ///
    /// Cost: linear in the bytes, and in the message once it is complete. Keeps 64 KiB at most.
    pub fn handle_stream(&mut self, now: Instant, bytes: &[u8]) {
        self.handle_timeout(now);
        if !matches!(self.state, State::Waits { over: Transport::Stream, .. }) {
            return;
        }
        if bytes.is_empty() {
            return self.fail(LookupError::Unreachable(Reason::NONE));
        }
        let room = (PREFIX + usize::from(u16::MAX)).saturating_sub(self.received.len());
        self.received.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        let Some((prefix, rest)) = self.received.split_first_chunk::<PREFIX>() else { return };
        let Some(message) = rest.get(..usize::from(u16::from_be_bytes(*prefix))) else { return };
        self.settle(Transport::Stream, self.decode(message));
    }

    /// Takes note that the socket of the last action cannot be used: the next server is asked.
    pub fn handle_failed(&mut self) {
        if matches!(self.state, State::Waits { .. }) {
            self.fail(LookupError::Unreachable(Reason::NONE));
        }
    }

    /// Gives up waiting for a server whose time is over, and all of it if there is no more time. Before that it changes nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|until| until > now) {
            return;
        }
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.finish(Err(LookupError::Timeout));
        } else {
            self.fail(LookupError::Timeout);
        }
    }

    /// The next attempt, if it is due. If there is no time for one, the lookup comes to its end.
    ///
    /// - `entropy`: makes the id of the question, and should be such that nobody can guess it.
    pub fn poll_action(&mut self, now: Instant, entropy: u32) -> Option<LookupAction> {
        let State::Owes(over) = self.state else { return None };
        let attempts = self.left.saturating_add(1);
        let all = self.timeout.saturating_mul(attempts);
        let deadline = *self.deadline.get_or_insert_with(|| now.saturating_add(all));
        if deadline <= now {
            self.finish(Err(LookupError::Timeout));
            return None;
        }
        let [_, _, id @ ..] = entropy.to_be_bytes();
        self.id = u16::from_be_bytes(id);
        let message = match message::encode(self.id, &self.name, self.kind, self.edns) {
            Ok(message) => message,
            Err(error) => {
                self.finish(Err(error));
                return None;
            }
        };
        // A question is a few hundred bytes.
        let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
        self.request.clear();
        self.request.extend_from_slice(&length.to_be_bytes());
        self.request.extend_from_slice(&message);
        self.received.clear();
        self.state = State::Waits { over, until: now.saturating_add(self.timeout).min(deadline) };
        let server = *self.servers.get(self.at)?;
        Some(match over {
            Transport::Datagram => LookupAction::Datagram(server),
            Transport::Stream => LookupAction::Stream(server),
        })
    }

    /// When the server that is asked has had its time; `None` if none is.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Waits { until, .. } => Some(until),
            State::Owes(_) | State::Done => None,
        }
    }

    /// The datagram to send.
    #[must_use]
    pub fn request(&self) -> &[u8] {
        self.request.get(PREFIX..).unwrap_or_default()
    }

    /// The bytes to write to a stream.
    #[must_use]
    pub fn stream_request(&self) -> &[u8] {
        &self.request
    }

    /// Whether it has come to its end.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// What was found; [`LookupError::Timeout`] before the end.
    ///
    /// # Errors
    ///
    /// [`LookupError`].
    pub fn into_result(self) -> Result<Answer, LookupError> {
        self.result
    }

    /// Whether this is the server that was asked. The scope of an address is this host's own affair.
    fn is_from(&self, from: SocketAddr) -> bool {
        self.servers.get(self.at).is_some_and(|server| server.ip() == from.ip() && server.port() == from.port())
    }

    fn decode(&self, bytes: &[u8]) -> Reply {
        message::decode(bytes, self.id, &self.name, self.kind, self.aliases_left)
    }

    /// Draws the consequences of an answer.
    fn settle(&mut self, over: Transport, reply: Reply) {
        match reply {
            Reply::Foreign if over == Transport::Datagram => {}
            Reply::Truncated if over == Transport::Datagram => self.owe(Transport::Stream),
            Reply::Found(answer) => self.finish(Ok(answer)),
            Reply::NoSuchName => self.finish(Err(LookupError::NoSuchName)),
            Reply::NoRecords => self.finish(Err(LookupError::NoRecords)),
            Reply::Aliases => self.finish(Err(LookupError::Aliases)),
            Reply::Text => self.finish(Err(LookupError::Text)),
            Reply::Alias { name, steps } => {
                self.aliases_left = self.aliases_left.saturating_sub(steps);
                self.name = name;
                self.owe(self.transport);
            }
            // FORMERR and NOTIMP: perhaps it knows nothing of sizes of datagrams.
            Reply::Failed { code: 1 | 4 } if self.edns => {
                self.edns = false;
                self.owe(self.transport);
            }
            Reply::Failed { code } => self.fail(LookupError::ServerFailed { code }),
            Reply::Referral => self.fail(LookupError::Referral),
            // A stream belongs to the one question: whatever else is in it, is wrong.
            Reply::Malformed | Reply::Foreign | Reply::Truncated => self.fail(LookupError::Malformed),
        }
    }

    /// The server that is asked is of no use: asks the next.
    fn fail(&mut self, error: LookupError) {
        match self.left.checked_sub(1) {
            None => self.finish(Err(error)),
            Some(left) => {
                self.left = left;
                self.at = (self.at + 1) % self.servers.len().max(1);
                self.owe(self.transport);
            }
        }
    }

    fn owe(&mut self, over: Transport) {
        self.received = Vec::new();
        self.state = State::Owes(over);
    }

    fn finish(&mut self, result: Result<Answer, LookupError>) {
        self.received = Vec::new();
        self.state = State::Done;
        self.result = result;
    }
}
