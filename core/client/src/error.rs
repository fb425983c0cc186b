//! Errors of a client.

pub(super) mod hint;
#[cfg(test)]
mod tests;
mod write;

pub use write::WriteError;
pub(super) use write::labels;

#[cfg(feature = "tls")]
use crate::tls::TlsError;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;
use poolhouse_core::pool::CheckOutError;
use poolhouse_core::selection::SelectionFailure;
use poolhouse_core::topology::TopologyConfigError;
use poolhouse_core::{Cause, ConfigError};
use poolhouse_driver::OperationError;
use poolhouse_uri::dns::{LookupError, SeedlistError};
use poolhouse_uri::{UriError, UriWarning};
use poolhouse_wire::hello::MetadataError;
use poolhouse_wire::peer_text::OneLine;
use poolhouse_wire::{AuthError, Labels};

/// The error of a client's function.
///
/// The `Display` text is complete. [`source`](core::error::Error::source) leads to the underlying
/// errors. The last one is the [`std::io::Error`] of the operating system, or the error of TLS or
/// the resolver, if one of these was the cause. A variant that adds no text to its error is no link
/// of this chain, so that no text is in it twice: match the variant to reach its error.
#[derive(Clone)]
#[non_exhaustive]
pub enum Error {
    /// A client, session or change of options was refused; nothing was started or changed.
    Setup(SetupError),
    /// The operation failed without a reply of a server. The labels are those that the client has
    /// added: `RetryableWriteError` after a network error of a retryable write; and in transactions
    /// `TransientTransactionError`, or `UnknownTransactionCommitResult` if the commit failed.
    /// [`Error::has_label`] also knows `SystemOverloadedError` and `RetryableError`, if an overloaded
    /// server did not establish the connection.
    Operation(OperationError, Labels),
    /// The time limit of the operation leaves no time for another attempt after this error, whose labels
    /// and code it has.
    ///
    /// Source: Client Side Operations Timeout, "Errors" and "Retryability".
    Timeout(Box<Self>),
    /// The server refused the command.
    Command(Box<CommandError>),
    /// The command succeeded, but writes of it failed or were not acknowledged as required.
    Write(Box<WriteError>),
    /// A command cannot run in its session.
    Session(&'static str),
    /// A reply of a cursor violates the protocol.
    Cursor(&'static str),
    /// A document cannot be encoded, and nothing was sent; or a document of a reply cannot be decoded, and
    /// the command was executed. The text says which, and names the field where one is the cause.
    Bson(String),
}

/// An error that prevented creating a client or session, or changing its options.
#[derive(Clone)]
#[non_exhaustive]
pub enum SetupError {
    /// The connection string is malformed. The error describes the fault and its position, and does
    /// not contain the string.
    Uri(Box<UriError>),
    /// [`Client::new`](super::Client::new) refuses an option of the connection string, because its
    /// value is not allowed or its name is probably misspelled.
    Mistake(Box<UriWarning>),
    /// A `mongodb+srv://` string was passed to a function that performs no lookup.
    LookupNeeded,
    /// The hosts of a `mongodb+srv://` string were not found, or the records found are not allowed.
    Seedlist(Box<SeedlistError>),
    /// The connection string requires the named feature, which is not implemented or not compiled
    /// in.
    Unsupported(&'static str),
    /// A numeric option is out of its range.
    Config(ConfigError),
    /// A text option violates its rule; for example, a host is malformed.
    Option(Box<OptionError>),
    /// Options that contradict each other.
    Topology(TopologyConfigError),
    /// TLS cannot be configured with these options.
    #[cfg(feature = "tls")]
    Tls(TlsError),
    /// The credential cannot be used, or would be sent without protection.
    Credential(AuthError),
    /// The client metadata of the handshake is too long.
    Metadata(MetadataError),
    /// This process was forked from a process that had used this runtime, which does not survive a
    /// fork. (An operation of an inherited client fails with [`OperationError::Forked`].)
    Forked,
    /// Memory for the client ran out.
    OutOfMemory,
}

/// A text option violates its rule: `replicaSet is "", but must not be empty`.
#[derive(Clone, PartialEq, Eq)]
pub struct OptionError {
    option: &'static str,
    value: String,
    rule: &'static str,
}

impl OptionError {
    pub(super) fn new(option: &'static str, value: &str, rule: &'static str) -> Self {
        Self { option, value: value.into(), rule }
    }

    /// Returns the option's name: its standard name, or its field in
    /// [`ClientOptions`](super::ClientOptions).
    #[must_use]
    pub const fn option(&self) -> &'static str {
        self.option
    }

    /// Returns the rejected value; `[redacted]` if it may contain a password.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns the rule that the value violates: a phrase that follows "must".
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        self.rule
    }
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {:?}, but must {}", self.option, self.value, self.rule)
    }
}

