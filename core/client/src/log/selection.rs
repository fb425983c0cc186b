//! Messages of server selection (Server Selection, "Logging").

use super::{LogStyle, Logs, SERVER_SELECTION, host_and_port};
use core::fmt;
use poolhouse_driver::{EventKinds, OperationError, SelectionEvent, SelectionStage};
use tracing::Level;
use tracing::level_filters::LevelFilter;

impl Logs {
    /// Whether a subscriber receives the messages of starts and ends.
    pub(super) fn logs_selections(&self) -> bool {
        self.options.server_selection >= LevelFilter::DEBUG && tracing::enabled!(target: SERVER_SELECTION, Level::DEBUG)
    }

    /// Whether a subscriber receives the messages of selections that wait.
    pub(super) fn logs_selection_waits(&self) -> bool {
        self.options.server_selection >= LevelFilter::INFO && tracing::enabled!(target: SERVER_SELECTION, Level::INFO)
    }

    /// The kinds of events of selections that are of use.
    pub(super) fn selection_kinds(&self) -> EventKinds {
        let when = |is_logged: bool, kinds: EventKinds| if is_logged { kinds } else { EventKinds::NONE };
        when(self.logs_selections(), EventKinds::SELECTIONS)
            | when(self.logs_selection_waits(), EventKinds::SELECTION_WAITS)
    }

    /// Logs an event of a selection. The end of a wait has no message.
    ///
    /// - `others_waiting`: number of other operations that wait.
    pub(super) fn selection(&self, event: &SelectionEvent<'_>, others_waiting: usize) {
        match (self.options.style, event.stage) {
            (_, SelectionStage::Waited { .. }) => {}
            (LogStyle::Structured, _) => emit(event, others_waiting),
            (LogStyle::Text, SelectionStage::Waiting { .. }) if others_waiting > 0 => {
                tracing::info!(target: SERVER_SELECTION, "{}. Others waiting: {others_waiting}", Text(event));
            }
            (LogStyle::Text, SelectionStage::Waiting { .. }) => {
                tracing::info!(target: SERVER_SELECTION, "{}", Text(event));
            }
            (LogStyle::Text, _) => tracing::debug!(target: SERVER_SELECTION, "{}", Text(event)),
        }
    }
}

fn emit(event: &SelectionEvent<'_>, others_waiting: usize) {
    macro_rules! selection {
        ($level:ident, $message:literal $(, $name:literal = $value:expr)* $(,)?) => {
            tracing::$level!(
                target: SERVER_SELECTION,
                message = $message,
                "selector" = event.selector,
                "operation" = event.operation,
                "operationId" = event.operation_id,
                "topologyDescription" = display(event.topology)
                $(, $name = $value)*
            )
        };
    }
    match event.stage {
        SelectionStage::Started => selection!(debug, "Server selection started"),
        SelectionStage::Waiting { remaining, .. } => {
            let remaining_ms = remaining.map(|remaining| u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX));
            selection!(
                info,
                "Waiting for suitable server to become available",
                "remainingTimeMS" = remaining_ms,
                "othersWaiting" = (others_waiting > 0).then_some(others_waiting),
            );
        }
        SelectionStage::Waited { .. } => {}
        SelectionStage::Succeeded { address } => {
            let (host, port) = host_and_port(Some(address));
            selection!(debug, "Server selection succeeded", "serverHost" = host, "serverPort" = port);
        }
        SelectionStage::Failed { error } => {
            selection!(debug, "Server selection failed", "failure" = display(Failed(error)));
        }
    }
}

/// The reason of a failed selection.
struct Failed<'a>(Option<&'a OperationError>);

impl fmt::Display for Failed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            // The message has a field for the topology, which the report describes too.
            Some(OperationError::ServerSelection(report)) => report.error().fmt(f),
            Some(error) => error.fmt(f),
            None => f.write_str("the operation was dropped"),
        }
    }
}

/// The unstructured message.
struct Text<'a>(&'a SelectionEvent<'a>);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = self.0;
        f.write_str(match event.stage {
            SelectionStage::Started => "Server selection started",
            SelectionStage::Waiting { .. } | SelectionStage::Waited { .. } => "Waiting for server to become available",
            SelectionStage::Succeeded { .. } => "Server selection succeeded",
            SelectionStage::Failed { .. } => "Server selection failed",
        })?;
        if let Some(operation) = event.operation {
            write!(f, " for operation {operation}")?;
        }
        if let Some(id) = event.operation_id {
            write!(f, " with ID {id}")?;
        }
        match event.stage {
            SelectionStage::Started
            | SelectionStage::Waiting { remaining: None, .. }
            | SelectionStage::Waited { .. } => {}
            SelectionStage::Waiting { remaining: Some(remaining), .. } => {
                write!(f, ". Remaining time: {} ms", remaining.as_millis())?;
            }
            SelectionStage::Succeeded { address } => write!(f, ". Selected server: {address}")?,
            SelectionStage::Failed { error } => write!(f, ". Failure: {}", Failed(error))?,
        }
        write!(f, ". Selector: {}, topology description: {}", event.selector, event.topology)
    }
}
