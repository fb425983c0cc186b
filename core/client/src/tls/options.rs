//! TLS options of the user, and warnings about them.

use super::authorities::Authorities;
use super::error::TlsError;
use alloc::string::String;
use core::fmt;
use poolhouse_uri::{ConnectionString, Secret};
use std::path::PathBuf;

/// Encryption of connections. The default trusts the platform's authorities, and presents no
/// certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsOptions {
    /// `tlsCAFile`: PEM certificates of the authorities to trust, exclusively. If this and
    /// `authorities` are `None`, those of the platform are trusted.
    pub ca_file: Option<PathBuf>,
    /// Authorities to trust, exclusively, as those of `ca_file`. An error together with `ca_file`.
    pub authorities: Option<Authorities>,
    /// Authorities to trust if neither `ca_file` nor `authorities` is set and the platform has no
    /// usable authority. They do not replace a store that an environment variable names
    /// (`SSL_CERT_FILE`, `SSL_CERT_DIR`).
    pub fallback_authorities: Option<Authorities>,
    /// `tlsCertificateKeyFile`: one PEM file with this client's certificate, the intermediate
    /// certificates, and its private key. A mongod that requires a certificate and
    /// receives none, or a wrong one, closes the connection after the handshake without a reason:
    /// the client reports a network error. The log of the mongod contains the reason.
    pub certificate_key_file: Option<PathBuf>,
    /// `tlsCertificateKeyFilePassword`: decrypts the key (PKCS#8, PBES2). Ignored if the key is not
    /// encrypted.
    pub certificate_key_file_password: Option<Secret>,
    /// `tlsAllowInvalidCertificates`, `tlsInsecure`: any certificate is accepted, from any
    /// issuer and for any host. An attacker on the network path can read and change all data.
    pub allow_invalid_certificates: bool,
    /// `tlsAllowInvalidHostnames`, `tlsInsecure`: a certificate for another host is accepted, if it
    /// is valid otherwise.
    pub allow_invalid_hostnames: bool,
}

impl TlsOptions {
    /// Returns the TLS options of a connection string; `None` if it does not enable TLS.
    ///
    /// Source: URI Options, "TLS options".
    #[must_use]
    pub fn from_uri(uri: &ConnectionString) -> Option<Self> {
        let given = uri.options();
        let insecure = given.tls_insecure.unwrap_or_default();
        uri.tls().then(|| Self {
            ca_file: given.tls_ca_file.clone().map(PathBuf::from),
            authorities: None,
            fallback_authorities: None,
            certificate_key_file: given.tls_certificate_key_file.clone().map(PathBuf::from),
            certificate_key_file_password: given.tls_certificate_key_file_password.clone(),
            allow_invalid_certificates: insecure || given.tls_allow_invalid_certificates.unwrap_or_default(),
            allow_invalid_hostnames: insecure || given.tls_allow_invalid_hostnames.unwrap_or_default(),
        })
    }

    /// Sets the authorities to trust, exclusively.
    #[must_use]
    pub fn authorities(self, authorities: impl Into<Authorities>) -> Self {
        Self { authorities: Some(authorities.into()), ..self }
    }

    /// Sets the authorities to trust if the platform has none.
    #[must_use]
    pub fn fallback_authorities(self, authorities: impl Into<Authorities>) -> Self {
        Self { fallback_authorities: Some(authorities.into()), ..self }
    }

    /// Whether a server must prove that it is the host that was dialed.
    pub(crate) const fn verify_servers(&self) -> bool {
        !self.allow_invalid_certificates && !self.allow_invalid_hostnames
    }

    /// Checks the options without reading a file.
    pub(crate) const fn check(&self) -> Result<(), TlsError> {
        if self.certificate_key_file_password.is_some() && self.certificate_key_file.is_none() {
            return Err(TlsError::PasswordWithoutFile);
        }
        if self.authorities.is_some() && self.ca_file.is_some() {
            return Err(TlsError::AuthoritiesTwice);
        }
        Ok(())
    }
}

/// A risk or defect of a TLS configuration that the user must know. Log it prominently.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TlsWarning {
    /// `tlsAllowInvalidCertificates` or `tlsInsecure`: servers are not verified at all.
    InvalidCertificates,
    /// `tlsAllowInvalidHostnames`: servers are verified, but not by their names.
    InvalidHostnames,
    /// The number of certificates of `tlsCAFile`, or of authorities in memory, that cannot be used
    /// as authorities, and are left out.
    UnusableAuthorities(usize),
    /// A part of the platform's store of certificates cannot be read, and is left out.
    PlatformStore {
        /// The file and the error.
        reason: String,
    },
}

impl fmt::Display for TlsWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidCertificates => f.write_str(
                "INSECURE: tlsAllowInvalidCertificates or tlsInsecure is set; any server is trusted, and an attacker on the network path can read and change all data",
            ),
            Self::InvalidHostnames => f.write_str(
                "INSECURE: tlsAllowInvalidHostnames is set; an attacker with a valid certificate for any host can impersonate the server",
            ),
            Self::PlatformStore { reason } => {
                write!(f, "authorities of the platform cannot be loaded and are left out: {reason}")
            }
            Self::UnusableAuthorities(count) => {
                write!(f, "tlsCAFile or authorities in memory: certificates that cannot be used and are left out: {count}")
            }
        }
    }
}
