//! Errors of a TLS configuration and of a handshake.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use poolhouse_core::{Cause, CertificateFault};
use rustls::{AlertDescription, CertificateError};
use std::io;
use std::path::PathBuf;

/// TLS cannot be configured as requested. Contains the option and the file, but neither content of
/// the file nor the password.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsError {
    /// The file of an option cannot be used.
    File {
        /// The option's name in connection strings.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// The fault of the file.
        fault: FileFault,
    },
    /// The text of [`Authorities::from_pem`](super::Authorities::from_pem) cannot be used.
    Authorities(FileFault),
    /// `tlsCAFile` together with [`TlsOptions::authorities`](super::TlsOptions::authorities).
    AuthoritiesTwice,
    /// The platform has no trusted authorities, or does not report them: set `tlsCAFile`,
    /// [`TlsOptions::authorities`](super::TlsOptions::authorities) or
    /// [`TlsOptions::fallback_authorities`](super::TlsOptions::fallback_authorities).
    NoPlatformRoots,
    /// None of the platform's authorities can be loaded.
    PlatformStore {
        /// The file and the error.
        reason: String,
    },
    /// `tlsCertificateKeyFilePassword` without `tlsCertificateKeyFile`.
    PasswordWithoutFile,
    /// An error of the TLS library, as text.
    Other(String),
}

/// The fault of a file, or of a text in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileFault {
    /// It cannot be read.
    Io(io::ErrorKind),
    /// It is longer than 16 MiB.
    TooLong,
    /// It is not PEM.
    Pem,
    /// It has no certificate.
    NoCertificate,
    /// None of its certificates can be used.
    BadCertificate,
    /// It has no private key.
    NoKey,
    /// It has more than one private key.
    ManyKeys,
    /// Its private key is of an unsupported kind. Supported: RSA from 2048 bits, ECDSA on P-256 or
    /// P-384, Ed25519.
    BadKey,
    /// Its private key does not belong to its first certificate.
    ForeignKey,
    /// Its private key is encrypted, and the options have no password.
    NoPassword,
    /// The password does not decrypt its private key.
    WrongPassword,
    /// Its private key is encrypted in an unsupported way. Supported: PKCS#8 with PBES2, as
    /// `openssl pkcs8 -topk8` writes it.
    Encryption,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { option, path, fault } => write!(f, "{option} {}: {fault}", path.display()),
            Self::Authorities(fault) => write!(f, "the text of TLS authorities {fault}"),
            Self::AuthoritiesTwice => f.write_str("TlsOptions::authorities cannot be set together with tlsCAFile"),
            Self::NoPlatformRoots => f.write_str(
                "the platform has no trusted authorities: set tlsCAFile, TlsOptions::authorities or TlsOptions::fallback_authorities",
            ),
            Self::PlatformStore { reason } => {
                write!(f, "the platform's trusted authorities cannot be loaded: {reason}")
            }
            Self::PasswordWithoutFile => f.write_str("tlsCertificateKeyFilePassword requires tlsCertificateKeyFile"),
            Self::Other(why) => write!(f, "TLS: {why}"),
        }
    }
}

poolhouse_wire::debug_as_display!(TlsError);

impl core::error::Error for TlsError {}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Io(kind) => return write!(f, "cannot be read: {kind}"),
            Self::TooLong => "is longer than 16 MiB",
            Self::Pem => "is not PEM",
            Self::NoCertificate => "has no certificate",
            Self::BadCertificate => "has no certificate that can be used",
            Self::NoKey => "has no private key",
            Self::ManyKeys => "has more than one private key",
            Self::BadKey => "has a private key of an unsupported kind (supported: RSA from 2048 bits, ECDSA P-256 or P-384, Ed25519)",
            Self::ForeignKey => "has a private key that does not belong to its first certificate",
            Self::NoPassword => "has an encrypted private key: set tlsCertificateKeyFilePassword",
            Self::WrongPassword => "has a private key that tlsCertificateKeyFilePassword does not decrypt",
            Self::Encryption => "has a private key that is encrypted in an unsupported way: convert it with openssl pkcs8 -topk8",
        })
    }
}

/// A TLS handshake failed.
pub struct TlsHandshakeError(Fault);

enum Fault {
    Io(io::Error),
    Tls(Box<rustls::Error>),
    Name,
}

impl TlsHandshakeError {
    pub(super) const NAME: Self = Self(Fault::Name);

    /// Classifies the error.
    ///
    /// - [`Cause::Network`]: the stream failed or ended. Only this cause may mean that the server
    ///   is overloaded.
    /// - [`Cause::Certificate`]: the certificate of the server or of the client was refused.
    /// - [`Cause::Protocol`]: the peer does not use TLS, or has no version or cipher in common.
    #[must_use]
    pub fn cause(&self) -> Cause {
        match &self.0 {
            Fault::Io(error) => cause_of(error),
            Fault::Tls(error) => tls_cause(error),
            Fault::Name => Cause::Certificate(CertificateFault::WrongName),
        }
    }
}

