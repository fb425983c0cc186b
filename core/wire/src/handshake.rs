//! The handshake of an application connection, without I/O: bytes in, bytes out.
//!
//! It begins when the transport (TLS included) is established: hello and its reply, then as many
//! rounds as the [`Authenticator`] needs, if there is one. The calls are the same in every round.
//!
//! Read first: CMAP, "Establishing a Connection"; MongoDB Handshake; Authentication,
//! "Authentication Handshake"; Load Balancers, "Connection Establishment".

#[cfg(test)]
mod tests;

use core::fmt;

use super::authenticator::{AuthError, Authenticator, Round, Unauthenticated};
use super::command::CommandReply;
use super::compress::Compressors;
use super::error::{EncodeError, WireError};
use super::hello::{HandshakeHello, HelloCommand, HelloReply, Sizes, encode_handshake_hello_with};
use super::labels::{Labels, Phase};
use super::message::{Decoded, Exchange, Flags, Limits, Matched, Outgoing, RequestIds, encode_command};
use super::sink::Sink;
use crate::cause::Cause;
use crate::{server::ObjectId, server::ServerType, server::TopologyVersion};

/// The handshake of a connection, from its first byte to [`Established`].
///
/// The host calls [`poll_transmit`](Self::poll_transmit) and sends the bytes written, then passes
/// all received bytes to [`handle_input`](Self::handle_input), and continues as the returned
/// [`Next`] requests. If the socket fails in between, [`failed`](Self::failed) returns the error to
/// report.
///
/// `A` performs the authentication; [`Unauthenticated`] performs none.
#[derive(Clone, Debug)]
pub struct Handshake<'a, A = Unauthenticated> {
    hello: HandshakeHello<'a>,
    authenticator: A,
    step: Step,
    exchange: Exchange,
    ids: RequestIds,
    /// Result of hello, kept until authentication is complete.
    established: Option<Established>,
    /// Whether authentication is skipped if the server reports itself an arbiter.
    arbiters_exempt: bool,
}

/// State of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    OwesHello,
    AwaitsHello,
    OwesCommand,
    AwaitsReply,
    /// The authenticator has a computation to continue.
    Computing,
    /// Ended, successfully or not; holds the last phase.
    Ended(Phase),
}

/// The result of handling received bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Handled<'a> {
    /// Number of bytes consumed from the front of the input.
    pub consumed_bytes: usize,
    /// The reply to hello, if it was received in this call: an update of the server's description.
    pub hello: Option<HelloReply<'a>>,
    /// The next call that the host must make.
    pub next: Next,
}

/// The next step that a handshake requires of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Call [`Handshake::poll_transmit`] and send the bytes it writes.
    Transmit,
    /// Call [`Handshake::handle_input`] again with the unconsumed bytes, if any: it does a step of
    /// the authenticator's computation. A host that shares its thread should yield to other tasks
    /// first.
    Work,
    /// Receive at least `bytes_min` more bytes, and pass in all unconsumed bytes.
    Receive {
        /// At least 1. Claimed by the peer: grow the buffer as bytes arrive.
        bytes_min: usize,
    },
    /// The connection is ready for use.
    Established(Established),
}

/// The properties of an established connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Established {
    /// The type of the server.
    pub server_type: ServerType,
    /// The service behind a load balancer; always present in load-balanced mode.
    pub service_id: Option<ObjectId>,
    /// The server's id of the connection.
    pub server_connection_id: Option<i64>,
    /// The size limits of this connection.
    pub sizes: Sizes,
    /// The compressors that both sides support, in this side's order; messages are compressed with
    /// the first.
    pub compressors: Compressors,
    /// The oldest wire version that the server supports.
    pub min_wire_version: i32,
    /// The newest wire version that the server supports.
    pub max_wire_version: i32,
    /// How long the server keeps an unused session, in minutes; `None` if it supports no sessions.
    pub session_timeout_minutes: Option<u32>,
    /// The command name to use for hello on this connection from now on.
    pub hello_command: HelloCommand,
    /// Generates the further request ids of this connection.
    pub request_ids: RequestIds,
}

