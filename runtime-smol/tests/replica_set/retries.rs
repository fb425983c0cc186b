//! Further attempts of an operation: the errors that cause them, the errors that do not, and the
//! outcome of an operation without them.

use super::support::{client, eventually, known, options, ping, ping_with, refused, run, sent, set, still_set};
use bson::spec::BinarySubtype;
use core::time::Duration;
use poolhouse_smol::poolhouse_core::Cause;
use poolhouse_smol::poolhouse_core::pool::{CheckOutError, PoolState};
use poolhouse_smol::poolhouse_core::selection::{ReadMode, ReadPreference};
use poolhouse_smol::poolhouse_driver::OperationError;
use poolhouse_smol::{Client, CommandOptions, Error};
use poolhouse_tests::fake::replica_set::FakeReplicaSet;
use poolhouse_tests::fake::{FailPoint, FailPointMode};
use poolhouse_tests::patience::Stopwatch;
use std::time::Instant;

fn command_error(error: &Error) -> i32 {
    let Error::Command(error) = error else { panic!("no refusal by a server: {error:?}") };
    error.code
}

fn pool(client: &Client, set: &FakeReplicaSet, member: usize) -> poolhouse_smol::PoolSnapshot {
    let address = set.address(member).to_string();
    client.servers().into_iter().find(|server| server.address == address).expect("a member").pool
}

/// A state change is retried on the new primary if the caller has marked the command as idempotent.
#[test]
fn idempotent_command_is_retried_on_the_new_primary() {
    run(async {
        let set = set();
        let old = set.primary().expect("a primary");
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        let point = || FailPoint::new(FailPointMode::Times(1), &["ping"]).error(10107);
        set.server(old).set_fail_point(point());
        assert_eq!(command_error(&refused(ping(&client).await)), 10107, "not without leave");
        known(&client, &set).await;
        set.server(old).set_fail_point(point());
        ping_with(&client, CommandOptions::new().idempotent(true)).await.expect("the second attempt succeeds");
        client.close().await;
    });
}

/// Only one retry: the second error is the operation's.
#[test]
fn command_without_a_time_limit_is_attempted_at_most_twice() {
    run(async {
        let set = still_set();
        let primary = set.primary().expect("a primary");
        let mut unlimited = options(&set.uri());
        unlimited.timeout = None;
        let client = client(unlimited);
        known(&client, &set).await;
        set.server(primary).set_fail_point(FailPoint::new(FailPointMode::AlwaysOn, &["ping"]).error(91));
        let error = refused(ping_with(&client, CommandOptions::new().idempotent(true)).await);
        assert_eq!(command_error(&error), 91);
        assert_eq!(sent(&set.server(primary), "ping").len(), 2);
        client.close().await;
    });
}

/// Client Side Operations Timeout, "timeoutMS": zero is a limit, which never ends.
#[test]
fn command_whose_time_limit_is_never_reached_is_retried_until_it_succeeds() {
    run(async {
        let set = still_set();
        let primary = set.server(set.primary().expect("a primary"));
        let mut options = options(&set.uri());
        options.timeout = None;
        let client = client(options);
        known(&client, &set).await;
        for timeout in [Duration::ZERO, Duration::MAX] {
            let before = primary.count_of("find");
            primary.set_fail_point(FailPoint::new(FailPointMode::Times(5), &["find"]).error(134));
            let endless = CommandOptions::new().timeout(timeout);
            client.run_command_with("db", bson::doc! { "find": "c" }, endless).await.expect("the sixth attempt");
            assert_eq!(primary.count_of("find") - before, 6);
        }
        client.close().await;
    });
}

/// Client Side Operations Timeout, "Retryability": not only once.
#[test]
fn command_with_a_time_limit_is_retried_until_then() {
    run(async {
        let set = still_set();
        let primary = set.primary().expect("a primary");
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        // Servers stay known after this error, so only pauses separate the attempts.
        let point = |mode| FailPoint::new(mode, &["find"]).error(134);
        set.server(primary).set_fail_point(point(FailPointMode::Times(5)));
        client.run_command("db", bson::doc! { "find": "c" }).await.expect("the sixth attempt succeeds");
        assert_eq!(set.server(primary).count_of("find"), 6);
        set.server(primary).set_fail_point(point(FailPointMode::AlwaysOn));
        let limit = Duration::from_secs(1);
        let hurried = CommandOptions::new().timeout(limit);
        let (mut sent, mut before) = (0, 6);
        // On a machine that stalls, the limit may pass before the third attempt.
        while sent < 3 {
            let begun = Instant::now();
            let error = refused(client.run_command_with("db", bson::doc! { "find": "c" }, hurried).await);
            let took = begun.elapsed();
            // The end of the limit itself has no code.
            assert!(error.is_timeout() && error.code().is_none_or(|code| code == 134), "{error:?}");
            // The last pause, of at most 400 ms, would have ended later.
            assert!(took > limit - Duration::from_millis(400) && took < limit * 5, "{took:?}");
            sent = set.server(primary).count_of("find") - before;
            before += sent;
        }
        assert!(sent < 200, "{sent} attempts");
        client.close().await;
    });
}

