//! Bytes and text: BSON, OP_MSG, hello, command replies and the establishment of a connection.
//!
//! Everything here borrows from the caller's buffers, allocates nothing, knows no machine and no clock,
//! and treats its input as hostile: a value or a [`WireError`], in time linear in the bytes that are
//! there, whatever length they claim.
//!
//! - [`bson`]: a zero-copy reader and an append-only writer;
//! - [`message`]: headers, OP_MSG, and which reply belongs to which request;
//! - [`hello`]: building hello, client metadata, reading the reply, the conversation of a monitor's connection;
//! - [`command`]: what every command's reply says;
//! - [`compress`]: compressed messages;
//! - [`handshake`]: the conversation that makes a socket an application connection;
//! - [`Authenticator`]: what the handshake wants to know of authentication.
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
