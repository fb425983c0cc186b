//! Faults at the byte level that the fake server can inject into the stream of a connection.

use alloc::collections::BTreeMap;
use core::time::Duration;

/// How a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// An orderly end: the peer reads end-of-file.
    Fin,
    /// A reset: the peer's next call fails.
    Rst,
}

/// A fault. All except [`CloseOnAccept`](Self::CloseOnAccept) and
/// [`UnwantedReply`](Self::UnwantedReply) affect a reply, also each reply of an exhaust stream.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Close the connection right after accepting it.
    CloseOnAccept(Cut),
    /// Never reply again on this connection; received bytes are dropped (a black hole).
    Silence,
    /// Send the reply only after this time.
    Delay(Duration),
    /// Cut the connection after this many bytes were sent on it since it was accepted. Fires only
    /// on the reply that reaches that byte.
    CutStream {
        /// Bytes of the whole stream that still arrive.
        after_bytes: u64,
        /// How it ends.
        by: Cut,
    },
    /// Send the reply byte by byte, each in a separate segment, with this time in between.
    Trickle {
        /// Time between bytes; zero = only a yield.
        gap: Duration,
    },
    /// Send these bytes in place of the reply.
    Garbage(Vec<u8>),
    /// Set another responseTo than the requestID.
    WrongResponseTo,
    /// Send the reply twice.
    DuplicateReply,
    /// Send only the start of the reply, then cut.
    TruncatedFrame {
        /// Bytes of the reply that still arrive; at most all but one.
        bytes: usize,
        /// How it ends.
        by: Cut,
    },
    /// Set another length in the reply's header.
    LengthLie(i32),
    /// Set another opcode in the reply's header.
    OpCodeLie(i32),
    /// Set the flag moreToCome on a reply although no other reply follows.
    MoreToComeLie,
    /// Set the flag checksumPresent and send a wrong checksum.
    BadChecksum,
    /// Send a valid header for the request, then these bytes in place of the body (malformed
    /// sections or BSON).
    RawBody(Vec<u8>),
    /// Send all but the last byte of the reply, then no further bytes.
    NeverFinished,
    /// Send a well-formed reply of this size instead.
    Oversized {
        /// Bytes of the whole message.
        bytes: u32,
    },
    /// Send these bytes after the reply, unsolicited.
    Unsolicited(Vec<u8>),
    /// Reply to a request with the flag moreToCome, which has no reply.
    UnwantedReply,
}

/// The kinds of faults, including those of the whole server, each with a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FaultKind {
    /// [`FakeServer::refuse`](super::FakeServer::refuse).
    Refuse,
    /// [`FakeServer::freeze`](super::FakeServer::freeze).
    Freeze,
    /// [`FakeServer::kill`](super::FakeServer::kill).
    Kill,
    /// [`FakeServer::cut`](super::FakeServer::cut).
    CutNow,
    /// [`Fault::CloseOnAccept`].
    CloseOnAccept,
    /// [`Fault::Silence`].
    Silence,
    /// [`Fault::Delay`].
    Delay,
    /// [`Fault::CutStream`].
    CutStream,
    /// [`Fault::Trickle`].
    Trickle,
    /// [`Fault::Garbage`].
    Garbage,
    /// [`Fault::WrongResponseTo`].
    WrongResponseTo,
    /// [`Fault::DuplicateReply`].
    DuplicateReply,
    /// [`Fault::TruncatedFrame`].
    TruncatedFrame,
    /// [`Fault::LengthLie`].
    LengthLie,
    /// [`Fault::OpCodeLie`].
    OpCodeLie,
    /// [`Fault::MoreToComeLie`].
    MoreToComeLie,
    /// [`Fault::BadChecksum`].
    BadChecksum,
    /// [`Fault::RawBody`].
    RawBody,
    /// [`Fault::NeverFinished`].
    NeverFinished,
    /// [`Fault::Oversized`].
    Oversized,
    /// [`Fault::Unsolicited`].
    Unsolicited,
    /// [`Fault::UnwantedReply`].
    UnwantedReply,
}

impl Fault {
    /// Returns the kind under which the fault is counted.
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::CloseOnAccept(_) => FaultKind::CloseOnAccept,
            Self::Silence => FaultKind::Silence,
            Self::Delay(_) => FaultKind::Delay,
            Self::CutStream { .. } => FaultKind::CutStream,
            Self::Trickle { .. } => FaultKind::Trickle,
            Self::Garbage(_) => FaultKind::Garbage,
            Self::WrongResponseTo => FaultKind::WrongResponseTo,
            Self::DuplicateReply => FaultKind::DuplicateReply,
            Self::TruncatedFrame { .. } => FaultKind::TruncatedFrame,
            Self::LengthLie(_) => FaultKind::LengthLie,
            Self::OpCodeLie(_) => FaultKind::OpCodeLie,
            Self::MoreToComeLie => FaultKind::MoreToComeLie,
            Self::BadChecksum => FaultKind::BadChecksum,
            Self::RawBody(_) => FaultKind::RawBody,
            Self::NeverFinished => FaultKind::NeverFinished,
            Self::Oversized { .. } => FaultKind::Oversized,
            Self::Unsolicited(_) => FaultKind::Unsolicited,
            Self::UnwantedReply => FaultKind::UnwantedReply,
        }
    }
}

