//! Authorities that an application has in memory.

use super::error::TlsError;
use super::{TlsWarning, pem};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, TrustAnchor};

/// Authorities in memory, for [`TlsOptions::authorities`](super::TlsOptions::authorities) and
/// [`TlsOptions::fallback_authorities`](super::TlsOptions::fallback_authorities): certificates as a
/// secret store returns them, or trust anchors as the crate `webpki-roots` has them. Cheap to
/// clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Authorities {
    anchors: Arc<[TrustAnchor<'static>]>,
    /// Those that have certificates.
    certificates: Arc<[CertificateDer<'static>]>,
    unusable: usize,
}

impl Authorities {
    /// Certificates that cannot be used are left out.
    pub(super) fn new(certificates: Vec<CertificateDer<'static>>) -> Self {
        let mut anchors = RootCertStore::empty();
        let (_, unusable) = anchors.add_parsable_certificates(certificates.iter().cloned());
        Self { anchors: anchors.roots.into(), certificates: certificates.into(), unusable }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.anchors.is_empty()
    }

    /// The certificates, with those that were left out.
    pub(super) fn certificates(&self) -> Arc<[CertificateDer<'static>]> {
        Arc::clone(&self.certificates)
    }

    /// Reads certificates in PEM. Those that cannot be used are left out, and reported by
    /// [`TlsConfig::warnings`](super::TlsConfig::warnings).
    ///
    /// # Errors
    ///
    /// [`TlsError::Authorities`]: the text is not PEM, or has no usable certificate.
    pub fn from_pem(text: impl AsRef<[u8]>) -> Result<Self, TlsError> {
        pem::authorities(text.as_ref()).map_err(TlsError::Authorities)
    }

    /// Warns of certificates that were left out.
    pub(super) fn warn(&self, warnings: &mut Vec<TlsWarning>) {
        if self.unusable > 0 {
            warnings.push(TlsWarning::UnusableAuthorities(self.unusable));
        }
    }

    /// Returns the authorities for a verifier.
    pub(super) fn store(&self) -> RootCertStore {
        self.anchors.iter().cloned().collect()
    }
}

/// Trusts these anchors: `webpki_roots::TLS_SERVER_ROOTS.into()`. An anchor is no certificate, so no
/// server can present it itself.
impl From<&[TrustAnchor<'static>]> for Authorities {
    fn from(anchors: &[TrustAnchor<'static>]) -> Self {
        Self { anchors: anchors.into(), certificates: Arc::default(), unusable: 0 }
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorities").field("count", &self.anchors.len()).finish_non_exhaustive()
    }
}
