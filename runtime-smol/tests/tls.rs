//! The client on smol over TLS against fake servers: trusted certificates, and the errors for all
//! others.
#![cfg(feature = "tls")]

extern crate alloc;

use alloc::sync::Arc;
use core::time::Duration;
use poolhouse_smol::poolhouse_core::monitor::MonitorEvent;
use poolhouse_smol::poolhouse_core::pool::CheckOutError;
use poolhouse_smol::poolhouse_core::{Cause, CertificateFault, ServerType};
use poolhouse_smol::poolhouse_driver::OperationError;
use poolhouse_smol::{
    Authorities, Client, ClientOptions, ClientWarning, Error, Event, Notice, ServerMonitoringMode, SetupError,
    TlsError, TlsWarning,
};
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};
use poolhouse_tests::fake::{Cut, FakeOptions, FakeServer, Fault};
use poolhouse_tests::patience::{PATIENCE, run};
use poolhouse_tests::tls::{CertificateRequest, ClientCheck, Folder, Holder, ServerTls, Validity, Versions};
use smol::future::FutureExt;
use std::path::Path;
use std::time::Instant;

/// An authority, and a folder for files.
struct Fixture {
    root: Holder,
    folder: Folder,
}

impl Fixture {
    fn new() -> Self {
        let (root, folder) = (Holder::root("root"), Folder::new());
        folder.write("ca.pem", root.certificate());
        Self { root, folder }
    }

    fn tls(&self) -> ServerTls {
        ServerTls::new(self.root.issue(&CertificateRequest::server(&["127.0.0.1"])).identity())
    }

    fn server(&self) -> FakeServer {
        start(self.tls())
    }

    /// Options for this server, from a connection string. The monitor polls, which makes counts
    /// exact.
    fn options(&self, server: &FakeServer, more: &str) -> ClientOptions {
        let ca = escaped(&self.folder.path().join("ca.pem"));
        let uri = format!("mongodb://{}/?directConnection=true&tls=true&tlsCAFile={ca}{more}", server.address());
        let mut options = ClientOptions::parse(&uri).expect("the string is right");
        options.monitor.server_monitoring_mode = ServerMonitoringMode::Poll;
        options.timeout = Some(PATIENCE);
        options
    }
}

/// The options of a connection string, with an authority in memory in place of a file.
#[test]
fn authority_in_memory_is_trusted_by_a_client() {
    let (fixture, other) = (Fixture::new(), Fixture::new());
    let server = fixture.server();
    let options = |authority: &Fixture| {
        let authorities = Authorities::from_pem(authority.root.certificate()).expect("a certificate");
        let mut options = fixture.options(&server, "");
        let tls = options.tls.as_mut().expect("the string has TLS");
        tls.ca_file = None;
        tls.authorities = Some(authorities);
        options
    };
    run(async {
        let trusting = client(options(&fixture));
        ping(&trusting).await.expect("the authority is trusted");
        trusting.close().await;
        let (_, cause) = refusal(options(&other)).await;
        assert_eq!(cause, Cause::Certificate(CertificateFault::UnknownIssuer));
    });
}

#[test]
fn client_with_a_file_and_authorities_in_memory_is_refused() {
    let fixture = Fixture::new();
    let server = fixture.server();
    let mut options = fixture.options(&server, "");
    let authorities = Authorities::from_pem(fixture.root.certificate()).expect("a certificate");
    options.tls = options.tls.map(|tls| tls.authorities(authorities));
    match Client::with_options(options) {
        Err(Error::Setup(SetupError::Tls(error))) => assert_eq!(error, TlsError::AuthoritiesTwice),
        other => panic!("{other:?}"),
    }
}

fn start(tls: ServerTls) -> FakeServer {
    let mut options = FakeOptions::default();
    options.tls = Some(tls);
    FakeServer::start(options).expect("the fake server starts")
}

/// A path, percent-encoded for a connection string.
fn escaped(path: &Path) -> String {
    path.to_str().expect("text").replace('%', "%25").replace('/', "%2F")
}

fn client(options: ClientOptions) -> Client {
    Client::with_options(options).expect("the options are right")
}

async fn ping(client: &Client) -> Result<(), Error> {
    client.run_command("admin", bson::doc! { "ping": 1 }).await.map(drop)
}

/// The error and the cause for a server that cannot be used.
async fn refusal(mut options: ClientOptions) -> (String, Cause) {
    options.server_selection_timeout = Duration::from_millis(300);
    let (client, mut events) = Client::new_subscribed(options).expect("the options are right");
    // The first check has the same cause as the final selection error.
    let cause = loop {
        match events.next().await {
            Some(Notice::Event { event: Event::Heartbeat(MonitorEvent::HeartbeatFailed { cause, .. }), .. }) => {
                break cause;
            }
            Some(Notice::Event { .. }) => {}
            other => panic!("{other:?}"),
        }
    };
    let error = ping(&client).await.expect_err("no server is to be trusted");
    let Error::Operation(OperationError::ServerSelection(_), _) = &error else { panic!("{error:?}") };
    client.close().await;
    (error.to_string(), cause)
}

