//! MongoDB's wire protocol without I/O: BSON, OP_MSG, hello, command replies and the establishment
//! of a connection.
//!
//! Use it in a driver, a proxy or a test that has its own sockets. Applications use a client, such
//! as that of `poolhouse-smol`.
//!
//! ```
//! use poolhouse_wire::SliceSink;
//! use poolhouse_wire::message::{Decoded, Limits, Outgoing, decode_message, encode_command};
//!
//! let mut buffer = [0; 128];
//! let mut sink = SliceSink::new(&mut buffer);
//! encode_command(&mut sink, Outgoing::request(1), &Limits::DEFAULT, "admin", |command| command.int32("ping", 1).map(drop))?;
//! let bytes = sink.into_written(); // for the socket
//!
//! // The decoder returns `NeedMore` until all bytes of a message have arrived.
//! let Decoded::NeedMore { bytes_min } = decode_message(&bytes[..20], &Limits::DEFAULT)? else { panic!("incomplete") };
//! assert_eq!(bytes_min, bytes.len() - 20);
//! let Decoded::Done { value: message, rest } = decode_message(bytes, &Limits::DEFAULT)? else { panic!("complete") };
//! assert_eq!((message.header().request_id, rest.len()), (1, 0));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! All code here borrows from the caller's buffers, does not allocate, depends on no state machine
//! and no clock, and treats its input as hostile: decoding returns a value or a [`WireError`], in
//! time linear in the bytes received, whatever length they claim.
//!
//! - [`bson`]: a zero-copy reader and an append-only writer;
//! - [`message`]: headers, OP_MSG, and matching of replies to requests;
//! - [`hello`]: building hello, client metadata, parsing the reply, the message exchange of a
//!   monitor connection;
//! - [`command`]: the fields that replies to all commands share;
//! - [`compress`]: compressed messages;
//! - [`handshake`]: the handshake of an application connection;
//! - [`Authenticator`]: the interface between handshake and authentication.
//!
//! Read next: [`handshake`], then the guide `embedding` of `poolhouse-core`, which drives pools and
//! monitors with these bytes. Specifications: OP_MSG; Wire Compression; MongoDB Handshake; BSON.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod authenticator;
pub mod bson;
mod cause;
pub mod command;
pub mod compress;
mod error;
mod fields;
pub mod handshake;
pub mod hello;
mod labels;
pub mod message;
#[doc(hidden)]
pub mod peer_text;
mod read;
mod server;
mod sink;

pub use authenticator::{AuthError, Authenticator, Round, Unauthenticated};
pub use cause::{Cause, CertificateFault, Reason};
pub use error::{EncodeError, WireError, WireErrorKind};
pub use labels::{Labels, Phase};
pub use message::Decoded;
#[doc(hidden)]
pub use read::saturate;
pub use server::{ObjectId, ServerType, TopologyVersion};
pub use sink::{Full, Sink, SliceSink};
