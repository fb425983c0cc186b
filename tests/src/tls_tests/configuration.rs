//! Valid and invalid files.

use std::path::PathBuf;

use pkcs8::der::Encode;
use pkcs8::der::asn1::OctetStringRef;
use pkcs8::pkcs5::pbes2;
use pkcs8::{EncryptedPrivateKeyInfoRef, LineEnding, SecretDocument};
use poolhouse_client::tls::{FileFault, TlsConfig, TlsError, TlsOptions, TlsWarning};
use poolhouse_uri::{ConnectionString, Secret};

use super::support::Fixture;
use crate::tls::{CertificateRequest, Holder};

fn fault_of(options: &TlsOptions) -> (&'static str, FileFault) {
    match TlsConfig::build(options) {
        Err(error @ TlsError::File { option, fault, .. }) => {
            let text = format!("{error} {error:?}");
            assert!(text.contains(option) && !text.contains("hunter2") && !text.contains("MIG"), "{text}");
            (option, fault)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn unusable_authorities_are_reported_by_file() {
    let fixture = Fixture::new();
    let fault = |name: &str, text: &str| {
        let mut options = TlsOptions::default();
        options.ca_file = Some(fixture.folder.write(name, text));
        let (option, fault) = fault_of(&options);
        assert_eq!(option, "tlsCAFile");
        fault
    };
    let good = fixture.root.certificate();
    assert_eq!(fault("empty.pem", ""), FileFault::NoCertificate);
    assert_eq!(fault("text.pem", "no PEM at all"), FileFault::NoCertificate);
    assert_eq!(fault("cut.pem", &good[..good.len() / 2]), FileFault::Pem);
    assert_eq!(fault("base64.pem", &good.replacen("MII", "M!I", 1)), FileFault::Pem);
    assert_eq!(fault("key.pem", &fixture.root.identity().key), FileFault::NoCertificate);
    let hollow = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert_eq!(fault("hollow.pem", hollow), FileFault::BadCertificate);

    let mut options = TlsOptions::default();
    options.ca_file = Some(fixture.folder.path().join("absent.pem"));
    assert_eq!(fault_of(&options), ("tlsCAFile", FileFault::Io(std::io::ErrorKind::NotFound)));
    // An error even if certificates are not verified.
    options.allow_invalid_certificates = true;
    assert_eq!(fault_of(&options), ("tlsCAFile", FileFault::Io(std::io::ErrorKind::NotFound)));

    // One valid certificate suffices; the others are reported.
    let mut options = TlsOptions::default();
    options.ca_file = Some(fixture.folder.write("mixed.pem", format!("{hollow}{good}")));
    let config = TlsConfig::build(&options).unwrap();
    assert_eq!(config.warnings(), [TlsWarning::UnusableAuthorities(1)]);
}

#[test]
fn file_that_is_too_long_is_not_read() {
    let fixture = Fixture::new();
    let mut options = TlsOptions::default();
    options.ca_file = Some(fixture.folder.write("long.pem", vec![b'\n'; 16 * 1024 * 1024 + 1]));
    assert_eq!(fault_of(&options), ("tlsCAFile", FileFault::TooLong));
    // A file that reports length 0 and is endless.
    #[cfg(unix)]
    {
        options.ca_file = Some(PathBuf::from("/dev/zero"));
        assert_eq!(fault_of(&options), ("tlsCAFile", FileFault::TooLong));
    }
}

struct Keys<'a> {
    fixture: &'a Fixture,
    next: u32,
}

impl Keys<'_> {
    fn options(&mut self, text: &str, password: Option<&str>) -> TlsOptions {
        self.next += 1;
        let mut options = self.fixture.options();
        options.certificate_key_file = Some(self.fixture.folder.write(&format!("{}.pem", self.next), text));
        options.certificate_key_file_password = password.map(Secret::from);
        options
    }

    fn fault(&mut self, text: &str, password: Option<&str>) -> FileFault {
        let (option, fault) = fault_of(&self.options(text, password));
        assert_eq!(option, "tlsCertificateKeyFile");
        fault
    }
}

#[test]
fn mismatched_certificates_and_keys_are_reported_by_file() {
    let fixture = Fixture::new();
    let client = fixture.root.issue(&CertificateRequest::client("ann")).identity();
    let other = fixture.root.issue(&CertificateRequest::client("bob")).identity();
    let mut keys = Keys { fixture: &fixture, next: 0 };
    let order = format!("{}{}", client.key, client.certificates);
    for good in [client.pem(), order] {
        assert!(TlsConfig::build(&keys.options(&good, None)).unwrap().has_certificate());
        // A password that is not needed is ignored.
        assert!(TlsConfig::build(&keys.options(&good, Some("hunter2"))).is_ok());
    }
    assert_eq!(keys.fault(&client.certificates, None), FileFault::NoKey);
    assert_eq!(keys.fault(&client.key, None), FileFault::NoCertificate);
    assert_eq!(keys.fault(&format!("{}{}", client.pem(), other.key), None), FileFault::ManyKeys);
    assert_eq!(keys.fault(&format!("{}{}", client.certificates, other.key), None), FileFault::ForeignKey);
    let hollow = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    assert_eq!(keys.fault(&format!("{}{hollow}", client.certificates), None), FileFault::BadKey);
    let no_certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert_eq!(keys.fault(&format!("{no_certificate}{}", client.key), None), FileFault::BadCertificate);
    // Also of version 1: the keys are compared whatever its version.
    let first = fixture.root.issue_version_1(&CertificateRequest::client("ann"));
    assert!(TlsConfig::build(&keys.options(&first.pem(), None)).unwrap().has_certificate());
    assert_eq!(keys.fault(&format!("{}{}", first.certificates, other.key), None), FileFault::ForeignKey);
    let cut = &client.key[..client.key.len() - 10];
    assert_eq!(keys.fault(&format!("{}{cut}", client.certificates), None), FileFault::Pem);
    let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
    assert_eq!(keys.fault(&format!("{}{old}", client.certificates), Some("hunter2")), FileFault::Encryption);
}

#[test]
fn encrypted_key_requires_its_password() {
    let fixture = Fixture::new();
    let holder = fixture.root.issue(&CertificateRequest::client("ann"));
    let identity = holder.identity();
    let (_, key) = SecretDocument::from_pem(&identity.key).unwrap();
    let scheme = pbes2::Parameters::generate_pbkdf2_sha256_aes256cbc(2048, &[7; 16], [9; 16]).unwrap();
    let encrypted = scheme.encrypt("hunter2", key.as_bytes()).unwrap();
    let info = EncryptedPrivateKeyInfoRef {
        encryption_algorithm: scheme.into(),
        encrypted_data: OctetStringRef::new(&encrypted).unwrap(),
    };
    let document = SecretDocument::try_from(info.to_der().unwrap()).unwrap();
    let pem = document.to_pem("ENCRYPTED PRIVATE KEY", LineEnding::LF).unwrap();
    let mut keys = Keys { fixture: &fixture, next: 0 };
    for text in [format!("{}{}", identity.certificates, *pem), format!("{}{}", *pem, identity.certificates)] {
        assert!(TlsConfig::build(&keys.options(&text, Some("hunter2"))).unwrap().has_certificate());
        assert!(TlsConfig::build(&keys.options(&text.replace('\n', "\r\n"), Some("hunter2"))).is_ok());
        assert_eq!(keys.fault(&text, None), FileFault::NoPassword);
        assert_eq!(keys.fault(&text, Some("hunter3")), FileFault::WrongPassword);
        assert_eq!(keys.fault(&format!("{text}{}", *pem), Some("hunter2")), FileFault::ManyKeys);
        assert_eq!(keys.fault(&format!("{text}{}", identity.key), Some("hunter2")), FileFault::ManyKeys);
    }
    let broken = pem.replacen("MI", "!!", 1);
    assert_eq!(keys.fault(&format!("{}{broken}", identity.certificates), Some("hunter2")), FileFault::Pem);
}

/// PKCS#8, but encrypted by MD5 and DES.
#[test]
fn key_with_legacy_encryption_is_reported_as_such() {
    let fixture = Fixture::new();
    let identity = fixture.root.issue(&CertificateRequest::client("ann")).identity();
    let mut bytes = vec![0x30, 47, 0x30, 27, 0x06, 9];
    // pbeWithMD5AndDES-CBC, its salt and its 2048 iterations; the encrypted key.
    bytes.extend([
        0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5, 3, 0x30, 14, 0x04, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0x02, 2, 8, 0,
    ]);
    bytes.extend([0x04, 16]);
    bytes.extend([9; 16]);
    let pem = SecretDocument::try_from(bytes).unwrap().to_pem("ENCRYPTED PRIVATE KEY", LineEnding::LF).unwrap();
    let text = format!("{}{}", identity.certificates, *pem);
    assert_eq!(Keys { fixture: &fixture, next: 0 }.fault(&text, Some("hunter2")), FileFault::Encryption);
}

#[test]
fn configuration_is_shown_without_keys_and_certificates() {
    let fixture = Fixture::new();
    let client = fixture.root.issue(&CertificateRequest::client("ann")).identity();
    let mut options = Keys { fixture: &fixture, next: 0 }.options(&client.pem(), None);
    options.allow_invalid_hostnames = true;
    let config = TlsConfig::build(&options).unwrap();
    assert_eq!(format!("{config:?}"), "TlsConfig { has_certificate: true, warnings: [InvalidHostnames], .. }");
    assert_eq!(format!("{:?}", fixture.config()), "TlsConfig { has_certificate: false, warnings: [], .. }");
}

#[test]
fn password_without_a_file_is_an_error() {
    let mut options = Fixture::new().options();
    options.certificate_key_file_password = Some(Secret::from("hunter2"));
    let error = TlsConfig::build(&options).unwrap_err();
    assert_eq!(error, TlsError::PasswordWithoutFile);
    assert!(!format!("{options:?} {error:?} {error}").contains("hunter2"));
}

#[test]
fn options_are_those_of_the_connection_string() {
    let options = |uri: &str| TlsOptions::from_uri(&ConnectionString::parse(uri).unwrap());
    assert_eq!(options("mongodb://a"), None);
    assert_eq!(options("mongodb://a/?tls=false"), None);
    assert_eq!(options("mongodb://a/?tls=true"), Some(TlsOptions::default()));
    let all = options(
        "mongodb://a/?tlsCAFile=%2Fca&tlsCertificateKeyFile=%2Fkey&tlsCertificateKeyFilePassword=hunter2&tlsAllowInvalidHostnames=true",
    );
    let mut expected = TlsOptions::default();
    expected.ca_file = Some(PathBuf::from("/ca"));
    expected.certificate_key_file = Some(PathBuf::from("/key"));
    expected.certificate_key_file_password = Some(Secret::from("hunter2"));
    expected.allow_invalid_hostnames = true;
    assert_eq!(all, Some(expected));
    let insecure = options("mongodb://a/?tlsInsecure=true").unwrap();
    assert!(insecure.allow_invalid_certificates && insecure.allow_invalid_hostnames);
    let certificates = options("mongodb://a/?tlsAllowInvalidCertificates=true").unwrap();
    assert!(certificates.allow_invalid_certificates && !certificates.allow_invalid_hostnames);
    for uri in ["tlsDisableOCSPEndpointCheck=true", "tlsDisableCertificateRevocationCheck=true"] {
        assert_eq!(options(&format!("mongodb://a/?{uri}")), Some(TlsOptions::default()));
    }
}

#[test]
fn platform_has_roots_or_reports_that_it_has_none() {
    match TlsConfig::build(&TlsOptions::default()) {
        Ok(config) => assert_eq!(config.warnings(), []),
        Err(error) => assert_eq!(error, TlsError::NoPlatformRoots),
    }
}

#[test]
fn debug_output_of_a_holder_shows_no_content() {
    let text = format!("{:?}", Holder::root("root").identity());
    assert_eq!(text, "Identity");
}