#[test]
fn all_connections_use_tls_in_either_version() {
    let fixture = Fixture::new();
    for versions in [Versions::Tls12, Versions::Tls13] {
        run(async {
            let mut tls = fixture.tls();
            tls.versions = versions;
            // The server accepts TLS only: checks, round trips and operations would all fail
            // without it.
            let server = start(tls);
            let mut options = fixture.options(&server, "");
            options.monitor.server_monitoring_mode = ServerMonitoringMode::Stream;
            let client = client(options);
            ping(&client).await.expect("a ping");
            let payload = "x".repeat(3_000_000);
            let insert = bson::doc! { "insert": "c", "documents": [{ "_id": 1, "payload": payload.as_str() }] };
            client.run_command("db", insert).await.expect("an insert");
            let found = client.run_command("db", bson::doc! { "find": "c" }).await.expect("a find");
            assert!(found.to_string().contains(&payload));
            server.wait_until(PATIENCE, |view| view.exhausting_count() > 0).expect("checks are streamed");
            server.wait_until(PATIENCE, |view| view.open_count() == 3).expect("checks, round trips, operations");
            assert_eq!(client.warnings(), []);
            client.close().await;
            server.wait_until(PATIENCE, |view| view.open_count() == 0).expect("all are closed");
        });
    }
}

