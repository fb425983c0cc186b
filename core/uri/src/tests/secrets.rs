use super::*;

const URI: &str = "mongodb://ann:hunter%32@a/?proxyHost=p&proxyUsername=u&proxyPassword=hunter2&tlsCertificateKeyFilePassword=hunter2&foo=1";

#[test]
fn no_password_is_shown_by_display_debug_or_warnings() {
    let uri = parse(URI);
    let debug = format!("{uri:#?} {:?} {:?}", uri.credential(), uri.options());
    assert!(!debug.contains("hunter"), "{debug}");
    assert!(debug.contains("[redacted]"));
    assert_eq!(uri.to_string(), "mongodb://a/?proxyHost=p");
    assert_eq!(parse(&uri.to_string()), uri.without_credentials());
    assert!(!warnings(URI).concat().contains("hunter"));
}

#[test]
fn whole_string_is_a_secret_that_can_be_parsed_again() {
    let uri = parse(URI);
    let printed = uri.to_string_with_credentials();
    assert!(printed.expose().starts_with("mongodb://ann:hunter2@a/?"));
    assert_eq!(format!("{printed:?}"), "[redacted]");
    assert_eq!(parse(printed.expose()), uri);
}

#[test]
fn error_contains_no_part_of_the_string() {
    for uri in [
        "hunter2",
        "mongodb://ann:hunter2",
        "mongodb://ann:hunter2@",
        "mongodb://ann:hunter2:x@a",
        "mongodb://ann:hunter2%@a",
        "mongodb://ann:hunter2/x@a",
        "mongodb://ann:hunter2@a:0",
        "mongodb://ann:hunter2@a/$",
        "mongodb://ann:hunter2@a/?hunter2",
        "mongodb://ann:hunter2@a/?authMechanism=hunter2",
        "mongodb://ann:hunter2@a/?authMechanism=MONGODB-X509",
        "mongodb://ann:1/hunter2@a",
        "mongodb://a/?proxyPassword=hunter2",
        "mongodb://a/?hunter2=%",
    ] {
        let error = error(uri);
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("hunter"), "{shown}");
    }
}

/// If a slash in the password is not escaped, the part before it looks like a host and a port.
#[test]
fn slash_in_a_password_is_an_error_of_the_password_and_not_of_a_port() {
    for (uri, offset) in [
        ("mongodb://ann:hunter/2@a/", 10),
        ("mongodb://ann:hunter/2@a/db?appName=x", 10),
        ("mongodb://ann:hunter/2?3@a/", 10),
        ("mongodb://ann:hunter?2@a/", 10),
        ("mongodb://a@n:hunter/2@a/", 10),
        ("mongodb+srv://ann:hunter/2@a.b.c/", 14),
    ] {
        let error = error(uri);
        assert_eq!((error.kind(), error.offset()), (UriErrorKind::UserInfo, Some(offset)), "{uri}");
    }
    // An at-sign after the hosts does not make the text before it a user name and a password.
    for (uri, kind, offset) in [
        ("mongodb://a:hunter/?appName=x@y", UriErrorKind::Port, 12),
        ("mongodb://a:hunter/db", UriErrorKind::Port, 12),
        ("mongodb:///tmp/a@b.sock", UriErrorKind::NoHost, 10),
    ] {
        assert_eq!((error(uri).kind(), error(uri).offset()), (kind, Some(offset)), "{uri}");
    }
}

/// A password with an unescaped question mark looks like options; the at-sign after it reveals the
/// error.
#[test]
fn part_of_a_password_is_not_reported_as_an_unknown_option() {
    for (uri, offset) in [
        ("mongodb://ann:123?hunter2=x@a/", 18),
        ("mongodb://ann:p@123?hunter2=1@a/", 20),
        ("mongodb://ann:p@123?hunter2=1&3@=a/", 30),
        ("mongodb://ann:p@123?w=1;hunter2=1@a/", 24),
        ("mongodb://ann:p@123/?hunter2=@a", 21),
    ] {
        let error = error(uri);
        assert_eq!((error.kind(), error.offset()), (UriErrorKind::UserInfo, Some(offset)), "{uri}");
    }
    assert_eq!(warnings("mongodb://ann:1@a/?foo=b%40c"), ["foo: unknown option, ignored (at byte 19)"]);
}

/// The value of a known option may contain an at-sign. An unknown option there may be a part of a
/// password.
#[test]
fn unknown_options_have_no_name_where_passwords_may_be() {
    for (uri, offset) in [
        ("mongodb://ann:p@123?hunter2=1&appName=x@a/", 20),
        ("mongodb://ann:1@a/?appName=@x@&hunter2=1", 31),
        ("mongodb://a/?proxyHost=p&proxyUsername=u&proxyPassword=ab&hunter2=ef", 58),
        ("mongodb://a/?tlsCertificateKeyFilePassword=ab&hunter2=ef", 46),
        ("mongodb://a/?TLSCERTIFICATEKEYFILEPASSWORD=ab;hunter2=ef", 46),
    ] {
        let uri = parse(uri);
        let shown = format!("{uri} {uri:?}");
        assert!(!shown.contains("hunter"), "{shown}");
        assert_eq!(uri.warnings(), [UriWarning::Unknown { name: None, similar: None, offset }]);
    }
    // An option before it is not a part of it.
    assert_eq!(
        warnings("mongodb://a/?foo=1&tlsCertificateKeyFilePassword=x")[0],
        "foo: unknown option, ignored (at byte 13)"
    );
}

#[test]
fn secret_is_written_without_reallocation() {
    let secret = Secret::written(|f| {
        for _ in 0..100 {
            f.write_str("abc")?;
        }
        Ok(())
    });
    assert_eq!(secret.expose().len(), 300);
    assert_eq!(secret, Secret::new("abc".repeat(100)));
    assert_eq!(format!("{secret:?}"), "[redacted]");
}
