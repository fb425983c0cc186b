use super::*;

#[cfg(feature = "tls")]
#[test]
fn tls_is_as_the_string_says() {
    let of = |uri| ClientOptions::parse(uri).expect("the string is right").tls;
    assert_eq!(of("mongodb://a"), None);
    assert_eq!(of("mongodb://a/?tls=false&tlsInsecure=true"), None);
    assert_eq!(of("mongodb://a/?ssl=true"), Some(TlsOptions::default()));
    let mut insecure = TlsOptions::default();
    (insecure.allow_invalid_certificates, insecure.allow_invalid_hostnames) = (true, true);
    assert_eq!(of("mongodb://a/?tlsInsecure=true"), Some(insecure));
}

#[cfg(not(feature = "tls"))]
#[test]
fn tls_is_refused_by_a_build_without_it() {
    for uri in ["mongodb://a/?tls=true", "mongodb://a/?ssl=true", "mongodb://a/?tlsCAFile=x"] {
        let error = ClientOptions::parse(uri).map(drop).expect_err("it cannot be");
        assert!(matches!(error, Error::Unsupported(_)) && alloc::format!("{error}").contains("TLS"), "{error}");
    }
    assert!(ClientOptions::parse("mongodb://a/?tls=false").is_ok());
}