poolhouse_wire::debug_as_display!(OptionError);

impl core::error::Error for OptionError {}

/// The error reply of a server to a command.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct CommandError {
    /// The address of the server that refused the command.
    pub server: String,
    /// The numeric error code; 0 if the reply has none.
    pub code: i32,
    /// The name of the code, if the reply has one.
    pub code_name: Option<String>,
    /// The error message, if the reply has one.
    pub message: Option<String>,
    /// The error labels.
    pub labels: Vec<String>,
    /// The whole reply.
    pub reply: bson::Document,
    /// A probable mistake and its remedy, if one is known.
    pub hint: Option<&'static str>,
}

impl Error {
    /// Returns the error of the check-out, if the check-out failed.
    #[must_use]
    pub const fn check_out(&self) -> Option<&CheckOutError> {
        match self.operation() {
            Some(error) => error.check_out(),
            None => None,
        }
    }

    /// Returns the error of the last attempt, if this is an operation that had no time for another one.
    pub(super) fn last(&self) -> &Self {
        if let Self::Timeout(error) = self { error } else { self }
    }

    /// Returns the error of an operation without a reply.
    pub(super) const fn operation(&self) -> Option<&OperationError> {
        match self {
            Self::Operation(error, _) => Some(error),
            Self::Timeout(error) => error.operation(),
            Self::Setup(_) | Self::Command(_) | Self::Write(_) | Self::Session(_) | Self::Cursor(_) | Self::Bson(_) => {
                None
            }
        }
    }

