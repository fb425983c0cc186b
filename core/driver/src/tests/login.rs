//! Connections that authenticate: where their secrets remain, and how they fail.

use super::wide::House;
use super::workers::core_clear;
use super::*;
use crate::driven::Drive as _;
use alloc::format;
use alloc::string::ToString;
use base64ct::{Base64, Encoding};
use hmac::{Hmac, KeyInit, Mac};
use poolhouse_auth::{AuthError, Credential, ITERATIONS_PER_STEP, KEYS_MAX, Mechanism};
use poolhouse_core::pool::PoolState;
use poolhouse_wire::bson::{RawDocument, RawValue};
use sha2::Sha256;

pub(super) const PASSWORD: &str = "a password that nobody must find";

/// The server's part of SCRAM-SHA-256 with 4096 iterations, for [`PASSWORD`], implemented here a
/// second time.
#[derive(Default)]
pub(super) struct Prover {
    /// The messages so far, as both sides sign them.
    said: String,
}

impl Prover {
    /// Returns the answer to a payload, and whether it is the last.
    pub(super) fn answer(&mut self, salt: &str, command: RawDocument<'_>) -> (String, bool) {
        let payload = command.get("payload").unwrap().and_then(RawValue::as_binary).unwrap().bytes;
        let text = core::str::from_utf8(payload).unwrap();
        if let Some(bare) = text.strip_prefix("n,,") {
            let nonce = bare.rsplit_once("r=").unwrap().1;
            let first = format!("r={nonce}server,s={},i=4096", base64(salt.as_bytes()));
            self.said = format!("{bare},{first}");
            return (first, false);
        }
        let front = text.rsplit_once(",p=").unwrap().0;
        let mut last = mac(PASSWORD.as_bytes(), &[salt.as_bytes(), &[0, 0, 0, 1]].concat());
        let mut salted = last;
        for _ in 1..4096 {
            last = mac(PASSWORD.as_bytes(), &last);
            salted.iter_mut().zip(last).for_each(|(sum, byte)| *sum ^= byte);
        }
        let signature = mac(&mac(&salted, b"Server Key"), format!("{},{front}", self.said).as_bytes());
        (format!("v={}", base64(&signature)), true)
    }
}

fn base64(bytes: &[u8]) -> String {
    Base64::encode(bytes, &mut [0; 64]).unwrap().to_string()
}

fn mac(key: &[u8], bytes: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(bytes);
    mac.finalize().into_bytes().into()
}

fn plain() -> Login {
    Login::new(Credential::new("lovelace", PASSWORD).mechanism(Mechanism::Plain)).unwrap()
}

/// Returns the result of a check-out for which a connection is established.
fn check_out(bench: &Bench, core: &ClientCore<Bench>, server: &Arc<Server<Bench>>) -> Result<(), OperationError> {
    let mut waiting = Box::pin(core.check_out_of(Arc::clone(server), None, None));
    assert!(poll(&mut waiting).is_pending());
    let mut establishing = worker(core, server);
    assert!(poll(&mut establishing).is_pending());
    bench.now.fetch_add(1_000_000_000, Ordering::Relaxed);
    assert!(poll(&mut establishing).is_pending());
    match poll(&mut waiting) {
        Poll::Ready(outcome) => outcome.map(drop),
        Poll::Pending => panic!("it waits"),
    }
}

/// Whether memory that was released contains the password.
fn password_is_left(bench: &Bench) -> bool {
    let left = bench.left.lock().unwrap();
    left.iter().any(|bytes| bytes.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes()))
}

fn failure(error: &OperationError) -> &LoginFailure {
    let OperationError::Authentication(failure) = error else { panic!("no failure of a login: {error:?}") };
    failure
}

