//! Authentication of the client on smol, against the fake server: accepted and refused users, and
//! the resulting events and errors.
#![cfg(feature = "auth")]

extern crate alloc;

#[path = "client/support.rs"]
#[expect(dead_code, reason = "shared with the tests of the client")]
mod support;

use core::time::Duration;
use poolhouse_smol::poolhouse_auth::{Credential, ITERATIONS_MAX, Mechanism};
use poolhouse_smol::poolhouse_core::Cause;
use poolhouse_smol::poolhouse_core::pool::{CheckOutError, PoolState};
use poolhouse_smol::poolhouse_driver::{LoginFailure, OperationError};
#[cfg(feature = "compression")]
use poolhouse_smol::poolhouse_uri::Compressor;
use poolhouse_smol::poolhouse_wire::AuthError;
use poolhouse_smol::{Client, ClientOptions, CommandOptions, Error, ServerMonitoringMode, SetupError};
#[cfg(feature = "compression")]
use poolhouse_tests::fake::ReplyCompression;
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};
use poolhouse_tests::fake::{FailPoint, FailPointMode, FakeOptions, FakeServer, FakeUser, Fault, FaultRule, ScramLie};
use support::{PATIENCE, Watch, eventually, refused, run};

const PASSWORD: &str = "pencil of gr\u{e4}phite";

fn users() -> FakeOptions {
    FakeOptions::with_users(vec![
        FakeUser::new("ada", PASSWORD),
        FakeUser::new("a=b,c@d/e", "p@ss:w/rd%").with_source("people"),
        FakeUser::new("old", PASSWORD).with_mechanisms(&["SCRAM-SHA-1"]),
        FakeUser::new("new", PASSWORD).with_mechanisms(&["SCRAM-SHA-256"]),
        FakeUser::new("ldap", PASSWORD).with_mechanisms(&["PLAIN"]).with_source("$external"),
    ])
}

fn server() -> FakeServer {
    FakeServer::start(users()).expect("the fake server starts")
}

/// Options with a polling monitor: one connection and one hello in addition to the pool's.
fn options(server: &FakeServer) -> ClientOptions {
    support::options(server)
}

fn with(server: &FakeServer, credential: Credential<'_>) -> ClientOptions {
    let mut options = options(server);
    options.credential = Some(credential.into());
    options
}

/// Options of a connection string, with the same monitor.
fn parsed(uri: &str) -> Result<ClientOptions, Error> {
    let mut options = ClientOptions::parse(uri)?;
    options.monitor.server_monitoring_mode = ServerMonitoringMode::Poll;
    options.timeout = Some(PATIENCE);
    Ok(options)
}

/// Runs a command that requires authentication.
async fn list(client: &Client) -> Result<(), Error> {
    client.check_out().await?.run_command("admin", bson::doc! { "listDatabases": 1 }).await.map(drop)
}

/// The users on the server's open connections.
fn seen(server: &FakeServer) -> Vec<String> {
    server.look(|view| view.open().flat_map(|open| view.users_on(open.id).to_vec()).collect())
}

fn failure(error: &Error) -> LoginFailure {
    let Error::Operation(OperationError::Authentication(failure), _) = error else {
        panic!("no login failed: {error:?}")
    };
    (**failure).clone()
}

#[test]
fn every_user_is_authenticated_by_each_of_its_mechanisms() {
    run(async {
        let server = server();
        let ada = Credential::new("ada", PASSWORD);
        let people = Credential::new("a=b,c@d/e", "p@ss:w/rd%").source("people");
        for (credential, user) in [
            (ada, "admin.ada"),
            (ada.mechanism(Mechanism::SCRAM_SHA_1), "admin.ada"),
            (ada.mechanism(Mechanism::SCRAM_SHA_256), "admin.ada"),
            (Credential::new("old", PASSWORD), "admin.old"),
            (Credential::new("new", PASSWORD), "admin.new"),
            (people, "people.a=b,c@d/e"),
        ] {
            let client = Client::with_options(with(&server, credential)).expect("can be used");
            list(&client).await.expect("gets in");
            list(&client).await.expect("is in");
            assert_eq!(seen(&server), [user], "{credential:?}");
            client.close().await;
            eventually("it hangs up", || server.open_count() == 0).await;
        }
        // A conversation that begins with hello needs one more command.
        let (starts, goes_on) = (server.count_of("saslStart"), server.count_of("saslContinue"));
        let client = Client::with_options(with(&server, ada)).expect("can be used");
        list(&client).await.expect("gets in");
        assert_eq!((server.count_of("saslStart"), server.count_of("saslContinue")), (starts, goes_on + 1));
    });
}

