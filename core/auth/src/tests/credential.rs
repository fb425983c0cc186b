use super::*;
use poolhouse_wire::bson::{DocumentWriter, RawDocument, RawValue};

#[test]
fn each_mechanism_has_its_name_and_default_database() {
    for (mechanism, name, source) in [
        (Mechanism::SCRAM_SHA_1, "SCRAM-SHA-1", "admin"),
        (Mechanism::SCRAM_SHA_256, "SCRAM-SHA-256", "admin"),
        (Mechanism::X509, "MONGODB-X509", "$external"),
        (Mechanism::Plain, "PLAIN", "$external"),
    ] {
        assert_eq!(mechanism.to_string(), name);
        assert_eq!(Mechanism::from_name(name), Some(mechanism));
        assert_eq!(Credential::new("u", "p").mechanism(mechanism).source_database(), source);
        assert_eq!(Credential::new("u", "p").mechanism(mechanism).source("db").source_database(), "db");
    }
    assert_eq!(Credential::new("u", "p").source_database(), "admin");
    assert_eq!(Credential::new("u", "p").source("").source_database(), "admin");
    for name in ["", "scram-sha-256", "MONGODB-CR", "GSSAPI", "MONGODB-AWS", "MONGODB-OIDC"] {
        assert_eq!(Mechanism::from_name(name), None, "{name}");
    }
}

#[test]
fn default_is_sha_256_when_listed_and_sha_1_otherwise() {
    let negotiated = |names: Option<&[&str]>| {
        let Some(names) = names else { return ScramMechanism::negotiate(None) };
        let mut sink = Vec::new();
        DocumentWriter::write(&mut sink, |d| {
            d.array("a", |a| names.iter().try_for_each(|name| a.str(name).map(drop)))?;
            d.array("n", |a| a.value(RawValue::Int32(1)).map(drop)).map(drop)
        })
        .expect("grows");
        let document = RawDocument::new(&sink).expect("well-formed");
        let array = document.get("a").expect("well-formed").and_then(RawValue::as_array);
        let numbers = document.get("n").expect("well-formed").and_then(RawValue::as_array);
        assert_eq!(ScramMechanism::negotiate(numbers), ScramMechanism::Sha1);
        ScramMechanism::negotiate(array)
    };
    assert_eq!(negotiated(None), ScramMechanism::Sha1);
    assert_eq!(negotiated(Some(&[])), ScramMechanism::Sha1);
    assert_eq!(negotiated(Some(&["SCRAM-SHA-1"])), ScramMechanism::Sha1);
    assert_eq!(negotiated(Some(&["SCRAM-SHA-1", "SCRAM-SHA-256"])), ScramMechanism::Sha256);
    assert_eq!(negotiated(Some(&["SCRAM-SHA-256"])), ScramMechanism::Sha256);
    assert_eq!(negotiated(Some(&["PLAIN", "MONGODB-X509"])), ScramMechanism::Sha1);
}

#[test]
fn unusable_credentials_are_refused_before_a_command_is_sent() {
    use AuthError::{
        PasswordMissing, PasswordProhibited, PasswordUnexpected, SourceNotExternal, UsernameMissing, UsernameProhibited,
    };
    let plain = Mechanism::Plain;
    let none = Credential { username: None, password: None, source: None, mechanism: None };
    let x509 = Credential::x509(None);
    let cases = [
        (none, UsernameMissing),
        (Credential { username: Some("u"), ..none }, PasswordMissing),
        (Credential { password: Some("p"), ..none }, UsernameMissing),
        (Credential::new("", "p"), UsernameMissing),
        (Credential::new("u", ""), PasswordMissing),
        (Credential::new("u\0", "p"), UsernameProhibited),
        (Credential::new("u", "p\0"), PasswordProhibited),
        (Credential::new("", "p").mechanism(plain), UsernameMissing),
        (Credential::new("u", "").mechanism(plain), PasswordMissing),
        (Credential::new("u", "\0p").mechanism(plain), PasswordProhibited),
        (Credential::new("u", "").mechanism(Mechanism::SCRAM_SHA_1), PasswordMissing),
        (Credential::new("u", "").mechanism(Mechanism::SCRAM_SHA_256), PasswordMissing),
        (Credential::new("u", "p").mechanism(Mechanism::X509), PasswordUnexpected),
        (Credential::x509(Some("")), UsernameMissing),
        (Credential::x509(Some("u\0")), UsernameProhibited),
        (x509.source("admin"), SourceNotExternal),
    ];
    let options = || AuthenticationOptions { secure: true, ..AuthenticationOptions::new([1; ENTROPY_BYTES]) };
    for (credential, error) in cases {
        assert_eq!(credential.check(), Err(error), "{credential:?}");
        assert_eq!(Authentication::new(credential, options()).err(), Some(error), "{credential:?}");
    }
    for credential in [Credential::new("u", "p"), x509, x509.source("$external"), Credential::x509(Some("CN=u"))] {
        assert!(Authentication::new(credential, options()).is_ok(), "{credential:?}");
    }
    for (user, password, error) in [("", "p", UsernameMissing), ("u\0", "p", UsernameProhibited)] {
        let scram = Scram::new(ScramMechanism::Sha1, user, password, SHA_256.nonce());
        assert_eq!(scram.err(), Some(error));
    }
    assert_eq!(Scram::new(ScramMechanism::Sha1, "u", "", SHA_256.nonce()).err(), Some(PasswordMissing));
    assert_eq!(Scram::new(ScramMechanism::Sha1, "u", "\0", SHA_256.nonce()).err(), Some(PasswordProhibited));
}