#[test]
fn many_tasks_share_connections_over_tls_and_some_cancel() {
    let fixture = Fixture::new();
    run(async {
        let server = fixture.server();
        let mut options = fixture.options(&server, "&maxPoolSize=5");
        options.monitor.server_monitoring_mode = ServerMonitoringMode::Auto;
        let client = Arc::new(client(options));
        let tasks: Vec<_> = (0..32_u64)
            .map(|number| {
                let client = Arc::clone(&client);
                smol::spawn(async move {
                    for round in 0..20 {
                        if (number + round) % 4 == 0 {
                            let limit = async {
                                smol::Timer::after(Duration::from_micros(50 * (number + 1))).await;
                                Ok(())
                            };
                            ping(&client).or(limit).await?;
                        } else {
                            ping(&client).await?;
                        }
                    }
                    Ok::<(), Error>(())
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no operation fails");
        }
        let begun = Instant::now();
        while client.servers().first().is_none_or(|server| server.pool.counts.in_use + server.pool.counts.pending > 0) {
            assert!(begun.elapsed() < PATIENCE);
            smol::Timer::after(Duration::from_millis(1)).await;
        }
        client.close().await;
    });
}

#[test]
fn replica_set_is_found_over_tls() {
    let fixture = Fixture::new();
    run(async {
        let mut set = FakeReplicaSetOptions::of(3);
        set.server.tls = Some(fixture.tls());
        let set = FakeReplicaSet::start(set).expect("the set starts");
        let ca = escaped(&fixture.folder.path().join("ca.pem"));
        let client = client(ClientOptions::parse(&format!("{}&tlsCAFile={ca}", set.uri())).expect("right"));
        client.run_command("db", bson::doc! { "insert": "c", "documents": [{}] }).await.expect("an insert");
        let begun = Instant::now();
        let known =
            |client: &Client| client.servers().iter().filter(|it| it.server_type != ServerType::Unknown).count();
        while known(&client) < 3 {
            assert!(begun.elapsed() < PATIENCE, "{:?}", client.servers());
            smol::Timer::after(Duration::from_millis(1)).await;
        }
        client.close().await;
    });
}

/// CMAP-97.
#[test]
#[doc(alias = "CMAP-97")]
fn bad_certificate_is_named_by_checks_and_by_selection() {
    let fixture = Fixture::new();
    let good = CertificateRequest::server(&["127.0.0.1"]);
    let issue = |wanted: &CertificateRequest| ServerTls::new(fixture.root.issue(wanted).identity());
    let stranger = ServerTls::new(Holder::root("stranger").issue(&good).identity());
    let cases = [
        (issue(&good.clone().valid(Validity::Over)), CertificateFault::Expired, "has expired"),
        (issue(&good.clone().valid(Validity::Ahead)), CertificateFault::NotYetValid, "not valid yet"),
        (issue(&CertificateRequest::server(&["example.com"])), CertificateFault::WrongName, "not valid for the name"),
        (stranger, CertificateFault::UnknownIssuer, "issuer is not trusted"),
    ];
    for (tls, fault, text) in cases {
        run(async {
            let server = start(tls);
            let (error, cause) = refusal(fixture.options(&server, "")).await;
            assert_eq!(cause, Cause::Certificate(fault));
            assert!(error.contains("certificate refused") && error.contains(text), "{error}");

            let client = client(fixture.options(&server, "&tlsAllowInvalidCertificates=true"));
            assert_eq!(client.warnings(), [ClientWarning::Tls(TlsWarning::InvalidCertificates)]);
            ping(&client).await.expect("anything goes");
            client.close().await;
            let relaxed = fixture.options(&server, "&tlsAllowInvalidHostnames=true");
            if fault == CertificateFault::WrongName {
                let client = self::client(relaxed);
                assert_eq!(client.warnings(), [ClientWarning::Tls(TlsWarning::InvalidHostnames)]);
                ping(&client).await.expect("any name goes");
                client.close().await;
            } else {
                assert_eq!(refusal(relaxed).await.1, Cause::Certificate(fault));
            }
        });
    }
}

/// With TLS 1.3 the refusal arrives after the handshake.
#[test]
#[doc(alias = "CMAP-97")]
fn required_client_certificate_is_sent_or_its_refusal_named() {
    let fixture = Fixture::new();
    let ann = fixture.root.issue(&CertificateRequest::client("ann")).identity();
    let key = escaped(&fixture.folder.write("ann.pem", ann.pem()));
    for versions in [Versions::Tls12, Versions::Tls13] {
        run(async {
            let mut tls = fixture.tls();
            tls.versions = versions;
            tls.clients = Some(ClientCheck { authority: fixture.root.certificate(), required: true });
            let server = start(tls);
            let (error, cause) = refusal(fixture.options(&server, "")).await;
            assert_eq!(cause, Cause::Certificate(CertificateFault::RefusedByPeer), "{error}");
            let client = client(fixture.options(&server, &format!("&tlsCertificateKeyFile={key}")));
            ping(&client).await.expect("it is let in");
            client.close().await;
        });
    }
}

/// CMAP-98.
#[test]
#[doc(alias = "CMAP-98")]
fn interrupted_tls_handshake_is_classified_as_overload() {
    let fixture = Fixture::new();
    run(async {
        let server = fixture.server();
        let client = client(fixture.options(&server, ""));
        ping(&client).await.expect("a ping");
        let held = client.check_out().await.expect("the connection there is");
        server.inject(Fault::CloseOnAccept(Cut::Fin));
        let error = client.check_out().await.map(drop).expect_err("a second one cannot be made");
        let Some(CheckOutError::EstablishFailed { cause, overloaded }) = error.check_out() else { panic!("{error:?}") };
        assert_eq!((*cause, *overloaded), (Cause::Network, true));
        drop(held);
        client.close().await;
    });
}

#[test]
fn server_without_tls_receives_no_plain_text() {
    let fixture = Fixture::new();
    run(async {
        let server = FakeServer::start(FakeOptions::default()).expect("the fake server starts");
        let (error, cause) = refusal(fixture.options(&server, "")).await;
        assert!(matches!(cause, Cause::Network | Cause::Protocol), "{error}");
        assert_eq!(server.log(), []);
    });
}

#[cfg(unix)]
#[test]
fn unix_socket_uses_no_tls() {
    let fixture = Fixture::new();
    run(async {
        let mut options = FakeOptions::default();
        let path = fixture.folder.path().join("fake.sock");
        options.unix_path = Some(path.clone());
        let server = FakeServer::start(options).expect("the fake server starts");
        let uri = format!(
            "mongodb://{}/?tls=true&tlsCAFile={}",
            escaped(&path),
            escaped(&fixture.folder.path().join("ca.pem"))
        );
        let client = Client::new(&uri).await.expect("the string is right");
        ping(&client).await.expect("a ping");
        client.close().await;
        drop(server);
    });
}

#[test]
fn unusable_file_is_named_and_nothing_is_started() {
    let fixture = Fixture::new();
    run(async {
        let server = fixture.server();
        for (more, option) in [
            (
                "&tlsCertificateKeyFile=%2Fnowhere%2Fkey.pem&tlsCertificateKeyFilePassword=hunter2",
                "tlsCertificateKeyFile",
            ),
            ("&tlsCAFile=%2Fnowhere%2Fca.pem", "tlsCAFile"),
        ] {
            let error = Client::with_options(fixture.options(&server, more)).map(drop).expect_err("no such file");
            assert!(
                matches!(&error, Error::Setup(SetupError::Tls(TlsError::File { option: named, .. })) if *named == option),
                "{error:?}"
            );
            let text = format!("{error} {error:?}");
            assert!(text.contains("/nowhere/") && !text.contains("hunter2"), "{text}");
            assert!(!error.is_retryable() && !error.is_transient() && !error.is_timeout());
        }
        assert_eq!(server.accepted_count(), 0);
    });
}
