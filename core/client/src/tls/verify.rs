//! Verifiers of servers.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

/// Whether the name is the only fault of a certificate. The verifier checks the name last.
pub(super) const fn is_of_name(error: &CertificateError) -> bool {
    matches!(error, CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. })
}

/// Whether the fault of a certificate is that it has version 1.
pub(super) fn is_of_version_1(error: &CertificateError) -> bool {
    is_other(error, "UnsupportedCertVersion")
}

/// Whether the fault of a server's certificate is that it is one of an authority.
pub(super) fn is_of_authority(error: &CertificateError) -> bool {
    is_other(error, "CaUsedAsEndEntity")
}

/// rustls has no variants for some errors of webpki, and hands them on. Their text is their name.
fn is_other(error: &CertificateError, name: &str) -> bool {
    matches!(error, CertificateError::Other(error) if error.0.to_string() == name)
}

/// The full check, in which a trusted certificate may also be that of the server itself.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) inner: Arc<WebPkiServerVerifier>,
    /// The authorities.
    pub(super) trusted: Arc<[CertificateDer<'static>]>,
    /// Whether a valid certificate is accepted for any host.
    pub(super) any_name: bool,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verdict = match self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // `openssl req -x509` makes certificates of authorities. The dates were checked before
            // this error, and what is trusted as it is needs no issuer. The name is left. Key usages
            // are not checked: the owner of the key could issue a certificate with any.
            Err(Error::InvalidCertificate(error)) if is_of_authority(&error) && self.trusted.contains(end_entity) => {
                ParsedCertificate::try_from(end_entity)
                    .and_then(|certificate| verify_server_name(&certificate, server_name))
                    .map(|()| ServerCertVerified::assertion())
            }
            // The certificate of version 1 is another one of the chain, which cannot issue any.
            Err(Error::InvalidCertificate(error))
                if is_of_version_1(&error) && ParsedCertificate::try_from(end_entity).is_ok() =>
            {
                Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))
            }
            verdict => verdict,
        };
        match verdict {
            Err(Error::InvalidCertificate(error)) if self.any_name && is_of_name(&error) => {
                Ok(ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Accepts any certificate and any signature: a valid signature would prove nothing, because an
/// attacker can create a certificate for a new key.
#[derive(Debug)]
pub(super) struct AnyCertificate(pub(super) WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
