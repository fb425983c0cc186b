//! Texts and sources of errors.

use super::*;
use alloc::format;
use core::error::Error;
use poolhouse_core::Reason;

#[test]
fn each_error_of_a_lookup_has_a_text() {
    let texts = [
        (LookupError::Name, "the name is invalid, so it cannot be looked up"),
        (LookupError::NoSuchName, "the name does not exist"),
        (LookupError::NoRecords, "the name has no such records"),
        (LookupError::Text, "a TXT record is not UTF-8"),
        (LookupError::Aliases, "the name has too many aliases, or they form a loop"),
        (LookupError::ServerFailed { code: 2 }, "the name server failed with code 2"),
        (LookupError::Referral, "the name server returned only a referral to other name servers"),
        (LookupError::Malformed, "the name server's reply is malformed"),
        (LookupError::Unreachable(Reason::NONE), "the name server cannot be reached"),
        (LookupError::Timeout, "the name server did not reply in time"),
        (LookupError::Other("no luck".into()), "no luck"),
    ];
    for (error, text) in texts {
        assert_eq!(error.to_string(), text);
        let srv = SeedlistError::Srv { name: NAME.into(), error: error.clone() };
        let txt = SeedlistError::Txt { name: "cluster.example.com".into(), error: error.clone() };
        assert_eq!(srv.to_string(), format!("SRV lookup of _mongodb._tcp.cluster.example.com: {text}"));
        assert_eq!(txt.to_string(), format!("TXT lookup of cluster.example.com: {text}"));
        assert_eq!(srv.source().map(ToString::to_string).as_deref(), Some(text));
        assert_eq!(txt.source().map(ToString::to_string).as_deref(), Some(text));
    }
}

#[test]
fn lookup_keeps_the_error_of_the_operating_system() {
    let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    let error = LookupError::Unreachable(Reason::new(refused()));
    assert_eq!(error.to_string(), "the name server cannot be reached: connection refused");
    let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    assert_eq!(source.map(std::io::Error::kind), Some(std::io::ErrorKind::ConnectionRefused));
    assert!(!error.is_not_found());
    // The sources of a seed list's error include it.
    let error = SeedlistError::Srv { name: NAME.into(), error };
    let source = error.source().and_then(Error::source);
    assert!(source.is_some_and(|source| source.is::<std::io::Error>()));
}

/// Row 01 of the table in `runtime-smol/tests/connection_strings.rs`.
#[test]
fn missing_record_is_named() {
    let question = question("mongodb+srv://ann:s3cret@cluster0.ab1cd.mongodb.net/shop");
    let error = SeedlistError::Srv { name: question.srv_name(), error: LookupError::NoSuchName };
    assert_eq!(error.to_string(), "SRV lookup of _mongodb._tcp.cluster0.ab1cd.mongodb.net: the name does not exist");
}

#[test]
fn each_error_of_a_seedlist_has_a_text() {
    let name = || "a.example".to_string();
    let foreign = SeedlistError::ForeignHost { name: name(), target: "b.example".into() };
    let texts = [
        (SeedlistError::NoHosts { name: name() }, "SRV lookup of a.example: the reply contains no host"),
        (foreign, "SRV lookup of a.example: b.example is outside the domain of the connection string"),
        (SeedlistError::ManyTxt { name: name(), count: 2 }, "TXT lookup of a.example: there must be one record, not 2"),
    ];
    for (error, text) in texts {
        assert_eq!(error.to_string(), text);
        assert!(error.source().is_none());
    }
    let wrong = ConnectionString::parse("x").expect_err("no scheme");
    let error = SeedlistError::from(wrong);
    assert_eq!(error.to_string(), format!("with the options of the TXT record: {wrong}"));
    assert_eq!(error.source().map(ToString::to_string), Some(wrong.to_string()));
}
