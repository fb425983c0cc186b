//! TLS with a real server that accepts TLS only.

use core::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

use super::sleep;
use bson::doc;
use poolhouse_smol::poolhouse_core::monitor::MonitorEvent;
use poolhouse_smol::poolhouse_core::pool::CheckOutError;
use poolhouse_smol::poolhouse_core::{Cause, CertificateFault, ServerType};
use poolhouse_smol::poolhouse_driver::OperationError;
use poolhouse_smol::{Client, ClientOptions, Error, Event};
use poolhouse_tests::mongod::{
    Mongod, MongodError, MongodOptions, MongodReplicaSet, MongodReplicaSetOptions, MongodTls,
};
use poolhouse_tests::suite::Suite;
use poolhouse_tests::tls::{CertificateRequest, Folder, Holder, Validity};
use smol::unblock;

use super::{APP_NAME, Outcome, PATIENCE, counts_agree, eventually, next, run};

pub(super) fn cases(suite: Suite) -> Suite {
    suite
        .case("tls_carries_all_messages", || run(tls_carries_all_messages()))
        .case("tls_set_survives_an_election", || run(tls_set_survives_an_election()))
        .case("tls_certificate_of_another_host_is_named", || run(tls_certificate_of_another_host_is_named()))
        .case("tls_certificate_that_expires_is_named", || run(tls_certificate_that_expires_is_named()))
        .case("tls_client_certificate_is_accepted", || run(tls_client_certificate_is_accepted()))
        .case("tls_certificate_of_an_authority_is_accepted_where_it_is_trusted_itself", || {
            run(tls_certificate_of_an_authority_is_accepted_where_it_is_trusted_itself())
        })
        .case("tls_client_certificate_is_a_user", || run(tls_client_certificate_is_a_user()))
}

/// An authority, its certificate's file, and the server's.
pub(super) struct Pki {
    root: Holder,
    pub(super) folder: Folder,
}

impl Pki {
    pub(super) fn new() -> Self {
        let (root, folder) = (Holder::root("root"), Folder::new());
        folder.write("ca.pem", root.certificate());
        Self { root, folder }
    }

    /// Options of a server with this certificate.
    pub(super) fn server(&self, wanted: &CertificateRequest, allow_without_certificate: bool) -> MongodOptions {
        let tls = MongodTls {
            certificate_key_file: self.folder.write("server.pem", self.root.issue(wanted).identity().pem()),
            ca_file: Some(self.folder.path().join("ca.pem")),
            allow_without_certificate,
            required: true,
        };
        MongodOptions { tls: Some(tls), ..MongodOptions::default() }
    }

    pub(super) fn options(&self, uri: &str) -> Result<ClientOptions, Error> {
        let mut options = ClientOptions::parse(uri)?;
        options.tls.get_or_insert_default().ca_file = Some(self.folder.path().join("ca.pem"));
        options.app_name = Some(APP_NAME.to_owned());
        options.timeout = Some(PATIENCE);
        Ok(options)
    }
}

pub(super) fn here() -> CertificateRequest {
    CertificateRequest::server(&["127.0.0.1", "localhost"])
}

async fn start(options: MongodOptions) -> Result<Mongod, MongodError> {
    unblock(|| Mongod::start(options)).await
}

async fn ping(client: &Client) -> Result<(), Error> {
    client.run_command("admin", doc! { "ping": 1 }).await.map(drop)
}

async fn tls_carries_all_messages() -> Outcome {
    let pki = Pki::new();
    let mongod = start(pki.server(&here(), true)).await?;
    for uri in [mongod.uri(), mongod.uri().replace("127.0.0.1", "localhost")] {
        let client = Client::with_options(pki.options(&uri)?)?;
        ping(&client).await?;
        let payload = "x".repeat(5_000_000);
        let insert = doc! { "insert": "c", "documents": [{ "_id": uri.as_str(), "payload": payload.as_str() }] };
        client.run_command("db", insert).await?;
        let found = client.run_command("db", doc! { "find": "c", "filter": { "_id": uri.as_str() } }).await?;
        assert!(found.to_string().contains(&payload));
        // Connections for checks, round trips and operations.
        counts_agree(&mongod, &client, 2).await?;
        client.close().await;
        eventually("no connection is left", || Ok(mongod.other_connections()? == 0)).await?;
    }
    // A client without TLS cannot connect.
    let mut options = ClientOptions::parse(&mongod.uri())?;
    options.server_selection_timeout = Duration::from_millis(500);
    let client = Client::with_options(options)?;
    assert!(ping(&client).await.is_err());
    client.close().await;
    Ok(())
}

