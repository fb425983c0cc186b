//! What a user asks of TLS, and what is to be said about it.

use super::error::TlsError;
use alloc::string::String;
use core::fmt;
use poolhouse_uri::{ConnectionString, Secret};
use std::path::PathBuf;

/// How connections are encrypted. The default trusts what the platform trusts, and presents no certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsOptions {
    /// `tlsCAFile`: PEM certificates of the authorities to trust, and no others. `None`: those of the platform.
    pub ca_file: Option<PathBuf>,
    /// `tlsCertificateKeyFile`: this client's PEM certificate, those that lead to its authority, and its private key, in one file.
    /// A mongod that demands a certificate and gets none, or not the right one, hangs up after the handshake without saying why: a
    /// network error. Its log says more.
    pub certificate_key_file: Option<PathBuf>,
    /// `tlsCertificateKeyFilePassword`: decrypts the key (PKCS#8, PBES2), with the feature `encrypted-keys`. Ignored by a key that is not
    /// encrypted.
    pub certificate_key_file_password: Option<Secret>,
    /// `tlsAllowInvalidCertificates`, `tlsInsecure`: any certificate will do, whoever made it for whatever host. Anyone on the way can
    /// read and change everything.
    pub allow_invalid_certificates: bool,
    /// `tlsAllowInvalidHostnames`, `tlsInsecure`: a certificate for another host will do, if it is valid otherwise.
    pub allow_invalid_hostnames: bool,
}

impl TlsOptions {
    /// What a connection string says; `None` when it wants no TLS.
    ///
    /// Source: URI Options, "TLS options".
    #[must_use]
    pub fn from_uri(uri: &ConnectionString) -> Option<Self> {
        let given = uri.options();
        let insecure = given.tls_insecure.unwrap_or_default();
        uri.tls().then(|| Self {
            ca_file: given.tls_ca_file.clone().map(PathBuf::from),
            certificate_key_file: given.tls_certificate_key_file.clone().map(PathBuf::from),
            certificate_key_file_password: given.tls_certificate_key_file_password.clone(),
            allow_invalid_certificates: insecure || given.tls_allow_invalid_certificates.unwrap_or_default(),
            allow_invalid_hostnames: insecure || given.tls_allow_invalid_hostnames.unwrap_or_default(),
        })
    }

    /// Whether a server must prove that it is the host that was dialed.
    pub(crate) const fn verify_servers(&self) -> bool {
        !self.allow_invalid_certificates && !self.allow_invalid_hostnames
    }

    /// What can be checked without a file.
    pub(crate) const fn check(&self) -> Result<(), TlsError> {
        if self.certificate_key_file_password.is_some() && self.certificate_key_file.is_none() {
            return Err(TlsError::PasswordWithoutFile);
        }
        Ok(())
    }
}

/// Something about a TLS configuration that its owner must know. It is for the log, as loud as that gets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TlsWarning {
    /// `tlsAllowInvalidCertificates` or `tlsInsecure`: servers are not verified at all.
    InvalidCertificates,
    /// `tlsAllowInvalidHostnames`: servers are verified, but not by their names.
    InvalidHostnames,
    /// So many certificates of `tlsCAFile` are none that could be trusted, and are left out.
    UnusableAuthorities(usize),
    /// A part of the platform's store of certificates cannot be read, and is left out.
    PlatformStore {
        /// Which file, and why.
        reason: String,
    },
}

impl fmt::Display for TlsWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidCertificates => f.write_str(
                "INSECURE: tlsAllowInvalidCertificates or tlsInsecure is set; any server is trusted, and anyone on the way can read and change everything",
            ),
            Self::InvalidHostnames => f.write_str(
                "INSECURE: tlsAllowInvalidHostnames is set; whoever has a valid certificate for any host can pose as the server",
            ),
            Self::PlatformStore { reason } => {
                write!(f, "a part of the platform's trusted authorities cannot be loaded and is left out: {reason}")
            }
            Self::UnusableAuthorities(count) => write!(f, "tlsCAFile: {count} of its certificates cannot be used and are left out"),
        }
    }
}
