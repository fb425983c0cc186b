//! The handshake of a connection, without I/O: bytes in, bytes out.
//!
//! Read first: Native Protocol v5, "Protocol Negotiation", "STARTUP", "SUPPORTED", "AUTHENTICATE";
//! v4, "version" under "Frame header".

#[cfg(test)]
mod tests;

use core::fmt;

use super::Limits;
use super::authenticator::CqlAuthenticator;
use super::compress::Compression;
use super::decoder::Decoder;
use super::error::{CqlEncodeError, CqlError, CqlErrorKind};
use super::failure::{ErrorCode, Failure};
use super::header::{Direction, OPCODE_AT, Opcode, Version};
use super::request::{Consistency, Parameters, Request, Startup};
use super::response::{Envelope, OutcomeKind, Response, Supported};
use super::segment::{Format, SEGMENT_PAYLOAD_BYTES_MAX, begin_segment, end_segment};
use super::write::{Outgoing, encode_envelope};
use poolhouse_wire::Cause;
use poolhouse_wire::Sink;
use poolhouse_wire::peer_text;
use poolhouse_wire::saturate;
use poolhouse_wire::{AuthError, Unauthenticated};

/// Maximum length of the text that is kept when a server refuses, in bytes.
pub const REFUSAL_BYTES_MAX: usize = peer_text::PEER_TEXT_BYTES_MAX;

/// The maximum number of challenges. The handshake fails after more, so a server cannot prolong it
/// without end.
const CHALLENGES_MAX: u8 = 16;

/// The maximum length of the name of a keyspace.
const KEYSPACE_BYTES_MAX: usize = 48;

/// The length of `USE "name"`.
const USE_BYTES_MAX: usize = KEYSPACE_BYTES_MAX + 6;

/// The stream id of all messages. One id suffices, because only one request is pending at a time.
const STREAM: i16 = 0;

/// The desired properties of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqlHandshakeOptions<'a> {
    /// The version to use. If the server does not support it, [`CqlNext::Reconnect`] names the next
    /// one to try.
    pub version: Version,
    /// The compressions to use, in order of preference. Those that this build or the version does
    /// not support are skipped.
    pub compressions: &'a [Compression],
    /// Whether to ask the server first for its supported options. Otherwise the preferred
    /// compression is used without knowing whether the server supports it.
    pub ask_supported: bool,
    /// The driver's name.
    pub driver_name: Option<&'a str>,
    /// The driver's version.
    pub driver_version: Option<&'a str>,
    /// Additional options for STARTUP.
    pub startup_options: &'a [(&'a str, &'a str)],
    /// The keyspace of statements that name none: `USE` is the last message. Its name has 1 to 48
    /// ASCII letters, digits and underscores, in the case in which the server stores them.
    pub keyspace: Option<&'a str>,
    /// Limits of the established connection. Before that [`Limits::HANDSHAKE`] applies.
    pub limits: Limits,
}

impl CqlHandshakeOptions<'_> {
    /// The newest version, no compression, and a query for the server's supported options.
    pub const DEFAULT: Self = Self {
        version: Version::NEWEST,
        compressions: &[],
        ask_supported: true,
        driver_name: None,
        driver_version: None,
        startup_options: &[],
        keyspace: None,
        limits: Limits::DEFAULT,
    };
}

impl Default for CqlHandshakeOptions<'_> {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The handshake of a connection, from its first byte to [`CqlEstablished`].
///
/// The host calls [`poll_transmit`](Self::poll_transmit) and sends the bytes written, then passes
/// received bytes to [`handle_input`](Self::handle_input), and continues as the returned
/// [`CqlNext`] requests. At the end [`into_parts`](Self::into_parts) returns the decoder, to be
/// used for the rest of the connection.
///
/// `A` performs the authentication; [`Unauthenticated`] performs none. `S` is the buffer type of
/// the decoder.
#[derive(Debug)]
pub struct CqlHandshake<'a, S, A = Unauthenticated> {
    options: CqlHandshakeOptions<'a>,
    authenticator: A,
    decoder: Decoder<S>,
    step: Step,
    compression: Option<Compression>,
    challenges: u8,
    refusal: heapless::String<REFUSAL_BYTES_MAX>,
}

/// The state of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    OwesOptions,
    AwaitsSupported,
    OwesStartup,
    AwaitsReady,
    OwesToken,
    AwaitsSuccess,
    OwesKeyspace { authenticated: bool },
    AwaitsKeyspace { authenticated: bool },
    Ended,
}

