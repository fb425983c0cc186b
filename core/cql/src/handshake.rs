//! The conversation that makes a socket a connection: bytes in, bytes out.
//!
//! Read first: Native Protocol v5, "Protocol Negotiation", "STARTUP", "SUPPORTED", "AUTHENTICATE"; v4, "version" under "Frame header".

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
use super::request::{Request, Startup};
use super::response::{Envelope, Response, Supported};
use super::segment::{Format, SEGMENT_PAYLOAD_BYTES_MAX, begin_segment, end_segment};
use super::write::{Outgoing, encode_envelope};
use poolhouse_wire::Cause;
use poolhouse_wire::Sink;
use poolhouse_wire::peer_text;
use poolhouse_wire::saturate;
use poolhouse_wire::{AuthError, Unauthenticated};

/// How much is kept of a server's text when it refuses.
pub const REFUSAL_BYTES_MAX: usize = peer_text::PEER_TEXT_BYTES_MAX;

/// After so many challenges a server that has not decided never will.
const CHALLENGES_MAX: u8 = 16;

/// The stream id of everything that is said. One after the other needs no other.
const STREAM: i16 = 0;

/// What a connection is to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqlHandshakeOptions<'a> {
    /// The version to speak. If the server does not, [`CqlNext::Reconnect`] says which one to try next.
    pub version: Version,
    /// The compressions to use, the best first. Those that this build or the version does not have are passed over.
    pub compressions: &'a [Compression],
    /// Whether to ask the server first what it can do. Without that the best compression is taken, whether the server has it or not.
    pub ask_supported: bool,
    /// What the driver is called.
    pub driver_name: Option<&'a str>,
    /// Which one of it this is.
    pub driver_version: Option<&'a str>,
    /// What else to say in STARTUP.
    pub startup_options: &'a [(&'a str, &'a str)],
    /// Limits of the connection, once it is established. Until then they are [`Limits::HANDSHAKE`].
    pub limits: Limits,
}

impl CqlHandshakeOptions<'_> {
    /// The newest version, no compression, after asking what the server can do.
    pub const DEFAULT: Self = Self {
        version: Version::NEWEST,
        compressions: &[],
        ask_supported: true,
        driver_name: None,
        driver_version: None,
        startup_options: &[],
        limits: Limits::DEFAULT,
    };
}

impl Default for CqlHandshakeOptions<'_> {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A conversation of one connection, from its first byte to [`CqlEstablished`].
///
/// The host calls [`poll_transmit`](Self::poll_transmit) and sends what was written, then gives what it receives to
/// [`handle_input`](Self::handle_input), and so on by the [`CqlNext`] that it returns. At the end [`into_parts`](Self::into_parts) gives the decoder, which goes on.
///
/// `A` authenticates; [`Unauthenticated`] does not. `S` is where the decoder keeps what comes in pieces.
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

/// Where the conversation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    OwesOptions,
    AwaitsSupported,
    OwesStartup,
    AwaitsReady,
    OwesToken,
    AwaitsSuccess,
    Ended,
}

/// What came of the bytes received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqlHandled {
    /// How many bytes from the front of the input are done with.
    pub consumed_bytes: usize,
    /// What to do next.
    pub next: CqlNext,
}

/// What a handshake wants of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqlNext {
    /// Call [`CqlHandshake::poll_transmit`] and send what it writes.
    Transmit,
    /// Receive more, and hand it in. Everything so far is consumed.
    Receive,
    /// The connection can be used. What is not consumed is for the decoder.
    Established(CqlEstablished),
    /// The server does not speak this version. Close the connection, and begin anew on another one with that version, which is an older one.
    Reconnect {
        /// The one to try.
        version: Version,
    },
}

/// What is known of a connection that was established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CqlEstablished {
    /// The version that is spoken.
    pub version: Version,
    /// What is compressed by.
    pub compression: Option<Compression>,
    /// Whether the server wanted to know who is calling.
    pub authenticated: bool,
}

/// A connection was not established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CqlHandshakeError {
    /// The server broke the protocol.
    Wire(CqlError),
    /// The server answered with an error. [`CqlHandshake::refusal`] has its words.
    Refused {
        /// Its code.
        code: ErrorCode,
    },
    /// The server speaks no version that is spoken here, or none that is older than the one that it refused.
    NoCommonVersion {
        /// The one that was tried.
        tried: Version,
    },
    /// What the server says that it supports makes no sense, or is of no use.
    Supported {
        /// The option that it is about.
        option: &'static str,
    },
    /// Nobody here can tell the server who is calling.
    Authentication(AuthError),
    /// Something cannot be written. It is still to be sent.
    Encode(CqlEncodeError),
    /// The conversation was over before.
    Ended,
}

