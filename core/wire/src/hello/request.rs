//! Building hello.

use super::metadata::ClientMetadata;
use crate::bson::{DocumentWriter, RawDocument};
use crate::compress::Compressors;
use crate::error::EncodeError;
use crate::message::{Flags, Limits, Outgoing, encode_command};
use crate::server::TopologyVersion;
use crate::sink::Sink;
use core::time::Duration;

/// The Stable API that an application asked for. Sent with every command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerApi<'a> {
    /// `apiVersion`, such as `"1"`.
    pub version: &'a str,
    /// `apiStrict`; not sent when absent.
    pub strict: Option<bool>,
    /// `apiDeprecationErrors`; not sent when absent.
    pub deprecation_errors: Option<bool>,
}

impl ServerApi<'_> {
    /// Appends its fields to a command.
    ///
    /// # Errors
    ///
    /// [`EncodeError`].
    ///
    /// Source: Stable API, "Sending of API parameters".
    pub fn write<S: Sink>(&self, command: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError> {
        command.str("apiVersion", self.version)?;
        if let Some(strict) = self.strict {
            command.boolean("apiStrict", strict)?;
        }
        if let Some(errors) = self.deprecation_errors {
            command.boolean("apiDeprecationErrors", errors)?;
        }
        Ok(())
    }
}

/// By which name hello is called on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HelloCommand {
    /// `hello`.
    Hello,
    /// The old name; in a handshake with `helloOk: true`, to say that the new one is known here.
    Legacy,
}

impl HelloCommand {
    /// The name for the first hello of a connection: the new one if the Stable API or a load balancer
    /// promises that the server knows it. Every connection begins here again.
    ///
    /// Source: Server Monitoring, "hello or legacy hello" (MON-05); Load Balancers, "Connection
    /// Establishment" (CMAP-92).
    #[must_use]
    pub const fn first(server_api: Option<ServerApi<'_>>, load_balanced: bool) -> Self {
        if server_api.is_some() || load_balanced { Self::Hello } else { Self::Legacy }
    }

    /// The name for the next hello of a connection, after a reply said `helloOk` or did not.
    ///
    /// Source: Server Monitoring, "hello or legacy hello" (MON-05).
    #[must_use]
    pub const fn after(self, hello_ok: bool) -> Self {
        match self {
            Self::Legacy if !hello_ok => Self::Legacy,
            Self::Legacy | Self::Hello => Self::Hello,
        }
    }

    fn write<S: Sink>(self, command: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError> {
        match self {
            Self::Hello => command.int32("hello", 1)?,
            Self::Legacy => command.int32("isMaster", 1)?,
        };
        Ok(())
    }
}

/// The first hello of a connection, with everything that is said only once.
#[derive(Clone, Copy, Debug)]
pub struct HandshakeHello<'a> {
    /// The Stable API, if asked for.
    pub server_api: Option<ServerApi<'a>>,
    /// Whether a load balancer is expected.
    pub load_balanced: bool,
    /// Who is calling.
    pub client: &'a ClientMetadata,
    /// The compressors that this side offers; no compressor is sent as an empty list. To be left at none by a side
    /// without a [`Packer`](crate::compress) for the connection, and on monitoring connections.
    pub compressors: Compressors,
    /// `db.user`, to learn which SASL mechanisms that user has. Not on monitoring connections.
    pub sasl_supported_mechs: Option<&'a str>,
    /// The first message of an authentication that is begun together with hello.
    pub speculative_authenticate: Option<RawDocument<'a>>,
}

impl<'a> HandshakeHello<'a> {
    /// A hello that offers and asks nothing: what monitoring connections send.
    #[must_use]
    pub const fn new(client: &'a ClientMetadata) -> Self {
        Self {
            server_api: None,
            load_balanced: false,
            client,
            compressors: Compressors::NONE,
            sasl_supported_mechs: None,
            speculative_authenticate: None,
        }
    }

    /// By which name it calls hello.
    #[must_use]
    pub const fn command(&self) -> HelloCommand {
        HelloCommand::first(self.server_api, self.load_balanced)
    }
}

/// What this side can do when a server sheds load, in the handshake's `backpressure` field.
const BACKPRESSURE: &str = "2";

