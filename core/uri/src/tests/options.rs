use super::*;
use poolhouse_core::monitor::ServerMonitoringMode;

/// Every option, with a value that is not its default.
const ALL: &str = "mongodb://ann:x@a/db?appName=app&authMechanism=SCRAM-SHA-1&authSource=users&compressors=zstd,zlib&connectTimeoutMS=1\
    &directConnection=true&enableOverloadRetargeting=true&heartbeatFrequencyMS=501&journal=true&loadBalanced=false&localThresholdMS=2&maxAdaptiveRetries=6&maxConnecting=3&maxIdleTimeMS=4\
    &maxPoolSize=5&maxStalenessSeconds=90&minPoolSize=1&proxyHost=p&proxyPassword=q&proxyPort=7&proxyUsername=r&readConcernLevel=local\
    &readPreference=nearest&readPreferenceTags=a:b&readPreferenceTags=&replicaSet=rs&retryReads=false&retryWrites=false\
    &serverMonitoringMode=poll&serverSelectionTimeoutMS=8&serverSelectionTryOnce=false&socketTimeoutMS=9&timeoutMS=10&tls=true\
    &tlsAllowInvalidHostnames=true&tlsCAFile=/ca&tlsCertificateKeyFile=/key&tlsCertificateKeyFilePassword=s&tlsDisableOCSPEndpointCheck=true\
    &w=2&waitQueueTimeoutMS=11&wTimeoutMS=12&zlibCompressionLevel=6";

#[test]
#[doc(alias = "CMAP-08")]
fn every_option_has_its_standard_name() {
    let uri = quiet(ALL);
    let elsewhere = quiet("mongodb+srv://a/?srvMaxHosts=2&srvServiceName=x&tlsInsecure=true");
    let others = quiet("mongodb://a/?tlsAllowInvalidCertificates=true");
    let last = quiet("mongodb://a/?tlsDisableCertificateRevocationCheck=true");
    let gssapi = quiet("mongodb://ann@a/?authMechanism=GSSAPI&authMechanismProperties=SERVICE_NAME:x");
    let all = [&uri, &elsewhere, &others, &last, &gssapi];
    let mut names: Vec<&str> = all.iter().flat_map(|uri| uri.options().iter().map(|(name, _)| name)).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), crate::options::Key::ALL.len(), "{names:?}");
    for uri in all {
        assert_eq!(&parse(uri.to_string_with_credentials().expose()), uri);
    }
}

#[test]
fn names_are_case_insensitive() {
    let uri = ALL.replace("appName", "APPNAME").replace("maxPoolSize", "maxpoolsize").replace("w=2", "W=2");
    assert_eq!(quiet(&uri), quiet(ALL));
}

#[test]
fn absent_option_is_unset_and_has_the_specified_default() {
    let uri = quiet("mongodb://a");
    assert_eq!(*uri.options(), UriOptions::default());
    assert_eq!(uri.options().iter().count(), 0);
    assert_eq!(uri.pool_options(), PoolOptions::DEFAULT);
    assert_eq!(uri.monitor_options(), MonitorOptions::DEFAULT);
    let seeds: Vec<_> = uri.seeds().collect();
    assert_eq!(uri.topology_options(&seeds), TopologyOptions { seeds: &["a"], ..TopologyOptions::default() });
    assert_eq!(uri.connect_timeout(), Some(Duration::from_secs(10)));
    assert_eq!((uri.timeout(), uri.socket_timeout(), uri.w_timeout()), (None, None, None));
    assert_eq!(uri.server_selection_timeout(), Duration::from_secs(30));
    assert_eq!(uri.local_threshold(), Duration::from_millis(15));
    assert_eq!((uri.read_mode(), uri.tag_sets(), uri.max_staleness_seconds()), (ReadMode::Primary, &[][..], None));
    assert!(uri.retry_reads() && uri.retry_writes() && uri.server_selection_try_once());
    assert!(!uri.tls() && !uri.load_balanced());
    assert_eq!((uri.compressors(), uri.zlib_compression_level()), (&[][..], None));
    assert_eq!((uri.srv_max_hosts(), uri.srv_service_name(), uri.proxy()), (None, "mongodb", None));
    assert_eq!((uri.credential(), uri.database()), (None, None));
}

