use super::*;

/// Whatever the platform has, those that are compiled in are there.
#[test]
fn whoever_names_no_authorities_trusts_somebody() {
    let config = TlsConfig::build(&TlsOptions::default()).expect("there are roots");
    assert!(config.warnings().is_empty() && !config.has_certificate());
    assert!(!platform_roots().expect("the same").is_empty());
    // Nobody is named by what no certificate can name.
    assert!(config.connection("db.example.com").is_ok() && config.connection("a b").is_err());
}