#[test]
fn connection_strings_contain_the_credential() {
    run(async {
        let server = server();
        let password = "pencil%20of%20gr%C3%A4phite";
        let at = |front: &str, rest: &str| format!("mongodb://{front}@{}/{rest}", server.address());
        for (uri, user) in [
            (at(&format!("ada:{password}"), ""), "admin.ada"),
            (at(&format!("ada:{password}"), "?authMechanism=SCRAM-SHA-1"), "admin.ada"),
            (at(&format!("ada:{password}"), "somewhere?authSource=admin&authMechanism=SCRAM-SHA-256"), "admin.ada"),
            (at("a=b%2Cc%40d%2Fe:p%40ss%3Aw%2Frd%25", "people"), "people.a=b,c@d/e"),
            (at("a=b%2Cc%40d%2Fe:p%40ss%3Aw%2Frd%25", "?authSource=people"), "people.a=b,c@d/e"),
        ] {
            let client = Client::with_options(parsed(&uri).expect("it is right")).expect("can be used");
            list(&client).await.expect("gets in");
            assert_eq!(seen(&server), [user], "{uri}");
            client.close().await;
            eventually("it hangs up", || server.open_count() == 0).await;
        }
    });
}

#[test]
fn unusable_credential_is_refused_before_a_task_is_started() {
    let server = server();
    let refused_by = |front: &str, rest: &str| {
        let made = parsed(&format!("mongodb://{front}{}/{rest}", server.address())).and_then(Client::with_options);
        refused(made.map(|_| ()))
    };
    let unsupported = |name: &str, error: &Error| {
        assert!(
            matches!(error, Error::Setup(SetupError::Credential(AuthError::MechanismUnsupported { .. }))),
            "{error:?}"
        );
        assert_eq!(error.to_string(), format!("the mechanism {name} is not supported"));
    };
    unsupported("GSSAPI", &refused_by("ada%40realm@", "?authMechanism=GSSAPI"));
    unsupported("MONGODB-AWS", &refused_by("", "?authMechanism=MONGODB-AWS"));
    let oidc = "?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:k8s";
    unsupported("MONGODB-OIDC", &refused_by("", oidc));
    assert!(matches!(refused_by("ada@", ""), Error::Setup(SetupError::Credential(AuthError::PasswordMissing))));
    assert!(matches!(refused_by("ada:@", ""), Error::Setup(SetupError::Credential(AuthError::PasswordMissing))));
    let error = refused_by("ada:s3cret@", "?authMechanism=PLAIN");
    assert!(matches!(error, Error::Setup(SetupError::Credential(AuthError::PlainWithoutTls))), "{error:?}");
    assert!(matches!(refused_by("ada:s3cret@", "?authMechanism=MONGODB-X509"), Error::Setup(SetupError::Uri(_))));
    let forbidden = Credential::new("ada", "\u{7}").mechanism(Mechanism::SCRAM_SHA_256);
    let made = refused(Client::with_options(with(&server, forbidden)).map(|_| ()));
    assert!(matches!(made, Error::Setup(SetupError::Credential(AuthError::PasswordProhibited))), "{made:?}");
    assert_eq!(server.accepted_count(), 0);
}