#[test]
fn zero_is_no_limit() {
    let uri = quiet(
        "mongodb://a/?connectTimeoutMS=0&maxIdleTimeMS=0&socketTimeoutMS=0&timeoutMS=0&waitQueueTimeoutMS=0&wTimeoutMS=0",
    );
    assert_eq!((uri.connect_timeout(), uri.socket_timeout(), uri.w_timeout()), (None, None, None));
    assert_eq!(uri.timeout(), Some(Duration::MAX), "the limits that it replaces do not apply either");
    assert_eq!(uri.pool_options(), PoolOptions::DEFAULT);
}

#[test]
fn explicit_default_differs_from_an_absent_option() {
    let uri = quiet("mongodb://a/?maxPoolSize=100");
    assert_eq!(uri.options().max_pool_size, Some(100));
    assert_eq!(uri.pool_options(), PoolOptions::DEFAULT);
    assert_ne!(uri, quiet("mongodb://a/"));
}

#[test]
#[doc(alias("CMAP-01", "CMAP-02", "CMAP-03", "CMAP-04", "CMAP-05", "CMAP-06"))]
fn pool_options_have_their_standard_names() {
    let uri = quiet(ALL);
    let wanted = PoolOptions {
        max_pool_size: 5,
        min_pool_size: 1,
        max_idle_time: Some(Duration::from_millis(4)),
        max_connecting: 3,
        wait_queue_timeout: Some(Duration::from_millis(11)),
        background: true,
        ..PoolOptions::DEFAULT
    };
    assert_eq!(uri.pool_options(), wanted);
    assert!(quiet("mongodb://a/?loadBalanced=true").pool_options().load_balanced);
}

#[test]
#[doc(alias("MON-01", "MON-23"))]
fn monitor_options_have_their_standard_names() {
    let options = quiet(ALL).monitor_options();
    assert_eq!(options.heartbeat_frequency, Duration::from_millis(501));
    assert_eq!(options.connect_timeout, Some(Duration::from_millis(1)));
    assert_eq!(options.server_monitoring_mode, ServerMonitoringMode::Poll);
}

#[test]
fn topology_options_have_their_standard_names() {
    let uri = quiet(ALL);
    let seeds: Vec<_> = uri.seeds().collect();
    let options = uri.topology_options(&seeds);
    assert_eq!((options.replica_set, options.direct_connection, options.load_balanced), (Some("rs"), true, false));
}

#[test]
fn other_options_are_typed() {
    let uri = quiet(ALL);
    let options = uri.options();
    assert_eq!(options.app_name.as_deref(), Some("app"));
    assert_eq!(uri.compressors(), [Compressor::Zstd, Compressor::Zlib]);
    assert_eq!(uri.zlib_compression_level(), Some(6));
    assert_eq!(uri.read_mode(), ReadMode::Nearest);
    let tags: Vec<Vec<_>> = uri.tag_sets().iter().map(|set| set.iter().collect()).collect();
    assert_eq!(tags, [&[("a", "b")][..], &[]]);
    assert_eq!(uri.max_staleness_seconds(), Some(90));
    assert_eq!((options.w.as_ref(), options.journal), (Some(&W::Nodes(2)), Some(true)));
    assert_eq!(options.w_timeout, Some(Duration::from_millis(12)));
    assert_eq!(options.read_concern_level.as_deref(), Some("local"));
    assert_eq!(uri.proxy(), Some(("p", 7)));
    assert_eq!(quiet("mongodb://a/?proxyHost=p").proxy(), Some(("p", 1080)));
    assert_eq!(uri.server_selection_timeout(), Duration::from_millis(8));
    assert_eq!(
        (options.socket_timeout, options.timeout),
        (Some(Duration::from_millis(9)), Some(Duration::from_millis(10)))
    );
    for name in ["majority", "-", "-1x"] {
        assert_eq!(quiet(&format!("mongodb://a/?w={name}")).options().w, Some(W::Name(name.into())), "{name}");
    }
    let srv = quiet("mongodb+srv://a/?srvMaxHosts=2&srvServiceName=x");
    assert_eq!((srv.srv_max_hosts(), srv.srv_service_name()), (Some(2), "x"));
}

