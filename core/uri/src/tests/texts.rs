//! Texts of errors and warnings.

use super::*;

#[test]
fn each_error_contains_rule_and_offset() {
    let texts = [
        (UriErrorKind::Scheme, "a connection string must begin with mongodb:// or mongodb+srv://"),
        (UriErrorKind::UserInfo, "username and password must be percent-encoded"),
        (UriErrorKind::Escape, "a percent sign must be percent-encoded (%25)"),
        (UriErrorKind::Text, "percent-encoded bytes must be UTF-8 without NUL"),
        (UriErrorKind::NoHost, "a host is missing; the path of a unix socket must be percent-encoded"),
        (UriErrorKind::Host, "neither a host name, an address nor the path of a unix socket"),
        (UriErrorKind::Port, "a port must be a number from 1 to 65535"),
        (UriErrorKind::Ipv6Brackets, "an IPv6 address must be enclosed in [ and ]"),
        (UriErrorKind::Socket, "the path of a unix socket must end in .sock, and has no port"),
        (UriErrorKind::SrvHost, "mongodb+srv:// must have one host name, and no port"),
        (UriErrorKind::Database, "a database name must not contain this character"),
        (UriErrorKind::OptionSyntax, "an option must have the form name=value"),
        (UriErrorKind::Repeated, "must be set once only"),
        (UriErrorKind::Value("be short"), "must be short"),
        (UriErrorKind::Conflict("ssl"), "cannot be set together with ssl"),
        (UriErrorKind::Needs("tls"), "requires tls"),
        (UriErrorKind::ManyHosts, "cannot be used with more than one host"),
        (UriErrorKind::NotSrv, "is allowed with mongodb+srv:// only"),
        (UriErrorKind::Srv, "cannot be used with mongodb+srv://"),
        (UriErrorKind::NotInTxt, "only authSource, replicaSet and loadBalanced are allowed in a TXT record"),
        (
            UriErrorKind::Credential { mechanism: "PLAIN", rule: "have a username" },
            "a credential for PLAIN must have a username",
        ),
    ];
    for (kind, text) in texts {
        assert_eq!(UriError::new(kind).to_string(), text);
        assert_eq!(UriError::of(kind, "tls").with_offset(9).to_string(), format!("tls: {text} (at byte 9)"));
    }
}

#[test]
fn each_warning_contains_option_effect_and_offset() {
    let (option, instead, offset) = ("old", "new", 7);
    let lines = [
        (
            UriWarning::Unknown { name: Some("strange".into()), similar: None, offset },
            "strange: unknown option, ignored",
        ),
        (UriWarning::Unknown { name: None, similar: None, offset }, "unknown option, ignored"),
        (UriWarning::Invalid { option, rule: "be short", offset }, "old: must be short; ignored"),
        (UriWarning::Repeated { option, offset }, "old: set more than once; the last value is used"),
        (UriWarning::Deprecated { option, instead, ignored: false, offset }, "old: deprecated; use new"),
        (
            UriWarning::Deprecated { option, instead, ignored: true, offset },
            "old: deprecated, and ignored because new is set",
        ),
        (UriWarning::DeprecatedBool { option, offset }, "old: should be true or false"),
        (
            UriWarning::NotBuilt { option, feature: "zstd", offset },
            "old: partly ignored, because this build lacks the feature zstd",
        ),
        (UriWarning::Retired { option, instead: "use less", offset }, "old: removed, ignored; instead, use less"),
    ];
    for (warning, text) in lines {
        assert_eq!(warning.to_string(), format!("{text} (at byte 7)"));
        assert_eq!(warning.offset(), 7);
        assert_eq!(warning.option(), text.split_once(": ").map(|(name, _)| name));
    }
}

#[test]
fn mechanisms_have_their_names_in_connection_strings() {
    for mechanism in AuthMechanism::ALL {
        assert_eq!(mechanism.to_string(), mechanism.name());
    }
}

/// Connection strings with common mistakes, each with the whole text of its error. The numbers are
/// those of the rows in `runtime-smol/tests/connection_strings.rs`.
#[test]
fn error_of_a_probable_mistake_names_the_remedy() {
    for (uri, text) in [
        // 04c: the path of a unix socket, not escaped.
        (
            "mongodb:///tmp/mongodb-27017.sock",
            "a host is missing; the path of a unix socket must be percent-encoded (at byte 10)",
        ),
        // 08: a percent sign in the password.
        ("mongodb://ann:50%off@db1/", "a percent sign must be percent-encoded (%25) (at byte 16)"),
        // 08b: an at-sign.
        ("mongodb://ann:p@ss@db1/", "username and password must be percent-encoded (at byte 10)"),
        // 08c: a slash.
        ("mongodb://ann:s3/cret@db1:27017/shop", "username and password must be percent-encoded (at byte 10)"),
        // 09b: IPv6 without brackets.
        ("mongodb://::1:27017/", "an IPv6 address must be enclosed in [ and ] (at byte 10)"),
        // 11: a direct connection to more than one host.
        ("mongodb://db1,db2/?directConnection=true", "directConnection: cannot be used with more than one host"),
        // 17: no scheme, or another one.
        ("localhost:27017", "a connection string must begin with mongodb:// or mongodb+srv:// (at byte 0)"),
        ("http://localhost:27017", "a connection string must begin with mongodb:// or mongodb+srv:// (at byte 0)"),
    ] {
        assert_eq!(error(uri).to_string(), text, "{uri}");
    }
}

/// Rows 07 and 07b of the same table: an ignored option has a warning that names the remedy.
#[test]
fn warning_of_a_probable_mistake_names_the_remedy() {
    assert_eq!(
        warnings("mongodb://127.0.0.1:27017/?maxPoolSzie=5&tiemoutMS=10&ssll=true&readConcern=local"),
        [
            "maxPoolSzie: unknown option, ignored; did you mean maxPoolSize? (at byte 27)",
            "tiemoutMS: unknown option, ignored; did you mean timeoutMS? (at byte 41)",
            "ssll: unknown option, ignored; did you mean ssl? (at byte 54)",
            "readConcern: unknown option, ignored (at byte 64)",
        ]
    );
    assert_eq!(
        warnings("mongodb://127.0.0.1:27017/?timeoutMS=soon&maxPoolSize=-1"),
        [
            "timeoutMS: must be a number from 0 to 2147483647; ignored (at byte 27)",
            "maxPoolSize: must be a number from 0 to 2147483647; ignored (at byte 42)",
        ]
    );
}

/// The formatter returns an error when the string does not fit, wherever it is cut.
#[test]
fn string_that_does_not_fit_is_a_formatter_error() {
    use core::fmt::Write;
    struct Room(usize);
    impl Write for Room {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            self.0 = self.0.checked_sub(text.len()).ok_or(core::fmt::Error)?;
            Ok(())
        }
    }
    for text in [
        "mongodb://a,[::1]:2,%2Fc.sock/d?compressors=zstd,zlib&readPreference=nearest&readPreferenceTags=a:b,c:d&w=2",
        "mongodb+srv://a.b.c/?tls=true&appName=x",
    ] {
        let uri = quiet(text);
        let length = uri.to_string().len();
        for room in 0..length {
            assert!(write!(Room(room), "{uri}").is_err(), "{room} bytes for {uri}");
        }
        assert!(write!(Room(length), "{uri}").is_ok());
    }
}