/// The pool is cleared, and the server is Unknown until the next check; the error contains
/// the server's message.
#[test]
#[doc(alias = "SDAM-75")]
fn wrong_credentials_are_refused() {
    run(async {
        let server = server();
        let wrong = [
            Credential::new("ada", "another pencil"),
            Credential::new("nobody", PASSWORD),
            Credential::new("ada", PASSWORD).source("people"),
            Credential::new("old", PASSWORD).mechanism(Mechanism::SCRAM_SHA_256),
            Credential::new("new", PASSWORD).mechanism(Mechanism::SCRAM_SHA_1),
        ];
        for credential in wrong {
            let client = Client::with_options(with(&server, credential)).expect("can be used");
            let error = refused(list(&client).await);
            let failure = failure(&error);
            assert_eq!(failure.error, AuthError::Refused { code: 18 });
            assert_eq!(failure.message.as_deref(), Some("Authentication failed."));
            let established = CheckOutError::EstablishFailed { cause: Cause::Authentication, overloaded: false };
            assert_eq!((failure.check_out, error.check_out()), (established, Some(&established)));
            assert!(!error.is_retryable() && !error.is_transient() && !error.is_timeout());
            let pool = client.servers()[0].pool;
            assert!(pool.generation >= 1, "{pool:?}");
            client.close().await;
        }
        // Without a credential the connection is established, but commands on it are refused.
        let client = Client::with_options(options(&server)).expect("nobody");
        let Error::Command(error) = refused(list(&client).await) else { panic!("the command is refused") };
        assert_eq!(error.code, 13);
    });
}

/// After a refusal, the same client authenticates as soon as the server accepts it.
#[test]
fn server_with_a_wrong_signature_is_refused() {
    run(async {
        let server = server();
        let mut options = with(&server, Credential::new("ada", PASSWORD));
        options.monitor.heartbeat_frequency = Duration::from_millis(500);
        let client = Client::with_options(options).expect("can be used");
        for (lie, error) in [
            (ScramLie::Nonce, AuthError::ServerNonce),
            (ScramLie::Signature, AuthError::ServerSignature),
            (ScramLie::Garbage, AuthError::AttributeMalformed { name: None }),
            (ScramLie::Iterations(4095), AuthError::IterationsTooFew { found: 4095 }),
            (ScramLie::Iterations(0), AuthError::IterationsTooFew { found: 0 }),
            (ScramLie::Iterations(u32::MAX), AuthError::IterationsTooMany { max: ITERATIONS_MAX }),
        ] {
            server.set_scram_lie(Some(lie));
            let failure = failure(&refused(list(&client).await));
            assert_eq!((failure.error, failure.message), (error, None), "{lie:?}");
        }
        assert!(seen(&server).is_empty(), "no connection is left on which a lie was told");
        server.set_scram_lie(None);
        list(&client).await.expect("honest again");
    });
}

/// PLAIN sends the password unencrypted: only on a private connection, or when it is forced.
#[test]
fn plain_requires_a_private_connection_or_an_option() {
    run(async {
        let ldap = Credential::new("ldap", PASSWORD).mechanism(Mechanism::Plain);
        let server = server();
        let made = refused(Client::with_options(with(&server, ldap)).map(|_| ()));
        assert!(matches!(made, Error::Setup(SetupError::Credential(AuthError::PlainWithoutTls))));
        let mut forced = with(&server, ldap);
        forced.allow_plain_without_tls = true;
        let client = Client::with_options(forced).expect("forced");
        list(&client).await.expect("gets in");
        assert_eq!(seen(&server), ["$external.ldap"]);
        let mut wrong = with(&server, Credential { password: Some("another pencil"), ..ldap });
        wrong.allow_plain_without_tls = true;
        let client = Client::with_options(wrong).expect("forced");
        assert_eq!(failure(&refused(list(&client).await)).error, AuthError::Refused { code: 18 });
    });
}

#[cfg(unix)]
#[test]
fn unix_sockets_are_private() {
    run(async {
        let path =
            std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("auth-{}.sock", std::process::id()));
        let mut fake = users();
        fake.unix_path = Some(path.clone());
        let server = FakeServer::start(fake).expect("the fake server starts");
        let mut options = with(&server, Credential::new("ldap", PASSWORD).mechanism(Mechanism::Plain));
        options.hosts = vec![path.to_str().expect("text").to_owned()];
        let client = Client::with_options(options).expect("private");
        list(&client).await.expect("gets in");
        assert_eq!(seen(&server), ["$external.ldap"]);
    });
}

