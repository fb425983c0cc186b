//! Warnings and lines for operators of a real client on the fake server. The suite `unified` has the official
//! tests of log messages.
//!
//! The process has one log subscriber, so cases run one after the other.
#![forbid(unsafe_code)]

#[path = "logging/failover.rs"]
mod failover;
#[path = "capture/fields.rs"]
mod fields;
#[path = "capture/messages.rs"]
mod messages;
#[path = "logging/outages.rs"]
mod outages;

use libtest_mimic::{Arguments, Failed, Trial};
use messages::Message;
use poolhouse_client::log::LogOptions;
use poolhouse_smol::bson::doc;
use poolhouse_smol::{Client, ClientOptions, Cursor, Error};
use poolhouse_tests::fake::FakeServer;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    messages::install();
    let shows = arguments.nocapture;
    let trials = vec![
        Trial::test("relaxed_tls_is_a_warning", relaxed_tls),
        Trial::test("warnings_of_a_connection_string_are_logged", ignored_options),
        Trial::test("cursor_that_run_command_leaves_open_is_a_warning_once", open_cursor),
        Trial::test("killed_primary_is_reported_once", move || failover::killed_primary(shows)),
        Trial::test("killed_node_of_cassandra_is_reported_once", outages::killed_node),
        Trial::test("refused_password_of_cassandra_is_reported", outages::refused_password),
        Trial::test("unknown_data_centre_is_named_with_those_of_the_cluster", outages::unknown_data_center),
        Trial::test("slow_request_of_cassandra_is_a_warning", outages::slow_request),
        Trial::test("gone_server_of_a_generic_pool_is_reported_by_its_name", outages::gone_server_of_a_pool),
        Trial::test("wrong_set_is_named_and_many_waits_are_one_line", outages::wrong_set_and_many_waits),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn text(message: &Message) -> &str {
    message.data.get_str("message").unwrap_or_default()
}

/// Every disabled TLS check is logged as a warning.
fn relaxed_tls() -> Result<(), Failed> {
    for (option, expected) in [("tlsInsecure", 1), ("tlsAllowInvalidHostnames", 1), ("tls", 0)] {
        let from = messages::count();
        let uri = format!("mongodb://127.0.0.1:1/?{option}=true");
        let Ok(client) = smol::block_on(poolhouse_smol::Client::new(&uri)) else {
            // Only without authorities of the platform, where nothing can be verified.
            assert_ne!(option, "tlsInsecure");
            continue;
        };
        smol::block_on(client.close());
        let mut warnings = messages::since(from);
        warnings.retain(|message| text(message).contains("INSECURE"));
        assert_eq!(warnings.len(), expected, "{option}");
        assert!(warnings.iter().all(|warning| warning.level == "warn" && warning.component == "connection"));
    }
    Ok(())
}

/// `run_command` returns the first batch only, which its caller may take for all documents.
fn open_cursor() -> Result<(), Failed> {
    let server = FakeServer::start(Default::default()).map_err(|error| error.to_string())?;
    let client = smol::block_on(Client::new(&server.uri())).expect("a client");
    let warnings =
        |from| messages::since(from).into_iter().filter(|message| message.level == "warn").collect::<Vec<_>>();
    let find = |size: i32| doc! { "find": "c", "batchSize": size };
    let outcome: Result<_, Error> = smol::block_on(async {
        let db = client.database("db");
        db.run_command(doc! { "insert": "c", "documents": [{}, {}, {}] }).await?;
        let from = messages::count();
        db.run_command(find(3)).await?;
        let mut cursor: Cursor = db.run_cursor_command(find(1)).await?;
        while cursor.try_next().await?.is_some() {}
        assert_eq!(warnings(from).len(), 0);
        db.run_command(find(1)).await?;
        db.run_command(find(1)).await?;
        Ok(warnings(from))
    });
    let warnings = outcome.expect("replies");
    assert!(matches!(&warnings[..], [warning] if warning.component == "command"), "{warnings:?}");
    assert!(text(&warnings[0]).contains("run_cursor_command returns all"), "{warnings:?}");
    smol::block_on(client.close());
    Ok(())
}

/// Every constructor of a client logs the options that are ignored or have no effect.
fn ignored_options() -> Result<(), Failed> {
    let uri = "mongodb://127.0.0.1:1/?foo=shop&retryReads=yes&w=majority";
    let parse = || ClientOptions::parse(uri).expect("unknown options are left out");
    let makers: [fn(&str, ClientOptions) -> Client; 3] = [
        |uri, _| smol::block_on(Client::new(uri)).expect("a client"),
        |_, options| Client::with_options(options).expect("a client"),
        |_, options| Client::new_subscribed(options).expect("a client").0,
    ];
    let client = Client::with_options(parse()).expect("a client");
    let expected: Vec<_> = client.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(expected.len(), 3, "{expected:?}");
    smol::block_on(client.close());
    let taken = |client: Client, from| {
        smol::block_on(client.close());
        messages::since(from)
    };
    for make in makers {
        let from = messages::count();
        let mut warnings = taken(make(uri, parse()), from);
        warnings.retain(|message| message.level == "warn" && message.component == "connection");
        let warnings: Vec<_> = warnings.iter().map(text).collect();
        assert_eq!(warnings, expected);
    }
    let mut options = parse();
    options.log = LogOptions::OFF;
    let from = messages::count();
    let messages = taken(Client::with_options(options).expect("a client"), from);
    assert!(messages.is_empty(), "{messages:?}");
    Ok(())
}
