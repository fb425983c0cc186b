//! Encoding of hello.

use super::metadata::ClientMetadata;
use crate::bson::{DocumentWriter, RawDocument};
use crate::compress::Compressors;
use crate::error::EncodeError;
use crate::message::{Flags, Limits, Outgoing, encode_command};
use crate::server::TopologyVersion;
use crate::sink::Sink;
use core::time::Duration;

/// The Stable API that the application selected. Sent with every command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerApi<'a> {
    /// `apiVersion`, such as `"1"`.
    pub version: &'a str,
    /// `apiStrict`; not sent when absent.
    pub strict: Option<bool>,
    /// `apiDeprecationErrors`; not sent when absent.
    pub deprecation_errors: Option<bool>,
}

impl ServerApi<'static> {
    /// Version 1.
    pub const V1: Self = Self { version: "1", strict: None, deprecation_errors: None };
}

impl ServerApi<'_> {
    /// Sets whether servers refuse commands that are not part of the version.
    #[must_use]
    pub const fn strict(self, strict: bool) -> Self {
        Self { strict: Some(strict), ..self }
    }

    /// Sets whether servers refuse commands that are deprecated in the version.
    #[must_use]
    pub const fn deprecation_errors(self, errors: bool) -> Self {
        Self { deprecation_errors: Some(errors), ..self }
    }

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

/// The command name of hello on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HelloCommand {
    /// `hello`.
    Hello,
    /// The old name. In a handshake it is sent with `helloOk: true`, which announces support for
    /// the new name.
    Legacy,
}

impl HelloCommand {
    /// The name for the first hello of a connection: the new name if the Stable API or a load
    /// balancer guarantees that the server supports it. Every connection begins with this choice.
    ///
    /// Source: Server Monitoring, "hello or legacy hello"; Load Balancers, "Connection
    /// Establishment".
    #[must_use]
    pub const fn first(server_api: Option<ServerApi<'_>>, load_balanced: bool) -> Self {
        if server_api.is_some() || load_balanced { Self::Hello } else { Self::Legacy }
    }

    /// The name for the next hello of a connection, after a reply with or without `helloOk`.
    ///
    /// Source: Server Monitoring, "hello or legacy hello".
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

/// The first hello of a connection, with the fields that are sent only once.
#[derive(Clone, Copy, Debug)]
pub struct HandshakeHello<'a> {
    /// The Stable API, if selected.
    pub server_api: Option<ServerApi<'a>>,
    /// Whether a load balancer is expected.
    pub load_balanced: bool,
    /// The client metadata.
    pub client: &'a ClientMetadata,
    /// The compressors to offer; without any, an empty list is sent. Must be empty on monitor
    /// connections, and if the connection has no [`Packer`](crate::compress).
    pub compressors: Compressors,
    /// `db.user`: asks for the SASL mechanisms of that user. Not on monitor connections.
    pub sasl_supported_mechs: Option<&'a str>,
    /// The first message of a speculative authentication, sent with hello.
    pub speculative_authenticate: Option<RawDocument<'a>>,
}

impl<'a> HandshakeHello<'a> {
    /// A hello without offers and queries, as monitor connections send it.
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

    /// The command name it uses.
    #[must_use]
    pub const fn command(&self) -> HelloCommand {
        HelloCommand::first(self.server_api, self.load_balanced)
    }
}

/// The overload protocol version that this side supports, in the handshake's `backpressure` field.
const BACKPRESSURE: &str = "2";

/// Writes the first hello of a connection as a message at the end of `sink`. `more` appends fields
/// after those of hello. Returns the message's length in bytes.
///
/// Source: MongoDB Handshake, "Connection handshake".
pub(crate) fn encode_handshake_hello_with<S: Sink>(
    sink: &mut S,
    request_id: i32,
    hello: &HandshakeHello<'_>,
    more: &dyn Fn(&mut DocumentWriter<'_, S>) -> Result<(), EncodeError>,
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

/// The kind of hello that a monitor or a scan sends. No kind contains credentials or
/// `saslSupportedMechs`, and none is subject to timeoutMS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HelloKind {
    /// The first hello of a connection, with client metadata and `backpressure`. It also
    /// serves as the first check.
    Handshake {
        /// Whether to use legacy hello with `helloOk: true` instead of `hello`.
        legacy: bool,
    },
    /// A later hello, answered immediately and sent without the handshake's arguments.
    Poll {
        /// Whether to use legacy hello instead of `hello`.
        legacy: bool,
    },
    /// A later hello. The server replies when its state has changed or `max_await_time` has passed,
    /// and continues to send replies: sent with both arguments and the exhaustAllowed flag.
    Awaitable {
        /// Whether to use legacy hello instead of `hello`.
        legacy: bool,
        /// `topologyVersion` of the previous reply.
        topology_version: TopologyVersion,
        /// `maxAwaitTimeMS`: maximum time until the next reply, heartbeatFrequencyMS.
        max_await_time: Duration,
    },
}

/// Writes a hello as a message at the end of `sink`. Returns its length in bytes, and the flags to
/// pass to [`Exchange::begin`](crate::message::Exchange::begin).
///
/// - `hello`: the arguments of the connection's first hello. A later one uses only the Stable API.
///
/// # Errors
///
/// [`EncodeError`]; the sink is unchanged.
///
/// Source: MongoDB Handshake, "Connection handshake"; Server Monitoring, "Streaming Protocol".
pub fn encode_hello<S: Sink>(
    sink: &mut S,
    request_id: i32,
    kind: HelloKind,
    hello: &HandshakeHello<'_>,
) -> Result<(usize, Flags), EncodeError> {
    let (legacy, wait) = match kind {
        HelloKind::Handshake { .. } => {
            return Ok((encode_handshake_hello_with(sink, request_id, hello, &|_| Ok(()))?, Flags::NONE));
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