/// A connection that is lost in authentication is no sign of overload: the pool
/// is cleared.
#[test]
#[doc(alias("CMAP-96", "SDAM-69"))]
fn connection_lost_in_authentication_clears_the_pool() {
    run(async {
        let server = server();
        let client = Client::with_options(with(&server, Credential::new("ada", PASSWORD))).expect("can be used");
        eventually("it is known", || {
            client.servers().first().is_some_and(|server| server.pool.state == PoolState::Ready)
        })
        .await;
        server.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["saslContinue"]).close());
        let error = refused(list(&client).await);
        let lost = CheckOutError::EstablishFailed { cause: Cause::Network, overloaded: false };
        assert_eq!(error.check_out(), Some(&lost));
        assert!(error.is_retryable(), "nothing was asked of the server yet");
        eventually("it is cleared", || client.servers().first().is_some_and(|server| server.pool.generation == 1))
            .await;
        list(&client).await.expect("once more");

        // A code that does not concern credentials keeps its meaning, and the error keeps the
        // server's message.
        client.close().await;
        let client = Client::with_options(with(&server, Credential::new("ada", PASSWORD))).expect("can be used");
        server.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["saslContinue"]).error(91));
        let error = refused(list(&client).await);
        let failed = CheckOutError::EstablishFailed { cause: Cause::Command { code: 91 }, overloaded: false };
        let failure = failure(&error);
        assert_eq!((failure.check_out, failure.error), (failed, AuthError::Refused { code: 91 }));
        assert!(error.is_retryable());
    });
}

/// The error marks the server Unknown. The next operation requests a new check,
/// which finds the server again. It does not wait for the check in flight, which the server answers
/// only after heartbeatFrequencyMS.
#[test]
#[doc(alias("SDAM-69", "SDAM-75"))]
fn authentication_error_does_not_delay_the_next_operation() {
    run(async {
        let server = server();
        let mut options = with(&server, Credential::new("ada", PASSWORD));
        options.monitor.server_monitoring_mode = ServerMonitoringMode::Stream;
        let client = Client::with_options(options).expect("can be used");
        eventually("the monitor streams", || server.look(|view| view.exhausting_count() == 1)).await;
        server.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["saslContinue"]).error(18));
        refused(list(&client).await);
        // The interval of checks is so long that the check in flight would not be answered within
        // the time of this operation.
        list(&client).await.expect("the operation authenticates");
    });
}

/// Old servers compress every reply, including those of authentication; requests of authentication
/// are never compressed.
#[cfg(feature = "compression")]
#[test]
fn compressed_replies_are_accepted_in_authentication() {
    run(async {
        let mut fake = users();
        fake.state.reply_compression = ReplyCompression::Always;
        let server = FakeServer::start(fake).expect("the fake server starts");
        for password in [PASSWORD, "another pencil"] {
            let mut options = with(&server, Credential::new("ada", password));
            options.compressors = [Compressor::Zlib].into_iter().collect();
            let client = Client::with_options(options).expect("can be used");
            match list(&client).await {
                Ok(()) => assert_eq!((password, &seen(&server)[..]), (PASSWORD, &["admin.ada".to_owned()][..])),
                Err(error) => {
                    let failure = failure(&error);
                    assert_eq!(failure.error, AuthError::Refused { code: 18 });
                    assert_eq!(failure.message.as_deref(), Some("Authentication failed."));
                    assert_ne!(password, PASSWORD);
                }
            }
            client.close().await;
        }
    });
}

/// Monitors do not send users, and need none.
#[test]
#[doc(alias = "MON-12")]
fn monitors_do_not_authenticate() {
    run(async {
        let server = server();
        let mut options = with(&server, Credential::new("ada", PASSWORD));
        options.monitor.server_monitoring_mode = ServerMonitoringMode::Stream;
        options.monitor.heartbeat_frequency = Duration::from_millis(500);
        let client = Client::with_options(options).expect("can be used");
        list(&client).await.expect("gets in");
        // Two connections of the monitor and one of the pool.
        eventually("all three are there", || server.open_count() == 3).await;
        eventually("both were greeted", || server.look(|view| view.open().all(|open| open.hellos_count > 0))).await;
        let authenticated: Vec<u64> =
            server.look(|view| view.open().map(|open| open.id).filter(|id| !view.users_on(*id).is_empty()).collect());
        let [pooled] = authenticated[..] else { panic!("one connection: {authenticated:?}") };
        let mut greetings = 0;
        for received in server.log() {
            let body = received.body.unwrap_or_default();
            let speaks = body.contains_key("saslSupportedMechs") || body.contains_key("speculativeAuthenticate");
            let greets = ["hello", "isMaster", "ismaster"].contains(&received.name.as_str());
            assert!(received.connection == pooled || greets && !speaks, "{}: {body}", received.name);
            greetings += usize::from(greets && received.connection != pooled);
        }
        assert!(greetings >= 2, "both connections of the monitor were looked at");
    });
}