/// Retryable Reads, "Implementing Retryable Reads": without a server for the second attempt, the
/// error of the first is returned.
#[test]
fn first_error_is_returned_if_no_server_suits_the_second_attempt() {
    run(async {
        let set = still_set();
        let primary = set.primary().expect("a primary");
        let mut options = options(&set.uri());
        options.server_selection_timeout = Duration::from_millis(300);
        let client = client(options);
        known(&client, &set).await;
        // The limit would include the establishment of a connection.
        while client.check_out_timeout(None).await.is_err() {}
        set.server(primary)
            .set_fail_point(FailPoint::new(FailPointMode::AlwaysOn, &["ping"]).block(Duration::from_secs(60)));
        let pinging = smol::spawn({
            let client = client.clone();
            async move { ping_with(&client, CommandOptions::new().idempotent(true)).await }
        });
        eventually("the first attempt is sent", || set.server(primary).count_of("ping") == 1).await;
        // No primary is elected.
        set.kill(primary).expect("it dies");
        let error = refused(pinging.await);
        let Error::Operation(OperationError::Exchange(_) | OperationError::Interrupted(_), _) = error else {
            panic!("not the first attempt's: {error:?}")
        };
        client.close().await;
    });
}

/// An establishment that failed by overload never reached the server, and is
/// retried even if the command is not idempotent.
#[test]
#[doc(alias("CMAP-95", "SDAM-68"))]
fn labelled_establishment_error_is_retried() {
    run(async {
        let set = still_set();
        let primary = set.primary().expect("a primary");
        let mut options = options(&set.uri());
        options.app_name = Some("labelled".to_owned());
        // No check triggers the fail point, which is meant for the pool's handshakes.
        options.monitor.heartbeat_frequency = Duration::from_secs(60);
        options.monitor.server_monitoring_mode = poolhouse_smol::ServerMonitoringMode::Poll;
        let client = client(options);
        known(&client, &set).await;
        let hello = ["hello", "isMaster"];
        let point = |mode| FailPoint::new(mode, &hello).app_name("labelled").close();
        set.server(primary).set_fail_point(point(FailPointMode::Times(1)));
        ping(&client).await.expect("the second attempt succeeds");
        assert_eq!(pool(&client, &set, primary).generation, 0, "overload clears nothing");
        // As many attempts as after an overload. No connection is idle and the server closes every
        // new one, so the error is that of the establishment.
        let held = client.check_out().await.expect("a connection");
        let accepted = set.server(primary).accepted_count();
        set.server(primary).set_fail_point(point(FailPointMode::AlwaysOn));
        let error = refused(ping(&client).await);
        let expected = CheckOutError::EstablishFailed { cause: Cause::Network, overloaded: true };
        assert_eq!(error.check_out(), Some(&expected));
        assert_eq!(set.server(primary).accepted_count(), accepted + 3);
        assert!(error.has_label("SystemOverloadedError") && error.has_label("RetryableError"));
        assert!(!error.has_label("RetryableWriteError"), "a ping writes nothing");
        let error = refused(super::support::insert(&client, CommandOptions::new()).await);
        assert!(error.check_out() == Some(&expected) && error.has_label("RetryableWriteError"), "{error:?}");
        drop(held);
        client.close().await;
    });
}

