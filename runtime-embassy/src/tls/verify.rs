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
#[cfg(feature = "rsa")]
use super::rsa::{self, Hash, Padding};
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

#[cfg_attr(feature = "rsa", expect(clippy::large_enum_variant, reason = "there is no heap"))]
enum Progress {
    /// No certificate was received.
    Nothing,
    /// A valid certificate was received, with this key; this is the hash of the handshake so far.
    Certified { key: ServerKey, transcript: [u8; 32] },
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

    fn certificate(&self, chain: &CertificateRef<'_>) -> Result<ServerKey, CertificateFault> {
        let ders = || {
            chain.entries.iter().map(|entry| match *entry {
                CertificateEntryRef::X509(der) => Ok(CertificateDer::from_slice(der)),
                CertificateEntryRef::RawPublicKey(_) => Err(CertificateFault::Invalid),
            })
        };
        let der = ders().next().ok_or(CertificateFault::Invalid)??;
        let mut between: heapless::Vec<CertificateDer<'_>, INTERMEDIATES_MAX> = heapless::Vec::new();
        for der in ders().skip(1) {
            between.push(der?).map_err(|_| CertificateFault::Invalid)?;
        }
        let leaf = EndEntityCert::try_from(&der).map_err(|error| fault_of(&error))?;
        let budget = Budget(AtomicU8::new(SIGNATURES_MAX));
        let algorithms: &[&dyn SignatureVerificationAlgorithm] = &[
            &EcdsaP256(&budget),
            #[cfg(feature = "p384")]
            &EcdsaP384(&budget),
            #[cfg(feature = "rsa")]
            &Rsa { budget: &budget, padding: Padding::Pkcs1, hash: Hash::Sha256 },
            #[cfg(feature = "rsa")]
            &Rsa { budget: &budget, padding: Padding::Pkcs1, hash: Hash::Sha384 },
            #[cfg(feature = "rsa")]
            &Rsa { budget: &budget, padding: Padding::Pkcs1, hash: Hash::Sha512 },
            #[cfg(feature = "rsa")]
            &Rsa { budget: &budget, padding: Padding::Pss, hash: Hash::Sha256 },
            #[cfg(feature = "rsa")]
            &Rsa { budget: &budget, padding: Padding::Pss, hash: Hash::Sha384 },
            #[cfg(feature = "rsa")]
            &Rsa { budget: &budget, padding: Padding::Pss, hash: Hash::Sha512 },
        ];
        let verdict = self.config.with_anchors(|anchors| {
            leaf.verify_for_usage(algorithms, anchors, &between, self.config.now(), KeyUsage::server_auth(), None, None)
                .map(drop)
        });
        match verdict {
            // As in a hosted client: the dates were checked before this error, and what is trusted as
            // it is needs no issuer.
            Err(webpki::Error::CaUsedAsEndEntity) if self.config.trusts(&der) => {}
            // The certificate of version 1 is another one of the chain, which cannot issue any.
            Err(webpki::Error::UnsupportedCertVersion) => return Err(CertificateFault::UnknownIssuer),
            verdict => verdict.map_err(|error| fault_of(&error))?,
        }
        leaf.verify_is_valid_for_subject_name(&self.name).map_err(|error| fault_of(&error))?;
        key_of(chain.entries.first())
    }

