//! Authorities that an application has in memory.

use super::error::TlsError;
use super::{TlsWarning, pem};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use rustls::RootCertStore;
use rustls::pki_types::TrustAnchor;

/// Authorities in memory, for [`TlsOptions::authorities`](super::TlsOptions::authorities) and
/// [`TlsOptions::fallback_authorities`](super::TlsOptions::fallback_authorities): certificates as a
/// secret store returns them, or trust anchors as the crate `webpki-roots` has them. Cheap to
/// clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Authorities {
    anchors: Arc<[TrustAnchor<'static>]>,
    unusable: usize,
}

impl Authorities {
    /// - `unusable`: the number of certificates that were left out.
    pub(super) fn new(anchors: Vec<TrustAnchor<'static>>, unusable: usize) -> Self {
        Self { anchors: anchors.into(), unusable }
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

    /// Returns the authorities for a verifier, and warns of certificates that were left out.
    pub(super) fn store(&self, warnings: &mut Vec<TlsWarning>) -> RootCertStore {
        if self.unusable > 0 {
            warnings.push(TlsWarning::UnusableAuthorities(self.unusable));
        }
        self.anchors.iter().cloned().collect()
    }
}

/// Trusts these anchors: `webpki_roots::TLS_SERVER_ROOTS.into()`.
impl From<&[TrustAnchor<'static>]> for Authorities {
    fn from(anchors: &[TrustAnchor<'static>]) -> Self {
        Self::new(anchors.to_vec(), 0)
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorities").field("count", &self.anchors.len()).finish_non_exhaustive()
    }
}