#[test]
fn no_buffer_contains_the_password_afterwards() {
    // A password that is longer than everything written before it makes the buffer grow.
    let long = PASSWORD.repeat(100);
    let long = Login::new(Credential::new("lovelace", long.as_str()).mechanism(Mechanism::Plain)).unwrap();
    for (login, answer) in [
        (plain(), Answer::Accepts),
        (plain(), Answer::Refuses("no".to_string())),
        (plain(), Answer::KeepsSilent),
        (long, Answer::Accepts),
    ] {
        let (bench, core, server) = open_with(Some(login));
        *bench.answer.lock().unwrap() = answer.clone();
        let outcome = check_out(&bench, &core, &server);
        assert_eq!(outcome.is_ok(), answer == Answer::Accepts, "{outcome:?}");
        drop((core, server));
        let buffers = bench.left.lock().unwrap().len();
        assert!(buffers >= 2, "both buffers of the connection were looked at");
        assert!(!password_is_left(&bench), "{answer:?}");
    }
    // The search finds a password that is present.
    let bench = Bench::new();
    Page::of(&bench).append(format!("saslStart{PASSWORD}").as_bytes()).unwrap();
    assert!(password_is_left(&bench));
}

/// The pool is cleared; the check-out fails with the server's message, sanitized.
#[test]
#[doc(alias = "SDAM-75")]
fn refusal_contains_the_servers_text_without_secrets() {
    let long = "\u{20ac}".repeat(100);
    let texts = [
        ("Authentication failed.", Some("Authentication failed.")),
        ("two\nlines\u{1b}[0m", Some("two lines [0m")),
        (long.as_str(), long.get(..255)),
        (&format!("user ada, password {PASSWORD}"), None),
        (&format!("{} {PASSWORD}", "x".repeat(300)), None),
    ];
    for (text, told) in texts {
        let (bench, core, server) = open_with(Some(plain()));
        *bench.answer.lock().unwrap() = Answer::Refuses(text.to_string());
        let error = check_out(&bench, &core, &server).expect_err("refused");
        let failure = failure(&error);
        let check_out = CheckOutError::EstablishFailed { cause: Cause::Authentication, overloaded: false };
        assert_eq!((failure.check_out, failure.error), (check_out, AuthError::Refused { code: 18 }));
        assert_eq!(failure.message.as_deref(), told);
        assert!(error.to_string().contains("authentication failed: the server refused with code 18"), "{error}");
        assert!(!format!("{error} {error:?} {core:?} {:?}", core.config()).contains(PASSWORD));
        assert!(!format!("{:?}", core.config()).contains("lovelace"), "nor the user");
        assert!(!error.is_retryable() && !error.is_transient() && error.connection_cause().is_none());
        let snapshot = server.pool_snapshot();
        assert_eq!((snapshot.state, snapshot.generation), (PoolState::Paused, 1));
    }
}

/// The timeout occurred in authentication, which does not indicate overload.
#[test]
#[doc(alias("CMAP-96", "SDAM-69"))]
fn time_that_passes_in_authentication_clears_the_pool() {
    let (bench, core, server) = open_with(Some(plain()));
    *bench.answer.lock().unwrap() = Answer::KeepsSilent;
    let error = check_out(&bench, &core, &server).expect_err("in time");
    let timeout = CheckOutError::EstablishFailed { cause: Cause::NetworkTimeout, overloaded: false };
    assert_eq!(error, OperationError::check_out_of("a:27017", timeout));
    assert_eq!((server.pool_snapshot().state, server.pool_snapshot().generation), (PoolState::Paused, 1));
    // A timeout in hello does, and the pool stays.
    let (bench, core, server) = open_with(Some(plain()));
    bench.mute(true);
    let error = check_out(&bench, &core, &server).expect_err("in time");
    let timeout = CheckOutError::EstablishFailed { cause: Cause::NetworkTimeout, overloaded: true };
    assert_eq!(error, OperationError::check_out_of("a:27017", timeout));
    assert_eq!((server.pool_snapshot().state, server.pool_snapshot().generation), (PoolState::Ready, 0));
}