    fn signature(&mut self, verify: &CertificateVerifyRef<'_>) -> Result<(), TlsError> {
        let Progress::Certified { key, transcript } = core::mem::replace(&mut self.progress, Progress::Failed) else {
            return Err(TlsError::InvalidHandshake);
        };
        let mut signed = [0x20; 64 + CONTEXT.len() + 32];
        for (to, from) in signed.iter_mut().skip(64).zip(CONTEXT.iter().chain(&transcript)) {
            *to = *from;
        }
        let is_signed = key.verifies(verify.signature_scheme, &signed, verify.signature);
        if !is_signed.ok_or(TlsError::InvalidSignatureScheme)? {
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

/// The key of a server.
#[cfg_attr(feature = "rsa", expect(clippy::large_enum_variant, reason = "there is no heap"))]
enum ServerKey {
    P256(VerifyingKey),
    #[cfg(feature = "p384")]
    P384(p384::ecdsa::VerifyingKey),
    #[cfg(feature = "rsa")]
    Rsa(rsa::ServerKey),
}

impl ServerKey {
    /// Reads the key from the content of a `SubjectPublicKeyInfo`.
    fn of(subject_public_key_info: &[u8]) -> Option<Self> {
        if let Some(point) = point_of::<65>(subject_public_key_info, alg_id::ECDSA_P256) {
            return VerifyingKey::from_sec1_bytes(point).ok().map(Self::P256);
        }
        #[cfg(feature = "p384")]
        if let Some(point) = point_of::<97>(subject_public_key_info, alg_id::ECDSA_P384) {
            return p384::ecdsa::VerifyingKey::from_sec1_bytes(point).ok().map(Self::P384);
        }
        #[cfg(feature = "rsa")]
        if let Some(key) = rsa::ServerKey::of(subject_public_key_info) {
            return Some(Self::Rsa(key));
        }
        None
    }

    /// Whether the signature is valid; `None` if the scheme is not one of the key.
    fn verifies(&self, scheme: SignatureScheme, message: &[u8], signature: &[u8]) -> Option<bool> {
        match (self, scheme) {
            (Self::P256(key), SignatureScheme::EcdsaSecp256r1Sha256) => {
                Some(Signature::from_der(signature).is_ok_and(|signature| key.verify(message, &signature).is_ok()))
            }
            #[cfg(feature = "p384")]
            (Self::P384(key), SignatureScheme::EcdsaSecp384r1Sha384) => {
                let signature = p384::ecdsa::Signature::from_der(signature);
                Some(signature.is_ok_and(|signature| key.verify(message, &signature).is_ok()))
            }
            #[cfg(feature = "rsa")]
            (Self::Rsa(key), scheme) => {
                let schemes = [
                    (SignatureScheme::RsaPssRsaeSha256, Hash::Sha256),
                    (SignatureScheme::RsaPssRsaeSha384, Hash::Sha384),
                    (SignatureScheme::RsaPssRsaeSha512, Hash::Sha512),
                ];
                let (_, hash) = schemes.into_iter().find(|(known, _)| *known == scheme)?;
                Some(key.verifies(hash, message, signature))
            }
            _ => None,
        }
    }
}

/// The uncompressed point on a curve in the content of a `SubjectPublicKeyInfo`: the algorithm, a sequence
/// shorter than 128 bytes; then the point, a bit string of whole bytes, also shorter.
fn point_of<const BYTES: u8>(subject_public_key_info: &[u8], curve: AlgorithmIdentifier) -> Option<&[u8]> {
    let len = u8::try_from(curve.as_ref().len()).ok()?;
    let rest = subject_public_key_info.strip_prefix(&[0x30, len])?.strip_prefix(curve.as_ref())?;
    rest.strip_prefix(&[0x03, BYTES + 1, 0x00]).filter(|point| point.len() == usize::from(BYTES))
}

/// The key of a verified certificate.
///
/// Without a heap, webpki exposes only the keys of trust anchors. The certificate is parsed as one
/// only to read its key.
fn key_of(entry: Option<&CertificateEntryRef<'_>>) -> Result<ServerKey, CertificateFault> {
    let Some(CertificateEntryRef::X509(der)) = entry else { return Err(CertificateFault::Invalid) };
    let der = CertificateDer::from_slice(der);
    let anchor = webpki::anchor_from_trusted_cert(&der).map_err(|error| fault_of(&error))?;
    ServerKey::of(&anchor.subject_public_key_info).ok_or(CertificateFault::Invalid)
}

/// The number of signatures that may still be verified.
#[derive(Debug)]
struct Budget(AtomicU8);

impl Budget {
    fn take(&self) -> Result<(), InvalidSignature> {
        let left = self.0.load(Ordering::Relaxed).checked_sub(1).ok_or(InvalidSignature)?;
        self.0.store(left, Ordering::Relaxed);
        Ok(())
    }
}

/// ECDSA on P-256 with SHA-256.
#[derive(Debug)]
struct EcdsaP256<'b>(&'b Budget);

impl SignatureVerificationAlgorithm for EcdsaP256<'_> {
    fn verify_signature(&self, public_key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        self.0.take()?;
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

/// ECDSA on P-384 with SHA-384.
#[cfg(feature = "p384")]
#[derive(Debug)]
struct EcdsaP384<'b>(&'b Budget);

#[cfg(feature = "p384")]
impl SignatureVerificationAlgorithm for EcdsaP384<'_> {
    fn verify_signature(&self, public_key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        use p384::ecdsa::{Signature, VerifyingKey};
        self.0.take()?;
        let key = VerifyingKey::from_sec1_bytes(public_key).map_err(|_| InvalidSignature)?;
        let signature = Signature::from_der(signature).map_err(|_| InvalidSignature)?;
        key.verify(message, &signature).map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_P384
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_SHA384
    }
}

/// RSA.
#[cfg(feature = "rsa")]
#[derive(Debug)]
struct Rsa<'b> {
    budget: &'b Budget,
    padding: Padding,
    hash: Hash,
}

#[cfg(feature = "rsa")]
impl SignatureVerificationAlgorithm for Rsa<'_> {
    fn verify_signature(&self, public_key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        self.budget.take()?;
        let is_valid = rsa::verifies(public_key, self.padding, self.hash, message, signature);
        if is_valid { Ok(()) } else { Err(InvalidSignature) }
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::RSA_ENCRYPTION
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        match (self.padding, self.hash) {
            (Padding::Pkcs1, Hash::Sha256) => alg_id::RSA_PKCS1_SHA256,
            (Padding::Pkcs1, Hash::Sha384) => alg_id::RSA_PKCS1_SHA384,
            (Padding::Pkcs1, Hash::Sha512) => alg_id::RSA_PKCS1_SHA512,
            (Padding::Pss, Hash::Sha256) => alg_id::RSA_PSS_SHA256,
            (Padding::Pss, Hash::Sha384) => alg_id::RSA_PSS_SHA384,
            (Padding::Pss, Hash::Sha512) => alg_id::RSA_PSS_SHA512,
        }
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
    } else if matches!(error, E::CaUsedAsEndEntity) {
        CertificateFault::Authority
    } else if matches!(error, E::UnsupportedCertVersion) {
        CertificateFault::Version1
    } else {
        CertificateFault::Invalid
    }
}
