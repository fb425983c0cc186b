//! A genuine set that requires both TLS and users.

use core::time::Duration;

use bson::doc;
use poolhouse_smol::poolhouse_auth::{Credential, Mechanism, ScramMechanism};
use poolhouse_smol::poolhouse_core::ServerType;
use poolhouse_smol::poolhouse_driver::OperationError;
use poolhouse_smol::poolhouse_wire::AuthError;
use poolhouse_smol::{Client, ClientOptions, Error, ReadMode, ReadPreference, ServerStatus};
use poolhouse_tests::mongod::{MongodError, MongodReplicaSet};
use smol::unblock;

use super::authentication::{ADA, KeyFile, authenticated_user, first_user, insert};
use super::replica_set::{SETTLING, of_three};
use super::tls::{Pki, here};
use super::{Outcome, eventually, refused};

const SHA_1: Mechanism = Mechanism::Scram(ScramMechanism::Sha1);
const SHA_256: Mechanism = Mechanism::Scram(ScramMechanism::Sha256);
/// Mechanisms, named by the user or negotiated.
const MECHANISMS: [Option<Mechanism>; 3] = [None, Some(SHA_1), Some(SHA_256)];

struct Deployment {
    pki: Pki,
    set: MongodReplicaSet,
    /// Kept as long as the members run.
    _key: KeyFile,
}

impl Deployment {
    async fn start() -> Result<Self, Box<dyn core::error::Error>> {
        let (pki, key) = (Pki::new(), KeyFile::create()?);
        let mut server = pki.server(&here(), true);
        server.args = key.args();
        let set = unblock(|| {
            let set = MongodReplicaSet::start_with(of_three(server))?;
            let primary = set.wait_for_primary(SETTLING)?;
            set.member(primary).run_command(first_user())?;
            Ok::<_, MongodError>(set)
        })
        .await?;
        Ok(Self { pki, set, _key: key })
    }

    fn options(&self, credential: Credential<'_>) -> Result<ClientOptions, Error> {
        let mut options = self.pki.options(&self.set.uri())?;
        options.monitor.heartbeat_frequency = Duration::from_millis(500);
        options.credential = Some(credential.into());
        Ok(options)
    }

    /// A client with a connection to every member in its pools.
    fn client(&self, credential: Credential<'_>) -> Result<Client, Error> {
        let mut options = self.options(credential)?;
        options.pool.min_pool_size = 1;
        Client::with_options(options)
    }

    /// Waits until a client knows the state of every member, and has a connection to each:
    /// encrypted, and of its user.
    async fn connected(&self, client: &Client) -> Outcome {
        eventually("every member is connected", || {
            let servers = client.servers();
            let of =
                |wanted| servers.iter().filter(|it| it.server_type == wanted && it.pool.counts.available > 0).count();
            Ok(of(ServerType::RsPrimary) == 1 && of(ServerType::RsSecondary) == 2)
        })
        .await
    }
}