#[test]
fn value_outside_its_range_is_ignored_with_a_warning() {
    for option in [
        "heartbeatFrequencyMS=499",
        "maxConnecting=0",
        "maxPoolSize=-1",
        "minPoolSize=x",
        "maxIdleTimeMS=2147483648",
        "timeoutMS=1.5",
        "wTimeoutMS=9223372036854775808",
        "maxStalenessSeconds=89",
        "maxStalenessSeconds=0",
        "zlibCompressionLevel=10",
        "serverSelectionTimeoutMS=0",
        "proxyPort=0",
        "proxyPort=65536",
        "connectTimeoutMS=+1",
        "localThresholdMS= 1",
        "waitQueueTimeoutMS=",
        "socketTimeoutMS=-1",
        "serverMonitoringMode=Poll",
        "readPreference=Nearest",
        "readPreferenceTags=a",
        "readPreferenceTags=:b",
        "readPreferenceTags=a:b,a:c",
        "compressors=",
        "compressors=lz4",
        "w=",
        "w=2147483648",
        "appName=",
        "replicaSet=",
        "loadBalanced=1",
        "directConnection=True",
        "maxAdaptiveRetries=-1",
        "maxAdaptiveRetries=x",
        "enableOverloadRetargeting=x",
        "srvMaxHosts=x",
        "srvServiceName=-a",
        "srvServiceName=a--b",
        "srvServiceName=1",
        "srvServiceName=a_b",
        "srvServiceName=a-",
        &format!("srvServiceName={}", "a".repeat(63)),
    ] {
        let uri = parse(&format!("mongodb+srv://a/?{option}"));
        let name = option.split('=').next();
        assert!(
            matches!(uri.warnings(), [warning @ UriWarning::Invalid { .. }] if warning.option() == name),
            "{option}"
        );
        assert_eq!(uri, quiet("mongodb+srv://a/"), "{option}");
    }
    let long = format!("mongodb://a/?appName={}", "a".repeat(129));
    assert_eq!(parse(&long), quiet("mongodb://a"));
}

/// If the value were ignored, the client would connect without TLS, or with less protection than
/// the string asks for.
#[test]
fn wrong_value_of_a_tls_option_is_an_error_that_names_the_option() {
    let boolean = UriErrorKind::Value("be true or false");
    for option in [
        "tls",
        "tlsInsecure",
        "tlsAllowInvalidCertificates",
        "tlsAllowInvalidHostnames",
        "tlsDisableOCSPEndpointCheck",
        "tlsDisableCertificateRevocationCheck",
    ] {
        for value in ["", "on", "off", "treu", "enabled", "maybe", "2", "invalid"] {
            for scheme in ["mongodb", "mongodb+srv"] {
                let uri = format!("{scheme}://a/?{option}={value}");
                assert_eq!(option_error(&uri), (Some(option), boolean), "{uri}");
            }
        }
    }
    assert_eq!(option_error("mongodb://a/?ssl=treu"), (Some("tls"), boolean));
    assert_eq!(option_error("mongodb://a/?tls=true&tls=treu"), (Some("tls"), boolean));
    for option in ["tlsCAFile", "tlsCertificateKeyFile", "tlsCertificateKeyFilePassword"] {
        let uri = format!("mongodb://a/?{option}=");
        assert_eq!(option_error(&uri), (Some(option), UriErrorKind::Value("not be empty")), "{uri}");
    }
    assert_eq!(error("mongodb://a/?tls=on").to_string(), "tls: must be true or false (at byte 13)");
    assert_eq!(error("mongodb://a/?w=1&tlsCAFile=").to_string(), "tlsCAFile: must not be empty (at byte 17)");
}

/// The older spellings of booleans are accepted.
#[test]
fn older_spelling_of_a_tls_option_is_accepted_with_a_warning() {
    for (value, wanted) in [("yes", true), ("1", true), ("True", true), ("no", false), ("0", false)] {
        let uri = parse(&format!("mongodb://a/?tls={value}"));
        assert_eq!((uri.tls(), uri.warnings().len()), (wanted, 1), "{value}");
    }
}

#[test]
fn options_of_client_backpressure_are_parsed() {
    let uri = quiet("mongodb://a/?maxAdaptiveRetries=0&enableOverloadRetargeting=false");
    assert_eq!(uri.options().max_adaptive_retries, Some(0));
    assert_eq!(uri.options().enable_overload_retargeting, Some(false));
    let uri = quiet("mongodb://a/?maxadaptiveretries=7&enableOverloadRetargeting=true");
    assert_eq!((uri.options().max_adaptive_retries, uri.options().enable_overload_retargeting), (Some(7), Some(true)));
    let unset = quiet("mongodb://a");
    assert_eq!((unset.options().max_adaptive_retries, unset.options().enable_overload_retargeting), (None, None));
}