#[test]
fn client_authenticates_to_each_member_of_a_set() {
    run(async {
        let mut set = FakeReplicaSetOptions::of(3);
        set.server = users();
        let set = FakeReplicaSet::start(set).expect("the set starts");
        let uri = set.uri().replace("mongodb://", "mongodb://new:pencil%20of%20gr%C3%A4phite@");
        let client = Client::with_options(parsed(&uri).expect("it is right")).expect("can be used");
        let primary = set.primary().expect("there is one");
        list(&client).await.expect("gets in");
        assert_eq!(seen(&set.server(primary)), ["admin.new"]);
        let next = set.fail_over().expect("elected");
        let again = CommandOptions::new().idempotent(true);
        let listed = client.run_command_with("admin", bson::doc! { "listDatabases": 1 }, again).await;
        listed.expect("gets in at the next one");
        assert_eq!(seen(&set.server(next)), ["admin.new"]);
    });
}

/// Checks all output of a client, in success and failure: events, errors, and the `Debug` text of
/// the client and its options.
#[test]
fn no_output_of_a_client_contains_a_secret() {
    run(async {
        let server = server();
        let mut told = Vec::new();
        let mut tell = |thing: &dyn core::fmt::Debug| told.extend([format!("{thing:?}"), format!("{thing:#?}")]);
        for (mechanism, password) in [
            (None, PASSWORD),
            (None, "another pencil of gr\u{e4}phite"),
            (Some(Mechanism::SCRAM_SHA_1), PASSWORD),
            (Some(Mechanism::Plain), PASSWORD),
            (Some(Mechanism::Plain), "another pencil of gr\u{e4}phite"),
        ] {
            let user = if mechanism == Some(Mechanism::Plain) { "ldap" } else { "ada" };
            let mut options = with(&server, Credential { mechanism, ..Credential::new(user, password) });
            options.allow_plain_without_tls = true;
            tell(&options);
            let (client, subscription) = Client::new_subscribed(options).expect("can be used");
            let mut watch = Watch::over(subscription);
            for lie in [Some(ScramLie::Signature), None] {
                server.set_scram_lie(lie);
                if let Err(error) = list(&client).await {
                    tell(&error.to_string());
                    tell(&error);
                }
                tell(&client);
                tell(client.core());
                tell(client.core().config());
            }
            if let Ok(mut connection) = client.check_out().await {
                tell(&connection);
                tell(&connection.raw());
            }
            client.close().await;
            for event in watch.read_to_the_end().await {
                tell(event);
            }
        }
        let uri = format!("mongodb://ada:pencil%20of%20gr%C3%A4phite@{}/?authMechanism=PLAIN", server.address());
        tell(&ClientOptions::parse(&uri).expect("it is right"));
        tell(&refused(Client::new(&uri).await.map(|_| ())));
        tell(&refused(ClientOptions::parse(&uri.replace("PLAIN", "PALIN"))));

        let mut secrets = vec!["pencil".to_owned(), "phite".to_owned()];
        for received in server.log() {
            let body = received.body.unwrap_or_default();
            let spoken = body.get_document("speculativeAuthenticate").unwrap_or(&body);
            if let Ok(payload) = spoken.get_binary_generic("payload") {
                let text = String::from_utf8_lossy(payload).into_owned();
                // Nonces and proofs.
                let parts = text.split(['\0', ',']).filter_map(|part| part.split_once('=').map(|(_, value)| value));
                secrets.extend(parts.filter(|value| value.len() > 16).map(str::to_owned));
                secrets.push(format!("{:?}", &payload[..payload.len().min(8)]).trim_matches(['[', ']']).to_owned());
            }
        }
        assert!(secrets.len() > 20, "the server has seen some: {}", secrets.len());
        assert!(told.len() > 100 && told.iter().any(|text| text.contains("ConnectionCheckOutFailed")));
        for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
            for text in &told {
                let squeezed: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(!text.contains(secret.as_str()) && !squeezed.contains(secret.as_str()), "{secret} in {text}");
            }
        }
    });
}

