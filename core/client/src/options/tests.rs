use super::*;
use crate::OptionError;
use alloc::format;
use alloc::string::ToString;
use poolhouse_core::monitor::ServerMonitoringMode;
use poolhouse_core::selection::{ReadMode, ReadPreferenceOptions};
use poolhouse_uri::{Compressor, UriOptions};

#[cfg(feature = "tls")]
#[test]
fn tls_options_are_those_of_the_string() {
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
        assert!(
            matches!(error, Error::Setup(SetupError::Unsupported(_))) && alloc::format!("{error}").contains("TLS"),
            "{error}"
        );
    }
    assert!(ClientOptions::parse("mongodb://a/?tls=false").is_ok());
}

fn parsed(query: &str) -> ClientOptions {
    ClientOptions::parse(&format!("mongodb://a/?{query}")).unwrap()
}

fn built() -> ClientOptions {
    ClientOptions::new("a")
}

const fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// How methods set an option of connection strings.
enum Said {
    /// A method sets it; the first field is the equivalent query.
    So(&'static str, fn(ClientOptions) -> ClientOptions),
    /// By options of a feature. Without the feature the string is refused, and the option is never
    /// ignored.
    Feature(&'static str),
    /// No method sets it, because the option has no effect here.
    WithoutEffect(&'static str),
}

fn said(name: &str) -> Said {
    use Said::{Feature, So, WithoutEffect};
    match name {
        "appName" => So("appName=b", |options| options.app_name("b")),
        "connectTimeoutMS" => So("connectTimeoutMS=7000", |options| options.connect_timeout(secs(7))),
        "directConnection" => So("directConnection=true", |options| options.direct_connection(true)),
        "heartbeatFrequencyMS" => So("heartbeatFrequencyMS=7000", |options| options.heartbeat_frequency(secs(7))),
        "journal" => So("journal=true", |options| {
            options.write_concern(WriteConcern { journal: Some(true), ..WriteConcern::default() })
        }),
        "loadBalanced" => So("loadBalanced=true", |options| options.load_balanced(true)),
        "localThresholdMS" => So("localThresholdMS=7000", |options| options.local_threshold(secs(7))),
        "maxConnecting" => So("maxConnecting=7", |options| options.max_connecting(7)),
        "maxIdleTimeMS" => So("maxIdleTimeMS=7000", |options| options.max_idle_time(secs(7))),
        "maxPoolSize" => So("maxPoolSize=7", |options| options.max_pool_size(7)),
        "maxStalenessSeconds" => So("readPreference=nearest&maxStalenessSeconds=120", |options| {
            options.read_preference(ReadPreferenceOptions {
                mode: ReadMode::Nearest,
                tag_sets: &[],
                max_staleness_seconds: Some(120),
            })
        }),
        "minPoolSize" => So("minPoolSize=7", |options| options.min_pool_size(7)),
        "readConcernLevel" => So("readConcernLevel=majority", |options| options.read_concern_level("majority")),
        "readPreference" => So("readPreference=secondary", |options| options.read_preference(ReadMode::Secondary)),
        "readPreferenceTags" => {
            So("readPreference=secondary&readPreferenceTags=dc:ny,rack:1&readPreferenceTags=", |options| {
                options.read_preference(ReadPreferenceOptions {
                    mode: ReadMode::Secondary,
                    tag_sets: &[&[("dc", "ny"), ("rack", "1")], &[]],
                    max_staleness_seconds: None,
                })
            })
        }
        "replicaSet" => So("replicaSet=b", |options| options.replica_set("b")),
        "enableOverloadRetargeting" => {
            So("enableOverloadRetargeting=true", |options| options.enable_overload_retargeting(true))
        }
        "maxAdaptiveRetries" => So("maxAdaptiveRetries=5", |options| options.max_adaptive_retries(5)),
        "retryReads" => So("retryReads=false", |options| options.retry_reads(false)),
        "retryWrites" => So("retryWrites=false", |options| options.retry_writes(false)),
        "serverMonitoringMode" => {
            So("serverMonitoringMode=poll", |options| options.server_monitoring_mode(ServerMonitoringMode::Poll))
        }
        "serverSelectionTimeoutMS" => {
            So("serverSelectionTimeoutMS=7000", |options| options.server_selection_timeout(secs(7)))
        }
        "socketTimeoutMS" => So("socketTimeoutMS=7000", |options| options.socket_timeout(secs(7))),
        "timeoutMS" => So("timeoutMS=7000", |options| options.timeout(secs(7))),
        "w" => So("w=majority", |options| {
            options.write_concern(WriteConcern { w: Some(W::Name("majority".into())), ..WriteConcern::default() })
        }),
        "waitQueueTimeoutMS" => So("waitQueueTimeoutMS=7000", |options| options.wait_queue_timeout(secs(7))),
        "wTimeoutMS" => So("wTimeoutMS=7000", |options| {
            options.write_concern(WriteConcern { w_timeout: Some(secs(7)), ..WriteConcern::default() })
        }),
        "serverSelectionTryOnce" => WithoutEffect("serverSelectionTryOnce=false"),
        "authMechanism" | "authMechanismProperties" | "authSource" => {
            Feature("mongodb://u:p@a/?authSource=b&authMechanism=SCRAM-SHA-256")
        }
        // A compressor that is not compiled in also causes a warning.
        "compressors" => Feature("mongodb://a/?compressors=zlib,snappy"),
        "zlibCompressionLevel" => So("zlibCompressionLevel=7", |options| options.zlib_compression_level(7)),
        "proxyHost" | "proxyPassword" | "proxyPort" | "proxyUsername" => {
            Feature("mongodb://a/?proxyHost=b&proxyPort=1&proxyUsername=c&proxyPassword=d")
        }
        "srvMaxHosts" | "srvServiceName" => Feature("mongodb+srv://a.b.c/?srvMaxHosts=1&srvServiceName=x"),
        name if name.starts_with("tls") => Feature("mongodb://a/?tls=true"),
        name => panic!("{name}: a new option, which can be said by methods as well"),
    }
}

/// Every option of connection strings has a method.
#[test]
fn every_option_of_connection_strings_has_its_method() {
    let default = format!("{:?}", built());
    for name in UriOptions::NAMES {
        match said(name) {
            Said::So(query, by_method) => {
                let options = by_method(built());
                assert_ne!(format!("{options:?}"), default, "{name} has no effect");
                let parsed = ClientOptions { without_effect: Vec::new(), ..parsed(query) };
                assert_eq!(format!("{options:?}"), format!("{parsed:?}"), "{name}");
                options.validate().expect(name);
            }
            Said::Feature(uri) => match ClientOptions::parse(uri) {
                Ok(options) => assert_ne!(format!("{options:?}"), default, "{name} is passed over in silence"),
                Err(error) => assert!(
                    matches!(error, Error::Setup(SetupError::Unsupported(_) | SetupError::LookupNeeded)),
                    "{name}: {error}"
                ),
            },
            Said::WithoutEffect(query) => {
                let parsed = ClientOptions { without_effect: Vec::new(), ..parsed(query) };
                assert_eq!(format!("{parsed:?}"), default, "{name}");
            }
        }
    }
}

/// The options of a string, but without those that only transactions and libraries use.
fn effects(uri: &str) -> String {
    let options = ClientOptions::parse(uri).unwrap();
    format!(
        "{:?}",
        ClientOptions {
            read_preference: OwnedReadPreference::default(),
            read_concern_level: None,
            write_concern: WriteConcern::default(),
            warnings: Vec::new(),
            without_effect: Vec::new(),
            ..options
        }
    )
}

#[test]
fn option_of_a_connection_string_is_applied_refused_or_listed() {
    for name in UriOptions::NAMES {
        let (plain, uri) = match said(name) {
            Said::So(query, _) | Said::WithoutEffect(query) => ("mongodb://a", format!("mongodb://a/?{query}")),
            Said::Feature(_) if name.starts_with("tls") && *name != "tls" => {
                ("mongodb://a/?tls=true", format!("mongodb://a/?tlsCertificateKeyFile=k&{name}=true"))
            }
            Said::Feature(uri) => ("mongodb://a", uri.to_owned()),
        };
        let options = match ClientOptions::parse(&uri) {
            Ok(options) => options,
            Err(error) => {
                let is_refused = matches!(error, Error::Setup(SetupError::Unsupported(_) | SetupError::LookupNeeded));
                assert!(is_refused, "{name}: {error}");
                continue;
            }
        };
        let is_listed = options.without_effect.iter().any(|warning| warning.to_string().starts_with(name));
        assert!(is_listed || effects(&uri) != effects(plain), "{name} is passed over in silence");
    }
}

#[test]
fn option_that_another_one_makes_void_is_listed() {
    let cases = [
        ("socketTimeoutMS=5&timeoutMS=5", "socketTimeoutMS: has no effect, because timeoutMS is set"),
        ("timeoutMS=0&waitQueueTimeoutMS=5", "waitQueueTimeoutMS: has no effect, because timeoutMS is set"),
        ("authSource=b", "authSource: has no effect without a user"),
        ("zlibCompressionLevel=5", "zlibCompressionLevel: has no effect without compressors=zlib"),
        ("tls=false&tlsCAFile=x", "tlsCAFile: has no effect, because tls is false"),
        (
            "loadBalanced=true&heartbeatFrequencyMS=500",
            "heartbeatFrequencyMS: has no effect, because a load balancer is not monitored",
        ),
    ];
    for (query, text) in cases {
        let listed: Vec<_> = parsed(query).without_effect.iter().map(ToString::to_string).collect();
        assert_eq!(listed, [text]);
    }
    #[cfg(feature = "tls")]
    {
        let unix = ClientOptions::parse("mongodb://%2Ftmp%2Fa.sock/?tls=true").unwrap();
        let reason = "has no effect on Unix domain sockets";
        assert_eq!(unix.without_effect, [ClientWarning::NoEffect { option: "tls", reason }]);
    }
    let many = "foo=1&".repeat(103);
    assert_eq!(parsed(&many).without_effect, [ClientWarning::More(3)]);
    for query in ["socketTimeoutMS=5", "compressors=zlib&zlibCompressionLevel=5", "timeoutMS=5&maxPoolSize=5"] {
        assert_eq!(parsed(query).without_effect, []);
    }
}

/// `authSource`, `authMechanism`: as in the string, without the password in `Debug`.
#[cfg(feature = "auth")]
#[test]
fn credential_of_the_string_equals_that_of_the_method() {
    use poolhouse_auth::{Credential, Mechanism, ScramMechanism};
    let by_string = ClientOptions::parse("mongodb://ann:hunter2@a/?authSource=b&authMechanism=SCRAM-SHA-1").unwrap();
    let mechanism = Mechanism::Scram(ScramMechanism::Sha1);
    let by_method = built().credential(Credential::new("ann", "hunter2").source("b").mechanism(mechanism));
    let (by_string, by_method) = (format!("{by_string:?}"), format!("{by_method:?}"));
    assert_eq!(by_string, by_method);
    assert!(!by_string.contains("hunter2"), "{by_string}");
}

/// PLAIN without TLS is refused before anything is started.
#[cfg(all(feature = "auth", feature = "tls"))]
#[test]
fn plain_without_tls_is_refused_by_validate() {
    use poolhouse_auth::{Credential, Mechanism};
    let options = built().credential(Credential::new("ann", "hunter2").mechanism(Mechanism::Plain));
    let error = options.validate().unwrap_err();
    assert!(matches!(error, Error::Setup(SetupError::Credential(AuthError::PlainWithoutTls))), "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"));
    options.clone().allow_plain_without_tls(true).validate().unwrap();
    options.tls(TlsOptions::default()).validate().unwrap();
}

/// An attacker on the path can impersonate a server that is not verified.
#[cfg(all(feature = "auth", feature = "tls"))]
#[test]
fn plain_is_refused_with_tls_that_does_not_verify_the_server() {
    let string = |option: &str| format!("mongodb://ann:hunter2@a/?authMechanism=PLAIN&tls=true{option}");
    for option in ["&tlsInsecure=true", "&tlsAllowInvalidCertificates=true", "&tlsAllowInvalidHostnames=true"] {
        let options = ClientOptions::parse(&string(option)).unwrap();
        let error = options.validate().unwrap_err();
        assert!(matches!(error, Error::Setup(SetupError::Credential(AuthError::PlainWithoutTls))), "{option}: {error}");
        options.allow_plain_without_tls(true).validate().unwrap();
    }
    for option in ["", "&tlsInsecure=false", "&tlsAllowInvalidHostnames=false", "&tlsDisableOCSPEndpointCheck=true"] {
        ClientOptions::parse(&string(option)).unwrap().validate().unwrap();
    }
}

#[test]
fn compressors_are_those_of_the_string_in_its_order() {
    let by_string = parsed("compressors=zstd,zlib");
    let by_method = built().compressors([Compressor::Zstd, Compressor::Zlib]);
    assert_eq!(format!("{:?}", by_method.compressors), format!("{:?}", by_string.compressors));
    assert_ne!(format!("{:?}", by_method.compressors), format!("{:?}", built().compressors));
}

/// `timeoutMS=0` is a limit that never ends, because it switches the other limits off.
#[test]
fn times_of_zero_in_a_string_are_no_limits() {
    let parsed =
        parsed("timeoutMS=0&socketTimeoutMS=0&wTimeoutMS=0&connectTimeoutMS=0&maxIdleTimeMS=0&waitQueueTimeoutMS=0");
    let by_method = built().timeout(Duration::MAX).connect_timeout(None);
    let parsed = ClientOptions { without_effect: Vec::new(), ..parsed };
    assert_eq!(format!("{parsed:?}"), format!("{by_method:?}"));
    parsed.validate().unwrap();
}

/// A limit of zero is none, a number of zero is itself, and what a string refuses, `validate` refuses.
#[test]
fn zero_means_the_same_in_methods_and_in_a_string() {
    type Set = fn(ClientOptions) -> ClientOptions;
    const ZERO: Duration = Duration::ZERO;
    let methods: [(&str, Set); 15] = [
        ("connectTimeoutMS", |options| options.connect_timeout(ZERO)),
        ("heartbeatFrequencyMS", |options| options.heartbeat_frequency(ZERO)),
        ("localThresholdMS", |options| options.local_threshold(ZERO)),
        ("maxAdaptiveRetries", |options| options.max_adaptive_retries(0)),
        ("maxConnecting", |options| options.max_connecting(0)),
        ("maxIdleTimeMS", |options| options.max_idle_time(ZERO)),
        ("maxPoolSize", |options| options.max_pool_size(0)),
        ("minPoolSize", |options| options.min_pool_size(0)),
        ("serverSelectionTimeoutMS", |options| options.server_selection_timeout(ZERO)),
        ("socketTimeoutMS", |options| options.socket_timeout(ZERO)),
        ("timeoutMS", |options| options.timeout(ZERO)),
        ("w", |options| options.write_concern(WriteConcern { w: Some(W::Nodes(0)), ..WriteConcern::default() })),
        ("wTimeoutMS", |options| {
            options.write_concern(WriteConcern { w_timeout: Some(ZERO), ..WriteConcern::default() })
        }),
        ("waitQueueTimeoutMS", |options| options.wait_queue_timeout(ZERO)),
        ("zlibCompressionLevel", |options| options.zlib_compression_level(0)),
    ];
    for name in UriOptions::NAMES {
        let has_zero = name.ends_with("MS") || name.starts_with("max") || name.starts_with("min");
        // Seconds of staleness are a part of the read preference, which the next test is about.
        if has_zero && name != &"maxStalenessSeconds" {
            assert!(methods.iter().any(|(known, _)| known == name), "{name}");
        }
    }
    for (name, set) in methods {
        let mut by_string = ClientOptions::parse(&format!("mongodb://a/?{name}=0")).unwrap();
        by_string.without_effect.clear();
        let by_method = set(built());
        if by_string.warnings.is_empty() {
            by_method.validate().expect(name);
            let by_method = by_method.with_zero_as_no_limit();
            assert_eq!(format!("{by_method:?}"), format!("{by_string:?}"), "{name}");
        } else {
            by_method.validate().expect_err(name);
        }
    }
}

#[test]
fn staleness_of_zero_is_refused_in_methods_and_ignored_in_a_string() {
    let preference =
        |seconds| ReadPreferenceOptions { mode: ReadMode::Nearest, tag_sets: &[], max_staleness_seconds: seconds };
    built().read_preference(preference(Some(0))).validate().unwrap_err();
    let by_string = ClientOptions::parse("mongodb://a/?readPreference=nearest&maxStalenessSeconds=0").unwrap();
    assert_eq!(by_string.warnings.len(), 1);
    assert_eq!(by_string.read_preference.max_staleness_seconds, None);
}

#[test]
fn write_concern_of_a_command_leaves_out_a_limit_of_zero() {
    let concern = WriteConcern { w_timeout: Some(Duration::ZERO), ..WriteConcern::majority() };
    assert_eq!(concern.to_document(), bson::doc! { "w": "majority" });
}

#[test]
fn hosts_and_database_of_a_string_have_methods() {
    let by_string = ClientOptions::parse("mongodb://A,b:2,%2Ftmp%2Fc.sock/d.e").unwrap();
    let by_method = built().host("b:2").host("/tmp/c.sock").default_database("d");
    assert_eq!(format!("{by_string:?}"), format!("{by_method:?}"));
    assert_eq!(parsed("").default_database, None);
}

/// The error names the option, the value and the rule.
#[test]
fn option_that_breaks_a_rule_is_named_with_its_value_and_the_rule() {
    let staleness = |mode, seconds| ReadPreferenceOptions { mode, tag_sets: &[], max_staleness_seconds: Some(seconds) };
    let info = DriverInfo::new("lib");
    let cases = [
        (built().max_connecting(0), "maxConnecting is 0, but must be at least 1"),
        (built().max_pool_size(2).min_pool_size(3), "minPoolSize is 3, but must be at most maxPoolSize"),
        (
            built().heartbeat_frequency(Duration::from_millis(499)),
            "heartbeatFrequencyMS is 499, but must be at least 500",
        ),
        (
            built().connect_timeout(Duration::from_millis(1 << 31)),
            "connectTimeoutMS is 2147483648, but must be at most 2147483647",
        ),
        (
            built().server_selection_timeout(Duration::from_micros(999)),
            "serverSelectionTimeoutMS is 0, but must be at least 1",
        ),
        (built().zlib_compression_level(10), "zlibCompressionLevel is 10, but must be at most 9"),
        (
            built().read_preference(staleness(ReadMode::Nearest, 89)),
            "maxStalenessSeconds is 89, but must be at least 90",
        ),
        (
            built().read_preference(staleness(ReadMode::Primary, 90)),
            "maxStalenessSeconds is 90, but must be absent when readPreference is primary",
        ),
        (built().app_name("n".repeat(129)), "appName is 129 bytes long, but must be at most 128"),
        (built().app_name(""), r#"appName is "", but must not be empty"#),
        (
            built().driver_info(DriverInfo::new("n".repeat(600))),
            "driver name and version do not fit 512 bytes of metadata",
        ),
        (
            built().driver_info(info.clone().version("1".repeat(600))),
            "driver name and version do not fit 512 bytes of metadata",
        ),
        (built().replica_set(""), r#"replicaSet is "", but must not be empty"#),
        (built().default_database(""), r#"default_database is "", but must not be empty"#),
        (built().read_concern_level(""), r#"readConcernLevel is "", but must not be empty"#),
        (built().driver_info(DriverInfo::new("")), r#"driver_info.name is "", but must not be empty"#),
        (
            built().driver_info(info.clone().version("1|2")),
            r#"driver_info.version is "1|2", but must not contain |, which separates libraries"#,
        ),
        (
            built().driver_info(info.platform("|")),
            r#"driver_info.platform is "|", but must not contain |, which separates libraries"#,
        ),
        (
            built().host("b:0"),
            r#"hosts is "b:0", but must be host, host:port, [ipv6]:port, or the path of a unix socket"#,
        ),
        (built().host("b").direct_connection(true), "directConnection is true, but there is more than one host"),
        (built().load_balanced(true).replica_set("b"), "loadBalanced is true, but replicaSet is set"),
        (ClientOptions { hosts: Vec::new(), ..built() }, "hosts is 0, but must be at least one"),
    ];
    for (options, told) in cases {
        assert_eq!(options.validate().unwrap_err().to_string(), told);
    }
}

/// A platform text that is too long is cut off; all other fields are sent whole.
#[test]
fn long_platform_of_a_library_is_truncated() {
    built().driver_info(DriverInfo::new("lib").platform("p".repeat(600))).validate().unwrap();
    let name_and_version = DriverInfo::new("n".repeat(160)).version("1".repeat(40));
    built().app_name("n".repeat(128)).driver_info(name_and_version).validate().unwrap();
}

#[cfg(feature = "tls")]
#[test]
fn password_without_a_file_is_refused_by_validate() {
    let tls = TlsOptions { certificate_key_file_password: Some("hunter2".into()), ..TlsOptions::default() };
    let error = built().tls(tls).validate().unwrap_err();
    assert!(matches!(error, Error::Setup(SetupError::Tls(crate::tls::TlsError::PasswordWithoutFile))), "{error}");
}

#[test]
fn connection_string_in_place_of_a_host_is_detected_and_not_shown() {
    let error = ClientOptions::new("mongodb://ann:hunter2@a").validate().unwrap_err();
    let told = format!("{error} {error:?}");
    assert!(told.contains("ClientOptions::parse") && !told.contains("hunter2"), "{told}");
    let Error::Setup(SetupError::Option(error)) = error else { panic!("{error}") };
    assert_eq!((error.option(), error.value()), ("hosts", "[redacted]"));
    assert!(error.rule().starts_with("be host"));
    assert_eq!(*error, OptionError::new("hosts", "[redacted]", error.rule()));
}

#[test]
fn text_before_an_at_sign_of_a_host_is_not_shown() {
    let error = ClientOptions::new("ann:hunter2@a").validate().unwrap_err();
    let Error::Setup(SetupError::Option(error)) = error else { panic!("{error}") };
    assert_eq!((error.option(), error.value()), ("hosts", "[redacted]"));
    assert!(!error.rule().contains("ClientOptions::parse"), "it is no connection string: {error}");
}

/// MongoDB Handshake, "Supporting Wrapping Libraries".
#[test]
fn libraries_are_listed_once_and_in_order() {
    let inner = DriverInfo::new("inner").version("1.2").platform("p");
    let options = built().driver_info(inner.clone()).driver_info(DriverInfo::new("outer")).driver_info(inner);
    let told = options.driver("poolhouse", "0.1", "Rust", &[]);
    assert_eq!(told, ("poolhouse|inner|outer".to_string(), "0.1|1.2".to_string(), "Rust|p".to_string()));
    // An empty text is none.
    let options = options.driver_info(DriverInfo::new("outer").version(""));
    let told = options.driver("poolhouse", "0.1", "Rust", &[DriverInfo::new("last").version("2").platform("")]);
    assert_eq!(told, ("poolhouse|inner|outer|last".to_string(), "0.1|1.2|2".to_string(), "Rust|p".to_string()));
}

#[test]
fn write_concern_is_converted_to_the_value_of_a_command() {
    let document = |w, journal, w_timeout| WriteConcern { w, journal, w_timeout }.to_document();
    assert_eq!(document(None, None, None), bson::doc! {});
    assert_eq!(WriteConcern::majority().to_document(), bson::doc! { "w": "majority" });
    let all = document(Some(W::Nodes(2)), Some(false), Some(Duration::from_millis(250)));
    assert_eq!(all, bson::doc! { "w": 2_i64, "j": false, "wtimeout": 250_i64 });
    // 0 would be no limit, and servers refuse numbers beyond 32 bits.
    assert_eq!(document(None, None, Some(Duration::from_nanos(1))), bson::doc! { "wtimeout": 1_i64 });
    assert_eq!(document(None, None, Some(Duration::MAX)), bson::doc! {});
}

/// An option that connection strings do not have.
#[test]
fn drain_timeout_is_that_of_the_options() {
    assert_eq!(built().drain_timeout, secs(1));
    assert_eq!(built().drain_timeout(secs(7)).drain_timeout, secs(7));
    built().drain_timeout(Duration::ZERO).validate().expect("not at all");
}

#[cfg(feature = "tracing")]
#[test]
fn log_options_are_passed_to_the_client() {
    use crate::log::LogStyle;
    let log = LogOptions { style: LogStyle::Text, ..LogOptions::OFF };
    assert_eq!(built().log(log).log, log);
}
