use super::*;

fn credential(uri: &str) -> Credential {
    quiet(uri).credential().unwrap().clone()
}

/// The rule that a credential breaks.
fn rule(uri: &str) -> &'static str {
    let kind = error(uri).kind();
    let UriErrorKind::Credential { rule, .. } = kind else { panic!("{kind:?}") };
    rule
}

#[test]
fn username_and_password_are_decoded() {
    let found = credential("mongodb://%40l%3Ace:p%40%3a%2F%25@a");
    assert_eq!(found.username.as_deref(), Some("@l:ce"));
    assert_eq!(found.password.as_ref().map(Secret::expose), Some("p@:/%"));
}

#[test]
fn unencoded_character_is_an_error_at_the_username() {
    for (uri, kind, offset) in [
        ("mongodb://a@b@c", UriErrorKind::UserInfo, 10),
        ("mongodb://a:b:c@d", UriErrorKind::UserInfo, 10),
        ("mongodb://a:[b@d", UriErrorKind::UserInfo, 10),
        ("mongodb://a:#@d", UriErrorKind::UserInfo, 10),
        ("mongodb://a\0@d", UriErrorKind::UserInfo, 10),
        ("mongodb://a:b%@d", UriErrorKind::Escape, 13),
        ("mongodb://a:%ff@d", UriErrorKind::Text, 12),
        ("mongodb://a:b%00@d", UriErrorKind::Text, 12),
        ("mongodb://a:123/b@d", UriErrorKind::UserInfo, 16),
        ("mongodb://a:b/c@d", UriErrorKind::UserInfo, 10),
        ("mongodb://a:b?c@d", UriErrorKind::UserInfo, 10),
    ] {
        assert_eq!(error(uri), UriError::at(kind, offset), "{uri}");
    }
}

#[test]
fn source_is_derived_from_option_database_and_mechanism() {
    for (uri, source) in [
        ("mongodb://u:p@a", "admin"),
        ("mongodb://u:p@a/db", "db"),
        ("mongodb://u:p@a/db.collection", "db"),
        ("mongodb://u:p@a/db?authSource=other", "other"),
        ("mongodb://u:p@a/db?authMechanism=SCRAM-SHA-256", "db"),
        ("mongodb://u:p@a?authMechanism=PLAIN", "$external"),
        ("mongodb://u:p@a/db?authMechanism=PLAIN", "db"),
        ("mongodb://u@a/db?authMechanism=MONGODB-X509", "$external"),
        ("mongodb://u@a/db?authMechanism=GSSAPI", "$external"),
        ("mongodb://a/db?authMechanism=MONGODB-AWS", "$external"),
    ] {
        assert_eq!(credential(uri).source, source, "{uri}");
    }
}

#[test]
fn only_userinfo_or_a_mechanism_causes_authentication() {
    for uri in ["mongodb://a", "mongodb://a/db", "mongodb://a/?authSource=db"] {
        assert_eq!(quiet(uri).credential(), None);
    }
    assert!(quiet("mongodb://a/?authMechanism=MONGODB-X509").credential().is_some());
    assert_eq!(rule("mongodb://@a"), "have a username");
    assert_eq!(rule("mongodb://:@a"), "have a username");
}

#[test]
fn mechanism_accepts_only_its_own_parts() {
    for (uri, wanted) in [
        ("mongodb://a/?authMechanism=SCRAM-SHA-256", "have a username and a password"),
        ("mongodb://u@a/?authMechanism=SCRAM-SHA-1", "have a username and a password"),
        ("mongodb://u:p@a/?authMechanism=SCRAM-SHA-1&authMechanismProperties=SERVICE_NAME:x", "have no properties"),
        ("mongodb://:p@a/?authMechanism=PLAIN", "have a username and a password"),
        ("mongodb://a/?authMechanism=GSSAPI", "have a username"),
        ("mongodb://u@a/?authMechanism=GSSAPI&authSource=b", "have the authSource $external"),
        ("mongodb://u:p@a/?authMechanism=MONGODB-X509", "have no password"),
        ("mongodb://:@a/?authMechanism=MONGODB-X509", "have no password"),
        (
            "mongodb://u:p@a/?authMechanism=MONGODB-AWS",
            "have no username and password: AWS credentials are read from the environment",
        ),
        ("mongodb://a/?authMechanism=MONGODB-AWS&authMechanismProperties=AWS_SESSION_TOKEN:x", "have no properties"),
        ("mongodb://a/?authMechanism=MONGODB-OIDC", "have test, azure, gcp or k8s as its ENVIRONMENT"),
        (
            "mongodb://a/?authMechanism=MONGODB-OIDC&authMechanismProperties=ALLOWED_HOSTS:x",
            "have no other properties than ENVIRONMENT and TOKEN_RESOURCE",
        ),
    ] {
        assert_eq!(rule(uri), wanted, "{uri}");
    }
}

