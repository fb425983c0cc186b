//! Users of a genuine server with access control, and of a genuine set with a key file.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::sleep;
use bson::{Document, doc};
use poolhouse_smol::poolhouse_auth::{Credential, Mechanism};
use poolhouse_smol::poolhouse_core::Cause;
use poolhouse_smol::poolhouse_core::pool::CheckOutError;
use poolhouse_smol::poolhouse_driver::OperationError;
use poolhouse_smol::poolhouse_wire::AuthError;
use poolhouse_smol::{Client, ClientOptions, CommandOptions, Error, ServerMonitoringMode};
use poolhouse_tests::mongod::{Mongod, MongodOptions, MongodReplicaSet, MongodReplicaSetOptions};

use super::{Outcome, PATIENCE, refused};

/// The first user, created through the localhost exception.
pub(super) const ADA: Credential<'static> = Credential::new("ada", "pencil");

fn client(uri: &str, credential: Credential<'_>) -> Result<Client, Error> {
    let mut options = ClientOptions::parse(uri)?;
    options.timeout = Some(PATIENCE);
    options.credential = Some(credential.into());
    Client::with_options(options)
}

/// The user of the connection on the server: `database.user`.
pub(super) async fn authenticated_user(client: &Client) -> Result<String, Error> {
    let status = client.run_command("admin", doc! { "connectionStatus": 1 }).await?;
    let users = status.get_document("authInfo").and_then(|info| info.get_array("authenticatedUsers"));
    let users = users.map(Vec::as_slice).unwrap_or_default().iter().filter_map(|user| user.as_document());
    let names =
        users.map(|user| format!("{}.{}", user.get_str("db").unwrap_or("?"), user.get_str("user").unwrap_or("?")));
    Ok(names.collect::<Vec<_>>().join(" "))
}

fn start() -> Result<Mongod, Box<dyn core::error::Error>> {
    let mongod = Mongod::start(MongodOptions { args: vec!["--auth".into()], ..MongodOptions::default() })?;
    mongod.run_command(doc! { "createUser": "ada", "pwd": "pencil", "roles": ["root"] })?;
    Ok(mongod)
}

pub(super) async fn only_users_authenticate() -> Outcome {
    let mongod = start()?;
    let root = client(&mongod.uri(), ADA)?;
    for (database, name, password, mechanisms) in [
        ("admin", "old", "pencil", &["SCRAM-SHA-1"][..]),
        ("admin", "new", "pencil", &["SCRAM-SHA-256"]),
        ("people", "a=b,c@d", "p\u{e4}ss:/%", &["SCRAM-SHA-1", "SCRAM-SHA-256"]),
    ] {
        let user = doc! { "createUser": name, "pwd": password, "roles": [], "mechanisms": mechanisms.to_vec() };
        root.run_command(database, user).await?;
    }
    let at = |front: &str, rest: &str| format!("mongodb://{front}@{}/{rest}", mongod.address());
    for (uri, user) in [
        (at("ada:pencil", ""), "admin.ada"),
        (at("ada:pencil", "?authMechanism=SCRAM-SHA-1"), "admin.ada"),
        (at("ada:pencil", "?authMechanism=SCRAM-SHA-256"), "admin.ada"),
        (at("ada:pencil", "people?authSource=admin"), "admin.ada"),
        (at("old:pencil", ""), "admin.old"),
        (at("new:pencil", ""), "admin.new"),
        (at("a=b%2Cc%40d:p%C3%A4ss%3A%2F%25", "people"), "people.a=b,c@d"),
        (at("a=b%2Cc%40d:p%C3%A4ss%3A%2F%25", "?authSource=people&authMechanism=SCRAM-SHA-1"), "people.a=b,c@d"),
        (at("a=b%2Cc%40d:p%C3%A4ss%3A%2F%25", "?authSource=people&authMechanism=SCRAM-SHA-256"), "people.a=b,c@d"),
    ] {
        let client = Client::new(&uri).await?;
        let seen = authenticated_user(&client).await.map_err(|error| format!("{user}: {error}"))?;
        assert_eq!(seen, user, "{uri}");
        client.close().await;
    }
    for (uri, code) in [
        (at("ada:Pencil", ""), 18),
        (at("nobody:pencil", ""), 18),
        (at("ada:pencil", "people"), 18),
        (at("old:pencil", "?authMechanism=SCRAM-SHA-256"), 18),
        (at("new:pencil", "?authMechanism=SCRAM-SHA-1"), 18),
    ] {
        let client = Client::new(&uri).await?;
        let error = refused(authenticated_user(&client).await)?;
        let Error::Operation(OperationError::Authentication(failure), _) = &error else {
            return Err(format!("{uri}: {error:?}").into());
        };
        assert_eq!(failure.error, AuthError::Refused { code });
        assert_eq!(failure.message.as_deref(), Some("Authentication failed."));
        let established = CheckOutError::EstablishFailed { cause: Cause::Authentication, overloaded: false };
        assert_eq!(failure.check_out, established);
        client.close().await;
    }
    // With force, the password is sent; this server uses no directory.
    let mut plain = ClientOptions::parse(&mongod.uri())?;
    plain.credential = Some(ADA.mechanism(Mechanism::Plain).into());
    plain.allow_plain_without_tls = true;
    let error = refused(authenticated_user(&Client::with_options(plain)?).await)?;
    let Error::Operation(OperationError::Authentication(failure), _) = &error else {
        return Err(format!("PLAIN: {error:?}").into());
    };
    assert_eq!(failure.error, AuthError::Refused { code: 334 });
    // Without TLS no certificate identifies the client.
    let error = refused(authenticated_user(&client(&mongod.uri(), Credential::x509(None))?).await)?;
    assert!(matches!(error, Error::Operation(OperationError::Authentication(_), _)), "{error:?}");
    // A client without a user is refused what requires a user.
    let nobody = Client::new(&mongod.uri()).await?;
    let error = refused(nobody.run_command("admin", doc! { "listDatabases": 1 }).await)?;
    assert!(matches!(&error, Error::Command(error) if error.code == 13), "{error:?}");

    // Sixteen connections of one user at a time: all are authenticated as that user.
    let mut options = ClientOptions::parse(&mongod.uri())?;
    options.monitor.server_monitoring_mode = ServerMonitoringMode::Poll;
    options.credential = Some(ADA.into());
    options.pool.min_pool_size = 16;
    options.pool.max_pool_size = 16;
    let crowd = Client::with_options(options)?;
    let mut held = Vec::new();
    for _ in 0..16 {
        held.push(crowd.check_out().await?);
    }
    for connection in &mut held {
        connection.run_command("admin", doc! { "listDatabases": 1 }).await?;
    }
    drop(held);
    crowd.close().await;
    Ok(())
}

