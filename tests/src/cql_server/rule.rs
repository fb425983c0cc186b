//! What the server does wrong, and to which requests.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use poolhouse_cql::{ErrorCode, Opcode};

/// A rule: which requests, and what becomes of their replies.
///
/// Of the rules in force the oldest that matches a request has its way. All conditions of a rule must hold; those that are not set always do.
///
/// ```
/// use core::time::Duration;
/// use poolhouse_cql::{ErrorCode, Opcode};
/// use poolhouse_tests::cql_server::{Act, Cut, Order, Rule};
///
/// // The whole server.
/// let slow = Rule::statements(Act::Delay(Duration::from_millis(50)));
/// // By text: all that begin so.
/// let lost = Rule::statements(Act::Lose).text("echo lost");
/// // One connection, the third that was accepted, from its hundredth statement on.
/// let dropped = Rule::statements(Act::Close(Cut::Reset)).connection(3).statement(100);
/// // Eight replies at a time, the last one first.
/// let reversed = Rule::statements(Act::Hold { count: 8, order: Order::Reversed });
/// // The first two handshakes.
/// let refused = Rule::on(Opcode::Startup, Act::Error(ErrorCode::OVERLOADED, "later".into())).times(2);
/// // A server that accepts, reads, and never says anything.
/// let silent = Rule::any(Act::Mute);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    which: Which,
    connection: Option<u64>,
    text: Option<String>,
    statement: u64,
    skip: u64,
    times: u64,
    pub(super) act: Act,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Any,
    Statements,
    One(Opcode),
}

/// What becomes of a reply. The request was understood and, but for the reply, done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Act {
    /// It is sent so much later. Those that are due together are sent by one write.
    Delay(Duration),
    /// It is never sent; the request waits until its connection ends.
    Lose,
    /// It is kept until so many are kept on its connection, and all are sent in this order, or until
    /// [`CqlServer::release`](super::CqlServer::release).
    Hold {
        /// How many; `usize::MAX` only ends by release.
        count: usize,
        /// The order of those that are sent together.
        order: Order,
    },
    /// It is sent by this stream id instead of that of the request.
    Stream(i16),
    /// It is sent twice.
    Twice,
    /// Its header has this number as the version.
    Version(u8),
    /// Its header says that it is a request.
    Direction,
    /// A checksum of the segment that it travels in is wrong. In v3 and v4, which have none, it is sent as it is.
    Checksum(Part),
    /// Its header claims a body of this length, without any.
    Length(i32),
    /// Of what is to be sent only so many bytes are; then the connection ends. With more than there are it ends behind the reply.
    Truncate {
        /// How many bytes.
        bytes: usize,
        /// How it ends.
        cut: Cut,
    },
    /// The connection ends instead.
    Close(Cut),
    /// An error is sent instead. Nothing follows its message: codes that want more than one want [`Answer`](Self::Answer).
    Error(ErrorCode, String),
    /// Another message is sent instead.
    Answer {
        /// What it is.
        opcode: Opcode,
        /// Its body.
        body: Vec<u8>,
    },
    /// These bytes are sent instead, and neither framed nor compressed.
    Raw(Vec<u8>),
    /// It is sent, and nothing more is read from the connection.
    StopReading,
    /// It is not sent, nor is any later one of the connection, which goes on reading.
    Mute,
}

/// A part of a segment with a checksum of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The header, with its CRC-24.
    Header,
    /// The payload, with its CRC-32.
    Payload,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// In order: the client reads the end of the stream.
    Close,
    /// By a reset.
    Reset,
}

/// The order of replies that are sent together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// That of the requests.
    Kept,
    /// The last one first.
    Reversed,
    /// Shuffled by this seed; the same seed gives the same order.
    Shuffled(u64),
}

impl Rule {
    /// For every request: also those of a handshake, and OPTIONS.
    pub fn any(act: Act) -> Self {
        Self { which: Which::Any, connection: None, text: None, statement: 0, skip: 0, times: u64::MAX, act }
    }

    /// For QUERY, PREPARE, EXECUTE and BATCH. Those that ask for system tables, as clients do when they connect, are none.
    pub fn statements(act: Act) -> Self {
        Self { which: Which::Statements, ..Self::any(act) }
    }

    /// For one kind of request.
    pub fn on(opcode: Opcode, act: Act) -> Self {
        Self { which: Which::One(opcode), ..Self::any(act) }
    }

    /// Only on this connection. They are counted from 1 on, as they are accepted.
    #[must_use]
    pub fn connection(self, id: u64) -> Self {
        Self { connection: Some(id), ..self }
    }

    /// Only for QUERY and PREPARE of texts that begin so, and EXECUTE of those.
    #[must_use]
    pub fn text(self, prefix: &str) -> Self {
        Self { text: Some(prefix.to_owned()), ..self }
    }

    /// Only from the statement of this number on, counted from 1 on for each connection, as by [`statements`](Self::statements).
    #[must_use]
    pub fn statement(self, number: u64) -> Self {
        Self { statement: number, ..self }
    }

    /// Not for the first so many requests that match otherwise.
    #[must_use]
    pub fn skip(self, count: u64) -> Self {
        Self { skip: count, ..self }
    }

    /// Only so many times.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self { times: count, ..self }
    }
}

/// What rules look at.
pub(super) struct Looked<'a> {
    pub(super) connection: u64,
    pub(super) opcode: Opcode,
    pub(super) text: &'a [u8],
    /// The number of the statement; `None` if it is none.
    pub(super) statement: Option<u64>,
    /// How many statements the connection has had, this one included.
    pub(super) statements: u64,
}

/// The rules in force. Replaced as a whole.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) rules: Vec<InForce>,
}

/// A rule, and what it has seen. Shared by all scripts that it is in.
#[derive(Clone, Debug)]
pub(super) struct InForce {
    pub(super) number: usize,
    pub(super) rule: alloc::sync::Arc<Counted>,
}

#[derive(Debug)]
pub(super) struct Counted {
    pub(super) rule: Rule,
    seen: AtomicU64,
}

impl Counted {
    pub(super) const fn new(rule: Rule) -> Self {
        Self { rule, seen: AtomicU64::new(0) }
    }

    /// How often it had its way.
    pub(super) fn struck(&self) -> u64 {
        self.seen.load(Ordering::SeqCst).saturating_sub(self.rule.skip).min(self.rule.times)
    }

    fn strikes(&self, looked: &Looked<'_>) -> bool {
        let rule = &self.rule;
        let of_kind = match rule.which {
            Which::Any => true,
            Which::Statements => looked.statement.is_some(),
            Which::One(opcode) => looked.opcode == opcode,
        };
        let matches = of_kind
            && rule.connection.is_none_or(|id| id == looked.connection)
            && rule.text.as_ref().is_none_or(|prefix| looked.text.starts_with(prefix.as_bytes()))
            && looked.statements >= rule.statement;
        if !matches {
            return false;
        }
        let before = self.seen.fetch_add(1, Ordering::SeqCst);
        before >= rule.skip && before - rule.skip < rule.times
    }
}

impl Script {
    /// What is to become of the reply.
    pub(super) fn act(&self, looked: &Looked<'_>) -> Option<&Act> {
        self.rules.iter().find(|one| one.rule.strikes(looked)).map(|one| &one.rule.rule.act)
    }
}