/// Only the writes that the client may repeat, by its options and by a number that the server recognizes.
#[test]
fn network_error_of_a_write_that_may_be_repeated_has_a_label() {
    run(async {
        let set = still_set();
        let primary = set.primary().expect("a primary");
        let close = FailPoint::new(FailPointMode::AlwaysOn, &["insert"]).close();
        let id = bson::Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
        let insert = bson::doc! { "insert": "c", "documents": [{ "a": 1 }] };
        let mut numbered = insert.clone();
        numbered.extend(bson::doc! { "lsid": { "id": id }, "txnNumber": 1_i64 });
        let plain = CommandOptions::new();
        for (retry_writes, command, further, expected) in [
            (true, &insert, plain, true),
            (true, &insert, plain.idempotent(true), true),
            (true, &insert, plain.retry(false), false),
            (false, &insert, plain, false),
            (true, &numbered, plain, true),
            (true, &numbered, plain.retry(false), false),
            (false, &numbered, plain, false),
        ] {
            let mut options = options(&set.uri()).retry_writes(retry_writes);
            // One retry, not as many as the limit permits.
            options.timeout = None;
            let client = client(options);
            known(&client, &set).await;
            set.server(primary).set_fail_point(close.clone());
            let error = refused(client.run_command_with("db", command.clone(), further).await);
            let is_labelled = error.has_label("RetryableWriteError");
            assert_eq!(is_labelled, expected, "retryWrites={retry_writes}, {command}, {further:?}: {error:?}");
            client.close().await;
        }
    });
}

/// A command that waits in a pool that is cleared was never sent, and is tried again on
/// the new primary even if it is not idempotent.
#[test]
#[doc(alias = "CMAP-67")]
fn command_in_a_cleared_pool_is_retried_although_not_idempotent() {
    run(async {
        let set = still_set();
        let old = set.primary().expect("a primary");
        let mut options = options(&set.uri());
        options.pool.max_pool_size = 1;
        let client = client(options);
        known(&client, &set).await;
        let mut held = client.check_out().await.expect("a connection");
        let waiting: Vec<_> = (0..8)
            .map(|_| {
                let client = client.clone();
                smol::spawn(async move { ping(&client).await })
            })
            .collect();
        eventually("all wait", || pool(&client, &set, old).counts.waiting == 8).await;
        set.kill(old).expect("it dies");
        let error = refused(held.run_command("admin", bson::doc! { "ping": 1 }).await);
        assert!(
            matches!(error, Error::Operation(OperationError::Exchange(_) | OperationError::Interrupted(_), _)),
            "{error:?}"
        );
        eventually("the pool is cleared", || pool(&client, &set, old).state == PoolState::Paused).await;
        set.elect((old + 1) % 3);
        for task in waiting {
            task.await.expect("a ping");
        }
        assert_eq!(sent(&set.server((old + 1) % 3), "ping").len(), 8);
        drop(held);
        client.close().await;
    });
}

/// The operation's own deadline ends the second attempt, too.
#[test]
fn second_attempt_ends_at_the_deadline() {
    run(async {
        let set = still_set();
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        set.step_down();
        let begun = Stopwatch::start();
        let limited = CommandOptions::new().idempotent(true).timeout(Duration::from_millis(200));
        refused(super::support::insert(&client, limited).await);
        // The options of the client say 20 s.
        begun.assert_below(Duration::from_secs(15));
        client.close().await;
    });
}

const OVERLOAD: [&str; 2] = ["SystemOverloadedError", "RetryableError"];

fn may_run_twice(idempotent: bool) -> CommandOptions<'static> {
    CommandOptions::new().idempotent(idempotent)
}

fn overload(mode: FailPointMode) -> FailPoint {
    FailPoint::new(mode, &["ping"]).error(462).labels(&OVERLOAD)
}

/// Client Backpressure, on runCommand: a command is attempted again only if both options are true.
/// A command that may run twice counts as a read.
#[test]
fn a_command_is_attempted_again_only_as_the_options_allow() {
    run(async {
        let set = still_set();
        let primary = set.primary().expect("a primary");
        let server = set.server(primary);
        for (reads, writes, idempotent, again) in [
            (true, true, false, true),
            (false, true, false, false),
            (true, false, false, false),
            (true, false, true, true),
            (false, true, true, false),
        ] {
            let case = format!("retryReads={reads}, retryWrites={writes}, idempotent={idempotent}");
            let mut options = options(&set.uri());
            (options.retry_reads, options.retry_writes) = (reads, writes);
            options.app_name = Some("allowed".to_owned());
            // The fail point is for the handshakes of the pool, so no check may meet it.
            options.monitor.heartbeat_frequency = Duration::from_secs(60);
            options.monitor.server_monitoring_mode = poolhouse_smol::ServerMonitoringMode::Poll;
            let client = client(options);
            known(&client, &set).await;
            let command = may_run_twice(idempotent);
            server.set_fail_point(
                FailPoint::new(FailPointMode::Times(1), &["hello", "isMaster"]).app_name("allowed").close(),
            );
            let outcome = ping_with(&client, command).await;
            assert_eq!(outcome.is_ok(), again, "{case}: a connection that is not established: {outcome:?}");
            ping_with(&client, command).await.expect("a ping");
            let before = sent(&server, "ping").len();
            server.set_fail_point(overload(FailPointMode::Times(1)));
            let outcome = ping_with(&client, command).await;
            assert_eq!(outcome.is_ok(), again, "{case}: an overload: {outcome:?}");
            assert_eq!(sent(&server, "ping").len() - before, 1 + usize::from(again), "{case}");
            server.set_fail_point(FailPoint::new(FailPointMode::Off, &["ping"]));
            client.close().await;
        }
    });
}