/// The password is stretched once for all connections whose servers ask for the same salt; and in
/// steps, between which other tasks run.
#[test]
fn password_is_stretched_once_for_every_salt() {
    let scram = Credential::new("lovelace", PASSWORD).mechanism(Mechanism::SCRAM_SHA_256);
    let (bench, core, server) = open_with(Some(Login::new(scram).unwrap()));
    let turns_for = |salt| {
        *bench.answer.lock().unwrap() = Answer::Scram(salt);
        let mut waiting = Box::pin(core.check_out_of(Arc::clone(&server), None, None));
        assert!(poll(&mut waiting).is_pending());
        let mut establishing = worker(&core, &server);
        let mut turns = 0;
        let guard = loop {
            assert!(poll(&mut establishing).is_pending());
            if let Poll::Ready(outcome) = poll(&mut waiting) {
                break outcome.expect("established");
            }
            turns += 1;
            assert!(turns < 1000, "it has an end: {salt}, {:?}", server.pool_snapshot());
        };
        // The connection is closed when it is returned, so the next check-out establishes another.
        core_clear(&bench, &server);
        drop(guard);
        turns
    };
    let steps = 4096 / ITERATIONS_PER_STEP;
    assert_eq!(turns_for("one"), steps);
    assert_eq!(turns_for("one"), 1);
    assert_eq!(turns_for("another"), steps);
    assert_eq!((turns_for("one"), turns_for("another")), (1, 1));
    // The cache keeps four keys. A fifth one replaces the oldest.
    for salt in ["third", "fourth", "fifth"] {
        assert_eq!(turns_for(salt), steps, "{salt}");
    }
    assert_eq!((turns_for("another"), turns_for("fifth"), turns_for("one")), (1, 1, steps));
    assert_eq!(KEYS_MAX, 4);
}

/// Keys that no server has proved to be the user's are not kept.
#[test]
fn keys_of_a_wrong_password_are_not_kept() {
    let scram = Credential::new("lovelace", "another").mechanism(Mechanism::SCRAM_SHA_256);
    let (bench, core, server) = open_with(Some(Login::new(scram).unwrap()));
    *bench.answer.lock().unwrap() = Answer::Scram("salt");
    let mut waiting = Box::pin(core.check_out_of(Arc::clone(&server), None, None));
    assert!(poll(&mut waiting).is_pending());
    let mut establishing = worker(&core, &server);
    let error = loop {
        assert!(poll(&mut establishing).is_pending());
        if let Poll::Ready(outcome) = poll(&mut waiting) {
            break outcome.map(drop).expect_err("the server cannot prove it");
        }
    };
    assert_eq!(failure(&error).error, AuthError::ServerSignature);
    assert!(core.keys().with(|keys| keys.is_empty()));
}

#[test]
fn nothing_is_sent_without_entropy_or_privacy() {
    let (bench, core, server) = open_with(Some(plain()));
    bench.has_entropy.store(false, Ordering::Relaxed);
    let error = check_out(&bench, &core, &server).expect_err("no nonce");
    let failed = CheckOutError::EstablishFailed { cause: Cause::Resources, overloaded: false };
    assert_eq!(error, OperationError::check_out_of("a:27017", failed));
    assert_eq!(bench.written.load(Ordering::Relaxed), 0);

    let (bench, core, server) = open_with(Some(plain()));
    bench.is_private.store(false, Ordering::Relaxed);
    let error = check_out(&bench, &core, &server).expect_err("everybody would read it");
    assert_eq!((failure(&error).error, failure(&error).message.as_deref()), (AuthError::PlainWithoutTls, None));
    assert_eq!(bench.written.load(Ordering::Relaxed), 0);

    let (bench, core, server) = open_with(Some(plain().allow_plain_without_tls(true)));
    bench.is_private.store(false, Ordering::Relaxed);
    check_out(&bench, &core, &server).expect("forced");
}

