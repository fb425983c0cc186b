//! The conversation of a monitor's connection: bytes in, bytes out.
//!
//! Read first: Server Monitoring, "Polling Protocol" and "Streaming Protocol".

use super::reply::HelloReply;
use super::request::{HandshakeHello, HelloKind, encode_hello};
use crate::error::{EncodeError, WireError};
use crate::message::{Decoded, Exchange, Limits, Matched, RequestIds};
use crate::sink::Sink;

/// All messages of one monitoring connection, from its first hello to its end: what
/// [`Handshake`](crate::handshake::Handshake) is to an application connection.
///
/// The host sends what [`send_hello`](Self::send_hello) writes, and gives everything received to
/// [`handle_input`](Self::handle_input). For a streaming server's next reply it only calls `handle_input` again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HelloExchange {
    exchange: Exchange,
    ids: RequestIds,
}

impl HelloExchange {
    /// A conversation that has not begun.
    #[must_use]
    pub const fn new() -> Self {
        Self { exchange: Exchange::IDLE, ids: RequestIds::new() }
    }

    /// Writes the hello that the monitor asks for at the end of `sink`; its reply is due then.
    ///
    /// - `kind`: from the action. `hello`: the arguments of the first hello; a later one has only its Stable API.
    ///
    /// Cost: linear in the bytes written, no allocation but the sink's.
    ///
    /// # Errors
    ///
    /// [`EncodeError`]; nothing changed.
    ///
    /// # Panics
    ///
    /// With debug assertions, if a reply is still due.
    ///
    /// Source: Server Monitoring, "hello or legacy hello" (MON-05, MON-06, MON-28).
    pub fn send_hello(
        &mut self,
        kind: HelloKind,
        hello: &HandshakeHello<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), EncodeError> {
        let mut ids = self.ids;
        let request_id = ids.next_id();
        let (_, flags) = encode_hello(sink, request_id, kind, hello)?;
        self.ids = ids;
        self.exchange.begin(request_id, flags);
        Ok(())
    }

    /// Takes everything that was received and not consumed: the next reply and what follows it, or how many bytes are
    /// missing. The reply is news for the monitor (`handle_reply`).
    ///
    /// - `input`: may end anywhere; what is not consumed must be handed in again, with more behind it.
    ///
    /// Cost: linear in `input` once a reply is complete, O(1) before; no allocation.
    ///
    /// # Errors
    ///
    /// [`WireError`]: bytes that break the protocol or [`Limits::HANDSHAKE`], a reply that is no hello reply, or bytes
    /// while no reply is due. The connection is to be closed.
    ///
    /// Source: OP_MSG, "Exhaust"; SDAM, "Parsing a hello or legacy hello response".
    pub fn handle_input<'b>(&mut self, input: &'b [u8]) -> Result<Decoded<'b, (HelloReply<'b>, Matched)>, WireError> {
        Ok(match self.exchange.decode_reply(input, &Limits::HANDSHAKE)? {
            Decoded::Done { value: (message, matched), rest } => {
                Decoded::Done { value: (HelloReply::parse(message.body())?, matched), rest }
            }
            Decoded::NeedMore { bytes_min } => Decoded::NeedMore { bytes_min },
        })
    }
}
