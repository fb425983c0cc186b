use super::*;

#[test]
#[doc(alias = "CMAP-09")]
fn wait_queue_size_and_multiple_are_retired_with_advice() {
    let advice = "removed, ignored; instead, bound the number of tasks that use the client, or set timeoutMS";
    let found = warnings("mongodb://a/?waitQueueSize=5&WAITQUEUEMULTIPLE=2");
    assert_eq!(
        found,
        [format!("waitQueueSize: {advice} (at byte 13)"), format!("waitQueueMultiple: {advice} (at byte 29)")]
    );
    assert_eq!(parse("mongodb://a/?waitQueueSize=5").pool_options(), PoolOptions::DEFAULT);
}

#[test]
fn unknown_option_is_named_if_its_name_is_plain() {
    assert_eq!(warnings("mongodb://a/?fsync=x"), ["fsync: unknown option, ignored (at byte 13)"]);
    assert_eq!(warnings("mongodb://a/?a\nb=x"), ["unknown option, ignored (at byte 13)"]);
    assert_eq!(warnings(&format!("mongodb://a/?{}=x", "n".repeat(65))), ["unknown option, ignored (at byte 13)"]);
}

#[test]
fn misspelt_option_is_named_with_the_nearest_known_one() {
    for (name, known) in [
        ("maxPoolSzie", "maxPoolSize"),
        ("MAXPOOLSZIE", "maxPoolSize"),
        ("maxPolSize", "maxPoolSize"),
        ("timeout", "timeoutMS"),
        ("tsl", "tls"),
        ("sll", "ssl"),
        ("tlsCAFil", "tlsCAFile"),
        ("authsorce", "authSource"),
        ("retryRead", "retryReads"),
        ("replicaSett", "replicaSet"),
    ] {
        let text = format!("{name}: unknown option, ignored; did you mean {known}? (at byte 13)");
        assert_eq!(warnings(&format!("mongodb://a/?{name}=x")), [text]);
    }
    for name in ["x", "ab", "foo", "fsync", "maximum", "slaveOk", "tlsCRLFile"] {
        let text = format!("{name}: unknown option, ignored (at byte 13)");
        assert_eq!(warnings(&format!("mongodb://a/?{name}=x")), [text]);
    }
}

#[test]
fn warning_about_a_malformed_or_misspelt_option_is_a_mistake() {
    let mistakes = [
        ("maxPolSize=10", "maxPolSize: unknown option; did you mean maxPoolSize? (at byte 13)"),
        ("maxPoolSize=many", "maxPoolSize: must be a number from 0 to 2147483647 (at byte 13)"),
        ("tsl=true", "tsl: unknown option; did you mean tls? (at byte 13)"),
        ("compressors=zlib,lz4", "compressors: must name snappy, zlib or zstd (at byte 13)"),
        ("appName=a%40b&tlsCertificateKeyFilePassword=x&tsl=true", "unknown option (at byte 59)"),
    ];
    for (query, text) in mistakes {
        let uri = parse(&format!("mongodb://a/?{query}"));
        let [warning] = uri.warnings() else { panic!("{:?}", uri.warnings()) };
        assert!(warning.is_mistake(), "{warning}");
        assert_eq!(format!("{warning:#}"), text);
    }
    let after_a_password = "tlsCertificateKeyFilePassword=x&uuidRepresentation=standard";
    for query in [
        "foo=1",
        "a\nb=x",
        after_a_password,
        "j=true",
        "retryReads=yes",
        "waitQueueSize=5",
        "maxPoolSize=1&maxPoolSize=2",
    ] {
        assert!(!parse(&format!("mongodb://a/?{query}")).warnings()[0].is_mistake(), "{query}");
    }
}

/// A hint could reveal a part of a password.
#[test]
fn option_whose_name_is_not_shown_has_no_hint() {
    let uri = "mongodb://a/?proxyHost=p&proxyUsername=u&proxyPassword=ab&maxPoolSzie=1";
    assert_eq!(warnings(uri), ["unknown option, ignored (at byte 58)"]);
}

