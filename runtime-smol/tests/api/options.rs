//! Options: valid ones are sent to servers, and invalid ones open no connection.

use super::support::{client, options, refused, run, sent, server};
use bson::doc;
use core::time::Duration;
use poolhouse_smol::{Client, ClientOptions, CommandOptions, DriverInfo, Error, PoolOptions, ReadMode};
use poolhouse_tests::patience::{PATIENCE, eventually};

/// MongoDB Handshake, "Supporting Wrapping Libraries".
#[test]
fn servers_receive_the_application_name_and_the_libraries() {
    run(async {
        let server = server();
        let library = DriverInfo::new("my-odm").version("1.2").platform("my-framework");
        let client = client(options(&server).app_name("till").driver_info(library));
        client.run_command("admin", doc! { "ping": 1 }).await.expect("a ping");
        let told = server.look(|view| view.open().map(|info| info.client.clone()).collect::<Vec<_>>());
        assert_eq!(told.len(), 2, "the monitor's and the pool's");
        for told in told {
            let told = told.expect("every connection says who it is");
            let text = |part: &str, name| told.get_document(part).and_then(|part| part.get_str(name)).expect("a text");
            assert_eq!(text("application", "name"), "till");
            assert_eq!(text("driver", "name"), "poolhouse-smol|my-odm");
            assert_eq!(text("driver", "version"), concat!(env!("CARGO_PKG_VERSION"), "|1.2"));
            assert_eq!(told.get_str("platform").ok(), Some("Rust/smol|my-framework"));
        }
    });
}

#[test]
fn options_set_by_methods_apply_to_the_pool() {
    run(async {
        let server = server();
        let client = client(options(&server).max_pool_size(1).wait_queue_timeout(Duration::from_millis(50)));
        // The connection is established first, without a limit.
        let held = client.check_out_timeout(Some(PATIENCE)).await.expect("the only connection");
        let error = refused(client.check_out().await.map(drop));
        assert!(error.is_timeout() && error.check_out().is_some(), "{error}");
        drop(held);
        assert_eq!(client.options().pool.max_pool_size, 1);
        client.run_command("admin", doc! { "ping": 1 }).await.expect("it is free again");
        assert_eq!(sent(&server, "ping").len(), 1);
    });
}

#[test]
fn limits_of_zero_are_no_limits() {
    run(async {
        let server = server();
        let zero = Duration::ZERO;
        let client =
            client(options(&server).max_pool_size(1).timeout(None).wait_queue_timeout(zero).socket_timeout(zero));
        let held = client.check_out().await.expect("the only connection");
        let waiting = smol::spawn({
            let client = client.clone();
            async move {
                let unlimited = CommandOptions::new().timeout(zero);
                client.run_command_with("admin", doc! { "ping": 1 }, unlimited).await?;
                client.check_out().await.map(drop)
            }
        });
        eventually("it waits", || client.servers()[0].pool.counts.waiting == 1).await;
        drop(held);
        waiting.await.expect("a connection");
        client.close().await;
    });
}

/// An option that breaks its rule is an error before anything is started: no connection reaches the
/// server.
#[test]
fn invalid_options_start_nothing() {
    run(async {
        let server = server();
        let valid = || options(&server).min_pool_size(1);
        type Wrong = fn(ClientOptions) -> ClientOptions;
        let cases: [(&str, Wrong); 8] = [
            ("serverSelectionTimeoutMS", |options| options.server_selection_timeout(Duration::ZERO)),
            ("appName", |options| options.app_name("")),
            ("driver name", |options| options.driver_info(DriverInfo::new("n".repeat(600)))),
            ("hosts", |options| options.host("b c")),
            ("replicaSet", |options| options.replica_set("")),
            ("driver_info.name", |options| options.driver_info(DriverInfo::new("a|b"))),
            ("maxStalenessSeconds", |options| {
                let mut options = options.read_preference(ReadMode::Nearest);
                options.read_preference.max_staleness_seconds = Some(10);
                options
            }),
            ("loadBalanced", |options| options.load_balanced(true).direct_connection(true)),
        ];
        for (name, wrong) in cases {
            let by_hand = refused(wrong(valid()).validate());
            assert!(by_hand.to_string().contains(name), "{name}: {by_hand}");
            let error = refused(Client::with_options(wrong(valid())));
            assert_eq!(error.to_string(), by_hand.to_string());
            assert!(!matches!(error, Error::Operation(..)), "{error:?}");
        }
        // The next connection is the first that the server accepts.
        let client = client(options(&server));
        client.run_command("admin", doc! { "ping": 1 }).await.expect("a ping");
        assert_eq!(server.accepted_count(), 2);
    });
}

/// The pool has `minPoolSize` connections before the first operation, and at least one.
#[test]
fn warm_client_has_its_connections_before_the_first_operation() {
    run(async {
        for (least, there) in [(3, 3), (0, 1)] {
            let server = server();
            let client = client(options(&server).min_pool_size(least).max_pool_size(3));
            client.warm_up(Duration::from_secs(60)).await.expect("a server and its connections");
            let counts = client.servers()[0].pool.counts;
            assert!(counts.available + counts.in_use >= there, "{counts:?}");
            client.close().await;
            assert!(!refused(client.warm_up(Duration::from_secs(60)).await).is_timeout(), "closed at once");
        }
        // The server does not answer: the limit ends the call.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = client(ClientOptions::new(silent.local_addr().expect("bound").to_string()));
        let limit = Duration::from_millis(100);
        let begun = std::time::Instant::now();
        assert!(refused(client.warm_up(limit).await).is_timeout());
        assert!(begun.elapsed() >= limit);
    });
}

#[test]
fn pool_options_can_be_changed_while_the_client_is_open() {
    run(async {
        let server = server();
        let client = client(options(&server).max_pool_size(1).wait_queue_timeout(Duration::from_millis(50)));
        let first = client.check_out_timeout(Some(PATIENCE)).await.expect("the only connection");
        assert!(refused(client.check_out().await.map(drop)).is_timeout());
        let mut options = client.pool_options();
        options.max_pool_size = 2;
        // Long enough to establish a connection on any machine.
        options.wait_queue_timeout = Some(Duration::from_secs(60));
        client.set_pool_options(options).expect("right");
        assert_eq!(client.pool_options(), options);
        let second = client.check_out().await.expect("there is room for two");
        let error = refused(client.set_pool_options(PoolOptions { max_connecting: 0, ..options }));
        assert_eq!(error.to_string(), "maxConnecting is 0, but must be at least 1");
        assert_eq!(client.pool_options(), options, "nothing has changed");
        drop((first, second));
        client.close().await;
    });
}
