//! Cassandra's native protocol, versions 3, 4 and 5: segments, envelopes, and the conversation that makes a socket a connection.
//!
//! Like `poolhouse-wire` it borrows, allocates nothing of its own, knows no clock, and treats what it receives as hostile. Bodies are bytes
//! to the caller, except where a pool needs to know what is in them.
//!
//! - in: [`Decoder`], which gives an [`Envelope`] after the other; [`Envelope::response`] is what the server says;
//! - out: [`Request::encode`] or [`encode_envelope`], and [`Encoder`] where envelopes do not travel as they are;
//! - [`CqlHandshake`]: which version, which compression, who is calling; it hands over the decoder when it is done.
//!
//! An *envelope* is a header and a body, a request or a response. Up to v4 that is what travels, perhaps with a compressed body. From v5 on, once STARTUP
//! was answered, envelopes travel in *segments* (which that version's text calls frames), with checksums and perhaps compressed: small ones together, large ones
//! in parts.
//!
//! Read first: Apache Cassandra's Native Protocol v5, all but the serialization of data types; v4 and v3, "Frame header" and "Compression".
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(feature = "snappy", test))]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod authenticator;
mod checksum;
mod compress;
mod decoder;
mod encoder;
mod error;
mod event;
mod failure;
mod handshake;
mod header;
mod notation;
mod pile;
mod request;
mod response;
mod segment;
#[cfg(test)]
mod tests;
mod write;

pub use authenticator::{CqlAuthenticator, Password};
pub use compress::Compression;
pub use decoder::{Decoder, Step};
pub use encoder::Encoder;
pub use error::{CqlEncodeError, CqlError, CqlErrorKind};
pub use event::{Event, EventKind, SchemaChange};
pub use failure::{ErrorCode, Failure, FailureDetails};
pub use handshake::{
    CqlEstablished, CqlHandled, CqlHandshake, CqlHandshakeError, CqlHandshakeOptions, CqlNext, REFUSAL_BYTES_MAX,
};
pub use header::{Direction, EVENT_STREAM, Flags, HEADER_BYTES, Header, Opcode, Version, decode_header};
pub use notation::{BytesMap, Multimap, Strings};
pub use request::{Consistency, Parameters, Request, Startup, Value};
pub use response::{Envelope, Outcome, OutcomeKind, Parts, Response, Supported};
pub use segment::SEGMENT_PAYLOAD_BYTES_MAX;
pub use write::{BodyWriter, Outgoing, encode_envelope};

/// Limits on envelopes, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// The longest body, as it travels and inflated.
    pub body_bytes_max: u32,
}

impl Limits {
    /// The protocol's own: 256 MiB.
    pub const DEFAULT: Self = Self { body_bytes_max: 256 * 1024 * 1024 };
    /// While it is not known who is there: 1 MiB, more than anything takes that is said until then.
    pub const HANDSHAKE: Self = Self { body_bytes_max: 1024 * 1024 };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