async fn tls_set_survives_an_election() -> Outcome {
    let pki = Pki::new();
    let options = MongodReplicaSetOptions { server: pki.server(&here(), true), ..MongodReplicaSetOptions::default() };
    let set = unblock(|| MongodReplicaSet::start_with(options)).await?;
    let client = Client::with_options(pki.options(&set.uri())?)?;
    let insert = || client.run_command("db", doc! { "insert": "c", "documents": [{}] });
    insert().await?;
    let of = |server_type| client.servers().iter().filter(|it| it.server_type == server_type).count();
    eventually("all members are known", || Ok(of(ServerType::RsPrimary) == 1 && of(ServerType::RsSecondary) == 2))
        .await?;
    let set = unblock(move || {
        let old = set.step_down(10)?;
        set.wait_for_other_primary(old, PATIENCE)?;
        Ok::<_, MongodError>(set)
    })
    .await?;
    insert().await?;
    client.close().await;
    drop(set);
    Ok(())
}

/// The error of the first check, and the text of the final selection error.
async fn refusal(mut options: ClientOptions) -> Result<(Cause, String), Box<dyn core::error::Error>> {
    options.server_selection_timeout = Duration::from_secs(1);
    let (client, mut events) = Client::new_subscribed(options)?;
    let failed = |event: &Event| matches!(event, Event::Heartbeat(MonitorEvent::HeartbeatFailed { .. }));
    let event = next(&mut events, "a check that fails", failed).await?;
    let Event::Heartbeat(MonitorEvent::HeartbeatFailed { cause, .. }) = event else { return Err("another".into()) };
    let error = ping(&client).await.err().ok_or("the authentication succeeded")?;
    assert!(matches!(error, Error::Operation(OperationError::ServerSelection(_), _)), "{error:?}");
    client.close().await;
    Ok((cause, error.to_string()))
}

async fn tls_certificate_of_another_host_is_named() -> Outcome {
    let pki = Pki::new();
    let mongod = start(pki.server(&CertificateRequest::server(&["db.example.com"]), true)).await?;
    let (cause, text) = refusal(pki.options(&mongod.uri())?).await?;
    assert_eq!(cause, Cause::Certificate(CertificateFault::WrongName));
    assert!(text.contains("not valid for the name"), "{text}");
    let stranger = Pki::new();
    let (cause, text) = refusal(stranger.options(&mongod.uri())?).await?;
    assert_eq!(cause, Cause::Certificate(CertificateFault::UnknownIssuer));
    assert!(text.contains("issuer is not trusted"), "{text}");
    let relaxed = format!("{}/?tlsAllowInvalidHostnames=true", mongod.uri());
    let client = Client::with_options(pki.options(&relaxed)?)?;
    ping(&client).await?;
    client.close().await;
    Ok(())
}

/// A mongod does not start with an expired certificate, so this one expires while the server runs.
async fn tls_certificate_that_expires_is_named() -> Outcome {
    let pki = Pki::new();
    let starting = async |seconds| {
        let validity = Validity::for_the_next(Duration::from_secs(seconds));
        start(pki.server(&here().valid(validity), true)).await.map(|mongod| (mongod, validity))
    };
    let (mongod, validity) = match starting(20).await {
        // On a busy machine the certificate may expire before the server or the harness reads it,
        // with the same result.
        Err(MongodError::Exited { .. } | MongodError::Timeout { .. }) => starting(60).await?,
        outcome => outcome?,
    };
    let Validity::Until(end) = validity else { return Err("the certificate has no end".into()) };
    // Plus one second for the fractions.
    while SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() <= end + 1 {
        sleep(Duration::from_millis(100)).await;
    }
    let (cause, text) = refusal(pki.options(&mongod.uri())?).await?;
    assert_eq!(cause, Cause::Certificate(CertificateFault::Expired));
    assert!(text.contains("it has expired"), "{text}");
    Ok(())
}

