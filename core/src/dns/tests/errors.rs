//! What errors say.

use super::*;
use alloc::format;
use core::error::Error;

#[test]
fn each_error_of_a_lookup_says_what_happened() {
    let texts = [
        (LookupError::Name, "not a name that can be looked up"),
        (LookupError::NoSuchName, "the name does not exist"),
        (LookupError::NoRecords, "the name has no such records"),
        (LookupError::Text, "a TXT record is not UTF-8"),
        (LookupError::Aliases, "the name has too many aliases, or they form a loop"),
        (LookupError::ServerFailed { code: 2 }, "the name server failed with code 2"),
        (LookupError::Referral, "the name server only knows others to ask"),
        (LookupError::Malformed, "the name server's answer cannot be read"),
        (LookupError::Unreachable, "the name server cannot be reached"),
        (LookupError::Timeout, "the name server did not answer in time"),
        (LookupError::Other("no luck".into()), "no luck"),
    ];
    for (error, text) in texts {
        assert_eq!(error.to_string(), text);
        let (srv, txt) = (SeedlistError::Srv(error.clone()), SeedlistError::Txt(error.clone()));
        assert_eq!(srv.to_string(), format!("SRV lookup: {text}"));
        assert_eq!(txt.to_string(), format!("TXT lookup: {text}"));
        assert_eq!(srv.source().map(ToString::to_string).as_deref(), Some(text));
        assert_eq!(txt.source().map(ToString::to_string).as_deref(), Some(text));
    }
}

#[test]
fn each_error_of_a_seedlist_says_what_is_wrong_with_it() {
    let foreign = SeedlistError::ForeignHost { target: "b.example".into() };
    let texts = [
        (SeedlistError::NoHosts, "SRV lookup: no host"),
        (foreign, "SRV lookup: b.example is outside the domain of the connection string"),
        (SeedlistError::ManyTxt { count: 2 }, "TXT lookup: there must be one record, not 2"),
    ];
    for (error, text) in texts {
        assert_eq!(error.to_string(), text);
        assert!(error.source().is_none());
    }
    let wrong = ConnectionString::parse("x").expect_err("no scheme");
    let error = SeedlistError::from(wrong);
    assert_eq!(error.to_string(), format!("with what the TXT record says: {wrong}"));
    assert_eq!(error.source().map(ToString::to_string), Some(wrong.to_string()));
}
