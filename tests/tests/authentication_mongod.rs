//! Authentication against a real server with access control.

use core::error::Error;
use core::time::Duration;
use std::net::TcpStream;
use std::process::ExitCode;

use bson::doc;
use poolhouse_auth::{
    AuthError, Authentication, AuthenticationOptions, Credential, ENTROPY_BYTES, Mechanism, ScramKeys,
};
use poolhouse_core::Cause;
use poolhouse_tests::fake::BlockingClient;
use poolhouse_tests::handshake::{client, perform_handshake, with};
use poolhouse_tests::mongod::{self, Mongod, MongodOptions};
use poolhouse_tests::suite::Suite;
use poolhouse_wire::Phase;
use poolhouse_wire::handshake::{Handshake, HandshakeError};
use poolhouse_wire::hello::HandshakeHello;

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> ExitCode {
    Suite::new("authentication_mongod")
        .skip_if(mongod::available().err())
        .case("only_users_authenticate_by_every_mechanism", only_users_authenticate_by_every_mechanism)
        .run()
}

/// A server with access control. The first user was created through the localhost exception, and
/// created the others.
fn start() -> Result<Mongod, Box<dyn Error>> {
    let options = MongodOptions { args: vec!["--auth".into()], ..MongodOptions::default() };
    let mongod = Mongod::start(options)?;
    mongod.run_command(doc! { "createUser": "ada", "pwd": "pencil", "roles": ["root"] })?;
    let (mut socket, _) = log_in(&mongod, Credential::new("ada", "pencil"), true, None)?;
    for (name, password, mechanisms) in [
        ("old", "pencil", &["SCRAM-SHA-1"][..]),
        ("new", "pencil", &["SCRAM-SHA-256"]),
        ("a=b,c", "p\u{e4}ss", &["SCRAM-SHA-1", "SCRAM-SHA-256"]),
        ("IX", "IX", &["SCRAM-SHA-256"]),
        ("\u{2168}", "\u{2163}", &["SCRAM-SHA-256"]),
    ] {
        let roles = vec![doc! { "role": "readAnyDatabase", "db": "admin" }];
        let user = doc! { "createUser": name, "pwd": password, "roles": roles, "mechanisms": mechanisms.to_vec() };
        let reply = socket.run("admin", user)?;
        if reply.get_f64("ok").ok() != Some(1.0) {
            return Err(format!("{name}: {reply}").into());
        }
    }
    Ok(mongod)
}

type LoggedIn = (BlockingClient<TcpStream>, Option<ScramKeys>);

fn log_in(
    mongod: &Mongod,
    credential: Credential<'_>,
    speculative: bool,
    keys: Option<ScramKeys>,
) -> Result<LoggedIn, HandshakeError> {
    let network = |_| HandshakeError::new(Phase::Connect, Cause::Network);
    let mut stream = TcpStream::connect(mongod.address()).map_err(network)?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).map_err(network)?;
    let (text, mut entropy) = (format!("{:?}", stream.local_addr()), [0; ENTROPY_BYTES]);
    // Good enough for a test: no two connections have the same port.
    for (to, from) in entropy.iter_mut().zip(text.bytes().rev()) {
        *to = from;
    }
    let options = AuthenticationOptions { speculative, secure: true, keys, ..AuthenticationOptions::new(entropy) };
    let client = client();
    let mut handshake = with(&client, Authentication::new(credential, options).expect("can be used"));
    perform_handshake(&mut stream, &mut handshake, 7)?;
    let keys = handshake.authenticator().keys().cloned();
    Ok((BlockingClient::over(stream), keys))
}

fn only_users_authenticate_by_every_mechanism() -> Outcome {
    let mongod = start()?;
    let (sha_1, sha_256) = (Some(Mechanism::SCRAM_SHA_1), Some(Mechanism::SCRAM_SHA_256));
    for (name, password, mechanisms) in [
        ("ada", "pencil", &[None, sha_1, sha_256][..]),
        ("old", "pencil", &[None, sha_1]),
        ("new", "pencil", &[None, sha_256]),
        ("a=b,c", "p\u{e4}ss", &[None, sha_1, sha_256]),
        ("IX", "I\u{ad}X", &[None, sha_256]),
        ("\u{2168}", "IV", &[None, sha_256]),
        ("\u{2168}", "I\u{ad}V", &[None, sha_256]),
    ] {
        for &mechanism in mechanisms {
            for speculative in [true, false] {
                let credential = Credential { mechanism, ..Credential::new(name, password) };
                let (mut socket, _) = log_in(&mongod, credential, speculative, None)
                    .map_err(|error| format!("{name} by {mechanism:?}, {speculative}: {error}"))?;
                let status = socket.run("admin", doc! { "connectionStatus": 1 })?;
                let users = status.get_document("authInfo")?.get_array("authenticatedUsers")?.clone();
                assert_eq!(users, [doc! { "user": name, "db": "admin" }.into()], "{mechanism:?}");
                assert_eq!(socket.run("admin", doc! { "listDatabases": 1 })?.get_f64("ok").ok(), Some(1.0));
            }
        }
    }
    // The keys of one connection are valid for the next.
    let ada = Credential::new("ada", "pencil");
    let (_, keys) = log_in(&mongod, ada, true, None)?;
    assert!(keys.as_ref().is_some_and(|keys| keys.iterations() == 15_000));
    log_in(&mongod, Credential::new("ada", "forgotten"), true, keys)?;

    for (credential, code) in [
        (Credential::new("ada", "Pencil"), 18),
        (Credential::new("nobody", "pencil"), 18),
        (Credential::new("old", "pencil").mechanism(Mechanism::SCRAM_SHA_256), 18),
        (Credential::new("ada", "pencil").source("other"), 18),
        (Credential::new("ada", "pencil").mechanism(Mechanism::Plain), 334),
    ] {
        for speculative in [true, false] {
            let error = log_in(&mongod, credential, speculative, None).err().ok_or("the authentication succeeded")?;
            assert_eq!(error.authentication, Some(AuthError::Refused { code }), "{credential:?}");
            assert_eq!((error.cause, error.phase), (Cause::Authentication, Phase::Authentication));
        }
    }
    // Without TLS no certificate exists.
    let error = log_in(&mongod, Credential::x509(None), true, None).err().ok_or("the authentication succeeded")?;
    assert!(matches!(error.authentication, Some(AuthError::Refused { .. })), "{error}");

    let mut stream = TcpStream::connect(mongod.address())?;
    let client = client();
    perform_handshake(&mut stream, &mut Handshake::new(HandshakeHello::new(&client)), 4096)?;
    let reply = BlockingClient::over(stream).run("admin", doc! { "listDatabases": 1 })?;
    assert_eq!(reply.get_i32("code")?, 13);
    Ok(())
}
