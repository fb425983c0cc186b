//! Cassandra's native protocol, versions 3, 4 and 5: segments, envelopes, the handshake of a
//! connection, messages with their values, and the ring of nodes, without I/O.
//!
//! Use it in a driver, a proxy or a test that has its own sockets. Applications use the session of
//! a client crate, such as `poolhouse_smol::mux::Session`.
//!
//! ```
//! use poolhouse_cql::{Consistency, Direction, Limits, Opcode, Outgoing, Parameters, Request, Version, decode_header};
//! use poolhouse_wire::{Decoded, SliceSink};
//!
//! let mut buffer = [0; 128];
//! let mut sink = SliceSink::new(&mut buffer);
//! let request = Request::Query { text: "SELECT key FROM system.local", parameters: Parameters::new(Consistency::One) };
//! request.encode(&mut sink, Outgoing::new(Version::V4, 7), &Limits::DEFAULT)?; // stream id 7
//! let bytes = sink.into_written(); // for the socket
//!
//! let Decoded::Done { value: header, .. } = decode_header(bytes, None, Direction::Request, &Limits::DEFAULT)? else { panic!("complete") };
//! assert_eq!((header.opcode, header.stream), (Opcode::Query, 7));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! Like `poolhouse-wire`, this crate borrows its buffers, has no clock, and treats received bytes as
//! hostile. Messages are decoded where they are. Memory is allocated for the state of compression, for
//! a [`Ring`], for values of any length such as [`Varint`], and for rows and bind variables that are
//! values of Rust; without the feature `alloc`, for nothing.
//!
//! - receiving: [`Decoder`], which returns one [`Envelope`] after another; [`Envelope::response`]
//!   decodes the server's message;
//! - sending: [`Request::encode`] or [`encode_envelope`], and [`Encoder`] if envelopes are not sent
//!   unchanged;
//! - [`Rows`] and [`Prepared`]: results, and the bind variables of statements. With `serde`, both are
//!   values of Rust: [`Type`] has the table of types;
//! - [`Token`] and [`Ring`]: the nodes that have a row, by its partition key;
//! - [`CqlHandshake`]: negotiates version and compression and authenticates; at its end it returns
//!   the decoder.
//!
//! An *envelope* is a header and a body, a request or a response. Up to v4 envelopes are sent as
//! such, possibly with a compressed body. From v5 on, after STARTUP was answered, envelopes are
//! sent in *segments* (which the v5 specification calls frames), with checksums and possibly
//! compressed: several small envelopes in one segment, a large one split into several.
//!
//! Read next: [`CqlHandshake`], and `poolhouse_core::mux`, which assigns the stream ids.
//! Specifications: Apache Cassandra's Native Protocol v5; v4 and v3, "Frame header" and
//! "Compression".
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(feature = "alloc", test))]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod authenticator;
mod buffer;
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
mod request;
mod response;
#[cfg(feature = "alloc")]
mod ring;
mod rows;
mod segment;
#[cfg(test)]
mod tests;
mod token;
#[cfg(feature = "alloc")]
mod types;
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
    is_keyspace_name,
};
pub use header::{Direction, EVENT_STREAM, Flags, HEADER_BYTES, Header, Opcode, Version, decode_header};
pub use notation::{BytesMap, Multimap, Strings};
pub use request::{
    BatchEntry, BatchKind, BatchParameters, BatchStatement, Consistency, Parameters, Request, Startup, Value, Values,
};
pub use response::{Envelope, Outcome, OutcomeKind, Parts, Response, Supported};
#[cfg(feature = "alloc")]
pub use ring::{
    Placement, REPLICAS_MAX, RING_NODES_MAX, RING_TOKENS_MAX, Replicas, Replication, Ring, RingBuilder, RingError,
    RingNode,
};
#[cfg(feature = "serde")]
pub use rows::{BindError, BoundValues, MaybeUnset, RowError};
pub use rows::{
    Cells, Column, Columns, Elements, Pairs, Prepared, Rows, TYPE_DEPTH_MAX, Type, TypeFields, TypeName, read_inet,
};
pub use segment::SEGMENT_PAYLOAD_BYTES_MAX;
pub use token::Token;
#[cfg(feature = "alloc")]
pub use types::{
    CustomValue, Date, Decimal, Duration, MaybeEmpty, Time, Timestamp, Uuid, VARINT_DECIMAL_BYTES_MAX, ValueError,
    Varint,
};
pub use write::{BodyWriter, Outgoing, encode_envelope};

/// Limits on envelopes, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Maximum length of a body, compressed and inflated.
    pub body_bytes_max: u32,
}

impl Limits {
    /// The limit of the protocol: 256 MiB.
    pub const DEFAULT: Self = Self { body_bytes_max: 256 * 1024 * 1024 };
    /// The limit before the peer is authenticated: 1 MiB, more than any message of the handshake
    /// needs.
    pub const HANDSHAKE: Self = Self { body_bytes_max: 1024 * 1024 };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
