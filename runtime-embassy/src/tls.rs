//! TLS in static memory, without a heap. Features and limits are listed at [`TlsOptions`].
//!
//! # Hostile peers
//!
//! embedded-tls 0.19 has three defects that a peer can exploit: it panics on an encrypted record
//! without content; it panics on handshake messages after the handshake, encrypted or not; and it
//! completes a handshake in which the server has sent no certificate. Therefore:
//!
//! - a [watch] between it and the socket rejects records that are not allowed in the present phase,
//!   and more than 32 consecutive records without data;
//! - the cipher of the [suite] passes only decrypted content that embedded-tls can process, and no
//!   message after the handshake;
//! - the verifier ([verify]) requires one certificate, then one signature by its key; the [session]
//!   fails if either is missing.
//!
//! Two risks remain: a record counter that overflows 64 bits, and a random generator that always
//! returns the same bytes, with which embedded-tls would never find a key; the generator is tested
//! before. Loops end by the limits above. The driver limits every wait, by dropping the stream.
//!
//! # Sessions in static memory
//!
//! A session of embedded-tls borrows its record buffers for its whole life and never returns them.
//! Therefore it runs in a future of the client's runner, which owns the buffers for ever and lends
//! them to one session after the other: a [lane], one for each socket. Streams communicate with it
//! through a [mailbox].
//!
//! Sessions run over any byte stream: this module does not depend on the sockets of embassy-net, on
//! the client or on its runners.

mod lane;
mod mailbox;
mod options;
#[cfg(feature = "rsa")]
mod rsa;
mod session;
mod suite;
mod verify;
mod watch;

#[cfg(test)]
mod tests;

pub(crate) use lane::run;
pub(crate) use mailbox::Mailbox;
pub use options::{MaxFragment, TlsConfig, TlsIdentity, TlsOptions};