/// A client without `connectTimeoutMS`, after it has found its server.
async fn unhurried(server: &FakeServer, limit: &str) -> Client {
    let password = "pencil%20of%20gr%C3%A4phite";
    let uri = format!("mongodb://ada:{password}@{}/?connectTimeoutMS=0&{limit}", server.address());
    let mut options = ClientOptions::parse(&uri).expect("it is right");
    options.monitor.server_monitoring_mode = ServerMonitoringMode::Poll;
    options.monitor.heartbeat_frequency = support::UNASKED;
    let client = Client::with_options(options).expect("can be used");
    let begun = std::time::Instant::now();
    // On a busy machine the limit may be too short for an attempt.
    while let Err(error) = client.warm_up(PATIENCE).await {
        assert!(begun.elapsed() < PATIENCE, "{error}");
    }
    client
}

/// A server that stops answering in a handshake does not occupy a slot of the pool for
/// ever, at any command.
#[test]
#[doc(alias = "CMAP-60")]
fn silent_handshake_ends_at_the_limit_of_a_command() {
    run(async {
        for limit in ["socketTimeoutMS=1000", "timeoutMS=1000&socketTimeoutMS=600000"] {
            for (command, overloaded) in [(None, true), (Some("saslContinue"), false)] {
                let server = server();
                let client = unhurried(&server, limit).await;
                let held = client.check_out_timeout(None).await.expect("the connection that there is");
                let silence = FaultRule::once(Fault::Silence);
                server.inject(command.map_or(silence.clone(), |command| silence.on_command(command)));
                let expected = CheckOutError::EstablishFailed { cause: Cause::NetworkTimeout, overloaded };
                let before = server.count_of("saslContinue");
                let error = loop {
                    let begun = std::time::Instant::now();
                    // The call itself has no limit.
                    let error = refused(client.check_out_timeout(None).await);
                    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
                    // On a busy machine the hello may end at its limit, before the silenced command is sent.
                    if error.check_out() == Some(&expected) || server.count_of("saslContinue") > before {
                        break error;
                    }
                };
                assert_eq!(error.check_out(), Some(&expected), "{limit}, {command:?}");
                let pool = client.servers()[0].pool;
                assert_eq!(pool.counts.pending, 0);
                assert_eq!(pool.state, if overloaded { PoolState::Ready } else { PoolState::Paused });
                drop(held);
                client.close().await;
            }
        }
    });
}

/// TimeoutMS starts again with each command of a handshake.
#[test]
#[doc(alias = "CMAP-60")]
fn each_command_of_a_handshake_has_the_whole_limit() {
    run(async {
        let server = server();
        let client = unhurried(&server, "timeoutMS=5000").await;
        let held = client.check_out_timeout(None).await.expect("the connection that there is");
        let delay = Duration::from_secs(3);
        server.inject(FaultRule::always(Fault::Delay(delay)).times(2));
        let begun = std::time::Instant::now();
        let slow = client.check_out_timeout(None).await.expect("each was in time");
        assert!(begun.elapsed() >= 2 * delay);
        drop((held, slow));
        client.close().await;
    });
}

/// The options of a client can create another client, which authenticates in the same way.
#[test]
fn client_with_copied_options_has_the_credential() {
    run(async {
        let server = server();
        let first = Client::with_options(with(&server, Credential::new("ada", PASSWORD))).expect("can be used");
        // The name of one option contains the user name `ada`.
        let shown = format!("{:?}", first.options()).replace("max_adaptive_retries", "");
        assert!(shown.contains("credential: Some") && !shown.contains("ada") && !shown.contains(PASSWORD), "{shown}");
        let options = first.options().clone();
        first.close().await;
        drop(first);
        let second = Client::with_options(options).expect("can be used");
        list(&second).await.expect("gets in");
        assert_eq!(seen(&server), ["admin.ada"]);
        second.close().await;
    });
}
