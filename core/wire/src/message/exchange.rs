//! Matching of replies to requests.

use super::decode::{Decoded, Message, decode_message};
use super::{Flags, Header, Limits};
use crate::error::{WireError, WireErrorKind};
use crate::read::saturate;

/// Generates request ids: each is the previous one plus one, wrapping around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RequestIds(i32);

impl RequestIds {
    /// Creates a generator that begins at 1.
    #[must_use]
    pub const fn new() -> Self {
        Self(0)
    }

    /// Creates a generator that continues after `request_id`.
    #[must_use]
    pub const fn after(request_id: i32) -> Self {
        Self(request_id)
    }

    /// Returns the next id. Never 0, because a `responseTo` of 0 means "not a reply".
    #[must_use]
    pub const fn next_id(&mut self) -> i32 {
        self.0 = self.0.wrapping_add(1);
        if self.0 == 0 {
            self.0 = 1;
        }
        self.0
    }
}

/// The request and reply state of a connection, with a single request at a time: idle, awaiting a
/// reply, or receiving a stream of replies.
///
/// An ordinary reply answers the request. In an exhaust stream the first reply does, and each later
/// one answers *the reply before it*. Any other input is an error, after which the connection must
/// be closed, because later bytes cannot be attributed to a request.
///
/// Source: OP_MSG, "Exhaust" and "moreToCome on responses".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Exchange {
    /// The id of the message that the next reply must answer; `None` if no reply is due.
    due: Option<i32>,
    /// Whether the request allowed an exhaust stream.
    exhaust: bool,
}

/// Whether more replies follow a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Matched {
    /// None: the connection is idle.
    Last,
    /// Another reply follows without a further request.
    MoreComes,
}

impl Exchange {
    /// No request has been sent.
    pub const IDLE: Self = Self { due: None, exhaust: false };

    /// Registers a request that is being sent. With [`Flags::MORE_TO_COME`] no reply is due.
    ///
    /// Must not be called while a reply is due; otherwise that reply is rejected when it arrives.
    ///
    /// # Panics
    ///
    /// With debug assertions, if a reply is still due, or if a request without a reply allows an
    /// exhaust stream.
    pub const fn begin(&mut self, request_id: i32, flags: Flags) {
        debug_assert!(self.due.is_none(), "a request while a reply is due");
        let is_both = flags.contains(Flags::MORE_TO_COME.union(Flags::EXHAUST_ALLOWED));
        debug_assert!(!is_both, "an exhaust stream of a request without a reply");
        self.due = if flags.contains(Flags::MORE_TO_COME) { None } else { Some(request_id) };
        self.exhaust = flags.contains(Flags::EXHAUST_ALLOWED);
    }

    /// Whether no reply is due. A connection may return to its pool only then.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.due.is_none()
    }

    /// Matches a reply by its header and flags.
    ///
    /// # Errors
    ///
    /// [`WireErrorKind::Unsolicited`], [`WireErrorKind::ResponseTo`], [`WireErrorKind::MoreToCome`], and
    /// [`WireErrorKind::Flags`] for a flag that only requests have.
    pub const fn handle_reply(&mut self, header: Header, flags: Flags) -> Result<Matched, WireError> {
        let Some(expected) = self.due else {
            let count_bytes = header.length_bytes;
            return Err(WireError::new(WireErrorKind::Unsolicited { count_bytes }, 0));
        };
        if header.response_to != expected {
            let kind = WireErrorKind::ResponseTo { expected, found: header.response_to };
            return Err(WireError::new(kind, 8));
        }
        if flags.contains(Flags::EXHAUST_ALLOWED) {
            return Err(WireError::new(WireErrorKind::Flags { flags: flags.bits() }, 16));
        }
        if !flags.contains(Flags::MORE_TO_COME) {
            self.due = None;
            return Ok(Matched::Last);
        }
        if !self.exhaust {
            return Err(WireError::new(WireErrorKind::MoreToCome, 16));
        }
        self.due = Some(header.request_id);
        Ok(Matched::MoreComes)
    }

    /// Decodes and matches the reply at the front of `input`, which is all bytes received and not
    /// consumed, and validates its structure. Values that cannot be converted, such as text that is not
    /// UTF-8, are errors where they are read: the connection is intact. Changes nothing until the reply
    /// has arrived in full.
    ///
    /// # Errors
    ///
    /// Those of [`decode_message`], [`Exchange::handle_reply`] and [`Message::validate_structure`], and
    /// [`WireErrorKind::Unsolicited`] for bytes while idle or after the last reply.
    pub fn decode_reply<'a>(
        &mut self,
        input: &'a [u8],
        limits: &Limits,
    ) -> Result<Decoded<'a, (Message<'a>, Matched)>, WireError> {
        self.check_idle(input, 0)?;
        let (message, rest) = match decode_message(input, limits)? {
            Decoded::Done { value, rest } => (value, rest),
            Decoded::NeedMore { bytes_min } => return Ok(Decoded::NeedMore { bytes_min }),
        };
        let mut after = *self;
        let matched = after.handle_reply(message.header(), message.flags())?;
        after.check_idle(rest, message.header().length_bytes)?;
        message.validate_structure()?;
        *self = after;
        Ok(Decoded::Done { value: (message, matched), rest })
    }

    /// Rejects any input while no reply is due.
    fn check_idle(&self, input: &[u8], offset: u32) -> Result<(), WireError> {
        if self.due.is_none() && !input.is_empty() {
            let kind = WireErrorKind::Unsolicited { count_bytes: saturate(input.len()) };
            return Err(WireError::new(kind, offset));
        }
        Ok(())
    }
}
