//! The verification of a server's identity.
//!
//! Read first: RFC 8446, "Certificate Verify"; RFC 5280, "Certification Path
//! Validation"; RFC 6125, which rustls-webpki implements.

use core::sync::atomic::{AtomicU8, Ordering};
use embedded_tls::{CertificateEntryRef, CertificateRef, CertificateVerifyRef, SignatureScheme, TlsError, TlsVerifier};
use p256::ecdsa::signature::Verifier as _;
use p256::ecdsa::{Signature, VerifyingKey};
use poolhouse_core::CertificateFault;
use rustls_pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, ServerName, SignatureVerificationAlgorithm, alg_id,
};
use sha2::{Digest, Sha256};
use webpki::{EndEntityCert, KeyUsage};

use super::options::TlsConfig;
use super::suite::Suite;

/// The maximum number of certificates between the server's and the authority's. The number of
/// orders to try, and so the time, grows with them.
const INTERMEDIATES_MAX: usize = 4;
/// The maximum number of certificate signatures that are verified.
const SIGNATURES_MAX: u8 = 8;

/// Verifies one handshake.
pub(super) struct Verifier<'a> {
    config: &'a TlsConfig,
    name: ServerName<'a>,
    progress: Progress,
    fault: Option<CertificateFault>,
}

enum Progress {
    /// No certificate was received.
    Nothing,
    /// A valid certificate was received, with this key; this is the hash of the handshake so far.
    Certified { key: VerifyingKey, transcript: [u8; 32] },
    /// The holder of the certificate has signed the handshake.
    Proven,
    /// The certificate or the signature was refused.
    Failed,
}

impl<'a> Verifier<'a> {
    pub(super) const fn new(config: &'a TlsConfig, name: ServerName<'a>) -> Self {
        Self { config, name, progress: Progress::Nothing, fault: None }
    }

    /// Whether the server has proven its identity.
    pub(super) const fn is_proven(&self) -> bool {
        matches!(self.progress, Progress::Proven)
    }

    /// The fault of the certificate, if it has one.
    pub(super) const fn fault(&self) -> Option<CertificateFault> {
        self.fault
    }

    fn certificate(&self, chain: &CertificateRef<'_>) -> Result<VerifyingKey, CertificateFault> {
        let ders = || {
            chain.entries.iter().map(|entry| match *entry {
                CertificateEntryRef::X509(der) => Ok(CertificateDer::from_slice(der)),
                CertificateEntryRef::RawPublicKey(_) => Err(CertificateFault::Invalid),
            })
        };
        let leaf = ders().next().ok_or(CertificateFault::Invalid)??;
        let mut between: heapless::Vec<CertificateDer<'_>, INTERMEDIATES_MAX> = heapless::Vec::new();
        for der in ders().skip(1) {
            between.push(der?).map_err(|_| CertificateFault::Invalid)?;
        }
        let leaf = EndEntityCert::try_from(&leaf).map_err(|error| fault_of(&error))?;
        let bounded = Bounded(AtomicU8::new(SIGNATURES_MAX));
        self.config.with_anchors(|anchors| {
            leaf.verify_for_usage(
                &[&bounded],
                anchors,
                &between,
                self.config.now(),
                KeyUsage::server_auth(),
                None,
                None,
            )
            .map(drop)
            .map_err(|error| fault_of(&error))
        })?;
        leaf.verify_is_valid_for_subject_name(&self.name).map_err(|error| fault_of(&error))?;
        key_of(chain.entries.first())
    }

    fn signature(&mut self, verify: &CertificateVerifyRef<'_>) -> Result<(), TlsError> {
        let Progress::Certified { key, transcript } = core::mem::replace(&mut self.progress, Progress::Failed) else {
            return Err(TlsError::InvalidHandshake);
        };
        if verify.signature_scheme != SignatureScheme::EcdsaSecp256r1Sha256 {
            return Err(TlsError::InvalidSignatureScheme);
        }
        let mut signed = [0x20; 64 + CONTEXT.len() + 32];
        for (to, from) in signed.iter_mut().skip(64).zip(CONTEXT.iter().chain(&transcript)) {
            *to = *from;
        }
        let signature = Signature::from_der(verify.signature);
        if !signature.is_ok_and(|signature| key.verify(&signed, &signature).is_ok()) {
            // The same fault as in a hosted client: the issuer's name is known, but the key is not
            // the authority's.
            self.fault = Some(CertificateFault::UnknownIssuer);
            return Err(TlsError::InvalidSignature);
        }
        self.progress = Progress::Proven;
        Ok(())
    }
}

