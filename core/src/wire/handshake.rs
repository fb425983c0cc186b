//! The conversation that makes a socket an application connection: bytes in, bytes out.
//!
//! Begins when the transport (TLS included) stands. Today it is one hello and its reply; whatever has to
//! follow before the connection may be used (authentication) becomes further rounds of the same calls.
//!
//! Read first: CMAP, "Establishing a Connection"; MongoDB Handshake; Load Balancers, "Connection
//! Establishment".

#[cfg(test)]
mod tests;

use core::fmt;

use super::command::CommandReply;
use super::compress::Compressors;
use super::error::{EncodeError, WireError};
use super::hello::{HandshakeHello, HelloCommand, HelloReply, Sizes, encode_handshake_hello};
use super::labels::{Labels, Phase};
use super::message::{Decoded, Exchange, Flags, Limits, Matched, RequestIds};
use super::sink::Sink;
use crate::cause::Cause;
use crate::server::{ObjectId, ServerType, TopologyVersion};

/// A conversation of one connection, from its first byte to [`Established`].
///
/// The host calls [`poll_transmit`](Self::poll_transmit) and sends what was written, then gives everything
/// received to [`handle_input`](Self::handle_input), and so on by the [`Next`] that it returns. When the
/// socket fails meanwhile, [`failed`](Self::failed) makes the error of it.
#[derive(Clone, Debug)]
pub struct Handshake<'a> {
    hello: HandshakeHello<'a>,
    step: Step,
    exchange: Exchange,
    ids: RequestIds,
}

/// Where the conversation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    OwesHello,
    AwaitsHello,
    Ended,
}

/// What came of the bytes received.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Handled<'a> {
    /// How many bytes from the front of the input are done with.
    pub consumed_bytes: usize,
    /// The reply to hello, when it was among them: news of the server for whoever follows its state (MON-20).
    pub hello: Option<HelloReply<'a>>,
    /// What to do next.
    pub next: Next,
}

/// What a handshake wants of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Call [`Handshake::poll_transmit`] and send what it writes.
    Transmit,
    /// Receive at least so many more bytes, and hand in all that is not consumed.
    Receive {
        /// At least 1. As claimed by the peer: make room as bytes arrive.
        bytes_min: usize,
    },
    /// The connection can be used.
    Established(Established),
}

/// What is known of a connection that was established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Established {
    /// What answered.
    pub server_type: ServerType,
    /// The service behind a load balancer; always there in load-balanced mode.
    pub service_id: Option<ObjectId>,
    /// The server's own number for the connection.
    pub server_connection_id: Option<i64>,
    /// How large things may be on this connection.
    pub sizes: Sizes,
    /// The compressors that both sides have, in this side's order; the first is the one to compress with.
    pub compressors: Compressors,
    /// The oldest protocol version that the server speaks.
    pub min_wire_version: i32,
    /// The newest protocol version that the server speaks.
    pub max_wire_version: i32,
    /// By which name hello is called on this connection from now on.
    pub hello_command: HelloCommand,
    /// Goes on handing out request ids on this connection.
    pub request_ids: RequestIds,
}

/// A connection was not established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakeError {
    /// How far it had come.
    pub phase: Phase,
    /// Why.
    pub cause: Cause,
    /// The labels: those that phase and cause give, and those of the server's reply.
    pub labels: Labels,
    /// Where the server's state stands, if its error says.
    pub topology_version: Option<TopologyVersion>,
    /// What was wrong with its bytes, if that was it.
    pub wire: Option<WireError>,
    /// What could not be written, if that was it.
    pub encode: Option<EncodeError>,
}

impl HandshakeError {
    /// The error of an establishment that failed in `phase` for `cause`, with the labels that are due.
    ///
    /// Source: CMAP, "Connection Pool Backpressure" (CMAP-95, CMAP-96, CMAP-97, CMAP-98).
    #[must_use]
    pub const fn new(phase: Phase, cause: Cause) -> Self {
        let labels = Labels::for_establishment(phase, cause);
        Self { phase, cause, labels, topology_version: None, wire: None, encode: None }
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match self.phase {
            Phase::Connect => "connecting",
            Phase::Proxy => "talking to the proxy",
            Phase::Tls => "the TLS handshake",
            Phase::Hello => "hello",
            Phase::Authentication => "authentication",
        };
        write!(f, "{} in {phase}", self.cause)?;
        if let Some(wire) = self.wire {
            write!(f, ": {wire}")?;
        }
        self.encode.map_or(Ok(()), |encode| write!(f, ": {encode}"))
    }
}

