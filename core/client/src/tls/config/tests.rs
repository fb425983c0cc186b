use super::*;
use rustls_native_certs::load_certs_from_paths;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn default_options_load_trusted_roots() {
    let config = TlsConfig::build(&TlsOptions::default().fallback_authorities(mozilla())).expect("there are roots");
    assert!(!config.has_certificate());
    assert!(!platform_roots(Some(&mozilla()), &mut Vec::new()).expect("the same").is_empty());
    // A name that no certificate can contain is refused.
    assert!(config.connection("db.example.com").is_ok() && config.connection("a b").is_err());
}

#[test]
fn missing_ca_file_is_named() {
    let ca_file = Some(PathBuf::from("/etc/ssl/no-such-ca.pem"));
    let options = TlsOptions { ca_file, ..TlsOptions::default() };
    let error = TlsConfig::build(&options).expect_err("there is no such file");
    assert_eq!(error.to_string(), "tlsCAFile /etc/ssl/no-such-ca.pem: cannot be read: entity not found");
}

/// Writes a temporary file with this text and returns its path.
fn file(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("poolhouse-{}-{name}", std::process::id()));
    std::fs::write(&path, text).expect("a temporary file");
    path
}

/// Loads a certificate store that consists of this file, with Mozilla's roots as the fallback.
///
/// - `is_named`: whether an environment variable names it.
fn store(path: &Path, is_named: bool) -> (Result<usize, String>, Vec<TlsWarning>) {
    let named = if is_named { format!("SSL_CERT_FILE={}", path.display()) } else { String::new() };
    let mut warnings = Vec::new();
    let roots = roots_of(load_certs_from_paths(Some(path), None), &named, Some(&mozilla()), &mut warnings);
    (roots.map(|roots| roots.store().len()).map_err(|error| error.to_string()), warnings)
}

fn mozilla() -> Authorities {
    webpki_roots::TLS_SERVER_ROOTS.into()
}

const BROKEN: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n";

#[test]
fn store_without_a_usable_root_is_an_error_with_the_file_and_the_reason() {
    let (roots, warnings) = store(Path::new("/no/such/store.pem"), true);
    let error = roots.expect_err("there is none");
    let begin = "the platform's trusted authorities cannot be loaded: SSL_CERT_FILE=/no/such/store.pem: ";
    assert!(error.starts_with(begin) && error.contains("No such file or directory"), "{error}");
    assert_eq!(warnings, []);
    for (name, text, reason) in [
        ("broken", BROKEN, "a file is not valid PEM"),
        ("empty", "", "it has no certificate that can be used"),
        ("text", "no certificate", "it has no certificate that can be used"),
    ] {
        let path = file(name, text);
        let (roots, warnings) = store(&path, true);
        std::fs::remove_file(&path).expect("it was made");
        let error = roots.expect_err(name);
        assert!(error.contains(&format!("SSL_CERT_FILE={}", path.display())) && error.contains(reason), "{error}");
        assert_eq!(warnings, [], "{name}");
    }
}

/// The user did not choose the platform's default store, so Mozilla's roots replace it.
#[test]
fn default_store_that_cannot_be_loaded_has_a_warning_with_the_file_and_the_reason() {
    let (roots, warnings) = store(Path::new("/no/such/store.pem"), false);
    assert_eq!(roots, Ok(webpki_roots::TLS_SERVER_ROOTS.len()));
    let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
    let text = warning.to_string();
    let begin = "authorities of the platform cannot be loaded and are left out: ";
    assert!(text.starts_with(begin) && text.ends_with("at '/no/such/store.pem'"), "{text}");
    let mut many = load_certs_from_paths(Some("/no/such/store.pem".as_ref()), Some("/no/such/folder".as_ref()));
    let mut warnings = Vec::new();
    many.certs.clear();
    assert_eq!(many.errors.len(), 2);
    roots_of(many, "", Some(&mozilla()), &mut warnings).expect("Mozilla's");
    assert!(warnings[0].to_string().ends_with(" (and 1 more)"), "{warnings:?}");
}

#[test]
fn store_without_certificates_is_replaced_by_the_fallback_alone() {
    let mut warnings = Vec::new();
    let roots = roots_of(CertificateResult::default(), "", Some(&mozilla()), &mut warnings);
    assert_eq!(roots.map(|roots| roots.store().len()), Ok(webpki_roots::TLS_SERVER_ROOTS.len()));
    for fallback in [None, Some(&Authorities::from(&[][..]))] {
        let error = roots_of(CertificateResult::default(), "", fallback, &mut warnings).expect_err("there is none");
        assert_eq!(error, TlsError::NoPlatformRoots);
        assert!(error.to_string().contains("set tlsCAFile, TlsOptions::authorities or "), "{error}");
    }
    assert_eq!(warnings, []);
}

