//! TLS in static memory, without a heap. What it can and cannot do is said at [`TlsOptions`].
//!
//! # Peers that are hostile
//!
//! embedded-tls 0.19 trusts whoever has shaken hands, and more: it panics on an encrypted record with nothing in it, and on messages of the handshake that come
//! after it, encrypted or not; and takes a handshake for done in which the server has shown no certificate. So
//!
//! - a [watch] between it and the socket lets no record pass that has no place where it comes, and not more than 32 without data in them;
//! - the cipher of the [suite] lets nothing pass that was decrypted but what embedded-tls can take, and no message after the handshake at all;
//! - the verifier ([verify]) wants one certificate, then one signature by its key, and the [session] is none before it has seen both.
//!
//! What is left: a number of records that overflows 64 bits, and a generator of random bytes that gives the same for ever, which would keep it looking for a key; it is tried
//! before. Loops end by the limits above, and every wait by the shell's, which drops the stream.
//!
//! # How sessions live in static memory
//!
//! A session of embedded-tls borrows its record buffers for its whole life and never gives them back. So it lives in a future of the client's runner, which owns
//! the buffers for ever and lends them to one session after the other: a [lane], one for each socket. Streams reach it by a mailbox.

mod lane;
mod options;
mod resources;
mod session;
mod suite;
mod verify;
mod watch;

#[cfg(test)]
mod tests;

pub(crate) use lane::Post;
pub use lane::TlsSocket;
pub use options::{MaxFragment, TlsConfig, TlsIdentity, TlsOptions};
pub use resources::{TlsBuffers, TlsRunner, TlsSessions};