/// The result of handling received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqlHandled {
    /// Number of bytes consumed from the front of the input.
    pub consumed_bytes: usize,
    /// The next call that the host must make.
    pub next: CqlNext,
}

/// The next step that a handshake requires of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqlNext {
    /// Call [`CqlHandshake::poll_transmit`] and send the bytes it writes.
    Transmit,
    /// Receive more bytes, and pass them in. All bytes so far are consumed.
    Receive,
    /// The connection is ready for use. Unconsumed bytes must be passed to the decoder.
    Established(CqlEstablished),
    /// The server does not support this version. Close the connection, and start again on a new one
    /// with this older version.
    Reconnect {
        /// The version to try.
        version: Version,
    },
}

/// The properties of an established connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CqlEstablished {
    /// The version in use.
    pub version: Version,
    /// The compression in use.
    pub compression: Option<Compression>,
    /// Whether the server required authentication.
    pub authenticated: bool,
}

/// A connection was not established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CqlHandshakeError {
    /// The server violated the protocol.
    Wire(CqlError),
    /// The server answered with an error. [`CqlHandshake::refusal`] returns its message.
    Refused {
        /// The error code.
        code: ErrorCode,
    },
    /// The server supports no version that this crate supports, or none older than the one that it
    /// refused.
    NoCommonVersion {
        /// The version that was tried.
        tried: Version,
    },
    /// The server's supported options are malformed, or do not include a usable value.
    Supported {
        /// The option concerned.
        option: &'static str,
    },
    /// The server requires authentication, which failed on this side.
    Authentication(AuthError),
    /// The name of the keyspace is not one to 48 ASCII letters, digits and underscores.
    Keyspace,
    /// A message cannot be encoded. It stays due.
    Encode(CqlEncodeError),
    /// The handshake had already ended.
    Ended,
}

impl CqlHandshakeError {
    /// The cause that corresponds to the error.
    #[must_use]
    pub fn cause(&self) -> Cause {
        match self {
            Self::Wire(error) => Cause::from(*error),
            Self::Refused { code: ErrorCode::BAD_CREDENTIALS } | Self::Authentication(_) => Cause::Authentication,
            Self::Refused { code } => Cause::Command { code: code.number() },
            Self::NoCommonVersion { .. } | Self::Supported { .. } => Cause::Protocol,
            Self::Keyspace => Cause::Resources,
            Self::Encode(error) => Cause::from(*error),
            Self::Ended => Cause::Closed,
        }
    }
}

impl fmt::Display for CqlHandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire(error) => write!(f, "the server violated the protocol: {error}"),
            Self::Refused { code } => write!(f, "the server refused: {code}"),
            Self::NoCommonVersion { tried } => {
                write!(
                    f,
                    "the server supports neither protocol version {tried} nor an older one that this client supports"
                )
            }
            Self::Supported { option } => {
                write!(f, "the values of {option} that the server supports are malformed or unusable")
            }
            Self::Authentication(error) => write!(f, "the server requires authentication: {error}"),
            Self::Keyspace => {
                f.write_str("the name of the keyspace is not one to 48 ASCII letters, digits and underscores")
            }
            Self::Encode(error) => error.fmt(f),
            Self::Ended => f.write_str("the handshake has ended"),
        }
    }
}

impl core::error::Error for CqlHandshakeError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Wire(error) => Some(error),
            Self::Authentication(error) => Some(error),
            Self::Encode(error) => Some(error),
            Self::Refused { .. }
            | Self::NoCommonVersion { .. }
            | Self::Supported { .. }
            | Self::Keyspace
            | Self::Ended => None,
        }
    }
}

impl From<CqlError> for CqlHandshakeError {
    fn from(error: CqlError) -> Self {
        Self::Wire(error)
    }
}

impl From<AuthError> for CqlHandshakeError {
    fn from(error: AuthError) -> Self {
        Self::Authentication(error)
    }
}

impl<'a, S: Sink, A: CqlAuthenticator> CqlHandshake<'a, S, A> {
    /// Creates a handshake that has not begun.
    ///
    /// - `authenticator`: must be unused; it serves one connection. May be an `Option`.
    /// - `received`, `assembled`: the buffers of the [`Decoder`].
    #[must_use]
    pub fn new(options: CqlHandshakeOptions<'a>, authenticator: A, received: S, assembled: S) -> Self {
        let mut decoder = Decoder::new(options.version, Direction::Response, Limits::HANDSHAKE, received, assembled);
        // Any version is accepted first, because a server that does not support this version
        // replies in another one.
        decoder.expect(None);
        let step = if options.ask_supported { Step::OwesOptions } else { Step::OwesStartup };
        let compression = usable(&options).next();
        let refusal = heapless::String::new();
        Self { options, authenticator, decoder, step, compression, challenges: 0, refusal }
    }