#[test]
fn last_value_of_a_repeated_option_is_used_with_a_warning() {
    let uri = parse("mongodb://a/?maxPoolSize=1&maxPoolSize=2&maxPoolSize=x");
    assert_eq!(uri.options().max_pool_size, Some(2));
    assert_eq!(uri.warnings().len(), 3, "{:?}", uri.warnings());
    assert_eq!(uri.warnings()[0], UriWarning::Repeated { option: "maxPoolSize", offset: 27 });
}

#[test]
fn old_name_is_used_unless_the_current_one_is_present() {
    for (query, millis, ignored) in
        [("wtimeout=5", 5, false), ("wtimeout=5&wTimeoutMS=6", 6, true), ("wTimeoutMS=6&wtimeout=5", 6, true)]
    {
        let uri = parse(&format!("mongodb://a/?{query}"));
        assert_eq!(uri.options().w_timeout, Some(Duration::from_millis(millis)), "{query}");
        let is_ignored = |warning: &UriWarning| matches!(warning, UriWarning::Deprecated { ignored: true, .. });
        assert_eq!(uri.warnings().iter().any(is_ignored), ignored, "{query}");
    }
    assert_eq!(parse("mongodb://a/?wtimeout=5&wTimeoutMS=x").options().w_timeout, None);
    assert_eq!(warnings("mongodb://a/?j=true"), ["j: deprecated; use journal (at byte 13)"]);
    assert_eq!(parse("mongodb://a/?j=true").options().journal, Some(true));
}

#[test]
fn old_name_of_a_service_is_used_unless_properties_contain_it() {
    let uri = parse("mongodb://u@a/?authMechanism=GSSAPI&gssapiServiceName=x");
    assert_eq!(uri.credential().unwrap().properties.get("SERVICE_NAME"), Some("x"));
    assert_eq!(uri.warnings().len(), 1);
    let uri = parse("mongodb://u@a/?authMechanism=GSSAPI&gssapiServiceName=x&authMechanismProperties=SERVICE_NAME:y");
    assert_eq!(uri.credential().unwrap().properties.get("SERVICE_NAME"), Some("y"));
    assert!(matches!(uri.warnings(), [UriWarning::Deprecated { ignored: true, .. }]));
}

#[test]
fn old_spelling_of_a_boolean_is_used_with_a_warning() {
    for (value, wanted) in [
        ("1", true),
        ("yes", true),
        ("Y", true),
        ("t", true),
        ("True", true),
        ("0", false),
        ("-1", false),
        ("no", false),
        ("n", false),
        ("f", false),
    ] {
        let uri = parse(&format!("mongodb://a/?retryReads={value}"));
        assert_eq!(uri.options().retry_reads, Some(wanted), "{value}");
        assert_eq!(uri.warnings(), [UriWarning::DeprecatedBool { option: "retryReads", offset: 13 }]);
    }
}

#[test]
fn feature_that_the_build_lacks_is_named() {
    let warning = UriWarning::NotBuilt { option: "compressors", feature: "zstd", offset: 13 };
    let text = "compressors: partly ignored, because this build lacks the feature zstd (at byte 13)";
    assert_eq!((warning.to_string().as_str(), warning.option(), warning.offset()), (text, Some("compressors"), 13));
}

#[test]
fn invalid_old_service_name_is_ignored_with_a_warning() {
    for value in ["", "a,b"] {
        let uri = parse(&format!("mongodb://u@a/?authMechanism=GSSAPI&gssapiServiceName={value}"));
        assert_eq!(uri.credential().unwrap().properties.get("SERVICE_NAME"), Some("mongodb"), "{value}");
        let [warning] = uri.warnings() else { panic!("{:?}", uri.warnings()) };
        assert_eq!(warning.option(), Some("gssapiServiceName"));
        assert!(
            matches!(warning, UriWarning::Invalid { rule: "not be empty, and not contain a comma", .. }),
            "{warning}"
        );
    }
}
