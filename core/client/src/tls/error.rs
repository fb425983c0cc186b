//! How a configuration and a handshake fail.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use poolhouse_core::{Cause, CertificateFault};
use rustls::{AlertDescription, CertificateError};
use std::io;
use std::path::PathBuf;

/// TLS cannot be configured as asked. Names the option and the file; nothing of the file or of the password is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsError {
    /// The file of an option cannot be used.
    File {
        /// The option's name in connection strings.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: FileFault,
    },
    /// The platform has no authorities that it trusts, or does not tell: name a `tlsCAFile`, or build with the feature `webpki-roots`.
    NoPlatformRoots,
    /// None of the platform's authorities can be loaded.
    PlatformStore {
        /// Which file, and why.
        reason: String,
    },
    /// `tlsCertificateKeyFilePassword` without `tlsCertificateKeyFile`.
    PasswordWithoutFile,
    /// The library refuses, and says why.
    Other(String),
}

/// What is wrong with a file.
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
    /// Its private key is of no kind that is known: RSA from 2048 bits, ECDSA on P-256 or P-384, Ed25519.
    BadKey,
    /// Its private key does not belong to its first certificate.
    ForeignKey,
    /// Its private key is encrypted, and there is no password.
    NoPassword,
    /// The password does not decrypt its private key.
    WrongPassword,
    /// Its private key is encrypted in a way that is not known: only PKCS#8 with PBES2 is, as `openssl pkcs8 -topk8` writes it.
    Encryption,
    /// Its private key is encrypted, and this build has no feature `encrypted-keys`.
    NoDecryption,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { option, path, fault } => write!(f, "{option} {}: {fault}", path.display()),
            Self::NoPlatformRoots => f.write_str(
                "the platform has no trusted authorities: set tlsCAFile, or build with the feature webpki-roots",
            ),
            Self::PlatformStore { reason } => {
                write!(f, "the platform's trusted authorities cannot be loaded: {reason}")
            }
            Self::PasswordWithoutFile => {
                f.write_str("tlsCertificateKeyFilePassword cannot be given without tlsCertificateKeyFile")
            }
            Self::Other(why) => write!(f, "TLS: {why}"),
        }
    }
}

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
            Self::BadKey => "has a private key of a kind that is not known (RSA from 2048 bits, ECDSA P-256 or P-384, Ed25519)",
            Self::ForeignKey => "has a private key that does not belong to its first certificate",
            Self::NoPassword => "has an encrypted private key: set tlsCertificateKeyFilePassword",
            Self::WrongPassword => "has a private key that tlsCertificateKeyFilePassword does not decrypt",
            Self::Encryption => "has a private key that is encrypted in a way that is not known: write it anew with openssl pkcs8 -topk8",
            Self::NoDecryption => "has an encrypted private key: build with the feature encrypted-keys",
        })
    }
}

/// A TLS handshake failed.
#[derive(Debug)]
pub struct TlsHandshakeError(Fault);

#[derive(Debug)]
enum Fault {
    Io(io::Error),
    Tls(Box<rustls::Error>),
    Name,
}

impl TlsHandshakeError {
    pub(super) const NAME: Self = Self(Fault::Name);

    /// The error in a word.
    ///
    /// - [`Cause::Network`]: the stream failed or ended. The only one that may mean that the server is overloaded (CMAP-98).
    /// - [`Cause::Certificate`]: its certificate was refused, or ours (CMAP-97).
    /// - [`Cause::Protocol`]: the peer does not speak TLS, or no version or cipher in common.
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
    /// The error of the library, if it is one.
    fn library_error(&self) -> Option<&rustls::Error> {
        match &self.0 {
            Fault::Io(error) => error.get_ref()?.downcast_ref(),
            Fault::Tls(error) => Some(error),
            Fault::Name => None,
        }
    }
}

/// With a hint where it is likely that the server does not use TLS, or that an authority is missing.
impl fmt::Display for TlsHandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ASKED: &str = "does the server use TLS?";
        match (&self.0, self.library_error()) {
            (
                _,
                Some(rustls::Error::InvalidMessage(
                    rustls::InvalidMessage::InvalidContentType | rustls::InvalidMessage::UnknownProtocolVersion,
                )),
            ) => write!(f, "the server's bytes are not TLS; {ASKED}"),
            (_, Some(error)) => {
                write!(f, "TLS handshake: {error}")?;
                let is_unknown = self.cause() == Cause::Certificate(CertificateFault::UnknownIssuer);
                if is_unknown { f.write_str("; tlsCAFile names the authorities to trust") } else { Ok(()) }
            }
            (Fault::Io(error), None) if error.kind() == io::ErrorKind::UnexpectedEof => {
                write!(f, "the server closed the connection during the TLS handshake; {ASKED}")
            }
            (Fault::Io(error), None) => write!(f, "TLS handshake: {error}; {ASKED}"),
            (Fault::Name | Fault::Tls(_), None) => {
                f.write_str("TLS handshake: the host has a name that no certificate can have")
            }
        }
    }
}

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

/// An error of TLS as one of a stream; [`cause_of`] takes it out again.
pub(super) fn stream_error(error: rustls::Error) -> io::Error {
    let of_certificate = matches!(tls_cause(&error), Cause::Certificate(_));
    let kind = if of_certificate { io::ErrorKind::PermissionDenied } else { io::ErrorKind::InvalidData };
    io::Error::new(kind, error)
}

/// The error of a [`TlsStream`](super::TlsStream) in a word, as [`TlsHandshakeError::cause`] says it.
///
/// With TLS 1.3 a server that refuses this side's certificate is heard of by the first read only.
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
    // A server that wants no certificate of ours says so by an alert; any other is of the protocol, whose side it is on is unknown.
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
        // The signature is bad where an authority was made anew under its old name.
        CertificateFault::UnknownIssuer
    } else if super::verify::is_of_name(error) {
        CertificateFault::WrongName
    } else if matches!(error, E::Revoked) {
        CertificateFault::Revoked
    } else {
        CertificateFault::Invalid
    }
}