    /// Writes the next message at the end of `sink`. Returns `false` if no message is due.
    ///
    /// The message may contain the password; the host can overwrite its buffer after sending.
    ///
    /// # Errors
    ///
    /// [`CqlHandshakeError::Encode`], [`CqlHandshakeError::Keyspace`]; the sink is unchanged.
    pub fn poll_transmit(&mut self, sink: &mut impl Sink) -> Result<bool, CqlHandshakeError> {
        let outgoing = Outgoing::new(self.options.version, STREAM);
        let (written, next) = match self.step {
            Step::OwesOptions => {
                (Request::Options.encode(sink, outgoing, &Limits::HANDSHAKE).map(drop), Step::AwaitsSupported)
            }
            Step::OwesStartup => {
                let CqlHandshakeOptions { driver_name, driver_version, startup_options, .. } = self.options;
                let startup =
                    Startup { compression: self.compression, driver_name, driver_version, options: startup_options };
                let written = Request::Startup(startup).encode(sink, outgoing, &Limits::HANDSHAKE);
                (written.map(drop), Step::AwaitsReady)
            }
            Step::OwesToken => (self.encode_token(sink, outgoing), Step::AwaitsSuccess),
            Step::OwesKeyspace { authenticated } => {
                let text = use_statement(self.options.keyspace).ok_or(CqlHandshakeError::Keyspace)?;
                (self.encode_query(sink, outgoing, &text), Step::AwaitsKeyspace { authenticated })
            }
            Step::AwaitsSupported
            | Step::AwaitsReady
            | Step::AwaitsSuccess
            | Step::AwaitsKeyspace { .. }
            | Step::Ended => return Ok(false),
        };
        written.map_err(CqlHandshakeError::Encode)?;
        if next == Step::AwaitsReady {
            // The reply to STARTUP may already be compressed.
            self.decoder.set_compression(self.compression);
        }
        self.step = next;
        Ok(true)
    }

    /// Handles bytes that were received and not consumed yet.
    ///
    /// - `input`: a piece of any length.
    ///
    /// Cost: linear in `input`.
    ///
    /// # Errors
    ///
    /// [`CqlHandshakeError`]: the connection must be closed.
    ///
    /// Source: Native Protocol v5, "Initial Handshake"; "STARTUP", "AUTHENTICATE", "SUPPORTED",
    /// "ERROR".
    pub fn handle_input(&mut self, input: &[u8]) -> Result<CqlHandled, CqlHandshakeError> {
        let step = self.step;
        match step {
            Step::Ended => return Err(CqlHandshakeError::Ended),
            Step::OwesOptions | Step::OwesStartup | Step::OwesToken | Step::OwesKeyspace { .. } if input.is_empty() => {
                return Ok(CqlHandled { consumed_bytes: 0, next: CqlNext::Transmit });
            }
            Step::OwesOptions | Step::OwesStartup | Step::OwesToken | Step::OwesKeyspace { .. } => {
                self.step = Step::Ended;
                let kind = CqlErrorKind::Unsolicited { count_bytes: saturate(input.len()) };
                return Err(CqlError::new(kind, 0).into());
            }
            Step::AwaitsSupported | Step::AwaitsReady | Step::AwaitsSuccess | Step::AwaitsKeyspace { .. } => {}
        }
        // Reset below unless the handshake fails.
        self.step = Step::Ended;
        let Self { options, authenticator, decoder, challenges, refusal, .. } = self;
        let decoded = decoder.decode(input)?;
        let consumed_bytes = decoded.consumed_bytes;
        let Some(envelope) = decoded.envelope else {
            self.step = step;
            return Ok(CqlHandled { consumed_bytes, next: CqlNext::Receive });
        };
        let response = check_response(&envelope, options.version)?;
        if let Response::Error(failure) = &response {
            refusal.clear();
            if !authenticator.is_revealed_by(failure.message) {
                for char in peer_text::one_line(failure.message) {
                    let _fits = refusal.push(char);
                }
            }
            let next = refused(failure, &envelope, options.version, step)?;
            return Ok(CqlHandled { consumed_bytes, next });
        }
        let next = match (step, response) {
            (Step::AwaitsSupported, Response::Supported(supported)) => match choose_version(options, supported)? {
                Some(version) => CqlNext::Reconnect { version },
                None => {
                    self.compression = choose_compression(options, supported);
                    self.continue_with(Step::OwesStartup)
                }
            },
            (Step::AwaitsReady, Response::Ready) => self.finish(false),
            (Step::AwaitsReady, Response::Authenticate(class)) => {
                authenticator.handle_authenticate(class)?;
                self.start();
                self.continue_with(Step::OwesToken)
            }
            (Step::AwaitsSuccess, Response::AuthChallenge(token)) => {
                *challenges = challenges.saturating_add(1);
                if *challenges > CHALLENGES_MAX {
                    return Err(AuthError::NotDone.into());
                }
                authenticator.handle_challenge(token)?;
                self.continue_with(Step::OwesToken)
            }
            (Step::AwaitsSuccess, Response::AuthSuccess(token)) => {
                authenticator.handle_success(token)?;
                self.finish(true)
            }
            (Step::AwaitsKeyspace { authenticated }, Response::Result(outcome))
                if outcome.kind == OutcomeKind::SetKeyspace =>
            {
                self.establish(authenticated)
            }
            _ => {
                let kind = CqlErrorKind::Unexpected { opcode: envelope.header.opcode };
                return Err(CqlError::new(kind, OPCODE_AT).into());
            }
        };
        Ok(CqlHandled { consumed_bytes, next })
    }