impl CqlHandshakeError {
    /// The error in a word.
    #[must_use]
    pub fn cause(&self) -> Cause {
        match self {
            Self::Wire(error) => Cause::from(*error),
            Self::Refused { code: ErrorCode::BAD_CREDENTIALS } | Self::Authentication(_) => Cause::Authentication,
            Self::Refused { code } => Cause::Command { code: code.number() },
            Self::NoCommonVersion { .. } | Self::Supported { .. } => Cause::Protocol,
            Self::Encode(error) => Cause::from(*error),
            Self::Ended => Cause::Closed,
        }
    }
}

impl fmt::Display for CqlHandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire(error) => write!(f, "the server broke the protocol: {error}"),
            Self::Refused { code } => write!(f, "the server refused: {code}"),
            Self::NoCommonVersion { tried } => {
                write!(f, "the server speaks neither protocol version {tried} nor an older one that is spoken here")
            }
            Self::Supported { option } => write!(f, "what the server supports of {option} is malformed or of no use"),
            Self::Authentication(error) => write!(f, "the server wants to know who is calling: {error}"),
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
            Self::Refused { .. } | Self::NoCommonVersion { .. } | Self::Supported { .. } | Self::Ended => None,
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
    /// A conversation that has not begun.
    ///
    /// - `authenticator`: not used before; it serves one connection. An `Option` will do.
    /// - `received`, `assembled`: the memory of the [`Decoder`].
    #[must_use]
    pub fn new(options: CqlHandshakeOptions<'a>, authenticator: A, received: S, assembled: S) -> Self {
        let mut decoder = Decoder::new(options.version, Direction::Response, Limits::HANDSHAKE, received, assembled);
        // A server that does not speak the version says so in one of its own.
        decoder.expect(None);
        let step = if options.ask_supported { Step::OwesOptions } else { Step::OwesStartup };
        let compression = usable(&options).next();
        let refusal = heapless::String::new();
        Self { options, authenticator, decoder, step, compression, challenges: 0, refusal }
    }

    /// Writes what is to be sent now at the end of `sink`. Returns whether there was anything.
    ///
    /// That may hold the password: a host that minds overwrites its buffer after sending.
    ///
    /// # Errors
    ///
    /// [`CqlHandshakeError::Encode`]; the sink is as it was.
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
            Step::AwaitsSupported | Step::AwaitsReady | Step::AwaitsSuccess | Step::Ended => return Ok(false),
        };
        written.map_err(CqlHandshakeError::Encode)?;
        if next == Step::AwaitsReady {
            // Whatever answers may be compressed already.
            self.decoder.set_compression(self.compression);
        }
        self.step = next;
        Ok(true)
    }

    /// Takes what was received and not consumed yet.
    ///
    /// - `input`: in pieces of any length.
    ///
    /// Cost: linear in `input`.
    ///
    /// # Errors
    ///
    /// [`CqlHandshakeError`]: the connection is to be closed.
    ///
    /// Source: Native Protocol v5, "Initial Handshake"; "STARTUP", "AUTHENTICATE", "SUPPORTED", "ERROR".
    pub fn handle_input(&mut self, input: &[u8]) -> Result<CqlHandled, CqlHandshakeError> {
        let step = self.step;
        match step {
            Step::Ended => return Err(CqlHandshakeError::Ended),
            Step::OwesOptions | Step::OwesStartup | Step::OwesToken if input.is_empty() => {
                return Ok(CqlHandled { consumed_bytes: 0, next: CqlNext::Transmit });
            }
            Step::OwesOptions | Step::OwesStartup | Step::OwesToken => {
                self.step = Step::Ended;
                let kind = CqlErrorKind::Unsolicited { count_bytes: saturate(input.len()) };
                return Err(CqlError::new(kind, 0).into());
            }
            Step::AwaitsSupported | Step::AwaitsReady | Step::AwaitsSuccess => {}
        }
        // Until all is well.
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
                    self.go_on(Step::OwesStartup)
                }
            },
            (Step::AwaitsReady, Response::Ready) => self.establish(false),
            (Step::AwaitsReady, Response::Authenticate(class)) => {
                authenticator.handle_authenticate(class)?;
                self.start();
                self.go_on(Step::OwesToken)
            }
            (Step::AwaitsSuccess, Response::AuthChallenge(token)) => {
                *challenges = challenges.saturating_add(1);
                if *challenges > CHALLENGES_MAX {
                    return Err(AuthError::NotDone.into());
                }
                authenticator.handle_challenge(token)?;
                self.go_on(Step::OwesToken)
            }
            (Step::AwaitsSuccess, Response::AuthSuccess(token)) => {
                authenticator.handle_success(token)?;
                self.establish(true)
            }
            _ => {
                let kind = CqlErrorKind::Unexpected { opcode: envelope.header.opcode };
                return Err(CqlError::new(kind, OPCODE_AT).into());
            }
        };
        Ok(CqlHandled { consumed_bytes, next })
    }

    /// The server's text when it refused: its first [`REFUSAL_BYTES_MAX`] bytes on one line, control characters replaced by spaces. Empty if
    /// the server did not refuse, and if its text has the authenticator's secret in it.
    #[must_use]
    pub fn refusal(&self) -> &str {
        &self.refusal
    }

    /// The decoder, which goes on where the conversation has ended, and who authenticated.
    #[must_use]
    pub fn into_parts(self) -> (Decoder<S>, A) {
        (self.decoder, self.authenticator)
    }

    const fn go_on(&mut self, step: Step) -> CqlNext {
        self.step = step;
        CqlNext::Transmit
    }

    /// STARTUP was answered.
    const fn start(&mut self) {
        self.decoder.expect(Some(self.options.version));
        self.decoder.set_started();
    }

    const fn establish(&mut self, authenticated: bool) -> CqlNext {
        self.start();
        self.decoder.set_limits(self.options.limits);
        let (version, compression) = (self.options.version, self.compression);
        CqlNext::Established(CqlEstablished { version, compression, authenticated })
    }

    /// Writes the next token, in v5 in a segment of its own. It is never compressed: that would leave copies behind.
    fn encode_token<T: Sink>(&self, sink: &mut T, outgoing: Outgoing) -> Result<(), CqlEncodeError> {
        let start = sink.written().len();
        let result = self.encode_token_at(sink, start, outgoing);
        if result.is_err() {
            sink.truncate(start);
        }
        result
    }

    fn encode_token_at<T: Sink>(&self, sink: &mut T, start: usize, outgoing: Outgoing) -> Result<(), CqlEncodeError> {
        let framed = outgoing.version.has_segments();
        let format = if self.compression.is_some() { Format::Compressed } else { Format::Plain };
        if framed {
            begin_segment(sink, format)?;
        }
        // One segment is plenty.
        let limits = Limits { body_bytes_max: saturate(SEGMENT_PAYLOAD_BYTES_MAX) - 9 };
        encode_envelope(sink, outgoing, Opcode::AuthResponse, &limits, |body| {
            body.bytes_with(|token| self.authenticator.write_token(token)).map(drop)
        })?;
        if framed {
            end_segment(sink, start, format, None, true)?;
        }
        Ok(())
    }
}

