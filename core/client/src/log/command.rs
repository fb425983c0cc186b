//! Messages of commands (Command Logging and Monitoring, "Log Messages"). They are emitted at once,
//! because no lock is held then.

use super::{COMMAND, LogStyle, Logs, host_and_port, millis};
use core::fmt;
use poolhouse_core::observe::Truncated;
use poolhouse_driver::{CommandEvent, CommandStage, EventKinds, OperationError};
use tracing::Level;
use tracing::field::display;
use tracing::level_filters::LevelFilter;

impl Logs {
    /// Whether a subscriber receives messages of commands.
    fn logs_commands(&self) -> bool {
        self.options.command >= LevelFilter::DEBUG && tracing::enabled!(target: COMMAND, Level::DEBUG)
    }

    /// Whether a subscriber receives warnings of slow commands.
    fn warns_of_slow_commands(&self) -> bool {
        self.options.slow_command.is_some()
            && self.options.command >= LevelFilter::WARN
            && tracing::enabled!(target: COMMAND, Level::WARN)
    }

    /// The kinds of events of commands that are of use.
    pub(super) fn command_kinds(&self) -> EventKinds {
        if self.logs_commands() || self.warns_of_slow_commands() { EventKinds::COMMANDS } else { EventKinds::NONE }
    }

    /// Logs an event of a command.
    pub(super) fn command(&self, event: &CommandEvent<'_>) {
        if self.logs_commands() {
            match self.options.style {
                LogStyle::Structured => self.emit(event),
                LogStyle::Text => tracing::debug!(target: COMMAND, "{}", Text(event, self)),
            }
        }
        let is_slow = |limit| event.duration().is_some_and(|duration| duration >= limit);
        if self.options.slow_command.is_some_and(is_slow) && self.warns_of_slow_commands() {
            warn_of_slow(event, self.options.style);
        }
    }

    fn document<'a>(&self, event: &CommandEvent<'a>) -> impl fmt::Display + use<'a> {
        Truncated::new(event.document.relaxed_json(), self.options.document_length_max)
    }

    fn emit(&self, event: &CommandEvent<'_>) {
        macro_rules! command {
            ($message:literal $(, $name:literal = $value:expr)* $(,)?) => {{
                let (host, port) = host_and_port(Some(event.address));
                tracing::debug!(
                    target: COMMAND,
                    message = $message,
                    "commandName" = event.name,
                    "databaseName" = event.database,
                    "requestId" = event.request_id,
                    "operationId" = event.operation_id,
                    "driverConnectionId" = event.connection_id,
                    "serverConnectionId" = event.server_connection_id,
                    "serverHost" = host,
                    "serverPort" = port,
                    "serviceId" = event.service_id.map(display)
                    $(, $name = $value)*
                )
            }};
        }
        let document = display(self.document(event));
        match event.stage {
            CommandStage::Started => command!("Command started", "command" = document),
            CommandStage::Succeeded { duration } => {
                command!("Command succeeded", "durationMS" = millis(duration), "reply" = document);
            }
            CommandStage::Failed { duration, error } => {
                let failure = Failed { error, document: has_reply(event).then_some(document) };
                command!("Command failed", "durationMS" = millis(duration), "failure" = display(failure));
            }
        }
    }
}

/// Whether the event has the error of the server. That of a sensitive command is not shown.
const fn has_reply(event: &CommandEvent<'_>) -> bool {
    !event.document.is_empty()
}

/// A warning of a slow command, without its documents.
fn warn_of_slow(event: &CommandEvent<'_>, style: LogStyle) {
    let Some(duration) = event.duration() else { return };
    let (name, database, address) = (event.name, event.database, event.address);
    let duration = millis(duration);
    if style == LogStyle::Text {
        tracing::warn!(target: COMMAND, "Slow command \"{name}\" on database \"{database}\" of {address}: {duration} ms");
        return;
    }
    let (host, port) = host_and_port(Some(address));
    tracing::warn!(
        target: COMMAND,
        message = "Slow command",
        "commandName" = name,
        "databaseName" = database,
        "requestId" = event.request_id,
        "operationId" = event.operation_id,
        "driverConnectionId" = event.connection_id,
        "serverHost" = host,
        "serverPort" = port,
        "durationMS" = duration
    );
}

/// The error of a command: the reply of the server, if there is one.
struct Failed<'a, D> {
    error: &'a OperationError,
    document: Option<D>,
}

impl<D: fmt::Display> fmt::Display for Failed<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.document {
            Some(document) => document.fmt(f),
            None => self.error.fmt(f),
        }
    }
}

/// The unstructured message.
struct Text<'a>(&'a CommandEvent<'a>, &'a Logs);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(event, logs) = self;
        let (name, database) = (event.name, event.database);
        let (verb, duration) = match event.stage {
            CommandStage::Started => ("started", None),
            CommandStage::Succeeded { duration } => ("succeeded", Some(duration)),
            CommandStage::Failed { duration, .. } => ("failed", Some(duration)),
        };
        write!(f, "Command \"{name}\" {verb} on database \"{database}\"")?;
        if let Some(duration) = duration {
            write!(f, " in {} ms", millis(duration))?;
        }
        write!(f, " using a connection with driver-generated ID {}", event.connection_id)?;
        if let Some(id) = event.server_connection_id {
            write!(f, " and server-generated ID {id}")?;
        }
        write!(f, " to {}", event.address)?;
        if let Some(id) = event.service_id {
            write!(f, " with service ID {id}")?;
        }
        write!(f, ". The requestID is {} and the operation ID is {}. ", event.request_id, event.operation_id)?;
        let document = logs.document(event);
        match event.stage {
            CommandStage::Started => write!(f, "Command: {document}"),
            CommandStage::Succeeded { .. } => write!(f, "Command reply: {document}"),
            CommandStage::Failed { error, .. } => {
                write!(f, "Error: {}", Failed { error, document: has_reply(event).then_some(document) })
            }
        }
    }
}