    /// The server's refusal message: its first [`REFUSAL_BYTES_MAX`] bytes on one line, control
    /// characters replaced by spaces. Empty if the server did not refuse, or if its message
    /// contains the authenticator's secret.
    #[must_use]
    pub fn refusal(&self) -> &str {
        &self.refusal
    }

    /// The decoder, for the rest of the connection, and the authenticator.
    #[must_use]
    pub fn into_parts(self) -> (Decoder<S>, A) {
        (self.decoder, self.authenticator)
    }

    const fn continue_with(&mut self, step: Step) -> CqlNext {
        self.step = step;
        CqlNext::Transmit
    }

    /// Registers that STARTUP was answered.
    const fn start(&mut self) {
        self.decoder.expect(Some(self.options.version));
        self.decoder.set_started();
    }

    /// The server has accepted the client: the keyspace is next, if there is one.
    const fn finish(&mut self, authenticated: bool) -> CqlNext {
        self.start();
        if self.options.keyspace.is_some() {
            return self.continue_with(Step::OwesKeyspace { authenticated });
        }
        self.establish(authenticated)
    }

    const fn establish(&mut self, authenticated: bool) -> CqlNext {
        self.decoder.set_limits(self.options.limits);
        let (version, compression) = (self.options.version, self.compression);
        CqlNext::Established(CqlEstablished { version, compression, authenticated })
    }

    /// Writes the next token. It is never compressed, because compression would leave copies of it
    /// in memory.
    fn encode_token<T: Sink>(&self, sink: &mut T, outgoing: Outgoing) -> Result<(), CqlEncodeError> {
        self.encode_framed(sink, |sink, limits| {
            encode_envelope(sink, outgoing, Opcode::AuthResponse, limits, |body| {
                body.bytes_with(|token| self.authenticator.write_token(token)).map(drop)
            })
        })
    }

    fn encode_query<T: Sink>(&self, sink: &mut T, outgoing: Outgoing, text: &str) -> Result<(), CqlEncodeError> {
        let query = Request::Query { text, parameters: Parameters::new(Consistency::One) };
        self.encode_framed(sink, |sink, limits| query.encode(sink, outgoing, limits))
    }

    /// Writes a message without compression, in v5 in a separate segment. The sink is unchanged if
    /// it fails.
    fn encode_framed<T: Sink, R>(
        &self,
        sink: &mut T,
        message: impl FnOnce(&mut T, &Limits) -> Result<R, CqlEncodeError>,
    ) -> Result<(), CqlEncodeError> {
        let start = sink.written().len();
        let result = self.encode_framed_at(sink, start, message);
        if result.is_err() {
            sink.truncate(start);
        }
        result
    }

    fn encode_framed_at<T: Sink, R>(
        &self,
        sink: &mut T,
        start: usize,
        message: impl FnOnce(&mut T, &Limits) -> Result<R, CqlEncodeError>,
    ) -> Result<(), CqlEncodeError> {
        let framed = self.options.version.has_segments();
        let format = if self.compression.is_some() { Format::Compressed } else { Format::Plain };
        if framed {
            begin_segment(sink, format)?;
        }
        // Limits the envelope to the payload of a single segment.
        message(sink, &Limits { body_bytes_max: saturate(SEGMENT_PAYLOAD_BYTES_MAX) - 9 })?;
        if framed {
            end_segment(sink, start, format, None, true)?;
        }
        Ok(())
    }
}