/// The compressions that can be used, the best first.
fn usable<'a>(options: &CqlHandshakeOptions<'a>) -> impl Iterator<Item = Compression> + use<'a> {
    let version = options.version;
    options.compressions.iter().copied().filter(move |one| one.is_available() && one.is_in(version))
}

/// The best compression that the server has too.
fn choose_compression(options: &CqlHandshakeOptions<'_>, supported: Supported<'_>) -> Option<Compression> {
    usable(options).find(|ours| supported.values("COMPRESSION").any(|theirs| theirs == ours.name()))
}

/// The version to begin anew with, if the server does not speak this one.
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
        // It does not say, but it has answered.
        None if count == 0 => Ok(None),
        None => Err(CqlHandshakeError::NoCommonVersion { tried }),
        Some(version) if version == tried => Ok(None),
        Some(version) => Ok(Some(version)),
    }
}

/// The response, if it is one to what was asked, and in the version that was asked in; only an error may come in another.
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

/// What an error is: a reason to begin anew with an older version, or the end.
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

/// Whether a protocol error is about the version, by the words that servers have for it: one that is unsupported, or still in beta.
fn is_about_version(message: &str) -> bool {
    ["unsupported protocol version", "beta version of the protocol"].into_iter().any(|words| {
        let is_at = |at| message.as_bytes().get(at..).and_then(|rest| rest.get(..words.len()));
        (0..message.len()).filter_map(is_at).any(|window| window.eq_ignore_ascii_case(words.as_bytes()))
    })
}
