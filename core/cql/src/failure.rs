//! Errors of servers.
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

            /// Every one that is known.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Its name; `None` for one that is not known.
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
    /// Something went wrong in the server.
    SERVER_ERROR = 0x0000, "server error";
    /// The client broke the protocol, or speaks a version of it that the server does not.
    PROTOCOL_ERROR = 0x000a, "protocol error";
    /// The server does not believe who is calling.
    BAD_CREDENTIALS = 0x0100, "bad credentials";
    /// Too few replicas are alive.
    UNAVAILABLE = 0x1000, "unavailable";
    /// The server has too much to do.
    OVERLOADED = 0x1001, "overloaded";
    /// The server is still starting.
    IS_BOOTSTRAPPING = 0x1002, "is bootstrapping";
    /// A table could not be emptied.
    TRUNCATE_ERROR = 0x1003, "truncate error";
    /// Too few replicas acknowledged a write in time.
    WRITE_TIMEOUT = 0x1100, "write timeout";
    /// Too few replicas answered a read in time.
    READ_TIMEOUT = 0x1200, "read timeout";
    /// Replicas failed to read.
    READ_FAILURE = 0x1300, "read failure";
    /// A function of a user's failed.
    FUNCTION_FAILURE = 0x1400, "function failure";
    /// Replicas failed to write.
    WRITE_FAILURE = 0x1500, "write failure";
    /// There was no room to capture a change.
    CDC_WRITE_FAILURE = 0x1600, "CDC write failure";
    /// Nobody knows whether a conditional write was made.
    CAS_WRITE_UNKNOWN = 0x1700, "CAS write unknown";
    /// The statement is not CQL.
    SYNTAX_ERROR = 0x2000, "syntax error";
    /// The user may not do this.
    UNAUTHORIZED = 0x2100, "unauthorized";
    /// The statement is CQL, and makes no sense.
    INVALID = 0x2200, "invalid";
    /// The server is not configured for this.
    CONFIG_ERROR = 0x2300, "config error";
    /// What is to be created is there.
    ALREADY_EXISTS = 0x2400, "already exists";
    /// The server does not know the statement by that id: prepare it again.
    UNPREPARED = 0x2500, "unprepared";
}

impl ErrorCode {
    /// The code of that number, known or not.
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

/// A request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure<'a> {
    /// Why.
    pub code: ErrorCode,
    /// Why, in the server's words.
    pub message: &'a str,
    /// What follows.
    rest: Reader<'a>,
}

/// What an error tells besides, as far as it matters to who decides whether and where the request is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureDetails<'a> {
    /// Of [`ErrorCode::UNAVAILABLE`].
    Unavailable {
        /// The consistency that was asked for.
        consistency: Consistency,
        /// Replicas that it takes.
        required: i32,
        /// Replicas that are alive.
        alive: i32,
    },
    /// Of [`ErrorCode::WRITE_TIMEOUT`].
    WriteTimeout {
        /// The consistency that was asked for.
        consistency: Consistency,
        /// Replicas that acknowledged.
        received: i32,
        /// Replicas that it takes.
        required: i32,
        /// What was written: `SIMPLE`, `BATCH`, `UNLOGGED_BATCH`, `COUNTER`, `BATCH_LOG`, `CAS`, `VIEW`, `CDC`.
        write_type: &'a str,
    },
    /// Of [`ErrorCode::READ_TIMEOUT`].
    ReadTimeout {
        /// The consistency that was asked for.
        consistency: Consistency,
        /// Replicas that answered.
        received: i32,
        /// Replicas that it takes.
        required: i32,
        /// Whether the one among them that was asked for the data itself.
        data_present: bool,
    },
    /// Of [`ErrorCode::UNPREPARED`].
    Unprepared {
        /// The id that is not known.
        id: &'a [u8],
    },
    /// Of any other.
    Other(&'a [u8]),
}

impl<'a> Failure<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, CqlError> {
        let code = ErrorCode(reader.i32()?);
        let message = reader.string()?;
        Ok(Self { code, message, rest: *reader })
    }

    /// What the error tells besides.
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
