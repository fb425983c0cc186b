//! Why an operation ended, and the errors that tests expect.

use crate::matching::{self, Entities, integer};
use bson::{Bson, Document};
use core::fmt;
use poolhouse_smol::Error;

/// Why an operation or a test ended.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The client returned an error; with the result of the writes before it.
    Error(Box<Error>, Option<Document>),
    /// The runner refuses the arguments, as a collection of the client will.
    Refused(String),
    /// The test needs an API that is missing, or the runner does not know it.
    Unsupported(String),
    /// The test cannot go on.
    Fault(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(Box::new(error), None)
    }
}

impl From<String> for Stop {
    fn from(error: String) -> Self {
        Self::Fault(error)
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error, _) => write!(f, "it failed: {error}"),
            Self::Refused(what) => write!(f, "it was refused: {what}"),
            Self::Unsupported(what) => write!(f, "unsupported: {what}"),
            Self::Fault(why) => f.write_str(why),
        }
    }
}

/// Whether a change stream goes on after an error of its cursor: one of the network, CursorNotFound, or one
/// with the label.
pub(crate) fn is_resumable(stop: &Stop) -> bool {
    let Stop::Error(error, _) = stop else { return false };
    let is_of_network = matches!(**error, Error::Operation(..)) && !error.is_timeout();
    is_of_network || error.code() == Some(43) || error.has_label("ResumableChangeStreamError")
}

/// The reply of the server.
fn reply(error: &Error) -> Option<&Document> {
    match error {
        Error::Timeout(last) => reply(last),
        Error::Command(error) => Some(&error.reply),
        Error::Write(error) => Some(&error.reply),
        _ => None,
    }
}

/// The name of the server's code. The reply of a failed write has it in the error of the write concern
/// only.
fn code_name(error: &Error) -> Option<&str> {
    match error {
        Error::Timeout(last) => code_name(last),
        Error::Command(error) => error.code_name.as_deref(),
        Error::Write(error) => error.code_name.as_deref(),
        _ => None,
    }
}

/// Compares the end of an operation with `expectError`.
pub(crate) fn check(stop: &Stop, expected: &Document, entities: &dyn Entities) -> Result<(), String> {
    let (error, partial, text) = match stop {
        Stop::Error(error, partial) => (Some(&**error), partial.as_ref(), error.to_string()),
        other => (None, None, other.to_string()),
    };
    let mut wrong = Vec::new();
    for (name, value) in expected {
        let has_labels = |wanted: bool| {
            let mut labels = value.as_array().into_iter().flatten().filter_map(Bson::as_str);
            labels.all(|label| error.is_some_and(|error| error.has_label(label)) == wanted)
        };
        let is_right = match name.as_str() {
            "isError" => true,
            "isClientError" => value.as_bool() == Some(error.is_none_or(|error| reply(error).is_none())),
            "isTimeoutError" => value.as_bool() == Some(error.is_some_and(Error::is_timeout)),
            "errorContains" => {
                let part = value.as_str().unwrap_or_default().to_ascii_lowercase();
                text.to_ascii_lowercase().contains(&part)
            }
            "errorCode" => error.and_then(Error::code).map(i64::from) == integer(value),
            "errorCodeName" => error.and_then(code_name) == value.as_str(),
            "errorLabelsContain" => has_labels(true),
            "errorLabelsOmit" => has_labels(false),
            "expectResult" => {
                let partial = partial.cloned().map(Bson::Document);
                matching::check(value, partial.as_ref(), entities).map_err(|error| format!("{name}: {error}"))?;
                true
            }
            "errorResponse" => {
                let reply = error.and_then(reply).cloned().map(Bson::Document);
                matching::check(value, reply.as_ref(), entities).map_err(|error| format!("{name}: {error}"))?;
                true
            }
            other => return Err(format!("unknown field {other} of expectError")),
        };
        if !is_right {
            wrong.push(format!("{name}: {value}"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("{text}, expected {}", wrong.join(", "))) }
}