/// A connection was not established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct HandshakeError {
    /// The phase in which it failed.
    pub phase: Phase,
    /// The cause.
    pub cause: Cause,
    /// The labels: those that follow from phase and cause, and those of the server's reply.
    pub labels: Labels,
    /// The authentication error, if that was the cause.
    pub authentication: Option<AuthError>,
    /// The server's topology version, if its error contains one.
    pub topology_version: Option<TopologyVersion>,
    /// The protocol violation, if that was the cause.
    pub wire: Option<WireError>,
    /// The encoding error, if that was the cause.
    pub encode: Option<EncodeError>,
}

impl HandshakeError {
    /// The error of an establishment that failed in `phase` for `cause`, with the labels that
    /// follow from them.
    ///
    /// Source: CMAP, "Connection Pool Backpressure".
    #[must_use]
    pub const fn new(phase: Phase, cause: Cause) -> Self {
        let labels = Labels::for_establishment(phase, cause);
        Self { phase, cause, labels, authentication: None, topology_version: None, wire: None, encode: None }
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match self.phase {
            Phase::Connect => "connecting",
            Phase::Proxy => "handshake with the proxy",
            Phase::Tls => "the TLS handshake",
            Phase::Hello => "hello",
            Phase::Authentication => "authentication",
        };
        write!(f, "{} in {phase}", self.cause)?;
        if let Some(authentication) = self.authentication {
            write!(f, ": {authentication}")?;
        }
        if let Some(wire) = self.wire {
            write!(f, ": {wire}")?;
        }
        self.encode.map_or(Ok(()), |encode| write!(f, ": {encode}"))
    }
}