    /// Whether the server cannot have executed any part of the operation, so any operation may be
    /// retried.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Operation(error, _) => error.is_retryable(),
            Self::Timeout(error) => error.is_retryable(),
            Self::Command(_) => self.has_label("RetryableError"),
            Self::Setup(_) | Self::Write(_) | Self::Session(_) | Self::Cursor(_) | Self::Bson(_) => false,
        }
    }

    /// Whether a retry on another server, or later on the same server, is likely to succeed. The
    /// server may have executed the command nevertheless.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Operation(error, _) => error.is_transient(),
            Self::Timeout(error) => error.is_transient(),
            Self::Command(error) => OperationError::Command { code: error.code, labels: Labels::NONE }.is_transient(),
            Self::Write(error) => OperationError::Command { code: error.code, labels: Labels::NONE }.is_transient(),
            Self::Setup(_) | Self::Session(_) | Self::Cursor(_) | Self::Bson(_) => false,
        }
    }

    /// Returns the server's numeric error code: that of a refused command or of the first failed
    /// write.
    #[must_use]
    pub const fn code(&self) -> Option<i32> {
        match self {
            Self::Command(error) => Some(error.code),
            Self::Write(error) => Some(error.code),
            Self::Timeout(error) => error.code(),
            Self::Setup(_) | Self::Operation(..) | Self::Session(_) | Self::Cursor(_) | Self::Bson(_) => None,
        }
    }

    /// Whether the error has this label, which the server or the client has added.
    #[must_use]
    pub fn has_label(&self, label: &str) -> bool {
        let labels = match self {
            Self::Command(error) => &error.labels,
            Self::Write(error) => &error.labels,
            Self::Operation(error, labels) => {
                let overload = Labels::SYSTEM_OVERLOADED_ERROR | Labels::RETRYABLE_ERROR;
                let own = if error.is_overload() { overload } else { Labels::NONE };
                return (*labels | own).names().any(|known| known == label);
            }
            Self::Timeout(error) => return error.has_label(label),
            Self::Setup(_) | Self::Session(_) | Self::Cursor(_) | Self::Bson(_) => return false,
        };
        labels.iter().any(|known| known == label)
    }

    /// Adds a label to the error of an operation or a server, if it has none of it.
    pub(super) fn with_label(self, label: Labels) -> Self {
        let Some(name) = label.names().next().filter(|name| !self.has_label(name)) else { return self };
        match self {
            Self::Operation(error, labels) => Self::Operation(error, labels | label),
            Self::Timeout(error) => Self::Timeout(Box::new(error.with_label(label))),
            Self::Command(mut error) => {
                error.labels.push(name.into());
                Self::Command(error)
            }
            Self::Write(mut error) => {
                error.labels.push(name.into());
                Self::Write(error)
            }
            Self::Setup(_) | Self::Session(_) | Self::Cursor(_) | Self::Bson(_) => self,
        }
    }

    /// Whether the server would have labelled this error `RetryableWriteError` if its release were 4.4
    /// or later: by the code of a refused command, or by that of a write concern error of a server
    /// that is no router.
    ///
    /// Source: Retryable Writes, "Determining Retryable Errors".
    pub(super) fn is_retryable_write_by_code(&self, max_wire_version: i32, is_router: bool) -> bool {
        const WIRE_VERSION_4_4: i32 = 9;
        const READ_CONCERN_NOT_AVAILABLE_YET: i32 = 134;
        let by_code = match self {
            Self::Command(_) => true,
            Self::Write(error) => error.index.is_none() && !is_router,
            Self::Timeout(error) => return error.is_retryable_write_by_code(max_wire_version, is_router),
            Self::Setup(_) | Self::Operation(..) | Self::Session(_) | Self::Cursor(_) | Self::Bson(_) => return false,
        };
        let by_code = by_code && max_wire_version < WIRE_VERSION_4_4;
        by_code && self.is_transient() && self.code() != Some(READ_CONCERN_NOT_AVAILABLE_YET)
    }

    /// Whether an overloaded server refused the command or the connection for it: see
    /// [`OperationError::is_overload`].
    #[must_use]
    pub fn is_overload(&self) -> bool {
        match self {
            Self::Operation(error, _) => error.is_overload(),
            Self::Timeout(error) => error.is_overload(),
            Self::Command(_) => self.has_label("SystemOverloadedError") && self.has_label("RetryableError"),
            Self::Setup(_) | Self::Write(_) | Self::Session(_) | Self::Cursor(_) | Self::Bson(_) => false,
        }
    }

    /// The type of the error in metrics: `error.type`.
    pub(super) fn type_name(&self) -> Cow<'static, str> {
        let name = match self {
            Self::Command(error) => return Cow::Owned(error.code.to_string()),
            Self::Write(error) => return Cow::Owned(error.code.to_string()),
            Self::Timeout(_) => "timeout",
            Self::Operation(error, _) => match error {
                OperationError::Timeout => "timeout",
                OperationError::ServerSelection(_) | OperationError::Busy => "no_server",
                OperationError::CheckOut(_) => "check_out",
                OperationError::Authentication(_) => "authentication",
                OperationError::Closed | OperationError::Abandoned | OperationError::Forked => "closed",
                OperationError::Command { code, .. } => return Cow::Owned(code.to_string()),
                OperationError::Exchange(_) | OperationError::Interrupted(_) | OperationError::Broken(_) | _ => {
                    "network"
                }
            },
            Self::Cursor(_) => "reply",
            Self::Setup(_) | Self::Session(_) | Self::Bson(_) => "invalid",
        };
        Cow::Borrowed(name)
    }

    /// Whether a deadline or time limit expired, or left no time for a retry: that of the operation, of
    /// server selection, of the wait for a connection, of connection establishment, of a lookup, or
    /// `maxTimeMS` on the server.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        const MAX_TIME_EXPIRED: i32 = 50;
        if matches!(self, Self::Timeout(_)) || self.code() == Some(MAX_TIME_EXPIRED) {
            return true;
        }
        if let Self::Setup(SetupError::Seedlist(error)) = self {
            let (SeedlistError::Srv { error, .. } | SeedlistError::Txt { error, .. }) = &**error else {
                return false;
            };
            return *error == LookupError::Timeout;
        }
        if let Some(OperationError::ServerSelection(report)) = self.operation() {
            return matches!(report.error().failure(), SelectionFailure::TimedOut { .. });
        }
        let Some(OperationError::CheckOut(failure)) = self.operation() else {
            return matches!(self.operation(), Some(OperationError::Timeout));
        };
        matches!(
            failure.error,
            CheckOutError::WaitQueueTimeout { .. }
                | CheckOutError::EstablishFailed { cause: Cause::NetworkTimeout, .. }
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setup(error) => error.fmt(f),
            Self::Operation(error, _) => error.fmt(f),
            Self::Timeout(error) => write!(f, "no time for another attempt after: {error}"),
            Self::Command(error) => error.fmt(f),
            Self::Write(error) => error.fmt(f),
            Self::Session(what) => write!(f, "session: {what}"),
            Self::Cursor(what) => write!(f, "cursor: {what}"),
            // A type's own error may quote the document.
            Self::Bson(what) => write!(f, "BSON: {}", OneLine(what)),
        }
    }
}

