//! Errors of the tests' servers.

use core::error::Error;
use core::fmt;
use core::time::Duration;
use std::io;

use bson::Document;

/// The reason why a server of the tests could not be started or did not answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum MongodError {
    /// There is no binary, for this reason.
    Unavailable(String),
    /// The server is not running.
    NotRunning,
    /// The operating system returned an error.
    Io {
        /// The operation.
        doing: String,
        /// The system's error.
        source: io::Error,
    },
    /// The server ended before it answered.
    Exited {
        /// Its exit status.
        status: String,
        /// The end of its log.
        log: String,
    },
    /// An operation exceeded its time limit.
    Timeout {
        /// The operation.
        doing: String,
        /// The time limit.
        limit: Duration,
    },
    /// The server refused a command.
    Command {
        /// The error's code, 0 if there was none.
        code: i32,
        /// The error's name.
        name: String,
        /// The error's text.
        message: String,
        /// The whole reply.
        reply: Box<Document>,
    },
    /// The peer sent an invalid reply.
    Malformed(String),
}

impl MongodError {
    /// For `map_err`: an error of the operating system during an operation.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

impl fmt::Display for MongodError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(reason) => f.write_str(reason),
            Self::NotRunning => f.write_str("mongod is not running"),
            Self::Io { doing, source } => write!(f, "{doing}: {source}"),
            Self::Exited { status, log } => write!(f, "mongod ended before it answered ({status}); log: {log}"),
            Self::Timeout { doing, limit } => write!(f, "{doing}: not done after {limit:?}"),
            Self::Command { code, name, message, .. } => write!(f, "mongod refused: {message} ({name}, {code})"),
            Self::Malformed(what) => write!(f, "not a reply: {what}"),
        }
    }
}

impl Error for MongodError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        if let Self::Io { source, .. } = self { Some(source) } else { None }
    }
}