#[test]
fn login_that_can_never_be_used_is_refused() {
    let refused = |credential: Credential<'_>| Login::new(credential).err();
    assert_eq!(refused(Credential::new("", "p")), Some(AuthError::UsernameMissing));
    assert_eq!(refused(Credential::new("ada", "")), Some(AuthError::PasswordMissing));
    assert_eq!(refused(Credential { password: None, ..Credential::new("ada", "p") }), Some(AuthError::PasswordMissing));
    let sha_256 = Credential::new("ada", "\u{7}").mechanism(Mechanism::SCRAM_SHA_256);
    assert_eq!(refused(sha_256), Some(AuthError::PasswordProhibited));
    assert!(plain().needs_privacy());
    assert!(!plain().allow_plain_without_tls(true).needs_privacy());
    assert!(!Login::new(Credential::new("ada", "p")).unwrap().needs_privacy());
}

/// The user limits the work that a server can demand.
#[test]
fn more_iterations_than_the_user_allows_are_refused() {
    for (iterations_max, refused) in [(4095, Some(AuthError::IterationsTooMany { max: 4095 })), (4096, None)] {
        let scram = Credential::new("lovelace", PASSWORD).mechanism(Mechanism::SCRAM_SHA_256);
        let (bench, core, server) = open_with(Some(Login::new(scram).unwrap().iterations_max(iterations_max)));
        *bench.answer.lock().unwrap() = Answer::Scram("salt");
        let mut waiting = Box::pin(core.check_out_of(Arc::clone(&server), None, None));
        assert!(poll(&mut waiting).is_pending());
        let mut establishing = worker(&core, &server);
        let outcome = loop {
            assert!(poll(&mut establishing).is_pending());
            if let Poll::Ready(outcome) = poll(&mut waiting) {
                break outcome.map(drop);
            }
        };
        assert_eq!(outcome.err().map(|error| failure(&error).error), refused);
    }
}

/// The error of a check-out that failed for another reason does not include the server's message
/// about an authentication.
#[test]
fn refusal_explains_only_its_own_connection() {
    let (bench, core, server) = open_with(Some(plain()));
    *bench.answer.lock().unwrap() = Answer::Refuses("no".to_string());
    assert!(matches!(check_out(&bench, &core, &server), Err(OperationError::Authentication(_))));
    let of = |cause| CheckOutError::EstablishFailed { cause, overloaded: false };
    assert!(matches!(server.explain(of(Cause::Authentication)), OperationError::Authentication(_)));
    for error in [of(Cause::Network), CheckOutError::PoolClosed, CheckOutError::Busy { waiting: 1 }] {
        assert_eq!(server.explain(error), OperationError::check_out_of("a:27017", error));
    }
}

/// Another worker fails in another way before the error of the first one is read.
#[test]
fn refusal_is_reported_although_another_connection_fails_later() {
    let mut house = House::open(PoolOptions::DEFAULT, Some(plain()));
    let workers = [house.start(ServerTask::Worker), house.start(ServerTask::Worker)];
    let mut waiting: Vec<_> = (0..2).map(|_| house.check_out(None)).collect();
    waiting.iter_mut().for_each(|one| assert!(poll(one).is_pending()));
    *house.bench.answer.lock().unwrap() = Answer::KeepsSilent;
    house.poll(workers[0]);
    *house.bench.answer.lock().unwrap() = Answer::Refuses("no".to_string());
    house.poll(workers[1]);
    house.pass(Duration::from_secs(1));
    assert_eq!(house.counts()[0], 0, "the other one has failed, too");
    let Poll::Ready(Err(error)) = poll(&mut waiting[1]) else { panic!("refused") };
    assert_eq!(failure(&error).message.as_deref(), Some("no"));
    // The message does not explain failures that follow a success.
    *house.bench.answer.lock().unwrap() = Answer::Accepts;
    house.server.command(house.core.now(), PoolCommand::Ready);
    house.server.settle();
    drop(house.guards(1));
    let failed = CheckOutError::EstablishFailed { cause: Cause::Authentication, overloaded: false };
    let explained = house.server.explain(failed);
    assert!(!matches!(explained, OperationError::Authentication(_)), "{explained}");
}