poolhouse_wire::debug_as_display!(Error);

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Setup(error) => error.source(),
            Self::Operation(error, _) => error.source(),
            Self::Timeout(error) => Some(&**error),
            Self::Command(error) => error.source(),
            Self::Write(error) => error.source(),
            Self::Session(_) | Self::Cursor(_) | Self::Bson(_) => None,
        }
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uri(error) => error.fmt(f),
            Self::Mistake(warning) => {
                write!(f, "{warning:#}; ClientOptions::parse, or ClientOptions::resolve, and Client::with_options ignore it")
            }
            Self::LookupNeeded => f.write_str("the hosts of a mongodb+srv:// string must be looked up: use ClientOptions::resolve"),
            Self::Seedlist(error) => error.fmt(f),
            Self::Unsupported(what) => write!(f, "not implemented: {what}"),
            Self::Config(error) => error.fmt(f),
            Self::Option(error) => error.fmt(f),
            Self::Topology(error) => error.fmt(f),
            #[cfg(feature = "tls")]
            Self::Tls(error) => error.fmt(f),
            Self::Credential(error) => error.fmt(f),
            Self::Metadata(error) => error.fmt(f),
            Self::Forked => {
                f.write_str("this process was forked from a process that had created a client: fork before the first client is created, or call exec after the fork")
            }
            Self::OutOfMemory => f.write_str("out of memory: the client was not created"),
        }
    }
}

poolhouse_wire::debug_as_display!(SetupError);

impl core::error::Error for SetupError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Uri(error) => error.source(),
            Self::Seedlist(error) => error.source(),
            Self::Config(error) => error.source(),
            Self::Option(error) => error.source(),
            Self::Topology(error) => error.source(),
            #[cfg(feature = "tls")]
            Self::Tls(error) => error.source(),
            Self::Credential(error) => error.source(),
            Self::Metadata(error) => error.source(),
            Self::Mistake(_) | Self::LookupNeeded | Self::Unsupported(_) | Self::Forked | Self::OutOfMemory => None,
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: the command failed with code {}", self.server, self.code)?;
        if let Some(name) = &self.code_name {
            write!(f, " ({})", OneLine(name))?;
        }
        if let Some(message) = &self.message {
            write!(f, ": {}", OneLine(message))?;
        }
        self.hint.map_or(Ok(()), |hint| write!(f, "; {hint}"))
    }
}

poolhouse_wire::debug_as_display!(CommandError);

impl core::error::Error for CommandError {}

impl From<OperationError> for Error {
    fn from(error: OperationError) -> Self {
        Self::Operation(error, Labels::NONE)
    }
}

/// The error of an application that converts its type to a document for a command:
/// `serialize_to_document(&order)?`.
impl From<bson::error::Error> for Error {
    fn from(error: bson::error::Error) -> Self {
        Self::Bson(error.to_string())
    }
}

impl<E: Into<SetupError>> From<E> for Error {
    fn from(error: E) -> Self {
        Self::Setup(error.into())
    }
}

impl From<UriError> for SetupError {
    fn from(error: UriError) -> Self {
        Self::Uri(Box::new(error))
    }
}

impl From<SeedlistError> for SetupError {
    fn from(error: SeedlistError) -> Self {
        Self::Seedlist(Box::new(error))
    }
}

impl From<ConfigError> for SetupError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<OptionError> for SetupError {
    fn from(error: OptionError) -> Self {
        Self::Option(Box::new(error))
    }
}

impl From<TopologyConfigError> for SetupError {
    fn from(error: TopologyConfigError) -> Self {
        Self::Topology(error)
    }
}

#[cfg(feature = "tls")]
impl From<TlsError> for SetupError {
    fn from(error: TlsError) -> Self {
        Self::Tls(error)
    }
}

impl From<AuthError> for SetupError {
    fn from(error: AuthError) -> Self {
        Self::Credential(error)
    }
}

impl From<MetadataError> for SetupError {
    fn from(error: MetadataError) -> Self {
        Self::Metadata(error)
    }
}

impl poolhouse_driver::AttemptError for Error {
    fn is_retryable(&self) -> bool {
        self.is_retryable()
    }

    fn is_transient(&self) -> bool {
        self.is_transient()
    }

    fn is_overload(&self) -> bool {
        self.is_overload()
    }

    fn is_operation_timeout(&self) -> bool {
        matches!(self.operation(), Some(OperationError::Timeout))
    }

    fn performed_no_writes(&self) -> bool {
        self.has_label("NoWritesPerformed")
    }

    fn is_unsent(&self) -> bool {
        self.operation().is_some_and(poolhouse_driver::AttemptError::is_unsent)
    }

    fn timed_out(self) -> Self {
        if self.is_timeout() { self } else { Self::Timeout(Box::new(self)) }
    }
}
