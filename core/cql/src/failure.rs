//! Errors that servers return.
//!
//! Read first: Native Protocol, "ERROR", "Error codes".

#[cfg(test)]
mod tests;

use core::fmt;

use super::error::CqlError;
use super::notation::Reader;
use super::request::Consistency;

/// The code of a server's error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(i32);

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal, $text:literal;)+) => {
        impl ErrorCode {
            $($(#[doc = $doc])+ pub const $name: Self = Self($code);)+

            /// All known codes.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Its name; `None` for an unknown code.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($text),)+
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// An internal error of the server.
    SERVER_ERROR = 0x0000, "server error";
    /// The client violated the protocol, or uses a version that the server does not support.
    PROTOCOL_ERROR = 0x000a, "protocol error";
    /// The server rejected the credentials.
    BAD_CREDENTIALS = 0x0100, "bad credentials";
    /// Too few replicas are alive.
    UNAVAILABLE = 0x1000, "unavailable";
    /// The server is overloaded.
    OVERLOADED = 0x1001, "overloaded";
    /// The server is still starting.
    IS_BOOTSTRAPPING = 0x1002, "is bootstrapping";
    /// A table could not be truncated.
    TRUNCATE_ERROR = 0x1003, "truncate error";
    /// Too few replicas acknowledged a write in time.
    WRITE_TIMEOUT = 0x1100, "write timeout";
    /// Too few replicas answered a read in time.
    READ_TIMEOUT = 0x1200, "read timeout";
    /// Replicas failed to execute a read.
    READ_FAILURE = 0x1300, "read failure";
    /// A user-defined function failed.
    FUNCTION_FAILURE = 0x1400, "function failure";
    /// Replicas failed to execute a write.
    WRITE_FAILURE = 0x1500, "write failure";
    /// The space for change data capture is full.
    CDC_WRITE_FAILURE = 0x1600, "CDC write failure";
    /// It is unknown whether a conditional write was applied.
    CAS_WRITE_UNKNOWN = 0x1700, "CAS write unknown";
    /// The statement has a syntax error.
    SYNTAX_ERROR = 0x2000, "syntax error";
    /// The user has no permission for this.
    UNAUTHORIZED = 0x2100, "unauthorized";
    /// The statement is syntactically correct but invalid.
    INVALID = 0x2200, "invalid";
    /// The server is not configured for this.
    CONFIG_ERROR = 0x2300, "config error";
    /// The object to create already exists.
    ALREADY_EXISTS = 0x2400, "already exists";
    /// The server has no prepared statement with this id: prepare it again.
    UNPREPARED = 0x2500, "unprepared";
}

impl ErrorCode {
    /// The code with this number, known or not.
    #[must_use]
    pub const fn new(number: i32) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#06x})", self.name().unwrap_or("unknown error"), self.0)
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An error response to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure<'a> {
    /// The error code.
    pub code: ErrorCode,
    /// The server's error message.
    pub message: &'a str,
    /// The code-specific details.
    rest: Reader<'a>,
}

/// The details of an error, where they are relevant for the decision whether and where to retry the
/// request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureDetails<'a> {
    /// The details of [`ErrorCode::UNAVAILABLE`].
    Unavailable {
        /// The requested consistency level.
        consistency: Consistency,
        /// Number of replicas required.
        required: i32,
        /// Number of replicas alive.
        alive: i32,
    },
    /// The details of [`ErrorCode::WRITE_TIMEOUT`].
    WriteTimeout {
        /// The requested consistency level.
        consistency: Consistency,
        /// Number of replicas that acknowledged.
        received: i32,
        /// Number of replicas required.
        required: i32,
        /// The kind of write: `SIMPLE`, `BATCH`, `UNLOGGED_BATCH`, `COUNTER`, `BATCH_LOG`, `CAS`,
        /// `VIEW`, `CDC`.
        write_type: &'a str,
    },
    /// The details of [`ErrorCode::READ_TIMEOUT`].
    ReadTimeout {
        /// The requested consistency level.
        consistency: Consistency,
        /// Number of replicas that answered.
        received: i32,
        /// Number of replicas required.
        required: i32,
        /// Whether the replica that was asked for the data itself is among those that answered.
        data_present: bool,
    },
    /// The details of [`ErrorCode::UNPREPARED`].
    Unprepared {
        /// The unknown id.
        id: &'a [u8],
    },
    /// The undecoded details of any other code.
    Other(&'a [u8]),
}

impl<'a> Failure<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, CqlError> {
        let code = ErrorCode(reader.i32()?);
        let message = reader.string()?;
        Ok(Self { code, message, rest: *reader })
    }

    /// Decodes the details of the error.
    ///
    /// # Errors
    ///
    /// [`CqlErrorKind`](super::CqlErrorKind): `Truncated`, `Utf8`, `FieldValue`.
    ///
    /// Source: Native Protocol, "Error codes".
    pub fn details(&self) -> Result<FailureDetails<'a>, CqlError> {
        let mut reader = self.rest;
        Ok(match self.code {
            ErrorCode::UNAVAILABLE => {
                let consistency = Consistency::read(&mut reader)?;
                FailureDetails::Unavailable { consistency, required: reader.i32()?, alive: reader.i32()? }
            }
            ErrorCode::WRITE_TIMEOUT => {
                let consistency = Consistency::read(&mut reader)?;
                let (received, required) = (reader.i32()?, reader.i32()?);
                FailureDetails::WriteTimeout { consistency, received, required, write_type: reader.string()? }
            }
            ErrorCode::READ_TIMEOUT => {
                let consistency = Consistency::read(&mut reader)?;
                let (received, required) = (reader.i32()?, reader.i32()?);
                let data_present = reader.u8()? != 0;
                FailureDetails::ReadTimeout { consistency, received, required, data_present }
            }
            ErrorCode::UNPREPARED => FailureDetails::Unprepared { id: reader.short_bytes()? },
            _ => FailureDetails::Other(reader.rest),
        })
    }
}