#[test]
fn plain_needs_a_private_connection_or_to_be_forced() {
    let credential = Credential::new("u", "p").mechanism(Mechanism::Plain);
    let with = |secure, allow_plain_without_tls| {
        let options = AuthenticationOptions::new([1; ENTROPY_BYTES]);
        Authentication::new(credential, AuthenticationOptions { secure, allow_plain_without_tls, ..options }).err()
    };
    assert_eq!(with(false, false), Some(AuthError::PlainWithoutTls));
    assert_eq!((with(true, false), with(false, true)), (None, None));
}

/// The examples of RFC 4013, section 3.
#[test]
#[cfg(feature = "std")]
fn passwords_are_prepared_by_saslprep_for_sha_256() {
    let keys = |password| ScramKeys::derive(ScramMechanism::Sha256, "user", password, b"salt", ITERATIONS_MIN);
    let same = |one, other| {
        let (one, other) = (keys(one).expect("allowed"), keys(other).expect("allowed"));
        one.client_key.is(other.client_key.bytes())
    };
    assert!(same("I\u{ad}X", "IX"));
    assert!(same("\u{2168}", "IX"));
    assert!(same("\u{aa}", "a"));
    assert!(!same("USER", "user"));
    assert_eq!(keys("\u{7}").err(), Some(AuthError::PasswordProhibited));
    assert_eq!(keys("\u{e9}\u{7}").err(), Some(AuthError::PasswordProhibited));
    assert_eq!(keys("\u{627}1").err(), Some(AuthError::PasswordProhibited));
    assert_eq!(keys("\u{ad}").err(), Some(AuthError::PasswordMissing), "nothing is left of it");
}

#[test]
#[cfg(not(feature = "std"))]
fn passwords_beyond_ascii_are_refused_without_tables() {
    let keys = |password| ScramKeys::derive(ScramMechanism::Sha256, "user", password, b"salt", ITERATIONS_MIN);
    assert_eq!(keys("\u{e9}").err(), Some(AuthError::PasswordNotAscii));
    assert_eq!(keys("\u{7}").err(), Some(AuthError::PasswordProhibited));
    assert!(keys("e ~").is_ok());
}

/// SCRAM-SHA-1 accepts every password, without SASLprep.
#[test]
fn passwords_are_digested_for_sha_1() {
    let keys = |user, password| {
        ScramKeys::derive(ScramMechanism::Sha1, user, password, b"salt", ITERATIONS_MIN).expect("allowed")
    };
    let differ = |one: ScramKeys, other: ScramKeys| !one.client_key.is(other.client_key.bytes());
    assert!(differ(keys("user", "\u{2168}"), keys("user", "IX")));
    assert!(differ(keys("user", "p"), keys("User", "p")));
    assert!(!differ(keys("user", "\u{7}"), keys("user", "\u{7}")));
}

#[test]
fn owned_credential_equals_its_source() {
    let full = Credential::new("u", "p").source("db").mechanism(Mechanism::Plain);
    for credential in [full, Credential::x509(None)] {
        let owned = OwnedCredential::from(credential);
        assert_eq!(owned.as_credential(), credential);
        assert_eq!(owned.clone(), owned);
    }
}
