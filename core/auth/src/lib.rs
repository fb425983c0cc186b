//! MongoDB's authentication without I/O: SCRAM-SHA-256, SCRAM-SHA-1 (with feature `scram-sha-1`),
//! MONGODB-X509 and PLAIN.
//!
//! Use it in a driver or a proxy that has its own sockets. The clients of Poolhouse use it already,
//! under their feature `auth`.
//!
//! Nothing here performs I/O, generates random numbers or allocates (except SASLprep of passwords
//! that are not ASCII, feature `std`). Entropy is an argument; messages are read from and written
//! to the caller's buffers.
//!
//! - [`Credential`]: user, secret, mechanism and database; [`OwnedCredential`] is its owned form;
//! - [`Authentication`]: the complete authentication of a connection, as the
//!   [`Authenticator`](poolhouse_wire::Authenticator) of a
//!   [`Handshake`](poolhouse_wire::handshake::Handshake);
//! - [`Scram`]: the SCRAM conversation alone, for callers with another transport for its messages;
//! - [`ScramKeys`]: the result of SCRAM's expensive computation; [`KeyRing`] keeps keys between
//!   connections.
//!
//! Secrets are wiped when they are dropped, compared in constant time, and not shown by any
//! `Debug`, `Display` or error. Not covered: the caller's own copy of the password, the heap memory
//! that SASLprep used, and copies that the compiler leaves when it moves a value.
//!
//! ```
//! use poolhouse_auth::{Authentication, AuthenticationOptions, Credential};
//! use poolhouse_wire::handshake::{Handshake, Next};
//! use poolhouse_wire::hello::{ClientMetadata, HandshakeHello, MetadataOptions};
//!
//! # fn main() -> Result<(), Box<dyn core::error::Error>> {
//! # let entropy = [7; 24];
//! let options = MetadataOptions { driver_name: "d", driver_version: "1", os_type: "any", ..Default::default() };
//! let client = ClientMetadata::new(&options)?;
//! let credential = Credential::new("ada", "correct horse");
//! let authentication = Authentication::new(credential, AuthenticationOptions::new(entropy))?;
//! let mut handshake = Handshake::with_authenticator(HandshakeHello::new(&client), authentication);
//! let mut request = Vec::new();
//! handshake.poll_transmit(&mut request)?;
//! // Send `request`, pass the reply to `handle_input`, and continue until it returns `Next::Established`.
//! let handled = handshake.handle_input(&[])?;
//! assert!(matches!(handled.next, Next::Receive { .. }));
//! # Ok(())
//! # }
//! ```
//!
//! Read next: [`poolhouse_wire::handshake`]. Specifications: Authentication, "Authentication
//! Handshake", "SCRAM-SHA-1", "SCRAM-SHA-256", "MONGODB-X509", "PLAIN", "Speculative
//! Authentication"; RFC 5802, sections 3, 5 and 7; RFC 7677.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod conversation;
mod credential;
mod crypto;
mod keys;
mod mechanism;
mod message;
mod nonce;
mod password;
mod ring;
mod scram;
#[cfg(test)]
#[cfg(feature = "scram-sha-1")]
mod tests;

pub use conversation::{Authentication, AuthenticationOptions};
pub use credential::Credential;
#[cfg(feature = "alloc")]
pub use credential::OwnedCredential;
pub use keys::{ITERATIONS_MAX, ITERATIONS_MIN, ITERATIONS_PER_STEP, SALT_BYTES_MAX, ScramKeys};
pub use mechanism::{Mechanism, ScramMechanism};
pub use nonce::{ENTROPY_BYTES, NONCE_BYTES_MAX, NONCE_BYTES_MIN, Nonce, SERVER_NONCE_BYTES_MAX};
pub use poolhouse_wire::{AuthError, Round};
pub use ring::{KEYS_MAX, KeyRing};
pub use scram::Scram;
