use super::*;
use rustls_native_certs::load_certs_from_paths;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn default_options_load_trusted_roots() {
    let config = TlsConfig::build(&TlsOptions::default()).expect("there are roots");
    assert!(!config.has_certificate());
    assert!(!platform_roots(&mut Vec::new()).expect("the same").is_empty());
    // A name that no certificate can contain is refused.
    assert!(config.connection("db.example.com").is_ok() && config.connection("a b").is_err());
}

#[test]
fn hint_05f_missing_ca_file_is_named() {
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

/// Loads a certificate store that consists of this file.
///
/// - `is_named`: whether an environment variable names it.
fn store(path: &Path, is_named: bool) -> (Result<usize, String>, Vec<TlsWarning>) {
    let named = if is_named { format!("SSL_CERT_FILE={}", path.display()) } else { String::new() };
    let mut warnings = Vec::new();
    let roots = roots_of(load_certs_from_paths(Some(path), None), &named, &mut warnings);
    (roots.map(|roots| roots.len()).map_err(|error| error.to_string()), warnings)
}

const BROKEN: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n";

#[test]
fn security_9_store_without_a_usable_root_is_an_error_with_the_file_and_the_reason() {
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
fn security_9_default_store_that_cannot_be_loaded_has_a_warning_with_the_file_and_the_reason() {
    let (roots, warnings) = store(Path::new("/no/such/store.pem"), false);
    assert_eq!(roots, Ok(webpki_roots::TLS_SERVER_ROOTS.len()));
    let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
    let text = warning.to_string();
    let begin = "a part of the platform's trusted authorities cannot be loaded and is left out: ";
    assert!(text.starts_with(begin) && text.ends_with("at '/no/such/store.pem'"), "{text}");
    let mut many = load_certs_from_paths(Some("/no/such/store.pem".as_ref()), Some("/no/such/folder".as_ref()));
    let mut warnings = Vec::new();
    many.certs.clear();
    assert_eq!(many.errors.len(), 2);
    roots_of(many, "", &mut warnings).expect("Mozilla's");
    assert!(warnings[0].to_string().ends_with(" (and 1 more)"), "{warnings:?}");
}

/// The name of the test below. It starts itself in a second process, and the environment of that
/// process names a store.
const CHILD: &str = "tls::config::tests::security_9_unreadable_store_that_the_environment_names_is_an_error";

#[test]
fn security_9_unreadable_store_that_the_environment_names_is_an_error() {
    const MARK: &str = "POOLHOUSE_TEST_CHILD";
    if std::env::var_os(MARK).is_some() {
        let error = TlsConfig::build(&TlsOptions::default()).expect_err("the store cannot be read");
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
fn security_9_configuration_reports_whether_servers_are_verified() {
    let verifies = |change: fn(&mut TlsOptions)| {
        let mut options = TlsOptions::default();
        change(&mut options);
        TlsConfig::build(&options).expect("there are roots").verifies_servers()
    };
    assert!(verifies(|_| {}));
    assert!(!verifies(|options| options.allow_invalid_certificates = true));
    assert!(!verifies(|options| options.allow_invalid_hostnames = true));
}
