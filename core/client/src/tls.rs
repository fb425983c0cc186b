//! TLS: options of connection strings, and encrypted streams.
//!
//! [`TlsConfig::build`] reads the files once. [`TlsStream::connect`] performs the handshake over
//! any connected stream; its result is a stream too, and does all its I/O through the inner stream.
//! The protocol is implemented by rustls, with ring's cryptography: TLS 1.2 and 1.3.
//!
//! - A server is trusted if an authority of `tlsCAFile`, or of [`TlsOptions::authorities`] in
//!   memory, has issued its certificate for the name or address that is dialed. Without either, the
//!   authorities of the platform are trusted: the platform's store is read when the configuration
//!   is built. If the platform has none, [`TlsOptions::fallback_authorities`] are trusted. The
//!   verifier is the same on every platform, so a certificate is accepted on all of them or on
//!   none. An option that relaxes the check of names leaves all other checks in force.
//! - A certificate of an authority is accepted from a server only if it is itself, byte by byte, one of
//!   those to trust. Certificates of version 1 are refused, because they name no host.
//! - The client's certificate is sent as it is, of any version: the server judges it.
//! - Names must be among the subject's alternative names; a common name does not count.
//! - Revocation is not checked, neither by OCSP nor by lists. `tlsDisableOCSPEndpointCheck` and
//!   `tlsDisableCertificateRevocationCheck` are accepted and have no effect.
//! - Options that relax checks are reported by [`TlsConfig::warnings`].
//!
//! # Authorities in memory
//!
//! ```
//! use poolhouse_client::ClientOptions;
//! use poolhouse_client::tls::{Authorities, TlsOptions};
//!
//! // The only authority to trust, from a store of secrets.
//! # fn of_secrets(pem: &str) -> Result<ClientOptions, poolhouse_client::Error> {
//! let tls = TlsOptions::default().authorities(Authorities::from_pem(pem)?);
//! let options = ClientOptions::new("db.example.com").tls(tls);
//! # Ok(options)
//! # }
//!
//! // Mozilla's list, for a container without certificates. The other TLS options are those of the
//! // connection string.
//! let mut options = ClientOptions::parse("mongodb://db.example.com/?tls=true")?;
//! options.tls = options.tls.map(|tls| tls.fallback_authorities(webpki_roots::TLS_SERVER_ROOTS));
//! # assert!(options.tls.is_some() && of_secrets("").is_err());
//! # Ok::<(), poolhouse_client::Error>(())
//! ```
//!
//! Read first: URI Options, "TLS options"; CMAP, "Establishing a Connection".

mod authorities;
mod config;
mod error;
mod options;
mod pem;
mod stream;
mod verify;

pub use authorities::Authorities;
pub use config::TlsConfig;
pub use error::{FileFault, TlsError, TlsHandshakeError, cause_of};
pub use options::{TlsOptions, TlsWarning};
pub use stream::TlsStream;