/// Whether a keyspace can have this name.
#[must_use]
pub fn is_keyspace_name(name: &str) -> bool {
    (1..=KEYSPACE_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The statement that selects this keyspace; `None` if no keyspace can have the name.
fn use_statement(keyspace: Option<&str>) -> Option<heapless::String<USE_BYTES_MAX>> {
    let name = keyspace.filter(|name| is_keyspace_name(name))?;
    let mut text = heapless::String::new();
    ["USE \"", name, "\""].into_iter().all(|part| text.push_str(part).is_ok()).then_some(text)
}

/// The compressions that can be used, in order of preference.
fn usable<'a>(options: &CqlHandshakeOptions<'a>) -> impl Iterator<Item = Compression> + use<'a> {
    let version = options.version;
    options.compressions.iter().copied().filter(move |one| one.is_available() && one.is_in(version))
}

/// The preferred compression that the server supports too.
fn choose_compression(options: &CqlHandshakeOptions<'_>, supported: Supported<'_>) -> Option<Compression> {
    usable(options).find(|ours| supported.values("COMPRESSION").any(|theirs| theirs == ours.name()))
}

/// The version to reconnect with; `None` if the server supports the version in use.
fn choose_version(
    options: &CqlHandshakeOptions<'_>,
    supported: Supported<'_>,
) -> Result<Option<Version>, CqlHandshakeError> {
    if !supported.values("CQL_VERSION").any(|version| version.starts_with("3.")) {
        return Err(CqlHandshakeError::Supported { option: "CQL_VERSION" });
    }
    let tried = options.version;
    let mut best = None;
    let mut count = 0;
    for version in supported.protocol_versions() {
        count += 1;
        let (number, is_beta) = version.ok_or(CqlHandshakeError::Supported { option: "PROTOCOL_VERSIONS" })?;
        if !is_beta {
            best = best.max(Version::from_number(number).filter(|version| *version <= tried));
        }
    }
    match best {
        // The server lists no versions, but it has replied in this one.
        None if count == 0 => Ok(None),
        None => Err(CqlHandshakeError::NoCommonVersion { tried }),
        Some(version) if version == tried => Ok(None),
        Some(version) => Ok(Some(version)),
    }
}

/// Decodes the response. Fails if it does not belong to the request, or is not in the requested
/// version; only an error may be in another version.
fn check_response<'e>(envelope: &Envelope<'e>, version: Version) -> Result<Response<'e>, CqlHandshakeError> {
    let header = envelope.header;
    if header.version != version && header.opcode != Opcode::Error {
        return Err(CqlError::new(CqlErrorKind::VersionOther { expected: version, found: header.version }, 0).into());
    }
    if header.opcode == Opcode::Event {
        return Err(CqlError::new(CqlErrorKind::Unexpected { opcode: header.opcode }, OPCODE_AT).into());
    }
    if header.stream != STREAM {
        let kind = CqlErrorKind::StreamOther { expected: STREAM, found: header.stream };
        return Err(CqlError::new(kind, 2).into());
    }
    Ok(envelope.response()?)
}

/// Handles an error response: returns an older version to reconnect with, or fails.
fn refused(
    failure: &Failure<'_>,
    envelope: &Envelope<'_>,
    tried: Version,
    step: Step,
) -> Result<CqlNext, CqlHandshakeError> {
    let theirs = envelope.header.version;
    let early = matches!(step, Step::AwaitsSupported | Step::AwaitsReady);
    let about_version = theirs != tried || is_about_version(failure.message);
    if !early || failure.code != ErrorCode::PROTOCOL_ERROR || !about_version {
        return Err(CqlHandshakeError::Refused { code: failure.code });
    }
    let older = if theirs < tried { Some(theirs) } else { tried.older() };
    match older {
        Some(version) if theirs <= tried => Ok(CqlNext::Reconnect { version }),
        Some(_) | None => Err(CqlHandshakeError::NoCommonVersion { tried }),
    }
}

/// Whether a protocol error is about the version, according to the texts that servers use: the
/// version is unsupported, or still in beta.
fn is_about_version(message: &str) -> bool {
    ["unsupported protocol version", "beta version of the protocol"].into_iter().any(|words| {
        let is_at = |at| message.as_bytes().get(at..).and_then(|rest| rest.get(..words.len()));
        (0..message.len()).filter_map(is_at).any(|window| window.eq_ignore_ascii_case(words.as_bytes()))
    })
}
