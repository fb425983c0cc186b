//! Rules: the faults of the server, and the requests that they apply to.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use super::kind::RequestKind;

/// A rule: a condition on requests, and the action on their replies.
///
/// The oldest rule that matches a request is applied. All conditions of a rule must hold;
/// conditions that are not set always hold.
///
/// ```
/// use core::time::Duration;
/// use poolhouse_fake::cql::{Act, Cut, Order, RequestKind, Rule};
///
/// // The whole server.
/// let slow = Rule::statements(Act::Delay(Duration::from_millis(50)));
/// // By prefix of the text.
/// let lost = Rule::statements(Act::Lose).text("echo lost");
/// // The first statement.
/// let dropped = Rule::statements(Act::Close(Cut::Reset)).times(1);
/// // Eight replies at a time, the last one first.
/// let reversed = Rule::statements(Act::Hold { count: 8, order: Order::Reversed });
/// // The first two handshakes.
/// let overloaded = Act::Error(0x1001, "later".into());
/// let refused = Rule::on(RequestKind::Startup, overloaded).times(2);
/// // A server that accepts, reads, and never replies.
/// let silent = Rule::any(Act::Mute);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    which: Which,
    text: Option<String>,
    times: u64,
    pub(super) act: Act,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Any,
    Statements,
    One(RequestKind),
}

/// The action on a reply. The request itself was decoded and executed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Act {
    /// Delays the reply. Replies that are due at the same time are sent by one write.
    Delay(Duration),
    /// Never sends the reply; the request waits until its connection ends.
    Lose,
    /// Holds the reply until `count` replies are held on its connection, which are then sent in
    /// this order, or until [`CqlServer::release`](super::CqlServer::release).
    Hold {
        /// Number of replies; with `usize::MAX` only `release` sends them.
        count: usize,
        /// The order in which held replies are sent.
        order: Order,
    },
    /// Sends the reply with this stream id instead of that of the request.
    Stream(i16),
    /// Sends the reply twice.
    Twice,
    /// Sends the reply with this number as the version in its header.
    Version(u8),
    /// Sends the reply with a header that marks it as a request.
    Direction,
    /// Corrupts a checksum of the reply's segment. In v3 and v4, which have no checksums, the reply
    /// is sent unmodified.
    Checksum(Part),
    /// Sends a header that claims a body of this length, without a body.
    Length(i32),
    /// Sends only this many bytes of the output, then ends the connection. If there are fewer
    /// bytes, the connection ends after the reply.
    Truncate {
        /// Number of bytes.
        bytes: usize,
        /// How the connection ends.
        cut: Cut,
    },
    /// Ends the connection instead.
    Close(Cut),
    /// Sends an error with this code and this message instead, without the further fields of some codes.
    Error(i32, String),
    /// Sends these bytes instead, neither framed nor compressed.
    Raw(Vec<u8>),
    /// Sends neither this reply nor any later one of the connection; reading continues.
    Mute,
}

/// A part of a segment that has a separate checksum.
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
    /// An orderly close: the client reads the end of the stream.
    Close,
    /// A reset.
    Reset,
}

/// The order of replies that are sent together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The order of the requests.
    Kept,
    /// The last reply first.
    Reversed,
    /// Shuffled by this seed; the same seed results in the same order.
    Shuffled(u64),
}

impl Rule {
    /// Applies to every request, including those of a handshake, and OPTIONS.
    pub fn any(act: Act) -> Self {
        Self { which: Which::Any, text: None, times: u64::MAX, act }
    }

    /// Applies to QUERY, PREPARE, EXECUTE and BATCH, except those on system tables, which drivers
    /// send when they connect.
    pub fn statements(act: Act) -> Self {
        Self { which: Which::Statements, ..Self::any(act) }
    }

    /// Applies to one kind of request.
    pub fn on(kind: RequestKind, act: Act) -> Self {
        Self { which: Which::One(kind), ..Self::any(act) }
    }

    /// Only for QUERY and PREPARE whose text begins with `prefix`, and EXECUTE and BATCH of such statements;
    /// of a batch, its first statement with its values.
    #[must_use]
    pub fn text(self, prefix: &str) -> Self {
        Self { text: Some(prefix.to_owned()), ..self }
    }

    /// Applies at most `count` times.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self { times: count, ..self }
    }
}

/// The properties of a request that the conditions of rules use.
pub(super) struct RequestFacts<'a> {
    pub(super) kind: RequestKind,
    pub(super) text: &'a [u8],
    /// Whether [`Rule::statements`] applies to it.
    pub(super) is_statement: bool,
}

/// The rules in force. Replaced as a whole.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) rules: Vec<InForce>,
}

/// A rule with its count of matches, shared by all scripts that contain it.
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

    /// Returns how many times the rule was applied.
    pub(super) fn struck(&self) -> u64 {
        self.seen.load(Ordering::SeqCst).min(self.rule.times)
    }

    fn strikes(&self, looked: &RequestFacts<'_>) -> bool {
        let rule = &self.rule;
        let of_kind = match rule.which {
            Which::Any => true,
            Which::Statements => looked.is_statement,
            Which::One(kind) => looked.kind == kind,
        };
        let matches = of_kind && rule.text.as_ref().is_none_or(|prefix| looked.text.starts_with(prefix.as_bytes()));
        matches && self.seen.fetch_add(1, Ordering::SeqCst) < rule.times
    }
}

impl Script {
    /// Returns the action on the reply.
    pub(super) fn act(&self, looked: &RequestFacts<'_>) -> Option<&Act> {
        self.rules.iter().find(|one| one.rule.strikes(looked)).map(|one| &one.rule.rule.act)
    }
}
