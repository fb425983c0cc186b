//! Events of commands.
//!
//! Read first: Command Logging and Monitoring, "Guidance" and "Security".

use crate::error::OperationError;
use alloc::borrow::ToOwned as _;
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use core::time::Duration;
use poolhouse_core::ObjectId;
use poolhouse_wire::bson::RawDocument;

/// An event of a command: its start, before it is sent, and one end. Commands of handshakes and
/// monitors have no events.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CommandEvent<'a> {
    /// The start, or the end with its outcome.
    pub stage: CommandStage<'a>,
    /// The command's name.
    pub name: &'a str,
    /// The database.
    pub database: &'a str,
    /// The id of the message, unique on its connection.
    pub request_id: i32,
    /// The id of the operation: that of all its attempts. `request_id`, for a command on the bare
    /// [`Guard`](crate::Guard), which is no operation of a client.
    pub operation_id: i64,
    /// The address of the server.
    pub address: &'a str,
    /// The driver's id of the connection: its number in its pool.
    pub connection_id: u64,
    /// The server's id of the connection.
    pub server_connection_id: Option<i64>,
    /// The service behind a load balancer.
    pub service_id: Option<ObjectId>,
    /// The command, or at its end the reply. Empty if there is none, and for a
    /// [sensitive](poolhouse_wire::command::is_sensitive) command. A subscription keeps at most
    /// [`SUBSCRIPTION_BYTES`](crate::SUBSCRIPTION_BYTES) for its reader, so a longer document is lost
    /// (`Notice::Lagged`), and only a [`Publish`](crate::Publish) receives it.
    pub document: RawDocument<'a>,
}

/// The start of a command, or its end with the outcome.
#[derive(Clone, Copy, Debug)]
pub enum CommandStage<'a> {
    /// It was encoded, and will be sent if it can be compressed and written.
    Started,
    /// The reply has `ok: 1`. It may have write errors.
    Succeeded {
        /// The time since the start.
        duration: Duration,
    },
    /// The reply has `ok: 0`, or there is no reply. If the future of the command was dropped, the
    /// error is [`OperationError::Broken`].
    Failed {
        /// The time since the start.
        duration: Duration,
        /// The error.
        error: &'a OperationError,
    },
}

impl<'a> CommandEvent<'a> {
    /// Creates an event without its other fields, such as for a test of a publisher.
    #[must_use]
    pub const fn new(stage: CommandStage<'a>, name: &'a str) -> Self {
        Self {
            stage,
            name,
            database: "",
            request_id: 0,
            operation_id: 0,
            address: "",
            connection_id: 0,
            server_connection_id: None,
            service_id: None,
            document: RawDocument::EMPTY,
        }
    }

    /// The name of the event.
    #[must_use]
    pub const fn event_name(&self) -> &'static str {
        match self.stage {
            CommandStage::Started => "CommandStarted",
            CommandStage::Succeeded { .. } => "CommandSucceeded",
            CommandStage::Failed { .. } => "CommandFailed",
        }
    }

    /// The time from the start to the end; `None` at the start.
    #[must_use]
    pub const fn duration(&self) -> Option<Duration> {
        match self.stage {
            CommandStage::Started => None,
            CommandStage::Succeeded { duration } | CommandStage::Failed { duration, .. } => Some(duration),
        }
    }

    /// Returns an owned copy.
    #[must_use]
    pub fn to_owned(&self) -> OwnedCommandEvent {
        OwnedCommandEvent {
            stage: match self.stage {
                CommandStage::Started => OwnedStage::Started,
                CommandStage::Succeeded { duration } => OwnedStage::Succeeded(duration),
                CommandStage::Failed { duration, error } => OwnedStage::Failed(duration, error.clone()),
            },
            name: self.name.to_owned(),
            database: self.database.to_owned(),
            request_id: self.request_id,
            operation_id: self.operation_id,
            address: self.address.to_owned(),
            connection_id: self.connection_id,
            server_connection_id: self.server_connection_id,
            service_id: self.service_id,
            document: self.document.as_bytes().into(),
        }
    }
}

impl fmt::Display for CommandEvent<'_> {
    /// Writes no document: it may be long, and has data of the application.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.event_name(), self.name, self.address)?;
        if let Some(duration) = self.duration() {
            write!(f, " after {duration:?}")?;
        }
        if let CommandStage::Failed { error, .. } = self.stage { write!(f, ": {error}") } else { Ok(()) }
    }
}

/// An owned [`CommandEvent`].
#[derive(Clone, Debug)]
pub struct OwnedCommandEvent {
    stage: OwnedStage,
    name: String,
    database: String,
    request_id: i32,
    operation_id: i64,
    address: String,
    connection_id: u64,
    server_connection_id: Option<i64>,
    service_id: Option<ObjectId>,
    document: Box<[u8]>,
}

#[derive(Clone, Debug)]
enum OwnedStage {
    Started,
    Succeeded(Duration),
    Failed(Duration, OperationError),
}

impl OwnedCommandEvent {
    /// Returns the event.
    #[must_use]
    pub fn get(&self) -> CommandEvent<'_> {
        CommandEvent {
            stage: match &self.stage {
                OwnedStage::Started => CommandStage::Started,
                OwnedStage::Succeeded(duration) => CommandStage::Succeeded { duration: *duration },
                OwnedStage::Failed(duration, error) => CommandStage::Failed { duration: *duration, error },
            },
            name: &self.name,
            database: &self.database,
            request_id: self.request_id,
            operation_id: self.operation_id,
            address: &self.address,
            connection_id: self.connection_id,
            server_connection_id: self.server_connection_id,
            service_id: self.service_id,
            document: RawDocument::new(&self.document).unwrap_or(RawDocument::EMPTY),
        }
    }

    /// The bytes of its heap memory.
    #[cfg(feature = "std")]
    pub(super) fn heap_bytes(&self) -> usize {
        self.name.len() + self.database.len() + self.address.len() + self.document.len()
    }
}
