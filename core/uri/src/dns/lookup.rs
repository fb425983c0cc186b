//! A single DNS query, without I/O.
//!
//! Read first: RFC 1035, 4.2 (transports) and 7 (resolvers); RFC 5452, 9 (forged answers); RFC
//! 7766, 5 and 8 (TCP).

use super::answer::{Answer, RecordKind};
use super::config::ResolverConfig;
use super::error::LookupError;
use super::message::{self, Reply};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;
use poolhouse_core::{Instant, Reason};

/// Maximum number of aliases between a name and its records.
const ALIASES_MAX: u32 = 8;
/// Length of the prefix of a message on a stream, in bytes.
const PREFIX: usize = 2;

/// The next step that a lookup requires of its host. Each is a new attempt: the socket of the
/// previous one must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupAction {
    /// Send [`Lookup::request`] to this server from a new socket with its own port, and report
    /// received datagrams.
    Datagram(SocketAddr),
    /// Connect to this server, send [`Lookup::stream_request`], and report received bytes.
    Stream(SocketAddr),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Datagram,
    Stream,
}

#[derive(Debug)]
enum State {
    /// The next attempt is due.
    Owes(Transport),
    /// An attempt is in progress.
    Waits {
        over: Transport,
        until: Instant,
    },
    Done,
}

/// A query to the configured name servers, repeated until one of them replies. A state machine
/// without I/O.
///
/// Maximum duration: the timeout of a server, times the number of servers, times the number of
/// attempts, counted from the first action. Additional queries for aliases, truncated replies and
/// unsupported EDNS share this time.
///
/// Execute the action of [`Lookup::poll_action`]; report received bytes with
/// [`Lookup::handle_datagram`] or [`Lookup::handle_stream`], a failed socket with
/// [`Lookup::handle_failed`], and the time with [`Lookup::handle_timeout`]. When
/// [`Lookup::is_done`] returns `true`, take [`Lookup::into_result`].
#[derive(Debug)]
pub struct Lookup {
    name: String,
    kind: RecordKind,
    servers: Vec<SocketAddr>,
    timeout: Duration,
    /// The end of the whole lookup; set at the first action.
    deadline: Option<Instant>,
    transport: Transport,
    /// The number of attempts after the current one.
    left: u32,
    /// Index of the queried server.
    at: usize,
    /// Whether the query specifies the maximum datagram size (EDNS).
    edns: bool,
    aliases_left: u32,
    /// The request, with the length prefix for streams.
    request: Vec<u8>,
    id: u16,
    /// Bytes received from the stream.
    received: Vec<u8>,
    state: State,
    result: Result<Answer, LookupError>,
}

impl Lookup {
    /// Creates a query for records of this type and name. The name is complete: no search domain is
    /// appended.
    ///
    /// - `entropy`: selects the first server if `rotate` is set.
    ///
    /// # Errors
    ///
    /// [`LookupError::Name`]; [`LookupError::Unreachable`] if no server is configured.
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

    /// Handles a datagram. One that is not a reply of the queried server to this query is ignored.
    ///
    /// Cost: linear in the datagram.
    pub fn handle_datagram(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) {
        self.handle_timeout(now);
        if !matches!(self.state, State::Waits { over: Transport::Datagram, .. }) || !self.is_from(from) {
            return;
        }
        self.apply(Transport::Datagram, self.decode(bytes));
    }

    /// Handles bytes received from the stream, in pieces of any length; an empty piece means end of
    /// stream.
    ///
    /// Cost: linear in the bytes, and in the message once it is complete. Stores at most 64 KiB.
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
        self.apply(Transport::Stream, self.decode(message));
    }

    /// Reports that the socket of the last action failed: the next server is queried.
    pub fn handle_failed(&mut self) {
        if matches!(self.state, State::Waits { .. }) {
            self.fail(LookupError::Unreachable(Reason::NONE));
        }
    }

    /// Ends the current attempt if its timeout has passed, and the lookup if its deadline has
    /// passed. No effect before.
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

    /// The next attempt, if one is due. If the deadline has passed, the lookup ends.
    ///
    /// - `entropy`: the id of the query; must be unpredictable.
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
        // Cannot overflow: a query has a few hundred bytes.
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

    /// The deadline of the current attempt; `None` if none is in progress.
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

    /// Whether the lookup has ended.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// The result; [`LookupError::Timeout`] before the end.
    ///
    /// # Errors
    ///
    /// [`LookupError`].
    pub fn into_result(self) -> Result<Answer, LookupError> {
        self.result
    }

    /// Whether `from` is the queried server. The scope of an address is local to this host and not
    /// compared.
    fn is_from(&self, from: SocketAddr) -> bool {
        self.servers.get(self.at).is_some_and(|server| server.ip() == from.ip() && server.port() == from.port())
    }

    fn decode(&self, bytes: &[u8]) -> Reply {
        message::decode(bytes, self.id, &self.name, self.kind, self.aliases_left)
    }

    /// Updates the state according to a reply.
    fn apply(&mut self, over: Transport, reply: Reply) {
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
            // FORMERR or NOTIMP: the server may not support EDNS.
            Reply::Failed { code: 1 | 4 } if self.edns => {
                self.edns = false;
                self.owe(self.transport);
            }
            Reply::Failed { code } => self.fail(LookupError::ServerFailed { code }),
            Reply::Referral => self.fail(LookupError::Referral),
            // A stream carries the reply to this query only, so any other message is an error.
            Reply::Malformed | Reply::Foreign | Reply::Truncated => self.fail(LookupError::Malformed),
        }
    }

    /// The queried server failed: proceeds to the next one.
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