fn with(credential: Credential<'_>, mechanism: Option<Mechanism>) -> Credential<'_> {
    match mechanism {
        Some(mechanism) => credential.mechanism(mechanism),
        None => credential,
    }
}

/// The primary's count of successful authentications by this mechanism.
async fn let_in(root: &Client, mechanism: Mechanism) -> Result<i64, Box<dyn core::error::Error>> {
    let status = root.run_command("admin", doc! { "serverStatus": 1 }).await?;
    let security = status.get_document("security")?.get_document("authentication")?.get_document("mechanisms")?;
    Ok(security.get_document(mechanism.name())?.get_document("authenticate")?.get_i64("successful")?)
}

pub(super) async fn survives_faults() -> Outcome {
    let mut deployment = Deployment::start().await?;
    let root = deployment.client(ADA)?;
    for (name, mechanism) in [("old", "SCRAM-SHA-1"), ("new", "SCRAM-SHA-256")] {
        let everywhere = doc! { "w": 3, "wtimeout": 30_000 };
        let user = doc! { "createUser": name, "pwd": "pencil", "roles": [], "mechanisms": [mechanism] };
        root.run_command("admin", user.into_iter().chain([("writeConcern".into(), everywhere.into())]).collect())
            .await?;
    }
    // The server's counters show the used mechanism: the named one, and the negotiated one for
    // clients that name none.
    let mut clients = Vec::new();
    for (name, mechanism, used) in [
        ("ada", None, SHA_256),
        ("ada", Some(SHA_1), SHA_1),
        ("ada", Some(SHA_256), SHA_256),
        ("old", None, SHA_1),
        ("new", None, SHA_256),
    ] {
        let before = let_in(&root, used).await?;
        let client = deployment.client(with(Credential::new(name, "pencil"), mechanism))?;
        assert_eq!(authenticated_user(&client).await?, format!("admin.{name}"), "{mechanism:?}");
        assert!(let_in(&root, used).await? > before, "{name}, {mechanism:?}: not by {used:?}");
        if name == "ada" {
            deployment.connected(&client).await?;
            clients.push(client);
        } else {
            client.close().await;
        }
    }
    only_users_authenticate(&deployment).await?;

    // The next primary accepts writes of all clients.
    let stepping = deployment.set.wait_for_primary(SETTLING)?;
    root.run_command("admin", doc! { "replSetStepDown": 15, "secondaryCatchUpPeriodSecs": 10 }).await?;
    deployment.set.wait_for_other_primary(stepping, SETTLING)?;
    for client in &clients {
        insert(client).await?;
        assert_eq!(authenticated_user(client).await?, "admin.ada");
        deployment.connected(client).await?;
    }

    // A killed member loses every connection: checks and pools reconnect by TLS, and the pools
    // authenticate again.
    let killed = deployment.set.wait_for_primary(SETTLING)?;
    let address = deployment.set.member(killed).address().to_string();
    deployment.set.kill9(killed)?;
    for client in &clients {
        insert(client).await?;
        eventually("its pool is cleared", || {
            let gone = |it: &ServerStatus| it.address == address && it.pool.generation > 0;
            Ok(client.servers().iter().any(|it| gone(it) && it.server_type == ServerType::Unknown))
        })
        .await?;
    }
    only_users_authenticate(&deployment).await?;
    let deployment = unblock(move || {
        deployment.set.restart(killed)?;
        Ok::<_, MongodError>(deployment)
    })
    .await?;
    for client in &clients {
        deployment.connected(client).await?;
        let mut secondary = client.check_out_preferring(ReadPreference::of(ReadMode::Secondary)).await?;
        let status = secondary.run_command("admin", doc! { "connectionStatus": 1 }).await?;
        let users = status.get_document("authInfo")?.get_array("authenticatedUsers")?;
        assert_eq!(users[..], [doc! { "user": "ada", "db": "admin" }.into()]);
    }
    for client in clients.into_iter().chain([root]) {
        client.close().await;
    }
    Ok(())
}

/// The password decides, with every mechanism, and a client without a user may do nothing.
async fn only_users_authenticate(deployment: &Deployment) -> Outcome {
    for mechanism in MECHANISMS {
        // Its pool establishes nothing in the background, which would fail and clear it before any
        // command.
        let wrong = Client::with_options(deployment.options(with(Credential::new("ada", "Pencil"), mechanism))?)?;
        let error = refused(authenticated_user(&wrong).await)?;
        let Error::Operation(OperationError::Authentication(failure), _) = &error else {
            return Err(format!("{mechanism:?}: {error:?}").into());
        };
        assert_eq!(failure.error, AuthError::Refused { code: 18 }, "{mechanism:?}");
        wrong.close().await;
    }
    let nobody = Client::with_options(deployment.pki.options(&deployment.set.uri())?)?;
    let error = refused(nobody.run_command("admin", doc! { "listDatabases": 1 }).await)?;
    assert!(matches!(&error, Error::Command(error) if error.code == 13), "{error:?}");
    nobody.close().await;
    Ok(())
}
