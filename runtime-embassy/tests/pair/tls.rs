//! The same client over TLS.

use super::net::{Net, run};
use super::support::{
    DropIt, Log, PATIENCE, Rig, Small, eventually, find, insert, options, ping, poll_times, seeds, server,
};
use core::time::Duration;
use poolhouse_embassy::poolhouse_core::{Cause, CertificateFault, ServerType};
use poolhouse_embassy::{
    Buffers, Client, Credential, MaxFragment, Options, Resources, SetupError, Sizes, TlsBuffers, TlsConfig,
    TlsIdentity, TlsOptions,
};
use poolhouse_tests::fake::{FakeOptions, FakeServer, FakeUser};
use poolhouse_tests::tls::{CertificateRequest, Holder, ServerTls};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// The address of the fake servers.
const HOST: &str = "127.0.0.1";

fn random(bytes: &mut [u8]) {
    use core::hash::{BuildHasher, Hasher};
    for chunk in bytes.chunks_mut(8) {
        let value = std::hash::RandomState::new().build_hasher().finish().to_le_bytes();
        chunk.copy_from_slice(&value[..chunk.len()]);
    }
}

fn clock() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("it is later").as_secs()
}

/// TLS options that trust this authority.
fn trust(authority: &Holder) -> TlsOptions {
    let der = CertificateDer::from_pem_slice(authority.certificate().as_bytes()).expect("a certificate");
    let authority: &'static [u8] = der.to_vec().leak();
    TlsOptions::new(vec![authority].leak(), clock)
}

fn secure_server(tls: ServerTls, users: Vec<FakeUser>) -> FakeServer {
    let mut options = if users.is_empty() { FakeOptions::default() } else { FakeOptions::with_users(users) };
    options.tls = Some(tls);
    FakeServer::start(options).expect("the fake server starts")
}

fn server_of(root: &Holder) -> FakeServer {
    secure_server(ServerTls::new(root.issue(&CertificateRequest::server(&[HOST])).identity()), Vec::new())
}

/// A client over TLS, in leaked memory.
fn secure(net: &Net, options: Options, tls: TlsOptions) -> Rig<Small> {
    let config = Box::leak(Box::new(options.validate().expect("the options are right")));
    let tls = Box::leak(Box::new(tls.validate().expect("the options are right")));
    let resources = Box::leak(Box::new(Resources::<Small>::new()));
    let buffers = Box::leak(Box::new(Buffers::new()));
    let records: &'static mut TlsBuffers<Small> = Box::leak(Box::new(TlsBuffers::new()));
    let log = Log::default();
    let (client, runner) =
        Client::with_tls(resources, buffers, records, net.stack, config, tls, log.clone()).expect("it can begin");
    let polls = net.spawn(async move { runner.run().await });
    Rig { client, log, polls }
}

fn options_of(server: &FakeServer) -> Options {
    Options { random: Some(random), ..options(server) }
}

#[test]
fn client_works_over_tls_as_without() {
    run(async |net| {
        let root = Holder::root("root");
        let server = server_of(&root);
        net.open_to(&server);
        let rig = secure(net, options_of(&server), trust(&root));
        rig.ping().await.expect("a ping");
        for id in 0..20 {
            insert(&rig.client, "telemetry", id).await.expect("an insert");
        }
        assert_eq!(find(&rig.client, "telemetry").await, Ok(0));
        rig.at_rest(&server, 1).await;
        rig.end(&[&server]).await;
    });
}

#[test]
fn client_with_tls_is_opened_again() {
    run(async |net| {
        let root = Holder::root("root");
        let server = server_of(&root);
        net.open_to(&server);
        let rig = secure(net, options_of(&server), trust(&root));
        for _ in 0..5 {
            rig.ping().await.expect("a ping");
            rig.client.close();
            rig.client.closed().await;
            assert_eq!(rig.sockets_away(), 0);
            rig.client.open().expect("it is closed");
        }
        rig.ping().await.expect("a ping");
        rig.end(&[&server]).await;
    });
}

#[test]
fn many_tasks_share_few_encrypted_connections() {
    run(async |net| {
        let root = Holder::root("root");
        let server = server_of(&root);
        net.open_to(&server);
        let rig = secure(net, options_of(&server), trust(&root));
        rig.known().await;
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let client = rig.client;
                net.spawn_task(async move {
                    for _ in 0..20 {
                        ping(&client).await.expect("a ping");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        assert_eq!(server.count_of("ping"), 160);
        rig.at_rest(&server, 1).await;
        rig.end(&[&server]).await;
    });
}

#[test]
fn user_is_authenticated_over_tls() {
    run(async |net| {
        let root = Holder::root("root");
        let tls = ServerTls::new(root.issue(&CertificateRequest::server(&[HOST])).identity());
        let server = secure_server(tls, vec![FakeUser::new("ada", "a pencil")]);
        net.open_to(&server);
        let credential = Some(Credential::new("ada", "a pencil"));
        let rig = secure(net, Options { credential, ..options_of(&server) }, trust(&root));
        insert(&rig.client, "telemetry", 7).await.expect("an insert");
        rig.end(&[&server]).await;
    });
}

/// The certificates of possible impostors; the rest of the table belongs to the tests of sessions.
#[test]
fn bad_certificate_is_refused_with_its_cause() {
    let root = Holder::root("root");
    let issue = |name: &str| ServerTls::new(root.issue(&CertificateRequest::server(&[name])).identity());
    let stranger = ServerTls::new(Holder::root("root").issue(&CertificateRequest::server(&[HOST])).identity());
    for (tls, fault) in [(issue("127.0.0.3"), CertificateFault::WrongName), (stranger, CertificateFault::UnknownIssuer)]
    {
        run(async |net| {
            let server = secure_server(tls, Vec::new());
            net.open_to(&server);
            let limit = Duration::from_millis(300);
            let options = Options { server_selection_timeout: limit, ..options_of(&server) };
            let rig = secure(net, options, trust(&root));
            eventually("a check fails", || !rig.log.heartbeat_failures().is_empty()).await;
            assert_eq!(rig.log.heartbeat_failures().first(), Some(&Cause::Certificate(fault)));
            assert_eq!(rig.server_type(), ServerType::Unknown);
            assert_eq!(server.count_of("hello"), 0, "nothing was said");
            rig.end(&[&server]).await;
        });
    }
}

#[test]
fn nothing_is_sent_unencrypted_to_a_server_without_tls() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let rig = secure(net, options_of(&server), trust(&Holder::root("root")));
        eventually("a check fails", || !rig.log.heartbeat_failures().is_empty()).await;
        assert_eq!(server.count_of("hello") + server.count_of("isMaster"), 0);
        rig.end(&[&server]).await;
    });
}