impl core::error::Error for HandshakeError {}

impl<'a> Handshake<'a> {
    /// A conversation that has not begun.
    #[must_use]
    pub const fn new(hello: HandshakeHello<'a>) -> Self {
        Self { hello, step: Step::OwesHello, exchange: Exchange::IDLE, ids: RequestIds::new() }
    }

    /// Takes everything that was received and not consumed yet.
    ///
    /// - `input`: may end anywhere; what is not consumed must be handed in again, with more behind it.
    ///
    /// Cost: linear in `input` once a reply is complete, O(1) before; no allocation.
    ///
    /// # Errors
    ///
    /// [`HandshakeError`]: the connection is to be closed. [`Cause::Protocol`] for bytes that break the
    /// protocol, [`Cause::Command`] for `ok: 0`, [`Cause::MissingServiceId`] when a load balancer was
    /// expected and the reply names no service.
    ///
    /// Source: CMAP, "Establishing a Connection"; Load Balancers, "Connection Establishment" (CMAP-92).
    pub fn handle_input<'b>(&mut self, input: &'b [u8]) -> Result<Handled<'b>, HandshakeError> {
        let before = input.len();
        let decoded = self.exchange.decode_reply(input, &Limits::DEFAULT).map_err(Self::wire_error)?;
        let (message, rest) = match decoded {
            Decoded::Done { value: (message, Matched::Last | Matched::MoreComes), rest } => (message, rest),
            Decoded::NeedMore { bytes_min } => {
                let next = match self.step {
                    Step::OwesHello => Next::Transmit,
                    Step::AwaitsHello | Step::Ended => Next::Receive { bytes_min },
                };
                return Ok(Handled { consumed_bytes: 0, hello: None, next });
            }
        };
        let reply = CommandReply::parse(message.body()).map_err(Self::wire_error)?;
        if let Some(cause) = reply.cause() {
            let mut error = HandshakeError::new(Phase::Hello, cause);
            error.labels |= reply.labels();
            error.topology_version = reply.topology_version;
            return Err(error);
        }
        let hello = HelloReply::parse(message.body()).map_err(Self::wire_error)?;
        if self.hello.load_balanced && hello.service_id.is_none() {
            return Err(HandshakeError::new(Phase::Hello, Cause::MissingServiceId));
        }
        self.step = Step::Ended;
        let established = Established {
            server_type: if self.hello.load_balanced { ServerType::LoadBalancer } else { hello.server_type() },
            service_id: hello.service_id,
            server_connection_id: hello.connection_id,
            sizes: hello.sizes,
            compressors: self.hello.compressors.agreed(hello.compression),
            min_wire_version: hello.min_wire_version,
            max_wire_version: hello.max_wire_version,
            hello_command: self.hello.command().after(hello.hello_ok),
            request_ids: self.ids,
        };
        Ok(Handled {
            consumed_bytes: before.saturating_sub(rest.len()),
            hello: Some(hello),
            next: Next::Established(established),
        })
    }

    /// Writes what is to be sent now at the end of `sink`. Returns whether there was anything.
    ///
    /// # Errors
    ///
    /// [`HandshakeError`] with [`Cause::Resources`] when it cannot be written.
    pub fn poll_transmit(&mut self, sink: &mut impl Sink) -> Result<bool, HandshakeError> {
        match self.step {
            Step::OwesHello => {}
            Step::AwaitsHello | Step::Ended => return Ok(false),
        }
        let request_id = self.ids.next_id();
        encode_handshake_hello(sink, request_id, &self.hello).map_err(|encode| {
            let error = HandshakeError::new(Phase::Hello, Cause::Resources);
            HandshakeError { encode: Some(encode), ..error }
        })?;
        self.exchange.begin(request_id, Flags::NONE);
        self.step = Step::AwaitsHello;
        Ok(true)
    }

    /// The error to report when the socket fails, or its deadline passes, during the conversation.
    #[must_use]
    pub const fn failed(&self, cause: Cause) -> HandshakeError {
        HandshakeError::new(self.phase(), cause)
    }

    /// How far the conversation has come.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        match self.step {
            Step::OwesHello | Step::AwaitsHello | Step::Ended => Phase::Hello,
        }
    }

    fn wire_error(wire: WireError) -> HandshakeError {
        HandshakeError { wire: Some(wire), ..HandshakeError::new(Phase::Hello, Cause::Protocol) }
    }
}
