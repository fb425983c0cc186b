//! Encoding and decoding: BSON, OP_MSG, hello, command replies and the establishment of a
//! connection.
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
//! Read first: OP_MSG; Wire Compression; MongoDB Handshake; BSON.
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
