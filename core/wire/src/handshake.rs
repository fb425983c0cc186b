//! The conversation that makes a socket an application connection: bytes in, bytes out.
//!
//! Begins when the transport (TLS included) stands: hello and its reply, then as many rounds as the
//! [`Authenticator`] wants, if there is one. The calls are the same in every round.
//!
//! Read first: CMAP, "Establishing a Connection"; MongoDB Handshake; Authentication, "Authentication
//! Handshake"; Load Balancers, "Connection Establishment".

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

/// A conversation of one connection, from its first byte to [`Established`].
///
/// The host calls [`poll_transmit`](Self::poll_transmit) and sends what was written, then gives everything
/// received to [`handle_input`](Self::handle_input), and so on by the [`Next`] that it returns. When the
/// socket fails meanwhile, [`failed`](Self::failed) makes the error of it.
///
/// `A` authenticates; [`Unauthenticated`] does not.
#[derive(Clone, Debug)]
pub struct Handshake<'a, A = Unauthenticated> {
    hello: HandshakeHello<'a>,
    authenticator: A,
    step: Step,
    exchange: Exchange,
    ids: RequestIds,
    /// What hello told, while authentication goes on.
    established: Option<Established>,
    /// Whether a server that says that it is an arbiter is not authenticated against.
    arbiters_exempt: bool,
}

/// Where the conversation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    OwesHello,
    AwaitsHello,
    OwesCommand,
    AwaitsReply,
    /// The authenticator has work to do.
    Works,
    /// Over, and in which phase it was.
    Ended(Phase),
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
    /// Call [`Handshake::handle_input`] again with what is not consumed, be it nothing: it does a step of the
    /// authenticator's work. A host that shares its thread lets others run before.
    Work,
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
    /// What went wrong in authentication, if that was it.
    pub authentication: Option<AuthError>,
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
        Self { phase, cause, labels, authentication: None, topology_version: None, wire: None, encode: None }
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
    /// A conversation that has not begun, with a server that does not ask who is calling.
    #[must_use]
    pub const fn new(hello: HandshakeHello<'a>) -> Self {
        Self::begin(hello, Unauthenticated)
    }
}

impl<'a, A: Authenticator> Handshake<'a, A> {
    /// A conversation that has not begun, with rounds of authentication after hello.
    ///
    /// - `hello`: without `sasl_supported_mechs` and `speculative_authenticate`, which are not sent: what hello
    ///   carries for authentication is up to `authenticator`.
    /// - `authenticator`: not used before; it serves one connection. An `Option` will do.
    #[must_use]
    pub const fn with_authenticator(hello: HandshakeHello<'a>, authenticator: A) -> Self {
        let hello = HandshakeHello { sasl_supported_mechs: None, speculative_authenticate: None, ..hello };
        Self::begin(hello, authenticator)
    }

    /// The same, with or without the exemption of arbiters, which hold no data and know no users: they are not authenticated against.
    /// By default it holds unless a load balancer is expected.
    ///
    /// Any peer can call itself an arbiter, and by that be spared the proof that it knows the user. A host that has sorted its servers,
    /// and wants no connection of an arbiter, switches the exemption off; the shell does so unless it was told to connect to the one
    /// server directly. Other hosts look at [`Established::server_type`] before they send anything that is not for everybody.
    ///
    /// Source: Authentication, "Authentication Handshake".
    #[must_use]
    pub const fn with_arbiters_exempt(mut self, exempt: bool) -> Self {
        self.arbiters_exempt = exempt;
        self
    }