#[test]
fn an_overload_is_retried_as_often_as_max_adaptive_retries_allows() {
    run(async {
        let set = still_set();
        let primary = set.primary().expect("a primary");
        let server = set.server(primary);
        for retries in [None, Some(0), Some(1), Some(4)] {
            let mut options = options(&set.uri());
            if let Some(retries) = retries {
                options.max_adaptive_retries = retries;
            }
            let client = client(options);
            known(&client, &set).await;
            let before = sent(&server, "ping").len();
            server.set_fail_point(overload(FailPointMode::AlwaysOn));
            let error = refused(ping(&client).await);
            assert!(error.is_overload(), "{error:?}");
            let attempts = 1 + retries.unwrap_or(2) as usize;
            assert_eq!(sent(&server, "ping").len() - before, attempts, "maxAdaptiveRetries={retries:?}");
            server.set_fail_point(FailPoint::new(FailPointMode::Off, &["ping"]));
            client.close().await;
        }
    });
}

#[test]
fn an_overload_is_retried_on_another_member_only_with_overload_retargeting() {
    run(async {
        let set = still_set();
        let primary = set.primary().expect("a primary");
        let server = set.server(primary);
        let preferring = CommandOptions::new().read_preference(ReadPreference::of(ReadMode::PrimaryPreferred));
        for retargets in [false, true] {
            let mut options = options(&set.uri());
            options.enable_overload_retargeting = retargets;
            let client = client(options);
            known(&client, &set).await;
            let before = sent(&server, "ping").len();
            server.set_fail_point(overload(FailPointMode::AlwaysOn));
            let outcome = ping_with(&client, preferring).await;
            assert_eq!(outcome.is_ok(), retargets, "{outcome:?}");
            assert_eq!(sent(&server, "ping").len() - before, if retargets { 1 } else { 3 });
            server.set_fail_point(FailPoint::new(FailPointMode::Off, &["ping"]));
            client.close().await;
        }
    });
}

/// Retryable Reads: without timeoutMS, a command that exceeds its time limit has a network error.
/// It counts as one of the attempts.
#[test]
fn an_idempotent_command_is_attempted_again_after_the_socket_timeout() {
    run(async {
        let set = still_set();
        let primary = set.primary().expect("a primary");
        let server = set.server(primary);
        let mut options = options(&set.uri());
        options.timeout = None;
        options.socket_timeout = Some(Duration::from_secs(1));
        let client = client(options);
        known(&client, &set).await;
        for (idempotent, silences, attempts) in [(false, 1, 1), (true, 1, 2), (true, 2, 2)] {
            // An establishment that exceeds the limit would be another error.
            let check_out = || client.check_out_timeout(None);
            while smol::future::try_zip(check_out(), check_out()).await.is_err() {}
            let before = sent(&server, "ping").len();
            let point = FailPoint::new(FailPointMode::Times(silences), &["ping"]).block(Duration::from_secs(60));
            server.set_fail_point(point);
            let outcome = ping_with(&client, may_run_twice(idempotent)).await;
            assert_eq!(sent(&server, "ping").len() - before, attempts, "idempotent={idempotent}");
            match outcome {
                Ok(()) => assert!(attempts > silences as usize, "the server replied to none of the attempts"),
                Err(error) => {
                    assert!(matches!(error, Error::Operation(OperationError::Timeout, _)), "{error:?}");
                    assert_eq!(attempts, silences as usize);
                }
            }
        }
        client.close().await;
    });
}
