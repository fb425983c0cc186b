//! TLS: what a connection string's options ask for, and streams that encrypt.
//!
//! [`TlsConfig::build`] reads the files once; [`TlsStream::connect`] shakes hands over any connected stream and is a stream itself. The
//! protocol is rustls's, with ring's cryptography: TLS 1.2 and 1.3. Everything here does its I/O through the stream that it is given.
//!
//! - A server is trusted if an authority of `tlsCAFile` has issued its certificate for the name or address that it is reached by; without
//!   that file, an authority that the platform trusts: its store is read when the configuration is built. With the feature
//!   `webpki-roots`, Mozilla's list stands in where the platform has none. One verifier does this on every platform, so that what is
//!   accepted on one is accepted on all, and that a relaxed check of names still checks everything else.
//! - Names must be among the subject's alternative names; a common name does not count.
//! - No revocation is checked: neither OCSP nor lists. `tlsDisableOCSPEndpointCheck` and `tlsDisableCertificateRevocationCheck` are
//!   accepted and change nothing.
//! - What relaxes checks is told by [`TlsConfig::warnings`].
//!
//! Read first: URI Options, "TLS options"; CMAP, "Establishing a Connection" (CMAP-45, CMAP-97, CMAP-98).

mod config;
mod error;
mod options;
mod pem;
mod stream;
mod verify;

pub use config::TlsConfig;
pub use error::{FileFault, TlsError, TlsHandshakeError, cause_of};
pub use options::{TlsOptions, TlsWarning};
pub use stream::TlsStream;