    /// Takes everything that was received and not consumed yet.
    ///
    /// - `input`: may end anywhere; what is not consumed must be handed in again, with more behind it.
    ///
    /// Cost: linear in `input` once a reply is complete, O(1) before; no allocation. A step of the authenticator's work
    /// after [`Next::Work`].
    ///
    /// # Errors
    ///
    /// [`HandshakeError`]: the connection is to be closed. [`Cause::Protocol`] for bytes that break the
    /// protocol or [`Limits::HANDSHAKE`], [`Cause::Command`] for `ok: 0`, [`Cause::MissingServiceId`] when a load balancer was
    /// expected and the reply names no service, [`Cause::Authentication`] when server or authenticator say no.
    ///
    /// Source: CMAP, "Establishing a Connection"; Load Balancers, "Connection Establishment" (CMAP-92);
    /// Authentication, "Authentication Handshake" (CMAP-96).
    pub fn handle_input<'b>(&mut self, input: &'b [u8]) -> Result<Handled<'b>, HandshakeError> {
        let before = input.len();
        let phase = self.phase();
        if self.step == Step::Works {
            let round = self.authenticator.work();
            return Ok(Handled { consumed_bytes: 0, hello: None, next: self.go_on(round)? });
        }
        let decoded = self.exchange.decode_reply(input, &Limits::HANDSHAKE);
        let (message, rest) = match decoded.map_err(|wire| wire_error(phase, wire))? {
            Decoded::Done { value: (message, Matched::Last | Matched::MoreComes), rest } => (message, rest),
            Decoded::NeedMore { bytes_min } => {
                let next = match self.step {
                    Step::OwesHello | Step::OwesCommand => Next::Transmit,
                    Step::Works => Next::Work,
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
            Step::OwesHello | Step::AwaitsHello | Step::OwesCommand | Step::Works | Step::Ended(_) => {
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
        let next = self.go_on(round)?;
        Ok(Handled { consumed_bytes, hello, next })
    }

    /// Writes what is to be sent now at the end of `sink`. Returns whether there was anything.
    ///
    /// With PLAIN that holds the password: a host that minds overwrites its buffer after sending.
    ///
    /// # Errors
    ///
    /// [`HandshakeError`] with [`Cause::Resources`] when it cannot be written; it is still to be sent then.
    pub fn poll_transmit(&mut self, sink: &mut impl Sink) -> Result<bool, HandshakeError> {
        let mut ids = self.ids;
        let request_id = ids.next_id();
        let (written, next) = match self.step {
            Step::OwesHello => {
                let written = encode_handshake_hello_with(sink, request_id, &self.hello, |hello| {
                    self.authenticator.write_hello(hello)
                });
                (written, Step::AwaitsHello)
            }
            Step::OwesCommand => (self.encode_round(sink, request_id), Step::AwaitsReply),
            Step::AwaitsHello | Step::AwaitsReply | Step::Works | Step::Ended(_) => return Ok(false),
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

    /// The error to report when the socket fails, or its deadline passes, during the conversation.
    #[must_use]
    pub const fn failed(&self, cause: Cause) -> HandshakeError {
        HandshakeError::new(self.phase(), cause)
    }

    /// How far the conversation has come.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        match self.step {
            Step::OwesHello | Step::AwaitsHello => Phase::Hello,
            Step::OwesCommand | Step::AwaitsReply | Step::Works => Phase::Authentication,
            Step::Ended(phase) => phase,
        }
    }

    /// Who authenticates: has keys, perhaps, that spare the next connection some work.
    #[must_use]
    pub const fn authenticator(&self) -> &A {
        &self.authenticator
    }

    /// Who authenticates: can be spared some work, perhaps, by keys from another connection.
    #[must_use]
    pub const fn authenticator_mut(&mut self) -> &mut A {
        &mut self.authenticator
    }

    const fn begin(hello: HandshakeHello<'a>, authenticator: A) -> Self {
        let (exchange, ids, arbiters_exempt) = (Exchange::IDLE, RequestIds::new(), !hello.load_balanced);
        Self { hello, authenticator, step: Step::OwesHello, exchange, ids, established: None, arbiters_exempt }
    }

    /// Keeps the part of the reply to hello that [`Established`] returns.
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
            hello_command: self.hello.command().after(hello.hello_ok),
            request_ids: self.ids,
        });
        Ok(())
    }

    /// What follows a good reply.
    fn go_on(&mut self, round: Result<Round, AuthError>) -> Result<Next, HandshakeError> {
        let error = HandshakeError::new(Phase::Authentication, Cause::Authentication);
        self.step = Step::Ended(Phase::Authentication);
        match (round, self.established) {
            (Ok(Round::Another), _) => {
                self.step = Step::OwesCommand;
                Ok(Next::Transmit)
            }
            (Ok(Round::Work), _) => {
                self.step = Step::Works;
                Ok(Next::Work)
            }
            (Ok(Round::Done), Some(established)) => {
                Ok(Next::Established(Established { request_ids: self.ids, ..established }))
            }
            (Ok(Round::Done), None) => Err(HandshakeError { authentication: Some(AuthError::Ended), ..error }),
            (Err(wrong), _) => Err(HandshakeError { authentication: Some(wrong), ..error }),
        }
    }

    /// Writes the command of a round.
    fn encode_round(&self, sink: &mut impl Sink, request_id: i32) -> Result<usize, EncodeError> {
        let db = self.authenticator.database();
        encode_command(sink, Outgoing::request(request_id), &Limits::DEFAULT, db, |command| {
            self.authenticator.write_command(command)?;
            self.hello.server_api.map_or(Ok(()), |api| api.write(command))
        })
    }
}

/// The codes by which servers refuse credentials: `UserNotFound`, `AuthenticationFailed`, `MechanismUnavailable`.
/// Any other code says nothing of them, and keeps its own meaning.
const REFUSALS: [i32; 3] = [11, 18, 334];

/// The error of a reply with `ok: 0`.
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