impl core::error::Error for HandshakeError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        let authentication = self.authentication.as_ref().map(|error| -> &(dyn core::error::Error + 'static) { error });
        let wire = self.wire.as_ref().map(|error| -> &(dyn core::error::Error + 'static) { error });
        let encode = self.encode.as_ref().map(|error| -> &(dyn core::error::Error + 'static) { error });
        Some(authentication.or(wire).or(encode).unwrap_or(&self.cause))
    }
}

impl<'a> Handshake<'a> {
    /// Creates a handshake with a server that requires no authentication.
    #[must_use]
    pub const fn new(hello: HandshakeHello<'a>) -> Self {
        Self::begin(hello, Unauthenticated)
    }
}

impl<'a, A: Authenticator> Handshake<'a, A> {
    /// Creates a handshake with rounds of authentication after hello.
    ///
    /// - `hello`: its `sasl_supported_mechs` and `speculative_authenticate` are ignored:
    ///   `authenticator` writes the authentication fields of hello.
    /// - `authenticator`: must be unused; it serves one connection. May be an `Option`.
    #[must_use]
    pub const fn with_authenticator(hello: HandshakeHello<'a>, authenticator: A) -> Self {
        let hello = HandshakeHello { sasl_supported_mechs: None, speculative_authenticate: None, ..hello };
        Self::begin(hello, authenticator)
    }

    /// Sets whether authentication is skipped with arbiters, which store no data and have no users.
    /// Default: skipped, unless a load balancer is expected.
    ///
    /// Any peer can report itself as an arbiter and so skip the proof that it knows the user. A
    /// host that selects its servers and needs no connection to an arbiter should pass `false`; the
    /// driver does so, except for a direct connection. Other hosts must check
    /// [`Established::server_type`] before they send confidential data.
    ///
    /// Source: Authentication, "Authentication Handshake".
    #[must_use]
    pub const fn with_arbiters_exempt(mut self, exempt: bool) -> Self {
        self.arbiters_exempt = exempt;
        self
    }

    /// Handles all bytes that were received and not consumed yet.
    ///
    /// - `input`: may end anywhere; unconsumed bytes must be passed in again, followed by further
    ///   bytes.
    ///
    /// Cost: linear in `input` once a reply is complete, O(1) before; no allocation. After
    /// [`Next::Work`] also a step of the authenticator's computation.
    ///
    /// # Errors
    ///
    /// [`HandshakeError`]: the connection must be closed. [`Cause::Protocol`] for bytes that
    /// violate the protocol or [`Limits::HANDSHAKE`], [`Cause::Command`] for `ok: 0`,
    /// [`Cause::MissingServiceId`] if a load balancer was expected and the reply has no service id,
    /// [`Cause::Authentication`] if the server refuses or the authenticator fails.
    ///
    /// Source: CMAP, "Establishing a Connection"; Load Balancers, "Connection Establishment";
    /// Authentication, "Authentication Handshake".
    pub fn handle_input<'b>(&mut self, input: &'b [u8]) -> Result<Handled<'b>, HandshakeError> {
        let before = input.len();
        let phase = self.phase();
        if self.step == Step::Computing {
            let round = self.authenticator.work();
            return Ok(Handled { consumed_bytes: 0, hello: None, next: self.continue_with(round)? });
        }
        let decoded = self.exchange.decode_reply(input, &Limits::HANDSHAKE);
        let (message, rest) = match decoded.map_err(|wire| wire_error(phase, wire))? {
            Decoded::Done { value: (message, Matched::Last | Matched::MoreComes), rest } => (message, rest),
            Decoded::NeedMore { bytes_min } => {
                let next = match self.step {
                    Step::OwesHello | Step::OwesCommand => Next::Transmit,
                    Step::Computing => Next::Work,
                    Step::AwaitsHello | Step::AwaitsReply | Step::Ended(_) => Next::Receive { bytes_min },
                };
                return Ok(Handled { consumed_bytes: 0, hello: None, next });
            }
        };
        let consumed_bytes = before.saturating_sub(rest.len());
        let step = core::mem::replace(&mut self.step, Step::Ended(phase));
        let (hello, round) = match step {
            Step::AwaitsReply => {
                let reply = CommandReply::parse(message.body()).map_err(|wire| wire_error(phase, wire))?;
                if !reply.ok {
                    let code = reply.code.unwrap_or(0);
                    return Err(command_error(phase, code, reply.labels(), reply.topology_version));
                }
                (None, self.authenticator.handle_reply(message.body()))
            }
            Step::OwesHello | Step::AwaitsHello | Step::OwesCommand | Step::Computing | Step::Ended(_) => {
                let hello = HelloReply::parse(message.body()).map_err(|wire| wire_error(phase, wire))?;
                if !hello.ok {
                    return Err(command_error(phase, hello.code, hello.labels, hello.topology_version));
                }
                self.keep(&hello)?;
                let is_exempt = self.arbiters_exempt && hello.server_type() == ServerType::RsArbiter;
                let round = if is_exempt { Ok(Round::Done) } else { self.authenticator.handle_hello(&hello) };
                (Some(hello), round)
            }
        };
        let next = self.continue_with(round)?;
        Ok(Handled { consumed_bytes, hello, next })
    }

    /// Writes the next message at the end of `sink`. Returns `false` if no message is due.
    ///
    /// With PLAIN the message contains the password; the host can overwrite its buffer after
    /// sending.
    ///
    /// # Errors
    ///
    /// [`HandshakeError`] with [`Cause::Resources`] if it cannot be written; the message stays due.
    pub fn poll_transmit(&mut self, sink: &mut impl Sink) -> Result<bool, HandshakeError> {
        let mut ids = self.ids;
        let request_id = ids.next_id();
        let (written, next) = match self.step {
            Step::OwesHello => {
                let written = encode_handshake_hello_with(sink, request_id, &self.hello, &|hello| {
                    self.authenticator.write_hello(hello)
                });
                (written, Step::AwaitsHello)
            }
            Step::OwesCommand => (self.encode_round(sink, request_id), Step::AwaitsReply),
            Step::AwaitsHello | Step::AwaitsReply | Step::Computing | Step::Ended(_) => return Ok(false),
        };
        written.map_err(|encode| {
            let error = HandshakeError::new(self.phase(), Cause::Resources);
            HandshakeError { encode: Some(encode), ..error }
        })?;
        self.ids = ids;
        self.exchange.begin(request_id, Flags::NONE);
        self.step = next;
        Ok(true)
    }

    /// The error to report if the socket fails, or its deadline passes, during the handshake.
    #[must_use]
    pub const fn failed(&self, cause: Cause) -> HandshakeError {
        HandshakeError::new(self.phase(), cause)
    }

    /// The current phase of the handshake.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        match self.step {
            Step::OwesHello | Step::AwaitsHello => Phase::Hello,
            Step::OwesCommand | Step::AwaitsReply | Step::Computing => Phase::Authentication,
            Step::Ended(phase) => phase,
        }
    }

    /// The authenticator. Its keys may save the next connection a computation.
    #[must_use]
    pub const fn authenticator(&self) -> &A {
        &self.authenticator
    }

    /// The authenticator, for keys from another connection, which may save it a computation.
    #[must_use]
    pub const fn authenticator_mut(&mut self) -> &mut A {
        &mut self.authenticator
    }

    const fn begin(hello: HandshakeHello<'a>, authenticator: A) -> Self {
        let (exchange, ids, arbiters_exempt) = (Exchange::IDLE, RequestIds::new(), !hello.load_balanced);
        Self { hello, authenticator, step: Step::OwesHello, exchange, ids, established: None, arbiters_exempt }
    }

    /// Stores the part of the reply to hello that [`Established`] returns.
    fn keep(&mut self, hello: &HelloReply<'_>) -> Result<(), HandshakeError> {
        if self.hello.load_balanced && hello.service_id.is_none() {
            return Err(HandshakeError::new(Phase::Hello, Cause::MissingServiceId));
        }
        self.established = Some(Established {
            server_type: if self.hello.load_balanced { ServerType::LoadBalancer } else { hello.server_type() },
            service_id: hello.service_id,
            server_connection_id: hello.connection_id,
            sizes: hello.sizes,
            compressors: self.hello.compressors.agreed(hello.compression),
            min_wire_version: hello.min_wire_version,
            max_wire_version: hello.max_wire_version,
            session_timeout_minutes: hello.logical_session_timeout_minutes.and_then(|minutes| minutes.try_into().ok()),
            hello_command: self.hello.command().after(hello.hello_ok),
            request_ids: self.ids,
        });
        Ok(())
    }

    /// Determines the next step after a successful reply.
    fn continue_with(&mut self, round: Result<Round, AuthError>) -> Result<Next, HandshakeError> {
        let error = HandshakeError::new(Phase::Authentication, Cause::Authentication);
        self.step = Step::Ended(Phase::Authentication);
        match (round, self.established) {
            (Ok(Round::Another), _) => {
                self.step = Step::OwesCommand;
                Ok(Next::Transmit)
            }
            (Ok(Round::Work), _) => {
                self.step = Step::Computing;
                Ok(Next::Work)
            }
            (Ok(Round::Done), Some(established)) => {
                Ok(Next::Established(Established { request_ids: self.ids, ..established }))
            }
            (Ok(Round::Done), None) => Err(HandshakeError { authentication: Some(AuthError::Ended), ..error }),
            (Err(wrong), _) => Err(HandshakeError { authentication: Some(wrong), ..error }),
        }
    }

    /// Writes the authentication command of a round.
    fn encode_round(&self, sink: &mut impl Sink, request_id: i32) -> Result<usize, EncodeError> {
        let db = self.authenticator.database();
        encode_command(sink, Outgoing::request(request_id), &Limits::DEFAULT, db, |command| {
            self.authenticator.write_command(command)?;
            self.hello.server_api.map_or(Ok(()), |api| api.write(command))
        })
    }
}

/// The error codes by which servers refuse credentials: `UserNotFound`, `AuthenticationFailed`,
/// `MechanismUnavailable`. Any other code does not concern credentials, and is reported as
/// [`Cause::Command`].
const REFUSALS: [i32; 3] = [11, 18, 334];

/// The error for a reply with `ok: 0`.
fn command_error(phase: Phase, code: i32, labels: Labels, topology_version: Option<TopologyVersion>) -> HandshakeError {
    let authenticating = phase == Phase::Authentication;
    let cause =
        if authenticating && REFUSALS.contains(&code) { Cause::Authentication } else { Cause::Command { code } };
    let mut error = HandshakeError::new(phase, cause);
    error.authentication = authenticating.then_some(AuthError::Refused { code });
    error.labels |= labels;
    error.topology_version = topology_version;
    error
}

fn wire_error(phase: Phase, wire: WireError) -> HandshakeError {
    HandshakeError { wire: Some(wire), ..HandshakeError::new(phase, Cause::Protocol) }
}