async fn tls_client_certificate_is_accepted() -> Outcome {
    let pki = Pki::new();
    let mongod = start(pki.server(&here(), false)).await?;
    // Without a certificate the connection is closed: this server requests one in the handshake,
    // and rejects its absence only afterwards.
    let (cause, text) = refusal(pki.options(&mongod.uri())?).await?;
    assert!(matches!(cause, Cause::Network | Cause::Certificate(_)), "{text}");
    let ann = CertificateRequest::client("ann");
    for identity in [pki.root.issue(&ann).identity(), pki.root.issue_version_1(&ann)] {
        let mut options = pki.options(&mongod.uri())?;
        let file = pki.folder.write("ann.pem", identity.pem());
        options.tls.get_or_insert_default().certificate_key_file = Some(file);
        let client = Client::with_options(options)?;
        ping(&client).await?;
        counts_agree(&mongod, &client, 2).await?;
        client.close().await;
        eventually("no connection is left", || Ok(mongod.other_connections()? == 0)).await?;
    }
    let mut options = pki.options(&mongod.uri())?;
    let stranger = Holder::root("stranger").issue(&CertificateRequest::client("ann"));
    let file = pki.folder.write("stranger.pem", stranger.identity().pem());
    options.tls.get_or_insert_default().certificate_key_file = Some(file);
    let (cause, text) = refusal(options).await?;
    assert!(matches!(cause, Cause::Network | Cause::Certificate(_)), "{text}");
    Ok(())
}

/// As `openssl req -x509` makes it.
async fn tls_certificate_of_an_authority_is_accepted_where_it_is_trusted_itself() -> Outcome {
    let pki = Pki::new();
    let own = Holder::self_signed(&CertificateRequest { is_authority: true, ..here() });
    let tls = MongodTls {
        certificate_key_file: pki.folder.write("server.pem", own.identity().pem()),
        ca_file: Some(pki.folder.write("own.pem", own.certificate())),
        allow_without_certificate: true,
        required: true,
    };
    let mongod = start(MongodOptions { tls: Some(tls), ..MongodOptions::default() }).await?;
    let mut options = pki.options(&mongod.uri())?;
    options.tls.get_or_insert_default().ca_file = Some(pki.folder.path().join("own.pem"));
    let client = Client::with_options(options)?;
    ping(&client).await?;
    client.close().await;
    let (cause, text) = refusal(pki.options(&mongod.uri())?).await?;
    assert_eq!(cause, Cause::Certificate(CertificateFault::Authority));
    assert!(text.contains("add this certificate itself to tlsCAFile"), "{text}");
    let old = start(MongodOptions {
        tls: Some(MongodTls {
            certificate_key_file: pki.folder.write("old.pem", pki.root.issue_version_1(&here()).pem()),
            ca_file: Some(pki.folder.path().join("ca.pem")),
            allow_without_certificate: true,
            required: true,
        }),
        ..MongodOptions::default()
    })
    .await?;
    let (cause, text) = refusal(pki.options(&old.uri())?).await?;
    assert_eq!(cause, Cause::Certificate(CertificateFault::Version1));
    assert!(text.contains("issue one with a subjectAltName"), "{text}");
    Ok(())
}

/// MONGODB-X509: the certificate determines the user, with and without a name in the connection
/// string.
async fn tls_client_certificate_is_a_user() -> Outcome {
    let pki = Pki::new();
    // Access control is off, which permits creating the user; a client that claims to be a user
    // must still authenticate.
    let mongod = start(pki.server(&here(), false)).await?;
    let ann = pki.root.issue(&CertificateRequest::client("ann"));
    let roles = doc! { "createUser": ann.subject(), "roles": [{ "role": "readWrite", "db": "db" }] };
    mongod.run_command_on("$external", roles)?;
    let name = ann.subject().replace(',', "%2C").replace('=', "%3D");
    for (user, holder, authenticates) in [
        (String::new(), &ann, true),
        (format!("{name}@"), &ann, true),
        (String::new(), &pki.root.issue(&CertificateRequest::client("bob")), false),
        ("CN%3Dcarl@".to_owned(), &ann, false),
    ] {
        let host = mongod.address();
        let mut options = pki.options(&format!("mongodb://{user}{host}/?authMechanism=MONGODB-X509&tls=true"))?;
        let file = pki.folder.write("client.pem", holder.identity().pem());
        options.tls.get_or_insert_default().certificate_key_file = Some(file);
        let client = Client::with_options(options)?;
        match client.run_command("db", doc! { "connectionStatus": 1 }).await {
            Ok(status) if authenticates => {
                let users = status.get_document("authInfo")?.get_array("authenticatedUsers")?;
                assert_eq!(users[..], [doc! { "user": ann.subject(), "db": "$external" }.into()], "{user}");
            }
            Err(error) if !authenticates => {
                let Some(CheckOutError::EstablishFailed { cause, overloaded }) = error.check_out() else {
                    return Err(format!("{user}: {error:?}").into());
                };
                assert_eq!((*cause, *overloaded), (Cause::Authentication, false), "{user}");
            }
            other => return Err(format!("{user}: {other:?}").into()),
        }
        client.close().await;
    }
    Ok(())
}
