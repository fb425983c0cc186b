//! TLS in static memory, without a heap: TLS 1.3 only, P-256 only, AES-128-GCM with SHA-256 only.
//!
//! The protocol is embedded-tls', the path from a certificate to an authority rustls-webpki's, the same that a hosted client uses: what one refuses the
//! other refuses. A server needs an ECDSA certificate on P-256 whose whole chain is signed with ECDSA P-256 and SHA-256. One with RSA or P-384 in it
//! is refused as [`Invalid`](poolhouse_core::CertificateFault::Invalid), and a server that has nothing else ends the handshake: a protocol error.
//!
//! - Names are those among the subject's alternative names; a common name does not count. The name is the host of the server's address, an address is
//!   looked for among the addresses.
//! - Chains have up to four certificates between the server's and the authority's, in any order, and of a handshake no more than eight signatures of
//!   certificates are verified: a stranger must not keep the processor busy. A handshake message must fit into one record, and that into
//!   [`TlsBuffers`](crate::TlsBuffers).
//! - No revocation is checked, no session resumed, no key updated: a server that wants a new key ends the connection.
//! - Who refuses a certificate says so by hanging up, and sends no alert: embedded-tls has no encrypted one for it.
//! - A client's certificate must have been issued by an authority of the server's: there is no place for more than one.
//!
//! # Peers that are hostile
//!
//! embedded-tls 0.19 trusts whoever has shaken hands, and more: it panics on an encrypted record with nothing in it, and on messages of the handshake that come
//! after it, encrypted or not; and takes a handshake for done in which the server has shown no certificate. So
//!
//! - a [watch](watch) between it and the socket lets no record pass that has no place where it comes, and not more than 32 without data in them;
//! - the [cipher](suite) lets nothing pass that was decrypted but what embedded-tls can take, and no message after the handshake at all;
//! - the [verifier](verify) wants one certificate, then one signature by its key, and the [session](session) is none before it has seen both.
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
