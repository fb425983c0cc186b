//! Authentication against the fake server over real sockets, and the fuzz body of SCRAM on seeds
//! and mutations of them.

use core::time::Duration;
use std::net::TcpStream;

use bson::doc;
use poolhouse_auth::{
    AuthError, Authentication, AuthenticationOptions, Credential, ENTROPY_BYTES, ITERATIONS_MAX, Mechanism,
};
use poolhouse_core::Cause;
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};
use poolhouse_tests::fake::{BlockingClient, FailPoint, FailPointMode, FakeOptions, FakeServer, FakeUser, ScramLie};
use poolhouse_tests::fuzz;
use poolhouse_tests::handshake::{client, perform_handshake, with};
use poolhouse_tests::rng::Rng;
use poolhouse_tests::seeds::each_seed;
use poolhouse_wire::handshake::{Handshake, HandshakeError};
use poolhouse_wire::hello::HandshakeHello;
use poolhouse_wire::{Labels, Phase};

const LIMIT: Duration = Duration::from_secs(30);

fn server() -> FakeServer {
    let users = vec![
        FakeUser::new("ada", "pencil"),
        FakeUser::new("a=b,c", "p\u{e4}ss\u{ad}word").with_source("people"),
        FakeUser::new("old", "pencil").with_mechanisms(&["SCRAM-SHA-1"]),
        FakeUser::new("new", "pencil").with_mechanisms(&["SCRAM-SHA-256"]),
        FakeUser::new("ldap", "secret").with_mechanisms(&["PLAIN"]).with_source("$external"),
    ];
    FakeServer::start(FakeOptions::with_users(users)).expect("loopback")
}

fn stream(server: &FakeServer) -> TcpStream {
    let stream = TcpStream::connect(server.address()).expect("it listens");
    stream.set_read_timeout(Some(LIMIT)).expect("not zero");
    stream
}

/// Authenticates on a separate connection; returns the user that the server then has on it.
fn log_in(server: &FakeServer, credential: Credential<'_>, speculative: bool) -> Result<String, HandshakeError> {
    let options =
        AuthenticationOptions { speculative, secure: true, ..AuthenticationOptions::new([42; ENTROPY_BYTES]) };
    let client = client();
    let mut stream = stream(server);
    let authentication = Authentication::new(credential, options).expect("can be used");
    let established = perform_handshake(&mut stream, &mut with(&client, authentication), 1)?;
    let connection = established
        .server_connection_id
        .and_then(|id| u64::try_from(id).ok())
        .expect("the server reports its connection id");
    let mut client = BlockingClient::over(stream);
    let any_member = doc! { "mode": "primaryPreferred" };
    let reply = client.run("admin", doc! { "listDatabases": 1, "$readPreference": any_member }).expect("answered");
    assert_eq!(reply.get_f64("ok").ok(), Some(1.0), "{reply}");
    Ok(server.users_on(connection).join(" "))
}

#[test]
fn every_user_authenticates_by_each_of_its_mechanisms() {
    let server = server();
    let ada = Credential::new("ada", "pencil");
    for speculative in [true, false] {
        for mechanism in [None, Some(Mechanism::SCRAM_SHA_1), Some(Mechanism::SCRAM_SHA_256)] {
            assert_eq!(log_in(&server, Credential { mechanism, ..ada }, speculative), Ok("admin.ada".to_owned()));
        }
        assert_eq!(log_in(&server, Credential::new("old", "pencil"), speculative), Ok("admin.old".to_owned()));
        assert_eq!(log_in(&server, Credential::new("new", "pencil"), speculative), Ok("admin.new".to_owned()));
        let people = Credential::new("a=b,c", "p\u{e4}ssword").source("people");
        assert_eq!(log_in(&server, people, speculative), Ok("people.a=b,c".to_owned()));
        let plain = Credential::new("ldap", "secret").mechanism(Mechanism::Plain);
        assert_eq!(log_in(&server, plain, speculative), Ok("$external.ldap".to_owned()));
    }
    // A SCRAM conversation that begins with hello needs a single command.
    let (starts, continues) = (server.count_of("saslStart"), server.count_of("saslContinue"));
    log_in(&server, ada, true).expect("gets in");
    assert_eq!((server.count_of("saslStart"), server.count_of("saslContinue")), (starts, continues + 1));
}

