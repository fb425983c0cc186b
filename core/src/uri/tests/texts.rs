//! What errors and warnings say.

use super::*;

#[test]
fn each_error_says_what_must_be_changed_and_where() {
    let texts = [
        (UriErrorKind::Scheme, "a connection string must begin with mongodb:// or mongodb+srv://"),
        (UriErrorKind::UserInfo, "username and password must be percent-encoded"),
        (UriErrorKind::Escape, "a percent sign must be percent-encoded (%25)"),
        (UriErrorKind::Text, "percent-encoded bytes must be UTF-8 without NUL"),
        (UriErrorKind::NoHost, "a host is missing; the path of a unix socket must be percent-encoded"),
        (UriErrorKind::Host, "neither a host name, an address nor the path of a unix socket"),
        (UriErrorKind::Port, "a port must be a number from 1 to 65535"),
        (UriErrorKind::Socket, "the path of a unix socket must end in .sock, and has no port"),
        (UriErrorKind::SrvHost, "mongodb+srv:// must have one host name, and no port"),
        (UriErrorKind::Database, "a database name cannot hold that character"),
        (UriErrorKind::OptionSyntax, "an option must have the form name=value"),
        (UriErrorKind::Repeated, "must be given once only"),
        (UriErrorKind::Value("be short"), "must be short"),
        (UriErrorKind::Conflict("ssl"), "cannot be given together with ssl"),
        (UriErrorKind::Needs("tls"), "cannot be given without tls"),
        (UriErrorKind::ManyHosts, "cannot be used with more than one host"),
        (UriErrorKind::NotSrv, "belongs to mongodb+srv:// only"),
        (UriErrorKind::Srv, "cannot be used with mongodb+srv://"),
        (UriErrorKind::NotInTxt, "only authSource, replicaSet and loadBalanced may stand in a TXT record"),
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
fn each_warning_says_what_became_of_which_option_and_where() {
    let (option, instead, offset) = ("old", "new", 7);
    let lines = [
        (UriWarning::Unknown { name: Some("strange".into()), offset }, "strange: unknown option, ignored"),
        (UriWarning::Unknown { name: None, offset }, "unknown option, ignored"),
        (UriWarning::Invalid { option, rule: "be short", offset }, "old: must be short; ignored"),
        (UriWarning::Repeated { option, offset }, "old: given more than once; the last value counts"),
        (UriWarning::Deprecated { option, instead, ignored: false, offset }, "old: is called new now"),
        (
            UriWarning::Deprecated { option, instead, ignored: true, offset },
            "old: ignored, because new is there, which replaces it",
        ),
        (UriWarning::DeprecatedBool { option, offset }, "old: should be true or false"),
        (
            UriWarning::NotBuilt { option, feature: "zstd", offset },
            "old: zstd is a feature that this build does not have, ignored",
        ),
        (
            UriWarning::Retired { option, instead: "use less", offset },
            "old: no longer exists, ignored; instead, use less",
        ),
    ];
    for (warning, text) in lines {
        assert_eq!(warning.to_string(), format!("{text} (at byte 7)"));
        assert_eq!(warning.offset(), 7);
        assert_eq!(warning.option(), text.split_once(": ").map(|(name, _)| name));
    }
}

#[test]
fn mechanisms_have_the_names_that_connection_strings_give_them() {
    for mechanism in AuthMechanism::ALL {
        assert_eq!(mechanism.to_string(), mechanism.name());
    }
}

/// Where there is no room for all of it that is said, whichever part it is.
#[test]
fn string_that_cannot_be_printed_whole_is_an_error_of_printing() {
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