#[test]
fn client_recovers_from_a_restart_over_tls() {
    run(async |net| {
        let root = Holder::root("root");
        let server = server_of(&root);
        net.open_to(&server);
        let rig = secure(net, options_of(&server), trust(&root));
        for _ in 0..3 {
            rig.ping().await.expect("a ping");
            net.kill(&server);
            eventually("the connection is seen to be dead", || server.open_count() == 0).await;
            assert!(rig.ping().await.is_err());
            net.restart(&server);
            let begun = std::time::Instant::now();
            while rig.ping().await.is_err() {
                assert!(begun.elapsed() < PATIENCE, "it does not recover");
            }
        }
        rig.at_rest(&server, 1).await;
        rig.end(&[&server]).await;
    });
}

/// Dropped at every await: in handshakes, requests and replies.
#[test]
fn operation_dropped_at_any_poll_leaves_no_connection() {
    run(async |net| {
        let root = Holder::root("root");
        let server = server_of(&root);
        net.open_to(&server);
        let rig = secure(net, options_of(&server), trust(&root));
        rig.known().await;
        for drop_it in [DropIt::AtOnce, DropIt::WhenWoken] {
            for times in 1..12 {
                if let Some(outcome) = poll_times(rig.ping(), times, drop_it).await {
                    outcome.expect("a ping");
                }
                rig.ping().await.expect("the next ping");
            }
        }
        rig.at_rest(&server, 1).await;
        rig.end(&[&server]).await;
    });
}

#[test]
fn reply_of_many_pieces_is_read_whole() {
    run(async |net| {
        let root = Holder::root("root");
        let server = server_of(&root);
        net.open_to(&server);
        let rig = secure(net, options_of(&server), trust(&root));
        let text = "x".repeat(700);
        let mut reply = [0; 256];
        let insert = rig.client.run_command(
            "db",
            |writer| {
                writer.str("insert", "large")?;
                writer.array("documents", |documents| {
                    documents.document(|document| document.int32("_id", 7)?.str("text", &text).map(drop)).map(drop)
                })?;
                Ok(())
            },
            &mut reply,
        );
        insert.await.expect("an insert");
        let mut found = [0; 2048];
        let found = rig.client.run_command("db", |writer| writer.str("find", "large").map(drop), &mut found).await;
        let found = found.expect("a reply").as_bytes();
        assert!(found.windows(700).any(|window| window == text.as_bytes()));
        rig.end(&[&server]).await;
    });
}

#[test]
fn impossible_options_are_refused_at_once() {
    fn begin<const RECEIVE: usize, const SEND: usize>(net: &Net, options: Options, tls: TlsOptions) -> SetupError {
        type One = Sizes<1, 1, 1>;
        let config = Box::leak(Box::new(options.validate().expect("the options are right")));
        let tls: &'static TlsConfig = Box::leak(Box::new(tls.validate().expect("the options are right")));
        let resources = Box::leak(Box::new(Resources::<One>::new()));
        let buffers = Box::leak(Box::new(Buffers::new()));
        let records: &'static mut TlsBuffers<One, RECEIVE, SEND> = Box::leak(Box::new(TlsBuffers::new()));
        Client::with_tls(resources, buffers, records, net.stack, config, tls, ()).map(drop).expect_err("it cannot work")
    }
    run(async |net| {
        let root = Holder::root("root");
        let good = Options { seeds: seeds(&["127.0.0.1"]), random: Some(random), ..Options::DEFAULT };
        let without = Options { random: None, ..good };
        assert_eq!(begin::<16640, 1152>(net, without, trust(&root)), SetupError::NoRandom);
        let garbage = TlsOptions::new(&[&[0x30, 0]], clock);
        assert_eq!(begin::<16640, 1152>(net, good, garbage), SetupError::TlsCertificate);
        let keyless = trust(&root).identity(TlsIdentity { certificate: &[], key: &[1, 2, 3] });
        assert_eq!(begin::<16640, 1152>(net, good, keyless), SetupError::TlsCertificate);
        let fragments = trust(&root).max_fragment(MaxFragment::Bytes4096);
        assert_eq!(begin::<2048, 1152>(net, good, fragments), SetupError::TlsRecords);
    });
}
