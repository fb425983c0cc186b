//! Building hello.

use super::metadata::ClientMetadata;
use crate::server::TopologyVersion;
use crate::wire::bson::{DocumentWriter, RawDocument};
use crate::wire::compress::Compressors;
use crate::wire::error::EncodeError;
use crate::wire::message::{Flags, Limits, Outgoing, encode_command};
use crate::wire::sink::Sink;

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
    /// without a [`Packer`](crate::wire::compress) for the connection, and on monitoring connections.
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

/// Writes the first hello of a connection as a message at the end of `sink`; returns its length in bytes.
///
/// # Errors
///
/// [`EncodeError`]; the sink is as it was.
///
/// Source: MongoDB Handshake, "Connection handshake" (MON-06, CMAP-92).
pub fn encode_handshake_hello<S: Sink>(
    sink: &mut S,
    request_id: i32,
    hello: &HandshakeHello<'_>,
) -> Result<usize, EncodeError> {
    encode_handshake_hello_with(sink, request_id, hello, |_| Ok(()))
}

/// The same with fields of the caller's at the end of what hello itself says.
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

/// What makes a hello wait at the server until there is news. Both are sent, or neither (MON-28).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AwaitHello {
    /// The state that is known already.
    pub topology_version: TopologyVersion,
    /// How long the server may keep silent, in milliseconds.
    pub max_await_time_ms: u64,
    /// Whether the server may go on to reply without being asked again.
    pub exhaust: bool,
}

/// Writes a later hello of a connection: without anything that belongs to the handshake, and with
/// `topologyVersion` and `maxAwaitTimeMS` if it is to wait. Returns its length in bytes, and the flags that
/// [`Exchange::begin`](crate::wire::message::Exchange::begin) wants to know.
///
/// # Errors
///
/// [`EncodeError`]; the sink is as it was.
///
/// Source: Server Monitoring, "Streaming Protocol" (MON-06, MON-28).
pub fn encode_hello<S: Sink>(
    sink: &mut S,
    request_id: i32,
    name: HelloCommand,
    server_api: Option<ServerApi<'_>>,
    wait: Option<AwaitHello>,
) -> Result<(usize, Flags), EncodeError> {
    let exhaust = wait.is_some_and(|wait| wait.exhaust);
    let flags = if exhaust { Flags::EXHAUST_ALLOWED } else { Flags::NONE };
    let outgoing = Outgoing::request(request_id).with_flags(flags);
    let length = encode_command(sink, outgoing, &Limits::DEFAULT, "admin", |command| {
        name.write(command)?;
        if let Some(wait) = wait {
            let TopologyVersion { process_id, counter } = wait.topology_version;
            command.document("topologyVersion", |version| {
                version.object_id("processId", process_id)?.int64("counter", counter).map(drop)
            })?;
            command.int64("maxAwaitTimeMS", i64::try_from(wait.max_await_time_ms).unwrap_or(i64::MAX))?;
        }
        server_api.map_or(Ok(()), |api| api.write(command))
    })?;
    Ok((length, flags))
}
