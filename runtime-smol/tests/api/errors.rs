//! Error messages, and the absence of secrets in all output.

use super::support::refused;
use poolhouse_smol::{Client, ClientOptions, Error, SetupError};

/// Each message states the fault, and its position or option.
#[test]
fn error_of_a_string_contains_fault_and_position() {
    let cases = [
        ("", "a connection string must begin with mongodb:// or mongodb+srv:// (at byte 0)"),
        ("localhost:27017", "a connection string must begin with mongodb:// or mongodb+srv:// (at byte 0)"),
        ("mongodb://", "a host is missing; the path of a unix socket must be percent-encoded (at byte 10)"),
        ("mongodb://a,,b", "a host is missing; the path of a unix socket must be percent-encoded (at byte 12)"),
        ("mongodb://a:99999", "a port must be a number from 1 to 65535 (at byte 12)"),
        ("mongodb://a b", "neither a host name, an address nor the path of a unix socket (at byte 10)"),
        ("mongodb://ann:a/b@c", "username and password must be percent-encoded (at byte 10)"),
        ("mongodb://ann:p@ss@a", "username and password must be percent-encoded (at byte 10)"),
        ("mongodb://ann:100%@a", "a percent sign must be percent-encoded (%25) (at byte 17)"),
        ("mongodb://a/?maxPoolSize", "an option must have the form name=value (at byte 13)"),
        ("mongodb://a/?loadBalanced=true&replicaSet=b", "loadBalanced: cannot be set together with replicaSet"),
        ("mongodb://a,b/?directConnection=true", "directConnection: cannot be used with more than one host"),
        ("mongodb://a/?minPoolSize=5&maxPoolSize=4", "minPoolSize: must be at most maxPoolSize"),
        (
            "mongodb://a/?readPreferenceTags=dc:ny",
            "readPreferenceTags: cannot be set together with readPreference=primary, which is the default",
        ),
        ("mongodb://a/?srvMaxHosts=1", "srvMaxHosts: is allowed with mongodb+srv:// only"),
        ("mongodb+srv://a:1/", "mongodb+srv:// must have one host name, and no port (at byte 14)"),
    ];
    for (uri, told) in cases {
        let error = refused(smol::block_on(Client::new(uri)));
        assert!(matches!(error, Error::Setup(SetupError::Uri(_))), "{uri}: {error:?}");
        assert_eq!(error.to_string(), told, "{uri}");
    }
}

/// A doubtful option is a warning with the option's standard name.
#[test]
fn ignored_option_has_a_warning() {
    let options = ClientOptions::parse("mongodb://a/?maxPoolsize=x&foo=1&waitQueueSize=2&heartbeatFrequencyMS=1");
    let warnings: Vec<_> = options.expect("right").warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 4, "{warnings:?}");
    for (warning, begin) in warnings.iter().zip(["maxPoolSize: ", "foo: ", "waitQueueSize: ", "heartbeatFrequencyMS: "])
    {
        assert!(warning.starts_with(begin), "{warning}");
    }
}