impl TlsHandshakeError {
    /// The error of the TLS library, if there was one.
    fn library_error(&self) -> Option<&rustls::Error> {
        match &self.0 {
            Fault::Io(error) => error.get_ref()?.downcast_ref(),
            Fault::Tls(error) => Some(error),
            Fault::Name => None,
        }
    }
}

/// What to do about the cause of a failed handshake; empty if that is obvious.
fn remedy(cause: Cause) -> &'static str {
    if cause == Cause::Certificate(CertificateFault::UnknownIssuer) {
        "; tlsCAFile or TlsOptions names the authorities to trust"
    } else if cause == Cause::Certificate(CertificateFault::Authority) {
        "; the server's certificate is that of an authority (CA:TRUE): add this certificate itself to tlsCAFile, \
         or issue one without CA:TRUE to the server"
    } else if cause == Cause::Certificate(CertificateFault::Version1) {
        "; the server's certificate has version 1, without extensions, as openssl x509 -req makes it without -extfile: \
         issue one with a subjectAltName, which has version 3"
    } else {
        ""
    }
}

/// Adds a hint if the server probably does not use TLS, or there is a remedy.
impl fmt::Display for TlsHandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HINT: &str = "does the server use TLS?";
        match (&self.0, self.library_error()) {
            (
                _,
                Some(rustls::Error::InvalidMessage(
                    rustls::InvalidMessage::InvalidContentType | rustls::InvalidMessage::UnknownProtocolVersion,
                )),
            ) => write!(f, "the server's bytes are not TLS; {HINT}"),
            (_, Some(error)) => {
                write!(f, "TLS handshake: {error}")?;
                f.write_str(remedy(self.cause()))
            }
            (Fault::Io(error), None) if error.kind() == io::ErrorKind::UnexpectedEof => {
                write!(f, "the server closed the connection during the TLS handshake; {HINT}")
            }
            (Fault::Io(error), None) => write!(f, "TLS handshake: {error}; {HINT}"),
            (Fault::Name | Fault::Tls(_), None) => {
                f.write_str("TLS handshake: the host has a name that no certificate can have")
            }
        }
    }
}

poolhouse_wire::debug_as_display!(TlsHandshakeError);

impl core::error::Error for TlsHandshakeError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match &self.0 {
            Fault::Io(error) => Some(error),
            Fault::Tls(error) => Some(&**error),
            Fault::Name => None,
        }
    }
}

impl From<io::Error> for TlsHandshakeError {
    fn from(error: io::Error) -> Self {
        Self(Fault::Io(error))
    }
}

impl From<rustls::Error> for TlsHandshakeError {
    fn from(error: rustls::Error) -> Self {
        Self(Fault::Tls(Box::new(error)))
    }
}

/// Converts an error of TLS to one of a stream; [`cause_of`] extracts it again.
pub(super) fn stream_error(error: rustls::Error) -> io::Error {
    let of_certificate = matches!(tls_cause(&error), Cause::Certificate(_));
    let kind = if of_certificate { io::ErrorKind::PermissionDenied } else { io::ErrorKind::InvalidData };
    io::Error::new(kind, error)
}

/// Classifies an error of a [`TlsStream`](super::TlsStream), as [`TlsHandshakeError::cause`] does.
///
/// With TLS 1.3, the handshake does not report that the server refused this side's certificate; the
/// first read does.
#[must_use]
pub fn cause_of(error: &io::Error) -> Cause {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    inner.map_or(Cause::Network, tls_cause)
}

fn tls_cause(error: &rustls::Error) -> Cause {
    use rustls::Error;
    if let Error::InvalidCertificate(error) = error {
        return Cause::Certificate(certificate_fault(error));
    }
    // A server refuses the client's certificate by one of these alerts. Any other alert is a
    // protocol error, because it does not show which side is at fault.
    let refused = matches!(
        error,
        Error::AlertReceived(
            AlertDescription::NoCertificate
                | AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied
                | AlertDescription::CertificateRequired
        )
    );
    if refused {
        return Cause::Certificate(CertificateFault::RefusedByPeer);
    }
    if matches!(error, Error::NoCertificatesPresented | Error::UnsupportedNameType) {
        return Cause::Certificate(CertificateFault::Invalid);
    }
    Cause::Protocol
}

fn certificate_fault(error: &CertificateError) -> CertificateFault {
    use CertificateError as E;
    if matches!(error, E::Expired | E::ExpiredContext { .. }) {
        CertificateFault::Expired
    } else if matches!(error, E::NotValidYet | E::NotValidYetContext { .. }) {
        CertificateFault::NotYetValid
    } else if matches!(error, E::UnknownIssuer | E::BadSignature) {
        // The signature is wrong if an authority was created again under the same name.
        CertificateFault::UnknownIssuer
    } else if super::verify::is_of_name(error) {
        CertificateFault::WrongName
    } else if matches!(error, E::Revoked) {
        CertificateFault::Revoked
    } else if super::verify::is_of_authority(error) {
        CertificateFault::Authority
    } else if super::verify::is_of_version_1(error) {
        CertificateFault::Version1
    } else {
        CertificateFault::Invalid
    }
}