#[test]
fn unknown_mechanism_is_an_error() {
    for mechanism in ["MONGODB-CR", "scram-sha-1", "", "x"] {
        let (option, kind) = option_error(&format!("mongodb://u:p@a/?authMechanism={mechanism}"));
        assert!(matches!((option, kind), (Some("authMechanism"), UriErrorKind::Value(_))), "{mechanism}");
    }
    assert_eq!(
        error("mongodb://a/?authSource="),
        UriError::of(UriErrorKind::Value("not be empty"), "authSource").with_offset(13)
    );
    let (option, kind) = option_error("mongodb://u:p@a/?authMechanismProperties=SERVICE_NAME:x");
    assert_eq!((option, kind), (Some("authMechanismProperties"), UriErrorKind::Needs("authMechanism")));
}

#[test]
fn names_of_properties_are_case_insensitive() {
    let found =
        credential("mongodb://u@a/?authMechanism=GSSAPI&authMechanismProperties=service_name:x,Service_Realm:y");
    assert_eq!(found.properties.iter().collect::<Vec<_>>(), [("SERVICE_NAME", "x"), ("SERVICE_REALM", "y")]);
    let uri = "mongodb://u@a/?authMechanism=GSSAPI&authMechanismProperties=SERVICE_NAME:x,service_name:y";
    assert_eq!(parse(uri).warnings().len(), 1, "twice the same name");
}

#[test]
fn malformed_properties_are_ignored_without_a_further_error() {
    let uri =
        parse("mongodb://a/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:azure,TOKEN_RESOURCE:a,b");
    assert_eq!(uri.warnings().len(), 1);
    assert!(uri.credential().unwrap().properties.is_empty());
    assert_eq!(parse(uri.to_string_with_credentials().expose()), uri);
}

#[test]
fn username_without_password_is_valid_without_a_mechanism() {
    let found = credential("mongodb://u@a");
    assert_eq!((found.password, found.mechanism), (None, None));
    assert_eq!(credential("mongodb://u:@a").password, Some(Secret::from("")));
}

#[test]
fn oidc_accepts_the_parts_of_its_environment() {
    let of = |user: &str, properties: &str| {
        format!("mongodb://{user}a/?authMechanism=MONGODB-OIDC&authMechanismProperties={properties}")
    };
    for (user, properties, wanted) in [
        ("u:p@", "ENVIRONMENT:k8s", "have no password"),
        ("u@", "ENVIRONMENT:test", "have no username in the ENVIRONMENT test"),
        ("", "ENVIRONMENT:azure", "have a TOKEN_RESOURCE in this ENVIRONMENT"),
        ("", "ENVIRONMENT:gcp,TOKEN_RESOURCE:", "have a TOKEN_RESOURCE in this ENVIRONMENT"),
        ("", "ENVIRONMENT:else", "have test, azure, gcp or k8s as its ENVIRONMENT"),
    ] {
        assert_eq!(rule(&of(user, properties)), wanted, "{user}{properties}");
    }
    for (user, properties) in [
        ("", "ENVIRONMENT:test"),
        ("u@", "ENVIRONMENT:k8s"),
        ("u@", "ENVIRONMENT:azure,TOKEN_RESOURCE:r"),
        ("", "ENVIRONMENT:gcp,TOKEN_RESOURCE:r"),
    ] {
        assert_eq!(credential(&of(user, properties)).source, "$external", "{user}{properties}");
    }
    let gssapi = "mongodb://u@a/?authMechanism=GSSAPI&authMechanismProperties=";
    assert_eq!(
        rule(&format!("{gssapi}CANONICALIZE_HOST_NAME:maybe")),
        "have none, forward or forwardAndReverse as its CANONICALIZE_HOST_NAME"
    );
    assert_eq!(
        rule(&format!("{gssapi}ENVIRONMENT:test")),
        "have no other properties than SERVICE_NAME, SERVICE_REALM, SERVICE_HOST and CANONICALIZE_HOST_NAME"
    );
}

#[cfg(feature = "auth")]
#[test]
fn mechanisms_of_connection_strings_are_those_of_the_wire_or_are_refused_by_name() {
    use poolhouse_auth::{AuthError, Mechanism, OwnedCredential};
    let of = |uri: &str| {
        let uri = ConnectionString::parse(uri).expect("in order");
        OwnedCredential::try_from(uri.credential().expect("there"))
    };
    for (uri, mechanism) in [
        ("mongodb://u:p@a/", None),
        ("mongodb://u:p@a/?authMechanism=SCRAM-SHA-1", Some(Mechanism::SCRAM_SHA_1)),
        ("mongodb://u:p@a/?authMechanism=SCRAM-SHA-256", Some(Mechanism::SCRAM_SHA_256)),
        ("mongodb://u:p@a/?authMechanism=PLAIN", Some(Mechanism::Plain)),
        ("mongodb://a/?authMechanism=MONGODB-X509", Some(Mechanism::X509)),
    ] {
        let credential = of(uri).expect("supported");
        assert_eq!(credential.as_credential().mechanism, mechanism, "{uri}");
        if let Some(mechanism) = mechanism {
            assert!(uri.ends_with(&mechanism.to_string()), "{uri}");
        }
    }
    for (uri, name) in [
        ("mongodb://u@a/?authMechanism=GSSAPI", "GSSAPI"),
        ("mongodb://a/?authMechanism=MONGODB-AWS", "MONGODB-AWS"),
        ("mongodb://a/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:test", "MONGODB-OIDC"),
    ] {
        assert_eq!(of(uri).map(drop), Err(AuthError::MechanismUnsupported { name }), "{uri}");
    }
}