/// Writes the first hello of a connection as a message at the end of `sink`, with fields of the caller's at the end of what hello itself says; returns
/// its length in bytes.
///
/// Source: MongoDB Handshake, "Connection handshake" (MON-06, CMAP-92).
pub(crate) fn encode_handshake_hello_with<S: Sink>(
    sink: &mut S,
    request_id: i32,
    hello: &HandshakeHello<'_>,
    more: impl FnOnce(&mut DocumentWriter<'_, S>) -> Result<(), EncodeError>,
) -> Result<usize, EncodeError> {
    encode_command(sink, Outgoing::request(request_id), &Limits::DEFAULT, "admin", |command| {
        hello.command().write(command)?;
        if hello.command() == HelloCommand::Legacy {
            command.boolean("helloOk", true)?;
        }
        command.str("backpressure", BACKPRESSURE)?;
        command.raw_document("client", hello.client.document())?;
        command.array("compression", |names| {
            hello.compressors.iter().try_for_each(|one| names.str(one.name()).map(drop))
        })?;
        if hello.load_balanced {
            command.boolean("loadBalanced", true)?;
        }
        if let Some(user) = hello.sasl_supported_mechs {
            command.str("saslSupportedMechs", user)?;
        }
        if let Some(first) = hello.speculative_authenticate {
            command.raw_document("speculativeAuthenticate", first)?;
        }
        more(command)?;
        hello.server_api.map_or(Ok(()), |api| api.write(command))
    })
}

/// Which hello a monitor or a scan sends. None of them carries credentials or `saslSupportedMechs` (MON-12), none is subject to
/// timeoutMS (MON-25).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HelloKind {
    /// The first one of a connection, with client metadata and `backpressure` (MON-06). It is also the check (MON-19).
    Handshake {
        /// Legacy hello with `helloOk: true`, instead of `hello` (MON-05).
        legacy: bool,
    },
    /// A later one, answered at once and without the handshake's arguments (MON-06).
    Poll {
        /// Legacy hello, instead of `hello`.
        legacy: bool,
    },
    /// A later one, answered when the server has changed or `max_await_time` has passed, and then again and again:
    /// to be sent with both arguments and the exhaustAllowed flag (MON-28).
    Awaitable {
        /// Legacy hello, instead of `hello`.
        legacy: bool,
        /// `topologyVersion` of the reply before.
        topology_version: TopologyVersion,
        /// `maxAwaitTimeMS`: how long the server may keep silent, heartbeatFrequencyMS (MON-29).
        max_await_time: Duration,
    },
}

/// Writes a hello as a message at the end of `sink`. Returns its length in bytes, and the flags that
/// [`Exchange::begin`](crate::message::Exchange::begin) wants to know.
///
/// - `hello`: the arguments of the connection's first hello. Of a later one only the Stable API is written.
///
/// # Errors
///
/// [`EncodeError`]; the sink is as it was.
///
/// Source: MongoDB Handshake, "Connection handshake"; Server Monitoring, "Streaming Protocol" (MON-06, MON-28, CMAP-92).
pub fn encode_hello<S: Sink>(
    sink: &mut S,
    request_id: i32,
    kind: HelloKind,
    hello: &HandshakeHello<'_>,
) -> Result<(usize, Flags), EncodeError> {
    let (legacy, wait) = match kind {
        HelloKind::Handshake { .. } => {
            return Ok((encode_handshake_hello_with(sink, request_id, hello, |_| Ok(()))?, Flags::NONE));
        }
        HelloKind::Poll { legacy } => (legacy, None),
        HelloKind::Awaitable { legacy, topology_version, max_await_time } => {
            (legacy, Some((topology_version, max_await_time)))
        }
    };
    let name = if legacy { HelloCommand::Legacy } else { HelloCommand::Hello };
    let flags = if wait.is_some() { Flags::EXHAUST_ALLOWED } else { Flags::NONE };
    let outgoing = Outgoing::request(request_id).with_flags(flags);
    let length = encode_command(sink, outgoing, &Limits::DEFAULT, "admin", |command| {
        name.write(command)?;
        if let Some((TopologyVersion { process_id, counter }, max_await_time)) = wait {
            command.document("topologyVersion", |version| {
                version.object_id("processId", process_id)?.int64("counter", counter).map(drop)
            })?;
            command.int64("maxAwaitTimeMS", i64::try_from(max_await_time.as_millis()).unwrap_or(i64::MAX))?;
        }
        hello.server_api.map_or(Ok(()), |api| api.write(command))
    })?;
    Ok((length, flags))
}
