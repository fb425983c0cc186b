use super::*;
use core::fmt::Write;

#[test]
fn ten_thousand_hosts_are_parsed_and_printed() {
    let mut text = String::from("mongodb://h0.example.com");
    for number in 1..10_000 {
        write!(text, ",H{number}.example.com:{number}").unwrap();
    }
    let uri = quiet(&text);
    assert_eq!(uri.hosts().len(), 10_000);
    assert_eq!(uri.hosts()[9_999].as_str(), "h9999.example.com:9999");
    assert_eq!(parse(&uri.to_string()), uri);
}

#[test]
fn a_megabyte_of_one_thing_is_parsed_with_few_warnings_kept() {
    let unknown = parse(&format!("mongodb://a/?{}", "b=c&".repeat(250_000)));
    assert_eq!((unknown.warnings().len(), unknown.warnings_left_off()), (100, 249_900));
    let repeated = parse(&format!("mongodb://a/?{}", "w=1&".repeat(250_000)));
    assert_eq!(repeated.warnings_left_off(), 249_899);
    let tags = parse(&format!("mongodb://a/?readPreferenceTags={}", "a:b,".repeat(250_000)));
    assert_eq!((tags.warnings().len(), tags.options().iter().count()), (1, 0));
    let sets = quiet(&format!("mongodb://a/?readPreference=nearest{}", "&readPreferenceTags=a:b".repeat(40_000)));
    assert_eq!(sets.tag_sets().len(), 40_000);
    assert_eq!(parse(&sets.to_string()), sets);
    for (text, kind) in [
        ("@".repeat(1_000_000), UriErrorKind::UserInfo),
        (",".repeat(1_000_000), UriErrorKind::NoHost),
        ("%".repeat(1_000_000), UriErrorKind::Escape),
        ("[".repeat(1_000_000), UriErrorKind::Host),
        ("\0".repeat(1_000_000), UriErrorKind::Text),
        ("/".repeat(1_000_000), UriErrorKind::NoHost),
        ("a".repeat(1_000_000), UriErrorKind::Host),
    ] {
        assert_eq!(error(&format!("mongodb://{text}")).kind(), kind);
    }
    let long = "p%40".repeat(250_000);
    let uri = quiet(&format!("mongodb://u:{long}@a"));
    assert_eq!(uri.credential().unwrap().password.as_ref().unwrap().expose().len(), 500_000);
}

#[test]
fn nuls_are_errors_wherever_they_are() {
    for uri in [
        "\0",
        "mongodb\0://a",
        "mongodb://\0",
        "mongodb://a\0",
        "mongodb://a\0@b",
        "mongodb://a:\0@b",
        "mongodb://a:1\0",
        "mongodb://a/\0",
        "mongodb://a/?w=\0",
    ] {
        error(uri);
    }
    assert_eq!(parse("mongodb://a/?\0=1").warnings()[0].option(), None);
}

#[test]
fn scheme_is_one_of_two() {
    for uri in ["", "mongodb:/", "mongodb:a", "MONGODB://a", " mongodb://a", "http://a", "mongodb+srv:/a"] {
        assert_eq!(error(uri), UriError::at(UriErrorKind::Scheme, 0), "{uri}");
    }
    assert_eq!(error("x").to_string(), "a connection string must begin with mongodb:// or mongodb+srv:// (at byte 0)");
    assert_eq!("mongodb://a".parse(), ConnectionString::parse("mongodb://a"));
}

#[test]
fn error_contains_option_offset_and_rule() {
    assert_eq!(
        error("mongodb://u@a/?tls=true&ssl=false").to_string(),
        "tls: cannot be set together with another value of tls or ssl (at byte 24)"
    );
    assert_eq!(error("mongodb://a:0").to_string(), "a port must be a number from 1 to 65535 (at byte 12)");
    assert_eq!(
        error("mongodb://u:p@a/?authMechanism=MONGODB-X509").to_string(),
        "a credential for MONGODB-X509 must have no password"
    );
}