/// A key for authentication between the members of a set, readable only by its owner. Removed on
/// drop.
pub(super) struct KeyFile(PathBuf);

impl KeyFile {
    pub(super) fn create() -> std::io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("poolhouse-key-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        let this = Self(path);
        file.write_all(&b"poolhouse".repeat(12))?;
        Ok(this)
    }

    /// Arguments of a member.
    pub(super) fn args(&self) -> Vec<OsString> {
        vec!["--keyFile".into(), self.0.clone().into_os_string()]
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        // A file that cannot be removed does no harm.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The command that creates [`ADA`] on all three members.
pub(super) fn first_user() -> Document {
    let everywhere = doc! { "w": 3, "wtimeout": 30_000 };
    doc! { "createUser": "ada", "pwd": "pencil", "roles": ["root"], "writeConcern": everywhere }
}

/// Inserts during an election: retries after every error except a refusal of the user.
pub(super) async fn insert(client: &Client) -> Outcome {
    let begun = Instant::now();
    loop {
        let insert = doc! { "insert": "c", "documents": [{}] };
        match client.run_command_with("db", insert, CommandOptions::new().idempotent(true)).await {
            Ok(_) => return Ok(()),
            Err(error @ Error::Operation(OperationError::Authentication(_), _)) => return Err(error.into()),
            Err(error) if begun.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => {}
        }
        sleep(Duration::from_millis(50)).await;
    }
}

pub(super) async fn members_of_a_set_know_the_user() -> Outcome {
    let key = KeyFile::create()?;
    let server = MongodOptions { args: key.args(), ..MongodOptions::default() };
    let set = MongodReplicaSet::start_with(MongodReplicaSetOptions { server, ..MongodReplicaSetOptions::default() })?;
    let primary = set.wait_for_primary(PATIENCE)?;
    set.member(primary).run_command(first_user())?;

    let client = client(&set.uri(), ADA)?;
    assert_eq!(authenticated_user(&client).await?, "admin.ada");
    client.run_command("db", doc! { "insert": "c", "documents": [{ "_id": 1 }] }).await?;
    // During an election: every primary has the user.
    let stepped = client.run_command("admin", doc! { "replSetStepDown": 15, "secondaryCatchUpPeriodSecs": 10 }).await;
    assert!(stepped.is_ok(), "{stepped:?}");
    insert(&client).await?;
    assert_eq!(authenticated_user(&client).await?, "admin.ada");
    client.close().await;

    let mut wrong = ClientOptions::parse(&set.uri())?;
    wrong.credential = Some(Credential::new("ada", "Pencil").into());
    let wrong = Client::with_options(wrong)?;
    let error = refused(authenticated_user(&wrong).await)?;
    assert!(matches!(error, Error::Operation(OperationError::Authentication(_), _)), "{error:?}");
    wrong.close().await;
    Ok(())
}
