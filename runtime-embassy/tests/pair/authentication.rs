//! Users and passwords, by SCRAM-SHA-256.

use super::net::{Net, run};
use super::support::{Rig, Small, options, refused, rig};
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use poolhouse_embassy::poolhouse_wire::AuthError;
use poolhouse_embassy::{Credential, Mechanism, OperationError, Options, PoolOptions};
use poolhouse_tests::fake::{FakeOptions, FakeServer, FakeUser, ScramLie};

const PASSWORD: &str = "an open sesame";

/// Random enough for tests: no two calls return the same bytes.
fn random(bytes: &mut [u8]) {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    for chunk in bytes.chunks_mut(8) {
        let word = COUNT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

fn server() -> FakeServer {
    let ada = FakeUser::new("ada", PASSWORD).with_iterations(4096);
    FakeServer::start(FakeOptions::with_users(vec![ada])).expect("the fake server starts")
}

fn calling(net: &Net, server: &FakeServer, credential: Credential<'static>) -> Rig<Small> {
    net.open_to(server);
    rig(net, Options { credential: Some(credential), random: Some(random), ..options(server) })
}

/// Runs a command that requires authentication.
async fn list(rig: &Rig<Small>) -> Result<(), OperationError> {
    let mut guard = rig.client.check_out().await?;
    guard.run_command("admin", |it| it.int32("listDatabases", 1).map(drop)).await.map(drop)
}

#[test]
fn right_password_is_accepted() {
    run(async |net| {
        let server = server();
        let credential = Credential::new("ada", PASSWORD);
        for credential in [credential, Credential { mechanism: Some(Mechanism::SCRAM_SHA_256), ..credential }] {
            let rig = calling(net, &server, credential);
            rig.client.warm_up(Some(4)).await.expect("four");
            list(&rig).await.expect("she may");
            // Monitors do not authenticate.
            let users: usize = server.look(|view| view.open().map(|it| view.users_on(it.id).len()).sum());
            assert_eq!(users, 4);
            rig.at_rest(&server, 1).await;
            rig.end(&[&server]).await;
        }
    });
}

#[test]
fn wrong_password_gets_an_error_without_a_secret_in_it() {
    const WRONG: &str = "a wrong sesame";
    run(async |net| {
        let server = server();
        for (user, password) in [("ada", WRONG), ("eve", PASSWORD), ("eve", WRONG)] {
            let credential = Credential::new(user, password).source("admin");
            let rig = calling(net, &server, Credential { mechanism: Some(Mechanism::SCRAM_SHA_256), ..credential });
            for _ in 0..3 {
                let error = refused(net.skipping(Duration::from_secs(5), list(&rig)).await);
                let OperationError::Authentication(report) = &error else { panic!("{error:?}") };
                assert_eq!(report.error, AuthError::Refused { code: 18 });
                let told = format!("{error} {error:?} {:?} {:?} {:?}", rig.client, rig.log.events(), rig.pool());
                assert!(!told.contains("sesame"), "{told}");
            }
            // The refused connections are closed. The monitor's connection is closed too, because
            // the refusal has cancelled its check.
            rig.at_rest(&server, 0).await;
            assert_eq!(rig.pool().counts.total(), 0);
            rig.end(&[&server]).await;
        }
    });
}

#[test]
fn missing_password_is_refused() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let rig: Rig<Small> = rig(net, options(&server));
        let error = refused(list(&rig).await);
        assert!(matches!(error, OperationError::Command { code: 13, .. }), "{error:?}");
        rig.end(&[&server]).await;
    });
}

/// After a refusal, the same client authenticates as soon as the server accepts it.
#[test]
fn server_without_a_valid_proof_is_refused() {
    run(async |net| {
        let server = server();
        let rig = calling(net, &server, Credential::new("ada", PASSWORD));
        for (lie, error) in [
            (ScramLie::Nonce, AuthError::ServerNonce),
            (ScramLie::Signature, AuthError::ServerSignature),
            (ScramLie::Garbage, AuthError::AttributeMalformed { name: None }),
            (ScramLie::Iterations(4095), AuthError::IterationsTooFew { found: 4095 }),
            (ScramLie::Iterations(0), AuthError::IterationsTooFew { found: 0 }),
        ] {
            server.set_scram_lie(Some(lie));
            let failure = refused(net.skipping(Duration::from_secs(5), list(&rig)).await);
            let OperationError::Authentication(report) = failure else { panic!("{lie:?}: {failure:?}") };
            assert_eq!(report.error, error, "{lie:?}");
        }
        server.set_scram_lie(None);
        net.skipping(Duration::from_secs(5), list(&rig)).await.expect("honest again");
        rig.at_rest(&server, 1).await;
        rig.end(&[&server]).await;
    });
}

/// Ten thousand rounds and more take many polls; other tasks run between them.
#[test]
fn authentication_yields_to_other_tasks() {
    run(async |net| {
        let ada = FakeUser::new("ada", PASSWORD).with_iterations(15_000);
        let server = FakeServer::start(FakeOptions::with_users(vec![ada])).expect("the fake server starts");
        net.open_to(&server);
        let pool = PoolOptions { max_pool_size: 1, ..PoolOptions::DEFAULT };
        let credential = Credential { mechanism: Some(Mechanism::SCRAM_SHA_256), ..Credential::new("ada", PASSWORD) };
        let options = Options { credential: Some(credential), random: Some(random), pool, ..options(&server) };
        let rig: Rig<Small> = rig(net, options);
        rig.known().await;
        net.settled().await;
        let before = rig.polls.get();
        list(&rig).await.expect("she may");
        let first = rig.polls.get() - before;
        println!("the runner was polled {first} times to authenticate by 15,000 rounds");
        assert!(first > 10, "{first} polls: the work was not divided");
        rig.at_rest(&server, 1).await;
        rig.end(&[&server]).await;
    });
}