/// Source: Read and Write Concern, connection string tests.
#[test]
fn negative_w_is_an_error() {
    let rule = UriErrorKind::Value("be a number from 0 to 2147483647, or a name");
    for w in ["-1", "-2", "-0", "-9223372036854775809"] {
        assert_eq!(option_error(&format!("mongodb://a/?w={w}")), (Some("w"), rule), "{w}");
    }
    assert_eq!(
        error("mongodb://a/?w=-2").to_string(),
        "w: must be a number from 0 to 2147483647, or a name (at byte 13)"
    );
}

#[test]
fn value_at_the_end_of_its_range_is_accepted() {
    for option in [
        "heartbeatFrequencyMS=500",
        "maxConnecting=1",
        "maxPoolSize=2147483647",
        "maxIdleTimeMS=2147483647",
        "wTimeoutMS=9223372036854775807",
        "maxStalenessSeconds=-1",
        "zlibCompressionLevel=-1",
        "zlibCompressionLevel=9",
        "zlibCompressionLevel=0",
        "w=0",
        "maxAdaptiveRetries=0",
        "maxAdaptiveRetries=2147483647",
        "serverSelectionTimeoutMS=1",
        "timeoutMS=0",
        "connectTimeoutMS=0",
        "localThresholdMS=0",
        "waitQueueTimeoutMS=0",
        "srvMaxHosts=0",
    ] {
        let uri = quiet(&format!("mongodb+srv://a/?{option}"));
        let shown: Vec<_> = uri.options().iter().collect();
        let (name, value) = option.split_once('=').unwrap();
        assert_eq!(shown, [(name, OptionValue::Number(value.parse().unwrap()))]);
    }
}

#[test]
fn unknown_compressor_is_ignored_with_a_warning() {
    let uri = parse("mongodb://a/?compressors=lz4,zlib,snappy,zlib");
    assert_eq!(uri.compressors(), [Compressor::Zlib, Compressor::Snappy]);
    assert_eq!(uri.warnings().len(), 1);
}

#[test]
fn tls_is_enabled_by_each_of_its_options() {
    for uri in [
        "mongodb://a/?tls=true",
        "mongodb://a/?ssl=true",
        "mongodb+srv://a",
        "mongodb://a/?tlsCAFile=x",
        "mongodb://a/?tls=yes",
    ] {
        assert!(parse(uri).tls(), "{uri}");
    }
    for uri in [
        "mongodb://a",
        "mongodb+srv://a/?tls=false",
        "mongodb+srv://a/?ssl=false",
        "mongodb://a/?tls=false&tlsCAFile=x",
    ] {
        assert!(!quiet(uri).tls(), "{uri}");
    }
}

#[test]
fn options_that_contradict_each_other_are_errors() {
    use UriErrorKind::{Conflict, ManyHosts, Needs, NotSrv, Repeated, Srv, Value};
    let primary = Conflict("readPreference=primary, which is the default");
    for (uri, option, kind) in [
        ("mongodb://a,b/?directConnection=true", "directConnection", ManyHosts),
        ("mongodb+srv://a/?directConnection=true", "directConnection", Srv),
        ("mongodb://a/?loadBalanced=true&directConnection=true", "loadBalanced", Conflict("directConnection")),
        ("mongodb://a/?loadBalanced=true&replicaSet=b", "loadBalanced", Conflict("replicaSet")),
        ("mongodb://a,b/?loadBalanced=true", "loadBalanced", ManyHosts),
        ("mongodb+srv://a/?loadBalanced=true&srvMaxHosts=1", "srvMaxHosts", Conflict("loadBalanced")),
        ("mongodb+srv://a/?replicaSet=b&srvMaxHosts=1", "srvMaxHosts", Conflict("replicaSet")),
        ("mongodb://a/?srvMaxHosts=0", "srvMaxHosts", NotSrv),
        ("mongodb://a/?srvMaxHosts=x", "srvMaxHosts", NotSrv),
        ("mongodb://a/?srvServiceName=x", "srvServiceName", NotSrv),
        ("mongodb://a/?tls=true&ssl=false", "tls", Conflict("another value of tls or ssl")),
        ("mongodb://a/?tls=true&tls=false", "tls", Conflict("another value of tls or ssl")),
        (
            "mongodb://a/?tlsInsecure=true&tlsAllowInvalidHostnames=false",
            "tlsInsecure",
            Conflict("tlsAllowInvalidHostnames"),
        ),
        ("mongodb://a/?proxyPort=1", "proxyPort", Needs("proxyHost")),
        ("mongodb://a/?proxyHost=&proxyPort=1", "proxyPort", Needs("proxyHost")),
        ("mongodb://a/?proxyHost=b&proxyUsername=c", "proxyUsername", Needs("proxyPassword")),
        ("mongodb://a/?proxyHost=b&proxyPassword=c", "proxyPassword", Needs("proxyUsername")),
        ("mongodb://a/?proxyHost=b&proxyHost=b", "proxyHost", Repeated),
        ("mongodb://a/?minPoolSize=101", "minPoolSize", Value("be at most maxPoolSize")),
        ("mongodb://a/?minPoolSize=3&maxPoolSize=2", "minPoolSize", Value("be at most maxPoolSize")),
        ("mongodb://a/?readPreferenceTags=a:b", "readPreferenceTags", primary),
        ("mongodb://a/?maxStalenessSeconds=90", "maxStalenessSeconds", primary),
        ("mongodb://a/?w=0&journal=true", "journal", Conflict("w=0")),
    ] {
        assert_eq!(option_error(uri), (Some(option), kind), "{uri}");
    }
}

