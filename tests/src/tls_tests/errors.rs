//! Texts and causes of TLS errors.

use core::error::Error as _;
use std::io;
use std::path::PathBuf;

use poolhouse_client::tls::{FileFault, TlsError, TlsHandshakeError, TlsWarning, cause_of};
use poolhouse_core::{Cause, CertificateFault};
use rustls::{AlertDescription, CertificateError, Error};

#[test]
fn faults_of_files_name_the_remedy() {
    let texts = [
        (FileFault::Io(io::ErrorKind::NotFound), "cannot be read: "),
        (FileFault::TooLong, "is longer than 16 MiB"),
        (FileFault::Pem, "is not PEM"),
        (FileFault::NoCertificate, "has no certificate"),
        (FileFault::BadCertificate, "has no certificate that can be used"),
        (FileFault::NoKey, "has no private key"),
        (FileFault::ManyKeys, "has more than one private key"),
        (FileFault::BadKey, "has a private key of an unsupported kind"),
        (FileFault::ForeignKey, "has a private key that does not belong to its first certificate"),
        (FileFault::NoPassword, "set tlsCertificateKeyFilePassword"),
        (FileFault::WrongPassword, "that tlsCertificateKeyFilePassword does not decrypt"),
        (FileFault::Encryption, "openssl pkcs8 -topk8"),
    ];
    for (fault, text) in texts {
        let error = TlsError::File { option: "tlsCAFile", path: PathBuf::from("/x.pem"), fault };
        let reported = error.to_string();
        assert!(reported.starts_with("tlsCAFile /x.pem: ") && reported.contains(text), "{reported}");
    }
    assert!(TlsError::NoPlatformRoots.to_string().contains("set tlsCAFile, TlsOptions::authorities or"));
    assert_eq!(TlsError::Authorities(FileFault::Pem).to_string(), "the text of TLS authorities is not PEM");
    assert!(TlsError::AuthoritiesTwice.to_string().ends_with("together with tlsCAFile"));
    let reason = String::from("SSL_CERT_FILE=/x: not there");
    let error = TlsError::PlatformStore { reason: reason.clone() };
    assert_eq!(error.to_string(), format!("the platform's trusted authorities cannot be loaded: {reason}"));
    let warning = TlsWarning::PlatformStore { reason: reason.clone() };
    let begin = "authorities of the platform cannot be loaded and are left out";
    assert_eq!(warning.to_string(), format!("{begin}: {reason}"));
    assert!(TlsError::PasswordWithoutFile.to_string().contains("requires tlsCertificateKeyFile"));
    assert_eq!(TlsError::Other("no version".into()).to_string(), "TLS: no version");
    assert_eq!(
        TlsWarning::UnusableAuthorities(3).to_string(),
        "tlsCAFile or authorities in memory: certificates that cannot be used and are left out: 3"
    );
    for warning in [TlsWarning::InvalidCertificates, TlsWarning::InvalidHostnames] {
        assert!(warning.to_string().starts_with("INSECURE: "), "{warning}");
    }
}

/// A certificate error does not indicate an overloaded server.
#[test]
#[doc(alias = "CMAP-97")]
fn failed_handshake_reports_its_reason_and_cause() {
    let of_certificate = |error| Error::InvalidCertificate(error);
    let certificate = Cause::Certificate;
    let cases = [
        (of_certificate(CertificateError::Revoked), certificate(CertificateFault::Revoked)),
        (of_certificate(CertificateError::Expired), certificate(CertificateFault::Expired)),
        (of_certificate(CertificateError::NotValidYet), certificate(CertificateFault::NotYetValid)),
        (of_certificate(CertificateError::UnknownIssuer), certificate(CertificateFault::UnknownIssuer)),
        (of_certificate(CertificateError::BadSignature), certificate(CertificateFault::UnknownIssuer)),
        (of_certificate(CertificateError::NotValidForName), certificate(CertificateFault::WrongName)),
        (of_certificate(CertificateError::BadEncoding), certificate(CertificateFault::Invalid)),
        (Error::NoCertificatesPresented, certificate(CertificateFault::Invalid)),
        (Error::AlertReceived(AlertDescription::UnknownCA), certificate(CertificateFault::RefusedByPeer)),
        (Error::AlertReceived(AlertDescription::HandshakeFailure), Cause::Protocol),
        (Error::DecryptError, Cause::Protocol),
    ];
    for (error, cause) in cases {
        let is_unknown = cause == certificate(CertificateFault::UnknownIssuer);
        let hint = if is_unknown { "; tlsCAFile or TlsOptions names the authorities to trust" } else { "" };
        let reported = format!("TLS handshake: {error}{hint}");
        let failed = TlsHandshakeError::from(error.clone());
        assert_eq!((failed.cause(), failed.to_string()), (cause, reported));
        assert_eq!(cause_of(&io::Error::other(error)), cause, "as an error of a stream");
    }
    let failed = TlsHandshakeError::from(io::Error::from(io::ErrorKind::ConnectionReset));
    assert_eq!(failed.cause(), Cause::Network);
    assert!(failed.to_string().starts_with("TLS handshake: connection reset"), "{failed}");
    assert!(failed.source().is_some_and(|source| source.is::<io::Error>()));
}