/// The context string that a server signs, after 64 spaces and before the hash of the handshake.
const CONTEXT: &[u8] = b"TLS 1.3, server CertificateVerify\0";

impl TlsVerifier<Suite> for Verifier<'_> {
    /// Ignored: the name is already stored, as a name or an address.
    fn set_hostname_verification(&mut self, _hostname: &str) -> Result<(), TlsError> {
        Ok(())
    }

    fn verify_certificate(&mut self, transcript: &Sha256, chain: CertificateRef<'_>) -> Result<(), TlsError> {
        // A certificate is accepted only once, and before the signature.
        if !matches!(core::mem::replace(&mut self.progress, Progress::Failed), Progress::Nothing) {
            return Err(TlsError::InvalidHandshake);
        }
        match self.certificate(&chain) {
            Ok(key) => {
                self.progress = Progress::Certified { key, transcript: transcript.clone().finalize().into() };
                Ok(())
            }
            Err(fault) => {
                self.fault = Some(fault);
                Err(TlsError::InvalidCertificate)
            }
        }
    }

    fn verify_signature(&mut self, verify: CertificateVerifyRef<'_>) -> Result<(), TlsError> {
        self.signature(&verify)
    }
}

/// The key of a verified certificate, which is an uncompressed point on P-256.
///
/// Without a heap, webpki exposes only the keys of trust anchors. The certificate is parsed as one
/// only to read its key.
fn key_of(entry: Option<&CertificateEntryRef<'_>>) -> Result<VerifyingKey, CertificateFault> {
    const POINT_BYTES: usize = 65;
    let Some(CertificateEntryRef::X509(der)) = entry else { return Err(CertificateFault::Invalid) };
    let der = CertificateDer::from_slice(der);
    let anchor = webpki::anchor_from_trusted_cert(&der).map_err(|error| fault_of(&error))?;
    // The algorithm, a sequence shorter than 128 bytes; then the point, a bit string of whole
    // bytes.
    let rest =
        anchor.subject_public_key_info.strip_prefix(&[0x30]).and_then(|rest| rest.strip_prefix(&[ALGORITHM_LEN]));
    let rest = rest.and_then(|rest| rest.strip_prefix(alg_id::ECDSA_P256.as_ref()));
    let point = rest.and_then(|rest| rest.strip_prefix(&[0x03, 0x42, 0x00]));
    let point = point.filter(|point| point.len() == POINT_BYTES).ok_or(CertificateFault::Invalid)?;
    VerifyingKey::from_sec1_bytes(point).map_err(|_| CertificateFault::Invalid)
}

const ALGORITHM_LEN: u8 = 19;

/// ECDSA on P-256 with SHA-256, with a limit on the number of signatures.
#[derive(Debug)]
struct Bounded(AtomicU8);

impl SignatureVerificationAlgorithm for Bounded {
    fn verify_signature(&self, public_key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        let left = self.0.load(Ordering::Relaxed).checked_sub(1).ok_or(InvalidSignature)?;
        self.0.store(left, Ordering::Relaxed);
        let key = VerifyingKey::from_sec1_bytes(public_key).map_err(|_| InvalidSignature)?;
        let signature = Signature::from_der(signature).map_err(|_| InvalidSignature)?;
        key.verify(message, &signature).map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_P256
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_SHA256
    }
}

/// Maps an error of webpki to the same fault as a hosted client.
const fn fault_of(error: &webpki::Error) -> CertificateFault {
    use webpki::Error as E;
    if matches!(error, E::CertExpired { .. } | E::InvalidCertValidity) {
        CertificateFault::Expired
    } else if matches!(error, E::CertNotValidYet { .. }) {
        CertificateFault::NotYetValid
    } else if matches!(error, E::UnknownIssuer | E::InvalidSignatureForPublicKey) {
        CertificateFault::UnknownIssuer
    } else if matches!(error, E::CertNotValidForName(_)) {
        CertificateFault::WrongName
    } else {
        CertificateFault::Invalid
    }
}