/// A fault and the condition on replies under which it is injected. Conditions that are not set
/// match all replies.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultRule {
    /// The fault.
    pub fault: Fault,
    /// Only on this connection (the id of [`ConnectionInfo`](super::ConnectionInfo)).
    pub connection: Option<u64>,
    /// Only on connections of this application name.
    pub app_name: Option<String>,
    /// Only for replies to this command.
    pub command: Option<String>,
    /// Number of matching replies before the first injection.
    pub skip: u32,
    /// Number of injections; `None` = unlimited.
    pub times: Option<u32>,
}

impl From<Fault> for FaultRule {
    fn from(fault: Fault) -> Self {
        Self { fault, connection: None, app_name: None, command: None, skip: 0, times: None }
    }
}

impl FaultRule {
    /// The fault on every reply of every connection.
    pub fn always(fault: Fault) -> Self {
        fault.into()
    }

    /// The fault on the next matching reply only.
    pub fn once(fault: Fault) -> Self {
        Self { times: Some(1), ..fault.into() }
    }

    /// Only on the connection with this id.
    #[must_use]
    pub fn on_connection(mut self, id: u64) -> Self {
        self.connection = Some(id);
        self
    }

    /// Only on connections of this application.
    #[must_use]
    pub fn on_app_name(mut self, name: &str) -> Self {
        self.app_name = Some(name.to_owned());
        self
    }

    /// Only for replies to this command.
    #[must_use]
    pub fn on_command(mut self, name: &str) -> Self {
        self.command = Some(name.to_owned());
        self
    }

    /// Lets `count` matching replies pass first.
    #[must_use]
    pub fn skip(mut self, count: u32) -> Self {
        self.skip = count;
        self
    }

    /// Fires `count` times.
    #[must_use]
    pub fn times(mut self, count: u32) -> Self {
        self.times = Some(count);
        self
    }
}

/// The reply that will be sent next, as seen by rules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplyFacts<'a> {
    pub(crate) connection: u64,
    pub(crate) app_name: Option<&'a str>,
    /// `None` at accept.
    pub(crate) command: Option<&'a str>,
    /// Bytes sent on the connection so far.
    pub(crate) sent_bytes: u64,
    /// Bytes of the reply.
    pub(crate) reply_bytes: usize,
    /// Whether the request has the flag moreToCome.
    pub(crate) is_unwanted: bool,
}

/// The rules in force, oldest first, and the counters.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    rules: Vec<FaultRule>,
    counts: BTreeMap<FaultKind, u64>,
}

impl Faults {
    const RULES_MAX: usize = 1024;

    /// Adds a rule; returns `false` if there are too many.
    pub(crate) fn add(&mut self, rule: FaultRule) -> bool {
        let fits = self.rules.len() < Self::RULES_MAX;
        if fits {
            self.rules.push(rule);
        }
        fits
    }

    pub(crate) fn clear(&mut self) {
        self.rules.clear();
    }

    pub(crate) fn rules_count(&self) -> usize {
        self.rules.len()
    }

    pub(crate) fn count(&mut self, kind: FaultKind) {
        *self.counts.entry(kind).or_default() += 1;
    }

    pub(crate) fn count_of(&self, kind: FaultKind) -> u64 {
        self.counts.get(&kind).copied().unwrap_or(0)
    }

    /// Returns the fault of the reply: that of the oldest rule that matches and is neither skipping
    /// nor used up.
    pub(crate) fn take(&mut self, reply: ReplyFacts<'_>) -> Option<Fault> {
        let index = self.rules.iter_mut().position(|rule| {
            if !rule.matches(reply) {
                return false;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                return false;
            }
            true
        })?;
        let rule = &mut self.rules[index];
        let fault = rule.fault.clone();
        if let Some(left) = &mut rule.times {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.rules.remove(index);
            }
        }
        self.count(fault.kind());
        Some(fault)
    }
}

impl FaultRule {
    fn matches(&self, reply: ReplyFacts<'_>) -> bool {
        let named = self.times != Some(0)
            && self.connection.is_none_or(|id| id == reply.connection)
            && self.app_name.as_deref().is_none_or(|name| Some(name) == reply.app_name)
            && self.command.as_deref().is_none_or(|name| Some(name) == reply.command);
        if !named {
            return false;
        }
        if reply.is_unwanted || matches!(self.fault, Fault::UnwantedReply) {
            return reply.is_unwanted && matches!(self.fault, Fault::UnwantedReply);
        }
        let at_accept = reply.command.is_none();
        if let Fault::CutStream { after_bytes, .. } = self.fault {
            let sent_then = reply.sent_bytes + u64::try_from(reply.reply_bytes).unwrap_or(u64::MAX);
            return !at_accept && sent_then >= after_bytes;
        }
        at_accept == matches!(self.fault, Fault::CloseOnAccept(_))
    }
}