#[test]
fn fallback_does_not_replace_certificates_of_the_platform() {
    let path = file("root", ROOT);
    let found = store(&path, false);
    std::fs::remove_file(&path).expect("it was made");
    assert_eq!(found, (Ok(1), Vec::new()));
}

/// The certificate of a root on P-256.
const ROOT: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBbzCCARWgAwIBAgIUBJllF3OwaBI1F5ZbTDLkTtlOwLgwCgYIKoZIzj0EAwIw\n\
DDEKMAgGA1UEAwwBcjAgFw0yNjExMjQxOTU0NDhaGA8yMTI2MTAzMTE5NTQ0OFow\n\
DDEKMAgGA1UEAwwBcjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABCReEHqSf5ux\n\
kJViWTMXItgfICaBDwUzhmJkanSilVub1vuf53JgI027cf/UTLbc83p5j9cEQc4i\n\
eBQszpEukAajUzBRMB0GA1UdDgQWBBRyrlwKDsOCNvAbxDcBwVKnYaZcojAfBgNV\n\
HSMEGDAWgBRyrlwKDsOCNvAbxDcBwVKnYaZcojAPBgNVHRMBAf8EBTADAQH/MAoG\n\
CCqGSM49BAMCA0gAMEUCIQCIBPPbmusAbHsiFuSU9o60JQBawcRAMjuP7zEs1RxP\n\
iQIgH32Rjvg1S2x3NnCCziBWxsxL2H6788mo14NzrUtPlRE=\n\
-----END CERTIFICATE-----\n\
";

#[test]
fn authorities_in_memory_are_trusted_exclusively_and_shown_without_certificates() {
    let authorities = Authorities::from_pem(ROOT).expect("it is a certificate");
    assert_eq!(authorities.store().len(), 1);
    assert_eq!(format!("{authorities:?}"), "Authorities { count: 1, .. }");
    let options = TlsOptions::default().authorities(authorities).fallback_authorities(mozilla());
    assert!(TlsConfig::build(&options).is_ok());
    let options = TlsOptions { ca_file: Some(PathBuf::from("/etc/ssl/no-such-ca.pem")), ..options };
    assert_eq!(TlsConfig::build(&options).expect_err("two kinds of authorities"), TlsError::AuthoritiesTwice);
    let none = TlsOptions::default().authorities(&[][..]);
    assert!(matches!(TlsConfig::build(&none), Err(TlsError::Other(_))));
}

#[test]
fn certificates_in_memory_that_cannot_be_used_are_an_error_or_a_warning() {
    const HOLLOW: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (text, fault) in [
        ("", FileFault::NoCertificate),
        ("no certificate", FileFault::NoCertificate),
        (BROKEN, FileFault::Pem),
        (HOLLOW, FileFault::BadCertificate),
    ] {
        assert_eq!(Authorities::from_pem(text), Err(TlsError::Authorities(fault)), "{text}");
    }
    let mixed = Authorities::from_pem(format!("{HOLLOW}{ROOT}")).expect("one of them");
    let config = TlsConfig::build(&TlsOptions::default().authorities(mixed)).expect("one suffices");
    assert_eq!(config.warnings(), [TlsWarning::UnusableAuthorities(1)]);
}

/// The name of the test below. It starts itself in a second process, and the environment of that
/// process names a store.
const CHILD: &str = "tls::config::tests::unreadable_store_that_the_environment_names_is_an_error";

#[test]
fn unreadable_store_that_the_environment_names_is_an_error() {
    const MARK: &str = "POOLHOUSE_TEST_CHILD";
    if std::env::var_os(MARK).is_some() {
        let options = TlsOptions::default().fallback_authorities(mozilla());
        let error = TlsConfig::build(&options).expect_err("the store cannot be read");
        assert!(error.to_string().contains("SSL_CERT_FILE=/no/such/store.pem: "), "{error}");
        assert!(matches!(error, TlsError::PlatformStore { .. }));
        return;
    }
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args([CHILD, "--exact"])
        .env("SSL_CERT_FILE", "/no/such/store.pem")
        .env_remove("SSL_CERT_DIR")
        .env(MARK, "1")
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn configuration_reports_whether_servers_are_verified() {
    let verifies = |change: fn(&mut TlsOptions)| {
        let mut options = TlsOptions::default().fallback_authorities(mozilla());
        change(&mut options);
        TlsConfig::build(&options).expect("there are roots").verifies_servers()
    };
    assert!(verifies(|_| {}));
    assert!(!verifies(|options| options.allow_invalid_certificates = true));
    assert!(!verifies(|options| options.allow_invalid_hostnames = true));
}
