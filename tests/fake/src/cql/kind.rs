//! Kinds of requests, and numbers of the protocol.

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// STARTUP.
    Startup = 0x01,
    /// OPTIONS.
    Options = 0x05,
    /// QUERY.
    Query = 0x07,
    /// PREPARE.
    Prepare = 0x09,
    /// EXECUTE.
    Execute = 0x0a,
    /// REGISTER.
    Register = 0x0b,
    /// BATCH.
    Batch = 0x0d,
    /// AUTH_RESPONSE.
    AuthResponse = 0x0f,
}

impl RequestKind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Startup,
        Self::Options,
        Self::Query,
        Self::Prepare,
        Self::Execute,
        Self::Register,
        Self::Batch,
        Self::AuthResponse,
    ];

    /// Returns its opcode.
    #[must_use]
    pub const fn opcode(self) -> u8 {
        self as u8
    }

    pub(super) fn of(opcode: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.opcode() == opcode)
    }
}

/// Opcodes of replies.
pub(super) mod opcode {
    pub(in crate::cql) const ERROR: u8 = 0x00;
    pub(in crate::cql) const READY: u8 = 0x02;
    pub(in crate::cql) const AUTHENTICATE: u8 = 0x03;
    pub(in crate::cql) const SUPPORTED: u8 = 0x06;
    pub(in crate::cql) const RESULT: u8 = 0x08;
    pub(in crate::cql) const AUTH_SUCCESS: u8 = 0x10;
}

/// Codes of errors.
pub(super) mod code {
    pub(in crate::cql) const SERVER_ERROR: i32 = 0x0000;
    pub(in crate::cql) const PROTOCOL_ERROR: i32 = 0x000a;
    pub(in crate::cql) const BAD_CREDENTIALS: i32 = 0x0100;
    pub(in crate::cql) const OVERLOADED: i32 = 0x1001;
    pub(in crate::cql) const SYNTAX_ERROR: i32 = 0x2000;
    pub(in crate::cql) const INVALID: i32 = 0x2200;
    pub(in crate::cql) const UNPREPARED: i32 = 0x2500;
}

/// Kinds of results.
pub(super) mod result {
    pub(in crate::cql) const VOID: i32 = 1;
    pub(in crate::cql) const ROWS: i32 = 2;
    pub(in crate::cql) const SET_KEYSPACE: i32 = 3;
    pub(in crate::cql) const PREPARED: i32 = 4;
}