#[test]
fn compatible_options_are_no_errors() {
    for uri in [
        "mongodb://a/?loadBalanced=true&directConnection=false",
        "mongodb://a,b/?directConnection=false&loadBalanced=false&replicaSet=c",
        "mongodb+srv://a/?srvMaxHosts=0&replicaSet=b",
        "mongodb+srv://a/?srvMaxHosts=2&loadBalanced=false",
        "mongodb://a/?tls=true&ssl=true&tls=true",
        "mongodb://a/?minPoolSize=101&maxPoolSize=0",
        "mongodb://a/?readPreferenceTags=&maxStalenessSeconds=-1",
    ] {
        quiet(uri);
    }
}

#[test]
fn option_without_name_or_value_is_an_error_at_its_offset() {
    for (uri, offset) in
        [("mongodb://a/?w", 13), ("mongodb://a/?w=1&=2", 17), ("mongodb://a/?w=1;j", 17), ("mongodb://a?w=1&x", 16)]
    {
        assert_eq!(error(uri), UriError::at(UriErrorKind::OptionSyntax, offset), "{uri}");
    }
    for uri in ["mongodb://a/?", "mongodb://a?", "mongodb://a/?&", "mongodb://a/?w=1&&journal=true&"] {
        quiet(uri);
    }
}

#[test]
fn invalid_escape_is_an_error_of_its_option() {
    assert_eq!(error("mongodb://a/?tlsCAFile=50%"), UriError::at(UriErrorKind::Escape, 25).with_option("tlsCAFile"));
    assert_eq!(error("mongodb://a/?appName=%ff").kind(), UriErrorKind::Text);
    assert_eq!(error("mongodb://a/?appName=a%00").kind(), UriErrorKind::Text);
    assert_eq!(error("mongodb://a/?foo=%").option(), None);
}

#[test]
fn semicolons_delimit_options_without_an_ampersand() {
    assert_eq!(quiet("mongodb://a/?w=1;journal=true"), quiet("mongodb://a/?w=1&journal=true"));
    assert_eq!(quiet("mongodb://a/?replicaSet=b;c&w=1").options().replica_set.as_deref(), Some("b;c"));
}

#[test]
fn plus_is_not_decoded_as_a_blank() {
    assert_eq!(quiet("mongodb://a/?replicaSet=b+c%20d").options().replica_set.as_deref(), Some("b+c d"));
}

/// For every name of the option.
#[test]
fn value_with_a_broken_escape_is_an_error_of_its_option() {
    for (name, option) in [
        ("maxPoolSize", Some("maxPoolSize")),
        ("ssl", Some("tls")),
        ("J", Some("j")),
        ("WTimeout", Some("wtimeout")),
        ("waitqueuesize", Some("waitQueueSize")),
        ("waitQueueMultiple", Some("waitQueueMultiple")),
        ("gssapiservicename", Some("gssapiServiceName")),
        ("nobodys", None),
    ] {
        assert_eq!(option_error(&format!("mongodb://a/?{name}=%zz")), (option, UriErrorKind::Escape), "{name}");
    }
}

/// A value with the old name applies until the current name occurs, even if the latter has an
/// invalid value.
#[test]
fn current_name_of_an_option_replaces_the_old_one() {
    let uri = parse("mongodb://a/?j=true&wtimeout=5&journal=x&wTimeoutMS=y");
    assert_eq!((uri.options().journal, uri.options().w_timeout), (None, None));
    let quiet = parse("mongodb://a/?j=true&wtimeout=5");
    assert_eq!((quiet.options().journal, quiet.options().w_timeout), (Some(true), Some(Duration::from_millis(5))));
}