#[test]
fn members_of_a_set_have_its_users() {
    let mut options = FakeReplicaSetOptions::of(3);
    options.server = FakeOptions::with_users(vec![FakeUser::new("ada", "pencil")]);
    let set = FakeReplicaSet::start(options).expect("loopback");
    for member in 0..set.servers_count() {
        let ada = Credential::new("ada", "pencil");
        assert_eq!(log_in(&set.server(member), ada, true), Ok("admin.ada".to_owned()));
        log_in(&set.server(member), Credential::new("ada", "Pencil"), true).expect_err("refused");
    }
}

#[test]
fn only_users_authenticate() {
    let server = server();
    let wrong = [
        Credential::new("ada", "Pencil"),
        Credential::new("nobody", "pencil"),
        Credential::new("ada", "pencil").source("people"),
        Credential::new("old", "pencil").mechanism(Mechanism::SCRAM_SHA_256),
        Credential::new("new", "pencil").mechanism(Mechanism::SCRAM_SHA_1),
        Credential::new("ldap", "Secret").mechanism(Mechanism::Plain),
    ];
    for credential in wrong {
        for speculative in [true, false] {
            let error = log_in(&server, credential, speculative).expect_err("refused");
            assert_eq!((error.cause, error.phase), (Cause::Authentication, Phase::Authentication), "{credential:?}");
            assert_eq!(error.authentication, Some(AuthError::Refused { code: 18 }));
            assert_eq!(error.labels, Labels::NONE);
        }
    }
    // Without authentication the connection is established, but commands on it are refused.
    let client = client();
    let mut stream = stream(&server);
    perform_handshake(&mut stream, &mut Handshake::new(HandshakeHello::new(&client)), 4096).expect("greets");
    let reply = BlockingClient::over(stream).run("admin", doc! { "listDatabases": 1 }).expect("answered");
    assert_eq!(reply.get_i32("code").ok(), Some(13));
}

#[test]
fn dishonest_server_is_rejected() {
    let server = server();
    for (lie, error) in [
        (ScramLie::Nonce, AuthError::ServerNonce),
        (ScramLie::Signature, AuthError::ServerSignature),
        (ScramLie::Garbage, AuthError::AttributeMalformed { name: None }),
        (ScramLie::Iterations(4095), AuthError::IterationsTooFew { found: 4095 }),
        (ScramLie::Iterations(u32::MAX), AuthError::IterationsTooMany { max: ITERATIONS_MAX }),
    ] {
        server.set_scram_lie(Some(lie));
        for speculative in [true, false] {
            let refused = log_in(&server, Credential::new("ada", "pencil"), speculative)
                .expect_err("the dishonest server is rejected");
            assert_eq!((refused.cause, refused.authentication), (Cause::Authentication, Some(error)), "{lie:?}");
        }
    }
    server.set_scram_lie(None);
    log_in(&server, Credential::new("ada", "pencil"), true).expect("the server is honest again");
}

/// A connection that is lost during authentication adds no labels; one lost during hello
/// does.
#[test]
#[doc(alias = "CMAP-96")]
fn connection_lost_during_authentication_adds_no_labels() {
    let server = server();
    for (command, phase) in [("saslContinue", Phase::Authentication), ("isMaster", Phase::Hello)] {
        server.set_fail_point(FailPoint::new(FailPointMode::Times(1), &[command]).close());
        let error = log_in(&server, Credential::new("ada", "pencil"), true).expect_err("closed");
        assert_eq!((error.cause, error.phase), (Cause::Network, phase));
        assert_eq!(error.labels.is_empty(), phase == Phase::Authentication);
    }
    server.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["saslContinue"]).error(91));
    let error = log_in(&server, Credential::new("ada", "pencil"), true).expect_err("refused");
    assert_eq!((error.cause, error.phase), (Cause::Command { code: 91 }, Phase::Authentication));
}

#[test]
fn fuzz_body_holds_on_seeds_and_on_mutations_of_them() {
    let seeds = fuzz::scram::seeds();
    for seed in &seeds {
        fuzz::scram(seed);
    }
    each_seed(50, |seed| {
        let mut random = Rng::new(seed);
        let mut below = |bound: usize| usize::try_from(random.next_u64() % bound.max(1) as u64).expect("small");
        let mut bytes = seeds[below(seeds.len())].clone();
        for _ in 0..=below(3) {
            let at = below(bytes.len());
            match below(4) {
                0 if !bytes.is_empty() => bytes[at] = b",=ris0919\xff\0"[below(11)],
                1 => bytes.truncate(at),
                2 if !bytes.is_empty() => drop(bytes.remove(at)),
                _ => bytes.insert(at, b",=ris0919\xff\0"[below(11)]),
            }
        }
        fuzz::scram(&bytes);
    });
}
