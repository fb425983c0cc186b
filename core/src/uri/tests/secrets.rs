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
fn error_has_nothing_of_the_string_in_it() {
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

#[test]
fn part_of_a_password_is_not_taken_for_an_unknown_option_that_may_be_named() {
    let uri = "mongodb://ann:123?hunter2=x@a/";
    assert_eq!(warnings(uri), ["unknown option, ignored (at byte 18)"]);
    assert!(!format!("{:?} {}", parse(uri), parse(uri)).contains("hunter"));
    assert_eq!(parse("mongodb://ann:1@a/?foo=b@c").warnings()[0].option(), Some("foo"));
}

#[test]
fn secret_is_written_without_moving() {
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