#[test]
fn client_refuses_mistakes_in_a_connection_string_that_its_options_only_report() {
    let ignores = "; ClientOptions::parse, or ClientOptions::resolve, and Client::with_options ignore it";
    let cases = [
        ("maxPolSize=10", "maxPolSize: unknown option; did you mean maxPoolSize? (at byte 22)"),
        ("maxPoolSize=many", "maxPoolSize: must be a number from 0 to 2147483647 (at byte 22)"),
        ("tsl=true", "tsl: unknown option; did you mean tls? (at byte 22)"),
        ("foo=1&sslCAFile=x", "sslCAFile: unknown option; did you mean tlsCAFile? (at byte 28)"),
        (
            "readPreference=second",
            "readPreference: must be primary, primaryPreferred, secondary, secondaryPreferred or nearest (at byte 22)",
        ),
    ];
    for (option, text) in cases {
        let uri = format!("mongodb://localhost:1?{option}");
        let error = refused(smol::block_on(Client::new(&uri)));
        assert!(matches!(error, Error::Setup(SetupError::Mistake(_))), "{uri}: {error}");
        assert_eq!(error.to_string(), format!("{text}{ignores}"));
        let lenient = Client::with_options(ClientOptions::parse(&uri).expect("a warning only")).expect("a client");
        let warning = lenient.warnings().last().expect("a warning");
        assert!(warning.to_string().contains("ignored"), "{warning}");
    }
    // It may be a part of a password, so its name is not shown.
    let uri = "mongodb://localhost:1/?tls=true&tlsCertificateKeyFile=k&tlsCertificateKeyFilePassword=a&apName=b";
    let error = refused(smol::block_on(Client::new(uri))).to_string();
    assert_eq!(error, format!("unknown option (at byte 88){ignores}"));
    // Before the lookup, which would fail.
    let error = refused(smol::block_on(Client::new("mongodb+srv://a.invalid/?maxPolSize=1")));
    assert!(matches!(error, Error::Setup(SetupError::Mistake(_))), "{error}");
}

#[test]
fn option_that_is_accepted_without_effect_is_a_warning_of_the_client() {
    let uri = "mongodb://localhost:1/?w=majority&journal=true&readConcernLevel=majority&readPreference=secondary&foo=1";
    let client = smol::block_on(Client::new(uri)).expect("a client");
    let writes = "applies to transactions only; other commands need their own writeConcern: WriteConcern::to_document";
    let warnings: Vec<_> = client.warnings().iter().map(ToString::to_string).collect();
    let expected = [
        "foo: unknown option, ignored (at byte 98)".to_owned(),
        format!("journal: {writes}"),
        "readConcernLevel: applies to transactions only; other commands need their own readConcern".to_owned(),
        "readPreference: applies only to commands with CommandOptions::client_read_preference".to_owned(),
        format!("w: {writes}"),
    ];
    assert_eq!(warnings, expected);
    assert!(smol::block_on(Client::new("mongodb://localhost:1/?maxPoolSize=5")).expect("right").warnings().is_empty());
}

/// In options, clients and errors.
#[test]
fn no_output_shows_a_password() {
    for uri in [
        "mongodb://ann:hunter2@localhost:1/",
        "mongodb://ann:hunter2@localhost:1/?authMechanism=PLAIN",
        "mongodb://ann:hunter2:@localhost:1/",
        "mongodb://ann:hunter2%@localhost:1/",
        "mongodb://ann:hunter2@/",
        "mongodb://ann:hunter2@localhost:0/",
        "mongodb://ann:hunter2",
        "mongodb://localhost:1/?proxyHost=p&proxyUsername=u&proxyPassword=hunter2",
        "mongodb://localhost:1/?tls=true&tlsCertificateKeyFilePassword=hunter2",
        "mongodb://localhost:1/?hunter2",
    ] {
        let mut shown = match ClientOptions::parse(uri) {
            Ok(options) => format!("{options:?} {:?} {:?}", options.validate(), Client::with_options(options.clone())),
            Err(error) => format!("{error} {error:?}"),
        };
        let host = ClientOptions::new(uri).validate();
        shown += &format!("{host:?} {:?}", host.as_ref().map_err(ToString::to_string));
        assert!(!shown.contains("hunter2"), "{uri}: {shown}");
    }
}

/// A failed selection contains the topology at that time, and with it the reason why the server is
/// unavailable.
#[test]
fn error_of_an_unreachable_server_contains_address_and_reason() {
    super::support::run(async {
        // The server keeps its port, but does not listen there.
        let server = super::support::server();
        server.kill().expect("it is killed");
        let address = server.address().to_string();
        let options = ClientOptions::new(&*address).server_selection_timeout(core::time::Duration::from_millis(300));
        let client = Client::with_options(options).expect("right");
        let error = refused(client.run_command("admin", bson::doc! { "ping": 1 }).await);
        let told = error.to_string();
        assert!(error.is_timeout() && told.contains(&address), "{told}");
    });
}
