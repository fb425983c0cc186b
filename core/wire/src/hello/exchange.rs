//! The message exchange of a monitor connection, without I/O: bytes in, bytes out.
//!
//! Read first: Server Monitoring, "Polling Protocol" and "Streaming Protocol".

use super::reply::HelloReply;
use super::request::{HandshakeHello, HelloKind, encode_hello};
use crate::error::{EncodeError, WireError};
use crate::message::{Decoded, Exchange, Limits, Matched, RequestIds};
use crate::sink::Sink;

/// All messages of a monitor connection, from its first hello to its end. The counterpart of
/// [`Handshake`](crate::handshake::Handshake) for application connections.
///
/// The host sends the bytes that [`send_hello`](Self::send_hello) writes, and passes all received
/// bytes to [`handle_input`](Self::handle_input). To receive the next reply of a streaming server
/// it only calls `handle_input` again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HelloExchange {
    exchange: Exchange,
    ids: RequestIds,
}

impl HelloExchange {
    /// Creates an exchange that has not begun.
    #[must_use]
    pub const fn new() -> Self {
        Self { exchange: Exchange::IDLE, ids: RequestIds::new() }
    }

    /// Writes the hello that the monitor requested at the end of `sink`; then its reply is due.
    ///
    /// - `kind`: from the action.
    /// - `hello`: the arguments of the first hello; a later hello uses only its Stable API.
    ///
    /// Cost: linear in the bytes written, no allocation but the sink's.
    ///
    /// # Errors
    ///
    /// [`EncodeError`]; nothing is changed.
    ///
    /// # Panics
    ///
    /// With debug assertions, if a reply is still due.
    ///
    /// Source: Server Monitoring, "hello or legacy hello".
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

    /// Handles all bytes that were received and not consumed yet. Returns the next reply and the
    /// bytes after it, or the number of missing bytes. Pass the reply to the monitor's
    /// `handle_reply`.
    ///
    /// - `input`: may end anywhere; unconsumed bytes must be passed in again, followed by further
    ///   bytes.
    ///
    /// Cost: linear in `input` once a reply is complete, O(1) before; no allocation.
    ///
    /// # Errors
    ///
    /// [`WireError`]: bytes that violate the protocol or [`Limits::HANDSHAKE`], a reply that is not
    /// a hello reply, or bytes while no reply is due. The connection must be closed.
    ///
    /// Source: OP_MSG, "Exhaust"; SDAM, "Parsing a hello or legacy hello response".
    pub fn handle_input<'b>(&mut self, input: &'b [u8]) -> Result<Decoded<'b, (HelloReply<'b>, Matched)>, WireError> {
        match self.exchange.decode_reply(input, &Limits::HANDSHAKE)? {
            Decoded::Done { value: (message, matched), rest } => {
                HelloReply::parse(message.body()).map(|reply| Decoded::Done { value: (reply, matched), rest })
            }
            Decoded::NeedMore { bytes_min } => Ok(Decoded::NeedMore { bytes_min }),
        }
    }
}
